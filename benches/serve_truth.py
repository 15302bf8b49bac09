"""How often decisions hold on paths whose truth is known.

usage: python benches/serve_truth.py [--paths N] [--first SEED] [--emulate [--at-once N]] [--pathcast COMMAND]

Each path is one of the simulator, or with --emulate of the emulator, with the kernel's TCP: a rate that wanders, a delay, a
queue, losses. A flow of CUBIC measures it, and its trace up to some moment goes into a running `pathcast serve`. The service
is asked at that moment, and then the same path goes on: with the flow for throughput and bitrates (`session`: for the mean of
the next minute); with a transfer on an idle connection and a page load in the flow's place, at the same moment. A decision at
90 % holds if the truth is in its band of 5 to 95 %, or, of a bitrate, if the segment arrives in its duration. Prints, by
kind, how many held with the standard error of that. As the emulator takes real time, it judges one moment of each path.
Ctrl-C ends it with the paths judged so far.

The constants of the service were chosen on paths with --first 1; those that judge begin at 1001.
"""

import argparse
import json
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path as FilePath

import numpy as np

import pathcast

MOMENTS_S = (25, 45, 70)
EMULATED_MOMENTS_S = (25,)
#: Runs in the emulator until one is valid, at most.
TRIES = 8
HORIZONS_S = (1, 5, 15)
SEGMENT_S = 4
SESSION_S = 60
AHEAD_S = SESSION_S + 1
PROTOCOLS = ("http/1.1", "h2")
PAGE = "[[resources]]\nurl = 'https://example.org/'\nsize = '30 kB'\n" + "".join(
    f"[[resources]]\nurl = 'https://example.org/{number}.png'\nsize = '{8 + 37 * number % 61} kB'\n"
    "after = { of = 'https://example.org/' }\n"
    for number in range(40)
)


def path_of(seed):
    """A path, as TOML: rates of 1 to 50 Mbit/s, which wander by 10 to 50 % with a memory of 2 to 30 s."""
    draw = random.Random(seed)
    rate = 1e6 * 50 ** draw.random()
    spread, memory_s = draw.uniform(0.1, 0.5), 2 * 15 ** draw.random()
    loss = draw.choice([0, 0, 10 ** draw.uniform(-4, -2.5)])
    delay_ms, bdps = draw.uniform(5, 60), draw.uniform(0.5, 2)
    queue_packets = max(4, round(bdps * rate * 2e-3 * delay_ms / 8 / 1500))
    return (
        f"rate = {{ kind = 'wandering', rate = '{rate:.0f} bit/s', spread = {spread:.3f}, "
        f"correlation = '{memory_s:.2f} s' }}\ndelay = '{delay_ms:.1f} ms'\nqueue = '{queue_packets} packets'\n"
        + (f"loss = {loss:.6f}\n" if loss else "")
    )


