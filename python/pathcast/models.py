"""Loss curves and forecasts: what is measured on a flow, and what it says of the flow's future."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pathcast import _internal
from pathcast.exceptions import ModelError, translated
from pathcast.trace import Column, FlowSeries, Trace

Protocol = Literal["fair", "paper"]


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
    """What was found on one flow.

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
        not_applicable: what there is none of, and why: `epochs` and `econ` without a window law.

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
    """Finds loss epochs and fits the loss curve p(cwnd, npc).

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
                _name(flow_fit["cc"], kind),
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


def _name(law: str, cc: str | None) -> str:
    """What a result calls the congestion control."""
    return cc if law == "other" and cc is not None else law


def check_rtt(rtt_s: float | None) -> None:
    """Refuses a round-trip time that is none.

    Raises:
        ModelError: `rtt_s` is not greater than 0 and less than a minute.

    """
    if rtt_s is not None and not 0 < rtt_s < 60:
        raise ModelError(f"rtt is {rtt_s} s, expected more than 0 and less than 60 s")


#: Congestion controls that each model says something of.
SUITED: dict[str, tuple[str, ...]] = {
    model: tuple(suited) for model, suited in _internal.model_names()
}

#: Models whose forecasts `evaluate` compares, in the order of its tables; docs/models.md.
MODELS = tuple(SUITED)

#: Levels of a forecast's quantiles.
QUANTILE_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)

#: Horizons evaluated by default, in seconds: those of the paper's section 5.2 and longer ones.
DEFAULT_HORIZONS_S = (1.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True)
class Predictions:
    """Every prediction of one horizon; all arrays have one entry a moment of prediction.

    Attributes:
        time_s: moments of prediction in seconds of the trace.
        truth: what happened in the horizon, in the evaluation's unit.
        forecast: by model, in the same unit; NaN where a model does not suit the congestion control.
        quantiles: Pathcast's, `len(time_s)` x 5, at `QUANTILE_LEVELS`.

    """

    time_s: Column
    truth: Column
    forecast: dict[str, Column]
    quantiles: Column

    def error_pct(self, model: str) -> Column:
        """|forecast / truth - 1| in per cent."""
        return np.abs(self.forecast[model] / self.truth - 1) * 100

    def in_band(self) -> npt.NDArray[np.bool_]:
        """Whether the truth lies between Pathcast's 5 and 95 % quantiles."""
        return (self.quantiles[:, 0] <= self.truth) & (self.truth <= self.quantiles[:, -1])


@dataclass(frozen=True)
class HorizonScore:
    """How well each model forecast one horizon.

    Attributes:
        horizon_s: seconds ahead.
        windows: predictions judged.
        median_error_pct: by model, median of |forecast / truth - 1| in per cent; None without windows
            and for models that do not suit the congestion control.
        coverage90: part of the truths within Pathcast's 5-95 % band; None without windows.
        predictions: each of them.

    """

    horizon_s: float
    windows: int
    median_error_pct: dict[str, float | None]
    coverage90: float | None
    predictions: Predictions

    @classmethod
    def of(cls, horizon_s: float, predictions: Predictions) -> HorizonScore:
        """Scores predictions."""
        windows = len(predictions.time_s)
        errors = {model: _median(predictions.error_pct(model)) for model in MODELS}
        coverage = float(predictions.in_band().mean()) if windows else None
        return cls(horizon_s, windows, errors, coverage, predictions)

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "horizon_s": self.horizon_s,
            "windows": self.windows,
            "median_error_pct": self.median_error_pct,
            "coverage90": self.coverage90,
        }


def _median(errors: Column) -> float | None:
    """Median of those that are known."""
    known = errors[np.isfinite(errors)]
    return float(np.median(known)) if len(known) else None


def judged(scores: Sequence[HorizonScore]) -> tuple[str, ...]:
    """The models that have an error at one of the horizons at least, in the order of `MODELS`."""
    return tuple(
        model
        for model in MODELS
        if any(score.median_error_pct[model] is not None for score in scores)
    )


@dataclass(frozen=True)
class Evaluation:
    """Forecasts against what happened.

    Attributes:
        file: where the trace came from; empty if nowhere.
        flow: which of the trace's flows.
        protocol: `fair` or `paper`; `docs/models.md` defines both.
        truth: `packets_per_s` (growth of snd_nxt), or `mean_cwnd_packets` if the trace has no
            sequence numbers.
        cc: congestion control.
        rtt_s: round-trip time at the end, in seconds.
        losses: loss events seen.
        horizons: one score for each, in the order asked for.
        not_applicable: models that say nothing of this flow, and why.

    """

    file: str
    flow: int
    protocol: str
    truth: str
    cc: str
    rtt_s: float
    losses: int
    horizons: tuple[HorizonScore, ...]
    not_applicable: dict[str, str] = field(default_factory=dict)

    def models(self) -> tuple[str, ...]:
        """The models that say something of this flow, in the order of `MODELS`."""
        return judged(self.horizons)

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "trace": self.file,
            "flow": self.flow,
            "protocol": self.protocol,
            "truth": self.truth,
            "cc": self.cc,
            "rtt_s": self.rtt_s,
            "losses": self.losses,
            "horizons": [score.to_dict() for score in self.horizons],
            "not_applicable": self.not_applicable,
        }


