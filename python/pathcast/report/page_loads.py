"""The page of `pathcast predict page`: waterfalls, distributions of load times, critical paths, and maps of sweeps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pathcast import __version__
from pathcast._page_loads import Dependence, Loads, PageForecast
from pathcast.page import Page
from pathcast.report import plots
from pathcast.report.templates import templates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_templates = templates("pathcast.report")
_COLORS = {"http/1.1": plots.ORANGE, "h2": plots.BLUE, "h3": plots.GREEN}
#: Resources that a waterfall shows; of larger pages those that end last are left out.
_MOST_BARS = 120


def render_page_loads(
    found: Sequence[tuple[Page, Mapping[str, Any], PageForecast]],
    *,
    dependences: Sequence[Dependence] = (),
    loads: int,
    seed: int,
) -> str:
    """Forecasts of pages, as one HTML page that needs no other file.

    Args:
        found: pages, the numbers of their paths, and their forecasts.
        dependences: of the only forecast, what it hangs on.
        loads: of each page by each protocol.
        seed: of the loads.

    """
    alone = found[0] if len(found) == 1 else None
    pictures: dict[str, str] = {}
    if alone:
        page, _, forecast = alone
        most_ms = max(_longest(one) for one in forecast.loads.values())
        for name, one in forecast.loads.items():
            pictures[name] = waterfall(page, one, forecast.critical_path(name), most_ms)
    return _templates.get_template("page_loads.html.j2").render(
        found=found,
        alone=alone,
        title=found[0][0].name if len({page.name for page, *_ in found}) == 1 else "pages",
        distribution=distribution_plot(alone[2].loads) if alone else "",
        waterfalls=pictures,
        dependences=dependences,
        map=sweep_map(found),
        loads=loads,
        seed=seed,
        version=__version__,
        finite=math.isfinite,
    )


def _longest(loads: Loads) -> float:
    """When the typical load is over, in milliseconds."""
    ends = loads.finished_ms[loads.typical]
    return float(np.nanmax(ends)) if np.isfinite(ends).any() else 1.0


def distribution_plot(loads: Mapping[str, Loads]) -> str:
    """The part of loads that are over by a time, for each protocol."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for name, one in loads.items():
            times = np.sort(one.load_ms[np.isfinite(one.load_ms)])
            parts = 100 * np.arange(1, len(times) + 1) / len(one.load_ms)
            axes.step(times, parts, where="post", color=_COLORS.get(name), lw=2, label=name)
        axes.set(
            xlabel="time to the load event (ms)", ylabel="loads that are over (%)", ylim=(0, 102)
        )
        axes.legend(loc="lower right")

    return plots.svg(7.2, 3.0, draw)


def waterfall(
    page: Page, loads: Loads, critical: Sequence[Mapping[str, Any]], most_ms: float
) -> str:
    """When what came of each resource in the typical load; the critical path has bold names."""
    run = loads.typical
    wanted, asked = loads.wanted_ms[run], loads.asked_ms[run]
    first, last = loads.first_byte_ms[run], loads.finished_ms[run]
    shown = [number for number in np.argsort(wanted, kind="stable") if math.isfinite(last[number])]
    shown = shown[:_MOST_BARS]
    on_path = {one["id"] for one in critical}

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        rows = np.arange(len(shown))
        parts = (
            (wanted, asked, "#c8ccd2", "waits for a connection"),
            (asked, first, plots.LIGHT_BLUE, "waits for the first byte"),
            (first, last, plots.BLUE, "arrives"),
        )
        for begin, end, color, label in parts:
            axes.barh(
                rows,
                end[shown] - begin[shown],
                left=begin[shown],
                height=0.75,
                color=color,
                label=label,
            )
        for row, number in enumerate(shown):
            if page.resources[number]["id"] in on_path:
                axes.plot([first[number], last[number]], [row, row], color=plots.VERMILION, lw=1.6)
        axes.plot([], [], color=plots.VERMILION, lw=1.6, label="the load event waited for it")
        if math.isfinite(loads.load_ms[run]):
            axes.axvline(loads.load_ms[run], color=plots.GRAY, lw=1, ls="--")
        axes.set(
            xlim=(0, 1.03 * most_ms),
            ylim=(len(shown) - 0.4, -0.6),
            xlabel="since the beginning (ms)",
        )
        axes.set_yticks(
            rows, [_short(page.resources[number]["url"]) for number in shown], fontsize=6.5
        )
        axes.grid(visible=False, axis="y")
        axes.legend(loc="upper right", fontsize=8)

    return plots.svg(8.6, 1.0 + 0.14 * max(len(shown), 8), draw)


def _short(url: str) -> str:
    """The end of a URL, as long as a waterfall's labels may be."""
    path = url.split("/", 3)[-1]
    name = path or url.split("/", 3)[2]
    return name if len(name) <= 30 else f"…{name[-29:]}"


def sweep_map(found: Sequence[tuple[Page, Mapping[str, Any], PageForecast]]) -> str:
    """Loss by round-trip time: which protocol is the choice, and by how much; empty if there is no such sweep."""
    numbers = [one for _, one, _ in found]
    if not all({"rtt_s", "loss"} <= set(one) for one in numbers):
        return ""
    rtts = sorted({one["rtt_s"] for one in numbers})
    losses = sorted({one["loss"] for one in numbers})
    first = found[0][2]
    alike = all(
        page.name == found[0][0].name
        and forecast.scheme == first.scheme
        and one["rate"] == numbers[0]["rate"]
        for page, one, forecast in found
    )
    if not alike or len(losses) < 2 or len(rtts) < 2 or len(first.loads) < 2:
        return ""
    best = {(one["loss"], one["rtt_s"]): forecast for _, one, forecast in found}

    def draw(figure: Figure) -> None:
        from matplotlib.colors import to_rgb

        axes = figure.subplots()
        most = max((one.gain for one in best.values() if math.isfinite(one.gain)), default=0.0)
        cells = np.ones((len(losses), len(rtts), 3))
        for (loss, rtt_s), forecast in best.items():
            row, column = losses.index(loss), rtts.index(rtt_s)
            if not math.isfinite(forecast.gain):
                continue
            # the darker, the more the choice matters
            depth = 0.15 + 0.85 * min(forecast.gain / max(most, 0.1), 1.0)
            color = np.array(to_rgb(_COLORS[forecast.choice]))
            cells[row, column] = 1 - depth * (1 - color)
            text = f"{forecast.choice}\nthe next +{forecast.gain:.0%}"
            axes.text(
                column, row, text, ha="center", va="center", fontsize=8,
                color="#ffffff" if depth > 0.6 else "#1d2129",
            )  # fmt: skip
        axes.imshow(cells, origin="lower", aspect="auto")
        axes.set_xticks(range(len(rtts)), [f"{1e3 * one:g}" for one in rtts])
        axes.set_yticks(range(len(losses)), [f"{100 * one:g}" for one in losses])
        axes.set(xlabel="round-trip time (ms)", ylabel="loss (%)")
        axes.grid(visible=False)

    return plots.svg(1.6 + 1.15 * len(rtts), 1.2 + 0.6 * len(losses), draw)
