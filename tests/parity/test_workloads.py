"""The same scenario in both worlds: transfers, requests, probes and shares agree."""

import pytest

import pathcast
from conftest import valid_emulation

SCENARIO = """
duration = "12 s"

[links.access]
rate = "40 Mbit/s"
delay = "10 ms"
queue = "1 BDP"

[links.core]
rate = "30 Mbit/s"
delay = "10 ms"
queue = "1 BDP"

[links.core.reverse]
queue = "1 BDP"

[[flows]]
scheme = "cubic"
start = "0 s"
workload = { kind = "transfer", size = "4 MB" }

[[flows]]
scheme = "reno"
start = "2 s"
delay = "15 ms"
workload = { kind = "request-response", response = "30 kB", think = "80 ms", count = 20 }

[[flows]]
scheme = "udp"
start = "0 s"
route = ["access"]
workload = { kind = "constant-rate", rate = "500 kbit/s", portion = "500 B" }

[[flows]]
scheme = "cubic"
route = ["core"]
direction = "reverse"
start = "6 s"
"""


def test_a_scenario_takes_as_long_in_the_simulator_as_with_the_kernel(emulator):
    scenario = pathcast.Scenario.parse(SCENARIO)
    ours, _ = pathcast.simulate(scenario, record=False)
    kernels = valid_emulation(scenario)
    pairs = list(zip(ours.flows, kernels.flows, strict=True))
    (transfer, asking, probe, back) = pairs
    assert transfer[0].completed_s == pytest.approx(transfer[1].completed_s, rel=0.05)
    for pair in (asking, probe):
        mine, real = (flow.messages for flow in pair)
        assert mine.written == pytest.approx(real.written, abs=2)
        assert mine.latency_ms["p50"] == pytest.approx(real.latency_ms["p50"], rel=0.05)
    assert back[0].goodput_bps == pytest.approx(back[1].goodput_bps, rel=0.05)
