"""`pathcast bound` and the curves behind it: closed forms, files, and what is asked wrongly."""

import json
import math
import pickle

import numpy as np
import pytest

import pathcast
from conftest import run
from pathcast import Arrivals, Curve


def test_a_token_bucket_has_the_closed_form():
    done = run(
        "bound", "--rate", "10 Mbit/s", "--latency", 0.05, "--token-bucket", "2 Mbit/s", "100 kbit", "--json"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["delay_s"]["max"] == pytest.approx(0.05 + 100e3 / 10e6)
    assert found["backlog_bits"]["max"] == pytest.approx(100e3 + 2e6 * 0.05)
    assert found["service_rate_bps"] == 10e6


def test_a_window_that_is_too_small_bounds_nothing():
    done = run(
        "bound", "--rate", "10 Mbit/s", "--latency", 0.05, "--window", "500 kbit", "--rtt", 0.1,
        "--token-bucket", "6 Mbit/s", "1500 B", "--json",
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["service_rate_bps"] == 5e6
    assert found["delay_s"]["max"] is None
    assert found["backlog_bits"]["max"] is None


def test_a_trace_over_a_saved_curve_and_its_picture(tmp_path):
    random = np.random.default_rng(3)
    times = np.sort(random.uniform(0, 10, 500))
    sizes = random.integers(40, 1500, 500)
    file = tmp_path / "arrivals.csv"
    rows = "".join(f"{time},{size}\n" for time, size in zip(times, sizes, strict=True))
    file.write_text("time_s,size_bytes\n" + rows)
    curve = Curve.window_flow_control(1e6, 0.02, 0.04, 20e3)
    curve.save(tmp_path / "curve.json")
    done = run(
        "bound", "--service", tmp_path / "curve.json", "--trace", file, "--json",
        "-o", tmp_path / "bounds.svg",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # by the definition
    before = np.concatenate([[0.0], np.cumsum(sizes * 8.0)])
    inverse = curve.inverse()
    delays = [
        max(inverse(before[n + 1] - before[: n + 1]) + times[: n + 1]) - times[n]
        for n in range(500)
    ]
    assert found["delay_s"]["max"] == pytest.approx(max(delays))
    assert found["delay_s"]["mean"] == pytest.approx(np.mean(delays))
    assert found["packets"] == 500
    assert (tmp_path / "bounds.svg").read_text().count("<svg") == 1
    text = run("bound", "--service", tmp_path / "curve.json", "--trace", file)
    assert "500 packets of" in text.stdout


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], "--service or --rate"),
        (["--rate", "1 Mbit/s"], "--trace or --token-bucket"),
        (["--rate", "1 Mbit"], "expected either --trace"),
        (["--rate", "1 Mbit", "--token-bucket", "1 Mbit/s", "1 kB"], "rate is '1 Mbit'"),
        (["--rate", "1 Mbit/s", "--token-bucket", "1 Mbit/s", "x"], "burst of the token bucket is 'x'"),
        (["--rate", "1 Mbit/s", "--window", "1 kB", "--trace", "a"], "--window and --rtt together"),
        (["--rate", "1 Mbit/s", "--trace", "not-there.csv"], "not-there.csv: cannot be read"),
        (["--service", "not-there.json", "--trace", "a"], "not-there.json: cannot be read"),
    ],
)  # fmt: skip
def test_what_is_asked_wrongly_is_said(arguments, wanted):
    done = run("bound", *arguments)
    assert done.returncode == 2
    assert wanted in done.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ":1: got the columns none"),
        ("time_s,size_bytes\n", "expected at least one"),
        ("time_s,size_bytes\n1,2\nx,2\n", ":3: time_s is 'x'"),
        ("time_s,size_bytes\n1\n", ":2: size_bytes is ''"),
        ("time_s,size_bytes\n2,1\n1,1\n", "expected at least 2"),
        ("time_s,size_bytes\n2,nan\n", "sizes[0] is NaN"),
        ("time_s,size_bytes\n2,-1\n", "sizes[0] is -8"),
        ("\xff", "is no UTF-8 text"),
    ],
)
def test_traces_that_are_none_are_refused(tmp_path, text, wanted):
    file = tmp_path / "bad.csv"
    file.write_bytes(text.encode("latin-1"))
    done = run("bound", "--rate", "1 Mbit/s", "--trace", file)
    assert done.returncode == 2
    assert wanted in done.stderr.replace("\n", " ")


