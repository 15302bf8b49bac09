"""Short flows: how well 1 MB of a download tells how long 5, 10 and 20 MB take.

usage: benches/short_flows.py [--world kernel|simulator] [--paths lte|traces|all] [--traces FOLDER]
                              [--seeds N] [--first-seed N] [--at-once N] [--keep FILE.jsonl] [-o TABLE.md]
       benches/short_flows.py --floor [--seeds N] [--first-seed N] [--traces FOLDER]

Downloads 20 MB by CUBIC over paths like those of LTE and, with --traces, over mahimahi's recordings of
LTE, each from several moments of it. The first 1 MB as the client saw it, the round-trip time of probes
before it and the receive window go to `pathcast.estimate`; the rest of the download is the truth. As in
De Silva et al. 2016 the clock begins with the first byte, and the error is |estimate / truth - 1|.
`--keep` keeps the downloads in a file, or takes them from there if the file is there. Runs that slipped
three times are left out and counted. `--floor` says how far apart runs over the very same path
are, and how much recorded links change.
"""

import argparse
import concurrent.futures
import gzip
import itertools
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
from rich.progress import track

import pathcast

SIZES = (5e6, 10e6, 20e6)
MEASURED_BYTES = 1e6
DOWNLOAD_BYTES = 20e6
MSS_BYTES = 1448
RATES_MBPS = (3, 6, 10, 16, 25, 40, 60)
RTTS_MS = (40, 80, 140, 200)
#: The radio's scheduler: none, or up to so many ms that each packet waits.
JITTERS_MS = (0, 8)
LOSSES = (0, 1e-4, 1e-3)
RECEIVE_WINDOWS = (None, 1_048_576)
#: How long a download may last, in seconds.
PATIENCE_S = 150
#: Bytes that a deep LTE buffer holds.
QUEUE = "4 MB"


@dataclass(frozen=True)
class Download:
    """What is run: a scenario of one download, and what is known of its path."""

    name: str
    kind: str
    toml: str
    rtts_s: tuple[float, ...]
    receive_window_bytes: int | None
    seed: int
    #: mahimahi's opportunities, in milliseconds, which the scenario has as lte.trace
    opportunities_ms: tuple[int, ...] = ()


def download(name, kind, links, rtts_s, receive_window, seed, opportunities_ms=()):
    """One flow of CUBIC over links in the words of a path file."""
    window = "" if receive_window is None else f"receive_window = '{receive_window} B'\n"
    toml = (
        f"[links.lte]\n{links}\n[[flows]]\nscheme = 'cubic'\n{window}"
        f"workload = {{ kind = 'transfer', size = '{DOWNLOAD_BYTES / 1e6:g} MB' }}\n"
    )
    return Download(name, kind, toml, tuple(rtts_s), receive_window, seed, opportunities_ms)


