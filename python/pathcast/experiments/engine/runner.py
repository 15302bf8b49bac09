"""Runs the cases that a store lacks: several at a time on this machine, or as tasks of a cluster."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, as_completed, wait
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Generic, TypeVar

from pathcast import runs, threads
from pathcast.cluster import connected
from pathcast.exceptions import EmulatorError
from pathcast.experiments.engine.case import Attempt, Case, Passed
from pathcast.experiments.engine.store import Record, Store
from pathcast.experiments.engine.world import World

AnyCase = TypeVar("AnyCase", bound=Case)
Found = TypeVar("Found")

#: How often a run that is not valid is run again, by default.
ATTEMPTS = 5
#: Seconds that a run takes in addition to its duration: connections, checks, the trace's file.
_BESIDE_S = 3.0
#: Bytes of a trace for each second of a run, about: the mean over the suite's short form.
_DISK_BYTES_PER_S = 45_000
#: Bytes that a run holds for each of its seconds until it ends, at most: 160 for an acknowledgment, one for two
#: packets, at 200 Mbit/s.
_MEMORY_BYTES_PER_S = 1_400_000
#: How often what runs is looked at, in seconds.
_TURN_S = 0.2


@dataclass
class Status(Generic[AnyCase]):
    """How far an experiment is.

    Attributes:
        cases: how many there are in all.
        kept: how many were there already.
        ended: those that ended in this process.
        running: seconds that have passed of each that runs now.
        work_s: seconds of runs in all that this process has to do, at one at a time.
        done_s: of those, what is done.
        at_once: how many run at a time.

    """

    cases: int
    kept: int
    work_s: float
    at_once: int
    ended: list[tuple[AnyCase, Record]] = field(default_factory=list)
    running: dict[str, float] = field(default_factory=dict)
    done_s: float = 0.0

    @property
    def left_s(self) -> float:
        """About how many seconds the rest will take."""
        under_way = sum(list(self.running.values()))  # threads write to it
        return max(0.0, self.work_s - self.done_s - under_way) / self.at_once


@dataclass(frozen=True)
class Plan(Generic[AnyCase]):
    """What there is to run.

    Attributes:
        missing: the cases that the store lacks, and why.
        kept: runs that exist already.
        at_once: how many run at a time.
        world: the backend.

    """

    missing: tuple[tuple[AnyCase, str], ...]
    kept: tuple[tuple[AnyCase, Record], ...]
    at_once: int
    world: World

    @property
    def work_s(self) -> float:
        """Seconds of all runs, one after another."""
        return sum(case.duration_s + _BESIDE_S for case, _ in self.missing)

    @property
    def estimate_s(self) -> float:
        """Seconds on the wall, about; no attempt failing. Of the simulator nothing is known before."""
        longest = max((case.duration_s for case, _ in self.missing), default=0.0)
        return max(self.work_s / self.at_once, longest)

    @property
    def disk_bytes(self) -> float:
        """What the traces will take, about."""
        return sum(case.duration_s for case, _ in self.missing) * _DISK_BYTES_PER_S


def default_at_once(longest_s: float) -> int:
    """Two for each processor, which stay valid at the rates of the suite's networks, if memory has room for them.

    Args:
        longest_s: how long the longest case runs.

    """
    by_memory = _available_bytes() / (_MEMORY_BYTES_PER_S * max(longest_s, 1.0))
    return max(1, min(2 * (os.cpu_count() or 1), int(min(by_memory, 1e6))))


def _available_bytes() -> float:
    """Memory that is available without swapping; infinite where the system does not report it."""
    with contextlib.suppress(OSError, ValueError):
        for line in FilePath("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * float(line.split()[1])
    return math.inf


def plan(
    cases: Sequence[AnyCase], store: Store, world: World, at_once: int | None = None
) -> Plan[AnyCase]:
    """Find out what a store lacks."""
    missing, kept = [], []
    for case in cases:
        record, why = store.find(case, world)
        if record is None:
            missing.append((case, why))
        else:
            kept.append((case, record))
    if at_once is None:
        longest_s = max((case.duration_s for case, _ in missing), default=0.0)
        at_once = default_at_once(longest_s) if world is World.EMULATOR else os.cpu_count() or 1
        at_once = 1 if world is World.LIVE else at_once
    return Plan(tuple(missing), tuple(kept), min(at_once, max(1, len(missing))), world)


class _Stopped(BaseException):
    """The run is no longer needed."""


def run_case(
    case: Case,
    world: World,
    file: FilePath,
    *,
    attempts: int = ATTEMPTS,
    progress: Passed | None = None,
) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
    """Run a case until a run is valid.

    Args:
        case: what.
        world: the backend.
        file: what is kept goes here if the last attempt was valid.
        attempts: how often at most; the simulator would do the same again.
        progress: receives the seconds that have passed of the attempt; may raise to stop it.

    Returns:
        The report of the last attempt, and of each attempt that was not valid why.

    Raises:
        EmulatorError: the emulator cannot run here.
        TraceError: the trace cannot be written.

    """
    invalid: list[tuple[str, ...]] = []
    while True:
        found: Attempt = case.attempt(world, file, progress)
        if not found.why_not:
            return found.report, invalid
        invalid.append(found.why_not)
        if len(invalid) == attempts or world is World.SIMULATOR:
            return found.report | {"valid": False}, invalid


def run(
    planned: Plan[AnyCase],
    store: Store,
    *,
    attempts: int = ATTEMPTS,
    cluster: str | None = None,
    progress: Callable[[Status[AnyCase]], None] | None = None,
) -> list[tuple[AnyCase, Record]]:
    """Run what is missing; each case is kept as soon as it ends, so that it can be stopped at any time.

    Args:
        planned: what to run.
        store: where to keep it; locked by the caller.
        attempts: how often a case is run until it is valid.
        cluster: address of a Ray cluster to run on instead of here.
        progress: receives the status some times a second; may raise to stop.

    Returns:
        All cases of the plan, in the order in which they ended, those kept before first.

    Raises:
        EmulatorError: the emulator cannot run here.
        ClusterError: the cluster cannot be used.
        PathcastError: a file cannot be written.

    """
    status: Status[AnyCase] = Status(
        cases=len(planned.missing) + len(planned.kept),
        kept=len(planned.kept),
        work_s=planned.work_s,
        at_once=planned.at_once,
    )
    if planned.missing and planned.world is World.EMULATOR and cluster is None:
        found = runs.capabilities()
        if not found.can_emulate:
            raise EmulatorError("; ".join(found.reasons) + "; --world simulator needs nothing")
    if cluster is not None:
        _run_on(cluster, planned, store, attempts, status, progress)
    else:
        _run_here(planned, store, attempts, status, progress)
    return [*planned.kept, *status.ended]


def _run_here(
    planned: Plan[AnyCase],
    store: Store,
    attempts: int,
    status: Status[AnyCase],
    progress: Callable[[Status[AnyCase]], None] | None,
) -> None:
    stop = threading.Event()

    def work(case: AnyCase) -> Record:

        def tell(seconds: float) -> None:
            status.running[case.name] = seconds
            if stop.is_set():
                raise _Stopped

        tell(0.0)
        report, invalid = run_case(
            case, planned.world, store.made(case, planned.world), attempts=attempts, progress=tell
        )
        return store.keep(case, planned.world, report, invalid, None)

    with threads.pool(planned.at_once, stop.set) as pool:
        waiting: dict[Future[Record], AnyCase] = {
            pool.submit(work, case): case for case, _ in planned.missing
        }
        while waiting:
            done, _ = wait(waiting, _TURN_S, FIRST_COMPLETED)
            for one in done:
                case = waiting.pop(one)
                record = one.result()
                status.running.pop(case.name, None)
                status.ended.append((case, record))
                status.done_s += case.duration_s + _BESIDE_S
            if progress is not None:
                progress(status)


#: The arguments of a task of a cluster: the case, backend, attempts.
_Task = tuple[Case, World, int]


def _run_task(
    chunk: Sequence[_Task],
) -> tuple[dict[str, Any], list[tuple[str, ...]], bytes | None]:
    """What a task of a cluster does; it gives back the bytes of the case's file."""
    ((case, world, attempts),) = chunk
    with tempfile.TemporaryDirectory(prefix="pathcast-") as name:
        file = FilePath(name) / case.kept_as
        report, invalid = run_case(case, world, file, attempts=attempts)
        return report, invalid, file.read_bytes() if report["valid"] else None


