"""How long transfers of some size take, forecast mid-flow (Cao et al., sections 4.2 and 5.3).

Forecasts and truth are those of `pathcast.evaluate_latency`: docs/explanation/transfer-times.md. That is the fair protocol; in the
paper's, models of history and formulas say x / B by equation 5, and B, their forecast of the next second, rests on
what the paper's protocol lets them see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pathcast._latency import MSS_BYTES, LatencyEvaluation, evaluate_latency
from pathcast._scores import error_pct, in_band
from pathcast.experiments.suite import paper
from pathcast.experiments.suite.scores import ECON, OURS, STATE, Errors, Source
from pathcast.models import Evaluation
from pathcast.trace import Trace

#: Sizes of transfers in bytes, from 1 to 100 MB as in section 5.3, in the ranges of figure 8.
SIZE_RANGES = {
    "< 10 MB": (1_000_000, 2_000_000, 5_000_000),
    "10 to 50 MB": (10_000_000, 20_000_000, 50_000_000),
    "> 50 MB": (75_000_000, 100_000_000),
}
SIZES_BYTES = tuple(size for sizes in SIZE_RANGES.values() for size in sizes)
#: All of them together.
ALL_SIZES = "1 to 100 MB"

#: Traces longer than this, in seconds, are forecast every 10 s instead of every second.
_OFTEN_S = 1200.0


@dataclass(frozen=True)
class Transfers:
    """Forecasts of how long one size takes, at each moment of prediction of one flow.

    Attributes:
        source: where they come from.
        protocol: `fair` or `paper`.
        size_bytes: how much is sent.
        error_pct: by model, |forecast / truth - 1| of the time in per cent; NaN where it gave none.
        in_band: whether the truth was within Pathcast's 90 % band.

    """

    source: Source
    protocol: str
    size_bytes: int
    error_pct: dict[str, Errors]
    in_band: npt.NDArray[np.bool_]


def transfers(
    trace: Trace, source: Source, evaluations: Sequence[Evaluation], cc: str | None = None
) -> list[Transfers]:
    """Errors of the times that transfers take; those that the trace ends before are left out.

    Args:
        trace: that holds the flow.
        source: what the flow is; its `flow` is taken.
        evaluations: of its throughput, one for each protocol; the first horizon is one second.
        cc: congestion control, if the trace does not say.

    Returns:
        A score for each protocol and size of which a transfer ends. The paper's protocol is there where
        the trace has sequence numbers.

    Raises:
        ModelError: the flow is too short.

    """
    time_s = trace.flow(source.flow).time_s
    every_s = 1 if time_s[-1] - time_s[0] <= _OFTEN_S else 10
    judged = evaluate_latency(trace, SIZES_BYTES, flow=source.flow, every_s=every_s, cc=cc)
    found = []
    for evaluation in evaluations:
        if evaluation.protocol == "paper" and judged.truth != "packets_per_s":
            continue
        for size_bytes in SIZES_BYTES:
            found += _of_size(source, judged, evaluation, size_bytes)
    return found


def _of_size(
    source: Source, judged: LatencyEvaluation, evaluation: Evaluation, size_bytes: int
) -> list[Transfers]:
    same = [one for one in judged.predictions if one["size_bytes"] == size_bytes]
    if not same:
        return []
    truth_s = np.array([one["truth_s"] for one in same])
    forecast_s = {
        model: np.array([one["forecast_s"][model] for one in same], dtype=float)
        for model in same[0]["forecast_s"]
    }
    if evaluation.protocol == "paper":
        own = {model: forecast_s[model] for model in (OURS, STATE, ECON)}
        at_s = np.array([one["time_s"] for one in same])
        forecast_s = own | _by_rate(evaluation, at_s, size_bytes / MSS_BYTES)
    with np.errstate(invalid="ignore"):
        errors = {
            model: error_pct(forecast, truth_s).astype(np.float32)
            for model, forecast in forecast_s.items()
        }
    bands = np.array([one["quantiles_s"][OURS] for one in same])
    held = in_band(bands, truth_s)
    return [Transfers(source, evaluation.protocol, size_bytes, errors, held)]


def _by_rate(
    evaluation: Evaluation, at_s: npt.NDArray[np.float64], packets: float
) -> dict[str, npt.NDArray[np.float64]]:
    """x / B of the models that the paper compares with; NaN where B is missing or 0."""
    predictions = evaluation.horizons[0].predictions
    # both forecast at whole seconds after the first record; a second in which nothing was sent is left out of one
    index = np.searchsorted(predictions.time_s, at_s - 1e-6)
    index = np.minimum(index, len(predictions.time_s) - 1)
    there = np.abs(predictions.time_s[index] - at_s) < 1e-3
    times = {}
    for model in (*paper.HISTORY, *paper.FORMULAS):
        if model in predictions.forecast:
            rate = np.where(there, predictions.forecast[model][index], np.nan)
            with np.errstate(divide="ignore", invalid="ignore"):
                times[model] = np.where(rate > 0, packets / rate, np.nan)
    return times
