"""What the packets of a path say of each flow."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pathcast.exceptions import SchemeError
from pathcast.extras import need

#: Packets of the data's direction with more bytes than this carry data; others are acknowledgments and the like.
DATA_FROM_BYTES = 200
#: Steps of the series, in seconds.
STEP_S = 0.5
#: Headers of a packet's data: IPv4 and TCP with timestamps; IPv4 and UDP.
_HEADERS = {6: 20 + 32, 17: 20 + 8}
_SENT, _DELIVERED, _QUEUE, _LOST = range(4)

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Seen:
    """What was seen of a flow at the receiver's side of the path.

    Attributes:
        goodput_bps: application's bytes in the flow's time.
        throughput_bps: bytes of packets with headers in the flow's time.
        delay_ms: `mean`, `p50` and `p95` one-way delay of packets that carry data.
        loss: part of the data packets that the path dropped.
        active_s: from the flow's first packet to its last data.
        series: by half seconds of the run.

    """

    goodput_bps: float = 0.0
    throughput_bps: float = 0.0
    delay_ms: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("mean", "p50", "p95"), float("nan"))
    )
    loss: float = float("nan")
    active_s: float | None = None
    series: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class FlowPackets:
    """The packets of one flow, in the order of their events; times as in the log.

    Attributes:
        first_s: its first packet, of either direction; NaN without packets.
        sent: data packets that entered the path.
        dropped: data packets that the path dropped.
        times_s: arrivals of data packets.
        delays_s: their one-way delays.
        sizes: their bytes, with headers.
        header_bytes: of each.

    """

    first_s: float
    sent: int
    dropped: int
    times_s: _Floats
    delays_s: _Floats
    sizes: _Ints
    header_bytes: int

    @property
    def last_s(self) -> float:
        """The last arrival of data; NaN without any."""
        return float(self.times_s[-1]) if len(self.times_s) else float("nan")

    def measured(
        self, *, until_s: float, received_bytes: int | None, zero_s: float, duration_s: float
    ) -> Seen:
        """Measure the flow.

        Args:
            until_s: the end of the flow's time, which began with its first packet.
            received_bytes: what its receiver counted; at most what its packets can have carried counts.
            zero_s: the run's time 0.
            duration_s: of the run.

        """
        own = self.times_s <= until_s
        times, delays, sizes = self.times_s[own], self.delays_s[own], self.sizes[own]
        active_s = until_s - self.first_s
        if len(times) == 0 or not active_s > 0:
            return Seen(series=self._series(zero_s, duration_s))
        carried = int(sizes.sum() - self.header_bytes * len(sizes))
        goodput = carried if received_bytes is None else min(received_bytes, carried)
        p50, p95 = np.quantile(delays, [0.5, 0.95])
        return Seen(
            goodput_bps=goodput * 8 / active_s,
            throughput_bps=float(sizes.sum()) * 8 / active_s,
            delay_ms={
                "mean": float(delays.mean()) * 1e3,
                "p50": float(p50) * 1e3,
                "p95": float(p95) * 1e3,
            },
            loss=self.dropped / self.sent if self.sent else float("nan"),
            active_s=float(times[-1]) - self.first_s,
            series=self._series(zero_s, duration_s),
        )

    def _series(self, zero_s: float, duration_s: float) -> dict[str, list[float]]:
        steps = int(np.ceil(duration_s / STEP_S))
        within = np.floor((self.times_s - zero_s) / STEP_S)
        kept = (within >= 0) & (within < steps)
        step = within[kept].astype(np.int64)
        count = np.bincount(step, minlength=steps)
        size = np.bincount(step, self.sizes[kept], minlength=steps)
        delay = np.bincount(step, self.delays_s[kept], minlength=steps)
        with np.errstate(invalid="ignore"):
            mean_ms = delay / count * 1e3
        return {
            "t_s": [STEP_S * number for number in range(steps)],
            "rate_bps": (size * 8 / STEP_S).tolist(),
            "delay_ms": mean_ms.tolist(),
        }


@dataclass(frozen=True)
class Packets:
    """All packets of a path.

    Attributes:
        began_s: the log's time 0 by the monotonic clock.
        conversations: near address and port, far address and port, protocol of each.

    """

    began_s: float
    conversations: tuple[tuple[str, int, str, int, int], ...]
    _columns: dict[str, npt.NDArray[np.float64]] = field(repr=False)

    def of(self, port: int, *, reverse: bool) -> FlowPackets:
        """The packets of the flow whose receiver has this port.

        Args:
            port: of its receiver.
            reverse: whether its data goes in the path's reverse direction.

        """
        at = 1 if reverse else 3
        own = [number for number, one in enumerate(self.conversations) if one[at] == port]
        columns = self._columns
        chosen = np.isin(columns["flow"], own)
        time_s = columns["time_s"][chosen]
        event, size = columns["event"][chosen], columns["size_bytes"][chosen]
        data = (columns["direction"][chosen] == int(reverse)) & (size > DATA_FROM_BYTES)
        arrived = data & (event == _DELIVERED)
        order = np.argsort(time_s[arrived], kind="stable")
        protocol = self.conversations[own[0]][4] if own else 17
        return FlowPackets(
            first_s=float(time_s.min()) if len(time_s) else float("nan"),
            sent=int((data & (event == _SENT)).sum()),
            dropped=int((data & ((event == _QUEUE) | (event == _LOST))).sum()),
            times_s=time_s[arrived][order],
            delays_s=columns["one_way_delay_s"][chosen][arrived][order],
            sizes=size[arrived][order].astype(np.int64),
            header_bytes=_HEADERS.get(protocol, 28),
        )


def read(file: str | os.PathLike[str]) -> Packets:
    """Read the log of packets that a shell has written.

    Raises:
        SchemeError: pyarrow is not installed, or it is no such log.

    """
    began_s, conversations, columns = _read(file, lambda found: json.loads(found["conversations"]))
    return Packets(began_s, tuple(tuple(one) for one in conversations), columns)


def read_live(
    file: str | os.PathLike[str], receivers: Sequence[tuple[int, int]], *, reverse: bool
) -> Packets:
    """Read the log of packets of a live run of schemes, by the client's clock.

    Args:
        file: the log.
        receivers: of each flow, the port of its receiver and the number of its protocol.
        reverse: whether the server sends.

    Raises:
        SchemeError: pyarrow is not installed, or it is no such log.

    """
    began_s, _, columns = _read(file, lambda _: [])
    if reverse:
        # there, 0 is the way of the data, whoever sends it
        columns["direction"] = 1 - columns["direction"]
    return Packets(
        began_s, tuple(("", port, "", port, protocol) for port, protocol in receivers), columns
    )


def _read(
    file: str | os.PathLike[str], conversations: Callable[[dict[str, str]], Any]
) -> tuple[float, Any, dict[str, npt.NDArray[np.float64]]]:
    pyarrow = need("pyarrow", "probing", "measuring flows of schemes", SchemeError)
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(os.fspath(file)) as opened:
            environment = json.loads(opened.metadata.metadata[b"pathcast"])["environment"]
            table = opened.read()
        between = conversations(environment)
        began_s = int(environment["began_ns"]) * 1e-9
    except (OSError, KeyError, TypeError, ValueError, pyarrow.ArrowException) as error:
        raise SchemeError(f"{os.fspath(file)}: is no log of flows' packets: {error}") from None
    names = ("time_s", "flow", "size_bytes", "event", "one_way_delay_s", "direction")
    return (
        began_s,
        between,
        {name: table[name].to_numpy().astype(np.float64) for name in names},
    )
