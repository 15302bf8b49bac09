"""Attainable rate: estimates against closed forms, statistics, the command line."""

import io
import json
import math
import os
import signal
import subprocess
import zipfile
from dataclasses import dataclass, field

import numpy as np
import pytest

from conftest import PATHCAST, ROOT, cpu_s, run, until_valid, wait_until
from pathcast import PathcastError, ProbingError, Scenario
from pathcast.attainable_rate import (
    AttainableRate,
    Budget,
    EmulatedProber,
    Options,
    Plan,
    SimulatedProber,
    Train,
    WindowLoop,
    decomposition,
    estimate,
    estimate_adaptively,
    statistics,
    steady,
    steps,
    video,
)
from pathcast.exceptions import BudgetSpent
from pathcast.experiments.attainable_rate.folder import Folder
from pathcast.experiments.engine.store import locked
from pathcast.min_plus import Arrivals

PROBE = """
[links.bottleneck]
rate = "20 Mbit/s"
delay = "10 ms"
{loss}
[[flows]]
scheme = "reno"
workload = {{ kind = "constant-rate", rate = "1 Mbit/s" }}
"""


def fixed(packets):
    """The paper's: 10 Mbit/s in packets of 1 kbit, 50 ms each way."""
    return WindowLoop(0.05, 0.05, window_packets=packets, rate_pps=10_000)


def closed_form(time_s, packets):
    """min over n of n w + C (t - T - n RTT), of the loop above in packets."""
    n = np.arange(0, 1 + math.ceil(time_s.max() / 0.1))[:, None]
    return (n * packets + 10_000 * np.maximum(0, time_s - 0.05 - 0.1 * n)).min(axis=0)


@pytest.mark.parametrize(("packets", "long_term"), [(500, 5_000), (1_000, 10_000)])
def test_a_static_window_is_found_within_one_step_of_probing(packets, long_term):
    step = 200
    options = Options(epsilon=0, samples=20, pilot_s=10, most_s=2000)
    found, _ = estimate(fixed(packets), steps(step, 10_000), options)
    assert found.epsilon == 0
    assert long_term - step <= found.long_term_rate <= long_term
    times = np.linspace(0.001, 5, 2000)
    truth, estimated = closed_form(times, packets), found.service(times)
    # a lower bound, but for the time of a packet on the link; the largest convex one but for a step
    assert np.all(estimated <= truth + 2)
    hull = long_term * np.maximum(0, times - 0.05)
    assert np.all(estimated >= hull - step * times - 2)


def test_an_adaptive_window_is_found_to_within_a_per_cent():
    # Mathis et al. 1997 with 1.31; marks at random, 1 in 10,000, 100 ms
    loop = WindowLoop(0.05, 0.05, mark_probability=1e-4, fluid_steps=4)
    options = Options(epsilon=0.05, samples=100, pilot_s=200, most_s=2e6)
    found, probed = estimate_adaptively(loop, 5, 20, options, greedy_s=1e5)
    mathis = 1.31 / (0.1 * math.sqrt(1e-4))
    mean, low, high = found.greedy
    assert low <= mean <= high
    assert mean == pytest.approx(mathis, rel=0.01)
    assert 0.9 * mathis < found.long_term_rate <= mathis * 1.01
    assert found.unstable_rate is None or found.unstable_rate > found.long_term_rate
    assert 2 <= len(found.used) <= 5
    assert found.epsilon == pytest.approx(0.05 * len(found.used))
    # nothing before the network's latency; more on longer times; bounds on both sides
    times = np.geomspace(0.01, 1e4, 200)
    rates = found.rate(times)
    assert np.all(rates[times <= 0.05] == 0)
    assert np.all(np.diff(rates) >= -1e-9)
    assert np.all(found.rate(times, "low") <= rates)
    assert np.all(rates <= found.rate(times, "high") + 1e-9)
    assert found.convergence_s(0.5) < found.convergence_s(0.9) < math.inf
    # more load waits longer
    delays = [point.delay_s for point in found.used]
    assert delays == sorted(delays)
    assert len(probed) == len(found.points)


