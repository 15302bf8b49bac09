"""The flows of a file, and reading some of them."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

from pathcast import _internal
from pathcast.exceptions import TraceError
from pathcast.foreign import utf8
from pathcast.trace import Trace, TraceWarning, reading

#: As packet captures say what a flow carried, of which the rows were not read.
_CARRIED = re.compile(r"(\d+) B in ([\d.]+) s")
#: Flows that an error lists.
_MOST_LISTED = 8


@dataclass(frozen=True)
class Flow:
    """A flow of a file.

    Attributes:
        flow: its number.
        name: who sends to whom, if the source says.
        bytes: payload that was acknowledged, or else sent, while the flow was observed; None if it is not
        known.
        duration_s: from its first row or packet to its last.

    """

    flow: int
    name: str
    bytes: int | None
    duration_s: float


def flows_of(trace: Trace) -> list[Flow]:
    """All flows of the file that a trace was read from, ascending by number.

    Of a packet capture these are also those that were not read.
    """
    import numpy as np

    environment = trace.metadata["environment"]
    columns = trace.columns
    found: dict[int, Flow] = {}
    for flow in trace.flows:
        mine = columns["flow"] == flow
        count = None
        for name in ("snd_una_bytes", "snd_nxt_bytes"):
            there = columns[name][mine]
            there = there[~np.isnan(there)]
            if there.size:
                count = int(there.max() - there[0])
                break
        time_s = columns["time_s"][mine]
        name = environment.get(f"flow {flow}", "")
        found[flow] = Flow(flow, name, count, float(time_s[-1] - time_s[0]))
    for key, text in environment.items():
        number = re.fullmatch(r"flow (\d+) carried", key)
        carried = _CARRIED.fullmatch(text)
        if number and carried:
            flow = int(number[1])
            name = environment.get(f"flow {flow}", "")
            found[flow] = Flow(flow, name, int(carried[1]), float(carried[2]))
    return [found[flow] for flow in sorted(found)]


def chosen_flow(file: str, flows: Sequence[Flow], wanted: str) -> int:
    """Return the number of the flow that `wanted` names: by number, by an end as ADDRESS:PORT, or by `A -> B`.

    Raises:
        TraceError: no flow has this name, or several have.

    """
    if wanted.isdecimal():
        # a capture may have more flows than it names
        return int(wanted)
    asked = [end.strip() for end in re.split(r"\s*->\s*", wanted)]
    found = []
    for flow in flows:
        ends = [end.strip() for end in re.sub(r" \(socket .*\)$", "", flow.name).split(" -> ")]
        if asked == ends or (len(asked) == 1 and asked[0] in ends):
            found.append(flow)
    if len(found) == 1:
        return found[0].flow
    candidates = found or flows
    listed = ", ".join(f"{f.flow} ({f.name or 'unnamed'})" for f in candidates[:_MOST_LISTED])
    more = "" if len(candidates) <= _MOST_LISTED else f", and {len(candidates) - _MOST_LISTED} more"
    how = "fits several flows" if found else "is none of its flows"
    raise TraceError(f"{file}: --flow {wanted} {how}; expected a number of: {listed}{more}")


def read_flows(file: str | os.PathLike[str], wanted: Sequence[str] | None = None) -> list[Trace]:
    """Read a file: whole, or a trace of each requested flow; see `chosen_flow`.

    Of a packet capture, whole is the busiest flow.

    Raises:
        TraceError: the file cannot be read, or has no such flow.

    """
    with reading(file):
        # opened once: what a pipe gave is not given again
        source = _internal.TraceFile(FilePath(file))

    def read(flow: int | None) -> tuple[Trace, list[str]]:
        with reading(file):
            inner, said = _internal.import_trace(source, False, flow)
        return Trace(inner, utf8(file)), json.loads(said)["warnings"]

    if not wanted:
        got = [read(None)]
    else:
        flows: list[Flow] = []
        if not all(one.isdecimal() for one in wanted):
            flows = flows_of(read(None)[0])
        numbers = dict.fromkeys(chosen_flow(utf8(file), flows, one) for one in wanted)
        got = [read(number) for number in numbers]
    for warning in dict.fromkeys(warning for _, said in got for warning in said):
        warnings.warn(warning, TraceWarning, stacklevel=2)
    return [trace for trace, _ in got]
