"""The directive `pathcast-commands`: every command with its help, example, arguments and options."""

import inspect

from docutils.nodes import Node
from sphinx.util.docutils import SphinxDirective


def _cell(text: str) -> str:
    """Text in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<").replace("[", "\\[")


def _parameters(command, context) -> list[str]:  # noqa: ANN001
    """Rows of a table: each argument and option, and its help."""
    rows = []
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        names = [*parameter.opts, *parameter.secondary_opts]
        metavar = parameter.make_metavar(context)
        if parameter.param_type_name == "argument":
            name = metavar
        else:
            name = ", ".join(names)
            if not getattr(parameter, "is_flag", False):
                name += f" {metavar}"
        shown = name.replace("|", "\\|")
        rows.append(f"| `{shown}` | {_cell(getattr(parameter, 'help', '') or '')} |")
    return rows


def described() -> str:
    """All commands as Markdown."""
    from pathcast.cli.commands import COMMANDS, HIDDEN, load

    lines, group = [], ""
    for name, entry in COMMANDS.items():
        # the commands of a group such as `predict` are entries of their own, unless its module has them
        if entry.group == HIDDEN or not entry.attribute:
            continue
        if entry.group != group:
            group = entry.group
            lines += [f"## {group}", ""]
        command = load(name)
        inner = getattr(command, "commands", {})
        for each, one in {f"{name} {word}": one for word, one in inner.items()}.items() or [
            (name, command)
        ]:
            lines += _described(each, one)
    return "\n".join(lines)


def _described(name: str, command) -> list[str]:  # noqa: ANN001
    """One command: its help, example and parameters."""
    text, _, example = inspect.cleandoc(command.help or "").partition("\n\nExample: ")
    lines = [f"### pathcast {name}", "", text.replace("[", "\\["), ""]
    if example:
        lines += ["```sh", example, "```", ""]
    rows = _parameters(command, command.context_class(command, info_name=name))
    if rows:
        lines += ["| argument or option | meaning |", "|---|---|", *rows, ""]
    return lines


class Commands(SphinxDirective):
    """Replaces itself with the commands."""

    has_content = False

    def run(self) -> list[Node]:
        """Return the sections."""
        return self.parse_text_to_nodes(described(), allow_section_headings=True)


def setup(app) -> dict[str, bool]:  # noqa: ANN001
    """Called by Sphinx."""
    app.add_directive("pathcast-commands", Commands)
    return {"parallel_read_safe": True}
