"""The benchmark of Lübben and Fidler, sections V to VII: one probe and nine greedy flows, in several
configurations.

The topology is that of their figure 7 and table I: 100 Mbit/s, ten flows, propagation delays of 8 to 12 ms each way,
10 ms for the probe; a queue of one bandwidth-delay product, 167 packets, where nothing else is said. All flows use the
same congestion control. Synthetic losses come without the other flows, at the probability at which a greedy flow has
the same long-term rate.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import numpy.typing as npt

from pathcast.attainable_rate.curve import AttainableRate, Point
from pathcast.attainable_rate.estimator import Options, Probed, estimate, greedy_rate
from pathcast.attainable_rate.probes import MESSAGE_BITS, Prober
from pathcast.attainable_rate.scenarios import SimulatedProber, probing
from pathcast.attainable_rate.video import video
from pathcast.exceptions import ProbingError
from pathcast.experiments.attainable_rate.claims import Estimate, buffered, judged, origin
from pathcast.experiments.attainable_rate.folder import Folder, resumed
from pathcast.experiments.engine.runner import in_threads
from pathcast.experiments.engine.store import locked
from pathcast.scenario import Scenario

#: Propagation delays of the nine, each way, in ms: table I, senders by receivers.
CROSS_DELAYS_MS = (12, 11, 9, 11, 8, 10, 9, 8, 12)
PROBE_DELAY_MS = 10
LINK = "100 Mbit/s"
#: Of each packet, at random, behind the bottleneck: its own time on the link. Without it flows of a simulation run in
#: step with the queue, and those of longer round trips get more (Floyd and Jacobson 1991, phase effects).
JITTER = "0.12 ms"
#: Packets of 1500 bytes in 100 Mbit/s and 20 ms.
BDP_PACKETS = 167
#: The share of one of ten flows, as payload of TCP: 1448 of 1500 bytes.
FAIR_SHARE_BPS = 10e6 * 1448 / 1500
#: For losses at random and periodic ones: the rate in packets is this over the round-trip time and the root of the
#: probability. Mathis et al. 1997 have 1.31 and 1.22; here whole packets, a window of 16 and delayed acknowledgments
#: take a part: measured of greedy sources of the simulator.
_RANDOM, _PERIODIC = 1.21, 1.11


@dataclass(frozen=True)
class Configuration:
    """One row of the benchmark.

    Attributes:
        name: on the command line.
        title: in words.
        section: of the paper that has it; empty: none.
        scheme: of all flows.
        queue: of the bottleneck, a TOML value.
        loss: of a path without other flows, a TOML value; empty: nine greedy flows.
        paper_mbps: the long-term rate that the paper finds.
        only: the only backend that has it; empty: any.

    """

    name: str
    title: str
    section: str
    scheme: str = "reno"
    queue: str = f"'{BDP_PACKETS} packets'"
    loss: str = ""
    paper_mbps: float | None = 9.0
    only: str = ""

    def scenario(self) -> Scenario:
        """The scenario; flow 0 probes."""
        flows = [_flow(self.scheme, PROBE_DELAY_MS, probing(self.scheme))]
        if not self.loss:
            flows += [_flow(self.scheme, delay, "'bulk'") for delay in CROSS_DELAYS_MS]
        # 8 ms is the shortest delay of a flow; each flow adds its own rest
        loss = f"loss = {self.loss}\n" if self.loss else ""
        toml = (
            f"name = '{self.title}'\n[links.bottleneck]\nrate = '{LINK}'\n"
            f"delay = {{ kind = 'jitter', base = '8 ms', jitter = '{JITTER}' }}\n"
            f"queue = {self.queue}\n{loss}\n" + "\n".join(flows)
        )
        return Scenario.parse(toml, f"{self.name}.toml")


def _flow(scheme: str, delay_ms: int, workload: str) -> str:
    return f"[[flows]]\nscheme = '{scheme}'\ndelay = '{delay_ms - 8} ms'\nworkload = {workload}\n"


def _buffer(packets: int, rate_mbps: float) -> Configuration:
    title = f"buffer of {packets} packets"
    return Configuration(
        f"buffer-{packets}", title, "VI-B", queue=f"'{packets} packets'", paper_mbps=rate_mbps
    )


def _probability(constant: float) -> float:
    """At which a greedy flow alone has the fair share, at 20 ms."""
    packets_per_s = FAIR_SHARE_BPS / (8 * 1448)
    return (constant / (packets_per_s * 2 * PROBE_DELAY_MS / 1e3)) ** 2


#: The base of all comparisons: NewReno, drop-tail, one BDP (sections V and VI-A).
BASE = Configuration("base", "NewReno, drop-tail, 1 BDP", "V")
CONFIGURATIONS: tuple[Configuration, ...] = (
    BASE,
    _buffer(21, 8.0),
    _buffer(83, 9.0),
    _buffer(251, 9.0),
    Configuration("red", "adaptive RED, least threshold of 20 packets", "VI-C",
                  queue="{ kind = 'adaptive-red', limit = '167 packets', min = '20 packets', max = '60 packets' }"),
    Configuration("red-5", "adaptive RED, least threshold of 5 packets", "VI-C", paper_mbps=8.0,
                  queue="{ kind = 'adaptive-red', limit = '167 packets', min = '5 packets', max = '15 packets' }"),
    Configuration("codel", "CoDel", "VI-C", queue="{ kind = 'codel', limit = '1000 packets' }"),
    Configuration("bernoulli", "losses at random, no other flows", "VI-C",
                  loss=f"{_probability(_RANDOM):.6f}"),
    Configuration("periodic", "periodic losses, no other flows", "VI-C",
                  loss=f"{{ kind = 'periodic', every = {math.ceil(1 / _probability(_PERIODIC))} }}"),
    Configuration("cubic", "CUBIC", "VI-D", "cubic"),
    Configuration("scalable", "Scalable", "VI-D", "scalable"),
    Configuration("bbr", "BBR", "", "bbr", paper_mbps=None),
    Configuration("copa", "Copa", "", "copa", paper_mbps=None, only="simulator"),
    Configuration("quic-cubic", "CUBIC over QUIC", "", "quic-cubic", paper_mbps=None),
)  # fmt: skip


def chosen(names: Iterable[str] | None, world: str = "simulator") -> list[Configuration]:
    """Configurations by name; by default all of this backend.

    Raises:
        ProbingError: there is no such configuration, or this backend lacks it.

    """
    by_name = {one.name: one for one in CONFIGURATIONS}
    here = [name for name, one in by_name.items() if one.only in ("", world)]
    names = list(names or here)
    for name in names:
        if name not in by_name:
            raise ProbingError(
                f"the benchmark has no configuration {name!r}, expected some of {', '.join(by_name)}"
            )
        if name not in here:
            raise ProbingError(
                f"{name} runs in the {by_name[name].only} alone, expected some of {', '.join(here)}"
            )
    return [by_name[name] for name in dict.fromkeys(names)]


#: Rates of the simulated benchmark: low, moderate (figures 9 and 14), high.
RATES_BPS = (1e6, 2e6, 4e6, 5e6, 6e6, 8e6)
#: Times on which rates are compared, in seconds.
TIMES_S = (0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Result:
    """One configuration.

    Attributes:
        configuration: which.
        curve: its attainable rate; `greedy` is there.
        probed: what was measured at each rate.
        video_s: delays that packets of the video exceed with the curve's epsilon at most: 50, 95 and 100 % of packets;
            None: no rate above the video's has a steady state.

    """

    configuration: Configuration
    curve: AttainableRate
    probed: tuple[Probed, ...]
    video_s: tuple[float, float, float] | None


def run(
    configurations: Sequence[Configuration],
    options: Options,
    *,
    rates_bps: Sequence[float] = RATES_BPS,
    greedy_s: float = 300.0,
    prober: Callable[[Scenario], Prober] = SimulatedProber,
    folder: FilePath | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Result]:
    """Probe all configurations, one on each processor in parallel; in real time one after another unless `options` says
    how many in parallel. One that fails does not end the others.

    Args:
        configurations: which.
        options: how exact.
        rates_bps: to probe, ascending; a configuration ends with the first without a steady state.
        greedy_s: length of a greedy source's runs, of which there are eight.
        prober: simulator or emulator.
        folder: keeps what was probed; its content is not probed again. Each configuration has a folder in it.
        progress: receives how many configurations are done; may raise to stop.

    Returns:
        Results in the order of `configurations`.

    Raises:
        PathcastError: what the first that failed says; what the others found is in `folder`.

    """
    real = prober is not SimulatedProber
    at_once = options.at_once or (1 if real else os.cpu_count() or 1)
    written_s = video(VIDEO_BPS / MESSAGE_BITS, VIDEO_PACKETS)

    def one(configuration: Configuration) -> Result:
        of = prober(configuration.scenario())
        mine = replace(options, at_once=max(1, at_once // len(configurations)))
        home = None if folder is None else Folder(folder / configuration.name, of, mine)
        kept, keep = resumed(home)
        greedy = None if home is None else home.kept_greedy(greedy_s)
        if greedy is None:
            greedy = greedy_rate(of, greedy_s, mine, stop=stop)
            if home is not None:
                home.keep_greedy(greedy_s, greedy)
        curve, probed = estimate(of, rates_bps, mine, kept=kept, keep=keep, stop=stop)
        curve = replace(curve, greedy=greedy)
        return Result(configuration, curve, tuple(probed), _video(curve, written_s))

    stop = threading.Event()
    # the one that takes as long as several others begins first, and those fill the other processors
    begun = sorted(configurations, key=lambda configuration: configuration.scheme != _LONGEST)
    jobs = [partial(one, configuration) for configuration in begun]
    with contextlib.nullcontext() if folder is None else locked(folder):
        found = in_threads(jobs, at_once, stop=stop.set, progress=progress)
    of = {result.configuration.name: result for result in found}
    return [of[configuration.name] for configuration in configurations]


#: The scheme whose delays hang together for longest, so that its trains are the longest too.
_LONGEST = "bbr"

#: The application of section VII: mean rate, and packets of it.
VIDEO_BPS = 4e6
VIDEO_PACKETS = 40_000


def _video(
    curve: AttainableRate, written_s: npt.NDArray[np.float64]
) -> tuple[float, float, float] | None:
    if curve.long_term_rate <= VIDEO_BPS:
        return None
    bounds = curve.delay_bounds(written_s, MESSAGE_BITS)
    low, high, most = np.quantile(bounds, (0.5, 0.95, 1.0))
    return float(low), float(high), float(most)


def baseline_video_s() -> tuple[float, float, float]:
    """Delays of the video over a constant rate of a fair share, without any losses: figure 17's baseline."""
    written_s = video(VIDEO_BPS / MESSAGE_BITS, VIDEO_PACKETS)
    point = Point(FAIR_SHARE_BPS, True, PROBE_DELAY_MS / 1e3, 0.0, None, 0.0)
    found = _video(AttainableRate("bit", (point,), 0.95, {}), written_s)
    assert found is not None, "a fair share is more than the video"  # noqa: S101
    return found


