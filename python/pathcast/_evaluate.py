"""Forecasts of a trace against what then happened."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pathcast import _internal
from pathcast._fit import (
    NO_OPPONENTS,
    SUITED,
    check_rtt,
    chosen_cc,
    columns,
    name_of,
    not_applicable,
)
from pathcast._scores import BandScore, ErrorSummary, Skill, coverage, error_pct, in_band, skills
from pathcast.exceptions import ModelError, translated
from pathcast.trace import Column, Trace

Protocol = Literal["fair", "paper"]

#: Models whose forecasts `evaluate` compares, in the order of its tables; docs/reference/evaluation.md.
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
        floor: a truth counts as at least this in errors: 1 % of the mean truth of its flow.

    """

    time_s: Column
    truth: Column
    forecast: dict[str, Column]
    quantiles: Column
    floor: Column

    def error_pct(self, model: str) -> Column:
        """`abs(forecast - truth) / max(truth, floor)` in per cent."""
        return error_pct(self.forecast[model], self.truth, self.floor)

    def in_band(self) -> npt.NDArray[np.bool_]:
        """Whether the truth lies between Pathcast's 5 and 95 % quantiles."""
        return in_band(self.quantiles, self.truth)


@dataclass(frozen=True)
class HorizonScore:
    """Errors and coverage of each model at one horizon.

    Attributes:
        horizon_s: seconds ahead.
        windows: predictions judged.
        zero_windows: of these, windows in which nothing was sent.
        median_error_pct: by model, median of `abs(forecast - truth) / max(truth, floor)` in per cent; None without
            windows and for models that do not suit the congestion control.
        coverage90: part of the truths within Pathcast's 5-95 % band; None without windows.
        bands: by model, coverage, width and interval score of its 5-95 % bands: Pathcast's own, around other models
            what they were lately off by; None as for the errors.
        skill: Pathcast's errors compared with those of the best other model, and of Pathcast without one of
        its parts.
        predictions: each of them.

    """

    horizon_s: float
    windows: int
    zero_windows: int
    median_error_pct: dict[str, float | None]
    coverage90: float | None
    bands: dict[str, BandScore | None]
    skill: tuple[Skill, ...]
    predictions: Predictions

    def against(self, role: str) -> Skill | None:
        """Give the comparison with this role, or None.

        Args:
            role: `best_by_hindsight`, `history_pool`, `flat_curve`, `no_state`, `no_analogs` or `no_window`.

        """
        return next((skill for skill in self.skill if skill.role == role), None)

    def best_other_band(self) -> tuple[str, BandScore] | None:
        """Give the opponent whose bands have the smallest interval score, and their score; None without one."""
        bands = [
            (model, band)
            for model, band in self.bands.items()
            if band is not None and model not in NO_OPPONENTS
        ]
        return min(bands, key=lambda one: one[1].interval_score_pct, default=None)

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "horizon_s": self.horizon_s,
            "windows": self.windows,
            "zero_windows": self.zero_windows,
            # JSON has no infinity, which is the error of a forecast for a flow that never sends
            "median_error_pct": {
                model: None if error is None or math.isinf(error) else error
                for model, error in self.median_error_pct.items()
            },
            "coverage90": self.coverage90,
            "bands": {model: band and band.to_dict() for model, band in self.bands.items()},
            "skill": [skill.to_dict() for skill in self.skill],
        }


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
        protocol: `fair` or `paper`; `docs/reference/evaluation.md` defines both.
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
        """Models that suit this flow, in the order of `MODELS`."""
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
    parallel: bool = False,
) -> tuple[tuple[Evaluation, ...], tuple[LeftOut, ...]]:
    """Evaluate several flows, and leave out those that cannot be: too short, or with wrong records.

    Args:
        flows: traces, and which of their flows.
        horizons_s: as for `evaluate`, and so are the options after it.
        protocol: as for `evaluate`.
        cc: as for `evaluate`.
        rtt_s: as for `evaluate`.
        window_s: as for `evaluate`.
        parallel: the flows of one trace are connections in parallel over one path, and `siblings` of each other.

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
                    siblings=[one for one in trace.flows if one != flow] if parallel else (),
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
    siblings: Sequence[int] = (),
) -> Evaluation:
    """Forecast a flow again and again and compare with what it then did.

    Args:
        trace: of at least one flow.
        horizons_s: seconds ahead.
        flow: which of the trace's flows.
        protocol: `fair`: baselines see 1 s samples up to the moment of prediction; `paper`:
            averages over 10 s, updated every 10 s.
        cc: congestion control; by default what the trace says, else guessed: `cubic` or `reno`. Of others no
            window law is known; the models that need none are judged, the others are in `not_applicable`.
        rtt_s: round-trip time in seconds; by default from srtt, else estimated during the flow.
        window_s: seconds of the past, 10 to 1000, that all models learn on; by default what suits each,
            100 s for ECON and the formulas (Cao et al., IMC 2019, section 5.1).
        siblings: flows of the trace that are connections in parallel with this one over one path. ECON and the
            formulas learn from all of them: p(cwnd, npc) of the paper's section 3.2.

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
            siblings=siblings,
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
    siblings: Sequence[int],
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
            [columns(trace.flow(sibling)) for sibling in siblings],
            keep_predictions=True,
        )
    result = json.loads(text)
    name = name_of(result["cc"], kind)
    scores = [
        HorizonScore(
            score["horizon_s"],
            score["windows"],
            score["zero_windows"],
            score["median_error_pct"],
            score["coverage90"],
            {model: band and BandScore(**band) for model, band in score["bands"].items()},
            tuple(Skill.of(skill) for skill in score["skill"]),
            _predictions(score["predictions"], score["error_floor"]),
        )
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


def _predictions(rows: list[dict[str, Any]], floor: float) -> Predictions:
    return Predictions(
        np.array([row["time_s"] for row in rows], np.float64),
        np.array([row["truth"] for row in rows], np.float64),
        {model: np.array([row["forecast"][model] for row in rows], np.float64) for model in MODELS},
        np.array([row["quantiles"] for row in rows], np.float64).reshape(-1, len(QUANTILE_LEVELS)),
        np.full(len(rows), floor),
    )


def pooled(evaluations: Sequence[Evaluation]) -> tuple[HorizonScore, ...]:
    """Score all predictions of several evaluations of the same horizons together."""
    scores = []
    for same in zip(*(evaluation.horizons for evaluation in evaluations), strict=True):
        all_of = [score.predictions for score in same]
        together = Predictions(
            np.concatenate([p.time_s for p in all_of]),
            np.concatenate([p.truth for p in all_of]),
            {m: np.concatenate([p.forecast[m] for p in all_of]) for m in MODELS},
            np.concatenate([p.quantiles for p in all_of]),
            np.concatenate([p.floor for p in all_of]),
        )
        errors = {model: together.error_pct(model) for model in MODELS}
        summaries = {model: ErrorSummary.of(of) for model, of in errors.items()}
        medians = {
            model: summary.median if summary else None for model, summary in summaries.items()
        }
        windows = len(together.time_s)
        horizon_s = same[0].horizon_s
        scores.append(
            HorizonScore(
                horizon_s,
                windows,
                sum(score.zero_windows for score in same),
                medians,
                coverage(together.in_band()),
                {model: _pooled_band(same, model) for model in MODELS},
                same[0].skill if len(same) == 1 else skills(errors, horizon_s),
                together,
            )
        )
    return tuple(scores)


def _pooled_band(scores: Sequence[HorizonScore], model: str) -> BandScore | None:
    """Of several flows: means by the windows of each."""
    bands = [(score.windows, band) for score in scores if (band := score.bands[model])]
    windows = sum(count for count, _ in bands)
    if not windows:
        return None

    def mean(of: Callable[[BandScore], float]) -> float:
        return sum(count * of(band) for count, band in bands) / windows

    return BandScore(
        mean(lambda band: band.coverage90),
        mean(lambda band: band.width_pct),
        mean(lambda band: band.interval_score_pct),
    )
