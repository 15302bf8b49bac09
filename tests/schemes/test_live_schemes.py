"""Schemes between two hosts: `pathcast live server --schemes` and what runs over the path to it."""

import json
import re
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from conftest import PATHCAST, ended_well, run, until_valid, wait_until
from live_server import children, serving
from pathcast import live
from pathcast.exceptions import SchemeError
from pathcast.schemes import _live
from pathcast.schemes.live import cleaned
from pathcast.schemes.run import Flow

PATH = "rate = '20 Mbit/s'\ndelay = '15 ms'\nqueue = '1 BDP'\nreverse = { queue = '1 BDP' }\n"

RUN = """
import json, sys
from pathcast.schemes.live import Flow, Host, run_flows
flows = [Flow(*flow) for flow in json.loads(sys.argv[3])]
reverse, packets = sys.argv[4] == "reverse", sys.argv[5] or None
done = run_flows(Host(sys.argv[1], sys.argv[2]), flows, duration_s=4, reverse=reverse, packets_file=packets)
print(json.dumps(done.to_dict()))
"""

PLAN = """
schemes = ["tcp-cubic", "tcp-reno"]
runs = 1
duration = "3 s"
directions = ["forward", "reverse"]

[[paths]]
file = "100mbps-40ms-1bdp"
"""


@pytest.fixture
def key(tmp_path):
    file = tmp_path / "key"
    live.write_key(file)
    return file


def over_path(path_file, server, command, *options):
    """A command behind the emulated path; `@SERVER` in it stands for the server."""
    inside = f'exec "$0" "${{@/@SERVER/$PATHCAST_BASE:{server.port}}}"'
    words = ["bash", "-c", inside, *map(str, command)]
    return run("shell", "-q", path_file, *options, "--", *words)


def flows_of(path_file, server, key, flows, direction="forward", packets="", holds=None):
    """What the flows of a valid run did, for which `holds` asserts nothing false."""

    def attempt():
        command = [sys.executable, "-c", RUN, "@SERVER", key, json.dumps(flows), direction, packets]
        report = path_file.with_name("report.json")
        done = ended_well(over_path(path_file, server, command, "--report", report))
        found = json.loads(done.stdout)
        why = [*found["invalid_because"], *json.loads(report.read_text())["invalid_because"]]
        if holds and not why:
            holds(found["flows"])
        return (None if why else found["flows"]), "; ".join(why)

    return until_valid(attempt, times=8)


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_flows_between_two_hosts_fill_the_path_and_are_measured_at_both(
    direction, path_file, key, tmp_path
):
    def holds(found):
        long, short, finite = found
        assert [one["why_not"] for one in found] == [None] * 3
        # each host asks its own kernel, whoever sends
        assert [one["controller"] for one in found] == ["cubic", "reno", "cubic"]
        assert 0.25 < finite["completion_s"] < 3.4
        sent = finite["goodput_bps"] * finite["completion_s"]
        assert sent == pytest.approx(8 * 300_000, rel=0.05)
        series = (one["series"]["rate_bps"] for one in found)
        rates = [sum(each) for each in zip(*series, strict=True)]
        # 20 Mbit/s of the tunnel's datagrams, of which 60 of 1460 bytes are the tunnel's own
        assert 17e6 < sum(rates[2:]) / len(rates[2:]) < 20e6
        assert sum(short["series"]["rate_bps"][:2]) == 0
        # clocks are the same here: what the path adds, and a little of the hosts
        assert 15 <= long["delay_ms"]["p50"] <= long["delay_ms"]["p95"] <= 15 + 31 + 5
        assert 0 < long["loss"] < 0.2

    path = path_file(PATH)
    packets = tmp_path / "packets.parquet"
    with serving(key, "--schemes") as server:
        asked = [["tcp-cubic"], ["tcp-reno", 1.0, 2.0], ["tcp-cubic", 0.5, None, 300_000]]
        flows_of(path, server, key, asked, direction, packets, holds)
    assert packets.stat().st_size > 1000


