"""`pathcast demo`: measure, fit, forecast and report in one go."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path as FilePath
from typing import Annotated, Literal

import typer

from pathcast import demo, report, rootless
from pathcast.cli.console import out, print_json, print_run, progress_bar, styled
from pathcast.cli.evaluate import SCORES_EXPLAINED, score_table
from pathcast.cli.options import Json, Seed
from pathcast.exceptions import PathcastError
from pathcast.experiments.engine.world import World
from pathcast.files import check_output, write_beside
from pathcast.path import Path

#: How long the flow of `--quick` runs: long enough for forecasts of 10 s.
QUICK_S = 16.0


def run_demo(
    path_file: Annotated[
        FilePath | None,
        typer.Option("--path", metavar="PATH.toml", help="Another path than the demo's own."),
    ] = None,
    scheme: Annotated[str, typer.Option(help="cubic or reno.")] = "cubic",
    duration: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How long the flow runs; default: 60.", min=15),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run the flow for 16 s, so that all takes 20 s.")
    ] = False,
    seed: Seed = 1,
    world: Annotated[
        Literal["auto", "emulator", "simulator"],
        typer.Option(help="auto: the emulator if it can run here, else the simulator."),
    ] = "auto",
    output: Annotated[
        FilePath, typer.Option("--output", "-o", help="The report, one HTML page.")
    ] = FilePath("report.html"),
    trace_output: Annotated[
        FilePath | None, typer.Option("--trace", help="Keep the trace here, as Parquet.")
    ] = None,
    open_page: Annotated[
        bool,
        typer.Option(
            "--open/--no-open", help="Open the report in the browser, where there is a desktop."
        ),
    ] = True,
    as_json: Json = False,
) -> None:
    """Measure a TCP flow, fit its loss curve, forecast it, and compare the forecast with the truth."""
    for file in (output, trace_output):
        if file is not None:
            check_output(file)
    if quick and duration is not None:
        raise PathcastError("got --quick and --duration, expected one of them")
    duration = duration or (QUICK_S if quick else 60.0)
    path = demo.demo_path() if path_file is None else Path.load(path_file)
    chosen = demo.choose_world(None if world == "auto" else World(world))
    if not as_json:
        out.print(
            f"One {scheme} flow runs for {duration:g} s over {path.name or path.file}, {chosen.said}. Pathcast "
            "learns the path's loss curve from the flow's first third, then forecasts each second what the flow will "
            "send in the next 1, 5 and 10 s, and compares.",
        )
    with progress_bar("running the flow", duration) as progress:
        measured = demo.measure(
            path,
            chosen,
            scheme=scheme,
            duration_s=duration,
            seed=seed,
            progress=progress,
            say=None if as_json else out.print,
        )
    if trace_output is not None:
        measured.trace.write(trace_output)
    result = demo.forecast(measured)
    write_beside(output, report.render(result))
    if as_json:
        print_json(result.to_dict() | {"report": str(output)})
        return
    print_run(measured.run)
    for line in rootless.caveats(measured.trace.metadata["environment"]):
        out.print(line)
    fitted = result.fit.flows[0]
    out.print(
        f"{fitted.losses} losses found in {duration:g} s, {result.losses_in_training} of them in the "
        f"first {result.training_s:.0f} s, which the forecasts begin with"
    )
    out.print(score_table(result.evaluation.horizons))
    out.print("one forecast each second from there on; an error is |forecast - truth| / truth")
    out.print(SCORES_EXPLAINED)
    out.print(styled("report written to ", (str(output), "bold")))
    if open_page and has_desktop():
        webbrowser.open(output.resolve().as_uri())
    else:
        out.print(f"open it: {output.resolve().as_uri()}", soft_wrap=True)


def has_desktop() -> bool:
    """Whether a person looks at this run, on a desktop."""
    shown = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return shown and sys.stdout.isatty()