class Service:
    """A service in another process."""

    def __init__(self, command, folder):
        config = FilePath(folder) / "serve.toml"
        config.write_text(f"protocols = {list(PROTOCOLS)}\nscheme = 'cubic'\nloads = 40\n")
        words = [*command, "serve", "--listen", "127.0.0.1:0", "--config", str(config)]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        line = next(line for line in self.process.stderr if '"started"' in line)
        self.base = f"http://{json.loads(line)['listen']}"
        self.request("PUT", "/v1/pages/page", PAGE.encode())

    def request(self, method, path, body=None, kind="application/json"):
        asked = urllib.request.Request(
            self.base + path, body, {"Content-Type": kind}, method=method
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.loads(answer.read() or "null")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        self.process.stderr.close()


class Spoilt(Exception):
    """No emulated run was valid."""


def simulated(what, duration_s, seed, record=True):
    """Report and trace of a run in the simulator."""
    return pathcast.simulate(what, duration_s=duration_s, seed=seed, record=record)


def emulated(what, duration_s, seed, record=True):
    """The same with the kernel's TCP, which is always recorded; the first run that is valid."""
    for _ in range(TRIES):
        report, trace = pathcast.emulate(what, duration_s=duration_s, seed=seed)
        if report.valid:
            return report, trace
    raise Spoilt("; ".join(report.invalid_because))


class Flow:
    """A bulk flow over a path, and what it delivered by when."""

    def __init__(self, run, path, seed, last_s):
        scenario = pathcast.Scenario.over(path, ["cubic"])
        _, self.trace = run(scenario, last_s + AHEAD_S, seed)
        self.columns = self.trace.columns
        acked = self.columns["snd_una_bytes"]
        known = ~np.isnan(acked)
        self.time_s, self.acked = self.columns["time_s"][known], acked[known]

    def bits(self, begin_s, end_s):
        """What was acknowledged in between."""
        first, last = np.interp([begin_s, end_s], self.time_s, self.acked)
        return 8 * (last - first)

    def until(self, moment_s, file):
        """The trace up to a moment, as Parquet."""
        seen = self.columns["time_s"] <= moment_s
        columns = {name: values[seen] for name, values in self.columns.items()}
        metadata = {"schemes": ["cubic"], "mss_bytes": 1448}
        pathcast.Trace.from_columns(columns, metadata).write(file)
        return file.read_bytes()


def over(run, path, seed, moment_s, workload):
    """The report of a run whose flow has this workload from the moment on."""
    scenario = pathcast.Scenario.over(path, ["cubic"])
    scenario = scenario.replace_flow(0, workload=workload, start=f"{moment_s} s")
    return run(scenario, moment_s + 120, seed, record=False)[0]


def judge(service, run, seed, path, flow, moment_s, file, found):
    """Asks about one path at one moment, and notes which decisions held."""
    draw = random.Random(f"{seed} {moment_s}")
    number = seed * len(MOMENTS_S) + MOMENTS_S.index(moment_s)
    client = f"10.{number // 256 % 256}.{number % 256}.1"
    body = flow.until(moment_s, file)
    begun_s = time.time() - moment_s
    kind = "application/vnd.apache.parquet"
    service.request("POST", f"/v1/samples?client={client}&begun_s={begun_s}", body, kind)

    def ask(what, **more):
        words = "&".join(f"{name}={value}" for name, value in {"client": client, **more}.items())
        return service.request("GET", f"/v1/{what}?{words}")

    def note(name, truth, quantiles):
        band = list(quantiles.values())
        found[name].append((band[0] <= truth <= band[-1], truth < band[0], truth / band[2] - 1))

    for horizon_s in HORIZONS_S:
        said = ask("throughput", horizon_s=horizon_s)["quantiles_bps"]
        truth = flow.bits(moment_s, moment_s + horizon_s) / horizon_s
        note(f"throughput, {horizon_s} s", truth, said)
    said = ask("bitrate", segment_s=SEGMENT_S, confidence=0.9)
    rtt_s = said["features"]["rtt_s"] or 0
    bits = flow.bits(moment_s + rtt_s, moment_s + SEGMENT_S)
    found["bitrate"].append((bits >= SEGMENT_S * said["bitrate_bps"], False, math.nan))
    said = ask("bitrate", over="session")["quantiles_bps"]
    note("session", flow.bits(moment_s, moment_s + SESSION_S) / SESSION_S, said)
    size = round(2e4 * 250 ** draw.random())
    said = ask("transfer", bytes=size)["quantiles_s"]
    workload = {"kind": "request-response", "response": f"{size} B", "count": 1}
    messages = over(run, path, seed, moment_s, workload).flows[0].messages
    if messages is not None and messages.delivered:
        note("transfer", messages.latency_ms["mean"] / 1e3, said)
    # the first answer rests on one load, a later one on all
    while ask("http", page="page")["loads"] == 1:
        time.sleep(0.1)
    said = ask("http", page="page")
    times = next(t for t in said["load_times"] if t["protocol"] == said["protocol"])
    workload = {"kind": "page", "page": tomllib.loads(PAGE), "protocol": said["protocol"]}
    loaded = over(run, path, seed, moment_s, workload).pages[0]
    if loaded.load_ms is not None:
        note("http", loaded.load_ms, times["quantiles_ms"])


def judge_path(service, run, moments_s, seed, folder):
    """What `judge` finds of a path at all moments."""
    found = defaultdict(list)
    path = pathcast.Path.parse(path_of(seed))
    file = FilePath(folder) / f"{seed}.parquet"
    try:
        flow = Flow(run, path, seed, moments_s[-1])
        for moment_s in moments_s:
            judge(service, run, seed, path, flow, moment_s, file, found)
    except Spoilt as why:
        print(f"path {seed}: no run was valid: {why}", file=sys.stderr)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paths", type=int, default=100)
    parser.add_argument("--first", type=int, default=1001)
    parser.add_argument("--emulate", action="store_true", help="the kernel's TCP in real time")
    parser.add_argument("--at-once", type=int, default=1, help="paths that run together")
    parser.add_argument(
        "--pathcast", nargs="+", default=[str(FilePath(sys.executable).with_name("pathcast"))]
    )
    options = parser.parse_args()
    run, moments_s = (emulated, EMULATED_MOMENTS_S) if options.emulate else (simulated, MOMENTS_S)
    found, judged = defaultdict(list), 0
    with tempfile.TemporaryDirectory() as folder:
        service = Service(options.pathcast, folder)
        try:
            with ThreadPoolExecutor(options.at_once) as pool:
                seeds = range(options.first, options.first + options.paths)
                jobs = [
                    pool.submit(judge_path, service, run, moments_s, seed, folder) for seed in seeds
                ]
                try:
                    for job in as_completed(jobs):
                        for name, more in job.result().items():
                            found[name] += more
                        judged += 1
                        print(f"\r{judged} of {options.paths} paths", end="", file=sys.stderr)
                except KeyboardInterrupt:
                    pool.shutdown(wait=False, cancel_futures=True)
        finally:
            service.stop()
    if not judged:
        sys.exit("no path was judged")
    print(f"\n{judged} paths, {len(moments_s)} moments each\n")
    print("| decision | decisions | held | standard error | below the band | median error |")
    print("|---|---|---|---|---|---|")
    for name, rows in found.items():
        held, below, error = (np.array(column, float) for column in zip(*rows, strict=True))
        # moments of one path are not independent: as if there were one for each path
        off = math.sqrt(held.mean() * (1 - held.mean()) / judged)
        median = "" if np.isnan(error).all() else f"{np.nanmedian(abs(error)):.0%}"
        print(
            f"| {name} | {len(rows)} | {held.mean():.1%} | {off:.1%} | {below.mean():.1%} | {median} |"
        )


if __name__ == "__main__":
    main()
