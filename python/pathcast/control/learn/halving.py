"""Successive halving: cheap loads rank all configurations, true loads of ever fewer of them decide."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pathcast.control.learn.grid import Cell, Configuration
from pathcast.control.learn.outcomes import LONGEST_MS, Floats
from pathcast.exceptions import ModelError

#: Configurations by cell, number of the first load, loads by each: returns load times in milliseconds.
Load = Callable[
    [Mapping[Cell, Sequence[Configuration]], int, int],
    dict[Cell, dict[Configuration, list[float]]],
]
#: Standard deviation of a true load's logarithm where cheap loads say less, such as none without losses.
_LEAST_SPREAD = 0.02


@dataclass(frozen=True)
class Prior:
    """What cheap loads say.

    Attributes:
        costs: mean logarithm of the times; shape cells x configurations.
        spread: standard deviation of one load's logarithm; the same shape.
        agreement: standard deviation of true less cheap mean logarithms between configurations of a cell.

    """

    costs: Floats
    spread: Floats
    agreement: float


@dataclass(frozen=True)
class Learned:
    """The result of halving.

    Attributes:
        costs: mean logarithm of the time of each configuration by cheap and true loads together; shape cells x
            configurations.
        loads: true loads that were made, in all.
        rounds: configurations left, and true loads by each, in every round.

    """

    costs: Floats
    loads: int
    rounds: tuple[tuple[int, int], ...]


def schedule(budget: int, configurations: int) -> tuple[tuple[int, int], ...]:
    """Return how many configurations are left in each round, and how often each is loaded then.

    The first round has as many as leave every round a like share of the budget; each later one has half.

    Args:
        budget: true loads in one cell, at least one.
        configurations: of the space.

    """
    if budget < 1:
        raise ModelError(f"got a budget of {budget} loads in each cell; expected at least 1")
    first = max(
        (one for one in range(1, configurations + 1) if one * len(_counts(one)) <= budget),
        default=1,
    )
    counts = _counts(first)
    share, found, left = budget // len(counts), [], budget
    for number, count in enumerate(counts):
        least = sum(counts[number + 1 :])
        loads = max(1, min(share // count, (left - least) // count))
        found.append((count, loads))
        left -= count * loads
    return tuple(found)


def _counts(first: int) -> list[int]:
    """So many configurations, then half of those that are left, down to two."""
    found = [first]
    while found[-1] > 2:
        found.append((found[-1] + 1) // 2)
    return found


def halve(
    cells: Sequence[Cell],
    configurations: Sequence[Configuration],
    prior: Prior,
    load: Load,
    budget: int,
) -> Learned:
    """Find the best configuration of each cell.

    What is known of a configuration is the normal posterior of its mean logarithm: cheap loads are the prior, true loads
    the evidence. Cheap loads may be wrong by a factor that all configurations of a cell share: true loads show it. The
    lower the posterior mean, the longer a configuration stays.

    Args:
        cells: pages under conditions.
        configurations: of the space.
        prior: what cheap loads say.
        load: makes true loads.
        budget: true loads in each cell.

    """
    rounds = schedule(budget, len(configurations))
    columns = {one: number for number, one in enumerate(configurations)}
    logs: list[list[list[float]]] = [[[] for _ in configurations] for _ in cells]
    costs, made, first = prior.costs.copy(), 0, 0
    for count, each in rounds:
        asked = {
            cell: [configurations[one] for one in np.argsort(costs[row], kind="stable")[:count]]
            for row, cell in enumerate(cells)
        }
        found = load(asked, first, each)
        first += each
        for row, cell in enumerate(cells):
            for one, times in found[cell].items():
                logs[row][columns[one]] += [math.log(min(time, LONGEST_MS)) for time in times]
                made += len(times)
            costs[row] = posterior(prior, row, logs[row])
    return Learned(costs, made, rounds)


def posterior(prior: Prior, row: int, logs: Sequence[Sequence[float]]) -> Floats:
    """Return the posterior mean of each configuration's cost in a cell, from the logarithms of its true loads."""
    cheap = prior.costs[row]
    counts = np.array([len(those) for those in logs])
    seen = [int(one) for one in np.flatnonzero(counts)]
    if not len(seen):
        return np.asarray(cheap.copy())
    means = np.array([np.mean(logs[one]) for one in seen])
    noise = np.maximum(prior.spread[row, seen], _LEAST_SPREAD) ** 2 / counts[seen]
    weight = prior.agreement**2 + noise
    # what cheap loads are wrong by in this cell, alike for all configurations
    shift = float(np.average(means - cheap[seen], weights=1 / weight))
    found = cheap + shift
    share = prior.agreement**2 / weight
    found[seen] += share * (means - found[seen])
    return np.asarray(found)
