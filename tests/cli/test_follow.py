"""`pathcast follow`."""

import json

import numpy as np
import pytest

from conftest import ROOT, run
from pathcast import Path, Trace, follow, simulate


@pytest.fixture(scope="module")
def changing(tmp_path_factory):
    """A Reno flow over the changing path of the paper's section 5.2, in the simulator."""
    file = tmp_path_factory.mktemp("follow") / "trace.parquet"
    path = ROOT / "paths" / "dynamic-econ.toml"
    done = run("simulate", path, "--scheme", "reno", "--duration", 600, "-o", file)
    assert done.returncode == 0, done.stderr
    return file


def test_the_changes_of_the_papers_path_are_found(changing):
    done = run("follow", changing, "--json")
    assert done.returncode == 0, done.stderr
    (path,) = json.loads(done.stdout)["traces"]
    changes = path["changes"]
    rtt = [change for change in changes if change["kind"] == "rtt"]
    for change, at_s, after_s in zip(rtt, (360, 480), (0.2, 0.05), strict=True):
        assert change["at_s"] == pytest.approx(at_s, abs=1.5)
        assert change["detected_s"] < at_s + 5
        assert change["after"] == pytest.approx(after_s, rel=0.05)
        assert change["probability"] >= 0.99
    loss = [change for change in changes if change["kind"] == "loss_rate"]
    for change, at_s, up in zip(loss, (120, 240, 360), (True, False, True), strict=True):
        assert change["at_s"] == pytest.approx(at_s, abs=20)
        assert (change["after"] > change["before"]) == up
    (curve,) = path["curves"]
    assert curve["npc"] == 1
    assert curve["losses"] > 10
    # the loss is 1e-4 at all windows: of bounds of 90 %, neighbors alike, most hold it
    held = [point["low"] <= 1e-4 <= point["high"] for point in curve["points"]]
    assert np.mean(held) >= 0.8
    assert path["memory_bytes"] < 7000


def test_people_are_told_when_and_what(changing):
    done = run("follow", changing)
    assert done.returncode == 0
    for said in ("round-trip time", "loss rate", "200.0 ms", "50.0 ms", "p(cwnd)", "sure"):
        assert said in done.stdout


def test_parallel_flows_share_a_curve():
    path = Path.load(ROOT / "paths" / "12mbps-60ms-1bdp.toml")
    _, trace = simulate(path, ["reno"] * 3, duration_s=60)
    followed = follow(trace)
    (curve,) = followed.curves
    assert curve.npc == 3
    assert curve.losses > 3
    assert not [change for change in followed.changes if change.kind == "rtt"]


def test_without_losses_there_is_a_bound():
    columns = {"time_s": np.arange(300) * 0.1, "cwnd_packets": np.full(300, 50.0)}
    (curve,) = follow(Trace.from_columns(columns), cc="reno", rtt_s=0.1).curves
    assert curve.losses == 0
    assert curve.upper_bound == pytest.approx(3 / curve.packets)
    assert all(point.source == "no_loss" for point in curve.points)


@pytest.mark.parametrize("window", ["0", "-1", "nan", "inf"])
def test_a_window_that_is_no_time_is_refused(changing, window):
    done = run("follow", changing, "--window", window)
    assert done.returncode == 2
    assert "window is" in done.stderr
    assert "Traceback" not in done.stderr
