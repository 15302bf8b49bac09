"""What is measured on a flow: loss epochs and the loss curve p(cwnd, npc)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pathcast import _internal
from pathcast.exceptions import ModelError, translated
from pathcast.trace import FlowSeries, Trace

#: Congestion controls that each model says something of.
SUITED: dict[str, tuple[str, ...]] = {
    model: tuple(suited) for model, suited, _ in _internal.model_names()
}

#: Pathcast's forecast, complete and without one of its parts: the models that it is not compared with.
NO_OPPONENTS = tuple(model for model, _, is_opponent in _internal.model_names() if not is_opponent)


@dataclass(frozen=True)
class Epoch:
    """One congestion-avoidance epoch: from one loss to the next.

    Attributes:
        start_s: when it began, in seconds of the trace.
        start_cwnd: window at that moment in packets.
        end_s: when the loss came that ended it.
        end_cwnd: window at that moment in packets.

    """

    start_s: float
    start_cwnd: float
    end_s: float
    end_cwnd: float


@dataclass(frozen=True)
class CurvePoint:
    """The loss curve at one window.

    Attributes:
        cwnd_packets: the window.
        packets: packets sent at it.
        losses: losses seen at it.
        loss_probability: p(cwnd), of one packet sent at this window; where no loss was seen, that
            of the nearest window with one.

    """

    cwnd_packets: int
    packets: float
    losses: int
    loss_probability: float


@dataclass(frozen=True)
class LossCurve:
    """p(cwnd) for one number of parallel connections (Cao et al., IMC 2019, section 3.2).

    Attributes:
        npc: parallel connections.
        packets: packets sent in all.
        losses: losses seen in all; with none, all probabilities are 0.
        points: ascending by window.

    """

    npc: int
    packets: float
    losses: int
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True)
class FlowFit:
    """Epochs, losses and rates found on one flow.

    Attributes:
        file: where the trace came from; empty if nowhere.
        flow: which of the trace's flows.
        cc: congestion control, given, from the trace or guessed.
        rtt_s: round-trip time in seconds.
        rtt_source: where that came from.
        losses: loss events.
        epochs: ended epochs, oldest first; none where no window law of `cc` is known.
        losses_source: `retransmissions`, if the trace counts packets sent again: each window of data in which
            that rises is a loss event; else `window`, whose falls suggest them.
        packets: packets sent; None without sequence numbers.
        sent_again: packets sent again; None if the trace does not count them.
        rate_packets_per_s: packets sent a second; None without sequence numbers.

    """

    file: str
    flow: int
    cc: str
    rtt_s: float
    rtt_source: str
    losses: int
    epochs: tuple[Epoch, ...]
    losses_source: str = "window"
    packets: float | None = None
    sent_again: float | None = None
    rate_packets_per_s: float | None = None

    @property
    def loss_rate(self) -> float | None:
        """Loss events for each packet sent; None without sequence numbers."""
        return self.losses / self.packets if self.packets else None


@dataclass(frozen=True)
class Fit:
    """Epochs of each flow, and over all flows a curve for each number of parallel connections.

    Attributes:
        flows: one entry a flow of a trace.
        curves: ascending by `npc`. Of flows without a window law what was measured, if their losses are
            counted; none if they are not.
        not_applicable: what does not apply, and why: `epochs` and `econ` without a window law.

    """

    flows: tuple[FlowFit, ...]
    curves: tuple[LossCurve, ...]
    not_applicable: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As `pathcast fit --json` prints it; `curve` is the one of the fewest connections."""
        return {
            "losses": sum(flow.losses for flow in self.flows),
            "epochs": [
                vars(epoch) | {"trace": flow.file, "flow": flow.flow}
                for flow in self.flows
                for epoch in flow.epochs
            ],
            "curve": curve_dict(self.curves[0]) if self.curves else None,
            "curves": [curve_dict(curve) for curve in self.curves],
            "flows": [
                {
                    "trace": flow.file,
                    "flow": flow.flow,
                    "cc": flow.cc,
                    "rtt_s": flow.rtt_s,
                    "rtt_source": flow.rtt_source,
                    "losses": flow.losses,
                    "losses_source": flow.losses_source,
                    "epochs": len(flow.epochs),
                    "packets": flow.packets,
                    "sent_again": flow.sent_again,
                    "rate_packets_per_s": flow.rate_packets_per_s,
                    "loss_rate": flow.loss_rate,
                }
                for flow in self.flows
            ],
            "not_applicable": self.not_applicable,
        }


def curve_dict(curve: LossCurve) -> dict[str, Any]:
    """A loss curve as `--json` prints it and the Rust part reads it."""
    return vars(curve) | {"points": [vars(point) for point in curve.points]}


def chosen_cc(trace: Trace, flow: int, cc: str | None) -> str | None:
    """The option wins; then what the trace says: the law's name if one is known, else the name as it is.

    The simulator's variants of CUBIC (cubic-rfc9438, cubic-hystart++) follow the same law, and so do
    quic-cubic and quic-reno.
    """
    name = (trace.scheme(flow) or None) if cc is None else cc
    return name if name is None else _internal.window_law(name) or name


