"""Whether a flow has its link alone, by when pairs of its packets are acknowledged.

A packet that waits for the link leaves it right after what came before. Where the two packets before were the flow's own, and
sent together, an acknowledgment of both comes as much later than the last one as they take on the link, if nobody else uses
it. Packets of others that come between make it later by whole multiples of the time that one packet takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pathcast.calibration.cross_traffic import whole
from pathcast.calibration.features import (
    HEADER_BYTES,
    Observation,
    after_acknowledgments,
    observe,
)
from pathcast.exceptions import ModelError
from pathcast.trace import Column, Trace

#: Fewest pairs that say anything, and fewest that say that nobody else is there.
_LEAST_PAIRS, _LEAST_ALONE = 50, 200
#: Packets are sent together within this part of the time that two take on the link, and wait for so many times that at
#: least, and for what a host adds, in seconds.
_TOGETHER, _WAITING, _STACK_S = 0.1, 0.75, 2e-4
#: Intervals are counted in bins of this ratio; the shortest peak with this part of the fullest, and so many, is that of a pair
#: alone.
_BIN, _FULL_PART, _LEAST_OFTEN = 0.04, 0.1, 15
#: Behind a sender that paces, as many packets of others may come into nearly each pair. The few pairs without are these parts
#: of the usual interval, to within this, and most of those that are shorter than it.
_PARTS, _SAME, _LEAST_SHORT, _MOST = (1 / 2, 2 / 3), 0.02, 3, 0.5
#: From this multiple on, an interval is longer than that of a pair alone; up to this one multiples are whole enough to see.
_LONGER, _LONGEST = 1.25, 8.0
#: At most this part of the pairs, and of their time, is longer where nobody else is there.
_ALONE, _ALONE_TIME = 0.01, 0.05
#: Others are there if so many are longer, by so many different multiples, each so often, that are whole by so much.
_LEAST_LONGER, _LEAST_KINDS, _EACH, _WHOLE = 20, 3, 3, 0.6
#: A pair comes earlier than it can where the acknowledgment before it waited. If more than this part do, intervals say nothing.
_SHORTER, _IMPOSSIBLE = 0.75, 0.15
#: Others that take less than this of the link count as nothing known: a path of the flow's own may explain it.
_LEAST_PART = 0.15


@dataclass(frozen=True)
class LinkUse:
    """How a link is used while packets of a flow wait for it.

    Attributes:
        rate_bps: of the link, in whole packets.
        others_part: what other flows take of it; 0: the flow has it alone.

    """

    rate_bps: float
    others_part: float

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


def link_use_of(seen: Observation) -> LinkUse | None:
    """Say the same of what calibration takes from a trace."""
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
    if is_pair.sum() < _LEAST_PAIRS:
        return None
    after_pair = np.concatenate([[False], is_pair[:-1]])
    pair_s = _usual_s(took_s[is_pair], took_s[is_pair & after_pair])
    waits_s = round_trip_s - np.percentile(round_trip_s[is_pair], 0.5)
    waits = waits_s > _WAITING * pair_s + _STACK_S
    tells = is_pair & waits & (at_s[last] - at_s[first] < _TOGETHER * pair_s)
    rate_bps = 2 * 8 * (seen.mss_bytes + HEADER_BYTES) / pair_s
    if _is_alone(took_s[tells] / pair_s):
        return LinkUse(rate_bps, 0.0)
    used = float(count[waits].sum()) / 2 * pair_s / max(float(took_s[waits].sum()), pair_s)
    if used > 1 - _LEAST_PART or not _has_others_between(took_s[tells] / pair_s):
        return None
    return LinkUse(rate_bps, 1 - used)


def _sent_at(sent: Column, packets: Column) -> np.ndarray:
    """Index of the record at which so many packets, of shape n, had been sent."""
    at = np.searchsorted(np.maximum.accumulate(sent), packets - 1e-6)
    return np.minimum(at, len(sent) - 1)


def _usual_s(took_s: Column, after_pair_s: Column) -> float:
    """Find the time of a pair between which nothing came: the shortest of the frequent intervals, or a part of it.

    Args:
        took_s: intervals before acknowledgments of pairs; shape m.
        after_pair_s: those after another such, which cannot be shorter because that one came late.

    """
    logs = np.log(took_s) / _BIN
    bins, counts = np.unique(np.floor(logs).astype(int), return_counts=True)
    of_bin = dict(zip(bins.tolist(), counts.tolist(), strict=True))
    near = {one: sum(of_bin.get(one + step, 0) for step in (-1, 0, 1)) for one in of_bin}
    most = max(near.values())
    enough = min(max(_FULL_PART * most, _LEAST_OFTEN), most)
    found = min(one for one, count in near.items() if count >= enough)
    while near.get(found + 1, 0) > near[found]:
        found += 1
    usual_s = float(np.median(took_s[np.abs(logs - (found + 0.5)) < 2]))
    shorter = after_pair_s[after_pair_s < _SHORTER * usual_s] / usual_s
    for part in _PARTS:
        same = int((np.abs(shorter - part) < _SAME).sum())
        if same >= max(_LEAST_SHORT, _MOST * len(shorter)):
            return part * usual_s
    return usual_s


def _is_alone(multiples: Column) -> bool:
    """Whether pairs take as long as they do on a link of the flow's own."""
    longer = multiples > _LONGER
    enough = len(multiples) >= _LEAST_ALONE
    return bool(
        enough
        and longer.mean() <= _ALONE
        and multiples[longer].sum() <= _ALONE_TIME * multiples.sum()
    )


def _has_others_between(multiples: Column) -> bool:
    """Whether pairs take longer by whole packets, and by different numbers of them."""
    if len(multiples) < _LEAST_PAIRS or np.mean(multiples < _SHORTER) > _IMPOSSIBLE:
        return False
    packets = 2 * multiples[(multiples > _LONGER) & (multiples < _LONGEST)]
    if len(packets) < _LEAST_LONGER or whole(packets) < _WHOLE:
        return False
    _, counts = np.unique(np.round(packets), return_counts=True)
    return bool((counts >= _EACH).sum() >= _LEAST_KINDS)


__all__ = ["LinkUse", "link_use", "link_use_of"]
