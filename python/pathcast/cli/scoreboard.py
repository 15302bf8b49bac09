"""`pathcast evaluate scoreboard`: forecasts against the strongest other models, on fixed cells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Column, Table

from pathcast.cli.console import err, out, print_json, progress_bar, styled
from pathcast.cli.kept_runs import run_missing
from pathcast.cli.options import Json, KeptIn
from pathcast.experiments.engine.runner import plan
from pathcast.experiments.engine.store import Record, Store
from pathcast.experiments.engine.world import World
from pathcast.experiments.suite.scoreboard import cells, results
from pathcast.experiments.suite.scoreboard.judge import HOLDS
from pathcast.files import write_beside


def scoreboard(
    held_out: Annotated[
        bool,
        typer.Option("--held-out", help="Judge the seeds and files that no model was made with."),
    ] = False,
    group: Annotated[
        list[str] | None, typer.Option(help="Only these groups of cells; several.")
    ] = None,
    output: KeptIn = FilePath("scoreboard"),
    data: Annotated[
        FilePath | None,
        typer.Option(
            metavar="FOLDER",
            envvar="PATHCAST_DATA",
            help="Traces and rates of real networks; without it, their groups are left out.",
        ),
    ] = None,
    minutes: Annotated[
        int | None,
        typer.Option(
            help="Judge flows of so many minutes, in the simulated cells whose flows can last that long.",
            min=5,
            max=240,
        ),
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(help="Emulated cells that run together.", min=1, max=1000),
    ] = None,
    run: Annotated[
        bool,
        typer.Option(
            "--run/--no-run", help="Whether to run what is missing; or only judge what is there."
        ),
    ] = True,
    as_json: Json = False,
) -> None:
    """Judge forecasts of many kinds of flows against the best other model in each cell."""
    board = cells.scoreboard(held_out=held_out, groups=group or (), data=data, minutes=minutes)
    for name in board.lacking:
        err.print(f"{name}: left out, needs --data or PATHCAST_DATA", soft_wrap=True)
    store = Store(output)
    with store.locked():
        outcomes = _run(board, store, at_once) if run else _kept(board, store)
        with progress_bar("judging", len(board.cells), "cells") as progress:
            found = results.collect(board, outcomes, held_out=held_out, progress=progress)
        lasting = "" if minutes is None else f"-{minutes}min"
        name = f"{'held-out' if held_out else 'results'}{lasting}.json"
        write_beside(output / name, json.dumps(found, allow_nan=False, indent=1) + "\n")
    if as_json:
        print_json(found)
        return
    _print(found)
    out.print(styled("rows written to ", (str(output / name), "bold")))


def _run(
    board: cells.Scoreboard, store: Store, at_once: int | None
) -> list[tuple[cells.Case, Record]]:
    """Run what is missing, first what is simulated."""
    outcomes: list[tuple[cells.Case, Record]] = []
    for world in (World.SIMULATOR, World.EMULATOR):
        cases = [case for cell in board.cells if cell.world is world for case in cell.cases]
        # the longest first, so that the last ones to end keep processors idle for little
        cases.sort(key=lambda case: -case.duration_s)
        outcomes += run_missing(cases, store, world, at_once)
    return outcomes


def _kept(board: cells.Scoreboard, store: Store) -> list[tuple[cells.Case, Record]]:
    """What was run before."""
    outcomes: list[tuple[cells.Case, Record]] = []
    for cell in board.cells:
        if cell.world is not None:
            outcomes += plan(cell.cases, store, cell.world).kept
    return outcomes


def _print(found: Mapping[str, Any]) -> None:
    horizons = found["horizons_s"]
    table = Table(
        *(Column(name, no_wrap=True) for name in ("group", "cells")),
        *(Column(f"{horizon_s:g} s", no_wrap=True) for horizon_s in horizons),
        Column("hold", justify="right", no_wrap=True),
        Column("score", no_wrap=True),
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    by_place = {(row["group"], row["horizon_s"]): row for row in found["summary"]}
    groups = list(dict.fromkeys(row["group"] for row in found["summary"]))
    for group in groups:
        if group is None:
            table.add_section()
        overall = by_place[group, None]
        counts = [_counts(by_place.get((group, horizon_s))) for horizon_s in horizons]
        share = f"{overall['bands_hold'] / overall['cells']:.0%}"
        ratio = overall["interval_score_ratio"]
        table.add_row(
            group or "all",
            str(max(by_place[group, h]["cells"] for h in horizons if (group, h) in by_place)),
            *counts,
            share,
            "-" if ratio is None else f"x {ratio:.2f}",
        )
    out.print(table)
    out.print(
        "better/level/worse than the best other model of each cell, known only afterwards; hold: rows in which "
        f"{HOLDS[0]:.0%} to {HOLDS[1]:.0%} of the truths are in the 90 % band; score: interval score over that "
        "of the best other's bands",
        soft_wrap=True,
    )
    if by_place:
        everything = by_place[None, None]
        exact = everything["bands_hold_if_exact"] / everything["cells"]
        out.print(
            f"bands that hold exactly 90 % of all truths would hold in {exact:.0%} of all rows at most"
        )
        total = everything["verdicts"]
        for role, said in (
            ("best_overall", f"the best other over all cells, {found['best_overall']}"),
            ("flat_curve", "itself without the loss curve"),
            ("no_state", "itself without the window law"),
            ("no_analogs", "itself without analogs of the flow's past"),
            ("no_window", "itself from the flow's past alone"),
        ):
            one = total[role]
            if one["mean_error_ratio"] is not None:
                out.print(
                    f"against {said}: {one['better']}/{one['level']}/{one['worse']}, errors "
                    f"x {one['mean_error_ratio']:.2f}",
                    soft_wrap=True,
                )
    for one in found["left_out"]:
        out.print(f"left out: {one['name']}: {one['because']}", markup=False, soft_wrap=True)


def _counts(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    verdicts = row["verdicts"]["best_by_hindsight"]
    return f"{verdicts['better']}/{verdicts['level']}/{verdicts['worse']}"
