"""`pathcast predict download`: numbers, a timeline, and a real server over loopback and over a path."""

import contextlib
import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time

import pytest

import pathcast
from conftest import PATHCAST, ended_well, run, until_valid
from pathcast import byte_server, download

needs_emulator = pytest.mark.usefixtures("emulator")


@contextlib.contextmanager
def serving(listen="127.0.0.1:0"):
    """The port of the small server, in a process of its own."""
    process = subprocess.Popen(
        [str(PATHCAST), "estimate", "--serve", listen], stderr=subprocess.PIPE, text=True
    )
    try:
        said = process.stderr.readline()
        yield int(re.search(r":(\d+) until", said)[1])
        assert process.poll() is None, process.stderr.read()
    finally:
        process.terminate()
        process.wait(10)
        process.stderr.close()


@contextlib.contextmanager
def answering(answer, *, closes=True):
    """The port of a server that says the same to everybody who asks."""
    server = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=say, args=(connection,), daemon=True).start()

    def say(connection):
        with contextlib.suppress(OSError), connection:
            if connection.recv(4096):
                connection.sendall(answer)
                if not closes:
                    done.wait(20)

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    done.set()
    server.close()


def refused(*arguments):
    """What the command says of wrong input."""
    outcome = run("estimate", *arguments)
    assert outcome.returncode == 2, (outcome.stdout, outcome.stderr)
    assert "Traceback" not in outcome.stderr
    return " ".join(outcome.stderr.split())


def test_the_example_of_the_docs_gives_a_row_for_each_size():
    outcome = run(
        "estimate", "--bytes", "1e6", "--time", 1.9, "--rtt", 0.08, "--size", "5 MB", "--json"
    )
    assert outcome.returncode == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    (size,) = found["sizes"]
    assert size["size_bytes"] == 5e6
    # nothing that a path does makes 5 MB go faster than 1 MB did, nor slower than five of them by much
    assert 1.9 < size["time_s"] < 5 * 1.9 * 1.2
    low, *_, high = size["throughput_quantiles_bps"]
    assert low < size["throughput_bps"] < high
    assert abs(size["throughput_bps"] * size["time_s"] / 8 / 5e6 - 1) < 1e-9
    assert abs(sum(found["states"].values()) - 1) < 1e-9
    assert "only size, time and round-trip time known, no timeline" in found["rests_on"]
    # Algorithm 1 by hand: Ws 36 is the first with 72 - 10 + 21.75 36 + 0.4 21.75^2 22.75^2 0.08^3 / 4 >= 691
    assert 10 <= found["published_window_packets"] <= 40
    assert not found["published_at_the_end"]


def test_the_default_sizes_are_those_of_the_paper():
    outcome = run("estimate", "--bytes", "1 MB", "--time", 1.9, "--rtt", 0.08)
    assert outcome.returncode == 0, outcome.stderr
    assert re.findall(r"(\d+) MB", outcome.stdout) == ["5", "10", "20"]
    assert "rests on:" in outcome.stdout


def test_the_window_over_time_is_told_on_request():
    arguments = ("--bytes", "1e6", "--time", 1.9, "--rtt", 0.08, "--size", "5e6", "--size", "2e6")
    plain = json.loads(run("estimate", *arguments, "--json").stdout)
    found = json.loads(run("estimate", *arguments, "--windows", "--json").stdout)
    windows = found.pop("windows")
    assert found == plain
    assert len(windows["time_s"]) == len(windows["window_quantiles_packets"]) == 201
    assert windows["time_s"][-1] == pytest.approx(plain["sizes"][0]["time_s"])
    assert windows["window_quantiles_packets"][0] == [10] * 5
    for quantiles in windows["window_quantiles_packets"]:
        assert quantiles == sorted(quantiles)
    assert windows["published_window_packets"][0] == 10
    assert windows["published_time_s"][-1] == pytest.approx(plain["sizes"][0]["published_time_s"])
    # by Algorithm 2 what the rounds carry is the transfer
    assert len(windows["published_time_s"]) == len(windows["published_window_packets"])
    assert "expected both" in refused(*arguments, "--windows")


def test_the_clock_may_begin_with_the_request():
    arguments = ("--rtt", 0.08, "--bytes", "1e6", "--size", "5e6", "--json")
    first_byte = json.loads(run("estimate", "--time", 1.9, *arguments).stdout)
    request = json.loads(run("estimate", "--time", 1.98, "--since-request", *arguments).stdout)
    difference = request["sizes"][0]["time_s"] - first_byte["sizes"][0]["time_s"]
    assert abs(difference - 0.08) < 1e-6


