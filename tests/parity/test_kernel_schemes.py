"""The simulator's Scalable and Vegas, and those in the kernel: its own where it has them, else ours by BPF."""

import statistics

import numpy as np
import pytest

import pathcast
from conftest import valid_run

PATH = "rate = '50 Mbit/s'\ndelay = '10 ms'\nqueue = '1 BDP'\n"
#: A queue that overflows; losses that the path makes, the same for both, of two seeds.
CASES = {"queue": ("", (1,)), "losses": ("loss = 1e-3\n", (1, 2))}
DURATION_S = 8.0
#: Relative differences allowed; found were up to 3 % in goodput and 5 % in the window, runs that slipped
#: among them.
GOODPUT_TOLERANCE = 0.06
WINDOW_TOLERANCE = 0.10


def mean_window(trace):
    """The mean of cwnd over time, in packets."""
    columns = trace.columns
    return np.average(columns["cwnd_packets"][:-1], weights=np.diff(columns["time_s"]))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("scheme", ["scalable", "vegas"])
def test_simulator_and_kernel_agree_on_goodput_and_window(needs_scheme, scheme, case):
    needs_scheme(scheme)
    loss, seeds = CASES[case]
    path = pathcast.Path.parse(PATH + loss)
    pairs = []
    for seed in seeds:
        options = {"duration_s": DURATION_S, "seed": seed}
        runs = [
            pathcast.simulate(path, [scheme], **options),
            valid_run(path, [scheme], **options),
        ]
        pairs.append([(run.flows[0].goodput_bps, mean_window(trace)) for run, trace in runs])
    ratios = [
        statistics.mean(simulated[what] / real[what] for simulated, real in pairs)
        for what in (0, 1)
    ]
    print(
        f"{scheme}, {case}: simulator / kernel {ratios[0]:.3f} in goodput, {ratios[1]:.3f} in window"
    )
    assert ratios[0] == pytest.approx(1, abs=GOODPUT_TOLERANCE)
    assert ratios[1] == pytest.approx(1, abs=WINDOW_TOLERANCE)
