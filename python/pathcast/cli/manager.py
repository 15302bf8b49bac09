"""`pathcast manager`: decides which configuration each client prefix gets."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path as FilePath
from typing import Annotated

import typer

from pathcast.exceptions import PathcastError

#: Names the program where it is not on the path.
_VARIABLE = "PATHCAST_MANAGER"


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
    words = [_program()]
    for option, value in (("--listen", listen), ("--state", state), ("--config", config)):
        if value is not None:
            words.append(f"{option}={value}")
    os.execv(words[0], words)  # noqa: S606 - our own program, with a vector of arguments


def _program() -> str:
    """The program `pathcast-manager`: the one that PATHCAST_MANAGER names, beside Python, or on the path."""
    given = os.environ.get(_VARIABLE)
    beside = FilePath(sys.executable).with_name("pathcast-manager")
    found = given or (str(beside) if beside.exists() else shutil.which("pathcast-manager"))
    if found is None or not os.access(found, os.X_OK):
        message = (
            f"got no program pathcast-manager ({found or 'not on the path'}); expected it beside Python, on the path, or "
            f"named by {_VARIABLE}: cargo install --locked --path crates/manager"
        )
        raise PathcastError(message)
    return found
