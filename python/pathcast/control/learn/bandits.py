"""Contextual bandits that learn online which template loads pages soonest, with logged propensities.

A bandit sees the condition of a client, serves it by one of its arms, and learns from the load's time. Every choice is
drawn from known probabilities (propensities), so that its log can judge other policies (`off_policy`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pathcast.control.learn.grid import DEFAULT, Cell, Configuration
from pathcast.control.learn.outcomes import Floats, Interval, Ints, Outcomes
from pathcast.exceptions import ModelError

#: Draws of the posterior by which Thompson sampling votes.
_VOTES = 32
#: The part of all choices that is spread over all arms, so that no propensity is zero.
_FLOOR = 0.01
#: Prior variance of weights that all arms share, and of an arm's differences from them.
_SHARED, _OWN = 100.0, 0.1
#: Variance of a load's logarithm around them: chance, and what is not linear.
_NOISE = 0.03
#: The quantile of a normal distribution for 95 %.
_Z95 = 1.96


def context(cell: Cell, size_bytes: float) -> Floats:
    """Return what a bandit sees of a client and its page, about of size one.

    Args:
        cell: of which the condition is seen.
        size_bytes: of the page, which the server knows.

    """
    condition = cell.condition
    rate = math.log(condition.bandwidth_mbps) / 2
    rtt = math.log(condition.rtt_ms / 150)
    rough, lossy = 4 * math.sqrt(condition.loss), float(condition.loss > 0)
    return np.array(
        [
            *(1.0, rate, rtt, rough, lossy, math.log(size_bytes / 1e6)),
            *(rate * rate, rtt * rtt, rate * rtt, rate * rough, rtt * rough),
            *(rate * lossy, rtt * lossy, rate * rtt * rough),
        ]
    )


#: How long a context is.
SIZE = 14


class Policy(Protocol):
    """Chooses among arms, and learns."""

    def probabilities(self, row: int, seen: Floats) -> Floats:
        """Return the propensity of each arm, for a client (its number) of this context."""
        ...

    def learn(self, row: int, seen: Floats, arm: int, log_ms: float) -> None:
        """Learn from one load."""
        ...


class _Regression:
    """Bayesian linear regression, updated load by load (Sherman-Morrison)."""

    def __init__(self, variance: float, size: int) -> None:
        self.inverse: Floats = variance * np.eye(size)
        self.mean: Floats = np.zeros(size)
        self._vector: Floats = np.zeros(size)

    def learn(self, seen: Floats, value: float) -> None:
        gain = self.inverse @ seen
        self.inverse -= np.outer(gain, gain) / (_NOISE + seen @ gain)
        self._vector += seen * value / _NOISE
        self.mean = np.asarray(self.inverse @ self._vector)


class Linear:
    """Regression of the logarithm of the time: what all arms share, and the differences of each; lower is better.

    Args:
        arms: how many.
        epsilon: None: Thompson sampling, by votes of draws from the posterior. Else the part of choices that are spread
            over all arms, while the others take the arm of least mean.
        generator: of the draws.
        size: of a context.

    """

    def __init__(
        self, arms: int, epsilon: float | None, generator: np.random.Generator, size: int = SIZE
    ) -> None:
        self._epsilon, self._generator = epsilon, generator
        self._shared = _Regression(_SHARED, size)
        self._own = [_Regression(_OWN, size) for _ in range(arms)]
        self._means: Floats = np.zeros((arms, size))
        self._roots: Floats = np.tile(math.sqrt(_OWN) * np.eye(size), (arms, 1, 1))

    def probabilities(self, row: int, seen: Floats) -> Floats:
        """Return the propensities."""
        arms, means = len(self._own), self._means @ seen
        if self._epsilon is not None:
            found = np.full(arms, self._epsilon / arms)
            found[int(np.argmin(means))] += 1 - self._epsilon
            return found
        spread = np.linalg.norm(np.einsum("aij,i->aj", self._roots, seen), axis=1)
        drawn = means + spread * self._generator.standard_normal((_VOTES, arms))
        votes = np.bincount(np.argmin(drawn, axis=1), minlength=arms) / _VOTES
        return np.asarray((1 - _FLOOR) * votes + _FLOOR / arms)

    def learn(self, row: int, seen: Floats, arm: int, log_ms: float) -> None:
        """Update what is shared, and the differences of one arm from it."""
        self._shared.learn(seen, log_ms)
        own = self._own[arm]
        own.learn(seen, log_ms - float(self._shared.mean @ seen))
        self._means[arm] = own.mean
        if self._epsilon is None:
            self._roots[arm] = np.linalg.cholesky(own.inverse + 1e-12 * np.eye(len(seen)))


#: bpftune's tcp_conn tuner, as published: a random arm for so many of all connections, from the fourth on; costs move by
#: a quarter; retransmissions of more than one segment in 64 force BBR.
_BPFTUNE_EPSILON, _BPFTUNE_FIRST, _BPFTUNE_STEP, _BPFTUNE_LOSS = 0.05, 4, 0.25, 1 / 64


@dataclass
class Bpftune:
    """The published rule of bpftune's tcp_conn tuner over congestion controls.

    Its cost is `(RTT - least RTT) / least RTT + (most rate - rate) / most rate` with the best ever seen. The first term is
    left out: the least RTT of a path does not depend on the congestion control.

    Attributes:
        schemes: the arms, `bbr` among them.
        losses: by client, what it retransmits.
        sizes: bytes of each client's page.
        keys: by client, what it shares a learner with.

    """

    schemes: tuple[str, ...]
    losses: Floats
    sizes: Floats
    keys: Sequence[int]
    _costs: dict[int, Floats] = field(default_factory=dict)
    _most: dict[int, float] = field(default_factory=dict)
    _count: dict[int, int] = field(default_factory=dict)

    def probabilities(self, row: int, seen: Floats) -> Floats:
        """Return the propensities: the default for the first connections, then the least cost."""
        found = np.zeros(len(self.schemes))
        key = self.keys[row]
        if self.losses[row] > _BPFTUNE_LOSS:
            found[self.schemes.index("bbr")] = 1
        elif self._count.get(key, 0) < _BPFTUNE_FIRST - 1:
            found[self.schemes.index(DEFAULT.scheme)] = 1
        else:
            found += _BPFTUNE_EPSILON / len(found)
            found[int(np.argmin(self._costs[key]))] += 1 - _BPFTUNE_EPSILON
        return found

    def learn(self, row: int, seen: Floats, arm: int, log_ms: float) -> None:
        """Move the cost of an arm by a quarter of its difference."""
        key, rate = self.keys[row], self.sizes[row] / math.exp(log_ms)
        self._count[key] = self._count.get(key, 0) + 1
        self._most[key] = max(self._most.get(key, 0.0), rate)
        costs = self._costs.setdefault(key, np.zeros(len(self.schemes)))
        costs[arm] += _BPFTUNE_STEP * ((self._most[key] - rate) / self._most[key] - costs[arm])


@dataclass(frozen=True)
class Log:
    """What a bandit did: a line for each load.

    Attributes:
        rows: clients.
        columns: configurations that they got.
        propensities: of those choices.
        log_ms: logarithms of the times.

    """

    rows: Ints
    columns: Ints
    propensities: Floats
    log_ms: Floats


def play(
    policy: Policy,
    arms: Sequence[int],
    outcomes: Outcomes,
    sizes: Mapping[str, int],
    loads: int,
    seed: int,
) -> Log:
    """Serve clients at random, one load each, by a policy that learns.

    Args:
        policy: of these arms.
        arms: columns of the outcomes.
        outcomes: from which times are drawn; cells are the clients.
        sizes: bytes of each page.
        loads: how many.
        seed: of clients, choices and times.

    """
    generator = np.random.default_rng(seed)
    logs = outcomes.log_ms()
    contexts = [context(cell, sizes[cell.page]) for cell in outcomes.cells]
    rows = generator.integers(0, len(outcomes.cells), loads)
    samples = generator.integers(0, logs.shape[2], loads)
    drawn = generator.random(loads)
    columns, propensities, times = np.zeros(loads, dtype=int), np.zeros(loads), np.zeros(loads)
    for number, row in enumerate(rows):
        chances = policy.probabilities(row, contexts[row])
        arm = min(int(np.searchsorted(np.cumsum(chances), drawn[number])), len(arms) - 1)
        columns[number], propensities[number] = arms[arm], chances[arm]
        times[number] = logs[row, arms[arm], samples[number]]
        policy.learn(row, contexts[row], arm, times[number])
    return Log(rows, columns, propensities, times)


def regret_by_load(log: Log, outcomes: Outcomes) -> Floats:
    """Return the expected regret of each choice: the mean logarithm less that of the cell's best configuration."""
    costs = outcomes.costs()
    return np.asarray(costs[log.rows, log.columns] - costs.min(axis=1)[log.rows])


