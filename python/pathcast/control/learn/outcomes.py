"""Load times of configurations in cells, what the best one gains, and what a choice loses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pathcast.control.learn.grid import DEFAULT, Cell, Configuration
from pathcast.exceptions import ModelError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: What a load that does not end in time counts as, in milliseconds.
LONGEST_MS = 300e3
#: Copies by which intervals are estimated.
COPIES = 1000
_SEED = 22


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        """As `--json` prints it; None for what is not finite."""
        values = {"value": self.value, "low": self.low, "high": self.high}
        return {name: one if math.isfinite(one) else None for name, one in values.items()}

    def percent(self) -> str:
        """Return it in per cent, for people."""
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


@dataclass(frozen=True)
class Outcomes:
    """Load times. Load k of each configuration in a cell has the same path and seed (common random numbers).

    Attributes:
        cells: the rows.
        configurations: the columns, `DEFAULT` among them.
        ms: times to the load event; shape cells x configurations x loads; NaN where a load is missing.

    """

    cells: tuple[Cell, ...]
    configurations: tuple[Configuration, ...]
    ms: Floats

    def __post_init__(self) -> None:
        shape = (len(self.cells), len(self.configurations))
        if self.ms.ndim != 3 or self.ms.shape[:2] != shape or not self.ms.size:
            raise ModelError(f"got load times of shape {self.ms.shape}; expected {shape} x loads")
        if DEFAULT not in self.configurations:
            raise ModelError(f"got configurations without the default, {DEFAULT.name}")

    @property
    def default(self) -> int:
        """The column of the default."""
        return self.configurations.index(DEFAULT)

    def log_ms(self) -> Floats:
        """Natural logarithms of the times, of which loads that did not end have that of 300 s."""
        return np.log(np.minimum(np.where(np.isinf(self.ms), LONGEST_MS, self.ms), LONGEST_MS))

    def costs(self) -> Floats:
        """The mean logarithm over loads, which is that of the geometric mean; shape cells x configurations."""
        found: Floats = np.nanmean(self.log_ms(), axis=2)
        return found

    def split(self) -> tuple[Outcomes, Outcomes]:
        """Return two halves of the loads: one to choose by, one to judge by."""
        loads = self.ms.shape[2]
        if loads < 2:
            raise ModelError(f"got {loads} loads of each configuration; expected at least 2")
        return self._take(np.arange(0, loads, 2)), self._take(np.arange(1, loads, 2))

    def _take(self, loads: Ints) -> Outcomes:
        return Outcomes(self.cells, self.configurations, self.ms[:, :, loads])

    def rows(self, chosen: Sequence[int]) -> Outcomes:
        """Return those cells alone."""
        at = np.asarray(chosen, dtype=int)
        return Outcomes(tuple(self.cells[one] for one in at), self.configurations, self.ms[at])

    def columns(self, chosen: Sequence[Configuration]) -> Outcomes:
        """Return those configurations alone."""
        at = [self.configurations.index(one) for one in chosen]
        return Outcomes(self.cells, tuple(chosen), self.ms[:, at])

    def best(self) -> list[int]:
        """The column with the least cost in each cell."""
        return [int(one) for one in np.argmin(self.costs(), axis=1)]

    def tied(self) -> list[tuple[int, ...]]:
        """In each cell, the columns that may be the best one: the 95 % interval of the paired difference contains 0."""
        logs, best = self.log_ms(), self.best()
        loads = logs.shape[2]
        found = []
        for cell in range(len(self.cells)):
            gaps = logs[cell] - logs[cell, best[cell]]
            mean = gaps.mean(axis=1)
            error = gaps.std(axis=1, ddof=1) / math.sqrt(loads) if loads > 1 else np.inf * mean
            found.append(tuple(np.flatnonzero(mean <= 1.96 * np.nan_to_num(error)).tolist()))
        return found

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each cell: the default, the best, and what may be the best."""
        costs, best, tied = self.costs(), self.best(), self.tied()
        names = [one.name for one in self.configurations]
        return [
            {
                "page": cell.page,
                **dict(
                    zip(("bandwidth_mbps", "rtt_ms", "loss"), cell.condition.features, strict=True)
                ),
                "default_ms": float(np.exp(costs[row, self.default])),
                "best": names[best[row]],
                "best_ms": float(np.exp(costs[row, best[row]])),
                "gain": float(1 - np.exp(costs[row, best[row]] - costs[row, self.default])),
                "may_be_best": [names[one] for one in tied[row]],
            }
            for row, cell in enumerate(self.cells)
        ]


