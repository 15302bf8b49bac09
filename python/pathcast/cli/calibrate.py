"""`pathcast calibrate`: the path that explains a flow, or what several schemes got."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from pathcast.calibration import (
    Calibration,
    Measurement,
    Prior,
    SchemeFit,
    calibrate_flows,
    calibrate_several,
    posterior_file,
    read_measurements,
)
from pathcast.calibration.live import DURATION_S as LIVE_S
from pathcast.calibration.live import SCHEMES, calibrate_measured, measure
from pathcast.calibration.words import (
    PARAMETER_COLUMNS,
    competing_text,
    link_text,
    parameter_rows,
)
from pathcast.catalog import Entry, catalog
from pathcast.cli.console import err, out, print_json, progress_bar
from pathcast.cli.options import Json, Seed, scheme_by
from pathcast.exceptions import ModelError, PathcastError
from pathcast.files import check_output
from pathcast.flows import read_flows
from pathcast.trace import Trace


def calibrate(
    files: Annotated[
        list[FilePath] | None,
        typer.Argument(
            metavar="FILE...",
            help="A trace, or a file of another tool (`pathcast help traces`); several: flows that used one path, one "
            "after another. Or what several schemes got: reports of runs (--json), or Pantheon's pantheon_perf.json.",
            show_default=False,
        ),
    ] = None,
    flow: Annotated[
        str | None,
        typer.Option(
            metavar="N|ADDRESS:PORT",
            help="Which flow; default: the first, of a capture the busiest.",
        ),
    ] = None,
    scheme: Annotated[
        str | None, typer.Option(help="Congestion control; default: what the trace says.")
    ] = None,
    output: Annotated[
        FilePath | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the path here, and draws of the posterior beside it, for `pathcast what-if`.",
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            "--live",
            metavar="HOST",
            help="Instead of files: measure the path to a server of `pathcast live server`, with a flow of CUBIC and one of BBR (Linux, root).",
        ),
    ] = None,
    key_file: Annotated[
        FilePath | None,
        typer.Option("--key", metavar="FILE", help="With --live: the key of both hosts."),
    ] = None,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="With --live: the path from the server to here.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --live: do not ask before flows are sent.")
    ] = False,
    prior: Annotated[
        list[FilePath] | None,
        typer.Option(
            metavar="FOLDER",
            help="Learn the prior of queue and losses from the paths in this folder, such as former calibrations; several.",
        ),
    ] = None,
    refined: Annotated[
        bool,
        typer.Option(
            "--emulate",
            help="Correct the simulator by the kernel's own flows over the path that was found, in real time (Linux, root or user namespaces).",
        ),
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Simulate on a Ray cluster: HOST:PORT, ray://HOST:PORT or local.",
        ),
    ] = None,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Infer a path from a flow or several schemes: rate, delay, queue and loss, each with its uncertainty.

    Simulated flows over candidate paths are compared with what was measured. The result is a path file with the
    most likely values, and a posterior that says how far each value is known. `pathcast what-if` takes both.

    Example: pathcast calibrate flow.parquet -o path.toml
    """
    if output is not None:
        check_output(output)
        check_output(posterior_file(output))
    if (server is None) == (not files):
        raise PathcastError("expected either FILE... or --live HOST")
    if server is None:
        learned = Prior.learned(_not_built_in(prior)) if prior else None
        with scheme_by("give it with --scheme, such as --scheme cubic"):
            found = calibrated(
                files or [], flow, scheme, seed, prior=learned, emulate=refined, cluster=cluster
            )
    elif refined or prior or cluster is not None:
        raise PathcastError(
            "got --prior, --emulate or --cluster; with --live, this machine simulates, and two flows tell enough"
        )
    elif flow is not None or scheme is not None:
        raise PathcastError("got --flow or --scheme; with --live, flows of CUBIC and BBR are sent")
    else:
        found = _live(server, key_file, reverse=reverse, yes=yes, seed=seed)
    if output is not None:
        found.write(output)
    if as_json:
        print_json(found.to_dict())
        return
    print_calibration(found, server or ", ".join(map(str, files or [])))
    if output is not None:
        out.print(f"{output}: the path; {posterior_file(output)}: its posterior")
    else:
        out.print(
            "Nothing was written. -o path.toml keeps this path, which what-if, simulate and others take."
        )


def _live(
    server: str, key_file: FilePath | None, *, reverse: bool, yes: bool, seed: int
) -> Calibration:
    """Measure the path to a server, after asking."""
    if key_file is None:
        raise PathcastError("--live needs --key FILE, the key of both hosts; `pathcast live key`")
    total_s = len(SCHEMES) * LIVE_S
    where = f"from {server} to here" if reverse else f"to {server}"
    what = f"This sends as much {where} as the path carries, for {total_s:g} s."
    if not yes:
        if not sys.stdin.isatty():
            raise PathcastError(f"{what} --yes says that this is all right")
        err.print(what, markup=False, soft_wrap=True)
        typer.confirm("Go on?", abort=True, err=True)
    with progress_bar("measured", total_s) as show:
        measured = measure(server, key_file, reverse=reverse, progress=show)
    with progress_bar("simulated", 1.0, "") as show:
        return calibrate_measured(measured, seed=seed, progress=show)


