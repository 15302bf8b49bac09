"""The commands: their names, what they do, and where each is defined.

A command's module is imported when the command is run, or when its own help is asked for, so that no
command waits for what another one needs. `tests/cli/test_startup.py` compares this table with the
commands.
"""

from __future__ import annotations

import copy
import os
import re
from importlib import import_module
from pathlib import Path as FilePath
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group


class Command(NamedTuple):
    """Where a command is defined, and its entry in `pathcast --help`."""

    module: str
    #: A function of the module, or a `typer.Typer` whose commands follow this one's name.
    attribute: str
    #: The heading that it is listed under; "" hides the command, which works all the same.
    group: str
    #: The first paragraph of the command's own help.
    help: str
    #: The arguments of an example, which the command's own help shows; None: a group.
    example: str | None


RUN, MEASURE, PREDICT, COMPARE = "Run", "Measure", "Predict", "Compare"
START = "Start here"
HIDDEN = ""

_TRANSFER = "Forecast how long transfers take, on a path given by numbers, a file or a trace."
_DOWNLOAD = "Forecast how long larger downloads take, from the download of one small file."
_BOUND = "Bound the delay and backlog of traffic behind a service curve."
_DOCTOR = "Show what this machine can run, what it lacks, and how to get it."
_TRANSFER_EXAMPLE = '--rtt 0.05 --rate "50 Mbit/s" --loss 1e-3 --size "5 MB"'
_DOWNLOAD_EXAMPLE = '--bytes "1 MB" --time 1.1 --rtt 0.06'
_BOUND_EXAMPLE = '--rate "10 Mbit/s" --latency 0.02 --token-bucket "2 Mbit/s" "100 kbit"'

