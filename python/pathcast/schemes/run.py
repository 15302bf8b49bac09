"""Flows of real schemes over an emulated path, each end contained, measured by the path's packets.

The senders are on the near side of the path, the receivers on the far side; with `reverse`, the other way round. What
is measured is what the path saw: rates and delays of the packets that carry data, on the receiver's side of the path.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pathcast.exceptions import EmulatorError, SchemeError
from pathcast.files import check_output, write_beside
from pathcast.path import Path
from pathcast.schemes import measure
from pathcast.schemes.build import Prepared, prepare
from pathcast.schemes.contain import Limits
from pathcast.schemes.scheme import Scheme, catalog, nearest
from pathcast.shell import Links

#: The port of the first flow's receiver; the next flow has the next one.
FIRST_PORT = 5000
#: The most flows of a run.
MOST_FLOWS = 64
#: What a run may take beyond its duration before it is given up, in seconds.
_BEYOND_S = 150.0
_EVERY_S = 0.2
#: The largest part of an end's time that a thread of it may wait for a processor: with 0.35 to 0.47, programs had the
#: rates that they have alone, with 0.54 and more they had not (docs/results/scheme-benchmark.md).
MOST_WAITING = 0.4


@dataclass(frozen=True)
class Flow:
    """One flow of a run.

    Attributes:
        scheme: its name.
        start_s: when the sender starts.
        stop_s: when it is stopped; by default at the end of the run.
        bytes: the size of a finite transfer; None: as fast as the scheme allows until it is stopped.

    """

    scheme: str
    start_s: float = 0.0
    stop_s: float | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class FlowResult:
    """The result of one flow.

    Attributes:
        scheme: its name.
        goodput_bps: application's bytes that its receiver got.
        throughput_bps: bytes of its packets, with headers, behind the path.
        delay_ms: one-way delay of packets that carry data: `mean`, `p50`, `p95`; NaN without any.
        loss: part of its data packets that the path dropped.
        completion_s: from its first packet to its last data, if it is finite and was completed.
        controller: what the implementation says is at work; None if it says nothing.
        evidence: how that was read.
        ours: whether the algorithm's code was Pathcast's own.
        why_not: why it did not do what it was to do; None if it did.
        log_tail: the end of what its ends wrote.
        ran_s: how long each end ran, in seconds, by role: `sender`, `receiver`.
        cpu_s: processor time of the threads of each end, by role.
        waited_s: how long the one of them that waited longest could have run but had no processor, in seconds, by
            role.
        series: `t_s`, `rate_bps`, `delay_ms` by half seconds of the run.

    """

    scheme: str
    goodput_bps: float
    throughput_bps: float
    delay_ms: dict[str, float]
    loss: float
    completion_s: float | None
    controller: str | None
    evidence: str | None
    ours: bool
    why_not: str | None
    log_tail: str
    ran_s: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    waited_s: dict[str, float] = field(default_factory=dict)
    series: dict[str, list[float]] = field(repr=False, default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class FlowsRun:
    """The result of a run.

    Attributes:
        flows: in the order in which they were given.
        invalid_because: why its figures must not be used; empty if they may.
        wall_s: how long it took.

    """

    flows: tuple[FlowResult, ...]
    invalid_because: tuple[str, ...]
    wall_s: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def run_flows(
    path: Path | str | os.PathLike[str],
    flows: Sequence[Flow],
    *,
    duration_s: float,
    seed: int = 1,
    packets_file: str | os.PathLike[str] | None = None,
    reverse: bool = False,
    limits: Limits | None = None,
    progress: Callable[[float], None] | None = None,
) -> FlowsRun:
    """Run flows of schemes side by side over an emulated path.

    A scheme that cannot be prepared, breaks a limit or fails has `why_not` in its result; the others go on.

    Args:
        path: that they share, or its file.
        flows: at most 64.
        duration_s: of the run; what runs then is stopped.
        seed: of all that is random in the path.
        packets_file: where to keep what happened to each packet, as Parquet.
        reverse: whether data flows in the path's reverse direction.
        limits: what each end may take.
        progress: called with the part that is done, from 0 to 1; may raise to stop the run.

    Raises:
        SchemeError: an unknown scheme, or impossible times or sizes.
        PathFileError: the path's file cannot be used.
        EmulatorError: the emulator cannot run here.
        PathcastError: the packets' file cannot be written.

    """
    known = catalog()
    check(flows, duration_s, known)
    if packets_file is not None:
        check_output(packets_file)
    links = _links(path)
    prepared = [try_prepare(known[flow.scheme]) for flow in flows]
    limits = limits or Limits()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pathcast-schemes-") as name:
        folder = FilePath(name)
        plan = {
            "duration_s": duration_s,
            "reverse": reverse,
            "flows": [
                planned(number, flow, known[flow.scheme], ready, limits, duration_s)
                for number, (flow, ready) in enumerate(zip(flows, prepared, strict=True))
            ],
        }
        (folder / "plan.json").write_text(json.dumps(plan))
        world = {"paths": links.paths, "file": links.file, "toml": links.toml, "seed": seed}
        (folder / "world.json").write_text(json.dumps(world))
        _run_world(folder, duration_s, progress)
        report = json.loads((folder / "shell.json").read_text())
        plan = json.loads((folder / "plan.json").read_text())
        packets = measure.read(folder / "packets.parquet")
        if packets_file is not None:
            write_beside(packets_file, (folder / "packets.parquet").read_bytes())
        zero_s = float(_read(folder / "begin") or "nan")
        found = results(folder, flows, plan, packets, zero_s)
    invalid_because = (*report["invalid_because"], *starved(found))
    return FlowsRun(found, invalid_because, time.monotonic() - began)


def check(flows: Sequence[Flow], duration_s: float, known: dict[str, Scheme]) -> None:
    """Check that flows have known schemes, and times and sizes that make sense.

    Raises:
        SchemeError: they have not.

    """
    for number, flow in enumerate(flows):
        if flow.scheme not in known:
            raise SchemeError(
                f"flow {number}: scheme {flow.scheme!r} is unknown{nearest(flow.scheme, known)}"
            )
    check_times(flows, duration_s)


def check_times(flows: Sequence[Flow], duration_s: float) -> None:
    """Check that flows have times and sizes that make sense.

    Raises:
        SchemeError: they have not.

    """
    if not 0 < duration_s <= 86_400:
        raise SchemeError(f"duration_s is {duration_s:g}; expected more than 0 and at most 86400")
    if not 0 < len(flows) <= MOST_FLOWS:
        raise SchemeError(f"got {len(flows)} flows; expected 1 to {MOST_FLOWS}")
    for number, flow in enumerate(flows):
        stop_s = duration_s if flow.stop_s is None else flow.stop_s
        if not 0 <= flow.start_s < stop_s <= duration_s:
            raise SchemeError(
                f"flow {number}: start_s is {flow.start_s:g} and stop_s is {stop_s:g}; expected "
                f"0 <= start_s < stop_s <= {duration_s:g}"
            )
        if flow.bytes is not None and not 0 < flow.bytes < 1 << 50:
            raise SchemeError(f"flow {number}: bytes is {flow.bytes}; expected more than 0")


def _links(path: Path | str | os.PathLike[str]) -> Links:
    if isinstance(path, Path):
        return Links((path.toml,), "path", path.toml)
    return Links.load(path)


def try_prepare(scheme: Scheme) -> Prepared | str:
    """What runs a scheme, or why nothing does."""
    try:
        return prepare(scheme)
    except SchemeError as error:
        return str(error)


def planned(
    number: int,
    flow: Flow,
    scheme: Scheme,
    ready: Prepared | str,
    limits: Limits,
    duration_s: float,
    *,
    first_port: int = FIRST_PORT,
) -> dict[str, Any]:
    """What the sides must know of a flow."""
    port = first_port + number
    found: dict[str, Any] = {
        "port": port,
        "start_s": flow.start_s,
        "stop_s": flow.stop_s,
        "kernel": scheme.kernel,
        "kernel_scheme": None,
        "by_bpf": False,
        "limits": asdict(limits),
        # the sides stop ends earlier; this is for when they cannot
        "most_s": duration_s + 2 * (limits.ready_s + limits.end_s) + 90,
        "why_not": None,
    }
    if isinstance(ready, str):
        return found | {"why_not": ready}
    values = {"address": "{address}", "port": str(port), "bytes": str(flow.bytes or 0)}
    return found | {
        "receiver": ready.command("receiver", values),
        "sender": ready.command("sender", values),
        "readable": list(ready.readable),
    }


def _run_world(
    folder: FilePath, duration_s: float, progress: Callable[[float], None] | None
) -> None:
    """Run the plan in another process, which has the privileges and the main thread that it needs."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with open(folder / "world.log", "wb") as log:  # noqa: PTH123 - a stream to inherit
        world = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "pathcast.schemes._world", str(folder), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    began = time.monotonic()
    try:
        while world.poll() is None:
            ran_s = time.monotonic() - began
            if ran_s > duration_s + _BEYOND_S:
                raise EmulatorError(
                    f"a run of {duration_s:g} s did not end within {ran_s:.0f} s and was stopped"
                )
            if progress is not None:
                zero = float(_read(folder / "begin") or "nan")
                done = (time.monotonic() - zero) / duration_s
                progress(0.0 if math.isnan(done) else min(max(done, 0.0), 1.0))
            time.sleep(_EVERY_S if progress is not None else 0.05)
    except BaseException:
        # all that it started dies with it
        os.killpg(world.pid, signal.SIGKILL)
        world.wait()
        raise
    if world.returncode != 0:
        why = _read(folder / "error") or _read(folder / "world.log")[-1000:]
        raise EmulatorError(why.strip() or f"the run ended with code {world.returncode}")