def calibrated(
    files: Sequence[FilePath],
    flow: str | None,
    scheme: str | None,
    seed: int,
    *,
    prior: Prior | None = None,
    emulate: bool = False,
    cluster: str | None = None,
) -> Calibration:
    """Calibrate with the first flow of each file, or the one that is named; or with all runs of several schemes."""
    measured = [read_measurements(file) for file in files]
    if all(one is None for one in measured):
        if len(files) > 1 and flow is not None:
            raise ModelError(f"got --flow and {len(files)} files; expected one trace with --flow")
        flows = _flows_of(files, flow)
        with progress_bar("simulated", 1.0, "") as show:
            return calibrate_flows(
                flows,
                scheme=scheme,
                seed=seed,
                prior=prior,
                emulate=emulate,
                cluster=cluster,
                progress=show,
            )
    if prior or emulate or cluster is not None:
        raise ModelError(
            "got --prior, --emulate or --cluster; expected traces, not reports of runs"
        )
    runs: list[Measurement] = []
    for file, one in zip(files, measured, strict=True):
        if one is None:
            raise ModelError(
                f"{file}: expected what a scheme got, as in the files beside it; traces are calibrated without them"
            )
        runs.extend(one)
    if flow is not None or scheme is not None:
        raise ModelError("got --flow or --scheme; reports of runs say their schemes themselves")
    with progress_bar("simulated", 1.0, "") as show:
        return calibrate_several(runs, seed=seed, progress=show)


def _not_built_in(folders: Sequence[FilePath]) -> list[Entry]:
    return [one for one in catalog(folders).entries if one.source != "built-in"]


def _flows_of(files: Sequence[FilePath], flow: str | None) -> list[tuple[Trace, int]]:
    """The first flow of each file, or the one that is named."""
    chosen = None if flow is None else [flow]
    flows = []
    for file in files:
        of_file = [(one, number) for one in read_flows(file, chosen) for number in one.flows]
        if not of_file:
            raise ModelError(f"{file}: got no flow; expected at least one")
        flows.append(of_file[0])
    return flows


def print_calibration(found: Calibration, file: str) -> None:
    """Print the parameters as a table, and what to know of them."""
    what = f", flow {found.flow} ({found.scheme})" if found.flow is not None else ""
    explained = "it" if len(found.flows) == 1 else "them"
    out.print(
        f"{file}{what}, {found.duration_s:.3g} s: the path that explains {explained}",
        markup=False,
        soft_wrap=True,
    )
    table = Table(*PARAMETER_COLUMNS)
    for row in parameter_rows(found):
        table.add_row(*row)
    out.print(table)
    for said in filter(None, (link_text(found), competing_text(found))):
        out.print(said, markup=False, soft_wrap=True)
    if found.schemes:
        _print_schemes(found)
    for warning in found.warnings:
        out.print(f"warning: {warning}", markup=False, soft_wrap=True)


def _print_schemes(found: Calibration) -> None:
    """Print what each scheme got, and how well the path tells it."""
    has_delay = any(one.delay_p95_s is not None for one in found.schemes)
    has_others = any(one.goodput_error_without is not None for one in found.schemes)
    columns = ["scheme", "runs", "measured, Mbit/s", "on this path"]
    if has_delay:
        columns += ["95 % delay, ms", "on this path"]
    if has_others:
        columns += ["told by the others"]
    table = Table(*columns)
    for one in found.schemes:
        delay = ["", ""]
        if one.delay_p95_s is not None:
            delay = [f"{1e3 * one.delay_p95_s:.4g}", _percent(one.delay_error)]
        table.add_row(
            one.scheme,
            str(one.runs),
            f"{1e-6 * one.goodput_bps:.4g}",
            _percent(one.goodput_error),
            *(delay if has_delay else []),
            *([_told(one)] if has_others else []),
        )
    out.print(table)
    errors = [abs(one.goodput_error) for one in found.schemes]
    text = f"Mean error of goodput: {np.mean(errors):.1%}"
    others = [abs(e) for e in (one.goodput_error_without for one in found.schemes) if e is not None]
    if others:
        text += (
            f"; of a scheme that the path was not inferred from: {np.mean(others):.1%}, median "
            f"{np.median(others):.1%}"
        )
    out.print(f"{text}.")
    if found.left_out:
        out.print(f"Not simulated: {', '.join(found.left_out)}.", markup=False)


def _told(one: SchemeFit) -> str:
    """The error of what the other schemes tell, and how far they leave it open."""
    if one.goodput_range_without is None:
        return _percent(one.goodput_error_without)
    p5, p95 = one.goodput_range_without
    return f"{_percent(one.goodput_error_without)} ({p5:+.0%} to {p95:+.0%})"


def _percent(error: float | None) -> str:
    return "" if error is None else f"{error:+.1%}"
