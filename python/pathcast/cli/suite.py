"""`pathcast evaluate suite`: the paper's figures and tables on the kernel's TCP."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from pathcast.cli.console import INTERRUPTED, err, out, print_json, progress_bar, styled
from pathcast.cli.options import Json, KeptIn
from pathcast.exceptions import PathcastError
from pathcast.experiments.engine.claim import verdict_of
from pathcast.experiments.engine.runner import ATTEMPTS, Plan, Status, plan, run
from pathcast.experiments.engine.store import Store
from pathcast.experiments.engine.world import World
from pathcast.experiments.suite import NETWORKS, Form, cells, judge, results, short_flows
from pathcast.experiments.suite import output as pages
from pathcast.experiments.suite.judge import AnyCell


def suite(
    full: Annotated[
        bool,
        typer.Option(
            "--full/--short",
            help="An hour a cell and 1 to 10 connections, as in the paper; or two minutes a cell.",
        ),
    ] = False,
    output: KeptIn = FilePath("suite"),
    network: Annotated[
        list[str] | None,
        typer.Option(help=f"Only these: {', '.join((*NETWORKS, short_flows.NETWORK))}."),
    ] = None,
    scheme: Annotated[list[str] | None, typer.Option(help="Only cubic or reno.")] = None,
    npc: Annotated[
        list[int] | None, typer.Option(help="Connections in parallel instead of the form's.")
    ] = None,
    seed: Annotated[list[int], typer.Option(help="Seeds; each cell once with each.", min=0)] = [1],  # noqa: B006 - typer's way to give a list's default
    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Of each cell instead of the form's.")
    ] = None,
    world: Annotated[
        Literal["emulator", "simulator"],
        typer.Option(help="simulator: to try things, in seconds; its figures say so."),
    ] = "emulator",
    at_once: Annotated[
        int | None,
        typer.Option(
            help="Cells that run together; default: two for each processor, if memory has room.",
            min=1,
            max=1000,
        ),
    ] = None,
    attempts: Annotated[
        int, typer.Option(help="How often a cell is run until it is valid.", min=1, max=100)
    ] = ATTEMPTS,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run cells on a Ray cluster: HOST:PORT, ray://HOST:PORT or local.",
        ),
    ] = None,
    traces: Annotated[
        list[FilePath] | None,
        typer.Option(metavar="PATH", help="Judge these traces too: files, or folders of them."),
    ] = None,
    run_cells: Annotated[
        bool, typer.Option("--run/--no-run", help="Whether to run what is missing.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Run the networks of the papers, and score all models against the papers' figures."""
    if cluster is not None and at_once is not None:
        raise PathcastError(
            f"at-once is {at_once} and cluster is {cluster}, expected one of them: a cluster runs "
            "one cell for each of its processors"
        )
    form = Form.FULL if full else Form.SHORT
    chosen = _chosen(
        form,
        networks=network or (),
        schemes=scheme or (),
        npcs=npc or (),
        seeds=seed,
        duration_s=duration,
    )
    trace_files = _trace_files(traces or [])
    store = Store(output)
    with store.locked():
        planned = plan(chosen, store, World(world), at_once)
        if run_cells:
            if not as_json:
                _announce(planned, output, cluster)
            with _running(planned, output) as progress:
                outcomes = run(
                    planned, store, attempts=attempts, cluster=cluster, progress=progress
                )
        else:
            outcomes = list(planned.kept)
        order = {cell.name: i for i, cell in enumerate(chosen)}
        outcomes.sort(key=lambda outcome: order[outcome[0].name])
        with progress_bar("judging", len(outcomes) + len(trace_files), "traces") as progress:
            judged = judge.judge(outcomes, trace_files, progress)
        collected = results.collect(judged, form=form, world=world, seeds=seed)
        page = pages.write(output, judged, collected)
    valid = sum(record.valid for _, record in outcomes)
    if as_json:
        print_json(
            {
                "report": str(page),
                "results": str(output / "results.json"),
                "form": form.value,
                "world": world,
                "cells": len(chosen),
                "valid": valid,
                "claims": collected["claims"],
                "left_out": collected["left_out"],
            }
        )
        return
    _print_claims(collected["claims"])
    if valid < len(chosen):
        err.print(
            f"{len(chosen) - valid} of {len(chosen)} cells have no valid run and are in no table; the "
            "same command runs them again"
        )
    out.print(styled("report written to ", (str(page), "bold")))


