"""The directive `pathcast-commands`: every command with its help, example, arguments and options."""

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
    from typer._click import Context
    from typer.main import get_group

    from pathcast.cli.commands import COMMANDS, HIDDEN, app, load

    lines, group = [], ""
    top = Context(get_group(app), info_name="pathcast")
    for name, entry in COMMANDS.items():
        if entry.group == HIDDEN or entry.example is None:
            continue
        if entry.group != group:
            group = entry.group
            lines += [f"## {group}", ""]
        command = load(name)
        context = Context(command, info_name=name, parent=top)
        text = (command.help or "").split("\f")[0].strip()
        example = f"pathcast {name} {entry.example}".strip()
        lines += [f"### pathcast {name}", "", text.replace("[", "\\["), ""]
        lines += ["```sh", example, "```", ""]
        rows = _parameters(command, context)
        if rows:
            lines += ["| argument or option | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


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