def law_of(cc: str) -> str:
    """`cubic` or `reno`, or `other` if no window law of this congestion control is known."""
    return _internal.window_law(cc) or "other"


def not_applicable(cc: str) -> dict[str, str]:
    """The models that say nothing of flows of a congestion control, and why.

    Example:
        >>> not_applicable("bbr")["econ"]
        'no window law is known for bbr'

    """
    law = law_of(cc)
    return {
        model: f"no window law is known for {cc}"
        if law == "other"
        else f"a formula of {suited[0]}, and the flow is {cc}"
        for model, suited in SUITED.items()
        if law not in suited
    }


def columns(series: FlowSeries) -> tuple[Any, ...]:
    """A flow's columns in the order that the Rust part takes them."""
    return (
        series.time_s,
        series.cwnd_packets,
        series.snd_nxt_packets,
        series.srtt_s,
        series.retransmits,
    )


def fit(
    traces: Trace | Sequence[Trace], *, cc: str | None = None, rtt_s: float | None = None
) -> Fit:
    """Find loss epochs and fit the loss curve p(cwnd, npc).

    Args:
        traces: one or more; all flows of one trace ran in parallel, which gives `npc`.
        cc: congestion control; by default what the trace says, else guessed from the window: `cubic` or
            `reno`. Of others no window law is known; `Fit.not_applicable` says what there is then none of.
        rtt_s: round-trip time in seconds; by default from the trace's srtt, else estimated.

    Raises:
        ModelError: a flow with fewer than two records, or an `rtt_s` that is not greater than 0.

    Example:
        >>> import numpy as np
        >>> sawtooth = {"time_s": np.arange(110) * 0.1, "cwnd_packets": 10 + np.arange(110) % 11}
        >>> fitted = fit(Trace.from_columns(sawtooth), cc="reno")
        >>> fitted.flows[0].losses, round(fitted.flows[0].rtt_s, 3)
        (9, 0.1)

    """
    check_rtt(rtt_s)
    found: list[FlowFit] = []
    flows_of: list[tuple[Trace, int, str | None]] = [
        (trace, flow, chosen_cc(trace, flow, cc))
        for trace in ([traces] if isinstance(traces, Trace) else traces)
        for flow in trace.flows
    ]
    if not flows_of:
        raise ModelError("got no trace, expected at least one")
    kinds = {kind for _, _, kind in flows_of}
    if len(kinds) > 1:
        raise ModelError(
            f"the flows have different congestion controls, {', '.join(sorted(map(str, kinds)))}, and one "
            "curve serves one: fit them apart, a flow at a time"
        )
    series = []
    for trace, flow, _ in flows_of:
        series.append(columns(trace.flow(flow)))
    names = [
        f"{trace.file or 'trace'}" + (f", flow {flow}" if len(trace.flows) > 1 else "")
        for trace, flow, _ in flows_of
    ]
    npcs = [len(trace.flows) for trace, _, _ in flows_of]
    kind = kinds.pop()
    with translated():
        result = json.loads(_internal.fit(series, names, npcs, kind, rtt_s))
    for (trace, flow, _), flow_fit in zip(flows_of, result["flows"], strict=True):
        epochs = tuple(Epoch(**epoch) for epoch in flow_fit["epochs"])
        found.append(
            FlowFit(
                trace.file,
                flow,
                name_of(flow_fit["cc"], kind),
                flow_fit["rtt_s"],
                flow_fit["rtt_source"],
                len(flow_fit["losses"]),
                epochs,
                flow_fit["losses_source"],
                flow_fit["packets"],
                flow_fit["sent_again"],
                flow_fit["rate_packets_per_s"],
            )
        )
    curves = tuple(
        LossCurve(
            curve["npc"],
            curve["packets"],
            curve["losses"],
            tuple(CurvePoint(**point) for point in curve["points"]),
        )
        for curve in result["curves"]["curves"]
    )
    if kind is None or law_of(kind) != "other":
        return Fit(tuple(found), curves)
    missing = {"epochs": f"no window law is known for {kind}"} | not_applicable(kind)
    if any(flow.losses_source == "window" for flow in found):
        # BBR's window falls without a loss, and others' may
        reason = (
            f"nothing counts packets sent again, and the window of {kind} may fall without a loss"
        )
        return Fit(tuple(found), (), missing | {"curve": reason})
    return Fit(tuple(found), curves, missing)


def name_of(law: str, cc: str | None) -> str:
    """What a result calls the congestion control."""
    return cc if law == "other" and cc is not None else law


def check_rtt(rtt_s: float | None) -> None:
    """Refuse a round-trip time that is not a positive number.

    Raises:
        ModelError: `rtt_s` is not greater than 0 and less than a minute.

    """
    if rtt_s is not None and not 0 < rtt_s < 60:
        raise ModelError(f"rtt is {rtt_s} s, expected more than 0 and less than 60 s")
