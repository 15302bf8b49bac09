"""`pathcast fit` and `pathcast evaluate`."""

import gzip
import json
import re

import numpy as np
import pytest

import pathcast
from conftest import run
from pathcast import MODELS, SUITED, Trace, evaluate
from pathcast.models import NO_OPPONENTS, pooled

CUBIC = "cubic-longDistance_cubic-data_5_1_53002.cwnd.csv.gz"
RENO = "reno-wireless_reno-data_1_1_10000.cwnd.csv.gz"


@pytest.fixture
def sawtooth(tmp_path):
    """A Reno-like trace: from 10 up to 20 packets, a packet each 0.1 s, again and again."""
    file = tmp_path / "sawtooth.csv"
    rows = (f"{i * 0.1:.1f},{10 + i % 11}" for i in range(600))
    file.write_text("time_s,cwnd_packets\n" + "\n".join(rows) + "\n")
    return file


def test_a_flow_that_never_sends_is_evaluated_without_a_verdict(tmp_path):
    file = tmp_path / "never.parquet"
    count = 100
    columns = {"cwnd_packets": 10.0, "snd_nxt_bytes": 0.0, "srtt_s": 0.05}
    arrays = {name: np.full(count, value) for name, value in columns.items()}
    metadata = {"mss_bytes": 1448, "schemes": ["cubic"]}
    Trace.from_columns({"time_s": np.arange(count) * 0.1} | arrays, metadata).write(file)
    done = run("evaluate", file, "--horizon", 5)
    assert done.returncode == 0, done.stderr
    assert "with nothing sent" in done.stdout
    assert re.search(r"pathcast +│ inf", done.stdout)
    found = json.loads(run("evaluate", file, "--horizon", 5, "--json").stdout)
    (score,) = found["horizons"]
    assert score["zero_windows"] == score["windows"] > 0
    assert score["skill"] == []


