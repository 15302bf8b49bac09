"""Runs the cells that a folder lacks: several at once here, or as tasks of a cluster."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path as FilePath
from typing import Any

from pathcast import runs, threads
from pathcast.cluster import connected
from pathcast.exceptions import EmulatorError
from pathcast.files import write_beside
from pathcast.suite import short_flows
from pathcast.suite.folder import Folder, Record
from pathcast.suite.networks import Cell
from pathcast.suite.short_flows import Download

AnyCell = Cell | Download

#: How often a run that is not valid is run again, by default.
ATTEMPTS = 5
#: Seconds that a run takes beside its duration: connections, checks, the trace's file.
_BESIDE_S = 3.0
#: Bytes of a trace for each second of a run, about: the mean over the short form's.
_DISK_BYTES_PER_S = 45_000
#: Bytes that a run holds for each of its seconds until it ends, at most: 160 for an acknowledgment, one for two
#: packets, at the 200 Mbit/s of the fastest network.
_MEMORY_BYTES_PER_S = 1_400_000
#: How often what runs is looked at, in seconds.
_TURN_S = 0.2


class World(StrEnum):
    """Where cells are run."""

    #: The kernel's TCP, in real time: what the suite is for.
    EMULATOR = "emulator"
    #: To try things.
    SIMULATOR = "simulator"


@dataclass
class Status:
    """How far the suite is.

    Attributes:
        cells: how many there are in all.
        kept: how many were there already.
        ended: those that ended in this process.
        running: seconds that have passed of each that runs now.
        work_s: seconds of runs in all that this process has to do, at one at a time.
        done_s: of those, what is done.
        at_once: how many run at once.

    """

    cells: int
    kept: int
    work_s: float
    at_once: int
    ended: list[tuple[AnyCell, Record]] = field(default_factory=list)
    running: dict[str, float] = field(default_factory=dict)
    done_s: float = 0.0

    @property
    def left_s(self) -> float:
        """Seconds that what is left will take, about."""
        under_way = sum(list(self.running.values()))  # threads write to it
        return max(0.0, self.work_s - self.done_s - under_way) / self.at_once


@dataclass(frozen=True)
class Plan:
    """What there is to run.

    Attributes:
        missing: the cells that the folder lacks, and why.
        kept: what is there already.
        at_once: how many run at once.
        world: where.

    """

    missing: tuple[tuple[AnyCell, str], ...]
    kept: tuple[tuple[AnyCell, Record], ...]
    at_once: int
    world: World

    @property
    def work_s(self) -> float:
        """Seconds of all runs, one after another."""
        return sum(cell.duration_s + _BESIDE_S for cell, _ in self.missing)

    @property
    def estimate_s(self) -> float:
        """Seconds on the wall, about; no attempt failing. Of the simulator nothing is known before."""
        longest = max((cell.duration_s for cell, _ in self.missing), default=0.0)
        return max(self.work_s / self.at_once, longest)

    @property
    def disk_bytes(self) -> float:
        """What the traces will take, about."""
        return sum(cell.duration_s for cell, _ in self.missing) * _DISK_BYTES_PER_S


def default_at_once(longest_s: float) -> int:
    """Two for each processor, which stay valid at the rates of the suite's networks, if memory has room for them.

    Args:
        longest_s: how long the longest cell runs.

    """
    by_memory = _available_bytes() / (_MEMORY_BYTES_PER_S * max(longest_s, 1.0))
    return max(1, min(2 * (os.cpu_count() or 1), int(min(by_memory, 1e6))))


def _available_bytes() -> float:
    """Memory that can be had without swapping; infinite where that is not told."""
    with contextlib.suppress(OSError, ValueError):
        for line in FilePath("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * float(line.split()[1])
    return math.inf


def plan(
    cells: Sequence[AnyCell], folder: Folder, world: World, at_once: int | None = None
) -> Plan:
    """Finds out what a folder lacks."""
    missing, kept = [], []
    for cell in cells:
        record, why = folder.find(cell, world)
        if record is None:
            missing.append((cell, why))
        else:
            kept.append((cell, record))
    if at_once is None:
        longest_s = max((cell.duration_s for cell, _ in missing), default=0.0)
        at_once = default_at_once(longest_s) if world is World.EMULATOR else os.cpu_count() or 1
    return Plan(tuple(missing), tuple(kept), min(at_once, max(1, len(missing))), world)


class _Stopped(BaseException):
    """The run is no longer wanted."""


def run_cell(
    cell: AnyCell,
    world: World,
    file: FilePath,
    *,
    attempts: int = ATTEMPTS,
    progress: Callable[[float], None] | None = None,
) -> tuple[dict[str, Any], list[list[str]]]:
    """Runs a cell until a run is valid, and writes its trace.

    Args:
        cell: what.
        world: where.
        file: the trace goes here if the last attempt was valid.
        attempts: how often at most.
        progress: told the seconds that have passed of the attempt; may raise to stop it.

    Returns:
        The report of the last attempt, and of each attempt that was not valid why.

    Raises:
        EmulatorError: the emulator cannot run here.
        TraceError: the trace cannot be written.

    """
    if isinstance(cell, Download):
        return _run_download(cell, world, file, attempts, progress)
    scenario = cell.scenario()
    options: dict[str, Any] = {
        "duration_s": cell.duration_s,
        "seed": cell.seed,
        "progress": progress,
    }
    if world is World.SIMULATOR:
        report, _ = runs.simulate(scenario, trace_file=file, **options)
        return report.to_dict(), []
    invalid: list[list[str]] = []
    while True:
        report, trace = runs.emulate(scenario, **options)
        if report.valid:
            trace.write(file)
            return report.to_dict(), invalid
        invalid.append(list(report.invalid_because))
        if len(invalid) == attempts:
            return report.to_dict(), invalid


def _run_download(
    cell: Download,
    world: World,
    file: FilePath,
    attempts: int,
    progress: Callable[[float], None] | None,
) -> tuple[dict[str, Any], list[list[str]]]:
    invalid: list[list[str]] = []
    while True:
        report, why_not, row = short_flows.measure(cell, world, progress)
        if row is not None:
            write_beside(file, json.dumps(row, allow_nan=False) + "\n")
            return report, invalid
        invalid.append(why_not)
        # the simulator would do the same again
        if len(invalid) == attempts or world is World.SIMULATOR:
            return report | {"valid": False}, invalid


def run(
    planned: Plan,
    folder: Folder,
    *,
    attempts: int = ATTEMPTS,
    cluster: str | None = None,
    progress: Callable[[Status], None] | None = None,
) -> list[tuple[AnyCell, Record]]:
    """Runs what is missing; each cell is kept as soon as it ends, so that it can be stopped at any time.

    Args:
        planned: what to run.
        folder: where to keep it; locked by the caller.
        attempts: how often a cell is run until it is valid.
        cluster: address of a Ray cluster to run on instead of here.
        progress: told some times a second how far it is; may raise to stop.

    Returns:
        All cells of the plan, in the order in which they ended, those kept before first.

    Raises:
        EmulatorError: the emulator cannot run here.
        ClusterError: the cluster cannot be used.
        PathcastError: a file cannot be written.

    """
    status = Status(
        cells=len(planned.missing) + len(planned.kept),
        kept=len(planned.kept),
        work_s=planned.work_s,
        at_once=planned.at_once,
    )
    if planned.missing and planned.world is World.EMULATOR and cluster is None:
        found = runs.capabilities()
        if not found.can_emulate:
            raise EmulatorError("; ".join(found.reasons) + "; --world simulator needs nothing")
    if cluster is not None:
        _run_on(cluster, planned, folder, attempts, status, progress)
    else:
        _run_here(planned, folder, attempts, status, progress)
    return [*planned.kept, *status.ended]


def _run_here(
    planned: Plan,
    folder: Folder,
    attempts: int,
    status: Status,
    progress: Callable[[Status], None] | None,
) -> None:
    stop = threading.Event()

    def work(cell: AnyCell) -> Record:

        def tell(seconds: float) -> None:
            status.running[cell.name] = seconds
            if stop.is_set():
                raise _Stopped

        tell(0.0)
        report, invalid = run_cell(
            cell, planned.world, folder.made(cell, planned.world), attempts=attempts, progress=tell
        )
        return folder.keep(cell, planned.world, report, invalid, None)

    with threads.pool(planned.at_once, stop.set) as pool:
        waiting: dict[Future[Record], AnyCell] = {
            pool.submit(work, cell): cell for cell, _ in planned.missing
        }
        while waiting:
            done, _ = wait(waiting, _TURN_S, FIRST_COMPLETED)
            for one in done:
                cell = waiting.pop(one)
                record = one.result()
                status.running.pop(cell.name, None)
                status.ended.append((cell, record))
                status.done_s += cell.duration_s + _BESIDE_S
            if progress is not None:
                progress(status)


#: What a task of a cluster is given: the cell, world, attempts.
_Task = tuple[AnyCell, World, int]


def _run_task(chunk: Sequence[_Task]) -> tuple[dict[str, Any], list[list[str]], bytes | None]:
    """What a task of a cluster does; it gives the trace back as the bytes of its file."""
    ((cell, world, attempts),) = chunk
    with tempfile.TemporaryDirectory(prefix="pathcast-") as name:
        file = FilePath(name) / cell.kept_as
        report, invalid = run_cell(cell, world, file, attempts=attempts)
        return report, invalid, file.read_bytes() if report["valid"] else None


def _run_on(
    address: str,
    planned: Plan,
    folder: Folder,
    attempts: int,
    status: Status,
    progress: Callable[[Status], None] | None,
) -> None:
    with connected(address) as cluster:
        status.at_once = cluster.cpus
        chunks: list[list[_Task]] = [
            [(cell, planned.world, attempts)] for cell, _ in planned.missing
        ]

        def tell(ended: float) -> None:
            if planned.missing:
                status.done_s = status.work_s * ended / len(planned.missing)
            if progress is not None:
                progress(status)

        results = cluster.map(_run_task, chunks, progress=tell)
        for (cell, _), (report, invalid, trace) in zip(planned.missing, results, strict=True):
            record = folder.keep(cell, planned.world, report, invalid, trace)
            status.ended.append((cell, record))
            if progress is not None:
                progress(status)
