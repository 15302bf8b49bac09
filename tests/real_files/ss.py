"""`ss -ti`, looked at again and again: the words of each line with a window."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

from .facts import Unusable, Usable

WINDOW = re.compile(r"(?<!\S)cwnd:(\d+)(?!\S)")


def _number(line: str, pattern: str) -> float | None:
    match = re.search(rf"(?<!\S){pattern}", line)
    return None if match is None else float(match[1])


def _unnamed(flows: dict[str, list[str]], line: str) -> str:
    """The name of the socket without addresses of which a line with as many segments may be the next."""
    segments = _number(line, r"segs_out:(\d+)") or 0.0
    before = {
        name: _number(lines[-1], r"segs_out:(\d+)") or 0.0
        for name, lines in flows.items()
        if name.startswith("unnamed")
    }
    fits = {name: count for name, count in before.items() if count <= segments}
    return max(fits, key=fits.__getitem__) if fits else f"unnamed {len(before)}"


def expected(file: Path) -> Usable | Unusable:
    """Facts of the lines that have a window and are of no listening socket; without addresses, a socket's count of
    segments that falls is another socket's."""
    text = file.read_text(errors="replace")
    if not text.strip():
        return Unusable("an empty file", ("empty",))
    if re.search(r"^qdisc ", text, re.MULTILINE) and not WINDOW.search(text):
        return Unusable("tc -s qdisc", ("tc -s", "tc qdisc"))
    flows: dict[str, list[str]] = {}
    peer, listening = "", False
    for line in text.splitlines():
        ends = re.findall(r"(?<!\S)(?:\[[^\]\s]+\]|[\d.]+|\*)(?:%[^\s:]+)?:(?:\d+|\*)(?!\S)", line)
        if len(ends) >= 2:
            peer, listening = " -> ".join(ends[:2]), line.split()[0] == "LISTEN"
        if WINDOW.search(line) and not listening and (peer or " rto:" in line):
            flows.setdefault(peer or _unnamed(flows, line), []).append(line)
    if not flows:
        return Unusable("no sockets with a window", ("no rows", "expected"))
    facts = {
        "flows": len(flows),
        "rows": sum(map(len, flows.values())),
        "bytes": 0.0,
        "retransmissions": 0.0,
    }
    rtts = []
    for lines in flows.values():
        acked = [_number(line, r"bytes_acked:(\d+)") for line in lines]
        there = [value for value in acked if value is not None]
        if there:
            facts["bytes"] += max(there) - there[0]
        facts["retransmissions"] += max(
            _number(line, r"retrans:\d+/(\d+)") or 0.0 for line in lines
        )
        rtts += [_number(line, r"rtt:([\d.]+)/") for line in lines]
    there = [value for value in rtts if value is not None]
    if there:
        facts["rtt_s"] = float(statistics.median(there)) / 1e3
    return Usable(facts)


def found(file: Path, scratch: Path) -> dict[str, float]:
    """The same by Pathcast."""
    import pathcast

    from .reading import of_trace

    return of_trace(pathcast.read_trace(file))
