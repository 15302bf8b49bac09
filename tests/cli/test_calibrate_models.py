"""What a path may have beside a queue and a constant rate: rates that change, managed queues; and the kernel's own flows."""

import json

import numpy as np
import pytest

import pathcast
from conftest import run, until_valid
from pathcast.calibration.changes import mean_of, rate_steps
from pathcast.calibration.features import lagging, observe, without_lag
from pathcast.calibration.words import competing_text


def flow_over(path, *, seconds=30, scheme="cubic", seed=3):
    return pathcast.simulate(pathcast.Path.parse(path), [scheme], duration_s=seconds, seed=seed)[1]


CHANGES = """
rate = { kind = 'steps', steps = [['0 s', '10 Mbit/s'], ['10 s', '4 Mbit/s'], ['20 s', '7 Mbit/s']] }
delay = '20 ms'
queue = '50 kB'
"""


def test_changes_of_the_rate_are_found_when_they_happen():
    steps = rate_steps(observe(flow_over(CHANGES), 0))
    assert [rate / 1e6 for _, rate in steps] == pytest.approx([10, 4, 7], rel=0.05)
    assert [start_s for start_s, _ in steps] == pytest.approx([0, 10, 20], abs=1.1)
    assert mean_of(steps, 30) == pytest.approx(7e6, rel=0.08)


@pytest.mark.parametrize(
    "path",
    [
        "rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '100 kB'",
        "rate = '3 Mbit/s'\ndelay = '60 ms'\nqueue = '3 BDP'\nloss = 0.0005",
        "rate = { kind = 'poisson', rate = '6 Mbit/s' }\ndelay = '20 ms'\nqueue = '60 kB'",
    ],
)
def test_a_rate_that_stays_has_one_step_at_most(path):
    assert len(rate_steps(observe(flow_over(path), 0))) <= 1


def test_a_rate_that_changes_is_calibrated_with_its_steps(tmp_path):
    trace, file = tmp_path / "trace.parquet", tmp_path / "path.toml"
    flow_over(CHANGES).write(trace)
    done = run("calibrate", trace, "-o", file)
    assert done.returncode == 0, done.stderr
    assert "The rate changes, in Mbit/s:" in done.stdout
    found = pathcast.Calibration.load(file)
    assert found.link.kind == "steps"
    rate_bps = found.parameters["rate_bps"].median
    assert [1e-6 * rate_bps * factor for _, factor in found.link.steps] == pytest.approx(
        [10, 4, 7], rel=0.1
    )
    assert pathcast.Path.load(file).toml == found.path().toml
    bbr = pathcast.Alternative("bbr")
    truth = pathcast.simulate(pathcast.Path.parse(CHANGES), ["bbr"], duration_s=30)[0]
    (outcome,) = pathcast.what_if(found, [bbr], draws=8).outcomes
    assert outcome.goodput_bps.median == pytest.approx(truth.flows[0].goodput_bps, rel=0.1)


@pytest.mark.parametrize(
    ("queue", "target_s"), [("codel", 5e-3), pytest.param("pie", 15e-3, marks=pytest.mark.full)]
)
def test_a_managed_queue_is_seen_with_its_target(queue, target_s, tmp_path):
    path = f"rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = {{ kind = '{queue}' }}"
    found = pathcast.calibrate(flow_over(path))
    assert found.queue == queue
    target = found.parameters["target_s"]
    assert target.median == pytest.approx(target_s, rel=0.35)
    assert "queue_s" not in found.parameters
    assert found.parameters["rate_bps"].median == pytest.approx(20e6, rel=0.03)
    found.write(tmp_path / "path.toml")
    again = pathcast.Calibration.load(tmp_path / "path.toml")
    assert (again.queue, again.path().toml) == (queue, found.path().toml)
    damaged = tmp_path / "path.posterior.json"
    damaged.write_text(damaged.read_text().replace(f'"queue": "{queue}"', '"queue": "lifo"'))
    with pytest.raises(pathcast.PathFileError, match="got the queue 'lifo'"):
        pathcast.Calibration.load(damaged)


