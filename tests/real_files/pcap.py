"""Packet captures: tshark takes packets apart and names retransmissions; what it guesses by time alone is settled here
by the packets' IP ids.

Of each flow, facts are `payload` (bytes of data, without copies of packets), `sent again` (segments), `round trip` (the
handshake's, by the three packets) and, of captures at the sender, `srtt` (the median of RFC 6298's estimate).
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from .facts import Unusable, Usable

#: As many of a capture's flows, the busiest.
MOST_FLOWS = 6
#: Nearer to the sender, as a share of the round trip, data and its acknowledgment are a round trip.
NEAR = 0.1
#: Copies of a packet follow this soon, in seconds, or, captured elsewhere, this soon.
COPY_S, COPY_ELSEWHERE_S = 0.02, 1.0

FIELDS = (
    "frame.time_epoch",
    "frame.protocols",
    "eth.src",
    "eth.dst",
    "vlan.id",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "ip.id",
    "ip.ttl",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.len",
    "tcp.flags",
    "tcp.window_size_value",
    "tcp.checksum",
    "tcp.options.timestamp.tsval",
    "tcp.options.timestamp.tsecr",
    "tcp.options.sack_le",
    "tcp.analysis.retransmission",
    "tcp.analysis.out_of_order",
    "tcp.analysis.keep_alive",
    "tcp.analysis.zero_window_probe",
)
FIN, SYN, RST, ACK = 1, 2, 4, 16


def missing() -> str | None:
    """What this reader lacks on this machine."""
    if shutil.which("tshark"):
        return None
    return "there is no tshark; `scripts/system-packages captures` installs it"


@dataclass
class Flow:
    """One way of a connection."""

    payload: int = 0
    again: int = 0
    highest: int | None = None
    highest_id: int = 0
    seen: list[tuple[int, int]] = field(default_factory=list)
    #: When data was first sent, by its first byte; None if it was sent again.
    sent: dict[int, tuple[int, float | None]] = field(default_factory=dict)
    una: int | None = None
    samples: list[float] = field(default_factory=list)


def _packets(file: Path) -> list[dict[str, str]]:
    """The TCP packets of a capture; of headers within headers, the innermost."""
    command = ["tshark", "-n", "-r", str(file), "-Y", "tcp", "-T", "fields", "-E", "occurrence=l"]
    command += ["-E", "separator=/t", *(part for name in FIELDS for part in ("-e", name))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [dict(zip(FIELDS, row, strict=False)) for row in rows if len(row) == len(FIELDS)]


def _ends(packet: dict[str, str]) -> tuple[str, str]:
    """Who sends to whom, as Pathcast writes it."""
    inner = [name for name in packet["frame.protocols"].split(":") if name in ("ip", "ipv6")][-1]
    shown = "[{}]:{}" if inner == "ipv6" else "{}:{}"
    source = shown.format(packet[f"{inner}.src"], packet["tcp.srcport"])
    return source, shown.format(packet[f"{inner}.dst"], packet["tcp.dstport"])


def _is_copy(packet: dict[str, str], seen: dict[object, tuple[float, object]]) -> bool:
    """Whether the same packet came just before."""
    same = ("ip.id", "tcp.seq_raw", "tcp.ack_raw", "tcp.len", "tcp.flags", "tcp.window_size_value")
    more = ("tcp.checksum", "tcp.options.timestamp.tsval", "tcp.options.timestamp.tsecr")
    key = (*_ends(packet), *(packet[name] for name in (*same, *more, "tcp.options.sack_le")))
    place = tuple(packet[name] for name in ("eth.src", "eth.dst", "vlan.id", "ip.ttl"))
    time_s = float(packet["frame.time_epoch"])
    if key in seen:
        apart_s = abs(time_s - seen[key][0])
        elsewhere = place != seen[key][1]
        has_id = packet["ip.id"] not in ("", "0x0000")
        limit_s = COPY_ELSEWHERE_S if elsewhere else COPY_S
        if not has_id and not packet["tcp.options.timestamp.tsval"]:
            limit_s = 1e-3
        if apart_s < limit_s and (has_id or packet["tcp.len"] != "0"):
            return True
    seen[key] = (time_s, place)
    return False


def _data(flow: Flow, packet: dict[str, str], time_s: float) -> None:
    """Takes a segment with data."""
    length, start = int(packet["tcp.len"]), int(packet["tcp.seq_raw"])
    start += bool(int(packet["tcp.flags"], 16) & SYN)
    if packet["tcp.analysis.keep_alive"] or packet["tcp.analysis.zero_window_probe"]:
        return
    flow.payload += length
    number = int(packet["ip.id"] or "0", 16)
    overlaps = any(a < start + length and start < b for a, b in flow.seen)
    later = 0 < (number - flow.highest_id) % 65536 < 1 << 15
    guessed = packet["tcp.analysis.out_of_order"] or packet["tcp.analysis.retransmission"]
    again = overlaps or bool(guessed and number and flow.highest_id and later)
    flow.again += again
    at = flow.sent.get(start)
    flow.sent[start] = (start + length, None if again or at else time_s)
    flow.seen = [*flow.seen[-4000:], (start, start + length)]
    if flow.highest is None or start + length > flow.highest:
        flow.highest, flow.highest_id = start + length, number


def _acknowledged(flow: Flow, packet: dict[str, str], time_s: float) -> None:
    """Takes what the other end says that it got."""
    ack = int(packet["tcp.ack_raw"])
    if flow.una is not None and ack <= flow.una:
        return
    new = sorted(start for start in flow.sent if start < ack)
    times = [flow.sent.pop(start)[1] for start in new]
    if times and None not in times:
        flow.samples.append(time_s - min(time for time in times if time is not None))
    flow.una = ack


def _read(packets: list[dict[str, str]]) -> tuple[dict[str, Flow], dict[str, tuple[float, float]]]:
    """The flows by name, and of those with a handshake its times beyond the capture and before it."""
    flows: dict[str, Flow] = defaultdict(Flow)
    shakes: dict[frozenset[str], dict[str, float | str]] = defaultdict(dict)
    trips: dict[str, tuple[float, float]] = {}
    seen: dict[object, tuple[float, object]] = {}
    for packet in packets:
        if not packet["tcp.flags"] or _is_copy(packet, seen):
            continue
        (source, target), time_s = _ends(packet), float(packet["frame.time_epoch"])
        flags, shake = int(packet["tcp.flags"], 16), shakes[frozenset(_ends(packet))]
        if flags & RST:
            continue
        if flags & SYN and not flags & ACK:
            shake.setdefault("syn", time_s)
            shake.setdefault("client", source)
        elif flags & SYN and "syn" in shake:
            shake.setdefault("answer", time_s)
        elif (
            "answer" in shake
            and shake.get("client") == source
            and f"{source} -> {target}" not in trips
        ):
            first, second = shake["answer"] - shake["syn"], time_s - shake["answer"]
            trips[f"{source} -> {target}"] = first, second
            trips[f"{target} -> {source}"] = second, first
        if flags & ACK:
            _acknowledged(flows[f"{target} -> {source}"], packet, time_s)
        if packet["tcp.len"] and int(packet["tcp.len"]) > 0:
            _data(flows[f"{source} -> {target}"], packet, time_s)
    return flows, trips


def _smoothed(samples: list[float], first: float) -> list[float]:
    """RFC 6298's estimate, as it is before each sample and after the last."""
    estimates = [first]
    for sample in samples:
        estimates.append(estimates[-1] + (sample - estimates[-1]) / 8)
    return estimates


