"""From one flow to what others would get: `pathcast calibrate` and `pathcast what-if`."""

import dataclasses
import json
import math

import numpy as np
import pytest

import pathcast
from conftest import run, without_scheme
from pathcast.calibration.closed_forms import first_estimate, first_estimate_policed
from pathcast.calibration.features import lagging, observe, sampled
from pathcast.calibration.words import competing_text
from pathcast.scenario import with_receive_window

#: Rate in Mbit/s, round trip in ms, queue in round trips, random loss.
PATHS = {"filled": (12, 40, 1.0, 0), "never-filled": (60, 50, 4.0, 2e-3)}


def path_of(name):
    rate, rtt, queue, loss = PATHS[name]
    size = rate * 1e6 / 8 * rtt / 1e3 * queue
    return pathcast.Path.parse(
        f"rate = '{rate} Mbit/s'\ndelay = '{rtt / 2} ms'\nqueue = '{size:.0f} B'\nloss = {loss}\n"
    )


@pytest.fixture(scope="module")
def traces():
    return {
        name: pathcast.simulate(path_of(name), ["cubic"], duration_s=20, seed=7)[1]
        for name in PATHS
    }


@pytest.fixture(scope="module")
def calibrations(traces):
    return {name: pathcast.calibrate(trace) for name, trace in traces.items()}


def test_a_flow_that_fills_its_path_tells_rate_delay_and_queue(calibrations):
    found = calibrations["filled"]
    for name, truth, part in [
        ("rate_bps", 12e6, 0.03),
        ("rtt_s", 0.04, 0.03),
        ("queue_s", 0.04, 0.1),
    ]:
        one = found.parameters[name]
        assert one.median == pytest.approx(truth, rel=part), name
        assert 0.98 * one.p5 < truth < 1.02 * one.p95, name
        assert one.identified
        assert not one.narrowed_by
    # all losses were the queue's: only a bound of the random ones is known
    loss = found.parameters["loss"]
    assert not loss.identified
    assert loss.narrowed_by
    assert loss.p95 < 5e-3
    assert found.misfit < 1.5
    assert found.warnings == ()


def test_a_flow_that_never_fills_its_path_tells_the_rate_by_its_bursts(traces, calibrations):
    goodput_bps = np.nanmax(traces["never-filled"].columns["snd_una_bytes"]) * 8 / 20
    assert goodput_bps < 20e6
    found = calibrations["never-filled"].parameters
    assert found["rate_bps"].median == pytest.approx(60e6, rel=0.15)
    assert found["rtt_s"].median == pytest.approx(0.05, rel=0.03)
    assert found["loss"].median == pytest.approx(2e-3, rel=0.5)
    assert found["loss"].identified
    # the queue is longer than what was seen of it, and no more is known
    assert not found["queue_s"].identified
    assert found["queue_s"].p95 > 3 * found["queue_s"].p5


def test_a_policer_is_told_from_a_queue_and_has_its_rate_and_bucket(calibrations, tmp_path):
    policer = "policer = { rate = '10 Mbit/s', burst = '60 kB' }"
    path = pathcast.Path.parse(f"rate = '80 Mbit/s'\ndelay = '15 ms'\n{policer}\n")
    _, trace = pathcast.simulate(path, ["cubic"], duration_s=20, seed=3)
    found = pathcast.calibrate(trace)
    assert found.misfit < 1.5 and found.line_rate_bps > 40e6
    assert found.parameters["rate_bps"].median == pytest.approx(10e6, rel=0.1)
    assert found.parameters["burst_bytes"].median == pytest.approx(60e3, rel=0.3)
    assert found.parameters["rtt_s"].median == pytest.approx(0.03, rel=0.03)
    assert "queue_s" not in found.parameters
    assert calibrations["filled"].line_rate_bps is None
    # kept and read again, it is still a policer, and BBR gets over it what it gets over the true one
    file = tmp_path / "policed.toml"
    found.write(file)
    assert "policer" in file.read_text()
    again = pathcast.Calibration.load(file)
    assert again.line_rate_bps == found.line_rate_bps
    (got,) = pathcast.what_if(
        again, [pathcast.Alternative("bbr")], draws=10, duration_s=20
    ).outcomes
    report, _ = pathcast.simulate(path, ["bbr"], duration_s=20, seed=9)
    assert got.goodput_bps.p5 / 1.1 < report.flows[0].goodput_bps < 1.1 * got.goodput_bps.p95
    # a hostile posterior
    text = (tmp_path / "policed.posterior.json").read_text()
    for bad in ("-1", '"fast"', "true", "NaN"):
        value = f'"line_rate_bps": {found.line_rate_bps}'
        assert value in text
        (tmp_path / "bad.posterior.json").write_text(text.replace(value, f'"line_rate_bps": {bad}'))
        with pytest.raises(pathcast.PathFileError, match="expected a positive number"):
            pathcast.Calibration.load(tmp_path / "bad.posterior.json")


