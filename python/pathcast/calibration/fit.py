"""The path that explains a flow: simulated flows over candidate paths are compared with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from pathcast.calibration.closed_forms import (
    FirstEstimate,
    first_estimate,
    first_estimate_beside,
    first_estimate_policed,
    together,
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
from pathcast.calibration.inference import ROUNDS, RUNS, infer
from pathcast.exceptions import PathcastError, SchemeError
from pathcast.path import Path
from pathcast.runs import simulate
from pathcast.scenario import Scenario
from pathcast.trace import Column

#: The smallest payload of a full packet that a scenario takes, in bytes.
_LEAST_MSS_BYTES = 76
#: A queue holds this much at least, in bytes: two packets.
_LEAST_QUEUE_BYTES = 3000
#: Below this, delays have no jitter.
_LEAST_JITTER_S = 2e-6
#: What a simulated flow runs before its records count, if those of the flow begin within it, in seconds.
_WARM_UP_S = 5.0
#: How long competing flows run before the flow starts, in seconds.
_HEAD_START_S = 5.0


@dataclass(frozen=True)
class Posterior:
    """Parameters of a path as far as a flow tells.

    Attributes:
        samples: draws of the parameters in the order of `PARAMETERS`; shape n x 5.
        line_rate_bps: rate of the link behind a policer; None without a policer.
        competing: schemes of the flows beside it.
        misfit: root mean square of how far the flow's features lie from those of the best path, in standard deviations.
        runs: simulations that were made.

    """

    samples: Column
    line_rate_bps: float | None
    competing: tuple[str, ...]
    misfit: float
    runs: int


@dataclass(frozen=True)
class Link:
    """How packets leave the bottleneck.

    Attributes:
        kind: of the rate in a path file: `constant`, `poisson` or `wandering`.
        spread: of a rate that wanders: standard deviation of its logarithm.
        correlation_s: likewise: after this time its correlation has fallen to 1/e.

    """

    kind: str = "constant"
    spread: float = 0.0
    correlation_s: float = 0.0

    def rate(self, rate_bps: float) -> str:
        """Its rate as a value in a path file."""
        rate = f"'{rate_bps:.0f} bit/s'"
        if self.kind == "constant":
            return rate
        wanders = (
            f", spread = {self.spread:.4f}, correlation = '{self.correlation_s * 1e3:.0f} ms'"
            if self.kind == "wandering"
            else ""
        )
        return f"{{ kind = '{self.kind}', rate = {rate}{wanders} }}"


#: A constant rate, and all kinds of links.
CONSTANT = Link()
LINKS = ("constant", "poisson", "wandering")


def path_of(
    parameters: Column,
    line_rate_bps: float | None = None,
    name: str = "",
    link: Link = CONSTANT,
) -> Path:
    """Return the path with these parameters, in the order of `PARAMETERS`; shape 5.

    Args:
        parameters: of a queue before a link; of a policer, the rate is its rate, and the queue the depth of its bucket.
        line_rate_bps: rate of the link behind a policer; None: there is no policer.
        name: of the path.
        link: how packets leave the queue.

    """
    rate_bps, rtt_s, queue_s, loss, jitter_s = (float(value) for value in parameters)
    stored = max(queue_s * rate_bps / 8, _LEAST_QUEUE_BYTES)
    if line_rate_bps is None:
        bottleneck = f"rate = {link.rate(rate_bps)}\nqueue = '{stored:.0f} B'\n"
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


def shared(path: Path, competing: Sequence[str]) -> Path | Scenario:
    """Return a path with the flows that compete for it; the path alone if there are none.

    Args:
        path: what they share.
        competing: a scheme for each; they have no end.

    """
    return Scenario.over(path, list(competing)) if competing else path


@dataclass(frozen=True)
class Sender:
    """A flow that was seen.

    Attributes:
        seen: what its sender saw.
        scheme: its congestion control.

    """

    seen: Observation
    scheme: str


@dataclass(frozen=True)
class _Like:
    """How to simulate a flow like the one that was seen."""

    seen: Observation
    scheme: str
    names: list[str]
    line_rate_bps: float | None
    competing: tuple[str, ...]

    def __call__(self, parameters: Column, seed: int) -> Column | None:
        """Features of a flow over the path with these parameters; None if it carries nothing."""
        warm_up_s = 0.0 if self.seen.from_start else _WARM_UP_S
        own, start_s = len(self.competing), _HEAD_START_S if self.competing else 0.0
        try:
            path = path_of(parameters, self.line_rate_bps)
            if self.competing:
                scenario = Scenario.over(path, self.competing)
                scenario = scenario.with_flow(scheme=self.scheme, start=f"{start_s:g} s")
            else:
                scenario = Scenario.over(path, [self.scheme])
            keys: dict[str, object] = {}
            if self.seen.window_bytes:
                keys["receive_window"] = f"{self.seen.window_bytes} B"
            if self.seen.mss_bytes < MSS_BYTES:
                keys["mss"] = f"{max(self.seen.mss_bytes, _LEAST_MSS_BYTES)} B"
            if keys:
                scenario = scenario.replace_flow(own, **keys)
            seconds = start_s + self.seen.duration_s + warm_up_s
            _, trace = simulate(scenario, duration_s=seconds, seed=seed)
            if trace is None:
                return None
            flow = observe(trace, own, use_shortest=self.seen.has_shortest, begin_s=start_s)
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
    flows: Sequence[Sender],
    *,
    draws: int,
    seed: int,
    policed: bool = False,
    competing: tuple[str, ...] = (),
    rounds: int = ROUNDS,
    progress: Callable[[float], None] | None = None,
) -> tuple[Posterior, FirstEstimate]:
    """Infer the path of a flow, or of several that used it one after another.

    Args:
        flows: at least one.
        draws: samples of the posterior.
        seed: of all that is random.
        policed: whether a policer limits the rate, instead of a queue before a link.
        competing: schemes of flows that share the queue and were there before.
        rounds: of simulations.
        progress: called with the number of simulations so far.

    Raises:
        ModelError: no simulated flow resembles it.

    """
    first = together([_first(one.seen, competing, policed=policed) for one in flows])
    likes: list[_Like] = []
    measured: list[float] = []
    floor: list[float] = []
    for one in flows:
        wanted = features(one.seen)
        names = list(wanted)
        likes.append(_Like(one.seen, one.scheme, names, first.line_rate_bps, competing))
        measured += wanted.values()
        floor += list(floors(names, one.seen))

    def simulated(parameters: Column, seed: int) -> Column | None:
        """Features of all flows, one after another."""
        parts = []
        for number, like in enumerate(likes):
            part = like(parameters, seed + number)
            if part is None:
                return None
            parts.append(part)
        return np.concatenate(parts)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        samples, misfit = infer(
            first,
            lambda paths, seeds: threads.map(simulated, paths, map(int, seeds)),
            np.array(measured),
            np.array(floor),
            draws=draws,
            seed=seed,
            rounds=rounds,
            progress=progress,
        )
    return Posterior(samples, first.line_rate_bps, competing, misfit, rounds * RUNS), first


def _first(seen: Observation, competing: tuple[str, ...], *, policed: bool) -> FirstEstimate:
    if policed:
        return first_estimate_policed(seen)
    if competing:
        return first_estimate_beside(seen, len(competing))
    return first_estimate(seen)
