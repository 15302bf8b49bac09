"""Who uses a link beside a flow, by when pairs of its packets are acknowledged.

A packet that waits for the link leaves it right after what came before, so that acknowledgments of pairs come after whole
multiples of the time that one packet takes on the link. Two packet times after the acknowledgment before, if nobody else
uses it; later, if packets of others come between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pathcast.calibration.features import (
    HEADER_BYTES,
    Observation,
    after_acknowledgments,
    observe,
)
from pathcast.exceptions import ModelError
from pathcast.trace import Column, Trace

#: Fewest pairs that say anything, and fewest that say that nobody else is there.
_LEAST_PAIRS, _LEAST_ALONE = 25, 200
#: Packets wait for so many times what two take on the link, the first and the second of a pair, and for what a host adds, in
#: seconds.
_FIRST_WAITS, _BOTH_WAIT, _STACK_S = 0.75, 0.25, 2e-4
#: The time of a packet is looked for from half of the shortest intervals (this quantile) and a little more down to this part
#: of it, in steps of this ratio, by intervals up to so many times the shortest.
_SHORTEST, _MORE, _DOWN_TO, _STEP, _UPTO = 0.02, 0.3, 0.3, 0.002, 6.0
#: Intervals are that much whole multiples of it; of times by which they are about as whole, the longest is taken.
_WHOLE, _AS_WHOLE = 0.45, 0.15
#: By so many standard deviations of chance at least. So many intervals suffice to see it.
_BEYOND_CHANCE, _COMPARED = 4.0, 4000
#: Others' packets may come into nearly each pair, and in pairs. The few intervals without are these parts of the time found,
#: to within this, and so many at least, and most of the shorter ones. Intervals further from whole are between.
_PARTS, _SAME, _LEAST_SHORT, _MOST, _BETWEEN = (1 / 2, 2 / 3, 1 / 3), 0.02, 5, 0.5, 0.1
#: Times are frequent from this part of all on.
_OFTEN = 0.01
#: Where fewer than this take one packet time, and so many two or three, that is the time of a packet.
_FEW, _MANY = 3, 10
#: Behind a link that sends in slots, intervals of single packets are whole multiples of those of pairs by this at least.
_SLOTS = 0.8
#: From this multiple on, an interval is longer than that of a pair alone; up to this one multiples are whole enough to see.
_LONGER, _LONGEST = 1.25, 8.0
#: At most this part of the pairs, and of their time, is longer where nobody else is there.
_ALONE, _ALONE_TIME = 0.01, 0.05
#: So many single packets come earlier than one can, if others are there, and if others' packets have another size.
_EARLY, _EARLY_PART, _EARLY_MANY = 0.9, 0.15, 0.3
#: Others are there if so many intervals differ from the most frequent one, by so many different multiples, each so often.
_LEAST_OTHER, _LEAST_KINDS, _EACH = 10, 2, 3
#: There are several intervals in this part of the time at least, of so many parts, each of so many pairs if these suffice.
_USUALLY, _SEVERAL, _IN_A_TIME = 0.5, (3, 10), 10
#: A pair comes earlier than it can where the acknowledgment before it waited. If more than this part do, intervals say nothing.
_SHORTER, _IMPOSSIBLE = 0.75, 0.15
#: Others that take less than this of the link count as nothing known: a path of the flow's own may explain it.
_LEAST_PART = 0.15
#: What others take is compared between parts of the time, of so many packets at least, and at least and most so many parts.
_IN_A_PART, _TIMES = 40, (5, 20)
#: So many of others' packets that they differ by are chance.
_CHANCE = 2.0


@dataclass(frozen=True)
class LinkUse:
    """How a link is used while packets of a flow wait for it.

    Attributes:
        rate_bps: of the link, in whole packets.
        others_part: what other flows take of it; 0: the flow has it alone.
        others_vary: by how much that differs from one time to another more than by chance, as the median part of it.

    """

    rate_bps: float
    others_part: float
    others_vary: float = 0.0

    def text(self) -> str:
        """Who uses the link, in a sentence."""
        link = f"the link, which carries {1e-6 * self.rate_bps:.4g} Mbit/s"
        if not self.others_part:
            return f"No other flow uses {link}."
        return f"While its packets wait, other flows take {self.others_part:.0%} of {link}."


def link_use(trace: Trace, flow: int = 0) -> LinkUse | None:
    """Say whether a flow has its link alone, and what the link carries; None if its records do not tell.

    They tell if there is one for each acknowledgment, if acknowledgments are of two packets, and if packets wait for the
    link. What others take is seen from 15 % on.

    Args:
        trace: of a sender, with sequence numbers, acknowledged bytes and round-trip times.
        flow: its number.

    Raises:
        TraceError: the trace has no such flow.

    Example:
        >>> import pathcast
        >>> path = pathcast.Path.parse("rate = '20 Mbit/s'\\ndelay = '20 ms'\\nqueue = '2 BDP'")
        >>> _, trace = pathcast.simulate(path, ["cubic"], duration_s=20)
        >>> pathcast.link_use(trace).text()
        'No other flow uses the link, which carries 20 Mbit/s.'

    """
    trace.flow(flow)  # refuses a flow that does not exist
    try:
        return link_use_of(observe(trace, flow))
    except ModelError:
        return None


def link_use_of(seen: Observation, least_part: float = _LEAST_PART) -> LinkUse | None:
    """Say the same of what calibration takes from a trace, of others that take so much at least."""
    if seen.sent is None or seen.sampled_s or len(seen.time_s) < _LEAST_PAIRS:
        return None
    rows, at_s = after_acknowledgments(seen)
    acked, sent = seen.acked[rows], seen.sent[rows]
    first, last = (_sent_at(sent, packets) for packets in (acked[:-1] + 1, acked[1:]))
    count, took_s, round_trip_s = np.diff(acked), np.diff(at_s), at_s[1:] - at_s[first]
    is_pair = (np.abs(count - 2) < 0.5) & (took_s > 0)
    if seen.retransmits is not None:
        # what was sent again meanwhile was not sent when it seems
        again = seen.retransmits[rows]
        is_pair &= again[1:] == again[first]
    # a packet that came alone is acknowledged when a timer ends, so that what comes next seems early
    in_a_row = is_pair & np.concatenate([[False], is_pair[:-1]])
    if in_a_row.sum() < _LEAST_PAIRS:
        return None
    single_s = took_s[(np.abs(count - 1) < 0.5) & (took_s > 0)]
    times = _times_s(took_s[in_a_row], single_s)
    if times is None:
        return None
    packet_s, other_s = times
    pair_s = 2 * packet_s
    waits_s = round_trip_s - np.percentile(round_trip_s[is_pair], 0.5)
    waits = waits_s > _FIRST_WAITS * pair_s + _STACK_S
    both_wait = waits & (waits_s - (at_s[last] - at_s[first]) > _BOTH_WAIT * pair_s + _STACK_S)
    rate_bps = 8 * (seen.mss_bytes + HEADER_BYTES) / packet_s
    if _is_alone(took_s[is_pair & both_wait] / pair_s, single_s / packet_s):
        return LinkUse(rate_bps, 0.0)
    if not waits.any() or not _has_others_between(
        took_s[in_a_row & both_wait] - pair_s, packet_s, other_s
    ):
        return None
    used = float(count[waits].sum()) * packet_s / max(float(took_s[waits].sum()), pair_s)
    if used > 1 - least_part:
        return None
    return LinkUse(rate_bps, 1 - used, _varies(count[waits], took_s[waits], packet_s))


def whole(turns: Column) -> float:
    """How close numbers are to whole ones: 1 if all are, 0 if they have nothing to do with them."""
    return float(np.cos(2 * np.pi * turns).mean())


def _sent_at(sent: Column, packets: Column) -> np.ndarray:
    """Index of the record at which so many packets, of shape n, had been sent."""
    at = np.searchsorted(np.maximum.accumulate(sent), packets - 1e-6)
    return np.minimum(at, len(sent) - 1)


def _times_s(pair_s: Column, single_s: Column) -> tuple[float, float] | None:
    """Find what a packet of the flow takes on the link, and one of others; None: intervals do not tell.

    Args:
        pair_s: intervals before acknowledgments of two packets, after another such; shape m.
        single_s: before those of one packet.

    """
    shortest_s = float(np.quantile(pair_s, _SHORTEST))
    found_s = _longest_s(pair_s[pair_s < _UPTO * shortest_s], shortest_s / 2)
    part = None if found_s is None else _part(pair_s / found_s, single_s / found_s)
    if found_s is not None and part is not None:
        packet_s = _alone_s(pair_s, part * found_s)
        # one packet that takes as long as two: the link sends in slots
        is_slotted = len(single_s) >= _MANY and whole(single_s / (2 * packet_s)) > _SLOTS
        return None if is_slotted else (packet_s, packet_s)
    # others' packets of another size come between: what is longer than the shortest is whole multiples of their time
    packet_s = _alone_s(pair_s, _shortest_s(np.concatenate([pair_s / 2, single_s])))
    rest_s = pair_s - 2 * packet_s
    alone = np.abs(rest_s) < _BETWEEN * packet_s
    rest_s = rest_s[(rest_s > _BETWEEN * packet_s) & (rest_s < _UPTO * packet_s)]
    enough = alone.sum() >= _LEAST_SHORT and len(rest_s) >= _LEAST_OTHER
    if not enough or _come_early(single_s / packet_s):
        return None
    other_s = _longest_s(rest_s, float(np.quantile(rest_s, _SHORTEST)))
    return None if other_s is None else (packet_s, other_s)


def _longest_s(took_s: Column, about_s: float) -> float | None:
    """Find the longest time that intervals are whole multiples of, from a little more than this down; None: there is none."""
    each_s = about_s * np.exp(np.arange(_MORE, math.log(_DOWN_TO), -_STEP))
    some_s = took_s[:: -(-len(took_s) // _COMPARED)]
    how_whole = np.array([whole(some_s / one_s) for one_s in each_s])
    # of few intervals, some time or other makes whole ones by chance
    if how_whole.max() < max(_WHOLE, _BEYOND_CHANCE / math.sqrt(2 * len(some_s))):
        return None
    best = int(np.flatnonzero(how_whole >= how_whole.max() - _AS_WHOLE)[0])
    while best + 1 < len(each_s) and how_whole[best + 1] > how_whole[best]:
        best += 1
    times = np.maximum(np.round(took_s / each_s[best]), 1)
    return float(np.median(took_s / times))


def _shortest_s(each_s: Column) -> float:
    """Find the shortest time that is frequent."""
    sorted_s = np.sort(each_s)
    same = np.searchsorted(sorted_s, sorted_s * (1 + _SAME), "right") - np.arange(len(sorted_s))
    first = int(np.argmax(same >= max(_LEAST_SHORT, _OFTEN * len(sorted_s))))
    return float(np.median(sorted_s[first : first + same[first]]))


def _alone_s(pair_s: Column, packet_s: float) -> float:
    """Return the time of one packet by pairs without others between, which are exact whatever the size of others' packets."""
    none_s = pair_s[np.abs(pair_s / packet_s - 2) < _BETWEEN] / 2
    return float(np.median(none_s)) if len(none_s) >= _LEAST_SHORT else packet_s


