"""`pathcast fit --clusters` and `pathcast curve`."""

import json

import numpy as np
import pytest

from conftest import run
from pathcast import LossClusters, ModelError, Trace


def sawtooth(low, high, cycles=20):
    """A Reno flow between two windows, a packet each 0.1 s."""
    windows = np.tile(np.arange(low, high + 1), cycles).astype(float)
    return {"time_s": np.arange(len(windows)) * 0.1, "cwnd_packets": windows}


def trace_file(folder, low, high):
    columns = sawtooth(low, high)
    file = folder / f"{low}-{high}.csv"
    rows = zip(columns["time_s"], columns["cwnd_packets"], strict=True)
    file.write_text("time_s,cwnd_packets\n" + "".join(f"{t:.1f},{w:.0f}\n" for t, w in rows))
    return file


@pytest.fixture
def store(tmp_path):
    """Two networks: in one, losses come at 20 packets, in the other at 100."""
    file = tmp_path / "store.json"
    for network, low, high in (("near", 10, 20), ("far", 50, 100)):
        for i in range(3):
            done = run(
                "fit",
                trace_file(tmp_path, low, high),
                *("--cc", "reno", "--rtt", 0.1, "--clusters", file),
                *("--prefix", f"192.0.{high + i}.0/24", "--network", network, "--region", "r"),
            )
            assert done.returncode == 0, done.stderr
            assert "evidence added to" in done.stdout
    return file


def curve(file, *options):
    done = run("curve", file, *options, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def p_at(result, window):
    points = result["points"]
    return min(points, key=lambda point: abs(point["cwnd_packets"] - window))["loss_probability"]


def test_a_client_gets_the_curve_of_its_prefix_network_and_region(store):
    known = curve(store, "--client", "192.0.20.7")
    assert [level["level"] for level in known["levels"]] == ["prefix", "network", "region", "all"]
    assert known["levels"][0]["name"] == "192.0.20.0/24"
    assert sum(level["weight"] for level in known["levels"]) == pytest.approx(1)
    # 19 losses in as many passages of 165 packets, at twenty packets most
    assert p_at(known, 20) > 1 / 100
    new = curve(store, "--client", "198.51.100.1", "--network", "near")
    assert [level["level"] for level in new["levels"]] == ["network", "all"]
    assert new["levels"][0]["prefixes"] == 3
    assert new["levels"][0]["losses"] == pytest.approx(3 * 19, rel=1e-3)
    other = curve(store, "--client", "198.51.100.1", "--network", "far")
    assert p_at(other, 20) < p_at(new, 20)
    stranger = curve(store, "--client", "2001:db8::1")
    assert [level["level"] for level in stranger["levels"]] == ["all"]
    for point in stranger["points"]:
        assert point["low"] <= point["loss_probability"] <= point["high"]


@pytest.mark.parametrize("pooling", ["mean", "median"])
def test_the_papers_ways_are_there(store, pooling):
    result = curve(store, "--network", "far", "--pooling", pooling)
    assert result["pooling"] == pooling
    assert [level["level"] for level in result["levels"]] == ["network"]
    assert p_at(result, 100) > p_at(result, 55)


def test_people_are_told_what_it_rests_on(store):
    done = run("curve", store, "--client", "192.0.100.1")
    assert done.returncode == 0
    for said in ("192.0.100.0/24", "far", "weight", "p(cwnd)"):
        assert said in done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--client", "192.0.2"], "is no prefix"),
        (["--client", "192.0.2.0/33"], "out of range"),
        (["--client", "example.org"], "is no prefix"),
    ],
)
def test_wrong_addresses_are_refused(store, options, said):
    done = run("curve", store, *options)
    assert done.returncode == 2
    assert said in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1, 2]",
        b"\xff\xfe",
        b'{"clusters_version": 7, "clients": []}',
        b'{"clusters_version": 1, "clients": [{"prefix": "x", "updated_s": 0, "counts": []}]}',
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("command", ["curve", "fit"])
def test_what_is_no_store_is_refused_and_kept(tmp_path, content, command):
    file = tmp_path / "store.json"
    file.write_bytes(content)
    if command == "curve":
        done = run("curve", file)
    else:
        trace = trace_file(tmp_path, 10, 20)
        done = run("fit", trace, "--clusters", file, "--prefix", "192.0.2.0/24")
    assert done.returncode == 2, done.stdout
    assert "store.json" in done.stderr.replace("\n", "")
    assert "Traceback" not in done.stderr
    assert file.read_bytes() == content


def test_wrong_uses_are_refused(tmp_path):
    trace, store = trace_file(tmp_path, 10, 20), tmp_path / "store.json"
    for options, said in [
        (["--clusters", store], "expects --prefix"),
        (["--prefix", "192.0.2.0/24"], "expected --clusters"),
        (["--clusters", store, "--prefix", "192.0.2.1/24"], "bits beyond the length"),
        (["--clusters", store, "--prefix", "192.0.2.0/24", "--network", ""], "network is"),
        (["--clusters", tmp_path / "no" / "s.json", "--prefix", "192.0.2.0/24"], "no folder"),
    ]:
        done = run("fit", trace, *options)
        assert done.returncode == 2, options
        assert said in " ".join(done.stderr.split()), done.stderr
        assert not store.exists()
    missing = run("curve", store)
    assert missing.returncode == 2
    assert "cannot be read" in missing.stderr


def test_the_library_adds_fades_and_removes(tmp_path):
    clusters = LossClusters()
    trace = Trace.from_columns(sawtooth(10, 20))
    clusters.add(trace, "192.0.2.0/24", cc="reno", rtt_s=0.1, now_s=0)
    before = clusters.curve("192.0.2.1", now_s=0).levels[0].packets
    later = clusters.curve("192.0.2.1", now_s=7 * 86400).levels[0].packets
    assert later == pytest.approx(before / np.e)
    clusters.save(tmp_path / "s.json")
    back = LossClusters.load(tmp_path / "s.json")
    assert back.curve("192.0.2.1", now_s=0) == clusters.curve("192.0.2.1", now_s=0)
    back.remove("192.0.2.0/24")
    assert len(back) == 0
    assert back.curve("192.0.2.1").points == ()
    with pytest.raises(ModelError, match="nothing is known"):
        back.remove("192.0.2.0/24")
