"""The path that explains a flow: simulated flows over candidate paths are compared with it.

Near the path that explains a flow, logarithms of features are nearly linear in logarithms of parameters. Each round
simulates paths around the present estimate, fits that line with its covariance, and conditions the prior on the flow's
features by it: a synthetic likelihood (Wood 2010), linearized as in iterated ensemble methods (Iglesias 2013).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from pathcast.calibration.closed_forms import (
    LEAST,
    MOST,
    PARAMETERS,
    QUEUE,
    FirstEstimate,
    first_estimate,
    first_estimate_policed,
)
from pathcast.calibration.features import (
    MSS_BYTES,
    Observation,
    features,
    floors,
    lagging,
    observe,
    sampled,
    without_start,
)
from pathcast.exceptions import ModelError, PathcastError, SchemeError
from pathcast.path import Path
from pathcast.runs import simulate
from pathcast.scenario import Scenario
from pathcast.trace import Column

#: Simulations of a round, and rounds.
RUNS, ROUNDS = 48, 6
#: The first round looks this part of the prior's spread around the first estimate.
_FIRST_PART = 0.45
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
#: The smallest payload of a full packet that a scenario takes, in bytes.
_LEAST_MSS_BYTES = 76
#: A queue holds this much at least, in bytes: two packets.
_LEAST_QUEUE_BYTES = 3000
#: Below this, delays have no jitter.
_LEAST_JITTER_S = 2e-6
#: A queue that was never filled is longer than what was seen by this factor at least.
_BEYOND_SEEN = 1.1
#: What a simulated flow runs before its records count, if those of the flow begin within it, in seconds.
_WARM_UP_S = 5.0


@dataclass(frozen=True)
class Posterior:
    """Parameters of a path as far as a flow tells.

    Attributes:
        samples: draws of the parameters in the order of `PARAMETERS`; shape n x 5.
        line_rate_bps: rate of the link behind a policer; None without a policer.
        misfit: root mean square of how far the flow's features lie from those of the best path, in standard deviations.
        runs: simulations that were made.

    """

    samples: Column
    line_rate_bps: float | None
    misfit: float
    runs: int


def path_of(parameters: Column, line_rate_bps: float | None = None, name: str = "") -> Path:
    """Return the path with these parameters, in the order of `PARAMETERS`; shape 5.

    Args:
        parameters: of a queue before a link; of a policer, the rate is its rate, and the queue the depth of its bucket.
        line_rate_bps: rate of the link behind a policer; None: there is no policer.
        name: of the path.

    """
    rate_bps, rtt_s, queue_s, loss, jitter_s = (float(value) for value in parameters)
    stored = max(queue_s * rate_bps / 8, _LEAST_QUEUE_BYTES)
    if line_rate_bps is None:
        bottleneck = f"rate = '{rate_bps:.0f} bit/s'\nqueue = '{stored:.0f} B'\n"
    else:
        bottleneck = (
            f"rate = '{max(line_rate_bps, rate_bps):.0f} bit/s'\n"
            f"policer = {{ rate = '{rate_bps:.0f} bit/s', burst = '{stored:.0f} B' }}\n"
        )
    one_way = f"'{rtt_s / 2 * 1e9:.0f} ns'"
    has_jitter = jitter_s > _LEAST_JITTER_S
    delay = one_way
    if has_jitter:
        delay = f"{{ kind = 'jitter', base = {one_way}, jitter = '{jitter_s * 1e9:.0f} ns', distribution = 'exponential' }}"
    text = (
        f"name = '{name}'\n{bottleneck}loss = {loss:.9f}\ndelay = {delay}\n"
        f"[reverse]\ndelay = {one_way}\n"
    )
    return Path.parse(text, "calibrated path")


@dataclass(frozen=True)
class _Like:
    """How to simulate a flow like the one that was seen."""

    seen: Observation
    scheme: str
    names: list[str]
    line_rate_bps: float | None

    def __call__(self, parameters: Column, seed: int) -> Column | None:
        """Features of a flow over the path with these parameters; None if it carries nothing."""
        warm_up_s = 0.0 if self.seen.from_start else _WARM_UP_S
        try:
            scenario = Scenario.over(path_of(parameters, self.line_rate_bps), [self.scheme])
            keys: dict[str, object] = {}
            if self.seen.window_bytes:
                keys["receive_window"] = f"{self.seen.window_bytes} B"
            if self.seen.mss_bytes < MSS_BYTES:
                keys["mss"] = f"{max(self.seen.mss_bytes, _LEAST_MSS_BYTES)} B"
            if keys:
                scenario = scenario.replace_flow(0, **keys)
            _, trace = simulate(scenario, duration_s=self.seen.duration_s + warm_up_s, seed=seed)
            if trace is None:
                return None
            flow = observe(trace, 0, use_shortest=self.seen.has_shortest, begin_s=0.0)
            if self.seen.lags:
                flow = lagging(flow)
            if warm_up_s:
                flow = without_start(flow, warm_up_s)
            found = features(sampled(flow, self.seen.sampled_s))
        except SchemeError:
            raise
        except (PathcastError, IndexError):
            return None
        return np.array([found.get(name, np.nan) for name in self.names])


def fit(
    seen: Observation,
    scheme: str,
    *,
    draws: int,
    seed: int,
    policed: bool = False,
    progress: Callable[[float], None] | None = None,
) -> tuple[Posterior, FirstEstimate]:
    """Infer the path of a flow.

    Args:
        seen: the flow.
        scheme: its congestion control.
        draws: samples of the posterior.
        seed: of all that is random.
        policed: whether a policer limits the rate, instead of a queue before a link.
        progress: called with the number of simulations so far.

    Raises:
        ModelError: no simulated flow resembles it.

    """
    first = first_estimate_policed(seen) if policed else first_estimate(seen)
    wanted = features(seen)
    names = list(wanted)
    y = np.array(list(wanted.values()))
    floor = floors(names, seen)
    like = _Like(seen, scheme, names, first.line_rate_bps)
    generator = np.random.default_rng(seed)
    mean, covariance = first.start.copy(), np.diag((_FIRST_PART * first.spread) ** 2)
    free = [i for i in range(len(PARAMETERS)) if i != QUEUE or first.queue_filled]
    past: list[tuple[Column, Column]] = []
    misfit = np.inf
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for number in range(ROUNDS):
            tried = _around(mean, covariance, first, RUNS, generator, _WIDER)
            seeds = generator.integers(1, 1 << 30, RUNS)
            found = _completed(
                threads.map(like, np.exp(tried), map(int, seeds)), progress, number * RUNS
            )
            there = [i for i, one in enumerate(found) if one is not None and np.isfinite(one).all()]
            if len(there) > 2 * len(PARAMETERS):
                past.append((tried[there], np.array([found[i] for i in there])))
            if not past:
                raise ModelError(
                    "no simulated flow resembles the trace: the path seems to carry nothing for most of the time"
                )
            x, f = (np.vstack(part) for part in zip(*past[-_LAST_ROUNDS:], strict=True))
            mean, covariance, misfit = _condition(x, f, y, floor, mean, first, free)
    samples = np.exp(_around(mean, covariance, first, draws, generator, 1.0))
    return Posterior(samples, first.line_rate_bps, misfit, ROUNDS * RUNS), first


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
    """Draw logarithms of parameters; a queue that was never filled comes from its prior, beyond what was seen."""
    root = np.linalg.cholesky(covariance + 1e-12 * np.eye(len(mean)))
    drawn = mean + wider * generator.standard_normal((count, len(mean))) @ root.T
    if not first.queue_filled:
        least = np.log(_BEYOND_SEEN * first.longest_queue_s)
        drawn[:, QUEUE] = _above(least, first.prior[QUEUE], first.spread[QUEUE], count, generator)
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
) -> tuple[Column, Column, float]:
    """Condition the prior on the features `y`, with a line through those `f` of the paths `x`.

    Returns:
        mean and covariance of the posterior, and the misfit.

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
    left = (y - line[0] - slope @ step) ** 2 / np.diag(noise)
    new_mean, new_covariance = mean.copy(), np.diag(first.spread**2)
    new_mean[free] += step
    new_covariance[np.ix_(free, free)] = posterior
    return new_mean, new_covariance, float(np.sqrt(left.mean()))
