"""Whether samples come from a steady state: levels, power, bunches of large delays, any number of trains or processors."""

import math
import os

import numpy as np
import pytest

from pathcast import ProbingError
from pathcast.attainable_rate import Options, WindowLoop, estimate, statistics, steady


def steady_of(trains, epsilon=0.02, seed=0, **options):
    return not steady.decide(trains, epsilon, seed, **options).because


def independent(seed, count=480):
    return np.random.default_rng(seed).exponential(size=count)


def ar1(correlation, count, seed):
    rng = np.random.default_rng(seed)
    values = np.zeros(count)
    for i in range(1, count):
        values[i] = correlation * values[i - 1] + rng.standard_normal()
    return values


def bunched(seed, count, share=0.02, length=3):
    """Independent delays with bunches of large ones, whose lengths are geometric, and the truth of 1 %."""
    rng = np.random.default_rng(seed)
    large = np.zeros(count, bool)
    at = int(rng.integers(0, length / share))
    while at < count:
        lasts = rng.geometric(1 / length)
        large[at : at + lasts] = True
        at += lasts + rng.geometric(share / (1 - share) / length)
    return rng.exponential(size=count) + 10 * large


@pytest.mark.parametrize("workers", [2, 16])
def test_the_number_of_processors_changes_no_byte(workers, monkeypatch):
    loop = WindowLoop(0.01, 0.01, mark_probability=1e-3)

    def found(at_once):
        options = Options(epsilon=0.05, samples=240, pilot_s=20, most_s=20_000, at_once=at_once)
        curve, probed = estimate(loop, [1000], options)
        return curve.to_dict(), [one.delay_s.tobytes() for one in probed]

    assert found(1) == found(workers)
    # nor where the machine decides
    monkeypatch.setattr(os, "cpu_count", lambda: workers)
    assert found(0) == found(1)


@pytest.mark.parametrize("trains", [1, 4, 16])
def test_independent_samples_are_steady_whatever_the_number_of_trains(trains):
    # each test of each train at 1 % found 5 of 12 steady with 16 trains
    found = [steady_of(np.array_split(independent(seed), trains), seed=seed) for seed in range(12)]
    assert sum(found) == 12


def test_the_permutation_test_is_exact_with_ties_and_heavy_tails():
    level = 0.1
    rejected = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        samples = np.round(rng.pareto(1.2, 120), 1)  # a third are equal to others
        adjusted = steady.permutation_test(np.array_split(samples, 3), 0.05, seed)
        rejected += min(adjusted.values()) <= level
    # at most the level, but for three standard errors
    assert rejected / 100 <= level + 3 * math.sqrt(level * (1 - level) / 100)


@pytest.mark.parametrize("trains", [1, 4, 16])
def test_drift_is_found_whatever_the_number_of_trains(trains):
    count = 480 // trains

    def parts(series):
        return [series(seed) for seed in range(trains)]

    # above capacity: what waits grows; as a walk, or steadily under noise
    assert not steady_of(parts(lambda seed: np.cumsum(ar1(0, count, seed))))
    assert not steady_of(parts(lambda seed: np.linspace(0, 8, count) + independent(seed, count)))
    # below it: a transient that a warm-up did not remove, in each train
    begin = np.where(np.arange(count) < count // 3, 2.0, 0.0)
    assert not steady_of(parts(lambda seed: begin + independent(seed, count)))


def test_trains_that_differ_are_not_steady():
    trains = [independent(seed, 120) + (0.8 if seed == 2 else 0) for seed in range(4)]
    verdict = steady.decide(trains, 0.05)
    assert verdict.because == steady.FINDINGS["trains"]
    assert not verdict.dependent


def test_bunches_of_large_delays_are_found_that_the_runs_test_does_not_see():
    found = [steady.decide(np.array_split(bunched(seed, 1000), 4), 0.01, seed) for seed in range(8)]
    by_bunches = [verdict.because == steady.FINDINGS["bunches"] for verdict in found]
    assert sum(by_bunches) >= 7
    assert all(verdict.dependent for verdict in found if verdict.because)
    assert sum(verdict.adjusted_p["runs"] > 0.1 for verdict in found) >= 6


def test_bounds_hold_of_bunched_samples_that_were_taken_far_enough_apart():
    # 4 % of the samples are in bunches of 4 on average, a quarter of them above this
    truth = 10 + math.log(4)
    seeds, held = range(30), {"as they are": 0, "that pass": 0}
    for seed in seeds:
        every = bunched(seed, 16 * 750, share=0.04, length=4)
        for apart in (1, 2, 4, 8, 16):
            samples = every[: 750 * apart : apart]
            bounds = statistics.upper_quantile(samples, 0.01)
            holds = bounds.low <= truth <= bounds.high
            held["as they are"] += holds and apart == 1
            level = steady.GUARD_LEVEL if apart < 16 else steady.PERMUTATION_LEVEL
            adjusted = steady.permutation_test(np.array_split(samples, 4), 0.01, seed)
            if min(adjusted["runs"], adjusted["bunches"]) > level:
                held["that pass"] += holds
                break
    assert held["as they are"] <= 0.9 * len(seeds)
    assert held["that pass"] >= 0.93 * len(seeds)


def test_samples_that_hang_together_for_longer_than_may_be_probed_are_undecided():
    loop = WindowLoop(0.05, 0.05, mark_probability=1e-4, fluid_steps=4)
    options = Options(epsilon=0.05, samples=100, pilot_s=50, most_s=400)
    found, _ = estimate(loop, [1000], options)
    (point,) = found.points
    assert (point.stationary, point.undecided) == (False, True), point.because
    # a static window that is too small is known to have none
    found, _ = estimate(
        WindowLoop(0.05, 0.05, window_packets=500, rate_pps=10_000), [6000], options
    )
    assert (found.points[0].stationary, found.points[0].undecided) == (False, False)


def test_too_few_samples_are_refused():
    with pytest.raises(ProbingError, match="at least 20"):
        steady.decide([np.ones(9), np.ones(9)], 0.1)
    constant = steady.decide([np.full(30, 0.05)] * 2, 0.1)
    assert not constant.because
