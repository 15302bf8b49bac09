"""QUIC in the simulator and in the emulator: the same endpoints, virtual and real time."""

import statistics

import pytest

import pathcast
from conftest import valid_emulation

SCHEMES = ("quic-cubic", "quic-reno", "quic-bbr3")
LINK = "rate = '10 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n"
#: Relative difference allowed.
TOLERANCE = 0.05
#: noq draws the times at which BBR probes from the system, so each run of the simulator is another one.
RUNS_OF = {"quic-bbr3": 8}


def simulated(what, scheme, of_flow, **options):
    """The mean of a figure of the first flow."""
    reports = [
        pathcast.simulate(what, **options, record=False)[0] for _ in range(RUNS_OF.get(scheme, 1))
    ]
    return statistics.mean(of_flow(report.flows[0]) for report in reports)


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_goodput_is_the_same_in_both(scheme, loss):
    path = pathcast.Path.parse(f"{LINK}loss = {loss}\n")
    options = {"schemes": [scheme], "duration_s": 6.0, "seed": 1}
    real = valid_emulation(path, **options).flows[0]
    mine = simulated(path, scheme, lambda flow: flow.goodput_bps, **options)
    print(f"{scheme}, loss {loss}: simulator {mine:.0f}, emulator {real.goodput_bps:.0f}")
    assert mine == pytest.approx(real.goodput_bps, rel=TOLERANCE)
    resent = simulated(path, scheme, lambda flow: flow.retransmits, **options)
    assert resent == pytest.approx(real.retransmits, rel=0.15, abs=10)


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
    real = valid_emulation(scenario, duration_s=10.0, seed=1).flows[0]
    mine = simulated(scenario, scheme, lambda flow: flow.completed_s, duration_s=10.0, seed=1)
    print(f"{scheme}: simulator {mine:.4f} s, emulator {real.completed_s:.4f} s")
    assert mine == pytest.approx(real.completed_s, rel=TOLERANCE)
