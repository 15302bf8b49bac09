"""The learner: trees, halving, bandits and the model, on costs whose best answer is known."""

import itertools
import json
import math

import numpy as np
import pytest

from pathcast.control.learn import bandits, crossed, halving, model, outcomes, trees
from pathcast.control.learn.grid import (
    DEFAULT,
    Cell,
    Condition,
    Configuration,
    cells,
    half,
    space,
)
from pathcast.exceptions import ModelError

GRID = [
    Cell("p", Condition(*one)) for one in itertools.product((1, 5), (50, 150, 400), (0, 0.01, 0.05))
]
SIZES = {"p": 1_000_000}
SPACE = (DEFAULT, Configuration("bbr"), Configuration("cubic", 40, "http/1.1"))


def best_of(condition):
    """The rule that the tests' costs follow: a tree of three leaves has it."""
    if condition.loss < 0.005:
        return 0
    return 1 if condition.rtt_ms > 100 else 2


def costs_of(grid, gap=0.5):
    """Log times: the best configuration of a cell is `gap` below the others."""
    found = np.zeros((len(grid), len(SPACE))) + gap
    for row, cell in enumerate(grid):
        found[row, best_of(cell.condition)] = 0
    return found + 7


def noisy(grid, loads, spread=0.3, seed=1):
    noise = np.random.default_rng(seed).normal(0, spread, (len(grid), 1, loads))
    own = np.random.default_rng(seed + 1).normal(0, spread / 3, (len(grid), len(SPACE), loads))
    return outcomes.Outcomes(tuple(grid), SPACE, np.exp(costs_of(grid)[:, :, None] + noise + own))


def test_the_space_has_no_knob_that_does_nothing():
    found = space()
    assert found[0] == DEFAULT and len(set(found)) == len(found)
    # CUBIC and Reno over TCP 2 x 4 x 2 x 2, BBR over TCP 4 x 2, QUIC 3 x 4
    assert len(found) == 32 + 8 + 12
    assert not [one for one in found if one.scheme == "bbr" and not one.slow_start_after_idle]
    assert not [one for one in found if one.protocol == "h3" and not one.slow_start_after_idle]
    names = [one.name for one in found]
    assert len(set(names)) == len(names) and all(len(name) <= 32 for name in names)
    assert DEFAULT.knobs() == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [(({"protocols": ["h9"]}), "h9"), ({"schemes": ["vegas"]}, "vegas"), ({"initial_windows": [0]}, "0")],
)  # fmt: skip
def test_a_knob_that_is_not_known_is_refused(given, said):
    with pytest.raises(ModelError, match=said):
        space(**given)


def test_the_grid_is_the_issues_and_its_half_never_changes():
    sizes = {"a": 3, "b": 2, "c": 1}
    grid = cells(sizes)
    assert len(grid) == 3 * 24 + 12
    assert {cell.page for cell in grid if cell.condition.bandwidth_mbps == 0.3} == {"c"}
    chosen = half(grid)
    assert len(chosen) == 42 and set(chosen) < set(grid)
    assert half(reversed(grid)) != [] and set(half(reversed(grid))) == set(chosen)
    with pytest.raises(ModelError, match="no page"):
        cells({})


def test_the_exact_tree_finds_the_rule_and_one_template_the_best_single_one():
    conditions, costs = [cell.condition for cell in GRID], costs_of(GRID)
    tree = trees.exact(conditions, costs, 3)
    assert [trees.choose(tree, one) for one in conditions] == [best_of(one) for one in conditions]
    assert sorted(trees.leaves(tree)) == [0, 1, 2]
    single = trees.exact(conditions, costs, 1)
    assert isinstance(single, trees.Leaf)
    assert single.column == int(np.argmin(costs.sum(axis=0)))


def test_the_exact_tree_is_no_worse_than_any_tree_of_two_splits():
    """All trees of one or two splits by hand, on costs without any order."""
    conditions = [cell.condition for cell in GRID]
    costs = np.random.default_rng(5).normal(0, 1, (len(GRID), 3))
    cuts = [(f, trees.threshold(a, b)) for f in range(3) for a, b in itertools.pairwise(sorted({c.features[f] for c in conditions}))]  # fmt: skip

    def least(rows):
        return costs[rows].sum(axis=0).min() if rows else 0.0

    def parted(rows, cut):
        feature, at = cut
        below = [row for row in rows if conditions[row].features[feature] < at]
        return below, [row for row in rows if row not in below]

    everything = list(range(len(conditions)))
    by_hand = []
    for cut in cuts:
        one, other = parted(everything, cut)
        by_hand.append(least(one) + least(other))
        for again in cuts:
            a, b = parted(one, again)
            by_hand.append(least(a) + least(b) + least(other))
            a, b = parted(other, again)
            by_hand.append(least(one) + least(a) + least(b))
    tree = trees.exact(conditions, costs, 3)
    found = sum(costs[row, trees.choose(tree, one)] for row, one in enumerate(conditions))
    assert found <= min(by_hand) + 1e-9