def _part(pairs: Column, singles: Column) -> float | None:
    """By how much the time found is too long or too short, by intervals of pairs and singles in that time.

    None: no packet takes as long, so that the time is one of others' packets, which have another size.
    """
    between = pairs[np.abs(pairs - np.round(pairs)) > _BETWEEN]
    for part in _PARTS:
        shown = pairs / 2
        is_usual = _near(singles, part) >= _near(singles, 1)
        if is_usual and len(between) >= _LEAST_SHORT and whole(between / part) > _WHOLE:
            shown = np.concatenate([shown, singles])
        shorter = shown[shown < _SHORTER]
        if _near(shorter, part) >= max(_LEAST_SHORT, _MOST * len(shorter)):
            return part
    each = np.concatenate([pairs / 2, singles])
    for times in (1, 2, 3):
        if _near(each, times) >= (_FEW if times == 1 else _MANY):
            return None if _come_early(singles / times) else times
    return None


def _near(multiples: Column, value: float) -> int:
    """How many are about this."""
    return int((np.abs(multiples - value) < _SAME).sum())


def _come_early(singles: Column, part: float = _EARLY_MANY) -> bool:
    """Whether this part of single packets comes sooner than one that waited can: the time found is that of more."""
    early = singles < _EARLY
    return bool(early.sum() >= _LEAST_SHORT and early.mean() > part)


