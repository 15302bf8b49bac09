"""`pathcast diagnose`: what limits flows, and for which part of the time."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from pathcast._advice import Advice
from pathcast._advice import advise as advice_for
from pathcast._limits import LIMITS, FlowLimits, limits
from pathcast.cli.console import out, print_json, progress_bar
from pathcast.cli.options import Flows, Json, Seed, Traces
from pathcast.exceptions import ModelError, SchemeError
from pathcast.flows import read_flows
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


def diagnose(
    traces: Traces,
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
    """Say what limits each flow of a trace, and for which share of the time."""
    found: list[tuple[str, FlowLimits, Advice | None]] = []
    unjudged: list[str] = []
    for file in traces:
        for trace in read_flows(file, chosen):
            for flow in trace.flows:
                try:
                    one = limits(trace, flow, scheme=scheme)
                except ModelError as error:
                    unjudged.append(str(error))
                    continue
                found.append((trace.file, one, _advised(trace, one, seed) if advise else None))
    if not found:
        raise ModelError("; ".join(unjudged))
    if as_json:
        print_json(
            {
                "flows": [
                    {"trace": name} | one.to_dict() | ({"advice": said.to_dict()} if said else {})
                    for name, one, said in found
                ],
                "unjudged": unjudged,
            }
        )
        return
    for name, one, said in found:
        _print(name, one)
        if said:
            _print_advice(said)
    for reason in unjudged:
        out.print(reason, markup=False, soft_wrap=True)


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
