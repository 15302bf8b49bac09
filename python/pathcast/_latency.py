"""How long transfers take: forecasts for new connections and running flows, and how good they are."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pathcast import _internal
from pathcast.exceptions import ModelError, translated
from pathcast.models import (
    QUANTILE_LEVELS,
    LossCurve,
    check_rtt,
    chosen_cc,
    columns,
    curve_dict,
    law_of,
)
from pathcast.path import Path
from pathcast.trace import Trace

#: Sizes forecast by default, in bytes.
DEFAULT_SIZES_BYTES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)

#: Sizes evaluated by default, in bytes: the paper's range (Cao et al., IMC 2019, section 5.3).
EVALUATED_SIZES_BYTES = (
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
)

#: Payload of a full packet in bytes, and what its headers add (IPv4 and TCP with timestamps).
MSS_BYTES = 1448
HEADER_BYTES = 52

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_UNITS = {"B": 1, "kB": 1_000, "KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}


class Until(StrEnum):
    """When a transfer is over: sent, arrived, or from its request to the end of its answer."""

    SENT = "sent"
    ARRIVED = "arrived"
    ANSWERED = "answered"


def parse_size(text: str) -> int:
    """A size in bytes, from text such as `100 kB`; 1 kB is 1000 bytes.

    Raises:
        ModelError: no size greater than zero, or its unit is missing or not known.

    Example:
        >>> parse_size("100KB"), parse_size("2.5 MB")
        (100000, 2500000)

    """
    matched = _SIZE.fullmatch(text)
    if matched and matched[2] not in _UNITS:
        what = f"the unit {matched[2]!r}" if matched[2] else "no unit"
        raise ModelError(f'size is "{text}": got {what}, expected B, kB, MB or GB as in "100 kB"')
    size = round(float(matched[1]) * _UNITS[matched[2]]) if matched else 0
    if not 0 < size < 1 << 53:
        raise ModelError(f'size is "{text}", expected one greater than zero such as "100 kB"')
    return size


@dataclass(frozen=True)
class Latency:
    """Forecast of the time that a transfer takes.

    Attributes:
        size_bytes: what is transferred.
        mean_s: mean of the distribution in seconds.
        quantiles_s: at `QUANTILE_LEVELS`, in seconds.
        no_loss_probability: how likely it is that no packet of it is lost by chance.
        literature: of a new, single connection, what others say without its handshake, in seconds:
            `cardwell_s` (2000), `econ_s` (the slow start of Cao et al. 2019), `pftk_s` (1998), `link_s`
            (a round trip and the link's rate; None if that is not known). Their times end as this one's
            does, and none is below the link's.
        not_applicable: what the forecast does not say, and why: without a window law, losses.

    """

    size_bytes: int
    mean_s: float
    quantiles_s: tuple[float, ...]
    no_loss_probability: float
    literature: dict[str, float | None] | None = None
    not_applicable: dict[str, str] = field(default_factory=dict)

    @property
    def median_s(self) -> float:
        """Median time, in seconds."""
        return self.quantiles_s[len(self.quantiles_s) // 2]

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        values: dict[str, Any] = {
            "size_bytes": self.size_bytes,
            "mean_s": self.mean_s,
            "median_s": self.median_s,
            "quantiles_s": list(self.quantiles_s),
            "no_loss_probability": self.no_loss_probability,
            "not_applicable": self.not_applicable,
        }
        return values if self.literature is None else values | {"literature": self.literature}


@dataclass(frozen=True)
class LearnedLatencies:
    """Transfers on a path that was learned from a flow.

    Attributes:
        cc: congestion control of the flow.
        rtt_s: round-trip time used, in seconds.
        capacity_packets_per_s: the rate at which the path was seen to saturate; None if it was not.
        loss: probability that a packet begins a loss event, at the flow's window.
        losses: loss events remembered, each weighed by its age.
        cwnd_packets: the flow's window at the moment.
        transfers: one for each size.
        not_applicable: what the forecasts do not say, and why.

    """

    cc: str
    rtt_s: float
    capacity_packets_per_s: float | None
    loss: float
    losses: float
    cwnd_packets: float
    transfers: tuple[Latency, ...]
    not_applicable: dict[str, str] = field(default_factory=dict)


def _latency(values: dict[str, Any], missing: dict[str, str]) -> Latency:
    return Latency(
        values["bytes"],
        values["mean_s"],
        tuple(values["quantiles_s"]),
        values["no_loss_probability"],
        values.get("literature"),
        missing,
    )


def _new_without_law(cc: str) -> dict[str, str]:
    """What is not said of a new connection without a window law: it is slow start, then the link's rate."""
    if law_of(cc) != "other":
        return {}
    reason = f"no window law is known for {cc}"
    others = dict.fromkeys(("cardwell_s", "econ_s", "pftk_s"), reason)
    return {"loss": f"{reason}: the time is that without losses"} | others


def _asked(
    sizes_bytes: Sequence[int],
    connections: int,
    until: str,
    handshake_round_trips: float,
    think_s: float,
    initial_window: float,
) -> str:
    if not sizes_bytes:
        raise ModelError("got no size, expected at least one")
    for size in sizes_bytes:
        if not 0 < size < 1 << 53:
            raise ModelError(f"size is {size} bytes, expected one greater than zero")
    if not 1 <= connections <= 10_000:
        raise ModelError(f"connections is {connections}, expected 1 to 10,000")
    return json.dumps(
        {
            "sizes_bytes": [int(size) for size in sizes_bytes],
            "mss_bytes": MSS_BYTES,
            "connections": connections,
            "until": str(until),
            "handshake_round_trips": handshake_round_trips,
            "think_s": think_s,
            "initial_window_packets": initial_window,
        }
    )


def latency(
    path: Path,
    sizes_bytes: Sequence[int] = DEFAULT_SIZES_BYTES,
    *,
    cc: str = "cubic",
    curve: LossCurve | None = None,
    connections: int = 1,
    handshake_round_trips: float = 1,
    think_s: float = 0,
    initial_window: float = 10,
    receive_window_bytes: int | None = None,
    hystart: bool | None = None,
    until: str = Until.ANSWERED,
) -> tuple[Latency, ...]:
    """Forecast how long new connections take over a path; `docs/explanation/transfer-times.md` says how.

    Args:
        path: round-trip time, rate, queue and loss.
        sizes_bytes: one transfer each.
        cc: congestion control. Where no window law of it is known, the time is that of slow start and the link's
            rate, without losses; `not_applicable` says so.
        curve: p(cwnd) instead of the path's loss, such as `fit(trace).curves[0]`.
        connections: how many share each transfer in equal parts; the transfer ends when all are done.
        handshake_round_trips: 0 on an open connection, 1 for TCP, 2 with TLS 1.3, 3 with TLS 1.2.
        think_s: what the server takes to begin its answer, in seconds.
        initial_window: first window in packets.
        receive_window_bytes: what the receiver takes; by default it is never in the way.
        hystart: whether slow start ends as soon as the round trip grows; by default CUBIC's does.
        until: `answered`, from the first packet of the handshake, or the request, to the last byte of
            the answer; `arrived`, from the first byte sent to the last one's arrival; `sent`.

    Raises:
        ModelError: an argument outside its range.

    Example:
        >>> path = Path.parse("rate = '50 Mbit/s'\\ndelay = '25 ms'\\nloss = 0.001\\n")
        >>> [round(time.median_s, 2) for time in latency(path, [1_000, 100_000])]
        [0.1, 0.21]

    """
    packet_bytes = MSS_BYTES + HEADER_BYTES
    buffers = [
        limit
        for limit in (
            None if path.queue_bytes is None else path.queue_bytes / packet_bytes,
            path.queue_packets,
        )
        if limit is not None
    ]
    known = {
        "cc": cc,
        "rtt_s": path.base_rtt_s,
        "loss": path.loss if curve is None else None,
        "curve": None if curve is None else curve_dict(curve) | {"counting": "passages"},
        "capacity_packets_per_s": None
        if path.rate_bps is None
        else path.rate_bps / 8 / packet_bytes,
        "buffer_packets": max(min(buffers), 1) if buffers and path.rate_bps is not None else None,
        "max_window_packets": None
        if receive_window_bytes is None
        else receive_window_bytes / MSS_BYTES,
        "hystart": hystart,
    }
    asked = _asked(sizes_bytes, connections, until, handshake_round_trips, think_s, initial_window)
    with translated():
        answers = json.loads(_internal.latency(json.dumps(known), asked))
    missing = _new_without_law(cc)
    return tuple(_latency(answer, missing) for answer in answers)


def latency_on_trace(
    trace: Trace,
    sizes_bytes: Sequence[int] = DEFAULT_SIZES_BYTES,
    *,
    flow: int = 0,
    at_s: float | None = None,
    new: bool = False,
    cc: str | None = None,
    rtt_s: float | None = None,
    connections: int = 1,
    handshake_round_trips: float = 1,
    think_s: float = 0,
    initial_window: float = 10,
    until: str = Until.ANSWERED,
) -> LearnedLatencies:
    """Forecast transfers on a path that a flow of a trace has measured.

    Args:
        trace: of at least one flow.
        sizes_bytes: one transfer each.
        flow: which of the trace's flows.
        at_s: the moment, in seconds of the trace; nothing after it is looked at. By default its end.
        new: a new connection on the same path, instead of the flow's own next bytes.
        cc: congestion control; by default what the trace says, else guessed: `cubic` or `reno`. Of others no
            window law is known: a flow's own next bytes rest on its past, a new connection is slow start and
            the largest rate seen.
        rtt_s: round-trip time in seconds; by default from srtt, else estimated.
        connections: how many share each transfer; more than one only if `new`.
        handshake_round_trips: of a new connection, as for `latency`.
        think_s: as for `latency`.
        initial_window: as for `latency`.
        until: as for `latency`; of the flow's own bytes `answered` means acknowledged.

    Raises:
        ModelError: a moment outside the trace, or another argument outside its range.

    """
    check_rtt(rtt_s)
    if connections > 1 and not new:
        raise ModelError(
            f"connections is {connections}, expected 1: a running flow is one connection"
        )
    asked = _asked(sizes_bytes, connections, until, handshake_round_trips, think_s, initial_window)
    kind = chosen_cc(trace, flow, cc)
    with translated():
        text = _internal.latency_on_trace(columns(trace.flow(flow)), asked, at_s, new, kind, rtt_s)
    values = json.loads(text)
    missing = {}
    if values["cc"] == "other" and kind is not None:
        values["cc"] = kind
        missing = (
            _new_without_law(kind)
            if new
            else {"window": f"no window law is known for {kind}: the time rests on the flow's past"}
        )
    transfers = tuple(_latency(transfer, missing) for transfer in values.pop("transfers"))
    return LearnedLatencies(**values, transfers=transfers, not_applicable=missing)


@dataclass(frozen=True)
class LatencyScore:
    """Errors and coverage of one model for transfers of one size, or of a range of sizes.

    Attributes:
        model: `pathcast`, `state` (Pathcast without its pool), `econ`, `pftk`, `last_sample`, `ewma`,
            `holt_winters`, `harmonic_mean` or `window_mean`.
        size_bytes: the size, or the smallest of the range.
        below_bytes: the upper end of the range, exclusive; None if the range has no end.
        transfers: how many were judged.
        median_error_pct: median of `abs(forecast / truth - 1)` in per cent; None without transfers.
        p25_error_pct: its lower quartile.
        p75_error_pct: its upper quartile.
        coverage90: part of the truths within the 5-95 % band; None for a model without one.

    """

    model: str
    size_bytes: int
    below_bytes: int | None
    transfers: int
    median_error_pct: float | None
    p25_error_pct: float | None
    p75_error_pct: float | None
    coverage90: float | None


@dataclass(frozen=True)
class LatencyEvaluation:
    """Latency forecasts of a flow's transfers against what happened.

    Attributes:
        truth: `packets_per_s` if sizes were measured by sequence numbers, `mean_cwnd_packets` if by
            the window's integral over the round-trip time.
        cc: congestion control.
        rtt_s: round-trip time at the end, in seconds.
        sizes: a score for each size and model.
        ranges: a score for each range of sizes and model: below 10 MB, 10 to 50 MB, above 50 MB, all.
        predictions: each transfer: `time_s`, `size_bytes`, `truth_s`, `forecast_s` by model.
        not_applicable: models that say nothing of this flow, and why.

    """

    truth: str
    cc: str
    rtt_s: float
    sizes: tuple[LatencyScore, ...]
    ranges: tuple[LatencyScore, ...]
    predictions: tuple[dict[str, Any], ...]
    not_applicable: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without the predictions."""
        return {
            "truth": self.truth,
            "cc": self.cc,
            "rtt_s": self.rtt_s,
            "sizes": [vars(score) for score in self.sizes],
            "ranges": [vars(score) for score in self.ranges],
            "not_applicable": self.not_applicable,
        }


def evaluate_latency(
    trace: Trace,
    sizes_bytes: Sequence[int] = EVALUATED_SIZES_BYTES,
    *,
    flow: int = 0,
    every_s: int = 10,
    cc: str | None = None,
    rtt_s: float | None = None,
) -> LatencyEvaluation:
    """Forecast again and again how long a flow takes for its next bytes, and compare with truth.

    Args:
        trace: of at least one flow, some minutes long.
        sizes_bytes: sizes of transfers.
        flow: which of the trace's flows.
        every_s: seconds between moments of prediction, which begin after 100 s of training, or a third
            of the trace.
        cc: congestion control; by default what the trace says, else guessed from what precedes the first
            prediction: `cubic` or `reno`.
        rtt_s: round-trip time in seconds; by default from srtt, else estimated during the flow.

    Raises:
        ModelError: a trace too short, or an argument outside its range.

    """
    check_rtt(rtt_s)
    if not 1 <= every_s <= 86_400:
        raise ModelError(f"every is {every_s} s, expected 1 to 86400")
    if not sizes_bytes or not all(0 < size < 1 << 53 for size in sizes_bytes):
        raise ModelError(f"sizes are {list(sizes_bytes)}, expected one at least, each above zero")
    kind = chosen_cc(trace, flow, cc)
    try:
        with translated():
            text = _internal.evaluate_latency(
                columns(trace.flow(flow)),
                [int(size) for size in sizes_bytes],
                every_s,
                kind,
                rtt_s,
                MSS_BYTES,
            )
    except ModelError as error:
        raise ModelError(f"{trace.file}: {error}" if trace.file else str(error)) from None
    values = json.loads(text)
    models = list(dict.fromkeys(score["model"] for score in values["sizes"]))
    name, missing = values["cc"], {}
    if name == "other" and kind is not None:
        name = kind
        missing = dict.fromkeys(("state", "econ", "pftk"), f"no window law is known for {kind}")
    return LatencyEvaluation(
        values["truth"],
        name,
        values["rtt_s"],
        tuple(LatencyScore(**score) for score in values["sizes"]),
        tuple(LatencyScore(**score) for score in values["ranges"]),
        tuple(
            prediction
            | {"forecast_s": dict(zip(models, prediction["forecast_s"], strict=True))}
            | {"quantiles_s": dict(zip(models, prediction["quantiles_s"], strict=False))}
            for prediction in values["predictions"]
        ),
        missing,
    )


__all__ = [
    "DEFAULT_SIZES_BYTES",
    "EVALUATED_SIZES_BYTES",
    "QUANTILE_LEVELS",
    "Latency",
    "LatencyEvaluation",
    "LatencyScore",
    "LearnedLatencies",
    "Until",
    "evaluate_latency",
    "latency",
    "latency_on_trace",
    "parse_size",
]
