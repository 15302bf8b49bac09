"""First estimates of a path, without any simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pathcast.calibration.features import (
    HEADER_BYTES,
    TRAIN_PACKETS,
    Losses,
    Observation,
    jitter_s,
    losses,
    round_trips_s,
    train_rates_bps,
    whole_train_rates_bps,
)
from pathcast.calibration.sharing import link_use_of
from pathcast.trace import Column

#: The parameters of a path, in the order of all arrays.
PARAMETERS = ("rate_bps", "rtt_s", "queue_s", "loss", "jitter_s")
RATE, RTT, QUEUE, LOSS, JITTER = range(len(PARAMETERS))
#: Bounds of what is looked for.
LEAST = np.array([1e4, 1e-4, 1e-5, 1e-9, 1e-7])
MOST = np.array([2e10, 3.0, 20.0, 0.3, 0.1])
#: The prior: standard deviations of logarithms. The queue's is around 1.2 round trips, so that 0.2 to 8 lie within 1.6.
_SPREAD = np.array([1.0, 0.3, 1.2, 2.5, 1.5])
_QUEUE_ROUND_TRIPS = 1.2
_JITTER_S = 2e-5
#: Losses whose queueing delay is beyond this part of the longest one are taken for those of a full queue.
_FULL_PART = 0.8
#: A queue counts as filled if half of the losses are of that kind, or three of them and many more than round trips as
#: long; or if one of them cost many more packets than random losses would: slow start overflows a queue by a window.
_MOST_PART = 0.5
_LEAST_COUNT = 3
_MORE_OFTEN = 3.0
_OVERFLOW_PACKETS = 6.0
_OVERFLOW_RATIO = 8.0
#: A queue that others keep filled may never be empty. The propagation delay is the shortest round trip with a probability of
#: one half, or below it by a half-normal law with this spread in logarithms: that of 0.7 times the windows that fill queues
#: of the prior, over the windows that the propagation takes.
_NEVER_EMPTY_SPREAD = 0.65
#: CUBIC flows that lose packets together leave 0.7 of the longest round trip. Where the shortest is about that part of those at
#: losses, the queue was never empty: queues of the prior that leave more than the propagation delay put it below the
#: shortest round trip, by a logarithm of this mean and spread.
_KEPT_PART, _KEPT = (0.5, 0.78), (-0.77, 0.63)
#: A queue is this part of the longest round trip at least.
_LEAST_PART = 0.02
#: Pairs of packets tell the rate of a link with this spread.
_OF_PAIRS_SPREAD = 0.02
#: A queueing delay of so many packets, or of this part of the round trip, is one.
_QUEUE_PACKETS = 2.0
#: A policed flow gets this part less than the policer's rate at first guess; a bucket holds so many round trips of it;
#: random losses beside those of the policer are fewer than one.
_ABOVE_GOODPUT = 1.1
_BUCKET_ROUND_TRIPS = 0.7
_FEW = 0.3
#: Trains show the link's rate if the fastest ones are as fast as each other, to within this ratio, or so many times as fast
#: as the policer. A flow that is paced does not: its link is so many times as fast at least.
_AS_FAST, _UNSEEN_LINE = 1.02, 2.0
_QUEUE_PART = 0.02
#: Jitter pushes packets together: trains that last for so many times as long show the link's rate. Where shorter ones are
#: faster than these by this ratio, it may be there.
_LONG_TRAIN, _FASTER = 10.0, 1.15
#: Managed queues have targets around this (RFC 8289: 5 ms, RFC 8033: 15 ms), with this spread.
_TARGET_S, _TARGET_SPREAD = 8e-3, 0.8


@dataclass(frozen=True)
class FirstEstimate:
    """Where a calibration begins.

    Attributes:
        start: logarithms of the parameters; shape p.
        prior: means of the prior, likewise.
        spread: standard deviations of the prior; shape p.
        queue_filled: whether losses were seen with a full queue.
        longest_queue_s: the longest queueing delay seen.
        random_losses: losses that no full queue explains.
        line_rate_bps: rate of the link behind a policer; None without a policer.
        most_rtt_s: of the propagation delay, where a queue may never have been empty. What is known then is the longest round
            trip, which stands in the place of the queue in all logarithms; None: the queue itself does.
        hides_rtt: nothing that the flow shows depends on the propagation delay: it has its prior alone.

    """

    start: Column
    prior: Column
    spread: Column
    queue_filled: bool
    longest_queue_s: float
    random_losses: int
    line_rate_bps: float | None = None
    most_rtt_s: float | None = None
    hides_rtt: bool = False

    def parameters(self, logs: Column) -> Column:
        """Return the parameters of paths, of shape n x p, by the logarithms that a calibration counts in."""
        found = np.exp(logs)
        if self.most_rtt_s is not None:
            waits = found[:, QUEUE] - found[:, RTT]
            found[:, QUEUE] = np.maximum(waits, _LEAST_PART * found[:, QUEUE])
        return np.asarray(found)

    def logs(self, parameters: Column) -> Column:
        """Return the logarithms that a calibration counts in, of one path; shape p of both."""
        found = parameters.copy()
        if self.most_rtt_s is not None:
            found[QUEUE] += found[RTT]
        return np.asarray(np.log(found))


def together(flows: Sequence[FirstEstimate]) -> FirstEstimate:
    """Estimate the parameters of a path that several flows saw, one after another.

    The fastest tells the rate, unless pairs of packets of some do, the shortest round trip the propagation delay, the
    longest wait the queue. Random losses are those of all flows.
    """
    if len(flows) == 1:
        return flows[0]
    starts = np.array([one.start for one in flows])
    longest_s = max(one.longest_queue_s for one in flows)
    filled = [one.start[QUEUE] for one in flows if one.queue_filled]
    counted = np.array([max(one.random_losses, 0.5) for one in flows])
    random = sum(one.random_losses for one in flows)
    start = starts.max(axis=0)
    spread = flows[0].spread.copy()
    spread[RATE] = min(one.spread[RATE] for one in flows)
    by_pairs = [one.start[RATE] for one in flows if one.spread[RATE] == spread[RATE]]
    if len(by_pairs) < len(flows):
        start[RATE] = np.median(by_pairs)
    start[RTT] = starts[:, RTT].min()
    start[QUEUE] = max(filled) if filled else math.log(longest_s)
    start[LOSS] = math.log(max(random, 0.5) / np.sum(counted / np.exp(starts[:, LOSS])))
    start = np.clip(start, np.log(LEAST), np.log(MOST))
    prior = start.copy()
    prior[QUEUE] = min(flows, key=lambda one: float(one.start[RTT])).prior[QUEUE]
    lines = [one.line_rate_bps for one in flows if one.line_rate_bps is not None]
    most_s = [one.most_rtt_s for one in flows if one.most_rtt_s is not None]
    return FirstEstimate(
        start,
        prior,
        spread,
        bool(filled),
        longest_s,
        random,
        max(lines, default=None),
        min(most_s, default=None),
        all(one.hides_rtt for one in flows),
    )


def first_estimate(seen: Observation) -> FirstEstimate:
    """Estimate the parameters of the path of a flow.

    The rate is what pairs of packets tell where nobody else uses the link; all else is as trains and losses have it.
    """
    first, used = _by_trains(seen), link_use_of(seen)
    return first if used is None or used.others_part else of_pairs(first, used.rate_bps)


def _by_trains(seen: Observation) -> FirstEstimate:
    """Estimate the same without a look at pairs of packets.

    The propagation delay is the shortest round trip. The rate is that of trains of packets: nine in ten are slower, for
    acknowledgments are spread on their way more often than they are pushed together. Losses while the queue was longest
    are those of the queue; the rest are random.
    """
    rates = train_rates_bps(seen)
    bits = 8 * (seen.mss_bytes + HEADER_BYTES)
    goodput_bps = float(seen.acked[-1]) * bits / seen.duration_s
    rate_bps = max(float(np.percentile(rates, 80)) if len(rates) else 0.0, goodput_bps)
    rtt_s = seen.min_rtt_s
    longest_s = max(float(np.percentile(round_trips_s(seen), 99.9)) - rtt_s, 1e-5)
    lost = losses(seen)
    sent = max(float(seen.acked[-1]), 1.0)
    is_long = longest_s > max(_QUEUE_PACKETS * bits / rate_bps, _QUEUE_PART * rtt_s)
    at_full = lost.rtt_s - rtt_s > _FULL_PART * longest_s
    filled = bool(
        is_long and lost.count and _is_filled(seen, lost, at_full, rtt_s, longest_s, sent)
    )
    random = lost.count - int(at_full.sum()) if filled else lost.count
    # it includes the time that a packet takes on the link
    least_s = max(rtt_s - bits / rate_bps, rtt_s / 2)
    start = np.log([rate_bps, least_s, longest_s, max(random, 0.5) / sent, _JITTER_S])
    prior = start.copy()
    prior[QUEUE] = math.log(_QUEUE_ROUND_TRIPS * rtt_s)
    clipped = np.clip(start, np.log(LEAST), np.log(MOST))
    return FirstEstimate(clipped, prior, _SPREAD, filled, longest_s, random)


def first_estimate_policed(seen: Observation) -> FirstEstimate:
    """Estimate the parameters of a path whose policer limits the flow.

    The policer's rate is somewhat above what a flow gets that it cuts again and again. The link's rate is that of the
    fastest trains: what a full bucket lets pass arrives at the rate of the link. Losses are those of the policer.
    """
    bits = 8 * (seen.mss_bytes + HEADER_BYTES)
    rate_bps = _ABOVE_GOODPUT * float(seen.acked[-1]) * bits / seen.duration_s
    rtt_s = seen.min_rtt_s
    sent = max(float(seen.acked[-1]), 1.0)
    start = np.log([rate_bps, rtt_s, _BUCKET_ROUND_TRIPS * rtt_s, _FEW / sent, _JITTER_S])
    clipped = np.clip(start, np.log(LEAST), np.log(MOST))
    line_bps = _line_bps(seen, rate_bps)
    return FirstEstimate(clipped, clipped.copy(), _SPREAD, True, rtt_s, 0, line_bps)


def _line_bps(seen: Observation, rate_bps: float) -> float:
    """Estimate the rate of the link behind a policer of this rate."""
    whole = whole_train_rates_bps(seen)
    if len(whole):
        fast, fastest = np.percentile(whole, (96, 98))
        as_fast = rate_bps < fastest <= _AS_FAST * fast
        if as_fast or fastest >= _UNSEEN_LINE * rate_bps:
            return float(fastest)
    rates = train_rates_bps(seen)
    line_bps = float(np.percentile(rates, 95)) if len(rates) else 0.0
    return max(line_bps, _UNSEEN_LINE * rate_bps)


def first_estimate_beside(seen: Observation, others: Sequence[str]) -> FirstEstimate:
    """Estimate the parameters of a path that a flow shares with others of about the same share.

    The rate is what pairs of packets tell, if they show the others; else that of as many flows, or of the fastest trains if
    these are slower: packets of one flow that were sent back to back arrive at the rate of the link unless others come
    between. Flows that compete keep the queue filled, so that the
    shortest round trip may be that of a queue.
    """
    alone = _by_trains(seen)
    bits = 8 * (seen.mss_bytes + HEADER_BYTES)
    share_bps = float(seen.acked[-1]) * bits / seen.duration_s
    rates = train_rates_bps(seen)
    fastest_bps = float(np.percentile(rates, 98)) if len(rates) else math.inf
    start = alone.start.copy()
    start[RATE] = math.log(max(min((1 + len(others)) * share_bps, fastest_bps), share_bps))
    spread = _SPREAD.copy()
    used = link_use_of(seen)
    if used is not None and used.others_part:
        start[RATE] = math.log(used.rate_bps)
        spread[RATE] = _OF_PAIRS_SPREAD
    start[LOSS] = math.log(_FEW / max(float(seen.acked[-1]), 1.0))
    clipped = np.clip(start, np.log(LEAST), np.log(MOST))
    prior = clipped.copy()
    if seen.has_shortest and not seen.opens:
        # the round trip before the others' queue was there
        prior[QUEUE] = alone.prior[QUEUE]
        return FirstEstimate(clipped, prior, spread, True, alone.longest_queue_s, 0)
    most_rtt_s = float(np.exp(clipped[RTT]))
    clipped[QUEUE] = prior[QUEUE] = math.log(alone.longest_queue_s + seen.min_rtt_s)
    spread[RTT] = _NEVER_EMPTY_SPREAD
    hides_rtt = "bbr" not in others and _is_kept(seen)
    if hides_rtt:
        below, spread[RTT] = _KEPT
        clipped[RTT] = prior[RTT] = max(clipped[RTT] + below, math.log(LEAST[RTT]))
    return FirstEstimate(
        clipped,
        prior,
        spread,
        True,
        alone.longest_queue_s,
        0,
        most_rtt_s=most_rtt_s,
        hides_rtt=hides_rtt,
    )


def _is_kept(seen: Observation) -> bool:
    """Whether the shortest round trip is what flows leave that fill the queue again and again."""
    at_losses_s = losses(seen).rtt_s
    if not len(at_losses_s):
        return False
    least, most = _KEPT_PART
    return bool(least <= seen.min_rtt_s / float(np.median(at_losses_s)) <= most)


def first_estimate_with_jitter(seen: Observation) -> FirstEstimate:
    """Estimate the parameters of a path whose delays differ from packet to packet."""
    alone = first_estimate(seen)
    start = alone.start.copy()
    start[JITTER] = math.log(max(jitter_s(seen), _JITTER_S))
    start[RATE] = min(start[RATE], _long_train_rate(seen))
    clipped = np.clip(start, np.log(LEAST), np.log(MOST))
    prior = clipped.copy()
    prior[QUEUE] = alone.prior[QUEUE]
    return replace(alone, start=clipped, prior=prior)


def comes_in_clumps(seen: Observation) -> bool:
    """Say whether short trains are faster than long ones: what waits for a late packet arrives with it."""
    return float(first_estimate(seen).start[RATE]) > _long_train_rate(seen) + math.log(_FASTER)


def _long_train_rate(seen: Observation) -> float:
    """Logarithm of the rate of trains that last far longer than delays differ; infinite if there are none."""
    late_packets = jitter_s(seen) * float(seen.acked[-1]) / seen.duration_s
    rates = train_rates_bps(seen, _LONG_TRAIN * late_packets + TRAIN_PACKETS)
    return math.log(float(np.percentile(rates, 80))) if len(rates) else math.inf


def first_estimate_managed(seen: Observation) -> FirstEstimate:
    """Estimate the parameters of a path whose queue is managed: the queue's parameter is its target delay.

    It drops packets while they wait for longer than the target, so that losses are those of the queue.
    """
    alone = first_estimate(seen)
    start = alone.start.copy()
    start[QUEUE] = math.log(_TARGET_S)
    start[LOSS] = math.log(_FEW / max(float(seen.acked[-1]), 1.0))
    spread = _SPREAD.copy()
    spread[QUEUE] = _TARGET_SPREAD
    clipped = np.clip(start, np.log(LEAST), np.log(MOST))
    return FirstEstimate(clipped, clipped.copy(), spread, True, alone.longest_queue_s, 0)


def first_estimate_beside_steady(seen: Observation, part: float) -> FirstEstimate:
    """Estimate the parameters of a path of whose link others take this part all the time."""
    alone, used = _by_trains(seen), link_use_of(seen)
    if used is not None and used.others_part:
        return of_pairs(alone, used.rate_bps)
    return at_rate(alone, math.exp(alone.start[RATE]) / (1 - part))


def of_pairs(first: FirstEstimate, rate_bps: float) -> FirstEstimate:
    """The same at the rate that pairs of packets tell."""
    return at_rate(first, rate_bps, _OF_PAIRS_SPREAD)


def at_rate(first: FirstEstimate, rate_bps: float, spread: float = _SPREAD[RATE]) -> FirstEstimate:
    """The same at another rate, with this spread of its prior."""
    start, prior, spreads = first.start.copy(), first.prior.copy(), first.spread.copy()
    start[RATE] = prior[RATE] = math.log(rate_bps)
    spreads[RATE] = spread
    return replace(first, start=start, prior=prior, spread=spreads)


def _is_filled(
    seen: Observation,
    lost: Losses,
    at_full: np.ndarray,
    rtt_s: float,
    longest_s: float,
    sent: float,
) -> bool:
    """Whether the losses say that the queue was full."""
    part = float(np.mean(at_full))
    as_long = float(np.mean(round_trips_s(seen) - rtt_s > _FULL_PART * longest_s))
    often = at_full.sum() >= _LEAST_COUNT and part > _MORE_OFTEN * as_long + 0.05
    # random losses in the four windows of two round trips while the window doubles
    expected = 4 * lost.windows * lost.count / sent
    burst = lost.packets >= np.maximum(_OVERFLOW_PACKETS, _OVERFLOW_RATIO * expected)
    return bool(part >= _MOST_PART or often or burst[at_full].any())
