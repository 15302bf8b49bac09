"""`pathcast benchmark attainable-rate`: configurations, claims, files."""

import json

import pytest

from conftest import run
from pathcast import ProbingError
from pathcast.attainable_rate import AttainableRate, video
from pathcast.attainable_rate.curve import Point
from pathcast.experiments.attainable_rate import benchmark, claims


def test_each_configuration_is_a_scenario_whose_first_flow_probes():
    for one in benchmark.CONFIGURATIONS:
        scenario = one.scenario()
        assert scenario.workloads[0] == "constant-rate"
        assert len(scenario.workloads) == (1 if one.loss else 10)
    delays = [8 + int(delay) - 8 for delay in benchmark.CROSS_DELAYS_MS]
    assert sum(delays) / 9 == 10  # table I: a mean of 10 ms
    assert round(100e6 * 0.020 / 8 / 1500) == benchmark.BDP_PACKETS


def test_ten_equal_flows_share_equally_and_a_small_buffer_costs_a_part():
    def greedy(name):
        from pathcast.attainable_rate import SimulatedProber

        (configuration,) = benchmark.chosen([name])
        return SimulatedProber(configuration.scenario()).greedy(200, 1)

    assert greedy("base") == pytest.approx(benchmark.FAIR_SHARE_BPS, rel=0.1)
    assert greedy("buffer-21") < 0.95 * benchmark.FAIR_SHARE_BPS
    # synthetic losses are such that the rate is the same
    for name in ("bernoulli", "periodic"):
        assert greedy(name) == pytest.approx(benchmark.FAIR_SHARE_BPS, rel=0.1)