def lte_like(seeds):
    """Constant rates behind deep buffers, with and without the radio's jitter and random loss.

    Every rate, round-trip time and loss; jitter and receive window take turns.
    """
    for seed in seeds:
        cells = itertools.product(RATES_MBPS, RTTS_MS, LOSSES)
        for number, (rate, rtt, loss) in enumerate(cells):
            jitter = JITTERS_MS[(number + seed) % 2]
            window = RECEIVE_WINDOWS[(number // 2 + seed) % 2]
            rng = random.Random(f"{seed} {number}")
            # no two alike: rate and RTT within 15 % of the cell's
            rate *= 1 + rng.uniform(-0.15, 0.15)
            rtt *= 1 + rng.uniform(-0.15, 0.15)
            one_way = f"{rtt / 2:.2f} ms"
            delay = f"'{one_way}'"
            if jitter:
                delay = f"{{ kind = 'jitter', base = '{one_way}', jitter = '{jitter} ms' }}"
            links = (
                f"rate = '{rate:.2f} Mbit/s'\ndelay = {delay}\nqueue = '{QUEUE}'\nloss = {loss}\n"
                f"[links.lte.reverse]\nrate = '20 Mbit/s'\ndelay = '{one_way}'\n"
            )
            # probes of 64 bytes
            rtts = [
                rtt / 1e3 + rng.uniform(0, jitter) / 1e3 + 64 * 8 / (rate * 1e6) for _ in range(5)
            ]
            name = f"{rate:.1f} Mbit/s, {rtt:.0f} ms, jitter {jitter} ms, loss {loss:g}"
            yield download(name, "lte", links, rtts, window, 1000 * seed + number)


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
            yield download(name, "trace", links, rtts, None, seed, tuple(turned.tolist()))


def arrivals(packets_file):
    """Seconds and bytes in order as the client's application gets them, time 0 at the first byte.

    Also the bytes that had arrived when each packet was lost, by queue or wire.
    """
    table = pyarrow.parquet.read_table(packets_file)
    column = {name: table[name].to_numpy() for name in table.column_names}
    data = (column["direction"] == 0) & (column["size_bytes"] > 100) & (column["time_s"] >= 0)
    arrived = data & (column["event"] == 1)
    seq = column["seq"][arrived].astype(np.int64)
    at_s = column["time_s"][arrived]
    payload = column["size_bytes"][arrived].astype(np.int64) - 52
    order = np.lexsort((at_s, seq))
    seq, at_s, payload = seq[order], at_s[order], payload[order]
    first = np.concatenate(([True], seq[1:] != seq[:-1]))
    seq, at_s, payload = seq[first], at_s[first], payload[first]
    in_order = np.maximum.accumulate(at_s)
    # the simulator numbers packets, the kernel bytes; all but a few packets are full
    cumulative = np.cumsum(payload) if seq[1] == 1 else np.maximum.accumulate(seq + payload)
    # one entry for each moment
    last = np.concatenate((in_order[1:] != in_order[:-1], [True]))
    lost = column["time_s"][data & np.isin(column["event"], (2, 3))]
    return in_order[last] - in_order[0], cumulative[last], np.sort(lost) - in_order[0]


def run(job):
    """One download: what the client saw of the first 1 MB, and the truth; None if all tries slipped."""
    what, world = job
    with tempfile.TemporaryDirectory() as folder:
        packets, trace_file = Path(folder, "packets.parquet"), Path(folder, "trace.parquet")
        file = Path(folder, "scenario.toml")
        file.write_text(what.toml)
        Path(folder, "lte.trace").write_text("".join(f"{ms}\n" for ms in what.opportunities_ms))
        scenario = pathcast.Scenario.load(file)
        for _ in range(3):
            if world == "kernel":
                report, trace = pathcast.emulate(
                    scenario, duration_s=PATIENCE_S, seed=what.seed, packets_file=packets
                )
            else:
                report, _ = pathcast.simulate(
                    scenario,
                    duration_s=PATIENCE_S,
                    seed=what.seed,
                    packets_file=packets,
                    trace_file=trace_file,
                )
                trace = pathcast.read_trace(trace_file)
            if report.valid:
                break
        if not report.valid or report.flows[0].completed_s is None:
            return None
        time_s, received, lost = arrivals(packets)
        columns = trace.columns
    measured = int(np.searchsorted(received, MEASURED_BYTES)) + 1
    end = float(time_s[np.searchsorted(received, DOWNLOAD_BYTES - 1)])
    acked = int(np.searchsorted(columns["snd_una_bytes"], MEASURED_BYTES))
    return {
        "name": what.name,
        "kind": what.kind,
        "world": world,
        "seed": what.seed,
        "rtts_s": what.rtts_s,
        "receive_window_bytes": what.receive_window_bytes,
        "time_s": time_s[:measured].round(6).tolist(),
        "received_bytes": received[:measured].tolist(),
        "truth_s": [float(time_s[np.searchsorted(received, min(s, received[-1]))]) for s in SIZES],
        "losses": int((lost < end).sum()),
        "losses_in_measured": int((lost < time_s[measured - 1]).sum()),
        "slow_start": bool(np.isnan(columns["ssthresh_packets"][acked])),
    }


def downloads(options):
    """All downloads that were asked for, from the file if it is there; and how many slipped."""
    if options.keep is not None and options.keep.exists():
        return [json.loads(line) for line in options.keep.read_text().splitlines()], 0
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    jobs = []
    if options.paths in ("lte", "all"):
        jobs += list(lte_like(seeds))
    if options.paths in ("traces", "all"):
        if options.traces is None:
            sys.exit("--paths traces wants --traces FOLDER, with mahimahi's files")
        jobs += list(recorded(options.traces, seeds))
    if options.world == "kernel" and not pathcast.capabilities().can_emulate:
        sys.exit("the emulator cannot run here: " + "; ".join(pathcast.capabilities().reasons))
    rows = []
    with concurrent.futures.ProcessPoolExecutor(options.at_once) as pool:
        done = pool.map(run, ((job, options.world) for job in jobs))
        for row in track(done, "downloads", total=len(jobs), disable=not sys.stderr.isatty()):
            if row is not None:
                rows.append(row)
    if options.keep is not None:
        options.keep.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows, len(jobs) - len(rows)


def estimates(row):
    """Relative errors at each size: Pathcast, published, the 1 MB's own throughput; and what is in the band."""
    time_s, received = np.array(row["time_s"]), np.array(row["received_bytes"], dtype=float)
    options = {"mss_bytes": MSS_BYTES, "receive_window_bytes": row["receive_window_bytes"]}
    known = received[-1], time_s[-1], row["rtts_s"], SIZES
    found = pathcast.estimate(*known, timeline=(time_s, received), **options)
    blind = pathcast.estimate(*known, **options)
    truth = 8 * np.array(SIZES) / np.array(row["truth_s"])
    alone = 8 * received[-1] / time_s[-1]

    def errors(values):
        return np.abs(np.array(values) / truth - 1)

    bands = np.array([one.throughput_quantiles_bps for one in found.sizes])
    return {
        "pathcast": errors([one.throughput_bps for one in found.sizes]),
        "blind": errors([one.throughput_bps for one in blind.sizes]),
        "published": errors([one.published_throughput_bps for one in found.sizes]),
        "alone": errors(alone),
        "covered": (bands[:, 0] <= truth) & (truth <= bands[:, -1]),
        "fast": truth[-1] > 13e6,
    }


def groups(rows, scores):
    """Names of groups and the scores in them."""
    masks = {
        "no loss": [row["losses"] == 0 for row in rows],
        "no loss, radio's jitter": [
            row["losses"] == 0 and "jitter 8" in row["name"] for row in rows
        ],
        "no loss, 1 MB was slow start": [row["losses"] == 0 and row["slow_start"] for row in rows],
        "no loss, above 13 Mbit/s": [
            row["losses"] == 0 and bool(score["fast"])
            for row, score in zip(rows, scores, strict=True)
        ],
        "loss": [row["losses"] > 0 for row in rows],
        "loss, 1 packet in 10,000": [row["name"].endswith("loss 0.0001") for row in rows],
        "loss, 1 packet in 1,000": [row["name"].endswith("loss 0.001") for row in rows],
        "loss within the 1 MB": [row["losses_in_measured"] > 0 for row in rows],
        "all": [True for _ in rows],
    }
    for name, mask in masks.items():
        chosen = [score for score, wanted in zip(scores, mask, strict=True) if wanted]
        if chosen:
            yield name, chosen


def table(rows):
    """Mean errors in per cent at 5, 10 and 20 MB, medians, and how much of the truth is in 90 % bands."""
    began = time.perf_counter()
    scores = [estimates(row) for row in rows]
    took_ms = 1e3 * (time.perf_counter() - began) / (2 * len(rows))
    lines = [
        "| downloads | number | Pathcast, mean error % | median | in the 90 % band "
        "| only size and time | published | 1 MB's own |",
        "|---|---|---|---|---|---|---|---|",
    ]

    def of(chosen, key, average=np.mean):
        means = average([100 * score[key] for score in chosen], axis=0)
        return " / ".join(f"{mean:.1f}" for mean in means)

    for name, chosen in groups(rows, scores):
        covered = np.mean([score["covered"] for score in chosen])
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
        if what.name.endswith("loss 0"):
            continue
        again = (replace(what, seed=1_000_000 + what.seed * tries + n) for n in range(tries))
        runs = [run((one, "simulator")) for one in again]
        rates = np.array([1 / np.array(one["truth_s"]) for one in runs if one is not None])
        guesses = np.abs(rates[:, None, :] / rates[None, :, :] - 1).mean(axis=1)
        found.setdefault(what.name.rsplit(", ", 1)[1], []).append(100 * guesses.min(axis=0))
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