def _read(file: FilePath) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def results(
    folder: FilePath,
    flows: Sequence[Flow],
    plan: dict[str, Any],
    packets: measure.Packets,
    zero_s: float,
) -> tuple[FlowResult, ...]:
    """Measure the flows of a plan, by the results that both sides wrote to a folder and by the packets."""
    return tuple(
        _result(folder, number, flow, plan, packets, zero_s) for number, flow in enumerate(flows)
    )


def _result(
    folder: FilePath,
    number: int,
    flow: Flow,
    plan: dict[str, Any],
    packets: measure.Packets,
    zero_s: float,
) -> FlowResult:
    own_plan = plan["flows"][number]
    ends = {role: _end(folder / f"{number}-{role}.json") for role in ("sender", "receiver")}
    sender, receiver = ends["sender"], ends["receiver"]
    own = packets.of(own_plan["port"], reverse=plan["reverse"])
    said, got = sender.get("said") or {}, receiver.get("said") or {}
    stop_s = plan["duration_s"] if flow.stop_s is None else flow.stop_s
    ended_s = min(zero_s + stop_s, sender.get("ended_s") or math.inf) - packets.began_s
    seen = own.measured(
        until_s=own.last_s if flow.bytes is not None else ended_s,
        received_bytes=_count(got.get("received_bytes")),
        zero_s=zero_s - packets.began_s,
        duration_s=plan["duration_s"],
    )
    controller = said.get("controller")
    controller = None if controller is None else str(controller)[:100]
    evidence = None if said.get("evidence") is None else str(said["evidence"])[:500]
    if own_plan["by_bpf"] and controller == own_plan["kernel_scheme"]:
        evidence = f"{evidence}: {controller}, Pathcast's own code by BPF"
        controller = own_plan["kernel"]
    why_not = own_plan["why_not"] or _why_not(flow, sender, receiver, own, seen, stop_s)
    tails = [ends[role].get("log_tail", "") for role in ("sender", "receiver")]
    return FlowResult(
        scheme=flow.scheme,
        goodput_bps=seen.goodput_bps,
        throughput_bps=seen.throughput_bps,
        delay_ms=seen.delay_ms,
        loss=seen.loss,
        completion_s=seen.active_s if flow.bytes is not None and why_not is None else None,
        controller=controller,
        evidence=evidence,
        ours=own_plan["by_bpf"] or catalog()[flow.scheme].ours,
        why_not=why_not,
        log_tail="\n".join(filter(None, tails)),
        ran_s=_times(ends, "ran_s"),
        cpu_s=_times(ends, "cpu_s"),
        waited_s=_times(ends, "waited_s"),
        series=seen.series,
    )


