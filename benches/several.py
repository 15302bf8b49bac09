"""A path told from what several schemes got over it: its parameters, and what it predicts of each scheme.

usage: .venv/bin/python benches/several.py [--paths 10] [--held-out] [--emulate] [FILE...]

Draws paths at random (1 to 100 Mbit/s, 10 to 150 ms, queues of 0.3 to 4 BDP, random loss up to 1 % on half of them, packets
that leave by a Poisson process on some). CUBIC, Reno, BBR and Vegas run for 30 s over each. `--held-out` draws paths that
were not used to choose constants. `--emulate` takes the kernel's flows (as root, in real time). With files, such as Pantheon's
summaries, it says how well each path tells what was measured, for each kind of link.
"""

import argparse
import math
import time
from statistics import mean, median

import numpy as np
from rich.progress import track

import pathcast
from pathcast.calibration import Measurement, calibrate_several, read_measurements

SCHEMES = ("cubic", "reno", "bbr", "vegas")
SECONDS = 30
PARAMETERS = ("rate_bps", "rtt_s", "queue_bytes", "loss")


def drawn(count, seed):
    """Paths by their parameters."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        rate = math.exp(generator.uniform(math.log(1e6), math.log(100e6)))
        rtt = math.exp(generator.uniform(math.log(0.01), math.log(0.15)))
        queue = max(rate * rtt / 8 * math.exp(generator.uniform(math.log(0.3), math.log(4))), 9e3)
        loss = 10 ** generator.uniform(-4, -2)
        yield {
            "rate_bps": rate,
            "rtt_s": rtt,
            "queue_bytes": queue,
            "loss": loss if generator.random() < 0.5 else 0.0,
            "link": "poisson" if rate < 20e6 and generator.random() < 0.5 else "constant",
        }


def path_of(case):
    return pathcast.Path.parse(
        f"rate = {{ kind = '{case['link']}', rate = '{case['rate_bps']:.0f} bit/s' }}\n"
        f"delay = '{case['rtt_s'] / 2 * 1e9:.0f} ns'\nqueue = '{case['queue_bytes']:.0f} B'\n"
        f"loss = {case['loss']:.9f}\n"
    )


def measured(case, number, emulate):
    """What each scheme got; of the kernel's flows, those of valid runs."""
    start = pathcast.emulate if emulate else pathcast.simulate
    for place, scheme in enumerate(SCHEMES):
        for attempt in range(3):
            seed = 1000 * number + 10 * place + attempt
            report, _ = start(path_of(case), [scheme], duration_s=SECONDS, seed=seed)
            if not emulate or report.valid:
                delay_s = 1e-3 * report.one_way_delay_ms["p95"]
                yield Measurement(
                    scheme,
                    1,
                    SECONDS,
                    report.flows[0].goodput_bps,
                    delay_s,
                    None,
                    report.loss_rate,
                )
                break


def error(found, case, name):
    """Of a parameter, as a part; None where there is nothing to find."""
    return found.parameters[name].median / case[name] - 1 if case[name] else None


def known_paths(count, seed, emulate):
    print(
        "| path | link | found | rate | RTT | queue | loss | goodput: mean error | of a scheme left out |",
        end="",
    )
    print(" 95 % delay: mean error | misfit | seconds |")
    print("|---" * 12 + "|")
    goodputs, delays, without, errors = [], [], [], []
    for number, case in enumerate(track(list(drawn(count, seed)))):
        runs = list(measured(case, number, emulate))
        began = time.monotonic()
        found = calibrate_several(runs)
        took_s = time.monotonic() - began
        row = [error(found, case, name) for name in PARAMETERS]
        goodput = mean(abs(one.goodput_error) for one in found.schemes)
        delay = mean(abs(one.delay_error) for one in found.schemes)
        out = mean(abs(one.goodput_error_without) for one in found.schemes)
        goodputs.append(goodput)
        delays.append(delay)
        without.append(out)
        errors.append(row)
        what = f"{1e-6 * case['rate_bps']:.3g} Mbit/s, {1e3 * case['rtt_s']:.3g} ms, {case['queue_bytes'] / 1e3:.3g} kB, {case['loss']:.1g}"
        cells = [what, case["link"], found.link.kind]
        cells += ["" if one is None else f"{one:+.1%}" for one in row]
        cells += [f"{goodput:.1%}", f"{out:.1%}", f"{delay:.1%}", f"{found.misfit:.2f}"]
        print("| " + " | ".join(cells) + f" | {took_s:.0f} |", flush=True)
    medians = [
        f"{median(abs(one) for one in column if one is not None):.1%}"
        for column in zip(*errors, strict=True)
    ]
    cells = ["median; means", "", "", *medians, f"{mean(goodputs):.1%}", f"{mean(without):.1%}"]
    print("| " + " | ".join([*cells, f"{mean(delays):.1%}", "", ""]) + " |")


def files(names):
    print("| file | link | scheme | Mbit/s | error | error when left out |")
    print("|---" * 6 + "|")
    for name in names:
        runs = read_measurements(name)
        if runs is None:
            raise SystemExit(f"{name}: expected what several schemes got")
        found = calibrate_several(runs)
        rows = [(one.goodput_error, one.goodput_error_without) for one in found.schemes]
        for one, (own, out) in zip(found.schemes, rows, strict=True):
            line = (name, found.link.kind, one.scheme, f"{1e-6 * one.goodput_bps:.3g}")
            print("| " + " | ".join([*line, f"{own:+.1%}", f"{out:+.1%}"]) + " |")
        means = [f"{mean(abs(one) for one in column):.1%}" for column in zip(*rows, strict=True)]
        line = (name, found.link.kind, "mean", "", *means)
        print("| " + " | ".join(line) + " |", flush=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--paths", type=int, default=10)
    options.add_argument("--held-out", action="store_true")
    options.add_argument("--emulate", action="store_true")
    options.add_argument("files", nargs="*")
    given = options.parse_args()
    if given.files:
        files(given.files)
    else:
        known_paths(given.paths, 79 if given.held_out else 9, given.emulate)


if __name__ == "__main__":
    main()
