"""Whether a flow has its link alone: seen between the acknowledgments of pairs of its packets."""

import json
from dataclasses import replace

import numpy as np
import pytest

import pathcast
from conftest import run
from pathcast.calibration.features import observe, sampled
from pathcast.calibration.sharing import link_use_of

PATH = "rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '2 BDP'\n"


def seen_in(scenario, scheme="cubic", seconds=25):
    """What the sender of the last flow saw, which began when the others had been there for 5 s."""
    scenario = scenario.with_flow(scheme=scheme, start="5 s")
    _, trace = pathcast.simulate(scenario, duration_s=5 + seconds, seed=3)
    return observe(trace, len(scenario.schemes) - 1)


def beside(others, toml=PATH):
    return pathcast.Scenario.over(pathcast.Path.parse(toml), others)


def alone(toml, scheme="cubic"):
    _, trace = pathcast.simulate(pathcast.Path.parse(toml), [scheme], duration_s=25, seed=3)
    return observe(trace, 0)


@pytest.mark.parametrize("others", [["cubic"], ["cubic"] * 3, ["bbr"], ["reno"]])
@pytest.mark.parametrize("scheme", ["cubic", "reno"])
def test_others_are_seen_with_the_links_rate_and_their_part(scheme, others):
    seen = seen_in(beside(others), scheme)
    found = link_use_of(seen)
    assert found.rate_bps == pytest.approx(20e6, rel=0.005)
    carried_bps = seen.acked[-1] * 1500 * 8 / seen.duration_s
    assert found.others_part == pytest.approx(1 - carried_bps / 20e6, abs=0.03)


@pytest.mark.parametrize("others", [["cubic"], ["cubic", "cubic"]])
def test_they_are_seen_over_a_slow_link_too(others):
    """Where a single packet waits longer for the receiver's timer than for the link, and few are sent."""
    path = "rate = '0.8 Mbit/s'\ndelay = '10 ms'\nqueue = '15 kB'"
    found = link_use_of(seen_in(beside(others, path)))
    assert found.rate_bps == pytest.approx(0.8e6, rel=0.005)
    assert found.others_part > 0.4


@pytest.mark.parametrize("size", [500, 1000, 1200, 1448])
@pytest.mark.parametrize("scheme", ["cubic", "bbr"])
def test_packets_of_another_size_give_no_other_rate(scheme, size):
    workload = {"kind": "constant-rate", "rate": "7 Mbit/s", "portion": f"{size} B"}
    found = link_use_of(seen_in(beside(["udp"]).replace_flow(0, workload=workload), scheme))
    # BBR paces, so that nearly each pair has others between: nothing may be said
    assert found is not None or (scheme == "bbr" and size < 1448)
    if found is not None:
        assert found.rate_bps == pytest.approx(20e6, rel=0.005)
        assert found.others_part == pytest.approx(0.36, abs=0.02)


def test_what_others_take_varies_if_they_react():
    workload = {"kind": "constant-rate", "rate": "7 Mbit/s"}
    steady = link_use_of(seen_in(beside(["udp"]).replace_flow(0, workload=workload)))
    reacting = link_use_of(seen_in(beside(["cubic"])))
    assert steady.others_vary < 0.01 < reacting.others_vary


@pytest.mark.parametrize("scheme", ["cubic", "reno", "bbr"])
@pytest.mark.parametrize("loss", [0, 1e-4, 1e-3, 0.01])
def test_a_flow_alone_is_never_taken_for_one_beside_others(loss, scheme):
    """Its window halves, its queue runs empty, its acknowledgments come in bursts: nobody is there all the same."""
    found = link_use_of(alone(f"{PATH}loss = {loss}", scheme))
    if loss < 0.001:
        assert found.others_part == 0
        assert found.rate_bps == pytest.approx(20e6, rel=0.005)
    else:
        # it may be that too few of its packets wait for the link
        assert found is None or found.others_part == 0


def test_others_that_take_little_are_not_counted():
    # Vegas gives way to CUBIC
    assert link_use_of(seen_in(beside(["vegas"]))) is None


