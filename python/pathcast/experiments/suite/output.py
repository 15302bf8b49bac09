"""Writes what was found out: results.json, tables, figures and one page with all of it."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

from pathcast.experiments.engine import page
from pathcast.experiments.suite.figures import figures
from pathcast.experiments.suite.judge import Judged
from pathcast.experiments.suite.views import View, views
from pathcast.report.templates import templates

_templates = templates("pathcast.experiments.suite")

#: Where figures stand on the page: after the table of this name.
_AFTER = {
    "figure-5": "figure-5",
    "figure-6": "figure-6",
    "mobile-cubic": "table-3",
    "mobile-reno": "table-3",
    "figure-7-reno": "figure-7",
    "figure-7-cubic": "figure-7",
    "figure-8": "latency",
    "figure-9": "latency",
    "short-flows": "short-flows",
    "short-flows-windows": "short-flows",
    "short-flows-scatter": "short-flows",
    "traces-cubic": "models",
    "traces-reno": "models",
}


def write(folder: FilePath, judged: Judged, results: dict[str, Any]) -> FilePath:
    """Write all files.

    Args:
        folder: of the suite.
        judged: the errors, for the figures.
        results: what `collect` made of them.

    Returns:
        The page.

    Raises:
        PathcastError: a file cannot be written.

    """
    tables, pictures = views(results), figures(judged, results)
    return page.write(
        folder,
        results,
        render(results, tables, pictures),
        pictures={name: picture for name, (_, picture) in pictures.items()},
        tables=tables,
    )


def render(
    results: dict[str, Any], tables: list[View], pictures: dict[str, tuple[str, str]]
) -> str:
    """The page, which needs no other file."""
    after: dict[str, list[tuple[str, str]]] = {view.name: [] for view in tables}
    rest: list[tuple[str, str]] = []
    for name, picture in pictures.items():
        after.get(_AFTER.get(name, ""), rest).append(picture)
    return _templates.get_template("page.html.j2").render(
        results=results, tables=tables, after=after, rest=rest
    )
