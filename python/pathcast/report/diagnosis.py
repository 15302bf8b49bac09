"""The page of `pathcast diagnose`: what limits flows and client prefixes, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pathcast import __version__
from pathcast._diagnosis import Diagnosis, JudgedFlow
from pathcast._limits import LIMITS
from pathcast._prefixes import NOT_LOST
from pathcast.report import plots
from pathcast.report.templates import templates
from pathcast.trace import Column, Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_templates = templates("pathcast.report")
#: Flows and prefixes on the page, those that lost most time.
_MOST_FLOWS, _MOST_PREFIXES = 20, 30
#: Each limit has one color.
_COLORS = {
    "slow_start": plots.ORANGE,
    "loss": plots.VERMILION,
    "queue": "#cc79a7",
    "path_rate": plots.GREEN,
    "policer": "#7a4a21",
    "receive_window": "#56b4e9",
    "application": "#b9bec7",
    "idle": "#dfe2e7",
}
#: Goodput is drawn over so many bins.
_BINS = 150


def render_diagnosis(found: Diagnosis, title: str) -> str:
    """What limits flows, as one HTML page that needs no other file.

    Args:
        found: the flows.
        title: what was looked at, for people.

    """
    flows = sorted(found.flows, key=JudgedFlow.lost_s, reverse=True)
    shown = flows[:_MOST_FLOWS]
    prefixes = found.prefixes[:_MOST_PREFIXES]
    seconds = {name: sum(one.seconds[name] for one in found.prefixes) for name in LIMITS}
    total_s = sum(seconds.values())
    lost = {name: value for name, value in seconds.items() if name not in NOT_LOST and value > 0}
    by_prefix = ""
    if found.has_prefixes():
        names = [one.prefix or "not known" for one in prefixes]
        by_prefix = limits_plot(names, [one.seconds for one in prefixes], "seconds of all flows")
    return _templates.get_template("diagnosis.html.j2").render(
        title=title,
        flows=flows,
        shown=shown,
        limits=LIMITS,
        pictures=[series_plot(one.trace, one.limits.flow) for one in shown],
        shares=limits_plot(
            [f"{place}" for place in range(1, len(shown) + 1)],
            [
                {name: one.limits.duration_s * one.limits.shares[name] for name in LIMITS}
                for one in shown
            ],
            "seconds",
        ),
        prefixes=prefixes,
        more_prefixes=len(found.prefixes) - len(prefixes),
        by_prefix=by_prefix,
        total_s=total_s,
        lost_s=sum(lost.values()),
        worst=max(lost, key=lambda name: lost[name]) if lost else "",
        unjudged=found.unjudged,
        version=__version__,
    )


def limits_plot(names: Sequence[str], seconds: Sequence[Mapping[str, float]], unit: str) -> str:
    """How long each limit held: a bar for each name, a color for each limit."""
    used = [
        name for name in LIMITS if any(one[name] > 0.005 * sum(one.values()) for one in seconds)
    ]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        places = np.arange(len(names))
        before = np.zeros(len(names))
        for name in used:
            values = np.array([one[name] for one in seconds])
            axes.barh(
                places, values, left=before, height=0.7, color=_COLORS[name], label=name.replace("_", " ")
            )  # fmt: skip
            before += values
        axes.set_yticks(places, names)
        axes.set(xlabel=unit, ylim=(len(names) - 0.5, -0.5))
        axes.grid(visible=False, axis="y")
        figure.legend(loc="outside upper left", ncols=4, fontsize=9)

    return plots.svg(10, 1.4 + 0.3 * len(names), draw)


def series_plot(trace: Trace, flow: int) -> str:
    """Goodput and the smoothed round-trip time of a flow over time; empty if it has neither."""
    columns = trace.columns
    here = columns["flow"] == flow
    time_s = columns["time_s"][here]
    acked, srtt_s = (_known(time_s, columns[name][here]) for name in ("snd_una_bytes", "srtt_s"))
    if len(acked[0]) < 2 or acked[0][-1] <= acked[0][0]:
        return ""

    def draw(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True)
        edges = np.linspace(acked[0][0], acked[0][-1], _BINS + 1)
        bytes_ = np.interp(edges, *acked)
        above.stairs(
            8e-6 * np.diff(bytes_) / np.diff(edges), edges, color=plots.BLUE, baseline=None
        )
        above.set(ylabel="Mbit/s", ylim=(0, None), title="goodput")
        below.plot(*plots.thinned(srtt_s[0], 1e3 * srtt_s[1]), color=plots.BLUE, lw=1)
        below.set(ylabel="ms", ylim=(0, None), title="round-trip time", xlabel="time (s)")
        for axes in (above, below):
            axes.title.set(fontsize=10, horizontalalignment="left")
            axes.title.set_x(0)

    return plots.svg(10, 3.4, draw)


def _known(time_s: Column, values: Column) -> tuple[Column, Column]:
    """A series without the moments that lack a value."""
    there = np.isfinite(values)
    return time_s[there], values[there]


__all__ = ["limits_plot", "render_diagnosis", "series_plot"]
