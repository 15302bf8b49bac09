"""Flows over paths drawn at random, each made so that one thing limits it."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pathcast._limits import LIMITS
from pathcast.experiments.engine.case import (
    Attempt,
    Passed,
    attempt_trace,
    fingerprint,
    scenario_of,
)
from pathcast.experiments.engine.world import World
from pathcast.experiments.limits.truth import shares
from pathcast.scenario import Scenario

#: Flows of each limit.
FLOWS = 25
#: Seeds of the paths: those that thresholds may be chosen with, and those for acceptance.
SEED, HELD_OUT_SEED = 1, 1001
#: Bits of a full packet on the link.
_PACKET_BITS = 1500 * 8


@dataclass(frozen=True)
class Flow:
    """One flow over one path.

    Attributes:
        name: names its folder.
        limit: the intended limit.
        scheme: congestion control.
        seed: of all that is random.
        duration_s: how long, in seconds.
        rate_bps: of the link, in bit/s.
        rtt_s: shortest round trip, in seconds.
        link: keys of the path.
        keys: keys of the flow.

    """

    name: str
    limit: str
    scheme: str
    seed: int
    duration_s: float
    rate_bps: float
    rtt_s: float
    link: Mapping[str, Any]
    keys: Mapping[str, Any] = field(default_factory=dict)

    #: The file that is kept of a run.
    kept_as = "trace.parquet"

    def scenario(self) -> Scenario:
        """What is run."""
        flow = {"scheme": self.scheme, **self.keys}
        return scenario_of("pathcast.experiments.limits", "path.toml", self.name, self.link, flow)

    def fingerprint(self, world: str) -> str:
        """Return a digest that a kept run of this flow by this backend has."""
        return fingerprint([self.scenario().toml, self.limit, self.seed, self.duration_s, world])

    def attempt(self, world: World, file: FilePath, progress: Passed | None = None) -> Attempt:
        """Run it once, write its trace, and put the true shares of limits into the report.

        Raises:
            EmulatorError: the emulator cannot run here.
            TraceError: the trace cannot be written.

        """
        with tempfile.TemporaryDirectory(prefix="pathcast-") as folder:
            packets = FilePath(folder) / "packets.parquet"
            found = attempt_trace(
                self.scenario(),
                world,
                file,
                duration_s=self.duration_s,
                seed=self.seed,
                progress=progress,
                packets_file=packets,
            )
            if found.why_not:
                return found
            truth = shares(
                packets,
                self.limit,
                rate_bps=self.rate_bps,
                rtt_s=self.rtt_s,
                has_window=self.scheme != "bbr",
            )
        return Attempt(found.report | {"truth": truth})


def flows(*, held_out: bool = False, count: int = FLOWS) -> list[Flow]:
    """Draw the flows: `count` of each limit."""
    seed = HELD_OUT_SEED if held_out else SEED
    found = []
    for limit in LIMITS:
        draw = random.Random(f"{limit} {seed}")  # noqa: S311 - not for secrets
        for number in range(count):
            scheme, duration_s, pipe, link, keys = _DRAWN[limit](draw, number)
            name = f"{limit}-{number:02}-{scheme}-seed{seed}"
            of_pipe = {"rate": f"{pipe.rate_bps:.0f} bit/s", "delay": f"{pipe.rtt_s * 5e8:.0f} ns"}
            found.append(
                Flow(
                    name,
                    limit,
                    scheme,
                    seed + number,
                    duration_s,
                    pipe.rate_bps,
                    pipe.rtt_s,
                    of_pipe | link,
                    keys,
                )
            )
    return found


def _log_uniform(draw: random.Random, low: float, high: float) -> float:
    return math.exp(draw.uniform(math.log(low), math.log(high)))


@dataclass(frozen=True)
class _Pipe:
    """Rate in bit/s and round-trip time in seconds."""

    rate_bps: float
    rtt_s: float

    @classmethod
    def drawn(
        cls,
        draw: random.Random,
        rates_mbps: tuple[float, float] = (2, 60),
        rtts_s: tuple[float, float] = (0.01, 0.2),
    ) -> _Pipe:
        return cls(_log_uniform(draw, *rates_mbps) * 1e6, _log_uniform(draw, *rtts_s))

    @property
    def bdp_packets(self) -> float:
        return self.rate_bps * self.rtt_s / _PACKET_BITS


#: Scheme, duration in seconds, rate and round trip, other keys of the path, and those of the flow.
_Drawn = tuple[str, float, _Pipe, dict[str, Any], dict[str, Any]]


def _path_rate(draw: random.Random, number: int) -> _Drawn:
    scheme = ("cubic", "reno", "bbr")[number % 3]
    queue = f"{draw.uniform(1.0, 4.0):.3g} BDP"
    return scheme, 20.0, _Pipe.drawn(draw), {"queue": queue}, {}


def _loss(draw: random.Random, number: int) -> _Drawn:
    scheme = ("cubic", "reno")[number % 2]
    pipe = _Pipe.drawn(draw, (10, 60), (0.03, 0.2))
    while pipe.bdp_packets < 60:  # below, windows are too small to be halved
        pipe = _Pipe.drawn(draw, (10, 60), (0.03, 0.2))
    window = draw.uniform(0.25, 0.5) * pipe.bdp_packets
    # the mean windows of Reno (Mathis 1997) and of CUBIC (RFC 9438, 5.1): the larger one is to be `window`
    chance = 1.5 / window**2
    if scheme == "cubic":
        chance = max(chance, (1.054 * pipe.rtt_s**0.75 / window) ** (4 / 3))
    link = {"queue": "2 BDP", "loss": float(f"{chance:.3g}")}
    return scheme, 30.0, pipe, link, {}


def _queue(draw: random.Random, number: int) -> _Drawn:
    # CUBIC returns fast to the window that it lost at, but where its window grows as Reno's
    scheme = ("reno", "reno", "cubic")[number % 3]
    rates, rtts, least = (
        ((10, 30), (0.03, 0.08), 40) if scheme == "reno" else ((15, 30), (0.012, 0.02), 20)
    )
    pipe = _Pipe.drawn(draw, rates, rtts)
    while pipe.bdp_packets < least:
        pipe = _Pipe.drawn(draw, rates, rtts)
    # a shorter queue cannot be distinguished from a policer
    packets = max(4, round(draw.uniform(0.05, 0.12) * pipe.bdp_packets))
    return scheme, 30.0, pipe, {"queue": f"{packets} packets"}, {}


def _policer(draw: random.Random, number: int) -> _Drawn:
    scheme = ("cubic", "reno", "bbr")[number % 3]
    pipe = _Pipe.drawn(draw, (60, 150), (0.015, 0.1))
    rate_bps = draw.uniform(0.1, 0.3) * pipe.rate_bps
    burst = max(15_000.0, draw.uniform(0.3, 1.5) * rate_bps * pipe.rtt_s / 8)
    policer = {"rate": f"{rate_bps / 1e6:.4g} Mbit/s", "burst": f"{burst:.0f} B"}
    return scheme, 30.0, pipe, {"policer": policer, "queue": "2 BDP"}, {}


def _receive_window(draw: random.Random, number: int) -> _Drawn:
    scheme = ("cubic", "reno", "bbr")[number % 3]
    pipe = _Pipe.drawn(draw, (20, 100), (0.02, 0.2))
    window = max(6 * 1448.0, draw.uniform(0.1, 0.7) * pipe.bdp_packets * 1448)
    return scheme, 20.0, pipe, {}, {"receive_window": f"{window:.0f} B"}


def _application(draw: random.Random, number: int) -> _Drawn:
    scheme = ("cubic", "reno", "bbr")[number % 3]
    pipe = _Pipe.drawn(draw)
    rate = f"{draw.uniform(0.1, 0.6) * pipe.rate_bps / 1e6:.4g} Mbit/s"
    arrivals = ("periodic", "poisson")[number % 2]
    workload = {"kind": "constant-rate", "rate": rate, "arrivals": arrivals}
    return scheme, 20.0, pipe, {}, {"workload": workload}


def _idle(draw: random.Random, number: int) -> _Drawn:
    scheme = ("cubic", "reno", "bbr")[number % 3]
    pipe = _Pipe.drawn(draw, (10, 60), (0.01, 0.1))
    if number % 2:
        pause = f"{draw.uniform(1.0, 3.0):.3g} s"
        size = f"{draw.uniform(20, 200):.0f} kB"
        workload: dict[str, Any] = {"kind": "transfer", "size": size, "pause": pause}
    else:
        mean = f"{draw.uniform(1.0, 3.0):.3g} s"
        workload = {
            "kind": "request-response",
            "response": {"kind": "exponential", "mean": f"{draw.uniform(5, 60):.0f} kB"},
            "think": {"kind": "exponential", "mean": mean},
        }
    return scheme, 30.0, pipe, {}, {"workload": workload}


def _slow_start(draw: random.Random, number: int) -> _Drawn:
    scheme = ("cubic", "reno", "bbr")[number % 3]
    pipe = _Pipe.drawn(draw, (60, 150), (0.1, 0.2))
    size = draw.uniform(0.15, 0.5) * pipe.bdp_packets * 1448
    workload = {"kind": "transfer", "size": f"{size / 1000:.0f} kB"}
    return scheme, 10.0, pipe, {}, {"workload": workload}


_DRAWN: Mapping[str, Callable[[random.Random, int], _Drawn]] = {
    "slow_start": _slow_start,
    "loss": _loss,
    "queue": _queue,
    "path_rate": _path_rate,
    "policer": _policer,
    "receive_window": _receive_window,
    "application": _application,
    "idle": _idle,
}