def table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """A row for each configuration, JSON: long-term rate and the paper's, attainable rates, delays,
    buffering."""
    rows = []
    for one in results:
        curve = one.curve
        at5 = next((p for p in one.probed if p.point.rate == 5e6 and p.point.stationary), None)
        start, share = origin(curve), buffered(curve, 5e6)
        assert curve.greedy is not None, "run measures it"  # noqa: S101
        rows.append(
            {
                "configuration": one.configuration.name,
                "title": one.configuration.title,
                "section": one.configuration.section,
                "greedy_bps": list(curve.greedy),
                "long_term_bps": curve.long_term_rate,
                "unstable_bps": curve.unstable_rate,
                "paper_bps": None
                if one.configuration.paper_mbps is None
                else 1e6 * one.configuration.paper_mbps,
                "epsilon": curve.epsilon,
                "attainable_bps": {
                    f"{time:g}": [
                        float(curve.rate([time], bound)[0]) for bound in ("", "low", "high")
                    ]
                    for time in TIMES_S
                },
                "origin_s": None if start is None else _finite(start),
                "buffered_at_5": None if at5 is None else at5.point.buffered,
                "buffered_at_5_bounds": None if share is None else [share.low, share.high],
                "delay_at_5_s": None if at5 is None else at5.point.delay_s,
                "video_s": None if one.video_s is None else list(one.video_s),
                "probed_s": curve.probed_s,
                "steady_bps": [point.rate for point in curve.used],
                "undecided_bps": [point.rate for point in curve.points if point.undecided],
            }
        )
    return rows


def _finite(found: Estimate) -> list[float | None]:
    """An estimate as JSON: a bound that is not known is null."""
    return [end if math.isfinite(end) else None for end in (found.value, found.low, found.high)]


def claims(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Judge what the paper finds by these results; see `claims.judged`."""
    written_s = video(VIDEO_BPS / MESSAGE_BITS, VIDEO_PACKETS)
    return judged(
        {one.configuration.name: one.curve for one in results},
        {one.configuration.name: one.configuration.paper_mbps for one in results},
        (written_s, MESSAGE_BITS, VIDEO_BPS),
    )
