"""Adaptive video: versions, rules that choose among them, and how a session goes over a path."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pathcast._what_if import Alternative
from pathcast.calibration import Calibration
from pathcast.calibration.result import paths_of
from pathcast.exceptions import ModelError
from pathcast.path import Path
from pathcast.rates import LEVELS
from pathcast.runs import VideoSession, simulate
from pathcast.scenario import Scenario
from pathcast.threads import pool

#: Rules of players, as scenario files name them; `confident` and `mpc` may have another number.
RULES = (
    "last-sample",
    "throughput",
    "bola",
    "dash.js",
    "hls.js",
    "robust-mpc",
    "confident:0.9",
    "mpc:1",
)
#: When a player gives up a download: as the rule's own player does, never, or as these do.
ABANDON = ("own", "never", "dash.js", "hls.js", "plan")
#: Segments of a session by which a version is judged, beside the first.
SEGMENTS = 10
#: A session that takes longer than this many times its video is cut.
_LONGEST = 20.0


@dataclass(frozen=True)
class Ladder:
    """Versions of one video, and its segments, which all take equally long to play.

    Attributes:
        segment_s: how long, in seconds.
        bitrates_bps: of the versions, ascending.
        count: segments.
        sizes: in bytes, by version and segment; empty: what the bitrates say.

    """

    segment_s: float
    bitrates_bps: tuple[float, ...]
    count: int
    sizes: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.segment_s <= 3600:
            raise ModelError(f"got segments of {self.segment_s} s; expected 0 to 3600")
        if not self.bitrates_bps or self.count < 1:
            raise ModelError("got a video without versions or segments; expected one of each")
        before = 0.0
        for bitrate in self.bitrates_bps:
            if not before < bitrate < math.inf:
                raise ModelError(
                    f"got a bitrate of {bitrate:g} bit/s after {before:g}; expected bitrates to ascend from above 0"
                )
            before = bitrate
        if self.sizes and [len(one) for one in self.sizes] != [self.count] * len(self.bitrates_bps):
            raise ModelError(
                f"got sizes of {[len(one) for one in self.sizes]} segments; expected {self.count} for each version"
            )

    def bytes(self, version: int, segment: int) -> int:
        """The size of a segment."""
        if self.sizes:
            return self.sizes[version][min(segment, self.count - 1)]
        return max(1, round(self.bitrates_bps[version] * self.segment_s / 8))

    def workload(
        self,
        rule: str,
        buffer_s: float = 30.0,
        start_s: float = 0.0,
        abandon: str = "own",
        unsent_bytes: int | None = None,
    ) -> str:
        """The workload of a scenario file."""
        rates = ", ".join(f"'{rate!r} bit/s'" for rate in map(float, self.bitrates_bps))
        sizes = f", sizes = {[list(one) for one in self.sizes]}" if self.sizes else ""
        unsent = "" if unsent_bytes is None else f", unsent = '{unsent_bytes} B'"
        return (
            f"{{ kind = 'video', bitrates = [{rates}], segment = '{self.segment_s!r} s', count = {self.count}, "
            f"rule = '{rule}', buffer = '{buffer_s} s', start = '{start_s} s', abandon = '{abandon}'{unsent}{sizes} }}"
        )


def watch(
    ladder: Ladder,
    source: Path | Scenario,
    rule: str = "dash.js",
    *,
    scheme: str = "cubic",
    buffer_s: float = 30.0,
    start_s: float = 0.0,
    abandon: str = "own",
    unsent_bytes: int | None = None,
    receive_window: str | None = None,
    seed: int = 1,
) -> VideoSession:
    """Play a video over a path, packet by packet in the simulator: one connection, one segment after another.

    Args:
        ladder: the video.
        source: a path, or a scenario with competing flows.
        rule: one of `RULES`, or `fixed:N` for version N.
        scheme: congestion control of the server.
        buffer_s: the player asks for no more while it has so much.
        start_s: it begins to play with so much, at first and after a stall.
        abandon: when it gives up a download, one of `ABANDON`; "plan" needs the rule `mpc`.
        unsent_bytes: what may wait unsent in the server's socket, its `TCP_NOTSENT_LOWAT`: that still comes of a download that is
            given up. None: as much as the kernel takes, six windows.
        receive_window: what the player's host takes over TCP, as in a scenario file; None: it is never in the way.
        seed: of the path.

    Raises:
        PathFileError: the rule is not known, or a value is not valid.
        SchemeError: the simulator has no such scheme.

    Example:
        >>> path = Path.parse("rate = '4 Mbit/s'\\ndelay = '20 ms'\\nqueue = '100 kB'")
        >>> ladder = Ladder(4.0, (0.5e6, 1e6, 2e6, 8e6), 30)
        >>> session = watch(ladder, path, "mpc")
        >>> session.stalls, 1.5e6 < session.mean_bitrate_bps < 4e6
        (0, True)

    """
    workload = ladder.workload(rule, buffer_s, start_s, abandon, unsent_bytes)
    scenario = Alternative(scheme, workload).scenario(source, receive_window)
    longest_s = 60.0 + _LONGEST * ladder.segment_s * ladder.count
    report, _ = simulate(scenario, duration_s=longest_s, seed=seed, record=False)
    found = next(flow.video for flow in report.flows if flow.workload == "video")
    if found is None:
        raise ModelError("the first segment was never asked for")
    return found


@dataclass(frozen=True)
class Arrival:
    """Whether segments of one version arrive while the one before plays.

    Attributes:
        version: from 0, by ascending bitrate.
        bitrate_bps: its bitrate.
        bytes: of the segment that is meant; of several, their mean.
        probability: that it arrives within its own duration.
        took_s: how long it takes, at `LEVELS`.

    """

    version: int
    bitrate_bps: float
    bytes: float
    probability: float
    took_s: tuple[float, ...]


def arrivals(
    ladder: Ladder,
    source: Path | Scenario | Calibration,
    *,
    scheme: str = "cubic",
    sessions: int = 20,
    segments: int = SEGMENTS,
    buffer_s: float = 30.0,
    seed: int = 1,
    progress: Callable[[float], None] | None = None,
) -> list[Arrival]:
    """Play each version alone over a path, and note how long its segments take.

    The first segment is left out: the connection opens with it. Sessions of a calibration run over paths of its posterior.

    Args:
        ladder: the video.
        source: a path, a scenario whose flows compete, or a calibration.
        scheme: congestion control of the server.
        sessions: for each version.
        segments: of each session, beside the first.
        buffer_s: of the player, which fetches with pauses once it is full.
        seed: of the first session; the others have those after it.
        progress: called with the part of the work that is done, 0 to 1.

    """
    paths, receive_window = paths_of(source, sessions, seed)
    count = min(ladder.count, 1 + segments)
    short = Ladder(
        ladder.segment_s,
        ladder.bitrates_bps,
        count,
        tuple(one[:count] for one in ladder.sizes),
    )
    jobs = [(version, n) for version in range(len(ladder.bitrates_bps)) for n in range(sessions)]

    def run(job: tuple[int, int]) -> list[float]:
        version, number = job
        session = watch(
            short,
            paths[number],
            f"fixed:{version}",
            scheme=scheme,
            buffer_s=buffer_s,
            receive_window=receive_window,
            seed=seed + number,
        )
        took = [one["took_s"] for one in session.segments]
        # what had not come when the session was cut never came in time
        took += [math.inf] * (count - len(took))
        return took[1:] or took

    found: dict[int, list[float]] = {}
    with pool(os.cpu_count() or 1, lambda: None) as threads:
        waiting = zip(jobs, threads.map(run, jobs), strict=True)
        for done, ((version, _), took) in enumerate(waiting, 1):
            found.setdefault(version, []).extend(took)
            if progress:
                progress(done / len(jobs))
    return [_arrival(short, version, took) for version, took in found.items()]


def _arrival(ladder: Ladder, version: int, took: Sequence[float]) -> Arrival:
    quantiles = np.quantile(took, LEVELS, method="higher")
    sizes = [ladder.bytes(version, n) for n in range(min(1, ladder.count - 1), ladder.count)]
    return Arrival(
        version,
        ladder.bitrates_bps[version],
        float(np.mean(sizes)),
        float(np.mean(np.asarray(took) <= ladder.segment_s)),
        tuple(map(float, quantiles)),
    )
