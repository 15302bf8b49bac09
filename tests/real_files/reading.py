"""Facts of what Pathcast read."""

from __future__ import annotations

from typing import Any

import numpy as np


def of_trace(trace: Any) -> dict[str, float]:
    """Facts of a Pathcast trace, over all flows: `flows`, `rows`, `bytes` acknowledged from the first row on (sent
    where nothing tells what was acknowledged), `retransmissions` at the end, `rtt_s`, the median."""
    columns = {name: np.asarray(column, dtype=float) for name, column in trace.columns.items()}
    facts = {
        "rows": float(len(columns["flow"])),
        "flows": 0.0,
        "bytes": 0.0,
        "retransmissions": 0.0,
    }
    for flow in np.unique(columns["flow"]):
        mine = columns["flow"] == flow
        facts["flows"] += 1
        for name in ("snd_una_bytes", "snd_nxt_bytes"):
            there = columns[name][mine]
            there = there[~np.isnan(there)]
            if there.size:
                facts["bytes"] += there.max() - there[0]
                break
        again = columns["retransmits"][mine]
        facts["retransmissions"] += np.nanmax(again) if (~np.isnan(again)).any() else 0.0
    if (~np.isnan(columns["srtt_s"])).any():
        facts["rtt_s"] = float(np.nanmedian(columns["srtt_s"]))
    return facts
