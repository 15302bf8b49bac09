"""What really limited a flow, from the path's own record of its packets."""

from __future__ import annotations

from pathlib import Path as FilePath

from pathcast._limits import LIMITS
from pathcast.extras import need
from pathcast.trace import Column

#: Time is judged in pieces of a round trip, and at least of this length in seconds.
_PIECE_S = 0.1
#: In a piece in which the link carried this part of its rate, the path was full.
_FULL = 0.95
#: Limits that hold from a flow's first packet on; the others are known from its first loss on.
_FROM_START = ("slow_start", "receive_window", "application", "idle")
_SENT, _DELIVERED, _LOST_BY_QUEUE, _LOST_ON_WIRE = 0, 1, 2, 3


def shares(
    packets_file: FilePath, limit: str, *, rate_bps: float, rtt_s: float, has_window: bool
) -> dict[str, float]:
    """Find the share of time of each limit.

    While the link is busy, the path is full. While no packet is in flight, the flow is idle. Else it is limited by
    its intended limit, or by slow start before its first loss.

    Args:
        packets_file: of a run of one flow.
        limit: the flow's intended limit.
        rate_bps: of the link, in bit/s.
        rtt_s: shortest round trip, in seconds.
        has_window: whether losses end its slow start; BBR's ends when the rate no longer grows.

    """
    import numpy as np

    table = need("pyarrow.parquet", "probing", "the true limits").read_table(packets_file)
    names = ("time_s", "event", "one_way_delay_s", "direction", "size_bytes")
    columns = {name: table.column(name).to_numpy() for name in names}
    is_data = columns["direction"] == 0
    time_s, event, took_s, size_bytes = (
        columns[name][is_data] for name in ("time_s", "event", "one_way_delay_s", "size_bytes")
    )
    arrived = event == _DELIVERED
    arrived_s = time_s[arrived]
    left_s = arrived_s - took_s[arrived].astype(float)
    back_s = arrived_s + rtt_s / 2
    lost_s = time_s[np.isin(event, (_LOST_BY_QUEUE, _LOST_ON_WIRE))]
    first_loss_s = lost_s.min() if lost_s.size else np.inf
    start_s, end_s = time_s[event == _SENT].min(), back_s.max()
    piece_s = max(_PIECE_S, rtt_s)
    edges = np.arange(start_s, end_s + piece_s, piece_s)

    # a packet left the link half a round trip before it arrived
    piece = np.clip(
        np.searchsorted(edges, arrived_s - rtt_s / 2, side="right") - 1, 0, edges.size - 1
    )
    carried_bits = np.bincount(piece, 8.0 * size_bytes[arrived], minlength=edges.size)
    is_full = carried_bits[:-1] >= _FULL * rate_bps * piece_s

    found = dict.fromkeys(LIMITS, 0.0)
    is_busy = _busy_parts(edges, left_s, back_s)
    for index, at_s in enumerate(edges[:-1]):
        busy = float(is_busy[index])
        found["idle"] += 1.0 - busy
        if is_full[index]:
            held = "path_rate"
        elif has_window and limit not in _FROM_START and at_s < first_loss_s:
            held = "slow_start"
        else:
            held = "application" if limit == "idle" else limit
        found[held] += busy
    total = sum(found.values())
    return {name: float(share / total) for name, share in found.items()}


def _busy_parts(edges: Column, left_s: Column, back_s: Column) -> Column:
    """Of each piece, the part in which a packet or its acknowledgment was in flight."""
    import numpy as np

    order = np.argsort(left_s)
    left_s, back_s = left_s[order], np.maximum.accumulate(back_s[order])
    # pauses begin when all that left is back
    ends = np.append(left_s[1:] > back_s[:-1], True)
    starts = np.insert(ends[:-1], 0, True)
    parts = np.zeros(edges.size - 1)
    for begin_s, end_s in zip(left_s[starts], back_s[ends], strict=True):
        overlap = np.minimum(edges[1:], end_s) - np.maximum(edges[:-1], begin_s)
        parts += np.maximum(overlap, 0.0)
    return parts / np.diff(edges)
