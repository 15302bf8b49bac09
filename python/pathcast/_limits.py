"""What limits the flows of a trace, and for which share of the time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pathcast import _internal
from pathcast.exceptions import ModelError
from pathcast.trace import Trace

#: What can limit a flow, in the order of all tables; `docs/explanation/limits.md` explains each.
LIMITS = (
    "slow_start",
    "loss",
    "queue",
    "path_rate",
    "policer",
    "receive_window",
    "application",
    "idle",
)
#: What each means, as the end of "limited by ...".
_SAID = {
    "slow_start": "its own start: the window still grew, and no loss had stopped it",
    "loss": "losses that no queue explains: the path had room, but each loss cut the window",
    "queue": "a short queue: it overflowed, and the path was not full until the window had grown again",
    "path_rate": "the rate of the path: it was full",
    "policer": "a policer: packets beyond its rate were dropped without waiting",
    "receive_window": "the receiver's window",
    "application": "its application, which sent less than the path would have carried",
    "idle": "nothing: most of the time nothing was in flight",
}
#: Schemes that send at a rate by a model of the path, instead of filling a window.
_PACED = ("bbr", "bbr2", "bbr3", "quic-bbr3")


@dataclass(frozen=True)
class FlowLimits:
    """What limits one flow.

    Attributes:
        flow: its number in the trace.
        scheme: its congestion control, if the trace says it.
        duration_s: seconds that were judged.
        limit: what limited it for the largest share of the time.
        probability: that this is so.
        shares: share of the time by limit; they sum to 1.
        now: probability of each limit in the last two seconds.

    """

    flow: int
    scheme: str | None
    duration_s: float
    limit: str
    probability: float
    shares: Mapping[str, float]
    now: Mapping[str, float]

    def text_now(self) -> str:
        """What limits it at the end, in a sentence without its subject."""
        limit = max(LIMITS, key=lambda one: self.now[one])
        return f"lately limited by {_SAID[limit]}; {self.now[limit]:.0%} sure."

    def text(self) -> str:
        """What limited it, in a sentence without its subject."""
        return (
            f"for {self.shares[self.limit]:.0%} of {self.duration_s:.4g} s limited by {_SAID[self.limit]}; "
            f"{self.probability:.0%} sure."
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return vars(self) | {"shares": dict(self.shares), "now": dict(self.now)}


def limits(
    trace: Trace, flow: int = 0, *, scheme: str | None = None, until_s: float = math.inf
) -> FlowLimits:
    """Say what limited a flow: slow start, loss, a queue, the path's rate, a policer, a window, the application.

    Args:
        trace: with sequence numbers, round-trip times and, for `receive_window`, the receiver's window.
        flow: its number.
        scheme: congestion control; by default what the trace says.
        until_s: later records are left out, seconds in the trace's time.

    Raises:
        TraceError: the trace has no such flow.
        ModelError: the flow has too few records.

    Example:
        >>> import pathcast
        >>> path = pathcast.Path.parse("rate = '10 Mbit/s'\\ndelay = '20 ms'\\nqueue = '2 BDP'")
        >>> _, trace = pathcast.simulate(path, ["cubic"], duration_s=20)
        >>> pathcast.limits(trace).limit
        'path_rate'

    """
    scheme = scheme or trace.scheme(flow) or None
    found = json.loads(_internal.limits(trace._inner, flow, scheme in _PACED, until_s))
    if found is None:
        trace.flow(flow)  # refuses a flow that does not exist
        raise ModelError(f"{trace.file or 'trace'}: flow {flow} has too few records to be judged")
    return FlowLimits(flow, scheme, **found)
