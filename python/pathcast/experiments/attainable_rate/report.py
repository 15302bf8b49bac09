"""Writes what the benchmark found: results.json, figures and one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from pathcast import __version__
from pathcast.attainable_rate import figures, steady
from pathcast.attainable_rate.estimator import Options, Probed
from pathcast.attainable_rate.probes import MESSAGE_BITS
from pathcast.experiments.attainable_rate import benchmark, claims
from pathcast.experiments.attainable_rate.benchmark import BASE, Result
from pathcast.experiments.engine import page
from pathcast.report.templates import templates

_templates = templates("pathcast.experiments.attainable_rate")
#: Version of results.json.
SCHEMA = 1
#: The paper's figures that compare configurations: file name, title, configurations.
_COMPARED = (
    ("figure-13", "Figure 13: buffers", ("buffer-21", "buffer-83", "base", "buffer-251")),
    ("figure-15a", "Figure 15a: queue management", ("base", "red", "codel")),
    ("figure-15b", "Figure 15b: loss processes", ("red", "bernoulli", "periodic")),
    ("figure-16", "Figure 16: congestion control", ("base", "cubic", "scalable")),
    (
        "schemes-of-today",
        "Congestion control of today",
        ("base", "cubic", "bbr", "copa", "quic-cubic"),
    ),
)


def collect(results: Sequence[Result], options: Options, world: str) -> dict[str, Any]:
    """All of it as JSON."""
    rows = benchmark.table(results)
    judged = benchmark.claims(results)
    return {
        "schema": SCHEMA,
        "pathcast": __version__,
        "world": world,
        "epsilon": options.epsilon,
        "samples": options.samples,
        "seed": options.seed,
        "baseline_video_s": list(benchmark.baseline_video_s()),
        "configurations": rows,
        "estimates": {one.configuration.name: one.curve.to_dict() for one in results},
        "claims": judged,
        "claims_counted": claims.summary(judged),
        "statistics": steady.VERSION,
        "trains": options.trains,
    }


def write(folder: FilePath, results: Sequence[Result], collected: Mapping[str, Any]) -> FilePath:
    """Write results.json, figures/ and report.html.

    Returns:
        The page.

    Raises:
        PathcastError: a file cannot be written.

    """
    pictures = _pictures(results)
    rates = sorted({point.rate / 1e6 for one in results for point in one.curve.points})
    text = _templates.get_template("page.html.j2").render(
        link=benchmark.LINK,
        world=_WORLDS[collected["world"]],
        samples=collected["samples"],
        epsilon=f"{collected['epsilon']:g}",
        rates=", ".join(f"{rate:g}" for rate in rates) + " Mbit/s",
        version=__version__,
        groups=[
            (
                title,
                [one for one in collected["claims"] if one["tuned"] == tuned],
                counted(collected, kind),
            )
            for title, kind, tuned in _CLAIMS
        ],
        columns=COLUMNS,
        rows=[cells(row) for row in collected["configurations"]],
        pictures=[(title, picture) for _, title, picture in pictures],
    )
    return page.write(
        folder, collected, text, pictures={name: picture for name, _, picture in pictures}
    )


def counted(collected: Mapping[str, Any], kind: str) -> str:
    """How many claims of a kind, `tested` or `tuned`, hold, fail and are undecided, in words."""
    counts = collected["claims_counted"][kind]
    return f"{counts['holds']} hold, {counts['fails']} fail, {counts['undecided']} are undecided"


#: Groups of claims on the page: title, kind, and whether they were tuned.
_CLAIMS = (
    ("What the paper finds", "tested", False),
    ("What the losses were tuned to give: no test", "tuned", True),
)
_WORLDS = {"simulator": "in the simulator", "emulator": "the kernel's TCP in the emulator"}

#: Headers of the table of configurations.
COLUMNS = (
    "configuration",
    "greedy",
    "paper",
    "steady up to",
    *(f"within {time:g} s" for time in benchmark.TIMES_S),
    "origin, ms",
    "buffered at 5",
    "delay at 5, ms",
    "video, ms",
    "epsilon",
)


def cells(row: Mapping[str, Any]) -> list[str]:
    """A row of the table, for people."""

    def mbps(value: float | None) -> str:
        return "-" if value is None else f"{value / 1e6:.2f}"

    def ms(value: float | None) -> str:
        return "-" if value is None else f"{1e3 * value:.0f}"

    mean, low, high = row["greedy_bps"]
    video = row["video_s"]
    return [
        row["title"],
        f"{mbps(mean)} ({mbps(low)} to {mbps(high)})",
        "-" if row["paper_bps"] is None else f"{row['paper_bps'] / 1e6:g}",
        f"{row['long_term_bps'] / 1e6:g}",
        *(mbps(row["attainable_bps"][f"{time:g}"][0]) for time in benchmark.TIMES_S),
        ms(None if row["origin_s"] is None else row["origin_s"][0]),
        "-" if row["buffered_at_5"] is None else f"{row['buffered_at_5']:.2f}",
        ms(row["delay_at_5_s"]),
        "-" if video is None else ms(video[1]),
        f"{row['epsilon']:.2g}",
    ]


def _pictures(results: Sequence[Result]) -> list[tuple[str, str, str]]:
    by_name = {one.configuration.name: one for one in results}
    found: list[tuple[str, str, str]] = []

    def add(name: str, title: str, picture: str | None) -> None:
        if picture is not None:
            found.append((name, title, picture))

    base = by_name.get(BASE.name)
    if base is not None:
        curve, probed = base.curve, base.probed
        add(
            "figure-8",
            "Figure 8: attainable rate of NewReno",
            figures.attainable({"NewReno": curve}),
        )
        at5 = _at(base, 5e6)
        if at5 is not None:
            add(
                "figure-9",
                "Figure 9: where delays come from, at 5 Mbit/s",
                figures.parts(at5),
            )
        add(
            "figure-12",
            "Figure 12: delays at each rate",
            figures.delays(probed, curve.unit),
        )
    curves = {one.configuration.title: one.curve for one in results}
    add("figure-10", "Figure 10: buffered in the sender", figures.buffering(curves))
    losses = {
        by_name[one].configuration.title: at
        for one in ("bernoulli", "periodic")
        if one in by_name and (at := _at(by_name[one], 5e6)) is not None
    }
    needed = 5e6 * 2 * benchmark.PROBE_DELAY_MS / 1e3 / MESSAGE_BITS
    add(
        "figure-11",
        "Figure 11: the window at 5 Mbit/s, and what it must be",
        figures.windows(losses, needed),
    )
    for name, title, wanted in _COMPARED:
        chosen = {
            by_name[one].configuration.title: by_name[one] for one in wanted if one in by_name
        }
        if len(chosen) > 1:
            add(
                name,
                f"{title}: attainable rate",
                figures.attainable({key: one.curve for key, one in chosen.items()}),
            )
            windows = {key: at for key, one in chosen.items() if (at := _at(one, 5e6)) is not None}
            add(
                f"{name}-autocorrelation",
                f"{title}: autocorrelation of the window at 5 Mbit/s",
                figures.autocorrelations(windows),
            )
    add("figure-17", "Figure 17: delay bounds of a video of 4 Mbit/s", _video(results))
    return found


def _at(one: Result, rate_bps: float) -> Probed | None:
    return next((p for p in one.probed if p.point.rate == rate_bps and p.point.stationary), None)


def _video(results: Sequence[Result]) -> str | None:
    shown = {one.configuration.title: one.video_s for one in results if one.video_s is not None}
    if not shown:
        return None
    return figures.bars(
        {"constant rate of a fair share": benchmark.baseline_video_s(), **shown},
        "delay bound of a packet: half of all, 95 %, all, s",
    )
