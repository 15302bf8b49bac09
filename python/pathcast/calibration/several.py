"""The path that explains what several schemes got over it.

The five parameters are those of Pantheon's emulators (Yan et al., ATC 2018, section 5): rate, propagation delay, queue,
random loss, and whether packets leave at a constant rate or by a Poisson process; jitter is a sixth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import fmean

import numpy as np

from pathcast.batch import Simulation, simulate_many
from pathcast.calibration.closed_forms import (
    JITTER,
    LEAST,
    LOSS,
    MOST,
    PARAMETERS,
    RATE,
    RTT,
    FirstEstimate,
)
from pathcast.calibration.features import HEADER_BYTES, MSS_BYTES
from pathcast.calibration.inference import RUNS, infer
from pathcast.calibration.measurements import Measurement
from pathcast.calibration.paths import CONSTANT, Link, path_of
from pathcast.calibration.result import SchemeFit
from pathcast.exceptions import ModelError, SchemeError
from pathcast.path import Path
from pathcast.runs import simulate
from pathcast.scenario import Scenario
from pathcast.trace import Column

#: The prior: standard deviations of logarithms, those of the round trip where its minimum was measured and where not.
_SPREAD = np.array([1.0, 0.5, 1.2, 2.5, 2.0])
_SPREAD_RTT = 0.1
_QUEUE_ROUND_TRIPS = 1.2
_JITTER_S = 5e-4
#: The search: paths all over the prior, then as many around the best of them, and so on; it counts features this close as
#: equal.
_SEARCHES, _SEARCHED, _BEST, _NEAR = 4, 64, 10, 0.1
#: Rounds of simulations after it.
_ROUNDS = 4
#: The first round looks this part of the prior's spread around what the search found.
_FIRST_PART = 0.15
#: Least standard deviations of logarithms: simulator and kernel differ by as much.
_FLOOR = {"goodput": 0.02, "delay": 0.03, "loss": 0.1}
#: Losses below this say nothing.
_LEAST_LOSS = 1e-4
#: Above this rate a Poisson process of packets looks constant.
_POISSON_BELOW_BPS = 30e6
#: A path with more than the simplest has this part of its misfit, and of its error of schemes that were left out, at most.
_CLEARLY = 0.9
#: Series of so many bins tell how a rate wanders, by schemes that get this part of what the fastest gets; with a smaller
#: spread, it does not; limits of what is simulated.
_LEAST_BINS, _FILLS, _LEAST_SPREAD, _MOST_SPREAD, _LEAST_CORRELATION_S = 10, 0.7, 0.1, 2.0, 0.05
#: Draws that are weighed by their own simulations, and runs of one path that tell chance; draws that count at least, and
#: the part of their spread by which draws are smoothed.
_WEIGHED, _REPEATED, _LEAST_COUNTING, _SMOOTHED = 128, 12, 12.0, 0.3
#: Simulated paths to find one.
_PATHS_OF_ONE = _SEARCHES * _SEARCHED + _ROUNDS * RUNS + _WEIGHED
#: The spread of a parameter that is left out.
_PINNED = 1e-3
#: Runs of each scheme over the path that was found.
_RUNS_OF_RESULT = 16
_BITS = 8 * (MSS_BYTES + HEADER_BYTES)


@dataclass(frozen=True)
class _Mean:
    """What a scheme got on average; shapes are of its features."""

    scheme: str
    flows: int
    runs: int
    duration_s: float
    goodput_bps: float
    delay_p95_s: float | None
    y: Column
    floor: Column

    @property
    def has(self) -> tuple[bool, ...]:
        """Whether goodput, delay and loss were measured."""
        return tuple(bool(one) for one in np.isfinite(self.y))

    @property
    def sent_packets(self) -> float:
        """Data packets of all its runs."""
        return self.runs * self.duration_s * self.goodput_bps / (8 * MSS_BYTES)


@dataclass(frozen=True)
class Joint:
    """Parameters of a path as far as several schemes tell.

    Attributes:
        samples: draws of the parameters in the order of `PARAMETERS`; shape n x 5.
        link: how packets leave the queue.
        misfit: as of a flow.
        schemes: how each scheme does over it.
        first: where the search began.
        left_out: schemes that the simulator does not have.

    """

    samples: Column
    link: Link
    misfit: float
    schemes: tuple[SchemeFit, ...]
    first: FirstEstimate
    left_out: tuple[str, ...] = ()

    def score(self) -> float:
        """The median error of goodput of schemes that were left out; the misfit if none was."""
        errors = [
            abs(one.goodput_error_without)
            for one in self.schemes
            if one.goodput_error_without is not None
        ]
        return float(np.median(errors)) if errors else self.misfit


def fit_several(
    measured: Sequence[Measurement],
    *,
    draws: int,
    seed: int,
    without: bool = True,
    progress: Callable[[float], None] | None = None,
) -> Joint:
    """Infer the path from what several schemes got.

    Args:
        measured: runs, at least two schemes that the simulator has.
        draws: samples of the posterior.
        seed: of all that is random.
        without: also infer the path without each scheme, and say what that predicts of it.
        progress: called with the part of the work that is done.

    Raises:
        ModelError: fewer than two schemes are left, or nothing was carried.

    """
    means, left_out = _means(measured)
    if len(means) < 2:
        raise ModelError(
            f"got {len(means)} schemes that the simulator has, expected at least two; "
            f"left out: {', '.join(left_out) or 'none'}"
        )
    search = _Search(means, measured, seed, progress)
    models = _models(_first_estimate(means, None), measured)
    left_out_in_turn = len(means) if without and len(means) > 2 else 0
    search.expect(len(models) + 2 * left_out_in_turn)
    found = [(search.over(model, draws), model) for model in models]
    simple, other = found[0], min(found[1:], key=lambda one: one[0].misfit)
    rivals = [simple]
    if other[0].misfit < _CLEARLY * simple[0].misfit:
        rivals.append(other)
    if left_out_in_turn:
        rivals = [(search.judged(*one), one[1]) for one in rivals]
    # the simplest is kept unless the other predicts clearly better what it was not inferred from
    best = rivals[0][0]
    if len(rivals) > 1 and rivals[1][0].score() < _CLEARLY * best.score():
        best = rivals[1][0]
    if progress:
        progress(1.0)
    return replace(best, left_out=left_out)


class _Steps:
    """Progress over several inferences."""

    def __init__(self, progress: Callable[[float], None] | None) -> None:
        self._progress, self._before, self._now = progress, 0.0, 0.0
        self.total = math.inf

    def __call__(self, runs: float) -> None:
        self._now = runs
        if self._progress:
            self._progress(min((self._before + runs) / self.total, 1.0))

    def done(self) -> None:
        self._before, self._now = self._before + self._now, 0.0


def _means(measured: Sequence[Measurement]) -> tuple[list[_Mean], tuple[str, ...]]:
    """Average the runs of each scheme; name those that the simulator lacks or that carried nothing."""

    def key(one: Measurement) -> tuple[str, int]:
        return one.scheme, one.flows

    means, left_out = [], []
    for (scheme, flows), group in groupby(sorted(measured, key=key), key=key):
        runs = [one for one in group if one.goodput_bps > 0]
        if not runs or not _is_known(scheme):
            left_out.append(scheme)
            continue
        columns: dict[str, list[float | None]] = {
            "goodput": [one.goodput_bps for one in runs],
            "delay": [one.delay_p95_s for one in runs],
            "loss": [None if one.loss is None else one.loss + _LEAST_LOSS for one in runs],
        }
        y, floor = [], []
        mean: dict[str, float] = {}
        for name, values in columns.items():
            there = np.array([one for one in values if one is not None and one > 0], dtype=float)
            mean[name] = float(there.mean()) if len(there) else math.nan
            scatter = np.log(there).std(ddof=1) / math.sqrt(len(there)) if len(there) > 1 else 0.0
            y.append(math.log(mean[name]) if len(there) else math.nan)
            floor.append(math.hypot(_FLOOR[name], scatter))
        means.append(
            _Mean(
                scheme,
                flows,
                len(runs),
                float(np.median([one.duration_s for one in runs])),
                mean["goodput"],
                None if math.isnan(mean["delay"]) else mean["delay"],
                np.array(y),
                np.array(floor),
            )
        )
    return means, tuple(dict.fromkeys(left_out))


def _is_known(scheme: str) -> bool:
    """Whether the simulator has it."""
    try:
        simulate(Path.parse("delay = '10 ms'\nrate = '12 Mbit/s'"), [scheme], duration_s=0.2)
    except SchemeError:
        return False
    return True


def _first_estimate(means: Sequence[_Mean], least_s: float | None) -> FirstEstimate:
    """Estimate the path from the fastest scheme, the shortest and longest delay, and the least loss."""
    rate_bps = 1.02 * max(one.goodput_bps for one in means) * _BITS / (8 * MSS_BYTES)
    delays = [one.delay_p95_s for one in means if one.delay_p95_s is not None]
    one_way_s = least_s if least_s is not None else (min(delays) if delays else 0.02)
    one_way_s = max(one_way_s - _BITS / rate_bps, one_way_s / 2)
    rtt_s = 2 * one_way_s
    queue_s = max(max(delays) - one_way_s, 0.1 * rtt_s) if delays else _QUEUE_ROUND_TRIPS * rtt_s
    losses = [math.exp(one.y[2]) for one in means if math.isfinite(one.y[2])]
    if losses:
        loss = max(min(losses) - _LEAST_LOSS, 1e-6)
    else:
        # what random loss would limit the slowest scheme to what it got (Mathis et al., CCR 1997)
        slowest = min(one.goodput_bps for one in means)
        loss = (1.22 * 8 * MSS_BYTES / (rtt_s * slowest)) ** 2 if slowest < rate_bps / 2 else 1e-5
    start = np.log([rate_bps, rtt_s, queue_s, min(loss, 0.2), _JITTER_S])
    spread = _SPREAD.copy()
    if least_s is not None:
        spread[RTT] = _SPREAD_RTT
    clipped = np.clip(start, np.log(LEAST), np.log(MOST))
    return FirstEstimate(clipped, clipped.copy(), spread, True, queue_s, 0)


def _models(first: FirstEstimate, measured: Sequence[Measurement]) -> list[_Model]:
    """What the path may be like, the simplest first."""
    found = [_Model(), _Model(has_jitter=True)]
    if math.exp(first.start[RATE]) < _POISSON_BELOW_BPS:
        found.append(_Model(Link("poisson")))
    wanders = wandering(measured)
    if wanders is not None:
        found += [_Model(wanders), _Model(wanders, has_jitter=True)]
    return found


def wandering(measured: Sequence[Measurement]) -> Link | None:
    """Tell from series of goodput how a rate wanders; None if they say nothing of it, or it hardly does.

    Schemes that fill the path show its rate, averaged over bins. For an Ornstein-Uhlenbeck process with the time of
    correlation t, averages over bins of the length t a have the variance 2 (a - 1 + exp(-a)) / a^2 and the correlation
    (1 - exp(-a))^2 / (2 (a - 1 + exp(-a))) with the next, in units of the process's variance.
    """
    by_scheme: dict[str, list[Measurement]] = {}
    for one in measured:
        if len(one.rates_bps) >= _LEAST_BINS and one.goodput_bps > 0:
            by_scheme.setdefault(one.scheme, []).append(one)
    means = {name: fmean(one.goodput_bps for one in runs) for name, runs in by_scheme.items()}
    least_bps = _FILLS * max(means.values(), default=0.0)
    full = [one for name, runs in by_scheme.items() if means[name] >= least_bps for one in runs]
    spreads, correlations_s = [], []
    for one in full:
        rates = np.array(one.rates_bps)
        relative = rates / rates.mean() - 1
        variance = float(np.mean(relative**2))
        if variance <= 0:
            continue
        next_ = float(np.mean(relative[1:] * relative[:-1])) / variance
        a = _bins_of(next_)
        averaged = 2 * (a - 1 + math.exp(-a)) / a**2
        spreads.append(math.sqrt(math.log1p(variance / averaged)))
        correlations_s.append(one.bin_s / a)
    if not spreads or np.median(spreads) < _LEAST_SPREAD:
        return None
    return Link(
        "wandering",
        min(float(np.median(spreads)), _MOST_SPREAD),
        max(float(np.median(correlations_s)), _LEAST_CORRELATION_S),
    )


def _bins_of(correlation: float) -> float:
    """The length of a bin in times of correlation for which averages of neighbors correlate as much."""
    lengths = np.geomspace(0.02, 20, 400)
    told = (1 - np.exp(-lengths)) ** 2 / (2 * (lengths - 1 + np.exp(-lengths)))
    return float(lengths[int(np.argmin(np.abs(told - correlation)))])


class _Batch:
    """Simulates the schemes over paths, and gives their features in the order of `y`."""

    def __init__(self, means: Sequence[_Mean], least_s: float | None, link: Link) -> None:
        self.means, self.link, self.least_s = means, link, least_s
        own = [] if least_s is None else [math.log(least_s)]
        self.y: Column = np.concatenate([one.y[list(one.has)] for one in means] + [np.array(own)])
        floors = [one.floor[list(one.has)] for one in means]
        self.floor: Column = np.concatenate([*floors, np.full(len(own), _FLOOR["goodput"])])

    def __call__(self, parameters: Column, seeds: Column) -> Iterator[Column | None]:
        paths = [path_of(one, link=self.link) for one in parameters]
        results = _run(paths, seeds, self.means)
        for row, one in zip(results, parameters, strict=True):
            parts = [values[list(mean.has)] for values, mean in zip(row, self.means, strict=True)]
            if self.least_s is not None:
                parts.append(np.log([one[RTT] / 2 + _BITS / one[RATE]]))
            yield np.concatenate(parts)


def _run(paths: Sequence[Path], seeds: Sequence[int] | Column, means: Sequence[_Mean]) -> Column:
    """Logarithms of goodput, delay and loss of each scheme over each path; shape paths x schemes x 3."""
    simulations = [
        Simulation(
            Scenario.over(path, [one.scheme] * one.flows), duration_s=one.duration_s, seed=int(seed)
        )
        for path, seed in zip(paths, seeds, strict=True)
        for one in means
    ]
    results = simulate_many(simulations)
    numbers = results.column("simulation").astype(int)
    goodputs = np.bincount(
        numbers, np.nan_to_num(results.column("goodput_bps")), minlength=len(simulations)
    )
    firsts = np.searchsorted(numbers, np.arange(len(simulations)))
    delays_s = 1e-3 * results.column("one_way_delay_p95_ms")[firsts]
    losses = results.column("loss_rate")[firsts] + _LEAST_LOSS
    with np.errstate(divide="ignore"):
        found = np.log(np.column_stack([goodputs, delays_s, losses]))
    return np.asarray(found.reshape(len(paths), len(means), 3))


@dataclass(frozen=True)
class _Model:
    """What a path may have: how packets leave, and whether their delay varies on the way."""

    link: Link = CONSTANT
    has_jitter: bool = False


class _Search:
    """Looks for the path of schemes, and for those of all but one."""

    def __init__(
        self,
        means: Sequence[_Mean],
        measured: Sequence[Measurement],
        seed: int,
        progress: Callable[[float], None] | None,
    ) -> None:
        shortest = [one.delay_min_s for one in measured if one.delay_min_s is not None]
        self._least_s = min(shortest) if shortest else None
        self._means, self._seed, self._note = means, seed, _Steps(progress)

    def expect(self, paths: int) -> None:
        """Tell the progress how many paths there are to find, about."""
        self._note.total = paths * _PATHS_OF_ONE

    def over(self, model: _Model, draws: int) -> Joint:
        """Infer the path from all schemes."""
        samples, misfit, begin = self._infer(self._means, model, draws)
        fits = tuple(fit for fit, _ in _fits(samples, model.link, self._means, self._seed))
        loss = float(np.median(samples[:, LOSS]))
        losses = loss * sum(one.sent_packets for one in self._means)
        return Joint(samples, model.link, misfit, fits, replace(begin, random_losses=round(losses)))

    def judged(self, joint: Joint, model: _Model) -> Joint:
        """Predict each scheme by the path that the others tell."""
        fits = []
        for number, one in enumerate(joint.schemes):
            others = [mean for place, mean in enumerate(self._means) if place != number]
            told, _, _ = self._infer(others, model, _RUNS_OF_RESULT)
            ((alone, goodput_range),) = _fits(told, model.link, [self._means[number]], self._seed)
            fits.append(
                replace(
                    one,
                    goodput_error_without=alone.goodput_error,
                    delay_error_without=alone.delay_error,
                    goodput_range_without=goodput_range,
                )
            )
        return replace(joint, schemes=tuple(fits))

    def _infer(
        self, means: Sequence[_Mean], model: _Model, draws: int
    ) -> tuple[Column, float, FirstEstimate]:
        """Draw paths of the posterior, and return their misfit and where the search began to be local."""
        first = _first_estimate(means, self._least_s)
        if not model.has_jitter:
            start, prior, spread = first.start.copy(), first.prior.copy(), first.spread.copy()
            start[JITTER] = prior[JITTER] = np.log(LEAST[JITTER])
            spread[JITTER] = _PINNED
            first = replace(first, start=start, prior=prior, spread=spread)
        batch = _Batch(means, self._least_s, model.link)
        begin = self._nearest(first, batch)
        found = infer(
            begin,
            batch,
            batch.y,
            batch.floor,
            draws=_WEIGHED,
            seed=self._seed,
            rounds=_ROUNDS,
            first_part=_FIRST_PART,
            progress=self._note,
        )
        self._note.done()
        return self._weighed(found.samples, batch, draws), found.misfit, begin

    def _nearest(self, first: FirstEstimate, batch: _Batch) -> FirstEstimate:
        """Begin at the path that looks most like what was measured, of many over all the prior."""
        generator = np.random.default_rng(self._seed)
        tried, distances = np.empty((0, len(PARAMETERS))), np.empty(0)
        for number in range(_SEARCHES):
            if number == 0:
                noise = generator.standard_normal((_SEARCHED, len(PARAMETERS)))
                drawn = first.prior + first.spread * noise
                # rates below what was carried are not possible
                drawn[:, RATE] = first.prior[RATE] + np.abs(drawn[:, RATE] - first.prior[RATE])
                drawn[0] = first.start
            else:
                best = tried[np.argsort(distances)[:_BEST]]
                drawn = best[generator.integers(0, _BEST, _SEARCHED)]
                drawn = drawn + best.std(axis=0) * generator.standard_normal(drawn.shape)
            drawn = np.clip(drawn, np.log(LEAST), np.log(MOST))
            far = []
            for found in batch(np.exp(drawn), np.arange(1.0, _SEARCHED + 1)):
                off = np.inf if found is None else (found - batch.y) / np.hypot(batch.floor, _NEAR)
                far.append(float(np.mean(np.minimum(np.nan_to_num(off**2, nan=1e6), 1e6))))
                self._note(len(distances) + len(far))
            tried, distances = np.vstack([tried, drawn]), np.concatenate([distances, far])
        self._note.done()
        return replace(first, start=tried[int(np.argmin(distances))])

    def _weighed(self, samples: Column, batch: _Batch, draws: int) -> Column:
        """Weigh draws by how likely their own simulations make what was measured, and draw from them.

        What `infer` draws rests on a line through the features, which bends where a queue or losses begin to count.
        """
        generator = np.random.default_rng(self._seed)
        middle = np.tile(np.median(samples, axis=0), (_REPEATED, 1))
        again = [one for one in batch(middle, np.arange(1.0, _REPEATED + 1)) if one is not None]
        chance = np.var(again, axis=0, ddof=1) if len(again) > 1 else 0.0
        variance = batch.floor**2 + 2 * np.minimum(chance, 1.0)
        likely = np.full(len(samples), -np.inf)
        for number, found in enumerate(batch(samples, np.arange(1.0, len(samples) + 1))):
            if found is not None and np.isfinite(found).all():
                likely[number] = -0.5 * float(np.sum((found - batch.y) ** 2 / variance))
            self._note(number + 1)
        self._note.done()
        if not np.isfinite(likely).any():
            return samples[generator.integers(0, len(samples), draws)]
        weights = _weights(likely)
        logs = np.log(samples)
        mean = weights @ logs
        spread = np.sqrt(weights @ (logs - mean) ** 2)
        chosen = logs[generator.choice(len(samples), draws, p=weights)]
        smoothed = chosen + _SMOOTHED * spread * generator.standard_normal(chosen.shape)
        return np.exp(np.clip(smoothed, np.log(LEAST), np.log(MOST)))


def _weights(likely: Column) -> Column:
    """Weights by logarithms of likelihoods, evened until they count as several draws at least."""
    power = 1.0
    while True:
        weights = np.exp(power * (likely - likely.max()))
        weights /= weights.sum()
        if 1 / np.sum(weights**2) >= _LEAST_COUNTING or power < 1e-3:
            return np.asarray(weights)
        power *= 0.8


def _fits(
    samples: Column, link: Link, means: Sequence[_Mean], seed: int
) -> list[tuple[SchemeFit, tuple[float, float]]]:
    """Run each scheme over paths of the posterior and compare; with the range of its error of goodput."""
    chosen = np.random.default_rng(seed).integers(0, len(samples), _RUNS_OF_RESULT)
    paths = [path_of(samples[i], link=link) for i in chosen]
    found = np.exp(_run(paths, [seed + i for i in range(len(paths))], means))
    goodputs, delays = found[..., 0], found[..., 1]
    return [
        (
            SchemeFit(
                mean.scheme,
                mean.runs,
                mean.goodput_bps,
                mean.delay_p95_s,
                float(np.mean(goodputs[:, place]) / mean.goodput_bps - 1),
                None
                if mean.delay_p95_s is None
                else float(np.mean(delays[:, place]) / mean.delay_p95_s - 1),
            ),
            _range(goodputs[:, place] / mean.goodput_bps - 1),
        )
        for place, mean in enumerate(means)
    ]


def _range(values: Column) -> tuple[float, float]:
    p5, p95 = np.quantile(values, [0.05, 0.95])
    return float(p5), float(p95)


__all__ = ["Joint", "fit_several", "wandering"]