@pytest.mark.parametrize(
    "toml",
    [
        "rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = { kind = 'codel' }",
        "rate = { kind = 'poisson', rate = '20 Mbit/s' }\ndelay = '20 ms'\nqueue = '2 BDP'",
        "rate = '20 Mbit/s'\nqueue = '2 BDP'\n"
        "delay = { kind = 'jitter', base = '20 ms', jitter = '1 ms', distribution = 'exponential' }",
        "rate = '100 Mbit/s'\ndelay = '20 ms'\npolicer = { rate = '20 Mbit/s', burst = '50 kB' }",
        "rate = { kind = 'steps', steps = [['0 s', '10 Mbit/s'], ['10 s', '4 Mbit/s']] }\n"
        "delay = '20 ms'\nqueue = '2 BDP'",
    ],
)
@pytest.mark.parametrize("scheme", ["cubic", "bbr"])
def test_other_causes_of_uneven_acknowledgments_are_no_others(toml, scheme):
    found = link_use_of(alone(toml, scheme))
    assert found is None or found.others_part == 0


@pytest.mark.parametrize("scheme", ["cubic", "bbr"])
def test_a_link_that_sends_in_slots_has_no_others(scheme, tmp_path):
    """As recorded rates of cellular links have it: packets leave at whole milliseconds, one or two of them."""
    generator = np.random.default_rng(5)
    slots = np.sort(generator.integers(1, 30_000, 12_000))
    (tmp_path / "slots.trace").write_text("".join(f"{one}\n" for one in slots))
    file = tmp_path / "path.toml"
    file.write_text(
        "rate = { kind = 'mahimahi', file = 'slots.trace' }\ndelay = '20 ms'\nqueue = '60 kB'"
    )
    _, trace = pathcast.simulate(pathcast.Path.load(file), [scheme], duration_s=25, seed=3)
    assert pathcast.link_use(trace) is None


def test_what_records_do_not_show_is_not_said():
    seen = seen_in(beside(["cubic"]))
    assert link_use_of(replace(seen, sent=None)) is None
    assert link_use_of(sampled(seen, 0.1)) is None
    # acknowledgments that came when they liked
    random = np.random.default_rng(3).uniform(0, seen.duration_s, len(seen.time_s))
    assert link_use_of(replace(seen, time_s=np.sort(random))) is None


def test_a_flow_that_fits_a_slower_link_too_is_seen_to_share_a_faster_one():
    """Over a queue of ten packets that is never empty, a path of its own explains the flow well, and is wrong."""
    path = "rate = '1.542 Mbit/s'\ndelay = '26.2 ms'\nqueue = '15 kB'"
    scenario = beside(["cubic"], path).with_flow(scheme="cubic", start="5 s")
    _, trace = pathcast.simulate(scenario, duration_s=35, seed=1)
    # as tcp_probe has it, without the round trip of before the queue was there
    trace.columns["min_rtt_s"][:] = np.nan
    found = pathcast.calibrate(trace, 1)
    assert found.competing == ("cubic",)
    assert found.parameters["rate_bps"].median == pytest.approx(1.542e6, rel=0.03)
    delay = found.parameters["rtt_s"]
    assert not delay.identified
    assert not found.parameters["queue_s"].identified
    assert delay.p5 < 0.0524 < delay.p95


def test_a_flow_that_is_seen_alone_has_no_competitors(tmp_path):
    trace = tmp_path / "trace.parquet"
    _, seen = pathcast.simulate(pathcast.Path.parse(PATH), ["cubic"], duration_s=20, seed=3)
    seen.write(trace)
    done = run("diagnose", trace)
    assert "No other flow uses the link, which carries 20 Mbit/s." in done.stdout, done.stderr
    done = run("diagnose", trace, "--json")
    (flow,) = json.loads(done.stdout)["flows"]
    assert flow["link"] == {"rate_bps": pytest.approx(20e6), "others_part": 0, "others_vary": 0}
    page = tmp_path / "page.html"
    assert run("diagnose", trace, "-o", page).returncode == 0
    assert "No other flow uses the link" in page.read_text()


def test_a_trace_without_sequence_numbers_tells_nothing(tmp_path):
    scenario = beside(["cubic"]).with_flow(scheme="cubic", start="5 s")
    _, trace = pathcast.simulate(scenario, duration_s=25, seed=3)
    found = pathcast.link_use(trace, 1)
    assert found.text().startswith("While its packets wait, other flows take ")
    trace.columns["snd_nxt_bytes"][:] = np.nan
    assert pathcast.link_use(trace, 1) is None
    with pytest.raises(pathcast.TraceError, match="flow 2"):
        pathcast.link_use(trace, 2)
