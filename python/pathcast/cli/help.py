"""`pathcast help TOPIC`: file formats and terms, or a command's own help.

`docs/glossary.md` is a link to the topic `glossary`, whose rows are the terms.
"""

from __future__ import annotations

import difflib
import re
from importlib.resources import files
from typing import Annotated

import typer
from rich.markdown import Markdown
from rich.table import Table

from pathcast.cli.console import out
from pathcast.exceptions import PathcastError

#: The topic that has the terms.
_GLOSSARY = "glossary"


def _topics() -> dict[str, str]:
    """The text of each topic."""
    folder = files("pathcast.cli").joinpath("topics")
    return {
        entry.name.removesuffix(".md"): entry.read_text("utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".md")
    }


def _terms(glossary: str) -> dict[str, str]:
    """The meaning of each term of the glossary; a row may have several terms."""
    rows = re.findall(r"(?m)^\| (.+?) \| (.+) \|$", glossary)[1:]
    return dict(rows)


def _meaning(terms: dict[str, str], name: str) -> tuple[str, str] | None:
    """The term of this name, in large or small letters, and its meaning."""
    for term, meaning in terms.items():
        if name.lower() in (term.lower(), *term.lower().split(", ")):
            return term, meaning
    return None


def help_topic(
    topic: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC | TERM | COMMAND]", help="Default: list the topics."),
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
        out.print("or a term or a command: pathcast help cwnd, pathcast help predict transfer")
        return
    terms = _terms(topics[_GLOSSARY])
    if name == _GLOSSARY:
        table = Table("term", "meaning", box=None)
        for row in terms.items():
            table.add_row(*row)
        out.print(table)
        return
    if name in topics:
        out.print(Markdown(topics[name]))
        return
    if name in COMMANDS:
        app([*name.split(), "--help"], prog_name="pathcast", standalone_mode=False)
        return
    if (found := _meaning(terms, name)) is not None:
        out.print(": ".join(found), soft_wrap=True)
        return
    listed = [each for each, command in COMMANDS.items() if command.group]
    near = difflib.get_close_matches(name, [*topics, *terms, *listed], n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"topics are {', '.join(topics)}"
    raise PathcastError(f"{name!r} is no topic, no term and no command; {hint}")