def test_a_timeline_makes_the_estimate_surer(tmp_path):
    # 10 Mbit/s of payload over 50 ms: rounds of 10, 20, 40 packets, then no gap any more
    packet_s, lines, sent, at = 1448 * 8 / 10e6, ["time_s,received_bytes"], 0, 0.0
    for window in (10, 20, 40):
        for i in range(window):
            sent += 1448
            lines.append(f"{at + i * packet_s:.6f},{sent}")
        at += max(0.05 + 2 * packet_s, window * packet_s)
    while sent < 1_000_000:
        sent += 1448
        lines.append(f"{at:.6f},{sent}")
        at += packet_s
    file = tmp_path / "timeline.csv"
    file.write_text("\n".join(lines) + "\n")
    outcome = run("estimate", "--timeline", file, "--rtt", 0.05, "--size", "20e6", "--json")
    assert outcome.returncode == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    assert found["detailed"]
    assert next(iter(found["states"])) == "path_limited"
    truth_s = at + (20e6 - sent) * 8 / 10e6
    assert abs(found["sizes"][0]["time_s"] / truth_s - 1) < 0.01
    time_s, received = ([float(line.split(",")[column]) for line in lines[1:]] for column in (0, 1))
    again = pathcast.estimate(received[-1], time_s[-1], 0.05, [20e6], timeline=(time_s, received))
    assert again.sizes[0].time_s == found["sizes"][0]["time_s"]


@pytest.mark.parametrize(
    ("arguments", "because"),
    [
        ((), "expected --bytes, --time and --rtt"),
        (("--bytes", "0", "--time", 1, "--rtt", 0.1), "above 0"),
        (("--bytes", "-1e6", "--time", 1, "--rtt", 0.1), "above 0"),
        (("--bytes", "1 potato", "--time", 1, "--rtt", 0.1), "such as 5e6"),
        (("--bytes", "1e6", "--time", 0.05, "--rtt", 0.1), "less than the round-trip time"),
        (("--bytes", "1e6", "--time", 0, "--rtt", 0.1), "time is 0"),
        (("--bytes", "1e6", "--time", "nan", "--rtt", 0.1), "time is NaN"),
        (("--bytes", "1e6", "--time", 1, "--rtt", -0.1), "rtt is -0.1"),
        (("--bytes", "1e6", "--time", 1, "--rtt", 0.1, "--size", "5e5"), "size is 500000"),
        (("--bytes", "1e4", "--time", 1, "--rtt", 0.1), "two first windows"),
        (("--bytes", "1e12", "--time", 1, "--rtt", 0.1), "100000000 bytes"),
        (("--bytes", "1e6", "--time", 1, "--rtt", 0.1, "--mss", 1), "mss is 1"),
        (("--bytes", "1e6", "--time", 1, "--rtt", 0.1, "--receive-window", "10"), "a packet"),
        (("--from", "localhost", "--time", 1), "--from measures"),
        (("--from", "ftp://localhost/file"), "expected HOST"),
        (("--from", "http://user:secret@localhost/"), "without one"),
        (("--from", "localhost:99999"), "expected HOST"),
        (("--serve", "nowhere"), "ADDRESS:PORT"),
        (("--serve", "192.0.2.1:80"), "cannot listen"),
    ],
)
def test_wrong_input_is_refused_in_words(arguments, because):
    said = refused(*arguments)
    assert because in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("", "columns none"),
        ("a,b\n1,2\n", "a, b"),
        ("time_s,received_bytes\n", "no rows"),
        ("time_s,received_bytes\n0,1448\n1,much\n", ":3: received_bytes: got 'much'"),
        ("time_s,received_bytes\n0,1448\n1\n", "got 'nothing'"),
        ("time_s,received_bytes\n2,1e5\n1,1e6\n", "time falls from 2 to 1"),
        ("time_s,received_bytes\n0,1448\ninf,1e6\n", "time"),
    ],
)
def test_a_wrong_timeline_is_refused_in_words(tmp_path, text, because):
    file = tmp_path / "timeline.csv"
    file.write_text(text)
    assert because in refused("--timeline", file, "--rtt", 0.1)


def test_what_is_no_text_is_no_timeline(tmp_path):
    file = tmp_path / "timeline.csv"
    file.write_bytes(b"\xff\xfe\x00")
    assert "no UTF-8" in refused("--timeline", file, "--rtt", 0.1)
    assert "cannot be read" in refused("--timeline", tmp_path / "none", "--rtt", 0.1)


