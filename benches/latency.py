"""Forecasts of how long new connections take, against the simulator or the kernel's TCP.

usage: benches/latency.py [--world simulator|kernel] [--seeds N] [--paths tuning|held-out]
                          [--longest SECONDS] [-o RUNS.json]
       benches/latency.py --traces FILE...

Each run is one transfer over a connection that is open and has sent nothing; its time is that from the
write to the arrival of the last byte. For each path and size: the error of the forecast's median against
the median over the seeds, and the part of the runs in the 5-95 % band. Cardwell's model, the paper's
slow-start model (equation 4), PFTK and the link's rate are judged alike. In the kernel (root) transfers
whose 95 % quantile is above `--longest` are left out, and runs that slipped are made again, thrice at most.

With `--traces`: how well the time of a running flow's next bytes is forecast, by range of sizes.
"""

import argparse
import itertools
import json
import statistics
from pathlib import Path

import numpy as np
from rich.progress import track

import pathcast
from pathcast._latency import QUANTILE_LEVELS

SIZES_BYTES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
SCHEMES = ("cubic", "reno")
#: Rates (Mbit/s), round-trip times (ms), losses, queues (BDP).
PATHS = {
    "tuning": ((10, 50, 100), (20, 80, 200), (0, 1e-4, 1e-3, 1e-2), (1,)),
    "held-out": ((15, 80), (35, 150), (0, 3e-4, 5e-3), (0.5, 2)),
}
MODELS = ("pathcast", "cardwell", "econ", "pftk", "link")
#: What a band may be missed by, per cent of the time: a run without losses has no spread.
TOLERANCE = 0.02


def cells(paths):
    """Every path and scheme, with what is forecast for each size."""
    for rate, rtt, loss, queue in itertools.product(*PATHS[paths]):
        text = f"rate = '{rate} Mbit/s'\ndelay = '{rtt / 2} ms'\nloss = {loss}\nqueue = '{queue} BDP'\n"
        path = pathcast.Path.parse(text)
        for scheme in SCHEMES:
            times = pathcast.latency(
                path, SIZES_BYTES, cc=scheme, handshake_round_trips=0, until="arrived"
            )
            for size, time in zip(SIZES_BYTES, times, strict=True):
                name = {"rate_mbps": rate, "rtt_ms": rtt, "loss": loss, "queue_bdp": queue}
                yield name | {"scheme": scheme, "size_bytes": size}, path, time


def scenario(cell, path):
    """One transfer."""
    workload = f"{{ kind = 'transfer', size = '{cell['size_bytes']} B' }}"
    return pathcast.Scenario.over(path, (cell["scheme"],), workload)


def simulated(jobs, seeds):
    """Seconds of each run, by cell; a run that did not end in time counts as infinite."""
    specs = [
        pathcast.Simulation(
            scenario(cell, path), None, 60 + 20 * time.quantiles_s[-1], 1 + number * seeds + seed
        )
        # the same seed loses the same packets on all paths: each run has its own
        for number, (cell, path, time) in enumerate(jobs)
        for seed in range(seeds)
    ]
    results = pathcast.simulate_many(specs)
    took = np.asarray(results.column("latency_p50_ms"), float) / 1e3
    return np.nan_to_num(took, nan=np.inf).reshape(len(jobs), seeds).tolist()


def emulated(jobs, seeds):
    """Seconds of each valid run, by cell."""
    took = []
    for number, (cell, path, time) in enumerate(track(jobs, "emulating")):
        runs = []
        for seed in range(1 + number * seeds, 1 + (number + 1) * seeds):
            for _ in range(3):
                report, _ = pathcast.emulate(
                    scenario(cell, path), duration_s=5 + 5 * time.quantiles_s[-1], seed=seed
                )
                messages = report.flows[0].messages
                if report.valid and messages is not None and messages.delivered:
                    runs.append(messages.latency_ms["p50"] / 1e3)
                    break
        took.append(runs)
    return took


