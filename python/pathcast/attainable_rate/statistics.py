"""Statistics of delays: stationary, independent, a quantile and what is known of it.

As in Lübben and Fidler, section III-B, by kept libraries: `arch` has the test of Elliott, Rothenberg and Stock 1996,
`statsmodels` the runs test. Beyond the paper: bounds of quantiles, and a comparison of the halves of a train, since
the test for a unit root does not see a slow beginning.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import numpy.typing as npt

from pathcast.exceptions import ProbingError

Floats = npt.NDArray[np.float64]

#: A test that says no by chance does so once in so many.
SIGNIFICANCE = 0.01
#: Tests of fewer samples tell nothing.
FEWEST_SAMPLES = 20
#: Delays that differ by less than this are the same: the simulator's clock has nanoseconds.
_SAME_S = 1e-9
#: Samples above a cutoff, and below, that the runs test takes.
_FEWEST_RUNS = 10


def _library(name: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ProbingError(
            f"the tests of delays need {name.split('.')[0]}, which is not here ({error}); "
            "pip install 'pathcast[probing]' has it"
        ) from None


def is_stationary(samples: Floats) -> bool:
    """Whether a series has no unit root, by the test of Elliott, Rothenberg and Stock 1996 (DF-GLS).

    A series that does not vary has none.

    Args:
        samples: delays in the order of time, in seconds; at least `FEWEST_SAMPLES`.

    """
    _enough(samples)
    if np.ptp(samples) <= _SAME_S:
        return True
    unitroot = _library("arch.unitroot")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short or nearly constant series, which then fail
        try:
            lags = min(len(samples) // 3 - 1, math.ceil(12 * (len(samples) / 100) ** 0.25))
            p_value = unitroot.DFGLS(samples, trend="c", max_lags=lags).pvalue
        except Exception:
            return False
    return bool(p_value < SIGNIFICANCE)


def halves_agree(samples: Floats) -> bool:
    """Whether the first half and the second are of the same distribution, by Kolmogorov and Smirnov.

    Args:
        samples: independent delays in the order of time, in seconds; at least `FEWEST_SAMPLES`.

    """
    _enough(samples)
    half = len(samples) // 2
    rounded = np.round(samples / _SAME_S)
    test = _library("scipy.stats").ks_2samp(rounded[:half], rounded[half:], method="asymp")
    return bool(test.pvalue >= SIGNIFICANCE)


def are_independent(samples: Floats) -> bool:
    """Whether values above and below come in runs as by chance: Wald and Wolfowitz's test.

    Above and below the median, as usual, and the mean: delays are often the least possible more than half of the
    time, and it is the bunches of the others that matter. Of fewer than `_FEWEST_RUNS` on one side the test, whose
    statistic is normal only of many, says nothing.

    Args:
        samples: delays in the order of time, in seconds; at least `FEWEST_SAMPLES`.

    """
    _enough(samples)
    if np.ptp(samples) <= _SAME_S:
        return True
    runs = _library("statsmodels.sandbox.stats.runs")
    for cutoff in (float(np.median(samples)), float(np.mean(samples))):
        above = samples > cutoff + _SAME_S
        if _FEWEST_RUNS <= above.sum() <= len(samples) - _FEWEST_RUNS:
            _, p_value = runs.runstest_1samp(above.astype(float), cutoff=0.5, correction=False)
            if p_value < SIGNIFICANCE / 2:
                return False
    return True


@dataclass(frozen=True)
class Quantile:
    """A quantile of which samples tell, and what is known of it.

    Attributes:
        value: the estimate; the unit is the samples'.
        low: with half of `confidence` on each side, it is not below this.
        high: it is not above this; infinity if the samples are too few to tell.
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
        ProbingError: too few samples: it says how many are needed.

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
    binomial = _library("scipy.stats").binom(count, 1 - epsilon)
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

    So many that five of them are expected beyond it; below that the estimate is the largest sample or the next, and
    has no bound above.
    """
    return FEWEST_SAMPLES if epsilon == 0 else max(FEWEST_SAMPLES, math.ceil(5 / epsilon))


def exceedance(samples: Floats, points: int = 200) -> tuple[Floats, Floats]:
    """The CCDF of samples: values, ascending, and the share of samples that is larger; at most so many points.

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
    centred = series - series.mean()
    variance = float(centred @ centred) / count
    found = np.zeros(lags + 1)
    found[0] = 1.0
    if variance > 0:
        size = 1 << (2 * count - 1).bit_length()
        spectrum = np.fft.rfft(centred, size)
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
    t = float(_library("scipy.stats").t.ppf((1 + confidence) / 2, count - 1))
    error = t * runs.std(axis=0, ddof=1) / math.sqrt(count)
    return mean, mean - error, mean + error


def decorrelation(samples: Floats) -> int:
    """The first lag at which a series looks like independent values, at least 1; its length if none does.

    Where the autocorrelation stays within twice its standard error of white noise, for both the values and their
    being above the mean, which rare large ones do not dominate.
    """
    count = len(samples)
    if np.ptp(samples) <= _SAME_S:
        return 1
    most = count // 4
    bound = 2 / math.sqrt(count)
    worst = 1
    for series in (samples, (samples > samples.mean() + _SAME_S).astype(float)):
        if np.ptp(series) == 0:
            continue
        inside = np.abs(autocorrelation(series, most)) <= bound
        first = int(np.argmax(inside)) if inside.any() else count
        worst = max(worst, first)
    return worst


def _enough(samples: Floats) -> None:
    if len(samples) < FEWEST_SAMPLES:
        raise ProbingError(
            f"{len(samples)} samples tell nothing, expected at least {FEWEST_SAMPLES}"
        )
