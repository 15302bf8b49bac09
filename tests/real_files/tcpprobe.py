"""tcp_probe's lines, by words: rows, bytes acknowledged, and round-trip times.

The unit of the column is that which agrees best with Little's law: bytes in flight over bytes acknowledged a second.
"""

from __future__ import annotations

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


def _rtt_s(rows: list[tuple[float, int, int, int]]) -> float | None:
    """By Little's law, over the third fifth of the flow; None of a flow that hardly sent."""
    middle = rows[2 * len(rows) // 5 : 3 * len(rows) // 5]
    if len(middle) < 50:
        return None
    acked = (middle[-1][2] - middle[0][2]) % 2**32
    if not 50_000 < acked < 2**31:
        return None
    rate = acked / (middle[-1][0] - middle[0][0])
    return statistics.mean((nxt - una) % 2**32 for _, nxt, una, _ in middle) / rate


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
    busiest = max(senders.values(), key=len)
    rtt_s = _rtt_s(busiest)
    printed = [srtt for rows in senders.values() for _, _, _, srtt in rows if srtt]
    middle = busiest[2 * len(busiest) // 5 : 3 * len(busiest) // 5]
    there = [srtt for _, _, _, srtt in middle if srtt]
    if rtt_s is not None and there:
        told = statistics.median(there)
        unit_s = min(UNITS_S, key=lambda unit: abs(math.log(told * unit / rtt_s)))
        facts["rtt_s"] = statistics.median(printed) * unit_s
    return Usable(facts)


def found(file: Path, scratch: Path) -> dict[str, float]:
    """The same by Pathcast."""
    import pathcast

    from .reading import of_trace

    pathcast.convert(file, scratch / "trace.parquet", keep_prefix=True)
    return of_trace(pathcast.read_trace(scratch / "trace.parquet"))
