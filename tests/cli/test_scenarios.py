"""Scenarios and workloads, by the command line and from Python."""

import json

import pyarrow
import pyarrow.parquet
import pytest

import pathcast
from conftest import ROOT, run

SCENARIO = """
name = "a download beside a call"
duration = "20 s"

[links.access]
rate = "20 Mbit/s"
delay = "10 ms"

[[flows]]
scheme = "cubic"
start = "1 s"
workload = { kind = "transfer", size = "5 MB" }

[[flows]]
scheme = "udp"
workload = { kind = "constant-rate", rate = "64 kbit/s", portion = "160 B" }

[[flows]]
scheme = "reno"
workload = { kind = "request-response", response = "50 kB", think = "500 ms" }
"""


def test_a_scenario_is_simulated_with_a_report_for_each_flow(path_file, tmp_path):
    trace, packets = tmp_path / "t.parquet", tmp_path / "p.parquet"
    file = path_file(SCENARIO, "scenario.toml")
    done = run("simulate", file, "--json", "-o", trace, "--packets", packets)
    assert done.returncode == 0, done.stderr
    download, call, web = json.loads(done.stdout)["flows"]
    assert download["delivered_bytes"] == 5_000_000
    took_s = download["completed_s"] - download["start_s"]
    assert took_s > 5e6 * 8 / 20e6
    assert download["goodput_bps"] == pytest.approx(5e6 * 8 / took_s)
    assert call["workload"] == "constant-rate"
    assert call["messages"]["written"] == pytest.approx(20 * 50, abs=2)
    assert web["messages"]["latency_ms"]["p50"] > 20
    assert "completed_s" not in web
    metadata = pathcast.read_trace(trace).metadata
    assert metadata["schemes"] == ["cubic", "udp", "reno"]
    assert metadata["path_toml"] is None
    assert pathcast.Scenario.parse(metadata["scenario_toml"]).duration_s == 20
    flows = pyarrow.parquet.read_table(packets)["flow"].unique().to_pylist()
    assert sorted(flows) == [0, 1, 2]
    text = run("simulate", file)
    assert "request-response" in text.stdout
    assert max(map(len, text.stdout.splitlines())) <= 80


def test_a_workload_may_be_given_beside_a_path(path_file):
    file = path_file("rate = '20 Mbit/s'\ndelay = '10 ms'\n")
    size = "{ kind = 'transfer', size = '1 MB' }"
    done = run("simulate", file, "--workload", size, "--scheme", "bbr", "--json")
    assert done.returncode == 0, done.stderr
    (flow,) = json.loads(done.stdout)["flows"]
    assert (flow["scheme"], flow["delivered_bytes"]) == ("bbr", 1_000_000)
    done = run("sweep", file, "--workload", size, "--seeds", 3, "--json")
    (row,) = json.loads(done.stdout)
    assert row["latency_p50_ms"] == pytest.approx(flow["messages"]["latency_ms"]["p50"], rel=0.3)


def test_what_does_not_go_with_a_scenario_is_refused(path_file):
    file = path_file(SCENARIO, "scenario.toml")
    for option in (("--scheme", "cubic"), ("--flows", 2), ("--workload", "'bulk'")):
        done = run("simulate", file, *option)
        assert done.returncode == 2
        assert f"no {option[0]}" in done.stderr
    with pytest.raises(pathcast.SchemeError, match="expected none"):
        pathcast.simulate(pathcast.Scenario.load(file), ["cubic"])
    wrong = path_file(SCENARIO.replace('"reno"', '"nosuch"'), "wrong.toml")
    done = run("simulate", wrong)
    assert done.returncode == 2
    assert "nosuch" in done.stderr
    wrong = path_file(SCENARIO.replace("64 kbit/s", "64 kbps"), "wrong.toml")
    done = run("simulate", wrong)
    assert done.returncode == 2
    assert "wrong.toml:16:" in done.stderr
    done = run("simulate", path_file("delay = '1 ms'\n"), "--workload", "much")
    assert done.returncode == 2
    assert "workload" in done.stderr


def test_a_run_that_makes_no_progress_ends_with_its_state(path_file, tmp_path):
    dead = "delay = '1 ms'\nloss = { kind = 'bursts', times = [['0 s', '3600 s']] }\n"
    output = tmp_path / "t.parquet"
    done = run("simulate", path_file(dead), "-o", output)
    assert done.returncode == 2
    assert "no progress" in done.stderr
    assert "19 packets sent, 0 arrived" in done.stderr
    assert not list(tmp_path.glob("*.parquet"))
    path = pathcast.Path.parse(dead)
    with pytest.raises(pathcast.SimulationError, match="no progress"):
        pathcast.simulate(path)
    alive = pathcast.Path.parse("delay = '1 ms'\nrate = '9 Mbit/s'\nqueue = '9 packets'\n")
    results = pathcast.simulate_many(
        [pathcast.Simulation(path), pathcast.Simulation(alive, duration_s=5)]
    )
    table = pyarrow.table(results)
    assert "no progress" in table["error"][0].as_py()
    assert table["error"][1].as_py() is None
    assert table["loss_rate"].null_count == 1


def test_batches_take_scenarios():
    scenario = pathcast.Scenario.load(ROOT / "scenarios" / "web-beside-bulk.toml")
    specs = [pathcast.Simulation(scenario, duration_s=10, seed=seed) for seed in range(4)]
    results = pathcast.simulate_many(specs)
    assert len(results) == 4 * len(scenario.schemes)
    again = pathcast.simulate_many(specs, threads=1)
    assert pyarrow.table(results) == pyarrow.table(again)
