"""Traces of flows at fault: what the commands make of them, and what a forecast says it rests on."""

import json

import numpy as np
import pytest

from conftest import run
from pathcast import FlowSeries, Forecaster, ModelError, Trace, evaluate, fit, read_trace

#: Reno from 100 to 200 packets, a packet each round trip of 0.1 s, for three minutes.
COUNT = 1800
TIME_S = np.arange(COUNT) * 0.1
CWND = 100.0 + np.arange(COUNT) % 101
SENT_BYTES = np.cumsum(CWND) * 1448


def probe_lines(first_number):
    """The flow as the old tcp_probe printed it, its numbers beginning there."""
    for time_s, cwnd, sent in zip(TIME_S, CWND, SENT_BYTES, strict=True):
        nxt = (first_number + int(sent)) % 2**32
        una = (nxt - int(cwnd) * 1448) % 2**32
        yield (
            f"{time_s:.6f} 10.0.0.1:5001 10.0.0.2:6001 32 {nxt:#x} {una:#x} {cwnd:.0f} 100 65792 "
            "100000 229376"
        )


def test_numbers_that_wrap_in_a_file_make_no_difference(tmp_path):
    traces = []
    # 389 MB are sent: from just below 2^32 on, the numbers wrap
    for name, first in (("plain", 1000), ("wraps", 2**32 - 50_000_000)):
        file = tmp_path / f"{name}.txt"
        file.write_text("\n".join(probe_lines(first)) + "\n")
        done = run("evaluate", file, "--cc", "reno", "--horizon", 5, "--json")
        assert done.returncode == 0, done.stderr
        traces.append(read_trace(file).columns)
    for column in ("snd_nxt_bytes", "snd_una_bytes"):
        assert np.array_equal(traces[0][column], traces[1][column])
    assert traces[1]["snd_nxt_bytes"][-1] > 389e6


def test_numbers_that_wrap_in_columns_make_no_difference():
    metadata = {"mss_bytes": 1448}
    columns = {"time_s": TIME_S, "cwnd_packets": CWND}
    whole = Trace.from_columns(columns | {"snd_nxt_bytes": SENT_BYTES + 4.2e9}, metadata)
    wrapped = (SENT_BYTES + 4.2e9) % 2**32
    assert (np.diff(wrapped) < 0).sum() == 1
    unwrapped = Trace.from_columns(columns | {"snd_nxt_bytes": wrapped}, metadata)
    assert np.array_equal(unwrapped.columns["snd_nxt_bytes"], whole.columns["snd_nxt_bytes"])
    scores = [evaluate(trace, [5.0], cc="reno").horizons[0] for trace in (whole, unwrapped)]
    assert scores[0].median_error_pct == scores[1].median_error_pct
    assert fit(unwrapped, cc="reno").curves[0].losses == 17


def test_numbers_that_go_back_are_refused_by_name():
    sent = SENT_BYTES.copy()
    sent[900:] -= 1e6
    columns = {"time_s": TIME_S, "cwnd_packets": CWND, "snd_nxt_bytes": sent}
    trace = Trace.from_columns(columns, {"mss_bytes": 1448})
    with pytest.raises(ModelError, match=r"record 900: snd_nxt_packets is .*, must be >="):
        evaluate(trace, [5.0], cc="reno")


def csv(tmp_path, rows):
    file = tmp_path / "t.csv"
    file.write_text("time_s,cwnd_packets\n" + "".join(f"{t:.2f},{w:.0f}\n" for t, w in rows))
    return file


@pytest.mark.parametrize("command", ["fit", "evaluate", "follow"])
def test_mixed_flows_are_refused_by_name(tmp_path, command):
    rows = [
        row for i in range(600) for row in ((i * 0.1, 100 + i % 101), (i * 0.1 + 0.04, 30 + i % 31))
    ]
    done = run(command, csv(tmp_path, rows))
    assert done.returncode == 2
    assert "records of several flows" in done.stderr
    assert "t.csv" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["fit", "evaluate", "follow"])
