"""Records the traces of this folder anew: flows of our own, over our own emulator.

Run as root: python tests/data/make.py. It needs `pathcast` beside the Python that runs it, tcpdump, ss and iperf3.
"""

import contextlib
import gzip
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
PATHCAST = Path(sys.executable).with_name("pathcast")
PATH = HERE / "path.toml"
PORT = 4711
#: What the recorded flow carries.
BYTES = 600_000

# lines of the kernel's own about the flow; in a mount namespace of its own, where tracefs can be mounted unseen
PROBE = f"""
set -e
mount -t tracefs nodev /sys/kernel/tracing; cd /sys/kernel/tracing/instances; mkdir $0; cd $0
echo mono > trace_clock
echo 'sport=={PORT}||dport=={PORT}' > events/tcp/tcp_probe/filter
echo 1 > events/tcp/tcp_probe/enable
cat trace_pipe > $1 & pipe=$!
echo ready; read _ || true
echo 0 > events/tcp/tcp_probe/enable; echo the end > trace_marker
until grep -q 'the end' $1; do sleep 0.05; done
kill $pipe; wait $pipe || true; sed -i '/the end/d' $1; cd ..; rmdir $0
"""


def shell(outside, *inside):
    """Runs a command inside the path while a server runs outside."""
    command = [
        PATHCAST,
        "shell",
        PATH,
        "-q",
        "--scheme",
        "reno",
        "--outside",
        outside,
        "--",
        *inside,
    ]
    return subprocess.run(
        list(map(str, command)), check=True, capture_output=True, text=True
    ).stdout


def outside():
    """Reads all that one connection brings."""
    with socket.create_server(("", PORT)) as server:
        connection, _ = server.accept()
        while connection.recv(1 << 16):
            pass


