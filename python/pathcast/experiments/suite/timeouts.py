"""How many packets a flow sent and how often its retransmission timer ran out (Cao et al., section 5.4).

The paper has a loss probability "due to RTOs" of about 1e-7 over WiFi. After a timeout the window is one packet,
and no acknowledgment had come for the timer's least, 0.2 s: the trace shows that. A recovery does not end at
one packet, and a flow that has nothing to send is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pathcast.trace import Trace

Row = dict[str, Any]

#: Linux's least retransmission timeout, seconds (TCP_RTO_MIN).
LEAST_RTO_S = 0.2
#: The window in the first record after a timeout, packets: the simulator's records stand after the acknowledgment was
#: acted on, all others before.
_AFTER_TIMEOUT = {"simulator": 2.0}


@dataclass(frozen=True)
class Sent:
    """What one flow sent.

    Attributes:
        packets: sent at least once.
        timeouts: of the retransmission timer; several in a row without an acknowledgment count as one.

    """

    packets: int
    timeouts: int


def sent(trace: Trace, flow: int) -> Sent | None:
    """Count the packets and timeouts of one flow; None where the trace has no sequence numbers."""
    columns = trace.columns
    needed = ("snd_nxt_bytes", "snd_una_bytes")
    if not set(needed) <= set(columns):
        return None
    chosen = columns["flow"] == flow
    time_s, window = (columns[name][chosen] for name in ("time_s", "cwnd_packets"))
    snd_nxt, snd_una = (columns[name][chosen].astype(np.float64) for name in needed)
    if len(time_s) < 2 or not np.isfinite(snd_nxt).all():
        return None
    one_packet = _AFTER_TIMEOUT.get(str(trace.metadata.get("source")), 1.0)
    timed_out = (
        (window[1:] <= one_packet)
        & (window[:-1] > one_packet)
        & (np.diff(time_s) >= LEAST_RTO_S)
        # something was in flight
        & (snd_nxt[:-1] > snd_una[:-1])
    )
    mss = float(trace.metadata.get("mss_bytes") or 1448)
    return Sent(round((snd_nxt[-1] - snd_nxt[0]) / mss), int(timed_out.sum()))


def table(cells: Sequence[Row]) -> list[Row]:
    """A row for each network and congestion control, all its flows together.

    Without a timeout `most_per_packet` is what their share is below with 95 % confidence, 3 / packets.
    """
    found: dict[tuple[str, str], Row] = {}
    for cell in cells:
        if not cell["valid"] or None in (cell["packets"] or [None]):
            continue
        key = cell["network"], cell["scheme"]
        row = found.setdefault(
            key,
            dict(zip(("network", "scheme"), key, strict=True))
            | dict.fromkeys(("packets", "losses", "timeouts"), 0),
        )
        for name in ("packets", "losses", "timeouts"):
            row[name] += sum(cell[name])
    for row in found.values():
        count, packets = row["timeouts"], max(row["packets"], 1)
        row["per_packet"] = count / packets
        row["most_per_packet"] = None if count else 3 / packets
        row["paper_per_packet"] = 1e-7 if row["network"] == "wireless" else None
    return list(found.values())
