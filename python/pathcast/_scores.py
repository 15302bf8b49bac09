"""How good forecasts were, in a few numbers; the crate `forecast` computes them (`score.rs`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pathcast import _internal

Floats = npt.NDArray[np.float64]


def error_pct(forecast: Floats, truth: Floats) -> Floats:
    """Relative errors of forecasts, `abs(forecast / truth - 1)`, in per cent."""
    return np.abs(forecast / truth - 1) * 100


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
        p90: 90 % quantile likewise.

    """

    mean: float
    median: float
    p10: float
    p90: float

    @classmethod
    def of(cls, errors: npt.NDArray[np.floating[Any]]) -> ErrorSummary | None:
        """Summarize the finite ones of `errors`; None if there is none."""
        found = _internal.error_summary(np.asarray(errors, np.float64))
        return None if found is None else cls(*found)


def coverage(held: npt.NDArray[np.bool_]) -> float | None:
    """Part of the truths that lie in their bands; None without a band."""
    return _internal.coverage(held)
