"""Paths at hand: `pathcast path list`, profiles of iBox, delivery traces and series of throughput."""

import gzip
import json
import os

import pytest

import pathcast
from conftest import run
from pathcast import ibox, scenario
from pathcast.catalog import catalog

PROFILE = {
    "measurement_node": "brazil",
    "peer_cloud_server": "aws brazil",
    "link_type": "cellular",
    "config": {
        "uplink": {
            "bottleneck_bandwidth": 6000,
            "buffer_size_packets": 40,
            "propagation_delay": 24,
            "cross_traffic_pattern": [0, 3000, 3000, 0],
        }
    },
}


def scenario_of(file):
    return scenario.parse(ibox.to_toml(file.read_text(), str(file)), str(file))


@pytest.fixture
def folder(tmp_path):
    """One file of each kind, one that is damaged, and one that is none."""
    place = tmp_path / "mine"
    (place / "deep").mkdir(parents=True)
    (place / "LICENSE").write_text("MIT License\n")
    (place / "deep" / "profile.json").write_text(json.dumps(PROFILE))
    (place / "broken.json").write_text('{"config": {"uplink": {"bottleneck_bandwidth": -1}}}')
    (place / "own.toml").write_text("name = 'mine'\nrate = '8 Mbit/s'\ndelay = '10 ms'\n")
    (place / "lte.up.gz").write_bytes(gzip.compress(b"1\n2\n4\n"))
    series = [{"duration_ms": 1000, "bandwidth_kbps": rate, "latency_ms": 40} for rate in (0, 9000)]
    (place / "bus.json").write_text(json.dumps(series))
    (place / "settings.toml").write_text("[tool]\nkey = 1\n")
    (place / "rates.trace").write_text("2\n4\n")
    (place / "named.toml").write_text(
        "rate = { kind = 'mahimahi', file = 'rates.trace' }\ndelay = '10 ms'\n"
    )
    return place


def test_each_kind_is_listed_with_its_numbers_and_license(folder):
    found = catalog([folder])
    own = {one.name: one for one in found.entries if one.source != "built-in"}
    assert {name: one.source for name, one in own.items()} == {
        "mine-bus": "throughput",
        "mine-deep-profile": "ibox",
        "mine-lte.up": "mahimahi",
        "mine-named": "path",
        "mine-own": "path",
        "mine-rates": "mahimahi",
    }
    profile = own["mine-deep-profile"]
    assert (profile.rate_bps, profile.rtt_s, profile.queue_bytes) == (6e6, 0.024, 60_000)
    assert (profile.license, profile.competing) == ("MIT", 1)
    assert own["mine-bus"].rate_bps == pytest.approx(4.5e6)
    assert own["mine-bus"].rtt_s == 0.04
    # 3 opportunities in 4 ms
    assert own["mine-lte.up"].rate_bps == pytest.approx(9e6)
    (refused,) = found.refused
    assert "broken.json: bottleneck_bandwidth: got -1, expected a number from 0.001" in refused
    assert len(found.where(sources=["built-in"]).entries) == len(found.entries) - 6
    assert [one.name for one in found.where(words="AWS BRAZIL", sources=["ibox"]).entries] == [
        "mine-deep-profile"
    ]
    assert not found.where(rate_bps=(6.1e6, 7e6), sources=["ibox"]).entries
    assert found.sample(5, seed=3) == found.sample(5, seed=3) != found.sample(5, seed=4)


def test_cross_traffic_of_a_profile_takes_its_share_and_comes_again(folder):
    shared_link = scenario_of(folder / "deep" / "profile.json")
    assert shared_link.schemes == ("udp",)
    # 3 Mbit/s of packets in two of four seconds, for twelve seconds
    report, _ = pathcast.simulate(shared_link, duration_s=12)
    sent = report.flows[0].delivered_bytes * 1476 / 1448 * 8
    assert sent == pytest.approx(3e6 * 6, rel=0.02)
    asked = [pathcast.Alternative("cubic")]
    shared = pathcast.what_if(shared_link, asked, draws=2, duration_s=20)
    alone = pathcast.what_if(shared_link.first_link(), asked, draws=2, duration_s=20)
    # half of the rate in half of the time
    part = shared.outcomes[0].goodput_bps.median / alone.outcomes[0].goodput_bps.median
    assert part == pytest.approx(0.75, abs=0.05)


def test_commands_take_paths_of_a_folder_by_name(folder, tmp_path):
    env = os.environ | {"PATHCAST_PATHS": str(folder)}
    listed = run("path", "list", "--source", "path", "--json", env=env)
    assert listed.returncode == 0, listed.stderr
    assert [one["name"] for one in json.loads(listed.stdout)["paths"]] == ["mine-named", "mine-own"]
    for arguments in (
        ("what-if", "mine-deep-profile", "--draws", 2, "--duration", 5, "--json"),
        ("simulate", "mine-own", "--duration", 2),
        ("inspect", "mine-own"),
        # it names the file of its rates, which lies beside it
        ("simulate", "mine-named", "--duration", 2),
    ):
        done = run(*arguments, env=env)
        assert done.returncode == 0, done.stderr
    written = tmp_path / "written"
    written.mkdir()
    run("path", "list", "--in", folder, "--source", "ibox", "-o", written)
    assert pathcast.Scenario.load(written / "mine-deep-profile.toml").schemes == ("udp",)


def test_what_cannot_be_listed_is_said(folder):
    for arguments, error in (
        (("--rate", "3"), "expected LOW..HIGH"),
        (("--rtt", "a..b"), "got 'a', expected a number"),
        (("--in", "nowhere"), "nowhere: got no folder"),
        (("--in", folder, "--source", "ibox", "--sample", 3), "got 1 paths; expected at least 3"),
        (("-o", "nowhere"), "expected a folder that is there"),
    ):
        done = run("path", "list", *arguments)
        assert done.returncode == 2, arguments
        assert error in done.stderr
    assert "No path at hand matches" in run("path", "list", "no such words").stdout


def test_a_profile_is_shown_in_the_words_of_others(folder):
    file = folder / "deep" / "profile.json"
    shown = run("path", "show", "--from-ibox", file)
    assert pathcast.Scenario.parse(shown.stdout).toml == scenario_of(file).toml
    netem = run("path", "show", "--from-ibox", file, "--as", "netem")
    assert "6000000bit" in netem.stdout
    assert "cross traffic: left out" in netem.stderr


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"bottleneck_bandwidth": "fast"}, "bottleneck_bandwidth: got 'fast'"),
        ({"buffer_size_packets": 0}, "buffer_size_packets: got 0, expected a number from 1"),
        ({"propagation_delay": float("nan")}, "propagation_delay: got nan"),
        ({"cross_traffic_pattern": 3}, "expected a list"),
        ({"cross_traffic_pattern": [True]}, "cross_traffic_pattern: got True"),
    ],
)
def test_a_profile_with_bad_values_is_refused(tmp_path, change, error):
    profile = {"config": {"uplink": PROFILE["config"]["uplink"] | change}}
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(profile))
    with pytest.raises(pathcast.PathFileError, match=error):
        scenario_of(file)
    for text in ("[1]", "{", '{"config": 3}', "[" * 100_000):
        file.write_text(text)
        with pytest.raises(pathcast.PathFileError, match=r"profile\.json: (has no|is no)"):
            scenario_of(file)
