"""What the commands have in common: where they print, progress, runs in words.

What is printed is taken literally, whoever wrote it: no markup, no emoji, and control characters are
escaped. Styles of our own are `Text`, which `styled` makes.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pathcast.foreign import visible_lines

if TYPE_CHECKING:
    from pathcast import runs

#: Exit code after Ctrl-C, as shells have it.
INTERRUPTED = 130


class LiteralConsole(Console):
    """A console that shows strings as they are, also those in tables."""

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - as rich has them
        """Return the text without markup and emoji, and with its control characters escaped."""
        literal = {"emoji": False, "markup": False, "highlight": False, "highlighter": None}
        return super().render_str(visible_lines(text), **(options | literal))


out = LiteralConsole(highlight=False)
err = LiteralConsole(stderr=True, highlight=False)


def styled(*parts: str | tuple[str, str]) -> Text:
    """Return text of strings, and of pairs of a string and its style, such as `bold red`."""
    text = Text()
    for part in parts:
        string, style = (part, "") if isinstance(part, str) else part
        text.append(visible_lines(string), style)
    return text


def print_error(message: object) -> None:
    """Print why a command could not do what it was to do."""
    # a line end within a file's name must not begin a line as if it were ours
    shown = visible_lines(message).replace("\n", "\n  ")
    err.print(styled(("error:", "bold red"), " ", shown), soft_wrap=True)


def print_wrong_arguments(error: Any) -> None:  # noqa: ANN401 - of the click that typer brings
    """Print what is wrong with the arguments, as typer does; they may hold anything."""
    from typer.rich_utils import rich_format_error

    if isinstance(getattr(error, "message", None), str):
        error.message = visible_lines(error.message)
    rich_format_error(error)


def print_on_stderr() -> None:
    """Print everything on standard error, for standard output is a file to write."""
    out.file = sys.stderr


@contextlib.contextmanager
def progress_bar(what: str, total: float, unit: str = "s") -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error, where that is a terminal."""
    with contextlib.ExitStack() as stack:
        if err.is_terminal:
            show = stack.enter_context(_shown_progress(what, total, unit))
        else:
            show = _show_nothing
        try:
            yield show
        except KeyboardInterrupt:
            err.print("interrupted; nothing was written and nothing is left running")
            raise typer.Exit(INTERRUPTED) from None


@contextlib.contextmanager
def _shown_progress(what: str, total: float, unit: str) -> Iterator[Callable[[float], None]]:
    # imported here, since it is not needed without a terminal
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn(f"{{task.completed:.0f}} of {{task.total:.0f}} {unit}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=min(done, total))


def _show_nothing(done: float) -> None:
    pass


def print_json(value: Any) -> None:  # noqa: ANN401
    """Print a value for programs: JSON on one line."""
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")


def mbps(rate_bps: float) -> str:
    """A rate for people."""
    return f"{rate_bps / 1e6:.3g} Mbit/s"


def print_run(run: runs.RunReport) -> None:
    """Print what a run did."""
    table = Table("flow", "scheme", "goodput", "retransmits")
    for number, flow in enumerate(run.flows):
        table.add_row(str(number), flow.scheme, mbps(flow.goodput_bps), str(flow.retransmits))
    out.print(table)
    if any(flow.workload != "bulk" for flow in run.flows):
        print_workloads(run)
    for page in run.pages:
        load = (
            "no load event" if page.load_ms is None else f"load event after {page.load_ms:.0f} ms"
        )
        came = sum(one["finished_ms"] is not None for one in page.resources)
        out.print(
            f"page {page.name}".rstrip()
            + f" by {page.protocol}: {load}; {came} of {len(page.resources)} resources came, over "
            f"{page.connections} of the connections from flow {page.first_flow} on"
        )
    delay = run.one_way_delay_ms
    out.print(
        f"{run.packets_delivered} packets delivered, {run.loss_rate:.3%} lost; one-way delay "
        f"{delay['mean']:.1f} ms mean, {delay['p50']:.1f} ms median, {delay['p95']:.1f} ms 95 %"
    )
    if run.slip_us is not None:
        slip = run.slip_us
        out.print(
            f"packets left late by {slip['p50']:.0f} us (median), {slip['p99']:.0f} us (99 %), "
            f"{slip['max']:.0f} us (worst)"
        )
    out.print(f"{run.cpu_s:.2f} s of processor time, {run.wall_s:.2f} s on the wall")
    for reason in run.invalid_because:
        err.print(styled(("this run is not valid:", "bold red"), f" {reason}"))


def print_workloads(run: runs.RunReport) -> None:
    """Print when flows began and ended, and what became of their messages."""
    table = Table("flow", "workload", "from, s", "to, s", "arrived", "median, ms", "99 %, ms")
    for number, flow in enumerate(run.flows):
        end = "-" if flow.completed_s is None else f"{flow.completed_s:.3f}"
        arrived = p50 = p99 = "-"
        if flow.messages is not None:
            arrived = f"{flow.messages.delivered}/{flow.messages.written}"
            if flow.messages.delivered:
                p50, p99 = (f"{flow.messages.latency_ms[key]:.1f}" for key in ("p50", "p99"))
        table.add_row(str(number), flow.workload, f"{flow.start_s:.2f}", end, arrived, p50, p99)
    out.print(table)
    for number, flow in enumerate(run.flows):
        split = None if flow.messages is None else flow.messages.delay_split_ms
        if split is not None:
            sender, network, receiver = (
                f"{split[part]['p50']:.1f} / {split[part]['p99']:.1f} ms"
                for part in ("sender_stack", "network", "receiver_stack")
            )
            out.print(
                f"flow {number}, median / 99 %: {sender} in the sender's stack, {network} in the "
                f"network, {receiver} in the receiver's stack; "
                f"{split['buffered_fraction']:.1%} buffered by the sender"
            )


def finish_run(run: runs.RunReport, as_json: bool, **written: FilePath | None) -> None:
    """Print a run and the files that were written of it, by what they hold."""
    if as_json:
        print_json(run.to_dict())
        return
    print_run(run)
    for what, file in written.items():
        if file is not None:
            out.print(f"{what} written to {file}")


def print_not_applicable(missing: dict[str, str]) -> None:
    """What a result does not say, a line for each reason."""
    for reason in dict.fromkeys(missing.values()):
        names = ", ".join(name for name, why in missing.items() if why == reason)
        out.print(f"without {names}: {reason}", markup=False)
