"""`pathcast shell` and `pathcast path show`."""

import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import pyarrow.parquet
import pytest

import pathcast
from conftest import PATHCAST, run, until_valid

PATH = "rate = '12 Mbit/s'\ndelay = '10 ms'\nqueue = '60 packets'\n"

needs_emulator = pytest.mark.usefixtures("emulator")

# sends datagrams one by one and prints the median of how long each takes to come back, in ms
PING = """
import os, socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.settimeout(5)
times = []
for _ in range(20):
    began = time.monotonic()
    out.sendto(b"x" * 100, (os.environ["MAHIMAHI_BASE"], int(os.environ["ECHO_PORT"])))
    out.recv(100)
    times.append(1e3 * (time.monotonic() - began))
print(sorted(times)[10])
"""


# a server that sends back whatever datagrams come, beside the command of its arguments; both in a network namespace
# of their own, so that nothing else that uses the machine's network sends packets into the shell
ECHO = """
import os, socket, subprocess, sys, threading
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", 0))  # the shell's device is not there yet
def serve():
    while True:
        data, sender = server.recvfrom(2000)
        server.sendto(data, sender)
threading.Thread(target=serve, daemon=True).start()
os.environ["ECHO_PORT"] = str(server.getsockname()[1])
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""
BESIDE_ECHO = ("unshare", "--net", sys.executable, "-c", ECHO)


@needs_emulator
def test_a_command_inside_reaches_a_server_outside_over_the_path(path_file, tmp_path):
    log, report = tmp_path / "log.parquet", tmp_path / "report.json"
    done = run(
        "shell", path_file(PATH), "--log", log, "--mm-log", tmp_path / "mm", "--report", report,
        "--", sys.executable, "-c", PING, before=BESIDE_ECHO,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # two delays and two times of a packet on the link; the machine may be busy
    assert 20.1 < float(done.stdout) < 40
    assert "sent 20 of 20 packets, 0 dropped by queues, 0 lost" in done.stderr
    assert json.loads(report.read_text())["reverse"]["delivered"] == 20
    table = pyarrow.parquet.read_table(log)
    assert table.num_rows == 80
    assert set(table["flow"].to_pylist()) == {0}
    lines = (tmp_path / "mm.up").read_text().splitlines()
    assert sum(" + 132" in line for line in lines) == 20


@needs_emulator
@pytest.mark.parametrize(
    ("command", "code"),
    [(["sh", "-c", "exit 9"], 9), (["sh", "-c", "kill -9 $$"], 137), (["no-such-program"], 127)],
)
def test_the_exit_code_is_the_commands(path_file, command, code):
    done = run("shell", path_file(PATH), "--quiet", "--", *command)
    assert done.returncode == code, done.stderr


@needs_emulator
def test_without_a_command_it_is_the_users_shell(path_file):
    done = subprocess.run(
        [PATHCAST, "shell", path_file(PATH), "-q"],
        input="echo in $PATHCAST_ADDRESS",
        env=os.environ | {"SHELL": "/bin/sh"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("in 198.1"), done


@needs_emulator
def test_who_ran_sudo_owns_the_command_and_the_logs(path_file, tmp_path):
    tmp_path.chmod(0o777)
    log = tmp_path / "log.parquet"
    done = subprocess.run(
        [PATHCAST, "shell", path_file(PATH), "-q", "--log", log, "--", "id", "-u"],
        env=os.environ | {"SUDO_UID": "65534", "SUDO_GID": "65534"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "65534\n"), done.stderr
    assert log.stat().st_uid == 65534


# connects out, is connected to in turn, and prints what congestion control each connection has
SCHEMES = """
import os, socket, sys
server = socket.create_server(("", 0))
out = socket.create_connection((os.environ["PATHCAST_BASE"], int(sys.argv[1])))
out.sendall(f"{os.environ['PATHCAST_ADDRESS']} {server.getsockname()[1]}\\n".encode())
back, _ = server.accept()
for one in (out, back):
    print(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode())
