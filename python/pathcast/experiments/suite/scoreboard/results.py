"""All that the scoreboard found out, as `results.json` has it; docs/reference/scoreboard.md has the keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath
from typing import Any

from pathcast import __version__
from pathcast.experiments.engine.runner import in_threads
from pathcast.experiments.engine.store import Record
from pathcast.experiments.suite.scoreboard import judge
from pathcast.experiments.suite.scoreboard.cells import Case, Cell, Scoreboard

#: Version of results.json.
SCHEMA = 1


def collect(
    board: Scoreboard,
    outcomes: Sequence[tuple[Case, Record]],
    *,
    held_out: bool,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Judge all cells whose runs are there.

    Args:
        board: the cells.
        outcomes: what was run.
        held_out: which part of the cells it is.
        progress: receives the number of cells judged; may raise to stop.

    """
    records = {case.name: record for case, record in outcomes}
    left_out: list[dict[str, str]] = []
    jobs: list[Callable[[], judge.Judged]] = []
    for cell in board.cells:
        files, missing = _files_of(cell, records)
        if missing:
            name = f"{cell.group} {cell.name}"
            left_out.append({"name": name, "because": f"no valid run of {', '.join(missing)}"})
            continue
        jobs.append(_job(cell, files, board.horizons_s))
    parts = in_threads(jobs, os.cpu_count() or 1, progress=progress)
    rows = [row for part in parts for row in part.rows]
    for part in parts:
        left_out += part.left_out
    overall = judge.best_overall(rows)
    bands_overall = judge.best_bands(rows)
    found = [judge.row_dict(row, overall, bands_overall) for row in rows]
    return {
        "schema": SCHEMA,
        "pathcast": __version__,
        "held_out": held_out,
        "minutes": board.minutes,
        "horizons_s": list(board.horizons_s),
        "best_overall": overall,
        "best_bands_overall": bands_overall,
        "summary": judge.summary(found),
        "rows": found,
        "lacking": list(board.lacking),
        "left_out": left_out,
    }


def _files_of(cell: Cell, records: dict[str, Record]) -> tuple[list[FilePath], list[str]]:
    """The traces of a cell, and the cases without a valid run."""
    if cell.file is not None:
        return [cell.file], []
    there = {case.name: records.get(case.name) for case in cell.cases}
    files = [record.file for record in there.values() if record and record.valid]
    return files, [name for name, record in there.items() if not (record and record.valid)]


def _job(
    cell: Cell, files: list[FilePath], horizons_s: tuple[float, ...]
) -> Callable[[], judge.Judged]:
    return lambda: judge.judge_cell(cell.group, cell.name, files, horizons_s)
