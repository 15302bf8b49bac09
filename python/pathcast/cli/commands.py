"""The commands: their names, what they do, and where each is defined.

A command's module is imported when the command is run, or when its own help is asked for, so that no
command waits for what another one needs. `tests/cli/test_startup.py` compares this table with the
commands.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group


class Command(NamedTuple):
    """Where a command is defined, and the line on it in `pathcast --help`."""

    module: str
    #: A function of the module, or a `typer.Typer` whose commands follow this one's name.
    attribute: str
    #: The first paragraph of the command's own help.
    help: str


#: In the order of `pathcast --help`. A name of two words stands beside a command of one.
COMMANDS: dict[str, Command] = {
    "watch": Command(
        "watch",
        "watch",
        "Watch TCP flows of any process on this machine (Linux); docs/measuring.md.",
    ),
    "attainable-rate": Command(
        "attainable_rate",
        "attainable_rate",
        "Estimate what rate TCP sustains on every time scale, for applications that are not greedy, "
        "by probing.",
    ),
    "follow": Command(
        "follow",
        "follow",
        "Follow paths as a live service does: changes found, p(cwnd) at the end; "
        "docs/loss-curves.md.",
    ),
    "curve": Command(
        "curve",
        "curve",
        "Show the loss curve to expect of a client, new or known; docs/loss-curves.md.",
    ),
    "estimate": Command(
        "estimate",
        "estimate",
        "Estimate how long larger downloads take, from one small one; docs/short-flows.md.",
    ),
    "latency": Command(
        "latency",
        "forecast_latency",
        "Say how long transfers take, on a path known by numbers or learned from a trace.",
    ),
    "bound": Command(
        "bound",
        "bound",
        "Bound delay and backlog of traffic by a service curve; docs/min-plus.md.",
    ),
    "simulate": Command(
        "runs", "simulate", "Run flows over a path, or a whole scenario, in the simulator."
    ),
    "emulate": Command(
        "runs",
        "emulate",
        "Run the kernel's TCP over emulated links (Linux; root, or user namespaces).",
    ),
    "sweep": Command(
        "sweep",
        "sweep",
        "Simulate every path with every scheme, one flow, many seeds, on all cores or a cluster.",
    ),
    "convert": Command(
        "convert", "convert", "Read a trace of another tool and write it as a trace of ours."
    ),
    "fit": Command("fit", "fit", "Find loss epochs and fit the loss curve p(cwnd)."),
    "evaluate": Command(
        "evaluate",
        "evaluate",
        "Forecast traces again and again, and compare with what then happened.",
    ),
    "evaluate suite": Command(
        "suite",
        "suite",
        "Run the networks of the ECON paper on the kernel's TCP, and score all models against its "
        "figures; docs/suite.md.",
    ),
    "demo": Command(
        "demo",
        "run_demo",
        "Measure a TCP flow, fit its loss curve, forecast it, show the forecast against the truth.",
    ),
    "capabilities": Command(
        "runs",
        "capabilities",
        "Say what the emulator can do on this machine, and why what is missing is missing.",
    ),
    "shell": Command(
        "shell",
        "run_shell",
        "Run a shell or a command inside a path (Linux; without root: --outside); docs/shell.md.",
    ),
    "path": Command("shell", "paths_app", "Show paths."),
    "live": Command(
        "live",
        "app",
        "Run flows between two hosts over the real path (Linux, root); docs/live.md.",
    ),
    "benchmark": Command("benchmark", "app", "Compare whole configurations."),
}


def load(name: str) -> Any:  # noqa: ANN401 - a command of the click that typer brings
    """Return the command of this name, imported."""
    where = COMMANDS[name]
    found = getattr(import_module(f"pathcast.cli.{where.module}"), where.attribute)
    if isinstance(found, typer.Typer):
        command: Any = get_group(found)
        command.name = name
        return command
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name=name)(found)
    return get_command(alone)


class Commands(TyperGroup):
    """The group of all commands; until one is asked for, only its name and its line are there."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self.commands = {
            name: TyperCommand(name, help=command.help) for name, command in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """Import the command that the arguments name, one word or two, and return it."""
        two = " ".join(args[:2])
        if two in COMMANDS:
            args = [two, *args[2:]]
        if args[0] in COMMANDS:
            self.commands[args[0]] = load(args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    help="Measure a network path once; forecast how any application will perform on it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from pathcast import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass
