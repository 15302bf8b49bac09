"""`pathcast benchmark schemes` and `pathcast benchmark pantheon`: schemes over paths, in workloads."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path as FilePath
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from pathcast.cli.console import INTERRUPTED, err, out, print_json, progress_bar
from pathcast.cli.options import Json, Seed
from pathcast.exceptions import PathcastError
from pathcast.experiments.engine.claim import verdict_of
from pathcast.experiments.engine.runner import AnyCase, Status, plan, run
from pathcast.experiments.engine.store import Record, Store
from pathcast.experiments.engine.world import World
from pathcast.experiments.schemes import cases, compare, report, timer
from pathcast.experiments.schemes import pantheon as of_pantheon
from pathcast.experiments.schemes.measures import FlowMeasure
from pathcast.experiments.schemes.plan import (
    Plan,
    Resolved,
    algorithms,
    built,
    implementations,
    over_real_path,
    resolve,
)
from pathcast.experiments.schemes.summary import Block, to_dict
from pathcast.live import address
from pathcast.schemes.live import Host

#: Seconds of a run in real time beside its duration: ends that start and stop, the path's packets read.
_BESIDE_S = 4.0
#: Without a terminal, what is left is said so often, in seconds.
_SAID_EVERY_S = 60.0

Here = Annotated[
    World,
    typer.Option(
        help="emulator: real implementations, in real time. simulator: their algorithms. live: between two hosts."
    ),
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


DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would run and for how long, and end.")
]


ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST",
        help="Run over the path to this host, where `pathcast live server --schemes` runs; implies --world live.",
    ),
]
KeyOption = Annotated[
    FilePath | None,
    typer.Option("--key", metavar="FILE", help="The key of both hosts; `pathcast live key`."),
]


class Every(StrEnum):
    """How often a benchmark is repeated."""

    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"


PrintTimer = Annotated[
    Every | None,
    typer.Option(
        "--print-timer",
        help="Print a systemd timer and a cron line that repeat this command, each time in a folder of its own, and end.",
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
    server: ServerOption = None,
    key: KeyOption = None,
    dry_run: DryRun = False,
    print_timer: PrintTimer = None,
    as_json: Json = False,
) -> None:
    """Run schemes over paths in workloads, in random order, and say which differences are significant.

    Example: pathcast benchmark schemes plan.toml -o schemes --world simulator
    """
    loaded = Plan.load(file)
    host = _host(world, server, key)
    if host is not None:
        if at_once > 1:
            raise PathcastError(
                f"got --at-once {at_once} with --server; expected 1, for runs together would share the path"
            )
        world = World.LIVE
        loaded = over_real_path(loaded, host.server)
    resolved = resolve(loaded, world)
    if print_timer is not None:
        words = ["schemes", str(file.resolve()), "--world", world.value]
        if host is not None:
            words += ["--server", host.server, "--key", str(host.key.resolve())]
        _print_timer(words, output, print_timer)
        return
    beside = None if other is None else compare.read(other)
    if world is not World.SIMULATOR and not dry_run:
        resolved = built(resolved, err.print)
    ended = run_plans([resolved], world, output, at_once, dry_run=dry_run, host=host)
    if ended is None:
        return
    collected, found = report.collect(resolved, world, ended[0])
    if beside is not None:
        agreements = compare.agreements(collected["blocks"], beside["blocks"], implementations())
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


def pantheon(
    output: Annotated[
        FilePath,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Runs are kept here, and not run again."
        ),
    ] = FilePath("pantheon"),
    world: Here = World.SIMULATOR,
    runs: Annotated[int, typer.Option(help="Of each scheme in each place.", min=2, max=100)] = 3,
    duration: Annotated[
        float, typer.Option(metavar="SECONDS", help="Of a run.", min=2, max=600)
    ] = of_pantheon.DURATION_S,
    calibrate: Annotated[
        bool, typer.Option(help="Calibrate paths on what the schemes got; minutes of all cores.")
    ] = True,
    seed: Seed = 1,
    at_once: AtOnce = 1,
    dry_run: DryRun = False,
    print_timer: PrintTimer = None,
    as_json: Json = False,
) -> None:
    """Run the findings of the Pantheon paper on its 18 published paths, with its numbers beside.

    Which scheme wins by path, direction and number of flows; paths calibrated on what schemes got; the ablation of the
    five parameters.

    Example: pathcast benchmark pantheon -o pantheon --runs 3
    """
    made = of_pantheon.parts(_checked(world), runs, duration, seed)
    if print_timer is not None:
        words = ["pantheon", "--world", world.value, "--runs", str(runs)]
        _print_timer(words, output, print_timer)
        return
    plans = [resolve(one, world) for one in made.all()]
    if world is not World.SIMULATOR and not dry_run:
        plans = [built(one, err.print) for one in plans]
    ended = run_plans(plans, world, output, at_once, dry_run=dry_run)
    if ended is None:
        return
    collected, found = report.collect(plans[0], world, ended[0])
    main = found
    reverse, later, ablation = (
        report.collect(one, world, of)[1] for one, of in zip(plans[1:4], ended[1:4], strict=True)
    )
    replicated: list[Block] = []
    if calibrate:
        replicated = _replicate(plans[0], [*ended[4], *ended[5]], world, output, at_once)
    whole = [*main, *reverse, *later, *ablation, *replicated]
    collected["claims"] = of_pantheon.claims(main, reverse, later, ablation, replicated)
    collected["blocks"] = [to_dict(block) for block in whole]
    collected["runs"] = sum(map(len, ended))
    single = {block.path: block for block in main if block.workload == of_pantheon.SINGLE}
    table = of_pantheon.ablation_table(single, {block.path: block for block in ablation})
    page = report.write(output, collected, [*main, *reverse], more=[table])
    if as_json:
        print_json(collected)
        return
    shown = Table("holds", "the paper finds", "the paper's numbers", "got")
    for one in collected["claims"]:
        shown.add_row(verdict_of(one)[0], one["claim"], one["wanted"], one["got"])
    out.print(shown)
    out.print(f"report written to {page}")


def _replicate(
    resolved: Resolved,
    ended: Sequence[tuple[cases.Case, Record]],
    world: World,
    folder: FilePath,
    at_once: int,
) -> list[Block]:
    """Calibrate a path on what the schemes got over each of the six, and run the schemes over it."""
    flows: dict[tuple[str, str], list[FlowMeasure]] = {}
    for case, measured in report.flows_of(ended):
        if measured is not None:
            flows.setdefault((case.path_name, case.scheme), []).extend(measured)
    with progress_bar("calibrated", len(of_pantheon.CALIBRATED), "paths") as show_bar:
        runs_as = algorithms(resolved.plan)
        kept = folder / "calibrated"
        paths = of_pantheon.imitations(flows, runs_as, resolved.plan.seed, kept, show_bar)
    if not paths:
        return []
    one = replace(
        resolved.plan,
        name="replicated",
        paths=paths,
        workloads=tuple(w for w in resolved.plan.workloads if w.name == of_pantheon.SINGLE),
    )
    again = replace(resolved, plan=one.renamed(", replicated"))
    ran = run_plans([again], world, folder, at_once)
    return [] if ran is None else report.collect(again, world, ran[0])[1]


def _print_timer(words: Sequence[str], output: FilePath, every: Every) -> None:
    program = shutil.which("pathcast") or sys.argv[0]
    command = [str(FilePath(program).resolve()), "benchmark", *words]
    sys.stdout.write(
        timer.units(f"pathcast-{words[0]}", command, str(output.resolve()), every.value)
    )


def _checked(world: World) -> World:
    if world is World.LIVE:
        raise PathcastError(
            "got --world live; expected simulator or emulator, for its paths are given: `pathcast benchmark schemes` runs "
            "a plan over the path to a host"
        )
    return world


def _host(world: World, server: str | None, key: FilePath | None) -> Host | None:
    """The server of a live benchmark; none without."""
    if server is None:
        if world is World.LIVE or key is not None:
            raise PathcastError("got no --server; expected the host with which to run, and --key")
        return None
    if world is World.SIMULATOR:
        raise PathcastError("got --world simulator and --server; expected one of them")
    if key is None:
        raise PathcastError("got no --key; expected the file with the server's key")
    address(server)
    return Host(server, key)


def run_plans(
    plans: Sequence[Resolved],
    world: World,
    folder: FilePath,
    at_once: int,
    *,
    dry_run: bool = False,
    host: Host | None = None,
) -> list[list[tuple[cases.Case, Record]]] | None:
    """Run what a folder lacks of some plans, with progress; None: it was to be said only.

    Returns:
        The runs of each plan.

    Raises:
        PathcastError: a case cannot be run here, or a file cannot be written.

    """
    made = [cases.cases(one, host) for one in plans]
    for name, why in {name: why for one in plans for name, why in one.left_out.items()}.items():
        err.print(f"left out: {name}: {why}", soft_wrap=True)
    store = Store(folder)
    with store.locked():
        everything = [case for several in made for case in several]
        planned = plan(everything, store, world, at_once if world is World.EMULATOR else None)
        missing = [case for case, _ in planned.missing]
        left_s = cases.estimate_s(missing, world, _BESIDE_S, planned.at_once)
        err.print(
            f"{len(everything)} runs, {len(planned.kept)} kept, {len(missing)} to run: about {_said(left_s)} "
            f"{_how(world)}; Ctrl-C stops, the same command continues",
            soft_wrap=True,
        )
        if dry_run:
            return None
        with progress_bar("runs", sum(case.duration_s for case in missing), "s") as show_bar:
            watch = _Watch(left_s, show_bar)
            try:
                ended = run(planned, store, progress=watch)
            except KeyboardInterrupt:
                err.print("interrupted; runs that ended are kept, the same command continues")
                raise typer.Exit(INTERRUPTED) from None
    by_name = {case.name: record for case, record in ended}
    return [[(case, by_name[case.name]) for case in several] for several in made]


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
    return "on all cores" if world is World.SIMULATOR else "in real time"


def _said(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def show(collected: Mapping[str, Any]) -> None:
    """Print a row for each scheme in each place, and what failed."""
    finishes = any(
        row["metrics"].get("completion_s")
        for block in collected["blocks"]
        for row in block["schemes"]
    )
    # in a narrow terminal, what rows differ by is not cut
    places = (Column(name, overflow="fold") for name in ("path", "workload"))
    figures = ["Mbit/s", "p95 ms", "loss", *(["finishes"] if finishes else [])]
    table = Table(*places, *(Column(name, no_wrap=True) for name in ("scheme", *figures)), "runs")
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
                *([_cell(metrics, "completion_s", 1.0, " s")] if finishes else []),
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