def _run_on(
    address: str,
    planned: Plan[AnyCase],
    store: Store,
    attempts: int,
    status: Status[AnyCase],
    progress: Callable[[Status[AnyCase]], None] | None,
) -> None:
    with connected(address) as cluster:
        status.at_once = cluster.cpus
        chunks: list[list[_Task]] = [
            [(case, planned.world, attempts)] for case, _ in planned.missing
        ]

        def tell(ended: float) -> None:
            if planned.missing:
                status.done_s = status.work_s * ended / len(planned.missing)
            if progress is not None:
                progress(status)

        results = cluster.map(_run_task, chunks, progress=tell)
        for (case, _), (report, invalid, content) in zip(planned.missing, results, strict=True):
            record = store.keep(case, planned.world, report, invalid, content)
            status.ended.append((case, record))
            if progress is not None:
                progress(status)


def in_threads(
    jobs: Sequence[Callable[[], Found]],
    number: int,
    *,
    stop: Callable[[], object] = lambda: None,
    progress: Callable[[int], None] | None = None,
) -> list[Found]:
    """Run jobs in threads. One that fails does not end the others.

    Args:
        jobs: what to run.
        number: how many run at a time.
        stop: asks running jobs to end, after Ctrl-C.
        progress: receives how many have ended; may raise to stop.

    Returns:
        What they gave, in their order.

    Raises:
        Exception: what the first that failed raised.

    """
    with threads.pool(number, stop) as pool:
        futures = [pool.submit(job) for job in jobs]
        for ended, _ in enumerate(as_completed(futures), 1):
            if progress is not None:
                progress(ended)
    return [one.result() for one in futures]
