"""From one CUBIC flow of the kernel to what others get: forecasts beside the kernel's own runs.

usage: .venv/bin/python benches/what_if.py FOLDER [--paths 40] [--at-once 6] [--compare]

Draws paths at random (0.5 to 500 Mbit/s, 10 to 300 ms, queues of 0.2 to 8 BDP, in 6 of 10 random loss of 1e-5 to
2e-2), runs flows over each in the emulator (as root), calibrates with the CUBIC flow alone, and compares. Runs are kept
in FOLDER and not repeated. An invalid run is tried three times and then left out.
"""

import argparse
import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import pathcast

TRANSFER = "{ kind = 'transfer', size = '5 MB', count = 1 }"
ALTERNATIVES = {
    "cubic": pathcast.Alternative("cubic"),
    "bbr": pathcast.Alternative("bbr"),
    "reno": pathcast.Alternative("reno"),
    "2 x cubic": pathcast.Alternative("cubic", flows=2),
    "5 MB, window 10": pathcast.Alternative("cubic", TRANSFER, 10),
    "5 MB, window 40": pathcast.Alternative("cubic", TRANSFER, 40),
}
SECONDS = 30
#: Faster paths run two at a time.
FAST_BPS = 100e6


def cases(count):
    """Parameters of the paths, in the order of drawing."""
    generator = np.random.default_rng(2026)

    def draw(low, high):
        return math.exp(generator.uniform(math.log(low), math.log(high)))

    for number in range(count):
        rate, rtt, queue = draw(0.5e6, 500e6), draw(0.01, 0.3), draw(0.2, 8)
        loss = 0.0 if generator.random() < 0.4 else draw(1e-5, 2e-2)
        queue_bytes = max(queue * rtt * rate / 8, 6000)
        yield {
            "number": number,
            "rate_bps": rate,
            "rtt_s": rtt,
            "queue_bytes": queue_bytes,
            "loss": loss,
        }


def path_of(case):
    return pathcast.Path.parse(
        f"rate = '{case['rate_bps']:.0f} bit/s'\ndelay = '{case['rtt_s'] / 2 * 1e9:.0f} ns'\n"
        f"queue = '{case['queue_bytes']:.0f} B'\nloss = {case['loss']:.9f}\n"
    )


def stem_of(case, name, folder):
    return folder / f"{case['number']:02}-{name.replace(' ', '').replace(',', '-')}"


def kept(case, name, folder):
    """The report of the kernel's run; None if none was valid."""
    report = stem_of(case, name, folder).with_suffix(".json")
    return json.loads(report.read_text()) if report.exists() else None


def run(case, name, folder):
    """Run the kernel's flows, if their report is not there."""
    stem = stem_of(case, name, folder)
    report = stem.with_suffix(".json")
    if report.exists():
        return
    scenario = ALTERNATIVES[name].scenario(path_of(case))
    for attempt in range(3):
        try:
            found, trace = pathcast.emulate(
                scenario, duration_s=SECONDS if "MB" not in name else 120, seed=100 + attempt
            )
        except pathcast.PathcastError as error:
            print(f"{stem.name}: {error}", flush=True)
            return
        if found.valid:
            if name == "cubic":
                trace.write(stem.with_suffix(".parquet"))
            report.write_text(json.dumps(found.to_dict()))
            return
    print(f"{stem.name}: {found.invalid_because}", flush=True)


def run_all(drawn, folder, at_once):
    fast = [case for case in drawn if case["rate_bps"] >= FAST_BPS]
    slow = [case for case in drawn if case["rate_bps"] < FAST_BPS]
    for name in ALTERNATIVES:
        for some, threads in ((slow, at_once), (fast, 2)):
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda case, name=name: run(case, name, folder), some))


