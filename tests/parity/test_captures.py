"""Windows out of a packet capture against the kernel's own, as its tcp_probe tells them.

Three network namespaces: a sender, a router that lets 20 Mbit/s through, a receiver. The capture is
taken at the sender's side, where segments are not yet cut into packets.
"""

import os
import shutil
import subprocess
import sys
from collections import defaultdict

import numpy as np
import pytest

import pathcast

PORT = 5991
DURATION_S = 12

SINK = f"""
import socket
s = socket.create_server(("10.99.2.1", {PORT}))
print("ready", flush=True)
c, _ = s.accept()
while c.recv(1 << 20): pass
"""

SOURCE = f"""
import socket, sys, time
s = socket.socket()
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[1].encode())
s.connect(("10.99.2.1", {PORT}))
end = time.monotonic() + {DURATION_S}
while time.monotonic() < end: s.send(bytes(1 << 16))
s.shutdown(socket.SHUT_WR)
assert s.recv(1) == b""  # all has arrived, and been read
"""

# 33 is SO_RCVBUFFORCE, 35 SO_TIMESTAMPNS, 3 all protocols; Python tells no packet's length beyond its buffer, so it is
# taken from the IP header
# it ends when a line comes and nothing is left to read
CAPTURE = """
import select, socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 25)
s.setsockopt(socket.SOL_SOCKET, 35, 1)
s.bind((sys.argv[1], 3))
with open(sys.argv[2], "wb") as file:
    file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 128, 1))
    print("ready", flush=True)
    while s in select.select([s, sys.stdin], [], [])[0]:
        data, extra, _, _ = s.recvmsg(128, 256)
        if data[12:14] != b"\\x08\\x00": continue
        length = max(struct.unpack(">H", data[16:18])[0] + 14, len(data))
        seconds, nanoseconds = struct.unpack("qq", extra[0][2])
        file.write(struct.pack("<IIII", seconds, nanoseconds, len(data), length) + data)
"""

# in a mount namespace of its own, where tracefs can be mounted unseen
PROBE = f"""
mount -t tracefs nodev /sys/kernel/tracing && cd /sys/kernel/tracing/instances && mkdir $0 || exit 3
cd $0; echo mono > trace_clock; echo 16384 > buffer_size_kb
echo 'sport=={PORT}||dport=={PORT}' > events/tcp/tcp_probe/filter
echo 1 > events/tcp/tcp_probe/enable || exit 3
cat trace_pipe > $1 & pipe=$!
echo ready; read _
echo 0 > events/tcp/tcp_probe/enable; echo the end > trace_marker
for _ in $(seq 600); do grep -q 'the end' $1 && break; sleep 0.05; done
kill $pipe; wait $pipe; sed -i '/the end/d' $1; cd ..; rmdir $0
"""


@pytest.fixture
def network():
    """Names of the namespaces' common beginning; skips where they cannot be made."""
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("ip", "tc", "unshare")):
        pytest.skip("namespaces need root, ip, tc and unshare")
    name = f"pc{os.getpid() % 100_000}"
    lines = []
    for end in "src":
        lines += [f"netns add {name}{end}", f"-n {name}{end} link set lo up"]
    for number, (a, b) in ((1, "sr"), (2, "cr")):
        first, second = f"{name}{a}{number}", f"{name}{b}{number}"
        lines += [
            f"link add {first} netns {name}{a} type veth peer name {second} netns {name}{b}",
            f"-n {name}{a} addr add 10.99.{number}.1/24 dev {first}",
            f"-n {name}{b} addr add 10.99.{number}.2/24 dev {second}",
            f"-n {name}{a} link set {first} up",
            f"-n {name}{b} link set {second} up",
            f"-n {name}{a} route add default via 10.99.{number}.2",
        ]
    commands = [["ip", *line.split()] for line in lines]
    in_router = ["ip", "netns", "exec", f"{name}r"]
    shape = f"tc qdisc add dev {name}r2 root tbf rate 20mbit burst 5kb limit 100kb"
    commands += [[*in_router, "sysctl", "-qw", "net.ipv4.ip_forward=1"]]
    commands += [[*in_router, *shape.split()]]
    try:
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"no network of namespaces here: {' '.join(command)}: {done.stderr}")
        yield name
    finally:
        for end in "src":
            subprocess.run(["ip", "netns", "del", f"{name}{end}"], capture_output=True, check=False)


def started(command, **options):
    """A process that has said that it is ready, or None if it ended instead."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
    )
    return process if process.stdout.readline() == "ready\n" else None


def traces(network, folder, scheme):
    """The same flow as tcp_probe and as a capture tell it."""
    probe_file, capture_file = folder / f"{scheme}.probe", folder / f"{scheme}.pcap"

    def within(end):
        return ["ip", "netns", "exec", f"{network}{end}", sys.executable, "-c"]

    probe = started(["unshare", "-m", "sh", "-c", PROBE, network, str(probe_file)])
    if probe is None:
        pytest.skip("tracefs has no tcp_probe here")
    capturing = [*within("s"), CAPTURE, f"{network}s1", str(capture_file)]
    capture, sink = started(capturing), started([*within("c"), SINK])
    try:
        subprocess.run([*within("s"), SOURCE, scheme], timeout=60, check=True)
        capture.communicate("\n", timeout=60)
    finally:
        probe.communicate("\n", timeout=60)
        for process in (capture, sink):
            process.kill()
            process.communicate()
    return pathcast.read_trace(probe_file), pathcast.read_trace(capture_file)


@pytest.mark.parametrize("scheme", ["reno", "cubic"])
def test_windows_of_a_capture_are_the_kernels(network, tmp_path, scheme):
    known, inferred = (trace.columns for trace in traces(network, tmp_path, scheme))
    at = defaultdict(list)
    for row, place in enumerate(
        zip(inferred["snd_una_bytes"], inferred["snd_nxt_bytes"], strict=True)
    ):
        at[place].append(row)
    pairs = []
    for row, place in enumerate(zip(known["snd_una_bytes"], known["snd_nxt_bytes"], strict=True)):
        if at[place]:
            pairs.append((row, at[place].pop(0)))
    rows, others = np.array(pairs).T
    assert len(rows) > 0.95 * len(known["time_s"])
    window = np.abs(inferred["cwnd_packets"][others] / known["cwnd_packets"][rows] - 1)
    srtt = np.abs(inferred["srtt_s"][others] / known["srtt_s"][rows] - 1)
    errors = [*np.percentile(window, [50, 95, 99]), np.nanpercentile(srtt, 95)]
    print(f"| {scheme} | {len(rows)} | " + " | ".join(f"{error:.2%}" for error in errors) + " |")
    assert errors[0] < 0.001
    assert errors[1] < 0.05
    assert errors[3] < 0.02