def expected(file: Path) -> Usable | Unusable:
    """Facts of the busiest flows."""
    packets = _packets(file)
    if not packets:
        return Unusable("a capture without TCP", ("no TCP packets",))
    flows, trips = _read(packets)
    busy = sorted(((f.payload, name) for name, f in flows.items() if f.payload), reverse=True)
    if not busy:
        return Unusable("TCP without data", ("none of which carries data",))
    facts: dict[str, float] = {}
    for _, name in busy[:MOST_FLOWS]:
        flow = flows[name]
        facts[f"{name} payload"] = flow.payload
        facts[f"{name} sent again"] = flow.again
        if name in trips:
            outer, inner = trips[name]
            facts[f"{name} round trip"] = outer + inner
            if inner <= NEAR * (outer + inner) and len(flow.samples) >= 20 and not flow.again:
                facts[f"{name} srtt"] = statistics.median(_smoothed(flow.samples, outer))
    return Usable(facts)


def found(file: Path, scratch: Path) -> dict[str, float]:
    """The same by Pathcast, of all flows that it lists."""
    import numpy as np

    import pathcast

    facts: dict[str, float] = {}
    number, most = 0, 1
    while number < most:
        trace = pathcast.read_trace(file, flow=number)
        about = trace.metadata["environment"]
        most = min(2 * MOST_FLOWS, sum(key.endswith(" carried") for key in about))
        name = about[f"flow {number}"]
        again = np.asarray(trace.columns["retransmits"], dtype=float)
        assert not np.isnan(again).any()
        facts[f"{name} payload"] = float(about["payload_bytes"])
        facts[f"{name} sent again"] = float(again.max())
        if "handshake_rtt_s" in about:
            facts[f"{name} round trip"] = float(about["handshake_rtt_s"])
        srtt = np.asarray(trace.columns["srtt_s"], dtype=float)
        if not np.isnan(srtt).all():
            facts[f"{name} srtt"] = float(np.nanmedian(srtt))
        number += 1
    return facts