@contextlib.contextmanager
def begun(command, line, stream, end):
    """A process that has said a line that it is ready; it is asked to end at the end."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, text=True, **{stream: subprocess.PIPE}
    )
    while line not in (said := getattr(process, stream).readline()):
        assert said, command
    yield
    end(process)
    process.wait()


def connected(deadline_s=20):
    """A connection to the server outside, once it is there."""
    deadline = time.monotonic() + deadline_s
    while True:
        try:
            return socket.create_connection((os.environ["PATHCAST_BASE"], PORT))
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def inside(folder):
    """Sends, while tcpdump, tcp_probe and ss look; prints what the socket says of itself in the end."""
    device = next(name for _, name in socket.if_nameindex() if name != "lo")
    capture = [
        "tcpdump",
        "-i",
        device,
        "-s",
        "96",
        "-U",
        "-w",
        f"{folder}/flow.pcap",
        f"tcp port {PORT}",
    ]
    probe = [
        "unshare",
        "-m",
        "sh",
        "-c",
        PROBE,
        f"pathcast-{os.getpid()}",
        f"{folder}/tcp_probe.txt",
    ]
    look = f"date +%s.%N; ss -tin dport = {PORT}"
    with (
        begun(probe, "ready", "stdout", lambda process: process.stdin.close()),
        begun(capture, "listening on", "stderr", lambda process: process.terminate()),
        connected() as sender,
        open(f"{folder}/ss.txt", "w") as samples,
    ):
        # all is in the socket's buffer at once, so that only the window limits the flow
        sender.setsockopt(socket.SOL_SOCKET, 32, 2 * BYTES)  # SO_SNDBUFFORCE
        sender.sendall(bytes(BYTES))
        while True:
            subprocess.run(look, shell=True, stdout=samples, check=True)
            info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            if struct.unpack_from("Q", info, 120)[0] >= BYTES:
                break
            time.sleep(0.03)
        subprocess.run(look, shell=True, stdout=samples, check=True)
        sender.close()
        file, size = Path(folder, "flow.pcap"), -1
        while file.stat().st_size != size:
            size = file.stat().st_size
            time.sleep(1)
    return {
        "bytes": BYTES,
        "retransmits": struct.unpack_from("I", info, 100)[0],
        "srtt_s": struct.unpack_from("I", info, 68)[0] * 1e-6,
        "cwnd_packets": struct.unpack_from("I", info, 80)[0],
        "mss_bytes": struct.unpack_from("I", info, 16)[0],
    }


def recorded(folder):
    """One flow as four tools see it, and what its socket said."""
    this = [sys.executable, str(Path(__file__).resolve())]
    return json.loads(shell(" ".join([*this, "outside"]), *this, "inside", folder))


def cwnd_csv(folder):
    """The window of a minute of Reno, in the form of the ECON paper's data; how many losses it has."""
    while True:
        done = subprocess.run(
            [PATHCAST, "emulate", PATH, "--scheme", "reno", "--duration", "60", "--json",
             "-o", folder / "trace.parquet"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        report = json.loads(done.stdout)
        if report["valid"]:
            break
        print(f"again: {report['invalid_because']}", file=sys.stderr)
    subprocess.run(
        [PATHCAST, "convert", folder / "trace.parquet", "-o", folder / "t.csv"],
        check=True, capture_output=True,
    )  # fmt: skip
    header, *rows = (folder / "t.csv").read_text().splitlines(keepends=True)
    windows = [row.partition(",")[2] for row in rows]
    # a row stands for a change only
    changed = [
        row
        for row, now, before in zip(rows, windows, ["", *windows], strict=False)
        if now != before
    ]
    text = "".join([header, *changed]).encode()
    (HERE / "reno.cwnd.csv.gz").write_bytes(gzip.compress(text, mtime=0))
    flow = report["flows"][0]
    return {"goodput_bps": flow["goodput_bps"], "retransmits": flow["retransmits"], "rtt_s": 0.04}


def iperf3(folder):
    """Five seconds of iperf3; names of the machine and its kernel are taken out."""
    inside = 'until iperf3 -c "$PATHCAST_BASE" -J -t 5 -i 0.5 -C reno; do sleep 0.2; done'
    said = json.loads(shell("iperf3 -s -1", "sh", "-c", inside).partition("\n}\n")[0] + "\n}")
    said["start"]["system_info"] = "Linux"
    (HERE / "iperf3.json").write_text(json.dumps(said, indent=1) + "\n")
    return {
        "bytes": said["end"]["sum_sent"]["bytes"],
        "received_bps": said["end"]["sum_received"]["bits_per_second"],
    }


def mahimahi():
    """A link that goes from 2 to 10 Mbit/s and back each 4 s, as a packet-delivery trace of mm-link."""
    times, owed = [], 0.0
    for ms in range(4000):
        owed += (2 + 8 * (1 - abs(ms / 2000 - 1))) * 1e6 * 1e-3 / (1500 * 8)
        times += [ms + 1] * int(owed)
        owed -= int(owed)
    (HERE / "triangle.trace").write_text("".join(f"{ms}\n" for ms in times))
    return {"packets": len(times), "rate_bps": len(times) * 1500 * 8 / (times[-1] * 1e-3)}


def flow(folder):
    """One flow as tcpdump, tcp_probe and ss see it."""
    answers = recorded(folder)
    for file in ("flow.pcap", "ss.txt"):
        (HERE / file).write_bytes((folder / file).read_bytes())
    packed = gzip.compress((folder / "tcp_probe.txt").read_bytes(), mtime=0)
    (HERE / "tcp_probe.txt.gz").write_bytes(packed)
    return answers


PARTS = {
    "flow": flow,
    "reno.cwnd.csv.gz": cwnd_csv,
    "iperf3.json": iperf3,
    "triangle.trace": lambda _: mahimahi(),
}


def main(parts):
    """Records all parts or some, and what is known of them."""
    file = HERE / "answers.json"
    answers = json.loads(file.read_text()) if file.exists() else {}
    for part in parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            answers[part] = PARTS[part](Path(folder))
        file.write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["outside"]:
            outside()
        case ["inside", folder]:
            print(json.dumps(inside(folder)))
        case parts:
            main(parts)
