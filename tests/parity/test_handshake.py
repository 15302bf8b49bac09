"""Connections that open over a path that loses packets: the simulator beside the kernel."""

import os
import shlex
import shutil
import statistics
import sys

import pytest

import pathcast
from conftest import run

CONNECTIONS = 200
RESPONSE_BYTES = 10_000

LINK = "rate = '50 Mbit/s'\ndelay = '20 ms'\nloss = 0.05\n"
REVERSE = "rate = '50 Mbit/s'\ndelay = '20 ms'\nloss = 0.05\n"

SERVER = f"""
import socket, threading

def answer(connection):
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        size = 0
        while size < 400:
            chunk = connection.recv(4096)
            if not chunk:
                return
            size += len(chunk)
        connection.sendall(bytes({RESPONSE_BYTES}))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass

listener = socket.create_server(("0.0.0.0", 8123), backlog=512)
while True:
    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
"""

CLIENT = f"""
import os, socket, threading, time

def ask(number):
    time.sleep(0.02 * number)
    begin = time.perf_counter()
    with socket.create_connection((os.environ["PATHCAST_BASE"], 8123)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(bytes(400))
        size = 0
        while size < {RESPONSE_BYTES}:
            size += len(connection.recv(65536))
    seconds.append(time.perf_counter() - begin)

seconds = []

threads = [threading.Thread(target=ask, args=(number,)) for number in range({CONNECTIONS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*seconds)
"""


def in_kernel(folder, seed):
    """Seconds from connect() to the end of the answer, of each connection."""
    (folder / "path.toml").write_text(f"{LINK}[reverse]\n{REVERSE}")
    (folder / "server.py").write_text(SERVER)
    (folder / "client.py").write_text(CLIENT)
    # a network of its own: the kernel keeps what it learned of a host for its next connections
    prepare = 'ip link set lo up; echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save; exec "$@"'
    server = shlex.join([sys.executable, "server.py"])
    done = run(
        "shell", "path.toml", "--seed", seed, "--quiet", "--outside", server, "--", sys.executable, "client.py",
        cwd=folder, before=("unshare", "--net", "sh", "-c", prepare, "sh"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.split()]


def in_simulator(handshake, seed):
    """The same of the simulator."""
    scenario = pathcast.Scenario.parse(
        f"duration = '100 s'\n[links.link]\n{LINK}[links.link.reverse]\n{REVERSE}"
        f"[[flows]]\nscheme = 'cubic'\ncount = {CONNECTIONS}\nevery = '20 ms'\nhandshake = {handshake}\n"
        f"workload = {{ kind = 'request-response', response = '{RESPONSE_BYTES} B', count = 1 }}\n"
    )
    report, _ = pathcast.simulate(scenario, seed=seed, record=False)
    return [flow.messages.latency_ms["mean"] / 1000 for flow in report.flows]


@pytest.mark.full  # 200 threads in real time
def test_connections_open_as_in_the_kernel_where_packets_are_lost(emulator, tmp_path):
    """One SYN or SYN/ACK in ten is lost, each for a second; half of all take two round trips."""
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("ip", "unshare")):
        pytest.skip("a network of its own needs root, ip and unshare")
    kernel = [second for seed in (1, 2, 3) for second in in_kernel(tmp_path, seed)]
    simulated = [second for seed in range(1, 9) for second in in_simulator("true", seed)]
    late = [statistics.fmean(second > 1 for second in seconds) for seconds in (kernel, simulated)]
    assert late[1] == pytest.approx(late[0], abs=0.04)  # two standard deviations
    # threads and the processes around the path add some 10 ms
    assert statistics.median(kernel) - statistics.median(simulated) == pytest.approx(
        0.01, abs=0.015
    )
    kernel_s, simulated_s = statistics.fmean(kernel), statistics.fmean(simulated)
    assert simulated_s == pytest.approx(kernel_s - 0.01, rel=0.15)
    assert statistics.fmean(in_simulator("false", 1)) < 0.6 * kernel_s