def _times(ends: dict[str, dict[str, Any]], key: str) -> dict[str, float]:
    """A time in the reports of the ends of a flow, by role, where it makes sense."""
    found = {}
    for role, end in ends.items():
        value = (end.get("report") or {}).get(key)
        if isinstance(value, float) and 0 <= value < math.inf:
            found[role] = value
    return found


def starved(found: Sequence[FlowResult]) -> tuple[str, ...]:
    """Say of which schemes the programs waited so long for a processor that the machine was measured.

    The emulator has a priority in real time, so it is punctual where the programs around it have no processor. The
    kernel's schemes do not wait: their programs only fill and empty buffers.

    """
    reasons = []
    known = catalog()
    for result in found:
        if known[result.scheme].kernel is not None:
            continue
        for role, waited_s in result.waited_s.items():
            ran_s = result.ran_s.get(role, 0.0)
            if ran_s > 0 and waited_s > MOST_WAITING * ran_s:
                reasons.append(
                    f"the {role} of {result.scheme} waited for a processor for {100 * waited_s / ran_s:.0f} % of "
                    f"its time; at most {100 * MOST_WAITING:.0f} % may be"
                )
    return tuple(reasons)


def _end(file: FilePath) -> dict[str, Any]:
    text = _read(file)
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


def _count(value: object) -> int | None:
    """A number of bytes that a program has printed, if it is one."""
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60
    return value if whole and isinstance(value, int) else None


