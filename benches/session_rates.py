"""How well the rate of a long session is known after a minute: what `/v1/bitrate?over=session` rests on.

usage: .venv/bin/python benches/session_rates.py [--paths 60] [--first 101]

Simulated paths with a constant rate (5, 20 or 50 Mbit/s), round trips of 20 to 200 ms, queues of 0.5 to 2 BDP, and random
losses of 5e-4 to 2e-2. A CUBIC flow of a minute goes to a running service; the truth is what the same flow gets over the
five minutes after it. Beside the session's median: the forecast of the next 60 s and of the next 4 s (`/v1/throughput`), and
the flow's own mean from 5 to 60 s. The method's constants were chosen on paths 1 to 60.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path as File

import numpy as np
from serve_truth import Flow, Service, simulated

import pathcast

SEEN_S, AHEAD_S = 60, 300
RATES_BPS, RTTS_MS = (5e6, 20e6, 50e6), (20, 50, 100, 200)
#: A flow with less of the link's rate is limited by losses.
LIMITED = 0.6
NAMES = ("session", "next 60 s", "next 4 s", "mean so far")


def path_of(seed):
    draw = random.Random(seed)
    rate, rtt_ms = draw.choice(RATES_BPS), draw.choice(RTTS_MS)
    loss, bdps = 10 ** draw.uniform(-3.3, -1.7), draw.uniform(0.5, 2)
    queue_packets = max(4, round(bdps * rate * rtt_ms / 1e3 / 8 / 1500))
    ends = f"rate = '{rate:.0f} bit/s'\ndelay = '{rtt_ms / 2:g} ms'\nqueue = '{queue_packets} packets'\n"
    return rate, pathcast.Path.parse(f"{ends}loss = {loss:.6f}\n")


def judge(service, seed, folder):
    """The link's rate, the truth, what each says, and the bands of the session and of the next 60 s."""
    rate, path = path_of(seed)
    flow = Flow(simulated, path, seed, SEEN_S + AHEAD_S)
    client = f"10.{seed // 256 % 256}.{seed % 256}.1"
    body = flow.until(SEEN_S, File(folder) / "flow.parquet")
    where = f"/v1/samples?client={client}&begun_s={time.time() - SEEN_S}"
    service.request("POST", where, body, "application/vnd.apache.parquet")

    def ask(words):
        return service.request("GET", f"/v1/{words}&client={client}")["quantiles_bps"]

    session, minute = ask("bitrate?over=session"), ask("throughput?horizon_s=60")
    said = [session["0.5"], minute["0.5"], ask("throughput?horizon_s=4")["0.5"]]
    said.append(flow.bits(5, SEEN_S) / (SEEN_S - 5))
    truth = flow.bits(SEEN_S, SEEN_S + AHEAD_S) / AHEAD_S
    return rate, truth, said, [(one["0.05"], one["0.95"]) for one in (session, minute)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paths", type=int, default=60)
    parser.add_argument("--first", type=int, default=101)
    given = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        service = Service([str(File(sys.executable).with_name("pathcast"))], folder)
        try:
            for seed in range(given.first, given.first + given.paths):
                found.append(judge(service, seed, folder))
                print(f"\r{len(found)} of {given.paths} paths", end="", file=sys.stderr)
        finally:
            service.stop()
    print(
        f"\n| limited by | flows | forecast | median error | mean error | bias | band holds | its width |\n{'|---' * 8}|"
    )
    for name, limited in (("losses", True), ("the link", False)):
        rows = [one for one in found if (one[1] < LIMITED * one[0]) == limited]
        if not rows:
            continue
        for number, forecast in enumerate(NAMES):
            off = np.array([said[number] / truth - 1 for _, truth, said, _ in rows])
            cells = [
                f"{np.median(abs(off)):.1%}",
                f"{np.mean(abs(off)):.1%}",
                f"{np.median(off):+.1%}",
            ]
            if number < 2:
                bands = [(bands[number], truth) for _, truth, _, bands in rows]
                held = np.mean([low <= truth <= high for (low, high), truth in bands])
                width = np.median([high / low for (low, high), _ in bands])
                cells += [f"{held:.0%}", f"x {width:.2f}"]
            print(
                f"| {name} | {len(rows)} | {forecast} | {' | '.join([*cells, *[''] * (5 - len(cells))])} |"
            )


if __name__ == "__main__":
    main()
