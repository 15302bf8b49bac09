"""The service of decisions: answers, state, limits and bad input, over real sockets."""

import gzip
import json
import math
import re
import resource
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest
from serving import LINES, Service, samples, serving, started

from conftest import PATHCAST, run

#: Connections that say nothing.
IDLE = 10_000
PAGE = b"[[resources]]\nurl = 'https://example.org/'\nsize = '300 kB'\n"


@pytest.fixture(scope="module")
def service():
    with serving() as one:
        assert one.post(samples()) == (200, {"accepted": 100, "refused": 0})
        assert one.request("PUT", "/v1/pages/home", PAGE)[0] == 200
        yield one


def question(path, **more):
    text = "&".join(f"{name}={value}" for name, value in {"client": "192.0.2.7", **more}.items())
    return f"/v1/{path}?{text}"


QUESTIONS = [
    question("throughput", horizon_s=5),
    question("bitrate", segment_s=4, confidence=0.9, ladder="1e6,3e6,6e6,20e6"),
    question("transfer", bytes=5_000_000),
    question("http", page="home"),
]


def test_each_answer_says_what_it_rests_on(service):
    found = {}
    for path in QUESTIONS:
        status, answer = service.get(path)
        assert status == 200, answer
        found[answer["kind"]] = answer
        assert answer["basis"]["kind"] == "prefix"
        assert answer["basis"]["name"] == "192.0.2.0/24"
        assert answer["basis"]["samples"] > 10
        assert answer["propensity"] == 1
    assert 7e6 < found["throughput"]["rate_bps"] < 9e6
    assert found["bitrate"]["bitrate_bps"] == 6e6
    assert 4.5 < found["transfer"]["time_median_s"] < 6
    assert found["http"]["protocol"] in ("http/1.1", "h2", "h3")
    for quantiles in (found["throughput"]["quantiles_bps"], found["transfer"]["quantiles_s"]):
        assert list(quantiles.values()) == sorted(quantiles.values())


