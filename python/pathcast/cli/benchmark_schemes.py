"""`pathcast benchmark schemes` and `pathcast benchmark pantheon`: schemes over paths, in workloads."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any

import typer
from rich.table import Table

from pathcast.cli.console import INTERRUPTED, err, out, print_json, progress_bar
from pathcast.cli.options import Json
from pathcast.exceptions import PathcastError
from pathcast.experiments.engine.runner import AnyCase, Status, plan, run
from pathcast.experiments.engine.store import Record, Store
from pathcast.experiments.engine.world import World
from pathcast.experiments.schemes import cases, compare, report
from pathcast.experiments.schemes.plan import Plan, Resolved, resolve

#: Seconds of a run in real time beside its duration: ends that start and stop, the path's packets read.
_BESIDE_S = 4.0
#: Without a terminal, what is left is said so often, in seconds.
_SAID_EVERY_S = 60.0

Here = Annotated[
    World,
    typer.Option(help="emulator: real implementations, in real time. simulator: their algorithms."),
]
AtOnce = Annotated[
    int,
    typer.Option(
        min=1,
        max=64,
        metavar="N",
        help="Runs in real time that run together; more than one disturb each other.",
    ),
]


def schemes(
    file: Annotated[FilePath, typer.Argument(metavar="PLAN", help="The plan, a TOML file.")],
    output: Annotated[
        FilePath,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Runs are kept here, and not run again."
        ),
    ] = FilePath("schemes"),
    world: Here = World.EMULATOR,
    other: Annotated[
        FilePath | None,
        typer.Option(
            "--compare",
            metavar="FOLDER",
            help="Compare the ranking with that of this folder: Kendall's tau by path and metric.",
        ),
    ] = None,
    at_once: AtOnce = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run and for how long, and end.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run schemes over paths in workloads, in random order, and say which differences are significant.

    Example: pathcast benchmark schemes plan.toml -o schemes --world simulator
    """
    resolved = resolve(Plan.load(file), _checked(world))
    beside = None if other is None else compare.read(other)
    ended = run_plan(resolved, world, output, at_once, dry_run=dry_run)
    if ended is None:
        return
    collected, found = report.collect(resolved, world, ended)
    if beside is not None:
        agreements = compare.agreements(collected["blocks"], beside["blocks"])
        collected["agreements"] = [vars(one) for one in agreements]
    page = report.write(output, collected, found)
    if as_json:
        print_json(collected)
        return
    show(collected)
    if beside is not None:
        for line in compare.lines(agreements):
            out.print(line, soft_wrap=True)
    out.print(f"report written to {page}")


def _checked(world: World) -> World:
    if world is World.LIVE:
        raise PathcastError(
            "got --world live; expected simulator or emulator: `pathcast live run` runs the kernel's schemes between two "
            "hosts, and `pathcast-udp` Pathcast's own"
        )
    return world


def run_plan(
    resolved: Resolved, world: World, folder: FilePath, at_once: int, *, dry_run: bool = False
) -> list[tuple[cases.Case, Record]] | None:
    """Run what a folder lacks, with progress; None: it was to be said only.

    Raises:
        PathcastError: a case cannot be run here, or a file cannot be written.

    """
    made = cases.cases(resolved)
    for name, why in resolved.left_out.items():
        err.print(f"left out: {name}: {why}", soft_wrap=True)
    store = Store(folder)
    with store.locked():
        planned = plan(made, store, world, at_once if world is World.EMULATOR else None)
        missing = [case for case, _ in planned.missing]
        left_s = cases.estimate_s(missing, world, _BESIDE_S, planned.at_once)
        err.print(
            f"{len(made)} runs, {len(planned.kept)} kept, {len(missing)} to run: about {_said(left_s)} {_how(world)}; "
            "Ctrl-C stops, the same command continues",
            soft_wrap=True,
        )
        if dry_run:
            return None
        with progress_bar("runs", sum(case.duration_s for case in missing), "s") as show_bar:
            watch = _Watch(left_s, show_bar)
            try:
                return run(planned, store, progress=watch)
            except KeyboardInterrupt:
                err.print("interrupted; runs that ended are kept, the same command continues")
                raise typer.Exit(INTERRUPTED) from None


class _Watch:
    """Shows how far the runs are; without a terminal, it says once a minute what is left."""

    def __init__(self, whole_s: float, show_bar: Any) -> None:  # noqa: ANN401 - a function
        self._whole_s, self._show = whole_s, show_bar
        self._began = self._said_at = time.monotonic()

    def __call__(self, status: Status[AnyCase]) -> None:
        done_s = sum(case.duration_s for case, _ in status.ended)
        under_way_s = sum(list(status.running.values()))
        self._show(done_s + under_way_s)
        now = time.monotonic()
        if not err.is_terminal and now - self._said_at >= _SAID_EVERY_S:
            self._said_at = now
            ended, missing = len(status.ended), status.cases - status.kept
            spent_s = now - self._began
            left_s = spent_s / ended * (missing - ended) if ended else self._whole_s - spent_s
            err.print(f"{ended} of {missing} runs, about {_said(max(left_s, 0.0))} left")


def _how(world: World) -> str:
    return "in real time" if world is World.EMULATOR else "on all cores"


def _said(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def show(collected: Mapping[str, Any]) -> None:
    """Print a row for each scheme in each place, and what failed."""
    table = Table("path", "workload", "scheme", "Mbit/s", "p95 ms", "loss", "finishes", "runs")
    for block in collected["blocks"]:
        for row in block["schemes"]:
            metrics = row["metrics"]
            place = block["workload"]
            if len(collected["plan"]["directions"]) > 1:
                place += f", {block['direction']}"
            table.add_row(
                *(block["path"], place, row["scheme"]),
                _cell(metrics, "throughput_bps", 1e-6),
                _cell(metrics, "delay_p95_ms", 1.0),
                _cell(metrics, "loss", 100.0, " %"),
                _cell(metrics, "completion_s", 1.0, " s"),
                f"{row['runs']}" + (f" ({len(row['failed'])} failed)" if row["failed"] else ""),
            )
    out.print(table)
    for name in _failures(collected["blocks"]):
        out.print(name, soft_wrap=True)


def _failures(blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{row['scheme']} failed on {block['path']}, {block['workload']}: {why}"
        for block in blocks
        for row in block["schemes"]
        for why in dict.fromkeys(row["failed"])
    ]


def _cell(metrics: Mapping[str, Any], name: str, factor: float, unit: str = "") -> str:
    return f"{metrics[name]['mean'] * factor:.3g}{unit}" if name in metrics else "-"
