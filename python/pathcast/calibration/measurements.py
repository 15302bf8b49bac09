"""What several schemes got over one path: run reports of Pathcast, and Pantheon's summaries and series."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pathcast.calibration.features import HEADER_BYTES, MSS_BYTES
from pathcast.exceptions import TraceError
from pathcast.files import unpacked
from pathcast.foreign import utf8, visible

#: Files have at most so many bytes, unpacked.
_MOST_BYTES = 64 << 20
#: Seconds of a run where a file does not say it; Pantheon's runs take 30.
DURATION_S = 30.0
#: Where Pantheon says it, and the longest that it says.
_METADATA, _LONGEST_S = "pantheon_metadata.json", 3600.0
#: Payload of what Pantheon counts: it measures whole packets.
_PAYLOAD_PART = MSS_BYTES / (MSS_BYTES + HEADER_BYTES)
#: What Pantheon calls schemes that the simulator has by another name.
_CALLED = {"quic": "quic-cubic"}


@dataclass(frozen=True)
class Measurement:
    """What one run of one scheme got.

    Attributes:
        scheme: as the simulator calls it, if it has it.
        flows: how many flows of the scheme the run had, all at once.
        duration_s: of the run.
        goodput_bps: of all its flows.
        delay_p95_s: 95th percentile of the one-way delay of data; None: not measured.
        delay_min_s: the shortest one-way delay; None: not measured.
        loss: part of the packets that was lost; None: not measured.
        bin_s: length of the bins of `rates_bps`.
        rates_bps: goodput in consecutive bins; empty: not measured.

    """

    scheme: str
    flows: int
    duration_s: float
    goodput_bps: float
    delay_p95_s: float | None = None
    delay_min_s: float | None = None
    loss: float | None = None
    bin_s: float = 0.0
    rates_bps: tuple[float, ...] = ()


def read_measurements(
    file: str | os.PathLike[str],
) -> list[Measurement] | None:
    """Read what schemes got from a JSON file, which may be packed by gzip.

    Args:
        file: a run report (`pathcast simulate --json`, and the same of `emulate` and `live run`) whose flows have one
            scheme, Pantheon's `pantheon_perf.json` (with `pantheon_metadata.json` beside it, which has the duration of
            the runs; without, 30 s), or series of `throughput_mbps` in bins of `bin_s` by scheme and run.

    Returns:
        the runs; None if the file is none of these.

    Raises:
        TraceError: it is one, and damaged, or it cannot be read.

    """
    where = utf8(file)
    if not FilePath(file).is_file():
        return None
    content = _content(FilePath(file), where)
    if content.lstrip()[:1] != b"{":
        return None
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    try:
        if isinstance(found.get("flows"), list) and "one_way_delay_ms" in found:
            return [_of_report(found)]
        if isinstance(found.get("schemes"), dict) and "bin_s" in found:
            return list(_of_series(found))
        if found and all(isinstance(runs, dict) for runs in found.values()) and _has_perf(found):
            return list(_of_perf(found, _runtime_s(FilePath(file))))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        said = f"has no {error}" if isinstance(error, KeyError) else str(error)
        raise TraceError(f"{where}: {visible(said)}") from None
    return None


def _content(file: FilePath, where: str) -> bytes:
    try:
        return unpacked(file, _MOST_BYTES) or b""
    except OSError as error:
        raise TraceError(f"{where}: cannot be read: {error}") from None


def _of_report(report: dict[str, Any]) -> Measurement:
    flows = report["flows"]
    schemes = {str(flow["scheme"]) for flow in flows}
    if len(schemes) != 1:
        raise ValueError(
            f"got flows of {', '.join(sorted(schemes))} in one run, expected runs of one scheme each"
        )
    goodputs = [_number(flow["goodput_bps"], "goodput_bps") for flow in flows]
    if any(flow.get("workload") != "bulk" for flow in flows):
        raise ValueError("got a flow that is not bulk; expected flows that send all the time")
    first = flows[0]
    sent = _number(first["delivered_bytes"], "delivered_bytes")
    if goodputs[0] <= 0 or sent <= 0:
        raise ValueError("the first flow delivered nothing")
    delay_ms = report["one_way_delay_ms"] or {}
    p95_ms, loss = delay_ms.get("p95"), report.get("loss_rate")
    return Measurement(
        schemes.pop(),
        len(flows),
        8 * sent / goodputs[0],
        sum(goodputs),
        None if p95_ms is None else 1e-3 * _number(p95_ms, "p95"),
        None,
        None if loss is None else _number(loss, "loss_rate"),
    )


def _runtime_s(perf: FilePath) -> float:
    """Seconds of a run by Pantheon's metadata beside its summary."""
    metadata = perf.with_name(_METADATA)
    if not metadata.is_file():
        return DURATION_S
    found = json.loads(_content(metadata, utf8(metadata)))
    runtime_s = _number(found["runtime"], "runtime")
    if not 1 <= runtime_s <= _LONGEST_S:
        raise ValueError(f"{_METADATA}: runtime: got {runtime_s:g}, expected 1 to {_LONGEST_S:g} s")
    return runtime_s


def _has_perf(found: dict[str, Any]) -> bool:
    """Whether it is Pantheon's summary: numbers of flows of runs of schemes."""
    flows = [one for runs in found.values() for run in runs.values() for one in _values(run)]
    return any(isinstance(one, dict) and "tput" in one for one in flows)


def _values(value: object) -> Sequence[object]:
    return list(value.values()) if isinstance(value, dict) else []


def _of_perf(found: dict[str, Any], duration_s: float) -> Iterator[Measurement]:
    for scheme, runs in found.items():
        for run in runs.values():
            every = run.get("all") if isinstance(run, dict) else None
            if not every or every.get("tput") is None:
                continue
            delay_ms, loss = every.get("delay"), every.get("loss")
            yield Measurement(
                _CALLED.get(scheme, scheme),
                max(len(run) - 1, 1),
                duration_s,
                1e6 * _PAYLOAD_PART * _number(every["tput"], "tput"),
                None if delay_ms is None else 1e-3 * _number(delay_ms, "delay"),
                None,
                None if loss is None else min(max(float(loss), 0.0), 1.0),
            )


def _of_series(found: dict[str, Any]) -> Iterator[Measurement]:
    bin_s = _number(found["bin_s"], "bin_s")
    if not 0 < bin_s <= 60:
        raise ValueError(f"bin_s: got {bin_s}, expected more than 0 and at most 60")
    for scheme, runs in found["schemes"].items():
        for run in runs.values():
            # the first and the last bin are not whole
            mbps = [_number(one, "throughput_mbps") for one in run["throughput_mbps"]][1:-1]
            rates = [1e6 * _PAYLOAD_PART * one for one in mbps]
            if not rates:
                continue
            half_ms = run.get("half_min_rtt_ms")
            yield Measurement(
                _CALLED.get(scheme, scheme),
                1,
                bin_s * len(rates),
                sum(rates) / len(rates),
                None,
                None if half_ms is None else 1e-3 * _number(half_ms, "half_min_rtt_ms"),
                None,
                bin_s,
                tuple(rates),
            )


def _number(value: object, name: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(value)
    raise ValueError(f"{name}: got {str(value)[:40]!r}, expected a number of 0 or more")


__all__ = ["DURATION_S", "Measurement", "read_measurements"]
