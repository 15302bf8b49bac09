"""`pathcast watch`: flows of any process."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from pathcast._watch import Method, WatchedFlow, WatchProgress, WatchReport
from pathcast._watch import watch as watch_flows
from pathcast.cli.console import err, out, print_json
from pathcast.foreign import visible

#: Flows that the table shows at most; `--json` has all.
MOST_ROWS = 40


def watch(
    port: Annotated[int | None, typer.Option(metavar="N", help="Port at either end.")] = None,
    local_port: Annotated[int | None, typer.Option(metavar="N", help="Port at this end.")] = None,
    remote_port: Annotated[
        int | None, typer.Option(metavar="N", help="Port at the far end.")
    ] = None,
    pid: Annotated[
        int | None, typer.Option(metavar="N", help="The process that holds the socket.")
    ] = None,
    cgroup: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="The cgroup (version 2) of the socket, or one above it."),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(metavar="CIDR", help="Where the far end is, such as 192.0.2.0/24."),
    ] = None,
    all_namespaces: Annotated[
        bool,
        typer.Option("--all-namespaces", help="Flows of other network namespaces too (root)."),
    ] = False,
    method: Annotated[
        Method | None,
        typer.Option(
            help="tcp_probe (root) or sock_diag; default: the first of them that works here."
        ),
    ] = None,
    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long; default: until Ctrl-C.")
    ] = None,
    output: Annotated[
        FilePath | None, typer.Option("--output", "-o", help="Write the trace here, as Parquet.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Record the TCP flows of any process on this machine (Linux)."""
    with watching(duration) as progress:
        report, _ = watch_flows(
            port=port,
            local_port=local_port,
            remote_port=remote_port,
            pid=pid,
            cgroup=cgroup,
            prefix=prefix,
            all_namespaces=all_namespaces,
            method=None if method is None else method.value,
            duration_s=duration,
            record=False,
            trace_file=output,
            progress=progress,
        )
    if as_json:
        print_json(report.to_dict())
        return
    _print(report)
    if not report.flows:
        filters = {
            "--port": port,
            "--local-port": local_port,
            "--remote-port": remote_port,
            "--pid": pid,
            "--cgroup": cgroup,
            "--prefix": prefix,
        }
        _print_what_to_try({k: v for k, v in filters.items() if v is not None}, all_namespaces)
    if output is not None:
        out.print(f"trace written to {output}", soft_wrap=True)


@contextlib.contextmanager
def watching(duration_s: float | None) -> Iterator[WatchProgress]:
    """Show progress, and let SIGTERM end it as Ctrl-C does; None: no end of its own."""
    with ended_by_sigterm(), _progress(duration_s) as progress:
        yield progress


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends a watch as Ctrl-C does: the records are kept."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _progress(duration_s: float | None) -> Iterator[WatchProgress]:
    """A line on standard error, where that is a terminal."""
    end = "Ctrl-C ends" if duration_s is None else f"of {duration_s:g} s"
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    ) as line:
        task = line.add_task(f"watching ({end})")

        def show(elapsed_s: float, flows: int, records: int) -> None:
            said = f"watching: {elapsed_s:.0f} s ({end}), {flows} flows, {records} records"
            line.update(task, description=said)

        yield show


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _row(number: int, flow: WatchedFlow) -> tuple[str, ...]:
    who = () if flow.pid is None else (f"{visible(flow.process)} {flow.pid}",)
    about = ", ".join((*who, *(() if flow.scheme is None else (flow.scheme,))))
    rate = None if flow.goodput_bps is None else flow.goodput_bps / 1e6
    return (
        str(number),
        f"{flow.local}\n> {flow.remote}\n{about}".rstrip("\n"),
        f"{flow.acked_bytes / 1e6:.3f}\n{_number(rate, '.3g')}",
        "-" if flow.retransmits is None else str(flow.retransmits),
        f"{_number(flow.srtt_min_ms, '.3g')}\n{_number(flow.srtt_median_ms, '.3g')}",
        _number(flow.cwnd_median_packets, ".3g"),
    )


def _print_what_to_try(filters: dict[str, int | str], all_namespaces: bool) -> None:
    """Print why no flow may have been seen."""
    out.print("No flow was seen; one is recorded when it sends from here meanwhile. What to try:")
    if filters:
        given = " ".join(f"{option} {value}" for option, value in filters.items())
        out.print(f"- Watch without {given}, and see which ports the flows have.", soft_wrap=True)
    out.print("- `ss -tn` lists the connections of this machine, with their ports.")
    if not all_namespaces:
        out.print("- Containers have network namespaces of their own: --all-namespaces (root).")


def _print(report: WatchReport) -> None:
    busiest = sorted(enumerate(report.flows), key=lambda pair: -pair[1].acked_bytes)
    shown = sorted(busiest[:MOST_ROWS], key=lambda pair: pair[0])
    if shown:
        table = Table()
        table.add_column("flow")
        table.add_column("from > to\nprocess, scheme", no_wrap=True)
        for name in ("MB\nMbit/s", "retrans-\nmits", "srtt, ms:\nleast\nmedian", "cwnd\nmedian"):
            table.add_column(name, justify="right")
        for number, flow in shown:
            table.add_row(*_row(number, flow))
        out.print(table)
    if len(busiest) > MOST_ROWS:
        out.print(f"and {len(busiest) - MOST_ROWS} flows that sent less; --json has all")
    out.print(
        f"{len(report.flows)} flows, {report.records} records by {report.method} in "
        f"{report.duration_s:.1f} s, {report.cpu_s:.2f} s of processor time"
    )
    if report.fallback_because is not None:
        err.print(report.fallback_because, markup=False, soft_wrap=True)
    for count, what in (
        (report.records_lost, "records were lost: the trace has gaps"),
        (report.flows_elsewhere, "flows in other network namespaces, or too short to ask for"),
        (report.flows_left_out, "flows were too many to be watched"),
    ):
        if count:
            err.print(f"{count} {what}")
