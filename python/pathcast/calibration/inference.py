"""The path whose simulations look like what was measured.

Near that path, logarithms of features are nearly linear in logarithms of parameters. Each round simulates paths around
the present estimate, fits that line with its covariance, and conditions the prior on the measured features by it: a
synthetic likelihood (Wood 2010), linearized as in iterated ensemble methods (Iglesias 2013).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from pathcast.calibration.closed_forms import LEAST, MOST, PARAMETERS, QUEUE, RTT, FirstEstimate
from pathcast.exceptions import ModelError
from pathcast.trace import Column

#: Simulations of a round, and rounds.
RUNS, ROUNDS = 48, 6
#: The first round looks this part of the prior's spread around the first estimate.
FIRST_PART = 0.45
#: Later rounds look at paths this much farther around than the posterior says.
_WIDER = 1.25
#: The most that a round moves each parameter, as logarithms.
_STEP = np.array([0.7, 0.2, 1.0, 1.5, 1.5])
#: Rounds whose simulations the last estimates rest on.
_LAST_ROUNDS = 3
#: Simulated flows this quantile away count e^-1/2 in a fit.
_NEAR_QUANTILE = 0.7
#: Off-diagonal covariances of features are known from few runs: this part of them is kept.
_SHRINKAGE = 0.6
#: A queue that was never filled is longer than what was seen by this factor at least.
_BEYOND_SEEN = 1.1


@dataclass(frozen=True)
class Inferred:
    """What features show of a path.

    Attributes:
        samples: draws of its parameters; shape n x 5.
        misfit: the root mean square of how far the features of the best path lie from those measured, in standard deviations.
        log_evidence: logarithm of the density that the prior and the fitted line give to what was measured (Laplace's
            approximation): it compares models of a path by the same features.

    """

    samples: Column
    misfit: float
    log_evidence: float


def infer(
    first: FirstEstimate,
    simulated: Callable[[Column, Column], Iterable[Column | None]],
    y: Column,
    floor: Column,
    *,
    draws: int,
    seed: int,
    rounds: int = ROUNDS,
    first_part: float = FIRST_PART,
    progress: Callable[[float], None] | None = None,
) -> Inferred:
    """Draw parameters of the paths that explain features.

    Args:
        first: where to begin, and the prior.
        simulated: features of simulations over the paths of these parameters, shape n x 5, with these seeds, shape n, in
            their order; shape m of each, None for a path that carries nothing.
        y: what was measured; shape m.
        floor: least standard deviation of each; shape m.
        draws: samples of the posterior.
        seed: of all that is random.
        rounds: of simulations.
        first_part: of the prior's spread, in which the first round looks.
        progress: called with the number of simulations so far.

    Raises:
        ModelError: no path carries anything.

    """
    generator = np.random.default_rng(seed)
    mean, covariance = first.start.copy(), np.diag((first_part * first.spread) ** 2)
    fixed = {QUEUE: not first.queue_filled, RTT: first.hides_rtt}
    free = [i for i in range(len(PARAMETERS)) if not fixed.get(i)]
    past: list[tuple[Column, Column]] = []
    misfit, log_evidence = np.inf, -np.inf
    for number in range(rounds):
        tried = _around(mean, covariance, first, RUNS, generator, _WIDER)
        seeds = np.asarray(generator.integers(1, 1 << 30, RUNS), dtype=float)
        found = _completed(simulated(first.parameters(tried), seeds), progress, number * RUNS)
        there = [i for i, one in enumerate(found) if one is not None and np.isfinite(one).all()]
        if len(there) > 2 * len(PARAMETERS):
            past.append((tried[there], np.array([found[i] for i in there])))
        if not past:
            raise ModelError(
                "no simulated flow resembles the trace: the path seems to carry nothing for most of the time"
            )
        x, f = (np.vstack(part) for part in zip(*past[-_LAST_ROUNDS:], strict=True))
        mean, covariance, misfit, log_evidence = _condition(x, f, y, floor, mean, first, free)
        if first.most_rtt_s is not None:
            mean[RTT] = min(mean[RTT], np.log(first.most_rtt_s))
    samples = first.parameters(_around(mean, covariance, first, draws, generator, 1.0))
    return Inferred(samples, misfit, log_evidence)


def _completed(
    results: Iterable[Column | None], progress: Callable[[float], None] | None, before: int
) -> list[Column | None]:
    found = []
    for result in results:
        found.append(result)
        if progress:
            progress(before + len(found))
    return found


def _around(
    mean: Column,
    covariance: Column,
    first: FirstEstimate,
    count: int,
    generator: np.random.Generator,
    wider: float,
) -> Column:
    """Draw logarithms of parameters; a queue that was never filled comes from its prior, beyond what was seen.

    Where the queue may never have been empty, all that would be above the longest propagation delay is that one.
    """
    root = np.linalg.cholesky(covariance + 1e-12 * np.eye(len(mean)))
    drawn = mean + wider * generator.standard_normal((count, len(mean))) @ root.T
    if not first.queue_filled:
        least = np.log(_BEYOND_SEEN * first.longest_queue_s)
        drawn[:, QUEUE] = _above(least, first.prior[QUEUE], first.spread[QUEUE], count, generator)
    if first.most_rtt_s is not None:
        drawn[:, RTT] = np.minimum(drawn[:, RTT], np.log(first.most_rtt_s))
    return np.clip(drawn, np.log(LEAST), np.log(MOST))


def _above(
    least: float, mean: float, deviation: float, count: int, generator: np.random.Generator
) -> Column:
    """Draw from a normal distribution, cut off below `least`."""
    normal = NormalDist(mean, deviation)
    below = min(normal.cdf(least), 1 - 1e-9)
    parts = below + (1 - below) * generator.random(count)
    return np.array([normal.inv_cdf(float(np.clip(part, 1e-12, 1 - 1e-12))) for part in parts])


def _condition(
    x: Column,
    f: Column,
    y: Column,
    floor: Column,
    mean: Column,
    first: FirstEstimate,
    free: list[int],
) -> tuple[Column, Column, float, float]:
    """Condition the prior on the features `y`, with a line through those `f` of the paths `x`.

    Returns:
        mean and covariance of the posterior, the misfit, and the logarithm of the evidence.

    """
    scale = floor + 0.3 * f.std(axis=0)
    distance = np.sqrt((((f - y) / scale) ** 2).mean(axis=1))
    weight = np.exp(-0.5 * (distance / np.quantile(distance, _NEAR_QUANTILE)) ** 2)
    design = np.column_stack([np.ones(len(x)), x[:, free] - mean[free]])
    weighted = design * weight[:, None]
    ridge = np.diag([0.0] + [1e-3] * len(free))
    line = np.linalg.solve(weighted.T @ design + ridge, weighted.T @ f)
    rest = f - design @ line
    covariance = (rest * weight[:, None]).T @ rest / max(float(weight.sum()) - len(free) - 1, 5.0)
    noise = (
        _SHRINKAGE * covariance
        + (1 - _SHRINKAGE) * np.diag(np.diag(covariance))
        + np.diag(floor**2)
    )
    slope = line[1:].T
    precise = np.linalg.inv(noise)
    prior = np.diag(first.spread[free] ** -2)
    posterior = np.linalg.inv(prior + slope.T @ precise @ slope)
    towards_prior = prior @ (first.prior[free] - mean[free])
    step = posterior @ (slope.T @ precise @ (y - line[0]) + towards_prior)
    step = np.clip(step, -_STEP[free], _STEP[free])
    rest_at_best = y - line[0] - slope @ step
    left = rest_at_best**2 / np.diag(noise)
    moved = (mean[free] + step - first.prior[free]) / first.spread[free]
    log_evidence = -0.5 * float(
        rest_at_best @ precise @ rest_at_best
        + np.linalg.slogdet(2 * np.pi * noise)[1]
        + moved @ moved
        - np.linalg.slogdet(posterior)[1]
        + 2 * np.log(first.spread[free]).sum()
    )
    new_mean, new_covariance = mean.copy(), np.diag(first.spread**2)
    new_mean[free] += step
    new_covariance[np.ix_(free, free)] = posterior
    return new_mean, new_covariance, float(np.sqrt(left.mean())), log_evidence
