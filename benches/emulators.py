"""What emulators add to a path and take from it, side by side in one run.

usage: sudo .venv/bin/python benches/emulators.py [--seconds S] [--user UID]

For Pathcast's shell, over TUN devices and over veth pairs, and for mahimahi where it is installed (it
runs as --user, for it refuses root): the round trip of an idle path beyond what the path takes, and the
goodput of one bulk TCP flow with the kernel's own congestion control, in and out of slow start. Then five
runs of `pathcast emulate` with two busy loops beside them.
"""

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

PATHCAST = Path(sys.executable).with_name("pathcast")
#: All endpoints are in SCHED_FIFO, below Pathcast's pump, and mahimahi is in it, too.
ENDPOINT_PRIORITY = 40
#: Payload in a full packet of 1500 bytes: headers of IP and TCP with timestamps.
PAYLOAD = 1448 / 1500

PING = """
import os, socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.settimeout(2)
times = []
for _ in range(300):
    began = time.monotonic()
    out.sendto(b"x" * 36, (os.environ["MAHIMAHI_BASE"], int(sys.argv[1])))
    out.recv(100)
    times.append(1e3 * (time.monotonic() - began))
    time.sleep(0.01)
print(*times)
"""

SEND = """
import os, socket, sys, time
out = socket.create_connection((os.environ["MAHIMAHI_BASE"], int(sys.argv[1])))
out.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
chunk = bytes(1 << 18)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    out.send(chunk)
"""


class LinkPath:
    """A path in both tools' words: rate in Mbit/s, delay of each direction in ms, droptail of 1 BDP."""

    def __init__(self, rate_mbps, delay_ms):
        self.rate_mbps, self.delay_ms = rate_mbps, delay_ms
        rtt_s = 2e-3 * delay_ms
        self.queue_packets = max(round(rate_mbps * 1e6 * rtt_s / 8 / 1500), 10)

    def __str__(self):
        return f"{self.rate_mbps} Mbit/s, {self.delay_ms} ms"

    def rtt_ms(self, size_bytes):
        """Of a packet that is sent back, on the idle path; mahimahi's links take a whole opportunity."""
        return 2 * self.delay_ms + 2 * 8e-3 * size_bytes / self.rate_mbps

    def pathcast(self, folder):
        file = folder / "path.toml"
        rate, delay = f"rate = '{self.rate_mbps} Mbit/s'\n", f"delay = '{self.delay_ms} ms'\n"
        queue = f"queue = '{self.queue_packets} packets'\n"
        file.write_text(f"{rate}{delay}{queue}[reverse]\n{rate}{delay}{queue}")
        return file

    def mahimahi(self, folder):
        trace = folder / "link.trace"
        # a round number of opportunities of 1500 bytes each second, in whole milliseconds
        count = round(self.rate_mbps * 1e6 / 8 / 1500)
        trace.write_text("".join(f"{1 + i * 1000 // count}\n" for i in range(count)))
        queue = [f"--{way}link-queue=droptail" for way in ("up", "down")]
        queue += [f"--{way}link-queue-args=packets={self.queue_packets}" for way in ("up", "down")]
        return ["mm-delay", str(self.delay_ms), "mm-link", str(trace), str(trace), *queue, "--"]


