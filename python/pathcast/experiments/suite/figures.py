"""The figures of section 5: CDFs of errors, and medians after each change of the path; SVG text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pathcast.experiments.suite import paper, short_flows
from pathcast.experiments.suite.judge import Judged
from pathcast.experiments.suite.latency import SIZE_RANGES, Transfers
from pathcast.experiments.suite.networks import WIRED
from pathcast.experiments.suite.scores import (
    ECON,
    OURS,
    PROTOCOLS,
    Errors,
    Pool,
    Scored,
    counts,
    joined,
)
from pathcast.experiments.suite.tables import groups
from pathcast.report.plots import BLUE, GRAY, GREEN, ORANGE, VERMILION, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Color and dashes of a model; the same in every figure.
_LINES: dict[str, tuple[str, str]] = {
    OURS: (BLUE, "-"),
    ECON: (ORANGE, "-"),
    "last_sample": (GREEN, "--"),
    "ewma": (VERMILION, "--"),
    "holt_winters": ("#cc79a7", "--"),
    "harmonic_mean": ("#56b4e9", "--"),
    "pftk": (GRAY, ":"),
    "pftk_without_timeouts": ("#2b303b", ":"),
    "chen": ("#b58900", ":"),
    "dunaytsev": ("#7a5195", ":"),
}
#: Errors beyond this are not drawn, per cent, as in the paper's figures.
_MOST_PCT = 100.0
#: Characters of a network's name that have room above a picture.
_LONG_NAME = 28
#: Points of a CDF.
_QUANTILES = np.linspace(0, 1, 201)


def figures(judged: Judged, results: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """All figures that the runs give: by file name without ending, title and SVG."""
    found: dict[str, tuple[str, str]] = {}

    def add(name: str, title: str, picture: str | None) -> None:
        if picture is not None:
            found[name] = (title, picture)

    second = [one for one in judged.scored if one.horizon_s == 1]
    for number, scheme in ((5, "cubic"), (6, "reno")):
        title = f"Figure {number}: {scheme}, errors of the next second"
        add(f"figure-{number}", title, _cdfs(second, WIRED, scheme))
    mobile = ("wireless", "last-mile-0.1", "last-mile-0.5", "last-mile-1")
    for scheme in ("cubic", "reno"):
        title = (
            f"Wireless and last mile (section 5.4, table 3): {scheme}, errors of the next second"
        )
        add(f"mobile-{scheme}", title, _cdfs(second, mobile, scheme))
    traces = tuple(
        dict.fromkeys(
            one.source.network for one in second if one.source.network.startswith("trace ")
        )
    )
    # one row of pictures for each four traces is enough to look at
    for scheme in ("cubic", "reno"):
        of_scheme = [
            name
            for name in traces
            if any(one.source.network == name and one.source.scheme == scheme for one in second)
        ]
        title = f"Traces of real paths: {scheme}, errors of the next second"
        add(f"traces-{scheme}", title, _cdfs(second, of_scheme[:4], scheme))
    for scheme in ("reno", "cubic"):
        title = f"Figure 7: {scheme}, median errors of the next second after each change"
        add(f"figure-7-{scheme}", title, _after_changes(results["changing"], scheme))
    add(
        "figure-8",
        "Figure 8: reno, Southeast, errors of the time that transfers take, by size",
        _size_cdfs(judged.transfers),
    )
    add(
        "figure-9",
        "Figure 9: reno over WiFi, errors of the time that 1 to 100 MB take",
        _latency_cdfs(judged.transfers),
    )
    add(
        "short-flows",
        "Short flows, figure 8 of De Silva et al.: mean errors, 10th to 90th percentile as a line; cut "
        "off above 150 %",
        _short_flows(results["short_flows"]),
    )
    title, picture = _windows(judged.downloads)
    add("short-flows-windows", title, picture)
    add(
        "short-flows-scatter",
        "Short flows, figure 10 of De Silva et al.: estimated against measured throughput",
        _scatter(judged.downloads),
    )
    return found


def _drawn(models: Sequence[str], scheme: str) -> list[str]:
    return [model for model in _LINES if model in models and counts(model, scheme)]


def _cdf(axes: Axes, errors: dict[str, Errors], scheme: str) -> None:
    for model in _drawn(list(errors), scheme):
        there = errors[model][np.isfinite(errors[model])]
        if not there.size:
            continue
        color, dashes = _LINES[model]
        axes.plot(
            np.quantile(there, _QUANTILES), _QUANTILES, dashes, color=color,
            lw=2 if model == OURS else 1.3, label=model.replace("_", " "),
        )  # fmt: skip
    axes.set(xlim=(0, _MOST_PCT), ylim=(0, 1))


def _mark(axes: Axes, at_pct: float, color: str, label: str) -> None:
    """The paper's median, from its text."""
    axes.plot([at_pct], [0.5], "o", color=color, mec="#1d2129", ms=7, label=label, zorder=5)


