"""Flows of congestion controls without a window law: what is said of them, and what is not."""

import json

import numpy as np
import pytest

import pathcast
from conftest import run
from pathcast.models import law_of, not_applicable

PATH = pathcast.Path.parse("rate = '12 Mbit/s'\ndelay = '30 ms'\nqueue = '1 BDP'\nloss = 0.0002\n")
SCHEMES = ("bbr", "vegas", "copa")


@pytest.fixture(scope="module", params=SCHEMES)
def lawless(request, tmp_path_factory):
    """Forty seconds of a scheme in the simulator: trace, file, name and true rate in packets a second."""
    report, trace = pathcast.simulate(PATH, [request.param], duration_s=40, seed=2)
    file = tmp_path_factory.mktemp("traces") / f"{request.param}.parquet"
    trace.write(file)
    trace = pathcast.read_trace(file)
    rate = report.flows[0].goodput_bps / 8 / trace.metadata["mss_bytes"]
    return trace, file, request.param, rate


def test_evaluate_judges_the_models_that_need_no_law(lawless):
    _, file, scheme, _ = lawless
    done = run("evaluate", file, "--horizon", 1, "--horizon", 5, "--json")
    assert done.returncode == 0, done.stderr
    (flow,) = json.loads(done.stdout)["traces"]
    assert flow["cc"] == scheme
    assert flow["not_applicable"]["econ"] == f"no window law is known for {scheme}"
    for horizon in flow["horizons"]:
        for model, error in horizon["median_error_pct"].items():
            assert (error is None) == (model in flow["not_applicable"]), model
        for model in (
            "last_sample",
            "ewma",
            "holt_winters",
            "harmonic_mean",
            "window_mean",
            "pathcast",
        ):
            assert horizon["median_error_pct"][model] < 25, model
        assert 0.5 <= horizon["coverage90"] <= 1
    said = " ".join(run("evaluate", file, "--horizon", 1).stdout.split())
    assert f"no window law is known for {scheme}" in said


