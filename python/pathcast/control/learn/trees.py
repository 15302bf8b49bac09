"""Decision trees over conditions that choose among few configurations with the least regret."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pathcast.control.learn.grid import FEATURES, Cell, Condition, Configuration
from pathcast.control.learn.outcomes import Floats
from pathcast.exceptions import ModelError
from pathcast.extras import need

#: The most templates that trees are made with.
MOST_TEMPLATES = 8
#: Leaves for each template at most: more templates cost an operator more than more questions do.
_LEAVES_FOR_EACH = 2
#: By how much one more leaf must lower the mean regret over all cells: less than that is often the chance of a few loads
#: (docs/results/configurations.md).
_LEAF_COSTS = 0.001
#: Rounds of swaps in which templates are replaced by better ones.
_SWAPS = 20


@dataclass(frozen=True)
class Leaf:
    """The end of a tree: a column of the costs."""

    column: int


@dataclass(frozen=True)
class Split:
    """A question: is the feature below the threshold?"""

    feature: int
    threshold: float
    below: Node
    otherwise: Node


Node = Leaf | Split
#: Learns from the conditions and costs of cells (shape cells x configurations) and gives a tree with so many templates.
Fit = Callable[[Sequence[Condition], Floats, int], Node]


def choose(tree: Node, condition: Condition) -> int:
    """Return the column that a tree has for a condition."""
    while isinstance(tree, Split):
        is_below = condition.features[tree.feature] < tree.threshold
        tree = tree.below if is_below else tree.otherwise
    return tree.column


def leaves(tree: Node) -> Iterator[int]:
    """The columns of a tree's leaves, from below on; one may come several times."""
    if isinstance(tree, Leaf):
        yield tree.column
    else:
        yield from leaves(tree.below)
        yield from leaves(tree.otherwise)


def text(tree: Node, configurations: Sequence[Configuration], depth: int = 0) -> list[str]:
    """Return a tree as lines of text, for people."""
    before = "  " * depth
    if isinstance(tree, Leaf):
        return [f"{before}{configurations[tree.column].name}"]
    asked = f"{FEATURES[tree.feature]} < {tree.threshold:.3g}"
    return [
        f"{before}if {asked}:",
        *text(tree.below, configurations, depth + 1),
        f"{before}else:",
        *text(tree.otherwise, configurations, depth + 1),
    ]


def threshold(low: float, high: float) -> float:
    """Return what lies between two values: the geometric mean, and half of a value above zero."""
    return math.sqrt(low * high) if low > 0 else (low + high) / 2


def templates(costs: Floats, count: int) -> list[int]:
    """Choose columns so that the best of them in each cell costs little: greedily, then by swaps.

    Args:
        costs: shape cells x configurations.
        count: how many at most.

    Returns:
        Columns, ascending.

    """
    chosen: list[int] = []
    for _ in range(min(count, costs.shape[1])):
        so_far = costs[:, chosen].min(axis=1) if chosen else np.full(len(costs), np.inf)
        sums = np.minimum(so_far[:, None], costs).sum(axis=0)
        chosen.append(int(np.argmin(sums)))
    for _ in range(_SWAPS):
        before = list(chosen)
        for place in range(len(chosen)):
            others = [one for number, one in enumerate(chosen) if number != place]
            so_far = costs[:, others].min(axis=1) if others else np.full(len(costs), np.inf)
            chosen[place] = int(np.argmin(np.minimum(so_far[:, None], costs).sum(axis=0)))
        if chosen == before:
            break
    return sorted(set(chosen))


def exact(conditions: Sequence[Condition], costs: Floats, count: int) -> Node:
    """Return the tree of least mean cost among those with at most `count` leaves.

    It looks at every partition of the conditions' grid by splits (dynamic programming over boxes). A second tree has the
    best `count` templates and up to twice as many leaves; the one of less cost is returned. Each leaf costs 0.1 %.
    """
    if not 1 <= count <= costs.shape[1] or len(conditions) != len(costs) or not len(costs):
        raise ModelError(
            f"got {count} templates of {costs.shape[1]} configurations for {len(conditions)} conditions"
        )
    few, cost = _Boxes(conditions, costs).best(count)
    columns = templates(costs, count)
    deep, cost_deep = _Boxes(conditions, costs[:, columns]).best(_LEAVES_FOR_EACH * count)
    # with the same cost, the one with fewer leaves
    return few if cost <= cost_deep + 1e-12 else _renamed(deep, columns)


