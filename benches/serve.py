"""Speed, memory and recovery of the service of decisions.

usage: python benches/serve.py [--seconds N] [--kills N] [--prefixes N]
       python benches/serve.py --soak SECONDS [--rate N] [--questions N] [--prefixes N]

Needs `cargo build --release --package pathcast-service --examples`. Prints JSON. Service and load share the machine's
processors, so figures depend on what else runs; the load of the machine is printed beside them. --soak sends samples and
questions at a steady rate, and prints the service's memory over time.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

RELEASE = Path(__file__).parent.parent / "target" / "release"
SERVICE, LOAD = RELEASE / "pathcast-serve", RELEASE / "examples" / "load"
PAGE = "".join(
    f"[[resources]]\nurl = 'https://example.org/{number}.png'\nsize = '25 kB'\n"
    + ("after = { of = 'https://example.org/0.png' }\n" if number else "")
    for number in range(60)
)


def start(state):
    """The process, its address, and the seconds until it was ready."""
    begin = time.monotonic()
    command = [SERVICE, "--listen", "127.0.0.1:0", "--state", state]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if '"started"' in line:
            return process, json.loads(line)["listen"], time.monotonic() - begin
    raise SystemExit(f"the service ended with {process.wait()}")


def get(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        return answer.read().decode()


def metric(address, name):
    lines = get(address, "/metrics").splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"pathcast_{name} "))


def load(address, *arguments):
    done = subprocess.run(
        [LOAD, address, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def kill_again_and_again(state, kills, prefixes):
    """Kills the service under load; what each restart took, and how much of the log was damaged."""
    seconds, lost_s, damaged = [], [], 0
    for number in range(kills):
        process, address, took = start(state)
        seconds.append(took)
        damaged += metric(address, "state_damaged")
        command = [LOAD, address, "samples", 60, 200_000, prefixes]
        sender = subprocess.Popen(list(map(str, command)), stdout=-3, stderr=-3)
        # a client that no other sample is of, once each 10 ms: the newest that is known says what was lost
        client = f"9.9.{number}.1"
        until = time.monotonic() + 2 + random.Random(number).random()
        acknowledged = 0
        while time.monotonic() < until:
            body = json.dumps({"client": client, "rate_bps": 1e6}).encode()
            headers = {"Content-Type": "application/x-ndjson"}
            asked = urllib.request.Request(f"http://{address}/v1/samples", body, headers)
            urllib.request.urlopen(asked, timeout=30).read()
            acknowledged += 1
            moment = time.monotonic()
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        sender.wait()
        process.stderr.close()
        each_s = (moment - (until - 2)) / acknowledged
        process, address, took = start(state)
        seconds.append(took)
        try:
            known = json.loads(get(address, f"/v1/prefix?client={client}"))["samples"]
        except urllib.error.HTTPError:
            known = 0
        lost_s.append((acknowledged - known) * each_s)
        process.send_signal(signal.SIGTERM)
        process.wait()
        process.stderr.close()
    return {
        "kills": kills,
        "start_most_s": max(seconds),
        "lost_most_s": max(lost_s),
        "damaged": damaged,
    }


def soak(address, process, options):
    """Memory over time under a steady load, each twentieth of the time: seconds, resident MB, prefixes."""
    prefixes = options.prefixes
    until = time.monotonic() + options.soak
    loads = [[LOAD, address, "samples", options.soak, options.rate, prefixes]]
    if options.questions:
        loads.append([LOAD, address, "decisions", options.soak, 2, options.questions, prefixes, 4])
    running = []
    for one in loads:
        running.append(subprocess.Popen(list(map(str, one)), stdout=subprocess.PIPE, text=True))
        # while nothing is known of any client, questions are refused
        time.sleep(1)
    rows = []
    while time.monotonic() < until:
        time.sleep(min(options.soak / 20, max(0, until - time.monotonic())))
        status = Path(f"/proc/{process.pid}/status").read_text()
        rss = next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line)
        at_s = options.soak - (until - time.monotonic())
        rows.append([round(at_s), round(rss * 1024 / 1e6), int(metric(address, "prefixes"))])
        print(json.dumps(rows[-1]), flush=True)
    return {
        "memory": rows,
        "loads": [json.loads(one.communicate(timeout=60)[0]) for one in running],
        "load_after": os.getloadavg(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--prefixes", type=int, default=100_000)
    parser.add_argument("--soak", type=float, metavar="SECONDS")
    parser.add_argument("--rate", type=float, default=20_000, help="samples a second of a soak")
    parser.add_argument("--questions", type=float, default=1000, help="a second, of a soak")
    options = parser.parse_args()
    found = {"processors": os.cpu_count(), "load_before": os.getloadavg()}
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        process, address, _ = start(state)
        put = urllib.request.Request(f"http://{address}/v1/pages/home", PAGE.encode(), method="PUT")
        urllib.request.urlopen(put, timeout=30).read()
        if options.soak:
            found["soak"] = soak(address, process, options)
            process.send_signal(signal.SIGTERM)
            process.wait()
            process.stderr.close()
            print(json.dumps(found, indent=1))
            return
        seconds, prefixes = options.seconds, options.prefixes
        found["samples"] = load(address, "samples", seconds, 0, prefixes)
        found["samples_at_200000"] = load(address, "samples", seconds, 200_000, prefixes)
        # the answers about pages become known
        load(address, "decisions", seconds, 4, 0, prefixes, 16)
        time.sleep(20)
        for name, arguments in {
            "one_at_a_time": (8, 0, prefixes, 1),
            "four_at_a_time": (4, 0, prefixes, 4),
            "sixteen_at_a_time": (4, 0, prefixes, 16),
            "at_50000": (4, 50_000, prefixes, 4),
        }.items():
            found[f"decisions_{name}"] = load(address, "decisions", seconds, *arguments)
        sender = subprocess.Popen(
            list(map(str, [LOAD, address, "samples", seconds + 1, 20_000, prefixes])), stdout=-3
        )
        found["decisions_at_20000_with_samples_at_20000"] = load(
            address, "decisions", seconds, 4, 20_000, prefixes, 4
        )
        sender.wait()
        found["prefixes"] = metric(address, "prefixes")
        found["memory_mb"] = metric(address, "memory_bytes") / 1e6
        process.send_signal(signal.SIGTERM)
        process.wait()
        process.stderr.close()
        found["killed"] = kill_again_and_again(state, options.kills, prefixes)
    found["load_after"] = os.getloadavg()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
