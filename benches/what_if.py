"""From one CUBIC flow of the kernel to what others get: forecasts beside the kernel's own runs.

usage: .venv/bin/python benches/what_if.py FOLDER [--paths 40] [--begin 0] [--at-once 6] [--held-out] [--mixed] [--kinds KIND …]
       [--only NAME …] [--compare]

Draws paths at random (0.5 to 500 Mbit/s, 10 to 300 ms, queues of 0.2 to 8 BDP, in 6 of 10 random loss of 1e-5 to
2e-2), runs flows over each in the emulator (as root), calibrates with the CUBIC flow alone, and compares. Runs are kept
in FOLDER and not repeated. An invalid run is tried three times and then left out. `--held-out` draws paths that no constant
was chosen with. `--mixed` draws others: of five paths one has a policer, one has jitter, two have one or two CUBIC flows that
began 5 s earlier, and one has UDP of a third of the rate. Their rates are 0.5 to 100 Mbit/s, and they have no random loss.
`--kinds jitter policer` takes these of them alone. `--only cubic vegas` runs these alone, of which CUBIC must be one.

Beside Pathcast's forecasts from the CUBIC flow stand those from it and the BBR flow together, for other alternatives than
these; "as this flow": each alternative gets what the CUBIC flow got; and iBox (Ashok et al., HotNets 2020) from the packets
of the CUBIC flow.
"""

import argparse
import json
import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet

import pathcast
from pathcast import ibox, scenario
from pathcast._what_if import HEAD_START_S

TRANSFER = "{ kind = 'transfer', size = '5 MB', count = 1 }"
ALTERNATIVES = {
    "cubic": pathcast.Alternative("cubic"),
    "bbr": pathcast.Alternative("bbr"),
    "reno": pathcast.Alternative("reno"),
    "vegas": pathcast.Alternative("vegas"),
    "2 x cubic": pathcast.Alternative("cubic", flows=2),
    "5 MB, window 10": pathcast.Alternative("cubic", TRANSFER, 10),
    "5 MB, window 40": pathcast.Alternative("cubic", TRANSFER, 40),
}
SECONDS = 30
#: Seeds of paths that no constant was chosen with.
HELD_OUT, MIXED = 7013, 7014
#: What paths of `--mixed` have, in turn.
KINDS = ("policer", "jitter", "1 cubic", "2 cubic", "udp")
PARAMETERS = ("rate_bps", "rtt_s", "queue_s", "loss", "jitter_s", "burst_bytes")
#: What a row of the table of packets means, a full packet, and the time over which iBox measures the rate.
DELIVERED, PACKET_BYTES, IBOX_WINDOW_S = 1, 1500, 0.25
#: Faster paths run two at a time.
FAST_BPS = 100e6


class Found(NamedTuple):
    """What a calibration says of one parameter of a path, and how long it took."""

    parameter: str
    path: int
    kind: str | None
    off: float
    held: bool
    identified: bool
    seconds: float


def cases(count, seed):
    """Parameters of the paths, in the order of drawing."""
    generator = np.random.default_rng(seed)

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
            "kind": None,
        }


def mixed_cases(count):
    """Parameters of the paths of `--mixed`, in the order of drawing."""
    generator = np.random.default_rng(MIXED)

    def draw(low, high):
        return math.exp(generator.uniform(math.log(low), math.log(high)))

    for number in range(count):
        rate, rtt, queue = draw(0.5e6, 100e6), draw(0.01, 0.3), draw(0.5, 4)
        case = {
            "number": number,
            "kind": KINDS[number % len(KINDS)],
            "rate_bps": rate,
            "rtt_s": rtt,
            "queue_bytes": max(queue * rtt * rate / 8, 15e3),
            "loss": 0.0,
        }
        # all are drawn for each path, so that its kind changes no other one
        jitter, policed, bucket_s = draw(0.02, 0.1), generator.uniform(0.3, 0.8), draw(0.02, 0.2)
        if case["kind"] == "jitter":
            case["jitter_s"] = jitter * rtt
        elif case["kind"] == "policer":
            case["line_bps"], case["rate_bps"] = rate, policed * rate
            case["burst_bytes"] = max(bucket_s * case["rate_bps"] / 8, 15e3)
        yield case


