"""Judge what the paper finds by what was found here: holds, fails or undecided.

A claim is judged by 95 % bounds, not by point values, and configurations are compared by the rates that both have
probed with a steady state. Bounds are those of each rate by itself. A claim that a configuration was tuned to meet is
marked, and counted apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pathcast.attainable_rate import statistics
from pathcast.attainable_rate.curve import AttainableRate, Floats

#: Paper: order of the attainable rate on short times, best first; those together are about equal (section VI).
ORDER: tuple[tuple[str, ...], ...] = (
    ("periodic",),
    ("scalable",),
    ("bernoulli", "red"),
    ("codel",),
    ("base", "cubic"),
)
#: Configurations whose loss was chosen so that a greedy source gets the fair share.
TUNED = frozenset({"bernoulli", "periodic"})
#: Rates are compared on this time, in seconds.
_TIME_S = 1.0
#: Rates that differ by a smaller factor are about the same.
_ABOUT = 1.25
#: More than this is a good part of the paper's "up to 50 %".
_MUCH = 0.2
#: The paper's origin of the attainable rate, in seconds, and the share by which it may be missed.
_ORIGIN_S, _ORIGIN_MISS = 0.030, 0.2
#: The paper's share of messages that wait in the sender at 5 Mbit/s, and by how much it may be missed.
_BUFFERED, _BUFFERED_MISS = 0.3, 0.1

HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"
VERDICTS = (HOLDS, FAILS, UNDECIDED)


@dataclass(frozen=True)
class Estimate:
    """A value and its bounds."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Estimate:
        """Return it in another unit."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def inside(found: Estimate, least: float, most: float) -> str:
    """Judge a claim that a value lies in [least, most): its bounds lie inside, outside, or on both sides."""
    if least <= found.low and found.high < most:
        return HOLDS
    return FAILS if found.high < least or found.low >= most else UNDECIDED


def more(one: Estimate, other: Estimate) -> str:
    """Judge a claim that one value is larger: undecided where the bounds overlap."""
    if one.low > other.high:
        return HOLDS
    return FAILS if one.high < other.low else UNDECIDED


def ratio(one: Estimate, other: Estimate) -> Estimate:
    """Return one value over another, by the bounds of both; not known if the other may be 0."""

    def over(above: float, below: float) -> float:
        return above / below if below > 0 else math.inf

    return Estimate(
        over(one.value, other.value), over(one.low, other.high), over(one.high, other.low)
    )


def on_equal_rates(curves: Sequence[AttainableRate]) -> tuple[list[AttainableRate], list[float]]:
    """Return curves of the rates that have a steady state in all of them, and these rates."""
    rates = sorted(set.intersection(*({point.rate for point in one.used} for one in curves)))
    equal = [
        replace(one, points=tuple(point for point in one.used if point.rate in rates))
        for one in curves
    ]
    return equal, rates


def within(curve: AttainableRate, time_s: float = _TIME_S) -> Estimate:
    """Return the attainable rate on this time, in Mbit/s."""
    value, low, high = (
        float(curve.rate([time_s], bound)[0]) / 1e6 for bound in ("", "low", "high")
    )
    return Estimate(value, low, high)


def origin(curve: AttainableRate) -> Estimate | None:
    """Return when the curve leaves 0, in seconds: the least delay; None if no rate has a steady state."""
    if not curve.used:
        return None
    first = min(curve.used, key=lambda point: point.delay_s or 0.0)
    value = first.delay_s or 0.0
    low = value if first.delay_low_s is None else first.delay_low_s
    return Estimate(value, low, math.inf if first.delay_high_s is None else first.delay_high_s)


def buffered(curve: AttainableRate, rate_bps: float) -> Estimate | None:
    """Return the share of messages that wait in the sender at a rate, with bounds of as many as there are samples."""
    point = next((point for point in curve.used if point.rate == rate_bps), None)
    if point is None:
        return None
    low, high = statistics.share_bounds(point.buffered, point.samples, curve.confidence)
    return Estimate(point.buffered, low, high)


def late(curve: AttainableRate, written_s: Floats, bits: float) -> Estimate:
    """Return the delay bound of 95 % of an application's messages, in seconds, with that of the delays' bounds."""

    def bound(name: str) -> float:
        points = [
            replace(point, delay_s=delay)
            for point in curve.used
            if (delay := getattr(point, name)) is not None
        ]
        if not points:
            return math.inf if name == "delay_high_s" else 0.0
        of = replace(curve, points=tuple(points))
        return float(np.quantile(of.delay_bounds(written_s, bits), 0.95))

    return Estimate(bound("delay_s"), bound("delay_low_s"), bound("delay_high_s"))


def judged(
    curves: Mapping[str, AttainableRate],
    paper_mbps: Mapping[str, float | None],
    video: tuple[Floats, float, float],
) -> list[dict[str, Any]]:
    """Judge the paper's claims, of configurations that were run.

    Args:
        curves: by configuration, with `greedy`.
        paper_mbps: long-term rate that the paper finds, in Mbit/s; None: the paper lacks the configuration.
        video: when its messages are written, in seconds; their size, in bits; its mean rate, in bits per second.

    Returns:
        Of each: `claim` and `got` in words, `verdict`, `holds` (whether it is `holds`), `tuned`, `rates_bps` (those
        that the comparison uses, if it does) and `bounds`: by configuration value, lower and upper bound, in the unit
        of `got`; null: not bounded.

    """
    return [
        *_long_term(curves, paper_mbps),
        *_base_alone(curves),
        *_small_buffers(curves),
        *_order(curves),
        *_video(curves, *video),
    ]


def summary(found: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Count verdicts: of claims that were `tested`, and of those that were `tuned`."""
    counts = {kind: dict.fromkeys(VERDICTS, 0) for kind in ("tested", "tuned")}
    for one in found:
        counts["tuned" if one["tuned"] else "tested"][one["verdict"]] += 1
    return counts


