"""The simulator against the kernel's TCP on a grid of paths: goodput and 95th-percentile delay.

usage: benches/grid.py [--duration S] [--at-once N] [--kernel FILE.json] [-o TABLE.md]
                       [--seeds N] [--cell SCHEME,MBPS,RTT_MS,LOSS,QUEUE_BDP]...

Runs every cell in the emulator (root) and in the simulator with the same seed, which loses the same
packets of the sequence that each sends. `--kernel` keeps the kernel's half in a file, or takes it from
there if the file is there: it takes real time, N runs at once. `--cell` takes some cells only, `--seeds`
runs each with seeds 1 to N.
"""

import argparse
import concurrent.futures
import itertools
import json
import statistics
import sys
from pathlib import Path

from rich.progress import track

import pathcast

SCHEMES = ("reno", "cubic", "bbr")
RATES_MBPS = (12, 100)
RTTS_MS = (20, 60, 200)
LOSSES = (0, 1e-4, 1e-2)
QUEUES_BDP = (0.5, 2)
HEADING = """\
# The simulator against the kernel's TCP, cell by cell

Made by `benches/grid.py --duration 20 -o docs/simulator-grid.md`; [simulator.md](simulator.md) says
what it means.

"""


def cells():
    """Every scheme on every path, as text that names the cell and the path."""
    for scheme, rate, rtt, loss, queue in itertools.product(
        SCHEMES, RATES_MBPS, RTTS_MS, LOSSES, QUEUES_BDP
    ):
        path = f"rate = '{rate} Mbit/s'\ndelay = '{rtt / 2} ms'\nloss = {loss}\nqueue = '{queue} BDP'\n"
        yield (scheme, rate, rtt, loss, queue), path


def measures(report):
    """What is compared, and whether the run counts."""
    return {
        "goodput_bps": report.flows[0].goodput_bps,
        "p95_ms": report.one_way_delay_ms["p95"],
        "retransmits": report.flows[0].retransmits,
        "valid": report.valid,
        "because": list(report.invalid_because),
    }


def in_kernel(job):
    """One run in the emulator, again if it slipped."""
    (scheme, *_), path, duration_s, seed = job
    for _ in range(3):
        report, _ = pathcast.emulate(
            pathcast.Path.parse(path), [scheme], duration_s=duration_s, seed=seed
        )
        if report.valid:
            break
    return measures(report)


def in_simulator(cell, path, duration_s, seed):
    """One run in the simulator."""
    report, _ = pathcast.simulate(
        pathcast.Path.parse(path), [cell[0]], duration_s=duration_s, seed=seed, record=False
    )
    return measures(report)


def table(rows):
    """All cells, and what the issue of the comparison is."""
    lines = [
        "| scheme | Mbit/s | RTT ms | loss | queue BDP | goodput, kernel | simulator | difference "
        "| 95 % delay ms, kernel | simulator | difference | retransmits, kernel | simulator |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (scheme, rate, rtt, loss, queue), kernel, ours in rows:
        goodput = ours["goodput_bps"] / kernel["goodput_bps"] - 1
        delay = ours["p95_ms"] / kernel["p95_ms"] - 1
        lines.append(
            f"| {scheme} | {rate} | {rtt} | {loss:g} | {queue:g} | {kernel['goodput_bps'] / 1e6:.2f} "
            f"| {ours['goodput_bps'] / 1e6:.2f} | {goodput:+.1%} | {kernel['p95_ms']:.1f} "
            f"| {ours['p95_ms']:.1f} | {delay:+.1%} | {kernel['retransmits']} | {ours['retransmits']} |"
        )
    return lines


def means(rows):
    """The mean over seeds of each cell's differences."""
    lines = [
        "| scheme | Mbit/s | RTT ms | loss | queue BDP | seeds | goodput, mean difference "
        "| 95 % delay, mean difference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (scheme, rate, rtt, loss, queue), runs in itertools.groupby(rows, key=lambda row: row[0]):
        pairs = [(kernel, ours) for _, kernel, ours in runs]
        goodput, delay = (
            statistics.mean(ours[key] / kernel[key] - 1 for kernel, ours in pairs)
            for key in ("goodput_bps", "p95_ms")
        )
        lines.append(
            f"| {scheme} | {rate} | {rtt} | {loss:g} | {queue:g} | {len(pairs)} | {goodput:+.1%} "
            f"| {delay:+.1%} |"
        )
    return lines


def cell_of(text):
    """A cell as `--cell` names it."""
    scheme, rate, rtt, loss, queue = text.split(",")
    return scheme, int(rate), int(rtt), float(loss), float(queue)


def summary(rows):
    """Medians by scheme."""
    lines = [
        "| scheme | cells | median difference in goodput | in 95 % delay |",
        "|---|---|---|---|",
    ]
    for scheme in (*SCHEMES, "all"):
        chosen = [row for row in rows if scheme in (row[0][0], "all")]
        if not chosen:
            continue
        goodput = [abs(o["goodput_bps"] / k["goodput_bps"] - 1) for _, k, o in chosen]
        delay = [abs(o["p95_ms"] / k["p95_ms"] - 1) for _, k, o in chosen]
        lines.append(
            f"| {scheme} | {len(chosen)} | {statistics.median(goodput):.1%} "
            f"| {statistics.median(delay):.1%} |"
        )
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--duration", type=float, default=20.0)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--kernel", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cell", action="append", type=cell_of)
    options = parser.parse_args()
    jobs = [
        (cell, path, options.duration, seed)
        for cell, path in cells()
        if options.cell is None or cell in options.cell
        for seed in range(1, options.seeds + 1)
    ]
    if not jobs:
        sys.exit("no cell of the grid was named")
    if options.kernel is not None and options.kernel.exists():
        kernel = json.loads(options.kernel.read_text())
    else:
        if not pathcast.capabilities().can_emulate:
            sys.exit("the emulator cannot run here: " + "; ".join(pathcast.capabilities().reasons))
        with concurrent.futures.ProcessPoolExecutor(options.at_once) as pool:
            runs = pool.map(in_kernel, jobs)
            kernel = list(track(runs, "kernel", total=len(jobs), disable=not sys.stderr.isatty()))
        if options.kernel is not None:
            options.kernel.write_text(json.dumps(kernel))
    rows = [
        (cell, measured, in_simulator(cell, path, duration_s, seed))
        for (cell, path, duration_s, seed), measured in zip(jobs, kernel, strict=True)
    ]
    invalid = [row for row in rows if not row[1]["valid"]]
    rows = [row for row in rows if row[1]["valid"]]
    text = "\n".join(
        [
            *summary(rows),
            "",
            f"{len(invalid)} of the kernel's runs slipped three times and are left out."
            if invalid
            else "None of the kernel's runs slipped.",
            "",
            *(table(rows) if options.seeds == 1 else means(rows)),
            "",
        ]
    )
    if options.output is not None:
        options.output.write_text(HEADING + text)
    print(text)


if __name__ == "__main__":
    main()
