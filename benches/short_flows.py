"""Short flows: how well 1 MB of a download tells how long 5, 10 and 20 MB take.

usage: benches/short_flows.py [--world kernel|simulator] [--paths lte|traces|all] [--traces FOLDER]
                              [--seeds N] [--first-seed N] [--at-once N] [--keep FILE.jsonl] [-o TABLE.md]
       benches/short_flows.py --floor [--seeds N] [--first-seed N] [--traces FOLDER]

The downloads of `pathcast evaluate suite --network short-flows`, by any seeds, and with --traces others over
mahimahi's recordings of LTE, each from several moments of it; paths, runs and scores are the suite's
(python/pathcast/experiments/suite/short_flows.py). The first 1 MB as the client saw it, the round-trip time of probes
before it and the receive window go to `pathcast.estimate`; the rest of the download is the truth.
`--keep` keeps the downloads in a file, or takes them from there if the file is there. Runs that slipped
three times are left out and counted. `--floor` says how far apart runs over the very same path
are, and how much recorded links change.
"""

import argparse
import concurrent.futures
import gzip
import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.progress import track

import pathcast
from pathcast.experiments.suite.short_flows import (
    MEASURED_BYTES,
    MSS_BYTES,
    QUEUE,
    SIZES,
    download,
    groups,
    lte_like,
    measure,
    score,
)


def recorded(folder, seeds):
    """Mahimahi's recordings of LTE, from moments drawn at random, with 40 or 80 ms beside."""
    for file in sorted(folder.glob("*LTE*")):
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt") as lines:
            times = np.array([int(line) for line in lines])
        length = int(times[-1])
        for seed in seeds:
            rng = random.Random(f"{file.name} {seed}")
            start, rtt = rng.randrange(length), rng.choice((40, 80))
            turned = np.sort((times - start - 1) % length + 1)
            if turned[-1] == 0:
                continue
            links = (
                "rate = { kind = 'mahimahi', file = 'lte.trace' }\n"
                f"delay = '{rtt / 2} ms'\nqueue = '{QUEUE}'\n"
                f"[links.lte.reverse]\nrate = '20 Mbit/s'\ndelay = '{rtt / 2} ms'\n"
            )
            # probes in the second before, each of which waits for an opportunity
            moments = [length - 200 * back for back in range(1, 6)]
            nexts = [int(turned[turned >= moment].min(initial=length)) for moment in moments]
            rtts = [rtt / 1e3 + (n - m) / 1e3 for n, m in zip(nexts, moments, strict=True)]
            name = f"{file.name.split('.')[0]} from {start / 1e3:.1f} s, {rtt} ms"
            opportunities = tuple(turned.tolist())
            yield download(name, "trace", links, rtts, None, seed, opportunities_ms=opportunities)


def run(job):
    """One download: what the client saw of the first 1 MB, and the truth; None if all tries slipped."""
    what, world = job
    for _ in range(3):
        _, _, row = measure(what, world)
        if row is not None:
            return row
    return None


def downloads(options):
    """All downloads that were asked for, from the file if it is there; and how many slipped."""
    if options.keep is not None and options.keep.exists():
        return [json.loads(line) for line in options.keep.read_text().splitlines()], 0
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    world = "emulator" if options.world == "kernel" else "simulator"
    jobs = []
    if options.paths in ("lte", "all"):
        jobs += list(lte_like(seeds))
    if options.paths in ("traces", "all"):
        if options.traces is None:
            sys.exit("--paths traces wants --traces FOLDER, with mahimahi's files")
        jobs += list(recorded(options.traces, seeds))
    if world == "emulator" and not pathcast.capabilities().can_emulate:
        sys.exit("the emulator cannot run here: " + "; ".join(pathcast.capabilities().reasons))
    rows = []
    with concurrent.futures.ProcessPoolExecutor(options.at_once) as pool:
        done = pool.map(run, ((job, world) for job in jobs))
        for row in track(done, "downloads", total=len(jobs), disable=not sys.stderr.isatty()):
            if row is not None:
                rows.append(row)
    if options.keep is not None:
        options.keep.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows, len(jobs) - len(rows)