@pytest.mark.usefixtures("emulator")
def test_what_one_host_lacks_is_said_and_the_rest_goes_on(path_file, key, tmp_path, monkeypatch):
    own = tmp_path / "schemes"
    own.mkdir()
    (own / "mine.toml").write_text(
        'name = "mine"\nimplementation = "none"\nversion = "1"\nlicence = "MIT"\ncontroller = "none"\n'
        'transport = "tcp"\nreceiver = ["/bin/true", "{port}"]\nsender = ["/bin/true", "{port}"]\n'
    )
    with serving(key, "--schemes") as server:
        monkeypatch.setenv("PATHCAST_SCHEMES", str(own))
        found = flows_of(path_file(PATH), server, key, [["mine"], ["tcp-cubic"]])
    assert "the server has no such scheme" in found[0]["why_not"]
    assert found[1]["why_not"] is None and found[1]["goodput_bps"] > 15e6


@pytest.mark.usefixtures("emulator")
def test_a_server_without_schemes_refuses_and_goes_on(path_file, key):
    with serving(key) as server:
        command = [sys.executable, "-c", RUN, "@SERVER", key, '[["tcp-cubic"]]', "forward", ""]
        done = over_path(path_file(PATH), server, command)
        assert "the other host refused: it runs no schemes" in done.stderr
        assert "--schemes" in done.stderr
        again = over_path(
            path_file(PATH),
            server,
            [PATHCAST, "live", "run", "@SERVER", "--key", key, "--duration", "1"],
        )
        assert again.returncode == 0, again.stderr


@pytest.mark.usefixtures("emulator")
def test_nothing_is_left_of_a_client_that_was_killed(path_file, key):
    def temporary():
        return set(Path(tempfile.gettempdir()).glob("pathcast-live-*"))

    before = temporary()
    with serving(key, "--schemes") as server:
        command = [sys.executable, "-c", RUN, "@SERVER", key, '[["tcp-cubic"]]', "forward", ""]
        inside = (
            f'"$0" "${{@/@SERVER/$PATHCAST_BASE:{server.port}}}" & sleep 4; kill -9 $!; wait $!'
        )
        words = ["bash", "-c", inside, *map(str, command)]
        run("shell", "-q", path_file(PATH), "--", *words)
        assert any("runs schemes" in line for line in server.lines)
        wait_until(
            lambda: not children(server.process.pid) and not temporary() - before,
            "the end of the server's program",
        )
        found = flows_of(path_file(PATH), server, key, [["tcp-cubic", 0.0, 1.0]])
    assert found[0]["why_not"] is None


def test_what_is_said_at_once_is_heard_one_after_another(monkeypatch):
    monkeypatch.setattr(_live, "_LINE_BYTES", 100)
    here, there = socket.socketpair(type=socket.SOCK_STREAM)
    with here, there:
        there.sendall(b'{"why_not": []}\n{"file": "a"}\n{"over": true}\n')
        link = _live.Link(here)
        assert link.hear("why_not", 5.0) == []
        assert link.heard(1.0) == [{"file": "a"}, {"over": True}]
        for nonsense, said in ((b"7\n", "no JSON object"), (b"x" * 200, "the end of a line")):
            there.sendall(nonsense)
            with pytest.raises(SchemeError, match=said):
                link.heard(1.0)
        there.close()
        with pytest.raises(SchemeError, match="has gone"):
            link.heard(1.0)


