"""One case of an experiment: a run that is made once and kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path as FilePath
from typing import Any, Protocol

from pathcast import runs
from pathcast.experiments.engine.world import World
from pathcast.scenario import Scenario

#: Receives the seconds that have passed of an attempt; may raise to stop it.
Passed = Callable[[float], None]


@dataclass(frozen=True)
class Attempt:
    """The result of one attempt.

    Attributes:
        report: of the run, as `--json` has it.
        why_not: why the attempt does not count, in words; empty: it counts, and its file is written.

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
        """Return a digest that a kept run of this case by this backend has."""
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


def scenario_of(
    package: str, file: str, name: str, link: Mapping[str, Any], flow: Mapping[str, Any]
) -> Scenario:
    """Read the scenario of an experiment, with one link `path` and one kind of flow, and change both.

    Args:
        package: that the file is of.
        file: below it.
        name: of the case, for errors.
        link: keys of the link to replace.
        flow: keys of the flow to replace.

    """
    text = resources.files(package).joinpath(file).read_text()
    scenario = Scenario.parse(text, f"{name}.toml")
    if link:
        scenario = scenario.replace_link("path", **link)
    return scenario.replace_flow(0, **flow)


def attempt_trace(
    scenario: Scenario,
    world: World,
    file: FilePath,
    *,
    duration_s: float,
    seed: int,
    progress: Passed | None,
    packets_file: FilePath | None = None,
) -> Attempt:
    """Run a scenario once and write its trace if the run counts.

    Args:
        scenario: what to run.
        world: the simulator or the emulator.
        file: where the trace goes.
        duration_s: of the run, in seconds.
        seed: of all that is random.
        progress: receives the seconds that have passed; may raise to stop.
        packets_file: where every event of every data packet goes; None: nowhere.

    Raises:
        EmulatorError: the emulator cannot run here.
        TraceError: the trace cannot be written.

    """
    options: dict[str, Any] = {
        "duration_s": duration_s,
        "seed": seed,
        "progress": progress,
        "packets_file": packets_file,
    }
    if world is World.SIMULATOR:
        report, _ = runs.simulate(scenario, trace_file=file, **options)
        return Attempt(report.to_dict())
    report, trace = runs.emulate(scenario, **options)
    if report.valid:
        trace.write(file)
    return Attempt(report.to_dict(), tuple(report.invalid_because))
