"""Writes what an evaluation found: results.json, model.json, tables, and a page with figures 3, 4 and 5 of the seed."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import numpy as np

from pathcast import __version__
from pathcast.experiments.engine import page
from pathcast.files import write_beside
from pathcast.report import plots
from pathcast.report.templates import templates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_templates = templates("pathcast.experiments.pages.configurations")
#: What is said of knobs that the space does not have, or of questions that no load here answers.
OPEN = (
    "BBR skips slow start after idle, and QUIC has no such knob: the space has neither combination.",
    "Compression, image quality and other content knobs are not measured: replicas have the bytes of the originals.",
    "Time of day is not measured: conditions here do not change while a page loads.",
)


def write(folder: FilePath, found: Mapping[str, Any]) -> FilePath:
    """Write all files.

    Returns:
        The page.

    Raises:
        PathcastError: a file cannot be written.

    """
    pictures = {
        "gains": _gains(found["gains"]),
        "top_four": _top_four(found["coverage"]),
        "tree": _tree(found["model"]["tree"]),
        "templates": _by_templates(found["by_templates"]),
    }
    tables = list(_tables(found))
    text = _templates.get_template("page.html.j2").render(
        lines=list(lines(found)),
        pictures=pictures,
        tables=tables,
        open=OPEN,
        templates=found["model"]["templates"],
        command=" ".join(["pathcast", *found["command"]]),
        version=__version__,
    )
    model = json.dumps(found["model"], indent=1, allow_nan=False)
    written = page.write(folder, found, text, pictures=pictures, tables=tables)
    write_beside(folder / "model.json", model + "\n")
    return written


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What was found, in sentences."""
    gain = found["gain_over_default"]
    yield (
        f"{len(found['configurations'])} configurations in {found['cells']} cells (a page under a condition), "
        f"{found['loads']} loads each by the {found['truth']}; the default is {found['default']}."
    )
    yield (
        f"The best configuration of a cell loads it {_percent(gain['median'])} sooner than the default in the median, "
        f"{_percent(gain['p95'])} at the 95th percentile."
    )
    held = found["choices"]["held_out_condition"]
    for name, row in held.items():
        if name.startswith("exact"):
            yield (
                f"On conditions not trained on, the {name} keep {_percent(row['kept'])} of that, with a regret of "
                f"{_percent(row['regret'])}."
            )
    if "learner" in found:
        one = found["learner"]
        yield (
            f"The learner made {one['loads']} true loads, {one['share_of_loads']:.1%} of brute force. Its own choices keep "
            f"{_percent(one['own_choice']['kept'])}"
            + (
                f", its tree {_percent(one['tree_held_out']['kept'])} on conditions not trained on."
                if "tree_held_out" in one
                else "."
            )
        )
    if "cheap" in found:
        one = found["cheap"]
        yield (
            f"Cheap loads alone choose with a regret of {_percent(one['choice']['regret'])}. Within a cell they differ from "
            f"true loads by {one['differs']:.1%} (standard deviation of the logarithm)."
        )
    yield f"In {found['not_sure']:.0%} of the cells several configurations may be the best one (95 %)."


def _percent(one: Mapping[str, float | None]) -> str:
    if one["value"] is None:
        return "-"
    low, high = (100 * (one[key] or 0.0) for key in ("low", "high"))
    return f"{100 * one['value']:.1f} % ({low:.1f} to {high:.1f})"


