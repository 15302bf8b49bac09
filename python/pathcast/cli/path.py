"""`pathcast path`: the paths at hand, and paths in the words of other tools."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Annotated

import typer

from pathcast import shell
from pathcast.catalog import Catalog, Entry, catalog
from pathcast.cli.bound import parse_bits
from pathcast.cli.console import err, out, print_json
from pathcast.cli.options import FromIbox, FromMahimahi, FromNetem, FromRattan, Json, Seed
from pathcast.exceptions import PathcastError
from pathcast.files import write_beside
from pathcast.folders import FOLDERS_VARIABLE

app = typer.Typer(
    help="List the paths at hand, and show paths, also in the words of other tools.",
    no_args_is_help=True,
)


@app.command(name="list")
def list_paths(
    words: Annotated[
        str, typer.Argument(metavar="WORDS", help="List only paths whose name or origin has these.")
    ] = "",
    folders: Annotated[
        list[FilePath] | None,
        typer.Option(
            "--in",
            metavar="FOLDER",
            envvar=FOLDERS_VARIABLE,
            help="Look here too: path files, calibrations, iBox profiles, mahimahi traces, throughput series; several.",
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="List only these: built-in, path, calibration, ibox, mahimahi, throughput; several."
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="LOW..HIGH", help='Lowest and highest rate: "1 Mbit/s..20 Mbit/s".'),
    ] = None,
    rtt: Annotated[
        str | None,
        typer.Option(metavar="LOW..HIGH", help="Shortest and longest round trip in ms: 10..80."),
    ] = None,
    sample: Annotated[
        int | None, typer.Option(metavar="N", help="Draw so many of them at random.", min=1)
    ] = None,
    seed: Seed = 1,
    output: Annotated[
        FilePath | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Write each of them here as a path or scenario file.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the paths at hand with their origin and license; commands take their names.

    Beside those that come with Pathcast, these are the paths in the folders of --in or of the variable
    PATHCAST_PATHS. Commands find the latter by name if the variable is set.

    Example: pathcast path list cellular --rate "1 Mbit/s..10 Mbit/s"
    """
    if output is not None and not output.is_dir():
        raise PathcastError(f"{output}: expected a folder that is there")
    found = catalog(folders or []).where(
        sources=source or (),
        words=words,
        rate_bps=_between(rate, lambda text: parse_bits(text, "--rate", rate=True)),
        rtt_s=_between(rtt, lambda text: 1e-3 * _number(text)),
    )
    if sample is not None:
        found = found.sample(sample, seed)
    if output is not None:
        for one in found.entries:
            write_beside(output / f"{one.name}.toml", one.load().toml)
    if as_json:
        print_json(
            {"paths": [one.to_dict() for one in found.entries], "refused": list(found.refused)}
        )
        return
    _print(found)


def _print(found: Catalog) -> None:
    """Print a line for each path; names are never cut, for they are there to be copied."""
    rows = [("name", "rate", "RTT", "queue", "loss", "license", "origin")]
    for one in found.entries:
        about = f"{one.about}; {one.competing} flows" if one.competing else one.about
        rtt, loss = f"{1e3 * one.rtt_s:.4g} ms", f"{one.loss:.3g}"
        rows.append((one.name, _rate(one), rtt, _queue(one), loss, one.license, about))
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        out.print("  ".join([*cells, row[-1]]).rstrip(), markup=False, soft_wrap=True)
    if not found.entries:
        out.print("No path at hand matches.")
    for reason in found.refused:
        err.print(reason, markup=False, soft_wrap=True)


def _rate(one: Entry) -> str:
    return "unlimited" if one.rate_bps is None else f"{1e-6 * one.rate_bps:.4g} Mbit/s"


def _queue(one: Entry) -> str:
    return "" if one.queue_bytes is None else f"{1e-3 * one.queue_bytes:.4g} kB"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise PathcastError(f"got {text!r}, expected a number") from None


def _between(text: str | None, parse: Callable[[str], float]) -> tuple[float, float]:
    """Two limits of `LOW..HIGH`, either of which may be empty."""
    if text is None:
        return 0.0, math.inf
    low, dots, high = text.partition("..")
    if not dots:
        raise PathcastError(f"got {text!r}, expected LOW..HIGH such as 1..20")
    return (parse(low) if low.strip() else 0.0), (parse(high) if high.strip() else math.inf)


@app.command(name="show")
def show_path(
    path_file: Annotated[
        FilePath | None, typer.Argument(metavar="PATH.toml", help="See `pathcast help path-file`.")
    ] = None,
    form: Annotated[shell.Form, typer.Option("--as", help="The format.")] = shell.Form.TOML,
    from_mahimahi: FromMahimahi = None,
    from_netem: FromNetem = None,
    from_rattan: FromRattan = None,
    from_ibox: FromIbox = None,
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
    links = shell.Links.given(from_mahimahi, from_netem, from_rattan, from_ibox)
    if (path_file is None) == (links is None):
        raise PathcastError(
            "expected either PATH.toml or one of --from-mahimahi, --from-netem, --from-rattan, --from-ibox"
        )
    sys.stdout.write(shell.show(links or shell.Links.load(path_file or ""), form, output, strict))
