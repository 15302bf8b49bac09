"""What choices keep on conditions that they were not trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pathcast.control.learn.grid import FEATURES, Cell, Condition
from pathcast.control.learn.outcomes import Floats
from pathcast.control.learn.trees import Fit, choose

#: Learns from rows and chooses a column for each of other rows.
Chooser = Callable[[Sequence[int], Sequence[int]], Sequence[int]]


@dataclass(frozen=True)
class Fold:
    """Rows that are held out together.

    Attributes:
        name: what they have in common.
        held_out: rows.
        trained: the other rows.

    """

    name: str
    held_out: tuple[int, ...]
    trained: tuple[int, ...]


def by_condition(cells: Sequence[Cell]) -> list[Fold]:
    """Return a fold for each condition, with all pages."""
    return list(_folds(cells, lambda condition: condition.name))


def by_value(cells: Sequence[Cell]) -> list[Fold]:
    """Return a fold for each value of each feature: an RTT, a bandwidth, a loss that the learner has never seen."""
    found: list[Fold] = []
    for feature, name in enumerate(FEATURES):

        def named(condition: Condition, feature: int = feature, name: str = name) -> str:
            return f"{name} {condition.features[feature]:g}"

        found += _folds(cells, named)
    return found


def _folds(cells: Sequence[Cell], named: Callable[[Condition], str]) -> Iterator[Fold]:
    names = [named(cell.condition) for cell in cells]
    for name in dict.fromkeys(names):
        held_out = tuple(row for row, one in enumerate(names) if one == name)
        trained = tuple(row for row, one in enumerate(names) if one != name)
        if trained:
            yield Fold(name, held_out, trained)


def held_out_choices(folds: Sequence[Fold], chooser: Chooser, rows: int) -> list[int]:
    """Return a column for each row, chosen by what was learned without the row's fold; -1 where no fold has it."""
    found = [-1] * rows
    for fold in folds:
        for row, column in zip(fold.held_out, chooser(fold.trained, fold.held_out), strict=True):
            found[row] = column
    return found


def of_tree(fit: Fit, cells: Sequence[Cell], costs: Floats, count: int) -> Chooser:
    """Return what a kind of tree with so many templates chooses."""

    def chooser(trained: Sequence[int], held_out: Sequence[int]) -> list[int]:
        conditions = [cells[row].condition for row in trained]
        tree = fit(conditions, costs[list(trained)], count)
        return [choose(tree, cells[row].condition) for row in held_out]

    return chooser