def _chosen(
    form: Form,
    *,
    networks: Sequence[str],
    schemes: Sequence[str],
    npcs: Sequence[int],
    seeds: Sequence[int],
    duration_s: float | None,
) -> list[AnyCell]:
    """Cells and short flows; these have their own connections, durations and CUBIC alone."""
    others = [name for name in networks if name != short_flows.NETWORK]
    found: list[AnyCell] = []
    of_networks = cells(
        form, networks=others, schemes=schemes, npcs=npcs, seeds=seeds, duration_s=duration_s
    )
    if others or not networks:
        found += of_networks
    wanted = short_flows.NETWORK in networks if networks else not (npcs or duration_s)
    if wanted and (not schemes or "cubic" in schemes):
        found += short_flows.cells(full=form is Form.FULL, seeds=seeds)
    return found


def _trace_files(paths: list[FilePath]) -> list[FilePath]:
    """Files as they are; of folders all files in them.

    Raises:
        PathcastError: there is nothing of that name.

    """
    found: list[FilePath] = []
    for path in paths:
        try:
            inside = sorted(path.iterdir()) if path.is_dir() else [path]
        except OSError as error:
            raise PathcastError(f"{path}: cannot be read: {error.strerror}") from None
        if not path.exists():
            raise PathcastError(f"{path}: there is no such file or folder")
        found += [file for file in inside if file.is_file() and not file.name.startswith(".")]
    return found


def _announce(planned: Plan[AnyCell], output: FilePath, cluster: str | None) -> None:
    """What will happen, how long it takes and what it needs, before it begins."""
    there, missing = len(planned.kept), len(planned.missing)
    if there:
        out.print(f"{there} of {there + missing} cells are in {output} already")
    damaged = [(cell, why) for cell, why in planned.missing if why != "not run yet"]
    for cell, why in damaged[:10]:
        out.print(f"{cell.name}: {why}: it is run again", soft_wrap=True)
    if len(damaged) > 10:
        out.print(f"and {len(damaged) - 10} more")
    if not missing:
        return
    if planned.world is World.SIMULATOR:
        out.print(f"{missing} cells, simulated")
        return
    disk = f"about {_size(planned.disk_bytes)} of traces"
    if cluster is not None:
        hours = _duration(planned.work_s)
        out.print(f"{missing} cells on {cluster}: {hours} of runs in all; {disk}")
        return
    out.print(
        f"{missing} cells in real time, {planned.at_once} together: about "
        f"{_duration(planned.estimate_s)}, more if runs are not valid; {disk}; Ctrl-C stops, the same "
        "command goes on",
        soft_wrap=True,
    )


def _size(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.0f} GB" if size_bytes >= 3e9 else f"{size_bytes / 1e6:.0f} MB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


@contextlib.contextmanager
def _running(
    planned: Plan[AnyCell], output: FilePath
) -> Iterator[Callable[[Status[AnyCell]], None]]:
    """Show the progress of the runs; after Ctrl-C, say how to continue."""
    told = 0
    with Progress(
        BarColumn(bar_width=16),
        TextColumn("{task.completed:.0f} of {task.total:.0f} cells", markup=False),
        TimeElapsedColumn(),
        # the last is cut where room ends
        TextColumn("{task.fields[left]}{task.description}", markup=False),
        console=err,
        transient=True,
        disable=not err.is_terminal or not planned.missing,
    ) as bar:
        task = bar.add_task("", total=len(planned.missing), left="")

        def tell(status: Status[AnyCell]) -> None:
            nonlocal told
            for cell, record in status.ended[told:]:
                told += 1
                if not err.is_terminal or record.invalid_because:
                    err.print(
                        _ended(cell.name, record.valid, record.invalid_because), soft_wrap=True
                    )
            running = dict(status.running)  # threads write to it
            now = "".join(f"; {name} {s:.0f} s" for name, s in sorted(running.items())[:1])
            bar.update(
                task,
                completed=len(status.ended),
                description=now + (f" and {len(running) - 1} more" if len(running) > 1 else ""),
                left="" if planned.world is World.SIMULATOR else f"{_duration(status.left_s)} left",
            )

        try:
            yield tell
        except KeyboardInterrupt:
            sys.stdout.flush()
            err.print(
                f"interrupted; what ended is kept in {output}, and the same command goes on from there",
                markup=False,
                soft_wrap=True,
            )
            raise typer.Exit(INTERRUPTED) from None


def _ended(name: str, valid: bool, invalid_because: tuple[tuple[str, ...], ...]) -> Text:
    if not invalid_because:
        return styled(f"{name}: done")
    why = "; ".join(dict.fromkeys(reason for one in invalid_because for reason in one))
    if valid:
        return styled(f"{name}: done; valid after {len(invalid_because) + 1} runs ({why})")
    none = f"{name}: none of {len(invalid_because)} runs was valid"
    return styled((none, "bold red"), f" ({why})")


def _print_claims(claims: list[dict[str, Any]]) -> None:
    table = Table("", "claim", "required", "measured")
    for row in claims:
        table.add_row(styled(verdict_of(row)), row["claim"], row["wanted"], row["got"])
    out.print(table)
