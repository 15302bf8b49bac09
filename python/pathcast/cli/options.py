"""Arguments and options that several commands have."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Annotated

import typer

from pathcast.exceptions import NoSchemeError, PathFileError
from pathcast.path import Path
from pathcast.runs import Device as DeviceKind

WorkloadText = Annotated[
    str | None,
    typer.Option(
        metavar="TOML",
        help="What each flow sends, such as \"{ kind = 'transfer', size = '5 MB' }\"; default: "
        "bulk. See `pathcast help workloads`.",
    ),
]
Traces = Annotated[
    list[FilePath],
    typer.Argument(
        metavar="TRACE...", help="Traces, or files of other tools; see `pathcast help traces`."
    ),
]
Flows = Annotated[
    list[str] | None,
    typer.Option(
        "--flow",
        metavar="N|ADDRESS:PORT",
        help="Take this flow alone; several. `pathcast convert` lists a file's flows. Default: all, of a "
        "capture the busiest.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
KeptIn = Annotated[
    FilePath,
    typer.Option("--output", "-o", metavar="FOLDER", help="Runs are kept here, and not run again."),
]
Seed = Annotated[int, typer.Option(help="Seed of all random elements.", min=0)]
Cc = Annotated[
    str | None,
    typer.Option(help="Congestion control; default: what the trace says, else guessed."),
]
Rtt = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Round-trip time; default: the trace's srtt, else estimated."
    ),
]
FromMahimahi = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND_LINE", help='Instead of a file: "mm-delay 20 mm-link UP DOWN ...".'
    ),
]
FromNetem = Annotated[
    str | None,
    typer.Option(
        metavar="COMMANDS", help='Instead of a file: "tc qdisc add dev eth0 root netem delay 20ms".'
    ),
]
FromRattan = Annotated[
    FilePath | None,
    typer.Option(metavar="FILE", help="Instead of a path file: a configuration of rattan."),
]
PathOrTrace = Annotated[
    FilePath | None,
    typer.Option(
        "--path",
        metavar="PATH|TRACE",
        help="A path file, with its posterior if `pathcast calibrate` wrote it; or a trace, which is calibrated first.",
    ),
]
FromIbox = Annotated[
    FilePath | None,
    typer.Option(metavar="FILE", help="Instead of a path file: a network profile of iBox."),
]
Device = Annotated[
    DeviceKind,
    typer.Option(
        "--device", help="Devices that packets pass; auto: TUN where it is available, else veth."
    ),
]
SuperPackets = Annotated[
    bool | None,
    typer.Option(
        help="Pass up to 64 KiB of a flow through TUN devices in one piece; default: on links of more than "
        "500 Mbit/s."
    ),
]


@contextlib.contextmanager
def scheme_by(how: str) -> Iterator[None]:
    """Say in an error about a flow's congestion control how this command takes it."""
    try:
        yield
    except NoSchemeError as error:
        raise NoSchemeError(error.what, how) from None


def path_of(options: dict[str, tuple[str, str | float | None]], more: str = "") -> Path:
    """Return the path that options describe.

    Args:
        options: by the name of each option, the key of a path file and its value; None: not given.
        more: what else the path file has.

    Raises:
        PathFileError: a value is not valid; it names the option.

    """
    given = [(option, *one) for option, one in options.items() if one[1] is not None]
    lines = []
    for option, key, value in given:
        if isinstance(value, str):
            if not value.isprintable() or '"' in value or "\\" in value:
                raise PathFileError(f"{option}: got {value!r}, expected a number and its unit")
            lines.append(f'{key} = "{value}"')
        else:
            lines.append(f"{key} = {value:.12f}")
    try:
        return Path.parse("\n".join([*lines, more]) + "\n", "options")
    except PathFileError as error:
        found = re.match(r"options:(\d+):\d+: (?:\w+: )?", str(error))
        if found is None or int(found[1]) > len(given):
            raise
        option = given[int(found[1]) - 1][0]
        raise PathFileError(f"{option}: {str(error)[found.end() :]}") from None
