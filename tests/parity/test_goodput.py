"""The simulator and the kernel over the emulator, on the same path with the same losses."""

import statistics

import pytest

from pathcast import demo, emulate, simulate

#: Seeds of the path; both worlds lose the same packets of the sequence that each sends.
SEEDS = (1, 2, 3)
DURATION_S = 12.0
#: Relative difference allowed in mean goodput.
TOLERANCE = 0.10


def stolen_ticks():
    """Time that the host took away from this machine's processors, in hundredths of a second."""
    with open("/proc/stat") as stat:
        return int(stat.readline().split()[8])


def valid_emulation(path, seed):
    """A run that did not slip, of at most six; skips if the host takes the processors away."""
    stolen_in_all = True
    for _ in range(6):
        before = stolen_ticks()
        report, _ = emulate(path, ["cubic"], duration_s=DURATION_S, seed=seed)
        if report.valid:
            return report
        stolen_in_all &= stolen_ticks() > before
    if stolen_in_all:
        pytest.skip("the host takes the processors away too often for a run in real time")
    raise AssertionError(f"six runs slipped: {report.invalid_because}")


def test_simulator_and_kernel_agree_on_cubic_goodput(emulator):
    path = demo.demo_path()
    assert path.loss == 1e-3
    real, simulated = [], []
    for seed in SEEDS:
        real.append(valid_emulation(path, seed).flows[0].goodput_bps)
        report, _ = simulate(path, ["cubic"], duration_s=DURATION_S, seed=seed)
        simulated.append(report.flows[0].goodput_bps)
    ratio = statistics.mean(simulated) / statistics.mean(real)
    print(f"simulator / kernel: {ratio:.3f} ({simulated}, {real})")
    assert abs(ratio - 1) < TOLERANCE
