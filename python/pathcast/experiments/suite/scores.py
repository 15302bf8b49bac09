"""Errors of all models on all flows of all cells, and the tables that they make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pathcast._scores import ErrorSummary, coverage
from pathcast.experiments.suite import paper
from pathcast.models import NO_OPPONENTS, SUITED, Evaluation, HorizonScore, Protocol, evaluate
from pathcast.trace import Trace

Errors = npt.NDArray[np.float32]

#: Seconds ahead (section 5.2).
HORIZONS_S = (1.0, 5.0, 10.0)
PROTOCOLS: tuple[Protocol, ...] = ("fair", "paper")

#: Seconds that all models learn on in the check of the training window (section 5.2).
SMALL_WINDOW_S = 10.0

OURS, ECON = "pathcast", "econ"
#: Of latency: Pathcast's recursion from the state alone; not calibrated, and no alternative to itself.
STATE = "state"


def counts(model: str, scheme: str) -> bool:
    """Whether a model says something of a congestion control: formulas are of Reno or of CUBIC."""
    return model == STATE or scheme in SUITED[model]


def alternatives(models: Iterable[str], scheme: str, protocol: str) -> list[str]:
    """The models that Pathcast is compared with.

    In the fair protocol all others; in the paper's those of the paper's figures, ECON apart.
    """
    known = (*paper.HISTORY, *paper.FORMULAS)
    return [
        model
        for model in models
        if model not in (*NO_OPPONENTS, STATE)
        and counts(model, scheme)
        and (protocol == "fair" or model in known)
    ]


@dataclass(frozen=True)
class Source:
    """Where forecasts come from: one flow of one cell or of a trace of somebody else's.

    Attributes:
        network: cells with the same one are scored together.
        scheme: congestion control.
        npc: connections in parallel; 0 if not known.
        name: of the cell or file.
        flow: of its trace.

    """

    network: str
    scheme: str
    npc: int
    name: str
    flow: int


@dataclass(frozen=True)
class Scored:
    """All predictions of one flow, protocol and horizon; arrays have one entry a prediction.

    Attributes:
        source: where they come from.
        protocol: `fair` or `paper`.
        horizon_s: seconds ahead.
        time_s: moments of prediction in seconds of the trace.
        scwnd: window at that moment, packets.
        error_pct: by model, |forecast - truth| / truth in per cent; NaN where it gave none.
        in_band: whether the truth was within Pathcast's 90 % band.

    """

    source: Source
    protocol: str
    horizon_s: float
    time_s: npt.NDArray[np.float64]
    scwnd: Errors
    error_pct: dict[str, Errors]
    in_band: npt.NDArray[np.bool_]

    def where(self, chosen: npt.NDArray[np.bool_]) -> Scored:
        """Those predictions alone."""
        return Scored(
            self.source,
            self.protocol,
            self.horizon_s,
            self.time_s[chosen],
            self.scwnd[chosen],
            {model: error[chosen] for model, error in self.error_pct.items()},
            self.in_band[chosen],
        )


@dataclass(frozen=True)
class Pool:
    """Predictions of several flows together, as one row of a table.

    Attributes:
        scheme: congestion control.
        protocol: `fair` or `paper`.
        error_pct: as in `Scored`, of all.
        in_band: whether each truth was in the band; None where no model has bands.

    """

    scheme: str
    protocol: str
    error_pct: dict[str, Errors]
    in_band: npt.NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, scored: Sequence[Scored]) -> Pool:
        """Of at least one."""
        first = scored[0]
        return cls(
            first.source.scheme,
            first.protocol,
            joined([one.error_pct for one in scored]),
            np.concatenate([one.in_band for one in scored]),
        )

    @property
    def windows(self) -> int:
        """Predictions judged."""
        return len(next(iter(self.error_pct.values()), ()))

    def summaries(self) -> dict[str, ErrorSummary | None]:
        """Errors of each model for this congestion control, per cent."""
        counting = ((m, e) for m, e in self.error_pct.items() if counts(m, self.scheme))
        return {model: ErrorSummary.of(errors) for model, errors in counting}

    def coverage90(self) -> float | None:
        """Part of the truths within Pathcast's 90 % band."""
        return None if self.in_band is None else coverage(self.in_band)

    def best_other(self, values: dict[str, float | None]) -> tuple[str, float] | None:
        """The alternative with the smallest of `values`, and that value."""
        others = alternatives(values, self.scheme, self.protocol)
        there = [(value, m) for m in others if (value := values[m]) is not None]
        if not there:
            return None
        value, model = min(there)
        return model, value


def joined(errors: Sequence[dict[str, Errors]]) -> dict[str, Errors]:
    """Errors of several flows one after another; a model that not all have is compared on none."""
    models = [m for m in errors[0] if all(m in one for one in errors)]
    return {m: np.concatenate([one[m] for one in errors]) for m in models}


def reduction_pct(ours: float | None, other: float | None) -> float | None:
    """How much smaller an error is than another, per cent; negative if it is larger."""
    if ours is None or not other:
        return None
    return 100 * (1 - ours / other)


def score_flow(
    trace: Trace, source: Source, cc: str | None = None
) -> tuple[list[Scored], list[Evaluation]]:
    """Evaluate one flow by both protocols.

    Args:
        trace: that holds it.
        source: what it is; its `flow` is taken.
        cc: congestion control, if the trace does not say.

    Returns:
        A score for each protocol and horizon, and an evaluation for each protocol.

    Raises:
        ModelError: it is too short.

    """
    series = trace.flow(source.flow)
    scored, evaluations = [], []
    for protocol in PROTOCOLS:
        evaluation = evaluate(trace, HORIZONS_S, flow=source.flow, protocol=protocol, cc=cc)
        evaluations.append(evaluation)
        for score in evaluation.horizons:
            scored.append(_scored(source, protocol, score, series.time_s, series.cwnd_packets))
    return scored, evaluations


def score_small_window(trace: Trace, source: Source, cc: str | None = None) -> Scored:
    """Evaluate one flow by the paper's protocol, the next second, with all models learning on 10 s alone.

    Args:
        trace: that holds it.
        source: what it is; its `flow` is taken.
        cc: congestion control, if the trace does not say.

    Raises:
        ModelError: it is too short.

    """
    series = trace.flow(source.flow)
    evaluation = evaluate(
        trace, [1.0], flow=source.flow, protocol="paper", cc=cc, window_s=SMALL_WINDOW_S
    )
    (score,) = evaluation.horizons
    return _scored(source, "paper", score, series.time_s, series.cwnd_packets)


def _scored(
    source: Source,
    protocol: str,
    score: HorizonScore,
    time_s: npt.NDArray[np.float64],
    cwnd_packets: npt.NDArray[np.float64],
) -> Scored:
    predictions = score.predictions
    at = np.searchsorted(time_s, predictions.time_s, side="right") - 1
    with np.errstate(invalid="ignore", over="ignore"):
        errors = {
            model: predictions.error_pct(model).astype(np.float32) for model in predictions.forecast
        }
    return Scored(
        source,
        protocol,
        score.horizon_s,
        predictions.time_s,
        cwnd_packets[np.maximum(at, 0)].astype(np.float32),
        errors,
        predictions.in_band(),
    )
