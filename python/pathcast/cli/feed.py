"""`pathcast feed`: samples for the service."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer

from pathcast._watch import Method
from pathcast.cli.console import err, out, print_json
from pathcast.cli.watch import ended_by_sigterm
from pathcast.exceptions import ServiceError
from pathcast.service.client import Client
from pathcast.service.feed import Flows, Log
from pathcast.service.feed import feed as send


def service_of(url: str, token_file: FilePath | None, authorities: FilePath | None) -> Client:
    """Return the connection that options describe.

    Raises:
        ServiceError: a file cannot be read, or the URL is none.

    """
    token = None
    if token_file is not None:
        try:
            token = token_file.read_text().split()[0]
        except (OSError, UnicodeDecodeError, IndexError) as error:
            why = getattr(error, "strerror", None) or "it holds no token"
            raise ServiceError(f"{token_file}: {why}") from None
    return Client(url, token, authorities)


def feed(
    service: Annotated[str, typer.Argument(metavar="URL", help="Of `pathcast serve`.")],
    local_port: Annotated[
        int | None, typer.Option(metavar="N", help="Port of the servers whose flows are watched.")
    ] = None,
    cmcd_log: Annotated[
        FilePath | None,
        typer.Option(
            metavar="FILE",
            help="A server's log with what players say (CMCD), followed from its end.",
        ),
    ] = None,
    method: Annotated[
        Method | None, typer.Option(help="How flows are watched: tcp_probe (root) or sock_diag.")
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", help="Flows of other network namespaces too (root).")
    ] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Length of a batch.")] = 2.0,
    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long; default: until Ctrl-C.")
    ] = None,
    token_file: Annotated[
        FilePath | None, typer.Option(metavar="FILE", help="The token that the service asks for.")
    ] = None,
    authorities: Annotated[
        FilePath | None,
        typer.Option(metavar="FILE", help="Certificates to check the service's by."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Send samples of this machine's flows, or of players that report by CMCD, to `pathcast serve`.

    What the service does not take is dropped and counted; sending goes on.
    """
    if local_port is None and cmcd_log is None:
        raise ServiceError("got nothing to send; expected --local-port, --cmcd-log or both")
    if not 0.2 <= every <= 60:
        raise ServiceError(f"got batches of {every} s; expected 0.2 to 60")
    watched = None
    if local_port is not None:
        watched = Flows(local_port, None if method is None else method.value, all_namespaces)
    log = None if cmcd_log is None else Log(cmcd_log)
    if log is not None:
        log.skip()

    def failed(problem: str) -> None:
        err.print(f"samples are dropped: {problem}" if problem else "samples are taken again")

    with ended_by_sigterm():
        sent = send(
            service_of(service, token_file, authorities),
            flows=watched,
            log=log,
            every_s=every,
            duration_s=duration,
            failed=failed,
        )
    if as_json:
        print_json(vars(sent))
    else:
        out.print(f"{sent.samples} samples in {sent.batches} batches; {sent.lost} batches lost")