def test_a_leaf_that_gains_next_to_nothing_is_not_grown():
    conditions = [cell.condition for cell in GRID]
    tree = trees.exact(conditions, costs_of(GRID, gap=0.001), 3)
    assert isinstance(tree, trees.Leaf)


def test_cart_splits_where_it_pays():
    pytest.importorskip("sklearn")
    conditions, costs = [cell.condition for cell in GRID], costs_of(GRID)
    tree = trees.cart(conditions, costs, 4)
    right = [trees.choose(tree, one) == best_of(one) for one in conditions]
    assert np.mean(right) > 0.9
    assert isinstance(trees.cart(conditions, costs, 1), trees.Leaf)


def test_the_ceiling_learns_the_rule_of_cells_that_it_has_seen():
    pytest.importorskip("sklearn")
    many = [Cell(page, cell.condition) for page in "ab" for cell in GRID]
    fitted = trees.Ceiling.fit(many, costs_of(many), SPACE, {"a": (1e6, 30.0), "b": (2e6, 90.0)})
    assert fitted.choices(many) == [best_of(cell.condition) for cell in many]


def test_held_out_conditions_are_not_trained_on():
    seen = []

    def fit(conditions, costs, count):
        seen.append({one.name for one in conditions})
        return trees.exact(conditions, costs, count)

    folds = crossed.by_condition(GRID)
    assert len(folds) == len(GRID)
    choice = crossed.held_out_choices(
        folds, crossed.of_tree(fit, GRID, costs_of(GRID), 3), len(GRID)
    )
    for fold, names in zip(folds, seen, strict=True):
        assert fold.name not in names and len(names) == len(GRID) - 1
    assert (
        np.mean([one == best_of(cell.condition) for one, cell in zip(choice, GRID, strict=True)])
        > 0.8
    )
    assert {fold.name for fold in crossed.by_value(GRID)} >= {"rtt_ms 150", "loss 0.01"}


def test_regret_and_gain_are_those_of_a_known_choice():
    judged = noisy(GRID, 60)
    best = [best_of(cell.condition) for cell in GRID]
    ideal = outcomes.judge(judged, best, best)
    assert ideal["regret"].value == pytest.approx(0, abs=1e-12)
    assert ideal["kept"].value == pytest.approx(1)
    plain = outcomes.judge(judged, [0] * len(GRID), best)
    share = np.mean([one != 0 for one in best])
    assert plain["regret"].low < math.expm1(0.5 * share) < plain["regret"].high
    assert plain["gain"].value == pytest.approx(0, abs=1e-12)
    # two cells in three gain as much
    found = outcomes.quantiles_of_gain(judged, best)["median"]
    assert found.value == pytest.approx(1 - math.exp(-0.5), abs=0.03)
    assert found.low <= found.value <= found.high


def test_what_may_be_best_is_one_configuration_where_the_gap_is_clear():
    assert all(len(one) == 1 for one in noisy(GRID, 60).tied())
    equal = outcomes.Outcomes(
        (GRID[0],), SPACE, np.exp(np.random.default_rng(2).normal(7, 0.1, (1, 3, 20)))
    )
    assert len(equal.tied()[0]) > 1


