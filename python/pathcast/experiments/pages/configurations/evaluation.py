"""What a grid says: gains, templates, held-out conditions, the learner beside brute force, bandits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pathcast.control.learn import bandits, crossed, trees
from pathcast.control.learn.grid import DEFAULT, Cell, Configuration
from pathcast.control.learn.halving import Learned
from pathcast.control.learn.model import Model
from pathcast.control.learn.outcomes import (
    Floats,
    Outcomes,
    gains,
    judge,
    quantiles_of_gain,
)
from pathcast.exceptions import PathcastError

#: Version of results.json.
SCHEMA = 1
#: Templates of the model unless more or fewer are asked for.
TEMPLATES = 4
#: Templates that bandits have as arms.
_ARMS = 8
#: Loads of each play of a bandit, and plays.
_BANDIT_LOADS, _BANDIT_REPEATS = 2000, 10
#: Configurations that figure 4 shows.
_SHOWN = 4
#: Kinds of trees, by name.
KINDS: dict[str, trees.Fit] = {"exact": trees.exact, "CART": trees.cart}


@dataclass(frozen=True)
class Pages:
    """What is known of pages: bytes and resources by name."""

    sizes: Mapping[str, int]
    resources: Mapping[str, int]

    def about(self) -> dict[str, tuple[float, float]]:
        """Return both, as the ceiling takes them."""
        return {
            name: (float(size), float(self.resources[name])) for name, size in self.sizes.items()
        }


def model_of(
    cells: Sequence[Cell],
    costs: Floats,
    configurations: Sequence[Configuration],
    count: int = TEMPLATES,
) -> tuple[Model, trees.Node]:
    """Return the model that costs give: an exact tree with so many templates at most."""
    tree = trees.exact([cell.condition for cell in cells], costs, min(count, costs.shape[1]))
    return Model.of(tree, configurations), tree


def evaluate(
    outcomes: Outcomes,
    pages: Pages,
    *,
    learned: Learned | None = None,
    count: int = TEMPLATES,
    with_extra: bool = True,
) -> dict[str, Any]:
    """Say all that a grid says.

    Choices are made by one half of the loads, and judged by the other half.

    Args:
        outcomes: brute force: loads of every cell by every configuration.
        pages: what is known of them.
        learned: what halving found in the same cells; None: not run.
        count: templates of the model.
        with_extra: whether CART and gradient boosting are tried, which scikit-learn has.

    """
    made, judged = outcomes.split()
    best, costs = made.best(), made.costs()
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "cells": len(outcomes.cells),
        "configurations": [one.name for one in outcomes.configurations],
        "loads": int(outcomes.ms.shape[2]),
        "default": DEFAULT.name,
        "gain_over_default": _intervals(quantiles_of_gain(judged, best)),
        "gains": sorted(float(one) for one in gains(judged, best)),
        "rows": outcomes.to_rows(),
        "not_sure": float(np.mean([len(those) > 1 for those in outcomes.tied()])),
        "knobs": _knobs(outcomes),
        "one_knob": _one_knob(made, judged),
        "coverage": _coverage(judged, best),
        "choices": _choices(made, judged, pages, count, with_extra),
        "by_templates": _by_templates(made, judged, with_extra),
    }
    model, tree = model_of(made.cells, costs, made.configurations, count)
    found["tree"] = trees.text(tree, made.configurations)
    found["model"] = model.to_dict()
    if learned is not None:
        found["learner"] = _learner(learned, outcomes, judged, best, count)
    found["online"] = _online(made, judged, pages, count)
    return found


def _intervals(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one.to_dict() for name, one in found.items()}


def _knobs(outcomes: Outcomes) -> list[dict[str, Any]]:
    """What each knob does alone: pairs of configurations that differ in nothing else."""
    costs = outcomes.costs()
    differences: dict[str, list[Floats]] = {}
    for number, one in enumerate(outcomes.configurations):
        for other_number, other in enumerate(outcomes.configurations[:number]):
            knobs = one.differs_from(other)
            if len(knobs) == 1:
                gap = np.abs(costs[:, number] - costs[:, other_number])
                differences.setdefault(knobs[0], []).append(gap)
    found = []
    for name, those in differences.items():
        together = np.expm1(np.concatenate(those))
        found.append(
            {
                "knob": name,
                "pairs": len(together),
                "median_change": float(np.median(together)),
                "p95_change": float(np.quantile(together, 0.95)),
            }
        )
    return sorted(found, key=lambda row: -row["p95_change"])


def _one_knob(made: Outcomes, judged: Outcomes) -> dict[str, Any]:
    """What the best configuration gains that differs from the default in one knob alone, or in those of TCP."""
    of_tcp = {"scheme", "initial_window", "slow_start_after_idle"}
    parts = {name: {name} for name in vars(DEFAULT)} | {"all of TCP": of_tcp}
    found = {}
    for name, knobs in parts.items():
        some = [one for one in made.configurations if set(one.differs_from(DEFAULT)) <= knobs]
        if len(some) > 1:
            best = made.columns(some).best()
            found[name] = _intervals(quantiles_of_gain(judged.columns(some), best))
    return found


def _coverage(judged: Outcomes, best: Sequence[int]) -> dict[str, Any]:
    """The configurations that are best most often, and where each beats each other most (the seed's figure 4)."""
    counts = np.bincount(np.asarray(best), minlength=len(judged.configurations))
    top = [int(one) for one in np.argsort(-counts, kind="stable")[:_SHOWN] if counts[one]]
    costs = judged.costs()
    pairs = []
    for one in top:
        for other in top:
            if one != other:
                gain = 1 - np.exp(costs[:, one] - costs[:, other])
                row = int(np.argmax(gain))
                cell = judged.cells[row]
                pairs.append(
                    {
                        "better": judged.configurations[one].name,
                        "than": judged.configurations[other].name,
                        "by": float(gain[row]),
                        "page": cell.page,
                        "condition": cell.condition.name,
                        "better_in": int((gain > 0).sum()),
                    }
                )
    return {
        "best": [
            {"name": judged.configurations[one].name, "share": float(counts[one] / counts.sum())}
            for one in top
        ],
        "pairs": pairs,
    }


def _choices(
    made: Outcomes, judged: Outcomes, pages: Pages, count: int, with_extra: bool
) -> dict[str, Any]:
    """Trivial choices, the tree and the ceiling, each judged on cells that it was not trained on."""
    cells, costs, rows = made.cells, made.costs(), len(made.cells)
    best = made.best()
    folds = crossed.by_condition(cells)
    ways: dict[str, Sequence[int]] = {
        "default": [made.default] * rows,
        "oracle": best,
    }
    if len(folds) > 1:
        ways["best single"] = crossed.held_out_choices(
            folds, crossed.of_tree(trees.exact, cells, costs, 1), rows
        )
        for name, fit in _kinds(with_extra).items():
            ways[f"{name} tree, {count} templates"] = crossed.held_out_choices(
                folds, crossed.of_tree(fit, cells, costs, count), rows
            )
        if with_extra:
            ways["gradient boosting"] = crossed.held_out_choices(folds, _ceiling(made, pages), rows)
    found = {name: _intervals(judge(judged, choice, best)) for name, choice in ways.items()}
    by_value = {}
    for fold in crossed.by_value(cells):
        chooser = crossed.of_tree(trees.exact, cells, costs, count)
        choice = chooser(fold.trained, fold.held_out)
        part = judged.rows(fold.held_out)
        by_value[fold.name] = _intervals(judge(part, choice, [best[row] for row in fold.held_out]))
    return {"held_out_condition": found, "held_out_value": by_value}


def _kinds(with_extra: bool) -> dict[str, trees.Fit]:
    return {name: fit for name, fit in KINDS.items() if with_extra or name == "exact"}


def _ceiling(made: Outcomes, pages: Pages) -> crossed.Chooser:
    costs = made.costs()

    def chooser(trained: Sequence[int], held_out: Sequence[int]) -> list[int]:
        of = [made.cells[row] for row in trained]
        fit = trees.Ceiling.fit(of, costs[list(trained)], made.configurations, pages.about())
        return fit.choices([made.cells[row] for row in held_out])

    return chooser


def _by_templates(made: Outcomes, judged: Outcomes, with_extra: bool) -> list[dict[str, Any]]:
    """Regret and share kept by the number of templates, on conditions held out and with all conditions known."""
    cells, costs = made.cells, made.costs()
    best, folds = made.best(), crossed.by_condition(cells)
    found = []
    for count in range(1, min(trees.MOST_TEMPLATES, costs.shape[1]) + 1):
        row: dict[str, Any] = {"templates": count}
        for name, fit in _kinds(with_extra).items():
            tree = fit([cell.condition for cell in cells], costs, count)
            known = [trees.choose(tree, cell.condition) for cell in cells]
            row[name] = {
                "leaves": len(list(trees.leaves(tree))),
                "known": _intervals(judge(judged, known, best)),
            }
            if len(folds) > 1:
                choice = crossed.held_out_choices(
                    folds, crossed.of_tree(fit, cells, costs, count), len(cells)
                )
                row[name]["held_out"] = _intervals(judge(judged, choice, best))
        found.append(row)
    return found


def _learner(
    learned: Learned, outcomes: Outcomes, judged: Outcomes, best: Sequence[int], count: int
) -> dict[str, Any]:
    """What halving keeps with how many loads: its own choice in each cell, and the tree that its costs give."""
    cells, folds = judged.cells, crossed.by_condition(judged.cells)
    every = int(outcomes.ms.size)
    own = [int(one) for one in np.argmin(learned.costs, axis=1)]
    found = {
        "loads": learned.loads,
        "brute_force_loads": every,
        "share_of_loads": learned.loads / every,
        "rounds": [{"configurations": left, "loads": each} for left, each in learned.rounds],
        "own_choice": _intervals(judge(judged, own, best)),
    }
    if len(folds) > 1:
        choice = crossed.held_out_choices(
            folds, crossed.of_tree(trees.exact, cells, learned.costs, count), len(cells)
        )
        found["tree_held_out"] = _intervals(judge(judged, choice, best))
    return found


def _online(made: Outcomes, judged: Outcomes, pages: Pages, count: int) -> dict[str, Any]:
    """Bandits beside each other, and what the log of one says of policies that it did not follow."""
    costs = made.costs()
    arms = trees.templates(costs, min(_ARMS, costs.shape[1]))
    try:
        played = bandits.compare(
            judged, arms, pages.sizes, loads=_BANDIT_LOADS, repeats=_BANDIT_REPEATS, known=costs
        )
    except PathcastError as error:
        return {"not_played": str(error)}
    policy = bandits.Linear(len(arms), None, np.random.default_rng(1))
    log = bandits.play(policy, arms, judged, pages.sizes, _BANDIT_LOADS, 1)
    tree = trees.exact(
        [cell.condition for cell in made.cells], costs[:, arms], min(count, len(arms))
    )
    targets = {
        "tree": [arms[trees.choose(tree, cell.condition)] for cell in made.cells],
        "best single": [arms[int(np.argmin(costs[:, arms].sum(axis=0)))]] * len(made.cells),
    }
    truth = judged.costs()
    estimates = {}
    for name, choice in targets.items():
        value = float(truth[np.arange(len(choice)), choice].mean())
        estimates[name] = _intervals(bandits.off_policy(log, choice, judged)) | {"truth": value}
    return {
        "arms": [made.configurations[one].name for one in arms],
        "loads": _BANDIT_LOADS,
        "repeats": _BANDIT_REPEATS,
        "policies": {name: _intervals(one) for name, one in played.items()},
        "off_policy_log_ms": estimates,
    }