def gains(judged: Outcomes, choice: Sequence[int]) -> Floats:
    """By which part a choice shortens the default's time, in each cell; negative where it is longer."""
    costs = judged.costs()
    rows = np.arange(len(judged.cells))
    return np.asarray(1 - np.exp(costs[rows, np.asarray(choice)] - costs[:, judged.default]))


def resampled(judged: Outcomes, statistic: Callable[[Floats], float]) -> Interval:
    """A statistic of the costs with its 95 % interval, over cells and loads drawn anew.

    Args:
        judged: the loads.
        statistic: receives rows of cells, each the number of the cell and then its costs by configuration.

    """
    logs = judged.log_ms()
    rows, _, loads = logs.shape
    generator = np.random.default_rng(_SEED)
    numbers = np.arange(rows, dtype=float)[:, None]
    value = statistic(np.hstack([numbers, judged.costs()]))
    found = []
    for _ in range(COPIES):
        cells = generator.integers(0, rows, rows)
        drawn = generator.integers(0, loads, loads)
        costs = np.nanmean(logs[:, :, drawn], axis=2)
        found.append(statistic(np.hstack([numbers, costs])[cells]))
    low, high = np.nanquantile(found, [0.025, 0.975])
    return Interval(float(value), float(low), float(high))


def judge(judged: Outcomes, choice: Sequence[int], best: Sequence[int]) -> dict[str, Interval]:
    """Judge a choice of one configuration for each cell.

    Args:
        judged: loads that neither the choice nor the best was made with.
        choice: a column for each cell.
        best: what is best by other loads, a column for each cell.

    Returns:
        `regret`: by how much the choice takes longer than the best, as a geometric mean over cells.
        `gain`: by which part it shortens the default's time, as a mean over cells.
        `kept`: the share of the best's gain that the choice has.

    """
    chosen, ideal, default = np.asarray(choice), np.asarray(best), judged.default

    def parts(rows: Floats) -> tuple[Floats, Floats, Floats]:
        numbers = rows[:, 0].astype(int)
        costs, at = rows[:, 1:], np.arange(len(rows))
        return costs[at, chosen[numbers]], costs[at, ideal[numbers]], costs[:, default]

    def regret(rows: Floats) -> float:
        ours, least, _ = parts(rows)
        return float(np.expm1(np.mean(ours - least)))

    def gain(rows: Floats) -> float:
        ours, _, plain = parts(rows)
        return float(np.mean(1 - np.exp(ours - plain)))

    def kept(rows: Floats) -> float:
        ours, least, plain = parts(rows)
        most = float(np.mean(1 - np.exp(least - plain)))
        return float(np.mean(1 - np.exp(ours - plain))) / most if most > 0 else math.nan

    return {
        "regret": resampled(judged, regret),
        "gain": resampled(judged, gain),
        "kept": resampled(judged, kept),
    }


def quantiles_of_gain(judged: Outcomes, best: Sequence[int]) -> dict[str, Interval]:
    """Median and 95th percentile over cells of what the best gains over the default (the seed's figure 3)."""
    ideal, default = np.asarray(best), judged.default

    def at(level: float) -> Callable[[Floats], float]:
        def statistic(rows: Floats) -> float:
            numbers = rows[:, 0].astype(int)
            costs = rows[:, 1:]
            ours = costs[np.arange(len(rows)), ideal[numbers]]
            return float(np.quantile(1 - np.exp(ours - costs[:, default]), level))

        return statistic

    return {"median": resampled(judged, at(0.5)), "p95": resampled(judged, at(0.95))}


def of_tables(
    tables: Mapping[Cell, Mapping[Configuration, Sequence[float]]],
    configurations: Sequence[Configuration],
) -> Outcomes:
    """Put loads together; of each configuration as many as the least that one has.

    Raises:
        ModelError: there is no cell, or a configuration has no load in one.

    """
    if not tables:
        raise ModelError("got no cell; expected at least one")
    least = min(len(of_cell.get(one, ())) for of_cell in tables.values() for one in configurations)
    if least == 0:
        raise ModelError("a configuration has no load in some cell; expected at least one")
    ms = [[list(of_cell[one][:least]) for one in configurations] for of_cell in tables.values()]
    return Outcomes(tuple(tables), tuple(configurations), np.asarray(ms, dtype=float))
