"""What the scoreboard judges: `cells.toml` in this folder, and its cases."""

from __future__ import annotations

import gzip
import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path as FilePath
from typing import Any

from pathcast.exceptions import PathcastError
from pathcast.experiments.engine.case import (
    Attempt,
    Passed,
    attempt_trace,
    fingerprint,
    scenario_of,
)
from pathcast.experiments.engine.world import World
from pathcast.experiments.suite.networks import Cell as SuiteCell
from pathcast.experiments.suite.networks import Form
from pathcast.experiments.suite.networks import cells as suite_cells
from pathcast.scenario import Scenario

#: Where `cells.toml` and `path.toml` are.
_PACKAGE = "pathcast.experiments.suite.scoreboard"
#: Flows as short as this are short by intention.
_SHORT_S = 60.0
#: A file of rates larger than this is refused, once unpacked.
_MAX_BYTES = 1 << 26


@dataclass(frozen=True)
class Flow:
    """One flow over one path, run once.

    Attributes:
        name: names its folder.
        scheme: congestion control.
        seed: of all that is random.
        duration_s: how long, in seconds.
        link: keys of the path.
        keys: keys of the flow.
        rates: a file that the link's rate comes from; None: the path's own.

    """

    name: str
    scheme: str
    seed: int
    duration_s: float
    link: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)
    rates: FilePath | None = None

    #: The file that is kept of a run.
    kept_as = "trace.parquet"

    def scenario(self) -> Scenario:
        """What is run.

        Raises:
            PathcastError: the file of rates is invalid.

        """
        link = dict(self.link)
        if self.rates is not None:
            link["rate"] = rate_of(self.rates)
        flow = {"scheme": self.scheme, **self.keys}
        return scenario_of(_PACKAGE, "path.toml", self.name, link, flow)

    def fingerprint(self, world: str) -> str:
        """Return a digest that a kept run of this flow by this backend has."""
        return fingerprint([self.scenario().toml, self.seed, self.duration_s, world])

    def attempt(self, world: World, file: FilePath, progress: Passed | None = None) -> Attempt:
        """Run it once and write its trace.

        Raises:
            EmulatorError: the emulator cannot run here.
            TraceError: the trace cannot be written.

        """
        return attempt_trace(
            self.scenario(),
            world,
            file,
            duration_s=self.duration_s,
            seed=self.seed,
            progress=progress,
        )


#: What is run for a cell.
Case = Flow | SuiteCell


@dataclass(frozen=True)
class Cell:
    """What is judged together: one row of the scoreboard at each horizon.

    Attributes:
        group: cells of the same kind.
        name: of the cell, unique in its group.
        world: the backend of its cases; None: there is nothing to run.
        cases: what is run.
        file: or a trace that is there.

    """

    group: str
    name: str
    world: World | None
    cases: tuple[Case, ...] = ()
    file: FilePath | None = None


@dataclass(frozen=True)
class Scoreboard:
    """All cells of one part.

    Attributes:
        horizons_s: seconds ahead.
        cells: what is judged.
        lacking: groups whose data are missing.
        minutes: how long the flows are in place of what `cells.toml` says; None: as it says.

    """

    horizons_s: tuple[float, ...]
    cells: tuple[Cell, ...]
    lacking: tuple[str, ...]
    minutes: int | None = None


def definition() -> dict[str, Any]:
    """Read `cells.toml`."""
    text = resources.files(_PACKAGE).joinpath("cells.toml").read_text()
    return tomllib.loads(text)


def scoreboard(
    *,
    held_out: bool = False,
    groups: Sequence[str] = (),
    data: FilePath | None = None,
    minutes: int | None = None,
) -> Scoreboard:
    """Collect the cells.

    Args:
        held_out: those with the seeds and files that were used for choosing nothing.
        groups: only these; by default all.
        data: the folder of traces and rates; without it, groups that need one are left out.
        minutes: how long flows are; then only cells that can be longer than they are.

    Raises:
        PathcastError: there is no such group, or its flows cannot be longer.

    """
    defined = definition()
    names = [group["name"] for group in defined["groups"] if minutes is None or _can_last(group)]
    for name in groups:
        if name not in names:
            raise PathcastError(f"group is {name!r}, expected one of {', '.join(names)}")
    cells: list[Cell] = []
    lacking: list[str] = []
    for group in defined["groups"]:
        if group["name"] not in (groups or names):
            continue
        if "files" in group and data is None:
            lacking.append(group["name"])
            continue
        cells += _cells_of(group, held_out=held_out, data=data, minutes=minutes)
    return Scoreboard(tuple(defined["horizons_s"]), tuple(cells), tuple(lacking), minutes)


