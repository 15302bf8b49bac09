"""What must show, and whether it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pathcast.experiments.engine.claim import NOTHING
from pathcast.experiments.engine.claim import wanted as wanted_claim
from pathcast.experiments.suite import paper
from pathcast.experiments.suite.latency import ALL_SIZES
from pathcast.experiments.suite.networks import WIRED

Row = dict[str, Any]

#: What the 90 % bands have to cover.
BANDS = (0.85, 0.95)
#: Short flows: mean errors below which Pathcast has to be at every size, by group, per cent.
SHORT_FLOWS_PCT = {"no loss": 5.0, "no loss, above 13 Mbit/s": 5.0, "loss": 15.0}
#: How much better than the best other model Pathcast has to be on average, per cent.
WANTED_MEAN_PCT = 20.0


def claims(results: Row) -> list[Row]:
    """Each with `claim`, `wanted`, `got`, `holds` (None: not measured) and `exceptions`, in words."""
    rows, changing = results["throughput"], results["changing"]
    fair = [row for row in rows if row["protocol"] == "fair"]
    by_paper = [row for row in rows if row["protocol"] == "paper"]
    return [
        _at_most_the_best(fair),
        _better_on_average(fair),
        _margin(by_paper, "median"),
        _margin(by_paper, "mean"),
        *_horizon_margins(results["horizons"]),
        *_small_window(results["sensitivity"]),
        *_changing_margins(changing),
        _connections(results["npc"]),
        *_latency_margins(results["latency"]),
        *_short_flows(results["short_flows"]),
        _coverage("on all networks", [row for row in fair if row["network"] != "changing"]),
        _coverage("on the changing path", [row for row in fair if row["network"] == "changing"]),
        _coverage(
            "in each interval after a change",
            [row for row in changing if row["protocol"] == "fair"],
        ),
        _coverage(
            "of latency, 1 to 100 MB,",
            [
                row
                for row in results["latency"]
                if row["protocol"] == "fair" and row["size"] == ALL_SIZES
            ],
        ),
    ]


def _where(row: Row) -> str:
    horizon = f", {row['horizon_s']:g} s" if "horizon_s" in row else ""
    interval = f", {row['from_s']:.0f} to {row['to_s']:.0f} s" if "from_s" in row else ""
    return f"{row.get('network', 'changing')} {row['scheme']}{horizon}{interval}"


def _pct(error: float) -> str:
    return f"{error:.1f} %" if error >= 1 else f"{error:.2g} %"


def _at_most_the_best(rows: Sequence[Row]) -> Row:
    claim = "fair protocol: median error at most that of the best other model, at 1, 5, 10 s"
    judged = [row for row in rows if row["reduction_median_pct"] is not None]
    if not judged:
        return wanted_claim(claim, "everywhere", NOTHING, None)
    worse = sorted(
        (row for row in judged if row["reduction_median_pct"] < 0),
        key=lambda row: row["reduction_median_pct"],
    )
    told = [
        f"{_where(row)}: {_pct(row['median_error_pct']['pathcast'])} against "
        f"{_pct(row['best_other_median_pct'])} ({row['best_other']})"
        for row in worse
    ]
    got = f"in {len(judged) - len(worse)} of {len(judged)}"
    return wanted_claim(claim, "everywhere", got, not worse, told)


def _better_on_average(rows: Sequence[Row]) -> Row:
    claim = "fair protocol: on average better than the best other model"
    values = [
        row["reduction_median_pct"] for row in rows if row["reduction_median_pct"] is not None
    ]
    wanted = f"at least {WANTED_MEAN_PCT:.0f} %"
    if not values:
        return wanted_claim(claim, wanted, NOTHING, None)
    mean = float(np.mean(values))
    # one network where both are nearly right can outweigh all others in a mean of ratios
    ratios = np.maximum(1 - np.array(values) / 100, 1e-6)
    geometric = 100 * (1 - float(np.exp(np.log(ratios).mean())))
    got = f"{mean:.1f} % (by the geometric mean of the ratios {geometric:.1f} %)"
    return wanted_claim(claim, wanted, got, mean >= WANTED_MEAN_PCT)


def _margin(rows: Sequence[Row], which: str) -> Row:
    """Figures 5 and 6, table 3: the next second."""
    where = "figures 5 and 6, table 3" if which == "median" else "figure 5"
    claim = f"paper's protocol, {where}: reduction of the {which} error of the next second"
    key = f"reduction_{which}_pct"
    told = [row for row in rows if row["paper"] is not None and row["paper"][key] is not None]
    told = [row for row in told if row[key] is not None]
    if not told:
        return wanted_claim(claim, "at least the paper's", NOTHING, None)
    short = [row for row in told if row[key] < row["paper"][key]]
    exceptions = [
        f"{_where(row)}: {row[key]:.0f} %, paper ({row['paper']['where']}) {row['paper'][key]:.0f} %"
        for row in short
    ]
    got = f"in {len(told) - len(short)} of {len(told)}"
    return wanted_claim(claim, "at least the paper's everywhere", got, not short, exceptions)


def _horizon_margins(rows: Sequence[Row]) -> list[Row]:
    found = []
    for row in rows:
        wanted, got = row["paper_reduction_pct"], row["reduction_mean_pct"]
        if row["protocol"] != "paper" or wanted is None or got is None:
            continue
        found.append(
            wanted_claim(
                f"paper's protocol, section 5.2, {row['scheme']}, {row['horizon_s']:g} s: reduction of the mean "
                f"error, mean over {', '.join(row['networks'])}",
                f"at least {wanted:.0f} %",
                f"{got:.1f} %; of the median error {row['reduction_median_pct']:.1f} %",
                got >= wanted,
                _missing_networks(row["networks"]),
            )
        )
    return found


def _small_window(rows: Sequence[Row]) -> list[Row]:
    found = []
    for row in rows:
        wanted, got = row["paper_reduction_pct"], row["reduction_mean_pct"]
        if wanted is None or got is None:
            continue
        found.append(
            wanted_claim(
                f"paper's protocol, section 5.2, {row['scheme']}, all models learning on {row['window_s']:g} s alone: "
                f"reduction of the mean error of the next second, mean over {', '.join(row['networks'])}",
                f"at least {wanted:.0f} %",
                f"{got:.1f} %; of the median error {row['reduction_median_pct']:.1f} %; ECON "
                f"{row['econ_reduction_mean_pct']:.1f} and {row['econ_reduction_median_pct']:.1f} %",
                got >= wanted,
                _missing_networks(row["networks"]),
            )
        )
    return found


def _missing_networks(networks: Sequence[str]) -> list[str]:
    return [f"{name} was not run" for name in WIRED if name not in networks]


def _changing_margins(rows: Sequence[Row]) -> list[Row]:
    same = [
        row
        for row in rows
        if (row["scheme"], row["protocol"], row["horizon_s"]) == ("reno", "paper", 1.0)
    ]
    found = []
    for name, key, against in (
        ("all", "reduction_against_all_pct", "all other models"),
        ("best", "reduction_median_pct", "the best other model in each"),
    ):
        claim = f"paper's protocol, figure 7, Reno, mean over the intervals: reduction against {against}"
        wanted = paper.CHANGING_REDUCTION_PCT[name]
        values = [row[key] for row in same if row[key] is not None]
        if not values:
            found.append(wanted_claim(claim, f"at least {wanted:.0f} %", NOTHING, None))
            continue
        mean = float(np.mean(values))
        each = ", ".join(f"{value:.0f}" for value in values)
        found.append(
            wanted_claim(
                claim, f"at least {wanted:.0f} %", f"{mean:.1f} % ({each})", mean >= wanted
            )
        )
    return found


def _connections(rows: Sequence[Row]) -> Row:
    low, high = paper.NPC_REDUCTION_PCT
    claim = (
        "paper's protocol, section 5.2: reduction of the median error of the next second, whatever "
        "the connections"
    )
    wanted = f"at least {low:.0f} % ({low:.0f} to {high:.0f})"
    same = [row for row in rows if row["protocol"] == "paper"]
    same = [row for row in same if row["reduction_median_pct"] is not None]
    if not same:
        return wanted_claim(claim, wanted, NOTHING, None)
    values = [row["reduction_median_pct"] for row in same]
    exceptions = [
        f"{row['scheme']}, {row['npc']}: {row['reduction_median_pct']:.0f} %"
        for row in same
        if row["reduction_median_pct"] < low
    ]
    got = f"{min(values):.0f} to {max(values):.0f} %"
    return wanted_claim(claim, wanted, got, min(values) >= low, exceptions)


def _latency_margins(rows: Sequence[Row]) -> list[Row]:
    found = []
    for where in ("table 2", "figure 8", "figure 9"):
        claim = f"paper's protocol, {where} (latency): reduction of the median error"
        same = [
            row
            for row in rows
            if row["protocol"] == "paper"
            and row["paper"] is not None
            and row["paper"]["where"] == where
            and row["reduction_median_pct"] is not None
        ]
        if not same:
            found.append(wanted_claim(claim, "at least the paper's", NOTHING, None))
            continue
        short = [
            row
            for row in same
            if row["reduction_median_pct"] < row["paper"]["reduction_median_pct"]
        ]
        exceptions = [
            f"{_where(row)}, {row['size']}: {row['reduction_median_pct']:.0f} %, paper "
            f"{row['paper']['reduction_median_pct']:.0f} %"
            for row in short
        ]
        got = f"in {len(same) - len(short)} of {len(same)}"
        found.append(
            wanted_claim(claim, "at least the paper's everywhere", got, not short, exceptions)
        )
    return found


def _short_flows(rows: Sequence[Row]) -> list[Row]:
    found = []
    for name, most in SHORT_FLOWS_PCT.items():
        claim = f"short flows, {name}: mean error of the throughput of 5, 10 and 20 MB from 1 MB"
        wanted = f"under {most:.0f} %"
        same = [row for row in rows if row["group"] == name]
        if not same:
            found.append(wanted_claim(claim, wanted, NOTHING, None))
            continue
        errors = [row["mean_error_pct"]["pathcast"] for row in same]
        got = f"{' / '.join(f'{error:.1f}' for error in errors)} % of {same[0]['downloads']} downloads"
        exceptions = [
            f"{row['size_bytes'] / 1e6:g} MB: {error:.1f} %"
            for row, error in zip(same, errors, strict=True)
            if error >= most
        ]
        found.append(wanted_claim(claim, wanted, got, max(errors) < most, exceptions))
    return found


def _coverage(where: str, rows: Sequence[Row]) -> Row:
    low, high = BANDS
    claim = f"fair protocol: 90 % bands {where} cover"
    wanted = f"{100 * low:.0f} to {100 * high:.0f} %"
    judged = [row for row in rows if row["coverage90"] is not None]
    if not judged:
        return wanted_claim(claim, wanted, NOTHING, None)
    values = [row["coverage90"] for row in judged]
    outside = [row for row in judged if not low <= row["coverage90"] <= high]
    # show how little it is worth: windows of long horizons overlap
    exceptions = [
        f"{_where(row)}: {100 * row['coverage90']:.1f} % of {row['windows']} windows"
        for row in outside
    ]
    got = (
        f"{100 * min(values):.1f} to {100 * max(values):.1f} %; within in {len(judged) - len(outside)} of "
        f"{len(judged)}"
    )
    return wanted_claim(claim, wanted, got, not outside, exceptions)
