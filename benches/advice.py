"""Whether the first advice of `pathcast diagnose --advise` helps: flows of known limit, and all that was tried on them.

usage: .venv/bin/python benches/advice.py [--count 25] [--held-out] [--seeds 3] [-o FILE.json]

Simulates the flows of `pathcast evaluate limits`, 25 of each limit over random paths, and asks for advice from each
trace. Then each configuration that advice can name runs over the true path, with other seeds. The true path decides
what matters: goodput if any of them gains 10 %, else delay if any is 1.25 times as short, else nothing. An advice is
right if it gains at least half of the best possible there. "Always BBR" and "change nothing" are judged alike.
"""

import argparse
import json
import os
import statistics
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from rich.progress import track

import pathcast
from pathcast._advice import GOODPUT_KEPT, INITIAL_WINDOWS, SCHEMES, WORTH, WORTH_DELAY
from pathcast.experiments.limits.cells import Flow, flows

#: What a flow without advice has of the others' verdicts.
NO_BASELINES = {"always_bbr_right": False, "nothing_right": False}


def measured(flow: Flow, seeds: int, **keys):
    """Median goodput in bit/s, and 95th percentile of delay in ms, over the true path."""
    scenario = flow.scenario().replace_flow(0, **keys)
    goodputs, delays = [], []
    for seed in range(1, seeds + 1):
        report, _ = pathcast.simulate(
            scenario, duration_s=flow.duration_s, seed=flow.seed + 1000 * seed, record=False
        )
        goodputs.append(report.flows[0].goodput_bps)
        # the flow's own table is the first
        delay_ms = (
            report.groups[0]["one_way_delay_ms"] if report.groups else report.one_way_delay_ms
        )
        delays.append(delay_ms["p95"])
    return statistics.median(goodputs), statistics.median(delays)


def judge(flow: Flow, seeds: int):
    _, trace = pathcast.simulate(flow.scenario(), duration_s=flow.duration_s, seed=flow.seed)
    try:
        advice = pathcast.advise(trace)
    except pathcast.PathcastError as error:
        return {
            "name": flow.name,
            "limit": flow.limit,
            "failed": str(error),
            "right": False,
        } | NO_BASELINES
    own = measured(flow, seeds)
    by_keys = {(scheme, None): {"scheme": scheme} for scheme in SCHEMES if scheme != flow.scheme}
    by_keys |= {(flow.scheme, window): {"initial_window": window} for window in INITIAL_WINDOWS}
    gains = {}
    for which, keys in by_keys.items():
        goodput, delay = measured(flow, seeds, **keys)
        gains[which] = (
            goodput / own[0],
            own[1] / delay if goodput >= GOODPUT_KEPT * own[0] else 0.0,
        )
    # what the true path says is worth a change: goodput, else delay, else nothing
    best = [max(gain[metric] for gain in gains.values()) for metric in (0, 1)]
    metric = 0 if best[0] >= WORTH else 1 if best[1] >= WORTH_DELAY else None

    def right(which):
        if metric is None:
            return which is None
        gain = 1.0 if which is None else gains[which][metric]
        return gain > 1 and gain - 1 >= (best[metric] - 1) / 2

    which = advice.change and (advice.change.scheme, advice.change.initial_window)
    gain = which and gains[which][advice.by == "delay_p95_ms"]
    return {
        "name": flow.name, "limit": flow.limit, "text": advice.text, "by": advice.by, "gain": gain,
        "said": advice.gain and vars(advice.gain), "best": best, "right": right(which),
        "always_bbr_right": right(None if flow.scheme == "bbr" else ("bbr", None)), "nothing_right": right(None),
        "in_band": advice.gain and advice.gain.p5 <= gain <= advice.gain.p95,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=25, help="flows of each limit")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    cells = flows(held_out=options.held_out, count=options.count)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = list(
            track(pool.map(judge, cells, [options.seeds] * len(cells)), "judged", len(cells))
        )
    if options.output:
        with open(options.output, "w") as file:
            json.dump(found, file, indent=1)
    print(
        "| limit | flows | advice right | always BBR | change nothing | changes advised | median gain | in the interval |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for limit in [*dict.fromkeys(one["limit"] for one in found), "all"]:
        here = [one for one in found if limit in (one["limit"], "all")]
        changed = [one for one in here if one.get("by")]
        gain = f"{statistics.median(one['gain'] for one in changed):.2f}" if changed else ""
        banded = [one for one in changed if one["in_band"] is not None]
        inside = f"{sum(one['in_band'] for one in banded)} of {len(banded)}" if banded else ""
        right = sum(one["right"] for one in here)
        always, nothing = (sum(one[name] for one in here) for name in NO_BASELINES)
        share = f"{right} ({right / len(here):.0%})"
        print(
            f"| {limit} | {len(here)} | {share} | {always} | {nothing} | {len(changed)} | {gain} | {inside} |"
        )
    failed = Counter(one["failed"] for one in found if "failed" in one)
    for why, count in failed.items():
        print(f"{count} without advice: {why}")


if __name__ == "__main__":
    main()
