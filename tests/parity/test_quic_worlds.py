"""QUIC in the simulator and in the emulator: the same endpoints, virtual and real time."""

import statistics

import pytest

import pathcast
from conftest import valid_emulation

SCHEMES = ("quic-cubic", "quic-reno", "quic-bbr3")
LINK = "rate = '10 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n"
#: Relative difference allowed.
TOLERANCE = 0.05
#: noq draws the times at which BBR probes from the system, so each run is another one: in the simulator, and in the
#: emulator, where the kernel's timing adds to it.
RUNS_OF = {"quic-bbr3": 8}
REAL_RUNS_OF = {"quic-bbr3": 3}


def simulated(what, scheme, of_flow, **options):
    """The mean of a figure of the first flow."""
    reports = [
        pathcast.simulate(what, **options, record=False)[0] for _ in range(RUNS_OF.get(scheme, 1))
    ]
    return statistics.mean(of_flow(report.flows[0]) for report in reports)


def emulated(what, scheme, **options):
    """The first flow of each of several valid runs."""
    runs = REAL_RUNS_OF.get(scheme, 1)
    return [valid_emulation(what, **options).flows[0] for _ in range(runs)]


def assert_the_same(mine, real, rel, abs_=0.0):
    """A figure of the simulator is the emulator's mean, to within `rel` and twice that mean's standard error."""
    mean = statistics.mean(real)
    error = statistics.stdev(real) / len(real) ** 0.5 if len(real) > 1 else 0.0
    assert mine == pytest.approx(mean, abs=max(rel * mean, abs_) + 2 * error), real


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("loss", [pytest.param(0.0, marks=pytest.mark.full), 0.01])
def test_goodput_is_the_same_in_both(scheme, loss):
    path = pathcast.Path.parse(f"{LINK}loss = {loss}\n")
    options = {"schemes": [scheme], "duration_s": 6.0, "seed": 1}
    real = emulated(path, scheme, **options)
    mine = simulated(path, scheme, lambda flow: flow.goodput_bps, **options)
    assert_the_same(mine, [flow.goodput_bps for flow in real], TOLERANCE)
    resent = simulated(path, scheme, lambda flow: flow.retransmits, **options)
    assert_the_same(resent, [flow.retransmits for flow in real], 0.15, 10)


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_transfer_takes_as_long_in_both(scheme):
    scenario = pathcast.Scenario.parse(f"""
[links.core]
{LINK}
[[flows]]
scheme = "{scheme}"
workload = {{ kind = "transfer", size = "1 MB" }}
""")
    real = emulated(scenario, scheme, duration_s=10.0, seed=1)
    mine = simulated(scenario, scheme, lambda flow: flow.completed_s, duration_s=10.0, seed=1)
    assert_the_same(mine, [flow.completed_s for flow in real], TOLERANCE)
