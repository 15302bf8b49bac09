"""Pages, space and grid of one experiment, and the learner that runs on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

from pathcast.control.learn import grid
from pathcast.control.learn.grid import Cell, Configuration
from pathcast.control.learn.halving import Learned, halve
from pathcast.control.learn.outcomes import Outcomes
from pathcast.exceptions import PathcastError
from pathcast.experiments.engine.world import World
from pathcast.experiments.pages.benchmark import replica_of
from pathcast.experiments.pages.configurations import cheap, emulated
from pathcast.experiments.pages.configurations.evaluation import Pages
from pathcast.experiments.pages.configurations.truth import Progress, Truth, simulator
from pathcast.experiments.pages.replica import Replica
from pathcast.page import Page

#: The part of brute force's loads that the learner makes.
SHARE = 0.1


@dataclass(frozen=True)
class Experiment:
    """What is asked: pages, configurations, conditions.

    Attributes:
        replicas: pages as files of one server, by name.
        cells: the grid.
        configurations: the space, the default first.
        world: which backend is the truth.

    """

    replicas: Mapping[str, Replica]
    cells: tuple[Cell, ...]
    configurations: tuple[Configuration, ...]
    world: World

    @property
    def graphs(self) -> dict[str, Page]:
        """What a browser finds, by page."""
        return {name: one.page for name, one in self.replicas.items()}

    @property
    def pages(self) -> Pages:
        """Bytes and resources."""
        sizes = {name: one.body_bytes for name, one in self.graphs.items()}
        resources = {name: len(one.resources) for name, one in self.graphs.items()}
        return Pages(sizes, resources)

    def truth(self, folder: FilePath, progress: Progress | None, at_once: int | None) -> Truth:
        """Return the backend that decides.

        Raises:
            PathcastError: Chromium or nginx is missing.

        """
        if self.world is World.SIMULATOR:
            return simulator(folder, self.graphs, progress)
        return emulated.emulator(folder, self.replicas, progress, at_once)

    def judged_cells(self) -> list[Cell]:
        """The cells of brute force: all in the simulator, the fixed half in the emulator."""
        return list(self.cells) if self.world is World.SIMULATOR else grid.half(self.cells)


def experiment(
    files: Sequence[FilePath],
    folder: FilePath,
    world: World,
    *,
    protocols: Sequence[str] | None = None,
    schemes: Sequence[str] | None = None,
    initial_windows: Sequence[int] | None = None,
    bandwidths_mbps: Sequence[float] | None = None,
    rtts_ms: Sequence[float] | None = None,
    losses: Sequence[float] | None = None,
    idle: bool | None = None,
) -> Experiment:
    """Read pages, write their replicas, and make the grid.

    Args:
        files: recordings or page files.
        folder: of the experiment.
        world: the backend that is the truth.
        protocols: versions of HTTP; None: all that the backend has.
        schemes: congestion controls; None: all.
        initial_windows: packets; None: 4, 10, 20 and 40.
        bandwidths_mbps: None: 1 and 5, and 0.3 for the smallest page.
        rtts_ms: None: 50, 150 and 400.
        losses: None: 0, 1, 2.5 and 5 %.
        idle: whether TCP without slow start after idle is in the space; None: in the simulator alone, where it changes
            little (docs/results/configurations.md).

    Raises:
        PathcastError: a page cannot be read, two have one name, or a value is not valid.

    """
    if world is World.LIVE:
        raise PathcastError("got truth live; expected simulator or emulator")
    replicas: dict[str, Replica] = {}
    for file in files:
        for number, page in enumerate(Page.load_all(file)):
            name = file.name.partition(".")[0] + (f"-{number}" if number else "")
            if name in replicas:
                raise PathcastError(f"{file}: the page name {name} is taken; expected other names")
            replicas[name] = replica_of(page, folder)
    of_world = grid.PROTOCOLS if world is World.SIMULATOR else emulated.PROTOCOLS
    configurations = grid.space(
        protocols or of_world,
        schemes or grid.SCHEMES,
        initial_windows or grid.INITIAL_WINDOWS,
        world is World.SIMULATOR if idle is None else idle,
    )
    cells = grid.cells(
        {name: one.page.body_bytes for name, one in replicas.items()},
        bandwidths_mbps or grid.BANDWIDTHS_MBPS,
        rtts_ms or grid.RTTS_MS,
        losses if losses else grid.LOSSES,
        None if bandwidths_mbps else grid.SLOWEST_MBPS,
    )
    return Experiment(replicas, tuple(cells), configurations, world)


def learn(
    asked: Experiment,
    truth: Truth,
    cells: Sequence[Cell],
    budget: int,
    *,
    progress: Callable[[float], None] | None = None,
) -> Learned:
    """Rank by cheap loads, and decide by true ones.

    Args:
        asked: what is learned.
        truth: makes true loads; its store is locked.
        cells: where.
        budget: true loads in each cell.
        progress: receives the part of the cheap loads by formulas that is done.

    Raises:
        PathcastError: a load cannot be made here.

    """
    if asked.world is World.SIMULATOR:
        prior = cheap.by_formulas(cells, asked.configurations, asked.graphs, progress)
    else:
        prior = cheap.by_simulator(simulated(asked, truth, cells), cells)
    return halve(cells, asked.configurations, prior, truth.learn, budget)


def simulated(asked: Experiment, truth: Truth, cells: Sequence[Cell]) -> Outcomes:
    """Return simulated loads of the same cells, kept in the same store."""
    beside = simulator(truth.store.path, asked.graphs, truth.progress)
    return beside.brute_force(cells, asked.configurations, cheap.SIMULATED_LOADS)
