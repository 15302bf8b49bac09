"""A path followed online: its loss curve in a sliding window, and when it changed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from pathcast import _internal
from pathcast.exceptions import ModelError, translated
from pathcast.models import check_rtt, chosen_cc, columns, law_of
from pathcast.trace import Trace

#: Length of the sliding window by default, in seconds (Cao et al., IMC 2019, section 5.1).
WINDOW_S = 100.0


@dataclass(frozen=True)
class PathChange:
    """A change of the path.

    Attributes:
        flow: the flow that showed it.
        kind: `rtt`, the round-trip time without queues, or `loss_rate`.
        at_s: when it is believed to have happened, in seconds of the trace.
        detected_s: when that was known well enough.
        before: before it: seconds, or loss events per packet.
        after: after it.
        probability: how sure that is.

    """

    flow: int
    kind: Literal["rtt", "loss_rate"]
    at_s: float
    detected_s: float
    before: float
    after: float
    probability: float


@dataclass(frozen=True)
class CurveEstimate:
    """The loss probability at one window, with its uncertainty.

    Attributes:
        cwnd_packets: the window.
        loss_probability: of a packet sent at it.
        low: it is below this with 5 % chance.
        high: it is above this with 5 % chance; without any loss `3 / packets`.
        packets: packets that speak for this window, those of windows nearby weighed less.
        losses: losses that do.
        source: `own`: losses seen with as many connections; `other_npc`: with others; `no_loss`:
            none was seen.

    """

    cwnd_packets: float
    loss_probability: float
    low: float
    high: float
    packets: float
    losses: float
    source: str


@dataclass(frozen=True)
class FollowedCurve:
    """p(cwnd) of the sliding window for one number of parallel connections.

    Attributes:
        npc: parallel connections.
        packets: packets in the window.
        losses: losses in it.
        upper_bound: without losses, what the probability exceeds with 5 % chance; else None.
        points: ascending by window.

    """

    npc: int
    packets: float
    losses: int
    upper_bound: float | None
    points: tuple[CurveEstimate, ...]


@dataclass(frozen=True)
class Followed:
    """State of a followed path at its end: curves and changes.

    Attributes:
        file: where the trace came from; empty if nowhere.
        window_s: length of the sliding window in seconds.
        memory_bytes: what the curve takes.
        changes: oldest first.
        curves: one for each number of parallel connections.
        cc: congestion control of the first flow, given or from the trace; None if it was guessed.
        not_applicable: what the result does not say, and why: without a window law and without a count of
            packets sent again, losses are falls of the window that may have had another reason.

    """

    file: str
    window_s: float
    memory_bytes: int
    changes: tuple[PathChange, ...]
    curves: tuple[FollowedCurve, ...]
    cc: str | None = None
    not_applicable: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As `pathcast follow --json` prints it."""
        return {
            "trace": self.file,
            "window_s": self.window_s,
            "memory_bytes": self.memory_bytes,
            "cc": self.cc,
            "not_applicable": self.not_applicable,
            "changes": [vars(change) for change in self.changes],
            "curves": [
                vars(curve) | {"points": [vars(point) for point in curve.points]}
                for curve in self.curves
            ],
        }


def follow(
    trace: Trace,
    *,
    window_s: float = WINDOW_S,
    cc: str | None = None,
    rtt_s: float | None = None,
) -> Followed:
    """Follow the flows of a trace, record by record, as a live service does.

    The curve holds the last `window_s` seconds, and after a change what came since.

    Args:
        trace: all its flows ran in parallel over one path.
        window_s: length of the sliding window in seconds.
        cc: congestion control; by default what the trace says, else guessed from the window: `cubic` or
            `reno`.
        rtt_s: round-trip time in seconds; by default the trace's srtt, else 0.1 s.

    Raises:
        ModelError: a flow has fewer than two records, or a time is not positive.

    Example:
        >>> import numpy as np
        >>> sawtooth = {"time_s": np.arange(1100) * 0.1, "cwnd_packets": 10 + np.arange(1100) % 11}
        >>> followed = follow(Trace.from_columns(sawtooth), cc="reno")
        >>> followed.changes, followed.curves[0].losses
        ((), 99)
        >>> low, *_, high = followed.curves[0].points  # all losses came at 20 packets
        >>> high.loss_probability > 10 * low.loss_probability
        True

    """
    check_rtt(rtt_s)
    kind = chosen_cc(trace, trace.flows[0], cc)
    series = [trace.flow(flow) for flow in trace.flows]
    try:
        with translated():
            text = _internal.follow([columns(one) for one in series], float(window_s), kind, rtt_s)
    except ModelError as error:
        raise ModelError(f"{trace.file}: {error}" if trace.file else str(error)) from None
    result = json.loads(text)
    flows = trace.flows
    curves, changes, missing = result["curves"], result["changes"], {}
    if kind and law_of(kind) == "other" and any(one.retransmits is None for one in series):
        reason = (
            f"nothing counts packets sent again, and the window of {kind} may fall without a loss"
        )
        missing = {"curves": reason, "changes of loss_rate": reason}
        curves, changes = [], [change for change in changes if change["kind"] != "loss_rate"]
    return Followed(
        trace.file,
        float(window_s),
        result["memory_bytes"],
        tuple(PathChange(**(change | {"flow": flows[change["flow"]]})) for change in changes),
        tuple(
            FollowedCurve(
                curve["npc"],
                curve["packets"],
                curve["losses"],
                curve["upper_bound"],
                tuple(CurveEstimate(**point) for point in curve["points"]),
            )
            for curve in curves
        ),
        kind,
        missing,
    )
