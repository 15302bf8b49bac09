"""Pictures of estimates: attainable rate over time, CCDFs of delays and their parts, autocorrelation of the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pathcast.attainable_rate import statistics
from pathcast.attainable_rate.curve import AttainableRate
from pathcast.attainable_rate.estimator import Probed
from pathcast.report.plots import BLUE, GRAY, GREEN, ORANGE, VERMILION, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: As Matplotlib has them.
Color: TypeAlias = str | tuple[float, float, float]

COLORS = (
    BLUE,
    VERMILION,
    GREEN,
    ORANGE,
    "#cc79a7",
    "#56b4e9",
    GRAY,
    "#2b303b",
    "#b58900",
    "#7a5195",
)
_PARTS = (
    ("delay_s", "end to end", "#2b303b"),
    ("sender_s", "sender's stack", VERMILION),
    ("network_s", "network", BLUE),
    ("receiver_s", "receiver's stack", GREEN),
)


def scale(unit: str) -> tuple[float, str]:
    """Units of an axis of rates: by what to divide, and its name."""
    return (1e6, "Mbit/s") if unit == "bit" else (1.0, "packets/s")


def attainable(
    curves: Mapping[str, AttainableRate],
    paper: Mapping[str, Sequence[tuple[float, float]]] | None = None,
) -> str | None:
    """Attainable rates over time, on a logarithmic axis, with bounds where there is only one curve.

    Args:
        curves: by name.
        paper: points to mark, by name: seconds and rates.

    """
    curves = {name: curve for name, curve in curves.items() if curve.used}
    if not curves:
        return None
    earliest = min(point.delay_s or 1e-3 for curve in curves.values() for point in curve.used)
    latest = max(
        10 * max(point.delay_s or 1e-3 for point in curve.used) for curve in curves.values()
    )
    times = np.geomspace(max(earliest / 2, 1e-5), max(latest, 10.0), 500)

    def draw(figure: Figure) -> None:
        axes: Axes = figure.subplots()
        for color, (name, curve) in zip(_cycle(len(curves)), curves.items(), strict=True):
            by, unit = scale(curve.unit)
            axes.plot(times, curve.rate(times) / by, color=color, label=name)
            axes.axhline(curve.long_term_rate / by, color=color, linewidth=0.7, linestyle=":")
            if len(curves) == 1:
                low, high = (curve.rate(times, bound) / by for bound in ("low", "high"))
                axes.fill_between(
                    times, low, high, color=color, alpha=0.2, label="bounds of the delays"
                )
            axes.set_ylabel(f"attainable rate, {unit}")
        for name, points in (paper or {}).items():
            axes.plot(*zip(*points, strict=True), "x", color=GRAY, label=name)
        axes.set_xscale("log")
        axes.set_xlabel("time scale, s")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8)

    return svg(7, 3.6, draw)


def delays(probed: Sequence[Probed], unit: str) -> str | None:
    """CCDFs of the delay at each rate with a steady state."""
    shown = [one for one in probed if one.point.stationary and np.ptp(one.delay_s) > 0]
    if not shown:
        return None
    by, name = scale(unit)

    def draw(figure: Figure) -> None:
        axes: Axes = figure.subplots()
        # darker is faster
        shades = np.linspace(0.75, 0.0, len(shown))
        for one, shade in zip(sorted(shown, key=lambda one: one.point.rate), shades, strict=True):
            _ccdf(
                axes,
                one.delay_s,
                f"{one.point.rate / by:.4g} {name}",
                (shade, shade, 0.3 + 0.7 * shade),
            )
        _ccdf_axes(axes)

    return svg(7, 3.6, draw)


def parts(one: Probed) -> str | None:
    """CCDFs of the delay at one rate and of its parts, as figure 9."""
    if not len(one.delay_s):
        return None

    def draw(figure: Figure) -> None:
        axes: Axes = figure.subplots()
        for name, label, color in _PARTS:
            values = getattr(one, name)
            if len(values) and values.max() > 0:
                _ccdf(axes, np.maximum(values, 1e-6), label, color)
        _ccdf_axes(axes)

    return svg(7, 3.6, draw)


def buffering(curves: Mapping[str, AttainableRate]) -> str | None:
    """Share of messages that wait in the sender's stack, over utilization, as figure 10."""
    shown = {name: curve for name, curve in curves.items() if len(curve.used) > 1}
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        axes: Axes = figure.subplots()
        for color, (name, curve) in zip(_cycle(len(shown)), shown.items(), strict=True):
            # of what a greedy source gets, where that was measured
            most = curve.long_term_rate if curve.greedy is None else curve.greedy[0]
            axes.plot(
                [point.rate / most for point in curve.used],
                [point.buffered for point in curve.used],
                "o-", color=color, label=name, markersize=3,
            )  # fmt: skip
        axes.axvline(
            2 / 3,
            color=GRAY,
            linestyle=":",
            linewidth=1,
            label="2/3: none below, if losses were periodic",
        )
        axes.set_xlabel("rate / long-term rate")
        axes.set_ylabel("buffered in the sender")
        axes.set_ylim(0, 1)
        axes.legend(fontsize=8)

    return svg(7, 3.2, draw)


