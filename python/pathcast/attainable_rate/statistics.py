"""Statistics of delays: tests of stationarity and independence, and a quantile with its bounds.

The test of Elliott, Rothenberg and Stock 1996 is that of `arch`; Lübben and Fidler use it in section III-B. `steady`
combines it with the other tests of one decision.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import numpy.typing as npt

from pathcast.exceptions import ProbingError
from pathcast.extras import need

Floats = npt.NDArray[np.float64]

#: Level at which a unit root is rejected.
SIGNIFICANCE = 0.01
#: Tests of fewer samples are not meaningful.
FEWEST_SAMPLES = 20
#: Delays that differ by less than this are the same: the simulator's clock has nanoseconds.
SAME_S = 1e-9


def library(name: str) -> ModuleType:
    """Import a module of the extra `probing`.

    Raises:
        ProbingError: it is not installed.

    """
    module: ModuleType = need(name, "probing", "a test of delays", ProbingError)
    return module


def unit_root_p(samples: Floats) -> float:
    """Return the p-value of a unit root by the test of Elliott, Rothenberg and Stock 1996 (DF-GLS).

    A series that does not vary has 0; one that the test cannot be made of has 1.

    Args:
        samples: delays in the order of time, in seconds; at least `FEWEST_SAMPLES`.

    """
    enough(samples)
    if np.ptp(samples) <= SAME_S:
        return 0.0
    unitroot = library("arch.unitroot")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short or nearly constant series, which then fail
        try:
            lags = min(len(samples) // 3 - 1, math.ceil(12 * (len(samples) / 100) ** 0.25))
            p_value = float(unitroot.DFGLS(samples, trend="c", max_lags=lags, method="bic").pvalue)
        except Exception:
            return 1.0
    return p_value if math.isfinite(p_value) else 1.0


def is_stationary(samples: Floats) -> bool:
    """Return whether a series has no unit root, at `SIGNIFICANCE`; arguments as of `unit_root_p`."""
    return unit_root_p(samples) < SIGNIFICANCE


@dataclass(frozen=True)
class Quantile:
    """A quantile estimated from samples, with its bounds.

    Attributes:
        value: the estimate; the unit is the samples'.
        low: with half of `confidence` on each side, it is not below this.
        high: upper bound; infinity if the samples are too few.
        samples: how many there were.

    """

    value: float
    low: float
    high: float
    samples: int


def upper_quantile(samples: Floats, epsilon: float, confidence: float = 0.95) -> Quantile:
    """The value that a share of `epsilon` exceeds, with bounds by order statistics (binomial).

    The estimate is the smallest sample that at most a share of `epsilon` of all is above.

    Args:
        samples: independent.
        epsilon: 0 gives the largest sample, as for what is not random.
        confidence: of the bounds, both sides together.

    Raises:
        ProbingError: too few samples; the error says how many are needed.

    """
    count = len(samples)
    if count < samples_needed(epsilon):
        raise ProbingError(
            f"{count} samples are too few for a delay that is exceeded with probability {epsilon:g}, "
            f"expected at least {samples_needed(epsilon)}"
        )
    ordered = np.sort(samples)
    if epsilon == 0:
        return Quantile(float(ordered[-1]), float(ordered[-1]), float(ordered[-1]), count)
    at = min(count - 1, math.ceil((1 - epsilon) * count - 1e-9) - 1)
    binomial = library("scipy.stats").binom(count, 1 - epsilon)
    tail = (1 - confidence) / 2
    # X samples lie at or below the quantile: P[X_(k) > quantile] = P[X < k]
    low = int(binomial.ppf(tail)) - 1
    high = int(binomial.isf(tail))
    return Quantile(
        float(ordered[at]),
        float(ordered[low]) if low >= 0 else -math.inf,
        float(ordered[high]) if high < count else math.inf,
        count,
    )


def samples_needed(epsilon: float) -> int:
    """How many samples an estimate of the value takes that a share of `epsilon` exceeds.

    Five samples are expected beyond the quantile. With fewer, the estimate is the largest sample or the
    next, and has no bound above.
    """
    return FEWEST_SAMPLES if epsilon == 0 else max(FEWEST_SAMPLES, math.ceil(5 / epsilon))


def share_bounds(share: float, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return bounds of a probability from its share in independent samples (Clopper and Pearson)."""
    beta = library("scipy.stats").beta
    seen, tail = share * count, (1 - confidence) / 2
    low = 0.0 if seen <= 0 else float(beta.ppf(tail, seen, count - seen + 1))
    high = 1.0 if seen >= count else float(beta.isf(tail, seen + 1, count - seen))
    return low, high


