"""Calibration of policed paths: flows of `pathcast evaluate limits` that a policer limits, and some that none does.

usage: .venv/bin/python benches/policers.py [--count 25] [--held-out]

Simulates policed flows and those that a queue or random loss limits, and calibrates with each trace. Says how often the
bottleneck is named, how far rate and bucket are off, and how often 90 % intervals hold them.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from rich.progress import track

import pathcast
from pathcast.experiments.limits.cells import flows


def calibrated(flow):
    _, trace = pathcast.simulate(flow.scenario(), duration_s=flow.duration_s, seed=flow.seed)
    try:
        found = pathcast.calibrate(trace)
    except pathcast.PathcastError as error:
        return flow, None, str(error)
    return flow, found, ""


def number(text):
    """The number of `3.5 Mbit/s` or `1000 B` in bit/s or bytes."""
    value, unit = text.split()
    return float(value) * {"Mbit/s": 1e6, "bit/s": 1.0, "B": 1.0}[unit]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=25, help="flows of each limit")
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    kinds = ("policer", "loss", "queue", "path_rate")
    chosen = [
        flow
        for flow in flows(held_out=options.held_out, count=options.count)
        if flow.limit in kinds
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = list(track(pool.map(calibrated, chosen), "calibrated", len(chosen)))
    for kind in kinds:
        here = [one for flow, one, _ in found if flow.limit == kind and one]
        policed = sum(one.line_rate_bps is not None for one in here)
        print(f"{kind}: {len(here)} calibrated, {policed} as policed")
    print(f"{sum(one is None for _, one, _ in found)} not calibrated")
    policed = [
        (flow, one)
        for flow, one, _ in found
        if one and one.line_rate_bps and flow.limit == "policer"
    ]
    for name, key in (("rate_bps", "rate"), ("burst_bytes", "burst")):
        truth = np.array([number(flow.link["policer"][key]) for flow, _ in policed])
        one = [calibration.parameters[name] for _, calibration in policed]
        off = np.abs(np.array([each.median for each in one]) / truth - 1)
        holds = [each.p5 <= true <= each.p95 for each, true in zip(one, truth, strict=True)]
        print(
            f"{name}: median error {np.median(off):.1%}, nine in ten below {np.percentile(off, 90):.1%}; "
            f"intervals hold {sum(holds)} of {len(holds)}"
        )


if __name__ == "__main__":
    main()
