"""`pathcast predict throughput`: what a flow will send next."""

import json

import numpy as np
import pytest

import pathcast
from conftest import ROOT, run

PATH = "rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\nloss = 0.001\n"


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    file = tmp_path_factory.mktemp("predict") / "trace.parquet"
    _, trace = pathcast.simulate(pathcast.Path.parse(PATH), ["cubic"], duration_s=120, seed=5)
    trace.write(file)
    return file, trace


def predicted(*arguments):
    done = run("predict", "throughput", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    (flow,) = json.loads(done.stdout)["flows"]
    return flow


def test_forecasts_as_of_a_moment_hold_what_then_happened(traced):
    file, trace = traced
    flow = trace.flow(0)
    hits = []
    for at_s in np.arange(30.0, 105.0, 3.0):
        found = predicted(file, "--at", at_s, "--horizon", 10)
        (row,) = found["horizons"]
        sent = np.interp([at_s, at_s + 10], flow.time_s, flow.snd_nxt_packets)
        truth_bps = (sent[1] - sent[0]) / 10 * 8 * 1448
        assert row["throughput_bps"] == pytest.approx(truth_bps, rel=0.35)
        quantiles = row["throughput_quantiles_bps"]
        hits.append(quantiles["0.05"] <= truth_bps <= quantiles["0.95"])
    assert np.mean(hits) >= 0.7, hits


def test_nothing_after_the_moment_is_used(traced, tmp_path):
    file, trace = traced
    columns = trace.columns
    before = columns["time_s"] <= 60
    cut = pathcast.trace.Trace.from_columns(
        {
            name: columns[name][before]
            for name in ("time_s", "flow", "cwnd_packets", "srtt_s", "snd_nxt_bytes", "retransmits")
        },
        {"mss_bytes": 1448, "schemes": ["cubic"]},
    )
    cut.write(tmp_path / "cut.parquet")
    asked = ("--at", 60, "--cc", "cubic")
    whole, alone = predicted(file, *asked), predicted(tmp_path / "cut.parquet", *asked)
    assert whole["horizons"] == alone["horizons"]


def test_without_sequence_numbers_the_window_is_forecast():
    flow = predicted(ROOT / "tests/data/reno.cwnd.csv.gz", "--at", 100)
    assert flow["horizons"][0]["quantity"] == "mean_cwnd_packets"
    assert "throughput_bps" not in flow["horizons"][0]


def test_what_cannot_be_is_refused(traced):
    file, _ = traced
    for arguments, said in (
        (("--at", -1), "before its first record"),
        (("--horizon", 0), "must be a finite number > 0"),
        (("--flow", 7), "has no flow 7"),
        (("--rtt", -1), "rtt"),
    ):
        done = run("predict", "throughput", file, *arguments)
        assert done.returncode == 2, arguments
        assert said in " ".join(done.stderr.split()), done.stderr


def test_notes_are_sentences(tmp_path):
    """A window that an application holds: no loss, no growth."""
    time_s = np.arange(0, 60, 0.05)
    columns = {"time_s": time_s, "cwnd_packets": np.full(len(time_s), 40.0)}
    trace = pathcast.Trace.from_columns(columns)
    trace.write(tmp_path / "held.parquet")
    done = run("predict", "throughput", tmp_path / "held.parquet", "--cc", "cubic")
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert "note: no loss was seen" in shown
    assert "note: the application or the receive window limits the flow" in shown


@pytest.mark.parametrize("scheme", ["cubic", "bbr"])
@pytest.mark.parametrize("rate_bps", [5e6, 100e6])
def test_the_first_seconds_of_a_flow_are_enough_for_a_forecast(tmp_path, scheme, rate_bps):
    """The link is full within a second, and then the rate hardly changes."""
    path = pathcast.Path.parse(f"rate = '{rate_bps:.0f} bit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n")
    _, trace = pathcast.simulate(path, [scheme], duration_s=20, seed=3)
    file = tmp_path / "short.parquet"
    trace.write(file)
    for at_s in (1, 2, 3, 5, 8):
        (row,) = predicted(file, "--at", at_s, "--horizon", 5)["horizons"]
        assert row["throughput_bps"] == pytest.approx(0.96 * rate_bps, rel=0.12), at_s
        assert row["cold_start"] > 0.3
        low, high = (row["throughput_quantiles_bps"][level] for level in ("0.05", "0.95"))
        assert low <= 0.96 * rate_bps <= high and high / low < 4, at_s
    # half a second in, it is known within a factor of two
    (row,) = predicted(file, "--at", 0.5, "--horizon", 1)["horizons"]
    assert 0.5 < row["throughput_bps"] / (0.96 * rate_bps) < 1.5


def test_a_flow_that_is_too_short_for_its_horizons_is_said_to_be(traced):
    file, _ = traced
    short = run("predict", "throughput", file, "--at", "2", "--horizon", "1", "--horizon", "30")
    shown = " ".join(short.stdout.split())
    assert "too short for forecasts of 1 s, 30 s" in shown
    assert "of their weight is how simulated flows that began alike went on" in shown
    long = run("predict", "throughput", file, "--horizon", "1", "--horizon", "30")
    assert "too short" not in long.stdout
    assert all(row["checked"] > 0 for row in predicted(file)["horizons"])


SCENARIO = """
duration = "40 s"
[links.path]
rate = "40 Mbit/s"
delay = "40 ms"
queue = "1 BDP"
[[flows]]
scheme = "cubic"
stop = "12 s"
[[flows]]
scheme = "cubic"
start = "20 s"
"""


@pytest.mark.parametrize("rate", ["10 Mbit/s", "40 Mbit/s", "200 Mbit/s"])
def test_what_an_earlier_flow_reached_is_expected_of_the_next_one(tmp_path, rate):
    """At 0.3 s, slow start has not filled the link yet."""
    scenario = pathcast.Scenario.parse(SCENARIO.replace("40 Mbit/s", rate))
    _, trace = pathcast.simulate(scenario, seed=1)
    file = tmp_path / "two.parquet"
    trace.write(file)
    second = trace.flow(1)
    at_s = float(second.time_s[0]) + 0.3
    sent = np.interp([at_s, at_s + 10], second.time_s, second.snd_nxt_packets)
    truth = (sent[1] - sent[0]) / 10

    def forecast(*options):
        found = predicted(file, "--flow", 1, "--at", at_s, "--horizon", 10, *options)
        row = found["horizons"][0]
        assert row["quantiles"]["0.05"] < truth < row["quantiles"]["0.95"]
        return abs(np.log(row["median"] / truth)), found["basis"]["siblings"]

    off_alone, none = forecast()
    off, one = forecast("--siblings")
    assert (none, one) == (0, 1)
    assert off < 0.5 * off_alone
    shown = run("predict", "throughput", file, "--at", at_s, "--flow", 1, "--siblings")
    assert "is how 1 earlier flow of the path went on" in " ".join(shown.stdout.split())


def test_flows_to_the_same_prefix_are_siblings_without_asking(tmp_path):
    _, trace = pathcast.simulate(pathcast.Scenario.parse(SCENARIO), seed=1)
    names = {
        "flow 0": "192.0.2.1:443 -> 198.51.100.7:5001",
        "flow 1": "192.0.2.1:443 -> 198.51.100.9:5002",
    }
    for other, count in ((names["flow 0"], 1), ("192.0.2.1:443 -> 203.0.113.7:5001", 0)):
        metadata = trace.metadata | {"environment": names | {"flow 0": other}}
        file = tmp_path / f"named{count}.parquet"
        pathcast.Trace.from_columns(trace.columns, metadata).write(file)
        at_s = float(trace.flow(1).time_s[0]) + 0.5
        found = predicted(file, "--at", at_s, "--flow", 1)
        assert found["basis"]["siblings"] == count
        found = predicted(file, "--at", at_s, "--flow", 1, "--no-siblings")
        assert found["basis"]["siblings"] == 0
