"""What forecasters take of memory: of one flow with its window law, and of one path by its rates alone.

usage: .venv/bin/python benches/forecaster_memory.py [--count 40] [--minutes 10]

Each sees the same simulated CUBIC flow for so many minutes, with records 10 or 100 times a second, and is asked for 1, 5, 10
and 30 s. Prints what the process has grown by, for each forecaster.
"""

import argparse
import resource
import time
from pathlib import Path

import numpy as np

import pathcast

HORIZONS_S = (1.0, 5.0, 10.0, 30.0)
PATH = "rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\nloss = 0.0005\n"
COLUMNS = ("cwnd_packets", "snd_nxt_bytes", "srtt_s")


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def grown(make, count):
    """Bytes and seconds for each of so many."""
    kept = [make()]  # what the first one loads is not its own
    before, begin_s = resident_bytes(), time.perf_counter()
    kept += [make() for _ in range(count)]
    took_s = time.perf_counter() - begin_s
    return (resident_bytes() - before) / count, took_s / count


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=40)
    options.add_argument("--minutes", type=float, default=10)
    given = options.parse_args()
    seconds = 60 * given.minutes
    _, trace = pathcast.simulate(
        pathcast.Scenario.over(pathcast.Path.parse(PATH), ["cubic"]),
        duration_s=seconds,
        seed=1,
        record=True,
    )
    all_s = trace.columns["time_s"]
    print("| forecaster | records a second | memory | seconds to observe them |")
    print("|---|---|---|---|")
    for rate in (10, 100):
        at = np.searchsorted(all_s, np.arange(0.1, seconds, 1 / rate)).clip(max=len(all_s) - 1)
        at = np.unique(at)
        cwnd, sent, srtt = (trace.columns[name][at] for name in COLUMNS)
        records = pathcast.FlowSeries(all_s[at], cwnd, snd_nxt_packets=sent / 1448, srtt_s=srtt)

        def of_flow(records=records):
            one = pathcast.Forecaster("cubic", HORIZONS_S)
            one.observe(records)
            one.forecast(float(records.time_s[-1]), HORIZONS_S[0])
            return one

        size, took_s = grown(of_flow, given.count)
        print(f"| `Forecaster`, 1, 5, 10 and 30 s | {rate} | {size / 1e3:.0f} kB | {took_s:.2f} |")
    bits = 1e7 * np.exp(0.3 * np.random.default_rng(1).standard_normal(int(seconds)))

    def of_path():
        one = pathcast.RateForecaster(4.0)
        one.observe(np.ones(len(bits)), bits)
        return one

    size, took_s = grown(of_path, 500 * given.count)
    print(f"| `RateForecaster`, 4 s | 1 | {size / 1e3:.1f} kB | {took_s:.4f} |")


if __name__ == "__main__":
    main()
