"""Loads in the simulator, and by formulas."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from pathcast._page_loads import predict_page
from pathcast.control.learn.grid import Cell, Configuration
from pathcast.exceptions import PathcastError
from pathcast.experiments.engine.case import Attempt, Passed, fingerprint
from pathcast.experiments.engine.world import World
from pathcast.files import write_beside
from pathcast.page import BROWSERS, Page

#: Version of what is kept.
_SCHEMA = 1
#: Seconds of one simulated load by TCP and by QUIC, about: pages of 36 to 111 resources (docs/results/configurations.md).
_LOAD_S = {"http/1.1": 0.001, "h2": 0.001, "h3": 0.009}
#: What the simulated browser takes itself: as Chromium.
BROWSER = BROWSERS["chromium"]


def load_ms(
    page: Page,
    cell: Cell,
    configuration: Configuration,
    *,
    loads: int,
    first: int = 1,
    engine: str = "simulator",
) -> list[float]:
    """Load a page so many times, with one seed each from `first` on; infinite where a load does not end in 300 s."""
    found = predict_page(
        page,
        cell.condition.path(),
        scheme=configuration.scheme,
        protocols=[configuration.protocol],
        initial_window=configuration.initial_window,
        slow_start_after_idle=configuration.slow_start_after_idle,
        browser=BROWSER,
        loads=loads,
        engine=engine,
        seed=first,
        threads=1,
    )
    return [float(one) for one in found.loads[configuration.protocol].load_ms]


@dataclass(frozen=True)
class SimulatedCase:
    """Loads of one cell by several configurations.

    Attributes:
        cell: the page and its condition.
        page: its graph, as a browser finds it.
        configurations: whose loads are made.
        first: the seed of the first load.
        loads: by each configuration.
        part: names these loads among those of the cell.

    """

    cell: Cell
    page: Page = field(repr=False)
    configurations: tuple[Configuration, ...]
    first: int
    loads: int
    part: str

    @property
    def name(self) -> str:
        """Names its folder."""
        return f"{self.cell.name}/{self.part}"

    @property
    def duration_s(self) -> float:
        """Processor time, about."""
        return self.loads * sum(_LOAD_S[one.protocol] for one in self.configurations)

    @property
    def kept_as(self) -> str:
        """The file of load times."""
        return "loads.json"

    def fingerprint(self, world: str) -> str:
        """Return a digest of all that decides the loads."""
        return fingerprint(
            [
                *(_SCHEMA, world, self.page.to_toml(), self.cell.condition.path().to_toml()),
                *([one.name for one in self.configurations], self.first, self.loads),
            ]
        )

    def attempt(self, world: World, file: FilePath, progress: Passed | None = None) -> Attempt:
        """Load the page by each configuration."""
        times = {}
        for number, one in enumerate(self.configurations):
            times[one.name] = load_ms(self.page, self.cell, one, loads=self.loads, first=self.first)
            if progress is not None:
                progress(self.duration_s * (number + 1) / len(self.configurations))
        write_beside(file, written(times))
        return Attempt({"valid": True, "loads": self.loads * len(self.configurations)})


def written(times: Mapping[str, Sequence[float]]) -> str:
    """Load times as they are kept: null where a load did not end."""
    shown = {
        name: [round(one, 3) if math.isfinite(one) else None for one in those]
        for name, those in times.items()
    }
    return json.dumps(shown, allow_nan=False) + "\n"


def read(
    file: FilePath, configurations: Sequence[Configuration]
) -> dict[Configuration, list[float]]:
    """Read load times that were kept, of those configurations that the file has.

    Raises:
        PathcastError: the file cannot be used.

    """
    try:
        found = json.loads(file.read_bytes())
        return {
            one: [math.inf if value is None else float(value) for value in found[one.name]]
            for one in configurations
            if one.name in found
        }
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise PathcastError(f"{file}: cannot be used ({type(error).__name__})") from None
