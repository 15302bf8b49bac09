"""The runs of a plan, in the order in which they are made."""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path as FilePath

from pathcast import schemes
from pathcast.exceptions import PathcastError
from pathcast.experiments.engine import case as engine
from pathcast.experiments.engine.case import Attempt, Passed
from pathcast.experiments.engine.world import World
from pathcast.experiments.schemes import real, simulated
from pathcast.experiments.schemes.measures import FlowMeasure
from pathcast.experiments.schemes.plan import Plan, Resolved
from pathcast.experiments.schemes.workloads import Workload
from pathcast.files import write_beside
from pathcast.path import Path
from pathcast.schemes.live import Host

#: The largest file of flows that is read.
_MAX_BYTES = 1 << 26


@dataclass(frozen=True)
class Case:
    """One run: a scheme, over a path, in a workload and a direction, with a seed.

    Attributes:
        scheme: under test, by the plan's name.
        path_name: the plan's name of the path.
        path: what lies between the hosts.
        workload: which flows there are.
        direction: of the data.
        number: of the run, from 0.
        seed: of the path, and of what else is random.
        duration_s: how long, at most.
        runs_as: the backend's name of each scheme of the run.
        version: what else its result depends on: versions of implementations.
        host: the server of a live run, whose path is the real one.

    """

    scheme: str
    path_name: str
    path: Path
    workload: Workload
    direction: str
    number: int
    seed: int
    duration_s: float
    runs_as: Mapping[str, str]
    version: Mapping[str, str]
    host: Host | None = None

    #: The file that is kept of a run.
    kept_as = "flows.json"

    @property
    def name(self) -> str:
        """Names its folder."""
        parts = (self.path_name, self.workload.name, self.direction, self.scheme)
        return "-".join([*(re.sub(r"[^\w.+:-]", "_", part) for part in parts), str(self.number)])

    @property
    def block(self) -> tuple[str, str, str]:
        """What is compared with each other: path, workload, direction."""
        return self.path_name, self.workload.name, self.direction

    def fingerprint(self, world: str) -> str:
        """Return a digest that a kept run of this case by this backend has."""
        flows = [asdict(flow) for flow in self.workload.flows]
        path = self.path.toml if self.host is None else self.host.server
        what = [self.scheme, path, flows, self.direction, self.number, self.seed]
        how = [self.duration_s, sorted(self.runs_as.items()), sorted(self.version.items()), world]
        return engine.fingerprint([what, how])

    def attempt(self, world: World, file: FilePath, progress: Passed | None = None) -> Attempt:
        """Run it once and write what was measured.

        A scheme that fails is a result: its flow says why. A run whose emulation is not valid is none.

        Raises:
            EmulatorError: the emulator cannot run here.
            LiveError: the server of a live run does not answer, or refuses.
            PathcastError: the file cannot be written.

        """
        why_not: tuple[str, ...] = ()
        if world is World.SIMULATOR:
            measured = self._simulate(progress)
        else:
            measured, why_not = real.run(
                self.host or self.path,
                self.workload.flows,
                self.scheme,
                direction=self.direction,
                duration_s=self.duration_s,
                seed=self.seed,
                progress=progress,
            )
        if not why_not:
            write_beside(file, json.dumps([one.to_dict() for one in measured], allow_nan=False))
        failed = [f"{one.scheme}: {one.why_not}" for one in measured if one.why_not]
        return Attempt({"valid": True, "failed": failed}, why_not)

    def _simulate(self, progress: Passed | None) -> list[FlowMeasure]:
        scenario = simulated.scenario_of(
            self.path,
            self.workload.flows,
            self.scheme,
            self.runs_as,
            direction=self.direction,
            seed=self.seed,
        )
        with tempfile.TemporaryDirectory(prefix="pathcast-") as name:
            return simulated.run(
                scenario,
                self.workload.flows,
                self.scheme,
                FilePath(name) / "packets.parquet",
                duration_s=self.duration_s,
                seed=self.seed,
                progress=progress,
            )


def read(file: FilePath) -> list[FlowMeasure]:
    """Read the flows of a run that was kept.

    Raises:
        PathcastError: it is not what was written.

    """
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise PathcastError(
                f"{file}: is larger than {_MAX_BYTES} bytes; expected a run's flows"
            )
        return [FlowMeasure.of_dict(values) for values in json.loads(file.read_bytes())]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PathcastError(
            f"{file}: cannot be used ({type(error).__name__}); delete its folder to run it again"
        ) from None


def cases(resolved: Resolved, host: Host | None = None) -> list[Case]:
    """The runs of a plan: rounds over all paths and workloads, the schemes of each in an order drawn anew.

    In each round every scheme runs once in each place, so that what changes with time meets all alike.
    """
    plan = resolved.plan
    order = random.Random(plan.seed)  # noqa: S311 - an order, no secret
    blocks = [
        (path_name, workload, direction)
        for path_name in plan.paths
        for workload in plan.workloads
        for direction in plan.directions
    ]
    versions = _versions(plan)
    made = []
    for number in range(plan.runs):
        order.shuffle(blocks)
        for path_name, workload, direction in blocks:
            under_test = list(plan.schemes)
            order.shuffle(under_test)
            beside = {flow.scheme for flow in workload.flows}
            for scheme in under_test:
                used = {name for name in (*beside, scheme) if name}
                made.append(
                    Case(
                        scheme,
                        path_name,
                        plan.paths[path_name],
                        workload,
                        direction,
                        number,
                        plan.seed + number,
                        plan.duration_s,
                        {name: resolved.runs_as[name] for name in sorted(used)},
                        {name: versions[name] for name in sorted(used) if name in versions},
                        host,
                    )
                )
    return made


def _versions(plan: Plan) -> dict[str, str]:
    """The version of each implementation that is not the simulator's."""
    known = schemes.catalog()
    return {name: known[name].running_version for name in plan.all_schemes() if name in known}


def estimate_s(made: list[Case], world: World, beside_s: float, at_once: int) -> float:
    """About how many seconds the runs take on the wall.

    Those in real time take their duration and `beside_s`. Of the simulator, one second of a flow of each path and scheme
    is run, and the rest follows.
    """
    if world is not World.SIMULATOR:
        return sum(one.duration_s + beside_s for one in made) / max(1, at_once)
    import time

    cost: dict[tuple[str, str], float] = {}
    for one in made:
        place = (one.path_name, one.scheme)
        if place in cost:
            continue
        began = time.perf_counter()
        probe = simulated.scenario_of(
            one.path, one.workload.flows[:1], one.scheme, one.runs_as, direction="forward", seed=1
        )
        from pathcast import runs

        runs.simulate(probe.replace_flow(0, workload="bulk"), duration_s=_PROBE_S, record=False)
        cost[place] = (time.perf_counter() - began) / _PROBE_S
    # the packets' table takes as long again to write and to read
    work_s = sum(3 * one.duration_s * cost[one.path_name, one.scheme] + 0.05 for one in made)
    return work_s / max(1, at_once)


#: How much is simulated to estimate the rest, in seconds.
_PROBE_S = 1.0
