"""A folder that keeps what was run, so that it need not be run again.

```text
FOLDER/
  .lock                         one process at a time
  cells/NAME/KEPT  cell.json    a case that ran on the kernel; its file and facts
  simulated/NAME/...            a case, simulated
```
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pathcast import __version__
from pathcast.exceptions import PathcastError
from pathcast.experiments.engine.case import Case
from pathcast.experiments.engine.world import World
from pathcast.files import write_beside

#: Version of cell.json.
_SCHEMA = 1
#: The largest cell.json that is read.
_MAX_BYTES = 1 << 24


@dataclass(frozen=True)
class Record:
    """A case that was run.

    Attributes:
        valid: whether its last attempt was.
        invalid_because: of each attempt that was not valid, why, in words.
        report: the run report of the last attempt, as `--json` has it.
        file: what is kept of the last attempt, if it was valid.

    """

    valid: bool
    invalid_because: tuple[tuple[str, ...], ...]
    report: dict[str, Any]
    file: FilePath


def make_folder(path: FilePath) -> FilePath:
    """Make a folder, and those that it lies in, if need be.

    Raises:
        PathcastError: it cannot be made.

    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PathcastError(f"{path}: cannot be made: {error.strerror}") from None
    return path


@contextlib.contextmanager
def locked(path: FilePath) -> Iterator[None]:
    """Make a folder if need be and keep other processes out of it.

    Raises:
        PathcastError: it cannot be made or written to, or another process has it.

    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise PathcastError(f"{path}: cannot be used: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PathcastError(
                f"{path}: another `pathcast` is at work there, expected none"
            ) from None
        yield
    finally:
        os.close(descriptor)


class Store:
    """A folder of cases; one process at a time has it open."""

    def __init__(self, path: FilePath) -> None:
        self.path = path

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """As `locked`, of its folder."""
        return locked(self.path)

    def folder_of(self, case: Case, world: str) -> FilePath:
        """The folder of a case."""
        kinds = {World.EMULATOR: "cells", World.SIMULATOR: "simulated", World.LIVE: "live"}
        return self.path / kinds[World(world)] / case.name

    def made(self, case: Case, world: str) -> FilePath:
        """Where the file of a case goes; makes its folder.

        Raises:
            PathcastError: it cannot be made.

        """
        return make_folder(self.folder_of(case, world)) / case.kept_as

    def find(self, case: Case, world: str) -> tuple[Record | None, str]:
        """Return a valid run of exactly this case that is kept here, or None and the reason.

        A file that is damaged counts as none: the case is run again.
        """
        about = self.folder_of(case, world) / "cell.json"
        file = self.folder_of(case, world) / case.kept_as
        try:
            if about.stat().st_size > _MAX_BYTES:
                return None, f"{about} is far too large"
            values = json.loads(about.read_bytes())
            if values["schema"] != _SCHEMA or values["fingerprint"] != case.fingerprint(world):
                return None, "it was another run"
            record = Record(
                values["valid"] is True,
                tuple(tuple(map(str, reasons)) for reasons in values["invalid_because"]),
                dict(values["report"]),
                file,
            )
            if not record.valid:
                return None, "no attempt was valid"
            if values["trace_sha256"] != _sha256(file):
                return None, f"{file} is not what was written"
        except FileNotFoundError:
            return None, "not run yet"
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            return None, f"{about} cannot be used ({type(error).__name__})"
        return record, ""

    def keep(
        self,
        case: Case,
        world: str,
        report: dict[str, Any],
        invalid_because: Sequence[Sequence[str]],
        content: bytes | None,
    ) -> Record:
        """Write down a case that was run; its file first, so that cell.json never lies.

        Args:
            case: which.
            world: the backend that ran it.
            report: of the last attempt.
            invalid_because: of each attempt that was not valid, why.
            content: of its file; None: the file exists already, or no attempt was valid.

        Raises:
            PathcastError: it cannot be written.

        """
        file = self.made(case, world)
        valid = bool(report["valid"])
        if content is not None:
            write_beside(file, content)
        reasons = tuple(tuple(one) for one in invalid_because)
        values = {
            "schema": _SCHEMA,
            "name": case.name,
            "fingerprint": case.fingerprint(world),
            "pathcast": __version__,
            "world": world,
            "duration_s": case.duration_s,
            "valid": valid,
            "invalid_because": reasons,
            "report": report,
            "trace_sha256": _sha256(file) if valid else None,
        }
        write_beside(
            file.with_name("cell.json"), json.dumps(values, allow_nan=False, indent=1) + "\n"
        )
        return Record(valid, reasons, report, file)


def _sha256(file: FilePath) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