def test_curves_come_back_from_dicts_files_and_pickles(tmp_path):
    for curve in (
        Curve.window_flow_control(10e6, 0.05, 0.1, 500e3),
        Curve.delay(0.3),
        Curve.delay(0),
        Curve.from_points([1, 1, 2], [0, 5, 9], 3),
    ):
        curve.save(tmp_path / "curve.json")
        for again in (
            Curve.from_dict(curve.to_dict()),
            Curve.load(tmp_path / "curve.json"),
            pickle.loads(pickle.dumps(curve)),
        ):
            assert again == curve
            assert hash(again) == hash(curve)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"segments": 3, "tail": {"kind": "affine"}},
        {"segments": [], "tail": {"kind": "affine"}},
        {"segments": [{"start_s": 0, "value": math.nan, "slope": 0}], "tail": {"kind": "affine"}},
        {"segments": [{"start_s": 0, "value": 1, "slope": -1}], "tail": {"kind": "affine"}},
        {"segments": [{"start_s": 0, "value": 1, "slope": 1}], "tail": {"kind": "other"}},
        {"segments": [{"start_s": 0, "value": 1, "slope": 1}], "tail": object()},
    ],
)
def test_what_is_no_curve_is_refused(values):
    with pytest.raises(pathcast.ModelError):
        Curve.from_dict(values)


def test_operations_in_python_are_those_of_the_book():
    one, two = Curve.latency_rate(7, 0.3), Curve.latency_rate(4, 0.2)
    assert one.convolve(two).is_same_as(Curve.latency_rate(4, 0.5))
    window = Curve.window_flow_control(10e6, 0.05, 0.1, 500e3)
    assert Curve.latency_rate(10e6, 0.05).windowed(0.05, 500e3).is_same_as(window)
    assert window([0.1, 0.15, 0.2]).tolist() == pytest.approx([500e3, 500e3, 1e6])
    assert window(0.075) == pytest.approx(250e3)
    assert window.attainable_rate(100.0) == pytest.approx(5e6, rel=1e-3)
    assert window.right_limit(0.0) == 0
    assert Curve.token_bucket(1, 2).min(Curve.token_bucket(3, 1)).is_concave
    assert one.max(two).is_convex or one.max(two).rate == 7
    assert one.add(two).rate == 11
    assert (
        Curve.constant_rate(10)
        .minus(Curve.token_bucket(4, 3))
        .is_same_as(Curve.latency_rate(6, 0.5))
    )
    assert Curve.token_bucket(2, 5).deconvolve(Curve.latency_rate(3, 4)) == Curve.token_bucket(
        2, 13
    )
    assert Curve.from_probes([2e6, 4e6], [0.03, 0.05]).rate == 4e6
    assert Curve.from_backlogs([1.0], [2.0])(3.0) == 1.0
    assert Curve.steps(2.0, 1.0, early=True).closure() == Curve.steps(2.0, 1.0, early=True)
    assert one.later(0.2).raised(1).scaled(2)(0.6) == pytest.approx(2 * (1 + 7 * 0.1))
    assert not window.is_convex
    assert "periodic" in repr(window)
    with pytest.raises(pathcast.ModelError, match="rate is -1"):
        Curve.constant_rate(-1)
    with pytest.raises(pathcast.ModelError, match="no period"):
        Curve.steps(2**0.5, 1.0).add(Curve.steps(1.0, 1.0))
    with pytest.raises(pathcast.ModelError, match="one column"):
        Curve.from_probes([[1.0]], [1.0])


def test_arrivals_and_their_envelope():
    trace = Arrivals([0.0, 0.0, 1.0, 5.0], [1.0, 2.0, 3.0, 1.0])
    assert (len(trace), trace.total, trace.span_s, trace.mean_rate) == (4, 7, 5, 1.4)
    exact = trace.envelope()
    assert exact([0.5, 1.0, 1.5, 6.0]).tolist() == [3, 3, 6, 7]
    assert exact.is_at_most(trace.envelope([0.5, 2.0]))
    assert trace.smallest_burst(1.0) == 5.0
    assert trace.cumulative()(2.0) == 6
    assert trace.backlog_bounds(Curve.constant_rate(2.0)).tolist() == [1, 3, 4, 1]
    with pytest.raises(pathcast.ModelError, match="expected at least"):
        Arrivals([1.0, 0.0], [1.0, 1.0])