def path_of(case):
    """The path, or a scenario of what else is on it."""
    one_way = f"'{case['rtt_s'] / 2 * 1e9:.0f} ns'"
    delay = one_way
    if "jitter_s" in case:
        jitter = f"jitter = '{case['jitter_s'] * 1e9:.0f} ns', distribution = 'exponential'"
        delay = f"{{ kind = 'jitter', base = {one_way}, {jitter} }}"
    toml = (
        f"rate = '{case.get('line_bps', case['rate_bps']):.0f} bit/s'\ndelay = {delay}\n"
        f"queue = '{case['queue_bytes']:.0f} B'\nloss = {case['loss']:.9f}\n"
    )
    if "burst_bytes" in case:
        policer = f"rate = '{case['rate_bps']:.0f} bit/s', burst = '{case['burst_bytes']:.0f} B'"
        toml += f"policer = {{ {policer} }}\n"
    path = pathcast.Path.parse(f"{toml}[reverse]\ndelay = {one_way}\n")
    if case["kind"] == "udp":
        workload = {"kind": "constant-rate", "rate": f"{case['rate_bps'] / 3:.0f} bit/s"}
        return pathcast.Scenario.over(path, ["cubic"]).replace_flow(
            0, scheme="udp", workload=workload
        )
    others = others_of(case)
    return pathcast.Scenario.over(path, ["cubic"] * others) if others else path


def others_of(case):
    """How many flows are there before."""
    return {"1 cubic": 1, "2 cubic": 2, "udp": 1}.get(case["kind"], 0)


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
    head_start_s = HEAD_START_S if others_of(case) else 0
    for attempt in range(3):
        try:
            found, trace = pathcast.emulate(
                scenario,
                duration_s=head_start_s + (SECONDS if "MB" not in name else 120),
                seed=100 + attempt,
                packets_file=stem.with_suffix(".packets") if name == "cubic" else None,
            )
        except pathcast.PathcastError as error:
            print(f"{stem.name}: {error}", flush=True)
            return
        if found.valid:
            if name in ("cubic", "bbr"):
                trace.write(stem.with_suffix(".parquet"))
            report.write_text(json.dumps(found.to_dict()))
            return
    print(f"{stem.name}: {found.invalid_because}", flush=True)


def run_all(drawn, names, folder, at_once):
    fast = [case for case in drawn if case["rate_bps"] >= FAST_BPS]
    slow = [case for case in drawn if case["rate_bps"] < FAST_BPS]
    for name in names:
        for some, threads in ((slow, at_once), (fast, 2)):
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda case, name=name: run(case, name, folder), some))


def ibox_of(packets, flow):
    """The scenario that iBox learns from packets of one flow, as TOML.

    The rate is the highest at which a quarter of a second was received; the delay the shortest, in both directions; the
    buffer what the longest delay holds. While packets wait, what the flow does not use is cross traffic, in each second.
    """
    table = pyarrow.parquet.read_table(packets)
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    there = (columns["event"] == DELIVERED) & (columns["direction"] == 0)
    there &= columns["flow"] == flow
    time_s, delay_s = columns["time_s"][there], columns["one_way_delay_s"][there].astype(float)
    order = np.argsort(time_s)
    time_s, delay_s = time_s[order], delay_s[order]
    received = np.cumsum(columns["size_bytes"][there][order].astype(float))
    ends = np.minimum(np.searchsorted(time_s, time_s + IBOX_WINDOW_S), len(time_s) - 1)
    took_s = time_s[ends] - time_s
    rates = (8 * (received[ends] - received))[took_s >= IBOX_WINDOW_S] / took_s[
        took_s >= IBOX_WINDOW_S
    ]
    rate_bps, least_s = float(rates.max()), float(delay_s.min())
    packet_s = 8 * PACKET_BYTES / rate_bps
    # the highest rate seen may send a packet in longer than the shortest delay
    propagation_s = max(least_s - packet_s, 0)
    seconds = np.arange(math.ceil(time_s[-1]))
    number = time_s.astype(int)
    own_bps = 8 * np.bincount(number, np.diff(received, prepend=0), len(seconds))
    waits = (delay_s - least_s > 2 * packet_s).astype(float)
    counts = np.maximum(np.bincount(number, minlength=len(seconds)), 1)
    busy = np.bincount(number, waits, len(seconds)) / counts
    cross_bps = np.maximum(rate_bps - own_bps, 0) * busy
    # less than a twentieth is error of measurement
    cross_bps[cross_bps < 0.05 * rate_bps] = 0
    profile = {
        "bottleneck_bandwidth": rate_bps / 1e3,
        "buffer_size_packets": max((delay_s.max() - least_s) * rate_bps / 8 / PACKET_BYTES, 2),
        "propagation_delay": 1e3 * propagation_s,
        "cross_traffic_pattern": [round(one / 1e3) for one in cross_bps[: int(time_s[-1])]],
    }
    toml = ibox.to_toml(json.dumps({"config": {"uplink": profile}}), "iBox")
    return toml.replace("delay = '0 s'", f"delay = '{1e9 * propagation_s:.0f} ns'")


