"""tcp_probe's lines, by words: rows, bytes acknowledged, and round-trip times.

The unit of the column is that which agrees best with Little's law: bytes in flight over bytes acknowledged a second.
"""

from __future__ import annotations

import itertools
import math
import statistics
from pathlib import Path

from .facts import Unusable, Usable

UNITS_S = (1e-6, 1.25e-7, 1e-3, 4e-3, 1e-2)


def _flows(text: str) -> dict[tuple[str, str], list[tuple[float, int, int, int]]]:
    """Time, next and first unacknowledged number, and srtt as printed, of each flow."""
    flows: dict[tuple[str, str], list[tuple[float, int, int, int]]] = {}
    for line in text.splitlines():
        words = line.split()
        if " tcp_probe: " in line:
            before, fields = line.split(" tcp_probe: ")
            named = dict(word.split("=", 1) for word in fields.split() if "=" in word)
            key = (named["src"] + named.get("sock_cookie", ""), named["dest"])
            time = float(before.split()[-1].rstrip(":"))
            numbers = (int(named["snd_nxt"], 16), int(named["snd_una"], 16), int(named["srtt"]))
        elif len(words) >= 10 and ":" in words[1] and ":" in words[2]:
            try:
                key, time = (words[1], words[2]), float(words[0])
                numbers = (int(words[4], 16), int(words[5], 16), int(words[9]))
            except ValueError:
                continue
        else:
            continue
        flows.setdefault(key, []).append((time, *numbers))
    return flows


def _steady(rows: list[tuple[float, int, int, int]]) -> bool:
    """Whether flight and round-trip times hardly change, and every row acknowledges something."""
    flight = [(nxt - una) % 2**32 for _, nxt, una, _ in rows]
    printed = [srtt for _, _, _, srtt in rows]
    grows = all(0 < (b[2] - a[2]) % 2**32 < 2**31 for a, b in itertools.pairwise(rows))
    return (
        grows
        and min(flight) > 10_000
        and max(flight) < 1.15 * min(flight)
        and max(printed) < 1.05 * min(printed)
    )


def _unit_s(flows: list[list[tuple[float, int, int, int]]]) -> float | None:
    """By Little's law, where flows are steady; None where none ever is."""
    units = []
    for part in (rows[i : i + 20] for rows in flows for i in range(0, len(rows) - 20, 5)):
        if not _steady(part):
            continue
        rate = ((part[-1][2] - part[0][2]) % 2**32) / (part[-1][0] - part[0][0])
        flight = statistics.mean((nxt - una) % 2**32 for _, nxt, una, _ in part)
        units.append(flight / rate / statistics.median(srtt for _, _, _, srtt in part))
    if not units:
        return None
    unit = statistics.median(units)
    return min(UNITS_S, key=lambda known: abs(math.log(known / unit)))


def expected(file: Path) -> Usable | Unusable:
    """Facts of the flows that send."""
    text = file.read_text(errors="replace")
    flows = _flows(text)
    if not flows:
        return Unusable("no lines of tcp_probe", ("expected",))
    senders = {
        key: rows
        for key, rows in flows.items()
        if any(nxt != una for _, nxt, una, _ in rows) or len({una for _, _, una, _ in rows}) > 1
    } or flows
    facts = {
        "flows": float(len(senders)),
        "rows": float(sum(len(rows) for rows in senders.values())),
        "bytes": float(
            sum(
                (max((una - rows[0][2] + 2**31) % 2**32 for _, _, una, _ in rows) - 2**31)
                for rows in senders.values()
            )
        ),
    }
    unit_s = _unit_s(list(senders.values()))
    printed = [srtt for rows in senders.values() for _, _, _, srtt in rows if srtt]
    if unit_s is not None:
        facts["rtt_s"] = statistics.median(printed) * unit_s
    return Usable(facts)


def found(file: Path, scratch: Path) -> dict[str, float]:
    """The same by Pathcast."""
    import pathcast

    from .reading import of_trace

    pathcast.convert(file, scratch / "trace.parquet", keep_prefix=True)
    return of_trace(pathcast.read_trace(scratch / "trace.parquet"))
