"""`pathcast benchmark schemes` with real implementations: both directions, a broken scheme, and a kill."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import PATHCAST, run, wait_until

PLAN = """
schemes = ["tcp-cubic", "tcp-reno"]
runs = 2
duration = "3 s"
directions = ["forward", "reverse"]

[[paths]]
name = "slow"
rate = "10 Mbit/s"
delay = "10 ms"
queue = "1 BDP"
reverse = { queue = "1 BDP" }
"""

BROKEN = """
name = "broken"
implementation = "none"
version = "1"
licence = "MIT"
controller = "none"
transport = "tcp"
receiver = ["/bin/sh", "-c", "echo listening {port}; exit 3"]
sender = ["/bin/sh", "-c", "exit 4", "{port}"]
"""

pytestmark = pytest.mark.usefixtures("emulator")


def children_of(pid):
    """All processes that descend from one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, waiting = [], [pid]
    while waiting:
        waiting += (mine := parents.get(waiting.pop(), []))
        found += mine
    return found


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_benchmark_leaves_no_process_and_continues(tmp_path):
    file, out = tmp_path / "plan.toml", tmp_path / "out"
    file.write_text(PLAN)
    process = subprocess.Popen(
        [PATHCAST, "benchmark", "schemes", file, "-o", out],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: list(out.rglob("cell.json")), "a run")
        wait_until(lambda: len(children_of(process.pid)) > 2, "the ends of the next run")
        began = children_of(process.pid)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until(lambda: not any(map(lives, began)), "the end of all processes", 30)
    kept = {one: one.read_bytes() for one in out.rglob("cell.json")}
    assert 0 < len(kept) < 8
    done = run("benchmark", "schemes", file, "-o", out, "--json", timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["runs"] == len(list(out.rglob("cell.json"))) == 8
    valid = {one for one, content in kept.items() if json.loads(content)["valid"]}
    assert all(one.read_bytes() == kept[one] for one in valid)
    for block in found["blocks"]:
        for row in block["schemes"]:
            if not row["runs"]:
                assert row["failed"] == ["no attempt was valid"] * 2
                continue
            assert row["controller"] == row["scheme"].removeprefix("tcp-")
            assert 7e6 < row["metrics"]["throughput_bps"]["mean"] <= 10e6
            assert 10 < row["metrics"]["delay_p95_ms"]["mean"] < 32


def test_a_broken_scheme_is_reported_and_the_others_go_on(tmp_path, monkeypatch):
    schemes = tmp_path / "schemes"
    schemes.mkdir()
    (schemes / "broken.toml").write_text(BROKEN)
    monkeypatch.setenv("PATHCAST_SCHEMES", os.fspath(schemes))
    file = tmp_path / "plan.toml"
    text = PLAN.replace('"tcp-reno"', '"broken"').replace("runs = 2", "runs = 1")
    file.write_text(text.replace('"forward", "reverse"', '"forward"'))
    done = run("benchmark", "schemes", file, "-o", tmp_path / "out", "--json", timeout=200)
    assert done.returncode == 0, done.stderr
    (block,) = json.loads(done.stdout)["blocks"]
    cubic, broken = block["schemes"]
    assert (broken["scheme"], broken["runs"], broken["metrics"]) == ("broken", 0, {})
    assert "ended" in broken["failed"][0]
    assert cubic["runs"] == 1 or cubic["failed"] == ["no attempt was valid"]


def test_a_scheme_of_the_simulator_alone_is_left_out(tmp_path):
    file = tmp_path / "plan.toml"
    file.write_text(PLAN.replace('"tcp-reno"', '"quic-cubic"'))
    done = run("benchmark", "schemes", file, "-o", tmp_path / "out", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "left out: quic-cubic" in done.stderr
    assert "4 runs" in done.stderr
