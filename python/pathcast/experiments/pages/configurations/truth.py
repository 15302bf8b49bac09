"""Loads of cells and configurations, from the store or made now."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Protocol

from pathcast.control.learn.grid import Cell, Configuration
from pathcast.control.learn.outcomes import Outcomes, of_tables
from pathcast.exceptions import PathcastError
from pathcast.experiments.engine.case import Case
from pathcast.experiments.engine.runner import Status, plan, run
from pathcast.experiments.engine.store import Store
from pathcast.experiments.engine.world import World
from pathcast.experiments.pages.configurations.simulated import SimulatedCase, read
from pathcast.page import Page

#: Simulated loads of one configuration in one case.
BLOCK = 20
#: Configurations in one emulated case, which takes minutes, and is all lost if one of its loads is not valid.
TOGETHER = 10
#: The seeds of learners' loads begin here, so that they are none of those that judge.
LEARNERS_FIRST = 1_000_001

#: Receives the loads that were made, those to make, and about how many seconds the rest takes.
Progress = Callable[[int, int, float], None]


class LoadCase(Case, Protocol):
    """A case that loads one cell by several configurations."""

    @property
    def cell(self) -> Cell:
        """The page and its condition."""
        ...

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Whose loads are made."""
        ...

    @property
    def loads(self) -> int:
        """By each configuration."""
        ...


#: Makes the case of a cell: configurations, first seed, loads, its part of the name.
MakeCase = Callable[[Cell, tuple[Configuration, ...], int, int, str], LoadCase]


@dataclass
class Truth:
    """What loads pages, and where loads are kept.

    Attributes:
        store: the folder; locked by the caller.
        world: the simulator, or the emulator with Chromium and nginx.
        make: makes a case.
        at_once: emulated cases at a time; None: one.
        progress: of a batch of loads; may raise to stop.
        made: loads that this process or an earlier one made for learners, in all.

    """

    store: Store
    world: World
    make: MakeCase
    at_once: int | None = None
    progress: Progress | None = None
    made: int = field(default=0)

    def tables(self, cases: Sequence[LoadCase]) -> list[dict[Configuration, list[float]]]:
        """Run the cases that the store lacks, and return the load times of all of them, in their order.

        Raises:
            PathcastError: a case cannot be run here, or no attempt was valid.

        """
        at_once = None if self.world is World.SIMULATOR else self.at_once or 1
        planned = plan(cases, self.store, self.world, at_once)
        loads = {case.name: len(case.configurations) * case.loads for case in cases}
        total = sum(loads[case.name] for case, _ in planned.missing)

        def show(status: Status[LoadCase]) -> None:
            if self.progress is not None:
                done = sum(loads[case.name] for case, _ in status.ended)
                self.progress(done, total, status.left_s)

        records = {case.name: one for case, one in run(planned, self.store, progress=show)}
        found = []
        for case in cases:
            record = records[case.name]
            if not record.valid:
                why = "; ".join(record.invalid_because[-1]) if record.invalid_because else "no run"
                raise PathcastError(f"{case.name}: no attempt was valid: {why}")
            found.append(read(record.file, case.configurations))
        return found

    def brute_force(
        self, cells: Sequence[Cell], configurations: Sequence[Configuration], loads: int
    ) -> Outcomes:
        """Load every cell by every configuration so many times.

        Raises:
            PathcastError: as `tables`.

        """
        of_all = tuple(configurations)
        simulated = self.world is World.SIMULATOR
        block = BLOCK if simulated else 1
        cases = [
            self.make(cell, part, first, min(block, loads - first + 1), self._part(part, first))
            for cell in cells
            for first in range(1, loads + 1, block)
            for part in ([of_all] if simulated else _drawn(of_all, first))
        ]
        merged: dict[Cell, dict[Configuration, list[float]]] = {cell: {} for cell in cells}
        for case, times in zip(cases, self.tables(cases), strict=True):
            for one, those in times.items():
                merged[case.cell].setdefault(one, []).extend(those)
        return of_tables(merged, of_all)

    @staticmethod
    def _part(configurations: Sequence[Configuration], first: int) -> str:
        names = " ".join(one.name for one in configurations)
        return f"{hashlib.sha256(names.encode()).hexdigest()[:8]}-{first}"

    def learn(
        self, asked: Mapping[Cell, Sequence[Configuration]], first: int, loads: int
    ) -> dict[Cell, dict[Configuration, list[float]]]:
        """Make loads for a learner, and count them.

        Args:
            asked: configurations by cell.
            first: number of the first load, from 0.
            loads: by each configuration.

        """
        cases = [
            self.make(cell, tuple(of_cell), LEARNERS_FIRST + first, loads,
                      "learn-" + self._part(of_cell, first))
            for cell, of_cell in asked.items()
        ]  # fmt: skip
        self.made += sum(len(case.configurations) * case.loads for case in cases)
        found = self.tables(cases)
        return {case.cell: times for case, times in zip(cases, found, strict=True)}


def _drawn(configurations: Sequence[Configuration], seed: int) -> list[tuple[Configuration, ...]]:
    """Deal configurations out to cases, at random: neighbors in the list are alike."""
    parts = -(-len(configurations) // TOGETHER)
    drawn = random.Random(seed).sample(configurations, len(configurations))  # noqa: S311 - an order
    return [tuple(drawn[part::parts]) for part in range(parts)]


def simulator(
    folder: FilePath, pages: Mapping[str, Page], progress: Progress | None = None
) -> Truth:
    """Return the simulator as truth.

    Args:
        folder: where loads are kept.
        pages: graphs by name, as browsers find them.
        progress: of a batch of loads.

    """

    def make(
        cell: Cell, configurations: tuple[Configuration, ...], first: int, loads: int, part: str
    ) -> SimulatedCase:
        return SimulatedCase(cell, pages[cell.page], configurations, first, loads, part)

    return Truth(Store(folder), World.SIMULATOR, make, progress=progress)
