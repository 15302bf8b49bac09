"""From traces to errors: every measured flow of every valid cell, and traces of real paths."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pathcast.exceptions import ModelError, PathcastError, TraceError
from pathcast.experiments.engine.runner import in_threads
from pathcast.experiments.engine.store import Record
from pathcast.experiments.suite.latency import Transfers, transfers
from pathcast.experiments.suite.networks import SCHEMES, WIRED, Cell
from pathcast.experiments.suite.scores import Scored, Source, score_flow, score_small_window
from pathcast.experiments.suite.short_flows import Download, Score, score
from pathcast.experiments.suite.timeouts import Sent, sent
from pathcast.trace import Trace, read_trace

#: What the suite runs.
AnyCell = Cell | Download

#: Traces longer than this, in seconds, are judged one after another: one of an hour takes gigabytes of memory.
_LONG_S = 1200.0


@dataclass
class Judged:
    """All errors, and of what.

    Attributes:
        scored: a score for each flow, protocol and horizon.
        small_window: a score for each flow of the wired networks, all models learning on 10 s alone.
        transfers: a score for each flow, protocol and size.
        downloads: a score for each valid short flow.
        cells: what was run, a row for each cell; docs/reference/suite.md has the keys.
        short_flows: the same for short flows.
        traces: the same for traces of other sources.
        left_out: what could not be judged: `name` and `because`.

    """

    scored: list[Scored] = field(default_factory=list)
    small_window: list[Scored] = field(default_factory=list)
    transfers: list[Transfers] = field(default_factory=list)
    downloads: list[Score] = field(default_factory=list)
    cells: list[dict[str, Any]] = field(default_factory=list)
    short_flows: list[dict[str, Any]] = field(default_factory=list)
    traces: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)


@dataclass
class _Part:
    """What one trace gives."""

    scored: list[Scored] = field(default_factory=list)
    small_window: list[Scored] = field(default_factory=list)
    transfers: list[Transfers] = field(default_factory=list)
    losses: list[int] = field(default_factory=list)
    sent: list[Sent | None] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)


def judge(
    outcomes: Sequence[tuple[AnyCell, Record]],
    trace_files: Sequence[FilePath] = (),
    progress: Callable[[float], None] | None = None,
) -> Judged:
    """Evaluate all flows; the order of the result does not depend on which ends first.

    Args:
        outcomes: what was run; cells without a valid run are listed, and not judged.
        trace_files: traces of others.
        progress: receives how many traces were judged; may raise to stop.

    """
    judged = Judged()
    jobs: list[Callable[[], _Part | str]] = []
    for cell, record in outcomes:
        if isinstance(cell, Download):
            _judge_download(judged, cell, record)
            continue
        judged.cells.append(_cell_row(cell, record))
        if record.valid:
            jobs.append(_job(_judge_cell, cell, record))
    for file in trace_files:
        jobs.append(_job(_judge_file, file))
    longest_s = max((cell.duration_s for cell, _ in outcomes), default=0.0)
    at_once = 1 if longest_s > _LONG_S else os.cpu_count() or 1
    parts = in_threads(jobs, at_once, progress=progress)  # short ones: one that runs may end
    valid_rows = [row for row in judged.cells if row["valid"]]
    for row, part in zip(valid_rows, parts[: len(valid_rows)], strict=True):
        assert isinstance(part, _Part)  # noqa: S101 - cells raise
        row["losses"] = part.losses
        row["packets"] = [one and one.packets for one in part.sent]
        row["timeouts"] = [one and one.timeouts for one in part.sent]
        _add(judged, part)
    for file, part in zip(trace_files, parts[len(valid_rows) :], strict=True):
        if isinstance(part, str):
            judged.left_out.append({"name": file.name, "because": part})
            continue
        sources = dict.fromkeys(scored.source for scored in part.scored)
        for source, losses in zip(sources, part.losses, strict=True):
            row = {"file": file.name, "flow": source.flow, "scheme": source.scheme}
            judged.traces.append(row | {"losses": losses})
        _add(judged, part)
    return judged


def _job(work: Callable[..., _Part | str], *arguments: object) -> Callable[[], _Part | str]:
    return lambda: work(*arguments)


def _add(judged: Judged, part: _Part) -> None:
    judged.scored += part.scored
    judged.small_window += part.small_window
    judged.transfers += part.transfers
    judged.left_out += part.left_out


def _cell_row(cell: Cell, record: Record) -> dict[str, Any]:
    report = record.report
    slip = report.get("slip_us") or {}
    return {
        "name": cell.name,
        "network": cell.network.name,
        "setting": cell.network.setting,
        "scheme": cell.scheme,
        "npc": cell.npc,
        "seed": cell.seed,
        "duration_s": cell.duration_s,
        "valid": record.valid,
        "invalid_because": [list(reasons) for reasons in record.invalid_because],
        "goodput_bps": [flow["goodput_bps"] for flow in report["flows"][: cell.npc]],
        "retransmits": [flow["retransmits"] for flow in report["flows"][: cell.npc]],
        "loss_rate": report["loss_rate"],
        "slip_p99_us": slip.get("p99"),
        **dict.fromkeys(("losses", "packets", "timeouts")),
    }


def _judge_download(judged: Judged, cell: Download, record: Record) -> None:
    row: dict[str, Any] = {
        "name": cell.name,
        "path": cell.title,
        "receive_window_bytes": cell.receive_window_bytes,
        "seed": cell.seed,
        "valid": record.valid,
        "invalid_because": [list(reasons) for reasons in record.invalid_because],
        **dict.fromkeys(("truth_s", "losses", "losses_in_measured", "slow_start", "error_pct")),
    }
    if record.valid:
        found = score(json.loads(record.file.read_bytes()))
        judged.downloads.append(found)
        row |= {key: found.row[key] for key in row if key in found.row and key != "name"}
        row["error_pct"] = {model: error.tolist() for model, error in found.error_pct.items()}
    judged.short_flows.append(row)


def _judge_cell(cell: Cell, record: Record) -> _Part:
    trace = read_trace(record.file)
    part = _Part()
    for flow in range(cell.npc):
        part.sent.append(sent(trace, flow))
        source = Source(cell.network.name, cell.scheme, cell.npc, cell.name, flow)
        try:
            _judge_flow(part, trace, source)
        except (ModelError, TraceError) as error:
            # a flow of many that hardly got to send anything
            part.left_out.append({"name": f"{cell.name}, flow {flow}", "because": str(error)})
            part.losses.append(0)
    return part


def _judge_file(file: FilePath) -> _Part | str:
    """A trace of somebody else's, or why it cannot be judged."""
    part = _Part()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace = read_trace(file)
        named = next((scheme for scheme in SCHEMES if file.name.startswith(scheme)), None)
        flows = trace.flows
        for flow in flows:
            told = trace.scheme(flow)
            scheme = told if told in SCHEMES else named
            if scheme is None:
                return (
                    f"its congestion control is {told or 'unknown'}, expected cubic or reno, in its "
                    "metadata or at the beginning of the file's name"
                )
            name = file.name.split(".")[0] + (f", flow {flow}" if len(flows) > 1 else "")
            source = Source(f"trace {name}", scheme, len(flows), file.name, flow)
            _judge_flow(part, trace, source, scheme)
    except PathcastError as error:
        return str(error)
    return part


def _judge_flow(part: _Part, trace: Trace, source: Source, cc: str | None = None) -> None:
    scored, evaluations = score_flow(trace, source, cc)
    part.scored += scored
    part.losses.append(evaluations[0].losses)
    part.transfers += transfers(trace, source, evaluations, cc)
    if source.network in WIRED:
        part.small_window.append(score_small_window(trace, source, cc))