def _cdfs(scored: Sequence[Scored], networks: Sequence[str], scheme: str) -> str | None:
    """A row for each protocol, a column for each network."""
    of_scheme = [one for one in scored if one.source.scheme == scheme]
    there = [name for name in networks if any(one.source.network == name for one in of_scheme)]
    if not there:
        return None
    width_in = max(7.0, 2.7 * len(there))

    def draw(figure: Figure) -> None:
        panels = figure.subplots(2, len(there), sharex=True, sharey=True, squeeze=False)
        for row, protocol in enumerate(reversed(PROTOCOLS)):
            for column, network in enumerate(there):
                axes = panels[row, column]
                same = [
                    one
                    for one in of_scheme
                    if one.source.network == network and one.protocol == protocol
                ]
                pool = Pool.of(same)
                _cdf(axes, pool.error_pct, scheme)
                told = paper.THROUGHPUT.get((network, scheme))
                if told is not None and protocol == "paper":
                    _mark(axes, told.econ_median_pct, ORANGE, "ECON's median, paper")
                    _mark(axes, told.best_other_median_pct, "#ffffff", "best other's, paper")
                name = network.removeprefix("trace ")
                if len(name) > _LONG_NAME:
                    name = f"...{name[3 - _LONG_NAME :]}"
                axes.set_title(f"{name}\n{protocol} protocol", fontsize=9, loc="left")
        for axes in panels[-1]:
            axes.set_xlabel("error (%)")
        for axes in panels[:, 0]:
            axes.set_ylabel("CDF")
        _legend(figure, panels.flat, int(width_in / 1.75))

    return svg(width_in, 5.8, draw)


def _after_changes(rows: Sequence[dict[str, Any]], scheme: str) -> str | None:
    """Bars for each interval, a panel for each protocol."""
    same = [row for row in rows if row["scheme"] == scheme and row["horizon_s"] == 1]
    if not same:
        return None

    def draw(figure: Figure) -> None:
        panels = figure.subplots(2, 1, sharex=True, squeeze=False)[:, 0]
        for axes, (protocol, of_protocol) in zip(
            panels, groups(same, lambda row: row["protocol"]).items(), strict=True
        ):
            models = _drawn(list(of_protocol[0]["median_error_pct"]), scheme)
            width = 0.85 / len(models)
            for i, model in enumerate(models):
                heights = [row["median_error_pct"][model] for row in of_protocol]
                at = np.arange(len(heights)) + (i - (len(models) - 1) / 2) * width
                there = [np.nan if height is None else height for height in heights]
                color, dashes = _LINES[model]
                bars = axes.bar(
                    at, there, width * 0.9, color=color, label=model.replace("_", " "),
                    alpha=1 if dashes == "-" else 0.75,
                )  # fmt: skip
                axes.bar_label(bars, fmt="%.0f", fontsize=7, padding=1)
            axes.set_title(f"{protocol} protocol", fontsize=9, loc="left")
            axes.set(ylabel="median error (%)")
            axes.grid(visible=False, axis="x")
            axes.set_xticks(range(len(of_protocol)))
            axes.set_xticklabels(
                [f"{row['from_s']:.0f} to {row['to_s']:.0f} s" for row in of_protocol]
            )
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=9)

    return svg(10, 5.4, draw)


