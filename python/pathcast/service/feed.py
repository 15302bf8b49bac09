"""Sends samples to the service: of the flows of this machine's servers, and of players that report by CMCD."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pathcast._watch import Watch
from pathcast.exceptions import ServiceError
from pathcast.service.client import Client
from pathcast.service.cmcd import MOST_BYTES, samples_of

#: Bytes of a log that are read at a time.
_PIECE_BYTES = 1 << 20


@dataclass
class Sent:
    """What was sent so far.

    Attributes:
        samples: accepted by the service.
        batches: that held them.
        lost: batches that the service did not take.

    """

    samples: int = 0
    batches: int = 0
    lost: int = 0


class Log:
    """A log that a server appends to; it is followed across rotation.

    Args:
        file: its name; it may come later.

    """

    def __init__(self, file: FilePath) -> None:
        self.file = file
        self._place = 0
        self._inode: int | None = None
        self._rest = b""

    def skip(self) -> None:
        """Begin at the end of what is there."""
        try:
            stat = self.file.stat()
        except FileNotFoundError:
            return
        self._place, self._inode = stat.st_size, stat.st_ino

    def lines(self) -> list[bytes]:
        """Return the whole lines that are new.

        Raises:
            ServiceError: it cannot be read.

        """
        try:
            with self.file.open("rb") as stream:
                stat = os.fstat(stream.fileno())
                if stat.st_ino != self._inode or stat.st_size < self._place:
                    self._place, self._inode, self._rest = 0, stat.st_ino, b""
                stream.seek(self._place)
                piece = stream.read(_PIECE_BYTES)
                self._place = stream.tell()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ServiceError(f"{self.file}: {error.strerror or error}") from None
        *whole, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > MOST_BYTES:
            self._rest = b""
        return whole


@dataclass(frozen=True)
class Flows:
    """Which flows are watched: see `pathcast.Watch`."""

    local_port: int
    method: str | None = None
    all_namespaces: bool = False


def feed(
    service: Client,
    *,
    flows: Flows | None = None,
    log: Log | None = None,
    every_s: float = 2.0,
    duration_s: float | None = None,
    failed: Callable[[str], None],
) -> Sent:
    """Send samples until Ctrl-C or the end. What the service does not take is dropped, said once, and counted.

    Args:
        service: which takes them.
        flows: of the kernel.
        log: of a server with CMCD.
        every_s: seconds of a batch.
        duration_s: when to end; None: never.
        failed: called with why batches are lost, and with an empty text when they no longer are.

    Raises:
        ServiceError: the log cannot be read.
        ProbeError: flows cannot be watched.

    """
    sent = Sent()
    end_s = None if duration_s is None else time.monotonic() + duration_s
    problem = ""

    def deliver(send: Callable[[], int]) -> None:
        nonlocal problem
        try:
            sent.samples += send()
            sent.batches += 1
            if problem:
                failed(problem := "")
        except ServiceError as error:
            sent.lost += 1
            if str(error) != problem:
                failed(problem := str(error))

    try:
        while end_s is None or time.monotonic() < end_s:
            left_s = every_s if end_s is None else min(every_s, max(0.1, end_s - time.monotonic()))
            if flows is None:
                time.sleep(left_s)
            else:
                trace = _watched(flows, left_s)
                if trace is not None:
                    deliver(lambda trace=trace: service.send_trace(trace))  # type: ignore[misc]
            samples: list[dict[str, Any]] = [] if log is None else samples_of(log.lines())
            if samples:
                deliver(lambda samples=samples: service.send_samples(samples))  # type: ignore[misc]
    except KeyboardInterrupt:
        pass
    return sent


def _watched(flows: Flows, seconds: float) -> bytes | None:
    """The trace of the flows over some seconds; None if there were none."""
    with tempfile.TemporaryDirectory(prefix="pathcast-feed-") as name:
        file = FilePath(name) / "trace.parquet"
        watch = Watch(
            local_port=flows.local_port,
            method=flows.method,
            all_namespaces=flows.all_namespaces,
            record=False,
            trace_file=file,
        )
        try:
            time.sleep(seconds)
            report, _ = watch.finish()
        finally:
            watch.close()
        return file.read_bytes() if report.records else None
