"""Flows like those that were seen, over candidate paths."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pathcast import _internal
from pathcast.calibration.closed_forms import QUEUE, RTT
from pathcast.calibration.features import (
    MSS_BYTES,
    Observation,
    features,
    lagging,
    observe,
    observed,
    sampled,
    without_lag,
    without_start,
)
from pathcast.calibration.paths import Model, path_of, shared, steady_bps
from pathcast.cluster import Cluster
from pathcast.exceptions import EmulatorError, PathcastError, SchemeError, translated
from pathcast.runs import emulate, specified
from pathcast.scenario import Scenario, with_receive_window
from pathcast.trace import Column

#: The smallest payload of a full packet that a scenario takes, in bytes.
_LEAST_MSS_BYTES = 76
#: What a simulated flow runs before its records count, if those of the flow begin within it, in seconds.
_WARM_UP_S = 5.0
#: How long competing flows run before the flow starts, in seconds: at least, and at most. Their phase is not known.
_HEAD_START_S = (2.0, 12.0)
#: Round trips over a full queue that a connection may take to open, and its first packet to be acknowledged.
_OPENING = 2.0


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
    """How to run a flow like one that was seen, whose records themselves are left out."""

    seen: Observation
    scheme: str
    names: tuple[str, ...]
    line_rate_bps: float | None
    model: Model

    def __call__(self, parameters: Column, seed: int, *, emulated: bool) -> Column | None:
        """Features of a flow over the path with these parameters; None if it carries nothing or its run is not valid."""
        warm_up_s = 0.0 if self.seen.from_start else _WARM_UP_S
        is_shared = bool(self.model.competing or self.model.steady_part)
        start_s = _head_start_s(seed) if is_shared else 0.0
        seconds = start_s + self.seen.duration_s + warm_up_s
        begin_s: float | None = start_s
        try:
            scenario = self._scenario(parameters, start_s, warm_up_s)
            if is_shared and self.seen.opens and not emulated:
                # alone, its first round trip meets no queue, whenever the connection opened
                scenario = scenario.replace_flow(len(scenario.schemes) - 1, handshake=True)
                seconds += _OPENING * float(parameters[RTT] + parameters[QUEUE])
                begin_s = None
            run = _emulated if emulated else _simulated
            flow = run(scenario, seconds, seed, begin_s, self.seen)
            if flow is None:
                return None
            if self.seen.lags and not flow.lags:
                flow = lagging(flow)
            elif flow.lags and not self.seen.lags:
                flow = without_lag(flow)
            if warm_up_s:
                flow = without_start(flow, warm_up_s)
            found = features(sampled(flow, self.seen.sampled_s))
        except (EmulatorError, SchemeError):
            raise
        except (PathcastError, IndexError):
            return None
        return np.array([found.get(name, np.nan) for name in self.names])

    def _scenario(self, parameters: Column, start_s: float, warm_up_s: float) -> Scenario:
        model = self.model
        path = path_of(
            parameters,
            self.line_rate_bps,
            link=model.link,
            queue=model.queue,
            later_s=warm_up_s,
        )
        steady = steady_bps(parameters, model.steady_part)
        others = shared(path, model.competing, steady_bps=steady)
        if isinstance(others, Scenario):
            scenario = others.with_flow(scheme=self.scheme, start=f"{start_s:g} s")
        else:
            scenario = Scenario.over(others, [self.scheme])
        scenario = with_receive_window(scenario, self.seen.receive_window)
        keys: dict[str, object] = {}
        if self.seen.window_bytes:
            keys["receive_window"] = f"{self.seen.window_bytes} B"
        if self.seen.mss_bytes < MSS_BYTES:
            keys["mss"] = f"{max(self.seen.mss_bytes, _LEAST_MSS_BYTES)} B"
        own = len(scenario.schemes) - 1
        return scenario.replace_flow(own, **keys) if keys else scenario


def _head_start_s(seed: int) -> float:
    return float(np.random.default_rng(seed).uniform(*_HEAD_START_S))


def _simulated(
    scenario: Scenario, seconds: float, seed: int, begin_s: float | None, seen: Observation
) -> Observation | None:
    """Observe the last flow of a scenario in the simulator, for as long as the flow that was seen after it began."""
    own = len(scenario.schemes) - 1
    with translated():
        columns, payload = _internal.simulate_sender(
            *specified(scenario, None, seconds, seed), flow=own
        )
    return observed(
        columns,
        f"flow {own}",
        math.inf if begin_s is not None else seen.duration_s,
        mss_bytes=payload or MSS_BYTES,
        may_lag=False,
        use_shortest=seen.has_shortest,
        begin_s=begin_s,
    )


def _emulated(
    scenario: Scenario, seconds: float, seed: int, begin_s: float | None, seen: Observation
) -> Observation | None:
    """Observe the last flow of a scenario in the emulator; None if its run is not valid."""
    report, trace = emulate(scenario, duration_s=seconds, seed=seed)
    if trace is None or not report.valid:
        return None
    own = len(scenario.schemes) - 1
    return observe(trace, own, use_shortest=seen.has_shortest, begin_s=begin_s)


@dataclass(frozen=True)
class Imitation:
    """Flows like several that used one path one after another. It is small, and can be pickled."""

    likes: tuple[_Like, ...]

    @classmethod
    def of(cls, flows: Sequence[Sender], model: Model, line_rate_bps: float | None) -> Imitation:
        """Imitate flows over paths of a model; the rate of the link behind a policer is given."""
        empty = np.empty(0)
        return cls(
            tuple(
                _Like(
                    replace(
                        one.seen,
                        time_s=empty,
                        acked=empty,
                        srtt_s=empty,
                        cwnd=empty,
                        retransmits=None if one.seen.retransmits is None else empty,
                    ),
                    one.scheme,
                    tuple(features(one.seen)),
                    line_rate_bps,
                    model,
                )
                for one in flows
            )
        )

    def __call__(self, parameters: Column, seed: int, *, emulated: bool = False) -> Column | None:
        """Features of all flows over the path with these parameters, one after another.

        Args:
            parameters: in the order of `PARAMETERS`.
            seed: of the first; the next have the next.
            emulated: the kernel's flows in real time, in place of simulated ones.

        """
        parts = []
        for number, like in enumerate(self.likes):
            part = like(parameters, seed + number, emulated=emulated)
            if part is None:
                return None
            parts.append(part)
        return np.concatenate(parts)


#: Runs an imitation over paths with these parameters, shape n x 5, with these seeds, shape n; results in their order.
Runner = Callable[[Imitation, Column, Column], Iterator["Column | None"]]


def on_cores(imitation: Imitation, parameters: Column, seeds: Column) -> Iterator[Column | None]:
    """Run on all cores of this machine."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        yield from threads.map(imitation, parameters, map(int, seeds))


def on_cluster(cluster: Cluster) -> Runner:
    """Run on the machines of a Ray cluster."""

    def run(imitation: Imitation, parameters: Column, seeds: Column) -> Iterator[Column | None]:
        work = list(zip(parameters, map(int, seeds), strict=True))
        size = -(-len(work) // cluster.cpus)
        chunks = [work[begin : begin + size] for begin in range(0, len(work), size)]
        for results in cluster.map(partial(_chunk, imitation), chunks):
            yield from results

    return run


def _chunk(imitation: Imitation, work: Sequence[tuple[Column, int]]) -> list[Column | None]:
    """What a task of a cluster does."""
    return [imitation(parameters, seed) for parameters, seed in work]


__all__ = ["Imitation", "Runner", "Sender", "on_cluster", "on_cores"]