def _size_cdfs(transfers: Sequence[Transfers]) -> str | None:
    """Figure 8: a row for each protocol, a column for each range of sizes."""
    same = _transfers_of(transfers, "southeast", "reno")
    there = {
        name: sizes
        for name, sizes in SIZE_RANGES.items()
        if any(one.size_bytes in sizes for one in same)
    }
    if not there:
        return None

    def draw(figure: Figure) -> None:
        panels = figure.subplots(2, len(there), sharex=True, sharey=True, squeeze=False)
        for row, protocol in zip(panels, reversed(PROTOCOLS), strict=True):
            for axes, (name, sizes) in zip(row, there.items(), strict=True):
                chosen = [one for one in same if one.size_bytes in sizes]
                told = paper.LATENCY_BY_SIZE[name]
                _latency_panel(axes, chosen, protocol, "reno", told)
                axes.set_title(f"{name}\n{protocol} protocol", fontsize=9, loc="left")
            row[0].set_ylabel("CDF")
        for axes in panels[-1]:
            axes.set_xlabel("error of the time (%)")
        _legend(figure, panels.flat, 5)

    return svg(10, 5.8, draw)


def _latency_cdfs(transfers: Sequence[Transfers]) -> str | None:
    """Figure 9: a panel for each protocol."""
    same = _transfers_of(transfers, "wireless", "reno")
    if not same:
        return None

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, 2, sharex=True, sharey=True, squeeze=False)[0]
        (econ, _), (best, _) = paper.LATENCY_WIRELESS
        for axes, protocol in zip(panels, reversed(PROTOCOLS), strict=True):
            _latency_panel(axes, same, protocol, "reno", (econ, best))
            axes.set_title(f"{protocol} protocol", fontsize=9, loc="left")
            axes.set_xlabel("error of the time (%)")
        panels[0].set_ylabel("CDF")
        _legend(figure, panels, 4)

    return svg(8, 3.8, draw)


def _transfers_of(transfers: Sequence[Transfers], network: str, scheme: str) -> list[Transfers]:
    where = network, scheme
    return [one for one in transfers if (one.source.network, one.source.scheme) == where]


def _latency_panel(
    axes: Axes,
    transfers: Sequence[Transfers],
    protocol: str,
    scheme: str,
    told: tuple[float, float],
) -> None:
    of_protocol = [one.error_pct for one in transfers if one.protocol == protocol]
    if of_protocol:
        _cdf(axes, joined(of_protocol), scheme)
    if protocol == "paper":
        _mark(axes, told[0], ORANGE, "ECON's median, paper")
        _mark(axes, told[1], "#ffffff", "best other's, paper")


def _legend(figure: Figure, panels: Iterable[Axes], columns: int) -> None:
    """One for all panels, below them."""
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize=9
    )


def _short_flows(rows: Sequence[dict[str, Any]]) -> str | None:
    """Mean errors as bars from the 10th to the 90th percentile; a panel for each group that the paper has."""
    of_group = groups([row for row in rows if row["paper"]], lambda row: row["group"])
    if not of_group:
        return None
    drawn = {
        "pathcast": ("pathcast", BLUE),
        "published": ("published algorithms", ORANGE),
        "alone": ("1 MB's own throughput", GRAY),
    }
    markers = {"published": ("o", "estimator, paper"), "alone": ("s", "1 MB's own, paper")}

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(of_group), sharey=True, squeeze=False)[0]
        for axes, (name, same) in zip(panels, of_group.items(), strict=True):
            at = np.arange(len(same))
            for i, (model, (label, color)) in enumerate(drawn.items()):
                mean, low, high = (
                    np.array([row[f"{what}_error_pct"][model] for row in same])
                    for what in ("mean", "p10", "p90")
                )
                x = at + (i - 1) * 0.28
                axes.bar(x, mean, 0.25, color=color, label=label, alpha=0.85)
                axes.vlines(x, low, high, color="#1d2129", lw=1)
                if model in markers:
                    marker, told = markers[model]
                    values = [row["paper"]["mean_error_pct"][model] for row in same]
                    axes.plot(
                        x, values, marker, color=color, mec="#1d2129", ms=7, label=told, zorder=5
                    )
            where = same[0]["paper"]["where"]
            axes.set_title(
                f"{name} ({where}), {same[0]['downloads']} downloads", fontsize=9, loc="left"
            )
            axes.set_xticks(at)
            axes.set_xticklabels([f"{row['size_bytes'] / 1e6:g} MB" for row in same])
            axes.set_ylim(0, _MOST_PCT * 1.5)
            axes.grid(visible=False, axis="x")
        panels[0].set_ylabel("mean error (%)")
        _legend(figure, panels, 5)

    return svg(max(5.0, 3.4 * len(of_group)), 3.8, draw)