#: In the order of `pathcast --help`. A name of two words is a command of the group that its first word names.
COMMANDS: dict[str, Command] = {
    "demo": Command(
        "demo",
        "run_demo",
        START,
        "Measure a TCP flow, fit its loss curve, forecast it, and compare the forecast with the truth.",
        "",
    ),
    "inspect": Command(
        "inspect",
        "inspect",
        START,
        "Describe a path, scenario, page or trace, and list the commands that take it.",
        "path.toml",
    ),
    "doctor": Command("doctor", "doctor", START, _DOCTOR, ""),
    "help": Command(
        "help",
        "help_topic",
        START,
        "Explain a file format or a term, or show the help of a command.",
        "path-file",
    ),
    "simulate": Command(
        "runs",
        "simulate",
        RUN,
        "Run flows over a path, or a scenario, in the simulator.",
        "path.toml --scheme cubic --duration 60 -o trace.parquet",
    ),
    "emulate": Command(
        "runs",
        "emulate",
        RUN,
        "Run the kernel's TCP over emulated links (Linux; root or user namespaces).",
        "path.toml --scheme cubic --duration 60 -o trace.parquet",
    ),
    "live": Command(
        "live",
        "app",
        RUN,
        "Run flows between two hosts over the real path (Linux; root).",
        None,
    ),
    "shell": Command(
        "shell",
        "run_shell",
        RUN,
        "Run a shell or a command behind an emulated path (Linux; without root: --outside).",
        "path.toml -- ip address",
    ),
    "schemes": Command(
        "schemes",
        "app",
        RUN,
        "Run real implementations of congestion control: list them, check that they work, add your own.",
        None,
    ),
    "sweep": Command(
        "sweep",
        "sweep",
        RUN,
        "Simulate each path with each scheme and many seeds, on all cores or a cluster.",
        "path.toml --scheme cubic --scheme bbr --seeds 10",
    ),
    "watch": Command(
        "watch",
        "watch",
        MEASURE,
        "Record the TCP flows of any process on this machine (Linux).",
        "--port 443 --duration 60 -o trace.parquet",
    ),
    "convert": Command(
        "convert",
        "convert",
        MEASURE,
        "Convert a trace, capture or log of another tool into a Pathcast trace.",
        "flow.pcap -o trace.parquet",
    ),
    "serve": Command(
        "serve",
        "serve",
        PREDICT,
        "Answer questions of servers and players about their clients over HTTP, from samples of flows.",
        "--state state",
    ),
    "agent": Command(
        "agent",
        "agent",
        RUN,
        "Apply a manager's configuration to this server, by client prefix, and report what clients get (Linux; root).",
        "--manager https://manager.example.net --token-file token --dry-run",
    ),
    "feed": Command(
        "feed",
        "feed",
        PREDICT,
        "Send samples of this machine's flows, or of players that report by CMCD, to `pathcast serve`.",
        "http://127.0.0.1:8080 --local-port 443",
    ),
    "steer": Command(
        "steer",
        "steer",
        PREDICT,
        "Route clients of HAProxy to the servers of the HTTP version that is best for their prefix.",
        "http://127.0.0.1:8080 --socket /run/haproxy/admin.sock --map /etc/haproxy/prefix.map --page home "
        "--pool h2=pool_h2 --pool http/1.1=pool_h1",
    ),
    "curves": Command(
        "curves",
        "app",
        PREDICT,
        "Export the loss curves of services as Parquet, and merge those of several.",
        None,
    ),
    "manager": Command(
        "manager",
        "manager",
        RUN,
        "Decide which server configuration each client prefix gets, from reports of agents, and roll back what is worse.",
        "--state sqlite://state.sqlite",
    ),
    "fit": Command(
        "fit",
        "fit",
        MEASURE,
        "Find loss epochs and fit the loss curve p(cwnd).",
        "trace.parquet -o curve.json",
    ),
    "follow": Command(
        "follow",
        "follow",
        MEASURE,
        "Replay traces as a live service sees them: detect path changes and track p(cwnd).",
        "trace.parquet",
    ),
    "curve": Command(
        "curve",
        "curve",
        MEASURE,
        "Show the loss curve to expect of a client, known or new.",
        "clusters.json --client 192.0.2.7",
    ),
    "attainable-rate": Command(
        "attainable_rate",
        "attainable_rate",
        MEASURE,
        "Probe for the rate that TCP sustains at each time scale, for rate-limited applications.",
        "--latency 0.02 --window 8 --step 100",
    ),
    "diagnose": Command(
        "diagnose",
        "diagnose",
        MEASURE,
        "Say what limits each flow of a trace or of a running server, and for which share of the time.",
        "trace.parquet",
    ),
    "calibrate": Command(
        "calibrate",
        "calibrate",
        MEASURE,
        "Infer a path from a flow or several schemes: rate, delay, queue and loss, each with its uncertainty.",
        "trace.parquet -o path.toml",
    ),
    "path": Command(
        "path",
        "app",
        MEASURE,
        "List the paths at hand, and show paths, also in the words of other tools.",
        None,
    ),
    "predict": Command(
        "predict",
        "",
        HIDDEN,
        "Forecast throughput, transfers and downloads; bound delays.",
        None,
    ),
    "predict throughput": Command(
        "predict",
        "throughput",
        PREDICT,
        "Forecast the throughput of a flow from its trace.",
        "trace.parquet --horizon 5 --horizon 30",
    ),
    "predict transfer": Command(
        "latency", "forecast_latency", PREDICT, _TRANSFER, _TRANSFER_EXAMPLE
    ),
    "predict download": Command("estimate", "estimate", PREDICT, _DOWNLOAD, _DOWNLOAD_EXAMPLE),
    "predict bound": Command("bound", "bound", PREDICT, _BOUND, _BOUND_EXAMPLE),
    "what-if": Command(
        "what_if",
        "what_if",
        PREDICT,
        "Compare what other schemes, windows and workloads would get on a path, or on the path of a trace.",
        "trace.parquet --scheme cubic --scheme bbr",
    ),
    "predict page": Command(
        "predict_page",
        "page",
        PREDICT,
        "Forecast how long a page takes by HTTP/1.1, HTTP/2 and HTTP/3 over a path, and which one loads it sooner.",
        "page.har --rtt 0.05 --loss 0.01",
    ),
    "predict bitrate": Command(
        "predict_bitrate",
        "bitrate",
        PREDICT,
        "Find the highest bitrate of a video whose segments arrive in their duration, with a chosen confidence.",
        "manifest.mpd --path path.toml",
    ),
    "evaluate": Command(
        "evaluate",
        "evaluate",
        COMPARE,
        "Forecast traces at many moments and score each model against what followed.",
        "trace.parquet --horizon 10",
    ),
    "evaluate suite": Command(
        "suite",
        "suite",
        COMPARE,
        "Run the networks of the papers, and score all models against the papers' figures.",
        "--world simulator --network last-mile-1 -o suite",
    ),
    "evaluate scoreboard": Command(
        "scoreboard",
        "scoreboard",
        COMPARE,
        "Judge forecasts of many kinds of flows against the best other model in each cell.",
        "--group one-minute -o scoreboard",
    ),
    "evaluate limits": Command(
        "limits",
        "limits",
        COMPARE,
        "Run flows whose limit is known, and compare with what Pathcast names.",
        "--count 5 -o limits",
    ),
    "benchmark": Command(
        "benchmark",
        "app",
        COMPARE,
        "Compare estimators and schemes over many configurations.",
        None,
    ),
    "configure": Command(
        "configure",
        "app",
        COMPARE,
        "Learn and evaluate configurations of servers by network condition, and list what can be configured.",
        None,
    ),
    # former names
    "latency": Command("latency", "forecast_latency", HIDDEN, _TRANSFER, _TRANSFER_EXAMPLE),
    "estimate": Command("estimate", "estimate", HIDDEN, _DOWNLOAD, _DOWNLOAD_EXAMPLE),
    "bound": Command("bound", "bound", HIDDEN, _BOUND, _BOUND_EXAMPLE),
    "capabilities": Command("doctor", "doctor", HIDDEN, _DOCTOR, ""),
}