def test_it_measures_a_server_itself():
    with serving() as port:
        outcome = run("estimate", "--from", f"127.0.0.1:{port}", "--json")
        assert outcome.returncode == 0, outcome.stderr
        found = json.loads(outcome.stdout)
        assert found["measured"]["received_bytes"] == 1_000_000
        assert len(found["measured"]["rtts_s"]) == 6
        assert [size["size_bytes"] for size in found["sizes"]] == [5e6, 10e6, 20e6]
        assert "size is 500000" in refused("--from", f"127.0.0.1:{port}", "--size", "5e5")
        text = run(
            "estimate", "--from", f"http://localhost:{port}/bytes/3000000", "--bytes", "2 MB"
        )
        assert text.returncode == 0, text.stderr
        assert "round-trip times" in text.stdout
        assert refused("--from", f"http://127.0.0.1:{port}/nothing").count("404") == 1


def test_a_file_that_is_too_short_is_used_as_far_as_it_goes():
    with serving() as port:
        outcome = run("estimate", "--from", f"http://127.0.0.1:{port}/bytes/200000")
        assert outcome.returncode == 0, outcome.stderr
        assert re.search(r"ended after 20\d+ bytes, expected 1000000", outcome.stderr)
        assert "first windows" in refused("--from", f"http://127.0.0.1:{port}/bytes/2000")


@pytest.mark.parametrize(
    ("answer", "because"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://else.where/\r\n\r\n", "else.where"),
        (b"HTTP/1.1 500 Oh\r\n\r\n", "500 Oh"),
        (b"\x00\xff garbage\r\n\r\n", "expected an answer of HTTP"),
        (b"", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "head"),
    ],
)
def test_answers_that_are_no_file_are_refused(answer, because):
    with answering(answer) as port:
        assert because in refused("--from", f"http://127.0.0.1:{port}/")


def test_it_does_not_wait_for_ever():
    with answering(b"HTTP/1.1 200 OK\r\n\r\nsome", closes=False) as port:
        said = refused("--from", f"http://127.0.0.1:{port}/", "--timeout", 0.5)
    assert "not done within 0.5 s" in said


def test_a_host_that_cannot_be_reached_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert f"127.0.0.1:{port}" in refused("--from", f"127.0.0.1:{port}")


def test_plain_http_is_no_https():
    with serving() as port:
        assert "https" in refused("--from", f"https://127.0.0.1:{port}/bytes/1000000")


@pytest.fixture
def server():
    with byte_server.ByteServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def fetch(server, path, method="GET"):
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=20)
    with contextlib.closing(connection):
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()


def test_the_server_serves_bytes_that_nothing_compresses(server):
    import zlib

    status, body = fetch(server, "/bytes/123456")
    assert (status, len(body)) == (200, 123456)
    assert len(zlib.compress(body[:60_000])) > 59_000
    assert fetch(server, "/bytes/5", "HEAD") == (200, b"")
    assert fetch(server, "/bytes/0") == (200, b"")


def test_the_server_serves_nothing_else(server):
    assert fetch(server, f"/bytes/{byte_server.MOST_BYTES + 1}")[0] == 403
    for path in ("/", "/bytes/", "/bytes/-1", "/bytes/1e6", "/bytes/5/../../etc/passwd"):
        assert fetch(server, path)[0] == 404, path
    assert fetch(server, "/bytes/5", "POST")[0] == 501


def test_the_server_bears_garbage_and_clients_that_leave(server):
    address = server.server_address[:2]
    for sent in (
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"GET " + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"",
    ):
        with socket.create_connection(address, timeout=20) as client:
            client.sendall(sent)
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(b"GET /bytes/100000000 HTTP/1.1\r\n\r\n")
        client.recv(1000)
    assert fetch(server, "/bytes/10")[0] == 200


