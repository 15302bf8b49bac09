"""What brings samples to the service and carries its decisions out: CMCD, CMSD, maps of HAProxy."""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import threading
import time

import pytest
from serving import LINES, samples, serving

from conftest import ROOT, run, wait_until
from pathcast.exceptions import ServiceError
from pathcast.service.client import Client
from pathcast.service.cmcd import parse, sample_of, samples_of
from pathcast.service.feed import Log
from pathcast.service.haproxy import Haproxy, map_lines, read_map
from pathcast.service.steer import Policy, Steering, pools_of

#: Many small pictures: over a lossy path six connections load them sooner than one.
PAGE = "[[resources]]\nurl = 'https://page.test/'\nsize = '40 kB'\n" + "".join(
    f"[[resources]]\nurl = 'https://page.test/{n}.png'\ntype = 'image'\nsize = '10 kB'\n"
    for n in range(100)
)
POOLS = {"h2": "pool_h2", "http/1.1": "pool_h1"}


# CMSD


@pytest.fixture(scope="module")
def service():
    with serving() as one:
        assert one.post(samples())[0] == 200
        yield one


def header_of(service, query):
    import http.client

    made = http.client.HTTPConnection(service.address, timeout=10)
    made.request("GET", f"/v1/cmsd?{query}")
    answer = made.getresponse()
    body = answer.read()
    made.close()
    return answer.status, answer.headers["CMSD-Dynamic"], body


def test_cmsd_says_what_the_decision_says(service):
    query = "client=192.0.2.7&segment_s=4&confidence=0.9&ladder=1e6,3e6,6e6,20e6&server=edge-1"
    status, header, body = header_of(service, query)
    assert status == 200
    answer = json.loads(body)
    assert answer["bitrate_bps"] == 6e6
    name, *fields = header.split(";")
    assert name == '"edge-1"'
    said = {key: int(value) for key, value in (one.split("=") for one in fields)}
    assert said["mb"] == 6000
    assert said["etp"] == int(answer["quantiles_bps"]["0.5"] / 1e3)
    assert said["rtt"] == 50
    # without a ladder, mb is the rate at the asked confidence
    _, header, body = header_of(service, "client=192.0.2.7")
    assert int(re.search(r"mb=(\d+)", header)[1]) == int(json.loads(body)["bitrate_bps"] / 1e3)


def test_cmsd_has_no_header_where_nothing_is_known():
    with serving() as one:
        assert header_of(one, "client=198.51.100.1") == (204, None, b"")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("client=192.0.2.7&server=a%22b", "server is"),
        ("client=192.0.2.7&server=a%0d%0aSet-Cookie:%20x", "server is"),
        ("client=192.0.2.7&server=", "server is"),
        ("client=nobody", "nobody"),
        ("client=192.0.2.7&ladder=3,2,1", "ladder"),
        ("client=192.0.2.7&confidence=1", "confidence is 1"),
        ("", "client"),
    ],
)
def test_cmsd_refuses_bad_questions(service, query, said):
    status, header, body = header_of(service, query)
    assert (status, header) == (400, None)
    assert said in json.loads(body)["error"]


# prefixes


def test_prefixes_are_listed_page_by_page_each_once():
    clients = [f"10.{n // 200}.{n % 200}.9" for n in range(700)]
    with serving() as one:
        body = "".join(json.dumps({"client": c, "rate_bps": 1e6}) + "\n" for c in clients).encode()
        assert one.request("POST", "/v1/samples", body, LINES)[0] == 200
        found, after = [], ""
        while after is not None:
            status, page = one.get(f"/v1/prefixes?limit=61{after and '&after=' + after}")
            assert status == 200 and len(page["prefixes"]) <= 61
            found += [seen["prefix"] for seen in page["prefixes"]]
            after = page.get("next")
        assert sorted(found) == sorted(client[:-1] + "0/24" for client in clients)
        assert [seen.prefix for seen in Client(one.base).prefixes()] == one_page(one)
        time.sleep(0.3)
        assert one.get("/v1/prefixes?seen_s=0.2")[1]["prefixes"] == []
        for wrong in ("limit=0", "limit=100001", "seen_s=-1", "seen_s=nan", "after=x", "more=1"):
            assert one.get(f"/v1/prefixes?{wrong}")[0] == 400, wrong