def known(report, outcome, others):
    """What the kernel got, and the forecast."""
    own = report["flows"][others:]
    packets = report["groups"][-1] if others else report
    return {
        "goodput": (sum(flow["goodput_bps"] for flow in own), outcome.goodput_bps),
        "delay": (packets["one_way_delay_ms"]["p95"], outcome.delay_p95_ms),
    }


def compare(drawn, folder):
    """Rows of parameters and of forecasts beside the truth."""
    parameters, forecasts = [], []
    for case in drawn:
        reports = {name: kept(case, name, folder) for name in ALTERNATIVES}
        if reports["cubic"] is None:
            continue
        cubic, bbr = (
            stem_of(case, name, folder).with_suffix(".parquet") for name in ("cubic", "bbr")
        )
        own, trace = others_of(case), pathcast.read_trace(cubic)
        begun_s = time.monotonic()
        try:
            calibration = pathcast.calibrate(trace, own)
        except pathcast.ModelError as error:
            print(f"{case['number']:02}: {error}", flush=True)
            continue
        seconds = time.monotonic() - begun_s
        if case["kind"] and not named(case, calibration):
            print(f"{case['number']:02}: {case['kind']} is not named", flush=True)
        use = pathcast.link_use(trace, own)
        if use:
            off = use.rate_bps / case["rate_bps"] - 1
            print(f"{case['number']:02}: {use.text()} That rate is off by {off:+.1%}.", flush=True)
        truth = case | {"queue_s": case["queue_bytes"] * 8 / case["rate_bps"]}
        for name in PARAMETERS:
            one = calibration.parameters.get(name)
            if truth.get(name, 0) > 0 and one is not None:
                off, held = one.median / truth[name] - 1, one.p5 <= truth[name] <= one.p95
                place = case["number"], case["kind"]
                parameters.append(Found(name, *place, off, held, one.identified, seconds))
        there = [name for name, report in reports.items() if report]
        asked = [ALTERNATIVES[name] for name in there]
        found = pathcast.what_if(calibration, asked, draws=40)
        others = {}
        packets = stem_of(case, "cubic", folder).with_suffix(".packets")
        if packets.exists():
            learned = scenario.parse(ibox_of(packets, own), "iBox")
            others["iBox"] = pathcast.what_if(learned, asked, draws=10)
        if bbr.exists():
            both = [(trace, own), (pathcast.read_trace(bbr), own)]
            try:
                others["both"] = pathcast.what_if(pathcast.calibrate_flows(both), asked, draws=40)
            except pathcast.ModelError as error:
                print(f"{case['number']:02}, both flows: {error}", flush=True)
        print(f"{case['number']:02}: compared", file=sys.stderr, flush=True)
        own_bps = reports["cubic"]["flows"][own]["goodput_bps"]
        for place, name in enumerate(there):
            row = {"path": case["number"], "name": name, "own_bps": own_bps, "kind": case["kind"]}
            row |= known(reports[name], found.outcomes[place], own)
            for other, answers in others.items():
                if other != "both" or name not in ("cubic", "bbr"):
                    row[other] = known(reports[name], answers.outcomes[place], own)
            forecasts.append(row)
    return parameters, forecasts


def named(case, calibration):
    """Whether the calibration names what is on the path beside the flow."""
    if case["kind"] == "policer":
        return calibration.line_rate_bps is not None
    if case["kind"] == "jitter":
        return calibration.parameters["jitter_s"].identified
    expected = ("cubic",) * (case["kind"].endswith("cubic") * others_of(case))
    return calibration.competing == expected


def errors_of(rows, key="goodput"):
    return np.array([abs(one.median / real - 1) for real, one in (row[key] for row in rows)])


