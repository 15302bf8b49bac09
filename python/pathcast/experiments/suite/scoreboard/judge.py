"""From traces to the scoreboard's rows: each cell at each horizon, compared with the strongest other models."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import numpy.typing as npt

from pathcast import _internal
from pathcast.exceptions import PathcastError
from pathcast.flows import read_flows
from pathcast.models import MODELS, NO_OPPONENTS, HorizonScore, evaluate_flows, pooled

#: Coverage of 90 % bands that counts as correct.
HOLDS = (0.85, 0.95)
#: Of the truths, 90 % bands leave out this part.
_LEFT_OUT = 0.1
#: Of a normal distribution, so many standard deviations either side hold 90 %.
_HALF_WIDTH = 1.6448536
#: A coverage is not compatible with this part if one as far off, on the same side, has less chance.
_CHANCE = 0.025
#: Errors below this count as this, in per cent, as in the comparisons.
_NO_ERROR_PCT = 0.05
#: The models that Pathcast is compared with.
_OPPONENTS = tuple(model for model in MODELS if model not in NO_OPPONENTS)


@dataclass(frozen=True)
class Row:
    """One cell at one horizon.

    Attributes:
        group: of the cell.
        cell: its name.
        flows: how many flows it holds.
        score: of all their windows.
        errors: by opponent, in per cent, one a window.

    """

    group: str
    cell: str
    flows: int
    score: HorizonScore
    errors: Mapping[str, npt.NDArray[np.float64]]


@dataclass
class Judged:
    """All rows, and what could not be judged.

    Attributes:
        rows: cells at horizons.
        left_out: `name` and `because`.

    """

    rows: list[Row] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)


def judge_cell(
    group: str, name: str, files: Sequence[FilePath], horizons_s: Sequence[float]
) -> Judged:
    """Evaluate all flows of a cell and score them together; the fair protocol.

    Args:
        group: of the cell.
        name: of the cell.
        files: traces of its flows.
        horizons_s: seconds ahead.

    """
    found = Judged()
    try:
        flows = [
            (trace, flow) for file in files for trace in read_flows(file) for flow in trace.flows
        ]
        evaluations, left_out = evaluate_flows(flows, horizons_s)
    except PathcastError as error:
        found.left_out.append({"name": f"{group} {name}", "because": str(error)})
        return found
    for one in left_out:
        where = f"{group} {name}, flow {one.flow}"
        found.left_out.append({"name": where, "because": one.reason})
    for score in pooled(evaluations):
        if not score.windows:
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            errors = {
                model: score.predictions.error_pct(model)
                for model in ("pathcast", *_OPPONENTS)
                if score.median_error_pct[model] is not None
            }
        found.rows.append(Row(group, name, len(evaluations), score, errors))
    return found


def best_overall(rows: Sequence[Row]) -> str | None:
    """Find the opponent with the smallest errors over all rows: the geometric mean of the medians.

    Only those that have an error in every row can be it.
    """
    return _least(rows, _OPPONENTS, lambda row, model: row.score.median_error_pct[model])


def best_bands(rows: Sequence[Row]) -> str | None:
    """Find the opponent with the smallest interval scores over all rows, by their geometric mean.

    Only those with conformal bands in every row can be it.
    """

    def interval_score(row: Row, model: str) -> float | None:
        band = row.score.bands[model]
        return None if band is None else band.interval_score_pct

    conformal = [model for model in _OPPONENTS if model != "history_pool"]
    return _least(rows, conformal, interval_score)


def _least(
    rows: Sequence[Row], models: Sequence[str], value: Callable[[Row, str], float | None]
) -> str | None:
    """The model with the smallest geometric mean of a value in per cent, of those that have one in every row."""
    sums = {}
    for model in models:
        values = [value(row, model) for row in rows]
        known = [max(one, _NO_ERROR_PCT) for one in values if one is not None]
        if values and len(known) == len(values):
            sums[model] = sum(map(math.log, known))
    return min(sums, key=sums.__getitem__, default=None)


def _ratio(row: Row, opponent: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        _internal.error_ratio(
            row.errors["pathcast"], row.errors[opponent], float(row.score.horizon_s)
        )
    )
    return {"opponent": opponent} | found


def row_dict(row: Row, overall: str | None, bands_overall: str | None) -> dict[str, Any]:
    """Give a row as `results.json` has it; docs/reference/scoreboard.md has the keys."""
    score = row.score
    ours = score.bands["pathcast"]
    best_band = score.best_other_band()
    overall_band = bands_overall and score.bands[bands_overall]
    compared = {skill.role: skill.to_dict() for skill in score.skill}
    for skill in compared.values():
        del skill["role"]
    if overall is not None:
        compared["best_overall"] = _ratio(row, overall)
    return {
        "group": row.group,
        "cell": row.cell,
        "flows": row.flows,
        "horizon_s": score.horizon_s,
        "windows": score.windows,
        "zero_windows": score.zero_windows,
        "median_error_pct": {
            model: error if error is None or math.isfinite(error) else None
            for model, error in score.median_error_pct.items()
        },
        "compared": compared,
        "coverage90": score.coverage90,
        "compatible90": is_compatible(score.coverage90, score.windows, score.horizon_s),
        "chance_to_hold": chance_to_hold(score.windows, score.horizon_s),
        "width_pct": ours and ours.width_pct,
        "interval_score_pct": ours and ours.interval_score_pct,
        "best_band": best_band and best_band[0],
        "best_interval_score_pct": best_band and best_band[1].interval_score_pct,
        "overall_interval_score_pct": overall_band and overall_band.interval_score_pct,
    }


def is_compatible(coverage90: float | None, windows: int, horizon_s: float) -> bool:
    """Report whether bands that hold 90 % of all truths can have held this part: a two-sided binomial test at 5 %.

    Args:
        coverage90: part of the truths that were in their bands.
        windows: how many truths, one each second.
        horizon_s: of each; windows that overlap count as one.

    Example:
        >>> is_compatible(1.0, 171, 30.0), is_compatible(1.0, 200, 1.0)
        (True, False)

    """
    if coverage90 is None:
        return False
    count = max(1, round(windows / max(1.0, horizon_s)))
    within = round(coverage90 * count)

    def chance(held: int) -> float:
        ways = math.lgamma(count + 1) - math.lgamma(held + 1) - math.lgamma(count - held + 1)
        return math.exp(ways + held * math.log1p(-_LEFT_OUT) + (count - held) * math.log(_LEFT_OUT))

    at_most = sum(map(chance, range(within + 1)))
    at_least = sum(map(chance, range(within, count + 1)))
    return min(at_most, at_least) > _CHANCE


@functools.cache
def chance_to_hold(windows: int, horizon_s: float) -> float:
    """The chance that bands which hold exactly 90 % of all truths hold 85 to 95 % of so many.

    Truths that overlap are alike: each is taken for the mean of as many independent seconds as the horizon has. The
    errors of real flows last longer than that, so the chance is lower still. From 4000 draws with a fixed seed.

    Args:
        windows: how many truths, one each second.
        horizon_s: of each.

    Example:
        >>> 0.95 < chance_to_hold(200, 1.0) < 1.0, chance_to_hold(171, 30.0) < 0.5
        (True, True)

    """
    length = max(1, round(horizon_s))
    noise = np.random.default_rng(1).standard_normal((4000, windows + length))
    sums = np.cumsum(noise, axis=1)
    means = (sums[:, length:] - sums[:, :-length]) / math.sqrt(length)
    held = (np.abs(means) < _HALF_WIDTH).mean(axis=1)
    return float(((held >= HOLDS[0]) & (held <= HOLDS[1])).mean())


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Count verdicts and bands: by group and horizon, by group, by horizon, and over all.

    Args:
        rows: as `row_dict` gives them.

    Returns:
        One row each; `group` and `horizon_s` are None where all are counted.

    """
    groups = list(dict.fromkeys(row["group"] for row in rows))
    horizons = sorted({row["horizon_s"] for row in rows})
    found = []
    for group in (*groups, None):
        for horizon_s in (*horizons, None):
            chosen = [
                row
                for row in rows
                if group in (None, row["group"]) and horizon_s in (None, row["horizon_s"])
            ]
            if chosen:
                found.append({"group": group, "horizon_s": horizon_s} | _counted(chosen))
    return found


