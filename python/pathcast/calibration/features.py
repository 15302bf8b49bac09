"""What a flow's records say about its path, in numbers that a simulated flow can be compared by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pathcast.exceptions import ModelError
from pathcast.trace import Column, Trace

#: Payload of a full packet where a trace does not have it, and the headers beside it, in bytes.
MSS_BYTES = 1448
HEADER_BYTES = 52
#: Packets whose acknowledgments measure a rate. Slow start and offloads send as many back to back.
TRAIN_PACKETS = 8
#: Records further apart than this are samples, not one for each acknowledgment, in seconds.
_SAMPLED_S = 0.0005
#: Columns of a trace that are used.
_NEEDED = (
    "time_s",
    "snd_una_bytes",
    "srtt_s",
    "cwnd_packets",
    "retransmits",
    "rwnd_bytes",
    "min_rtt_s",
    "snd_nxt_bytes",
)
#: Sources of traces whose records show the sender before it took the acknowledgment.
_LAGGING = ("emulator", "live", "tcp_probe", "pcap")
#: Sources of traces whose connections are open before the run starts, and so before any queue is there.
_OPEN_BEFORE = ("simulator", "emulator")
#: Records at the start of a flow before anything is sent again.
_FIRST_RECORDS = 10
#: Fewest records, and the shortest flow in seconds, that say anything.
_LEAST_RECORDS = 50
_LEAST_S = 2.0
#: A first window or a first acknowledgment beyond this many packets: the records begin within the flow.
_STARTED_PACKETS = 100
#: A receiver's window that grows by this factor or more is one that opens with what arrives.
_OPENED = 2.0
#: An acknowledgment of more packets than this says that a lost packet has arrived, and what came after it before.
_AT_ONCE = 2.5
#: Round trips are compared that lie this part of one apart, or twice that.
_SOON = 0.25
#: Packets that a full queue drops in one go are sent again within so many round trips.
_BURST_ROUND_TRIPS = 2
#: Percentiles of round-trip times, and of the rates of trains, that are features.
_OF_RTT, _OF_TRAINS = (5, 25, 50, 75, 95, 99.5), (50, 80, 90, 95, 98)
#: Standard deviations of features between two equal flows, by what a simulator does not share with a host: delays of
#: its stack, its timers. A feature's own chance comes from simulations.
_FLOORS = {
    "goodput": 0.02,
    "late": 0.02,
    "retransmits": 0.05,
    "losses": 0.05,
    "cwnd": 0.03,
    "train": 0.04,
}
_FLOOR_RTT = 0.003
#: What hosts and emulators add to a round trip, and to the time in which a train arrives, in seconds.
_STACK_S, _TRAIN_STACK_S = 0.0002, 10e-6


@dataclass(frozen=True)
class Observation:
    """A flow as its sender recorded it.

    Attributes:
        time_s: seconds since the flow's start; shape n.
        acked: packets acknowledged; shape n.
        sent: packets sent for the first time, counted as those acknowledged; shape n; None if not recorded.
        srtt_s: smoothed round-trip time; shape n.
        cwnd: window, in packets; shape n.
        retransmits: packets sent again so far; shape n; None if not recorded.
        min_rtt_s: the shortest round-trip time: the sender's own if it records one, else the shortest `srtt_s`.
        lags: each record shows the sender before it took the acknowledgment, as those of tcp_probe do, not after it.
        has_shortest: the sender records the shortest round-trip time.
        duration_s: from the flow's start to the last record.
        sampled_s: time between records, if they are samples; 0: one for each acknowledgment.
        from_start: the records begin with the flow.
        mss_bytes: payload of a full packet.
        window_bytes: the receiver's window, if it may limit the flow.
        window_opens: the receiver's window grows with what arrives, as Linux's does unless its application sets one.
        opens: the connection opened over the path when the flow began, so that its first round trip met what waited there.

    """

    time_s: Column
    acked: Column
    sent: Column | None
    srtt_s: Column
    cwnd: Column
    retransmits: Column | None
    min_rtt_s: float
    has_shortest: bool
    lags: bool
    duration_s: float
    sampled_s: float
    from_start: bool
    mss_bytes: int
    window_bytes: int | None
    window_opens: bool
    opens: bool

    @property
    def receive_window(self) -> str | None:
        """The receiver's window as a scenario file has it, while it does not limit the flow; None: not known."""
        return "auto" if self.window_opens else None


