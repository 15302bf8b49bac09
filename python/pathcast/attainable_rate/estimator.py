"""The estimate: which rates are probed, for how long, and what becomes of the delays.

Lübben and Fidler, section III-B: rates ascend in equal steps; of each, delays are sampled at random from a train, and
tested for stationarity and independence; a train whose samples are stationary but not independent is extended, and
the samples are thinned; the first rate without a steady state is the last.

Beyond it: a pilot run estimates the lag at which delays decorrelate, so that few trains are wasted;
`steady` makes one decision of all tests of all trains, which also look at large delays, halves and trains;
quantiles have bounds; and rates can be chosen by what they add to the curve.

Results follow from the options alone: the number of processors decides how many trains run at the same time, not how
many there are.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pathcast import threads
from pathcast.attainable_rate import statistics, steady
from pathcast.attainable_rate.curve import AttainableRate, Point
from pathcast.attainable_rate.probes import ATTEMPTS, Plan, Prober, Train
from pathcast.attainable_rate.statistics import FEWEST_SAMPLES, decorrelation, samples_needed
from pathcast.exceptions import BudgetSpent, ProbingError

Floats = npt.NDArray[np.float64]

#: Samples of a pilot train, from which the distance of independent ones is read.
_PILOT_SAMPLES = 2000
#: A train is at least this many times as long as the distance of its samples.
_SPACINGS = 60
#: Samples of a pilot train that are tested for a unit root.
_UNIT_ROOT_SAMPLES = 200
#: Of the window, for pictures; lags of its autocorrelation, and how many of them at most.
_WINDOWS, _LAGS, _ROWS = 2000, 100, 20
#: Of a train, the part before the first sample.
_WARM_UP = 0.25


@dataclass(frozen=True)
class Options:
    """How exact an estimate is.

    Attributes:
        epsilon: probability with which the delay at one rate is exceeded; that of the curve is the sum over rates. 0:
            the largest delay seen, for what is not random.
        samples: independent delays of each rate.
        confidence: of the bounds of delays, each rate by itself.
        pilot_s: length of a rate's first train, in seconds; longer ones follow where samples hang together longer.
        most_s: at most so long is a rate probed, in seconds; what is not stationary by then is taken not to be.
        at_once: how many trains run at the same time, which changes no result; 0: one for each processor, in real time
            one.
        seed: of all that is random.
        trains: among which the samples of a rate are divided; fewer where each would have less than 60 samples, more
            where a train would be longer than the prober carries. More trains use more processors, and each has a
            warm-up of a quarter of its length.

    """

    epsilon: float = 0.01
    samples: int = 750
    confidence: float = 0.95
    pilot_s: float = 60.0
    most_s: float = 20_000.0
    at_once: int = 0
    seed: int = 1
    trains: int = 4

    def __post_init__(self) -> None:
        """Check them.

        Raises:
            ProbingError: an option is out of range, or the samples are too few for `epsilon`; the error
            says how many are needed.

        """
        if not 0 <= self.epsilon < 1:
            raise ProbingError(f"epsilon must be from 0 to below 1, got {self.epsilon:g}")
        if not 0 < self.confidence < 1:
            raise ProbingError(f"the confidence must be between 0 and 1, got {self.confidence:g}")
        needed = samples_needed(self.epsilon)
        if self.samples < needed:
            raise ProbingError(
                f"{self.samples} samples are too few for a delay that is exceeded with probability {self.epsilon:g}, "
                f"expected at least {needed}"
            )
        if not 0 < self.pilot_s <= self.most_s < math.inf:
            raise ProbingError(
                f"a pilot must be above 0 s and not longer than the whole probing of a rate, got {self.pilot_s:g} s of "
                f"{self.most_s:g} s"
            )
        if self.at_once < 0 or self.seed < 0:
            raise ProbingError("trains in parallel and seed must not be below 0")
        if self.trains < 1:
            raise ProbingError(f"the number of trains must be at least 1, got {self.trains}")


@dataclass(frozen=True)
class Probed:
    """A rate, and the samples that its point rests on.

    Attributes:
        point: what became of it.
        delay_s: independent delays, in seconds; of a rate without a steady state those of its last trains.
        sender_s: of each, what it spent in the sender's stack.
        network_s: in the network.
        receiver_s: in the receiver's stack.
        autocorrelation: of the window, a row for each train or part of a long one, at lags of `lag_s`; empty where it
            is not known.
        lag_s: in seconds.
        windows: the first minutes of the window, in packets, every `lag_s`.

    """

    point: Point
    delay_s: Floats
    sender_s: Floats
    network_s: Floats
    receiver_s: Floats
    autocorrelation: npt.NDArray[np.float64]
    lag_s: float
    windows: Floats = field(default_factory=lambda: np.zeros(0))


#: Receives a rate, how many seconds of it have been probed, and about how many there will be (None: not
#: known yet).
Watch = Callable[[float, float, float | None], None]


class _Rate:
    """The probing of one rate."""

    def __init__(
        self,
        prober: Prober,
        rate: float,
        options: Options,
        watch: Watch | None,
        stop: threading.Event | None,
    ) -> None:
        self.prober, self.rate, self.options, self.watch = prober, rate, options, watch
        #: Of whoever asked, and of trains that cannot be sent.
        self.stops = [event for event in (stop, threading.Event()) if event is not None]
        self.probed_s = 0.0
        self.trains: list[Train] = []
        #: With its warm-up and its end it lasts no longer than the prober takes; see `Plan.lasts_s`.
        self.most_of_train_s = (prober.longest_s - 5.0) / (1.02 + _WARM_UP)

    def send(self, count: int, duration_s: float, every_s: float) -> list[Train]:
        """Send trains, several in parallel, and repeat those whose run was not valid."""
        # a rate has its own draws: the same seed at two rates would join their errors
        seeds = np.random.SeedSequence(
            [self.options.seed, int(self.rate * 1000) & 0xFFFFFFFF, len(self.trains)]
        )
        numbers = map(int, seeds.generate_state(count, np.uint32))
        warm_up_s = _WARM_UP * duration_s
        expected_s = self.probed_s + count * (warm_up_s + duration_s)

        def progress(_: float) -> None:
            if any(stop.is_set() for stop in self.stops):
                raise ProbingError("stopped")

        def send(seed: int) -> Train:
            for again in range(ATTEMPTS):
                plan = Plan(self.rate, warm_up_s, duration_s, every_s, seed + again)
                train = self.prober.train(plan, progress)
                if not train.invalid_because:
                    return train
            raise ProbingError(
                f"{ATTEMPTS} trains of {self.rate:g} {self.prober.unit} a second cannot be used, the last: "
                + "; ".join(train.invalid_because)
            )

        sent: list[Train] = []
        # work in other threads stops at its next check
        with threads.pool(_at_once(self.prober, self.options), self.stops[-1].set) as pool:
            futures = [pool.submit(send, seed) for seed in numbers]
            for future in futures:
                sent.append(future.result())
                self.probed_s += warm_up_s + duration_s
                if self.watch is not None:
                    self.watch(self.rate, self.probed_s, expected_s)
        self.trains += sent
        return sent

    def probe(self) -> Probed:
        """Probe until the samples are stationary and independent, or the time is over."""
        options = self.options
        least_s = min(options.pilot_s, self.most_of_train_s)
        duration_s = max(least_s, self.prober.least_s(self.rate))
        while True:
            every_s = self._whole(duration_s / _PILOT_SAMPLES)
            pilot = self.send(1, duration_s, every_s)[0]
            why = self._unstable(pilot)
            undecided = not why
            if not why:
                spacing = decorrelation(self._coarse(pilot))
                if spacing * _SPACINGS <= len(pilot.delay_s):
                    break
                # too short to estimate how far apart samples must be
                why = f"delays hang together for more than {spacing * every_s:.3g} s"
            longer_s = 4 * duration_s
            if duration_s < self.most_of_train_s < longer_s:
                longer_s = self.most_of_train_s
            if (
                longer_s > self.most_of_train_s
                or self.probed_s + (1 + _WARM_UP) * longer_s > options.most_s
            ):
                return self._without(why, [pilot], undecided=undecided)
            duration_s = longer_s
        # what the pilot saw little of must be in the samples too
        spacing_s = self._whole(max(spacing * every_s, duration_s / options.samples))
        most = self.most_of_train_s
        if not self._can_be_sampled(spacing_s):
            why = f"samples are {spacing_s:.3g} s apart, and no train may last longer than {most:.3g} s"
            return self._without(why, [pilot], undecided=True)
        while True:
            trains, thinned = self._sample(spacing_s)
            again_s = self.probed_s + options.samples * 2 * spacing_s * (1 + _WARM_UP)
            last = again_s > options.most_s or not self._can_be_sampled(2 * spacing_s)
            why, undecided = self._refused(trains, thinned, last=last)
            if not why:
                return self._with(trains, spacing_s)
            if last:
                return self._without(why, trains, undecided=undecided)
            spacing_s *= 2

    def _can_be_sampled(self, spacing_s: float) -> bool:
        """Whether trains that the prober carries hold enough samples at this distance."""
        count = max(1, self.options.samples // FEWEST_SAMPLES)
        return self._lasts_s(spacing_s, count) <= self.most_of_train_s

    def _coarse(self, train: Train) -> Floats:
        """Delays for the tests: what differs from the median by less than they are exact is the same, since what a
        machine's scheduler adds hangs together for long. (Rounded they would jump where the median is on an edge.)"""
        away_s = train.delay_s - np.median(train.delay_s)
        return np.sign(away_s) * np.maximum(0.0, np.abs(away_s) - self.prober.resolution_s)

    def _whole(self, seconds: float) -> float:
        """The time of whole messages, at least one, that is not shorter."""
        gap_s = self.prober.message / self.rate
        return max(1, math.ceil(seconds / gap_s * (1 - 1e-9))) * gap_s

    def _sample(self, spacing_s: float) -> tuple[list[Train], list[Floats]]:
        """The requested number of samples, at this distance."""
        options = self.options
        # few enough that each is long
        count = max(1, min(options.trains, math.floor(options.samples / _SPACINGS)))
        while (duration_s := self._lasts_s(spacing_s, count)) > self.most_of_train_s:
            count += 1
        trains = self.send(count, duration_s, spacing_s)
        return trains, [self._coarse(train) for train in trains]

    def _lasts_s(self, spacing_s: float, count: int) -> float:
        """The length of a train that has its part of the samples."""
        # distances are uniform from 0 to twice the mean: four standard deviations of their number more
        each = self.options.samples / count
        return spacing_s * (each + 4 * math.sqrt(each / 3) + 2)

    def _unstable(self, train: Train) -> str:
        """Why a train's delays have no steady state; empty: nothing speaks against it."""
        why = _incomplete(train)
        if why:
            return why
        thinned = self._coarse(train)[:: max(1, len(train.delay_s) // _UNIT_ROOT_SAMPLES)]
        return "" if statistics.is_stationary(thinned) else steady.UNIT_ROOT

    def _refused(
        self, trains: Sequence[Train], thinned: Sequence[Floats], *, last: bool
    ) -> tuple[str, bool]:
        """Why the samples of all trains are not used, empty: they are; and whether dependence is the only reason.

        Unless this is the last attempt, suspected dependence costs only time, so that it is tested at a higher level.
        """
        for train in trains:
            why = _incomplete(train)
            if why:
                return why, False
        level = steady.PERMUTATION_LEVEL if last else steady.GUARD_LEVEL
        verdict = steady.decide(thinned, self.options.epsilon, self.options.seed, level)
        return verdict.because, verdict.dependent

    def _with(self, trains: list[Train], spacing_s: float) -> Probed:
        options = self.options
        samples = np.concatenate([train.delay_s for train in trains])
        quantile = statistics.upper_quantile(samples, options.epsilon, options.confidence)
        point = Point(
            self.rate,
            True,
            quantile.value,
            quantile.low if math.isfinite(quantile.low) else None,
            quantile.high if math.isfinite(quantile.high) else None,
            options.epsilon,
            quantile.samples,
            spacing_s,
            self.probed_s,
            float(np.average([t.buffered for t in trains], weights=[t.messages for t in trains])),
            float(np.median(samples)),
            notes=tuple(dict.fromkeys(note for train in trains for note in train.notes)),
        )
        return self._probed(point, trains)

    def _without(self, why: str, trains: list[Train], *, undecided: bool = False) -> Probed:
        point = Point(
            self.rate,
            False,
            probed_s=self.probed_s,
            because=f"{why}, after {self.probed_s:.4g} s",
            undecided=undecided,
        )
        if trains:
            point = replace(point, buffered=trains[-1].buffered)
        return self._probed(point, trains)

    def _probed(self, point: Point, trains: list[Train]) -> Probed:
        def joined(name: str) -> Floats:
            return np.concatenate([getattr(train, name) for train in trains])

        lag_s, rows = _window_autocorrelation(trains)
        return Probed(
            point,
            joined("delay_s"),
            joined("sender_s"),
            joined("network_s"),
            joined("receiver_s"),
            rows,
            lag_s,
            trains[0].windows[:_WINDOWS] if trains and lag_s > 0 else np.zeros(0),
        )


def _incomplete(train: Train) -> str:
    """Why a train cannot be judged; empty: it can."""
    if train.missing:
        return f"{train.missing} messages had not arrived when the run ended"
    if len(train.delay_s) < FEWEST_SAMPLES:
        return (
            f"{len(train.delay_s)} samples are too few to test, expected at least {FEWEST_SAMPLES}"
        )
    return ""


def _at_once(prober: Prober, options: Options) -> int:
    """How many trains run at the same time."""
    return options.at_once or (1 if prober.real_time else os.cpu_count() or 1)


def _window_autocorrelation(trains: Sequence[Train]) -> tuple[float, npt.NDArray[np.float64]]:
    """Of each train long enough, at up to 100 lags; long ones are parted, so that there are about 20 rows (section VI-B2)."""
    rows = []
    for train in trains:
        lags = min(_LAGS, len(train.windows) // 10)
        parts = max(1, min(_ROWS // len(trains), len(train.windows) // (10 * _LAGS)))
        for part in np.array_split(train.windows, parts):
            if lags > 0 and np.ptp(part) > 0:
                rows.append(statistics.autocorrelation(part, lags))
    if not rows:
        return 0.0, np.zeros((0, 0))
    shortest = min(map(len, rows))
    return trains[0].window_every_s, np.array([row[:shortest] for row in rows])


def estimate(
    prober: Prober,
    rates: Iterable[float],
    options: Options | None = None,
    *,
    kept: Callable[[float], Probed | None] | None = None,
    keep: Callable[[Probed], None] | None = None,
    watch: Watch | None = None,
    stop: threading.Event | None = None,
) -> tuple[AttainableRate, list[Probed]]:
    """Probe these rates in turn, up to the first without a steady state.

    Args:
        prober: what carries the trains.
        rates: ascending, in the prober's units a second.
        options: how exact it is to be.
        kept: asked for each rate first, so that what was probed before is not probed again.
        keep: receives each rate that was probed.
        watch: receives the progress of a rate; may raise to stop.
        stop: set, from another thread, it ends the probing with an error.

    Returns:
        The curve, and what was measured at each rate.

    Raises:
        ProbingError: no rates, or they do not ascend; a train that cannot be sent.
        BudgetSpent: there was not enough of it for one rate; if there was, what was probed is returned.

    """
    options = options or Options()
    found: list[Probed] = []
    for rate in rates:
        if found and rate <= found[-1].point.rate:
            raise ProbingError(
                f"rates to probe must ascend, got {rate:g} after {found[-1].point.rate:g}"
            )
        try:
            probed = _one(prober, rate, options, kept, keep, watch, stop)
        except BudgetSpent:
            if not found:
                raise
            break
        found.append(probed)
        if not probed.point.stationary:
            break
    if not found:
        raise ProbingError("no rate to probe, expected at least one")
    return joined(prober, found, options), found


def _one(
    prober: Prober,
    rate: float,
    options: Options,
    kept: Callable[[float], Probed | None] | None,
    keep: Callable[[Probed], None] | None,
    watch: Watch | None,
    stop: threading.Event | None,
) -> Probed:
    probed = None if kept is None else kept(rate)
    if probed is None:
        probed = _Rate(prober, rate, options, watch, stop).probe()
        if keep is not None:
            keep(probed)
    return probed


def joined(prober: Prober, found: Iterable[Probed], options: Options) -> AttainableRate:
    """The curve of rates that were probed, in any order."""
    points = sorted((one.point for one in found), key=lambda point: point.rate)
    return AttainableRate(prober.unit, tuple(points), options.confidence, prober.describe())


def steps(step: float, most: float = math.inf) -> Iterable[float]:
    """The paper's rates: the step, twice the step, and so on.

    Raises:
        ProbingError: no such step.

    """
    if not 0 < step < math.inf:
        raise ProbingError(f"a step of rates must be above 0 and finite, got {step:g}")
    number = 1
    while number * step <= most * (1 + 1e-9):
        yield number * step
        number += 1


def greedy_rate(
    prober: Prober,
    duration_s: float,
    options: Options,
    runs: int = 8,
    stop: threading.Event | None = None,
) -> tuple[float, float, float]:
    """What a greedy source gets, and bounds of the mean over independent runs, in units a second."""
    seeds = np.random.SeedSequence([options.seed, 0x67]).generate_state(runs, np.uint32)

    stopped = stop or threading.Event()

    def once(seed: int) -> float:
        if stopped.is_set():
            raise ProbingError("stopped")
        return prober.greedy(duration_s, int(seed))

    with threads.pool(_at_once(prober, options), stopped.set) as pool:
        rates = list(pool.map(once, seeds))
    mean, low, high = statistics.mean_with_bounds(np.array(rates)[:, None], options.confidence)
    return float(mean[0]), float(low[0]), float(high[0])


def estimate_adaptively(
    prober: Prober,
    rates: int,
    resolution: float,
    options: Options | None = None,
    *,
    most: float | None = None,
    greedy_s: float | None = None,
    kept: Callable[[float], Probed | None] | None = None,
    keep: Callable[[Probed], None] | None = None,
    watch: Watch | None = None,
    stop: threading.Event | None = None,
) -> tuple[AttainableRate, list[Probed]]:
    """Probe the rates that add most to what is known about the curve, instead of all in equal steps.

    First a greedy source shows about where the largest rate with a steady state is, and a search begins
    downwards from there, since rates near it take longest. Then a rate is added where the curve may be furthest above
    what is known: between two rates r1 < r2 delays lie between d(r1) and d(r2), since more load does not make them
    smaller, so that no rate between them adds more than r2 (t - d(r1)) to the maximum.

    Args:
        prober: what carries the trains.
        rates: with a steady state, at the most; the fewer, the smaller is the sum of their epsilons.
        resolution: rates are multiples of this, in units a second.
        options: how exact each rate is to be.
        most: no rate above this, in units a second; None: what a greedy source gets.
        greedy_s: length of the runs of a greedy source, in seconds; None: a hundredth of the longest probing of a rate.
        kept: as of `estimate`, as the others.
        keep: see there.
        watch: see there.
        stop: see there.

    Raises:
        ProbingError: a number out of range; a train that cannot be sent.
        BudgetSpent: the budget did not last; `keep` has each rate that was probed.

    """
    options = options or Options()
    if not 0 < resolution < math.inf or rates < 2:
        raise ProbingError(
            f"adaptive probing needs a resolution above 0 and at least 2 rates, got {resolution:g} and {rates}"
        )
    greedy = None
    if most is None:
        greedy = greedy_rate(prober, greedy_s or options.most_s / 100, options)
        # beyond what a greedy source gets, the backlog grows without bound
        most = greedy[0]
    found: dict[float, Probed] = {}

    def probe(number: int) -> bool:
        rate = number * resolution
        found[rate] = _one(prober, rate, options, kept, keep, watch, stop)
        return found[rate].point.stationary

    low, high = 0, math.floor(most / resolution * (1 + 1e-9)) + 1
    gap = 1
    while high - low > 1:
        # down in growing steps, then halves between the last two
        number = max(low + 1, high - gap) if low == 0 else (low + high) // 2
        if probe(number):
            low = number
        else:
            high, gap = number, 2 * gap
    while low > 0 and len(stable := _stable(found)) < rates:
        least_s = min(float(one.delay_s.min()) for one in found.values() if one.point.stationary)
        useful = _most_useful(stable, least_s, resolution)
        if useful is None or not probe(useful):
            break  # more load was bearable: the tests disagree, and more rates would not help
    curve = joined(prober, found.values(), options)
    return replace(curve, greedy=greedy), list(found.values())


def _stable(found: dict[float, Probed]) -> list[Point]:
    return sorted(
        (one.point for one in found.values() if one.point.stationary), key=lambda p: p.rate
    )


def _most_useful(stable: Sequence[Point], least_s: float, resolution: float) -> int | None:
    """The middle, in multiples of the resolution, of two rates between which the attainable rate may be most above
    what is known, on average over the logarithm of time; None if there is none left between any two. No delay is below
    `least_s`."""
    rates = np.array([point.rate for point in stable])
    delays = np.array([point.delay_s or 0.0 for point in stable])
    times = np.geomspace(max(least_s, 1e-6), 100 * max(delays.max(), 1e-6), 400)
    known = np.maximum(0, (rates[:, None] * (times - delays[:, None])).max(axis=0)) / times
    best: tuple[float, int | None] = (0.0, None)
    for (r1, d1), r2 in zip(
        [(0.0, least_s), *zip(rates, delays, strict=True)], rates, strict=False
    ):
        middle = round((r1 + r2) / 2 / resolution)
        if not r1 + resolution / 2 < middle * resolution < r2 - resolution / 2:
            continue
        may_be = np.minimum(np.maximum(0, r2 * (times - d1)) / times, r2)
        gain = float(np.mean(np.maximum(0, may_be - known)))
        if gain > best[0]:
            best = (gain, middle)
    return best[1]


def decomposition(probed: Probed) -> dict[str, Any]:
    """CCDFs of the delay and its parts at one rate: by part, values in seconds and the share that is larger."""
    parts = {
        "delay": probed.delay_s,
        "sender_stack": probed.sender_s,
        "network": probed.network_s,
        "receiver_stack": probed.receiver_s,
    }
    return {
        name: dict(
            zip(
                ("value_s", "share"),
                map(np.ndarray.tolist, statistics.exceedance(values)),
                strict=True,
            )
        )
        for name, values in parts.items()
        if len(values)
    }
