"""Traces of other tools, converted."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pathcast import _internal
from pathcast.exceptions import TraceError
from pathcast.flows import Flow, chosen_flow, flows_of
from pathcast.trace import Trace, reading

#: Formats that hold no windows, by the name that the reader gives them.
_PANTHEON_PERF = "pantheon_perf.json"


@dataclass(frozen=True)
class Conversion:
    """Result of a conversion: what was read and written.

    Attributes:
        format: of the input, in words.
        rows: rows of the trace, or of Pantheon's summary; None if none were asked for.
        packets: rows of the packet table; None if it was not asked for.
        goodput_bps: bit/s of each flow over the whole file, for flows whose source has it.
        warnings: what is doubtful, and where a damaged file was cut.
        flows: the flows of the file, for a capture also those that were not read; empty if no trace was read.

    """

    format: str
    rows: int | None
    packets: int | None
    goodput_bps: dict[int, float]
    warnings: list[str]
    flows: list[Flow] = field(default_factory=list)


def convert(
    file: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    packets: str | os.PathLike[str] | None = None,
    egress: str | os.PathLike[str] | None = None,
    flow: int | str | None = None,
    keep_prefix: bool = False,
) -> Conversion:
    """Convert a trace of any known format; `docs/reference/import-formats.md` lists them.

    Args:
        file: the input, a file, a pipe, or `-` for the standard input; the content determines the format.
        output: where the trace goes: CSV of one flow's windows, or of the rows of
            `pantheon_perf.json`, if it ends in `.csv`; Parquet if in `.parquet` or nothing.
        packets: where the packet table goes, of formats that know packets: a log of mm-link if it
            ends in `.log`, a packet-delivery trace of mahimahi if in `.trace`; Parquet if in
            `.parquet` or nothing.
        egress: the log of what left a Pantheon tunnel, if the input is that of what entered it.
        flow: the one flow to take, by its number or an end as `ADDRESS:PORT`; by default all, but of
            a packet capture the busiest, 0.
        keep_prefix: of a file that is damaged, take what comes before the damage.

    Raises:
        TraceError: neither output nor packets is given, the input cannot be read or has nothing
            of the kind, a name ends in what says no format, or a file cannot be written.

    ```python
    pathcast.convert("capture.pcap", "trace.parquet", packets="packets.parquet")
    ```

    """
    if output is None and packets is None:
        raise TraceError(f"{file}: nothing to write: give an output, or a file for packets")
    for written, endings in ((output, (".csv",)), (packets, (".log", ".trace"))):
        if written is not None:
            _check_ending(written, (".parquet", *endings))
    said: dict[str, Any] = {"format": "", "warnings": [], "goodput_bps": {}}
    rows: int | None = None
    count: int | None = None
    flows: list[Flow] = []
    with reading(file):
        # opened once: what a pipe gave is not given again
        source = _internal.TraceFile(FilePath(file))
        other_end = None if egress is None else _internal.TraceFile(FilePath(egress))
        if isinstance(flow, str):
            inner, _ = _internal.import_trace(source, keep_prefix, None, other_end)
            flow = chosen_flow(str(file), flows_of(Trace(inner)), flow)
        if output is not None:
            target = FilePath(output)
            if source.format() == _PANTHEON_PERF:
                said = json.loads(_internal.convert_pantheon_perf(source, target, keep_prefix))
            else:
                inner, text = _internal.import_trace(source, keep_prefix, flow, other_end)
                said = json.loads(text)
                trace = Trace(inner)
                flows = flows_of(trace)
                if target.suffix == ".csv":
                    if len(trace.flows) > 1:
                        raise TraceError(f"{file}: {_several(flows)}")
                    _internal.export_csv(inner, target)
                else:
                    trace.write(target)
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
        flows,
    )


def _check_ending(file: str | os.PathLike[str], endings: tuple[str, ...]) -> None:
    """The form of what is written follows its name, which must not promise another one."""
    ending = FilePath(file).suffix
    # of a device or a pipe, or a name that says nothing: Parquet
    if ending and ending not in endings:
        expected = ", ".join(endings)
        raise TraceError(
            f"{file}: ends in {ending}; expected one of {expected}, or no ending for Parquet"
        )


def _several(flows: list[Flow]) -> str:
    listed = ", ".join(f"{flow.flow} ({flow.name or 'unnamed'})" for flow in flows[:8])
    return f"has several flows, and CSV holds one; choose with --flow: {listed}"
