"""Does the tunnel of live runs change what TCP gets? Runs inside and outside it over one emulated path.

usage: .venv/bin/python benches/tunnel.py [--runs 10] [--seconds 10] [--schemes cubic,vegas,bbr] [--json FILE]

The Pantheon paper's check (section 3), over an emulated path instead of a real one. Inside, `pathcast live run` sends through
its tunnel. Outside, the same kernel's TCP sends without it. Both are measured by the path's own log of packets: the mean
throughput with all headers, and the 95th percentile of the one-way delay. Runs inside and outside take turns with the same
seeds of the path. The table has the medians, and p of the two-sample Kolmogorov-Smirnov test. Needs Linux and root.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.progress import track
from scipy.stats import ks_2samp

from pathcast.schemes import measure
from pathcast.schemes.run import FIRST_PORT, Flow, run_flows

PATH = """rate = "20 Mbit/s"
queue = "1 BDP"
loss = 0.0005
delay = { kind = "jitter", base = "20 ms", jitter = "1 ms", distribution = "exponential" }
"""
PATHCAST = str(Path(sys.executable).parent / "pathcast")
#: Of the live server.
PORT = 5600
#: Smaller packets are the tunnel's own, or carry no data.
DATA_BYTES = 1000
#: An invalid run is made again so often.
ATTEMPTS = 5


def seen(packets, port, seconds):
    """Mean throughput in Mbit/s and 95th percentile of one-way delay in ms, from the flow's first data on."""
    flow = measure.read(packets).of(port, reverse=False)
    begin_s = flow.times_s[flow.sizes >= DATA_BYTES][0]
    within = (flow.times_s >= begin_s) & (flow.times_s < begin_s + seconds)
    megabits = flow.sizes[within].sum() * 8e-6 / seconds
    return float(megabits), float(np.quantile(flow.delays_s[within], 0.95) * 1e3)


def inside(folder, scheme, seconds, seed):
    """A run through the tunnel; None if it is not valid."""
    packets, report = folder / "packets.parquet", folder / "report.json"
    server = f"{PATHCAST} live server --key {folder / 'key'} --listen 0.0.0.0:{PORT}"
    client = 'exec "$0" live run "$PATHCAST_BASE" --key "$1" --scheme "$2" --duration "$3" --json'
    options = ["--outside", server, "--seed", str(seed), "--log", packets, "--report", report, "-q"]
    command = ["sh", "-c", client, PATHCAST, folder / "key", scheme, str(seconds + 1)]
    done = subprocess.run(
        [PATHCAST, "shell", folder / "path.toml", *options, "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=10 * seconds + 60,
    )
    crossed = json.loads(report.read_text())
    if done.returncode or crossed["invalid_because"]:
        return None
    return seen(packets, PORT, seconds)


def outside(folder, scheme, seconds, seed):
    """A run without it; None if it is not valid."""
    packets = folder / "packets.parquet"
    run = run_flows(
        folder / "path.toml",
        [Flow(f"tcp-{scheme}")],
        duration_s=seconds + 1,
        seed=seed,
        packets_file=packets,
    )
    if run.invalid_because or run.flows[0].why_not:
        return None
    return seen(packets, FIRST_PORT, seconds)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--schemes", default="cubic,vegas,bbr")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    schemes = options.schemes.split(",")
    ways = {"inside": inside, "outside": outside}
    found = {(scheme, way): [] for scheme, way in itertools.product(schemes, ways)}
    repeated = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "path.toml").write_text(PATH)
        subprocess.run([PATHCAST, "live", "key", folder / "key"], check=True, capture_output=True)
        runs = list(itertools.product(range(options.runs), schemes, ways))
        for number, scheme, way in track(runs, "runs", disable=not os.isatty(2)):
            for _ in range(ATTEMPTS):
                got = ways[way](folder, scheme, options.seconds, 1 + number)
                if got:
                    found[scheme, way].append(got)
                    if not os.isatty(2):
                        print(
                            f"{number + 1} of {options.runs}: {scheme} {way} {got}", file=sys.stderr
                        )
                    break
                repeated += 1
    print(f"{options.runs} runs of {options.seconds} s each way; {repeated} repeated as not valid")
    print("| scheme | Mbit/s inside | outside | p | p95 of delay inside, ms | outside | p |")
    print("|---|---|---|---|---|---|---|")
    for scheme in schemes:
        cells = []
        for column, digits in ((0, 2), (1, 1)):
            both = [[run[column] for run in found[scheme, way]] for way in ways]
            cells += [f"{np.median(values):.{digits}f}" for values in both]
            cells.append(f"{ks_2samp(*both).pvalue:.2f}")
        print(f"| {scheme} | {' | '.join(cells)} |")
    if options.json:
        kept = {f"{scheme} {way}": values for (scheme, way), values in found.items()}
        options.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