def test_random_losses_buffer_far_below_two_thirds_where_periodic_ones_never_do():
    # section V-C: periodic losses keep the window between W/2 and W, so that nothing waits below 2/3 of its mean
    rtt_s, every = 0.02, 170
    periodic = WindowLoop(rtt_s / 2, rtt_s / 2, mark_every=every)
    random = WindowLoop(rtt_s / 2, rtt_s / 2, mark_probability=1 / every)
    shares = (0.3, 0.5, 0.6, 0.8, 0.95)
    buffered = {}
    for name, loop in (("periodic", periodic), ("random", random)):
        long_term = loop.greedy(2000, 1)
        trains = [loop.train(Plan(share * long_term, 100, 3000, 0.5, seed=3)) for share in shares]
        buffered[name] = [train.buffered for train in trains]
        if name == "random":
            windows = trains[1].windows
            # figure 11: the window falls below what half of the rate needs, again and again
            assert np.mean(windows < shares[1] * long_term * rtt_s) > 0.02
    assert max(buffered["periodic"][:3]) == 0
    assert buffered["periodic"][3] > 0.1
    assert buffered["random"][0] > 0.005
    # figure 10: more with the utilization, towards one
    assert np.all(np.diff(buffered["random"]) > 0)
    assert buffered["random"][-1] > 0.7


def test_delay_bounds_of_a_video_hold_as_often_as_they_say_and_are_not_far_off():
    loop = WindowLoop(0.01, 0.01, mark_probability=1e-3)
    written_s = video(1000, 30_000)
    at = np.arange(10_000, 30_000, 20)
    options = Options(epsilon=0.05, samples=1000, pilot_s=100, most_s=50_000)
    found, _ = estimate(loop, [1000, 1100, 1200, 1300], options)
    assert (found.message_epsilon, found.epsilon) == (0.05, pytest.approx(0.2))
    bound_s = found.delay_bounds(written_s, 1.0)
    # never more than by the curve of all rates, which holds for all of them at once
    of_curve = Arrivals(written_s, np.ones(len(written_s))).delay_bounds(found.as_curve())
    assert np.all(bound_s >= of_curve - 1e-9)
    repeats = np.array([loop.carry(written_s, seed)[at] - written_s[at] for seed in range(400)])
    held = (repeats <= bound_s[at]).mean(axis=0)
    assert held.mean() >= 0.95
    # of each packet, but for three standard errors of 400 repeats
    assert held.min() >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 400)
    assert bound_s[at].mean() < 2 * np.quantile(repeats, 0.95, axis=0).mean()


def test_a_rate_that_never_becomes_steady_says_so_and_ends_the_probing():
    loop = fixed(500)
    options = Options(epsilon=0.05, samples=100, pilot_s=10, most_s=500)
    found, _ = estimate(loop, [4_000, 6_000, 8_000], options)
    assert [point.stationary for point in found.points] == [True, False]
    assert "unit root" in found.points[1].because
    assert found.points[1].delay_s is None
    assert (found.long_term_rate, found.unstable_rate) == (4_000, 6_000)


@dataclass(frozen=True)
class Machine:
    """A prober in real time whose clock is no more exact than a machine's; it notes the runs."""

    longest_s: float = math.inf
    wander_s: float = 2e-5
    runs: list = field(default_factory=list)
    budget: Budget = field(default_factory=Budget)

    unit, message, real_time, resolution_s = "bit", 11584.0, True, 1e-3

    def describe(self):
        return {"machine": self.wander_s}

    def least_s(self, rate):
        return 0.0

    def greedy(self, duration_s, seed):
        return 10e6

    def train(self, plan, progress=None):
        self.budget.spend("the next train", plan.rate / 8 * plan.lasts_s)
        self.runs.append(plan.lasts_s)
        rng = np.random.default_rng(plan.seed)
        count = round(plan.duration_s / plan.every_s)
        walk = np.cumsum(rng.normal(0, self.wander_s, count))
        # its middle on the edge of a millisecond
        delay_s = 0.0155 + walk - np.median(walk)
        written_s = plan.warm_up_s + plan.every_s * np.arange(count)
        nothing = np.zeros(count)
        return Train(plan.rate, plan.warm_up_s, plan.end_s, written_s, delay_s, nothing, delay_s, nothing, 0.0,
                     count, 0, np.ones(count), plan.every_s, notes=("as it is",))  # fmt: skip


