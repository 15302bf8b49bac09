"""`pathcast help TOPIC`: file formats and terms, or a command's own help."""

from __future__ import annotations

import difflib
from importlib.resources import files
from typing import Annotated

import typer
from rich.markdown import Markdown

from pathcast.cli.console import out
from pathcast.exceptions import PathcastError


def _topics() -> dict[str, str]:
    """The text of each topic."""
    folder = files("pathcast.cli").joinpath("topics")
    return {
        entry.name.removesuffix(".md"): entry.read_text("utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".md")
    }


def help_topic(
    topic: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC | COMMAND]", help="Default: list the topics."),
    ] = None,
) -> None:
    """Explain a file format or a term, or show the help of a command."""
    from pathcast.cli.commands import COMMANDS, app

    topics = _topics()
    name = " ".join(topic or ())
    if not name:
        out.print("topics:")
        for each, text in topics.items():
            out.print(f"  {each:<16} {text.splitlines()[0].removeprefix('# ')}")
        out.print("or a command, such as: pathcast help predict transfer")
        return
    if name in topics:
        out.print(Markdown(topics[name]))
        return
    if name in COMMANDS:
        app([*name.split(), "--help"], prog_name="pathcast", standalone_mode=False)
        return
    near = difflib.get_close_matches(name, [*topics, *COMMANDS], n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"topics are {', '.join(topics)}"
    raise PathcastError(f"{name!r} is no topic and no command; {hint}")