def table(rows):
    """Mean errors in per cent at 5, 10 and 20 MB, medians, and how much of the truth is in 90 % bands."""
    began = time.perf_counter()
    scores = [score(row) for row in rows]
    took_ms = 1e3 * (time.perf_counter() - began) / (2 * len(rows))
    lines = [
        "| downloads | number | Pathcast, mean error % | median | in the 90 % band "
        "| only size and time | published | 1 MB's own |",
        "|---|---|---|---|---|---|---|---|",
    ]

    def of(chosen, model, average=np.mean):
        means = average([one.error_pct[model] for one in chosen], axis=0)
        return " / ".join(f"{mean:.1f}" for mean in means)

    for name, chosen in groups(scores):
        covered = np.mean([one.covered for one in chosen])
        lines.append(
            f"| {name} | {len(chosen)} | {of(chosen, 'pathcast')} "
            f"| {of(chosen, 'pathcast', np.median)} | {covered:.0%} | {of(chosen, 'blind')} "
            f"| {of(chosen, 'published')} | {of(chosen, 'alone')} |"
        )
    return [*lines, "", f"An estimate took {took_ms:.2f} ms on average."]


def floor(seeds, tries=8):
    """What losses at random leave open: paths whose packets are lost at a known rate, run again and again.

    Mean relative error in per cent of the best constant guess for each path, chosen afterwards among what
    its runs came to, so that it flatters: by loss rate.
    """
    found = {}
    for what in lte_like(seeds):
        if what.title.endswith("loss 0"):
            continue
        again = (replace(what, seed=1_000_000 + what.seed * tries + n) for n in range(tries))
        runs = [run((one, "simulator")) for one in again]
        rates = np.array([1 / np.array(one["truth_s"]) for one in runs if one is not None])
        guesses = np.abs(rates[:, None, :] / rates[None, :, :] - 1).mean(axis=1)
        found.setdefault(what.title.rsplit(", ", 1)[1], []).append(100 * guesses.min(axis=0))
    return {name: np.mean(errors, axis=0).round(1).tolist() for name, errors in found.items()}


def wandering(folder):
    """How far a recorded link's own rate over one second is from that of the following 4, 9 and 19 MB.

    Mean relative error in per cent, over all seconds with opportunities of each recording of LTE.
    """
    found = {}
    for file in sorted(folder.glob("*LTE*")):
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt") as lines:
            times = np.array([int(line) for line in lines])
        twice = np.concatenate((times, times + times[-1]))
        errors = []
        for second in range(1, int(times[-1]) // 1000):
            before, now = np.searchsorted(times, (1000 * (second - 1), 1000 * second))
            packets = [int((size - MEASURED_BYTES) / MSS_BYTES) for size in SIZES]
            ends = [now + count for count in packets]
            if now == before or ends[-1] >= len(twice):
                continue
            later = [
                count / (twice[end] - 1000 * second)
                for count, end in zip(packets, ends, strict=True)
            ]
            errors.append(np.abs((now - before) / 1000 / np.array(later) - 1))
        found[file.name.split(".")[0]] = (100 * np.mean(errors, axis=0)).round(1).tolist()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--world", choices=("kernel", "simulator"), default="kernel")
    parser.add_argument("--paths", choices=("lte", "traces", "all"), default="lte")
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--floor", action="store_true", help="what losses at random leave open")
    options = parser.parse_args()
    if options.floor:
        print(floor(range(options.first_seed, options.first_seed + options.seeds)))
        if options.traces is not None:
            print(wandering(options.traces))
        return
    rows, left_out = downloads(options)
    text = "\n".join(
        [
            *table(rows),
            "",
            f"{left_out} downloads slipped three times or did not end, and are left out."
            if left_out
            else "No download is left out.",
            "",
        ]
    )
    if options.output is not None:
        options.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
