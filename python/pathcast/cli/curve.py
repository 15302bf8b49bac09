"""`pathcast curve`: the loss curve of a client, from what is known about others."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path as FilePath
from typing import Annotated

import typer
from rich.table import Table

from pathcast.cli.console import out, print_json
from pathcast.clusters import LossClusters
from pathcast.exceptions import PathcastError
from pathcast.trace import Trace

#: Windows that the table shows at most; `--json` has all.
MOST_POINTS = 16


class PoolingName(StrEnum):
    """How a cluster's curves are put together."""

    POSTERIOR = "posterior"
    MEAN = "mean"
    MEDIAN = "median"


ClustersFile = Annotated[
    FilePath | None,
    typer.Option(
        "--clusters",
        metavar="FILE.json",
        help="Add the losses of the traces to this store, as those of --prefix.",
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option(metavar="CIDR", help="With --clusters: the client's, such as 192.0.2.0/24."),
]
Network = Annotated[
    str | None, typer.Option(metavar="NAME", help="The client's network, such as AS64500.")
]
Region = Annotated[str | None, typer.Option(metavar="NAME", help="Where the client is.")]


def add_to_store(
    file: FilePath | None,
    traces: list[Trace],
    prefix: str | None,
    network: str | None,
    region: str | None,
    cc: str | None,
    rtt_s: float | None,
) -> None:
    """Add traces to a store of curves, as `fit --clusters` does; nothing without a store."""
    if file is None:
        for option, given in (("--prefix", prefix), ("--network", network), ("--region", region)):
            if given is not None:
                raise PathcastError(f"{option} says whose a curve is: expected --clusters with it")
        return
    if prefix is None:
        raise PathcastError("--clusters expects --prefix: whose curve it is")
    clusters = LossClusters.load(file) if file.exists() else LossClusters()
    clusters.add(traces, prefix, network=network, region=region, cc=cc, rtt_s=rtt_s)
    clusters.save(file)


def curve(
    file: Annotated[
        FilePath, typer.Argument(metavar="FILE.json", help="A store of `fit --clusters`.")
    ],
    client: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The client's address or prefix.")
    ] = None,
    network: Network = None,
    region: Region = None,
    pooling: Annotated[
        PoolingName, typer.Option(help="All levels by their evidence, or one cluster's curves.")
    ] = PoolingName.POSTERIOR,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show the loss curve to expect of a client, known or new."""
    clusters = LossClusters.load(file)
    found = clusters.curve(client, network=network, region=region, pooling=pooling.value)
    if not found.points:
        raise PathcastError(f"{file}: holds no evidence, add some with `pathcast fit --clusters`")
    if as_json:
        print_json({"client": client, "pooling": pooling.value} | found.to_dict())
        return
    table = Table("level", "which", "prefixes", "packets", "losses", "weight")
    for level in found.levels:
        table.add_row(
            level.level,
            level.name,
            str(level.prefixes),
            f"{level.packets:.3g}",
            f"{level.losses:.1f}",
            f"{level.weight:.1%}",
        )
    out.print(table)
    table = Table("cwnd, packets", "p(cwnd)", "5 %", "95 %")
    count = min(len(found.points), MOST_POINTS)
    for i in range(count):
        point = found.points[i * (len(found.points) - 1) // max(count - 1, 1)]
        table.add_row(
            f"{point.cwnd_packets:.0f}",
            f"{point.loss_probability:.2g}",
            f"{point.low:.2g}",
            f"{point.high:.2g}",
        )
    out.print(table)