@dataclass(frozen=True)
class LeftOut:
    """A flow that could not be evaluated.

    Attributes:
        file: where the trace came from; empty if nowhere.
        flow: which of the trace's flows.
        reason: why, in words.

    """

    file: str
    flow: int
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {"trace": self.file, "flow": self.flow, "reason": self.reason}


def evaluate_flows(
    flows: Sequence[tuple[Trace, int]],
    horizons_s: Sequence[float] = DEFAULT_HORIZONS_S,
    *,
    protocol: Protocol = "fair",
    cc: str | None = None,
    rtt_s: float | None = None,
    window_s: float | None = None,
) -> tuple[tuple[Evaluation, ...], tuple[LeftOut, ...]]:
    """Evaluates several flows, and leaves out those that cannot be: too short, or with wrong records.

    Args:
        flows: traces, and which of their flows.
        horizons_s: as for `evaluate`, and so are the options after it.
        protocol: as for `evaluate`.
        cc: as for `evaluate`.
        rtt_s: as for `evaluate`.
        window_s: as for `evaluate`.

    Returns:
        The evaluations, and the flows left out with the reason.

    Raises:
        ModelError: no flow can be evaluated; each is named.

    """
    check_rtt(rtt_s)
    done: list[Evaluation] = []
    left_out: list[LeftOut] = []
    for trace, flow in flows:
        try:
            done.append(
                _evaluate(
                    trace,
                    horizons_s,
                    flow=flow,
                    protocol=protocol,
                    cc=cc,
                    rtt_s=rtt_s,
                    window_s=window_s,
                )
            )
        except ModelError as error:
            left_out.append(LeftOut(trace.file, flow, str(error)))
    if done:
        return tuple(done), tuple(left_out)
    if not left_out:
        raise ModelError("got no flow, expected at least one")
    if len(left_out) == 1:
        raise ModelError(_placed(left_out[0].file, left_out[0].reason))
    lines = (_placed(f"{one.file or 'trace'}, flow {one.flow}", one.reason) for one in left_out)
    raise ModelError("no flow can be evaluated:\n  " + "\n  ".join(lines))


def _placed(where: str, reason: str) -> str:
    return f"{where}: {reason}" if where else reason


def evaluate(
    trace: Trace,
    horizons_s: Sequence[float] = DEFAULT_HORIZONS_S,
    *,
    flow: int = 0,
    protocol: Protocol = "fair",
    cc: str | None = None,
    rtt_s: float | None = None,
    window_s: float | None = None,
) -> Evaluation:
    """Forecasts a flow again and again and compares with what it then did.

    Args:
        trace: of at least one flow.
        horizons_s: seconds ahead.
        flow: which of the trace's flows.
        protocol: `fair`: baselines see 1 s samples up to the moment of prediction; `paper`:
            averages over 10 s, updated every 10 s.
        cc: congestion control; by default what the trace says, else guessed: `cubic` or `reno`. Of others no
            window law is known; the models that need none are judged, the others are in `not_applicable`.
        rtt_s: round-trip time in seconds; by default from srtt, else estimated as the flow goes on.
        window_s: seconds of the past, 10 to 1000, that all models learn on; by default what suits each,
            100 s for ECON and the formulas (Cao et al., IMC 2019, section 5.1).

    Raises:
        ModelError: a trace too short for the shortest horizon, fewer than two records, or a wrong
            option.

    """
    check_rtt(rtt_s)
    try:
        return _evaluate(
            trace,
            horizons_s,
            flow=flow,
            protocol=protocol,
            cc=cc,
            rtt_s=rtt_s,
            window_s=window_s,
        )
    except ModelError as error:
        raise ModelError(_placed(trace.file, str(error))) from None


def _evaluate(
    trace: Trace,
    horizons_s: Sequence[float],
    *,
    flow: int,
    protocol: Protocol,
    cc: str | None,
    rtt_s: float | None,
    window_s: float | None,
) -> Evaluation:
    """As `evaluate`, its errors without the file."""
    series = trace.flow(flow)
    kind = chosen_cc(trace, flow, cc)
    with translated():
        text = _internal.evaluate(
            columns(series),
            [float(horizon_s) for horizon_s in horizons_s],
            protocol,
            kind,
            rtt_s,
            window_s,
            keep_predictions=True,
        )
    result = json.loads(text)
    name = _name(result["cc"], kind)
    scores = [
        HorizonScore.of(score["horizon_s"], _predictions(score["predictions"]))
        for score in result["horizons"]
    ]
    return Evaluation(
        trace.file,
        flow,
        result["protocol"],
        result["truth"],
        name,
        result["rtt_s"],
        result["losses"],
        tuple(scores),
        not_applicable(name),
    )


