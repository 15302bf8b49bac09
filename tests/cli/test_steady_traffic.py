"""Traffic of a constant rate beside a flow: found between acknowledgments, and what others get beside it."""

import json

import pytest

import pathcast
from pathcast.calibration.cross_traffic import steady_traffic
from pathcast.calibration.features import observe, sampled
from pathcast.calibration.words import competing_text, parameter_rows

RATE_BPS = 20e6
PATH = pathcast.Path.parse("rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '2 BDP'\n")


def beside(part, path=PATH, **workload):
    """Datagrams that take a part of 20 Mbit/s, their headers left out."""
    steady = {"kind": "constant-rate", "rate": f"{part * RATE_BPS:.0f} bit/s"} | workload
    return pathcast.Scenario.over(path, ["udp"]).replace_flow(0, workload=steady)


def trace_of(scenario, scheme="cubic", seconds=25):
    scenario = scenario.with_flow(scheme=scheme, start="5 s")
    return pathcast.simulate(scenario, duration_s=5 + seconds, seed=3)[1]


def seen_in(scenario, scheme="cubic"):
    return observe(trace_of(scenario, scheme), len(scenario.schemes))


@pytest.mark.parametrize("scheme", ["cubic", "bbr"])
@pytest.mark.parametrize("part", [0.1, 1 / 3, 0.5])
def test_its_part_and_the_links_rate_are_found(part, scheme):
    found = steady_traffic(seen_in(beside(part), scheme))
    assert found.link_bps == pytest.approx(RATE_BPS, rel=0.01)
    # of payload: headers are 2 % more
    assert found.part == pytest.approx(part * 1476 / 1448, abs=0.012)


@pytest.mark.parametrize(
    "path",
    [
        "rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '2 BDP'",
        "rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '2 BDP'\nloss = 0.005",
        "rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = { kind = 'codel' }",
        "rate = { kind = 'poisson', rate = '20 Mbit/s' }\ndelay = '20 ms'\nqueue = '2 BDP'",
        "rate = '20 Mbit/s'\nqueue = '2 BDP'\n"
        "delay = { kind = 'jitter', base = '20 ms', jitter = '1 ms', distribution = 'exponential' }",
        "rate = '100 Mbit/s'\ndelay = '20 ms'\npolicer = { rate = '20 Mbit/s', burst = '50 kB' }",
    ],
)
@pytest.mark.parametrize("scheme", ["cubic", "bbr"])
def test_a_flow_alone_has_none_beside_it(path, scheme):
    _, trace = pathcast.simulate(pathcast.Path.parse(path), [scheme], duration_s=20, seed=3)
    assert steady_traffic(observe(trace, 0)) is None


@pytest.mark.parametrize("others", [["cubic"], ["cubic", "cubic"], ["vegas"]])
def test_flows_that_react_are_not_steady(others):
    assert steady_traffic(seen_in(pathcast.Scenario.over(PATH, others))) is None


def test_what_intervals_do_not_show_is_not_said():
    # packets of another size, samples in place of acknowledgments
    assert steady_traffic(seen_in(beside(0.33, portion="200 B"))) is None
    assert steady_traffic(sampled(seen_in(beside(0.33)), 0.1)) is None


def test_it_is_found_over_a_queue_of_ten_packets():
    """Such a queue is hardly ever empty, and neither path explains the flow well: the evidence says which."""
    rate_bps, steady_bps = 1.2e6, 0.36e6
    path = pathcast.Path.parse(f"rate = '{rate_bps} bit/s'\ndelay = '10 ms'\nqueue = '15 kB'")
    scenario = beside(steady_bps / RATE_BPS, path)
    found = pathcast.calibrate(trace_of(scenario, seconds=20), 1).parameters
    assert found["rate_bps"].median == pytest.approx(rate_bps, rel=0.03)
    assert found["steady_bps"].median == pytest.approx(steady_bps, rel=0.1)


def test_others_get_beside_it_what_they_would(tmp_path):
    here = beside(1 / 3)
    found = pathcast.calibrate(trace_of(here), 1)
    assert found.steady_part == pytest.approx(0.34, abs=0.02)
    assert found.competing == ()
    rate, other = (found.parameters[name] for name in ("rate_bps", "steady_bps"))
    assert rate.median == pytest.approx(RATE_BPS, rel=0.03)
    assert rate.p5 <= RATE_BPS <= rate.p95
    assert other.median == pytest.approx(0.34 * RATE_BPS, rel=0.06)
    assert competing_text(found) == "Other traffic of a constant rate takes 34% of the link."
    assert any("does not react" in row[0] for row in parameter_rows(found))

    # BBR's queue depends on it: without, its delay came out a quarter too short
    alternatives = [pathcast.Alternative(name) for name in ("bbr", "reno")]
    truth = pathcast.what_if(here, alternatives, draws=3, duration_s=20)
    forecast = pathcast.what_if(found, alternatives, draws=10, duration_s=20)
    for one, other in zip(forecast.outcomes, truth.outcomes, strict=True):
        assert one.goodput_bps.median == pytest.approx(other.goodput_bps.median, rel=0.04)
        assert one.delay_p95_ms.median == pytest.approx(other.delay_p95_ms.median, rel=0.06)

    file = tmp_path / "path.toml"
    found.write(file)
    again = pathcast.Calibration.load(file)
    assert again.steady_part == found.steady_part
    assert [str(one) for one in again.paths(3)] == [str(one) for one in found.paths(3)]
    posterior = tmp_path / "path.posterior.json"
    values = json.loads(posterior.read_text())
    for wrong in (-0.1, 1, "half", True):
        posterior.write_text(json.dumps(values | {"steady_part": wrong}))
        with pytest.raises(pathcast.PathFileError, match="from 0 to less than 1"):
            pathcast.Calibration.load(file)