def one_page(service):
    _, page = service.get("/v1/prefixes?limit=100000")
    return [seen["prefix"] for seen in page["prefixes"]]


# CMCD


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mtp=25400", {"mtp": "25400"}),
        ('bl=21300,mtp=100,sid="6e2f,b5",bs', {"bl": "21300", "mtp": "100", "sid": "6e2f,b5", "bs": True}),
        (r'cid="a\"b,c",mtp=5', {"cid": 'a"b,c', "mtp": "5"}),
        ("mtp%3D25400%2Cbl%3D100", {"mtp": "25400", "bl": "100"}),
        ('"",,=,5=6,mtp=7', {"mtp": "7"}),
        ('sid="never ends,mtp=1', {"mtp": "1"}),
        ("", {}),
    ],
)  # fmt: skip
def test_cmcd_is_read_by_its_pairs(text, found):
    assert parse(text) == found


def test_a_line_of_a_log_is_a_sample_where_the_player_has_measured():
    line = '{"time_s": 1795689823.7, "client": "192.0.2.7", "cmcd": "mtp%3D3200%2Cot%3Dv", "cmcd_request": ""}'
    assert sample_of(line) == {"client": "192.0.2.7", "rate_bps": 3.2e6, "time_s": 1795689823.7}
    header = '{"client": "192.0.2.7", "cmcd_request": "bl=100,mtp=800"}'
    assert sample_of(header) == {"client": "192.0.2.7", "rate_bps": 8e5}
    for wrong in (
        *("", "[]", "{", "null", '{"client": 7, "cmcd": "mtp=1"}', '{"cmcd": "mtp=1"}'),
        *('{"client": "a", "cmcd": "mtp=0"}', '{"client": "a", "cmcd": "mtp=nan"}'),
        *('{"client": "a", "cmcd": "mtp"}', '{"client": "a", "cmcd": "bl=1"}', "[" * 50_000),
        '{"client": "a", "cmcd": "mtp=5", "pad": "' + "x" * 70_000 + '"}',
    ):
        assert sample_of(wrong) is None, wrong[:60]


def test_a_measurement_that_is_sent_again_counts_once():
    log = [json.dumps({"client": "a", "cmcd": f"mtp={rate}"}) for rate in (5, 5, 5, 6, 6, 5)]
    assert [one["rate_bps"] for one in samples_of(log)] == [5e3, 6e3, 5e3]


def test_a_log_is_followed_across_rotation(tmp_path):
    file = tmp_path / "access.log"
    log = Log(file)
    assert log.lines() == []
    file.write_bytes(b"one\ntw")
    assert log.lines() == [b"one"]
    with file.open("ab") as stream:
        stream.write(b"o\nthree\n")
    assert log.lines() == [b"two", b"three"]
    file.rename(tmp_path / "access.log.1")
    file.write_bytes(b"four\n")
    assert log.lines() == [b"four"]
    file.write_bytes(b"5\n")
    assert log.lines() == [b"5"], "a log that was cut begins anew"


def test_feed_sends_what_players_say_and_counts_what_is_lost(tmp_path):
    log = tmp_path / "access.log"
    log.write_text('{"client": "192.0.2.7", "cmcd": "mtp=1"}\n')
    with serving() as one:
        going = []
        asked = ("feed", one.base, "--cmcd-log", log, "--every", 0.2, "--duration", 4, "--json")
        thread = threading.Thread(target=lambda: going.append(run(*asked)))
        thread.start()
        for number in range(30):
            time.sleep(0.1)
            with log.open("a") as stream:
                said = {"client": "192.0.2.7", "cmcd": f"mtp={3000 + number}"}
                stream.write(json.dumps(said) + "\n")
        thread.join()
        done = going[0]
        assert done.returncode == 0, done.stderr
        sent = json.loads(done.stdout)
        assert sent["samples"] >= 5 and sent["lost"] == 0
        _, answer = one.get("/v1/throughput?client=192.0.2.7")
        assert 2.9e6 < answer["rate_bps"] < 3.1e6
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    done = run(
        "feed", f"http://127.0.0.1:{port}", "--cmcd-log", log, "--every", 0.2, "--duration", 1
    )
    assert done.returncode == 0, done.stderr
    for wrong in (
        ("feed", one.base),
        ("feed", "ftp://x", "--local-port", 1),
        ("feed", "x", "--cmcd-log", log),
    ):
        done = run(*wrong)
        assert done.returncode == 2 and "expected" in done.stderr, wrong


