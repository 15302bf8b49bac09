"""`pathcast agent`: applies a manager's configuration to this server."""

from __future__ import annotations

import os
from pathlib import Path as FilePath
from typing import Annotated

import typer


def agent(
    manager: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The manager; beyond this machine it must be https."),
    ] = None,
    token_file: Annotated[
        FilePath | None,
        typer.Option(metavar="FILE", help="The agent's secret, 64 hexadecimal digits; mode 600."),
    ] = None,
    config: Annotated[
        FilePath | None, typer.Option(metavar="FILE", help="Settings in TOML.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="AGENT", help="The agent's name; default: the host's.")
    ] = None,
    state: Annotated[
        FilePath | None,
        typer.Option(metavar="DIR", help="What it keeps; default: /var/lib/pathcast-agent."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print every command and change nothing.")
    ] = False,
    uninstall: Annotated[
        bool, typer.Option("--uninstall", help="Remove all that it set; put back what was there.")
    ] = False,
) -> None:
    """Apply a manager's configuration to this server, by client prefix, and report what clients get (Linux; root).

    Runs the program pathcast-agent, which works without Python too.
    """
    from pathcast.control.programs import program

    words = [program("agent")]
    for option, value in (
        ("--manager", manager),
        ("--token-file", token_file),
        ("--config", config),
        ("--name", name),
        ("--state", state),
    ):
        if value is not None:
            words.append(f"{option}={value}")
    words += ["--dry-run"] * dry_run + ["--uninstall"] * uninstall
    os.execv(words[0], words)  # noqa: S606 - our own program, with a vector of arguments
