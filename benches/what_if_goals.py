"""What calibration and what-if are to reach, on 40 paths of all kinds that nothing was chosen with.

usage: .venv/bin/python benches/what_if_goals.py FOLDER [--at-once 5] [--compare]

24 paths of `what_if.py --held-out` (numbers 20 to 43) and 16 of its `--mixed` (50 to 65): policers, jitter, one or two
other CUBIC flows, UDP. Runs are made and kept as there (as root), and `--compare` takes those that are there alone. What a
parameter must reach depends on what the CUBIC flow did, by the emulator's record of its packets: whether it reached the
link's rate, filled the queue, and lost packets at random.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow.parquet
import what_if

#: Numbers of the paths: plain ones, and those with something else on them.
PLAIN, MIXED = range(20, 44), range(50, 66)
#: Events of the table of packets, beside `what_if.DELIVERED`.
QUEUE_DROP, RANDOM_LOSS = 2, 3
#: A flow reached the rate if it had this part of it over one second; a queue was filled up to this part.
REACHED_PART, FILLED_PART = 0.98, 0.95
#: Random losses from which on their probability is to be known.
ENOUGH_LOSSES = 50


def packets_of(path):
    table = pyarrow.parquet.read_table(path)
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def reached_rate(packets, own, rate_bps):
    """Whether the flow was delivered at the rate for a second."""
    delivered = (packets["event"] == what_if.DELIVERED) & (packets["direction"] == 0)
    there = delivered & (packets["flow"] == own)
    time_s = packets["time_s"][there]
    order = np.argsort(time_s)
    time_s, received = time_s[order], np.cumsum(packets["size_bytes"][there][order].astype(float))
    before = np.searchsorted(time_s, time_s - 1)
    whole = time_s >= time_s[0] + 1
    in_a_second = (received - received[before])[whole]
    return bool(len(in_a_second)) and 8 * in_a_second.max() >= REACHED_PART * rate_bps


def filled_queue(packets, case):
    """Whether the queue was ever full; drops are those of the policer where there is one."""
    if case["kind"] != "policer":
        return bool(np.any((packets["event"] == QUEUE_DROP) & (packets["direction"] == 0)))
    delays_s = packets["one_way_delay_s"][packets["direction"] == 0].astype(float)
    queue_s = case["queue_bytes"] * 8 / case["line_bps"]
    return float(np.nanmax(delays_s)) - case["rtt_s"] / 2 >= FILLED_PART * queue_s


def random_losses(packets, own):
    lost = (packets["event"] == RANDOM_LOSS) & (packets["direction"] == 0)
    return int(np.sum(lost & (packets["flow"] == own)))


def asked_of(case, packets):
    """The largest error that each parameter may have, as a factor; those of which nothing is asked are left out."""
    own = what_if.others_of(case)
    # where CUBIC never has the rate, its initial window of ten packets in one burst shows it
    asked = {"rtt_s": 1.05, "rate_bps": 1.15}
    if reached_rate(packets, own, case["rate_bps"]):
        asked["rate_bps"] = 1.05
    if filled_queue(packets, case):
        asked["queue_s"] = 1.2
    if random_losses(packets, own) >= ENOUGH_LOSSES:
        asked["loss"] = 1.5
    return asked


def print_goals(drawn, parameters, folder):
    asked = {}
    for case in drawn:
        packets = what_if.stem_of(case, "cubic", folder).with_suffix(".packets")
        if packets.exists():
            asked[case["number"]] = asked_of(case, packets_of(packets))
    groups = {}
    for row in parameters:
        most = asked.get(row.path, {}).get(row.parameter)
        if most is not None:
            groups.setdefault((row.parameter, most), []).append(row)
    print("parameter, largest factor: paths; within; identified; 90 % interval holds; those beyond")
    for (name, most), rows in sorted(groups.items()):
        within = [1 / most <= 1 + row.off <= most for row in rows]
        beyond = [
            f"{row.path} ({row.kind or 'plain'}) {row.off:+.1%}"
            + ("" if row.identified else ", not identified")
            for row, good in zip(rows, within, strict=True)
            if not good
        ]
        print(
            f"{name}, {most}: {len(rows)}; {np.mean(within):.0%}; {sum(row.identified for row in rows)}; "
            f"{np.mean([row.held for row in rows]):.0%}; {'; '.join(beyond)}"
        )
    every = [row for row in parameters if row.parameter in ("rtt_s", "rate_bps", "queue_s", "loss")]
    held = np.mean([row.held for row in every])
    print(f"90 % intervals of all {len(every)} parameters hold {held:.1%}")
    seconds = list({row.path: row.seconds for row in parameters}.values())
    print(
        f"seconds of a calibration: median {np.median(seconds):.0f}, most {max(seconds):.0f}, "
        f"over 60 in {sum(one > 60 for one in seconds)} of {len(seconds)}"
    )


def main():
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--at-once", type=int, default=5)
    options.add_argument("--compare", action="store_true")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    drawn = [
        *list(what_if.cases(PLAIN.stop, what_if.HELD_OUT))[PLAIN.start :],
        *list(what_if.mixed_cases(MIXED.stop))[MIXED.start :],
    ]
    if not given.compare:
        what_if.run_all(drawn, what_if.ALTERNATIVES, given.folder, given.at_once)
    parameters, forecasts = what_if.compare(drawn, given.folder)
    print_goals(drawn, parameters, given.folder)
    what_if.print_alternatives(forecasts)
    what_if.print_forecasts("all but CUBIC", [row for row in forecasts if row["name"] != "cubic"])
    for kind in (None, *what_if.KINDS):
        rows = [row for row in forecasts if row["kind"] == kind and row["name"] != "cubic"]
        what_if.print_forecasts(f"{kind or 'plain'}, all but CUBIC", rows)
    print(what_if.better_of(forecasts))


if __name__ == "__main__":
    main()
