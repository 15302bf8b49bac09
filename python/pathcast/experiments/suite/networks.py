"""What is run: the paper's networks, each in some settings, and the cells of the suite's two forms.

The networks are scenario files beside this module, in `networks/`; each says in its first lines what the paper
says of it and what was chosen here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path as FilePath

from pathcast.exceptions import PathcastError
from pathcast.experiments.engine.case import (
    Attempt,
    Passed,
    attempt_trace,
    fingerprint,
    scenario_of,
)
from pathcast.experiments.engine.world import World
from pathcast.scenario import Scenario

#: Congestion controls of the paper's section 5.
SCHEMES = ("cubic", "reno")


class Form(StrEnum):
    """How much is run."""

    #: Two minutes a cell.
    SHORT = "short"
    #: One hour a cell, as in the paper's section 5.1.
    FULL = "full"


@dataclass(frozen=True)
class Network:
    """A network of the paper, in one setting.

    Attributes:
        name: of the network: cells with the same one are scored together.
        setting: distinguishes its settings; empty if there is only one.
        file: the scenario file in `networks/`.
        link_keys: keys of its link that are different.
        npcs: numbers of parallel connections in the short and the full form.
        duration_s: seconds in the short and the full form.
        repeats: how many seeds of it one seed of the full form stands for.
        short: whether the short form has it.
        schemes: the congestion controls that it is run with.
        flow_keys: keys that the measured flows have in addition to those of the file.

    """

    name: str
    setting: str
    file: str
    link_keys: Mapping[str, object] = field(default_factory=dict)
    npcs: tuple[tuple[int, ...], tuple[int, ...]] = ((1,), (1,))
    duration_s: tuple[float, float] = (120.0, 3600.0)
    repeats: int = 1
    short: bool = True
    schemes: tuple[str, ...] = SCHEMES
    flow_keys: Mapping[str, object] = field(default_factory=dict)


_ONE_TO_TEN = tuple(range(1, 11))
_WIRED = ((1,), _ONE_TO_TEN)

#: All settings of all networks, in the paper's order.
SETTINGS = (
    Network("azure", "loss-1e-5", "azure", {"loss": 1e-5}, _WIRED),
    Network("azure", "loss-1e-4", "azure", {"loss": 1e-4}, _WIRED),
    Network("azure", "loss-1e-3", "azure", {"loss": 1e-3}, _WIRED, short=False),
    Network("southeast", "loss-1e-5", "southeast", {"loss": 1e-5}, _WIRED),
    Network("southeast", "loss-1e-4", "southeast", {"loss": 1e-4}, _WIRED),
    Network("southeast", "loss-1e-3", "southeast", {"loss": 1e-3}, _WIRED, short=False),
    Network("northeast", "", "northeast", npcs=((1, 4, 10), _ONE_TO_TEN)),
    # the system's default buffers: of the 6 MB for reading Linux offers a half (tcp_adv_win_scale 1). The 4 MB
    # for writing hold far more than the 2 BDP, 1.2 MB, that path and queue can
    Network(
        "northeast-buffers",
        "",
        "northeast",
        schemes=("cubic",),
        flow_keys={"receive_window": "3 MB"},
    ),
    Network("long-distance", "60ms", "long-distance", {"delay": "30 ms"}, _WIRED),
    Network("long-distance", "200ms", "long-distance", {"delay": "100 ms"}, _WIRED),
    # five hours in the paper
    Network("wireless", "", "wireless", repeats=5),
    Network("last-mile-0.1", "", "last-mile", {"loss": 0.001}),
    Network("last-mile-0.5", "", "last-mile", {"loss": 0.005}),
    Network("last-mile-1", "", "last-mile", {"loss": 0.01}),
    # ten minutes are its nature: they are not shortened
    Network("changing", "", "changing", duration_s=(600.0, 600.0), repeats=6),
)

#: The networks' names, in the paper's order.
NETWORKS = tuple(dict.fromkeys(setting.name for setting in SETTINGS))

#: The four of figures 5 and 6.
WIRED = ("azure", "southeast", "northeast", "long-distance")

#: When the changing path changes, in seconds, and when it ends.
CHANGES_S = (120.0, 240.0, 360.0, 480.0, 600.0)


@dataclass(frozen=True)
class Cell:
    """One run: a network in a setting, a congestion control, connections in parallel, a seed.

    Attributes:
        network: where it runs.
        scheme: `cubic` or `reno`.
        npc: connections in parallel, all measured: flows 0 to npc - 1 of the trace.
        seed: of all that is random.
        duration_s: how long, in seconds.

    """

    network: Network
    scheme: str
    npc: int
    seed: int
    duration_s: float

    #: The file that is kept of a run.
    kept_as = "trace.parquet"

    @property
    def name(self) -> str:
        """Names the cell's folder: `azure-loss-1e-4-cubic-npc1-seed1-120s`."""
        parts = filter(None, (self.network.name, self.network.setting, self.scheme))
        return "-".join([*parts, f"npc{self.npc}", f"seed{self.seed}", f"{self.duration_s:g}s"])

    def scenario(self) -> Scenario:
        """What is run."""
        flow = {"scheme": self.scheme, "count": self.npc, **self.network.flow_keys}
        file = f"networks/{self.network.file}.toml"
        link = self.network.link_keys
        return scenario_of("pathcast.experiments.suite", file, self.name, link, flow)

    def fingerprint(self, world: str) -> str:
        """Return a digest that a kept run of this cell by this backend has."""
        return fingerprint([self.scenario().toml, self.npc, self.seed, self.duration_s, world])

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


def cells(
    form: Form,
    *,
    networks: Sequence[str] = (),
    schemes: Sequence[str] = (),
    npcs: Sequence[int] = (),
    seeds: Sequence[int] = (1,),
    duration_s: float | None = None,
) -> list[Cell]:
    """The cells of a form, the longest first.

    Args:
        form: how much.
        networks: only these; by default all.
        schemes: only these; by default both.
        npcs: these numbers of connections; by default those of the form.
        seeds: each cell once with each.
        duration_s: how long each runs, in seconds; by default as the form has it.

    Raises:
        PathcastError: no such network or congestion control, or a number out of range.

    """
    _check("network", networks, NETWORKS)
    _check("scheme", schemes, SCHEMES)
    if any(not 1 <= npc <= 100 for npc in npcs):
        raise PathcastError(f"npc is {', '.join(map(str, npcs))}, expected 1 to 100")
    if duration_s is not None and not 3 <= duration_s <= 86_400:
        raise PathcastError(f"duration is {duration_s} s, expected 3 to 86400 s")
    full = form is Form.FULL
    found = [
        Cell(
            network,
            scheme,
            npc,
            # so that no two repeats of any two seeds are the same
            seed + repeat * 1_000_000,
            network.duration_s[full] if duration_s is None else float(duration_s),
        )
        for network in SETTINGS
        if (full or network.short) and (not networks or network.name in networks)
        for scheme in network.schemes
        if not schemes or scheme in schemes
        for npc in (npcs or network.npcs[full])
        for seed in dict.fromkeys(seeds)
        for repeat in range(network.repeats if full else 1)
    ]
    # the last ones to end keep processors idle for little if they are short
    return sorted(found, key=lambda cell: -cell.duration_s)


def _check(what: str, got: Sequence[str], known: Sequence[str]) -> None:
    for name in got:
        if name not in known:
            raise PathcastError(f"{what} is {name!r}, expected one of {', '.join(known)}")
