"""Whether the first advice of `pathcast diagnose --advise` helps: flows of known limit, and all that was tried on them.

usage: .venv/bin/python benches/advice.py [--count 25] [--held-out] [--seeds 3] [--emulate FOLDER [--at-once 6]] [-o FILE.json]

Runs the flows of `pathcast evaluate limits`, 25 of each limit over random paths, and asks for advice from each trace. Then
each configuration that advice can name runs over the true path, with other seeds. The true path decides what matters: goodput
if any of them gains 10 %, else delay if any is 1.25 times as short, else nothing. An advice is right if it gains at least half
of the best possible there. "Always BBR" and "change nothing" are judged alike.

All runs are simulated, or with `--emulate` the kernel's own in the emulator (as root). Those are kept in FOLDER and not repeated;
an invalid one is tried three times, and without it the flow is left out.
"""

import argparse
import json
import os
import statistics
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

from rich.progress import track

import pathcast
from pathcast._advice import GOODPUT_KEPT, INITIAL_WINDOWS, SCHEMES, WORTH, WORTH_DELAY
from pathcast.experiments.limits.cells import Flow, flows

#: What a flow without advice has of the others' verdicts.
NO_BASELINES = {"always_bbr_right": False, "nothing_right": False}
#: Invalid runs of the emulator are tried so often.
ATTEMPTS = 3
#: Half as many of faster paths are emulated together.
FAST_BPS = 60e6


def alternatives(flow: Flow):
    """Keys of the flow by what advice can name: scheme and initial window."""
    found = {(scheme, None): {"scheme": scheme} for scheme in SCHEMES if scheme != flow.scheme}
    return found | {(flow.scheme, window): {"initial_window": window} for window in INITIAL_WINDOWS}


def outcome_of(report):
    """Goodput in bit/s, and 95th percentile of delay in ms, of a report as JSON has it."""
    # the flow's own table is the first
    delay_ms = (report.get("groups") or [report])[0]["one_way_delay_ms"]
    return report["flows"][0]["goodput_bps"], delay_ms["p95"]


def stem_of(flow: Flow, keys, seed: int, folder: Path):
    own = "-".join(str(value) for value in keys.values()) or "own"
    return folder / f"{flow.name}-{own}-{seed}"


def emulate(flow: Flow, keys, seed: int, folder: Path):
    """Run the kernel's flow, unless its report is there. Seed 0 is the run whose trace advice sees."""
    stem = stem_of(flow, keys, seed, folder)
    if stem.with_suffix(".json").exists():
        return
    why = []
    for attempt in range(ATTEMPTS):
        report, trace = pathcast.emulate(
            flow.scenario().replace_flow(0, **keys),
            duration_s=flow.duration_s,
            seed=flow.seed + 1000 * seed + 100_000 * attempt,
        )
        # a receiver's window that grows more slowly than the sender's is what such an advice gets
        why = [one for one in report.invalid_because if "the receiver's window" not in one]
        if not why:
            if seed == 0:
                trace.write(stem.with_suffix(".parquet"))
            stem.with_suffix(".json").write_text(json.dumps(report.to_dict()))
            return
    print(f"{stem.name}: {why}", file=sys.stderr, flush=True)


def emulate_all(cells, seeds: int, folder: Path, at_once: int):
    """Run all that is to be judged."""
    folder.mkdir(exist_ok=True)
    jobs = [(flow, {}, 0) for flow in cells]
    jobs += [
        (flow, keys, seed)
        for flow in cells
        for keys in ({}, *alternatives(flow).values())
        for seed in range(1, seeds + 1)
    ]
    for fast in (False, True):
        some = [job for job in jobs if (job[0].rate_bps >= FAST_BPS) == fast]
        with ThreadPoolExecutor(-(-at_once // 2) if fast else at_once) as pool:
            done = pool.map(lambda job: emulate(*job, folder), some)
            list(track(done, "fast paths" if fast else "emulated", len(some)))


def measured(flow: Flow, seeds: int, folder: Path | None, **keys):
    """Median goodput in bit/s, and 95th percentile of delay in ms, over the true path; None without a valid run."""
    found = []
    for seed in range(1, seeds + 1):
        if folder is not None:
            file = stem_of(flow, keys, seed, folder).with_suffix(".json")
            if file.exists():
                found.append(outcome_of(json.loads(file.read_text())))
            continue
        report, _ = pathcast.simulate(
            flow.scenario().replace_flow(0, **keys),
            duration_s=flow.duration_s,
            seed=flow.seed + 1000 * seed,
            record=False,
        )
        found.append(outcome_of(report.to_dict()))
    return tuple(map(statistics.median, zip(*found, strict=True))) if found else None


def trace_of(flow: Flow, folder: Path | None):
    """The trace that advice sees; None if the emulator had no valid run."""
    if folder is None:
        return pathcast.simulate(flow.scenario(), duration_s=flow.duration_s, seed=flow.seed)[1]
    file = stem_of(flow, {}, 0, folder).with_suffix(".parquet")
    return pathcast.read_trace(file) if file.exists() else None


def judge(flow: Flow, seeds: int, folder: Path | None):
    """The verdict on one flow; None if runs are missing."""
    trace, own = trace_of(flow, folder), measured(flow, seeds, folder)
    tried = {
        which: measured(flow, seeds, folder, **keys) for which, keys in alternatives(flow).items()
    }
    if trace is None or own is None or None in tried.values():
        return None
    try:
        advice = pathcast.advise(trace)
    except pathcast.PathcastError as error:
        return {
            "name": flow.name,
            "limit": flow.limit,
            "failed": str(error),
            "right": False,
        } | NO_BASELINES
    gains = {
        which: (goodput / own[0], own[1] / delay if goodput >= GOODPUT_KEPT * own[0] else 0.0)
        for which, (goodput, delay) in tried.items()
    }
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
    parser.add_argument("--emulate", type=Path, metavar="FOLDER")
    parser.add_argument("--at-once", type=int, default=6, help="emulations together")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    cells = flows(held_out=options.held_out, count=options.count)
    if options.emulate is not None:
        emulate_all(cells, options.seeds, options.emulate, options.at_once)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        each = [[one] * len(cells) for one in (options.seeds, options.emulate)]
        found = list(track(pool.map(judge, cells, *each), "judged", len(cells)))
    print(f"{found.count(None)} of {len(found)} flows left out, without valid runs")
    found = [one for one in found if one is not None]
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