def test_what_a_machine_is_not_exact_to_is_no_unit_root():
    options = Options(epsilon=0.2, samples=100, pilot_s=10, most_s=1000)
    found, _ = estimate(Machine(), [1e6], options)
    assert found.points[0].stationary, found.points[0].because
    assert found.points[0].notes == ("as it is",)
    assert AttainableRate.from_json(json.dumps(found.to_dict())) == found
    # ten times the millisecond and more is one
    far, _ = estimate(Machine(wander_s=5e-3), [1e6], options)
    assert not far.points[0].stationary


def test_no_train_is_longer_than_the_other_end_takes_and_no_more_is_sent_than_may_be():
    options = Options(epsilon=0.05, samples=600, pilot_s=60, most_s=4000)
    prober = Machine(longest_s=40)
    found, _ = estimate(prober, [1e6], options)
    assert found.points[0].stationary and found.points[0].samples >= 600
    assert max(prober.runs) <= 40
    # what is left of it when a rate cannot be finished is said by an error, unless there is one
    spent = Machine(longest_s=40, budget=Budget(sum(prober.runs) * 1e6 / 8 * 2))
    found, _ = estimate(spent, [1e6, 2e6, 3e6], options)
    assert [point.rate for point in found.points] == [1e6]
    assert spent.budget.spent_bytes <= spent.budget.total_bytes
    with pytest.raises(BudgetSpent, match="MB that may be sent"):
        estimate(Machine(budget=Budget(2.5e6)), [1e6], options)


def test_a_simulated_flow_decomposes_its_delay(tmp_path):
    prober = SimulatedProber(Scenario.parse(PROBE.format(loss="loss = 0.002"), "probe.toml"))
    options = Options(epsilon=0.05, samples=100, pilot_s=60, most_s=2000)
    folder = Folder(tmp_path, prober, options)
    found, probed = estimate(prober, [2e6], options, kept=folder.kept, keep=folder.keep)
    (point,) = found.points
    assert point.stationary
    assert point.delay_low_s <= point.delay_s
    alone_s = 0.010 + 1500 * 8 / 20e6
    assert point.median_delay_s == pytest.approx(alone_s, abs=1e-4)
    one = probed[0]
    total = one.sender_s + one.network_s + one.receiver_s
    np.testing.assert_allclose(total, one.delay_s, atol=1e-9)
    assert one.network_s.min() == pytest.approx(alone_s, abs=1e-6)
    assert set(decomposition(one)) == {"delay", "sender_stack", "network", "receiver_stack"}
    assert one.autocorrelation.shape[0] >= 1
    np.testing.assert_allclose(one.autocorrelation[:, 0], 1)

    again, _ = estimate(
        prober, [2e6], options, kept=folder.kept, keep=lambda _: pytest.fail("kept")
    )
    assert again == found
    other = Folder(tmp_path, prober, Options(epsilon=0.05, samples=101, pilot_s=60, most_s=2000))
    assert other.kept(2e6) is None
    (tmp_path / "rates" / "2e+06.npz").write_bytes(b"PK\x03\x04 nothing of the kind")
    assert folder.kept(2e6) is None


def forged(name, header, content):
    """An archive with one array, whose header says `header` and whose content is `content`."""
    array = io.BytesIO()
    np.lib.format.write_array_header_1_0(array, header)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as members:
        members.writestr(name, array.getvalue() + content)
    return archive.getvalue()


@pytest.mark.parametrize(
    ("descr", "shape"), [("<f8", (1 << 50,)), ("<U400000000", ()), ("<f8", (1 << 40, 1 << 40))]
)
def test_a_header_that_says_more_than_its_file_has_is_refused(tmp_path, descr, shape):
    """NumPy would make room for what it says."""
    prober = SimulatedProber(Scenario.parse(PROBE.format(loss=""), "probe.toml"))
    folder = Folder(tmp_path, prober, Options())
    file = tmp_path / "rates" / "2e+06.npz"
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    file.write_bytes(forged("values.npy", header, b"x" * 80))
    with pytest.raises(PathcastError, match=r"says [0-9]+ bytes, the file has 80") as raised:
        folder.kept(2e6)
    assert str(file) in str(raised.value)
    # what runs code when it is read is none of ours
    header = {"descr": "|O", "fortran_order": False, "shape": (10,)}
    file.write_bytes(forged("values.npy", header, b"x" * 80))
    assert folder.kept(2e6) is None