def _renamed(tree: Node, columns: Sequence[int]) -> Node:
    if isinstance(tree, Leaf):
        return Leaf(columns[tree.column])
    return Split(
        tree.feature,
        tree.threshold,
        _renamed(tree.below, columns),
        _renamed(tree.otherwise, columns),
    )


#: Places of the first and the one after the last value of each feature.
_Box = tuple[tuple[int, int], ...]


class _Boxes:
    """Least costs of trees within boxes of conditions."""

    def __init__(self, conditions: Sequence[Condition], costs: Floats) -> None:
        table = np.array([one.features for one in conditions])
        found = [np.unique(table[:, feature], return_inverse=True) for feature in range(3)]
        self._values = [values for values, _ in found]
        places = [where for _, where in found]
        sums = np.zeros((*(len(one) + 1 for one in self._values), costs.shape[1]))
        np.add.at(sums, tuple(one + 1 for one in places), costs)
        for axis in range(3):
            sums = sums.cumsum(axis=axis)
        self._sums = sums
        counts = np.zeros(sums.shape[:3])
        np.add.at(counts, tuple(one + 1 for one in places), 1.0)
        for axis in range(3):
            counts = counts.cumsum(axis=axis)
        self._counts = counts
        self._solved: dict[tuple[_Box, int], tuple[Floats, list[Any]]] = {}

    def best(self, most_leaves: int) -> tuple[Node, float]:
        """Return the tree of least cost with so many leaves at most, and its cost with that of its leaves."""
        whole: _Box = tuple((0, len(one)) for one in self._values)
        costs, _ = self._solve(whole, most_leaves)
        costs = costs + _LEAF_COSTS * self._counts[-1, -1, -1] * np.arange(most_leaves)
        count = int(np.argmin(costs)) + 1  # the first of equal ones
        return self._tree(whole, most_leaves, count), float(costs[count - 1])

    def _of(self, box: _Box, table: Floats) -> Floats:
        """The sum of a table's entries in a box, from its cumulated sums."""
        (a, b), (c, d), (e, f) = box
        above = table[b, d, f] - table[a, d, f] - table[b, c, f] + table[a, c, f]
        under = table[b, d, e] - table[a, d, e] - table[b, c, e] + table[a, c, e]
        return np.asarray(above - under)

    def _solve(self, box: _Box, most: int) -> tuple[Floats, list[Any]]:
        """Least cost with 1 to `most` leaves, and how: a column, or a feature, place and leaves on both sides."""
        if (box, most) in self._solved:
            return self._solved[box, most]
        sums = self._of(box, self._sums)
        column = int(np.argmin(sums))
        costs = np.full(most, float(sums[column]))
        how: list[Any] = [column] * most
        if self._of(box, self._counts) > 1 and most > 1:
            for feature, (low, high) in enumerate(box):
                for place in range(low + 1, high):
                    self._split(box, most, feature, place, costs, how)
        self._solved[box, most] = costs, how
        return costs, how

    def _split(
        self, box: _Box, most: int, feature: int, place: int, costs: Floats, how: list[Any]
    ) -> None:
        one, other = _halves(box, feature, place)
        ours, theirs = self._solve(one, most)[0], self._solve(other, most)[0]
        both = ours[:, None] + theirs[None, :]
        for total in range(2, most + 1):
            left = np.arange(1, total)
            candidates = both[left - 1, total - left - 1]
            at = int(np.argmin(candidates))
            if candidates[at] < costs[total - 1] - 1e-12:
                costs[total - 1] = candidates[at]
                how[total - 1] = (feature, place, int(left[at]), int(total - left[at]))

    def _tree(self, box: _Box, most: int, count: int) -> Node:
        how = self._solve(box, most)[1][count - 1]
        if isinstance(how, int):
            return Leaf(how)
        feature, place, left, right = how
        one, other = _halves(box, feature, place)
        below, otherwise = self._tree(one, most, left), self._tree(other, most, right)
        if isinstance(below, Leaf) and below == otherwise:
            return below
        values = self._values[feature]
        return Split(feature, threshold(values[place - 1], values[place]), below, otherwise)