def observe(
    trace: Trace,
    flow: int,
    longest_s: float = math.inf,
    *,
    use_shortest: bool = True,
    begin_s: float | None = None,
) -> Observation:
    """Take from a trace what calibration needs.

    Args:
        trace: with acknowledged bytes and round-trip times.
        flow: its number.
        longest_s: use the first seconds alone.
        use_shortest: use the sender's own shortest round-trip time, if it records one.
        begin_s: when the flow began; by default a round trip before its first record.

    Raises:
        TraceError: the trace has no such flow.
        ModelError: columns are missing, or the flow is too short.

    """
    here = trace.columns["flow"] == flow
    if not here.any():
        trace.flow(flow)  # refuses a flow that is not there
    return observed(
        {name: trace.columns[name][here] for name in _NEEDED},
        f"{trace.file or 'trace'}: flow {flow}",
        longest_s,
        mss_bytes=int(trace.metadata["mss_bytes"] or MSS_BYTES),
        may_lag=trace.metadata["source"] in _LAGGING,
        opens=trace.metadata["source"] not in _OPEN_BEFORE,
        use_shortest=use_shortest,
        begin_s=begin_s,
    )


def observed(
    columns: Mapping[str, Column],
    where: str,
    longest_s: float = math.inf,
    *,
    mss_bytes: int,
    may_lag: bool,
    opens: bool = False,
    use_shortest: bool = True,
    begin_s: float | None = None,
) -> Observation:
    """Take what calibration needs from the columns of one flow's records.

    Args:
        columns: those of a trace that `_NEEDED` names; shape n of each; the last may be absent.
        where: names the flow in errors.
        longest_s: use the first seconds alone.
        mss_bytes: payload of a full packet.
        may_lag: records, if there is one for each acknowledgment, show the sender before it took it.
        opens: the connection opened over the path when the flow began.
        use_shortest: use the sender's own shortest round-trip time, if it records one.
        begin_s: when the flow began; by default a round trip before its first record.

    Raises:
        ModelError: values are missing, or the flow is too short.

    """
    columns = _where(columns, ~(np.isnan(columns["snd_una_bytes"]) | np.isnan(columns["srtt_s"])))
    if not len(columns["time_s"]):
        raise ModelError(
            f"{where} has no acknowledged bytes or no round-trip times; expected a trace, capture or log that has "
            "both, such as of `pathcast watch`"
        )
    if begin_s is None:
        begin_s = float(columns["time_s"][0] - columns["srtt_s"][0])
    columns = _where(columns, columns["time_s"] - begin_s <= longest_s)
    time_s, srtt_s = columns["time_s"] - begin_s, columns["srtt_s"]
    if len(time_s) < _LEAST_RECORDS or time_s[-1] < _LEAST_S:
        raise ModelError(
            f"{where} has {len(time_s)} records in {time_s[-1] if len(time_s) else 0:.3g} s; expected at least "
            f"{_LEAST_RECORDS} records and {_LEAST_S:g} s"
        )
    una = columns["snd_una_bytes"] / mss_bytes
    sent = columns.get("snd_nxt_bytes")
    cwnd = columns["cwnd_packets"]
    gap_s = float(np.median(np.diff(time_s)))
    acks = max((una[-1] - una[0]) / 2, 1.0)
    is_sampled = gap_s > _SAMPLED_S and len(time_s) < acks / 2
    retransmits = columns["retransmits"]
    rwnd = columns["rwnd_bytes"]
    widest = -math.inf if np.isnan(rwnd).all() else float(np.nanmax(rwnd))
    window = None
    if 0 <= widest < 1.5 * float(np.nanmax(cwnd)) * mss_bytes:
        window = int(widest)
    shortest = columns["min_rtt_s"]
    has_shortest = use_shortest and not np.isnan(shortest).all()
    min_rtt_s = (
        float(np.nanmin(shortest)) if has_shortest else _shortest_s(srtt_s, is_sampled=is_sampled)
    )
    from_start = bool(una[0] < _STARTED_PACKETS and cwnd[0] < _STARTED_PACKETS)
    return Observation(
        time_s=time_s,
        acked=una - una[0],
        sent=None if sent is None or np.isnan(sent).any() else sent / mss_bytes - una[0],
        srtt_s=srtt_s,
        cwnd=cwnd,
        retransmits=None if np.isnan(retransmits).all() else retransmits - retransmits[0],
        min_rtt_s=min_rtt_s,
        has_shortest=has_shortest,
        lags=may_lag and not is_sampled,
        duration_s=float(time_s[-1]),
        sampled_s=gap_s if is_sampled else 0.0,
        from_start=from_start,
        mss_bytes=mss_bytes,
        window_bytes=window,
        window_opens=_window_opens(rwnd),
        opens=opens and from_start,
    )


