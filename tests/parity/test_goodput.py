"""The simulator and the kernel over the emulator, on the same path with the same losses."""

import statistics

import pytest

from conftest import valid_emulation
from pathcast import demo, simulate

#: Seeds of the path, whose losses are the same packets of the sequence in both worlds; the second is for test-full.
SEEDS = [pytest.param((1,), id="one"), pytest.param((1, 2, 3), id="three", marks=pytest.mark.full)]
DURATION_S = 12.0
#: Relative difference allowed in mean goodput.
TOLERANCE = 0.10


@pytest.mark.parametrize("seeds", SEEDS)
def test_simulator_and_kernel_agree_on_cubic_goodput(emulator, seeds):
    path = demo.demo_path()
    assert path.loss == 1e-3
    real, simulated = [], []
    for seed in seeds:
        kernels = valid_emulation(path, ["cubic"], duration_s=DURATION_S, seed=seed)
        real.append(kernels.flows[0].goodput_bps)
        report, _ = simulate(path, ["cubic"], duration_s=DURATION_S, seed=seed)
        simulated.append(report.flows[0].goodput_bps)
    ratio = statistics.mean(simulated) / statistics.mean(real)
    print(f"simulator / kernel: {ratio:.3f} ({simulated}, {real})")
    assert abs(ratio - 1) < TOLERANCE
