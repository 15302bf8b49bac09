"""`pathcast evaluate limits`: how often Pathcast names what limits a flow."""

from __future__ import annotations

import json
from pathlib import Path as FilePath
from typing import Annotated, Any

import typer
from rich.table import Table

from pathcast.cli.console import out, print_json, styled
from pathcast.cli.kept_runs import run_missing
from pathcast.cli.options import Json, KeptIn
from pathcast.experiments.engine.store import Store
from pathcast.experiments.engine.world import World
from pathcast.experiments.limits import cells, judge
from pathcast.files import write_beside


def limits(
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Judge the flows that no threshold was chosen with.")
    ] = False,
    world: Annotated[
        World, typer.Option(help="Where the flows run; the emulator takes about 15 minutes.")
    ] = World.SIMULATOR,
    count: Annotated[
        int, typer.Option(metavar="N", help="Flows of each limit.", min=1, max=1000)
    ] = cells.FLOWS,
    output: KeptIn = FilePath("limits"),
    at_once: Annotated[
        int | None, typer.Option(help="Emulated flows that run together.", min=1, max=1000)
    ] = None,
    as_json: Json = False,
) -> None:
    """Run flows whose limit is known, and compare with what Pathcast names."""
    if world is World.LIVE:
        raise typer.BadParameter("flows of known limit run in the simulator or the emulator")
    flows = cells.flows(held_out=held_out, count=count)
    store = Store(output)
    with store.locked():
        outcomes = run_missing(flows, store, world, at_once)
        found = judge.collect(outcomes, world=world.value, held_out=held_out)
        name = f"{world.value}{'-held-out' if held_out else ''}.json"
        write_beside(output / name, json.dumps(found, allow_nan=False, indent=1) + "\n")
    if as_json:
        print_json(found)
        return
    _print(found)
    out.print(styled("flows written to ", (str(output / name), "bold")))


def _print(found: dict[str, Any]) -> None:
    table = Table("limit", "flows", "named rightly", "90 % interval", "said", "wrong time")
    for row in found["summary"]:
        if row["limit"] is None:
            table.add_section()
        if not row["flows"]:
            continue
        table.add_row(
            row["limit"] or "all",
            str(row["flows"]),
            f"{row['right']} ({row['right'] / row['flows']:.0%})",
            f"{row['right_p5']:.0%} to {row['right_p95']:.0%}",
            f"{row['mean_probability']:.0%}",
            f"{row['mean_share_error']:.0%}",
        )
    out.print(table)
    out.print(
        "said: the mean probability that Pathcast gave; wrong time: the share of time that it gave to another limit",
        soft_wrap=True,
    )
    wrong = [row for row in found["flows"] if row["counts"] and row["named"] != row["limit"]]
    for row in wrong:
        out.print(f"{row['name']}: {row['limit']}, named {row['named']}", soft_wrap=True)
    unclear = sum(not row["counts"] for row in found["flows"])
    if unclear:
        out.print(
            f"{unclear} flows not counted: no limit held for {judge.LEAST_SHARE:.0%} of the time",
            soft_wrap=True,
        )
    for one in found["left_out"]:
        out.print(f"left out: {one['name']}: {one['because']}", markup=False, soft_wrap=True)
