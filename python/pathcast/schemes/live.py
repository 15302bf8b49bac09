"""Flows of real schemes between two hosts, over the real path and the tunnel of `pathcast live`.

The client's program and the server's (`_live.py`) each start their ends of the flows, contained, in the network namespace
of the tunnel. What is measured is what the tunnel saw: each packet when it left one host and when it came to the other.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pathcast import _internal
from pathcast.exceptions import LiveError, translated
from pathcast.files import check_output, write_beside
from pathcast.foreign import visible
from pathcast.live import LiveReport, address
from pathcast.schemes import _live, measure, run
from pathcast.schemes.contain import Limits
from pathcast.schemes.run import Flow, FlowsRun
from pathcast.schemes.scheme import catalog

#: What a run may take beyond its duration: ends that are contained, start and stop.
BEYOND_S = 150.0
#: The words by which a server runs what clients ask of schemes.
SERVER = [sys.executable, "-P", "-m", "pathcast.schemes._live", "server"]
_TCP, _UDP = 6, 17
#: The types of what a result of the other host may hold, by part.
_REPORT = {
    "killed_because": str,
    "refused": str,
    "exit_code": int,
    "left": int,
    "asked": bool,
    "ran_s": float,
    "cpu_s": float,
    "waited_s": float,
}
_SAID = {"controller": str, "evidence": str, "received_bytes": int}
_TEXT_CHARACTERS = 2000


@dataclass(frozen=True)
class Host:
    """A server of `pathcast live` that runs schemes.

    Attributes:
        server: `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
        key: the file with its key.

    """

    server: str
    key: FilePath


def run_flows(
    host: Host,
    flows: Sequence[Flow],
    *,
    duration_s: float,
    reverse: bool = False,
    packets_file: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    progress: Callable[[float], None] | None = None,
) -> FlowsRun:
    """Run flows of schemes side by side between this host and a server.

    A scheme that either host cannot run, breaks a limit or fails has `why_not` in its result; the others go on.

    Args:
        host: the server, which was started with `--schemes`.
        flows: at most 64.
        duration_s: of the run; what runs then is stopped.
        reverse: whether the server sends.
        packets_file: where to keep what happened to each packet, as Parquet.
        limits: what each end on this host may take; the server has its own.
        progress: called with the part that is done, from 0 to 1; may raise to stop the run.

    Raises:
        SchemeError: an unknown scheme, or impossible times or sizes.
        LiveError: no answer, a refusal, or a run that came to nothing.
        PathcastError: the address is invalid, or the packets' file cannot be written.

    """
    known = catalog()
    run.check(flows, duration_s, known)
    if packets_file is not None:
        check_output(packets_file)
    server = address(host.server)
    limits = limits or Limits()
    planned = []
    for number, flow in enumerate(flows):
        scheme = known[flow.scheme]
        ready = run.try_prepare(scheme)
        planned.append(
            run.planned(
                number, flow, scheme, ready, limits, duration_s, first_port=_live.FIRST_PORT
            )
        )
    plan = {"duration_s": duration_s, "reverse": reverse, "flows": planned}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pathcast-schemes-") as name:
        folder = FilePath(name)
        (folder / "plan.json").write_text(json.dumps(plan))
        report = _run(host, server, folder, flows, plan, progress)
        plan = json.loads((folder / "plan.json").read_text())
        receivers = [
            (one["port"], _TCP if known[flow.scheme].transport == "tcp" else _UDP)
            for one, flow in zip(planned, flows, strict=True)
        ]
        packets = measure.read_live(folder / "packets.parquet", receivers, reverse=reverse)
        if packets_file is not None:
            write_beside(packets_file, (folder / "packets.parquet").read_bytes())
        zero_s = _number(_text(folder / "begin"))
        if reverse:
            zero_s -= report.clock.offset_s
        _clean(folder, len(flows), "sender" if reverse else "receiver", report.clock.offset_s)
        found = run.results(folder, flows, plan, packets, zero_s)
    invalid_because = (*report.run.invalid_because, *run.starved(found))
    return FlowsRun(found, invalid_because, time.monotonic() - began)


def _run(
    host: Host,
    server: tuple[str, int],
    folder: FilePath,
    flows: Sequence[Flow],
    plan: dict[str, Any],
    progress: Callable[[float], None] | None,
) -> LiveReport:
    """Run the programs of both hosts; packets and results are in the folder then."""
    duration_s: float = plan["duration_s"]
    question = _live.question(list(flows), duration_s, reverse=plan["reverse"])
    command = [sys.executable, "-P", "-m", "pathcast.schemes._live", "client", str(folder)]

    def passed(elapsed_s: float) -> None:
        if progress is not None:
            progress(min(elapsed_s / duration_s, 1.0))

    try:
        with translated():
            text, _ = _internal.live_run(
                server,
                host.key,
                None,
                ["cubic"],
                False,
                None,
                duration_s + BEYOND_S,
                1,
                folder / "packets.parquet",
                None,
                (command, question),
                passed,
            )
    except LiveError:
        # this host's program knows more
        if why := _text(folder / "error"):
            raise LiveError(visible(why)) from None
        raise
    return LiveReport.from_json(text)


def _text(file: FilePath) -> str:
    with contextlib.suppress(OSError):
        return file.read_text(errors="replace").strip()
    return ""


def _number(text: str) -> float:
    """A number that a host has written, or NaN."""
    with contextlib.suppress(ValueError):
        return float(text[:40])
    return math.nan


def _clean(folder: FilePath, flows: int, role: str, offset_s: float) -> None:
    """Make the results of the other host harmless, with times by this host's clock."""
    for number in range(flows):
        file = folder / f"{number}-{role}.json"
        if file.exists():
            file.write_text(json.dumps(cleaned(file.read_text(), offset_s)))


def cleaned(text: str, offset_s: float) -> dict[str, Any]:
    """What of a result of the other host has the types that it should have."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return {"why_not": "its host sent no result"}
    times = {key: _time(found.get(key), offset_s) for key in ("started_s", "ended_s")}
    why_not, tail = found.get("why_not"), found.get("log_tail")
    return times | {
        "report": _typed(found.get("report"), _REPORT),
        "said": _typed(found.get("said"), _SAID),
        "why_not": visible(str(why_not)[:300]) if why_not is not None else None,
        "stopped": found.get("stopped") is True,
        "log_tail": tail[-_TEXT_CHARACTERS:] if isinstance(tail, str) else "",
    }


def _time(value: object, offset_s: float) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return value - offset_s


def _typed(found: object, types: dict[str, type]) -> dict[str, Any] | None:
    if not isinstance(found, dict):
        return None
    kept: dict[str, Any] = {}
    for key, kind in types.items():
        value = found.get(key)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is kind:
            kept[key] = visible(value[:_TEXT_CHARACTERS]) if isinstance(value, str) else value
    return kept


__all__ = ["Flow", "FlowsRun", "Host", "Limits", "run_flows"]