def test_fit_prints_losses_epochs_and_curve(sawtooth, tmp_path):
    output = tmp_path / "curve.json"
    done = run("fit", sawtooth, "--cc", "reno", "--rtt", 0.1, "-o", output, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert json.loads(output.read_text()) == result
    assert result["losses"] == 54
    assert len(result["epochs"]) == 54
    assert {"start_s", "end_s", "end_cwnd"} <= set(result["epochs"][0])
    assert all(epoch["end_cwnd"] == 20 for epoch in result["epochs"])
    at = {point["cwnd_packets"]: point for point in result["curve"]["points"]}
    # one loss each time that 20 packets are sent at a window of 20, the last time still under way
    assert at[20]["loss_probability"] == pytest.approx(54 / (55 * 20), rel=0.02)
    assert at[12]["loss_probability"] == at[20]["loss_probability"]  # the nearest with a loss


def test_fit_pools_traces_of_one_kind(sawtooth):
    one = json.loads(run("fit", sawtooth, "--cc", "reno", "--json").stdout)
    two = json.loads(run("fit", sawtooth, sawtooth, "--cc", "reno", "--json").stdout)
    assert two["losses"] == 2 * one["losses"]
    assert len(two["flows"]) == 2
    assert two["curve"]["points"][-1]["loss_probability"] == pytest.approx(
        one["curve"]["points"][-1]["loss_probability"]
    )


def test_models_learn_on_the_window_that_is_asked_for(tmp_path):
    # a quiet half, then one that loses at half the window: what was learned before matters
    rng = np.random.default_rng(3)
    tops = [200] * 8 + list(rng.integers(60, 140, 60))
    windows = [w for top in tops for w in range(top // 2, top + 1)]
    file = tmp_path / "trace.csv"
    rows = "".join(f"{i * 0.1:.1f},{w}\n" for i, w in enumerate(windows))
    file.write_text("time_s,cwnd_packets\n" + rows)
    options = ("--cc", "reno", "--rtt", 0.1, "--horizon", 5)
    by_window = {}
    for window in (None, 10, 50):
        more = () if window is None else ("--window", window)
        done = run("evaluate", file, *options, *more, "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["window_s"] == window
        by_window[window] = result["horizons"][0]["median_error_pct"]
    for model in ("econ", "pftk", "window_mean", "pathcast"):
        assert len({errors[model] for errors in by_window.values()}) == 3, model
    said = run("evaluate", file, *options, "--window", 10).stdout
    assert "all models learning on 10 s alone" in " ".join(said.split())
    for wrong in (5, 1001, "nan", "x"):
        done = run("evaluate", file, *options, "--window", wrong)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_connections_in_parallel_teach_each_other(tmp_path):
    file = tmp_path / "parallel.parquet"
    path = pathcast.Path.parse("rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n")
    _, trace = pathcast.simulate(path, ["cubic"] * 4, duration_s=60, seed=2)
    trace.write(file)
    options = ("--horizon", 1, "--json")
    alone, together = (
        json.loads(run("evaluate", file, *options, *more).stdout) for more in ((), ("--parallel",))
    )
    assert not alone["parallel"] and together["parallel"]
    errors = [found["horizons"][0]["median_error_pct"] for found in (alone, together)]
    assert errors[0]["econ"] != errors[1]["econ"]
    assert errors[0]["pathcast"] == errors[1]["pathcast"]
    same = evaluate(trace, [1.0], flow=1, siblings=[0, 2, 3]).to_dict()
    assert same["horizons"] == together["traces"][1]["horizons"]


def test_real_traces_are_fitted_and_forecast(econ_traces):
    fitted = json.loads(run("fit", econ_traces / RENO, "--json").stdout)
    assert fitted["flows"][0]["cc"] == "reno"
    assert fitted["flows"][0]["rtt_s"] == pytest.approx(0.0774, rel=0.05)
    assert 80 <= fitted["losses"] <= 100
    done = run("evaluate", econ_traces / RENO, "--horizon", 1, "--horizon", 5, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["truth"] == "mean_cwnd_packets"
    assert [score["horizon_s"] for score in result["horizons"]] == [1, 5]
    for score in result["horizons"]:
        assert set(score["median_error_pct"]) == set(MODELS)
        for model, error in score["median_error_pct"].items():
            assert (error is not None) == ("reno" in SUITED[model]), model
        assert score["windows"] > 3000
        assert 0.8 <= score["coverage90"] <= 0.97


def on_and_off(on_packets_per_s=1000, seconds=240):
    """A flow that sends for 3 s and then nothing for 3 s, over and over."""
    time_s = np.arange(seconds * 10) * 0.1
    sends = (time_s // 3 % 2 == 0) * on_packets_per_s * 0.1
    columns = {
        "time_s": time_s,
        "cwnd_packets": np.full(len(time_s), 100.0),
        "snd_nxt_bytes": np.concatenate([[0], np.cumsum(sends)[:-1]]) * 1448,
        "srtt_s": np.full(len(time_s), 0.1),
    }
    return Trace.from_columns(columns, {"mss_bytes": 1448})


def test_windows_in_which_nothing_was_sent_count():
    (score,) = evaluate(on_and_off(), [1.0], cc="cubic").horizons
    assert score.windows == 160
    assert score.zero_windows == 80
    assert len(score.predictions.truth) == 160
    floor = score.predictions.floor
    assert floor == pytest.approx(0.01 * np.mean(score.predictions.truth))
    errors = score.predictions.error_pct("window_mean")
    assert np.isfinite(errors).all()
    zero = score.predictions.truth == 0
    assert errors[zero] == pytest.approx(
        100 * score.predictions.forecast["window_mean"][zero] / floor[zero]
    )


def test_scores_compare_with_the_best_by_hindsight_and_with_parts_left_out():
    trace = on_and_off()
    (score,) = evaluate(trace, [1.0], cc="cubic").horizons
    errors = {m: e for m, e in score.median_error_pct.items() if e is not None}
    opponents = {m: e for m, e in errors.items() if m not in NO_OPPONENTS}
    best = score.against("best_by_hindsight")
    assert opponents[best.opponent] == min(opponents.values())
    wanted = max(errors["pathcast"], 0.05) / max(opponents[best.opponent], 0.05)
    assert best.error_ratio == pytest.approx(wanted)
    low, high = best.interval95
    assert low <= high
    assert best.verdict == ("better" if high < 1 else "worse" if low > 1 else "level")
    for role in ("history_pool", "flat_curve", "no_state", "no_analogs", "no_window"):
        assert score.against(role).opponent == role
    assert score.against("luck") is None
    for model, band in score.bands.items():
        assert (band is None) == (model not in errors), model
    assert score.bands["pathcast"].coverage90 == pytest.approx(score.coverage90)
    # the same flow twice is as good as once, and as well covered
    (twice,) = pooled([evaluate(trace, [1.0], cc="cubic")] * 2)
    assert (twice.windows, twice.zero_windows) == (2 * score.windows, 2 * score.zero_windows)
    for model, error in score.median_error_pct.items():
        assert twice.median_error_pct[model] == (error and pytest.approx(error, rel=0.05)), model
    assert twice.bands["ewma"].to_dict() == pytest.approx(score.bands["ewma"].to_dict())
    assert twice.against("best_by_hindsight").opponent == best.opponent


@pytest.mark.parametrize("protocol", ["fair", "paper"])
def test_both_protocols_judge_the_same_windows(econ_traces, protocol):
    options = ("--horizon", 5, "--protocol", protocol, "--cc", "cubic", "--rtt", 0.2, "--json")
    result = json.loads(run("evaluate", econ_traces / CUBIC, *options).stdout)
    assert result["protocol"] == protocol
    assert result["horizons"][0]["windows"] > 800


def test_human_text_says_what_the_truth_is(sawtooth):
    done = run("evaluate", sawtooth, "--cc", "reno", "--horizon", 1)
    assert "no_state without its window law" in " ".join(done.stdout.split())
    assert "Interval score: " in done.stdout
    assert done.returncode == 0
    said = " ".join(done.stdout.split())
    assert "mean cwnd (no sequence numbers in the trace)" in said
    assert "against the best other" in said
    assert "its interval score" in said


def trace_file(tmp_path, rows, name="t.csv"):
    file = tmp_path / name
    file.write_text("time_s,cwnd_packets\n" + rows)
    return file


@pytest.mark.parametrize("command", ["fit", "evaluate"])
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("", "has no rows"),
        ("0,10\n", "one record"),
        ("0,10\n1,11\n0.5,12\n", "t.csv:4: time_s: got 0.5"),
        ("0,10\n1,NaN\n", 't.csv:3: cwnd_packets: got "NaN"'),
        ("0,10\n1,-4\n", "t.csv:3: cwnd_packets: got -4"),
        ("0,10\n1\n", "t.csv:3: got 1 cells, expected 2"),
        ("0,ten\n", 't.csv:2: cwnd_packets: got "ten"'),
        ("0,10\n0,11\n", "longer than 0 s"),
    ],
)
def test_a_wrong_trace_is_refused_with_its_place(tmp_path, command, rows, said):
    done = run(command, trace_file(tmp_path, rows))
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert "t.csv" in done.stderr
    assert "Traceback" not in done.stderr


def test_files_that_are_no_traces_are_refused(tmp_path):
    empty = tmp_path / "empty"
    empty.touch()
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b"time_s,cwnd_packets\n" + b"1,2\n" * 9000)[:60])
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    for file in (empty, cut, other, tmp_path / "none", tmp_path):
        done = run("fit", file)
        assert done.returncode == 2, file
        assert str(file) in done.stderr.replace("\n", ""), file
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rtt", "-1"], "rtt is -1"),
        (["--rtt", "nan"], "rtt is nan"),
        (["--cc", " "], "expected a congestion control"),
    ],
)
@pytest.mark.parametrize("command", ["fit", "evaluate"])
def test_wrong_options_are_refused(sawtooth, command, options, said):
    done = run(command, sawtooth, *options)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize("horizon", ["0", "-1", "nan", "1e9"])
def test_wrong_horizons_are_refused(sawtooth, horizon):
    done = run("evaluate", sawtooth, "--horizon", horizon)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_flow_without_losses_is_no_error(tmp_path):
    rows = "".join(f"{i * 0.1:.1f},{100 + i}\n" for i in range(400))
    file = trace_file(tmp_path, rows)
    fitted = run("fit", file, "--cc", "reno", "--json")
    assert json.loads(fitted.stdout)["losses"] == 0
    assert "no loss" in run("fit", file, "--cc", "reno").stdout
    result = json.loads(run("evaluate", file, "--cc", "reno", "--horizon", 5, "--json").stdout)
    assert result["horizons"][0]["median_error_pct"]["pathcast"] < 2
    assert np.isfinite(result["horizons"][0]["coverage90"])