#: A policer before a link that is hardly faster.
SLOW_LINK_BPS = 8.68e6
BEFORE_A_SLOW_LINK = pathcast.Path.parse(
    f"rate = '{SLOW_LINK_BPS:.0f} bit/s'\ndelay = '17.9 ms'\nqueue = '55 kB'\n"
    "policer = { rate = '5.17 Mbit/s', burst = '70 kB' }\n"
)


def test_a_receiver_whose_window_opens_is_imitated(tmp_path):
    """Linux acknowledges each packet while it opens its window, so slow start ends earlier, with fewer losses."""
    cubic = pathcast.Alternative("cubic")
    _, trace = pathcast.simulate(cubic.scenario(BEFORE_A_SLOW_LINK, "auto"), duration_s=20, seed=3)
    found = pathcast.calibrate(trace)
    assert found.receive_window == "auto" and found.misfit < 1.0
    assert found.line_rate_bps == pytest.approx(SLOW_LINK_BPS, rel=0.02)
    assert found.parameters["rate_bps"].median == pytest.approx(5.17e6, rel=0.05)
    assert found.parameters["burst_bytes"].median == pytest.approx(70e3, rel=0.15)
    file = tmp_path / "policed.toml"
    found.write(file)
    assert pathcast.Calibration.load(file).receive_window == "auto"
    # others meet such receivers too: the losses of slow start are those of the flow
    ((got,), (other,)) = (
        pathcast.what_if(one, [cubic], draws=20, duration_s=3).outcomes
        for one in (found, dataclasses.replace(found, receive_window=None))
    )
    report, _ = pathcast.simulate(cubic.scenario(BEFORE_A_SLOW_LINK, "auto"), duration_s=3, seed=4)
    assert got.loss.p5 < report.loss_rate < got.loss.p95 < other.loss.median
    posterior = tmp_path / "policed.posterior.json"
    posterior.write_text(posterior.read_text().replace('"auto"', '"automatic"'))
    with pytest.raises(pathcast.PathFileError, match="expected auto or null"):
        pathcast.Calibration.load(posterior)


def test_a_lossy_link_that_was_never_full_is_no_policer():
    """Where a policer explains a flow hardly better than a queue, it is a queue."""
    path = pathcast.Path.parse("rate = '20 Mbit/s'\ndelay = '25 ms'\nqueue = '500 kB'\nloss = 0.01")
    _, trace = pathcast.simulate(path, ["cubic"], duration_s=10)
    found = pathcast.calibrate(trace)
    assert found.line_rate_bps is None
    assert found.parameters["rate_bps"].p5 < 20e6 < found.parameters["rate_bps"].p95


def test_schemes_over_quic_and_udp_have_no_receive_window():
    call = {"kind": "constant-rate", "rate": "1 Mbit/s"}
    scenario = pathcast.Scenario.over(path_of("filled"), ["quic-cubic"])
    scenario = scenario.with_flow(scheme="udp", workload=call).with_flow(scheme="reno")
    windows = [
        with_receive_window(scenario, "auto").flow(number).get("receive_window")
        for number in range(3)
    ]
    assert windows[:2] == [None, None] and windows[2]
    # the connections of a page have a scheme each, and are one flow
    urls = ", ".join(f"{{ url = 'http://a.org/{name}', size = '9 kB' }}" for name in "abc")
    got = f"{{ resources = [{urls}] }}"
    page = f"{{ kind = 'page', protocol = 'http/1.1', page = {got} }}"
    loading = pathcast.Alternative("cubic", page).scenario(path_of("filled"), "auto")
    assert len(loading.schemes) > 1 and loading.flow(0)["receive_window"]
    assert with_receive_window(scenario, None) is scenario