def load(name: str) -> Any:  # noqa: ANN401 - a command of the click that typer brings
    """Return the command of this name, imported, with its example."""
    where = COMMANDS[name]
    if not where.attribute:
        options: dict[str, Any] = {"no_args_is_help": True, "hidden": where.group == HIDDEN}
        return Commands(name=name, help=where.help, prefix=f"{name} ", **options)
    found = getattr(import_module(f"pathcast.cli.{where.module}"), where.attribute)
    if isinstance(found, typer.Typer):
        command: Any = get_group(found)
        command.name = name
    else:
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(name=name)(found)
        command = get_command(alone)
    command.help = where.help
    if where.example is not None:
        command.help += f"\n\nExample: pathcast {name} {where.example}".rstrip()
    command.hidden = where.group == HIDDEN
    _take_units_of_time(command)
    return command


#: A time with a unit, as path files have it, and seconds for each unit.
_TIME = re.compile(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(ns|us|ms|s|min)\s*")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}


def _take_units_of_time(command: Any) -> None:  # noqa: ANN401
    """Let the options of a command that are in seconds take `50 ms` as well as `0.05`."""
    for inner in getattr(command, "commands", {}).values():
        _take_units_of_time(inner)
    for parameter in command.params:
        if parameter.metavar == "SECONDS":
            parameter.type = copy.copy(parameter.type)
            parameter.type.convert = _seconds_by(parameter.type, parameter.type.convert)


def _seconds_by(kind: Any, plain: Any) -> Any:  # noqa: ANN401
    """Convert text in seconds or with a unit, where `plain` converts a number alone."""

    def convert(value: Any, parameter: Any, context: Any) -> Any:  # noqa: ANN401
        if isinstance(value, str):
            try:
                found = _TIME.fullmatch(value)
                value = float(found[1]) * _SECONDS[found[2]] if found else float(value)
            except ValueError:
                expected = 'expected seconds such as 0.05, or a time such as "50 ms"'
                units = f"(units: {', '.join(_SECONDS)})"
                kind.fail(f"got {value!r}, {expected} {units}", parameter, context)
        return plain(value, parameter, context)

    return convert


class Commands(TyperGroup):
    """The group of all commands, or of those whose name begins with `prefix`.

    Until a command is asked for, only its name and its line are there.
    """

    def __init__(self, *, prefix: str = "", **options: Any) -> None:  # noqa: ANN401
        options.setdefault("name", "pathcast")
        super().__init__(**options)
        self.prefix = prefix
        for name, command in COMMANDS.items():
            if not name.startswith(prefix):
                continue
            shown = name.removeprefix(prefix)
            listed = TyperCommand(shown, help=command.help)
            listed.rich_help_panel = command.group or None
            listed.hidden = command.group == HIDDEN
            self.commands[shown] = listed

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """Import the command that the arguments name, one word or two, and return it."""
        two = " ".join(args[:2])
        if self.prefix + two in COMMANDS:
            args = [two, *args[2:]]
        elif not self.prefix and args[0] not in COMMANDS and _is_file(args[0]):
            args = ["inspect", *args]
        if self.prefix + args[0] in COMMANDS:
            self.commands[args[0]] = load(self.prefix + args[0])
        elif args[0] not in self.commands:
            # an error suggests near names: those that are listed, and groups
            self.commands = {
                name: command
                for name, command in self.commands.items()
                if not command.hidden or not COMMANDS[self.prefix + name].attribute
            }
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:  # noqa: ANN401
        """Complete one word, the first of a name that has two."""
        words: dict[str, Any] = {}
        for item in super().shell_complete(ctx, incomplete):
            item.value = item.value.partition(" ")[0]
            words.setdefault(item.value, item)
        return list(words.values())


def _is_file(argument: str) -> bool:
    """Whether an argument in the place of a command is a file or the name of a built-in one, or looks like a file."""
    if argument.startswith("-"):
        return False
    if os.path.sep in argument or "." in argument or FilePath(argument).is_file():
        return True
    from pathcast.path import is_name

    return is_name(argument)


app = typer.Typer(
    cls=Commands,
    help="Measure a network path once; forecast how any application will perform on it.",
    no_args_is_help=True,
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
