"""`pathcast what-if`: what other configurations would get over a path."""

from __future__ import annotations

from itertools import product
from pathlib import Path as FilePath
from typing import Annotated, Any

import typer
from rich.table import Table

from pathcast._what_if import (
    DRAWS,
    DURATION_S,
    LONGEST,
    METRICS,
    QUANTITIES,
    Alternative,
    WhatIf,
    check_alternatives,
    is_endless,
)
from pathcast._what_if import what_if as run
from pathcast.calibration import Calibration, posterior_file
from pathcast.cli.calibrate import calibrated, print_calibration
from pathcast.cli.console import out, print_json, progress_bar
from pathcast.cli.options import Json, Seed, scheme_by
from pathcast.files import check_output, write_beside
from pathcast.path import Path, is_name
from pathcast.scenario import Scenario, load

_BULK = "'bulk'"


def what_if(
    source: Annotated[
        FilePath,
        typer.Argument(
            metavar="PATH|TRACE",
            help="A path or scenario file or the name of a built-in one, with its posterior if `pathcast calibrate` wrote it; or a trace, which is calibrated first.",
        ),
    ],
    scheme: Annotated[
        list[str] | None,
        typer.Option(help="Congestion control; several are compared; default: cubic and bbr."),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOML",
            help="What each flow sends, such as \"{ kind = 'transfer', size = '5 MB', count = 1 }\"; several.",
        ),
    ] = None,
    initial_window: Annotated[
        list[int] | None, typer.Option(metavar="PACKETS", help="First window; several.", min=1)
    ] = None,
    flows: Annotated[
        list[int] | None, typer.Option(help="Flows at once; several numbers.", min=1, max=1000)
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help=f"Rank by {', '.join(METRICS)}; default: completion_s where all are done, else goodput_bps."
        ),
    ] = None,
    flow: Annotated[
        str | None, typer.Option(metavar="N|ADDRESS:PORT", help="Which flow of a trace.")
    ] = None,
    trace_scheme: Annotated[
        str | None, typer.Option(help="Congestion control of the trace; default: what it says.")
    ] = None,
    duration: Annotated[
        float, typer.Option(metavar="SECONDS", help="Of flows without an end.", min=0.1)
    ] = DURATION_S,
    draws: Annotated[
        int, typer.Option(help="Runs of each alternative.", min=1, max=10_000)
    ] = DRAWS,
    output: Annotated[
        FilePath | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write a report here, one HTML page."),
    ] = None,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Compare what other schemes, windows and workloads would get on a path, or on the path of a trace.

    Each alternative runs over the same paths, drawn from what a trace says about its path. Intervals hold both
    chance and what is not known of the path.
    """
    if output is not None:
        check_output(output)
    windows: list[int | None] = [None] if not initial_window else [*initial_window]
    alternatives = [
        Alternative(one, sends, window, count)
        for one, sends, window, count in product(
            scheme or ["cubic", "bbr"], workload or [_BULK], windows, flows or [1]
        )
    ]
    check_alternatives(alternatives, by)
    path = read_path(source, flow, trace_scheme, seed)
    with progress_bar("simulated", 1.0, "") as show:
        found = run(
            path, alternatives, by=by, duration_s=duration, draws=draws, seed=seed, progress=show
        )
    if output is not None:
        from pathcast.report.what_if import render_what_if  # takes long to import

        write_beside(output, render_what_if(found, path, str(source), draws=draws, seed=seed))
    if as_json:
        print_json(found.to_dict() | {"path": _path_json(path)})
        return
    if isinstance(path, Calibration):
        print_calibration(path, str(source))
    _print(found, duration)
    if output is not None:
        out.print(f"{output}: the report")


def read_path(
    source: FilePath,
    flow: str | None,
    trace_scheme: str | None,
    seed: int,
    by: str = "give it with --trace-scheme, such as --trace-scheme cubic",
) -> Path | Scenario | Calibration:
    """Read a path or scenario file, with the posterior beside it if there is one; else a trace.

    `by` says how to give the congestion control of a trace that does not say it.
    """
    if source.name.endswith(".posterior.json"):
        return Calibration.load(source)
    if source.suffix == ".toml":
        if FilePath(posterior_file(source)).is_file():
            return Calibration.load(source)
        return load(source)
    if not source.is_file() and is_name(str(source)):
        return load(source)
    with scheme_by(by):
        return calibrated([source], flow, trace_scheme, seed)


def _path_json(path: Path | Scenario | Calibration) -> dict[str, Any]:
    if not isinstance(path, Calibration):
        return {"file": path.file, "path": path.to_toml()}
    return path.to_dict()


def _print(found: WhatIf, duration_s: float) -> None:
    complete = any(one.completion_s is not None for one in found.outcomes)
    columns = ["", "alternative", "goodput, Mbit/s", "95 % delay, ms", "packets lost, %"]
    table = Table(*columns, *(["completion, s"] if complete else []), "best")
    for place, number in enumerate(found.ranking, 1):
        one = found.outcomes[number]
        completion = "" if one.completion_s is None else one.completion_s.text()
        table.add_row(
            str(place),
            str(one.alternative),
            one.goodput_bps.text(1e-6),
            one.delay_p95_ms.text(),
            one.loss.text(100.0),
            *([completion] if complete else []),
            "" if number == found.best else f"worse: {found.better[found.best, number]:.0%} sure",
        )
    out.print(table)
    best = found.outcomes[found.best].alternative
    if len(found.outcomes) > 1:
        sure = "that is sure" if found.sure else "but that is not sure"
        out.print(
            f"Best by {QUANTITIES[found.by][0]}: {best}; {sure}.", markup=False, soft_wrap=True
        )
    endless = {is_endless(one.alternative) for one in found.outcomes}
    ran = [f"Flows without an end ran for {duration_s:g} s."] if True in endless else []
    if False in endless:
        ran.append(f"Flows with an end had at most {LONGEST * duration_s:g} s.")
    out.print(" ".join(ran), soft_wrap=True)
    out.print(
        "Each cell: median, and 5 to 95 % over chance, the path as far as it is known, and the simulator's exactness."
    )
