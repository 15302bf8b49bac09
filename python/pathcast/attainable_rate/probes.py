"""Trains of packets at a constant rate, and the backends that carry them.

A prober sends a train and reports for some of its messages when they were written, where they spent their
time and when they arrived. There is one for window flow control alone (`loop`), for scenarios in the
simulator and in the emulator (`scenarios`), and for real paths (`live`). What a message is: a packet of the
loop, a write of one full packet over TCP.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pathcast.exceptions import ProbingError

Floats = npt.NDArray[np.float64]
#: Receives the finished share, 0 to 1; may raise to stop.
Progress = Callable[[float], None]

#: Payload of a probe over TCP, in bits: a full packet.
MESSAGE_BITS = 8 * 1448
#: Over QUIC and IPv4.
QUIC_MESSAGE_BITS = 8 * 1442
#: How often a train is sent until it can be used.
ATTEMPTS = 5
#: Trains of more messages than this are a mistake.
_MOST_MESSAGES = 10**13
#: A message may arrive this much before the one written before it, and clocks differ so much, in seconds.
_TOLERANCE_S = 1e-6


@dataclass(frozen=True)
class Train:
    """What is known about one train. Arrays have an entry for each message that was sampled.

    Attributes:
        rate: at which it was sent, in the prober's units a second.
        begin_s: from when on samples were taken, in seconds of the run.
        end_s: until when.
        written_s: when each was written, in seconds of the run.
        delay_s: from writing to reading, in seconds.
        sender_s: of it, what it spent in the sender's stack.
        network_s: in the network.
        receiver_s: in the receiver's stack.
        buffered: share of messages that waited for the window before they were first sent.
        messages: how many were written in that time and arrived.
        missing: how many of them did not arrive before the run ended.
        windows: congestion window at equal distances, in packets.
        window_every_s: these distances.
        invalid_because: why it must not be used; empty: it may.
        notes: what else there is to say, in words.

    """

    rate: float
    begin_s: float
    end_s: float
    written_s: Floats
    delay_s: Floats
    sender_s: Floats
    network_s: Floats
    receiver_s: Floats
    buffered: float
    messages: int
    missing: int
    windows: Floats
    window_every_s: float
    invalid_because: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """How a train is sent.

    Attributes:
        rate: in the prober's units a second.
        warm_up_s: what passes before the first sample.
        duration_s: for how long samples are taken.
        every_s: from one sample to the next, on average.
        seed: of all that is random.
        window_every_s: from one look at the congestion window to the next; of a loop, which is looked at with each
            sample, nothing.

    """

    rate: float
    warm_up_s: float
    duration_s: float
    every_s: float
    seed: int
    window_every_s: float = 0.1

    @property
    def end_s(self) -> float:
        """When the last sample is written."""
        return self.warm_up_s + self.duration_s

    @property
    def lasts_s(self) -> float:
        """How long a run continues so that the last message can arrive."""
        return self.end_s + max(5.0, 0.02 * self.duration_s)


class Prober(Protocol):
    """Carries trains."""

    #: What rates count a second: `packets` or `bit`.
    unit: str
    #: Whether a train takes as long as it lasts.
    real_time: bool
    #: The resolution of delays in seconds; delays that differ by less count as equal.
    resolution_s: float

    @property
    def message(self) -> float:
        """What one message has of it."""

    @property
    def longest_s(self) -> float:
        """No run may be longer, warm-up and all; see `Plan.lasts_s`."""

    def describe(self) -> dict[str, Any]:
        """What is probed, for people and as the fingerprint of what is kept; JSON."""

    def train(self, plan: Plan, progress: Progress | None = None) -> Train:
        """Send one train."""

    def greedy(self, duration_s: float, seed: int) -> float:
        """What a source gets instead that always has something to send, in units a second."""

    def least_s(self, rate: float) -> float:
        """The shortest useful train, in seconds: a shorter one would miss known rare events."""


def fingerprint(prober: Prober) -> str:
    """Identify a prober."""
    return hashlib.sha256(json.dumps(prober.describe(), sort_keys=True).encode()).hexdigest()


def counted(value: float) -> int:
    """A number of messages; more than a train may have is refused."""
    if not value < _MOST_MESSAGES:
        raise ProbingError(
            f"{value:g} messages in one train are too many, expected at most {_MOST_MESSAGES:g}"
        )
    return round(value)


def check(plan: Plan) -> None:
    """Refuse a train that cannot be.

    Raises:
        ProbingError: a number is out of range; the error says which.

    """
    for what, value in (
        ("rate", plan.rate),
        ("duration", plan.duration_s),
        ("distance of samples", plan.every_s),
        ("distance of looks at the window", plan.window_every_s),
    ):
        if not 0 < value < math.inf:
            raise ProbingError(f"the {what} of a train must be above 0 and finite, got {value:g}")
    if not 0 <= plan.warm_up_s < math.inf:
        raise ProbingError(f"the warm-up of a train must be 0 s or more, got {plan.warm_up_s:g}")


def at_random(count: int, mean_gap: int, seed: int) -> npt.NDArray[np.int64]:
    """Draw some of `count` messages, on average `mean_gap` apart; return their numbers."""
    gaps = np.random.default_rng(seed).integers(1, 2 * mean_gap, size=count // mean_gap * 2 + 2)
    at = np.cumsum(gaps) - 1
    return at[at < count]


def of_messages(
    plan: Plan,
    gap_s: float,
    times: dict[str, Floats],
    windows: Floats,
    buffered: float,
    keep: npt.NDArray[np.int64] | None = None,
    invalid_because: tuple[str, ...] = (),
) -> Train:
    """A train of messages that were written at known moments; those written after its end are left out."""
    written_s, read_s = times["written_s"], times["read_s"]
    inside = written_s < plan.end_s
    # TCP delivers in order: what was written after the last that arrived is missing
    last_s = float(written_s[inside].max(initial=plan.warm_up_s))
    missing = max(
        0, math.floor((plan.end_s - last_s) / gap_s - 1 + _TOLERANCE_S) - _slack(plan, gap_s, keep)
    )
    wrong = list(invalid_because)
    if len(read_s) and float((read_s - written_s).min()) < -_TOLERANCE_S:
        wrong.append("a probe arrived before it was written: the clocks of both ends differ")
    if np.any(np.diff(read_s[np.argsort(written_s, kind="stable")]) < -_TOLERANCE_S):
        wrong.append("probes arrived in another order than they were written in")
    chosen = np.flatnonzero(inside) if keep is None else keep[inside[keep]]
    of = {name: values[chosen] for name, values in times.items()}
    return Train(
        plan.rate,
        plan.warm_up_s,
        plan.end_s,
        of["written_s"],
        of["read_s"] - of["written_s"],
        of["sent_s"] - of["written_s"],
        of["left_s"] - of["sent_s"],
        of["read_s"] - of["left_s"],
        buffered,
        int(inside.sum()) if keep is not None else round((last_s - plan.warm_up_s) / gap_s),
        missing,
        windows,
        plan.window_every_s,
        tuple(wrong),
    )


def _slack(plan: Plan, gap_s: float, keep: npt.NDArray[np.int64] | None) -> int:
    """Messages at the end that may lie after the last sample without one being missing."""
    return 0 if keep is not None else 2 * max(1, round(plan.every_s / gap_s))
