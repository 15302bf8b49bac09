"""Short flows: how long larger downloads take, from one small one."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pathcast import _internal
from pathcast.exceptions import ModelError, translated

#: Sizes that are estimated if none are asked for, in bytes: those of De Silva et al. 2016.
DEFAULT_SIZES = (5e6, 10e6, 20e6)
#: Payload of a packet of 1500 bytes with TCP's timestamps.
DEFAULT_MSS = 1448
#: Packets that Linux sends first (RFC 6928).
DEFAULT_INITIAL_WINDOW = 10

#: What limited a flow at the end of the measurement.
State = Literal["slow_start", "growing", "path_limited", "window_limited"]

_IN_WORDS: dict[State, str] = {
    "slow_start": "still in slow start: what the path can do was hardly seen",
    "growing": "the window was growing, the path not full yet",
    "path_limited": "the path was full",
    "window_limited": "the receiver's window held the sender back",
}


@dataclass(frozen=True)
class SizeEstimate:
    """Forecast of a transfer of one size.

    Attributes:
        size_bytes: in all, the bytes measured included.
        time_s: seconds, by the clock of what was measured.
        throughput_bps: size over that time: of all values the one with the least mean relative error.
        time_quantiles_s: 5, 25, 50, 75 and 95 % quantiles of the time, seconds.
        throughput_quantiles_bps: the same of the throughput, bit/s.
        published_time_s: what De Silva et al. 2016 estimate, seconds.
        published_throughput_bps: size over that, bit/s.

    """

    size_bytes: float
    time_s: float
    throughput_bps: float
    time_quantiles_s: tuple[float, ...]
    throughput_quantiles_bps: tuple[float, ...]
    published_time_s: float
    published_throughput_bps: float


@dataclass(frozen=True)
class WindowEvolution:
    """The sender's window over time, from the first byte to the end of the largest size.

    Attributes:
        published_time_s: beginnings of round trips by De Silva et al. 2016 (some of many), seconds since
            the first byte, and the end.
        published_window_packets: their windows, as many.
        time_s: 201 evenly spaced moments, seconds since the first byte.
        window_quantiles_packets: 5, 25, 50, 75 and 95 % quantiles of what Pathcast expects at each, packets
            that may be in flight.

    """

    published_time_s: tuple[float, ...]
    published_window_packets: tuple[float, ...]
    time_s: tuple[float, ...]
    window_quantiles_packets: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class ShortFlowEstimate:
    """Forecast of larger transfers, and the evidence for it.

    Attributes:
        sizes: one entry a size, in the order asked for.
        states: chance of each state at the end of the measurement, the likeliest first.
        rests_on: that in words.
        rtt_s: the least round-trip time, seconds.
        rate_bps: the path's rate, payload bit/s; where slow start was all there was, a guess.
        window_packets: the sender's window at the end.
        losses: loss events measured, or given.
        detailed: whether there was a timeline to go by.
        misfit: what arrivals before the first loss are off by in the best explanation, over the
            time measured.
        published_window_packets: window at the end of slow start by De Silva et al. 2016.
        published_at_the_end: whether their solver found none, so that slow start counts as not ended.
        windows: the window over time, if it was asked for.

    """

    sizes: tuple[SizeEstimate, ...]
    states: dict[State, float]
    rests_on: str
    rtt_s: float
    rate_bps: float
    window_packets: float
    losses: int
    detailed: bool
    misfit: float
    published_window_packets: float
    published_at_the_end: bool
    windows: WindowEvolution | None = None

    def to_dict(self) -> dict[str, Any]:
        """As `pathcast predict download --json` prints it."""
        values = asdict(self)
        if self.windows is None:
            del values["windows"]
        return values


def _in_words(values: dict[str, Any]) -> str:
    state: State = values["states"][0]["state"]
    words = [_IN_WORDS[state]]
    if state == "path_limited":
        words.append(f"{values['rate_bps'] / 1e6:.3g} Mbit/s")
    else:
        words.append(f"{values['window_packets']:.0f} packets")
    if values["losses"]:
        words.append(f"{values['losses']} loss" + ("es" if values["losses"] > 1 else ""))
    if not values["detailed"]:
        words.append("only size, time and round-trip time known, no timeline")
    return "; ".join(words)


def _timeline(
    timeline: tuple[npt.ArrayLike, npt.ArrayLike] | None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
    if timeline is None:
        return None
    try:
        time_s, received = (np.ascontiguousarray(column, dtype=np.float64) for column in timeline)
    except (TypeError, ValueError) as error:
        raise ModelError(f"timeline: {error}, expected two columns of numbers") from None
    if time_s.ndim != 1 or time_s.shape != received.shape:
        raise ModelError(
            f"timeline: columns have the shapes {time_s.shape} and {received.shape}, expected two of "
            "the same length"
        )
    return time_s, received


def estimate(
    transferred_bytes: float,
    time_s: float,
    rtt_s: float | Sequence[float],
    sizes_bytes: Sequence[float] = DEFAULT_SIZES,
    *,
    since_request: bool = False,
    timeline: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    mss_bytes: float = DEFAULT_MSS,
    initial_window_packets: float = DEFAULT_INITIAL_WINDOW,
    receive_window_bytes: float | None = None,
    losses: int | None = None,
    windows: bool = False,
) -> ShortFlowEstimate:
    """Estimate what larger transfers of CUBIC take from one small one; docs/explanation/short-flows.md.

    Args:
        transferred_bytes: payload of the transfer that was measured, two first windows to 100 MB.
        time_s: what it took, in seconds, from the first byte to the last.
        rtt_s: round-trip time or times of probes before or after it, in seconds. Pathcast takes the
            least, the published algorithms the mean.
        sizes_bytes: what to estimate, each at least `transferred_bytes`.
        since_request: the clock began when the request was sent, a round trip before the first byte;
            estimates count alike.
        timeline: when how much had arrived: two columns of the same length, seconds since the first
            byte and bytes in order. It makes estimates far surer.
        mss_bytes: payload of a full packet.
        initial_window_packets: of the sender.
        receive_window_bytes: the largest window that the receiver offers; by default not known, for
            the published algorithms 800 packets.
        losses: packets lost meanwhile, if known; by default they are looked for in the timeline.
        windows: return also how the window has grown and continues, until the largest size is sent.

    Raises:
        ModelError: a number out of range, or a timeline that falls.

    Example:
        >>> found = estimate(1e6, 1.9, 0.08, [5e6, 20e6])
        >>> found.sizes[0].time_s < found.sizes[1].time_s
        True

    """
    rtts_s = [float(rtt) for rtt in np.atleast_1d(np.asarray(rtt_s, dtype=np.float64))]
    if losses is not None and not 0 <= losses < 2**32:
        raise ModelError(f"losses is {losses}, expected 0 or more")
    usable = [rtt for rtt in rtts_s if math.isfinite(rtt)]
    before_s = min(usable, default=0.0) if since_request else 0.0
    with translated():
        text = _internal.estimate_short_flow(
            float(transferred_bytes),
            float(time_s) - before_s,
            max(before_s, 0.0),
            rtts_s,
            [float(size) for size in sizes_bytes],
            _timeline(timeline),
            float(mss_bytes),
            float(initial_window_packets),
            None if receive_window_bytes is None else float(receive_window_bytes),
            losses,
            max(map(float, sizes_bytes), default=float(transferred_bytes)) if windows else None,
        )
    values = json.loads(text)
    published = values.pop("published")
    sizes = tuple(
        SizeEstimate(
            size_bytes=size["size_bytes"],
            time_s=size["time_s"],
            throughput_bps=size["throughput_bps"],
            time_quantiles_s=tuple(size["time_quantiles_s"]),
            throughput_quantiles_bps=tuple(size["throughput_quantiles_bps"]),
            published_time_s=published_time_s,
            published_throughput_bps=8 * size["size_bytes"] / published_time_s,
        )
        for size, published_time_s in zip(values["sizes"], published["times_s"], strict=True)
    )
    return ShortFlowEstimate(
        sizes=sizes,
        states={share["state"]: share["share"] for share in values["states"]},
        rests_on=_in_words(values),
        rtt_s=values["rtt_s"],
        rate_bps=values["rate_bps"],
        window_packets=values["window_packets"],
        losses=values["losses"],
        detailed=values["detailed"],
        misfit=values["misfit"],
        published_window_packets=published["window_packets"],
        published_at_the_end=published["at_the_end"],
        windows=_evolution(values["windows"]),
    )


def _evolution(values: dict[str, Any] | None) -> WindowEvolution | None:
    if values is None:
        return None
    published, ours = values["published"], values["pathcast"]
    return WindowEvolution(
        tuple(point["time_s"] for point in published),
        tuple(point["window_packets"] for point in published),
        tuple(point["time_s"] for point in ours),
        tuple(tuple(point["window_quantiles_packets"]) for point in ours),
    )
