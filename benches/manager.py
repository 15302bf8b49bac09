"""Simulated agents that report to a manager: how many a second it takes, and how soon.

usage: python benches/manager.py [--agents 1000] [--seconds 30] [--each 20] [--program target/release/pathcast-manager]

Starts the program on loopback with SQLite in a temporary folder. First each agent reports once in ten seconds, as in the
field; then all report as fast as they can. Prints JSON. The agents share the processors with the manager. A million prefixes
are measured by `cargo run --release --package pathcast-control --example prefixes`.
"""

import argparse
import hashlib
import hmac
import http.client
import json
import math
import random
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

THREADS = 16
PERIOD_S = 10
MODEL = {
    "format": 1,
    "templates": [{"name": "lossy", "knobs": {"congestion_control": "bbr"}}],
    "features": ["loss"],
    "tree": {
        "feature": "loss",
        "threshold": 0.01,
        "below": {"template": "default"},
        "otherwise": {"template": "lossy"},
    },
}


class Agent:
    """One agent: its secret, and its part of the prefixes."""

    def __init__(self, number, token, prefixes):
        self.name, self.token, self.prefixes = f"edge-{number}", token, prefixes
        self.boot, self.sequence = f"{random.getrandbits(64):016x}", 0

    def report(self):
        """Body and headers of its next report."""
        self.sequence += 1
        logs = [7 + random.gauss(0, 0.3) for _ in range(5)]
        completions = {
            "template": "default",
            "version": 0,
            "count": len(logs),
            "sum_ms": sum(map(math.exp, logs)),
            "sum_log": sum(logs),
            "sum_log2": sum(log * log for log in logs),
        }
        seen = {"flows": 10, "rtt_ms": 80, "loss": 0.02, "bandwidth_mbps": 5, "jitter_ms": 2}
        body = json.dumps(
            {
                "format": 1,
                "agent": self.name,
                "boot": self.boot,
                "sequence": self.sequence,
                "sent_at_ms": int(time.time() * 1000),
                "applied": {"version": 0, "ok": True},
                "prefixes": [
                    {"prefix": prefix, **seen, "completions": [completions]}
                    for prefix in self.prefixes
                ],
            }
        ).encode()
        mac = hmac.new(bytes.fromhex(self.token), body, hashlib.sha256).hexdigest()
        return body, {
            "Authorization": f"Bearer {self.token}",
            "Pathcast-Signature": f"hmac-sha256={mac}",
        }


def send_all(address, agents, until, period_s, times, refused):
    """Report for each agent in turn; once in a period, or as fast as it goes."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    due = time.monotonic()
    while time.monotonic() < until:
        for agent in agents:
            body, headers = agent.report()
            if period_s:
                due += period_s / len(agents)
                time.sleep(max(0.0, due - time.monotonic()))
            begin = time.monotonic()
            connection.request("POST", "/v1/reports", body, headers)
            answer = connection.getresponse()
            answer.read()
            times.append(time.monotonic() - begin)
            if answer.status != 200:
                refused.append(answer.status)
            if time.monotonic() >= until:
                break


def run(address, agents, seconds, period_s):
    """Reports a second, and quantiles of their times in milliseconds."""
    times, refused, until = [], [], time.monotonic() + seconds
    threads = [
        threading.Thread(
            target=send_all,
            args=(address, agents[k::THREADS], until, period_s, times, refused),
        )
        for k in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cuts = statistics.quantiles([1e3 * one for one in times], n=100)
    return {
        "reports": len(times),
        "per_s": round(len(times) / seconds, 1),
        "p50_ms": round(cuts[49], 1),
        "p99_ms": round(cuts[98], 1),
        "refused": len(refused),
    }


def memory_mb(process):
    """Resident memory."""
    line = next(
        line
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    return round(int(line.split()[1]) / 1e3)


def main():
    """Run both loads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--each", type=int, default=20, help="prefixes of a report")
    parser.add_argument("--program", default="target/release/pathcast-manager")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--listen", "127.0.0.1:0", "--state", f"sqlite://{folder}/state.sqlite"]
        process = subprocess.Popen(
            [options.program, *arguments], stderr=subprocess.PIPE, text=True, cwd=folder
        )
        try:
            address = None
            while address is None:
                event = json.loads(process.stderr.readline())
                if event["event"] == "started":
                    host, port = event["listen"].split(":")
                    address = host, int(port)
            threading.Thread(target=process.stderr.read, daemon=True).start()
            connection = http.client.HTTPConnection(*address, timeout=60)

            def ask(method, path, body):
                connection.request(method, path, json.dumps(body))
                return json.loads(connection.getresponse().read())

            ask("PUT", "/v1/model", MODEL)
            agents = []
            begin = time.monotonic()
            for number in range(options.agents):
                token = ask("POST", "/v1/agents", {"name": f"edge-{number}"})["token"]
                first = number * options.each
                own = range(first, first + options.each)
                agents.append(
                    Agent(number, token, [f"10.{k // 256 % 256}.{k % 256}.0/24" for k in own])
                )
            added_s = time.monotonic() - begin
            field = run(address, agents, options.seconds, PERIOD_S)
            fast = run(address, agents, options.seconds, 0)
            result = {"agents": options.agents, "prefixes_each": options.each}
            result |= {"added_s": round(added_s, 1), "each_10_s": field, "as_fast_as_it_goes": fast}
            print(json.dumps(result | {"memory_mb": memory_mb(process)}))
        finally:
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    main()