def _can_last(group: Mapping[str, Any]) -> bool:
    """Whether flows of a group can be longer: neither their data nor real time sets a limit, and they are not short by
    intention.
    """
    if "files" in group or group.get("world", World.SIMULATOR) != World.SIMULATOR:
        return False
    return bool(group["duration_s"] > _SHORT_S)


def _cells_of(
    group: Mapping[str, Any], *, held_out: bool, data: FilePath | None, minutes: int | None
) -> Iterator[Cell]:
    name = group["name"]
    if group["kind"] == "traces":
        for file in group["held_out" if held_out else "files"]:
            assert data is not None  # noqa: S101 - such a group is left out without
            yield Cell(name, FilePath(file).name.split(".")[0], None, file=data / file)
        return
    seeds = group["held_out_seeds" if held_out else "seeds"]
    if group["kind"] == "suite":
        changing = ("changing",)
        duration_s = group["duration_s"] if minutes is None else 60.0 * minutes
        found = suite_cells(Form.SHORT, seeds=seeds, duration_s=duration_s)
        # the changing path ends after ten minutes: they are its nature
        found = [cell for cell in found if cell.network.name not in changing]
        if minutes is None:
            found += suite_cells(Form.SHORT, networks=changing, seeds=seeds)
        for cell in sorted(found, key=lambda cell: cell.name):
            yield Cell(name, cell.name.split("-seed")[0], World.SIMULATOR, (cell,))
        return
    world = World(group.get("world", World.SIMULATOR))
    duration_s, lasting = group["duration_s"], ""
    if minutes is not None:
        duration_s, lasting = 60.0 * minutes, f"-{minutes}min"
    for path, scheme in itertools.product(_paths(group, held_out, data), group["schemes"]):
        flows = tuple(
            Flow(
                f"{name}-{path['name']}-{scheme}-seed{seed}{lasting}",
                scheme,
                seed,
                duration_s,
                group.get("link", {}) | path.get("link", {}),
                path.get("flow", {}),
                path.get("rates"),
            )
            for seed in seeds
        )
        yield Cell(name, f"{path['name']}-{scheme}", world, flows)


def _paths(
    group: Mapping[str, Any], held_out: bool, data: FilePath | None
) -> Iterator[dict[str, Any]]:
    """The paths of a group: as they are written, or one for each file of rates."""
    yield from group.get("paths", ())
    for file in group.get("held_out" if held_out else "files", ()):
        assert data is not None  # noqa: S101 - such a group is left out without
        name = FilePath(file).name
        for end in (".gz", ".json", ".trace"):
            name = name.removesuffix(end)
        yield {"name": name.replace("logs-report", ""), "rates": data / file}


def rate_of(file: FilePath) -> dict[str, Any]:
    """Give the rate of a link by a file: delivery opportunities (mahimahi), or JSON of rates by time.

    Args:
        file: packed with gzip or not. JSON is a list of objects with `duration_ms` and `bandwidth_kbps`.

    Raises:
        PathcastError: it cannot be read, or is neither.

    """
    try:
        opener = gzip.open if file.suffix == ".gz" else open
        with opener(file, "rb") as source:
            content = source.read(_MAX_BYTES + 1)
    except (OSError, EOFError) as error:
        raise PathcastError(f"{file}: cannot be read: {error}") from None
    if len(content) > _MAX_BYTES:
        raise PathcastError(f"{file}: has more than {_MAX_BYTES} bytes")
    try:
        if ".json" in file.suffixes:
            return _steps(json.loads(content))
        return {"kind": "mahimahi", "opportunities_ms": [int(line) for line in content.split()]}
    except (ValueError, KeyError, TypeError):
        raise PathcastError(
            f"{file}: expected a line for each delivery opportunity, in ms, or JSON of duration_ms "
            "and bandwidth_kbps"
        ) from None


def _steps(rows: list[dict[str, float]]) -> dict[str, Any]:
    starts_ms = itertools.accumulate((row["duration_ms"] for row in rows), initial=0.0)
    *starts, end = list(starts_ms)
    steps = [
        [f"{start:g} ms", f"{row['bandwidth_kbps']:g} kbit/s"]
        for start, row in zip(starts, rows, strict=True)
    ]
    return {"kind": "steps", "steps": steps, "period": f"{end:g} ms"}