def _window_opens(window_bytes: Column) -> bool:
    """Whether a receiver's window, of shape n, grows; NaN: not recorded."""
    said = window_bytes[~np.isnan(window_bytes)]
    return bool(len(said) and 0 < _OPENED * said[0] <= said.max())


def _where(columns: Mapping[str, Column], there: np.ndarray) -> Mapping[str, Column]:
    """Rows of columns; all of them are not copied."""
    if there.all():
        return columns
    return {name: values[there] for name, values in columns.items()}


def _each_s(srtt_s: Column) -> Column:
    """Round-trip times between the values of the estimator, which moves by an eighth of the difference (RFC 6298)."""
    return np.asarray(8 * srtt_s[1:] - 7 * srtt_s[:-1])


def _shortest_s(srtt_s: Column, *, is_sampled: bool = False) -> float:
    """Return the shortest round trip of data; the handshake's is in the first value alone."""
    smoothed_s = float(srtt_s.min())
    if is_sampled:
        return smoothed_s
    # later, single values are of timestamps, which count milliseconds; the first may be all that met no queue
    each_s = np.maximum(_each_s(srtt_s), 0.5 * smoothed_s)
    return min(float(each_s[:_FIRST_RECORDS].min()), float(np.percentile(each_s, 0.5)))


def sampled(seen: Observation, every_s: float) -> Observation:
    """Return the observation with the last record of each interval alone."""
    if every_s <= 0:
        return seen
    at = (
        np.searchsorted(seen.time_s, np.arange(every_s, seen.duration_s, every_s), side="right") - 1
    )
    at = np.unique(at[at >= 0])
    return replace(_rows(seen, at), sampled_s=every_s)


def lagging(seen: Observation) -> Observation:
    """Return the observation of a flow, recorded from its start after each acknowledgment, as if before it."""
    # the first packet took until the first record; what was known before is of the handshake
    handshake_s = (8 * seen.srtt_s[0] - seen.time_s[0]) / 7
    before = np.concatenate([[handshake_s], seen.srtt_s[:-1]])
    shortest_s = seen.min_rtt_s if seen.has_shortest else _shortest_s(before)
    return replace(seen, srtt_s=before, min_rtt_s=shortest_s, lags=True)


def without_lag(seen: Observation) -> Observation:
    """Return the observation of a flow, recorded before each acknowledgment, as if after it; the last stays as it is."""
    after = np.concatenate([seen.srtt_s[1:], seen.srtt_s[-1:]])
    return replace(seen, srtt_s=after, lags=False)


def without_start(seen: Observation, seconds: float) -> Observation:
    """Return the observation without its first seconds, as if the records began there."""
    at = np.flatnonzero(seen.time_s >= seconds)
    later = _rows(seen, at)
    again = later.retransmits
    return replace(
        later,
        time_s=later.time_s - seconds,
        acked=later.acked - later.acked[:1],
        sent=None if later.sent is None else later.sent - later.acked[:1],
        retransmits=None if again is None else again - again[:1],
        duration_s=seen.duration_s - seconds,
        from_start=False,
    )