def _windows(scores: Sequence[short_flows.Score]) -> tuple[str, str | None]:
    """Figure 9 of De Silva et al.: the window estimated and logged, a panel for each kind of download."""
    title = "Short flows, figure 9 of De Silva et al.: the window, estimated from the first 1 MB and logged"
    if not scores:
        return title, None
    chosen = short_flows.typical(scores)

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(chosen), squeeze=False)[0]
        for axes, (kind, (one, without)) in zip(panels, chosen.items(), strict=True):
            axes.set_title(kind, fontsize=9, loc="left")
            axes.set_xlabel("time since the first byte (s)")
            if one is None:
                missing = f"none of {without} has" if without else "no such download,\nnone has"
                axes.text(
                    0.5, 0.5, f"{missing}\nits window logged", ha="center", va="center",
                    transform=axes.transAxes, color=GRAY,
                )  # fmt: skip
                axes.set(xticks=[], yticks=[])
                continue
            _windows_panel(axes, one.row)
            axes.set_title(f"{kind}\n{one.row['name']}", fontsize=9, loc="left")
        panels[0].set_ylabel("window (packets)")
        _legend(figure, panels, 5)

    return title, svg(12, 4.2, draw)


def _windows_panel(axes: Axes, row: dict[str, Any]) -> None:
    windows = short_flows.evolution(row)
    logged = row["cwnd_packets"]
    quantiles = np.array(windows.window_quantiles_packets)
    axes.fill_between(
        windows.time_s, quantiles[:, 0], quantiles[:, -1], color=BLUE, alpha=0.15, lw=0,
        label="90 % band",
    )  # fmt: skip
    axes.plot(row["cwnd_time_s"], logged, color="#1d2129", lw=1.2, label="logged")
    axes.plot(windows.time_s, quantiles[:, 2], color=BLUE, lw=2, label="pathcast, in flight")
    axes.plot(
        windows.published_time_s, windows.published_window_packets, "--", color=ORANGE,
        label="published algorithms",
    )  # fmt: skip
    axes.axvline(row["time_s"][-1], color=GRAY, ls=":", lw=1, label="end of the first MB")
    axes.set_xlim(0, 1.05 * row["truth_s"][-1])
    # an estimate far beyond must not flatten the logged values
    axes.set_ylim(0, 2.2 * max(logged))


def _scatter(scores: Sequence[short_flows.Score]) -> str | None:
    """Figure 10 of De Silva et al.: a panel for each estimator, a color for each size."""
    there = [one for one in scores if one.estimate_bps]
    if not there:
        return None
    panels_of = {
        "pathcast": "pathcast",
        "published": "published algorithms",
        "alone": "1 MB's own throughput",
    }
    looks = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"))
    every = np.concatenate(
        [one.truth_bps for one in there]
        + [one.estimate_bps[name] for one in there for name in panels_of]
    )
    limits = 0.8 * every.min() / 1e6, 1.25 * every.max() / 1e6

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(panels_of), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (name, title) in zip(panels, panels_of.items(), strict=True):
            axes.plot(limits, limits, color=GRAY, lw=1, label="estimated = measured")
            for i, (color, marker) in enumerate(looks):
                x = np.array([one.truth_bps[i] for one in there]) / 1e6
                y = np.array([one.estimate_bps[name][i] for one in there]) / 1e6
                label = f"{short_flows.SIZES[i] / 1e6:g} MB"
                axes.plot(x, y, marker, color=color, ms=4.5, alpha=0.7, mew=0, label=label)
            axes.axvline(13, color="#1d2129", ls=":", lw=1, label="13 Mbit/s")
            axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits)
            axes.set_title(title, fontsize=9, loc="left")
            axes.set_xlabel("measured (Mbit/s)")
            ticks = [
                tick for tick in (1, 2, 5, 10, 20, 50, 100, 200) if limits[0] < tick < limits[1]
            ]
            axes.set_xticks(ticks, [str(tick) for tick in ticks])
            axes.set_yticks(ticks, [str(tick) for tick in ticks])
            axes.minorticks_off()
        panels[0].set_ylabel("estimated (Mbit/s)")
        _legend(figure, panels, 5)

    return svg(11, 4.2, draw)