@pytest.mark.parametrize(
    ("rate_mbps", "one_way_ms", "queue", "jitter_ms"),
    [
        pytest.param(
            *(58.33, 47.7, "518514 B", 5.44),
            marks=pytest.mark.full,
            id="of many packets: they arrive in clumps",
        ),
        pytest.param(1.051, 111.56, "23751 B", 5.39, id="of less than a packet"),
    ],
)
def test_jitter_is_told_from_other_traffic_and_from_a_fast_link(
    rate_mbps, one_way_ms, queue, jitter_ms
):
    delay = f"{{ kind = 'jitter', base = '{one_way_ms} ms', jitter = '{jitter_ms} ms', distribution = 'exponential' }}"
    path = f"rate = '{rate_mbps} Mbit/s'\nqueue = '{queue}'\ndelay = {delay}\n[reverse]\ndelay = '{one_way_ms} ms'"
    found = pathcast.calibrate(flow_over(path))
    assert (found.line_rate_bps, found.competing, found.queue) == (None, (), "droptail")
    assert found.parameters["rate_bps"].median == pytest.approx(1e6 * rate_mbps, rel=0.15)
    assert found.parameters["rtt_s"].median == pytest.approx(2e-3 * one_way_ms, rel=0.05)
    assert found.parameters["jitter_s"].median == pytest.approx(1e-3 * jitter_ms, rel=0.5)


@pytest.mark.parametrize(
    ("rate_mbps", "one_way_ms", "queue", "loss", "seed"),
    [
        # a bucket that empties at some of the losses cuts the misfit by a quarter
        pytest.param(44, 5, "1.7 BDP", 0.0032, 19, id="for policed"),
        # four competitors over a queue of 3 ms cut it by a half
        pytest.param(60, 25, "4 BDP", 0.002, 6, marks=pytest.mark.full, id="for shared"),
    ],
)
def test_random_losses_are_not_taken(rate_mbps, one_way_ms, queue, loss, seed):
    path = (
        f"rate = '{rate_mbps} Mbit/s'\ndelay = '{one_way_ms} ms'\nqueue = '{queue}'\nloss = {loss}"
    )
    found = pathcast.calibrate(flow_over(path, seconds=10, seed=seed))
    assert (found.line_rate_bps, found.competing, found.queue) == (None, (), "droptail")
    assert found.parameters["rate_bps"].median == pytest.approx(1e6 * rate_mbps, rel=0.15)
    assert found.parameters["loss"].median == pytest.approx(loss, rel=0.5)


def test_a_queue_that_others_keep_filled_hides_the_propagation_delay(tmp_path):
    """The shortest round trip of a connection that opens over such a queue is that of the queue."""
    path = pathcast.Path.parse("rate = '2 Mbit/s'\ndelay = '20 ms'\nqueue = '3 BDP'")

    def beside(scheme, seed):
        others = pathcast.Scenario.over(path, ["cubic"])
        scenario = others.with_flow(scheme=scheme, start="8 s", handshake=True)
        return pathcast.simulate(scenario, duration_s=38, seed=seed)

    _, trace = beside("cubic", 5)
    assert np.nanmin(trace.columns["min_rtt_s"][trace.columns["flow"] == 1]) > 0.08
    trace.metadata["source"] = "watch"
    found = pathcast.calibrate(trace, 1)
    rtt = found.parameters["rtt_s"]
    assert found.competing == ("cubic",)
    assert rtt.p5 < 0.04 < rtt.median < 0.09
    assert (rtt.identified, found.opens) == (False, True)
    assert "nothing else queues" in rtt.narrowed_by
    found.write(tmp_path / "path.toml")
    again = pathcast.Calibration.load(tmp_path / "path.toml")
    assert again.opens
    (bbr,) = pathcast.what_if(again, [pathcast.Alternative("bbr")]).outcomes
    truths = [beside("bbr", seed)[0].flows[1].goodput_bps for seed in range(6, 10)]
    assert all(bbr.goodput_bps.p5 < truth < bbr.goodput_bps.p95 for truth in truths)