def test_a_link_that_is_hardly_faster_than_its_policer_has_its_rate():
    _, trace = pathcast.simulate(BEFORE_A_SLOW_LINK, ["cubic"], duration_s=20, seed=3)
    first = first_estimate_policed(observe(trace, 0))
    assert first.line_rate_bps == pytest.approx(SLOW_LINK_BPS, rel=0.02)


@pytest.mark.parametrize("rivals", [("cubic",), ("bbr",)])
def test_a_flow_beside_others_tells_the_whole_link(rivals, tmp_path):
    """The flow gets a part of the rate; the link, its queue and who shares it are inferred all the same."""
    path = pathcast.Path.parse("rate = '10 Mbit/s'\ndelay = '20 ms'\nqueue = '50 kB'")
    scenario = pathcast.Scenario.over(path, rivals).with_flow(scheme="cubic", start="7 s")
    report, trace = pathcast.simulate(scenario, duration_s=27, seed=3)
    assert report.flows[1].goodput_bps < 6e6
    found = pathcast.calibrate(trace, 1)
    assert found.competing == rivals
    assert found.parameters["rate_bps"].median == pytest.approx(10e6, rel=0.1)
    assert found.parameters["queue_s"].median == pytest.approx(0.04, rel=0.1)
    # kept and read again, others still meet the same flows
    found.write(tmp_path / "path.toml")
    again = pathcast.Calibration.load(tmp_path / "path.toml")
    assert again.competing == rivals
    assert again.competing_of_draws == found.competing_of_draws
    (got,) = pathcast.what_if(
        again, [pathcast.Alternative("cubic")], draws=8, duration_s=20
    ).outcomes
    assert got.goodput_bps.median == pytest.approx(report.flows[1].goodput_bps, rel=0.3)


def test_how_many_flows_compete_stays_open_where_a_flow_does_not_tell(tmp_path):
    """One of three CUBIC flows: their number is told by one or two, each with its probability, and forecasts have all."""
    path = pathcast.Path.parse("rate = '9 Mbit/s'\ndelay = '24 ms'\nqueue = '45 kB'")
    scenario = pathcast.Scenario.over(path, ["cubic"] * 3).with_flow(scheme="cubic", start="8 s")
    _, trace = pathcast.simulate(scenario, duration_s=38, seed=5)
    found = pathcast.calibrate(trace, 3)
    sets = found.competing_sets
    assert sum(sets.values()) == pytest.approx(1)
    assert ("cubic",) * 3 in sets
    assert len(sets) > 1, "the flow alone does not tell their number"
    assert max(sets.values()) == sets[found.competing]
    assert len(found.competing_of_draws) == len(found.samples)
    assert len({len(one.schemes) for one in found.paths(60)}) > 1
    beside = pathcast.Scenario.over(path, ["cubic"] * 3).with_flow(scheme="bbr", start="8 s")
    truths = [
        pathcast.simulate(beside, duration_s=38, seed=seed)[0].flows[3].goodput_bps
        for seed in range(6, 10)
    ]
    (bbr,) = pathcast.what_if(found, [pathcast.Alternative("bbr")], draws=200).outcomes
    assert sum(bbr.goodput_bps.p5 < truth < bbr.goodput_bps.p95 for truth in truths) >= 3
    # kept, read again, and said
    found.write(tmp_path / "path.toml")
    again = pathcast.Calibration.load(tmp_path / "path.toml")
    assert again.competing_sets == sets
    assert competing_text(again).startswith("It is shared with ")
    assert f"flows ({sets[found.competing]:.0%})" in competing_text(again)
    # hostile sets of flows
    kept = json.loads((tmp_path / "path.posterior.json").read_text())
    bad = tmp_path / "bad.posterior.json"
    for numbers in ([0], [0] * 399 + [99], [0] * 399 + [-1], ["0"] * 400, [True] * 400, 3, {}):
        bad.write_text(json.dumps(kept | {"set_of_sample": numbers}))
        with pytest.raises(pathcast.PathFileError, match="set_of_sample"):
            pathcast.Calibration.load(bad)
    without_flows = [*kept["competing_sets"][1:], {"schemes": []}]
    for sets in ([], "all", [{"schemes": ["cubic"] * 1000}], [3], None, without_flows):
        bad.write_text(json.dumps(kept | {"competing_sets": sets}))
        with pytest.raises(pathcast.PathFileError, match="expected a posterior"):
            pathcast.Calibration.load(bad)
    bad.write_text(json.dumps(kept | {"competing": ["reno"]}))
    with pytest.raises(pathcast.PathFileError, match="no draw has the flows"):
        pathcast.Calibration.load(bad)