def test_a_clock_that_goes_back_is_refused_with_its_line(tmp_path, command):
    rows = [(i * 0.1 - (30 if i > 400 else 0), 100 + i % 101) for i in range(600)]
    done = run(command, csv(tmp_path, rows))
    assert done.returncode == 2
    assert "t.csv:403: time_s: got 10.10" in done.stderr.replace("10.1,", "10.10,")


def test_a_leap_of_an_hour_is_borne(tmp_path):
    rows = [(i * 0.1 + (4000 if i > 1000 else 0), 100 + i % 101) for i in range(2500)]
    done = run("evaluate", csv(tmp_path, rows), "--cc", "reno", "--horizon", 5, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["horizons"][0]["windows"] > 0


def test_an_idle_restart_is_no_loss(tmp_path):
    rows = [(i * 0.1, 100 + i % 101) for i in range(100)]
    rows += [(40 + i * 0.1, min(10 * 2**i, 150 + i)) for i in range(100)]
    done = run("fit", csv(tmp_path, rows), "--cc", "reno", "--rtt", 0.1, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["losses"] == 0


@pytest.mark.parametrize(
    ("windows", "losses", "notes"),
    [
        (100 + np.arange(600), 0, {"no_loss"}),
        (np.r_[100 + np.arange(300), 200 + np.arange(300)], 1, {"one_loss"}),
        (np.r_[CWND[:200], np.full(400, 199.0)], 1, {"one_loss", "held"}),
    ],
)
def test_a_forecast_says_what_it_rests_on(windows, losses, notes):
    forecaster = Forecaster("reno", [5.0], rtt_s=0.1)
    forecaster.observe(FlowSeries(TIME_S[:600], windows.astype(float)))
    basis = forecaster.forecast(59.9, 5.0).basis
    assert basis["losses"] == losses
    assert set(basis["notes"]) == notes
    if not losses:
        assert basis["loss_upper_bound"] == pytest.approx(3 / basis["packets_remembered"])


def test_a_service_goes_on_when_its_clock_is_set():
    live = Forecaster("reno", [5.0], rtt_s=0.1, on_break="restart")
    live.observe(FlowSeries(TIME_S[:900], CWND[:900]))
    back = FlowSeries(TIME_S[900:] - 60, CWND[900:])
    live.observe(back)
    forecast = live.forecast(float(back.time_s[-1]), 5.0)
    assert forecast.basis["notes"] == ["clock_step"]
    assert forecast.basis["losses"] == 17
    assert 100 < forecast.point < 220
    strict = Forecaster("reno", [5.0], rtt_s=0.1)
    strict.observe(FlowSeries(TIME_S[:900], CWND[:900]))
    with pytest.raises(ModelError, match="record 900: time_s is 30"):
        strict.observe(back)
    with pytest.raises(ModelError, match="expected 'refuse' or 'restart'"):
        Forecaster("reno", [5.0], on_break="ignore")


@pytest.mark.parametrize(
    "command",
    [
        "predict throughput",
        "predict transfer",
        "calibrate",
        "fit",
        "evaluate",
        "diagnose",
        "follow",
    ],
)
@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("cal.toml", "got a path file, expected a trace"),
        ("100mbps-40ms-1bdp", "got the name of a path, expected a trace"),
        ("dumbbell", "got the name of a scenario, expected a trace"),
    ],
)
def test_a_path_in_place_of_a_trace_is_called_one(tmp_path, command, given, kind):
    (tmp_path / "cal.toml").write_text("rate = '12 Mbit/s'\ndelay = '30 ms'\n")
    done = run(*command.split(), given, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{given}: {kind}; simulate, sweep, what-if and others take it" in done.stderr
    assert run(given, cwd=tmp_path).returncode == 0


def test_what_is_neither_a_path_nor_a_trace_keeps_its_error(tmp_path):
    (tmp_path / "other.toml").write_text("a = 1\n")
    assert "expected one of: Parquet" in run("fit", "other.toml", cwd=tmp_path).stderr
    assert "No such file" in run("fit", "absent.toml", cwd=tmp_path).stderr