def test_both_are_kept_where_a_flow_does_not_tell_whether_others_share_its_path(tmp_path):
    path = pathcast.Path.parse("rate = '2 Mbit/s'\ndelay = '20 ms'\nqueue = '3 BDP'")
    others = pathcast.Scenario.over(path, ["cubic"])
    _, trace = pathcast.simulate(
        others.with_flow(scheme="cubic", start="8 s"), duration_s=38, seed=5
    )
    # tcp_probe does not record it; and without what was sent, acknowledgments do not show who uses the link
    trace.columns["min_rtt_s"][:] = np.nan
    trace.columns["snd_nxt_bytes"][:] = np.nan
    found = pathcast.calibrate(trace, 1)
    assert 0.05 < found.competing_sets[()] < 0.9
    assert ("cubic",) in found.competing_sets
    assert competing_text(found).startswith("It may be shared with ")
    found.write(tmp_path / "path.toml")
    again = pathcast.Calibration.load(tmp_path / "path.toml")
    assert again.competing_sets == found.competing_sets
    beside = others.with_flow(scheme="bbr", start="8 s")
    truths = [
        pathcast.simulate(beside, duration_s=38, seed=seed)[0].flows[1].goodput_bps
        for seed in range(6, 10)
    ]
    (bbr,) = pathcast.what_if(again, [pathcast.Alternative("bbr")]).outcomes
    assert all(bbr.goodput_bps.p5 < truth < bbr.goodput_bps.p95 for truth in truths)


def test_records_before_and_after_acknowledgments_are_turned_into_each_other():
    seen = observe(flow_over("rate = '9 Mbit/s'\ndelay = '20 ms'", seconds=5), 0)
    again = without_lag(lagging(seen))
    assert not again.lags
    assert np.array_equal(again.srtt_s[:-1], seen.srtt_s[:-1])


@pytest.mark.usefixtures("emulator")
def test_the_kernels_own_flows_correct_the_simulator():
    # 49.5 packets fit: within half a packet, 1 %, all queues are the same
    path = pathcast.Path.parse("rate = '15 Mbit/s'\ndelay = '20 ms'\nqueue = '0.99 BDP'")

    def attempt():
        report, trace = pathcast.emulate(path, ["cubic"], duration_s=8)
        if not report.valid:
            return None, "; ".join(report.invalid_because)
        try:
            found = pathcast.calibrate(trace, emulate=True)
        except pathcast.ModelError as error:
            return None, str(error)
        for name, truth in (("rate_bps", 15e6), ("rtt_s", 0.04), ("queue_s", 0.0396)):
            assert found.parameters[name].median == pytest.approx(truth, rel=0.04), name
        return found, ""

    until_valid(attempt, 4)


def test_a_prior_is_learned_from_known_paths_and_used_where_a_flow_tells_nothing(tmp_path):
    folder, trace = tmp_path / "known", tmp_path / "trace.parquet"
    folder.mkdir()
    path = "rate = '60 Mbit/s'\ndelay = '25 ms'\nqueue = '4 BDP'\nloss = 0.002"
    flow_over(path, seconds=10, seed=5).write(trace)
    for number, queue in enumerate((2.6, 2.9, 3.1, 3.4)):
        (folder / f"{number}.toml").write_text(
            f"rate = '9 Mbit/s'\ndelay = '20 ms'\nqueue = '{queue} BDP'\nloss = 0.001"
        )
    done = run("calibrate", trace, "--prior", folder)
    assert done.returncode == 2
    assert "got 4 paths" in done.stderr
    (folder / "5.toml").write_text("rate = '9 Mbit/s'\ndelay = '20 ms'\nqueue = '3 BDP'")
    wide, learned = (
        json.loads(run("calibrate", trace, "--json", *options).stdout)["parameters"]["queue_s"]
        for options in ((), ("--prior", folder))
    )
    assert not wide["identified"]
    # three round trips of 50 ms, and less open than without it
    assert learned["median"] == pytest.approx(0.15, rel=0.15)
    assert learned["p95"] / learned["p5"] < 0.5 * wide["p95"] / wide["p5"]


def test_what_cannot_be_refined_is_said(tmp_path):
    trace = tmp_path / "trace.parquet"
    flow_over("rate = '9 Mbit/s'\ndelay = '20 ms'", seconds=5).write(trace)
    done = run("calibrate", trace, "--cluster", "nowhere")
    assert done.returncode == 2
    assert "cluster nowhere: is no address" in done.stderr
    done = run("calibrate", "--live", "host", "--key", "key", "--emulate")
    assert "with --live, this machine simulates" in done.stderr