# maps


def test_a_map_holds_prefixes_and_names_of_backends_alone(tmp_path):
    assert list(map_lines({"192.0.2.0/24": "pool_h1"})) == ["192.0.2.0/24 pool_h1\n"]
    for prefix, pool in (
        ("192.0.2.7/24", "a"),
        ("x", "a"),
        ("192.0.2.0/24", "a b"),
        ("::/0", "a\nb"),
    ):
        with pytest.raises(ServiceError, match="expected"):
            list(map_lines({prefix: pool}))
    file = tmp_path / "prefix.map"
    file.write_text("# made by hand\n\n192.0.2.0/24 pool_h1\n")
    assert read_map(file) == {"192.0.2.0/24": "pool_h1"}
    file.write_text("192.0.2.0/24\n")
    with pytest.raises(ServiceError, match=r"prefix\.map:1"):
        read_map(file)


def test_pools_are_one_backend_for_each_protocol():
    assert pools_of(["h2=a", "http/1.1=b"]) == {"h2": "a", "http/1.1": "b"}
    for wrong in (["h2"], ["h2="], ["h2=a", "h2=b"], ["h2=a b"]):
        with pytest.raises(ServiceError, match="expected"):
            pools_of(wrong)
    for pools in ({"h2": "a"}, {"h2": "a", "spdy": "b"}, {"h2": "a", "http/1.1": "a"}):
        with pytest.raises(ServiceError, match="expected"):
            Policy("home", pools)


def test_a_decision_for_a_protocol_without_a_pool_means_the_best_of_the_others():
    times = [
        {"protocol": name, "quantiles_ms": {"0.5": ms}}
        for name, ms in (("h3", 1.0), ("h2", 3.0), ("http/1.1", 2.0))
    ]
    answer = {"protocol": "h3", "confidence": 0.9, "load_times": times}
    assert Policy("home", POOLS).backend(answer) == ("pool_h1", 0.5)
    assert Policy("home", POOLS).backend({**answer, "protocol": "h2"}) == ("pool_h2", 0.9)


