"""Runs of the benchmark in the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from pathcast import runs
from pathcast.experiments.engine.case import Passed
from pathcast.experiments.schemes.measures import FlowMeasure, of_packets
from pathcast.experiments.schemes.workloads import UNDER_TEST, Flow
from pathcast.path import Path
from pathcast.scenario import Scenario

#: Flows begin at a moment drawn from so many seconds: processes do not start at the same instant, and a simulation
#: without any randomness would say that its figures are exact.
JITTER_S = 0.1


def scenario_of(
    path: Path,
    flows: Sequence[Flow],
    scheme: str,
    runs_as: Mapping[str, str],
    *,
    direction: str,
    seed: int,
) -> Scenario:
    """The scenario of a run.

    Args:
        path: what lies between the hosts.
        flows: of the workload.
        scheme: under test.
        runs_as: the simulator's name of each scheme.
        direction: of the data.
        seed: of the moments at which flows begin.

    """
    drawn = np.random.default_rng(seed).uniform(0.0, JITTER_S, len(flows))
    keys = [
        _keys(flow, runs_as[flow.scheme or scheme], direction, float(late))
        for flow, late in zip(flows, drawn, strict=True)
    ]
    first = keys[0].pop("scheme")
    scenario = Scenario.over(path, [first]).replace_flow(0, **keys[0])
    for one in keys[1:]:
        scenario = scenario.with_flow(**one)
    return scenario


def _keys(flow: Flow, scheme: str, direction: str, late_s: float) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "scheme": scheme,
        "direction": direction,
        "start": f"{flow.start_s + late_s:.6f} s",
    }
    quic = scheme.startswith("quic-")
    if quic:
        keys["mtu_discovery"] = True  # as programs do by default
    if flow.stop_s is not None:
        keys["stop"] = f"{flow.stop_s:.6f} s"
    if flow.size_bytes is not None:
        keys["workload"] = {"kind": "transfer", "size": f"{flow.size_bytes} B"}
    if quic or flow.size_bytes is not None:
        keys["handshake"] = True  # processes connect before they send
    return keys


def run(
    scenario: Scenario,
    flows: Sequence[Flow],
    scheme: str,
    packets: FilePath,
    *,
    duration_s: float,
    seed: int,
    progress: Passed | None,
) -> list[FlowMeasure]:
    """Run a scenario and measure its flows; `packets` is a file to write meanwhile.

    Raises:
        SimulationError: nothing that is sent arrives.
        TraceError: the file cannot be written.

    """
    report, _ = runs.simulate(
        scenario,
        duration_s=duration_s,
        seed=seed,
        record=False,
        packets_file=packets,
        progress=progress,
    )
    ends = []
    for flow, of in zip(flows, report.flows, strict=True):
        stop_s = duration_s if flow.stop_s is None else flow.stop_s
        end_s = stop_s if of.completed_s is None else min(stop_s, of.completed_s)
        ends.append((of.start_s, max(end_s, of.start_s)))
    measured = of_packets(packets, ends)
    return [
        FlowMeasure(
            scheme=flow.scheme or scheme,
            under_test=flow.scheme == UNDER_TEST,
            start_s=start_s,
            end_s=end_s,
            completion_s=None
            if flow.size_bytes is None or of.completed_s is None
            else of.completed_s - of.start_s,
            **found,
        )
        for flow, of, (start_s, end_s), found in zip(
            flows, report.flows, ends, measured, strict=True
        )
    ]
