"""Delay bounds of a video over an adaptive window: how often they hold, and how far above the quantile they lie.

Lübben and Fidler, section III-D: a video of 2000 packets/s over window flow control with random marks, RTT 100 ms,
probability 1e-5 (4143 packets/s in the long run). Bounds come from trains at constant rates; the video itself is then
sent in 1000 repeats, packet by packet. Of each packet looked at: in how many repeats its delay is within its bound,
and the bound beside the quantile of its delays over the repeats.
"""

import argparse
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pathcast.attainable_rate import Options, WindowLoop, estimate, video

RTT_S, MARKS = 0.1, 1e-5


def bounds_by_rate(
    loop: WindowLoop,
    rates: list[float],
    written_s: np.ndarray,
    at: np.ndarray,
    epsilon: float,
    samples: int,
) -> list[np.ndarray]:
    """The bound of each packet looked at by each rate that has a steady state."""
    how = Options(epsilon=epsilon, samples=samples, pilot_s=4000, most_s=1e8)
    # each by itself: that one has no steady state must not hide those above it
    found = [estimate(loop, [rate], how)[0] for rate in rates]
    return [one.delay_bounds(written_s, 1.0)[at] for one in found if one.used]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=5000)
    options = parser.parse_args()
    written_s = video(2000, options.packets)
    # the last 20 s: what was sent before does not begin with nothing under way
    at = np.arange(options.packets - min(40_000, options.packets // 2), options.packets, 40)
    loop = WindowLoop(RTT_S / 2, RTT_S / 2, mark_probability=MARKS)
    fluid = WindowLoop(RTT_S / 2, RTT_S / 2, mark_probability=MARKS, fluid_steps=10)

    def repeat(seed: int) -> np.ndarray:
        return (loop.carry(written_s, seed)[at] - written_s[at]).astype(np.float32)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        delay_s = np.array(list(pool.map(repeat, range(options.repeats))))
    # one past the video's mean is needed; the more there are, the better one fits each scene
    rates = [2000.0, 2100.0, 2200.0, 2300.0, 2400.0]
    print(
        "| epsilon | held, of repeats: least of all packets, mean | mean bound / mean quantile "
        "| one rate for all packets | the curve of all rates |"
    )
    print("|---|---|---|---|---|")
    for epsilon in (0.02, 0.01, 0.005):
        bounds = bounds_by_rate(fluid, rates, written_s, at, epsilon, options.samples)
        # all rates hold at once: each may fail with its share of epsilon
        shared = bounds_by_rate(fluid, rates, written_s, at, epsilon / len(rates), options.samples)
        bound_s = np.min(bounds, axis=0)
        held = (delay_s <= bound_s).mean(axis=0)
        quantile = np.quantile(delay_s, 1 - epsilon, axis=0)
        ratio = bound_s.mean() / quantile.mean()
        alone = [bound.mean() / quantile.mean() for bound in bounds]
        curve = np.min(shared, axis=0).mean() / quantile.mean()
        print(
            f"| {epsilon:g} | {held.min():.3f}, {held.mean():.3f} | {ratio:.2f} | {min(alone):.2f} to {max(alone):.2f} "
            f"| {curve:.2f} |"
            f"  <!-- {len(bounds)} of {len(rates)} rates, {bound_s.mean():.2f} s beside {quantile.mean():.2f} s -->",
            flush=True,
        )


if __name__ == "__main__":
    main()
