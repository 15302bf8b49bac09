"""Paths and scenarios as objects: changed key by key, never as text."""

import pickle
import tomllib

import pytest

import pathcast

PATH = "rate = '12 Mbit/s'\ndelay = '30 ms'\n"
SCENARIO = """
[links.core]
rate = "12 Mbit/s"
delay = "30 ms"

[[flows]]
scheme = "cubic"
count = 2

[[flows]]
scheme = "reno"
workload = { kind = "transfer", size = "1 MB" }
"""


@pytest.fixture
def path():
    return pathcast.Path.parse(PATH, "link.toml")


@pytest.fixture
def scenario():
    return pathcast.Scenario.parse(SCENARIO, "three.toml")


def test_a_path_with_other_keys(path):
    other = path.replace(
        rate="24 Mbit/s", loss=0.01, queue={"kind": "codel", "limit": "100 packets"}
    )
    assert (other.rate_bps, other.loss, other.queue_packets) == (24e6, 0.01, 100)
    assert other.file == "link.toml"
    assert path.rate_bps == 12e6
    assert other.replace(rate="12 Mbit/s", loss=0, queue=None) == path
    assert other.to_toml() == pathcast.Path.parse(other.to_toml()).to_toml()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rat": "1 Mbit/s"}, "rat"),
        ({"rate": "1 Mbit"}, "rate"),
        ({"loss": 2}, "loss"),
        ({"name": 3}, "name"),
    ],
)
def test_what_is_no_key_or_value_is_refused(path, keys, message):
    with pytest.raises(pathcast.PathFileError, match=rf"link\.toml.*{message}"):
        path.replace(**keys)


def test_a_value_that_toml_has_not_is_refused(path):
    with pytest.raises(TypeError, match="expected a truth value, a number"):
        path.replace(rate=object())


def test_flows_are_read_and_changed_by_their_number(scenario):
    assert scenario.schemes == ("cubic", "cubic", "reno")
    assert scenario.flow(1)["count"] == 2
    assert scenario.flow(2)["workload"]["kind"] == "transfer"
    other = scenario.replace_flow(1, scheme="bbr").replace_flow(2, workload="bulk", start="1 s")
    assert other.schemes == ("bbr", "bbr", "reno")
    assert other.workloads == ("bulk", "bulk", "bulk")
    assert other.flow(2)["start"] == "1 s"
    assert other.replace_flow(2, start=None).flow(2).get("start") == scenario.flow(2).get("start")
    with pytest.raises(IndexError, match="no flow 3, expected 0 to 2"):
        scenario.replace_flow(3, scheme="bbr")
    with pytest.raises(pathcast.PathFileError, match="workloads"):
        scenario.replace_flow(0, workloads="bulk")


def test_a_link_with_other_keys_and_a_flow_more(scenario):
    other = scenario.replace_link("core", rate="6 Mbit/s").with_flow(scheme="bbr", start="5 s")
    assert other.schemes == ("cubic", "cubic", "reno", "bbr")
    report, _ = pathcast.simulate(other, duration_s=20, record=False)
    assert 5e6 < report.packets_delivered * 8 * 1500 / 20 < 6.1e6
    assert scenario.replace(duration="3 s", name="short").duration_s == 3
    with pytest.raises(pathcast.PathFileError, match="there is no link nowhere"):
        scenario.replace_link("nowhere", rate="1 Mbit/s")


def test_a_flow_of_tcp_becomes_one_of_quic_or_udp_unless_it_has_keys_of_tcp(scenario):
    assert scenario.replace_flow(2, scheme="quic-cubic").schemes[2] == "quic-cubic"
    rate = {"kind": "constant-rate", "rate": "1 Mbit/s", "portion": "200 B"}
    assert scenario.replace_flow(2, scheme="udp", workload=rate).schemes[2] == "udp"
    marked = scenario.replace_flow(2, ecn=True)
    with pytest.raises(pathcast.PathFileError, match="ecn: is of TCP; quic-reno has none"):
        marked.replace_flow(2, scheme="quic-reno")
    assert marked.replace_flow(2, scheme="quic-reno", ecn=None).schemes[2] == "quic-reno"


def test_a_change_of_the_forward_direction_changes_what_the_reverse_has_from_it(path, scenario):
    slower = scenario.replace_link("core", delay="50 ms", rate="6 Mbit/s")
    written = tomllib.loads(slower.toml)["links"]["core"]
    assert written["reverse"]["delay"] == written["delay"] == "50 ms"
    assert written["reverse"]["rate"] == written["rate"] == "6 Mbit/s"
    assert path.replace(delay="50 ms").base_rtt_s == pytest.approx(0.1)
    # as before it goes to another process
    assert pickle.loads(pickle.dumps(path)).replace(delay="50 ms").base_rtt_s == pytest.approx(0.1)


def test_what_the_reverse_direction_has_of_its_own_stays(path):
    own = path.replace(reverse={"delay": "10 ms", "loss": 0.1}).replace(delay="50 ms")
    assert own.base_rtt_s == pytest.approx(0.06)
    reverse = tomllib.loads(own.replace(rate="24 Mbit/s").toml)["reverse"]
    assert (reverse["loss"], reverse["rate"], reverse["delay"]) == (0.1, "24 Mbit/s", "10 ms")


def test_they_cross_to_other_processes(path, scenario):
    for one in (path, scenario):
        again = pickle.loads(pickle.dumps(one))
        assert again == one
        assert hash(again) == hash(one)
        assert again.replace(name="x").name == "x"
