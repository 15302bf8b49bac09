"""What paths are like before anything is measured, learned from paths that are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pathcast.calibration.closed_forms import LOSS, QUEUE, RTT, FirstEstimate
from pathcast.catalog import Entry
from pathcast.exceptions import ModelError

#: Paths that it is learned from, at least; the least deviation of a logarithm; losses below count as this.
_LEAST_PATHS, _LEAST_SPREAD, _LEAST_LOSS = 5, 0.3, 1e-6


@dataclass(frozen=True)
class Prior:
    """Mean and standard deviation of logarithms over paths.

    Attributes:
        queue_round_trips: of the time that a full queue takes to drain, in round trips.
        loss: of the probability of a random loss.
        paths: how many it was learned from.

    """

    queue_round_trips: tuple[float, float]
    loss: tuple[float, float]
    paths: int

    @classmethod
    def learned(cls, paths: Sequence[Entry]) -> Prior:
        """Learn it from paths of `catalog`; those without a limit of rate or queue do not count.

        Raises:
            ModelError: fewer than five count.

        """
        queues, losses = [], []
        for one in paths:
            if one.rate_bps and one.queue_bytes and one.rtt_s > 0:
                queues.append(8 * one.queue_bytes / one.rate_bps / one.rtt_s)
                losses.append(max(one.loss, _LEAST_LOSS))
        if len(queues) < _LEAST_PATHS:
            raise ModelError(
                f"got {len(queues)} paths with a rate and a queue; a prior is learned from at least {_LEAST_PATHS}"
            )
        return cls(_normal(queues), _normal(losses), len(queues))

    def applied(self, first: FirstEstimate) -> FirstEstimate:
        """A first estimate with this prior of queue and random loss."""
        prior, spread = first.prior.copy(), first.spread.copy()
        queue, spread[QUEUE] = self.queue_round_trips
        if first.most_rtt_s is not None:
            queue = np.logaddexp(0.0, queue)
        prior[QUEUE] = queue + first.start[RTT]
        prior[LOSS], spread[LOSS] = self.loss
        return replace(first, prior=prior, spread=spread)


def _normal(values: Sequence[float]) -> tuple[float, float]:
    logs = np.log(values)
    return float(logs.mean()), max(float(logs.std(ddof=1)), _LEAST_SPREAD)


__all__ = ["Prior"]
