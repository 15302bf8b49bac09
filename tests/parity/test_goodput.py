"""The simulator and the kernel over the emulator, on the same path with the same losses."""

import statistics

import pytest

from conftest import valid_emulation
from pathcast import demo, simulate

DURATION_S = 12.0


# seeds of the path: both worlds lose the same packets of the sequence that each sends; and the relative
# difference allowed in mean goodput
@pytest.mark.parametrize(
    ("seeds", "tolerance"),
    [((1,), 0.2), pytest.param((1, 2, 3), 0.1, marks=pytest.mark.full)],
    ids=["once", "three times"],
)
def test_simulator_and_kernel_agree_on_cubic_goodput(emulator, seeds, tolerance):
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
    assert abs(ratio - 1) < tolerance
