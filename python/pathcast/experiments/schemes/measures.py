"""What is measured of a flow, and what follows for a whole run.

All rates and delays are those of data packets at the receiver's side of the path, the same in every backend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import numpy.typing as npt

from pathcast.extras import need

#: Width of the windows of a series, in seconds.
WINDOW_S = 0.5
#: Numbers of events in a packets file.
_SENT, _DELIVERED, _DROPPED, _LOST = 0, 1, 2, 3

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FlowMeasure:
    """One flow of a run.

    Attributes:
        scheme: the plan's name of it.
        under_test: whether it is a flow of the scheme under test.
        start_s: when it began.
        end_s: when it ended, or the run did.
        throughput_bps: bits of packets that arrived, headers too, a second of its own time; None: nothing arrived.
        delay_ms: one-way delay of packets that arrived: `mean`, `p50`, `p95`; None: nothing arrived.
        loss: packets that were dropped or lost, over those sent.
        completion_s: of a transfer, from its start to its end; None: it did not end, or has none.
        why_not: why it did not run; None: it did.
        controller: what the implementation says is at work, and how that was read; empty in the simulator.
        series: time, rate in bit/s and mean delay in ms of windows of 0.5 s; the delay is None where nothing arrived.

    """

    scheme: str
    under_test: bool
    start_s: float
    end_s: float
    throughput_bps: float | None
    delay_ms: Mapping[str, float] | None
    loss: float | None
    completion_s: float | None = None
    why_not: str | None = None
    controller: str = ""
    series: tuple[tuple[float, float, float | None], ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """As it is kept."""
        return asdict(self)

    @classmethod
    def of_dict(cls, values: Mapping[str, Any]) -> FlowMeasure:
        """Read what `to_dict` gave."""
        series = tuple((t, rate, delay) for t, rate, delay in values["series"])
        return cls(**{**values, "series": series})


def of_packets(file: FilePath, ends_s: Sequence[tuple[float, float]]) -> list[dict[str, Any]]:
    """Measure each flow of a packets file.

    Args:
        file: as `simulate --packets` writes it.
        ends_s: when each flow began and ended, in seconds.

    Returns:
        For each flow `throughput_bps`, `delay_ms`, `loss` and `series`, as `FlowMeasure` has them.

    Raises:
        PathcastError: pyarrow is not installed.

    """
    parquet = need("pyarrow.parquet", "probing", "the benchmark of schemes")
    names = ["time_s", "flow", "size_bytes", "event", "one_way_delay_s", "direction"]
    table = parquet.read_table(file, columns=names)
    columns = {name: table[name].to_numpy() for name in names}
    data = columns["direction"] == 0
    found = []
    for number, (start_s, end_s) in enumerate(ends_s):
        mine = data & (columns["flow"] == number)
        event = columns["event"][mine]
        arrived = event == _DELIVERED
        sent = int(np.count_nonzero(event == _SENT))
        gone = int(np.count_nonzero((event == _DROPPED) | (event == _LOST)))
        found.append(
            {
                "loss": gone / sent if sent else None,
                **_of_arrivals(
                    columns["time_s"][mine][arrived],
                    columns["size_bytes"][mine][arrived].astype(float),
                    1e3 * columns["one_way_delay_s"][mine][arrived],
                    start_s,
                    end_s,
                ),
            }
        )
    return found


def _of_arrivals(
    time_s: Floats, size_bytes: Floats, delay_ms: Floats, start_s: float, end_s: float
) -> dict[str, Any]:
    within = (time_s >= start_s) & (time_s <= end_s)
    time_s, size_bytes, delay_ms = time_s[within], size_bytes[within], delay_ms[within]
    lasted_s = end_s - start_s
    if not len(time_s) or lasted_s <= 0:
        return {"throughput_bps": None, "delay_ms": None, "series": ()}
    p50, p95 = np.quantile(delay_ms, (0.5, 0.95))
    first, last = math.floor(start_s / WINDOW_S), math.ceil(end_s / WINDOW_S)
    window = np.clip((time_s / WINDOW_S).astype(int), first, last - 1) - first
    count = np.bincount(window, minlength=last - first)
    bits = 8 * np.bincount(window, weights=size_bytes, minlength=last - first)
    delays = np.bincount(window, weights=delay_ms, minlength=last - first)
    series = tuple(
        (
            (first + at) * WINDOW_S,
            float(bits[at] / WINDOW_S),
            float(delays[at] / count[at]) if count[at] else None,
        )
        for at in range(last - first)
    )
    return {
        "throughput_bps": float(8 * size_bytes.sum() / lasted_s),
        "delay_ms": {"mean": float(delay_ms.mean()), "p50": float(p50), "p95": float(p95)},
        "series": series,
    }


#: What is compared of runs: the key, in words, the unit, its factor, and whether more is better.
METRICS: dict[str, tuple[str, str, float, bool]] = {
    "throughput_bps": ("throughput", "Mbit/s", 1e-6, True),
    "delay_mean_ms": ("mean one-way delay", "ms", 1.0, False),
    "delay_p95_ms": ("95th percentile of one-way delay", "ms", 1.0, False),
    "loss": ("loss", "%", 100.0, False),
    "power": ("power", "Mbit/s per ms", 1.0, True),
    "jain": ("Jain's fairness", "", 1.0, True),
    "share": ("share of the throughput", "%", 100.0, True),
    "completion_s": ("completion time", "s", 1.0, False),
}


def of_run(flows: Sequence[FlowMeasure], kind: str) -> dict[str, float | None]:
    """Measure a run: what `METRICS` lists, of the flows under test.

    Throughput is the sum of bits over the time from the first start to the last end. Delays and loss are means over the
    flows, weighted by their bits. Power is throughput over mean one-way delay. Jain's index is that of all flows while
    all of them run. Completion is the mean of transfers, of a page the end of the last one.

    Args:
        flows: of the run.
        kind: of the workload.

    """
    mine = [flow for flow in flows if flow.under_test]
    begin_s, end_s = min(one.start_s for one in mine), max(one.end_s for one in mine)
    bits = [(one.throughput_bps or 0.0) * (one.end_s - one.start_s) for one in mine]
    throughput = sum(bits) / (end_s - begin_s) if end_s > begin_s else None

    def weighted(values: Sequence[float | None]) -> float | None:
        pairs = [(value, bit) for value, bit in zip(values, bits, strict=True) if value is not None]
        weight = sum(bit for _, bit in pairs)
        return sum(value * bit for value, bit in pairs) / weight if weight > 0 else None

    mean = weighted([one.delay_ms["mean"] if one.delay_ms else None for one in mine])
    found: dict[str, float | None] = {
        "throughput_bps": throughput,
        "delay_mean_ms": mean,
        "delay_p95_ms": weighted([one.delay_ms["p95"] if one.delay_ms else None for one in mine]),
        "loss": weighted([one.loss for one in mine]),
        "power": 1e-6 * throughput / mean if throughput and mean else None,
    }
    if kind in ("staggered", "mixed"):
        rates = flow_rates_together(flows)
        found["jain"] = jain(rates)
        if kind == "mixed" and sum(rates) > 0:
            ours = [rate for rate, one in zip(rates, flows, strict=True) if one.under_test]
            found["share"] = sum(ours) / sum(rates)
    if kind in ("transfer", "page"):
        times = [one.completion_s for one in mine]
        done = [time for time in times if time is not None]
        if len(done) == len(times):
            ends = [one.start_s + time for one, time in zip(mine, done, strict=True)]
            whole = max(ends) - begin_s
            found["completion_s"] = whole if kind == "page" else sum(done) / len(done)
    return found


def flow_rates_together(flows: Sequence[FlowMeasure]) -> list[float]:
    """The mean rate of each flow in the windows in which all run."""
    begin_s = max((flow.start_s for flow in flows), default=0.0)
    end_s = min((flow.end_s for flow in flows), default=0.0)
    rates = []
    for flow in flows:
        inside = [rate for time, rate, _ in flow.series if begin_s <= time + WINDOW_S / 2 <= end_s]
        rates.append(sum(inside) / len(inside) if inside else 0.0)
    return rates


def jain(rates: Sequence[float]) -> float | None:
    """Jain's index of fairness (Jain, Chiu and Hawe 1984): (sum x)^2 / (n sum x^2); None if nothing was sent."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares > 0 else None