def connected(server, source="127.0.0.1"):
    """A client at this address, that takes little at once."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(20)
    client.bind((source, 0))
    client.connect(server.server_address[:2])
    return client


def status_of(client, path="/bytes/1"):
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return int(client.recv(12)[9:])


def test_slow_senders_keep_nobody_out(server):
    """As many as the server has places, from several addresses, that begin a request and never end it."""
    with contextlib.ExitStack() as slow:
        for number in range(2 * byte_server.MOST_CLIENTS):
            client = slow.enter_context(connected(server, f"127.0.0.{2 + number % 8}"))
            client.sendall(b"GET /bytes/1 HTTP/1.1\r\nX-A: b")
        for _ in range(3):
            assert fetch(server, "/bytes/10") == (200, server.RequestHandlerClass._block[:10])


def test_who_sends_a_request_byte_by_byte_is_ended(server, monkeypatch):
    monkeypatch.setattr(byte_server, "ASK_WITHIN_S", 0.5)
    with connected(server) as slow:
        slow.settimeout(0.05)
        deadline = time.monotonic() + 8  # less than each byte alone may take
        with contextlib.suppress(ConnectionError):
            while True:
                assert time.monotonic() < deadline
                slow.sendall(b"x")
                with contextlib.suppress(TimeoutError):
                    assert slow.recv(100) == b""
                    break


def test_one_network_has_some_of_the_places_and_all_networks_no_more_than_there_are(server):
    with contextlib.ExitStack() as clients:

        def served(source):
            client = clients.enter_context(connected(server, source))
            return status_of(client, f"/bytes/{byte_server.MOST_BYTES}")

        most, others = byte_server.MOST_OF_NETWORK, byte_server.MOST_CLIENTS
        assert [served("127.0.0.2") for _ in range(most)] == [200] * most
        assert served("127.0.0.2") == 503
        rest = [served(f"127.0.1.{number}") for number in range(1, others - most + 1)]
        assert rest == [200] * (others - most)
        assert served("127.0.0.3") == 503
    deadline = time.monotonic() + 20
    while fetch_status(server) != 200:
        assert time.monotonic() < deadline


def test_who_has_been_served_for_long_makes_room_when_there_is_none(server, monkeypatch):
    monkeypatch.setattr(byte_server, "MOST_CLIENTS", 2)
    with connected(server, "127.0.0.2") as first, connected(server, "127.0.0.3") as second:
        whole = f"/bytes/{byte_server.MOST_BYTES}"
        assert status_of(first, whole) == status_of(second, whole) == 200
        assert fetch_status(server) == 503
        monkeypatch.setattr(byte_server, "LONG_ENOUGH_S", 0.0)
        assert fetch_status(server) == 200
        with pytest.raises(ConnectionError):
            while first.recv(1 << 16):
                pass
            raise ConnectionError
        assert second.recv(10)


def test_addresses_are_of_networks():
    of = byte_server.network_of
    assert of("192.0.2.1") == of("::ffff:192.0.2.1") == "192.0.2.1"
    assert of("2001:db8::1") == of("2001:db8:0:0:ffff::9") == "2001:db8::/64"
    assert of("2001:db8:0:1::1") == "2001:db8:0:1::/64"
    assert of("fe80::1%eth0") == "fe80::/64"


def fetch_status(server):
    with contextlib.suppress(OSError, http.client.HTTPException):
        return fetch(server, "/bytes/1")[0]


def test_targets_are_hosts_or_urls():
    of = download.Target.parse
    assert of("example.org") == download.Target("example.org", 8642, "/bytes/1000000", False)
    assert of("[::1]:80") == download.Target("::1", 80, "/bytes/1000000", False)
    assert of("https://example.org/a?b") == download.Target("example.org", 443, "/a?b", True)
    assert of("http://[::1]:81/").authority == "[::1]:81"
    for wrong in ("", "http://", "a b", "host/path", "http://host/\r\nX: y", "file:///etc/passwd"):
        with pytest.raises(pathcast.DownloadError, match="expected"):
            of(wrong)


# measures in a path, from inside the shell
INSIDE = """
import os, sys
os.execv(sys.argv[1], [sys.argv[1], "estimate", "--from", os.environ["MAHIMAHI_BASE"] + ":" + sys.argv[2], "--json"])
"""


@needs_emulator
def test_it_finds_the_rate_of_an_emulated_path(path_file):
    path = path_file("rate = '8 Mbit/s'\ndelay = '30 ms'\nqueue = '2 MB'\n")
    # 8 Mbit/s of packets are 7.72 of payload
    truth_s = 20e6 * 8 / 7.72e6

    def attempt():
        with serving("0.0.0.0:0") as port:
            outcome = run("shell", path, "--", sys.executable, "-c", INSIDE, PATHCAST, port)
        ended_well(outcome)
        found = json.loads(outcome.stdout.splitlines()[0])
        assert next(iter(found["states"])) == "path_limited"
        off = found["sizes"][-1]["time_s"] / truth_s - 1
        why = f"20 MB are off by {off:.1%}, the round trip is {found['rtt_s']} s"
        return (found if abs(off) < 0.15 and 0.058 < found["rtt_s"] < 0.09 else None), why

    until_valid(attempt, 5)
