"""Means of runs with confidence intervals, and which differences between schemes are significant."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pathcast.experiments.schemes.cases import Case
from pathcast.experiments.schemes.measures import METRICS, FlowMeasure, of_run
from pathcast.experiments.schemes.plan import Plan
from pathcast.extras import need

#: Of intervals, and one minus the level of tests.
CONFIDENCE = 0.95
#: Values that differ by less, relatively, are the same: rounding of sums.
_SAME = 1e-9


@dataclass(frozen=True)
class Estimate:
    """The mean of a metric over runs.

    Attributes:
        mean: of the runs.
        sd: their standard deviation; None: of one run.
        low: lower bound of the mean's 95 % interval, by Student's t; None: of one run.
        high: upper bound.
        runs: how many.

    """

    mean: float
    sd: float | None
    low: float | None
    high: float | None
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Of at least one value."""
        mean = float(np.mean(values))
        if len(values) < 2:
            return cls(mean, None, None, None, len(values))
        if _are_same(values):
            return cls(mean, 0.0, mean, mean, len(values))
        sd = float(np.std(values, ddof=1))
        student = need("scipy.stats", "probing", "the benchmark of schemes").t
        half = (
            float(student.ppf(0.5 + CONFIDENCE / 2, len(values) - 1)) * sd / math.sqrt(len(values))
        )
        return cls(mean, sd, mean - half, mean + half, len(values))

    def is_apart_from(self, other: Estimate) -> bool:
        """Whether the two intervals do not overlap."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return False
        return self.low > other.high or other.low > self.high


@dataclass(frozen=True)
class Row:
    """A scheme in a block.

    Attributes:
        scheme: the plan's name.
        metrics: of those in `METRICS` that were measured.
        values: of each run that counts, by metric.
        runs: how many count.
        failed: why each other run does not.
        controller: what the implementation says is at work.
        flows: of the first run that counts.

    """

    scheme: str
    metrics: Mapping[str, Estimate]
    values: Mapping[str, tuple[float, ...]]
    runs: int
    failed: tuple[str, ...] = ()
    controller: str = ""
    flows: tuple[FlowMeasure, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Difference:
    """Two schemes whose means of a metric differ significantly.

    Attributes:
        metric: of `METRICS`.
        better: the scheme whose mean is better.
        worse: the other.
        p: of Welch's t-test, by Holm's correction over all pairs of the block.

    """

    metric: str
    better: str
    worse: str
    p: float


@dataclass(frozen=True)
class Block:
    """What was compared with each other: a path, a workload, a direction."""

    path: str
    workload: str
    kind: str
    direction: str
    rows: tuple[Row, ...]
    differences: tuple[Difference, ...]

    def row(self, scheme: str) -> Row | None:
        """The row of a scheme."""
        return next((row for row in self.rows if row.scheme == scheme), None)

    def best(self, metric: str) -> tuple[str, ...]:
        """The scheme with the best mean, and those that do not differ from it significantly, best first."""
        sign = -1 if METRICS[metric][3] else 1
        rows = [row for row in self.rows if metric in row.metrics]
        rows.sort(key=lambda row: sign * row.metrics[metric].mean)
        if not rows:
            return ()
        first = rows[0].scheme
        apart = {
            one.worse for one in self.differences if one.metric == metric and one.better == first
        }
        return tuple(row.scheme for row in rows if row.scheme not in apart)


def blocks(plan: Plan, ended: Sequence[tuple[Case, list[FlowMeasure] | None]]) -> list[Block]:
    """Summarize the runs of a plan, in its order.

    Args:
        plan: that they are of.
        ended: each case with its flows; None: no attempt was valid.

    """
    places: dict[tuple[str, str, str], dict[str, list[tuple[Case, list[FlowMeasure] | None]]]] = {}
    for case, flows in sorted(ended, key=lambda one: one[0].number):
        places.setdefault(case.block, {}).setdefault(case.scheme, []).append((case, flows))
    found = []
    for path, workload, direction in itertools.product(plan.paths, plan.workloads, plan.directions):
        schemes = places[path, workload.name, direction]
        rows = tuple(_row(name, schemes[name]) for name in plan.schemes)
        kind = workload.kind
        found.append(Block(path, workload.name, kind, direction, rows, differences(rows)))
    return found


def _row(scheme: str, runs: Sequence[tuple[Case, list[FlowMeasure] | None]]) -> Row:
    values: dict[str, list[float]] = {}
    failed: list[str] = []
    first: list[FlowMeasure] = []
    for case, flows in runs:
        why = [f"{one.scheme}: {one.why_not}" for one in flows or () if one.why_not]
        if flows is None or why:
            failed.append("; ".join(why) or "no attempt was valid")
            continue
        first = first or flows
        for metric, value in of_run(flows, case.workload.kind).items():
            if value is not None:
                values.setdefault(metric, []).append(value)
    return Row(
        scheme,
        {metric: Estimate.of(of) for metric, of in values.items()},
        {metric: tuple(of) for metric, of in values.items()},
        len(runs) - len(failed),
        tuple(failed),
        next((one.controller for one in first if one.under_test), ""),
        tuple(first),
    )


def differences(rows: Sequence[Row]) -> tuple[Difference, ...]:
    """Find which pairs differ: Welch's t-test of each pair and metric, corrected over the pairs by Holm's method."""
    found: list[Difference] = []
    for metric, (_, _, _, more_is_better) in METRICS.items():
        having = [row for row in rows if len(row.values.get(metric, ())) > 1]
        tested = [
            (welch_p(one.values[metric], other.values[metric]), one, other)
            for one, other in itertools.combinations(having, 2)
        ]
        tested.sort(key=lambda pair: pair[0])
        corrected = 0.0
        for number, (p, one, other) in enumerate(tested):
            corrected = max(corrected, min(1.0, p * (len(tested) - number)))
            if corrected >= 1 - CONFIDENCE:
                break
            first = one.metrics[metric].mean > other.metrics[metric].mean
            better, worse = (one, other) if first == more_is_better else (other, one)
            found.append(Difference(metric, better.scheme, worse.scheme, corrected))
    return tuple(found)


def welch_p(one: Sequence[float], other: Sequence[float]) -> float:
    """The p-value of Welch's t-test; of values that do not vary at all, 0 if they differ and 1 if not."""
    if _are_same(one) and _are_same(other):
        return 1.0 if _are_same([*one, *other]) else 0.0
    stats = need("scipy.stats", "probing", "the benchmark of schemes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one series that does not vary: the other one does
        return float(stats.ttest_ind(one, other, equal_var=False).pvalue)


def _are_same(values: Sequence[float]) -> bool:
    """Whether values differ by rounding at most."""
    return bool(np.ptp(values) <= _SAME * max(map(abs, values)))


def to_dict(block: Block) -> dict[str, Any]:
    """A block as JSON."""
    return {
        "path": block.path,
        "workload": block.workload,
        "kind": block.kind,
        "direction": block.direction,
        "schemes": [
            {
                "scheme": row.scheme,
                "runs": row.runs,
                "failed": list(row.failed),
                "controller": row.controller,
                "metrics": {metric: vars(estimate) for metric, estimate in row.metrics.items()},
                "values": {metric: list(values) for metric, values in row.values.items()},
            }
            for row in block.rows
        ],
        "best": {metric: list(block.best(metric)) for metric in METRICS if block.best(metric)},
        "differences": [vars(one) for one in block.differences],
    }