@pytest.fixture
def haproxy(tmp_path):
    """A running HAProxy of the example; its runtime API and the file of its map."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        pytest.skip("there is no haproxy; `scripts/system-packages servers` installs it")
    file = tmp_path / "prefix.map"
    file.write_text("198.51.100.0/24 pool_h1\n")
    configuration = (ROOT / "examples/http-version/haproxy.cfg").read_text()
    # free ports: nothing connects here
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        ports = [str(one.getsockname()[1]) for one in taken]
    configuration = re.sub(r"bind :\d+", lambda _: f"bind 127.0.0.1:{ports.pop()}", configuration)
    (tmp_path / "haproxy.cfg").write_text(configuration)
    process = subprocess.Popen(
        [program, "-db", "-f", tmp_path / "haproxy.cfg"],
        env={"RUN": str(tmp_path), "PATH": "/usr/bin"},
        stderr=(tmp_path / "haproxy.log").open("w"),
    )
    try:
        wait_until((tmp_path / "admin.sock").exists, "the start of HAProxy", 20)
        yield Haproxy(tmp_path / "admin.sock"), file
    finally:
        process.terminate()
        process.wait(20)


def test_a_map_is_exchanged_as_a_whole(haproxy):
    api, file = haproxy
    assert api.shown(file) == {"198.51.100.0/24": "pool_h1"}
    # more than a buffer of HAProxy holds
    many = {f"10.{n // 256}.{n % 256}.0/24": "pool_h1" for n in range(5000)} | {
        "2001:db8::/48": "pool_h2"
    }
    api.swap(file, many)
    assert api.shown(file) == many
    found = set()
    over = threading.Event()

    def look():
        while not over.is_set():
            found.add(
                re.search(r'value="(\w*)"', api.ask(f"get map {file} 10.0.5.1") + 'value=""')[1]
            )

    looking = threading.Thread(target=look)
    looking.start()
    for _ in range(20):
        api.swap(file, dict.fromkeys(many, "pool_h2"))
        api.swap(file, many)
    over.set()
    looking.join()
    assert found == {"pool_h1", "pool_h2"}, "an entry that both maps have is always there"
    with pytest.raises(ServiceError, match="expected a prefix"):
        api.swap(file, {"nonsense": "pool_h1"})
    assert api.shown(file) == many
    with pytest.raises(ServiceError, match="no map"):
        api.shown(file.with_name("other.map"))
    with pytest.raises(ServiceError, match="stats socket"):
        Haproxy(file.with_name("none.sock")).shown(file)


def test_clients_are_steered_by_their_samples(haproxy):
    api, file = haproxy
    configuration = file.with_name("serve.toml")
    configuration.write_text('protocols = ["http/1.1", "h2"]\n')
    with serving("--config", configuration) as one:
        assert one.request("PUT", "/v1/pages/home", PAGE.encode())[0] == 200
        client = Client(one.base)
        steering = Steering(client, api, file, Policy("home", POOLS))
        steering.begin()
        assert steering.turn() == [] and api.shown(file) == {"198.51.100.0/24": "pool_h1"}
        one.post(samples("192.0.2.7", rate_bps=2e7, cwnd_packets=90, losses=0))
        # 20 of 600 packets lost
        one.post(samples("203.0.113.9", rate_bps=2e6, packets=600, losses=20, cwnd_packets=12))
        expected = {
            "198.51.100.0/24": "pool_h1",
            "192.0.2.0/24": "pool_h2",
            "203.0.113.0/24": "pool_h1",
        }

        def is_steered():
            # the first answer about a page rests on one load
            steering.turn()
            return steering.entries == expected

        wait_until(is_steered, "the decision", 30)
        assert api.shown(file) == read_map(file) == expected
        # a HAProxy that lost its entries has them again
        api.swap(file, {})
        steering.turn()
        assert api.shown(file) == expected
        # a client whose path has no losses any more
        file.write_text("192.0.2.0/24 pool_h1\n")
        again = Steering(client, api, file, Policy("home", POOLS))
        again.begin()
        changes = again.turn()
        assert ("192.0.2.0/24", "pool_h1", "pool_h2") in [
            (change.prefix, change.before, change.after) for change in changes
        ]
        old = Steering(client, api, file, Policy("home", POOLS, keep_s=0.0))
        old.begin()
        old.turn()
        assert set(api.shown(file)) == {"192.0.2.0/24", "203.0.113.0/24"}
    with pytest.raises(ServiceError, match="does not answer"):
        again.turn()
    assert set(api.shown(file)) == {"192.0.2.0/24", "203.0.113.0/24"}, "the map stays"


def test_steer_goes_on_where_the_service_fails_and_refuses_bad_options(haproxy):
    api, file = haproxy
    options = ("--socket", api.socket_path, "--map", file, "--page", "home")
    pools = ("--pool", "h2=pool_h2", "--pool", "http/1.1=pool_h1")
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    done = run(
        "steer", f"http://127.0.0.1:{port}", *options, *pools, "--every", 0.2, "--duration", 1
    )
    assert done.returncode == 0
    assert done.stderr.count("the map stays as it is") == 1, "a failure is said once"
    for wrong in (
        (*options, "--pool", "h2=pool_h2"),
        (*options, *pools, "--confidence", 1.5),
        (*options, *pools, "--every", 0),
        ("--socket", file, "--map", file, "--page", "home", *pools),
    ):
        done = run("steer", "http://127.0.0.1:1", *wrong)
        assert done.returncode == 2 and "expected" in done.stderr, (wrong, done.stderr)
