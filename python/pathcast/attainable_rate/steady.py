"""Decide whether the samples of one rate come from a steady state and are independent.

One decision has two parts. The test of Elliott, Rothenberg and Stock must reject a unit root, over all trains together.
Then one permutation test must not reject that the samples are independent and identically distributed. It combines the
runs test, tests for bunched exceedances, and comparisons of halves and trains, so that their number, and the number of
trains, leave its level as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pathcast.attainable_rate import statistics
from pathcast.attainable_rate.statistics import FEWEST_SAMPLES, SAME_S, SIGNIFICANCE

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int32]

#: Of the tests: rates that other versions judged are probed anew. 1: each test of each train at 1 %.
VERSION = 2
#: Level of one decision: at most so often is a steady state of independent samples rejected.
LEVEL = 0.01
#: The part of it that the permutation test has. The rest is for the test of a unit root, which misses up to 3 in 1000
#: steady series of 100 independent samples.
PERMUTATION_LEVEL = 0.007
#: Level at which dependence is suspected while there is time to sample further apart: more power against bunches, at the
#: price of a longer probing, and not of a steady state that is not found.
GUARD_LEVEL = 0.1
#: Random orders; level times (orders + 1) is a whole number, which makes a permutation test exact (Davison and Hinkley
#: 1997, section 4.2.5).
PERMUTATIONS = 999
#: Values permuted in one piece: 16 MB.
_PIECE = 2_000_000
#: The highest share of samples that counts as extreme.
_TAIL = 0.1
#: Exceedances are bunched if another follows within this many samples.
_WITHIN = (1, 4)

UNIT_ROOT = "the test of Elliott, Rothenberg and Stock finds a unit root"
#: What each test finds, in words.
FINDINGS = {
    "runs": "the runs test finds that samples depend on each other",
    "bunches": "large delays come in bunches",
    "halves": "the first and second halves of the trains have different distributions",
    "trains": "the trains have different distributions",
}
#: Those that say that samples lie too close together, not that their distribution moves.
OF_DEPENDENCE = frozenset({"runs", "bunches"})


@dataclass(frozen=True)
class Verdict:
    """The outcome of one decision.

    Attributes:
        because: what speaks against a steady state of independent samples, in words; empty: nothing does.
        dependent: whether that is dependence alone, which samples further apart may lose.
        unit_root_p: of the test of Elliott, Rothenberg and Stock; a steady state needs less than `SIGNIFICANCE`.
        adjusted_p: by test, adjusted for all tests of the permutation test; empty where it was not made.

    """

    because: str
    dependent: bool
    unit_root_p: float
    adjusted_p: dict[str, float]


def decide(
    trains: Sequence[Floats],
    epsilon: float,
    seed: int = 0,
    dependence_level: float = PERMUTATION_LEVEL,
) -> Verdict:
    """Decide whether samples come from a steady state and are independent.

    Args:
        trains: delays of each train in the order of time, in seconds; at least `FEWEST_SAMPLES` in all.
        epsilon: probability with which the quantile is exceeded.
        seed: of the permutations.
        dependence_level: at which dependence is found; the other tests have `PERMUTATION_LEVEL`.

    Raises:
        ProbingError: too few samples.

    """
    p_value = unit_root_p(trains)
    if not p_value < SIGNIFICANCE:
        return Verdict(UNIT_ROOT, False, p_value, {})
    adjusted = permutation_test(trains, epsilon, seed)
    rejected = {
        name
        for name, value in adjusted.items()
        if value <= (dependence_level if name in OF_DEPENDENCE else PERMUTATION_LEVEL) + 1e-9
    }
    if not rejected:
        return Verdict("", False, p_value, adjusted)
    first = min(rejected, key=lambda name: adjusted[name])
    return Verdict(FINDINGS[first], rejected <= OF_DEPENDENCE, p_value, adjusted)


def unit_root_p(trains: Sequence[Floats]) -> float:
    """Return the p-value of a unit root in all trains: ERS tests of each, combined by Choi's inverse normal method.

    Trains of one rate are replicas: either all have a steady state or none has. Testing each on its own would lose one
    steady train in ten of 50 samples, and so most rates of many trains. Source: Choi 2001, "Unit root tests for panel
    data", Z statistic. Trains of fewer than `FEWEST_SAMPLES` are left out, unless all are.
    """
    long = [train for train in trains if len(train) >= FEWEST_SAMPLES]
    if not long:
        long = [np.concatenate(trains)]
    # a train that does not vary has 0; bounds keep one train from deciding alone
    values = np.clip([statistics.unit_root_p(train) for train in long], 1e-12, 1 - 1e-6)
    normal = statistics.library("scipy.stats").norm
    return float(normal.cdf(normal.ppf(values).sum() / math.sqrt(len(values))))


def permutation_test(trains: Sequence[Floats], epsilon: float, seed: int = 0) -> dict[str, float]:
    """Return p-values of independent, identically distributed samples by test, adjusted for all tests that are made.

    If samples are independent and identically distributed, each order of them is as probable as any other. All
    statistics are compared with those of `PERMUTATIONS` random orders, and the smallest of their p-values with the
    smallest of each order (Westfall and Young 1993, minP): the probability that any adjusted value is at most p is
    at most p, for any distribution, with ties, whatever the number of trains. All tests are one-sided, since
    samples that alternate only make the bounds of a quantile wider than needed.

    - `runs`: few runs above and below the median, and the mean (Wald and Wolfowitz).
    - `bunches`: exceedances that another follows within 1, or 4, samples, over the quantile of `epsilon` and
      thresholds that 2, 4, 8 and so on to 10 % of the samples exceed.
    - `halves`: first halves of all trains against second ones, by Kolmogorov and Smirnov and by the number in the
      upper 10 %.
    - `trains`: sums of ranks (Kruskal and Wallis), and the numbers in the upper 10 %; of two trains or more.

    Args:
        trains: delays of each train in the order of time, in seconds; at least `FEWEST_SAMPLES` in all.
        epsilon: probability with which the quantile is exceeded.
        seed: of the permutations.

    """
    samples = np.concatenate(trains)
    statistics.enough(samples)
    if np.ptp(samples) <= SAME_S:
        return dict.fromkeys(FINDINGS, 1.0)
    layout = _Layout.of([len(train) for train in trains])
    _, ranks = np.unique(np.round(samples / SAME_S), return_inverse=True)
    ordered = np.sort(ranks).astype(np.int32)
    cutoffs = _Cutoffs.of(samples, ranks, ordered, epsilon)
    rng = np.random.default_rng(seed)
    # where the smallest sample lies, the next, and so on: as found, then at random
    as_found = np.argsort(ranks, kind="stable").astype(np.int32)[None, :]
    rows = [_statistics(as_found, ordered, layout, cutoffs)]
    places = np.arange(len(ordered), dtype=np.int32)
    left = PERMUTATIONS
    while left > 0:
        count = min(left, max(1, _PIECE // len(ordered)))
        drawn = rng.permuted(np.broadcast_to(places, (count, len(places))), axis=1)
        rows.append(_statistics(drawn, ordered, layout, cutoffs))
        left -= count
    names = [name for name, _ in rows[0]]
    # statistics x orders
    table = np.array([np.concatenate([row[i][1] for row in rows]) for i in range(len(names))])
    return _adjusted(names, table)


def _adjusted(names: Sequence[str], table: Floats) -> dict[str, float]:
    """Of each name the smallest p-value of its statistics, adjusted; the first column is what was found."""
    orders = table.shape[1]
    scores = np.empty_like(table)
    for row, values in zip(scores, table, strict=True):
        # p-values in units of one order; equal ones by how many standard deviations the statistic is away, without
        # which no adjusted value could be less than the number of statistics over that of orders
        above = orders - np.searchsorted(np.sort(values), values - 1e-9)
        away = (values - values.mean()) / max(float(values.std()), 1e-12)
        row[:] = above - 0.5 * away / (1 + np.abs(away))
    least = np.sort(scores.min(axis=0))
    found: dict[str, float] = {}
    for name, score in zip(names, scores[:, 0], strict=True):
        adjusted = np.searchsorted(least, score + 1e-12, side="right") / orders
        found[name] = min(found.get(name, 1.0), float(adjusted))
    return found


@dataclass(frozen=True)
class _Layout:
    """Where the samples of trains lie."""

    #: Of each train: its first sample, and the one after its last.
    spans: tuple[tuple[int, int], ...]
    #: Of each sample: whether it lies in the first half of its train.
    first_half: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, lengths: Sequence[int]) -> _Layout:
        ends = np.cumsum(lengths)
        spans = tuple(
            (int(end - length), int(end)) for end, length in zip(ends, lengths, strict=True)
        )
        halves = [np.arange(length) < length // 2 for length in lengths]
        return cls(spans, np.concatenate(halves))


@dataclass(frozen=True)
class _Cutoffs:
    """Ranks above which samples count as large."""

    #: The median and the mean.
    middle: tuple[int, ...]
    #: What few exceed, the highest last.
    tail: tuple[int, ...]

    @classmethod
    def of(
        cls, samples: Floats, ranks: npt.NDArray[np.int64], ordered: Places, epsilon: float
    ) -> _Cutoffs:
        count = len(samples)
        below_mean = int(np.sum(samples <= samples.mean() + SAME_S))
        exceed = {math.floor(_TAIL * count), max(2, math.floor(epsilon * count + 1e-9))}
        exceed |= {2**power for power in range(1, 30) if 2**power < _TAIL * count}
        tail = {int(ordered[count - 1 - above]) for above in exceed if above <= count // 2}
        # a threshold that fewer than two exceed says nothing
        tail = {rank for rank in tail if np.sum(ranks > rank) >= 2}
        return cls(
            (int(ordered[(count - 1) // 2]), int(ordered[below_mean - 1])), tuple(sorted(tail))
        )


def _statistics(
    places: Places, ordered: Places, layout: _Layout, cutoffs: _Cutoffs
) -> list[tuple[str, Floats]]:
    """All statistics of each order (a row): large ones speak against independence."""
    orders = np.empty_like(places)
    np.put_along_axis(orders, places, np.broadcast_to(ordered, places.shape), axis=1)
    found: list[tuple[str, Floats]] = []
    for cutoff in cutoffs.middle:
        found.append(("runs", -_runs(orders > cutoff, layout)))
    for cutoff in cutoffs.tail:
        found += [("bunches", pairs) for pairs in _followed(orders > cutoff, layout)]
    in_first = layout.first_half[places]
    found.append(("halves", _kolmogorov(in_first, ordered)))
    upper = cutoffs.tail[0] if cutoffs.tail else cutoffs.middle[0]
    large = in_first[:, ordered > upper]
    # half of them are expected in the first half, except with trains of odd length
    expected = large.shape[1] * layout.first_half.mean()
    found.append(("halves", np.abs(np.count_nonzero(large, axis=1) - expected)))
    if len(layout.spans) > 1:
        found += [("trains", _between(values, layout)) for values in (orders, orders > upper)]
    return found


def _runs(above: npt.NDArray[np.bool_], layout: _Layout) -> Floats:
    """Runs in all trains."""
    count = np.zeros(len(above))
    for begin, end in layout.spans:
        count += np.count_nonzero(above[:, begin + 1 : end] != above[:, begin : end - 1], axis=1)
    return count


def _followed(large: npt.NDArray[np.bool_], layout: _Layout) -> list[Floats]:
    """Pairs of large samples in one train that are at most this many samples apart, for each of `_WITHIN`."""
    count = np.zeros(len(large))
    found: list[Floats] = []
    for lag in range(1, max(_WITHIN) + 1):
        for begin, end in layout.spans:
            if lag < end - begin:
                count += np.count_nonzero(
                    large[:, begin + lag : end] & large[:, begin : end - lag], axis=1
                )
        if lag in _WITHIN:
            found.append(count.copy())
    return found


def _kolmogorov(in_first: npt.NDArray[np.bool_], ordered: Places) -> Floats:
    """The largest difference between the distributions of two parts; of each sample, by size, whether it is in one."""
    size = in_first.shape[1]
    first = int(np.count_nonzero(in_first[0]))
    seen = np.cumsum(in_first, axis=1, dtype=np.int32)
    # of equal values the last
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    away = seen[:, last] / max(first, 1) - (last + 1 - seen[:, last]) / max(size - first, 1)
    return np.asarray(np.abs(away).max(axis=1), dtype=float)


def _between(values: npt.NDArray[Any], layout: _Layout) -> Floats:
    """The variance between trains, weighed by their lengths."""
    found = np.zeros(len(values))
    for begin, end in layout.spans:
        found += values[:, begin:end].sum(axis=1, dtype=float) ** 2 / (end - begin)
    return found
