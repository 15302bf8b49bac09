"""Competing flows told from the trace of one flow: are they seen, and what is foretold for others then.

usage: .venv/bin/python benches/competing.py [--paths 12] [--kinds "1 cubic,jitter"] [--held-out] [--emulate] [--as-probed]
       [--rates 5 100]
       .venv/bin/python benches/competing.py --link [--paths 40] [--held-out] [--scheme bbr]

Draws paths at random (5 to 100 Mbit/s or `--rates`, 10 to 100 ms, queues of 0.5 to 4 BDP). Over each, a flow of 30 s
runs alone, alone with random loss, beside 1 to 4 CUBIC flows or one of BBR that began 2 to 20 s earlier, or beside UDP of
a third of the rate, or alone with exponential jitter of a twentieth of the round trip. Others of BBR, Reno and Vegas in the place of the
first are the truth of the forecasts. `--held-out` draws paths that were not used to choose constants. `--emulate`
takes the kernel's flows (as root, in real time). `--as-probed` hides the sender's own shortest round-trip time, which
tcp_probe does not record: a simulated connection opens before the queue is there, and knows the propagation delay.
`--link` asks only what acknowledgments say of who uses the link, which takes seconds.
"""

import argparse
import math
import time
from statistics import median

import numpy as np
from rich.progress import track

import pathcast
from pathcast.calibration import calibrate

KINDS = ("alone", "loss", "1 cubic", "2 cubic", "3 cubic", "4 cubic", "1 bbr", "udp", "jitter")
OTHERS = ("bbr", "reno", "vegas")
#: Jitter as a part of the round trip.
JITTER = 0.05
SECONDS = 30


def drawn(count, seed, rates_mbps):
    """Paths and what else is on them."""
    slowest, fastest = (math.log(1e6 * rate) for rate in rates_mbps)
    generator = np.random.default_rng(seed)
    for number in range(count):
        rate = math.exp(generator.uniform(slowest, fastest))
        rtt = math.exp(generator.uniform(math.log(0.01), math.log(0.1)))
        queue = max(rate * rtt / 8 * math.exp(generator.uniform(math.log(0.5), math.log(4))), 15e3)
        for kind in KINDS:
            yield {
                "number": number,
                "kind": kind,
                "rate_bps": rate,
                "rtt_s": rtt,
                "queue_s": 8 * queue / rate,
                "loss": 1e-3 if kind == "loss" else 0.0,
                # a kind that came later draws nothing, so that the others stay
                "head_start_s": 0.0 if kind == "jitter" else float(generator.uniform(2, 20)),
            }


def competing(kind):
    """Schemes of the flows that react."""
    count, _, scheme = kind.partition(" ")
    return (scheme,) * int(count) if scheme else ()


def delays(case):
    """Of both directions, as a path file has them; jitter is on the way there."""
    one_way = f"'{case['rtt_s'] / 2 * 1e9:.0f} ns'"
    if case["kind"] != "jitter":
        return f"delay = {one_way}\n"
    jitter = f"jitter = '{case['rtt_s'] * JITTER * 1e9:.0f} ns', distribution = 'exponential'"
    return (
        f"delay = {{ kind = 'jitter', base = {one_way}, {jitter} }}\n[reverse]\ndelay = {one_way}\n"
    )


def run(case, scheme, seed, emulate):
    """Goodput, 95th percentile of delay in ms, trace and number of one flow of this scheme among the others."""
    path = pathcast.Path.parse(
        f"rate = '{case['rate_bps']:.0f} bit/s'\n"
        f"queue = '{case['queue_s'] * case['rate_bps'] / 8:.0f} B'\nloss = {case['loss']}\n"
        f"{delays(case)}"
    )
    others, head_start_s = competing(case["kind"]), 0.0
    if others:
        head_start_s = case["head_start_s"]
        scenario = pathcast.Scenario.over(path, others).with_flow(
            scheme=scheme, start=f"{head_start_s} s"
        )
    else:
        scenario = pathcast.Scenario.over(path, [scheme])
    if case["kind"] == "udp":
        workload = {"kind": "constant-rate", "rate": f"{case['rate_bps'] / 3:.0f} bit/s"}
        scenario = scenario.with_flow(scheme="udp", start="0 s", workload=workload)
    own = len(others)
    start = pathcast.emulate if emulate else pathcast.simulate
    for attempt in range(3):
        report, trace = start(scenario, duration_s=head_start_s + SECONDS, seed=seed + attempt)
        if not emulate or report.valid:
            # tables are apart where there are several; the own flow's is the one of its number
            packets = report.groups[own] if report.groups else None
            delay_ms = packets["one_way_delay_ms"] if packets else report.one_way_delay_ms
            return report.flows[own].goodput_bps, delay_ms["p95"], trace, own
    return None


def judged(case, emulate, as_probed):
    """What was inferred and foretold beside what was so; None if no run was valid."""
    seen = run(case, "cubic", 1000 + case["number"], emulate)
    if seen is None:
        return None
    goodput_bps, _, trace, own = seen
    if as_probed:
        trace.columns["min_rtt_s"][:] = math.nan
    begin_s = time.perf_counter()
    found = calibrate(trace, own)
    took_s = time.perf_counter() - begin_s
    row = case | {"competing": found.competing, "misfit": found.misfit, "own_bps": goodput_bps}
    row["took_s"], row["steady"] = took_s, found.steady_part
    sets = found.competing_sets or {(): 1.0}
    row["probability"] = sets.get(competing(case["kind"]), 0.0)
    truths = case | {"jitter_s": case["rtt_s"] * JITTER if case["kind"] == "jitter" else math.nan}
    for name in ("rate_bps", "rtt_s", "queue_s", "jitter_s"):
        one = found.parameters.get(name)
        row[f"{name} error"] = math.nan if one is None else one.median / truths[name] - 1
        row[f"{name} held"] = one is not None and one.p5 <= truths[name] <= one.p95
    asked = [pathcast.Alternative(scheme) for scheme in OTHERS]
    forecast = pathcast.what_if(found, asked, draws=20, duration_s=SECONDS)
    for scheme, outcome in zip(OTHERS, forecast.outcomes, strict=True):
        truth = run(case, scheme, 2000 + case["number"], emulate)
        if truth is not None:
            row[scheme] = (truth[0], outcome.goodput_bps)
            row[f"{scheme} delay"] = (truth[1], outcome.delay_p95_ms)
    return row


