"""`pathcast convert`: traces of other tools."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Annotated

import typer

from pathcast._convert import convert as convert_trace
from pathcast.cli.console import err, mbps, out, print_json
from pathcast.cli.options import Json
from pathcast.files import check_output

#: Flows that are listed; `--json` has all.
MOST_FLOWS = 20


def convert(
    file: Annotated[
        FilePath,
        typer.Argument(
            metavar="INPUT",
            help="A file that `pathcast help traces` lists; - is the standard input.",
        ),
    ],
    output: Annotated[
        FilePath | None,
        typer.Option("--output", "-o", help="Write the trace here, as Parquet, or CSV if .csv."),
    ] = None,
    packets: Annotated[
        FilePath | None,
        typer.Option(
            help="Write the packets here, as Parquet, a log of mm-link if .log, or a "
            "packet-delivery trace if .trace."
        ),
    ] = None,
    egress: Annotated[
        FilePath | None,
        typer.Option(
            help="Of a Pantheon tunnel whose logs are not merged: that of what left it; INPUT is that "
            "of what entered it."
        ),
    ] = None,
    flow: Annotated[
        str | None,
        typer.Option(
            metavar="N|ADDRESS:PORT",
            help="The one flow to take; default: all, of a capture the busiest.",
        ),
    ] = None,
    keep_prefix: Annotated[
        bool, typer.Option("--keep-prefix", help="Take what comes before any damage.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Convert a trace, capture or log of another tool into a Pathcast trace."""
    for written in (output, packets):
        if written is not None:
            check_output(written)
    wanted = int(flow) if flow is not None and flow.isdecimal() else flow
    done = convert_trace(
        file, output, packets=packets, egress=egress, flow=wanted, keep_prefix=keep_prefix
    )
    for warning in done.warnings:
        err.print(warning, markup=False, soft_wrap=True)
    if as_json:
        print_json(asdict(done))
        return
    for rows, written in ((done.rows, output), (done.packets, packets)):
        if rows is not None:
            out.print(f"{rows} rows of {done.format} written to {written}")
    for number, rate_bps in done.goodput_bps.items():
        out.print(f"goodput of flow {number}: {mbps(rate_bps)}")
    if len(done.flows) > 1:
        out.print(f"{len(done.flows)} flows, for --flow:")
        for one in done.flows[:MOST_FLOWS]:
            count = "" if one.bytes is None else f", {one.bytes} B"
            name = f" {one.name}" if one.name else ""
            line = f"{one.flow:>4}{name}{count}, {one.duration_s:.3f} s"
            out.print(line, markup=False, highlight=False, soft_wrap=True)
        if len(done.flows) > MOST_FLOWS:
            out.print(f"     and {len(done.flows) - MOST_FLOWS} more; --json has all")
