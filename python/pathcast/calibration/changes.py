"""How the rate of a path changes while a flow fills it, by what it was acknowledged."""

from __future__ import annotations

import math

import numpy as np

from pathcast.calibration.features import HEADER_BYTES, Observation, round_trips_s
from pathcast.trace import Column

#: Rates are means over bins of this length at least, of so many at most.
_BIN_S, _MOST_BINS = 0.5, 120
#: While packets wait for this part of the longest time or more, the flow fills the path.
_WAITING = 0.15
#: A step has so many bins on each side, changes the rate by this factor at least, and is this many standard errors.
_LEAST_BINS, _LEAST_FACTOR, _CLEARLY = 3, 1.25, 5.0
#: Steps of a flow.
_MOST_STEPS = 16

#: From which second on, and the rate in bit/s of whole packets.
Steps = list[tuple[float, float]]


def rate_steps(seen: Observation) -> Steps:
    """Find when the rate of the path changed and what it was, from bins in which the flow filled it.

    Bins are split where their means differ most, again and again, while they differ clearly (binary segmentation: Scott
    and Knott, Biometrics 1974). A step is at the edge of the lower rate: there the queue begins to grow or is drained.

    Returns:
        the first from second 0; a single one if no change is seen, none if the flow never filled the path.

    """
    edges, rates, full = _bins(seen)
    there = np.flatnonzero(full & (rates > 0))
    if len(there) == 0:
        return []
    logs = np.log(rates[there])
    parts = _parts(logs, 0, len(logs))[:_MOST_STEPS]
    levels = [float(np.exp(np.mean(logs[begin:end]))) for begin, end in parts]
    steps = [(0.0, levels[0])]
    for (_, end), before, after in zip(parts, levels[:-1], levels[1:], strict=False):
        at = edges[there[end - 1] + 1] if after > before else edges[there[end]]
        steps.append((float(at), after))
    return steps


def mean_rate_bps(seen: Observation) -> float:
    """The mean rate of a path that changes, over the time of the flow."""
    steps = rate_steps(seen)
    if not steps:
        bits = 8 * (seen.mss_bytes + HEADER_BYTES)
        return float(seen.acked[-1]) * bits / seen.duration_s
    return mean_of(steps, seen.duration_s)


def mean_of(steps: Steps, duration_s: float) -> float:
    """The mean rate of steps."""
    starts = [start_s for start_s, _ in steps]
    took_s = np.diff([*starts, max(duration_s, starts[-1] + 1e-3)])
    return float(np.average([rate for _, rate in steps], weights=took_s))


def _bins(seen: Observation) -> tuple[Column, Column, np.ndarray]:
    """Edges in seconds, rates in bit/s, and whether the flow filled the path."""
    count = max(min(int(seen.duration_s / _BIN_S), _MOST_BINS), 1)
    edges = np.linspace(0.0, seen.duration_s, count + 1)
    bits = 8 * (seen.mss_bytes + HEADER_BYTES)
    rates = np.diff(np.interp(edges, seen.time_s, seen.acked)) * bits / np.diff(edges)
    waits_s = round_trips_s(seen) - seen.min_rtt_s
    least_s = _WAITING * float(np.percentile(waits_s, 99.9))
    number = np.clip(np.searchsorted(edges, seen.time_s, side="right") - 1, 0, count - 1)
    waiting = np.bincount(number, waits_s > least_s, count)
    records = np.bincount(number, minlength=count)
    return edges, rates, (records > 0) & (waiting >= 0.95 * records)


def _parts(logs: Column, begin: int, end: int) -> list[tuple[int, int]]:
    """Split until no parts differ clearly."""
    count = end - begin
    if count < 2 * _LEAST_BINS:
        return [(begin, end)]
    values = logs[begin:end]
    sums = np.cumsum(values)
    left = np.arange(_LEAST_BINS, count - _LEAST_BINS + 1)
    low = sums[left - 1] / left
    high = (sums[-1] - sums[left - 1]) / (count - left)
    gain = left * (count - left) / count * (low - high) ** 2
    at = int(left[int(np.argmax(gain))])
    parts = values[:at], values[at:]
    gap = abs(float(np.mean(parts[0]) - np.mean(parts[1])))
    error = math.sqrt(sum(float(np.var(one)) / len(one) for one in parts)) + 1e-3
    if gap < math.log(_LEAST_FACTOR) or gap < _CLEARLY * error:
        return [(begin, end)]
    return [*_parts(logs, begin, begin + at), *_parts(logs, begin + at, end)]


__all__ = ["Steps", "mean_of", "mean_rate_bps", "rate_steps"]