def autocorrelations(named: Mapping[str, Probed]) -> str | None:
    """Autocorrelation of the window, mean over trains with 95 % bounds, as figure 14b."""
    shown = {name: one for name, one in named.items() if len(one.autocorrelation) >= 1}
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        axes: Axes = figure.subplots()
        for color, (name, one) in zip(_cycle(len(shown)), shown.items(), strict=True):
            rows = one.autocorrelation
            lags = one.lag_s * np.arange(rows.shape[1])
            if len(rows) > 1:
                mean, low, high = statistics.mean_with_bounds(rows)
                axes.fill_between(lags, low, high, color=color, alpha=0.2)
            else:
                mean = rows[0]
            axes.plot(lags, mean, color=color, label=name)
        axes.axhline(0, color=GRAY, linewidth=0.7)
        axes.set_xlabel("lag, s")
        axes.set_ylabel("autocorrelation of cwnd")
        axes.legend(fontsize=8)

    return svg(7, 3.2, draw)


def windows(named: Mapping[str, Probed], needed: float, span_s: float = 20.0) -> str | None:
    """Windows of two or more over time, and what a rate needs of it, as figure 11.

    Args:
        named: by name.
        needed: packets, marked by a line.
        span_s: how much of them is shown.

    """
    shown = {name: one for name, one in named.items() if len(one.windows) > 1}
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        every = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, color, (name, one) in zip(every, _cycle(len(shown)), shown.items(), strict=True):
            times = one.lag_s * np.arange(len(one.windows))
            axes.plot(times, one.windows, color=color, linewidth=0.9)
            axes.axhline(needed, color="#2b303b", linestyle="-.", linewidth=1)
            axes.set_title(name, fontsize=9, loc="left")
            axes.set_ylabel("cwnd, packets")
            axes.set_ylim(bottom=0)
            axes.set_xlim(0, min(span_s, times[-1]))
        every[-1].set_xlabel("time, s")

    return svg(7, 1.2 + 1.4 * len(shown), draw)


def of_estimate(found: AttainableRate, probed: Sequence[Probed]) -> dict[str, tuple[str, str]]:
    """All pictures of one estimate: by file name without ending, title and SVG."""
    pictures: dict[str, tuple[str, str]] = {}

    def add(name: str, title: str, picture: str | None) -> None:
        if picture is not None:
            pictures[name] = (title, picture)

    add("attainable-rate", "Attainable rate", attainable({"attainable rate": found}))
    add("delays", "Delays at each rate", delays(probed, found.unit))
    add("buffering", "Buffered in the sender", buffering({"here": found}))
    used = [one for one in probed if one.point.stationary]
    if used:
        middle = min(used, key=lambda one: abs(one.point.rate - 0.5 * found.long_term_rate))
        by, unit = scale(found.unit)
        at = f"{middle.point.rate / by:.4g} {unit}"
        add("parts", f"Where messages spend their time, at {at}", parts(middle))
        add(
            "autocorrelation",
            f"Autocorrelation of the window, at {at}",
            autocorrelations({at: middle}),
        )
    return pictures


def _cycle(count: int) -> list[str]:
    return [COLORS[i % len(COLORS)] for i in range(count)]


def _ccdf(
    axes: Axes, values: np.ndarray[Any, np.dtype[np.float64]], label: str, color: Color
) -> None:
    at, share = statistics.exceedance(values)
    axes.plot(at, share, drawstyle="steps-post", label=label, color=color)


def _ccdf_axes(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.set_xlabel("delay, s")
    axes.set_ylabel("share that takes longer")
    axes.legend(fontsize=8)


def bars(named: Mapping[str, tuple[float, float, float]], label: str) -> str:
    """Three values by name: a bar up to the second, marks at the first and third, on a logarithmic axis."""

    def draw(figure: Figure) -> None:
        axes: Axes = figure.subplots()
        names = list(named)[::-1]
        for place, name in enumerate(names):
            low, middle, high = named[name]
            axes.plot([low, high], [place, place], color=GRAY, linewidth=1)
            axes.plot([low], [place], "|", color=BLUE, markersize=9)
            axes.plot([middle], [place], "o", color=BLUE, markersize=6)
            axes.plot([high], [place], "|", color=BLUE, markersize=9)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.set_xscale("log")
        axes.set_xlabel(label)

    return svg(7, 0.6 + 0.3 * len(named), draw)
