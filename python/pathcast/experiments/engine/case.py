"""One case of an experiment: what is run once, and kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Protocol

from pathcast.experiments.engine.world import World

#: Told the seconds that have passed of an attempt; may raise to stop it.
Passed = Callable[[float], None]


@dataclass(frozen=True)
class Attempt:
    """What came of one attempt.

    Attributes:
        report: of the run, as `--json` has it.
        why_not: why it does not count, in words; empty: it does, and its file is written.

    """

    report: dict[str, Any]
    why_not: tuple[str, ...] = ()


class Case(Protocol):
    """What an experiment runs; also pickled, for tasks of a cluster."""

    @property
    def name(self) -> str:
        """Names its folder."""
        ...

    @property
    def duration_s(self) -> float:
        """How long an attempt lasts, about, in seconds."""
        ...

    @property
    def kept_as(self) -> str:
        """The file that is kept of a run, in its folder."""
        ...

    def fingerprint(self, world: str) -> str:
        """Report whether a run that was kept is this case's, in this world."""
        ...

    def attempt(self, world: World, file: FilePath, progress: Passed | None = None) -> Attempt:
        """Run it once, and write `file` if the run counts.

        Raises:
            PathcastError: it cannot be run here.

        """
        ...


def fingerprint(what: object) -> str:
    """A digest of a JSON value: the same for the same case in every process."""
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()
