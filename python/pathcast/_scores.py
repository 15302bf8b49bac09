"""How good forecasts were, in a few numbers; the crate `forecast` computes them (`score.rs`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pathcast import _internal

Floats = npt.NDArray[np.float64]


Verdict = Literal["better", "level", "worse"]


def error_pct(forecast: Floats, truth: Floats, floor: Floats | float = 0.0) -> Floats:
    """Relative errors of forecasts, `abs(forecast - truth) / max(truth, floor)`, in per cent."""
    off = np.abs(forecast - truth)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(off == 0, 0.0, 100 * off / np.maximum(truth, floor))


def in_band(quantiles: Floats, truth: Floats) -> npt.NDArray[np.bool_]:
    """Whether each truth lies between the first and the last of its quantiles, which are a row of `quantiles`."""
    return (quantiles[:, 0] <= truth) & (truth <= quantiles[:, -1])


@dataclass(frozen=True)
class ErrorSummary:
    """The distribution of errors, in their unit.

    Attributes:
        mean: mean.
        median: median.
        p10: 10 % quantile, interpolated linearly.
        p90: 90 % quantile.

    """

    mean: float
    median: float
    p10: float
    p90: float

    @classmethod
    def of(cls, errors: npt.NDArray[np.floating[Any]]) -> ErrorSummary | None:
        """Summarize those of `errors` that are not NaN; None if all are NaN."""
        found = _internal.error_summary(np.asarray(errors, np.float64))
        return None if found is None else cls(*found)


def coverage(held: npt.NDArray[np.bool_]) -> float | None:
    """Part of the truths that lie in their bands; None without a band."""
    return _internal.coverage(held)


@dataclass(frozen=True)
class BandScore:
    """How good one model's 5-95 % bands were.

    Attributes:
        coverage90: part of the truths within their bands.
        width_pct: mean width in per cent of the mean truth.
        interval_score_pct: mean interval score in per cent of the mean truth: the width, and 20 times what the
            truth is beyond the band. Smaller is better.

    """

    coverage90: float
    width_pct: float
    interval_score_pct: float

    def to_dict(self) -> dict[str, float]:
        """As `--json` prints it."""
        return {
            "coverage90": self.coverage90,
            "width_pct": self.width_pct,
            "interval_score_pct": self.interval_score_pct,
        }


@dataclass(frozen=True)
class Skill:
    """Pathcast's errors compared with those of another model on the same windows.

    Attributes:
        role: why that model: `best_by_hindsight` is the opponent with the smallest median error on these very
            windows, `history_pool` the best that needs no choice afterwards, `flat_curve`, `no_state`, `no_analogs`
            and `no_window` are Pathcast without its loss curve, the window law, analogs, and all that looks at the
            window.
        opponent: that model.
        error_ratio: Pathcast's median error over the other's; medians below 0.05 % count as this.
        interval95: 2.5 and 97.5 % quantiles of the ratio, by block bootstrap.
        verdict: `better` if the whole interval is below 1, `worse` if it is above, else `level`; of
            fewer than 20 windows always `level`.

    """

    role: str
    opponent: str
    error_ratio: float
    interval95: tuple[float, float]
    verdict: Verdict

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Skill:
        """Read one from JSON."""
        low, high = row["interval95"]
        return cls(row["role"], row["opponent"], row["error_ratio"], (low, high), row["verdict"])

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "role": self.role,
            "opponent": self.opponent,
            "error_ratio": self.error_ratio,
            "interval95": list(self.interval95),
            "verdict": self.verdict,
        }


def skills(errors: Mapping[str, Floats], horizon_s: float) -> tuple[Skill, ...]:
    """Compare `pathcast` with the others on the same windows.

    Args:
        errors: by model, in per cent, one a window, oldest first; NaN where it gave no forecast.
        horizon_s: seconds ahead.

    Returns:
        One comparison for each role that can be filled.

    """
    rows = [(model, np.asarray(of, np.float64)) for model, of in errors.items()]
    return tuple(Skill.of(row) for row in json.loads(_internal.skills(rows, float(horizon_s))))
