"""`pathcast calibrate` with what several schemes got over one path."""

import gzip
import json

import numpy as np
import pytest

import pathcast
from conftest import run
from pathcast.calibration import read_measurements
from pathcast.calibration.measurements import Measurement
from pathcast.calibration.several import wandering
from pathcast.catalog import catalog

PATH = "rate = '6 Mbit/s'\ndelay = '20 ms'\nqueue = '60 kB'\nloss = 0.001\n"
SCHEMES = ("cubic", "reno", "bbr", "vegas")


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports of runs of several schemes over one path."""
    folder = tmp_path_factory.mktemp("reports")
    path = pathcast.Path.parse(PATH)
    files = []
    for scheme in SCHEMES:
        report, _ = pathcast.simulate(path, [scheme], duration_s=24, seed=5)
        files.append(folder / f"{scheme}.json")
        files[-1].write_text(json.dumps(report.to_dict()))
    return files


@pytest.fixture(scope="module")
def calibrated(reports):
    """Its answer, and the path that it wrote."""
    path = reports[0].with_name("path.toml")
    done = run("calibrate", *reports, "-o", path, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), path


def test_the_path_is_found_and_predicts_schemes_that_it_was_not_inferred_from(calibrated):
    found, _ = calibrated
    assert (found["flow"], found["link"]["kind"], found["left_out"]) == (None, "constant", [])
    truth = {"rate_bps": 6e6, "rtt_s": 0.04, "queue_bytes": 60e3}
    for name, value in truth.items():
        one = found["parameters"][name]
        assert one["median"] == pytest.approx(value, rel=0.1), name
        assert one["p5"] < value < one["p95"], name
    assert found["parameters"]["rate_bps"]["identified"]
    assert found["parameters"]["loss"]["median"] == pytest.approx(1e-3, rel=0.5)
    assert [one["scheme"] for one in found["schemes"]] == sorted(SCHEMES)
    for one in found["schemes"]:
        assert abs(one["goodput_error"]) < 0.05, one
        assert abs(one["delay_error"]) < 0.08, one
        low, high = one["goodput_range_without"]
        assert low - 0.05 < 0 < high + 0.05, one
    assert found["misfit"] < 1


def test_the_posterior_answers_what_if(calibrated):
    _, path = calibrated
    done = run("what-if", path, "--scheme", "cubic", "--draws", 6, "--duration", 12, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    truth, _ = pathcast.simulate(pathcast.Path.parse(PATH), ["cubic"], duration_s=12, seed=9)
    goodput = answer["alternatives"][0]["goodput_bps"]["median"]
    assert goodput == pytest.approx(truth.flows[0].goodput_bps, rel=0.08)
    assert answer["path"]["schemes"]


def test_a_rate_that_wanders_is_told_by_its_series():
    found = pathcast.Path.parse(
        "rate = { kind = 'wandering', rate = '8 Mbit/s', spread = 0.5, correlation = '1 s' }\n"
        "delay = '20 ms'\nqueue = '400 kB'\n"
    )
    measured = []
    for seed in range(6):
        _, trace = pathcast.simulate(found, ["cubic"], duration_s=60, seed=seed + 1)
        series = trace.flow(0)
        edges = np.arange(2.0, 60.0, 0.5)
        at = np.interp(edges, series.time_s, 1448 * series.snd_nxt_packets)
        rates = np.diff(at) * 8 / 0.5
        measured.append(
            Measurement("cubic", 1, 58.0, float(rates.mean()), bin_s=0.5, rates_bps=tuple(rates))
        )
    link = wandering(measured)
    assert link.kind == "wandering"
    assert link.spread == pytest.approx(0.5, rel=0.3)
    assert 0.5 < link.correlation_s < 1.6
    steady = [Measurement("cubic", 1, 20.0, 8e6, bin_s=0.5, rates_bps=(8e6, 8.1e6) * 20)]
    assert wandering(steady) is None
    assert wandering([Measurement("cubic", 1, 20.0, 8e6)]) is None


def test_summaries_and_series_of_pantheon_are_read(tmp_path):
    file = tmp_path / "pantheon_perf.json"
    one = {"tput": 6.0, "delay": 55.0, "loss": 0.01}
    file.write_text(json.dumps({"quic": {"1": {"all": one, "1": one}, "2": {"all": None}}}))
    (measured,) = read_measurements(file)
    assert (measured.scheme, measured.flows, measured.duration_s) == ("quic-cubic", 1, 30.0)
    # what Pantheon counts are whole packets
    assert measured.goodput_bps == pytest.approx(6e6 * 1448 / 1500, rel=0.02)
    assert (measured.delay_p95_s, measured.loss) == (pytest.approx(0.055), 0.01)
    (tmp_path / "pantheon_metadata.json").write_text('{"runtime": 60}')
    assert read_measurements(file)[0].duration_s == 60
    (tmp_path / "pantheon_metadata.json").write_text('{"runtime": -4}')
    with pytest.raises(pathcast.TraceError, match=r"runtime: got"):
        read_measurements(file)
    series = tmp_path / "series.json.gz"
    rates = [1.0, 2.0, 3.0, 4.0, 9.0]
    runs = {"1": {"throughput_mbps": rates, "half_min_rtt_ms": 30}}
    series.write_bytes(gzip.compress(json.dumps({"bin_s": 0.5, "schemes": {"bbr": runs}}).encode()))
    (measured,) = read_measurements(series)
    assert (measured.duration_s, measured.delay_min_s) == (1.5, pytest.approx(0.03))
    assert len(measured.rates_bps) == 3
    assert measured.goodput_bps == pytest.approx(3e6 * 1448 / 1500, rel=0.02)


def test_packed_files_that_are_damaged_are_said(tmp_path):
    packed = gzip.compress(json.dumps({"bin_s": 0.5, "schemes": {"bbr": {}}}).encode() * 9)
    for damaged in (packed[:-20], packed[:12] + b"\xff\xff\xff" + packed[15:], packed[:3]):
        file = tmp_path / "series.json.gz"
        file.write_bytes(damaged)
        with pytest.raises(pathcast.TraceError, match=r"cannot be read: "):
            read_measurements(file)
        file.rename(tmp_path / "series.up.gz")
        assert any(
            "series.up.gz: cannot be read: " in one for one in map(str, catalog([tmp_path]).refused)
        )


def test_what_cannot_be_a_calibration_of_schemes_is_said(tmp_path, reports):
    text = reports[0].read_text()
    for name, content, error in (
        ("damaged.json", text.replace('"goodput_bps"', '"x"'), "has no 'goodput_bps'"),
        ("request.json", text.replace('"bulk"', '"request"'), "got a flow that is not bulk"),
        ("alone.json", text, "got 1 schemes that the simulator has, expected at least two"),
        ("other.json", '{"name": 3}', "other.json"),
    ):
        file = tmp_path / name
        file.write_text(content)
        done = run("calibrate", file)
        assert done.returncode == 2, name
        assert error in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    done = run("calibrate", *reports, "--flow", "0")
    assert "got --flow or --scheme" in done.stderr
    done = run("calibrate", reports[0], tmp_path / "other.json")
    assert "expected what a scheme got" in done.stderr
    unknown = tmp_path / "pantheon_perf.json"
    one = {"tput": 6.0, "delay": 55.0, "loss": 0.0}
    unknown.write_text(json.dumps({"sprout": {"1": {"all": one, "1": one}}}))
    assert "left out: sprout" in run("calibrate", unknown).stderr
