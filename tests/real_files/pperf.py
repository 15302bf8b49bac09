"""pantheon_perf.json: each number of each flow of each run."""

from __future__ import annotations

import json
from pathlib import Path

from .facts import Unusable, Usable

#: Key, column of Pathcast's table, and what it is in the column's unit.
NUMBERS = (
    ("tput", "throughput_bps", 1e6),
    ("delay", "one_way_delay_p95_s", 1e-3),
    ("loss", "loss_rate", 1.0),
)


def expected(file: Path) -> Usable | Unusable:
    """Throughput, delay and loss, by the JSON module."""
    try:
        schemes = json.loads(file.read_text())
        facts = {
            f"{scheme} {run} {flow} {column}": stats[key] * factor
            for scheme, runs in schemes.items()
            for run, flows in runs.items()
            for flow, stats in flows.items()
            if stats
            for key, column, factor in NUMBERS
            if stats.get(key) is not None
        }
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        return Unusable(f"no summary of Pantheon: {error}", ("pantheon_perf.json", "expected"))
    return Usable(facts) if facts else Unusable("a summary without runs", ("no runs",))


def found(file: Path, scratch: Path) -> dict[str, float]:
    """The same out of the table that `convert` writes."""
    import pyarrow.parquet

    import pathcast

    pathcast.convert(file, scratch / "perf.parquet", keep_prefix=True)
    facts = {}
    for row in pyarrow.parquet.read_table(scratch / "perf.parquet").to_pylist():
        for _, column, _ in NUMBERS:
            if row[column] is not None:
                facts[f"{row['scheme']} {row['run']} {row['flow']} {column}"] = row[column]
    return facts
