"""Many emulations one after another and side by side, some of them killed: is anything left behind?

usage: benches/soak.py [--runs N] [--at-once N] [--seed N] [--device tun|veth]

Runs `pathcast emulate` over a short path, as root, and sends SIGKILL to a third of the runs at random
moments. Compares namespaces, devices, addresses, routes, cgroups and processes before and after.
"""

import argparse
import concurrent.futures
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATHCAST = Path(sys.executable).with_name("pathcast")
PATH = "rate = '12 Mbit/s'\ndelay = '10 ms'\nqueue = '1 BDP'\n"
DURATION_S = 2.0


def namespaces():
    """Network namespaces that the kernel holds, with or without a process in them; some that it keeps
    in store are counted too, unless it can be told to give them up, so that this may fall."""
    store = Path("/sys/kernel/slab/net_namespace/shrink")
    if store.exists():
        store.write_text("1")
    for line in Path("/proc/slabinfo").read_text().splitlines():
        if line.startswith("net_namespace"):
            return int(line.split()[1])
    return None


def state():
    """All that a run makes and must not leave."""
    folders = sorted(Path("/sys/fs/cgroup").glob("**/"))
    processes = subprocess.run(["ps", "-eo", "comm"], capture_output=True, text=True, check=True)
    return {
        "namespaces": namespaces(),
        "devices": sorted(os.listdir("/sys/class/net")),
        "routes": Path("/proc/net/route").read_text(),
        "IPv6 routes": Path("/proc/net/ipv6_route").read_text(),
        "cgroups": [str(folder) for folder in folders],
        "pathcast processes": processes.stdout.count("pathcast"),
    }


def one_run(number, kill_after_s, path, device):
    """The report of a run; None if it was killed or failed."""
    command = [
        PATHCAST,
        "emulate",
        path,
        "--duration",
        str(DURATION_S),
        "--seed",
        str(number),
        "--device",
        device,
        "--json",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        process.send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    if kill_after_s is not None:
        return "killed", None
    if process.returncode != 0:
        return "failed", err.strip()
    return "ran", json.loads(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=["auto", "tun", "veth"], default="auto")
    options = parser.parse_args()
    draws = random.Random(options.seed)
    kills = [
        draws.uniform(0.3, DURATION_S + 1) if draws.random() < 1 / 3 else None
        for _ in range(options.runs)
    ]
    before = state()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "path.toml")
        path.write_text(PATH)
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            same = ([path] * options.runs, [options.device] * options.runs)
            ended = list(pool.map(one_run, range(options.runs), kills, *same))
        files = [file.name for file in Path(folder).iterdir() if file != path]
    # the kernel takes namespaces down in its own time
    for _ in range(100):
        after = state()
        if {**after, "namespaces": 0} == {**before, "namespaces": 0} and (
            (after["namespaces"] or 0) <= (before["namespaces"] or 0)
        ):
            break
        time.sleep(0.1)
    counts = {
        kind: sum(1 for what, _ in ended if what == kind) for kind in ("ran", "killed", "failed")
    }
    reports = [report for what, report in ended if what == "ran"]
    valid = [report for report in reports if report["valid"]]
    print(
        f"{counts['ran']} ran, {len(valid)} of them valid; {counts['killed']} were killed; "
        f"{counts['failed']} failed"
    )
    for what, error in ended:
        if what == "failed":
            print("failed:", error)
    if (before["namespaces"] or 0) > (after["namespaces"] or 0):
        before["namespaces"] = after["namespaces"]
    left = [key for key in before if before[key] != after[key]]
    for key in left:
        print(f"left behind: {key}: {before[key]} before, {after[key]} after")
    if files:
        print("left behind: files", files)
    if not left and not files:
        print("nothing is left behind")
    sys.exit(1 if left or files or counts["failed"] else 0)


if __name__ == "__main__":
    main()
