"""How long the programs of schemes wait for a processor while several runs share the machine, and how their rates suffer.

usage: .venv/bin/python benches/scheme_waits.py [--path 100mbps-40ms-1bdp] [--at-once 1,2,3] SCHEME...

Prints a row for each run: throughput, 95th percentile of one-way delay, the part of the flow's time that the thread that
waited longest had no processor, and why the run is not valid. Needs root where emulated runs do.
"""

import argparse
import concurrent.futures

from pathcast.path import Path
from pathcast.schemes.run import Flow, run_flows

DURATION_S = 10.0


def one(path, scheme):
    done = run_flows(Path.load(path), [Flow(scheme)], duration_s=DURATION_S)
    (flow,) = done.flows
    part = max(flow.waited_s.values(), default=0.0) / DURATION_S
    rate = f"{flow.throughput_bps / 1e6:.1f} | {flow.delay_ms['p95']:.1f}"
    return f"{rate} | {part:.2f} | {flow.why_not or '; '.join(done.invalid_because) or 'valid'}"


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("schemes", nargs="+", metavar="SCHEME")
    options.add_argument("--path", default="100mbps-40ms-1bdp")
    options.add_argument("--at-once", default="1,2,3", metavar="N,N")
    given = options.parse_args()
    print("| at once | scheme | Mbit/s | p95, ms | waited | valid |")
    print("|---|---|---|---|---|---|")
    for at_once in map(int, given.at_once.split(",")):
        for scheme in given.schemes:
            with concurrent.futures.ProcessPoolExecutor(at_once) as pool:
                for row in pool.map(one, [given.path] * at_once, [scheme] * at_once):
                    print(f"| {at_once} | `{scheme}` | {row} |", flush=True)


if __name__ == "__main__":
    main()