def test_the_benchmark_runs_writes_and_goes_on(tmp_path):
    folder = tmp_path / "benchmark"
    asked = ["benchmark", "attainable-rate", "--configuration", "codel", "--configuration", "periodic",
             "--samples", 100, "--epsilon", 0.05, "--rate", "2 Mbit/s", "--rate", "5 Mbit/s",
             "--longest", 3000, "-o", folder]  # fmt: skip
    done = run(*asked, "--json", timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    codel, periodic = found["configurations"]
    assert (codel["configuration"], periodic["configuration"]) == ("codel", "periodic")
    # periodic losses never let the window below two thirds of its mean
    assert periodic["attainable_bps"]["1"][0] > codel["attainable_bps"]["1"][0]
    assert periodic["steady_bps"] == [2e6, 5e6]
    assert periodic["video_s"][1] < codel["video_s"][1]
    low, high = codel["greedy_bps"][1:]
    assert low < benchmark.FAIR_SHARE_BPS * 1.1 and high > benchmark.FAIR_SHARE_BPS * 0.9
    assert set(found["estimates"]) == {"codel", "periodic"}
    assert {one["verdict"] for one in found["claims"]} <= set(claims.VERDICTS)
    assert found["claims_counted"]["tuned"]["holds"] == 1
    assert json.loads((folder / "results.json").read_text()) == found
    page = (folder / "report.html").read_text()
    assert "CoDel" in page and "<svg" in page
    assert "What the losses were tuned to give" in page
    figures = {file.stem for file in (folder / "figures").iterdir()}
    assert {"figure-10", "figure-11", "figure-17"} <= figures

    def kept_files():
        names = ("*.npz", "greedy.json")
        return {file: file.stat().st_mtime_ns for name in names for file in folder.rglob(name)}

    kept = kept_files()
    assert len(kept) == 2 * 2 + 2
    again = run(*asked)
    assert again.returncode == 0, again.stderr
    assert "report written" in again.stdout
    assert "of what losses were tuned to give 1 hold" in again.stdout
    assert kept_files() == kept


def test_unknown_configurations_and_too_few_samples_are_refused():
    done = run("benchmark", "attainable-rate", "--configuration", "warp")
    assert done.returncode == 2
    assert "no configuration 'warp'" in done.stderr
    done = run("benchmark", "attainable-rate", "--samples", 100)
    assert done.returncode == 2
    assert "at least 500" in done.stderr
    done = run("benchmark", "attainable-rate", "--rate", "5 apples")
    assert done.returncode == 2
    assert "'5 apples' is no rate" in done.stderr
    with pytest.raises(ProbingError):
        benchmark.chosen(["base", "warp"])
    with pytest.raises(ProbingError, match="runs in the simulator alone"):
        benchmark.chosen(["copa"], "emulator")
    assert {one.only for one in benchmark.chosen(None, "simulator")} == {"", "simulator"}
    assert {one.only for one in benchmark.chosen(None, "emulator")} == {""}
    done = run("benchmark", "attainable-rate", "--world", "live")
    assert done.returncode == 2
    assert "not real" in done.stderr


def test_one_configuration_that_fails_does_not_end_the_others(tmp_path):
    from pathcast.attainable_rate import Options, SimulatedProber

    def prober(scenario):
        if scenario.file == "codel.toml":
            raise ProbingError("no such luck")
        return SimulatedProber(scenario)

    options = Options(epsilon=0.2, samples=25, pilot_s=5, at_once=1)
    names = ["codel", "periodic"]
    with pytest.raises(ProbingError, match="no such luck"):
        benchmark.run(
            benchmark.chosen(names),
            options,
            rates_bps=[1e6],
            greedy_s=5.0,
            prober=prober,
            folder=tmp_path,
        )
    assert (tmp_path / "periodic" / "greedy.json").exists()
    assert not (tmp_path / "codel").exists()


WRITTEN_S = video(345, 4000)


def curve(delays_s, greedy=9.4, sure=0.05, buffered=0.3):
    """A curve of points, by rate in Mbit/s; bounds are so far away, as a share."""
    points = tuple(
        Point(1e6 * rate, True, delay, delay * (1 - sure), delay * (1 + sure), 0.01, 500, buffered=buffered)
        for rate, delay in delays_s.items()
    )  # fmt: skip
    return AttainableRate("bit", points, 0.95, {}, (1e6 * greedy, 9.9e5 * greedy, 1.01e6 * greedy))


def judged(curves):
    found = claims.judged(curves, dict.fromkeys(curves, 9.0), (WRITTEN_S, 11584.0, 345 * 11584.0))
    return {one["claim"]: one for one in found}


NAMES = ("periodic", "scalable", "bernoulli", "red", "codel", "base", "cubic")


def as_the_paper_finds():
    delays_s = dict(zip(NAMES, (0.04, 0.12, 0.21, 0.21, 0.3, 0.4, 0.4), strict=True))
    return {name: curve({1: 0.03, 5: delay}) for name, delay in delays_s.items()}


def test_claims_hold_where_bounds_part_and_fail_where_they_part_the_other_way():
    found = judged(as_the_paper_finds())
    assert {one["verdict"] for one in found.values()} == {"holds"}
    assert all(one["holds"] for one in found.values())
    turned = dict(zip(NAMES, reversed(as_the_paper_finds().values()), strict=True))
    turned["base"] = curve({1: 0.03, 5: 0.04}, greedy=8.4, buffered=0.9)
    found = judged(turned)
    assert found["base: long-term rate of 9 Mbit/s, probed in steps of 1"]["verdict"] == "fails"
    assert found["within 1 s codel attains more than base"]["verdict"] == "fails"
    of_buffered = [one for claim, one in found.items() if "are buffered" in claim]
    assert [one["verdict"] for one in of_buffered] == ["fails"]
    assert judged({}) == {}


def test_a_claim_whose_bounds_overlap_is_undecided_whatever_the_point_values():
    curves = as_the_paper_finds()
    # 0.3 and 0.4 s, a third each way; the long-term rate at the edge of a step
    curves["codel"] = curve({1: 0.03, 5: 0.3}, sure=0.4)
    curves["base"] = curve({1: 0.03, 5: 0.4}, greedy=9.05, sure=0.4)
    found = judged(curves)
    one = found["within 1 s codel attains more than base"]
    assert (one["verdict"], one["holds"]) == ("undecided", False)
    low, high = one["bounds"]["codel"][1], one["bounds"]["base"][2]
    assert low < high
    assert found["base: long-term rate of 9 Mbit/s, probed in steps of 1"]["verdict"] == "undecided"


def test_configurations_are_compared_by_the_rates_that_both_have():
    curves = as_the_paper_finds()
    # the rate that only one of them has would turn the order
    curves["cubic"] = curve({1: 0.03, 5: 0.4, 8: 0.1})
    found = judged(curves)
    one = found["within 1 s codel attains more than cubic"]
    assert one["rates_bps"] == [1e6, 5e6]
    assert one["verdict"] == "holds"
    alone = judged({"codel": curves["codel"], "cubic": curve({8: 0.1})})
    one = alone["within 1 s codel attains more than cubic"]
    assert (one["verdict"], one["rates_bps"], one["bounds"]) == ("undecided", [], {})


def test_claims_that_losses_were_tuned_to_meet_are_marked_and_counted_apart():
    found = judged(as_the_paper_finds())
    tuned = {claim for claim, one in found.items() if one["tuned"]}
    assert tuned == {
        f"{name}: long-term rate of 9 Mbit/s, probed in steps of 1 (its loss was tuned to give this)"
        for name in ("bernoulli", "periodic")
    }
    counts = claims.summary(found.values())
    assert counts["tuned"] == {"holds": 2, "fails": 0, "undecided": 0}
    assert counts["tested"]["holds"] == len(found) - 2
