"""Writes what an experiment found: results.json, tables/, figures/ and report.html."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath
from typing import Any, Protocol

from pathcast.experiments.engine.store import make_folder
from pathcast.files import write_beside
from pathcast.report.plots import alone


class Table(Protocol):
    """A table of an experiment."""

    @property
    def name(self) -> str:
        """Of its files."""
        ...

    def csv(self) -> str:
        """For programs."""
        ...

    def markdown(self) -> str:
        """For people."""
        ...


def write(
    folder: FilePath,
    results: Mapping[str, Any],
    html: str,
    *,
    pictures: Mapping[str, str],
    tables: Iterable[Table] = (),
) -> FilePath:
    """Write all files.

    Args:
        folder: of the experiment.
        results: `results.json`.
        html: the page, which needs no other file.
        pictures: SVG by name, as the page has them.
        tables: as CSV and Markdown.

    Returns:
        The page.

    Raises:
        PathcastError: a file cannot be written.

    """
    make_folder(folder)
    write_beside(folder / "results.json", json.dumps(results, allow_nan=False, indent=1) + "\n")
    for table in tables:
        place = make_folder(folder / "tables")
        write_beside(place / f"{table.name}.csv", table.csv())
        write_beside(place / f"{table.name}.md", table.markdown())
    for name, picture in pictures.items():
        write_beside(make_folder(folder / "figures") / f"{name}.svg", alone(picture))
    page = folder / "report.html"
    write_beside(page, html)
    return page