def conforms(value, schema, schemas):
    """Whether a value has the types of a schema, as far as ours go."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "integer": int,
        "number": (int, float),
        "null": type(None),
    }
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    assert any(isinstance(value, kinds[name]) for name in names), (value, schema)
    if isinstance(value, dict) and "properties" in schema:
        assert set(schema.get("required", [])) <= value.keys() <= schema["properties"].keys()
        for name, item in value.items():
            conforms(item, schema["properties"][name], schemas)
    if isinstance(value, list):
        for item in value:
            conforms(item, schema["items"], schemas)


def test_answers_are_those_of_the_interface(service):
    _, interface = service.get("/openapi.json")
    schemas = interface["components"]["schemas"]
    for path in QUESTIONS:
        described = interface["paths"][path.partition("?")[0]]["get"]["responses"]["200"]
        content = described["content"]["application/json"]
        conforms(service.get(path)[1], content["schema"], schemas)
        conforms(content["example"], content["schema"], schemas)
    for path, methods in interface["paths"].items():
        if "get" in methods and path.startswith("/v1/"):
            assert service.get(path)[0] in (200, 400), path


def lossy_flow(client, min_rtt_s):
    """Five minutes of a CUBIC flow that loses one packet in a hundred; in the last half minute it had bad luck."""
    now = time.time()
    rows = []
    for n in range(300):
        late = n >= 270
        cwnd = 6 + n % 16
        rows.append(
            {"client": client, "time_s": now + n - 300, "rate_bps": 6e5 if late else 1.4e6}
            | {"rtt_s": 0.1, "min_rtt_s": min_rtt_s, "cwnd_packets": cwnd, "npc": 1}
            | {"packets": 10 * cwnd, "losses": 0.1 * cwnd}
        )
    return rows


def test_a_session_s_bitrate_follows_from_the_losses_where_they_limit_the_rate():
    with serving() as one:
        for client, min_rtt_s in (("192.0.2.7", 0.099), ("198.51.100.7", 0.05)):
            assert one.post(lossy_flow(client, min_rtt_s))[0] == 200

        def asked(over, client="192.0.2.7", **more):
            words = {"client": client, "ladder": "3e5,5e5,9e5,2e6", "confidence": 0.5, **more}
            text = "&".join(f"{name}={value}" for name, value in words.items())
            status, answer = one.get(f"/v1/bitrate?over={over}&{text}")
            assert status == 200, answer
            assert answer["over"] == over
            return answer

        segment, session = asked("segment"), asked("session")
        # sqrt(1.5 / 0.01) / 0.1 s is 1.4 Mbit/s by Reno's law; CUBIC's is near it there, and a fifth of the packets are
        # sent while a loss is repaired, so that the others are lost more often
        assert segment["quantiles_bps"]["0.5"] < 0.9e6
        assert 0.95e6 < session["quantiles_bps"]["0.5"] < 1.5e6
        assert (segment["bitrate_bps"], session["bitrate_bps"]) == (5e5, 9e5)
        # some 400 losses: as sure as the law is
        low, high = (session["quantiles_bps"][level] for level in ("0.05", "0.95"))
        assert 1.1 < high / low < 1.6
        # a queue of half the round trip: the link limits it, and the law says nothing
        full = asked("session", "198.51.100.7")["quantiles_bps"]["0.5"]
        assert full < 0.9e6
        # a client without samples has no losses of its own
        stranger = asked("session", "192.0.3.1")
        assert stranger["basis"]["kind"] != "prefix"
        _, throughput = one.get("/v1/throughput?client=192.0.3.1&horizon_s=60")
        assert stranger["quantiles_bps"] == pytest.approx(throughput["quantiles_bps"], rel=1e-6)
        status, answer = one.get("/v1/bitrate?client=192.0.2.7&over=week")
        assert status == 400 and "week" in answer["error"] and "session" in answer["error"]


def test_a_bitrate_is_that_of_predict_bitrate(tmp_path):
    rates = [
        4e6 * (1 + 0.4 * math.sin(n / 9)) * (0.8 + 0.4 * (n * 7919 % 101) / 101) for n in range(200)
    ]
    series = tmp_path / "rates.csv"
    series.write_text("duration_s,rate_bps\n" + "".join(f"1,{rate}\n" for rate in rates))
    sizes = [500_000, 800_000, 1_100_000, 1_500_000, 2_000_000, 2_600_000]
    chosen = set()
    for segment_s, confidence in ((4, 0.9), (4, 0.6), (2, 0.8), (6, 0.95)):
        of_segment = [round(size * segment_s / 4) for size in sizes]
        words = ("--sizes", ",".join(map(str, of_segment)), "--trace", series, "--json")
        more = ("--segment", segment_s, "--confidence", confidence)
        done = run("predict", "bitrate", *words, *more)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        with serving() as one:
            end = time.time()
            rows = [
                {"client": "192.0.2.7", "time_s": end + n - len(rates), "rate_bps": rate}
                for n, rate in enumerate(rates, 1)
            ]
            assert one.post(rows)[0] == 200
            ladder = ",".join(f"{size}B" for size in of_segment)
            path = question("bitrate", segment_s=segment_s, confidence=confidence, ladder=ladder)
            status, answer = one.get(path)
        assert status == 200, answer
        assert answer["is_confident"] == (said["choice"] is not None)
        if said["choice"] is not None:
            assert answer["rung"] == said["choice"]["version"]
        chosen.add(answer["rung"])
        served = [rung["confidence"] for rung in answer["ladder"]]
        predicted = [one["probability"] for one in said["versions"]]
        assert served == pytest.approx(predicted, abs=1e-4)
        quantiles = answer["quantiles_bps"].values()
        assert list(quantiles) == pytest.approx(
            list(said["rate"]["quantiles_bps"].values()), rel=1e-4
        )
    assert len(chosen) > 1


def test_a_new_client_gets_its_neighbors_answer_and_is_told_so(service):
    for host in range(1, 9):
        assert service.post(samples(f"10.0.{host}.1", rate_bps=1e6 * host))[0] == 200
    _, answer = service.get("/v1/throughput?client=10.0.12.1")
    assert answer["basis"]["kind"] == "wider_prefix"
    assert answer["basis"]["name"] == "10.0.0.0/20"
    quantiles = answer["quantiles_bps"]
    assert quantiles["0.05"] < 3e6 and quantiles["0.95"] > 7e6
    _, answer = service.get("/v1/throughput?client=2001:db8::1")
    assert answer["basis"]["kind"] == "all"


def test_decisions_are_scored_by_the_samples_that_follow():
    with serving() as one:
        one.post(samples())
        _, answer = one.get("/v1/throughput?client=192.0.2.7&horizon_s=0.5")
        assert answer["scored"]
        for _ in range(8):
            time.sleep(0.1)
            now = {"client": "192.0.2.7", "rate_bps": 8e6}
            assert one.post([now])[0] == 200
        _, status = one.get("/v1/status")
        [kind] = [kind for kind in status["kinds"] if kind["kind"] == "throughput"]
        assert (kind["outcomes"], kind["coverage"]) == (1, 1.0)
        _, transfer = one.get("/v1/transfer?client=192.0.2.7&bytes=1000000")
        outcome = {"decision": transfer["decision"], "client": "192.0.2.7", "time_s": 99.0}
        body = json.dumps(outcome).encode()
        assert one.request("POST", "/v1/outcomes", body, LINES)[1]["accepted"] == 1
        assert one.request("POST", "/v1/outcomes", body, LINES)[0] == 400, "it is scored once"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"client": "192.0.2.7", "rate_bps": NaN}', "expected value"),
        (b'{"client": "192.0.2.7", "rate_bps": 1e999}', "number out of range"),
        (b'{"client": "192.0.2.7", "rate_bps": -1}', "rate_bps is -1"),
        (b'{"client": "192.0.2.7", "rate_bps": 1, "time_s": 9e9}', "ahead"),
        (b'{"client": "192.0.2.7", "rate_bps": 1, "time_s": 0}', "ago"),
        (b'{"client": "192.0.2.7/24", "rate_bps": 1}', "bits beyond the length"),
        (b'{"client": "10.0.0.0/8", "rate_bps": 1}', "too wide"),
        (b'{"client": "here", "rate_bps": 1}', "no prefix"),
        (b'{"client": "192.0.2.7", "speed": 1}', "unknown field"),
        (b'{"client": "192.0.2.7"}', "at least one"),
        (b'{"client":' * 100_000, "expected"),
        (b"[" * 100_000, "expected"),
        (b"\xff\xfe", "expected value"),
    ],
)
def test_bad_samples_are_refused_with_their_line(service, line, said):
    status, answer = service.request("POST", "/v1/samples", line, LINES)
    assert status == 400
    assert answer["refused"] == 1 and answer["errors"][0]["line"] == 1
    assert said in answer["errors"][0]["error"]


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/v1/throughput", 400, "client"),
        ("/v1/throughput?client=192.0.2.7&horizon_s=nan", 400, "horizon_s is NaN"),
        ("/v1/throughput?client=192.0.2.7&horizon=5", 400, "unknown field"),
        ("/v1/bitrate?client=192.0.2.7&confidence=1", 400, "confidence is 1"),
        ("/v1/bitrate?client=192.0.2.7&ladder=3,2", 400, "ladder has 2"),
        ("/v1/transfer?client=192.0.2.7&bytes=-1", 400, "bytes"),
        ("/v1/http?client=192.0.2.7&page=none", 404, "PUT /v1/pages"),
        ("/v1/none", 404, "openapi.json"),
    ],
)
def test_bad_questions_are_refused(service, path, status, said):
    assert service.get(path)[0] == status
    assert said in service.get(path)[1]["error"]


def test_bodies_of_other_kinds_are_refused(service):
    body = b'{"client": "192.0.2.7", "rate_bps": 1}'
    assert service.request("POST", "/v1/samples", body, {"Content-Type": "text/plain"})[0] == 415
    packed = {**LINES, "Content-Encoding": "br"}
    assert service.request("POST", "/v1/samples", body, packed)[0] == 415
    packed = {**LINES, "Content-Encoding": "gzip"}
    assert service.request("POST", "/v1/samples", body, packed)[0] == 400
    assert service.request("POST", "/v1/samples", gzip.compress(body), packed)[0] == 200
    parquet = {"Content-Type": "application/vnd.apache.parquet"}
    assert service.request("POST", "/v1/samples", b"PAR1", parquet)[0] == 400
    assert service.request("POST", "/v1/throughput", body)[0] == 405
    assert service.request("PUT", "/v1/pages/..%2fhome", PAGE)[0] == 400
    assert service.request("PUT", "/v1/pages/bad", b'{"log": {}}')[0] == 400


def test_a_trace_of_the_simulator_is_taken(service, tmp_path):
    file = tmp_path / "trace.parquet"
    made = run("simulate", "100mbps-40ms-1bdp", "--duration", 10, "-o", file)
    assert made.returncode == 0, made.stderr
    kind = {"Content-Type": "application/vnd.apache.parquet"}
    body = file.read_bytes()
    status, answer = service.request("POST", "/v1/samples?client=198.51.100.1", body, kind)
    assert status == 200 and answer["accepted"] > 20, answer
    _, answer = service.get("/v1/throughput?client=198.51.100.9")
    assert 5e7 < answer["rate_bps"] < 1.1e8


def test_a_page_in_a_browser_may_not_ask_by_another_name(service):
    assert service.get("/v1/status", headers={"Host": "evil.example"})[0] == 403
    assert service.get("/", headers={"Host": "localhost:8080"})[0] == 200


def test_the_live_page_names_no_other_host(service):
    status, page = service.get("/")
    assert status == 200 and "<table" in page
    assert not re.search(r'(src|href)="(https?:)?//', page)


def configured(folder, text):
    file = folder / "serve.toml"
    file.write_text(text)
    return file


def test_large_bodies_and_slow_senders_are_refused_and_others_are_served(tmp_path):
    text = "[limits]\nbody_bytes = 10000\nunpacked_bytes = 20000\nbody_timeout_s = 1\nheader_timeout_s = 1\n"
    with serving("--config", configured(tmp_path, text)) as one:
        assert one.request("POST", "/v1/samples", b" " * 10_001, LINES)[0] == 413
        bomb = gzip.compress(b"\n" * 1_000_000)
        packed = {**LINES, "Content-Encoding": "gzip"}
        assert one.request("POST", "/v1/samples", bomb, packed)[0] == 413
        host, port = one.address.split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(b"POST /v1/samples HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n")
            slow.sendall(b"Content-Type: application/x-ndjson\r\n\r\n{")
            slow.settimeout(10)
            assert b" 408 " in slow.recv(100)
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nHost")
            slow.settimeout(10)
            assert b"200" not in slow.recv(1000), "the header did not come"
        assert one.get("/healthz") == (200, "ok\n")


def test_connections_beyond_the_limit_are_closed(tmp_path):
    with serving("--config", configured(tmp_path, "[limits]\nconnections = 50\n")) as one:
        host, port = one.address.split(":")
        idle = [socket.create_connection((host, int(port))) for _ in range(60)]
        time.sleep(0.3)
        for connection in idle[:20]:
            connection.close()
        time.sleep(0.3)
        assert one.get("/healthz")[0] == 200
        assert one.metric("connections_refused_total") >= 10
        for connection in idle:
            connection.close()


def test_ten_thousand_idle_connections_stop_nothing(service):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < IDLE + 500:
        pytest.skip(f"a process may open {hard} descriptors here, {IDLE + 500} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host, port = service.address.split(":")
    idle = []
    try:
        for _ in range(IDLE):
            idle.append(socket.create_connection((host, int(port))))
        assert service.metric("connections") >= IDLE
        assert service.get(QUESTIONS[0])[0] == 200
        assert service.post(samples())[0] == 200
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_requests_beyond_the_rate_are_refused(tmp_path):
    with serving("--config", configured(tmp_path, "[limits]\nrequests_per_s = 5\n")) as one:
        assert {one.get("/healthz")[0] for _ in range(20)} == {200, 429}


def test_two_services_do_not_share_a_folder(tmp_path):
    with serving("--state", tmp_path / "state"):
        second = run("serve", "--listen", "127.0.0.1:0", "--state", tmp_path / "state", timeout=20)
        assert second.returncode == 2
        assert "is in use" in second.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prefixs = 3", "unknown field"),
        ("listen = '0.0.0.0:0'", "other machines"),
        ("protocols = ['h9']", "h9"),
        ("networks = '/nowhere'", "/nowhere"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused(tmp_path, text, said):
    done = run("serve", "--config", configured(tmp_path, text), timeout=20)
    assert done.returncode == 2
    assert said in done.stderr.replace("\n", " ")


@pytest.fixture
def certificate(tmp_path):
    key, file = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(
        [*command.split(), "-keyout", key, "-out", file, "-subj", "/CN=localhost", *names],
        check=True,
        capture_output=True,
    )
    return file, key


def test_beyond_this_machine_tokens_and_a_certificate_are_needed(tmp_path, certificate):
    tokens = tmp_path / "tokens"
    tokens.write_text("write-abcdefghijklmnop\nread-abcdefghijklmnopq read\n")
    tokens.chmod(0o600)
    text = f"[access]\ntokens = '{tokens}'\ncertificate = '{certificate[0]}'\nkey = '{certificate[1]}'\n"
    config = configured(tmp_path, text)
    with serving("--config", config, listen="0.0.0.0:0") as one:
        context = ssl.create_default_context(cafile=certificate[0])
        port = one.address.split(":")[1]
        safe = Service(one.process, f"127.0.0.1:{port}", "https", context)
        assert safe.get("/healthz")[0] == 200
        assert safe.get("/v1/status")[0] == 401
        write, read = (
            {**LINES, "Authorization": f"Bearer {token}"}
            for token in ("write-abcdefghijklmnop", "read-abcdefghijklmnopq")
        )
        assert safe.post(samples(), read)[0] == 403
        assert safe.post(samples(), write)[0] == 200
        assert safe.get(QUESTIONS[0], headers=read)[0] == 200
        assert safe.get(QUESTIONS[0], headers={"Authorization": "Bearer wrong"})[0] == 401


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_in_order_keeps_all(tmp_path, how):
    state = tmp_path / "state"
    with serving("--state", state) as one:
        one.post(samples())
        one.request("PUT", "/v1/pages/home", PAGE)
        before = one.get("/v1/prefix?client=192.0.2.7")[1]
        assert one.stop(how) == 0
    with serving("--state", state) as one:
        after = one.get("/v1/prefix?client=192.0.2.7")[1]
        assert after["samples"] == before["samples"] == 100
        assert after["packets"] == before["packets"]
        assert one.get("/v1/pages")[1]["pages"][0]["class"] == "home"
        assert (state / "decisions.jsonl").exists() == (state / "decisions.jsonl").is_file()


def test_kill_9_under_load_loses_a_second_at_most(tmp_path):
    state = tmp_path / "state"
    for round_ in range(3):
        one, said, _ = started("--state", state)
        assert said["seconds"] < 2
        client = f"198.51.{round_}.1"
        sent = []

        def load(one=one, client=client, sent=sent):
            try:
                while True:
                    one.post([{"client": client, "rate_bps": 1e6}] * 500)
                    sent.append(time.monotonic())
            except OSError:
                return

        thread = threading.Thread(target=load)
        thread.start()
        time.sleep(1.5)
        killed = time.monotonic()
        one.kill()
        one.process.stderr.close()
        thread.join(10)
        old = 500 * sum(moment < killed - 1 for moment in sent)
        with serving("--state", state) as again:
            assert again.metric("state_damaged") == 0
            _, known = again.get(f"/v1/prefix?client={client}")
            assert known["samples"] >= old > 0


def test_a_full_disk_is_said_and_stops_nothing(tmp_path):
    """A file may have 64 KiB: more is refused as by a full disk."""
    state = tmp_path / "state"
    limited = ["sh", "-c", 'ulimit -f 64; trap "" XFSZ; exec "$0" "$@"']
    process = subprocess.Popen(
        [*limited, str(PATHCAST), "serve", "--listen", "127.0.0.1:0", "--state", str(state)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = next(line for line in process.stderr if '"started"' in line)
        one = Service(process, json.loads(line)["listen"])
        for _ in range(20):
            assert one.post(samples(count=500, time_s=time.time()))[0] == 200
            time.sleep(0.05)
        time.sleep(0.5)
        assert one.metric("state_failed_total") > 0
        assert one.get(QUESTIONS[0])[0] == 200
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()
