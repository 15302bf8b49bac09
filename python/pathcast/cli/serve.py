"""`pathcast serve`: decisions for live traffic."""

from __future__ import annotations

import signal
from pathlib import Path as FilePath
from typing import Annotated

import typer

from pathcast import _internal
from pathcast.exceptions import translated


def serve(
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            help="Where to listen; default: 127.0.0.1:8080, this machine only. Others need tokens and a certificate.",
        ),
    ] = None,
    state: Annotated[
        FilePath | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the state, made if it is not there; default: nothing is kept.",
        ),
    ] = None,
    watch: Annotated[
        str | None,
        typer.Option(
            metavar="PORT|all",
            help="Take samples from sockets of this host: those of a port, or all (Linux); needs no privilege.",
        ),
    ] = None,
    config: Annotated[
        FilePath | None, typer.Option(metavar="FILE", help="Configuration in TOML.")
    ] = None,
) -> None:
    """Answer questions of servers and players about their clients over HTTP, from samples of flows.

    POST /v1/samples takes samples. GET /v1/http, /v1/bitrate, /v1/throughput and /v1/transfer answer; / shows a page.
    """
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    def tick() -> None:
        if stopped:
            raise _StoppedError

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with translated():
            _internal.serve_decisions(listen, state, watch, config, tick)
    except _StoppedError:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _StoppedError(Exception):
    """A signal asked the service to stop."""
