"""`pathcast diagnose`: what limits flows, and for which part of the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, Any

import typer
from rich.table import Table

from pathcast._advice import Advice
from pathcast._advice import advise as advice_for
from pathcast._limits import LIMITS, FlowLimits, limits
from pathcast._prefixes import PrefixLimits, by_prefix
from pathcast._watch import Method
from pathcast._watch import watch as watch_flows
from pathcast.cli.console import out, print_json, progress_bar
from pathcast.cli.options import Flows, Json, Seed
from pathcast.cli.watch import watching
from pathcast.exceptions import ModelError, PathcastError, SchemeError
from pathcast.flows import Flow, flows_of, read_flows
from pathcast.foreign import visible
from pathcast.trace import Trace

#: What each limit means, as the end of "limited by ...".
_SAID = {
    "slow_start": "its own start: the window still grew, and no loss had stopped it",
    "loss": "losses that no queue explains: the path had room, but each loss cut the window",
    "queue": "a short queue: it overflowed, and the path was not full until the window had grown again",
    "path_rate": "the rate of the path: it was full",
    "policer": "a policer: packets beyond its rate were dropped without waiting",
    "receive_window": "the receiver's window",
    "application": "its application, which sent less than the path would have carried",
    "idle": "nothing: most of the time nothing was in flight",
}
#: Shares of time below this are not shown.
_LEAST_SHOWN = 0.005
#: Flows of a server that are shown, those that lost most time, and prefixes; `--json` has all.
_MOST_FLOWS, _MOST_PREFIXES = 10, 20
#: Reasons why flows cannot be judged that are shown.
_MOST_REASONS = 5
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
    read = _of_files(traces or [], chosen)
    if port is not None:
        read = iter([_of_server(port, prefix, duration, method)])
    found: list[_Judged] = []
    unjudged: list[str] = []
    for trace in read:
        about = {one.flow: one for one in flows_of(trace)}
        for flow in trace.flows:
            try:
                one = limits(trace, flow, scheme=scheme)
            except ModelError as error:
                unjudged.append(str(error))
                continue
            found.append(_Judged(trace, about[flow], one))
    if not found:
        if port is not None:
            raise ModelError(
                f"no flow of port {port} sent enough in {duration:g} s to be judged; watch longer with --duration"
            )
        raise ModelError("; ".join(unjudged))
    prefixes = by_prefix((one.flow.name, one.flow.bytes or 0, one.limits) for one in found)
    shown = found
    if port is not None and not as_json:
        shown = sorted(found, key=_Judged.lost_s, reverse=True)[:_MOST_FLOWS]
    said = {id(one): _advised(one.trace, one.limits, seed) for one in shown} if advise else {}
    if as_json:
        print_json(
            {
                "flows": [one.to_dict(said.get(id(one))) for one in found],
                "prefixes": [one.to_dict() for one in prefixes],
                "unjudged": unjudged,
            }
        )
        return
    for judged in shown:
        _print(judged.name(), judged.limits)
        if advise:
            _print_advice(said[id(judged)])
    if len(found) > len(shown):
        out.print(f"and {len(found) - len(shown)} flows that lost less time; --json has all")
    if any(one.prefix for one in prefixes) and len(found) > 1:
        _print_prefixes(prefixes)
    for reason in unjudged[:_MOST_REASONS]:
        out.print(reason, markup=False, soft_wrap=True)
    if len(unjudged) > _MOST_REASONS:
        out.print(f"and {len(unjudged) - _MOST_REASONS} more flows that cannot be judged")


@dataclass(frozen=True)
class _Judged:
    """A flow, and what limits it."""

    trace: Trace
    flow: Flow
    limits: FlowLimits

    def name(self) -> str:
        """What to call it: its file, or its ends."""
        return self.trace.file or visible(self.flow.name) or "trace"

    def lost_s(self) -> float:
        """Seconds that it lost."""
        (one,) = by_prefix([("", 0, self.limits)])
        return one.lost_s

    def to_dict(self, said: Advice | None) -> dict[str, Any]:
        """As `--json` prints it."""
        about = {"trace": self.trace.file, "name": self.flow.name, "bytes": self.flow.bytes}
        return about | self.limits.to_dict() | ({"advice": said.to_dict()} if said else {})


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


def _advised(trace: Trace, found: FlowLimits, seed: int) -> Advice:
    """The advice for a flow; why there is none is an advice too."""
    try:
        with progress_bar(f"flow {found.flow}", 1.0, "") as show:
            return advice_for(
                trace, found.flow, scheme=found.scheme, seed=seed, found=found, progress=show
            )
    except (ModelError, SchemeError) as error:
        return Advice(f"What would help is not known: {error}")


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


def _print(file: str, found: FlowLimits) -> None:
    scheme = f" ({found.scheme})" if found.scheme else ""
    out.print(
        f"{file}, flow {found.flow}{scheme}: for {found.shares[found.limit]:.0%} of {found.duration_s:.4g} s limited "
        f"by {_SAID[found.limit]}; {found.probability:.0%} sure.",
        markup=False,
        soft_wrap=True,
    )
    table = Table("limit", "share of time", "in the last 2 s")
    for name in sorted(LIMITS, key=lambda name: -found.shares[name]):
        if max(found.shares[name], found.now[name]) >= _LEAST_SHOWN:
            table.add_row(name, f"{found.shares[name]:.0%}", f"{found.now[name]:.0%}")
    out.print(table)
