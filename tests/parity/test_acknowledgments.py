"""In which order acknowledgments come: the simulator beside the kernel."""

import numpy as np
import pytest

import pathcast
from conftest import until_valid
from pathcast.scenario import with_receive_window

PATH = pathcast.Path.parse("rate = '9.188 Mbit/s'\ndelay = '13 ms'\nqueue = '18546 B'")


def one_by_one(trace):
    """The part of acknowledgments that are for one packet, after the start, and packets that were sent again."""
    packets = np.diff(trace["snd_una_bytes"][trace["time_s"] > 3]) / 1448
    packets = packets[packets > 0.5]
    return float(np.mean(packets < 1.5)), float(trace["retransmits"].max())


def test_packets_that_are_left_over_leave_at_once(emulator):
    """A window that grows by one has an odd packet, which the next round trips keep: each is acknowledged by itself.

    A sender that holds it back for a fuller burst has 5 % of such acknowledgments, where the kernel has 24 %.
    """

    def attempt():
        report, trace = pathcast.emulate(PATH, ["cubic"], duration_s=10, seed=1)
        if not report.valid:
            return None, report.invalid_because
        return one_by_one(trace.columns), None

    part, sent_again = until_valid(attempt)
    # as Linux's receivers do, which open their windows with what arrives, so that slow start ends early
    scenario = with_receive_window(pathcast.Scenario.over(PATH, ["cubic"]), "auto")
    simulated, simulated_again = one_by_one(
        pathcast.simulate(scenario, duration_s=10, seed=1)[1].columns
    )
    print(f"kernel {part:.1%}, {sent_again:.0f}; simulator {simulated:.1%}, {simulated_again:.0f}")
    assert simulated == pytest.approx(part, abs=0.06)
    assert simulated_again == pytest.approx(sent_again, rel=0.15)