def first_seconds(seen: Observation, seconds: float) -> Observation:
    """Return the observation of the first seconds alone; at least two of them."""
    at = np.flatnonzero(seen.time_s <= max(seconds, _LEAST_S))
    if len(at) < _LEAST_RECORDS or len(at) == len(seen.time_s):
        return seen
    return replace(_rows(seen, at), duration_s=float(seen.time_s[at[-1]]))


def _rows(seen: Observation, at: np.ndarray) -> Observation:
    return replace(
        seen,
        time_s=seen.time_s[at],
        acked=seen.acked[at],
        sent=None if seen.sent is None else seen.sent[at],
        srtt_s=seen.srtt_s[at],
        cwnd=seen.cwnd[at],
        retransmits=None if seen.retransmits is None else seen.retransmits[at],
    )


@dataclass(frozen=True)
class Losses:
    """Losses of a flow, those within a round trip counted once.

    Attributes:
        packets: sent again within two round trips of each; shape count.
        windows: the window before each, in packets; shape count.
        rtt_s: the longest round trip within the one before each; shape count.

    """

    packets: Column
    windows: Column
    rtt_s: Column

    @property
    def count(self) -> int:
        """How many."""
        return len(self.packets)


def round_trips_s(seen: Observation) -> Column:
    """Return the round-trip time at each record; shape n.

    Each measurement is read from the estimator's steps, unless the records are samples.
    """
    if seen.sampled_s:
        return seen.srtt_s
    each_s = np.concatenate([seen.srtt_s[:1], _each_s(seen.srtt_s)])
    return np.asarray(np.maximum(each_s, seen.min_rtt_s))


def after_acknowledgments(seen: Observation) -> tuple[slice, Column]:
    """Return the rows that show the sender after it took an acknowledgment, m of them, and when each came; shape m."""
    rows = slice(int(seen.lags), None)
    return rows, seen.time_s[: len(seen.time_s[rows])]


def losses(seen: Observation) -> Losses:
    """Find the losses of a flow in its retransmissions."""
    if seen.retransmits is None:
        return Losses(np.array([]), np.array([]), np.array([]))
    each_s = round_trips_s(seen)
    more = np.diff(seen.retransmits, prepend=seen.retransmits[0])
    packets: list[float] = []
    windows: list[float] = []
    before_s: list[float] = []
    began_s = last_s = -math.inf
    for i in np.flatnonzero(more > 0):
        if seen.time_s[i] - last_s > seen.srtt_s[i]:
            begin = int(np.searchsorted(seen.time_s, seen.time_s[i] - seen.srtt_s[i]))
            before_s.append(float(each_s[begin : i + 1].max()))
            packets.append(0.0)
            windows.append(float(seen.cwnd[begin : i + 1].max()))
            began_s = float(seen.time_s[i])
        if seen.time_s[i] - began_s <= _BURST_ROUND_TRIPS * seen.srtt_s[i]:
            packets[-1] += float(more[i])
        last_s = float(seen.time_s[i])
    return Losses(np.array(packets), np.array(windows), np.array(before_s))


def jitter_s(seen: Observation) -> float:
    """Return how much round trips differ within a part of one, as the mean of exponential delays; 0: not known.

    Queues that fill and drain quickly count too.
    """
    if seen.sampled_s:
        return 0.0
    each_s = round_trips_s(seen)
    later = np.searchsorted(seen.time_s, seen.time_s + _SOON * seen.min_rtt_s)
    first = np.flatnonzero(later < len(seen.time_s))
    later = later[first]
    soon = seen.time_s[later] - seen.time_s[first] <= 2 * _SOON * seen.min_rtt_s
    if soon.sum() < _LEAST_RECORDS:
        return 0.0
    # the difference of two exponential delays has a Laplace distribution
    return float(np.median(np.abs(each_s[later] - each_s[first])[soon])) / math.log(2)


