"""Traffic that shares the link and does not react, found between the acknowledgments of a flow.

While packets wait for the link, each acknowledgment comes after its own packets and after those of others between them.
With packets of one size, intervals are whole multiples of the time that a packet takes on the link. Where they are several
different ones, other packets are between, and the link is faster than any train of the flow shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pathcast.calibration.features import (
    HEADER_BYTES,
    Observation,
    after_acknowledgments,
    round_trips_s,
)
from pathcast.trace import Column

#: An acknowledgment of so many packets is compared, while more than so many wait.
_PACKETS, _WAITING = 2, 4
#: Fewest intervals that say anything, and the least part of them that shows a multiple.
_LEAST_INTERVALS, _LEAST_PART = 300, 0.02
#: Longest multiple that is looked at, in the mean intervals.
_LONGEST = 3.0
#: The link is so many times as fast as what the flow gets, at least and at most, and is looked for in so many steps.
_FASTER, _STEPS = (1.08, 3.5), 1000
#: So many intervals are compared with each time.
_COMPARED = 4000
#: From here on intervals are whole multiples; and those apart from the most frequent one.
_WHOLE, _WHOLE_OTHERS = 0.75, 0.6
#: Intervals that are shorter than the packets they are of must be fewer than this part. Others' packets that have another
#: size make multiples of their own time on the link, none of which need be as short as two of the flow's: so many must be.
_IMPOSSIBLE, _ALONE = 0.05, 0.002
#: What others take must be as much in each part of the flow, to within this (median deviation): parts of so many intervals, at
#: least and at most so many.
_STEADY, _IN_A_PART, _PARTS = 0.15, 40, (5, 30)


@dataclass(frozen=True)
class Steady:
    """Other traffic of a constant rate.

    Attributes:
        link_bps: rate of the link.
        part: what the other traffic takes of it.

    """

    link_bps: float
    part: float


def steady_traffic(seen: Observation) -> Steady | None:
    """Find traffic that does not react; None if intervals between acknowledgments do not show any."""
    if seen.sampled_s or len(seen.time_s) < _LEAST_INTERVALS:
        return None
    took_s, own_bps = _intervals(seen)
    if len(took_s) < _LEAST_INTERVALS:
        return None
    multiples = _multiples(took_s, float(took_s.mean()) / _PACKETS)
    if multiples is None or not _is_steady(multiples - _PACKETS):
        return None
    # others' packets may have another size than the flow's own
    each_s, own_s = np.polyfit(multiples - _PACKETS, took_s, 1)
    if own_s <= 0 or each_s <= 0:
        return None
    bits = 8 * (seen.mss_bytes + HEADER_BYTES)
    link_bps = float(_PACKETS * bits / own_s)
    return Steady(link_bps, 1 - own_bps / link_bps) if own_bps < link_bps else None


def _intervals(seen: Observation) -> tuple[Column, float]:
    """Find acknowledgments of two packets that came while others waited.

    Returns:
        how long after those before they came, shape m; and the rate of the flow meanwhile, in bit/s of whole packets.

    """
    rows, at_s = after_acknowledgments(seen)
    acked, each_s = seen.acked[rows], round_trips_s(seen)[rows]
    count, took_s = np.diff(acked), np.diff(at_s)
    own_s = seen.duration_s / max(float(seen.acked[-1]), 1.0)
    waits = each_s[1:] - seen.min_rtt_s > _WAITING * own_s
    there = waits & (np.abs(count - _PACKETS) < 0.5) & (took_s > 0)
    near = took_s < _LONGEST * _PACKETS * own_s
    bits = 8 * (seen.mss_bytes + HEADER_BYTES)
    own_bps = float(count[waits].sum()) * bits / max(float(took_s[waits].sum()), 1e-9)
    return took_s[there & near], own_bps


def _multiples(took_s: Column, own_s: float) -> Column | None:
    """Return of which multiples of the longest possible time the intervals are; None unless there are several.

    Args:
        took_s: the intervals; shape m.
        own_s: half of their mean.

    """
    some_s = took_s[:: -(-len(took_s) // _COMPARED)]
    tried_s = own_s / np.geomspace(*_FASTER, _STEPS)
    alike = np.array([whole(some_s / one) for one in tried_s])
    peaks = 1 + np.flatnonzero((alike[1:-1] >= alike[:-2]) & (alike[1:-1] > alike[2:]))
    for packet_s in tried_s[peaks[alike[peaks] >= _WHOLE]]:
        multiples = np.round(took_s / packet_s)
        values, counts = np.unique(multiples, return_counts=True)
        often = values[counts >= _LEAST_PART * len(took_s)].astype(int)
        is_possible = np.mean(multiples < _PACKETS) <= _IMPOSSIBLE
        if not is_possible or len(often) < 2 or np.mean(multiples == _PACKETS) < _ALONE:
            continue
        # where most intervals are equal, the few others must be multiples too
        others_s = took_s[multiples != values[np.argmax(counts)]]
        if whole(others_s / packet_s) >= _WHOLE_OTHERS and np.gcd.reduce(np.diff(often)) == 1:
            return np.asarray(multiples)
    return None


def whole(turns: Column) -> float:
    """How close numbers are to whole ones: 1 if all are, 0 if they have nothing to do with them."""
    return float(np.cos(2 * np.pi * turns).mean())


def _is_steady(between: Column) -> bool:
    """Whether as many packets of others, of shape m, are between from one part of the flow to the next."""
    parts = np.array_split(between, np.clip(len(between) // _IN_A_PART, *_PARTS))
    others = np.array([part.mean() for part in parts])
    middle = float(np.median(others))
    return bool(np.median(np.abs(others - middle)) <= _STEADY * middle)
