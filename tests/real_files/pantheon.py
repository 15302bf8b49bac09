"""Logs of Pantheon's tunnels and of mm-link, by the definitions of Pantheon's analysis.

Throughput is what left between the first departure and the last; delay is the sample next to the 95th percentile;
loss is the share of bytes that did not leave before the log ended. Sizes of mm-link count 4 bytes of its device.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .facts import Unusable, Usable

TUN_BYTES = 4


def _numbers(flow: str, entered: list[int], left: list[tuple[float, int, float]]):
    facts = {
        f"flow {flow} packets entered": float(len(entered)),
        f"flow {flow} bytes entered": float(sum(entered)),
        f"flow {flow} packets left": float(len(left)),
        f"flow {flow} bytes left": float(sum(size for _, size, _ in left)),
    }
    if entered:
        facts[f"flow {flow} loss"] = 1 - facts[f"flow {flow} bytes left"] / sum(entered)
    if left:
        span_s = left[-1][0] - left[0][0]
        if span_s > 0:
            facts[f"flow {flow} throughput_bps"] = facts[f"flow {flow} bytes left"] * 8 / span_s
        delays = [delay for _, _, delay in left]
        for percent in (50, 95):
            name = f"flow {flow} delay_p{percent}_s"
            facts[name] = float(np.percentile(delays, percent, method="nearest"))
    return facts


def expected(file: Path) -> Usable | Unusable:
    """Facts of each flow, in the order in which flows turn up."""
    entered: dict[str, list[int]] = {}
    left: dict[str, list[tuple[float, int, float]]] = {}
    text = file.read_text(errors="replace")
    link = "mm-link" in text[:200] or "# base timestamp" in text[:1000]
    header = TUN_BYTES if link else 0
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#") or len(words) < 3 or words[1] not in "+-":
            continue
        time_s, size = float(words[0]) / 1e3, int(words[2]) - header
        if words[1] == "+":
            flow = words[3] if len(words) == 4 else "0"
            entered.setdefault(flow, []).append(size)
        else:
            flow = words[4] if len(words) == 5 else "0"
            left.setdefault(flow, []).append((time_s, size, float(words[3]) / 1e3))
    if not entered:
        return Unusable("a log without packets", ("without packets", "no rows"))
    facts: dict[str, float] = {"flows": float(len(entered))}
    for number, flow in enumerate(entered):
        facts |= _numbers(str(number), entered[flow], left.get(flow, []))
    return Usable(facts)


def found(file: Path, scratch: Path) -> dict[str, float]:
    """The same of the packet table; of a tunnel's log, the sums that stand in its description, too."""
    import pyarrow.parquet

    import pathcast

    done = pathcast.convert(file, packets=scratch / "packets.parquet", keep_prefix=True)
    table = pyarrow.parquet.read_table(scratch / "packets.parquet")
    columns = {name: table[name].to_numpy() for name in table.column_names}
    facts: dict[str, float] = {"flows": float(len(np.unique(columns["flow"])))}
    for flow in np.unique(columns["flow"]):
        sent = (columns["flow"] == flow) & (columns["event"] == 0)
        arrived = (columns["flow"] == flow) & (columns["event"] == 1)
        sizes = [int(size) for size in columns["size_bytes"][sent]]
        left = zip(
            columns["time_s"][arrived],
            (int(size) for size in columns["size_bytes"][arrived]),
            columns["one_way_delay_s"][arrived],
            strict=True,
        )
        facts |= _numbers(str(flow), sizes, list(left))
    if done.format == "log of mm-link":
        return facts
    trace = pathcast.convert(file, scratch / "trace.parquet", keep_prefix=True)
    for flow, rate_bps in trace.goodput_bps.items():
        facts[f"flow {flow} throughput_bps"] = rate_bps
    environment = pathcast.read_trace(scratch / "trace.parquet").metadata["environment"]
    for flow in np.unique(columns["flow"]):
        facts[f"flow {flow} delay_p95_s"] = float(environment[f"flow {flow} one_way_delay_p95_s"])
    return facts
