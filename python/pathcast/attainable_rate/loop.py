"""Probes of window flow control without a transport."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pathcast import _internal
from pathcast.attainable_rate.probes import Floats, Plan, Progress, Train, check, counted
from pathcast.exceptions import ProbingError


@dataclass(frozen=True)
class WindowLoop:
    """Window flow control without a transport, as in section III-C: `crates/sim/src/window_loop`.

    Packets cross a network of a rate and a latency and are acknowledged after a delay; no more than a window of them
    are in flight. The window is fixed, or, with marks, grows by one packet for each window of
    acknowledgments and is halved by a mark.

    Attributes:
        latency_s: of the network, in seconds.
        acknowledgment_s: delay of the reverse direction.
        window_packets: the static window.
        mark_probability: instead, that a packet is marked, whatever the others.
        mark_every: instead, the number of packets from mark to mark.
        rate_pps: capacity in packets a second; None: no limit.
        fluid_steps: send trains as a fluid, in this number of steps of a round trip, instead of packet by
        packet: delays are
            right to within some steps, and a hundred times as long trains take no longer. Only without a capacity.

    Example:
        >>> loop = WindowLoop(0.05, 0.05, window_packets=500, rate_pps=10_000)
        >>> train = loop.train(Plan(4_000, 1.0, 10.0, 0.1, seed=1))
        >>> bool(abs(train.delay_s - 0.0501).max() < 1e-9)
        True

    """

    latency_s: float
    acknowledgment_s: float
    window_packets: int | None = None
    mark_probability: float | None = None
    mark_every: int | None = None
    rate_pps: float | None = None
    fluid_steps: int | None = None

    unit = "packets"
    message = 1.0
    real_time = False
    resolution_s = 1e-9
    longest_s = math.inf

    def _inner(self) -> _internal.WindowLoop:
        try:
            return _internal.WindowLoop(
                math.inf if self.rate_pps is None else self.rate_pps,
                self.latency_s,
                self.acknowledgment_s,
                self.window_packets,
                self.mark_probability,
                self.mark_every,
            )
        except (ValueError, OverflowError) as error:
            raise ProbingError(f"no such loop: {error}") from None

    def check(self) -> None:
        """Refuse a loop that cannot be.

        Raises:
            ProbingError: a number is out of range; the error says which.

        """
        self._inner()

    def describe(self) -> dict[str, Any]:
        """What is probed; JSON."""
        return {"loop": {name: value for name, value in vars(self).items() if value is not None}}

    def train(self, plan: Plan, progress: Progress | None = None) -> Train:
        """Send one train; see `Plan`.

        Raises:
            ProbingError: no such loop or train.

        """
        check(plan)
        inner = self._inner()
        begin = plan.rate, plan.warm_up_s, plan.duration_s, plan.every_s
        try:
            if self.fluid_steps is not None:
                found = inner.probe_fluid(*begin, self.fluid_steps, plan.seed, progress)
            else:
                warm_up, packets, per_sample = (counted(plan.rate * span) for span in begin[1:])
                train = plan.rate, warm_up, max(packets, 1), max(per_sample, 1)
                found = inner.probe(*train, plan.seed, progress)
        except (ValueError, OverflowError) as error:
            raise ProbingError(f"no such train: {error}") from None
        delay_s, sender_s = found["delay_s"], found["sender_s"]
        return Train(
            plan.rate,
            plan.warm_up_s,
            plan.end_s,
            found["written_s"],
            delay_s,
            sender_s,
            delay_s - sender_s,
            np.zeros_like(delay_s),
            found["buffered"] / max(found["packets"], 1),
            found["packets"],
            0,
            found["window_packets"],
            plan.every_s,
        )

    def greedy(self, duration_s: float, seed: int) -> float:
        """The rate of a source that always has a packet, in packets a second, over `duration_s` seconds.

        Raises:
            ProbingError: no such loop.

        """
        try:
            return self._inner().greedy_rate(duration_s, self.fluid_steps or 20, seed)
        except (ValueError, OverflowError) as error:
            raise ProbingError(f"no such train: {error}") from None

    def least_s(self, rate: float) -> float:
        """The time of 50 marks."""
        if self.mark_probability is None and self.mark_every is None:
            return 0.0
        return 50 * (self.mark_every or 1 / (self.mark_probability or 1)) / rate

    def carry(self, written_s: Floats, seed: int) -> Floats:
        """When each packet of an application arrives.

        Args:
            written_s: when each is written, in seconds, in order.
            seed: of the marks.

        Returns:
            Arrivals, in seconds. The window has passed 50 marks before; nothing is in flight.

        """
        warm_up = 0
        if self.mark_probability is not None or self.mark_every is not None:
            warm_up = counted(50 * (self.mark_every or 1 / (self.mark_probability or 1)))
            # no two flows begin in the same part of a period
            warm_up += int(np.random.default_rng(seed).integers(0, warm_up))
        try:
            return self._inner().carry(np.ascontiguousarray(written_s, float), warm_up, seed)
        except ValueError as error:
            raise ProbingError(f"no such packets: {error}") from None
