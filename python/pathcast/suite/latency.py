"""How long transfers of some size take, forecast mid-flow as x / B (Cao et al., section 4.2, equation 5).

As in the paper's section 5.3, B is each model's forecast of the next second. This module is all that the suite
knows of latency: who forecasts it in another way has `transfers` to change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pathcast.models import HorizonScore
from pathcast.suite.scores import Errors, Source
from pathcast.trace import FlowSeries

#: Sizes of transfers in bytes, from 1 to 100 MB as in section 5.3, in the ranges of figure 8.
SIZE_RANGES = {
    "< 10 MB": (1e6, 2e6, 5e6),
    "10 to 50 MB": (10e6, 20e6, 50e6),
    "> 50 MB": (75e6, 100e6),
}
SIZES_BYTES = tuple(size for sizes in SIZE_RANGES.values() for size in sizes)
#: All of them together.
ALL_SIZES = "1 to 100 MB"


@dataclass(frozen=True)
class Transfers:
    """Forecasts of how long one size takes, at each moment of prediction of one flow.

    Attributes:
        source: where they come from.
        protocol: `fair` or `paper`.
        size_bytes: how much is sent.
        error_pct: by model, |forecast / truth - 1| of the time in per cent.

    """

    source: Source
    protocol: str
    size_bytes: float
    error_pct: dict[str, Errors]


def transfers(
    source: Source, protocol: str, series: FlowSeries, mss_bytes: int, next_second: HorizonScore
) -> list[Transfers]:
    """Errors of x / B against the time until so much more was sent for the first time (snd_nxt).

    Transfers that do not end within the trace are left out, as are sizes with none that does.

    Args:
        source: what the flow is.
        protocol: by which `next_second` was made.
        series: the flow, with sequence numbers.
        mss_bytes: payload of a packet.
        next_second: forecasts of the rate of the next second, packets/s.

    """
    snd_nxt = series.snd_nxt_packets
    if snd_nxt is None:
        return []
    predictions = next_second.predictions
    at = np.searchsorted(series.time_s, predictions.time_s, side="right") - 1
    found = []
    for size_bytes in SIZES_BYTES:
        packets = size_bytes / mss_bytes
        end = np.searchsorted(snd_nxt, snd_nxt[at] + packets, side="left")
        ends = end < len(snd_nxt)
        if not ends.any():
            continue
        took_s = series.time_s[end[ends]] - predictions.time_s[ends]
        errors = {}
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for model, rate in predictions.forecast.items():
                error = np.abs(packets / rate[ends] / took_s - 1) * 100
                # a rate of 0 would take for ever
                errors[model] = np.where(rate[ends] > 0, error, np.nan).astype(np.float32)
        found.append(Transfers(source, protocol, size_bytes, errors))
    return found