def summed(rows):
    """Number of paths, errors of goodput and delay, and how often the interval holds."""
    columns = []
    for key in ("goodput", "delay"):
        errors = errors_of(rows, key)
        held = np.mean([one.p5 <= real <= one.p95 for real, one in (row[key] for row in rows)])
        columns.append((np.median(errors), np.mean(errors), held))
    (goodput, mean, held), (delay, _, delay_held) = columns
    return f"{len(rows)}; {goodput:.1%}, {mean:.1%}, {held:.0%}; {delay:.1%}, {delay_held:.0%}"


def difference(ours, theirs):
    """Mean error of goodput of another forecast less ours, with its 90 % interval over paths."""
    generator = np.random.default_rng(1)
    gap = theirs - ours
    means = gap[generator.integers(0, len(gap), (2000, len(gap)))].mean(axis=1)
    low, high = np.quantile(means, [0.05, 0.95])
    return f"{gap.mean():+.1%} ({low:+.1%} to {high:+.1%})"


def print_parameters(parameters, title):
    print(
        f"{title}: paths, median error, 90 % of errors below, held by the 90 % interval; identified"
    )
    for name in PARAMETERS:
        for which in (True, False):
            rows = [row for row in parameters if row.parameter == name and row.identified == which]
            if rows:
                errors = np.abs([row.off for row in rows])
                held = np.mean([row.held for row in rows])
                print(
                    f"{name}: {len(rows)}, {np.median(errors):.1%}, {np.quantile(errors, 0.9):.1%}, {held:.0%}; {which}"
                )


def print_forecasts(title, rows):
    """Forecasts of some rows, beside what others say of them."""
    trivial = np.array([abs(row["own_bps"] / row["goodput"][0] - 1) for row in rows])
    print(f"{title}: {summed(rows)}; {np.median(trivial):.1%}")
    for other in ("iBox", "both"):
        some = [row for row in rows if other in row]
        if some:
            ours, theirs = errors_of(some), errors_of([row[other] for row in some])
            print(
                f"    {other}: {summed([row[other] for row in some])}; less: {difference(ours, theirs)}"
            )
    print(f"    as this flow; less: {difference(errors_of(rows), trivial)}")


def print_alternatives(forecasts):
    print(
        "forecast: paths; goodput: median error, mean, held; delay: median error, held; goodput as this flow's: median"
    )
    for name in ALTERNATIVES:
        if rows := [row for row in forecasts if row["name"] == name]:
            print_forecasts(name, rows)


def better_of(forecasts):
    """How often the better one of CUBIC and BBR is named."""
    by = {(row["path"], row["name"]): row["goodput"] for row in forecasts}
    pairs = [
        (by[path, "cubic"], by[path, "bbr"])
        for path, name in by
        if name == "bbr" and (path, "cubic") in by
    ]
    differ = [(cubic, bbr) for cubic, bbr in pairs if abs(bbr[0] / cubic[0] - 1) > 0.1]
    right = sum((bbr[0] > cubic[0]) == (bbr[1].median > cubic[1].median) for cubic, bbr in differ)
    always = sum(bbr[0] > cubic[0] for cubic, bbr in differ)
    return f"better of CUBIC and BBR: right in {right} of {len(differ)} paths where they differ by 10 %; always BBR: {always}"


def main():
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--paths", type=int, default=40)
    options.add_argument("--begin", type=int, default=0, help="leave out the paths before this one")
    options.add_argument("--at-once", type=int, default=6)
    options.add_argument(
        "--compare", action="store_true", help="with the runs that are there alone"
    )
    options.add_argument("--held-out", action="store_true")
    options.add_argument("--mixed", action="store_true")
    options.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options.add_argument("--only", nargs="+", choices=ALTERNATIVES, default=list(ALTERNATIVES))
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.mixed:
        drawn = [case for case in mixed_cases(given.paths) if case["kind"] in given.kinds]
    else:
        drawn = list(cases(given.paths, HELD_OUT if given.held_out else 2026))
    drawn = [case for case in drawn if case["number"] >= given.begin]
    if not given.compare:
        run_all(drawn, given.only, given.folder, given.at_once)
    parameters, forecasts = compare(drawn, given.folder)
    print_parameters(parameters, "parameter")
    print_alternatives(forecasts)
    for kind in KINDS if given.mixed else ():
        if rows := [row for row in forecasts if row["kind"] == kind and row["name"] != "cubic"]:
            print_parameters([row for row in parameters if row.kind == kind], kind)
            print_forecasts(f"{kind}, all but CUBIC", rows)
    print(better_of(forecasts))


if __name__ == "__main__":
    main()
