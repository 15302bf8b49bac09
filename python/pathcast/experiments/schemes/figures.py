"""Pictures of the benchmark: throughput against delay, rates and delays over time, distributions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pathcast.experiments.schemes.measures import METRICS
from pathcast.experiments.schemes.summary import Block, Row
from pathcast.report.plots import BLUE, GRAY, GREEN, ORANGE, VERMILION, svg

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colors of schemes: Okabe and Ito's without light blue, which is blue's in the dark, and three more; further schemes differ by the form of their mark.
_COLORS = (BLUE, ORANGE, GREEN, VERMILION, "#cc79a7", "#9467bd", "#b8a500", GRAY)
_MARKS = "osD^vPX*"
_DASHES = ("-", "--", ":", "-.")
_COLUMNS = 2


def styles(schemes: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Color, mark and dash of each scheme."""
    return {
        name: (
            _COLORS[number % len(_COLORS)],
            _MARKS[(number // len(_COLORS) + number) % len(_MARKS)],
            _DASHES[number // len(_COLORS) % len(_DASHES)],
        )
        for number, name in enumerate(schemes)
    }


def _grid(
    blocks: Sequence[Block], draw: Callable[[Axes, Block], None], schemes: Sequence[str]
) -> str:
    """A panel for each block, with one legend."""
    rows = math.ceil(len(blocks) / _COLUMNS)

    def whole(figure: Figure) -> None:
        panels = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
        for axes, block in zip(panels, blocks, strict=False):
            axes.set_title(block.path, loc="left", fontsize=10)
            draw(axes, block)
        for axes in panels[len(blocks) :]:
            axes.set_visible(False)
        named: dict[str, Artist] = {}
        for axes in panels:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                named.setdefault(label, handle)
        order = [name for name in schemes if name in named]
        if order:
            figure.legend(
                [named[name] for name in order],
                order,
                loc="outside upper left",
                ncols=min(4, len(order)),
                fontsize=9,
            )

    return svg(10, 3.1 * rows + 0.35 * math.ceil(len(schemes) / 4) + 0.3, whole)


def throughput_against_delay(blocks: Sequence[Block], schemes: Sequence[str]) -> str:
    """A point for each scheme: up and right is better, as Pantheon draws it, with an ellipse of one sigma."""
    style = styles(schemes)

    def draw(axes: Axes, block: Block) -> None:
        for row in block.rows:
            if {"throughput_bps", "delay_p95_ms"} <= row.metrics.keys():
                _point(axes, row, *style[row.scheme][:2])
        axes.set(xlabel="95th percentile of one-way delay (ms)", ylabel="throughput (Mbit/s)")
        axes.margins(0.12)
        axes.invert_xaxis()

    return _grid(blocks, draw, schemes)


def _point(axes: Axes, row: Row, color: str, mark: str) -> None:
    from matplotlib.patches import Ellipse

    delay = np.array(row.values["delay_p95_ms"])
    rate = np.array(row.values["throughput_bps"])
    count = min(len(delay), len(rate))
    rate, delay = rate[:count] / 1e6, delay[:count]
    axes.plot(delay.mean(), rate.mean(), mark, color=color, ms=7, label=row.scheme)
    if count < 2:
        return
    values, vectors = np.linalg.eigh(np.cov(delay, rate))
    width, height = 2 * np.sqrt(np.maximum(values, 0.0))
    angle = math.degrees(math.atan2(vectors[1, 0], vectors[0, 0]))
    place = (float(delay.mean()), float(rate.mean()))
    axes.add_patch(
        Ellipse(place, float(width), float(height), angle=angle, color=color, alpha=0.25, lw=0)
    )


def over_time(blocks: Sequence[Block], schemes: Sequence[str], what: str) -> str:
    """The rate (`rate`) or the delay (`delay`) of the flows under test over time, in the first run of each scheme."""
    style = styles(schemes)

    def draw(axes: Axes, block: Block) -> None:
        for row in block.rows:
            color, _, dash = style[row.scheme]
            for number, flow in enumerate(one for one in row.flows if one.under_test):
                if not flow.series:
                    continue
                time, rate, delay = zip(*flow.series, strict=True)
                shown = (
                    np.array(rate) / 1e6
                    if what == "rate"
                    else np.array([math.nan if one is None else one for one in delay])
                )
                axes.plot(
                    time, shown, dash, color=color, lw=1.2, alpha=1 - 0.25 * min(number, 2),
                    label=row.scheme if number == 0 else None,
                )  # fmt: skip
        axes.set(
            xlabel="time (s)", ylabel="rate (Mbit/s)" if what == "rate" else "one-way delay (ms)"
        )
        axes.set_ylim(bottom=0)

    return _grid(blocks, draw, schemes)


def distributions(blocks: Sequence[Block], schemes: Sequence[str], what: str) -> str:
    """Cumulative distributions over half seconds of the first run: of the rate (`rate`) or the delay (`delay`)."""
    style = styles(schemes)

    def draw(axes: Axes, block: Block) -> None:
        for row in block.rows:
            flows = [flow for flow in row.flows if flow.under_test]
            values = [
                rate / 1e6 if what == "rate" else delay
                for flow in flows
                for _, rate, delay in flow.series
                if what == "rate" or delay is not None
            ]
            if values:
                ordered = np.sort(np.array(values, dtype=float))
                share = np.arange(1, len(ordered) + 1) / len(ordered)
                color, _, dash = style[row.scheme]
                axes.step(ordered, share, dash, where="post", color=color, lw=1.3, label=row.scheme)
        axes.set(
            xlabel="rate (Mbit/s)" if what == "rate" else "one-way delay (ms)",
            ylabel="share of half seconds",
            ylim=(0, 1.02),
        )

    return _grid(blocks, draw, schemes)


def completion_times(blocks: Sequence[Block], schemes: Sequence[str]) -> str:
    """Completion times of transfers and pages: mean and interval of each scheme."""
    style = styles(schemes)

    def draw(axes: Axes, block: Block) -> None:
        rows = [row for row in block.rows if "completion_s" in row.metrics]
        for number, row in enumerate(rows):
            one = row.metrics["completion_s"]
            color, mark, _ = style[row.scheme]
            if one.low is not None and one.high is not None:
                axes.plot([one.low, one.high], [number, number], color=color, lw=2)
            axes.plot(one.mean, number, mark, color=color, ms=7, label=row.scheme)
        axes.set_yticks(range(len(rows)), [row.scheme for row in rows])
        axes.set(xlabel=f"completion time ({METRICS['completion_s'][1]})")
        axes.invert_yaxis()
        axes.set_xlim(left=0)

    return _grid(blocks, draw, schemes)