def compare(drawn, folder):
    """Rows of parameters and of forecasts beside the truth."""
    parameters, forecasts = [], []
    for case in drawn:
        reports = {name: kept(case, name, folder) for name in ALTERNATIVES}
        if reports["cubic"] is None:
            continue
        calibration = pathcast.calibrate(
            pathcast.read_trace(folder / f"{case['number']:02}-cubic.parquet")
        )
        truth = case | {"queue_s": case["queue_bytes"] * 8 / case["rate_bps"]}
        for name in ("rate_bps", "rtt_s", "queue_s", "loss"):
            if truth[name] > 0:
                one = calibration.parameters[name]
                parameters.append(
                    (
                        name,
                        one.median / truth[name] - 1,
                        one.p5 <= truth[name] <= one.p95,
                        one.identified,
                    )
                )
        there = [name for name, report in reports.items() if report]
        found = pathcast.what_if(calibration, [ALTERNATIVES[name] for name in there], draws=40)
        own_bps = reports["cubic"]["flows"][0]["goodput_bps"]
        for name, outcome in zip(there, found.outcomes, strict=True):
            real = reports[name]
            forecasts.append(
                {
                    "path": case["number"],
                    "name": name,
                    "goodput": (
                        sum(flow["goodput_bps"] for flow in real["flows"]),
                        outcome.goodput_bps,
                    ),
                    "delay": (real["one_way_delay_ms"]["p95"], outcome.delay_p95_ms),
                    "own_bps": own_bps,
                }
            )
    return parameters, forecasts


def main():
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--paths", type=int, default=40)
    options.add_argument("--at-once", type=int, default=6)
    options.add_argument(
        "--compare", action="store_true", help="with the runs that are there alone"
    )
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    drawn = list(cases(given.paths))
    if not given.compare:
        run_all(drawn, given.folder, given.at_once)
    parameters, forecasts = compare(drawn, given.folder)
    print(
        "parameter: paths, median error, 90 % of errors below, held by the 90 % interval; identified"
    )
    for name in ("rate_bps", "rtt_s", "queue_s", "loss"):
        for which in (True, False):
            rows = [row for row in parameters if row[0] == name and row[3] == which]
            if rows:
                errors = np.abs([row[1] for row in rows])
                held = np.mean([row[2] for row in rows])
                print(
                    f"{name}: {len(rows)}, {np.median(errors):.1%}, {np.quantile(errors, 0.9):.1%}, {held:.0%}; {which}"
                )
    print(
        "forecast: paths; goodput: median error, mean, held; delay: median error, held; goodput as this flow's: median"
    )
    for name in ALTERNATIVES:
        rows = [row for row in forecasts if row["name"] == name]
        columns = []
        for key in ("goodput", "delay"):
            errors = [abs(one.median / real - 1) for real, one in (row[key] for row in rows)]
            held = np.mean([one.p5 <= real <= one.p95 for real, one in (row[key] for row in rows)])
            columns.append((np.median(errors), np.mean(errors), held))
        trivial = np.median([abs(row["own_bps"] / row["goodput"][0] - 1) for row in rows])
        (goodput, mean, held), (delay, _, delay_held) = columns
        print(
            f"{name}: {len(rows)}; {goodput:.1%}, {mean:.1%}, {held:.0%}; {delay:.1%}, {delay_held:.0%}; {trivial:.1%}"
        )
    by = {(row["path"], row["name"]): row["goodput"] for row in forecasts}
    pairs = [
        (by[path, "cubic"], by[path, "bbr"])
        for path, name in by
        if name == "bbr" and (path, "cubic") in by
    ]
    differ = [(cubic, bbr) for cubic, bbr in pairs if abs(bbr[0] / cubic[0] - 1) > 0.1]
    right = sum((bbr[0] > cubic[0]) == (bbr[1].median > cubic[1].median) for cubic, bbr in differ)
    always = sum(bbr[0] > cubic[0] for cubic, bbr in differ)
    print(
        f"better of CUBIC and BBR: right in {right} of {len(differ)} paths where they differ by 10 %; always BBR: {always}"
    )


if __name__ == "__main__":
    main()