class _Table:
    """A table for the page and as files."""

    def __init__(
        self, name: str, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]
    ) -> None:
        self.name, self.title, self.heads, self.rows = name, title, list(heads), list(rows)

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([self.heads, *self.rows])
        return text.getvalue()

    def markdown(self) -> str:
        rows = [self.heads, ["---"] * len(self.heads), *self.rows]
        return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _tables(found: Mapping[str, Any]) -> Iterator[_Table]:
    coverage = found["coverage"]
    shares = {one["name"]: f"{one['share']:.1%}" for one in coverage["best"]}
    yield _Table(
        "top-four",
        "Where each of those configurations beats each other most",
        ["configuration", "best in", "beats", "by at most", "where", "sooner in cells"],
        [
            [
                *(one["better"], shares[one["better"]], one["than"], f"{one['by']:.1%}"),
                f"{one['page']}, {one['condition']}",
                str(one["better_in"]),
            ]
            for one in coverage["pairs"]
        ]
        or [[name, share, "", "", "", ""] for name, share in shares.items()],
    )
    for key, title in (
        ("held_out_condition", "Choices on conditions that they were not trained on"),
        ("held_out_value", "The tree where a value or a page is held out"),
    ):
        yield _Table(
            key.replace("_", "-"),
            title,
            ["choice", "regret", "gain over the default", "kept of the best one's gain"],
            [
                [name, *(_percent(row[one]) for one in ("regret", "gain", "kept"))]
                for name, row in found["choices"][key].items()
            ],
        )
    yield _Table(
        "one-knob",
        "What knobs gain over the default alone",
        ["knob", "median over cells", "95th percentile"],
        [
            [name, *(_percent(one[key]) for key in ("median", "p95"))]
            for name, one in found["one_knob"].items()
        ],
    )
    yield _Table(
        "knobs",
        "What each knob changes alone",
        ["knob", "pairs", "median change", "95th percentile"],
        [
            [
                one["knob"],
                str(one["pairs"]),
                f"{one['median_change']:.1%}",
                f"{one['p95_change']:.1%}",
            ]
            for one in found["knobs"]
        ],
    )
    if "policies" in found["online"]:
        yield _Table(
            "online",
            f"Learning online: {found['online']['loads']} loads, {found['online']['repeats']} repeats",
            ["policy", "regret of all loads", "of the last quarter"],
            [
                [name, _percent(one["all"]), _percent(one["last"])]
                for name, one in found["online"]["policies"].items()
            ],
        )
    yield _Table(
        "cells",
        "All cells",
        ["page", "Mbit/s", "RTT, ms", "loss", "default, ms", "best, ms", "gain", "best", "may be best"],
        [
            [
                *(row["page"], f"{row['bandwidth_mbps']:g}", f"{row['rtt_ms']:g}", f"{row['loss']:g}"),
                *(f"{row['default_ms']:.0f}", f"{row['best_ms']:.0f}", f"{row['gain']:.1%}"),
                *(row["best"], str(len(row["may_be_best"]))),
            ]
            for row in found["rows"]
        ],
    )  # fmt: skip