def test_the_greedy_rate_of_a_scenario_is_that_of_a_bulk_flow():
    prober = SimulatedProber(Scenario.parse(PROBE.format(loss=""), "probe.toml"))
    assert prober.greedy(30, 1) == pytest.approx(20e6 * 1448 / 1500, rel=0.03)


@pytest.mark.parametrize(
    ("toml", "flow", "says"),
    [
        (PROBE.format(loss=""), 1, "no flow 1"),
        (PROBE.format(loss="").replace("constant-rate", "on-off").replace("rate =", "on = '1 s', off = '1 s', rate =", 2).replace("on = '1 s', off = '1 s', rate", "rate", 1), 0, "does not probe"),
        (PROBE.format(loss="").replace('"reno"', '"udp"'), 0, "no flow control"),
        (PROBE.format(loss="").replace('"reno"', '"reno"\ncount = 2'), 0, "alike"),
    ],
)  # fmt: skip
def test_flows_that_cannot_probe_are_refused(toml, flow, says):
    with pytest.raises(ProbingError, match=says):
        SimulatedProber(Scenario.parse(toml, "probe.toml"), flow)


def test_estimates_are_read_back_and_other_files_refused():
    options = Options(epsilon=0, samples=20, pilot_s=10)
    found, _ = estimate(fixed(500), [1_000, 2_000], options)
    text = json.dumps(found.to_dict())
    assert AttainableRate.from_json(text) == found
    for wrong in (
        "{}",
        "[]",
        "nothing",
        text.replace('"schema": 1', '"schema": 2'),
        text.replace('"rate": 1000', '"rate": -1000'),
        text.replace('"rate": 1000', '"rate": NaN'),
        text.replace('"rate": 1000', '"rate": "1000"'),
        text.replace('"rate": 1000', '"rate": 3000'),
        text.replace('"stationary": true', '"stationary": true, "more": 1'),
        text.replace('"undecided": false', '"undecided": "no"'),
        text.replace('"points": [', '"points": [3, '),
        "[" * 100_000,
    ):
        with pytest.raises(ProbingError):
            AttainableRate.from_json(wrong)


def ar1(correlation, count, seed):
    rng = np.random.default_rng(seed)
    values = np.zeros(count)
    for i in range(1, count):
        values[i] = correlation * values[i - 1] + rng.standard_normal()
    return values


def test_the_tests_tell_steady_from_unsteady_and_independent_from_dependent():
    level = [statistics.is_stationary(ar1(0.5, 400, seed)) for seed in range(50)]
    walks = [statistics.is_stationary(np.cumsum(ar1(0, 400, seed))) for seed in range(50)]
    growing = [statistics.is_stationary(np.arange(400) + ar1(0.5, 400, seed)) for seed in range(20)]
    assert sum(level) >= 49
    assert sum(walks) <= 3
    assert sum(growing) == 0
    joined = [steady.decide([ar1(0.5, 400, seed)], 0.05, seed) for seed in range(10)]
    assert all(one.adjusted_p["runs"] <= steady.PERMUTATION_LEVEL for one in joined)
    assert statistics.is_stationary(np.full(50, 0.05))
    moved = steady.decide([np.concatenate([ar1(0, 200, 1), 1 + ar1(0, 200, 2)])], 0.05)
    assert moved.because and not moved.dependent
    assert statistics.decorrelation(ar1(0, 2000, 3)) <= 2
    assert 5 <= statistics.decorrelation(ar1(0.9, 2000, 3)) <= 100


def test_bounds_of_quantiles_hold_as_often_as_they_say():
    truth = -math.log(0.05)  # of an exponential
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(400):
        found = statistics.upper_quantile(rng.exponential(size=300), 0.05, 0.9)
        assert found.low <= found.value <= found.high
        inside += found.low <= truth <= found.high
    assert 0.87 <= inside / 400 <= 0.95
    assert math.isinf(statistics.upper_quantile(rng.exponential(size=100), 0.05, 0.999).high)
    with pytest.raises(ProbingError, match="at least 500"):
        statistics.upper_quantile(np.ones(499), 0.01)


