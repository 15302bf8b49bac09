"""The same scenario in both worlds: transfers, requests, probes and shares agree."""

import pyarrow.parquet
import pytest

import pathcast
from conftest import valid_emulation, valid_run

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


#: Its first two seconds, in which the first flow ends.
ALONE = SCENARIO.replace('"12 s"', '"2 s"')

#: Delays of the access link in ms, all within a fiftieth of the path's round-trip time.
NEARBY_MS = [10 + 0.07 * step for step in range(12)]


def simulated_transfers_s():
    """How long the first flow takes on paths that are the same but for a fiftieth of a round trip.

    Whether the first packet sent in a recovery is lost too, and with it another third of the window, depends on
    where in the queue's millisecond it falls: on such paths the kernel takes 1.23 to 1.25 s in most runs and
    1.41 s in the others, as the simulator does.
    """
    here = 'rate = "40 Mbit/s"\ndelay = "10 ms"'
    assert here in ALONE
    for delay_ms in NEARBY_MS:
        there = here.replace("10 ms", f"{delay_ms:.2f} ms")
        scenario = pathcast.Scenario.parse(ALONE.replace(here, there))
        yield pathcast.simulate(scenario, record=False)[0].flows[0].completed_s


def test_a_scenario_takes_as_long_in_the_simulator_as_with_the_kernel(emulator):
    scenario = pathcast.Scenario.parse(SCENARIO)
    ours, _ = pathcast.simulate(scenario, record=False)
    kernels = valid_emulation(scenario)
    pairs = list(zip(ours.flows, kernels.flows, strict=True))
    (transfer, asking, probe, back) = pairs
    times_s = list(simulated_transfers_s())
    alone = [valid_emulation(pathcast.Scenario.parse(ALONE)) for _ in range(2)]
    real_s = [transfer[1].completed_s, *(run.flows[0].completed_s for run in alone)]
    near = [any(one == pytest.approx(mine, rel=0.03) for mine in times_s) for one in real_s]
    assert sum(near) >= 2, (real_s, times_s)
    for pair in (asking, probe):
        mine, real = (flow.messages for flow in pair)
        assert mine.written == pytest.approx(real.written, abs=2)
        assert mine.latency_ms["p50"] == pytest.approx(real.latency_ms["p50"], rel=0.05)
    assert back[0].goodput_bps == pytest.approx(back[1].goodput_bps, rel=0.05)


@pytest.mark.parametrize(
    ("request_size", "response", "count"),
    [("400 B", "5 kB", 40), ("400 B", "1 kB", 40), ("20 kB", "1 kB", 30)],
)
def test_requests_and_responses_share_a_connection_as_in_the_kernel(
    emulator, request_size, response, count
):
    """A row for each packet that reaches the responding end: how often acknowledgments travel alone, and how often
    with a request. Requests of several packets have the flow's congestion control at both ends.
    """
    scenario = pathcast.Scenario.parse(
        "duration = '20 s'\n[links.link]\nrate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '4 BDP'\n"
        "[links.link.reverse]\nrate = '10 Mbit/s'\n[[flows]]\nscheme = 'cubic'\nworkload = { kind = 'request-response', "
        f"request = '{request_size}', response = '{response}', count = {count} }}\n"
    )
    ours, our_trace = pathcast.simulate(scenario)
    kernels, their_trace = valid_run(scenario)
    assert len(our_trace) == pytest.approx(len(their_trace), rel=0.03)
    mine, real = (report.flows[0].messages for report in (ours, kernels))
    assert mine.delivered == real.delivered == count
    assert mine.latency_ms["p50"] == pytest.approx(real.latency_ms["p50"], rel=0.05)


def test_small_packets_fill_a_link_as_in_the_kernel(emulator):
    """536 of 588 bytes are payload; the kernel keeps to the MSS that the scenario says."""
    scenario = pathcast.Scenario.parse(
        "duration = '5 s'\n[links.link]\nrate = '10 Mbit/s'\ndelay = '10 ms'\nqueue = '1 BDP'\n"
        "[[flows]]\nscheme = 'cubic'\nmss = '536 B'\n"
    )
    report, trace = pathcast.simulate(scenario)
    real, real_trace = valid_run(scenario)
    assert trace.metadata["mss_bytes"] == real_trace.metadata["mss_bytes"] == 536
    for flow in (*report.flows, *real.flows):
        assert flow.goodput_bps == pytest.approx(10e6 * 536 / 588, rel=0.02)


@pytest.mark.parametrize("size", ["15 kB", "60 kB", "200 kB"])
def test_a_paced_connection_begins_as_in_the_kernel(emulator, size):
    """The kernel paces BBR from the tenth packet on; pacing from the first takes 17 ms longer for 60 kB."""
    scenario = pathcast.Scenario.parse(
        "duration = '3 s'\n[links.link]\nrate = '20 Mbit/s'\ndelay = '25 ms'\nqueue = '2 BDP'\n"
        f"[[flows]]\nscheme = 'bbr'\nworkload = {{ kind = 'transfer', size = '{size}' }}\n"
    )
    ours, _ = pathcast.simulate(scenario, record=False)
    kernels = valid_emulation(scenario)
    assert ours.flows[0].completed_s == pytest.approx(kernels.flows[0].completed_s, rel=0.03)


def test_both_worlds_lose_the_same_packets(emulator, tmp_path):
    """Handshakes, which the simulator does not have here, take none of the losses; seed 4 would lose one of theirs."""
    scenario = pathcast.Scenario.parse(
        "duration = '1 s'\n[links.link]\nrate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '2 BDP'\nloss = 0.08\n"
        "[[flows]]\nscheme = 'reno'\n"
    )
    file = tmp_path / "packets.parquet"

    def first_lost():
        """How much data had been sent before the first packet that was lost, in packets."""
        packets = pyarrow.parquet.read_table(file).to_pydict()
        rows = zip(packets["event"], packets["direction"], packets["seq"], strict=True)
        return next(seq for event, direction, seq in rows if event == 3 and direction == 0)

    for seed in (1, 2, 4, 5):
        pathcast.simulate(scenario, seed=seed, packets_file=file)
        simulated = first_lost()
        valid_emulation(scenario, seed=seed, packets_file=file)
        assert first_lost() / 1448 == simulated, seed