def test_flows_together_tell_what_each_leaves_open(tmp_path):
    rate, rtt_s, queue, loss = 20e6, 0.12, 0.9, 2e-3
    path = pathcast.Path.parse(
        f"rate = '{rate} bit/s'\ndelay = '{500 * rtt_s} ms'\nqueue = '{queue} BDP'\nloss = {loss}"
    )
    files, short = [], []
    for seed, scheme in enumerate(("cubic", "bbr"), 60):
        for seconds, into in ((15, files), (4, short)):
            into.append(tmp_path / f"{scheme}-{seconds}.parquet")
            pathcast.simulate(path, [scheme], duration_s=seconds, seed=seed)[1].write(into[-1])
    alone = pathcast.calibrate(pathcast.read_trace(files[0]))
    # CUBIC never fills the queue
    assert not alone.parameters["queue_s"].identified
    done = run("calibrate", *files, "--json", "-o", tmp_path / "path.toml")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for name, truth, part in (
        ("rate_bps", rate, 0.02),
        ("rtt_s", rtt_s, 0.02),
        ("queue_s", queue * rtt_s, 0.1),
    ):
        one = found["parameters"][name]
        assert one["identified"], name
        assert one["median"] == pytest.approx(truth, rel=part), name
    assert 0.5 * loss < found["parameters"]["loss"]["median"] < 2 * loss
    assert (found["flow"], found["scheme"]) == (None, "")
    assert [(one["scheme"], one["flow"]) for one in found["flows"]] == [("cubic", 0), ("bbr", 0)]
    assert [one["trace"] for one in found["flows"]] == [str(file) for file in files]
    assert pathcast.Calibration.load(tmp_path / "path.toml").flows[1].scheme == "bbr"
    assert "that explains them" in run("calibrate", *short).stdout
    refused = run("calibrate", *files, "--flow", "0")
    assert refused.returncode == 2
    assert "got --flow and 2 files" in refused.stderr


def test_what_live_calibration_refuses(tmp_path):
    for arguments, error in (
        ((), "expected either FILE... or --live HOST"),
        (("trace.parquet", "--live", "host"), "expected either FILE... or --live HOST"),
        (("--live", "host"), "--live needs --key FILE"),
        (("--live", "host", "--key", "key", "--flow", "1"), "got --flow or --scheme; with --live"),
        (("--live", "host", "--key", "key"), "--yes says that this is all right"),
        (("--live", "host:0", "--key", "key", "--yes"), "host:0"),
    ):
        done = run("calibrate", *arguments)
        assert done.returncode == 2, (arguments, done.stderr)
        assert error in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_bbr_is_foretold_from_a_cubic_flow(calibrations):
    """The flow itself got a fifth of the rate; what it got is no forecast of what BBR gets."""
    asked = [pathcast.Alternative("cubic"), pathcast.Alternative("bbr")]
    found = pathcast.what_if(calibrations["never-filled"], asked, draws=20, duration_s=20)
    truths = [
        pathcast.simulate(path_of("never-filled"), [one.scheme], duration_s=20, seed=99)[0]
        .flows[0]
        .goodput_bps
        for one in asked
    ]
    assert truths[1] > 3 * truths[0]
    for outcome, truth in zip(found.outcomes, truths, strict=True):
        assert outcome.goodput_bps.median == pytest.approx(truth, rel=0.2)
        assert outcome.goodput_bps.p5 < truth < outcome.goodput_bps.p95
    assert (found.best, found.sure, found.by) == (1, True, "goodput_bps")


def test_equal_alternatives_are_not_surely_different(calibrations):
    same = [pathcast.Alternative("reno"), pathcast.Alternative("reno")]
    found = pathcast.what_if(calibrations["filled"], same, draws=10, duration_s=5)
    assert not found.sure
    assert found.better[0, 1] == found.better[1, 0] == 0.5


