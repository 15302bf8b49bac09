"""Writes what the benchmark of pages found: results.json, a table and one page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from matplotlib.figure import Figure
from rich.table import Table

from pathcast import __version__
from pathcast._page_loads import PROTOCOLS
from pathcast.experiments.engine import page
from pathcast.experiments.pages import benchmark
from pathcast.experiments.pages.benchmark import Compared
from pathcast.report import plots
from pathcast.report.templates import templates

_templates = templates("pathcast.experiments.pages")
#: Version of results.json.
SCHEMA = 1
_COLORS = {"http/1.1": plots.ORANGE, "h2": plots.BLUE}
_COLUMNS = (
    "page", "scheme", "rate", "RTT, ms", "loss",
    *(f"{name} {what}" for name in PROTOCOLS for what in ("measured, ms", "forecast, ms", "error")),
    "best", "choice",
)  # fmt: skip


def collect(compared: Sequence[Compared], command: Sequence[str]) -> dict[str, Any]:
    """All of it as JSON."""
    return {
        "schema": SCHEMA,
        "pathcast": __version__,
        "command": list(command),
        "summary": benchmark.summary(compared),
        "cells": benchmark.rows(compared),
    }


def cells(row: Mapping[str, Any]) -> list[str]:
    """A row of the table."""
    found = [row["page"], row["scheme"], row["rate"], f"{1e3 * row['rtt_s']:g}", f"{row['loss']:g}"]
    for name in PROTOCOLS:
        one = row[name]
        found += [f"{one['measured_ms']:.0f}", f"{one['forecast_ms']:.0f}", f"{one['error']:+.0%}"]
    best = row["best"] if row["significant"] else f"({row['best']})"
    return [*found, best, row["choice"]]


def text_table(collected: Mapping[str, Any]) -> Table:
    """The table for a terminal."""
    table = Table("page", "scheme", "path", *PROTOCOLS, "best", "choice")
    for row in collected["cells"]:
        shown = cells(row)
        times = [
            f"{row[name]['measured_ms']:.0f} / {row[name]['forecast_ms']:.0f}" for name in PROTOCOLS
        ]
        path = f"{shown[2]}, {shown[3]} ms, {shown[4]}"
        table.add_row(shown[0], shown[1], path, *times, *shown[-2:])
    return table


def lines(collected: Mapping[str, Any]) -> Iterator[str]:
    """What the cells say together."""
    found = collected["summary"]
    yield "Times to the load event in ms, measured / forecast; in brackets: the difference may be chance."
    yield (
        f"The forecast names the better protocol in {found['right']} of {found['significant']} cells whose measured "
        f"difference is significant."
    )
    yield (
        f"Median error {found['median_error']:.1%}; {found['held']:.0%} of the measured medians lie within 10 to 90 % "
        "of the forecast loads."
    )
    losses = ", ".join(f"{name} {value:.0%}" for name, value in found["summed_loss"].items())
    yield f"Summed over cells, choices take longer than the measured best by: {losses}."


def write(folder: FilePath, collected: Mapping[str, Any]) -> FilePath:
    """Write results.json, tables/ and report.html.

    Returns:
        The page.

    Raises:
        PathcastError: a file cannot be written.

    """
    rows = [cells(row) for row in collected["cells"]]
    picture = scatter(collected["cells"])
    text = _templates.get_template("page.html.j2").render(
        lines=list(lines(collected)),
        columns=_COLUMNS,
        rows=rows,
        picture=picture,
        command=" ".join(["pathcast", *collected["command"]]),
        version=__version__,
    )
    return page.write(
        folder, collected, text, pictures={"forecast-and-measured": picture}, tables=[_Cells(rows)]
    )


class _Cells:
    """All cells as files."""

    name = "cells"

    def __init__(self, rows: Sequence[Sequence[str]]) -> None:
        self._rows = rows

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([_COLUMNS, *self._rows])
        return text.getvalue()

    def markdown(self) -> str:
        rows = [list(_COLUMNS), ["---"] * len(_COLUMNS), *map(list, self._rows)]
        return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def scatter(rows: Sequence[Mapping[str, Any]]) -> str:
    """Forecast over measured medians, with the 10 to 90 % range of the forecast loads."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for name in PROTOCOLS:
            x = [row[name]["measured_ms"] for row in rows]
            y = [row[name]["forecast_ms"] for row in rows]
            axes.vlines(
                x, [row[name]["p10"] for row in rows], [row[name]["p90"] for row in rows],
                color=_COLORS[name], alpha=0.35, lw=2,
            )  # fmt: skip
            axes.plot(x, y, "o", color=_COLORS[name], ms=4, label=name)
        both = [row[name]["measured_ms"] for row in rows for name in PROTOCOLS]
        ends = [0.8 * min(both), 1.25 * max(both)]
        axes.plot(ends, ends, color=plots.GRAY, lw=1, ls="--")
        axes.set(
            xscale="log", yscale="log", xlim=ends, ylim=ends,
            xlabel="measured median (ms)", ylabel="forecast median, 10 to 90 % (ms)",
        )  # fmt: skip
        axes.legend(loc="upper left")

    return plots.svg(6.2, 4.6, draw)
