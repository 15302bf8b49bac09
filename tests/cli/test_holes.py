"""What rows lack is missing, and nothing else; losses are those that a trace counts."""

import json

import numpy as np
import pytest

import pathcast
from conftest import run
from pathcast import Trace

PATH = pathcast.Path.parse("rate = '12 Mbit/s'\ndelay = '30 ms'\nqueue = '1 BDP'\nloss = 0.001\n")
COLUMNS = ("srtt_s", "snd_nxt_bytes", "snd_una_bytes", "retransmits", "ssthresh_packets")


@pytest.fixture(scope="module")
def reno():
    """A minute of Reno in the simulator."""
    return pathcast.simulate(PATH, ["reno"], duration_s=60, seed=4)[1]


def punched(trace, part, seed=1, columns=COLUMNS):
    """The same trace, each value of these columns missing with this chance."""
    rng = np.random.default_rng(seed)
    values = dict(trace.columns)
    for name in columns:
        values[name] = np.where(rng.random(len(trace)) < part, np.nan, values[name])
    return Trace.from_columns(values, trace.metadata)


def test_a_row_without_a_round_trip_time_takes_none_from_the_others(reno):
    for part in (1e-4, 0.3, 0.9):
        holed = punched(reno, part).flow(0)
        whole = reno.flow(0)
        for name in ("srtt_s", "snd_nxt_packets", "retransmits"):
            got, wanted = getattr(holed, name), getattr(whole, name)
            known = ~np.isnan(got)
            assert 0 < known.sum() < len(got) or part == 1e-4
            np.testing.assert_array_equal(got[known], wanted[known])
    assert punched(reno, 1.1).flow(0).srtt_s is None


def test_fit_is_the_same_with_half_of_everything(reno):
    whole, holed = pathcast.fit(reno), pathcast.fit(punched(reno, 0.5))
    (one,), (other,) = whole.flows, holed.flows
    assert other.rtt_source == one.rtt_source == "srtt"
    assert other.rtt_s == pytest.approx(one.rtt_s, rel=0.02)
    assert other.losses == pytest.approx(one.losses, abs=2)
    assert other.packets == pytest.approx(one.packets, rel=0.01)
    assert holed.curves[0].packets == pytest.approx(whole.curves[0].packets, rel=0.01)


def test_a_row_without_a_window_holds_the_one_before(reno):
    whole, holed = pathcast.fit(reno), pathcast.fit(punched(reno, 0.3, columns=("cwnd_packets",)))
    assert holed.flows[0].losses == pytest.approx(whole.flows[0].losses, abs=1)


def test_evaluate_and_follow_use_what_rows_know(reno):
    holed = punched(reno, 0.3)
    one, other = pathcast.evaluate(reno, [1.0, 5.0]), pathcast.evaluate(holed, [1.0, 5.0])
    assert other.truth == "packets_per_s"
    assert other.rtt_s == pytest.approx(one.rtt_s, rel=0.05)
    for score, whole in zip(other.horizons, one.horizons, strict=True):
        assert score.windows == whole.windows
        error, wanted = (s.median_error_pct["ewma"] for s in (score, whole))
        assert error == pytest.approx(wanted, abs=3)
    curve, wanted = (pathcast.follow(trace).curves[0] for trace in (holed, reno))
    assert curve.packets == pytest.approx(wanted.packets, rel=0.02)


def test_losses_are_those_that_are_counted():
    # an application that sends now and then: the window inferred is what is in flight, and nothing is lost
    rng = np.random.default_rng(5)
    window = np.repeat(rng.integers(2, 40, 300), 6) + np.tile(np.arange(6), 300)
    time_s = np.arange(len(window)) * 0.02
    columns = {
        "time_s": time_s,
        "cwnd_packets": window,
        "srtt_s": np.full(len(window), 0.02),
        "snd_nxt_bytes": np.cumsum(window) * 1000,
    }
    inferred = pathcast.fit(Trace.from_columns(columns, {"mss_bytes": 1000})).flows[0]
    assert inferred.losses > 50
    assert inferred.losses_source == "window"
    columns["retransmits"] = np.zeros(len(window))
    counted = pathcast.fit(Trace.from_columns(columns, {"mss_bytes": 1000}))
    assert counted.flows[0].losses == 0
    assert counted.flows[0].losses_source == "retransmissions"
    assert counted.curves[0].losses == 0
    # three packets of one window, later one more: two events
    columns["retransmits"][500:] += 1
    columns["retransmits"][501:] += 2
    columns["retransmits"][900:] += 1
    counted = pathcast.fit(Trace.from_columns(columns, {"mss_bytes": 1000})).flows[0]
    assert (counted.losses, counted.sent_again) == (2, 4)
    evaluation = pathcast.evaluate(
        Trace.from_columns(columns, {"mss_bytes": 1000}), [1.0], cc="cubic"
    )
    assert evaluation.losses <= 2


def test_counted_losses_are_those_of_the_sender(reno):
    fitted = pathcast.fit(reno).flows[0]
    counted = np.diff(reno.columns["retransmits"], prepend=0)
    # no more than packets sent again, no fewer than reductions: each window of data counts once
    assert fitted.losses_source == "retransmissions"
    assert 0.5 * counted.sum() <= fitted.losses <= counted.sum()
    without = dict(reno.columns) | {"retransmits": np.full(len(reno), np.nan)}
    by_window = pathcast.fit(Trace.from_columns(without, reno.metadata)).flows[0]
    assert by_window.losses_source == "window"
    assert fitted.losses == pytest.approx(by_window.losses, rel=0.25, abs=3)


@pytest.mark.parametrize("file", ["zeek-cwd-navigation.pcap", "tcpd-ssh.pcap"])
def test_captures_without_a_loss_have_none(real_data, file):
    trace = pathcast.read_trace(real_data / "real-files" / "pcap" / file)
    flow = pathcast.fit(trace, cc="cubic").flows[0]
    assert flow.rtt_source == "srtt"
    assert flow.losses <= flow.sent_again


def test_the_command_says_where_losses_are_from(tmp_path, reno):
    file = tmp_path / "holed.parquet"
    punched(reno, 0.2).write(file)
    result = json.loads(run("fit", file, "--json").stdout)
    assert result["flows"][0]["rtt_source"] == "srtt"
    assert result["flows"][0]["losses_source"] == "retransmissions"
    assert result["flows"][0]["loss_rate"] == pytest.approx(
        result["losses"] / result["flows"][0]["packets"]
    )
    assert "losses are counted" in run("fit", file).stdout
