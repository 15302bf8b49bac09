"""Delivered packets per CPU second: Pathcast's simulator beside ns-3 and csg-htsim, in one run on one machine.

usage: benches/simulators.py [--repeats N] [--json] [--htsim FOLDER]

Without ns-3 (Debian packages ns3, libns3-dev, g++) its column stays empty, and the reason is printed. FOLDER is
csg-htsim's `sim` with libhtsim.a in it (`make libhtsim.a`). csg-htsim runs its own TCP: like NewReno, without
SACK, one acknowledgment for each packet.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
NS3_LIBRARIES = ("core", "network", "internet", "point-to-point", "applications", "traffic-control",
                 "bridge", "stats")  # fmt: skip

#: Name, scheme, ns-3's TypeId, Mbit/s, RTT in ms, queue in packets, flows, seconds simulated by Pathcast and
#: csg-htsim, and by ns-3 (none: not run): enough for a second of processor time each, and no more.
CASES = (
    ("1 CUBIC flow, 100 Mbit/s, 40 ms", "cubic", "TcpCubic", 100, 40, 333, 1, 1200, 20),
    ("10 Reno flows, 100 Mbit/s, 20 ms", "reno", "TcpLinuxReno", 100, 20, 167, 10, 1200, 20),
    ("10 CUBIC flows, 1 Gbit/s, 20 ms", "cubic", "TcpCubic", 1000, 20, 1667, 10, 120, 2),
    ("1000 CUBIC flows, 1 Gbit/s, 20 ms", "cubic", "TcpCubic", 1000, 20, 1667, 1000, 60, 2),
    (
        "10,000 CUBIC flows, 10 Gbit/s, 10 ms",
        "cubic",
        "TcpCubic",
        10_000,
        10,
        8333,
        10_000,
        6,
        None,
    ),
)

#: Each of our runs gets a process of its own, so that its memory is its own.
OURS = """
import json, resource, sys
import pathcast
rate, rtt, queue, scheme, flows, duration = sys.argv[1:]
path = pathcast.Path.parse(
    f"rate = '{rate} Mbit/s'\\ndelay = '{float(rtt) / 2} ms'\\nqueue = '{queue} packets'\\n"
)
before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report, _ = pathcast.simulate(path, [scheme] * int(flows), duration_s=float(duration), record=False)
after_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({
    "packets_delivered": report.packets_delivered,
    "goodput_bps": sum(flow.goodput_bps for flow in report.flows),
    "cpu_s": report.cpu_s,
    "max_rss_kib": after_kib,
    "grown_kib": after_kib - before_kib,
}))
"""


def build_ns3(folder):
    """The scenario program, or None and why not."""
    if not Path("/usr/include/ns3.37").is_dir() and not Path("/usr/include/ns3").is_dir():
        return None, "ns-3 is not installed (Debian packages ns3, libns3-dev)"
    if shutil.which("g++") is None:
        return None, "there is no g++"
    program = folder / "bottleneck"
    include = next(p for p in ("/usr/include/ns3.37", "/usr/include") if (Path(p) / "ns3").is_dir())
    command = ["g++", "-O3", "-march=native", "-std=c++17", "-DNDEBUG", f"-I{include}",
               str(HERE / "bottleneck.cc"), "-o", str(program),
               *(f"-lns3-{name}" for name in NS3_LIBRARIES)]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        # Debian names the libraries with the version
        command[-len(NS3_LIBRARIES) :] = [f"-lns3.37-{name}" for name in NS3_LIBRARIES]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return None, f"ns-3's scenario does not build: {done.stderr.strip().splitlines()[-1]}"
    return program, ""


def build_htsim(sources, folder):
    """csg-htsim's scenario program, or None and why not."""
    if sources is None:
        return None, "--htsim names no folder of it"
    library = sources / "libhtsim.a"
    if not library.is_file():
        return None, f"{library} is not there: run `make libhtsim.a` in {sources}"
    program = folder / "htsim"
    command = ["g++", "-O3", "-march=native", "-std=c++17", f"-I{sources}",
               str(HERE / "htsim.cc"), str(library), "-o", str(program)]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return None, f"csg-htsim's scenario does not build: {done.stderr.strip().splitlines()[-1]}"
    return program, ""


def run(command):
    """A run's JSON."""
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
    return json.loads(done.stdout)


def rate(runs):
    """Median packets a CPU second."""
    return statistics.median(run["packets_delivered"] / run["cpu_s"] for run in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--htsim", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        ns3, why_ns3 = build_ns3(Path(folder))
        htsim, why_htsim = build_htsim(options.htsim, Path(folder))
        for name, scheme, type_id, mbps, rtt_ms, queue, flows, ours_s, theirs_s in CASES:
            ours, of_ns3, of_htsim = [], [], []
            # in turns, so that all meet the same load
            for _ in range(options.repeats):
                arguments = [mbps, rtt_ms, queue, scheme, flows, ours_s]
                ours.append(run([sys.executable, "-c", OURS, *map(str, arguments)]))
                if htsim is not None:
                    arguments = [mbps, rtt_ms, queue, flows, ours_s]
                    of_htsim.append(run([str(htsim), *map(str, arguments)]))
                if ns3 is not None and theirs_s is not None:
                    of_ns3.append(run([
                        str(ns3), f"--cc={type_id}", f"--rate={mbps}", f"--rtt={rtt_ms}",
                        f"--queue={queue}", f"--flows={flows}", f"--duration={theirs_s}",
                    ]))  # fmt: skip
            row = {
                "case": name,
                "pathcast_packets_per_cpu_s": rate(ours),
                "pathcast_goodput_bps": ours[0]["goodput_bps"],
                "pathcast_max_rss_mib": max(run["max_rss_kib"] for run in ours) / 1024,
                "pathcast_grown_mib": max(run["grown_kib"] for run in ours) / 1024,
            }
            for peer, runs in (("ns3", of_ns3), ("htsim", of_htsim)):
                row[f"{peer}_packets_per_cpu_s"] = rate(runs) if runs else None
                row[f"{peer}_goodput_bps"] = runs[0]["goodput_bps"] if runs else None
            rows.append(row)
    if options.json:
        print(json.dumps(rows))
        return
    print(
        "| case | Pathcast, packets/CPU s | csg-htsim | ratio | ns-3 | ratio | memory (of it the run's) |"
    )
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        ours = row["pathcast_packets_per_cpu_s"]
        cells = [row["case"], f"{ours:,.0f}"]
        for peer in ("htsim", "ns3"):
            theirs = row[f"{peer}_packets_per_cpu_s"]
            cells += [f"{theirs:,.0f}", f"{ours / theirs:,.1f}"] if theirs else ["-", "-"]
        cells.append(f"{row['pathcast_max_rss_mib']:.0f} MiB ({row['pathcast_grown_mib']:.0f})")
        print(f"| {' | '.join(cells)} |")
    for peer, why in (("ns-3", why_ns3), ("csg-htsim", why_htsim)):
        if why:
            print(f"\n{peer}: {why}")


if __name__ == "__main__":
    main()