@pytest.mark.usefixtures("emulator")
def test_a_benchmark_runs_a_plan_over_the_path_to_a_host_and_continues(path_file, key, tmp_path):
    plan, folder = tmp_path / "plan.toml", tmp_path / "runs"
    plan.write_text(PLAN)
    with serving(key, "--schemes") as server:
        words = [PATHCAST, "benchmark", "schemes", plan, "-o", folder]
        words += ["--server", "@SERVER", "--key", key, "--json"]
        # behind one path: where others are open, the next one has another address
        twice = ["bash", "-c", '"$0" "$@" && exec "$0" "$@"', *words]
        done = over_path(path_file(PATH), server, twice)
        assert done.returncode == 0, done.stderr
        found, again = (json.loads(line) for line in done.stdout.splitlines())
    first, second = re.findall(r"4 runs, \d kept, \d to run", done.stderr)
    assert first == "4 runs, 0 kept, 4 to run"
    assert second == "4 runs, 4 kept, 0 to run"
    assert again["blocks"] == found["blocks"]
    blocks = {block["direction"]: block for block in found["blocks"]}
    assert set(blocks) == {"forward", "reverse"}
    # one real path in place of the plan's own
    assert len({block["path"] for block in blocks.values()}) == 1
    assert (folder / "index.html").exists() or list(folder.glob("*.html"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"[]", "no plan of flows"),
        (b'{"duration_s": 4, "reverse": false, "flows": [{"scheme": "x"}]}', "no plan of flows"),
        (b'{"duration_s": -4, "reverse": false, "flows": []}', "duration_s is -4"),
        (b'{"duration_s": 4, "reverse": false, "flows": []}', "got 0 flows"),
        (b"[" * 100_000, "no plan of flows"),
    ],
)
def test_a_hostile_plan_is_refused(line, said):
    with pytest.raises(SchemeError, match=said):
        _live.asked(line)


def test_a_plan_comes_back():
    flows = [Flow("tcp-cubic"), Flow("x", 1.0, 2.0, 5000)]
    line = _live.question(flows, 4.0, reverse=True).encode()
    assert _live.asked(line) == (flows, 4.0, True)


def test_a_server_runs_only_schemes_that_it_has():
    plan = _live.plan_here([Flow("tcp-cubicc"), Flow("tcp-cubic")], 4.0, reverse=False)
    first, second = plan["flows"]
    assert "no such scheme; did you mean 'tcp-cubic'" in first["why_not"]
    assert second["why_not"] is None and second["port"] == 30_001
    with pytest.raises(SchemeError, match="another number of flows"):
        _live.merge(plan, [None])
    _live.merge(plan, [None, "no \x1b compiler"])
    assert "compiler" in second["why_not"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plan.json", "{}"),
        ("../begin", "1"),
        ("0-receiver.json", "{}"),
        ("begin", 7),
        (["begin"], "1"),
        ("begin", "\ud800"),
        ("begin", "1" * 100_000),
    ],
)
def test_only_files_by_which_sides_meet_are_taken(name, content, tmp_path):
    _live.take(tmp_path, {"file": "begin", "content": "5.25"}, _live.FILES["sender"])
    with pytest.raises(SchemeError):
        _live.take(tmp_path, {"file": name, "content": content}, _live.FILES["sender"])
    assert [file.name for file in tmp_path.iterdir()] == ["begin"]
    assert (tmp_path / "begin").read_text() == "5.25"


def test_results_of_another_host_are_harmless():
    said = {
        "report": {"exit_code": "0", "left": 3, "killed_because": "\x1b[2J", "more": 1},
        "said": {"controller": ["x"], "received_bytes": 7, "evidence": "e" * 9000},
        "started_s": 5.0,
        "ended_s": float("inf"),
        "why_not": None,
        "log_tail": 4,
    }
    found = cleaned(json.dumps(said), 2.0)
    assert found["report"] == {"left": 3, "killed_because": "\\x1b[2J"}
    assert found["said"]["received_bytes"] == 7 and len(found["said"]["evidence"]) == 2000
    assert (found["started_s"], found["ended_s"], found["log_tail"]) == (3.0, None, "")
    for text in ("", "[]", "nonsense", "[" * 100_000):
        assert "no result" in cleaned(text, 0.0)["why_not"]