@contextlib.contextmanager
def echoing():
    """The port of a server that sends datagrams back."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("", 0))

    def serve():
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(ENDPOINT_PRIORITY))
        while True:
            data, sender = server.recvfrom(2000)
            if data == b"end":
                return
            server.sendto(data, sender)

    thread = threading.Thread(target=serve)
    thread.start()
    port = server.getsockname()[1]
    yield port
    server.sendto(b"end", ("127.0.0.1", port))
    thread.join()


@contextlib.contextmanager
def receiving():
    """A port that reads a connection to its end, and a list of (time, bytes so far)."""
    listener = socket.create_server(("", 0))
    seen = []

    def serve():
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(ENDPOINT_PRIORITY))
        connection, _ = listener.accept()
        connection.settimeout(2)  # the end is lost with the path
        total = 0
        with contextlib.suppress(TimeoutError, ConnectionError):
            while size := len(connection.recv(1 << 20)):
                total += size
                seen.append((time.monotonic(), total))

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1], seen
    thread.join()
    listener.close()


def commands(path, folder, user):
    """What a command has to be put behind, by tool."""
    file = path.pathcast(folder)
    fifo = ["chrt", "-f", str(ENDPOINT_PRIORITY)]
    for device in ("tun", "veth"):
        report = folder / f"{device}.json"
        shell = [*fifo, PATHCAST, "shell", "-q", "--report", report, "--device", device, file, "--"]
        yield f"pathcast, {device}", shell, report
    if shutil.which("mm-delay") is not None:
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        yield "mahimahi", [*fifo, *become, *path.mahimahi(folder)], None


def quantile(values, q):
    return sorted(values)[min(int(q * len(values)), len(values) - 1)]


def idle(path, folder, user):
    for tool, prefix, _ in commands(path, folder, user):
        with echoing() as port:
            done = subprocess.run(
                [*prefix, sys.executable, "-c", PING, str(port)],
                capture_output=True,
                text=True,
                check=True,
            )
        beyond = [1e3 * (float(ms) - path.rtt_ms(64)) for ms in done.stdout.split()]
        values = [min(beyond), statistics.median(beyond), quantile(beyond, 0.95)]
        print(f"| {path} | {tool} | " + " | ".join(f"{us:.0f}" for us in values) + " |", flush=True)


def bulk(path, folder, user, seconds):
    ideal_mbps = path.rate_mbps * PAYLOAD
    for tool, prefix, report in commands(path, folder, user):
        with receiving() as (port, seen):
            subprocess.run(
                [*prefix, sys.executable, "-c", SEND, str(port), str(seconds)], check=True
            )
        begin, end = seen[0][0], seen[-1][0]

        def mbps(since, until, seen=seen):
            inside = [(at, total) for at, total in seen if since <= at <= until]
            (first, before), (last, after) = inside[0], inside[-1]
            return (after - before) * 8e-6 / (last - first)

        end = min(end, begin + seconds)
        whole, steady = mbps(begin, end), mbps(begin + seconds / 2, end)
        said = "-"
        if report is not None:
            found = json.loads(report.read_text())
            said = f"{100 * found['cpu_s'] / found['wall_s']:.0f} %, {found['forward']['dropped']}"
            if found["invalid_because"]:
                said += ", not valid"
        print(
            f"| {path} | {tool} | {ideal_mbps:.1f} | {whole:.1f} | {steady:.1f} | {said} |",
            flush=True,
        )


def loaded(folder, seconds):
    """Runs with two busy loops beside them."""
    file = LinkPath(100, 20).pathcast(folder)
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        goodput = []
        for _ in range(5):
            command = [PATHCAST, "emulate", file, "--duration", str(seconds), "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            report = json.loads(done.stdout)
            goodput.append(report["flows"][0]["goodput_bps"] * 1e-6)
            valid = "valid" if report["valid"] else f"not valid: {report['invalid_because'][0]}"
            print(f"{goodput[-1]:.2f} Mbit/s, {valid}", flush=True)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    apart = (max(goodput) - min(goodput)) / statistics.mean(goodput)
    print(f"five runs of 100 Mbit/s, 20 ms, CUBIC, two busy loops beside them: {apart:.2%} apart")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10, help="of each bulk flow")
    parser.add_argument("--user", type=int, default=65534, help="uid for what refuses root")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root")
    load = os.getloadavg()[0]
    print(f"load {load:.1f}, {os.cpu_count()} processors, kernel {os.uname().release}\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        print("round trip beyond the path's own, us, 300 packets of 64 bytes")
        print("| path | tool | least | median | 95 % |\n|---|---|---|---|---|")
        for path in (LinkPath(12, 0), LinkPath(100, 20), LinkPath(12, 20), LinkPath(1000, 20)):
            idle(path, folder, options.user)
        print("\none bulk flow, Mbit/s")
        print("| path | tool | ideal | all | second half | processor, drops |")
        print("|---|---|---|---|---|---|")
        for path in (LinkPath(12, 20), LinkPath(100, 20), LinkPath(1000, 20), LinkPath(1000, 40)):
            bulk(path, folder, options.user, options.seconds)
        print()
        loaded(folder, options.seconds)


if __name__ == "__main__":
    main()
