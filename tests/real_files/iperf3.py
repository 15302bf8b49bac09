"""iperf3's JSON, by the JSON module: facts are sums of intervals."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

from .facts import Unusable, Usable


def _document(text: str) -> dict[str, Any] | None:
    """The report; of one that was cut, what is whole; None if there is none."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        return json.JSONDecoder().raw_decode(text[start:])[0]
    except json.JSONDecodeError:
        pass
    # cut: intervals are objects that begin with "streams"
    decoder, streams = json.JSONDecoder(), []
    for match in re.finditer(r'\{\s*"streams"', text):
        try:
            streams.append(decoder.raw_decode(text[match.start() :])[0])
        except json.JSONDecodeError:
            break
    return {"intervals": streams, "cut": True}


def expected(file: Path) -> Usable | Unusable:
    """Facts of the sender's intervals, without those that iperf3 omits."""
    text = file.read_text(errors="replace")
    if not text.strip():
        return Unusable("an empty file", ("empty",))
    if re.search(r"^\[ *ID\] Interval", text, re.MULTILINE):
        return Unusable("iperf3's text", ("iperf3's text",))
    report = _document(text)
    if report is None or not isinstance(report.get("intervals"), list):
        return Unusable(
            "no report of iperf3", ("expected one of", "iperf3 configuration", "no iperf3 report")
        )
    protocol = report.get("start", {}).get("test_start", {}).get("protocol")
    if protocol == "UDP":
        return Unusable("a report of UDP", ("UDP",))
    rows = [
        stream
        for interval in report["intervals"]
        for stream in interval["streams"]
        if not stream.get("omitted")
    ]
    with_window = [row for row in rows if "snd_cwnd" in row]
    if not with_window:
        return Unusable("a report without windows", ("snd_cwnd", "receiver"))
    facts = {
        "rows": len(with_window),
        "flows": len({row["socket"] for row in with_window}),
        "bytes": sum(row["bytes"] for row in with_window),
        "retransmissions": sum(row.get("retransmits", 0) for row in with_window),
    }
    rtts = [row["rtt"] / 1e6 for row in with_window if row.get("rtt")]
    if rtts:
        facts["rtt_s"] = float(statistics.median(rtts))
    end = report.get("end", {})
    arrived = end.get("sum_received", {}).get("bytes")
    if report.get("error") or not arrived:
        # what the receiver got was never told: what was sent, until the last interval
        seconds = max(row["end"] for row in rows)
        facts["goodput_bps"] = facts["bytes"] * 8 / seconds
    else:
        # each stream over its own time, as the receiver counted
        facts["goodput_bps"] = sum(
            stream["receiver"]["bits_per_second"] for stream in end["streams"]
        )
    return Usable(facts)


def found(file: Path, scratch: Path) -> dict[str, float]:
    """The same by Pathcast; bytes are those written, from 0."""
    import numpy as np

    import pathcast

    from .reading import of_trace

    done = pathcast.convert(file, scratch / "trace.parquet", keep_prefix=True)
    trace = pathcast.read_trace(scratch / "trace.parquet")
    facts = of_trace(trace)
    flows, sent = trace.columns["flow"], trace.columns["snd_nxt_bytes"]
    facts["bytes"] = float(sum(np.nanmax(sent[flows == flow]) for flow in np.unique(flows)))
    if done.goodput_bps:
        facts["goodput_bps"] = sum(done.goodput_bps.values())
    return facts