@pytest.mark.parametrize("budget", [1, 4, 20, 51, 208])
def test_halving_makes_no_more_loads_than_its_budget(budget):
    rounds = halving.schedule(budget, 52)
    assert sum(count * each for count, each in rounds) <= budget
    assert all(other[0] == (one[0] + 1) // 2 for one, other in itertools.pairwise(rounds))
    assert rounds[0][0] <= 52


def test_halving_finds_the_best_although_the_ranking_is_wrong():
    """The prior swaps the best with another one in each cell; true loads say otherwise."""
    truth = costs_of(GRID, gap=0.2)
    wrong = truth.copy()
    for row, cell in enumerate(GRID):
        one, other = best_of(cell.condition), (best_of(cell.condition) + 1) % 3
        wrong[row, [one, other]] = truth[row, [other, one]]
    prior = halving.Prior(wrong, np.full_like(wrong, 0.1), agreement=0.3)
    generator, rows = np.random.default_rng(3), {cell: row for row, cell in enumerate(GRID)}

    def load(asked, first, loads):
        return {
            cell: {one: np.exp(generator.normal(truth[rows[cell], SPACE.index(one)], 0.1, loads)).tolist() for one in those}
            for cell, those in asked.items()
        }  # fmt: skip

    learned = halving.halve(GRID, SPACE, prior, load, 8)
    assert learned.loads <= 8 * len(GRID)
    found = np.argmin(learned.costs, axis=1)
    assert np.mean(found == [best_of(cell.condition) for cell in GRID]) > 0.85
    # believed more than the loads, the wrong prior stays
    blind = halving.halve(GRID, SPACE, halving.Prior(wrong, prior.spread, 0.001), load, 8)
    assert np.mean(np.argmin(blind.costs, axis=1) == found) < 0.5


def test_bandits_learn_and_their_propensities_are_probabilities():
    judged = noisy(GRID, 60)
    worst = float(np.mean(judged.costs().max(axis=1) - judged.costs().min(axis=1)))
    for epsilon in (None, 0.05):
        policy = bandits.Linear(3, epsilon, np.random.default_rng(4))
        chances = policy.probabilities(0, bandits.context(GRID[0], 1e6))
        assert chances.sum() == pytest.approx(1) and chances.min() > 0
        log = bandits.play(policy, [0, 1, 2], judged, SIZES, 1500, 1)
        regret = bandits.regret_by_load(log, judged)
        assert regret[-500:].mean() < 0.5 * regret[:100].mean()
        assert regret[-500:].mean() < 0.4 * worst


def test_the_log_of_a_bandit_judges_another_policy():
    judged = noisy(GRID, 200)
    choice = [best_of(cell.condition) for cell in GRID]
    truth = float(judged.costs()[np.arange(len(GRID)), choice].mean())
    held = []
    for seed in range(10):
        policy = bandits.Linear(3, 0.6, np.random.default_rng(seed))
        log = bandits.play(policy, [0, 1, 2], judged, SIZES, 1500, seed)
        found = bandits.off_policy(log, choice, judged)
        held.append([one.low <= truth <= one.high for one in found.values()])
    assert np.mean(held) > 0.7
    # propensities matter: with wrong ones the estimate of the default is off
    log = bandits.play(
        bandits.Linear(3, 0.1, np.random.default_rng(1)), [0, 1, 2], judged, SIZES, 1500, 1
    )
    mean = float(log.log_ms.mean())
    assert abs(mean - truth) > abs(bandits.off_policy(log, choice, judged)["doubly robust"].value - truth)  # fmt: skip


def test_bpftunes_rule_takes_bbr_where_more_than_one_segment_in_64_is_lost():
    rule = bandits.Bpftune(("cubic", "bbr"), np.array([0.0, 0.02]), np.array([1e6, 1e6]), [0, 0])
    seen = bandits.context(GRID[0], 1e6)
    assert rule.probabilities(1, seen).tolist() == [0, 1]
    for _ in range(3):
        assert rule.probabilities(0, seen).tolist() == [1, 0]
        rule.learn(0, seen, 0, math.log(2000))
    # BBR is twice as fast, which CUBIC's next load shows
    rule.learn(0, seen, 1, math.log(1000))
    assert rule.probabilities(0, seen).tolist() == pytest.approx([0.975, 0.025])
    rule.learn(0, seen, 0, math.log(2000))
    assert rule.probabilities(0, seen).tolist() == pytest.approx([0.025, 0.975])


def tree_of(rows=GRID):
    return trees.exact([cell.condition for cell in rows], costs_of(rows), 3)


def test_a_model_is_what_the_manager_reads():
    made = model.Model.of(tree_of(), SPACE)
    read = model.Model.parse(made.to_json())
    assert read.to_dict() == made.to_dict()
    assert made.to_dict()["format"] == 1
    assert made.to_dict()["features"] == ["bandwidth_mbps", "rtt_ms", "loss"]
    # the default has no knob and is not listed
    assert set(made.templates) == {"bbr-10-h2", "cubic-40-h1"}
    assert made.templates["bbr-10-h2"] == {"congestion_control": "bbr"}
    for cell in GRID:
        name = read.template(*cell.condition.features)
        expected = SPACE[best_of(cell.condition)]
        assert name == ("default" if expected == DEFAULT else expected.name)
    assert read.template(math.nan, 50, 0) == "default"


def broken(**changed):
    return json.dumps(model.Model.of(tree_of(), SPACE).to_dict() | changed)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "JSON|RecursionError"),
        ("[]", "object"),
        (broken(format=2), "format 2"),
        (broken(more=1), "keys"),
        (broken(features=["rtt_ms"]), "features"),
        (broken(templates=[{"name": "Big", "knobs": {}}]), "Big"),
        (broken(templates=[{"name": "default", "knobs": {}}]), "taken"),
        (broken(templates=[{"name": "a", "knobs": {"color": 1}}]), "color"),
        (broken(templates=[{"name": "a", "knobs": {"initial_window": "10; reboot"}}]), "initial_window"),
        (broken(tree={"template": "other"}), "other"),
        (broken(tree={"feature": "color", "threshold": 1, "below": {}, "otherwise": {}}), "color"),
        (broken(tree={"feature": "loss", "threshold": "x", "below": {}, "otherwise": {}}), "threshold"),
    ],
)  # fmt: skip
def test_a_model_that_is_not_valid_is_refused(text, said):
    with pytest.raises(ModelError, match=said):
        model.Model.parse(text)
