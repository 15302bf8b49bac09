"""The tables and figures of section 5 as rows, side by side with the paper's numbers.

Each row is a mapping that `results.json` has as it is; docs/reference/suite.md lists the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from pathcast.experiments.suite import paper
from pathcast.experiments.suite.latency import ALL_SIZES, SIZE_RANGES, SIZES_BYTES, Transfers
from pathcast.experiments.suite.networks import CHANGES_S, WIRED
from pathcast.experiments.suite.scores import (
    ECON,
    HORIZONS_S,
    OURS,
    PROTOCOLS,
    SMALL_WINDOW_S,
    Pool,
    Scored,
    joined,
    reduction_pct,
)

Row = dict[str, Any]
T = TypeVar("T")
K = TypeVar("K")


def groups(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Items by their key, in the order in which keys come first."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def pool_row(pool: Pool) -> Row:
    """What every row of errors has: windows, medians, means, the best other, reductions, coverage."""
    summaries = pool.summaries()
    medians = {model: found.median if found else None for model, found in summaries.items()}
    means = {model: found.mean if found else None for model, found in summaries.items()}
    best, best_mean = pool.best_other(medians), pool.best_other(means)
    return {
        "windows": pool.windows,
        "median_error_pct": medians,
        "mean_error_pct": means,
        "coverage90": pool.coverage90(),
        "best_other": best and best[0],
        "best_other_median_pct": best and best[1],
        "best_other_by_mean": best_mean and best_mean[0],
        "best_other_mean_pct": best_mean and best_mean[1],
        "reduction_median_pct": reduction_pct(medians.get(OURS), best and best[1]),
        "reduction_mean_pct": reduction_pct(means.get(OURS), best_mean and best_mean[1]),
        "econ_reduction_median_pct": reduction_pct(medians.get(ECON), best and best[1]),
        "econ_reduction_mean_pct": reduction_pct(means.get(ECON), best_mean and best_mean[1]),
    }


def throughput(scored: Sequence[Scored]) -> list[Row]:
    """A row for each network, congestion control, protocol and horizon; `paper` where it has a number."""
    rows = []
    by = groups(scored, lambda one: (one.source.network, one.source.scheme))
    for (network, scheme), of_network in by.items():
        told = paper.THROUGHPUT.get((network, scheme))
        for protocol in PROTOCOLS:
            for horizon_s in HORIZONS_S:
                same = _same(of_network, protocol, horizon_s)
                if not same:
                    continue
                row: Row = {
                    "network": network,
                    "scheme": scheme,
                    "protocol": protocol,
                    "horizon_s": horizon_s,
                    **pool_row(Pool.of(same)),
                    "paper": None,
                }
                if told is not None and horizon_s == 1:
                    row["paper"] = told_row(told)
                rows.append(row)
    return rows


def told_row(told: paper.Throughput) -> Row:
    """The paper's numbers as `results.json` has them."""
    return {
        "where": told.where,
        "econ_median_pct": told.econ_median_pct,
        "best_other_median_pct": told.best_other_median_pct,
        "reduction_median_pct": told.median_reduction_pct,
        "reduction_mean_pct": told.mean_reduction_pct,
        "others_median_pct": dict(told.others_median_pct),
    }


def _same(scored: Sequence[Scored], protocol: str, horizon_s: float) -> list[Scored]:
    return [one for one in scored if one.protocol == protocol and one.horizon_s == horizon_s]


def horizons(throughput_rows: Sequence[Row]) -> list[Row]:
    """Means of the reductions over the four wired networks, by congestion control, protocol and horizon."""
    rows = []
    wired = [row for row in throughput_rows if row["network"] in WIRED]
    by = groups(wired, lambda row: (row["scheme"], row["protocol"], row["horizon_s"]))
    for (scheme, protocol, horizon_s), same in by.items():
        rows.append(
            {
                "scheme": scheme,
                "protocol": protocol,
                "horizon_s": horizon_s,
                "networks": [row["network"] for row in same],
                **{
                    key: _mean(row[key] for row in same)
                    for key in (
                        "reduction_median_pct",
                        "reduction_mean_pct",
                        "econ_reduction_median_pct",
                        "econ_reduction_mean_pct",
                    )
                },
                "paper_reduction_pct": paper.HORIZON_REDUCTION_PCT.get((scheme, horizon_s)),
            }
        )
    return rows