def share(rows, is_so):
    return f"{sum(map(is_so, rows))} of {len(rows)}"


def link(cases, scheme, emulate):
    """Print what acknowledgments say of who uses the link."""
    print(
        "| beside it | flows | said: alone | others | nothing | rate: largest error | others' part: median error |"
    )
    print("|---" * 7 + "|")
    for kind in dict.fromkeys(case["kind"] for case in cases):
        said = []
        for case in (one for one in cases if one["kind"] == kind):
            seen = run(case, scheme, 1000 + case["number"], emulate)
            if seen is not None:
                said.append((case, seen, pathcast.link_use(seen[2], seen[3])))
        told = [(case, seen, use) for case, seen, use in said if use]
        others = [(case, seen, use) for case, seen, use in told if use.others_part]
        rates = [abs(use.rate_bps / case["rate_bps"] - 1) for case, _, use in told]
        # goodput is of payload, without headers
        parts = [
            abs(use.others_part - 1 + seen[0] * 1500 / 1448 / case["rate_bps"])
            for case, seen, use in others
        ]
        cells = [kind, len(said), len(told) - len(others), len(others), len(said) - len(told)]
        cells.append(f"{max(rates):.1%}" if rates else "")
        cells.append(f"{100 * median(parts):.1f} points" if parts else "")
        print("| " + " | ".join(map(str, cells)) + " |")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--paths", type=int, default=12)
    options.add_argument("--kinds", default=",".join(KINDS))
    options.add_argument("--held-out", action="store_true")
    options.add_argument("--emulate", action="store_true")
    options.add_argument("--as-probed", action="store_true")
    options.add_argument("--link", action="store_true")
    options.add_argument("--scheme", default="cubic")
    options.add_argument(
        "--rates", type=float, nargs=2, default=(5.0, 100.0), help="Mbit/s", metavar=("LOW", "HIGH")
    )
    given = options.parse_args()
    kinds = given.kinds.split(",")
    every = drawn(given.paths, 77 if given.held_out else 7, given.rates)
    cases = [case for case in every if case["kind"] in kinds]
    if given.link:
        link(cases, given.scheme, given.emulate)
        return
    rows = [judged(case, given.emulate, given.as_probed) for case in track(cases)]
    rows = [row for row in rows if row]
    print(
        "| beside it | flows | competing flows seen | number right | its probability | rate: median error | 90 % holds | "
        "queue: median error | 90 % holds | round trip: median error | 90 % holds |",
        end="",
    )
    print(
        "".join(
            f" {one}: median error | 90 % holds | as this flow |"
            for one in ("BBR", "Reno", "Vegas")
        )
    )
    print("|---" * (11 + 3 * len(OTHERS)) + "|")
    for kind in KINDS:
        here = [row for row in rows if row["kind"] == kind]
        if not here:
            continue
        cells = [
            kind,
            len(here),
            share(here, lambda row: bool(row["competing"])),
            share(here, lambda row: row["competing"] == competing(row["kind"])),
            f"{np.mean([row['probability'] for row in here]):.0%}",
        ]
        for name in ("rate_bps", "queue_s", "rtt_s"):
            errors = [abs(row[f"{name} error"]) for row in here]
            cells.append(f"{median(one for one in errors if not math.isnan(one)):.1%}")
            cells.append(share(here, lambda row, name=name: row[f"{name} held"]))
        for scheme in OTHERS:
            there = [row for row in here if scheme in row]
            errors = [abs(row[scheme][1].median / row[scheme][0] - 1) for row in there]
            trivial = [abs(row["own_bps"] / row[scheme][0] - 1) for row in there]
            held = share(there, lambda row, s=scheme: row[s][1].p5 <= row[s][0] <= row[s][1].p95)
            cells += [f"{median(errors):.1%}", held, f"{median(trivial):.1%}"]
        print("| " + " | ".join(map(str, cells)) + " |")
    if jittered := [row for row in rows if row["kind"] == "jitter"]:
        error = median(abs(row["jitter_s error"]) for row in jittered)
        held = share(jittered, lambda row: row["jitter_s held"])
        print(f"Jitter: median error {error:.1%}; 90 % intervals hold in {held}.")
    for kind in kinds:
        here = [row for row in rows if row["kind"] == kind]
        steady = share(here, lambda row: row["steady"] > 0)
        print(
            f"{kind}: steady traffic seen in {steady}; 95 % delays, median error (intervals hold):"
        )
        for scheme in OTHERS:
            pairs = [row[f"{scheme} delay"] for row in here if f"{scheme} delay" in row]
            errors = [abs(one.median / real - 1) for real, one in pairs]
            held = share(pairs, lambda pair: pair[1].p5 <= pair[0] <= pair[1].p95)
            print(f"  {scheme} {median(errors):.1%} ({held})")
    took_s = [row["took_s"] for row in rows]
    if took_s:
        print(f"One calibration: median {median(took_s):.0f} s, at most {max(took_s):.0f} s.")


if __name__ == "__main__":
    main()
