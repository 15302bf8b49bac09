"""Runs of the benchmark by real implementations, behind an emulated path."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pathcast.exceptions import EmulatorError
from pathcast.experiments.engine.case import Passed
from pathcast.experiments.schemes.measures import FlowMeasure
from pathcast.experiments.schemes.workloads import UNDER_TEST, Flow
from pathcast.path import Path
from pathcast.schemes.run import Flow as RealFlow
from pathcast.schemes.run import run_flows


def run(
    path: Path,
    flows: Sequence[Flow],
    scheme: str,
    *,
    direction: str,
    duration_s: float,
    seed: int,
    progress: Passed | None,
) -> tuple[list[FlowMeasure], tuple[str, ...]]:
    """Run flows and measure them.

    Returns:
        The flows, and why the run is not valid; empty: it is.

    Raises:
        SchemeError: a scheme is unknown.

    """
    asked = [
        RealFlow(flow.scheme or scheme, flow.start_s, flow.stop_s, flow.size_bytes)
        for flow in flows
    ]
    try:
        done = run_flows(
            path,
            asked,
            duration_s=duration_s,
            seed=seed,
            reverse=direction == "reverse",
            progress=None if progress is None else lambda part: progress(part * duration_s),
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


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