def test_autocorrelation_is_that_of_the_process():
    found = statistics.autocorrelation(ar1(0.8, 200_000, 1), 5)
    np.testing.assert_allclose(found, 0.8 ** np.arange(6), atol=0.02)
    np.testing.assert_array_equal(statistics.autocorrelation(np.ones(10), 3), [1, 0, 0, 0])
    with pytest.raises(ProbingError):
        statistics.autocorrelation(np.ones(3), 3)


def test_a_video_has_its_rate_rhythm_and_scenes():
    written_s = video(2000, 100_000, 7)
    assert np.all(np.diff(written_s) >= 0)
    sizes = np.bincount(np.round(written_s * 25).astype(int))
    assert np.mean(sizes) * 25 == pytest.approx(2000, rel=0.01)
    assert sizes[::12].mean() > 2.5 * np.mean([sizes[2::12].mean(), sizes[3::12].mean()])
    by_group = sizes[: len(sizes) // 12 * 12].reshape(-1, 12).sum(axis=1)
    assert statistics.autocorrelation(by_group.astype(float), 2)[1] > 0.5
    for wrong in ((10, 5000), (math.nan, 5000), (2000, 10)):
        with pytest.raises(ProbingError):
            video(*wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 1.0},
        {"epsilon": -0.1},
        {"epsilon": 0.001, "samples": 750},
        {"samples": 10},
        {"pilot_s": 0},
        {"pilot_s": 100, "most_s": 10},
        {"confidence": 1.0},
        {"seed": -1},
        {"trains": 0},
    ],
)
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(ProbingError):
        Options(**wrong)


def test_impossible_trains_and_loops_are_refused():
    for plan in (
        Plan(0, 1, 1, 1, 1),
        Plan(math.inf, 1, 1, 1, 1),
        Plan(1, -1, 1, 1, 1),
        Plan(1, 1, math.nan, 1, 1),
        Plan(1e12, 1, 1e12, 1, 1),
    ):
        with pytest.raises(ProbingError):
            fixed(10).train(plan)
    for loop in (
        WindowLoop(0.05, 0.05),
        WindowLoop(0.05, 0.05, window_packets=10, mark_every=10),
        WindowLoop(-1, 0.05, window_packets=10),
        WindowLoop(0.05, 0.05, window_packets=0),
        WindowLoop(0.05, 0.05, window_packets=-5),
        WindowLoop(0.05, 0.05, mark_probability=2),
    ):
        with pytest.raises(ProbingError):
            loop.train(Plan(100, 1, 1, 1, 1))
    limited = WindowLoop(0.05, 0.05, window_packets=10, rate_pps=100, fluid_steps=10)
    with pytest.raises(ProbingError, match="capacity"):
        limited.train(Plan(10, 1, 1, 1, 1))
    with pytest.raises(ProbingError, match="ascend"):
        estimate(fixed(500), [2_000, 1_000], Options(epsilon=0, samples=20, pilot_s=5))
    with pytest.raises(PathcastError):
        estimate(fixed(500), [], Options())


