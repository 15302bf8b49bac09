"""Traces of other tools, converted."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pathcast import _internal
from pathcast.exceptions import TraceError, translated
from pathcast.trace import Trace

#: Formats that hold no windows, by the name that the reader gives them.
_PANTHEON_PERF = "pantheon_perf.json"


@dataclass(frozen=True)
class Conversion:
    """What was read and written.

    Attributes:
        format: of the input, in words.
        rows: rows of the trace, or of Pantheon's summary; None if none were asked for.
        packets: rows of the packet table; None if it was not asked for.
        goodput_bps: bit/s of each flow over the whole file, of flows whose source tells.
        warnings: what is doubtful, and where a damaged file was cut.

    """

    format: str
    rows: int | None
    packets: int | None
    goodput_bps: dict[int, float]
    warnings: list[str]


def convert(
    file: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    packets: str | os.PathLike[str] | None = None,
    egress: str | os.PathLike[str] | None = None,
    flow: int | None = None,
    keep_prefix: bool = False,
) -> Conversion:
    """Converts a trace of any known format; `docs/trace-format.md` lists them.

    Args:
        file: the input, a file, a pipe, or `-` for the standard input; its format is told by content.
        output: where the trace goes: CSV of one flow's windows if it ends in `.csv`, else Parquet.
        packets: where the packet table goes, of formats that know packets: a log of mm-link if it
            ends in `.log`, a packet-delivery trace of mahimahi if in `.trace`, else Parquet.
        egress: the log of what left a Pantheon tunnel, if the input is that of what entered it.
        flow: the one flow to take; by default all, but of a packet capture the busiest, 0.
        keep_prefix: of a file that is damaged, take what comes before the damage.

    Raises:
        TraceError: neither output nor packets is given, the input cannot be read or has nothing
            of the kind, or a file cannot be written.

    ```python
    pathcast.convert("capture.pcap", "trace.parquet", packets="packets.parquet")
    ```

    """
    if output is None and packets is None:
        raise TraceError(f"{file}: nothing to write: give an output, or a file for packets")
    said: dict[str, Any] = {"format": "", "warnings": [], "goodput_bps": {}}
    rows: int | None = None
    count: int | None = None
    with translated():
        # opened once: what a pipe gave is not given again
        source = _internal.TraceFile(FilePath(file))
        other_end = None if egress is None else _internal.TraceFile(FilePath(egress))
        if output is not None:
            target = FilePath(output)
            if source.format() == _PANTHEON_PERF:
                said = json.loads(_internal.convert_pantheon_perf(source, target, keep_prefix))
            else:
                inner, text = _internal.import_trace(source, keep_prefix, flow, other_end)
                said = json.loads(text)
                if target.suffix == ".csv":
                    _internal.export_csv(inner, target)
                else:
                    Trace(inner).write(target)
            rows = said["rows"]
        if packets is not None:
            target = FilePath(packets)
            of_packets = json.loads(
                _internal.convert_packets(source, target, keep_prefix, flow, other_end)
            )
            count = of_packets["rows"]
            said["format"] = of_packets["format"]
            said["warnings"] = list(dict.fromkeys(said["warnings"] + of_packets["warnings"]))
    return Conversion(
        said["format"],
        rows,
        count,
        {int(number): rate for number, rate in said["goodput_bps"].items()},
        said["warnings"],
    )
