"""`pathcast shell`: commands behind a path."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer

from pathcast import runs, shell
from pathcast.cli.options import (
    Device,
    FromIbox,
    FromMahimahi,
    FromNetem,
    FromRattan,
    Seed,
    SuperPackets,
)


def run_shell(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH.toml -- COMMAND", help="Default: $SHELL."),
    ] = None,
    from_mahimahi: FromMahimahi = None,
    from_netem: FromNetem = None,
    from_rattan: FromRattan = None,
    from_ibox: FromIbox = None,
    scheme: Annotated[
        str | None,
        typer.Option(help="Congestion control of TCP inside; default: as outside."),
    ] = None,
    outside: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", help="Run this server outside meanwhile; ended at the end."
        ),
    ] = None,
    device: Device = runs.Device.AUTO,
    super_packets: SuperPackets = None,
    seed: Seed = 1,
    log: Annotated[
        FilePath | None,
        typer.Option("--log", "--packets", help="Write what happened to each packet, as Parquet."),
    ] = None,
    mm_log: Annotated[
        FilePath | None,
        typer.Option(metavar="FILE", help="Write mm-link's logs: FILE.up and FILE.down."),
    ] = None,
    report_file: Annotated[
        FilePath | None, typer.Option("--report", help="Write what crossed here, as JSON.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no report at the end.")
    ] = False,
) -> None:
    """Run a shell or a command behind an emulated path (Linux; without root: --outside)."""
    code = shell.enter(
        arguments or [],
        given=shell.Links.given(from_mahimahi, from_netem, from_rattan, from_ibox),
        scheme=scheme,
        outside=outside,
        device=device,
        super_packets=super_packets,
        seed=seed,
        log=log,
        mm_log=mm_log,
        report=report_file,
        quiet=quiet,
    )
    raise typer.Exit(code)
