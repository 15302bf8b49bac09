"""Runs of the benchmark by real implementations, behind an emulated path or between two hosts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from pathcast.exceptions import EmulatorError, LiveError
from pathcast.experiments.engine.case import Passed
from pathcast.experiments.schemes.measures import FlowMeasure
from pathcast.experiments.schemes.workloads import UNDER_TEST, Flow
from pathcast.path import Path
from pathcast.schemes import live
from pathcast.schemes.run import Flow as RealFlow
from pathcast.schemes.run import FlowsRun, run_flows

#: How often a server is tried that does not answer or whose run broke off, and how long between, in seconds.
_TRIES, _BETWEEN_S = 3, 10.0
#: Servers with which this process has run flows.
_ANSWERED: set[live.Host] = set()


def run(
    path: Path | live.Host,
    flows: Sequence[Flow],
    scheme: str,
    *,
    direction: str,
    duration_s: float,
    seed: int,
    progress: Passed | None,
) -> tuple[list[FlowMeasure], tuple[str, ...]]:
    """Run flows over an emulated path, or with a server, and measure them.

    Returns:
        The flows, and why the run is not valid; empty: it is.

    Raises:
        SchemeError: a scheme is unknown.
        LiveError: the server does not answer, refuses, or its runs break off.

    """
    asked = [
        RealFlow(flow.scheme or scheme, flow.start_s, flow.stop_s, flow.size_bytes)
        for flow in flows
    ]
    passed = None if progress is None else lambda part: progress(part * duration_s)
    reverse = direction == "reverse"
    try:
        if isinstance(path, live.Host):
            done = _run_live(path, asked, duration_s, passed, reverse=reverse)
        else:
            done = run_flows(
                path, asked, duration_s=duration_s, seed=seed, reverse=reverse, progress=passed
            )
    except EmulatorError as error:
        return [], (str(error),)  # one run that fails does not end the others
    measured = []
    for flow, found in zip(flows, done.flows, strict=True):
        stop_s = duration_s if flow.stop_s is None else flow.stop_s
        end_s = stop_s if found.completion_s is None else flow.start_s + found.completion_s
        delays = {name: value for name, value in found.delay_ms.items() if math.isfinite(value)}
        series = found.series or {"t_s": [], "rate_bps": [], "delay_ms": []}
        columns = (series[name] for name in ("t_s", "rate_bps", "delay_ms"))
        measured.append(
            FlowMeasure(
                scheme=flow.scheme or scheme,
                under_test=flow.scheme == UNDER_TEST,
                start_s=flow.start_s,
                end_s=end_s,
                throughput_bps=_finite(found.throughput_bps),
                delay_ms=delays if len(delays) == 3 else None,
                loss=_finite(found.loss),
                completion_s=found.completion_s,
                why_not=found.why_not,
                controller=found.controller or "",
                series=tuple(
                    (time, rate, _finite(delay)) for time, rate, delay in zip(*columns, strict=True)
                ),
            )
        )
    return measured, done.invalid_because


def _run_live(
    host: live.Host,
    flows: Sequence[RealFlow],
    duration_s: float,
    passed: Callable[[float], None] | None,
    *,
    reverse: bool,
) -> FlowsRun:
    """Run flows with a server, which may be away for a moment if it has answered before."""
    for left in reversed(range(_TRIES)):
        try:
            done = live.run_flows(
                host, flows, duration_s=duration_s, reverse=reverse, progress=passed
            )
        except LiveError:
            if left == 0 or host not in _ANSWERED:
                raise
            time.sleep(_BETWEEN_S)
        else:
            _ANSWERED.add(host)
            return done
    raise AssertionError("it was run or has raised")


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
