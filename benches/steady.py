"""How often the decision about a steady state is wrong, and how often bounds hold of samples that pass it.

Beside it the version before: each train tested by itself at 1 %, by Elliott, Rothenberg and Stock, the runs test, and
Kolmogorov and Smirnov of its halves. Prints the tables of docs/results/attainable-rate.md.

    python benches/steady.py [repeats]
"""

import math
import sys
import warnings

import numpy as np
from arch.unitroot import DFGLS
from scipy.stats import ks_2samp
from statsmodels.sandbox.stats.runs import runstest_1samp

from pathcast.attainable_rate import statistics, steady

TRAINS = (1, 4, 16)
#: Samples of a rate, and the quantile that is wanted: the command's defaults.
COUNT, EPSILON = 750, 0.01
#: Samples are taken this far apart, until they pass.
APART = (1, 2, 4, 8, 16)


def before(trains):
    """Whether every train passed all tests of the version before."""
    return all(map(one_before, trains))


def one_before(samples):
    thinned = samples[:: max(1, len(samples) // 200)]
    lags = min(len(thinned) // 3 - 1, math.ceil(12 * (len(thinned) / 100) ** 0.25))
    try:
        if DFGLS(thinned, trend="c", max_lags=lags).pvalue >= 0.01:
            return False
    except ValueError:
        return False
    for cutoff in (np.median(samples), samples.mean()):
        above = samples > cutoff
        if 10 <= above.sum() <= len(samples) - 10:
            p_value = runstest_1samp(above.astype(float), cutoff=0.5, correction=False)[1]
            if p_value < 0.005:
                return False
    half = len(samples) // 2
    return ks_2samp(samples[:half], samples[half:], method="asymp").pvalue >= 0.01


def now(trains, seed, last=True):
    level = steady.PERMUTATION_LEVEL if last else steady.GUARD_LEVEL
    return not steady.decide(trains, EPSILON, seed, level).because


def bunched(share, length):
    """Independent delays, a share of them large, in bunches whose lengths are geometric."""

    def draw(rng, count):
        large = np.zeros(count, bool)
        at = int(rng.integers(0, length / share))
        while at < count:
            lasts = rng.geometric(1 / length)
            large[at : at + lasts] = True
            at += lasts + rng.geometric(share / (1 - share) / length)
        return rng.exponential(size=count) + 10 * large

    # all that exceeds 1 % is in a bunch
    return draw, 10 + math.log(share / EPSILON)


def heavy(correlation, share, length):
    """An AR(1) process with bursts of Pareto sizes, and its quantile, of 4,000,000 values."""

    def draw(rng, count):
        noise = rng.normal(size=count) * math.sqrt(1 - correlation**2)
        values = np.zeros(count)
        for i in range(1, count):
            values[i] = correlation * values[i - 1] + noise[i]
        large, _ = bunched(share, length)
        return values + (large(rng, count) > 10) * (4 + 3 * rng.pareto(3, count))

    return draw, float(np.quantile(draw(np.random.default_rng(0), 4_000_000), 1 - EPSILON))


def interval(hits, count):
    low, high = statistics.share_bounds(hits / count, count)
    return f"{hits / count:.3f} ({low:.3f} to {high:.3f})"


def levels(repeats):
    print("steady, of independent samples (exponential)")
    for trains in TRAINS:
        old = new = 0
        for seed in range(repeats):
            samples = np.random.default_rng([1, seed]).exponential(size=COUNT)
            parts = np.array_split(samples, trains)
            old += before(parts)
            new += now(parts, seed)
        print(f"| {trains} | {interval(old, repeats)} | {interval(new, repeats)} |", flush=True)


def power(repeats):
    print("not steady: a walk, a ramp under noise, a transient in the first third")
    for trains in TRAINS:
        size = COUNT // trains
        ramp, begin = np.linspace(0, 4, size), np.where(np.arange(size) < size // 3, 1.5, 0.0)
        found = []
        for kind in range(3):
            hits = 0
            for seed in range(repeats):
                rng = np.random.default_rng([2, kind, seed])
                noise = [rng.exponential(size=size) for _ in range(trains)]
                drift = [
                    np.cumsum(part - 1) if kind == 0 else part + (ramp if kind == 1 else begin)
                    for part in noise
                ]
                hits += not now(drift, seed)
            found.append(interval(hits, repeats))
        print(f"| {trains} | {' | '.join(found)} |", flush=True)


def coverage(repeats):
    print(
        "95 % bounds hold: as sampled first; of those that pass before; of those that pass now; samples apart"
    )
    processes = {
        "independent": (lambda rng, count: rng.exponential(size=count), -math.log(EPSILON)),
        "bunches of 2, 2 %": bunched(0.02, 2),
        "bunches of 4, 4 %": bunched(0.04, 4),
        "bunches of 8, 8 %": bunched(0.08, 8),
        "AR(1) of 0.1, bursts of 3, 3 %": heavy(0.1, 0.03, 3),
        "AR(1) of 0.3, bursts of 6, 6 %": heavy(0.3, 0.06, 6),
        "rare: bunches of 4, 2 %": bunched(0.02, 4),
    }
    for name, (draw, truth) in processes.items():
        first, old, new, apart = 0, [], [], []
        for seed in range(repeats):
            every = draw(np.random.default_rng([3, seed]), COUNT * APART[-1])
            holds = {}
            for step in APART:
                bounds = statistics.upper_quantile(every[: COUNT * step : step], EPSILON)
                holds[step] = bounds.low <= truth <= bounds.high
            first += holds[1]
            for judge, found in (
                (lambda samples, _: before([samples]), old),
                (lambda samples, last: now(np.array_split(samples, 4), seed, last), new),  # noqa: B023
            ):
                for step in APART:
                    if judge(every[: COUNT * step : step], step == APART[-1]):
                        found.append(holds[step])
                        if found is new:
                            apart.append(step)
                        break
        print(
            f"| {name} | {interval(first, repeats)} | {interval(sum(old), len(old))} | "
            f"{interval(sum(new), len(new))} | {np.mean(apart):.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    coverage(repeats)
    levels(repeats)
    power(repeats)
