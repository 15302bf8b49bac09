"""The report's pictures, each as SVG text: cwnd, loss curve, forecasts, errors.

The library that draws takes most of a second to import: the first picture imports it, not the modules that make pictures.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pathcast.foreign import visible_lines
from pathcast.models import NO_OPPONENTS, Evaluation, HorizonScore, LossCurve
from pathcast.trace import FlowSeries

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colors, which most color-blind readers can distinguish
BLUE, ORANGE, GREEN, VERMILION, GRAY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#8a8f98"
LIGHT_BLUE = "#8ec1e0"

_STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#5b6270",
    # the page is behind them, in either theme
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "text.color": "#2b303b",
    "axes.labelcolor": "#2b303b",
    "axes.grid": True,
    "grid.color": "#e6e8ec",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "xtick.color": "#5b6270",
    "ytick.color": "#5b6270",
    "legend.frameon": False,
    # text stays text, and the same data give the same file
    "svg.fonttype": "none",
    "svg.hashsalt": "pathcast",
}

#: More points than this are not seen on a page: windows of points are drawn by their extremes.
_MAX_POINTS = 4000


def svg(width_in: float, height_in: float, draw: Callable[[Figure], None]) -> str:
    """A picture as SVG text that goes into a page."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]  # it expects literal keys
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        draw(figure)
        _take_literally(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    picture = text.getvalue()
    # the page is HTML: no XML declaration and no doctype
    return picture[picture.index("<svg") :]


def _take_literally(figure: Figure) -> None:
    """Show names as they are, whoever chose them: `$` begins no formula, control characters are escaped.

    Ticks are left alone: powers of ten on a logarithmic axis are formulas.
    """
    from matplotlib.text import Text
    from matplotlib.ticker import LogFormatter

    ticks = {
        id(label)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for label in axis.get_ticklabels(which="both")
        if isinstance(axis.get_major_formatter(), LogFormatter)
    }
    for text in figure.findobj(Text):
        if isinstance(text, Text) and id(text) not in ticks:
            text.set_parse_math(False)
            text.set_text(visible_lines(text.get_text()))


def alone(picture: str) -> str:
    """A picture of `svg`, which was made for a page, as a separate file."""
    return f'<?xml version="1.0" encoding="utf-8"?>\n{picture}'


def thinned(time_s: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most `_MAX_POINTS` points that look the same: each window's smallest and largest value."""
    if len(time_s) <= _MAX_POINTS:
        return time_s, values
    kept = []
    for window in np.array_split(np.arange(len(time_s)), _MAX_POINTS // 2):
        extremes = {
            int(window[np.argmin(values[window])]),
            int(window[np.argmax(values[window])]),
        }
        kept.extend(sorted(extremes))
    return time_s[kept], values[kept]


def cwnd_plot(series: FlowSeries, losses: list[tuple[float, float]], training_s: float) -> str:
    """The window over time, with a mark at each loss.

    Args:
        series: the flow.
        losses: time in seconds and window in packets of each loss.
        training_s: where the first forecast is made.

    """

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.axvspan(0, training_s, color=GRAY, alpha=0.12, lw=0)
        axes.text(
            training_s / 2, 1.0, "fitted before the first forecast", ha="center", va="bottom",
            transform=axes.get_xaxis_transform(), color="#5b6270", fontsize=9,
        )  # fmt: skip
        time_s, cwnd = thinned(series.time_s, series.cwnd_packets)
        axes.step(time_s, cwnd, where="post", color=BLUE, lw=1, label="cwnd")
        if losses:
            at_s, window = np.array(losses).T
            axes.plot(at_s, window, "v", color=VERMILION, ms=5, label="loss: an epoch ends")
        axes.set(xlabel="time (s)", ylabel="cwnd (packets)", xlim=(0, series.time_s[-1]))
        axes.set_ylim(bottom=0)
        # above the curve, and at the side that a narrow screen shows first
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, ncols=2)

    return svg(10, 3.2, draw)


def curve_plot(curve: LossCurve, loss: float | None) -> str:
    """The loss curve p(cwnd), with the packets that it rests on.

    Args:
        curve: the loss curve.
        loss: the path's own probability of loss, where it is known.

    """

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        window = np.array([point.cwnd_packets for point in curve.points])
        seen = [point for point in curve.points if point.losses]
        packets = np.array([point.packets for point in curve.points])
        below = axes.twinx()
        below.bar(window, packets, width=1.0, color=GRAY, alpha=0.25, lw=0)
        below.set(ylabel="packets sent at this cwnd", ylim=(0, packets.max() * 3))
        below.grid(visible=False)
        axes.set_zorder(below.get_zorder() + 1)
        axes.patch.set_visible(False)
        if seen:
            p = np.array([point.loss_probability for point in curve.points])
            axes.step(window, p, where="mid", color=BLUE, lw=1.2, label="p(cwnd)")
            axes.scatter(
                [point.cwnd_packets for point in seen],
                [point.loss_probability for point in seen],
                s=[14 * point.losses for point in seen],
                color=VERMILION,
                zorder=3,
                label="losses seen (area: how many)",
            )
            axes.set_yscale("log")
        else:
            axes.text(0.5, 0.5, "no losses", transform=axes.transAxes, ha="center")
        if loss:
            axes.axhline(loss, color=GREEN, ls="--", lw=1.2, label="loss set in the path file")
        axes.set(xlabel="cwnd (packets)", ylabel="loss probability of a packet")
        axes.legend(loc="upper left")

    return svg(10, 3.4, draw)


def band_plot(evaluation: Evaluation, mss_bytes: int | None) -> str:
    """Forecast bands against the truth, one row a horizon.

    Args:
        evaluation: with predictions.
        mss_bytes: to show rates in Mbit/s; without it, or without rates, in the evaluation's unit.

    """
    is_rate = evaluation.truth == "packets_per_s" and mss_bytes
    scale = mss_bytes * 8 / 1e6 if is_rate and mss_bytes else 1.0
    unit = "Mbit/s" if is_rate else "packets"

    def draw_horizon(axes: Axes, score: HorizonScore) -> None:
        p = score.predictions
        axes.fill_between(
            p.time_s, p.quantiles[:, 0] * scale, p.quantiles[:, -1] * scale,
            color=BLUE, alpha=0.18, lw=0, label="forecast, 5 to 95 %",
        )  # fmt: skip
        axes.fill_between(
            p.time_s, p.quantiles[:, 1] * scale, p.quantiles[:, -2] * scale,
            color=BLUE, alpha=0.28, lw=0, label="forecast, 25 to 75 %",
        )  # fmt: skip
        # a line through few points is hard to see
        dots: dict[str, Any] = {"marker": ".", "ms": 5} if len(p.time_s) < 4 else {}
        forecast, truth = p.forecast["pathcast"] * scale, p.truth * scale
        axes.plot(p.time_s, forecast, color=BLUE, lw=1.5, label="forecast", **dots)
        axes.plot(p.time_s, truth, color="#1d2129", lw=1.3, label="what happened", **dots)
        axes.set(ylabel=unit)
        said = "" if score.coverage90 is None else f": {score.coverage90:.0%} of truths in band"
        axes.set_title(
            f"next {score.horizon_s:g} s{said}", loc="left", fontsize=10, color="#2b303b"
        )
        axes.set_ylim(bottom=0)

    def draw(figure: Figure) -> None:
        rows = figure.subplots(len(evaluation.horizons), 1, sharex=True, sharey=True, squeeze=False)
        for axes, score in zip(rows[:, 0], evaluation.horizons, strict=True):
            draw_horizon(axes, score)
        # above all rows, and in two columns: a narrow screen shows the left part first
        handles, labels = rows[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=2, fontsize=9)
        rows[-1, 0].set_xlabel("moment of prediction (s)")

    return svg(10, 2.1 * len(evaluation.horizons) + 0.8, draw)


def error_plot(evaluation: Evaluation) -> str:
    """Median errors: a panel a horizon, a bar a model."""
    models = evaluation.models()
    labels = [model.replace("_", " ") for model in models]

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(evaluation.horizons), sharey=True, squeeze=False)[0]
        for axes, score in zip(panels, evaluation.horizons, strict=True):
            errors = [score.median_error_pct[model] for model in models]
            lengths = [np.nan if error is None else error for error in errors]
            # Pathcast without one of its parts is lighter
            named = dict.fromkeys(NO_OPPONENTS, LIGHT_BLUE) | {"pathcast": BLUE, "econ": ORANGE}
            colors = [named.get(model, GRAY) for model in models]
            bars = axes.barh(labels, lengths, height=0.7, color=colors)
            axes.bar_label(bars, fmt="%.1f", fontsize=8, color="#2b303b", padding=2)
            axes.grid(visible=False, axis="y")
            # models far off would hide the others' differences
            known = sorted(length for length in lengths if np.isfinite(length))
            if known:
                axes.set_xlim(0, 1.15 * min(known[-1], 3 * known[len(known) // 2]) or 1)
            axes.set(title=f"next {score.horizon_s:g} s", xlabel="median error (%)")
        panels[0].invert_yaxis()

    return svg(10, 0.8 + 0.24 * len(models), draw)
