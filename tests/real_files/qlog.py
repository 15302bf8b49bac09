"""qlogs of all versions, by the JSON module.

Facts are of application data: packets sent and declared lost, their bytes, windows and smoothed round-trip times.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from .facts import Unusable, Usable

APPLICATION = ("", "1rtt", "0rtt", "onertt", "zerortt")


def _documents(text: str) -> list[Any] | None:
    """The JSON texts of a file, separated by whatever; None if it is no JSON."""
    decoder, documents, at = json.JSONDecoder(), [], 0
    while True:
        while at < len(text) and text[at] in " \t\r\n\x1e\ufeff":
            at += 1
        if at == len(text):
            return documents
        try:
            document, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            return documents or None
        documents.append(document)


def _events(documents: list[Any]):
    """Seconds, the last part of the name, the data, the unit of time and the path of each event."""
    for document in documents:
        if "name" in document and "qlog_version" not in document:
            data = document["data"]
            yield document["time"] / 1e3, document["name"].split(":")[-1], data, 1e-3, 0
        for trace in document.get("traces", []):
            unit = {"us": 1e-6, "s": 1.0}.get(
                trace.get("configuration", {}).get("time_units", ""), 1e-3
            )
            total = 0.0
            for event in trace.get("events", []):
                if isinstance(event, list):
                    if not event:
                        continue
                    event = dict(zip(trace["event_fields"], event, strict=False))
                times = ("time", "relative_time", "delta_time")
                time = float(next(event[name] for name in times if name in event))
                total += time
                if "delta_time" in event:
                    time = total
                name = event.get("name") or event.get("event") or event.get("event_type")
                data = event.get("data", {})
                path = (id(trace), event.get("path_id", 0))
                yield time * unit, name.split(":")[-1].lower(), data, unit, path


def _kind_and_number(data: Any) -> tuple[str, float | None]:
    header = data.get("header", {})
    kind = str(header.get("packet_type") or data.get("packet_type") or "").lower()
    number = header.get("packet_number", data.get("packet_number"))
    return kind, None if number is None else float(number)


def _size(data: Any) -> int:
    header, raw = data.get("header", {}), data.get("raw", {})
    raw = raw if isinstance(raw, dict) else {}
    return int(raw.get("length", header.get("packet_size", data.get("packet_size", 0))))


def expected(file: Path) -> Usable | Unusable:
    """Facts of all connections of a file."""
    text = file.read_text(errors="replace")
    documents = _documents(text)
    if documents is None:
        return Unusable("a log of before the drafts", ("before the drafts", "within a script"))
    if any("connections" in document for document in documents):
        return Unusable("a log of before the drafts", ("before the drafts",))
    sizes: list[int] = []
    lost, windows, srtts = 0, [], []
    known: dict[object, dict[str, float]] = {}
    for _, name, data, unit, path in sorted(_events(documents), key=lambda event: event[0]):
        kind, number = _kind_and_number(data)
        application = number is not None and kind in APPLICATION
        if name == "packet_sent" and application:
            sizes.append(_size(data))
        elif name == "packet_lost" and application:
            lost += 1
        elif name in ("metrics_updated", "recovery_metrics_updated"):
            # what did not change is not told again
            now = known.setdefault(path, {})
            window = data.get("congestion_window", data.get("cwnd"))
            if window:
                now["window"] = float(window)
            if data.get("smoothed_rtt"):
                now["srtt"] = float(data["smoothed_rtt"]) * unit
            told = (
                "congestion_window",
                "cwnd",
                "smoothed_rtt",
                "ssthresh",
                "min_rtt",
                "latest_rtt",
            )
            if "window" in now and any(data.get(key) for key in told):
                windows.append(now["window"])
                srtts += [now["srtt"]] if "srtt" in now else []
    if not sizes and not windows:
        return Unusable("a log of neither packets nor windows", ("none of its",))
    facts = {"packets": float(len(sizes)), "bytes": float(sum(sizes)), "lost": float(lost)}
    if windows:
        facts |= {"rows": float(len(windows)), "median window": statistics.median(windows)}
        facts |= {"largest window": max(windows), "least window": min(windows)}
    if srtts:
        facts |= {"largest srtt_s": max(srtts), "least srtt_s": min(srtts)}
        facts["median srtt_s"] = statistics.median(srtts)
    return Usable(facts)


def found(file: Path, scratch: Path) -> dict[str, float]:
    """The same by Pathcast, of the packet table and the trace, or of that which the file has."""
    import numpy as np
    import pyarrow.parquet

    import pathcast
    from pathcast.exceptions import TraceError

    facts = {"packets": 0.0, "bytes": 0.0, "lost": 0.0}
    refusals = []
    try:
        pathcast.convert(file, packets=scratch / "packets.parquet", keep_prefix=True)
        table = pyarrow.parquet.read_table(scratch / "packets.parquet")
        event, size = table["event"].to_numpy(), table["size_bytes"].to_numpy()
        facts["packets"] = float((event == 0).sum())
        facts["bytes"] = float(size[event == 0].sum())
        facts["lost"] = float((event == 3).sum())
    except TraceError as error:
        refusals.append(error)
    try:
        pathcast.convert(file, scratch / "trace.parquet", keep_prefix=True)
        trace = pathcast.read_trace(scratch / "trace.parquet")
        windows = trace.columns["cwnd_packets"] * trace.metadata["mss_bytes"]
        facts |= {"rows": float(len(windows)), "median window": float(np.median(windows))}
        facts |= {"largest window": windows.max(), "least window": windows.min()}
        srtt = trace.columns["srtt_s"]
        if (~np.isnan(srtt)).any():
            facts["largest srtt_s"] = np.nanmax(srtt)
            facts["least srtt_s"] = np.nanmin(srtt)
            facts["median srtt_s"] = float(np.nanmedian(srtt))
    except TraceError as error:
        refusals.append(error)
    if len(refusals) == 2:
        raise refusals[0]
    return facts