def test_transfers_are_ranked_by_their_completion():
    transfer = "{ kind = 'transfer', size = '500 kB', count = 1 }"
    asked = [pathcast.Alternative("cubic", transfer, window) for window in (4, 40)]
    path = pathcast.Path.parse("rate = '100 Mbit/s'\ndelay = '50 ms'")
    found = pathcast.what_if(path, asked, draws=5)
    assert (found.by, found.best, found.sure) == ("completion_s", 1, True)
    with pytest.raises(pathcast.ModelError, match="has no completion_s"):
        pathcast.what_if(
            path, [pathcast.Alternative("reno")], by="completion_s", draws=2, duration_s=2
        )
    with pytest.raises(pathcast.ModelError, match="expected one of goodput_bps"):
        pathcast.what_if(path, asked, by="speed", draws=2)


def test_records_before_and_after_an_acknowledgment_show_the_same_flow(traces):
    seen = observe(traces["filled"], 0, use_shortest=False, begin_s=0.0)
    before = lagging(seen)
    assert before.srtt_s[1:] == pytest.approx(seen.srtt_s[:-1])
    assert before.min_rtt_s == pytest.approx(0.041, rel=0.02)
    rare = sampled(seen, 0.1)
    assert len(rare.time_s) == pytest.approx(200, abs=5)
    assert first_estimate(rare).start[1] == pytest.approx(math.log(0.04), abs=0.1)


def test_a_calibration_is_read_as_it_was_written(calibrations, tmp_path):
    file = tmp_path / "path.toml"
    calibrations["filled"].write(file)
    again = pathcast.Calibration.load(file)
    assert np.array_equal(again.samples, calibrations["filled"].samples)
    assert again.to_dict() == calibrations["filled"].to_dict()
    assert pathcast.Path.load(file).toml == again.path().toml
    posterior = tmp_path / "path.posterior.json"
    for broken in [
        "{",
        "[]",
        '{"format": "x"}',
        posterior.read_text().replace("samples", "Samples"),
    ]:
        posterior.write_text(broken)
        with pytest.raises(pathcast.PathFileError, match="expected a posterior"):
            pathcast.Calibration.load(file)


def test_commands(tmp_path):
    trace, path = tmp_path / "trace.parquet", tmp_path / "path.toml"
    pathcast.simulate(path_of("filled"), ["cubic"], duration_s=8, seed=7)[1].write(trace)
    done = run("calibrate", trace, "-o", path)
    assert done.returncode == 0, done.stderr
    assert "at most" in done.stdout
    assert "Nothing was written" not in done.stdout
    unkept = run("calibrate", trace)
    assert "Nothing was written. -o path.toml keeps this path" in " ".join(unkept.stdout.split())
    options = (
        "--scheme",
        "cubic",
        "--scheme",
        "bbr",
        "--initial-window",
        10,
        "--draws",
        5,
        "--duration",
        5,
        "--json",
    )
    done = run("what-if", path, *options)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["scheme"] for one in found["alternatives"]] == ["cubic", "bbr"]
    assert set(found["alternatives"][0]["goodput_bps"]) == {"median", "p5", "p95"}
    assert {"delay_p95_ms", "loss", "completion_s"} <= set(found["alternatives"][0])
    assert {"best", "sure", "path"} <= set(found)
    assert found["path"]["parameters"]["rate_bps"]["identified"]
    said = run("what-if", path, *options[:-1]).stdout
    assert "Best by goodput: " in said
    assert "Flows without an end ran for 5 s." in said
    sends = ("--workload", "{ kind = 'transfer', size = '100 kB', count = 1 }")
    said = run("what-if", path, *options[:-1], *sends).stdout
    assert "Best by completion time: " in said
    assert "Flows with an end had at most 100 s." in said
    named = run("what-if", "12mbps-60ms-1bdp", *options)
    assert named.returncode == 0, named.stderr
    # the same from the trace, which is calibrated first
    page = tmp_path / "page.html"
    again = json.loads(run("what-if", trace, *options, "-o", page).stdout)
    assert again["alternatives"] == found["alternatives"]
    text = page.read_text()
    for one in found["alternatives"]:
        assert f"{1e-6 * one['goodput_bps']['median']:.3g} (" in text
    rate = found["path"]["parameters"]["rate_bps"]["median"]
    assert f"<td>{1e-6 * rate:.3g} Mbit/s</td>" in text
    refused = run("what-if", path, "-o", tmp_path / "no" / "page.html")
    assert refused.returncode == 2
    assert "page.html" in refused.stderr


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (
            {"time_s": [0.1, 0.2], "cwnd_packets": [10, 11]},
            "no acknowledged bytes or no round-trip times",
        ),
        (
            {
                "time_s": [0.1, 0.2],
                "cwnd_packets": [10, 11],
                "snd_una_bytes": [1448, 2896],
                "srtt_s": [0.1, 0.1],
            },
            "has 2 records in 0.2 s; expected at least 50 records and 2 s",
        ),
    ],
)
def test_a_trace_that_says_too_little_is_refused(rows, error):
    trace = pathcast.Trace.from_columns({name: np.array(values) for name, values in rows.items()})
    with pytest.raises(pathcast.ModelError, match=error):
        pathcast.calibrate(trace, scheme="cubic")


