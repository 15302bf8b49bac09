"""`pathcast curves`: loss curves of services, exported and merged."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from pathcast._curves import export_curves, merge_curves
from pathcast.cli.console import out, progress_bar
from pathcast.cluster import connected

app = typer.Typer(
    help="Export the loss curves of services as Parquet, and merge those of several.",
    no_args_is_help=True,
)


@app.command(name="export")
def export(
    service: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="Of the service: http://127.0.0.1:8080.")
    ],
    destination: Annotated[
        str, typer.Argument(metavar="URL", help="A file, or a URL of fsspec such as s3://b/curves.")
    ],
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TEXT",
            envvar="PATHCAST_TOKEN",
            help="Token of a client that may read.",
        ),
    ] = None,
) -> None:
    """Write the loss curves of all prefixes that a running service knows, as Parquet.

    Example: pathcast curves export http://127.0.0.1:8080 curves.parquet
    """
    with progress_bar("read", 1.0, "") as show:
        rows = export_curves(service, destination, token=token, progress=show)
    out.print(f"{rows} rows written to {destination}", soft_wrap=True)


@app.command(name="merge")
def merge(
    urls: Annotated[
        list[str],
        typer.Argument(metavar="URL...", help="Exports, then the file or folder of the result."),
    ],
    partitions: Annotated[
        int, typer.Option(help="Files of the result, each merged by a task.", min=1, max=100_000)
    ] = 1,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Run on a Ray cluster: HOST:PORT, ray://HOST:PORT or local."
        ),
    ] = None,
) -> None:
    """Sum up the loss curves of several services, on this machine or a cluster.

    Example: pathcast curves merge one.parquet two.parquet merged.parquet
    """
    *sources, destination = urls
    place = nullcontext(None) if cluster is None else connected(cluster)
    with place as found, progress_bar("merged", 1.0, "") as show:
        files = merge_curves(
            sources, destination, partitions=partitions, cluster=found, progress=show
        )
    out.print(f"{len(sources)} exports merged into {len(files)} files", soft_wrap=True)
