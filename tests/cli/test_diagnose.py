"""`pathcast diagnose` and `pathcast evaluate limits`: what limits flows."""

import json

import numpy as np
import pytest

import pathcast
from conftest import run, without_scheme
from pathcast.experiments.limits import cells


def trace_of(path, scheme="cubic", duration_s=20, **keys):
    text = f"[links.path]\n{path}\n[[flows]]\nscheme = {scheme!r}\n"
    scenario = pathcast.Scenario.parse(text, "scenario.toml").replace_flow(0, **keys)
    return pathcast.simulate(scenario, duration_s=duration_s)[1]


CASES = {
    "path_rate": ("rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '2 BDP'", {}),
    "loss": ("rate = '200 Mbit/s'\ndelay = '20 ms'\nloss = 0.0003", {}),
    "policer": (
        "rate = '100 Mbit/s'\ndelay = '15 ms'\npolicer = {rate = '10 Mbit/s', burst = '40 kB'}",
        {},
    ),
    "receive_window": (
        "rate = '100 Mbit/s'\ndelay = '30 ms'",
        {"receive_window": "100 kB"},
    ),
    "application": (
        "rate = '20 Mbit/s'\ndelay = '20 ms'",
        {"workload": {"kind": "constant-rate", "rate": "3 Mbit/s"}},
    ),
    "idle": (
        "rate = '20 Mbit/s'\ndelay = '20 ms'",
        {"workload": {"kind": "transfer", "size": "50 kB", "pause": "2 s"}},
    ),
}


@pytest.mark.parametrize("limit", CASES)
def test_the_limit_is_named_with_its_share(limit):
    path, keys = CASES[limit]
    found = pathcast.limits(trace_of(path, **keys))
    assert found.limit == limit, found
    assert found.probability > 0.7
    assert sum(found.shares.values()) == pytest.approx(1)
    assert tuple(found.shares) == tuple(found.now) == pathcast.LIMITS


def test_bbr_that_fills_half_of_its_window_is_not_limited_by_its_application(tmp_path):
    trace = trace_of(CASES["path_rate"][0], scheme="bbr")
    assert pathcast.limits(trace).limit == "path_rate"
    # told to be a scheme that fills its window, it would be
    assert pathcast.limits(trace, scheme="cubic").shares["application"] > 0.2


def test_the_command_tells_each_flow_in_words_and_json(tmp_path):
    file = tmp_path / "trace.parquet"
    trace_of(CASES["loss"][0]).write(file)
    done = run("diagnose", file)
    assert done.returncode == 0, done.stderr
    assert "losses that no queue explains" in done.stdout
    assert "% sure" in done.stdout
    done = run("diagnose", file, "--json")
    (flow,) = json.loads(done.stdout)["flows"]
    assert (flow["flow"], flow["scheme"], flow["limit"]) == (0, "cubic", "loss")
    assert flow["shares"]["loss"] > 0.5


def test_advice_is_what_the_path_gives():
    """A lossy path helps those that do not cut their window at each loss; a full one is as fast for all."""
    lossy = pathcast.Path.parse(
        "rate = '50 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\nloss = 0.001"
    )
    _, trace = pathcast.simulate(lossy, ["cubic"], duration_s=20)
    found = pathcast.advise(trace, draws=10)
    assert (found.change.scheme, found.by, found.sure) == ("bbr", "goodput_bps", True)
    (then,), (now,) = (
        [
            flow.goodput_bps
            for flow in pathcast.simulate(lossy, [scheme], duration_s=20, seed=7)[0].flows
        ]
        for scheme in ("bbr", "cubic")
    )
    assert found.gain.p5 / 1.3 < then / now < 1.3 * found.gain.p95
    full = pathcast.Path.parse("rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '4 BDP'")
    _, trace = pathcast.simulate(full, ["cubic"], duration_s=20)
    found = pathcast.advise(trace, draws=10)
    assert (found.change.scheme, found.by) == ("bbr", "delay_p95_ms")
    assert found.gain.median > 2
    # and who has the best of both already is told to leave it
    _, trace = pathcast.simulate(full, ["bbr"], duration_s=20)
    found = pathcast.advise(trace, draws=10)
    assert found.change is None and len(found.tried.outcomes) == 3