def _halves(box: _Box, feature: int, place: int) -> tuple[_Box, _Box]:
    low, high = box[feature]
    one, other = list(box), list(box)
    one[feature], other[feature] = (low, place), (place, high)
    return tuple(one), tuple(other)


def _scaled(conditions: Sequence[Condition]) -> Floats:
    """Features on the scales on which they matter: logarithms but for the loss."""
    return np.array(
        [[math.log(b), math.log(rtt), loss] for b, rtt, loss in (c.features for c in conditions)]
    )


def cart(conditions: Sequence[Condition], costs: Floats, count: int) -> Node:
    """Return CART's tree (scikit-learn) with at most `count` leaves, grown on the regret of all configurations.

    Each cell's target is the vector of regrets; a leaf has the configuration of least mean regret.

    Raises:
        PathcastError: scikit-learn is not installed.

    """
    tree = need("sklearn.tree", "learning", "CART")
    regrets = costs - costs.min(axis=1, keepdims=True)
    if count == 1:
        return Leaf(int(np.argmin(regrets.mean(axis=0))))
    grown = tree.DecisionTreeRegressor(max_leaf_nodes=count, random_state=1)
    found = grown.fit(_scaled(conditions), regrets).tree_

    def node(number: int) -> Node:
        if found.children_left[number] < 0:
            return Leaf(int(np.argmin(found.value[number][:, 0])))
        feature, at = int(found.feature[number]), float(found.threshold[number])
        below, otherwise = node(found.children_left[number]), node(found.children_right[number])
        if isinstance(below, Leaf) and below == otherwise:
            return below
        return Split(feature, at if feature == 2 else math.exp(at), below, otherwise)

    return node(0)


@dataclass(frozen=True)
class Ceiling:
    """Gradient boosting over conditions, pages and knobs: what a learner that nobody needs to read keeps."""

    configurations: tuple[Configuration, ...]
    pages: dict[str, tuple[float, float]]
    model: Any

    @classmethod
    def fit(
        cls,
        cells: Sequence[Cell],
        costs: Floats,
        configurations: Sequence[Configuration],
        pages: dict[str, tuple[float, float]],
    ) -> Ceiling:
        """Learn the regret of each configuration in each cell.

        Args:
            cells: of the rows.
            costs: shape cells x configurations.
            configurations: of the columns.
            pages: bytes and resources of each page.

        Raises:
            PathcastError: scikit-learn is not installed.

        """
        ensemble = need("sklearn.ensemble", "learning", "gradient boosting")
        made = cls(
            tuple(configurations),
            pages,
            ensemble.HistGradientBoostingRegressor(
                max_iter=150, max_leaf_nodes=15, min_samples_leaf=5, random_state=1
            ),
        )
        regrets = costs - costs.min(axis=1, keepdims=True)
        with _one_thread():
            made.model.fit(made._table(cells), regrets.ravel())
        return made

    def choices(self, cells: Sequence[Cell]) -> list[int]:
        """Return a column for each cell."""
        with _one_thread():
            regrets = self.model.predict(self._table(cells))
        return [int(one) for one in np.argmin(regrets.reshape(len(cells), -1), axis=1)]

    def _table(self, cells: Sequence[Cell]) -> Floats:
        knobs = _knobs(self.configurations)
        conditions = _scaled([cell.condition for cell in cells])
        about = np.log([self.pages[cell.page] for cell in cells])
        of_cells = np.hstack([conditions, about])
        return np.hstack(
            [np.repeat(of_cells, len(knobs), axis=0), np.tile(knobs, (len(of_cells), 1))]
        )


def _one_thread() -> AbstractContextManager[Any]:
    """Few rows: threads that wait for each other on a busy machine take longer than one alone."""
    found: AbstractContextManager[Any] = need(
        "threadpoolctl", "learning", "gradient boosting"
    ).threadpool_limits(1)
    return found


@functools.cache
def _knobs(configurations: tuple[Configuration, ...]) -> Floats:
    schemes = sorted({one.scheme for one in configurations})
    protocols = sorted({one.protocol for one in configurations})
    return np.array(
        [
            [
                *(float(one.scheme == name) for name in schemes),
                *(float(one.protocol == name) for name in protocols),
                math.log2(one.initial_window),
                float(one.slow_start_after_idle),
            ]
            for one in configurations
        ]
    )
