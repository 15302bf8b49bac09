"""Attainable rate: what a non-greedy application can expect of flow control on every time scale.

After Lübben and Fidler, "A Benchmark for the Performance of Time-varying Closed-loop Flow Control with Application to
TCP" (2016): trains of packets at constant rates, quantiles of their steady-state delays, and the service curve that
follows; docs/explanation/attainable-rate.md.
"""

from pathcast.attainable_rate.curve import AttainableRate, Point
from pathcast.attainable_rate.estimator import (
    Options,
    Probed,
    decomposition,
    estimate,
    estimate_adaptively,
    steps,
)
from pathcast.attainable_rate.live import Budget, LiveProber
from pathcast.attainable_rate.loop import WindowLoop
from pathcast.attainable_rate.probes import Plan, Prober, Train
from pathcast.attainable_rate.scenarios import EmulatedProber, SimulatedProber
from pathcast.attainable_rate.video import video

__all__ = [
    "AttainableRate",
    "Budget",
    "EmulatedProber",
    "LiveProber",
    "Options",
    "Plan",
    "Point",
    "Probed",
    "Prober",
    "SimulatedProber",
    "Train",
    "WindowLoop",
    "decomposition",
    "estimate",
    "estimate_adaptively",
    "steps",
    "video",
]