def compare(
    outcomes: Outcomes,
    templates: Sequence[int],
    sizes: Mapping[str, int],
    *,
    loads: int,
    repeats: int,
    known: Floats | None = None,
) -> dict[str, dict[str, Interval]]:
    """Play several policies over the same clients.

    Args:
        outcomes: from which times are drawn.
        templates: columns that are the arms of our bandits.
        sizes: bytes of each page.
        loads: of each play.
        repeats: plays with other seeds.
        known: costs that were learned before, by which a policy starts; shape cells x configurations.

    Returns:
        By policy the mean regret over all loads (`all`) and over the last quarter (`last`), with 95 % intervals of the
        repeats' means.

    """
    schemes = _schemes(outcomes.configurations)
    columns = [outcomes.configurations.index(Configuration(scheme=one)) for one in schemes]
    losses = np.array([cell.condition.loss for cell in outcomes.cells])
    bytes_of = np.array([float(sizes[cell.page]) for cell in outcomes.cells])

    def bpftune(keys: Sequence[int]) -> Callable[[int], Policy]:
        return lambda _: Bpftune(schemes, losses, bytes_of, keys)

    def linear(epsilon: float | None) -> Callable[[int], Policy]:
        return lambda seed: Linear(len(templates), epsilon, np.random.default_rng(1_000 + seed))

    def informed(seed: int) -> Policy:
        policy = linear(None)(seed)
        if known is not None:
            inform(policy, outcomes.cells, sizes, known[:, templates])
        return policy

    policies: dict[str, tuple[Callable[[int], Policy], Sequence[int]]] = {
        "Thompson sampling": (linear(None), templates),
        "Thompson sampling that starts with what was learned": (informed, templates),
        "epsilon-greedy, 5 %": (linear(0.05), templates),
        "bpftune's rule, one learner": (bpftune([0] * len(losses)), columns),
        "bpftune's rule, one for each client": (bpftune(range(len(losses))), columns),
    }
    found = {}
    for name, (make, arms) in policies.items():
        each = [
            regret_by_load(play(make(seed), arms, outcomes, sizes, loads, seed), outcomes)
            for seed in range(repeats)
        ]
        found[name] = {
            "all": _over_repeats([float(np.mean(one)) for one in each]),
            "last": _over_repeats([float(np.mean(one[-max(1, loads // 4) :])) for one in each]),
        }
    return found


def inform(policy: Policy, cells: Sequence[Cell], sizes: Mapping[str, int], costs: Floats) -> None:
    """Let a policy learn costs as if they were loads: one of each arm in each cell."""
    for row, cell in enumerate(cells):
        seen = context(cell, sizes[cell.page])
        for arm, cost in enumerate(costs[row]):
            policy.learn(row, seen, arm, float(cost))


def _schemes(configurations: Sequence[Configuration]) -> tuple[str, ...]:
    """Congestion controls that are there with all other knobs at their defaults."""
    found = [one.scheme for one in configurations if one == Configuration(scheme=one.scheme)]
    if "bbr" not in found:
        raise ModelError("got no configuration that differs from the default in BBR alone")
    return tuple(dict.fromkeys(found))


def _over_repeats(means: Sequence[float]) -> Interval:
    """A mean of logarithms as a part, with its interval over repeats."""
    values = np.expm1(np.asarray(means))
    spread = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    error = _Z95 * spread / math.sqrt(len(values))
    mean = float(values.mean())
    return Interval(mean, mean - error, mean + error)


def off_policy(log: Log, choice: Sequence[int], outcomes: Outcomes) -> dict[str, Interval]:
    """Estimate the mean logarithm of a policy's times from the log of another one.

    Args:
        log: with propensities above zero.
        choice: the policy: a column for each cell.
        outcomes: whose columns the log has; their times are not looked at.

    Returns:
        `snips`: self-normalized inverse propensity scoring; `doubly robust`: a model of the log's times by cell and
        configuration, corrected by inverse propensities. Each with its 95 % interval.

    Raises:
        ModelError: the log has no choice of the policy.

    """
    wanted = np.asarray(choice)[log.rows]
    weights = (log.columns == wanted) / log.propensities
    if not weights.any():
        raise ModelError("the log has no load that the policy would have made; expected some")
    mean = float(np.average(log.log_ms, weights=weights))
    error = math.sqrt(float(np.sum((weights * (log.log_ms - mean)) ** 2))) / float(weights.sum())
    # loads are judged by a model of the other half of the log
    halves = np.arange(len(log.rows)) % 2
    parts = np.zeros(len(log.rows))
    for one in (0, 1):
        at = halves == one
        modeled, rows = _modeled(log, halves != one, outcomes), log.rows[at]
        errors = log.log_ms[at] - modeled[rows, log.columns[at]]
        parts[at] = modeled[rows, wanted[at]] + weights[at] * errors
    robust = float(parts.mean())
    spread = float(parts.std(ddof=1)) / math.sqrt(len(parts)) if len(parts) > 1 else math.nan
    return {
        "snips": Interval(mean, mean - _Z95 * error, mean + _Z95 * error),
        "doubly robust": Interval(robust, robust - _Z95 * spread, robust + _Z95 * spread),
    }


def _modeled(log: Log, chosen: npt.NDArray[np.bool_], outcomes: Outcomes) -> Floats:
    """What a part of the log says of each cell and column: their mean as far as there are loads, else the cell's."""
    shape = (len(outcomes.cells), len(outcomes.configurations))
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (log.rows[chosen], log.columns[chosen]), log.log_ms[chosen])
    np.add.at(counts, (log.rows[chosen], log.columns[chosen]), 1.0)
    overall = float(log.log_ms.mean())
    # one load of the mean stands before those of a cell, and one of the cell's mean before those of a column
    of_cell = (sums.sum(axis=1) + overall) / (counts.sum(axis=1) + 1)
    return np.asarray((sums + of_cell[:, None]) / (counts + 1))
