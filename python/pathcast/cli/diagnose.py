"""`pathcast diagnose`: what limits flows, and for which part of the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import Annotated

import typer
from rich.table import Table

from pathcast._advice import Advice
from pathcast._advice import advise as advice_for
from pathcast._diagnosis import JudgedFlow
from pathcast._diagnosis import diagnose as judge
from pathcast._limits import LIMITS
from pathcast._prefixes import PrefixLimits
from pathcast._watch import Method
from pathcast._watch import watch as watch_flows
from pathcast.cli.console import out, print_json, progress_bar
from pathcast.cli.options import Flows, Json, Seed, scheme_by
from pathcast.cli.watch import watching
from pathcast.exceptions import ModelError, PathcastError, SchemeError
from pathcast.files import check_output, write_beside
from pathcast.flows import read_flows
from pathcast.trace import Trace

#: Shares of time below this are not shown.
_LEAST_SHOWN = 0.005
#: Flows of a server that are shown, those that lost most time, and prefixes; `--json` has all.
_MOST_FLOWS, _MOST_PREFIXES = 10, 20
#: Reasons why flows cannot be judged that are shown.
_MOST_REASONS = 5
#: How a flow's congestion control is given.
_SCHEME = "give it with --scheme, such as --scheme cubic"
#: How long a server is watched, in seconds.
_WATCHED_S = 15.0


def diagnose(
    traces: Annotated[
        list[FilePath] | None,
        typer.Argument(
            metavar="TRACE...",
            help="Traces, or files of other tools; see `pathcast help traces`.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Instead of traces: watch the flows of this port on this machine (Linux).",
        ),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(metavar="CIDR", help="With --port: only flows to here, such as 192.0.2.0/24."),
    ] = None,
    duration: Annotated[
        float, typer.Option(metavar="SECONDS", help="With --port: how long to watch.", min=2.0)
    ] = _WATCHED_S,
    method: Annotated[
        Method | None,
        typer.Option(
            help="With --port: tcp_probe (root) or sock_diag; default: the first that works."
        ),
    ] = None,
    chosen: Flows = None,
    scheme: Annotated[
        str | None, typer.Option(help="Congestion control; default: what the trace says.")
    ] = None,
    advise: Annotated[
        bool,
        typer.Option(
            "--advise",
            help="Say what would help too: simulate other schemes and initial windows over the path of each flow. Takes seconds a flow.",
        ),
    ] = False,
    output: Annotated[
        FilePath | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write a report here, one HTML page."),
    ] = None,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Say what limits each flow of a trace or of a running server, and for which share of the time.

    Flows are also summed up by client prefix: where time is lost, and by what.

    Example: pathcast diagnose --port 443 --duration 30
    """
    if (port is None) == (not traces):
        raise PathcastError("expected either TRACE... or --port N")
    if port is not None and chosen:
        raise PathcastError("got --flow; with --port, --prefix selects flows")
    if output is not None:
        check_output(output)
    if port is None:
        found = judge(_of_files(traces or [], chosen), scheme)
    else:
        found = judge([_of_server(port, prefix, duration, method)], scheme)
    if not found.flows:
        if port is not None:
            raise ModelError(
                f"no flow of port {port} sent enough in {duration:g} s to be judged; watch longer with --duration"
            )
        raise ModelError("; ".join(found.unjudged))
    shown = list(range(len(found.flows)))
    if port is not None and not as_json:
        slowest = sorted(shown, key=lambda i: found.flows[i].lost_s(), reverse=True)
        shown = slowest[:_MOST_FLOWS]
    if advise:
        asked = set(shown)
        found = found.with_advice(
            _advised(one, seed) if i in asked else None for i, one in enumerate(found.flows)
        )
    if output is not None:
        from pathcast.report.diagnosis import render_diagnosis  # takes long to import

        title = f"Flows of port {port}" if port is not None else ", ".join(map(str, traces or []))
        write_beside(output, render_diagnosis(found, title))
    if as_json:
        print_json(found.to_dict())
        return
    for i in shown:
        _print(found.flows[i])
    if len(found.flows) > len(shown):
        out.print(f"and {len(found.flows) - len(shown)} flows that lost less time; --json has all")
    if found.has_prefixes():
        _print_prefixes(found.prefixes)
    for reason in found.unjudged[:_MOST_REASONS]:
        out.print(reason, markup=False, soft_wrap=True)
    if len(found.unjudged) > _MOST_REASONS:
        out.print(f"and {len(found.unjudged) - _MOST_REASONS} more flows that cannot be judged")
    if output is not None:
        out.print(f"{output}: the report")


def _of_files(files: Sequence[FilePath], chosen: Sequence[str] | None) -> Iterator[Trace]:
    for file in files:
        yield from read_flows(file, chosen)


def _of_server(port: int, prefix: str | None, duration_s: float, method: Method | None) -> Trace:
    """Watch a server for some time, or until Ctrl-C."""
    with watching(duration_s) as progress:
        _, trace = watch_flows(
            port=port,
            prefix=prefix,
            method=None if method is None else method.value,
            duration_s=duration_s,
            progress=progress,
        )
    if trace is None:
        raise PathcastError("the watch kept no trace")
    return trace


def _print_prefixes(prefixes: Sequence[PrefixLimits]) -> None:
    table = Table("far end", "flows", "MB", "seconds lost", "most by")
    for one in prefixes[:_MOST_PREFIXES]:
        table.add_row(
            one.prefix or "not known",
            str(one.flows),
            f"{1e-6 * one.bytes:.3g}",
            f"{one.lost_s:.3g} of {sum(one.seconds.values()):.3g}",
            one.limit,
        )
    out.print(table)
    if len(prefixes) > _MOST_PREFIXES:
        out.print(f"and {len(prefixes) - _MOST_PREFIXES} prefixes that lost less time")


def _advised(judged: JudgedFlow, seed: int) -> Advice:
    """The advice for a flow; why there is none is an advice too."""
    found = judged.limits
    try:
        with scheme_by(_SCHEME), progress_bar(f"flow {found.flow}", 1.0, "") as show:
            return advice_for(
                judged.trace, found.flow, scheme=found.scheme, seed=seed, found=found, progress=show
            )
    except (ModelError, SchemeError) as error:
        return Advice(f"not known: {error}")


def _print_advice(said: Advice) -> None:
    out.print(f"What would help: {said.text}", markup=False, soft_wrap=True)
    for warning in said.calibration.warnings if said.calibration else ():
        out.print(f"warning: {warning}", markup=False, soft_wrap=True)
    if said.tried:
        out.print(
            f"Simulated over {len(said.tried.outcomes[0].draws['goodput_bps'])} paths that explain the flow; in brackets "
            "5 to 95 %.",
            markup=False,
            soft_wrap=True,
        )


def _print(judged: JudgedFlow) -> None:
    found = judged.limits
    out.print(f"{judged.title()}: {found.text()}", markup=False, soft_wrap=True)
    table = Table("limit", "share of time", "in the last 2 s")
    for name in sorted(LIMITS, key=lambda name: -found.shares[name]):
        if max(found.shares[name], found.now[name]) >= _LEAST_SHOWN:
            table.add_row(name, f"{found.shares[name]:.0%}", f"{found.now[name]:.0%}")
    out.print(table)
    if judged.link:
        out.print(judged.link.text(), markup=False, soft_wrap=True)
    if judged.advice:
        _print_advice(judged.advice)
