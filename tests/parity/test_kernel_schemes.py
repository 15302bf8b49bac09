"""The simulator's Scalable and Vegas, and those in the kernel: its own where it has them, else ours by BPF."""

import numpy as np
import pytest

import pathcast
from conftest import valid_run

PATH = "rate = '16 Mbit/s'\ndelay = '30 ms'\n"
DURATION_S = 7.0
#: Relative differences allowed; found were 0.6 % in goodput and 2.1 % in the window at most.
GOODPUT_TOLERANCE = 0.03
WINDOW_TOLERANCE = 0.06


def mean_window(trace):
    """The mean of cwnd over time, in packets."""
    columns = trace.columns
    return np.average(columns["cwnd_packets"][:-1], weights=np.diff(columns["time_s"]))


@pytest.mark.parametrize("queue", ["1 BDP", pytest.param("2 BDP", marks=pytest.mark.full)])
@pytest.mark.parametrize("scheme", ["scalable", "vegas"])
def test_simulator_and_kernel_agree_on_goodput_and_window(needs_scheme, scheme, queue):
    needs_scheme(scheme)
    path = pathcast.Path.parse(f"{PATH}queue = '{queue}'\n")
    simulated, trace = pathcast.simulate(path, [scheme], duration_s=DURATION_S)
    real, real_trace = valid_run(path, [scheme], duration_s=DURATION_S)
    goodput = simulated.flows[0].goodput_bps / real.flows[0].goodput_bps
    window = mean_window(trace) / mean_window(real_trace)
    print(f"{scheme}, {queue}: simulator / kernel {goodput:.3f} in goodput, {window:.3f} in window")
    assert goodput == pytest.approx(1, abs=GOODPUT_TOLERANCE)
    assert window == pytest.approx(1, abs=WINDOW_TOLERANCE)
