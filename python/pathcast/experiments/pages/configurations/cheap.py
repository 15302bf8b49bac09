"""What cheap loads say of configurations before true loads are made: the priors of halving."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pathcast.control.learn.grid import Cell, Configuration
from pathcast.control.learn.halving import Prior
from pathcast.control.learn.outcomes import LONGEST_MS, Floats, Outcomes
from pathcast.experiments.pages.configurations.simulated import load_ms
from pathcast.page import Page

#: Loads by formulas of each configuration.
MODEL_LOADS = 20
#: Loads in the simulator of each configuration before emulated ones.
SIMULATED_LOADS = 20
#: Standard deviation of true less cheap mean logarithms, beside what all configurations of a cell share. The simulator
#: beside Chromium: that of two protocols' ratio (docs/results/page-loads.md). Formulas beside the simulator: of
#: three pages over the grid (docs/results/configurations.md).
SIMULATOR_AGREES, MODEL_AGREES = 0.06, 0.08
#: Seeds of cheap loads begin here.
_FIRST = 2_000_001


def by_formulas(
    cells: Sequence[Cell],
    configurations: Sequence[Configuration],
    pages: Mapping[str, Page],
    progress: Callable[[float], None] | None = None,
) -> Prior:
    """Return what formulas say, in microseconds a load. They know no slow start after idle.

    Args:
        cells: pages under conditions.
        configurations: of the space.
        pages: graphs by name.
        progress: receives the part that is done.

    """
    logs = np.zeros((len(cells), len(configurations), MODEL_LOADS))
    for row, cell in enumerate(cells):
        for column, one in enumerate(configurations):
            times = load_ms(
                pages[cell.page], cell, one, loads=MODEL_LOADS, first=_FIRST, engine="model"
            )
            logs[row, column] = _logs(times)
        if progress is not None:
            progress((row + 1) / len(cells))
    return Prior(logs.mean(axis=2), logs.std(axis=2, ddof=1), MODEL_AGREES)


def by_simulator(simulated: Outcomes, cells: Sequence[Cell]) -> Prior:
    """Return what simulated loads say, which the caller has made.

    Args:
        simulated: loads of these cells by all configurations of the space.
        cells: those that are asked for, in their order.

    """
    rows = [simulated.cells.index(one) for one in cells]
    logs = simulated.log_ms()[rows]
    return Prior(logs.mean(axis=2), logs.std(axis=2, ddof=1), SIMULATOR_AGREES)


def _logs(times: Sequence[float]) -> Floats:
    return np.asarray(np.log(np.minimum(times, LONGEST_MS)))
