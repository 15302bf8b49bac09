"""`pathcast diagnose`: what limits flows, and for which part of the time."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from pathcast._limits import LIMITS, FlowLimits, limits
from pathcast.cli.console import out, print_json
from pathcast.cli.options import Flows, Json, Traces
from pathcast.exceptions import ModelError
from pathcast.flows import read_flows

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


def diagnose(
    traces: Traces,
    chosen: Flows = None,
    scheme: Annotated[
        str | None, typer.Option(help="Congestion control; default: what the trace says.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what limits each flow of a trace, and for which share of the time."""
    found: list[tuple[str, FlowLimits]] = []
    unjudged: list[str] = []
    for file in traces:
        for trace in read_flows(file, chosen):
            for flow in trace.flows:
                try:
                    found.append((trace.file, limits(trace, flow, scheme=scheme)))
                except ModelError as error:
                    unjudged.append(str(error))
    if not found:
        raise ModelError("; ".join(unjudged))
    if as_json:
        print_json(
            {
                "flows": [{"trace": name} | one.to_dict() for name, one in found],
                "unjudged": unjudged,
            }
        )
        return
    for name, one in found:
        _print(name, one)
    for reason in unjudged:
        out.print(reason, markup=False, soft_wrap=True)


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