def refused(*arguments):
    done = run("attainable-rate", *arguments)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_the_command_estimates_writes_and_goes_on(tmp_path):
    folder = tmp_path / "estimate"
    asked = ["--latency", 0.05, "--window", 500, "--capacity", 10_000, "--step", 1000, "--most", 4000,
             "--epsilon", 0, "--samples", 20, "-o", folder]  # fmt: skip
    done = run("attainable-rate", *asked, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["long_term_rate"] == 4000
    assert found["unit"] == "packets"
    assert [point["delay_s"] for point in found["points"]] == pytest.approx([0.0501] * 4)
    assert json.loads((folder / "estimate.json").read_text()) == found
    assert (folder / "attainable-rate.svg").read_text().startswith("<?xml")
    kept = {file: file.stat().st_mtime_ns for file in (folder / "rates").iterdir()}
    assert len(kept) == 4
    again = run("attainable-rate", *asked)
    assert again.returncode == 0, again.stderr
    assert "long-term rate: 4000 packets/s" in again.stdout
    assert {file: file.stat().st_mtime_ns for file in (folder / "rates").iterdir()} == kept


def test_the_command_probes_a_path_and_a_scenario(tmp_path):
    path = tmp_path / "path.toml"
    path.write_text("rate = '10 Mbit/s'\ndelay = '10 ms'\n")
    asked = ["--step", "4 Mbit/s", "--most", "8 Mbit/s", "--epsilon", 0.05, "--samples", 100,
             "--longest", 1000, "--json"]  # fmt: skip
    done = run("attainable-rate", path, "--scheme", "reno", *asked)
    assert done.returncode == 0, done.stderr
    of_path = json.loads(done.stdout)
    assert of_path["long_term_rate"] == 8e6
    assert of_path["points"][0]["delay_s"] == pytest.approx(0.010 + 12e3 / 10e6, abs=1e-5)
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(PROBE.format(loss=""))
    done = run("attainable-rate", scenario, *asked)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["points"][0]["stationary"]


def test_the_command_refuses_what_makes_no_sense(tmp_path):
    assert "nothing to probe" in refused()
    assert "nothing to probe" in refused("--latency", 0.05)
    assert "nothing to probe" in refused("--latency", 0.05, "--window", 5, "--marks", 0.1)
    assert "the window" in refused("--latency", 0.05, "--window", 0)
    assert "no step" in refused("--latency", 0.05, "--window", 5, "--step", "1 Mbit/s")
    assert "at least 500" in refused("--latency", 0.05, "--window", 5, "--samples", 400)
    bulk = ROOT / "scenarios" / "dumbbell.toml"
    assert "expected one alone" in refused(bulk)
    assert "instead of a file" in refused(bulk, "--window", 5)
    probe = tmp_path / "probe.toml"
    probe.write_text(PROBE.format(loss=""))
    assert "no step" in refused(probe, "--step", "1 parsec")
    assert "no step" in refused(probe, "--step", "-1 Mbit/s")
    assert "no flow 7" in refused(probe, "--flow", 7)
    assert "--scheme goes with a path" in refused(probe, "--scheme", "reno")
    assert "go with --world live" in refused(probe, "--server", "127.0.0.1")
    live = ("--world", "live", "--server", "127.0.0.1:1", "--key", tmp_path / "no key", "--yes")
    assert "expected --server and --key" in refused("--world", "live")
    assert "no key" in refused(*live)
    assert "'10 XB' is no size" in refused(*live, "--budget", "10 XB")
    assert "--adaptive needs --most" in refused(*live, "--adaptive", 3)
    assert "no --world live" in refused(*live, "--latency", 0.05, "--window", 5)
    assert "here the path is real" in refused(ROOT / "paths" / "12mbps-60ms-1bdp.toml", *live)
    assert refused(tmp_path / "missing.toml")


def test_the_kernels_tcp_is_probed_as_the_simulators(emulator):
    scenario = Scenario.parse(PROBE.format(loss=""), "probe.toml")
    options = Options(epsilon=0.125, samples=40, pilot_s=4, most_s=60)
    simulated, _ = estimate(SimulatedProber(scenario), [4e6], options)

    def attempt():
        try:
            found, probed = estimate(EmulatedProber(scenario), [4e6], options)
        except ProbingError as error:
            return None, str(error)
        (point,) = found.points
        assert point.stationary, point.because
        # to within the emulator's own bound of lateness
        assert point.median_delay_s == pytest.approx(simulated.points[0].median_delay_s, abs=1e-3)
        return probed, None

    # a train that is not valid is sent five times
    probed = until_valid(attempt, times=2)
    total = probed[0].sender_s + probed[0].network_s + probed[0].receiver_s
    np.testing.assert_allclose(total, probed[0].delay_s, atol=1e-9)


@pytest.mark.parametrize(
    "asked",
    [
        # 10^11 packets; and the whole benchmark
        ["attainable-rate", "--latency", "0.05", "--marks", "1e-5", "--step", "4100", "--longest", "1e8"],
        ["benchmark", "attainable-rate"],
    ],
)  # fmt: skip
def test_ctrl_c_ends_the_probing(asked, tmp_path):
    process = subprocess.Popen(
        [str(PATHCAST), *asked, "-o", str(tmp_path / "out")], stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: cpu_s(process) > 5, "some seconds of probing")
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr


def test_two_do_not_probe_into_one_folder(tmp_path):
    with locked(tmp_path):
        done = run("attainable-rate", "--latency", 0.02, "--window", 8, "-o", tmp_path)
    assert done.returncode == 2
    assert "at work there" in " ".join(done.stderr.split())
    assert not list(tmp_path.glob("rates/*"))