def train_rates_bps(seen: Observation, packets: float = TRAIN_PACKETS) -> Column:
    """Return the rates at which trains of packets were acknowledged, in bit/s of whole packets; shape m."""
    return _rates_bps(seen, *_trains(seen, packets))


def whole_train_rates_bps(seen: Observation) -> Column:
    """Return the rates of trains of which no packet was lost, in bit/s of whole packets; shape m.

    Once a lost packet arrives, the receiver acknowledges all that came after it in one step, whatever the link's rate.
    A record that lags shows what was acknowledged before; the next record has the count that belongs to its time.
    """
    if seen.lags:
        seen = replace(seen, time_s=seen.time_s[:-1], acked=seen.acked[1:])
    begin, end = _trains(seen)
    holes = np.concatenate([[0], np.cumsum(np.diff(seen.acked) > _AT_ONCE)])
    whole = holes[begin] == holes[end]
    return _rates_bps(seen, begin[whole], end[whole])


def _trains(
    seen: Observation, packets: float = TRAIN_PACKETS
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Records at which trains begin and end; shape m of each."""
    end = np.searchsorted(seen.acked, seen.acked + packets)
    begin = np.flatnonzero(end < len(seen.acked))
    return begin, end[begin]


def _rates_bps(seen: Observation, begin: npt.NDArray[np.intp], end: npt.NDArray[np.intp]) -> Column:
    took_s = seen.time_s[end] - seen.time_s[begin]
    there = took_s > 0
    packets = (seen.acked[end] - seen.acked[begin])[there]
    return packets * 8 * (seen.mss_bytes + HEADER_BYTES) / took_s[there]


def features(seen: Observation) -> dict[str, float]:
    """Summarize an observation; all values are logarithms, so that differences are relative."""

    def log(value: float) -> float:
        return math.log(max(value, 1e-9))

    found: dict[str, float] = {}
    bits = 8 * seen.mss_bytes
    third = int(np.searchsorted(seen.time_s, seen.duration_s / 3))
    late_s = max(seen.duration_s - float(seen.time_s[third]), 1e-9)
    found["goodput"] = log(seen.acked[-1] * bits / seen.duration_s)
    found["late"] = log((seen.acked[-1] - seen.acked[third]) * bits / late_s)
    found["min_rtt"] = log(seen.min_rtt_s)
    for percent, value in zip(_OF_RTT, np.percentile(seen.srtt_s, _OF_RTT), strict=True):
        found[f"rtt{percent:g}"] = log(float(value))
    if not seen.sampled_s:
        found["rtt_highest"] = log(float(np.percentile(round_trips_s(seen), 99.9)))
    found["cwnd"] = log(float(np.mean(seen.cwnd)))
    found["cwnd_highest"] = log(float(np.max(seen.cwnd)))
    rates = train_rates_bps(seen)
    if len(rates) >= _LEAST_RECORDS:
        for percent, value in zip(_OF_TRAINS, np.percentile(rates, _OF_TRAINS), strict=True):
            found[f"train{percent}"] = log(float(value))
    if seen.retransmits is not None:
        lost = losses(seen)
        found["retransmits"] = math.log1p(float(seen.retransmits[-1]))
        found["losses"] = math.log1p(lost.count)
        found["rtt_lossy"] = log(float(np.mean(lost.rtt_s))) if lost.count else found["rtt95"]
    return found


def floors(found: Mapping[str, float], seen: Observation) -> Column:
    """Return the least standard deviation of each feature that was found."""
    stack = _STACK_S / seen.min_rtt_s
    train_bits = TRAIN_PACKETS * 8 * (seen.mss_bytes + HEADER_BYTES)

    def floor(name: str, value: float) -> float:
        if name.startswith(("rtt", "min_rtt")):
            quiet = _FLOOR_RTT if name == "min_rtt" else 3 * _FLOOR_RTT
            return math.hypot(quiet, stack)
        least = _FLOORS[name.rstrip("0123456789").removesuffix("_highest")]
        if name.startswith("train"):
            return math.hypot(least, _TRAIN_STACK_S * math.exp(value) / train_bits)
        return least

    return np.array([floor(name, value) for name, value in found.items()])
