"""`pathcast shell`, `path list` and `path show`: commands behind a path; paths, also in other tools' formats."""

from __future__ import annotations

import sys
from pathlib import Path as FilePath
from typing import Annotated

import typer

from pathcast import runs, scenario, shell
from pathcast.cli.console import out
from pathcast.cli.options import Device, FromMahimahi, FromNetem, FromRattan, Seed, SuperPackets
from pathcast.exceptions import PathcastError
from pathcast.path import built_in

paths_app = typer.Typer(
    help="List the paths that come with Pathcast, and show paths.", no_args_is_help=True
)


def run_shell(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH.toml -- COMMAND", help="Default: $SHELL."),
    ] = None,
    from_mahimahi: FromMahimahi = None,
    from_netem: FromNetem = None,
    from_rattan: FromRattan = None,
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
        given=shell.Links.given(from_mahimahi, from_netem, from_rattan),
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


@paths_app.command(name="list")
def list_paths() -> None:
    """List the paths and scenarios that come with Pathcast; commands take their names.

    Example: pathcast path list
    """
    names = built_in()
    width = max(map(len, names))
    for name, file in names.items():
        out.print(f"{name:<{width}}  {scenario.load(file).name}", soft_wrap=True)


@paths_app.command(name="show")
def show_path(
    path_file: Annotated[
        FilePath | None, typer.Argument(metavar="PATH.toml", help="See `pathcast help path-file`.")
    ] = None,
    form: Annotated[shell.Form, typer.Option("--as", help="The format.")] = shell.Form.TOML,
    from_mahimahi: FromMahimahi = None,
    from_netem: FromNetem = None,
    from_rattan: FromRattan = None,
    output: Annotated[
        FilePath | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Write it here, too, and the traces that it names.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if the format cannot express everything.")
    ] = False,
) -> None:
    """Show a path with all defaults, or in the format of another tool.

    Example: pathcast path show demo --as netem
    """
    links = shell.Links.given(from_mahimahi, from_netem, from_rattan)
    if (path_file is None) == (links is None):
        raise PathcastError(
            "expected either PATH.toml or one of --from-mahimahi, --from-netem, --from-rattan"
        )
    sys.stdout.write(shell.show(links or shell.Links.load(path_file or ""), form, output, strict))
