"""Scenario files: which flows run over which links."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from pathcast import _internal
from pathcast.exceptions import translated
from pathcast.foreign import utf8
from pathcast.path import Path, read_text


@dataclass(frozen=True)
class Scenario:
    """Links, and the flows that run over them, described in TOML (`docs/scenario-file.md`).

    Attributes:
        toml: the description, every default and every file that it named written out.
        file: what to call it in errors.
        name: for people; may be empty.
        duration_s: how long it is meant to run, in seconds; None: it does not say.
        schemes: congestion control of each flow, `udp` for those without.
        workloads: what each flow sends: `bulk`, `transfer` and so on.

    Example:
        >>> scenario = Scenario.parse('''
        ... [links.core]
        ... rate = "12 Mbit/s"
        ... delay = "30 ms"
        ...
        ... [[flows]]
        ... scheme = "cubic"
        ... workload = { kind = "transfer", size = "1 MB" }
        ... ''')
        >>> scenario.schemes, scenario.workloads
        (('cubic',), ('transfer',))

    """

    toml: str
    file: str
    name: str
    duration_s: float | None
    schemes: tuple[str, ...]
    workloads: tuple[str, ...]

    @classmethod
    def parse(cls, toml: str, file: str = "scenario.toml") -> Scenario:
        """Reads a description that names no other files; `file` names it in errors.

        Raises:
            PathFileError: it is no TOML, a key is missing, unknown or of the wrong type, or a
                quantity lacks its unit or is out of range; with line and column.

        """
        return cls._of(toml, file, load_files=False)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Scenario:
        """Reads a scenario file, and the paths and recordings that it names, from its folder.

        Raises:
            PathFileError: it cannot be read, or see `parse`.

        """
        return cls._of(read_text(file), utf8(file), load_files=True)

    @classmethod
    def over(cls, path: Path, schemes: Sequence[str], workload: str = "'bulk'") -> Scenario:
        """One flow for each scheme over a path, all with one workload.

        Args:
            path: what lies between the hosts.
            schemes: one flow for each.
            workload: a TOML value, such as `{ kind = "transfer", size = "5 MB" }`.

        Raises:
            PathFileError: no such workload.

        """
        with translated():
            toml = _internal.scenario_over(path.toml, path.file, list(schemes), workload)
            return cls._of(toml, path.file, load_files=False)

    @classmethod
    def _of(cls, toml: str, file: str, *, load_files: bool) -> Scenario:
        with translated():
            whole = _internal.check_scenario(toml, file, load_files)
            name, duration_s, flows = _internal.scenario_summary(whole, file)
        schemes, workloads = zip(*flows, strict=True)
        return cls(whole, file, name, duration_s, schemes, workloads)


def load(file: str | os.PathLike[str]) -> Path | Scenario:
    """Reads a path file or a scenario file, whichever it is.

    Raises:
        PathFileError: it is neither.

    """
    is_scenario = _internal.is_scenario(read_text(file))
    return Scenario.load(file) if is_scenario else Path.load(file)
