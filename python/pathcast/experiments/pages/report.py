"""Writes what the benchmark of pages found: results.json, a table and one page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from rich.table import Table

from pathcast import __version__
from pathcast.experiments.engine import page
from pathcast.experiments.pages import benchmark
from pathcast.experiments.pages.benchmark import Compared
from pathcast.experiments.pages.server import ENDPOINTS
from pathcast.report import plots
from pathcast.report.templates import templates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_templates = templates("pathcast.experiments.pages")
#: Version of results.json.
SCHEMA = 1
_COLORS = {"http/1.1": plots.ORANGE, "h2": plots.BLUE, "h3": plots.GREEN}


def collect(compared: Sequence[Compared], command: Sequence[str]) -> dict[str, Any]:
    """All of it as JSON."""
    versions: dict[str, set[str]] = {}
    for one in compared:
        for name, value in one.versions.items():
            versions.setdefault(name, set()).add(value)
    return {
        "schema": SCHEMA,
        "pathcast": __version__,
        "command": list(command),
        "versions": {name: sorted(values) for name, values in versions.items()},
        "notes": list(_notes(compared)),
        "summary": benchmark.summary(compared),
        "cells": benchmark.rows(compared),
    }


def _notes(compared: Sequence[Compared]) -> Iterator[str]:
    """What must be known of servers to understand the numbers."""
    names = {name for one in compared for name in one.measured_ms}
    if any(ENDPOINTS[name].server == "caddy" for name in names):
        yield "h3 and h2-caddy come from Caddy, the others from nginx."
    if "h3" not in names:
        return
    yield (
        "Caddy's QUIC has one congestion control: Reno that reduces its window to 0.7, from 32 packets on. "
        "h3 is measured in cells of cubic alone, to which it is nearest."
    )
    if all("h3" not in one.choices for one in compared):
        yield "There is no forecast of h3: the choice is among the others."


def measured(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """The protocols that some cell has, in the order of tables."""
    return [name for name in ENDPOINTS if any(name in row for row in cells)]


def forecast(cells: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """What cells have of a protocol where it is forecast too."""
    return [row[name] for row in cells if "forecast_ms" in row.get(name, {})]


def columns(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """The heads of the table."""
    found = ["page", "scheme", "rate", "RTT, ms", "loss"]
    for name in measured(cells):
        found.append(f"{name} measured, ms")
        if forecast(cells, name):
            found += [f"{name} forecast, ms", f"{name} error"]
    return [*found, "best", "choice"]


def table(cells: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The rows of the table; empty where a protocol is not measured."""
    rows = []
    for row in cells:
        found = [row["page"], row["scheme"], row["rate"]]
        found += [f"{1e3 * row['rtt_s']:g}", f"{row['loss']:g}"]
        for name in measured(cells):
            one = row.get(name, {})
            found.append(f"{one['measured_ms']:.0f}" if one else "")
            if forecast(cells, name):
                has = "forecast_ms" in one
                found.append(f"{one['forecast_ms']:.0f}" if has else "")
                found.append(f"{one['error']:+.0%}" if has else "")
        best = row["best"] if row["significant"] else f"({row['best']})"
        rows.append([*found, best, row["choice"]])
    return rows


def text_table(collected: Mapping[str, Any]) -> Table:
    """The table for a terminal."""
    cells = collected["cells"]
    names = measured(cells)
    found = Table("page", "scheme", "path", *names, "best", "choice")
    for row, shown in zip(cells, table(cells), strict=True):
        times = [_times(row.get(name)) for name in names]
        path = f"{shown[2]}, {shown[3]} ms, {shown[4]}"
        found.add_row(shown[0], shown[1], path, *times, *shown[-2:])
    return found


def _times(one: Mapping[str, Any] | None) -> str:
    """Measured and forecast, as far as they are there."""
    if one is None:
        return ""
    after = f" / {one['forecast_ms']:.0f}" if "forecast_ms" in one else ""
    return f"{one['measured_ms']:.0f}{after}"


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
    for one in found["ratios"]:
        yield (
            f"Loads by {one['over']} take {one['median']:.2f} times as long as by {one['under']}: the median over "
            f"{one['cells']} cells of the ratio of measured medians."
        )
    yield from collected["notes"]


def write(folder: FilePath, collected: Mapping[str, Any]) -> FilePath:
    """Write results.json, tables/ and report.html.

    Returns:
        The page.

    Raises:
        PathcastError: a file cannot be written.

    """
    heads, rows = columns(collected["cells"]), table(collected["cells"])
    picture = scatter(collected["cells"])
    text = _templates.get_template("page.html.j2").render(
        lines=list(lines(collected)),
        columns=heads,
        rows=rows,
        picture=picture,
        versions=collected["versions"],
        command=" ".join(["pathcast", *collected["command"]]),
        version=__version__,
    )
    return page.write(
        folder,
        collected,
        text,
        pictures={"forecast-and-measured": picture},
        tables=[_Cells(heads, rows)],
    )


class _Cells:
    """All cells as files."""

    name = "cells"

    def __init__(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self._heads, self._rows = heads, rows

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([self._heads, *self._rows])
        return text.getvalue()

    def markdown(self) -> str:
        rows = [list(self._heads), ["---"] * len(self._heads), *map(list, self._rows)]
        return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def scatter(rows: Sequence[Mapping[str, Any]]) -> str:
    """Forecast over measured medians, with the 10 to 90 % range of the forecast loads."""

    found = {name: those for name in _COLORS if (those := forecast(rows, name))}

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for name, those in found.items():
            x = [one["measured_ms"] for one in those]
            axes.vlines(
                x, [one["p10"] for one in those], [one["p90"] for one in those],
                color=_COLORS[name], alpha=0.35, lw=2,
            )  # fmt: skip
            axes.plot(
                x, [one["forecast_ms"] for one in those], "o", color=_COLORS[name], ms=4, label=name
            )
        times = [one["measured_ms"] for those in found.values() for one in those]
        ends = [0.8 * min(times), 1.25 * max(times)]
        axes.plot(ends, ends, color=plots.GRAY, lw=1, ls="--")
        axes.set(
            xscale="log", yscale="log", xlim=ends, ylim=ends,
            xlabel="measured median (ms)", ylabel="forecast median, 10 to 90 % (ms)",
        )  # fmt: skip
        axes.legend(loc="upper left")

    return plots.svg(6.2, 4.6, draw)
