"""`pathcast diagnose --port`: the flows of a running server, and what limits those of each prefix."""

import contextlib
import json
import socket
import threading
import time

import pytest

import pathcast
from conftest import run
from pathcast._limits import LIMITS, FlowLimits
from pathcast._prefixes import by_prefix, prefix_of


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("192.0.2.7:443 -> 198.51.100.23:5001", "198.51.100.0/24"),
        ("192.0.2.7:443 -> 198.51.100.23:5001 (socket 12)", "198.51.100.0/24"),
        ("[2001:db8::1]:443 -> [2001:db8:1:2::3]:5001", "2001:db8:1::/48"),
        ("[::ffff:192.0.2.7]:443 -> [::ffff:198.51.100.23]:5001", "198.51.100.0/24"),
        ("2001:db8::1 -> 2001:db8:1:2::3", "2001:db8:1::/48"),
        ("192.0.2.7:443 > 198.51.100.23:5001", "198.51.100.0/24"),
        ("here -> there", ""),
        ("-> 300.1.2.3:80", ""),
        ("", ""),
    ],
)
def test_prefixes_are_told_from_names(name, prefix):
    assert prefix_of(name) == prefix


def limits_of(limit, duration_s, share=0.8):
    rest = "application" if limit != "application" else "path_rate"
    shares = dict.fromkeys(LIMITS, 0.0) | {limit: share, rest: 1 - share}
    return FlowLimits(0, "cubic", duration_s, limit, 1.0, shares, shares)


def test_prefixes_that_lose_most_time_come_first():
    far = "192.0.2.7:443 -> {}:9"
    flows = [
        (far.format("198.51.100.1"), 10, limits_of("loss", 10)),
        (far.format("198.51.100.2"), 20, limits_of("queue", 2)),
        (far.format("203.0.113.1"), 1000, limits_of("path_rate", 100)),
        (far.format("203.0.114.1"), 5, limits_of("receive_window", 20)),
    ]
    found = by_prefix(flows)
    assert [one.prefix for one in found] == ["203.0.114.0/24", "198.51.100.0/24", "203.0.113.0/24"]
    assert [one.limit for one in found] == ["receive_window", "loss", "path_rate"]
    assert [one.lost_s for one in found] == pytest.approx([16, 9.6, 0])
    both = found[1]
    assert (both.flows, both.bytes) == (2, 30)
    assert sum(both.seconds.values()) == pytest.approx(12)


@contextlib.contextmanager
def busy_server():
    """A server that sends to two clients at a steady rate; its port."""
    server = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def send(connection):
        with contextlib.suppress(OSError), connection:
            while not ended.is_set():
                connection.sendall(bytes(20_000))
                time.sleep(0.01)

    def read(client):
        with contextlib.suppress(OSError), client:
            while client.recv(1 << 16):
                pass

    clients = [socket.create_connection(server.getsockname()) for _ in range(2)]
    threads = [threading.Thread(target=send, args=(server.accept()[0],)) for _ in clients]
    threads += [threading.Thread(target=read, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        ended.set()
        for thread in threads:
            thread.join(10)
        server.close()


def test_flows_of_a_running_server_are_judged(tmp_path):
    page = tmp_path / "page.html"
    with busy_server() as port:
        watched = ("diagnose", "--port", port, "--method", "sock_diag", "--duration", 3)
        done = run(*watched, "--json", "-o", page)
        shown = run(*watched, "--prefix", "127.0.0.0/8")
        none = run(*watched, "--prefix", "192.0.2.0/24")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    flows = [one for one in answer["flows"] if one["name"].startswith(f"127.0.0.1:{port} >")]
    assert len(flows) == 2
    # 2 MB a second of what loopback carries
    assert {one["limit"] for one in flows} <= {"application", "idle"}
    assert all(one["bytes"] > 1_000_000 for one in flows)
    (prefix,) = answer["prefixes"]
    assert prefix["prefix"] == "127.0.0.0/24"
    assert prefix["flows"] == len(answer["flows"])
    text = page.read_text()
    assert f"<h1>Flows of port {port}</h1>" in text
    assert f"<td>127.0.0.0/24</td><td>{prefix['flows']}</td>" in text
    assert shown.returncode == 0, shown.stderr
    assert f"127.0.0.1:{port} >" in shown.stdout
    assert "seconds lost" in shown.stdout
    assert none.returncode == 2
    assert f"no flow of port {port} sent enough in 3 s" in none.stderr


def test_what_is_neither_traces_nor_a_port_is_said():
    for arguments, error in (
        ((), "expected either TRACE... or --port N"),
        (("trace.parquet", "--port", "443"), "expected either TRACE... or --port N"),
        (("--port", "443", "--flow", "1"), "got --flow; with --port, --prefix selects flows"),
        (("--port", "0"), "port is 0, expected 1 to 65535"),
        (("--port", "443", "--prefix", "here"), "here"),
        (("--port", "443", "--duration", "0.1"), "0.1"),
    ):
        done = run("diagnose", *arguments)
        assert done.returncode == 2, (arguments, done.stderr)
        assert error in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_flows_of_a_trace_without_addresses_have_no_prefixes(tmp_path):
    path = pathcast.Path.parse("rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '2 BDP'")
    file = tmp_path / "trace.parquet"
    pathcast.simulate(path, ["cubic", "cubic"], duration_s=10)[1].write(file)
    assert "seconds lost" not in run("diagnose", file).stdout
    (one,) = json.loads(run("diagnose", file, "--json").stdout)["prefixes"]
    assert (one["prefix"], one["flows"]) == ("", 2)
