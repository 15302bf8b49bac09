"""What super-packets change: flows over fast paths with and without them, in turn.

usage: sudo .venv/bin/python benches/fast_paths.py [--runs N] [--seconds S] [--scheme NAME] [RATE_MBPS ...]

For each rate, N pairs of runs of `pathcast emulate` over a path of 5 ms each way with a queue of 1 BDP: one
with super-packets, one without. Prints goodput, packets sent again, one-way delay, processor time of the
pump and records of the trace (one for each acknowledgment): least, median and most of all runs, and how many were valid.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pathcast

PATHCAST = Path(sys.executable).with_name("pathcast")


def run(folder, rate_mbps, delay_ms, scheme, seconds, super_packets):
    path = folder / "path.toml"
    path.write_text(f"rate = '{rate_mbps:g} Mbit/s'\ndelay = '{delay_ms:g} ms'\nqueue = '1 BDP'\n")
    trace = folder / "trace.parquet"
    command = [PATHCAST, "emulate", path, "--scheme", scheme, "--duration", str(seconds)]
    command += ["--super-packets" if super_packets else "--no-super-packets", "-o", trace, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    found = pathcast.read_trace(trace)
    environment = found.metadata["environment"]
    flow, delay_ms = report["flows"][0], report["one_way_delay_ms"]
    return report["valid"], {
        "goodput Mbit/s": flow["goodput_bps"] * 1e-6,
        "sent again": flow["retransmits"],
        "delay p50 ms": delay_ms["p50"],
        "delay p95 ms": delay_ms["p95"],
        "pump %": 100 * float(environment["pump_cpu_s"]) / seconds,
        "all CPU s": report["cpu_s"],
        "slip p99 us": report["slip_us"]["p99"],
        "records": len(found.columns["time_s"]),
    }


def span(values):
    digits = 0 if max(values) >= 1000 else 1
    median = statistics.median(values)
    return f"{median:.{digits}f} ({min(values):.{digits}f} - {max(values):.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rates", type=float, nargs="*", default=[200, 1000, 2500, 5000])
    parser.add_argument("--runs", type=int, default=5, help="of each kind")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--delay", type=float, default=5, help="each way, in ms")
    parser.add_argument("--scheme", default="cubic")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root")
    load = os.getloadavg()[0]
    print(f"load {load:.1f}, {os.cpu_count()} processors, kernel {os.uname().release}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        for rate in options.rates:
            found = {False: [], True: []}
            for _ in range(options.runs):
                for super_packets in found:
                    what = rate, options.delay, options.scheme, options.seconds, super_packets
                    found[super_packets].append(run(Path(name), *what))
            for super_packets, runs in found.items():
                valid = [values for valid, values in runs if valid]
                chosen = valid or [values for _, values in runs]
                print(
                    f"{rate:g} Mbit/s, super-packets {super_packets}: {len(valid)} of {len(runs)} valid"
                )
                for key in chosen[0]:
                    print(f"    {key}: {span([values[key] for values in chosen])}", flush=True)


if __name__ == "__main__":
    main()
