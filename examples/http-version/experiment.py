"""Clients on a clean and a lossy path, unknown at first, get the version of HTTP that is best for each.

    examples/http-version/run [--json] [--loads N] [--requests N]

One network namespace has `pathcast serve`, `pathcast feed`, `pathcast steer`, HAProxy and nginx; each client is a Chromium
behind an emulated path. Three parts: the clients load a page until each has the right version three times in a row; then
loads of the steered address alternate with loads of addresses that always have one version; then many small requests run
while the map changes. Exit code 1: a claim does not hold.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

from pathcast.experiments.pages.replica import HOST, write_replica
from pathcast.experiments.pages.rig import (
    Rig,
    end,
    enter_namespace,
    missing,
    pathcast,
    program,
    until,
    use_scheme,
)
from pathcast.page import Page
from pathcast.service.haproxy import Haproxy

HERE = Path(__file__).parent
#: Addresses of HAProxy: by the map, and always the same.
STEERED, ALWAYS = f"{HOST}:8443", {"http/1.1": f"{HOST}:8441", "h2": f"{HOST}:8442"}
PATHS = ("clean", "lossy")
POOLS = {"http/1.1": "pool_h1", "h2": "pool_h2"}
#: What the claims are.
LEARNED_S, OVER = 60.0, 1.05
#: Loads in a row by the right version before a client counts as learned, and until when.
IN_A_ROW, LONGEST_S = 3, 90.0
NEEDED = ("haproxy", "nginx", "chromium", "openssl", "curl")
#: Every so many seconds the map changes while small requests run, which several curls make.
FLIP_S, CURLS, PER_CURL = 0.02, 4, 10


def start(rig):
    """Start the servers and the service, which knows the page as it is served."""
    run = rig.folder
    (run / "www").mkdir()
    replica = write_replica(Page.load(HERE / "page.toml"), run / "www")
    (run / "www/small").write_bytes(b"x" * 200)
    rig.certify()
    rig.nginx(HERE / "nginx.conf")
    # the map is empty: all clients have the default
    (run / "prefix.map").write_text("")
    rig.start("haproxy", [program("haproxy"), "-db", "-f", HERE / "haproxy.cfg"], {"RUN": str(run)})
    until((run / "admin.sock").exists, "the start of HAProxy")
    rig.serve('protocols = ["http/1.1", "h2"]\nscheme = "cubic"\n')
    status, said = rig.service.request("PUT", "/v1/pages/shop", replica.page.to_toml().encode())
    if status != 200:
        raise SystemExit(f"the service does not take the page: {said}")


def steer(rig):
    """Start what brings samples in, and what carries decisions out; the latter."""
    rig.start("feed", pathcast("feed", rig.service.url, "--local-port", 8443))
    run = rig.folder
    command = pathcast(
        "steer", rig.service.url, "--socket", run / "admin.sock", "--map", run / "prefix.map"
    )
    command += ["--page", "shop", "--every", "2", "--json"]
    command += [
        word for protocol, pool in POOLS.items() for word in ("--pool", f"{protocol}={pool}")
    ]
    return rig.start("steer", command)


def learn(loaders, right):
    """Load the steered address until each client has the right version; when it had it, and what was loaded."""
    begin_s = time.time()
    loads = {name: [] for name in loaders}

    def has_learned(name):
        last = [one["protocol"] for one in loads[name][-IN_A_ROW:]]
        return last == [right[name]] * IN_A_ROW

    while not all(map(has_learned, loaders)) and time.time() - begin_s < LONGEST_S:
        for name, loader in loaders.items():
            loads[name].append(loader.ask(STEERED))
    found = {}
    for name, those in loads.items():
        wrong = [one for one in those if one["protocol"] != right[name]]
        last_s = wrong[-1]["begin_s"] + (wrong[-1]["load_ms"] or 0) / 1e3 if wrong else begin_s
        found[name] = {
            "protocol": those[-1]["protocol"],
            "after_s": round(last_s - begin_s, 1) if has_learned(name) else None,
            "loads": [one["protocol"] for one in those],
        }
    return found


def compare(loaders, count):
    """Times to the load event of the steered address and of those with one version, in turn."""
    origins = {"steered": STEERED} | ALWAYS
    times = {name: {by: [] for by in origins} for name in loaders}
    protocols = {name: Counter() for name in loaders}
    failed = 0
    for number in range(count + 1):
        for name, loader in loaders.items():
            for by, origin in origins.items():
                found = loader.ask(origin)
                failed += len(found["failed"]) + (found["load_ms"] is None)
                # the first warms up
                if number and found["load_ms"] is not None:
                    times[name][by].append(found["load_ms"])
                    if by == "steered":
                        protocols[name][found["protocol"]] += 1
    return times, protocols, failed


def ratio(times, best):
    """The steered median over that of the best version, with its 95 % interval by the bootstrap."""
    generator = np.random.default_rng(1)
    draws = []
    for one in (times["steered"], times[best]):
        values = np.asarray(one)
        draws.append(
            np.median(values[generator.integers(0, len(values), (2000, len(values)))], axis=1)
        )
    low, high = np.quantile(draws[0] / draws[1], [0.025, 0.975])
    middle = np.median(times["steered"]) / np.median(times[best])
    return {
        "ratio": round(float(middle), 3),
        "low": round(float(low), 3),
        "high": round(float(high), 3),
    }


def hammer(run, requests):
    """Make many small requests, each curl on a new connection, while the map changes; count what came."""
    haproxy, file = Haproxy(run / "admin.sock"), run / "prefix.map"
    kept = haproxy.shown(file)
    over = threading.Event()
    changes = 0

    def flip():
        nonlocal changes
        while not over.wait(FLIP_S):
            pool = list(POOLS.values())[changes % 2]
            # a few prefixes beside those of the clients
            others = {f"10.{n // 256}.{n % 256}.0/24": pool for n in range(1000)}
            haproxy.swap(file, kept | others | {"127.0.0.0/8": pool})
            changes += 1

    results = Counter()
    lock = threading.Lock()
    left = requests // PER_CURL

    def ask():
        nonlocal left
        while True:
            with lock:
                if left <= 0:
                    return
                left -= 1
            done = subprocess.run(
                [
                    *(program("curl"), "--insecure", "--silent", "--max-time", "20"),
                    *("--resolve", f"{HOST}:8443:127.0.0.1", "--output", "/dev/null"),
                    *("--write-out", "%{http_version} %{http_code} %{exitcode}\n"),
                    f"https://{STEERED}/small?[1-{PER_CURL}]",
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            lines = done.stdout.splitlines()
            with lock:
                results.update(lines)
                results["none"] += PER_CURL - len(lines)

    flipping = threading.Thread(target=flip)
    flipping.start()
    begin_s = time.monotonic()
    asking = [threading.Thread(target=ask) for _ in range(CURLS)]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    took_s = time.monotonic() - begin_s
    over.set()
    flipping.join()
    by = {"http/1.1": results["1.1 200 0"], "h2": results["2 200 0"]}
    return {
        "requests": sum(results.values()),
        "failed": sum(results.values()) - sum(by.values()),
        "by_protocol": by,
        "map_changes": changes,
        "seconds": round(took_s, 1),
    }


def run_all(given):
    with Rig.made() as rig:
        run = rig.folder
        start(rig)
        command = [sys.executable, "-P", HERE / "client.py", HOST]
        loaders = {one: rig.client(HERE / f"{one}.toml", given.seed, command) for one in PATHS}
        use_scheme("cubic")
        steering = steer(rig)
        right = {"clean": "h2", "lossy": "http/1.1"}
        learned = learn(loaders, right)
        times, protocols, failed = compare(loaders, given.loads)
        medians = {
            path: {by: round(float(np.median(those)), 1) for by, those in one.items()}
            for path, one in times.items()
        }
        end(steering)
        result = {
            "browser": loaders["clean"].first["browser"],
            "kernel": os.uname().release,
            "load_average": os.getloadavg()[0],
            "learned": learned,
            "loads": given.loads,
            "median_ms": medians,
            "steered_by": {path: dict(counts) for path, counts in protocols.items()},
            "over_best": {},
            "page_requests_failed": failed,
            "small_requests": hammer(run, given.requests),
            "map": (run / "prefix.map").read_text().splitlines(),
            "paths_invalid": {
                path: one.end().get("invalid_because", []) for path, one in loaders.items()
            },
        }
        for path, those in times.items():
            best = min(ALWAYS, key=lambda by, those=those: np.median(those[by]))
            result["over_best"][path] = {"best": best} | ratio(those, best)
        result["claims"] = claims(result)
        return result


def claims(found):
    """What is claimed, and whether it holds."""
    learned = found["learned"].values()
    over = found["over_best"].values()
    small = found["small_requests"]
    return {
        f"each client has the right version within {LEARNED_S:g} s": all(
            one["after_s"] is not None and one["after_s"] <= LEARNED_S for one in learned
        ),
        f"median loads take at most {OVER:g} times those of the best version": all(
            one["ratio"] <= OVER for one in over
        ),
        "no request fails while the map changes": small["failed"] == 0
        and found["page_requests_failed"] == 0
        and min(small["by_protocol"].values()) > 0,
    }


def show(found):
    for path, one in found["learned"].items():
        print(
            f"{path}: {one['protocol']} after {one['after_s']} s; loads by {', '.join(one['loads'])}"
        )
    for path, one in found["median_ms"].items():
        over = found["over_best"][path]
        times = ", ".join(f"{by} {value:.0f} ms" for by, value in one.items())
        print(
            f"{path}: median {times}; {over['ratio']} of {over['best']} ({over['low']} to {over['high']})"
        )
    small = found["small_requests"]
    print(
        f"{small['requests']} small requests, {small['failed']} failed, "
        f"over {small['map_changes']} changes of the map in {small['seconds']} s"
    )
    for claim, holds in found["claims"].items():
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {claim}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--loads", type=int, default=8, help="by each address and client; default 8"
    )
    parser.add_argument("--requests", type=int, default=5000, help="small ones; default 5000")
    parser.add_argument("--seed", type=int, default=1, help="of the paths; default 1")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not 1 <= given.loads <= 1000 or not PER_CURL <= given.requests <= 1_000_000:
        parser.error(f"expected 1 to 1000 loads, and {PER_CURL} to 1000000 requests")
    if lacks := missing(NEEDED):
        print(
            f"this machine lacks {', '.join(lacks)}; scripts/system-packages servers and pages install programs",
            file=sys.stderr,
        )
        return 2
    if not given.inside:
        enter_namespace("--inside")
    found = run_all(given)
    if given.json:
        print(json.dumps(found))
    else:
        show(found)
    return int(not all(found["claims"].values()))


if __name__ == "__main__":
    sys.exit(main())
