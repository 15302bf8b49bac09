"""Compares the limits that Pathcast names with the true ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pathcast import __version__
from pathcast._limits import LIMITS, limits
from pathcast.experiments.engine.store import Record
from pathcast.experiments.limits.cells import Flow
from pathcast.trace import read_trace

#: Version of results.json.
SCHEMA = 1
#: A flow whose largest true share is below this has no single limit: it is listed, but not counted.
LEAST_SHARE = 0.55
#: Of the normal distribution, for intervals of 90 %.
_Z = 1.645


def collect(
    outcomes: Sequence[tuple[Flow, Record]], *, world: str, held_out: bool
) -> dict[str, Any]:
    """Judge all flows that were run.

    Args:
        outcomes: what was run.
        world: the backend.
        held_out: which part of the flows it is.

    Returns:
        As `results.json` has it; docs/reference/diagnose.md has the keys.

    """
    rows, left_out = [], []
    for flow, record in sorted(outcomes, key=lambda outcome: outcome[0].name):
        if record.valid:
            rows.append(_row(flow, record))
        else:
            because = "; ".join(record.invalid_because[-1])
            left_out.append({"name": flow.name, "because": f"no valid run: {because}"})
    counted = [row for row in rows if row["counts"]]
    return {
        "schema": SCHEMA,
        "pathcast": __version__,
        "world": world,
        "held_out": held_out,
        "summary": [
            _summary(limit, [row for row in counted if limit in (None, row["limit"])])
            for limit in (*LIMITS, None)
        ],
        "flows": rows,
        "left_out": left_out,
    }


def _row(flow: Flow, record: Record) -> dict[str, Any]:
    truth: Mapping[str, float] = record.report["truth"]
    found = limits(read_trace(record.file))
    limit = max(truth, key=lambda name: truth[name])
    return {
        "name": flow.name,
        "scheme": flow.scheme,
        "limit": limit,
        "truth": dict(truth),
        "counts": bool(truth[limit] >= LEAST_SHARE),
        "named": found.limit,
        "probability": found.probability,
        "shares": dict(found.shares),
        # the part of the time that is given to the wrong limit
        "share_error": sum(abs(truth[name] - found.shares[name]) for name in LIMITS) / 2,
    }


def _summary(limit: str | None, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One limit, or all of them where it is None."""
    count = len(rows)
    right = sum(row["named"] == row["limit"] for row in rows)
    low, high = _wilson(right, count)
    mean = {
        key: sum(row[key] for row in rows) / count if count else None
        for key in ("probability", "share_error")
    }
    return {
        "limit": limit,
        "flows": count,
        "right": right,
        "right_p5": low,
        "right_p95": high,
        "mean_probability": mean["probability"],
        "mean_share_error": mean["share_error"],
    }


def _wilson(right: int, count: int) -> tuple[float | None, float | None]:
    """The interval of 90 % of a proportion (Wilson 1927)."""
    if not count:
        return None, None
    share, spread = right / count, _Z**2 / count
    middle = share + spread / 2
    half = _Z * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    return (middle - half) / (1 + spread), (middle + half) / (1 + spread)
