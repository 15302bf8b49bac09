"""Traffic that shares the link and does not react, found between the acknowledgments of a flow.

It takes as much of the link at any time, whatever the flow does; flows that react take what the others leave.
"""

from __future__ import annotations

from dataclasses import dataclass

from pathcast.calibration.features import Observation
from pathcast.calibration.sharing import link_use_of

#: What others take differs between parts of the time by this part of it at most (median deviation): so that flows that react
#: are unlikely, and so that it may be steady all the same. Traffic that loses packets over a full queue is less steady.
STEADY, MAYBE_STEADY = 0.012, 0.1
#: The least and the largest part of the link.
_LEAST_PART, _MOST_PART = 0.05, 0.7


@dataclass(frozen=True)
class Steady:
    """Other traffic of a constant rate.

    Attributes:
        link_bps: rate of the link.
        part: what the other traffic takes of it.
        is_clear: flows that react would hardly take as much of it all the time.

    """

    link_bps: float
    part: float
    is_clear: bool


def steady_traffic(seen: Observation, most: float = STEADY) -> Steady | None:
    """Find traffic that does not react; None if intervals between acknowledgments do not show any that varies so little."""
    use = link_use_of(seen, _LEAST_PART)
    if use is None or not 0 < use.others_part <= _MOST_PART or use.others_vary > most:
        return None
    return Steady(use.rate_bps, use.others_part, use.others_vary <= STEADY)


__all__ = ["Steady", "steady_traffic"]