def test_fit_measures_and_says_what_is_no_law(lawless):
    trace, file, scheme, rate = lawless
    done = run("fit", file, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    (flow,) = result["flows"]
    assert flow["cc"] == scheme
    assert flow["rtt_s"] == pytest.approx(np.nanmedian(trace.columns["srtt_s"]))
    assert flow["rate_packets_per_s"] == pytest.approx(rate, rel=0.05)
    assert flow["losses"] <= flow["sent_again"]
    assert 0 < flow["loss_rate"] < 2e-3
    assert result["epochs"] == []
    assert {"epochs", "econ"} <= set(result["not_applicable"])
    # counted losses have a curve
    assert result["curve"]["losses"] == result["losses"]
    assert result["curve"]["packets"] == pytest.approx(flow["packets"], rel=0.01)


def test_falls_of_the_window_are_no_curve_without_a_law(lawless):
    trace, _, scheme, _ = lawless
    columns = dict(trace.columns) | {"retransmits": np.full(len(trace), np.nan)}
    bare = pathcast.Trace.from_columns(columns, trace.metadata)
    fitted = pathcast.fit(bare)
    assert fitted.curves == ()
    assert scheme in fitted.not_applicable["curve"]
    assert fitted.to_dict()["curve"] is None
    followed = pathcast.follow(bare)
    assert followed.curves == ()
    assert scheme in followed.not_applicable["curves"]


def test_follow_counts_what_is_counted(lawless):
    _, file, scheme, _ = lawless
    done = run("follow", file, "--json")
    assert done.returncode == 0, done.stderr
    (path,) = json.loads(done.stdout)["traces"]
    assert (path["cc"], path["not_applicable"]) == (scheme, {})
    assert path["curves"][0]["packets"] > 1000


def test_latency_of_the_next_bytes_rests_on_the_past(lawless):
    trace, file, scheme, rate = lawless
    done = run("latency", file, "--size", "1 MB", "--until", "sent", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["cc"] == scheme
    assert scheme in result["not_applicable"]["window"]
    packets = 1e6 / trace.metadata["mss_bytes"]
    assert result["transfers"][0]["median_s"] == pytest.approx(packets / rate, rel=0.3)
    new = json.loads(run("latency", file, "--new", "--size", "1 MB", "--json").stdout)
    assert scheme in new["not_applicable"]["loss"]
    assert packets / rate * 0.7 < new["transfers"][0]["median_s"] < packets / rate + 1
    score = pathcast.evaluate_latency(trace, [1_000_000], every_s=2)
    errors = {one.model: one.median_error_pct for one in score.sizes}
    assert score.cc == scheme
    assert {model for model, error in errors.items() if error is None} == {"state", "econ", "pftk"}
    assert set(score.not_applicable) == {"state", "econ", "pftk"}
    assert errors["pathcast"] < 25


def test_a_new_connection_of_bbr_is_slow_start_and_the_link():
    path = pathcast.Path.parse(
        "rate = '12 Mbit/s'\ndelay = '50 ms'\nloss = 0.01\nqueue = '1 BDP'\n"
    )
    small, large = pathcast.latency(path, [14_480, 12_000_000], cc="bbr")
    assert small.median_s == pytest.approx(0.2, abs=0.02)
    link_s = 12e6 * 8 * 1500 / 1448 / 12e6
    assert link_s < large.median_s < link_s + 1
    assert set(large.not_applicable) == {"loss", "cardwell_s", "econ_s", "pftk_s"}
    assert large.literature["econ_s"] is None
    assert large.literature["link_s"] is not None
    done = run("latency", "--rtt", 0.1, "--rate", "12 Mbit/s", "--scheme", "bbr", "--size", "1 MB")
    assert "no window law is known for bbr" in " ".join(done.stdout.split())


def test_models_refuse_by_name_what_they_say_nothing_of(lawless):
    trace, _, scheme, rate = lawless
    estimator = pathcast.Estimator.fit("ewma", trace)
    assert estimator.forecast(5).point == pytest.approx(rate, rel=0.3)
    with pytest.raises(pathcast.ModelError, match="econ says nothing"):
        pathcast.Estimator.fit("econ", trace).forecast(5)
    forecaster = pathcast.Forecaster(scheme, [5.0])
    forecaster.observe(trace.flow(0))
    forecast = forecaster.forecast(trace.flow(0).time_s[-1], 5.0)
    assert forecast.point == pytest.approx(rate, rel=0.3)


def test_quic_has_the_law_of_its_name():
    assert [law_of(name) for name in ("quic-cubic", "quic-reno", "cubic-hystart++")] == [
        "cubic",
        "reno",
        "cubic",
    ]
    assert [law_of(name) for name in ("bbr", "quic-bbr", "no such thing")] == ["other"] * 3
    assert "econ" not in not_applicable("quic-cubic")
    _, trace = pathcast.simulate(PATH, ["cubic"], duration_s=30, seed=3)
    metadata = trace.metadata | {"schemes": ["quic-cubic"]}
    quic = pathcast.Trace.from_columns(trace.columns, metadata)
    one, other = pathcast.fit(quic).to_dict(), pathcast.fit(trace).to_dict()
    for epoch in one["epochs"] + other["epochs"]:
        epoch.pop("trace")
    for flow in one["flows"] + other["flows"]:
        flow.pop("trace")
    assert one == other
    assert pathcast.evaluate(quic, [1.0]).cc == "cubic"


def test_a_short_flow_is_left_out_and_named(tmp_path):
    _, trace = pathcast.simulate(PATH, ["bbr", "cubic"], duration_s=20, seed=3)
    columns = trace.columns
    short = (columns["flow"] == 0) | (columns["time_s"] < 0.5)
    columns = {name: values[short] for name, values in columns.items()}
    file = tmp_path / "two.parquet"
    pathcast.Trace.from_columns(columns, trace.metadata).write(file)
    done = run("evaluate", file, "--horizon", 1, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [flow["flow"] for flow in result["traces"]] == [0]
    (left_out,) = result["left_out"]
    assert (left_out["trace"], left_out["flow"]) == (str(file), 1)
    assert "too short" in left_out["reason"]
    assert "flow 1: the trace lasts" in " ".join(
        run("evaluate", file, "--horizon", 1).stdout.split()
    )
    none = run("evaluate", file, "--horizon", 100)
    assert none.returncode != 0
    said = " ".join(none.stderr.split())
    assert "flow 0: " in said
    assert "flow 1: " in said
    assert "Traceback" not in said


def test_stores_of_curves_take_flows_with_a_law_alone(lawless, tmp_path):
    _, file, scheme, _ = lawless
    store = tmp_path / "store.json"
    done = run("fit", file, "--clusters", store, "--prefix", "192.0.2.0/24")
    assert done.returncode != 0
    assert f'"{scheme}", expected cubic or reno' in " ".join(done.stderr.split())
    assert not store.exists()
