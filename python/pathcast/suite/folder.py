"""The suite's folder: what was run is kept there, so that it need not be run again.

```text
suite/
  cells/NAME/trace.parquet  cell.json    one cell, run on the kernel; of a short flow download.json, cell.json
  simulated/NAME/...                     one cell, simulated
  results.json  tables/  figures/  report.html
```
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pathcast import __version__
from pathcast.exceptions import PathcastError
from pathcast.files import write_beside
from pathcast.suite.networks import Cell
from pathcast.suite.short_flows import Download

#: Version of cell.json.
_SCHEMA = 1
#: A cell.json larger than this is none of ours.
_MAX_BYTES = 1 << 24


@dataclass(frozen=True)
class Record:
    """A cell that was run.

    Attributes:
        valid: whether its last attempt was.
        invalid_because: of each attempt that was not valid, why, in words.
        report: the run report of the last attempt, as `--json` has it.
        trace_file: the trace of the last attempt, if it was valid; of a short flow what came of it.

    """

    valid: bool
    invalid_because: tuple[tuple[str, ...], ...]
    report: dict[str, Any]
    trace_file: FilePath


class Folder:
    """A folder of cells; one process at a time has it open."""

    def __init__(self, path: FilePath) -> None:
        self.path = path

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the folder if need be and keeps other processes out of it.

        Raises:
            PathcastError: it cannot be made or written to, or another process has it.

        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise PathcastError(f"{self.path}: cannot be used: {error.strerror}") from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PathcastError(
                    f"{self.path}: another `pathcast evaluate suite` is at work there, expected none"
                ) from None
            yield
        finally:
            os.close(descriptor)

    def of(self, cell: Cell | Download, world: str) -> FilePath:
        """The folder of a cell."""
        return self.path / ("cells" if world == "emulator" else "simulated") / cell.name

    def made(self, cell: Cell | Download, world: str) -> FilePath:
        """Where the trace of a cell goes; makes its folder.

        Raises:
            PathcastError: it cannot be made.

        """
        folder = self.of(cell, world)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PathcastError(f"{folder}: cannot be made: {error.strerror}") from None
        return folder / cell.kept_as

    def find(self, cell: Cell | Download, world: str) -> tuple[Record | None, str]:
        """A valid run of just this cell that is kept here, or None and why there is none.

        A file that is damaged counts as none: the cell is run again.
        """
        file = self.of(cell, world) / "cell.json"
        trace_file = self.of(cell, world) / cell.kept_as
        try:
            if file.stat().st_size > _MAX_BYTES:
                return None, f"{file} is far too large"
            values = json.loads(file.read_bytes())
            if values["schema"] != _SCHEMA or values["fingerprint"] != cell.fingerprint(world):
                return None, "it was another run"
            record = Record(
                values["valid"] is True,
                tuple(tuple(map(str, reasons)) for reasons in values["invalid_because"]),
                dict(values["report"]),
                trace_file,
            )
            if not record.valid:
                return None, "no attempt was valid"
            if values["trace_sha256"] != _sha256(trace_file):
                return None, f"{trace_file} is not what was written"
        except FileNotFoundError:
            return None, "not run yet"
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            return None, f"{file} cannot be used ({type(error).__name__})"
        return record, ""

    def keep(
        self,
        cell: Cell | Download,
        world: str,
        report: dict[str, Any],
        invalid_because: list[list[str]],
        trace: bytes | None,
    ) -> Record:
        """Writes down a cell that was run; the trace first, so that cell.json never lies.

        Args:
            cell: which.
            world: where it was run.
            report: of the last attempt.
            invalid_because: of each attempt that was not valid, why.
            trace: the trace's file as bytes; None: it lies at `trace_file` already, or no attempt was valid.

        Raises:
            PathcastError: it cannot be written.

        """
        trace_file = self.made(cell, world)
        valid = bool(report["valid"])
        if trace is not None:
            write_beside(trace_file, trace)
        values = {
            "schema": _SCHEMA,
            "name": cell.name,
            "fingerprint": cell.fingerprint(world),
            "pathcast": __version__,
            "world": world,
            "duration_s": cell.duration_s,
            "valid": valid,
            "invalid_because": invalid_because,
            "report": report,
            "trace_sha256": _sha256(trace_file) if valid else None,
        }
        write_beside(
            trace_file.with_name("cell.json"), json.dumps(values, allow_nan=False, indent=1) + "\n"
        )
        reasons = tuple(tuple(one) for one in invalid_because)
        return Record(valid, reasons, report, trace_file)


def _sha256(file: FilePath) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