def test_an_application_that_sends_little_gives_bounds_and_says_so():
    path = pathcast.Path.parse("rate = '50 Mbit/s'\ndelay = '20 ms'")
    workload = "{ kind = 'constant-rate', rate = '2 Mbit/s', portion = '1000 B' }"
    scenario = pathcast.Scenario.over(path, ["cubic"], workload)
    _, trace = pathcast.simulate(scenario, duration_s=20)
    found = pathcast.calibrate(trace)
    assert "application limited the flow" in found.warnings[0]
    assert found.parameters["rtt_s"].median == pytest.approx(0.04, rel=0.1)


@pytest.mark.parametrize(
    ("command", "how"),
    [
        (("what-if",), "give it with --trace-scheme, such as --trace-scheme cubic"),
        (("calibrate",), "give it with --scheme, such as --scheme cubic"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_flow_without_a_scheme_names_the_option_of_the_command(tmp_path, command, how):
    file = without_scheme(tmp_path, "rate = '10 Mbit/s'\ndelay = '20 ms'")
    done = run(*command, file)
    assert done.returncode == 2
    assert f"flow 0 has no congestion control in the trace; {how}" in done.stderr
    with pytest.raises(pathcast.ModelError, match="give it by scheme"):
        pathcast.calibrate(pathcast.read_trace(file))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--scheme", "cubic", "--scheme", "qubic"), '"qubic" is no scheme of the simulator'),
        (("--workload", "{ kind = 'transfr' }"), 'kind: got "transfr", expected one of'),
        (("--initial-window", 100_000), "initial_window: got 100000, expected"),
        (("--by", "speed"), "got 'speed'; expected one of goodput_bps"),
    ],
    ids=lambda value: value[0].strip("-") if isinstance(value, tuple) else "",
)
def test_wrong_alternatives_are_refused_before_the_trace_is_read(tmp_path, options, said):
    # a file that is no trace: its own error would come first if it was read first
    trace = tmp_path / "trace.parquet"
    trace.write_text("no trace")
    done = run("what-if", trace, *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert "alternative:" not in done.stderr
    assert "simulation 0" not in done.stderr


def test_a_scheme_that_the_simulator_lacks_is_named(traces):
    with pytest.raises(pathcast.PathcastError, match="hybla"):
        pathcast.calibrate(traces["filled"], scheme="hybla")
    with pytest.raises(pathcast.TraceError, match="flow 5"):
        pathcast.calibrate(traces["filled"], 5)


def test_delay_and_loss_are_those_of_the_alternatives_own_packets():
    path = pathcast.Path.parse("rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '2 BDP'\n")
    steady = {"kind": "constant-rate", "rate": "6 Mbit/s"}
    beside = pathcast.Scenario.over(path, ["udp"]).replace_flow(0, workload=steady)
    transfer = pathcast.Alternative("cubic", "{ kind = 'transfer', size = '10 MB', count = 1 }")
    found = pathcast.what_if(beside, [transfer, pathcast.Alternative("cubic")], draws=3)
    short, endless = found.outcomes
    # it is done after 6 of 605 s, and then UDP has no queue
    assert short.completion_s.median < 10
    assert short.delay_p95_ms.median > 60
    assert short.delay_p95_ms.median == pytest.approx(endless.delay_p95_ms.median, rel=0.1)
    # drops that hit UDP are none of its own
    report, _ = pathcast.simulate(
        transfer.scenario(path).with_flow(scheme="udp", start="0 s", workload=steady),
        duration_s=60,
        record=False,
    )
    own, other = report.groups
    assert 0 < own["loss_rate"] < 1 and other["loss_rate"] < 0.1
    assert own["one_way_delay_ms"]["p95"] > 2 * other["one_way_delay_ms"]["p50"]
    assert report.packets_delivered == own["packets_delivered"] + other["packets_delivered"]