def judged(cell, time, runs):
    """One row: errors of all models against the median run, and how many runs the band holds."""
    truth = statistics.median(runs)
    # all forecasts end with the last byte's arrival, and all know the path's rate, delay and loss
    others = {name.removesuffix("_s"): value for name, value in time.literature.items()}
    said = {"pathcast": time.median_s} | others
    assert min(said.values()) > 0, (cell, said)
    low, high = time.quantiles_s[0] * (1 - TOLERANCE), time.quantiles_s[-1] * (1 + TOLERANCE)
    return cell | {
        "truth_s": truth,
        "runs_s": runs,
        "quantiles_s": list(time.quantiles_s),
        "error_pct": {model: 100 * abs(said[model] / truth - 1) for model in MODELS},
        "inside": sum(low <= run <= high for run in runs) / len(runs),
        "above": sum(run > high for run in runs) / len(runs),
    }


def table(rows, by):
    """Median errors and coverage, grouped."""
    print(f"| {by} | cells | " + " | ".join(MODELS) + " | in the 90 % band | above it |")
    print("|---|---|" + "---|" * (len(MODELS) + 2))
    for value in [*dict.fromkeys(row[by] for row in rows), None]:
        group = [row for row in rows if value is None or row[by] == value]
        errors = [statistics.median(row["error_pct"][model] for row in group) for model in MODELS]
        inside = statistics.mean(row["inside"] for row in group)
        above = statistics.mean(row["above"] for row in group)
        name = "all" if value is None else f"{value:,}" if isinstance(value, int) else value
        print(
            f"| {name} | {len(group)} | "
            + " | ".join(f"{error:.1f}" for error in errors)
            + f" | {inside:.3f} | {above:.3f} |"
        )
    print()


def evaluate(files):
    """Each trace's table: a row a range of sizes, a column a model."""
    for file in files:
        # the authors' file names say the congestion control
        cc = next((name for name in SCHEMES if file.name.startswith(name)), None)
        result = pathcast.evaluate_latency(pathcast.read_trace(file), cc=cc)
        models = list(dict.fromkeys(score.model for score in result.ranges))
        print(f"{file.name}: {result.cc}, {result.rtt_s:.3f} s, sizes by {result.truth}\n")
        print("| sizes | transfers | " + " | ".join(models) + " | coverage: pathcast | state |")
        print("|---|---|" + "---|" * (len(models) + 2))
        for start in range(0, len(result.ranges), len(models)):
            scores = result.ranges[start : start + len(models)]
            first = scores[0]
            to = "" if first.below_bytes is None else f" to {first.below_bytes / 1e6:.0f} MB"
            cells = [
                "-" if s.median_error_pct is None else f"{s.median_error_pct:.1f}" for s in scores
            ]
            cells += ["-" if s.coverage90 is None else f"{s.coverage90:.3f}" for s in scores[:2]]
            print(
                f"| {first.size_bytes / 1e6:.0f}{to or ' MB and more'} | {first.transfers} | ",
                end="",
            )
            print(" | ".join(cells) + " |")
        print()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--world", choices=("simulator", "kernel"), default="simulator")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--paths", choices=PATHS, default="held-out")
    parser.add_argument("--longest", type=float, default=10.0)
    parser.add_argument("--sizes", type=int, nargs="*", help="bytes; default: 1 kB to 100 MB")
    parser.add_argument("--traces", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.traces:
        evaluate(options.traces)
        return
    jobs = [
        job
        for job in cells(options.paths)
        if not options.sizes or job[0]["size_bytes"] in options.sizes
    ]
    if options.world == "kernel":
        jobs = [job for job in jobs if job[2].quantiles_s[-1] <= options.longest]
        took = emulated(jobs, options.seeds)
    else:
        took = simulated(jobs, options.seeds)
    rows = [
        judged(cell, time, runs) for (cell, _, time), runs in zip(jobs, took, strict=True) if runs
    ]
    made = sum(len(row["runs_s"]) for row in rows)
    print(f"{made} of {len(jobs) * options.seeds} runs, levels {QUANTILE_LEVELS}\n")
    for by in ("size_bytes", "loss", "scheme"):
        table(rows, by)
    if options.output is not None:
        options.output.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