def _gains(gains: Sequence[float]) -> str:
    """Figure 3: the share of cells with at most so much gain."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        values = 100 * np.sort(gains)
        axes.step(
            values, np.arange(1, len(values) + 1) / len(values), where="post", color=plots.BLUE
        )
        for level in (0.5, 0.95):
            axes.axhline(level, color=plots.GRAY, lw=0.8, ls="--")
        axes.set(xlabel="best sooner than default (%)", ylabel="share of cells", ylim=(0, 1.02))

    return plots.svg(6.2, 3.6, draw)


def _top_four(coverage: Mapping[str, Any]) -> str:
    """Figure 4: by how much each of the configurations that are best most often beats each other one at most, and where."""
    best = coverage["best"]
    names = [one["name"] for one in best]
    pairs = {(one["better"], one["than"]): one for one in coverage["pairs"]}

    def draw(figure: Figure) -> None:
        from matplotlib.patches import Rectangle

        axes = figure.subplots()
        for row, better in enumerate(names):
            for column, than in enumerate(names):
                one = pairs.get((better, than))
                if one is None:
                    shown, strength = f"best in\n{best[row]['share']:.1%}\nof the cells", 0.0
                else:
                    mbps, rtt, loss = one["condition"].split("-", 2)
                    where = f"{mbps.removesuffix('mbps')} Mbit/s, {rtt.removesuffix('ms')} ms"
                    shown = f"{one['by']:.1%}\n{where}\nloss {float(loss):.1%}"
                    strength = min(1.0, max(0.0, one["by"]))
                face = "#f4f1e6" if one is None else plots.BLUE
                axes.add_patch(
                    Rectangle(
                        (column - 0.47, row - 0.47), 0.94, 0.94, facecolor=face,
                        alpha=1.0 if one is None else 0.08 + 0.5 * strength,
                    )
                )  # fmt: skip
                axes.text(column, row, shown, ha="center", va="center", fontsize=8, color="#1b1f27")
        axes.set(
            xlim=(-0.5, len(names) - 0.5), ylim=(len(names) - 0.5, -0.5),
            xticks=range(len(names)), yticks=range(len(names)), xticklabels=names, yticklabels=names,
            xlabel="is slower, by at most", ylabel="loads sooner",
        )  # fmt: skip
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)

    return plots.svg(1.6 + 1.45 * len(names), 0.9 + 0.85 * len(names), draw)


def _by_templates(rows: Sequence[Mapping[str, Any]]) -> str:
    """Regret over the number of templates."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        counts = [row["templates"] for row in rows]
        colors = {"exact": plots.BLUE, "CART": plots.ORANGE}
        for name, color in colors.items():
            for key, dashes in (("held_out", "-"), ("known", ":")):
                if all(key in row.get(name, {}) for row in rows):
                    regrets = [100 * row[name][key]["regret"]["value"] for row in rows]
                    axes.plot(
                        counts, regrets, dashes, marker="o", ms=3, color=color,
                        label=f"{name}, {key.replace('_', ' ')}",
                    )  # fmt: skip
        axes.set(xlabel="templates", ylabel="regret (%)", ylim=(0, None))
        axes.legend()

    return plots.svg(6.2, 3.4, draw)


def _tree(tree: Mapping[str, Any]) -> str:
    """Figure 5: the tree, its leaves beside each other."""
    places: list[tuple[float, float, str, bool]] = []
    edges: list[tuple[float, float, float, float, str]] = []
    count = 0

    def walk(node: Mapping[str, Any], depth: int) -> float:
        nonlocal count
        if "template" in node:
            x = float(count)
            count += 1
            places.append((x, -depth, str(node["template"]), True))
            return x
        ends = [walk(node[side], depth + 1) for side in ("below", "otherwise")]
        x = sum(ends) / 2
        places.append((x, -depth, f"{_asked(node['feature'])} < {node['threshold']:.3g}", False))
        for end, word in zip(ends, ("yes", "no"), strict=True):
            edges.append((x, -depth, end, -depth - 1, word))
        return x

    walk(tree, 0)

    def draw(figure: Figure) -> None:
        axes: Axes = figure.subplots()
        for x, y, to_x, to_y, word in edges:
            axes.plot([x, to_x], [y, to_y], color=plots.GRAY, lw=1, zorder=1)
            axes.text(
                (x + to_x) / 2, (y + to_y) / 2, word, fontsize=8, ha="center", color="#5b6270"
            )
        for x, y, shown, is_leaf in places:
            face = "#dcebf5" if is_leaf else "#f4f1e6"
            axes.text(
                x, y, shown, ha="center", va="center", fontsize=8.5, color="#1b1f27", zorder=2,
                bbox={"boxstyle": "round,pad=0.35", "facecolor": face, "edgecolor": "#8a8f98"},
            )  # fmt: skip
        depth = min(y for _, y, _, _ in places)
        axes.set(xlim=(-0.7, max(count - 0.3, 0.7)), ylim=(depth - 0.5, 0.5))
        axes.axis("off")

    deepest = -min(y for _, y, _, _ in places)
    return plots.svg(max(4.0, 1.55 * count), 1.0 + 0.95 * (deepest + 1), draw)


def _asked(feature: str) -> str:
    return {"bandwidth_mbps": "Mbit/s", "rtt_ms": "RTT, ms", "loss": "loss"}[feature]
