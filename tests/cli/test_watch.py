"""`pathcast watch`, and `pathcast.Watch` of own sockets."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import pathcast
from conftest import PATHCAST, run, tcp_info, wait_until, wait_until_acknowledged

BYTES = 3_000_000

# what another process does: connects, sends slowly, says when all is acknowledged, waits until its input ends
SENDER = """
import fcntl, socket, sys, termios, time
sys.stdin.readline()
sender = socket.create_connection((sys.argv[1], int(sys.argv[2])))
if len(sys.argv) > 4:
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[4].encode())
for _ in range(int(sys.argv[3]) // 10_000):
    sender.sendall(bytes(10_000))
    time.sleep(0.002)
while any(fcntl.ioctl(sender, termios.TIOCOUTQ, bytes(4))):
    time.sleep(0.001)
print("sent", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def sink():
    """The address of a server that reads all it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def read(connection):
        while connection.recv(1 << 16):
            pass

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=read, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()
    server.close()


@contextlib.contextmanager
def sender(*arguments):
    """A process that sends when a line comes, and stays until another one does."""
    process = subprocess.Popen(
        [sys.executable, "-c", SENDER, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
        process.communicate("\n", timeout=30)
    finally:
        process.kill()
        process.wait()


def send(process):
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "sent\n"


def start(*arguments, before=(), **options):
    """`pathcast watch` beside us, when it has begun; by way of the command `before`."""
    command = [*before, PATHCAST, "watch", "--json", *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    watch = subprocess.Popen(command, **options)

    def begun():
        """Its thread is there when the first list has been read."""
        assert watch.poll() is None, watch.communicate()
        names = set()
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{watch.pid}/task").iterdir():
                names.add((thread / "comm").read_text())
        return "pathcast-watch\n" in names

    wait_until(begun, "the beginning of the watch")
    return watch


def end(watch, number=signal.SIGINT):
    watch.send_signal(number)
    output, errors = watch.communicate(timeout=30)
    assert watch.returncode == 0, errors
    return json.loads(output), errors


def flow_of(report, pid):
    (found,) = [flow for flow in report["flows"] if flow["pid"] == pid]
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_a_watch_and_keeps_what_it_saw(sink, tmp_path, number):
    file = tmp_path / "trace.parquet"
    watch = start("--port", sink[1], "-o", file)
    with sender(*sink, BYTES, "reno") as process:
        send(process)
        report, _ = end(watch, number)
        flow = flow_of(report, process.pid)
    assert (flow["acked_bytes"], flow["scheme"]) == (BYTES, "reno")
    assert flow["remote"] == f"{sink[0]}:{sink[1]}"
    assert flow["goodput_bps"] > 1e6
    trace = pathcast.read_trace(file)
    assert len(trace) == report["records"] > 50
    assert trace.metadata["source"] == "watch"
    number = report["flows"].index(flow)
    assert trace.scheme(number) == "reno"
    # what the watch wrote, fit and evaluate read
    done = run("fit", file, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["flows"][0]["cc"] == "reno"


def test_a_process_of_ours_is_found_without_any_rights(sink, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can give up its rights; other users have none to give up")
    if shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv")
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if subprocess.run([*nobody, PATHCAST, "--version"], capture_output=True).returncode != 0:
        pytest.skip("nobody may not read this environment")
    with sender(*sink, BYTES) as process:
        watch = start("--port", sink[1], before=nobody)
        send(process)
        report, _ = end(watch)
    assert report["method"] == "sock_diag"
    assert (
        "needs CAP_PERFMON" in report["fallback_because"]
        or "tracefs" in (report["fallback_because"])
    )
    sent = [flow for flow in report["flows"] if flow["remote"] == f"{sink[0]}:{sink[1]}"]
    assert len(sent) == 1
    assert sent[0]["records"] > 10


@pytest.mark.parametrize("method", ["tcp_probe", "sock_diag"])
def test_retransmissions_are_those_that_the_socket_counts(emulator, path_file, tmp_path, method):
    if method == "tcp_probe" and not emulator.tcp_probe:
        pytest.skip("there is no tcp_probe here")
    link = "rate = '20 Mbit/s'\ndelay = '5 ms'\nqueue = '1 BDP'\n"
    path = path_file(f"{link}[reverse]\n{link}loss = 0.01\n")
    server = socket.create_server(("", 0))
    reader = (
        "import os, socket, sys\n"
        "s = socket.create_connection((os.environ['PATHCAST_BASE'], int(sys.argv[1])))\n"
        "got = 0\n"
        "while got < int(sys.argv[2]): got += len(s.recv(1 << 16))\n"
        "s.sendall(b'x')\n"
        "s.recv(1)\n"
    )
    port = server.getsockname()[1]
    watch = start("--local-port", port, "--method", method)
    shell = subprocess.Popen(
        [PATHCAST, "shell", path, "-q", "--", sys.executable, "-c", reader, str(port), str(BYTES)]
    )
    server.settimeout(30)
    connection, peer = server.accept()
    connection.sendall(bytes(BYTES))
    assert connection.recv(1) == b"x"  # all has arrived
    wait_until_acknowledged(connection)
    total_retrans = tcp_info(connection, 100)
    report, _ = end(watch)
    connection.close()
    assert shell.wait(timeout=30) == 0
    server.close()
    (flow,) = report["flows"]
    assert flow["retransmits"] == total_retrans > 0
    assert flow["acked_bytes"] == BYTES
    assert flow["remote"] == f"{peer[0]}:{peer[1]}"
    assert flow["srtt_min_ms"] > 10


def test_the_process_inside_a_shell_is_watched_in_its_namespace(emulator, path_file):
    path = path_file("rate = '20 Mbit/s'\ndelay = '5 ms'\nqueue = '1 BDP'\n")
    server = socket.create_server(("", 0))
    port = server.getsockname()[1]
    inside = SENDER.replace("sys.argv[1]", "__import__('os').environ['PATHCAST_BASE']")
    shell = subprocess.Popen(
        [PATHCAST, "shell", path, "-q", "--",
         sys.executable, "-c", "import os; print(os.getpid(), flush=True)\n" + inside,
         "-", str(port), str(BYTES)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        pid = int(shell.stdout.readline())
        watches = [start("--pid", pid, "--method", "sock_diag")]
        if emulator.tcp_probe:
            watches.append(start("--pid", pid))
            watches.append(start("--remote-port", port))
            watches.append(start("--remote-port", port, "--all-namespaces"))
        shell.stdin.write("\n")
        shell.stdin.flush()
        server.settimeout(30)
        connection, _ = server.accept()
        got = 0
        while got < BYTES:
            got += len(connection.recv(1 << 16))
        reports = [end(watch)[0] for watch in watches]
    finally:
        shell.communicate("\n", timeout=30)
        server.close()
    for report in reports[:2]:
        flow = flow_of(report, pid)
        assert flow["acked_bytes"] > 0.9 * BYTES
        assert flow["retransmits"] is not None
    if emulator.tcp_probe:
        outside, everywhere = reports[2:]
        assert (outside["flows"], outside["flows_elsewhere"]) == ([], 1)
        (flow,) = everywhere["flows"]
        assert flow["acked_bytes"] > 0.9 * BYTES
        # of what is not listed in our namespace, only packets tell
        assert (flow["retransmits"], flow["scheme"], flow["pid"]) == (None, None, None)


@pytest.mark.parametrize("method", ["tcp_info", "opt_stats", "sock_diag", None])
def test_own_sockets_are_watched_by_every_method(sink, method):
    own = socket.create_connection(sink)
    with pathcast.Watch(sockets=[own], method=method) as watch:
        for _ in range(100):
            own.sendall(bytes(10_000))
            time.sleep(0.002)
        wait_until_acknowledged(own)
    own.close()
    (flow,) = watch.report.flows
    assert flow.acked_bytes == 1_000_000
    assert flow.pid == os.getpid()
    assert len(watch.trace) == watch.report.records > 20
    assert watch.report.method == method or method is None
    last = watch.trace.columns["snd_una_bytes"][-1]
    assert last == 1_000_000 or watch.report.method == "tcp_probe"


def test_a_watch_that_is_given_up_leaves_no_file(sink, tmp_path):
    class Trouble(Exception):
        pass

    file = tmp_path / "trace.parquet"
    with (
        pytest.raises(Trouble),
        pathcast.Watch(port=sink[1], method="sock_diag", trace_file=file),
    ):
        raise Trouble
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "0"], "port is 0, expected 1 to 65535"),
        (["--port", "70000"], "port is 70000, expected 1 to 65535"),
        (["--remote-port", "-1"], "remote port is -1"),
        (["--pid", "2147483647"], "cannot watch process 2147483647: No such file"),
        (["--cgroup", "/no/such"], "cgroup /no/such: is not there"),
        (["--prefix", "1.2.3.4/33"], "of more than 32 bits"),
        (["--prefix", "lan"], "expected an address and its bits"),
        (["--method", "magic"], "'magic' is not one of 'tcp_probe', 'sock_diag'"),
        (["--method", "opt_stats"], "can only watch sockets of this process"),
        (["--duration", "0"], "duration is 0.0 s"),
        (["--all-namespaces", "--pid", "1"], "got a process or a cgroup for all namespaces"),
        (["-o", "/no/such/folder/trace.parquet"], "there is no folder"),
    ],
)
def test_what_cannot_be_watched_is_refused(arguments, message):
    done = run("watch", *arguments)
    assert done.returncode == 2, done.stderr
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_the_table_says_when_there_was_nothing():
    done = run("watch", "--port", "1", "--method", "sock_diag", "--duration", "0.2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 flows, 0 records by sock_diag")
    said = " ".join(done.stdout.split())
    assert "No flow was seen; one is recorded when it sends" in said
    assert "Watch without --port 1, " in said
    assert "`ss -tn` lists the connections" in said and "--all-namespaces" in said


def test_records_that_came_faster_than_they_were_read_are_counted(emulator, tmp_path):
    if not emulator.tcp_probe:
        pytest.skip("there is no tcp_probe here")
    server = socket.create_server(("127.0.0.1", 0))
    one = socket.create_connection(server.getsockname())
    other, _ = server.accept()
    for end_of_it in (one, other):
        end_of_it.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    file = tmp_path / "trace.parquet"
    watch = start("--port", server.getsockname()[1], "--method", "tcp_probe", "-o", file)
    watch.send_signal(signal.SIGSTOP)  # nobody reads, and a ring has room for 26,000
    for _ in range(60_000):
        one.send(b"x")
        other.recv(1)
        other.send(b"x")
        one.recv(1)
    wait_until_acknowledged(other)  # late, for nothing goes the other way
    watch.send_signal(signal.SIGCONT)
    report, _ = end(watch)
    assert report["records_lost"] > 10_000
    assert report["records"] > 10_000
    trace = pathcast.read_trace(file)
    assert not trace.metadata["valid"]
    assert "records were lost" in trace.metadata["environment"]["invalid_because"]
    # the counters come from the list, and miss nothing
    assert {flow["acked_bytes"] for flow in report["flows"]} == {60_000}
    for sock in (one, other, server):
        sock.close()