def _counted(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    roles = ("best_by_hindsight", "best_overall", "history_pool", *NO_OPPONENTS[1:])
    verdicts = {}
    for role in roles:
        compared = [row["compared"][role] for row in rows if role in row["compared"]]
        counts = {
            verdict: sum(one["verdict"] == verdict for one in compared)
            for verdict in ("better", "level", "worse")
        }
        logs = [math.log(one["error_ratio"]) for one in compared]
        ratio = math.exp(sum(logs) / len(logs)) if logs else None
        verdicts[role] = counts | {"mean_error_ratio": ratio}
    covered = [row["coverage90"] for row in rows]
    return {
        "cells": len(rows),
        "verdicts": verdicts,
        "bands_hold": sum(HOLDS[0] <= one <= HOLDS[1] for one in covered),
        "bands_compatible": sum(row["compatible90"] for row in rows),
        "bands_hold_if_exact": sum(row["chance_to_hold"] for row in rows),
        "coverage90": sum(covered) / len(covered),
        "interval_score_ratio": _mean_ratio(rows, "best_interval_score_pct"),
        "overall_interval_score_ratio": _mean_ratio(rows, "overall_interval_score_pct"),
    }


def _mean_ratio(rows: Sequence[Mapping[str, Any]], other: str) -> float | None:
    """Geometric mean of Pathcast's interval score over another's; scores below 0.05 % count as this."""
    logs = [
        math.log(max(row["interval_score_pct"], _NO_ERROR_PCT) / max(row[other], _NO_ERROR_PCT))
        for row in rows
        if row["interval_score_pct"] is not None and row[other] is not None
    ]
    return math.exp(sum(logs) / len(logs)) if logs else None
