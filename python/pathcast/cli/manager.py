"""`pathcast manager`: decides which configuration each client prefix gets."""

from __future__ import annotations

import os
from pathlib import Path as FilePath
from typing import Annotated

import typer


def manager(
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            help="Where to listen; default: 127.0.0.1:8090, this machine only. Others need tokens and a certificate.",
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="sqlite:///FILE or postgresql://USER@HOST/NAME; default: pathcast-manager.sqlite in this folder.",
        ),
    ] = None,
    config: Annotated[
        FilePath | None, typer.Option(metavar="FILE", help="Configuration in TOML.")
    ] = None,
) -> None:
    """Decide which server configuration each client prefix gets, from reports of agents, and roll back what is worse.

    Runs the program pathcast-manager, which works without Python too. / shows a page.
    """
    from pathcast.control.programs import program

    words = [program("manager")]
    for option, value in (("--listen", listen), ("--state", state), ("--config", config)):
        if value is not None:
            words.append(f"{option}={value}")
    os.execv(words[0], words)  # noqa: S606 - our own program, with a vector of arguments
