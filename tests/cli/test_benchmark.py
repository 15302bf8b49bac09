"""`pathcast benchmark attainable-rate`: configurations, claims, files."""

import json

import pytest

from conftest import run
from pathcast import ProbingError
from pathcast.attainable_rate import benchmark


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
             "--samples", 100, "--epsilon", 0.05, "-o", folder]  # fmt: skip
    done = run(*asked, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    codel, periodic = found["configurations"]
    assert (codel["configuration"], periodic["configuration"]) == ("codel", "periodic")
    # periodic losses never let the window below two thirds of its mean
    assert periodic["attainable_bps"]["1"][0] > 1.5 * codel["attainable_bps"]["1"][0]
    assert periodic["video_s"][1] < codel["video_s"][1]
    low, high = codel["greedy_bps"][1:]
    assert low < benchmark.FAIR_SHARE_BPS * 1.1 and high > benchmark.FAIR_SHARE_BPS * 0.9
    assert set(found["estimates"]) == {"codel", "periodic"}
    assert json.loads((folder / "results.json").read_text()) == found
    page = (folder / "report.html").read_text()
    assert "CoDel" in page and "<svg" in page
    figures = {file.stem for file in (folder / "figures").iterdir()}
    assert {"figure-10", "figure-11", "figure-17"} <= figures

    def kept_files():
        names = ("*.npz", "greedy.json")
        return {file: file.stat().st_mtime_ns for name in names for file in folder.rglob(name)}

    kept = kept_files()
    assert len(kept) == 2 * 6 + 2
    again = run(*asked)
    assert again.returncode == 0, again.stderr
    assert "report written" in again.stdout
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
    for world in ("simulator", "emulator"):
        assert {one.only for one in benchmark.chosen(None, world)} == {"", world}
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


def row(name, attainable, greedy, *, video=0.1, buffered=0.3):
    return {
        "configuration": name,
        "paper_bps": 9e6,
        "greedy_bps": [greedy, greedy, greedy],
        "attainable_bps": {"1": [attainable, attainable, attainable]},
        "origin_s": [0.030, 0.029, 0.031],
        "buffered_at_5": buffered,
        "video_s": [video / 2, video, 2 * video],
    }


def test_claims_hold_or_not_as_the_figures_say():
    names = ("periodic", "scalable", "bernoulli", "red", "codel", "base", "cubic")
    as_told = [row(name, 7e6 - 5e5 * i, 9.4e6, video=0.1 + i) for i, name in enumerate(names)]
    assert all(one["holds"] for one in benchmark.claims(as_told))
    turned = [
        row(name, 1e6 + 5e5 * i, 8.4e6, video=9 - i, buffered=0.9) for i, name in enumerate(names)
    ]
    holds = {one["claim"]: one["holds"] for one in benchmark.claims(turned)}
    assert not holds["base: long-term rate of 9 Mbit/s, probed in steps of 1"]
    assert not any(value for claim, value in holds.items() if "attains more than" in claim)
    assert not holds["5 Mbit/s are buffered in the sender with probability 0.3"]
    assert benchmark.claims([]) == []