def _why_not(
    flow: Flow,
    sender: dict[str, Any],
    receiver: dict[str, Any],
    own: measure.FlowPackets,
    seen: measure.Seen,
    stop_s: float,
) -> str | None:
    """Why a flow that was started did not do what it was to do."""
    for role, end in (("receiver", receiver), ("sender", sender)):
        report = end.get("report") or {}
        why = end.get("why_not") or report.get("killed_because")
        if role == "sender" and why == "its receiver never listened" and receiver:
            why = None  # the receiver's own reason says more
        if why is None and report.get("refused"):
            why = f"could not be contained: {report['refused']}"
        if why is None and (code := report.get("exit_code", 0)) != 0:
            last = end.get("log_tail", "").strip().rpartition("\n")[2]
            why = f"ended with code {code}" + (f": {last}" if last else "")
        if why is None and report.get("left", 0) > 0:
            why = f"left {report['left']} processes behind"
        if why is None and role == "receiver" and report and not report.get("asked"):
            why = "ended on its own"
        if why is not None:
            return f"{role}: {why}"
    if not sender:
        return "sender: was not started"
    if own.sent == 0 or seen.throughput_bps == 0:
        return "sender: no data crossed the path"
    if not isinstance(sender.get("said"), dict):
        return (
            "sender: printed no report; expected one line of JSON with `controller` and `evidence`"
        )
    asked = sender["report"].get("asked")
    if flow.bytes is None and not asked:
        return f"sender: ended on its own after {sender['report'].get('ran_s', 0.0):.1f} s"
    if flow.bytes is not None:
        if asked:
            return f"sender: {flow.bytes} bytes were not acknowledged within {stop_s - flow.start_s:g} s"
        got = _count((receiver.get("said") or {}).get("received_bytes"))
        if got is not None and got != flow.bytes:
            return f"receiver: got {got} bytes; expected {flow.bytes}"
    return None


__all__ = ["Flow", "FlowResult", "FlowsRun", "Limits", "run_flows"]