def _is_alone(pairs: Column, singles: Column) -> bool:
    """Whether intervals are those on a link of the flow's own, in the time that two packets take there, or one."""
    longer = pairs > _LONGER
    if len(pairs) < _LEAST_ALONE or longer.mean() > _ALONE:
        return False
    # packets of others that come into each pair leave single ones early
    if _come_early(singles, _EARLY_PART):
        return False
    return bool(pairs[longer].sum() <= _ALONE_TIME * pairs.sum())


def _has_others_between(later_s: Column, packet_s: float, other_s: float) -> bool:
    """Whether pairs come later by whole packets of others, and by different numbers of them.

    Args:
        later_s: by how much pairs come later than they do alone; shape m.
        packet_s: what a packet of the flow takes on the link.
        other_s: what one of others takes.

    """
    pairs = 1 + later_s / (2 * packet_s)
    if len(pairs) < _LEAST_PAIRS or np.mean(pairs < _SHORTER) > _IMPOSSIBLE:
        return False
    packets = later_s[pairs < _LONGEST] / other_s
    kinds, kind, counts = np.unique(np.round(packets), return_inverse=True, return_counts=True)
    # jitter around one interval alone has no others
    other = packets[kind != np.argmax(counts)]
    if len(other) < _LEAST_OTHER or whole(other) < _WHOLE:
        return False
    # a link whose rate changes has one interval after another, and not several at any time
    parts = np.array_split(kind, np.clip(len(kind) // _IN_A_TIME, *_SEVERAL))
    if np.mean([len(np.unique(part)) > 1 for part in parts]) < _USUALLY:
        return False
    return bool((counts[kinds >= 0] >= _EACH).sum() >= _LEAST_KINDS)


def _varies(count: Column, took_s: Column, packet_s: float) -> float:
    """By how much what others take of the link differs between parts of the time, less what chance makes of it.

    Args:
        count: packets of acknowledgments while packets wait; shape m.
        took_s: the intervals before these.
        packet_s: what a packet takes on the link.

    """
    times = int(np.clip(count.sum() // _IN_A_PART, *_TIMES))
    total_s = np.cumsum(took_s)
    part = np.minimum((times * total_s / total_s[-1]).astype(int), times - 1)
    own_s = packet_s * np.bincount(part, count, minlength=times)
    all_s = np.bincount(part, took_s, minlength=times)
    others = 1 - own_s[all_s > 0] / all_s[all_s > 0]
    middle = max(float(np.median(others)), 1e-3)
    # a packet or two that fall into the one part or the next
    chance = _CHANCE * packet_s / float(np.median(all_s[all_s > 0])) / middle
    return max(float(np.median(np.abs(others - middle))) / middle - chance, 0.0)


__all__ = ["LinkUse", "link_use", "link_use_of"]
