"""Tables for people: which columns of which rows, for Markdown, CSV and the page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pathcast.experiments.suite import paper
from pathcast.experiments.suite.networks import NETWORKS
from pathcast.experiments.suite.scores import counts

Row = dict[str, Any]
Cell = str | float | int | None


@dataclass(frozen=True)
class View:
    """A table.

    Attributes:
        name: of its files.
        title: above it.
        note: what readers should know about it.
        headers: of the columns.
        rows: numbers are rounded when they are shown, not in CSV.

    """

    name: str
    title: str
    note: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def csv(self) -> str:
        """As comma-separated values; what there is not is empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.headers)
        writer.writerows(["" if cell is None else cell for cell in row] for row in self.rows)
        return text.getvalue()

    def markdown(self) -> str:
        """As a Markdown table with its title and note."""
        lines = [f"## {self.title}", "", self.note, ""] if self.note else [f"## {self.title}", ""]
        lines.append("| " + " | ".join(map(_cell_text, self.headers)) + " |")
        lines.append("|" + "---|" * len(self.headers))
        lines += ["| " + " | ".join(_cell_text(shown(c)) for c in row) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def texts(self) -> list[list[str]]:
        """The rows as they are shown."""
        return [[shown(cell) for cell in row] for row in self.rows]


def _cell_text(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def shown(value: Cell) -> str:
    """A cell for people: two digits at least."""
    if value is None:
        return "-"
    if isinstance(value, float):
        size = abs(value)
        return f"{value:.0f}" if size >= 1000 else f"{value:.1f}" if size >= 1 else f"{value:.2g}"
    return str(value)


#: A column: its header and what it takes from a row.
_Column = tuple[str, Callable[[Row], Cell]]


def _view(
    name: str, title: str, note: str, columns: Sequence[_Column], rows: Iterable[Row]
) -> View:
    return View(
        name,
        title,
        note,
        tuple(header for header, _ in columns),
        tuple(tuple(take(row) for _, take in columns) for row in rows),
    )


def _key(header: str, *keys: str) -> _Column:
    def take(row: Row) -> Cell:
        value: Any = row
        for key in keys:
            value = None if value is None else value.get(key)
        return value  # type: ignore[no-any-return]

    return header, take


def _coverage(row: Row) -> Cell:
    return None if row["coverage90"] is None else 100 * row["coverage90"]


_WHERE = (_key("network", "network"), _key("scheme", "scheme"), _key("protocol", "protocol"))
_OF_ONE_SCHEME = (_WHERE[0], _WHERE[2])
_HORIZON = ("s ahead", lambda row: f"{row['horizon_s']:g}")
_ERRORS = (
    _key("windows", "windows"),
    _key("Pathcast", "median_error_pct", "pathcast"),
    _key("ECON", "median_error_pct", "econ"),
    _key("best other", "best_other_median_pct"),
    ("which", lambda row: (row["best_other"] or "-").replace("_", " ")),
    _key("lower by, %", "reduction_median_pct"),
    _key("ECON lower by, %", "econ_reduction_median_pct"),
)
_MEANS = (
    _key("mean: Pathcast", "mean_error_pct", "pathcast"),
    _key("mean: best other", "best_other_mean_pct"),
    _key("mean lower by, %", "reduction_mean_pct"),
)
_BAND = ("in band, %", _coverage)
_TOLD = (
    _key("paper: ECON", "paper", "econ_median_pct"),
    _key("paper: best other", "paper", "best_other_median_pct"),
    _key("paper: lower by, %", "paper", "reduction_median_pct"),
    _key("paper: mean lower by, %", "paper", "reduction_mean_pct"),
)

#: As the paper's tables abbreviate them.
_ABBREVIATED = {
    "last_sample": "LS",
    "ewma": "EWMA",
    "holt_winters": "H.Winters",
    "harmonic_mean": "HM",
}

_MEDIANS = (
    "Medians of |forecast - truth| / truth in per cent. In the paper's protocol the other models are those of "
    "the paper's figure; in the fair one all that there are."
)


def views(results: Row) -> list[View]:
    """All tables that have rows."""
    found = [*_networks_views(results), *_conditions_views(results), *_other_views(results)]
    return [view for view in found if view.rows]


def _networks_views(results: Row) -> list[View]:
    """Throughput on the wired networks: figures 5 and 6, horizons and training windows."""
    second = _next_second(results)
    wired = [row for row in second if row["paper"] and "figure" in row["paper"]["where"]]
    return [
        _view(
            "figure-5",
            "Figure 5: CUBIC, the next second",
            _MEDIANS,
            (*_OF_ONE_SCHEME, *_ERRORS, *_MEANS, _BAND, *_TOLD),
            _both(second, wired, "cubic"),
        ),
        _view(
            "figure-6",
            "Figure 6: Reno, the next second",
            _MEDIANS,
            (*_OF_ONE_SCHEME, *_ERRORS, *_MEANS, _BAND, *_TOLD),
            _both(second, wired, "reno"),
        ),
        _view(
            "horizons",
            "Section 5.2: reductions of the error against the best other model, means over the wired networks",
            "Per cent; the paper has one number for all its networks together.",
            (
                _key("scheme", "scheme"),
                _key("protocol", "protocol"),
                _HORIZON,
                _key("Pathcast, mean error", "reduction_mean_pct"),
                _key("Pathcast, median error", "reduction_median_pct"),
                _key("ECON, mean error", "econ_reduction_mean_pct"),
                _key("ECON, median error", "econ_reduction_median_pct"),
                _key("paper: ECON", "paper_reduction_pct"),
            ),
            results["horizons"],
        ),
        _view(
            "sensitivity",
            "Section 5.2: all models learning on 10 s alone, the next second",
            "Medians of |forecast - truth| / truth in per cent, paper's protocol; then by how much they and the mean "
            "errors are lower than the best other model's, and by how much with the windows that suit each model.",
            (
                _WHERE[0],
                _WHERE[1],
                *_ERRORS,
                _key("mean lower by, %", "reduction_mean_pct"),
                _key("ECON mean lower by, %", "econ_reduction_mean_pct"),
                _key("default: lower by, %", "default", "reduction_median_pct"),
                _key("default: mean lower by, %", "default", "reduction_mean_pct"),
                _key("default: ECON mean lower by, %", "default", "econ_reduction_mean_pct"),
                _key("paper: ECON", "paper_reduction_pct"),
            ),
            results["sensitivity"],
        ),
    ]


def _conditions_views(results: Row) -> list[View]:
    """Throughput by condition: the last mile, changes of the path, windows, connections in parallel."""
    second = _next_second(results)
    return [
        _view(
            "table-3",
            "Table 3: emulated last mile, the next second",
            _MEDIANS + " The paper's column of each model stands beside ours.",
            (
                *_WHERE,
                _key("Pathcast", "median_error_pct", "pathcast"),
                _key("ECON", "median_error_pct", "econ"),
                _key("paper: ECON", "paper", "econ_median_pct"),
                *(
                    column
                    for model in paper.HISTORY
                    for column in (
                        _key(_ABBREVIATED[model], "median_error_pct", model),
                        _key(f"paper: {_ABBREVIATED[model]}", "paper", "others_median_pct", model),
                    )
                ),
                _BAND,
            ),
            [row for row in second if row["network"].startswith("last-mile")],
        ),
        _view(
            "figure-7",
            "Figure 7: the changing path, the next second, after each change",
            f"{_MEDIANS} The paper has means over the four intervals: ECON has "
            f"{paper.CHANGING_REDUCTION_PCT['all']:.0f} % less error than the others, "
            f"{paper.CHANGING_REDUCTION_PCT['best']:.0f} % less than the best in each.",
            (
                _key("scheme", "scheme"),
                _key("protocol", "protocol"),
                ("interval, s", lambda row: f"{row['from_s']:.0f} to {row['to_s']:.0f}"),
                *_ERRORS,
                _key("lower than all by, %", "reduction_against_all_pct"),
                _BAND,
            ),
            [row for row in results["changing"] if row["horizon_s"] == 1],
        ),
        _view(
            "scwnd",
            "Section 5.2: by the window at the moment of prediction, Northeast, the next second",
            "The paper's best other is Yin15-HM below 50 packets and He05-HoltWinters above 700.",
            (
                _key("window, packets", "scwnd_packets"),
                _key("scheme", "scheme"),
                _key("protocol", "protocol"),
                *_ERRORS,
                _key("paper: ECON", "paper", "econ_median_pct"),
                ("paper: best other", _window_told),
            ),
            results["scwnd"],
        ),
        _view(
            "npc",
            "Section 5.2: by the number of parallel connections, wired networks, the next second",
            "The paper: ECON has {:.0f} to {:.0f} % less error, whatever the number.".format(
                *paper.NPC_REDUCTION_PCT
            ),
            (
                _key("connections", "npc"),
                _key("scheme", "scheme"),
                _key("protocol", "protocol"),
                ("networks", lambda row: ", ".join(row["networks"])),
                *_ERRORS,
                _BAND,
            ),
            results["npc"],
        ),
    ]


def _other_views(results: Row) -> list[View]:
    """Times of transfers, short flows, timeouts, and what was run and left out."""
    return [
        _view(
            "latency",
            "Table 2, figures 8 and 9: the time that a transfer takes, forecast mid-flow",
            "Medians of |forecast / truth - 1| of the time in per cent. In the fair protocol all see all "
            "of the past; in the paper's the others say x / B, B being their stale forecast of the next "
            "second. Transfers that a run was too short for are not there.",
            (*_WHERE, _key("size", "size"), *_ERRORS, *_MEANS, _BAND, *_TOLD),
            _in_order(results["latency"]),
        ),
        _short_flows_view(results),
        _downloads_view(results),
        _models_view(results),
        _view(
            "timeouts",
            "Section 5.4: timeouts",
            "How often the retransmission timer ran out, over the packets sent; without a timeout it is below "
            "3 / packets, with 95 % confidence. The paper has 1e-7 for its wireless network.",
            (
                _WHERE[0],
                _WHERE[1],
                _key("packets", "packets"),
                _key("losses", "losses"),
                _key("timeouts", "timeouts"),
                ("per packet", lambda row: f"{row['per_packet']:.1g}"),
                ("below", lambda row: row["most_per_packet"] and f"{row['most_per_packet']:.1g}"),
                ("paper", lambda row: row["paper_per_packet"] and f"{row['paper_per_packet']:.0e}"),
            ),
            _in_order(results["timeouts"]),
        ),
        _cells_view(results),
        _view(
            "left-out",
            "Left out",
            "",
            (_key("what", "name"), _key("because", "because")),
            results["left_out"],
        ),
    ]


def _next_second(results: Row) -> list[Row]:
    return [row for row in results["throughput"] if row["horizon_s"] == 1]


def _both(second: Sequence[Row], told: Sequence[Row], scheme: str) -> list[Row]:
    networks = {row["network"] for row in told if row["scheme"] == scheme}
    return [row for row in second if row["scheme"] == scheme and row["network"] in networks]


def _window_told(row: Row) -> Cell:
    if row["paper"] is None:
        return None
    low, high = row["paper"]["best_other_median_pct"]
    return f"{low:.0f} to {high:.0f}"


def _models_view(results: Row) -> View:
    rows = results["throughput"]
    models = [
        model for model in results["models"] if any(model in r["median_error_pct"] for r in rows)
    ]
    return _view(
        "models",
        "All networks, horizons and models",
        "Medians of |forecast - truth| / truth in per cent; a formula is judged on the congestion control "
        "that it was made for.",
        (
            *_WHERE,
            _HORIZON,
            _key("windows", "windows"),
            *(_model_column(model) for model in models),
            _key("lower than best by, %", "reduction_median_pct"),
            _BAND,
        ),
        _in_order(rows),
    )


def _in_order(rows: Iterable[Row]) -> list[Row]:
    """Networks in the paper's order, traces of others after them."""
    order = {name: i for i, name in enumerate(NETWORKS)}
    return sorted(rows, key=lambda row: order.get(row["network"], len(order)))


#: Estimators of short flows as they are called above columns.
_ESTIMATORS = {
    "pathcast": "Pathcast",
    "blind": "only size and time",
    "published": "published",
    "alone": "1 MB's own",
}


def _short_flows_view(results: Row) -> View:
    def average(model: str, what: str) -> _Column:
        name = _ESTIMATORS[model] if what == "mean" else f"{_ESTIMATORS[model]}: {what}"
        return _key(name, f"{what}_error_pct", model)

    return _view(
        "short-flows",
        "Short flows: tables 5 and 6 and figure 8 of De Silva et al. 2016",
        "Mean of |estimate / truth - 1| of the throughput in per cent, with its median and its 10th and "
        "90th percentiles; from the first 1 MB of downloads of 20 MB by CUBIC. The paper's were over one "
        "LTE network, ours are other paths. Groups overlap.",
        (
            _key("downloads", "group"),
            _key("number", "downloads"),
            ("MB", lambda row: f"{row['size_bytes'] / 1e6:g}"),
            *(average("pathcast", what) for what in ("mean", "median", "p10", "p90")),
            _BAND,
            average("blind", "mean"),
            average("published", "mean"),
            *(average("alone", what) for what in ("mean", "p10", "p90")),
            (
                "largest, Mbit/s: measured / Pathcast / published / 1 MB's own",
                _largest,
            ),
            _key("paper", "paper", "where"),
            _key("paper: estimator", "paper", "mean_error_pct", "published"),
            _key("paper: 1 MB's own", "paper", "mean_error_pct", "alone"),
        ),
        results["short_flows"],
    )


def _largest(row: Row) -> Cell:
    values = [row["largest_bps"][name] for name in ("measured", "pathcast", "published", "alone")]
    if None in values:
        return None
    return " / ".join(f"{value / 1e6:.3g}" for value in values)


def _downloads_view(results: Row) -> View:
    def error(model: str) -> _Column:
        def take(row: Row) -> Cell:
            if row["error_pct"] is None:
                return None
            return " / ".join(f"{value:.1f}" for value in row["error_pct"][model])

        return f"{_ESTIMATORS[model]}, % at 5 / 10 / 20 MB", take

    def truth(row: Row) -> Cell:
        return row["truth_s"] and float(row["truth_s"][-1])

    return _view(
        "downloads",
        "Short flows: each download",
        "",
        (
            _key("path", "path"),
            ("valid", _valid),
            ("receiver's window", lambda row: row["receive_window_bytes"] or "the kernel's"),
            ("20 MB took, s", truth),
            _key("losses", "losses"),
            _key("within 1 MB", "losses_in_measured"),
            ("1 MB was slow start", lambda row: "yes" if row["slow_start"] else "no"),
            *(error(model) for model in ("pathcast", "published", "alone")),
        ),
        results["downloads"],
    )


def _valid(row: Row) -> Cell:
    failed = len(row["invalid_because"])
    return f"{failed + 1} runs" if row["valid"] and failed else "1 run" if row["valid"] else "none"


def _model_column(model: str) -> _Column:
    def take(row: Row) -> Cell:
        there: Cell = row["median_error_pct"].get(model)
        return there if counts(model, row["scheme"]) else None

    return model.replace("_", " "), take


def _cells_view(results: Row) -> View:
    def mbps(row: Row) -> Cell:
        return float(sum(row["goodput_bps"])) / 1e6

    def losses(row: Row) -> Cell:
        return None if row["losses"] is None else sum(row["losses"])

    return _view(
        "cells",
        "What was run",
        "A run that is not valid is run again and never counted; where none was valid, the cell is in "
        "no table.",
        (
            _key("cell", "name"),
            ("s", lambda row: f"{row['duration_s']:g}"),
            ("valid", _valid),
            ("Mbit/s", mbps),
            ("losses seen", losses),
            ("packets lost, %", lambda row: 100 * row["loss_rate"]),
            _key("slip 99 %, us", "slip_p99_us"),
        ),
        results["cells"],
    )