"""


@needs_emulator
@pytest.mark.parametrize("nested", [False, True])
def test_connections_inside_have_the_scheme_that_was_asked_for(path_file, nested):
    """Also where the kernel restricts it to the first namespace: there it was refused."""
    server, ended = socket.create_server(("", 0)), threading.Event()

    def connect_back():
        connection, _ = server.accept()
        address, port = connection.makefile().readline().split()
        with socket.create_connection((address, int(port)), timeout=30):
            ended.wait()  # and not for the connection's end, whose packets may be lost with the shell

    thread = threading.Thread(target=connect_back, daemon=True)
    thread.start()
    path = path_file(PATH)
    inner = [PATHCAST, "shell", path, "--quiet", "--"] if nested else []
    port = server.getsockname()[1]
    done = run(
        "shell", path, "--scheme", "cubic", "--", *inner, sys.executable, "-c", SCHEMES, port
    )
    ended.set()
    assert done.returncode == 0, done.stderr
    thread.join()
    server.close()
    assert done.stdout.split() == ["cubic", "cubic"]
    with open("/proc/sys/net/ipv4/tcp_allowed_congestion_control") as allowed:
        if "cubic" not in allowed.read().split():
            assert "connections over the path have cubic by their route" in done.stderr


@needs_emulator
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 5)])
def test_signals_end_the_command_and_not_the_shell_around_it(path_file, number, code):
    # a terminal sends its signals to the whole group
    script = "trap 'exit 5' INT; echo ready; while :; do sleep 0.05; done"

    def attempt():
        shell = subprocess.Popen(
            [PATHCAST, "shell", path_file(PATH), "--", "sh", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert shell.stdout.readline() == "ready\n"
        os.killpg(shell.pid, number) if number == signal.SIGINT else shell.send_signal(number)
        _, errors = shell.communicate(timeout=30)
        assert shell.returncode == code, errors
        # connections of earlier shells, which had the same addresses, may still be ending, with packets on the path
        assert re.search(r"sent (\d+) of \1 packets", errors), errors
        return errors, None

    until_valid(attempt, times=3)


@needs_emulator
def test_a_command_line_of_mahimahi_is_understood(tmp_path):
    trace = tmp_path / "12mbps"
    trace.write_text("1\n")
    log = tmp_path / "up.log"
    line = f"mm-delay 15 mm-loss downlink 0 mm-link {trace} {trace} --uplink-log={log} --"
    done = run(
        "shell", "--from-mahimahi", line, "--", sys.executable, "-c", PING, before=BESIDE_ECHO
    )
    assert done.returncode == 0, done.stderr
    assert 31 < float(done.stdout) < 50
    assert log.read_text().startswith("# pathcast shell (uplink)")


def test_what_cannot_be_run_is_refused(path_file, tmp_path):
    for arguments, message in [
        ([], "got no path, expected PATH.toml"),
        (["--from-mahimahi", "mm-onoff uplink 1 1"], "mm-onoff: got a link"),
        (["--from-mahimahi", "mm-delay 'x"], "No closing quotation"),
        (["--from-mahimahi", "mm-delay 1 a", "--", "b"], "got two commands"),
        ([path_file(PATH), "--log", tmp_path / "no" / "log", "--", "true"], "no folder"),
    ]:
        done = run("shell", *arguments)
        assert done.returncode == 2, done.stderr
        assert message in done.stderr


def test_a_path_is_shown_in_the_words_of_others_and_read_back(path_file, tmp_path):
    done = run("path", "show", path_file(PATH), "--as", "mahimahi", "-o", tmp_path, "--strict")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "mm-delay 10 mm-link uplink.trace downlink.trace --uplink-queue=droptail "
        "--uplink-queue-args=packets=60 --downlink-queue=infinite --\n"
    )
    assert (tmp_path / "uplink.trace").read_text() == "1\n"
    line = done.stdout
    for name in ("uplink.trace", "downlink.trace"):
        line = line.replace(f" {name}", f" {tmp_path / name}")
    again = run("path", "show", "--from-mahimahi", line)
    shown = pathcast.Path.parse(again.stdout)
    assert (shown.rate_bps, shown.base_rtt_s, shown.queue_packets) == (12e6, 0.02, 60)

    assert "netem delay 10ms" in run("path", "show", path_file(PATH), "--as", "netem").stdout
    assert "[cells.up_bw]" in run("path", "show", path_file(PATH), "--as", "rattan").stdout


def test_what_is_written_for_others_is_read_back(path_file, tmp_path):
    path = path_file("rate = '12 Mbit/s'\ndelay = '10 ms'\nloss = 0.01\nqueue = '60 packets'\n")
    expected = run("path", "show", path).stdout
    for form, name in (("netem", "netem.sh"), ("rattan", "rattan.toml"), ("toml", "path.toml")):
        done = run("path", "show", path, "--as", form, "-o", tmp_path, "--strict")
        assert done.returncode == 0, done.stderr
        written = tmp_path / name
        assert written.read_text() == done.stdout
        source = {
            "netem": ("--from-netem", done.stdout),
            "rattan": ("--from-rattan", written),
            "toml": (written,),
        }[form]
        again = run("path", "show", *source)
        assert (again.returncode, again.stdout) == (0, expected), again.stderr


def test_a_long_trace_is_shown_as_a_file_that_is_read(tmp_path):
    """200,000 opportunities each way: 3 MB written out."""
    lines = "".join(f"{1_000_000 + number}\n" for number in range(200_000))
    (tmp_path / "up").write_text(lines)
    (tmp_path / "down").write_text("5\n" + lines)
    line = f"mm-delay 20 mm-link {tmp_path / 'up'} {tmp_path / 'down'}"
    shown = run("path", "show", "--from-mahimahi", line)
    assert len(shown.stdout) > 1 << 21
    whole = tmp_path / "whole.toml"
    whole.write_text(shown.stdout)
    folder = tmp_path / "folder"
    folder.mkdir()
    named = run("path", "show", "--from-mahimahi", line, "--output", folder)
    assert len(named.stdout) < 1000 and named.stdout == (folder / "path.toml").read_text()
    assert (folder / "link1.trace").read_text() == lines
    paths = [pathcast.Path.load(file).toml for file in (whole, folder / "path.toml")]
    assert paths[0] == paths[1] == shown.stdout


def test_real_traces_are_shown_as_files_that_are_read(real_data, tmp_path):
    for trace in sorted((real_data / "traces").glob("*")):
        if trace.suffix not in (".gz", ".trace"):
            continue
        content = trace.read_bytes()
        plain = tmp_path / "plain"
        plain.write_bytes(gzip.decompress(content) if trace.suffix == ".gz" else content)
        shown = run("path", "show", "--from-mahimahi", f"mm-delay 20 mm-link {plain} {plain}")
        assert shown.returncode == 0, shown.stderr
        file = tmp_path / "path.toml"
        file.write_text(shown.stdout)
        assert pathcast.Path.load(file).toml == shown.stdout, trace


def test_tc_commands_and_cells_are_paths(tmp_path, path_file):
    line = "tc qdisc add dev eth0 root netem delay 20ms 5ms loss 1% rate 10mbit limit 100"
    done = run("path", "show", "--from-netem", line)
    shown = pathcast.Path.parse(done.stdout)
    assert (shown.rate_bps, shown.loss, shown.queue_packets) == (10e6, 0.01, 83)
    assert "the delay holds 17 full ones" in done.stderr
    assert run("path", "show", "--from-netem", line, "--strict").returncode == 2
    rattan = path_file("[cells]\n[links]\nleft = 'x'\n", "rattan.toml")
    for arguments, message in (
        (("path", "show", "--from-netem", "netem loss state 1%"), "four states"),
        (("path", "show", "--from-rattan", rattan), f"{rattan}: links: got"),
        (("path", "show", "--from-rattan", tmp_path / "none"), "cannot be read"),
        (("path", "show", rattan, "--from-netem", line), "expected either PATH.toml"),
        (("path", "show", "--from-rattan", rattan, "--from-netem", line), "expected one of"),
        (("path", "show", "--from-netem", line, "-o", tmp_path / "none"), "a folder that is there"),
        (("shell", "--from-netem", "cake", "--", "true"), "expected tc commands"),
    ):
        done = run(*arguments)
        assert done.returncode == 2, done
        assert message in done.stderr, done.stderr


@needs_emulator
def test_a_command_runs_inside_what_tc_commands_say():
    line = "netem delay 15ms; tc qdisc add dev back root netem delay 10ms"
    done = run("shell", "--from-netem", line, "--", sys.executable, "-c", PING, before=BESIDE_ECHO)
    assert done.returncode == 0, done.stderr
    assert 25 < float(done.stdout) < 60


def test_what_others_cannot_say_is_told(path_file):
    path = path_file("delay = { kind = 'jitter', base = '9 ms', jitter = '2 ms' }\n")
    done = run("path", "show", path, "--as", "mahimahi")
    assert done.returncode == 0
    assert "cannot say it: forward delay: jitter" in done.stderr
    assert run("path", "show", path, "--as", "mahimahi", "--strict").returncode == 2


DOWNLOAD = """
import os, socket, sys
with socket.create_connection((os.environ["PATHCAST_BASE"], int(sys.argv[1]))) as client:
    print(len(client.makefile("rb").read()))
"""


@needs_emulator
@pytest.mark.parametrize("limit", ["", "[reverse]\nqueue = '1 BDP'\n"])
def test_a_download_through_a_queue_without_limit_is_pointed_out(path_file, limit):
    server = socket.create_server(("", 0))

    def send():
        connection, _ = server.accept()
        with connection:
            connection.sendall(bytes(200_000))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    path = path_file(f"rate = '20 Mbit/s'\ndelay = '5 ms'\n{limit}")
    done = run("shell", path, "--", sys.executable, "-c", DOWNLOAD, server.getsockname()[1])
    server.close()
    assert (done.returncode, done.stdout) == (0, "200000\n"), done.stderr
    # the first line, before the command runs
    assert ("has no limit" in done.stderr.splitlines()[0]) == (not limit)
    assert done.stderr.count("has no limit") == (not limit)