def _claim(
    text: str,
    verdict: str,
    bounds: Mapping[str, Estimate],
    unit: str,
    *,
    rates_bps: Sequence[float] | None = None,
    tuned: bool = False,
) -> dict[str, Any]:
    shown = ", ".join(f"{name} {estimate}" for name, estimate in bounds.items())
    got = f"{shown} {unit}".strip()
    if rates_bps is not None:
        probed = ", ".join(f"{rate / 1e6:g}" for rate in rates_bps)
        got += f", probed at {probed} Mbit/s" if rates_bps else "no rate that is steady in both"
    return {
        "claim": text,
        "got": got,
        "holds": verdict == HOLDS,
        "verdict": verdict,
        "tuned": tuned,
        "rates_bps": None if rates_bps is None else list(rates_bps),
        "bounds": {
            name: [
                bound if math.isfinite(bound) else None
                for bound in (estimate.value, estimate.low, estimate.high)
            ]
            for name, estimate in bounds.items()
        },
    }


def _long_term(
    curves: Mapping[str, AttainableRate], paper_mbps: Mapping[str, float | None]
) -> Iterable[dict[str, Any]]:
    for name, curve in curves.items():
        paper = paper_mbps.get(name)
        if paper is None or curve.greedy is None:
            continue
        greedy = Estimate(*curve.greedy).times(1e-6)
        text = f"{name}: long-term rate of {paper:g} Mbit/s, probed in steps of 1"
        if name in TUNED:
            text += " (its loss was tuned to give this)"
        # the paper's grid: a rate up to the next step
        yield _claim(
            text, inside(greedy, paper, paper + 1), {name: greedy}, "Mbit/s", tuned=name in TUNED
        )


def _base_alone(curves: Mapping[str, AttainableRate]) -> Iterable[dict[str, Any]]:
    base = curves.get("base")
    if base is None:
        return
    start = origin(base)
    if start is not None:
        least, most = (_ORIGIN_S * (1 + sign * _ORIGIN_MISS) for sign in (-1, 1))
        yield _claim(
            f"origin of the attainable rate at {1e3 * _ORIGIN_S:.0f} ms, to within {100 * _ORIGIN_MISS:.0f} %",
            inside(start, least, most),
            {"base": start.times(1e3)},
            "ms",
        )
    share = buffered(base, 5e6)
    if share is not None:
        yield _claim(
            f"5 Mbit/s are buffered in the sender with probability {_BUFFERED}, to within {_BUFFERED_MISS}",
            inside(share, _BUFFERED - _BUFFERED_MISS, _BUFFERED + _BUFFERED_MISS),
            {"base": share},
            "",
        )


def _small_buffers(curves: Mapping[str, AttainableRate]) -> Iterable[dict[str, Any]]:
    names = [name for name in ("buffer-21", "buffer-83") if name in curves]
    if "base" not in curves or "buffer-83" not in names:
        return
    equal, rates = on_equal_rates([curves["base"], *(curves[name] for name in names)])
    base, *small = map(within, equal)
    best = Estimate(*(max(getattr(one, end) for one in small) for end in ("value", "low", "high")))
    gain = ratio(best, base)
    gain = Estimate(*(100 * (end - 1) for end in (gain.value, gain.low, gain.high)))
    yield _claim(
        f"smaller buffers: up to 50 % more within 1 s, here more than {100 * _MUCH:.0f} %",
        inside(gain, 100 * _MUCH, math.inf) if rates else UNDECIDED,
        {"gain": gain} if rates else {},
        "%",
        rates_bps=rates,
    )


def _order(curves: Mapping[str, AttainableRate]) -> Iterable[dict[str, Any]]:
    pairs = [pair for both in itertools.pairwise(ORDER) for pair in itertools.product(*both)]
    equals = [group for group in ORDER if len(group) == 2]
    for one, other in (*pairs, *equals):
        if not {one, other} <= set(curves):
            continue
        equal, rates = on_equal_rates([curves[one], curves[other]])
        first, second = map(within, equal)
        if (one, other) in equals:
            text = f"within 1 s {one} and {other} attain the same to within a factor of {_ABOUT}"
            verdict = inside(ratio(first, second), 1 / _ABOUT, _ABOUT)
        else:
            text = f"within 1 s {one} attains more than {other}"
            verdict = more(first, second)
        yield _claim(
            text,
            verdict if rates else UNDECIDED,
            {one: first, other: second} if rates else {},
            "Mbit/s" if rates else "",
            rates_bps=rates,
        )


def _video(
    curves: Mapping[str, AttainableRate], written_s: Floats, bits: float, mean_bps: float
) -> Iterable[dict[str, Any]]:
    """The order of delay bounds of a video."""
    for one, other in itertools.pairwise(("periodic", "scalable", "base")):
        if not {one, other} <= set(curves):
            continue
        equal, rates = on_equal_rates([curves[one], curves[other]])
        text = (
            f"the delay bound of 95 % of a video's packets is smaller with {one} than with {other}"
        )
        if max(rates, default=0.0) <= mean_bps:
            yield _claim(text, UNDECIDED, {}, "", rates_bps=())
            continue
        first, second = (late(curve, written_s, bits).times(1e3) for curve in equal)
        yield _claim(text, more(second, first), {one: first, other: second}, "ms", rates_bps=rates)