def sensitivity(small: Sequence[Scored], throughput_rows: Sequence[Row]) -> list[Row]:
    """Section 5.2: the next second with all models learning on 10 s alone, and by default.

    A row for each congestion control and network, and after those of a congestion control their means.

    Args:
        small: scores with the small window.
        throughput_rows: those of the default.

    """
    reductions = (
        "reduction_median_pct",
        "reduction_mean_pct",
        "econ_reduction_median_pct",
        "econ_reduction_mean_pct",
    )
    rows = []
    for scheme, of_scheme in groups(small, lambda one: one.source.scheme).items():
        found = []
        for network, same in groups(of_scheme, lambda one: one.source.network).items():
            default = [
                row
                for row in throughput_rows
                if (row["network"], row["scheme"], row["protocol"], row["horizon_s"])
                == (network, scheme, "paper", 1.0)
            ]
            found.append(
                {
                    "network": network,
                    "scheme": scheme,
                    "window_s": SMALL_WINDOW_S,
                    "networks": [network],
                    **pool_row(Pool.of(same)),
                    "default": {key: _mean(row[key] for row in default) for key in reductions},
                    "paper_reduction_pct": None,
                }
            )
        nothing = dict.fromkeys(found[0])
        mean = {
            "network": "mean",
            "scheme": scheme,
            "window_s": SMALL_WINDOW_S,
            "networks": [row["network"] for row in found],
            **{key: _mean(row[key] for row in found) for key in reductions},
            "default": {key: _mean(row["default"][key] for row in found) for key in reductions},
            "paper_reduction_pct": paper.SMALL_WINDOW_REDUCTION_PCT.get(scheme),
        }
        rows += [*found, nothing | mean]
    return rows


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def changing(scored: Sequence[Scored]) -> list[Row]:
    """Figure 7: a row for each interval after a change, by congestion control, protocol and horizon."""
    rows = []
    on_it = [one for one in scored if one.source.network == "changing"]
    by = groups(on_it, lambda one: (one.source.scheme, one.protocol, one.horizon_s))
    for (scheme, protocol, horizon_s), same in by.items():
        for from_s, to_s in pairwise(CHANGES_S):
            # a forecast counts only if it ends before the next change, which no model can know
            within = [
                one.where((one.time_s >= from_s) & (one.time_s + horizon_s <= to_s)) for one in same
            ]
            pool = Pool.of(within)
            if not pool.windows:
                continue
            errors = pool_row(pool)
            medians = errors["median_error_pct"]
            rows.append(
                {
                    "scheme": scheme,
                    "protocol": protocol,
                    "horizon_s": horizon_s,
                    "from_s": from_s,
                    "to_s": to_s,
                    **errors,
                    "reduction_against_all_pct": _mean(
                        reduction_pct(medians[OURS], value)
                        for model, value in medians.items()
                        if model in (*paper.HISTORY, *paper.FORMULAS)
                    ),
                }
            )
    return rows


def by_window(scored: Sequence[Scored]) -> list[Row]:
    """Section 5.2: the next second by the window at the moment of prediction, Northeast."""
    ranges = (("below 50", 0.0, 50.0), ("50 to 700", 50.0, 700.0), ("above 700", 700.0, np.inf))
    rows = []
    there = [one for one in scored if one.source.network == "northeast" and one.horizon_s == 1]
    for (scheme, protocol), same in groups(
        there, lambda one: (one.source.scheme, one.protocol)
    ).items():
        for name, above, to in ranges:
            pool = Pool.of([one.where((one.scwnd >= above) & (one.scwnd < to)) for one in same])
            if not pool.windows:
                continue
            told = paper.SCWND.get(name)
            rows.append(
                {
                    "scwnd_packets": name,
                    "scheme": scheme,
                    "protocol": protocol,
                    **pool_row(pool),
                    "paper": told
                    and {
                        "best_other": told[0],
                        "econ_median_pct": told[1],
                        "best_other_median_pct": list(told[2]),
                    },
                }
            )
    return rows


def by_connections(scored: Sequence[Scored]) -> list[Row]:
    """Section 5.2: the next second by the number of parallel connections, wired networks together."""
    rows = []
    there = [one for one in scored if one.source.network in WIRED and one.horizon_s == 1]
    by = groups(there, lambda one: (one.source.scheme, one.protocol, one.source.npc))
    for (scheme, protocol, npc), same in sorted(by.items()):
        rows.append(
            {
                "npc": npc,
                "scheme": scheme,
                "protocol": protocol,
                "networks": list(dict.fromkeys(one.source.network for one in same)),
                **pool_row(Pool.of(same)),
                "paper_reduction_pct": list(paper.NPC_REDUCTION_PCT),
            }
        )
    return rows


def latency(found: Sequence[Transfers]) -> list[Row]:
    """Table 2, figures 8 and 9: times of transfers by network and congestion control, all sizes and each range."""
    rows = []
    by = groups(found, lambda one: (one.source.network, one.source.scheme, one.protocol))
    for (network, scheme, protocol), same in by.items():
        for name, sizes in {ALL_SIZES: SIZES_BYTES, **SIZE_RANGES}.items():
            of_size = [one for one in same if one.size_bytes in sizes]
            if not of_size:
                continue
            in_band = np.concatenate([one.in_band for one in of_size])
            row = pool_row(
                Pool(scheme, protocol, joined([one.error_pct for one in of_size]), in_band)
            )
            told = _latency_told(network, scheme, name)
            head = {"network": network, "scheme": scheme, "protocol": protocol, "size": name}
            rows.append({**head, **row, "paper": told})
    return rows


def _latency_told(network: str, scheme: str, size: str) -> Row | None:
    if size == ALL_SIZES and scheme == "cubic" and network in paper.LATENCY:
        return told_row(paper.LATENCY[network])
    if (network, scheme) == ("southeast", "reno") and size in paper.LATENCY_BY_SIZE:
        econ, best = paper.LATENCY_BY_SIZE[size]
        return told_row(paper.Throughput("figure 8", econ, best))
    if (network, scheme, size) == ("wireless", "reno", ALL_SIZES):
        (econ, econ_mean), (best, best_mean) = paper.LATENCY_WIRELESS
        mean = 100 * (1 - econ_mean / best_mean)
        return told_row(paper.Throughput("figure 9", econ, best, mean))
    return None
