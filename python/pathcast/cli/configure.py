"""`pathcast configure`: which configuration of a server loads pages soonest, by network condition."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path as FilePath
from typing import Annotated, Any

import typer
from rich.table import Table

from pathcast.cli.console import INTERRUPTED, err, out, print_json, progress_bar
from pathcast.cli.options import Json, KeptIn
from pathcast.exceptions import ModelError, PathcastError
from pathcast.experiments.engine.world import World
from pathcast.files import write_beside

app = typer.Typer(
    help="Learn and evaluate configurations of servers by network condition, and list what can be configured.",
    no_args_is_help=True,
)


@app.callback()
def main() -> None:
    """Learn and evaluate configurations of servers by network condition, and list what can be configured."""


Pages = Annotated[
    list[FilePath],
    typer.Argument(metavar="PAGE...", help="HARs or page files; their replicas are loaded."),
]
TruthOf = Annotated[
    World,
    typer.Option(
        "--truth",
        help="Which loads decide: simulator, or emulator (Chromium and nginx; Linux; root).",
    ),
]
Templates = Annotated[
    int, typer.Option(help="Templates of the tree at most; the default is one.", min=1, max=8)
]
Protocols = Annotated[
    list[str] | None,
    typer.Option("--protocol", help="http/1.1, h2 or h3 (simulator alone); several. Default: all."),
]
Schemes = Annotated[
    list[str] | None,
    typer.Option("--scheme", help="Congestion control; several. Default: cubic, reno, bbr."),
]
Windows = Annotated[
    list[int] | None,
    typer.Option("--initial-window", metavar="PACKETS", help="Several. Default: 4, 10, 20 and 40."),
]
Bandwidths = Annotated[
    list[float] | None,
    typer.Option(
        "--bandwidth",
        metavar="MBIT/S",
        help="Of the link; several. Default: 1 and 5, and 0.3 for the smallest page.",
        min=0.01,
        max=100_000,
    ),
]
Rtts = Annotated[
    list[float] | None,
    typer.Option(
        "--rtt",
        metavar="SECONDS",
        help="Round-trip time; several. Default: 0.05, 0.15 and 0.4.",
        min=0.001,
        max=10,
    ),
]
Losses = Annotated[
    list[float] | None,
    typer.Option(
        "--loss",
        help="Towards the browser; several. Default: 0, 0.01, 0.025, 0.05.",
        min=0,
        max=0.5,
    ),
]
Idle = Annotated[
    bool | None,
    typer.Option(
        "--idle/--no-idle",
        help="Try TCP without slow start after idle, too. Default: in the simulator alone.",
    ),
]
AtOnce = Annotated[
    int | None, typer.Option(help="Runs of the emulator together. Default: one.", min=1, max=64)
]


@app.command(name="learn")
def learn(
    pages: Pages,
    truth: TruthOf = World.SIMULATOR,
    templates: Templates = 4,
    budget: Annotated[
        int, typer.Option(help="True loads of each page under each condition.", min=1, max=10_000)
    ] = 20,
    protocols: Protocols = None,
    schemes: Schemes = None,
    initial_windows: Windows = None,
    bandwidths: Bandwidths = None,
    rtts: Rtts = None,
    losses: Losses = None,
    idle: Idle = None,
    at_once: AtOnce = None,
    output: KeptIn = FilePath("configurations"),
    as_json: Json = False,
) -> None:
    """Learn which configuration loads pages soonest under which network condition, and write model.json.

    Formulas and simulated loads rank; loads by --truth decide, of ever fewer configurations (successive halving).
    Ctrl-C stops; the same command goes on.

    Example: pathcast configure learn page.har --templates 4
    """
    from pathcast.experiments.pages.configurations import learning
    from pathcast.experiments.pages.configurations.evaluation import model_of

    asked = _experiment(
        pages, output, truth, protocols, schemes, initial_windows, bandwidths, rtts, losses, idle
    )
    with _bars() as show:
        makes = asked.truth(output, show, at_once)
        with makes.store.locked():
            before = learning.prior(asked, makes, asked.cells)
            found = learning.learn(asked, makes, asked.cells, budget, before)
    model, tree = model_of(asked.cells, found.costs, asked.configurations, templates)
    file = output / "model.json"
    write_beside(file, model.to_json())
    if as_json:
        rounds = [{"configurations": left, "loads": each} for left, each in found.rounds]
        print_json({"model": model.to_dict(), "loads": found.loads, "rounds": rounds})
        return
    from pathcast.control.learn.trees import text

    for line in text(tree, asked.configurations):
        out.print(line, markup=False)
    every = len(asked.cells) * len(asked.configurations)
    out.print(
        f"{len(asked.configurations)} configurations in {len(asked.cells)} cells: {found.loads} loads, where one of each "
        f"takes {every}",
        soft_wrap=True,
    )
    out.print(f"model written to {file}")


@app.command(name="evaluate")
def evaluate(
    pages: Pages,
    truth: TruthOf = World.SIMULATOR,
    templates: Templates = 4,
    loads: Annotated[
        int,
        typer.Option(
            help="Of each page by each configuration under each condition.", min=2, max=10_000
        ),
    ] = 40,
    protocols: Protocols = None,
    schemes: Schemes = None,
    initial_windows: Windows = None,
    bandwidths: Bandwidths = None,
    rtts: Rtts = None,
    losses: Losses = None,
    idle: Idle = None,
    at_once: AtOnce = None,
    output: KeptIn = FilePath("configurations"),
    as_json: Json = False,
) -> None:
    """Load pages by every configuration under every condition, and judge what learners keep of the best one's gain.

    In the emulator a fixed half of the conditions is loaded. The learner makes a tenth of the loads. Writes
    results.json, model.json and report.html. Ctrl-C stops; the same command goes on.

    Example: pathcast configure evaluate page.har --loads 20
    """
    from pathcast.experiments.pages.configurations import evaluation, learning, report

    asked = _experiment(
        pages, output, truth, protocols, schemes, initial_windows, bandwidths, rtts, losses, idle
    )
    cells = asked.judged_cells()
    budget = max(1, int(learning.SHARE * loads * len(asked.configurations)))
    with _bars() as show:
        makes = asked.truth(output, show, at_once)
        with makes.store.locked():
            outcomes = makes.brute_force(cells, asked.configurations, loads)
            before = learning.prior(asked, makes, cells)
            learned = learning.learn(asked, makes, cells, budget, before)
    found = evaluation.evaluate(
        outcomes,
        asked.pages,
        learned=learned,
        before=before,
        count=templates,
        with_extra=_has_extra(),
    )
    found |= {"truth": truth.value, "command": sys.argv[1:]}
    written = report.write(output, found)
    if as_json:
        print_json(found)
        return
    for line in report.lines(found):
        out.print(line, markup=False, soft_wrap=True)
    out.print(_table(found))
    out.print(f"report written to {written}")


@app.command(name="space")
def space(as_json: Json = False) -> None:
    """List what can be configured on this machine, at which level, and whether it does anything here (Linux).

    As root, each knob of the kernel is tried on real connections in network namespaces.

    Example: pathcast configure space --json
    """
    from dataclasses import asdict

    from pathcast.control.space import space as tried

    knobs = tried()
    if as_json:
        print_json([asdict(one) for one in knobs])
        return
    table = Table("knob", "scope", "how", "effective", "seen")
    for one in knobs:
        for number, place in enumerate(one.places):
            effective = {True: "yes", False: "no", None: "not tried"}[place.effective]
            name = "" if number else f"{one.knob} (pruned)" if one.pruned else one.knob
            table.add_row(name, place.scope, place.how, effective, place.seen)
        if one.why:
            table.add_row("", "", "", "", f"{one.knob}: {one.why}")
    out.print(table)


def _has_extra() -> bool:
    from pathcast.extras import need

    try:
        need("sklearn", "learning", "CART and gradient boosting")
    except PathcastError as error:
        err.print(f"left out: {error}", soft_wrap=True)
        return False
    return True


def _experiment(
    pages: list[FilePath],
    output: FilePath,
    truth: World,
    protocols: list[str] | None,
    schemes: list[str] | None,
    initial_windows: list[int] | None,
    bandwidths: list[float] | None,
    rtts: list[float] | None,
    losses: list[float] | None,
    idle: bool | None,
) -> Any:  # noqa: ANN401 - of a module that is imported late
    from pathcast.experiments.pages.configurations import learning

    if initial_windows and any(one < 1 for one in initial_windows):
        raise ModelError(f"got initial window {min(initial_windows)}; expected 1 to 1000 packets")
    return learning.experiment(
        pages,
        output,
        truth,
        protocols=protocols,
        schemes=schemes,
        initial_windows=initial_windows,
        bandwidths_mbps=bandwidths,
        rtts_ms=None if rtts is None else [1e3 * one for one in rtts],
        losses=losses,
        idle=idle,
    )


@contextmanager
def _bars() -> Iterator[Any]:
    """A progress bar over each batch of loads; what was made is kept after Ctrl-C."""
    with progress_bar("loads", 1.0, "of this batch") as bar:

        def show(done: int, total: int, left_s: float) -> None:
            bar(done / total if total else 1.0)

        try:
            yield show
        except KeyboardInterrupt:
            err.print("interrupted; loads that were done are kept, the same command goes on")
            raise typer.Exit(INTERRUPTED) from None


def _table(found: Mapping[str, Any]) -> Table:
    table = Table("choice", "regret", "gain over default", "of the best one's gain")
    for name, row in found["choices"]["held_out_condition"].items():
        table.add_row(name, *(_percent(row[key]) for key in ("regret", "gain", "kept")))
    return table


def _percent(one: Mapping[str, float | None]) -> str:
    if one["value"] is None:
        return "-"
    low, high = (f"{100 * (one[key] or 0):.1f}" for key in ("low", "high"))
    return f"{100 * one['value']:.1f} % ({low} to {high})"