def exceedance(samples: Floats, points: int = 200) -> tuple[Floats, Floats]:
    """The CCDF of samples: values, ascending, and the share of samples that is larger; at most `points` points.

    Points lie evenly on the logarithm of the share, so that rare values have as many as common ones.
    """
    ordered = np.sort(samples)
    count = len(ordered)
    ranks = np.unique(
        np.concatenate(
            [
                np.linspace(0, count - 1, points // 2).astype(int),
                count - 1 - np.geomspace(1, count, points // 2).astype(int) + 1,
            ]
        )
    )
    return ordered[ranks], (count - 1 - ranks) / count


def autocorrelation(series: Floats, lags: int) -> Floats:
    """Autocorrelation at lags 0 to `lags`, equation 9; of a series that does not vary 1 at lag 0, 0 at others.

    Args:
        series: values at equal distances; more than `lags`.
        lags: the largest, in steps of the series.

    Raises:
        ProbingError: the series is too short.

    """
    count = len(series)
    if not 0 <= lags < count:
        raise ProbingError(
            f"{count} values have no autocorrelation at lag {lags}, expected a longer series"
        )
    centered = series - series.mean()
    variance = float(centered @ centered) / count
    found = np.zeros(lags + 1)
    found[0] = 1.0
    if variance > 0:
        size = 1 << (2 * count - 1).bit_length()
        spectrum = np.fft.rfft(centered, size)
        products = np.fft.irfft(spectrum * spectrum.conj(), size)[: lags + 1]
        found = products / count / variance
    return found


def mean_with_bounds(runs: Floats, confidence: float = 0.95) -> tuple[Floats, Floats, Floats]:
    """Mean over independent runs, and its bounds by Student's t.

    Args:
        runs: a row for each run, at least 2.
        confidence: of the bounds, both sides together.

    Returns:
        Mean, lower and upper bound of each column.

    """
    count = len(runs)
    if count < 2:
        raise ProbingError(f"{count} runs have no bounds of their mean, expected at least 2")
    mean = runs.mean(axis=0)
    t = float(library("scipy.stats").t.ppf((1 + confidence) / 2, count - 1))
    error = t * runs.std(axis=0, ddof=1) / math.sqrt(count)
    return mean, mean - error, mean + error


def decorrelation(samples: Floats) -> int:
    """Return the first lag at which a series looks like independent values, at least 1; its length if none does.

    At that lag the autocorrelation is within twice its standard error of white noise, for the values, for their being
    above the mean, which rare large ones do not dominate, and for their being in the upper 10 % and 2 %, whose bunches
    decide how well a quantile is known.
    """
    count = len(samples)
    if np.ptp(samples) <= SAME_S:
        return 1
    most = count // 4
    bound = 2 / math.sqrt(count)
    worst = 1
    cutoffs = (float(samples.mean()), *map(float, np.quantile(samples, (0.9, 0.98))))
    for series in (samples, *((samples > cutoff + SAME_S).astype(float) for cutoff in cutoffs)):
        if np.ptp(series) == 0:
            continue
        inside = autocorrelation(series, most) <= bound
        first = int(np.argmax(inside)) if inside.any() else count
        worst = max(worst, first)
    return worst


def enough(samples: Floats) -> None:
    """Refuse fewer samples than `FEWEST_SAMPLES`."""
    if len(samples) < FEWEST_SAMPLES:
        raise ProbingError(
            f"{len(samples)} samples are too few, expected at least {FEWEST_SAMPLES}"
        )
