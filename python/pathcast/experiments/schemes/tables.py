"""Tables of the benchmark, for people and programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathcast.experiments.schemes.measures import METRICS
from pathcast.experiments.schemes.summary import Block, Estimate


@dataclass(frozen=True)
class Table:
    """A table: header and rows of text."""

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def csv(self) -> str:
        """For programs."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.header, *self.rows])
        return text.getvalue()

    def markdown(self) -> str:
        """For people."""
        lines = [self.header, tuple("---" for _ in self.header), *self.rows]
        escaped = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
        return "".join(f"| {line} |\n" for line in escaped)


def label(metric: str) -> str:
    """A metric with its unit."""
    words, unit, _, _ = METRICS[metric]
    return f"{words} ({unit})" if unit else words


def shown(metric: str, one: Estimate) -> str:
    """A mean and half its interval, in the metric's unit."""
    factor = METRICS[metric][2]
    mean = f"{one.mean * factor:.4g}"
    if one.low is None or one.high is None:
        return mean
    half = (one.high - one.low) / 2 * factor
    return f"{mean} ± {half:.0f}" if half >= 99.5 else f"{mean} ± {half:.2g}"


def metrics_of(blocks: Sequence[Block]) -> list[str]:
    """The metrics that any block has, in the order of `METRICS`."""
    having = {metric for block in blocks for row in block.rows for metric in row.metrics}
    return [metric for metric in METRICS if metric in having]


def summary(blocks: Sequence[Block]) -> Table:
    """A row for each scheme in each block."""
    metrics = metrics_of(blocks)
    rows = [
        (
            *(block.path, block.workload, block.direction, row.scheme, str(row.runs)),
            str(len(row.failed)),
            *(
                shown(metric, row.metrics[metric]) if metric in row.metrics else "-"
                for metric in metrics
            ),
        )
        for block in blocks
        for row in block.rows
    ]
    header = ("path", "workload", "direction", "scheme", "runs", "failed", *map(label, metrics))
    return Table("summary", header, tuple(rows))


def significance(blocks: Sequence[Block]) -> Table:
    """For each block and metric the best schemes, and each significant difference."""
    rows = []
    for block in blocks:
        for metric in metrics_of([block]):
            best = block.best(metric)
            mine = [one for one in block.differences if one.metric == metric]
            having = sum(metric in row.metrics for row in block.rows)
            pairs = having * (having - 1) // 2
            told = "; ".join(f"{one.better} over {one.worse}" for one in mine)
            rows.append(
                (
                    *(block.path, block.workload, block.direction, METRICS[metric][0]),
                    ", ".join(best),
                    f"{len(mine)} of {pairs}",
                    told or "none",
                )
            )
    header = (
        *("path", "workload", "direction", "metric", "best, with those that do not differ"),
        *("pairs that differ", "better over worse"),
    )
    return Table("significance", header, tuple(rows))


def kendall(agreements: Sequence[Mapping[str, Any]]) -> Table:
    """Kendall's tau of each block and metric, of results' `agreements`."""
    rows = [
        (
            *(one["path"], one["workload"], one["direction"], METRICS[one["metric"]][0]),
            *(_tau(one["tau"]), _tau(one["tau_implementations"])),
            f"{one['concordant'] + one['discordant']} of {one['pairs']}",
            "; ".join(f"{first} / {second}" for first, second in one["disagree"]) or "none",
        )
        for one in agreements
    ]
    header = (
        *("path", "workload", "direction", "metric", "tau", "tau of implementations"),
        *("pairs told apart in both", "ranked the other way round"),
    )
    return Table("kendall", header, tuple(rows))


def _tau(tau: float | None) -> str:
    return "-" if tau is None else f"{tau:.2f}"