def test_advice_where_no_configuration_of_the_sender_helps():
    for limit, said in (
        ("receive_window", "99.9 kB in a round trip of 60 ms are at most 13.3 Mbit/s"),
        ("application", "sends less than the path would carry"),
        ("idle", "Nothing is in flight"),
    ):
        path, keys = CASES[limit]
        found = pathcast.advise(trace_of(path, **keys))
        assert said in found.text, found.text
        assert found.change is found.tried is None


def test_a_flow_too_short_for_its_path_gets_a_larger_first_window():
    path = "rate = '50 Mbit/s'\ndelay = '40 ms'"
    transfer = {"workload": {"kind": "transfer", "size": "300 kB", "count": 1}}
    found = pathcast.advise(trace_of(path, **transfer))
    assert (found.change.initial_window, found.by, found.gain) == (40, "completion_s", None)
    assert "3 round trips of 80 ms instead of 4" in found.text


def test_the_command_advises_in_words_and_json(tmp_path):
    file = tmp_path / "trace.parquet"
    trace_of("rate = '10 Mbit/s'\ndelay = '20 ms'\nloss = 0.004", duration_s=10).write(file)
    done = run("diagnose", file, "--advise")
    assert done.returncode == 0, done.stderr
    assert "What would help: bbr: goodput" in done.stdout
    page = tmp_path / "page.html"
    done = run("diagnose", file, "--advise", "--json", "-o", page)
    text = page.read_text()
    assert "What would help:</b> bbr: goodput" in text
    assert "<td>cubic (now)</td>" in text
    advice = json.loads(done.stdout)["flows"][0]["advice"]
    assert advice["change"]["scheme"] == "bbr" and advice["gain"]["median"] > 1.2
    assert [one["scheme"] for one in advice["tried"]["alternatives"]] == ["cubic", "reno", "bbr"]
    assert "advice" not in json.loads(run("diagnose", file, "--json").stdout)["flows"][0]
    # a scheme that no simulator has
    done = run("diagnose", file, "--advise", "--scheme", "nonesuch")
    assert done.returncode == 0, done.stderr
    assert "What would help: not known: " in done.stdout


def test_advice_for_a_flow_without_a_scheme_names_the_option(tmp_path):
    file = without_scheme(tmp_path, "rate = '10 Mbit/s'\ndelay = '20 ms'\nloss = 0.004")
    done = run("diagnose", file, "--advise")
    assert done.returncode == 0, done.stderr
    assert "flow 0 has no congestion control in the trace; give it with --scheme," in done.stdout


def test_what_cannot_be_judged_is_said(tmp_path):
    file = tmp_path / "two.csv"
    file.write_text("time_s,cwnd_packets\n0.0,10\n0.0,11\n")
    done = run("diagnose", file)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    done = run("diagnose", tmp_path / "absent.parquet")
    assert done.returncode != 0
    assert "absent.parquet" in done.stderr
    trace = trace_of(CASES["loss"][0], duration_s=2)
    with pytest.raises(pathcast.TraceError, match="flow 7"):
        pathcast.limits(trace, 7)
    # windows alone: neither application nor queue can be seen, and no share is made up for them
    bare = pathcast.Trace.from_columns(
        {"time_s": np.arange(200) * 0.05, "cwnd_packets": np.full(200, 20.0)}
    )
    shares = pathcast.limits(bare).shares
    assert shares["application"] == shares["queue"] == shares["receive_window"] == 0


def test_flows_of_known_limit_are_named_kept_and_counted(tmp_path):
    out = tmp_path / "limits"
    done = run("evaluate", "limits", "--count", "4", "-o", out, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((out / "simulator.json").read_text())
    total = found["summary"][-1]
    counted = [row for row in found["flows"] if row["counts"]]
    assert total["limit"] is None
    assert total["flows"] == len(counted) >= 28
    assert total["right"] == sum(row["named"] == row["limit"] for row in counted)
    assert total["right"] >= 0.9 * total["flows"]
    assert total["right_p5"] < total["right"] / total["flows"] <= total["right_p95"]
    for row in found["flows"]:
        assert sum(row["truth"].values()) == pytest.approx(1)
    again = run("evaluate", "limits", "--count", "4", "-o", out)
    assert again.returncode == 0, again.stderr
    assert "path_rate" in again.stdout


def test_held_out_flows_are_others():
    chosen, held_out = (
        {flow.scenario().toml for flow in cells.flows(held_out=held_out)}
        for held_out in (False, True)
    )
    assert len(chosen) == len(held_out) == 200
    assert not chosen & held_out
