"""Flows over QUIC, by the command line and from Python."""

import json

import numpy as np
import pyarrow.parquet
import pytest

import pathcast
from conftest import run, valid_run
from pathcast.attainable_rate import EmulatedProber, Plan, SimulatedProber

PATH = "rate = '10 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n"
BESIDE = f"""
[links.core]
{PATH}
[[flows]]
scheme = "cubic"
start = "0 s"
workload = {{ kind = "transfer", size = "300 kB" }}

[[flows]]
scheme = "quic-reno"
start = "0 s"
workload = {{ kind = "transfer", size = "300 kB" }}
"""


@pytest.mark.usefixtures("emulator")
def test_a_flow_over_quic_is_emulated_as_any(path_file, tmp_path):
    trace, messages = tmp_path / "trace.parquet", tmp_path / "messages.parquet"
    done = run(
        "emulate", path_file(PATH), "--scheme", "quic-cubic", "--scheme", "cubic", "--duration", 20,
        "--workload", "{ kind = 'transfer', size = '500 kB' }", "--json", "-o", trace, "--messages", messages,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    flows = json.loads(done.stdout)["flows"]
    assert [flow["scheme"] for flow in flows] == ["quic-cubic", "cubic"]
    for flow in flows:
        assert flow["delivered_bytes"] == 500_000
        split = flow["messages"]["delay_split_ms"]
        assert split["network"]["mean"] > 20
    read = pathcast.read_trace(trace)
    assert read.metadata["schemes"] == ["quic-cubic", "cubic"]
    assert read.metadata["environment"]["quic_lost"].startswith("flow 0 gave up ")
    window = read.columns["cwnd_packets"][read.columns["flow"] == 0]
    assert len(window) > 100
    assert 10 <= window.max() < 400
    table = pyarrow.parquet.read_table(messages)
    assert table.num_rows == 2
    times = [
        table[name].to_numpy() for name in ("written_s", "entered_s", "sent_s", "left_s", "read_s")
    ]
    assert (np.diff(times, axis=0) >= 0).all()


@pytest.mark.usefixtures("emulator")
def test_quic_beside_tcp_in_a_scenario():
    report, _ = valid_run(pathcast.Scenario.parse(BESIDE, "beside.toml"), duration_s=20)
    assert [flow.scheme for flow in report.flows] == ["cubic", "quic-reno"]
    assert [flow.delivered_bytes for flow in report.flows] == [300_000, 300_000]


@pytest.mark.usefixtures("emulator")
def test_messages_over_quic_are_probed():
    text = BESIDE.replace(
        '"transfer", size = "300 kB"', '"constant-rate", rate = "1 Mbit/s", portion = "1200 B"'
    )
    scenario = pathcast.Scenario.parse(text, "probe.toml")
    prober = EmulatedProber(scenario, flow=1)
    plan = Plan(rate=2e6, warm_up_s=1.0, duration_s=2.0, every_s=0.02, seed=1)
    train = prober.train(plan)
    total = train.sender_s + train.network_s + train.receiver_s
    np.testing.assert_allclose(total, train.delay_s, atol=1e-9)
    assert np.median(train.delay_s) > 0.02


def test_flows_over_quic_are_simulated_as_any(path_file, tmp_path):
    trace = tmp_path / "trace.parquet"
    done = run(
        "simulate", path_file(PATH), "--scheme", "quic-bbr3", "--scheme", "cubic", "--duration", 5, "--json",
        "-o", trace,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    flows = json.loads(done.stdout)["flows"]
    assert [flow["scheme"] for flow in flows] == ["quic-bbr3", "cubic"]
    assert 8e6 < sum(flow["goodput_bps"] for flow in flows) < 9.7e6
    read = pathcast.read_trace(trace)
    ours = read.columns["flow"] == 0
    assert read.columns["srtt_s"][ours][0] == pytest.approx(0.041, abs=0.002)
    assert (np.diff(read.columns["snd_una_bytes"][ours].astype(float)) >= 0).all()


def test_a_scenario_over_quic_repeats():
    scenario = pathcast.Scenario.parse(BESIDE, "beside.toml")
    first, trace = pathcast.simulate(scenario, duration_s=20)
    assert [flow.scheme for flow in first.flows] == ["cubic", "quic-reno"]
    assert [flow.delivered_bytes for flow in first.flows] == [300_000, 300_000]
    again, other = pathcast.simulate(scenario, duration_s=20)
    assert again.flows == first.flows
    for name, column in trace.columns.items():
        np.testing.assert_array_equal(column, other.columns[name])


def test_schemes_of_quic_are_swept(path_file, tmp_path):
    table = tmp_path / "runs.parquet"
    done = run(
        "sweep", path_file(PATH), "--scheme", "quic-cubic", "--scheme", "cubic", "--seeds", 2, "--duration", 3,
        "-o", table,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    goodput = pyarrow.parquet.read_table(table)["goodput_bps"].to_numpy()
    assert len(goodput) == 4
    assert (goodput > 7e6).all()


def test_messages_over_quic_are_probed_in_the_simulator():
    text = BESIDE.replace(
        '"transfer", size = "300 kB"', '"constant-rate", rate = "1 Mbit/s", portion = "1200 B"'
    )
    prober = SimulatedProber(pathcast.Scenario.parse(text, "probe.toml"), flow=1)
    plan = Plan(rate=2e6, warm_up_s=1.0, duration_s=2.0, every_s=0.02, seed=1)
    train = prober.train(plan)
    total = train.sender_s + train.network_s + train.receiver_s
    np.testing.assert_allclose(total, train.delay_s, atol=1e-9)
    assert 0.02 < np.median(train.delay_s) < 0.1


def test_an_unknown_scheme_of_quic_is_told_those_there_are(path_file, emulator):
    names = "quic-cubic, quic-reno, quic-bbr3"
    del emulator
    done = run("emulate", path_file(PATH), "--scheme", "quic-vegas", "--duration", 3)
    assert done.returncode == 2
    assert names in " ".join(done.stderr.split())
    with pytest.raises(pathcast.PathFileError, match=names):
        pathcast.Scenario.parse(BESIDE.replace("quic-reno", "quic-vegas"), "wrong.toml")
    refused = BESIDE.replace('"quic-reno"', '"quic-reno"\necn = true')
    with pytest.raises(pathcast.PathFileError, match="is of TCP; quic-reno has none"):
        pathcast.Scenario.parse(refused, "wrong.toml")