def _predictions(rows: list[dict[str, Any]]) -> Predictions:
    return Predictions(
        np.array([row["time_s"] for row in rows], np.float64),
        np.array([row["truth"] for row in rows], np.float64),
        {model: np.array([row["forecast"][model] for row in rows], np.float64) for model in MODELS},
        np.array([row["quantiles"] for row in rows], np.float64).reshape(-1, len(QUANTILE_LEVELS)),
    )


def pooled(evaluations: Sequence[Evaluation]) -> tuple[HorizonScore, ...]:
    """Scores over all predictions of several evaluations of the same horizons together."""
    scores = []
    for same in zip(*(evaluation.horizons for evaluation in evaluations), strict=True):
        all_of = [score.predictions for score in same]
        together = Predictions(
            np.concatenate([p.time_s for p in all_of]),
            np.concatenate([p.truth for p in all_of]),
            {m: np.concatenate([p.forecast[m] for p in all_of]) for m in MODELS},
            np.concatenate([p.quantiles for p in all_of]),
        )
        scores.append(HorizonScore.of(same[0].horizon_s, together))
    return tuple(scores)


@dataclass(frozen=True)
class Forecast:
    """What a flow is expected to do.

    Attributes:
        time_s: moment of prediction in seconds of the flow's records.
        horizon_s: seconds ahead.
        quantity: `packets_per_s`, or `mean_cwnd_packets` without sequence numbers.
        point: the one number to use.
        mean: mean of the distribution.
        quantiles: at `QUANTILE_LEVELS`.
        weights: by expert: its weight in `point` and what it says by itself.
        basis: what the forecast rests on: losses and packets seen, forecasts already resolved, RTT.

    """

    time_s: float
    horizon_s: float
    quantity: str
    point: float
    mean: float
    quantiles: tuple[float, ...]
    weights: dict[str, tuple[float, float]]
    basis: dict[str, Any]


class Forecaster:
    """Forecasts one flow as its records come in; memory stays bounded.

    Example:
        >>> import numpy as np
        >>> forecaster = Forecaster("reno", horizons_s=[5.0], rtt_s=0.1)
        >>> forecaster.observe(FlowSeries(np.arange(300) * 0.1, 100.0 + np.arange(300)))
        >>> round(forecaster.forecast(29.9, 5.0).point)  # one packet more each 0.1 s
        424

    """

    def __init__(
        self,
        cc: str,
        horizons_s: Sequence[float],
        *,
        rtt_s: float | None = None,
        on_break: Literal["refuse", "restart"] = "refuse",
    ) -> None:
        """A forecaster that has seen nothing.

        Args:
            cc: congestion control. Where no window law of it is known, forecasts rest on the past alone.
            horizons_s: the horizons that will be asked for, in seconds.
            rtt_s: round-trip time in seconds; by default from srtt, else estimated.
            on_break: when time or the sequence number goes back: `refuse` the record, or `restart`
                there with what was learned of the path; `basis["notes"]` then says so. Docs:
                loss-curves.md.

        Raises:
            ModelError: an empty `cc`, or a time that is not greater than 0.

        """
        check_rtt(rtt_s)
        if on_break not in ("refuse", "restart"):
            raise ModelError(f"on_break is {on_break!r}, expected 'refuse' or 'restart'")
        horizons_s = [float(h) for h in horizons_s]
        with translated():
            self._inner = _internal.Forecaster(cc, horizons_s, rtt_s, on_break == "restart")

    def observe(self, records: FlowSeries) -> None:
        """Takes records that follow those before; NaN is a value that a record lacks.

        Raises:
            ModelError: a value that is infinite or a time that goes back.

        """
        with translated():
            self._inner.observe(columns(records))

    def forecast(self, now_s: float, horizon_s: float) -> Forecast:
        """Forecasts the `horizon_s` seconds from `now_s` on, which is not before the last record.

        Raises:
            ModelError: no record yet, or a horizon that was not announced.

        """
        with translated():
            values = json.loads(self._inner.forecast(now_s, horizon_s))
        return Forecast(
            values["time_s"],
            values["horizon_s"],
            values["quantity"],
            values["point"],
            values["mean"],
            tuple(values["quantiles"]),
            {w["expert"]: (w["weight"], w["value"]) for w in values["weights"]},
            values["basis"],
        )
