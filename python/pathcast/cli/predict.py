"""`pathcast predict throughput`: what a flow will send next."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from pathcast import _limits, models
from pathcast._prefixes import prefix_of
from pathcast.cli.console import mbps, out, print_json
from pathcast.cli.options import Cc, Flows, Json, Rtt, Traces
from pathcast.exceptions import ModelError
from pathcast.flows import read_flows
from pathcast.trace import FlowSeries, Trace

#: How many flows before it a flow's first seconds are compared with; more are not kept.
_SIBLINGS = 8


def throughput(
    traces: Traces,
    horizon: Annotated[
        list[float], typer.Option(metavar="SECONDS", help="How far ahead; several.")
    ] = [1.0, 5.0, 10.0, 30.0],  # noqa: B006 - typer's way to give a list's default
    chosen: Flows = None,
    at: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Forecast as of this moment of the trace; default: its end."
        ),
    ] = None,
    cc: Cc = None,
    rtt: Rtt = None,
    siblings: Annotated[
        bool | None,
        typer.Option(
            help="Forecast a flow's first seconds also from the flows of the trace that began before it; default: from "
            "those to the same client prefix.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Forecast the throughput of a flow from its trace."""
    horizons = list(dict.fromkeys(horizon))
    found = []
    for file in traces:
        read = read_flows(file, chosen)
        whole = read[0] if not chosen or siblings is False else read_flows(file)[0]
        earlier = _Earlier(whole, siblings)
        found += [
            _forecast(trace, flow, horizons, at, cc, rtt, earlier)
            for trace in read
            for flow in trace.flows
        ]
    if as_json:
        print_json({"flows": found})
        return
    for one in found:
        _print(one)


def _forecast(
    trace: Trace,
    flow: int,
    horizons: list[float],
    at: float | None,
    cc: str | None,
    rtt: float | None,
    earlier: _Earlier,
) -> dict[str, Any]:
    """The forecasts of one flow."""
    series = trace.flow(flow)
    now = float(series.time_s[-1]) if at is None else at
    seen = _until(series, now)
    where = f"{trace.file}, flow {flow}"
    if not len(seen):
        begin = float(series.time_s[0])
        raise ModelError(f"{where}: --at is {now:g} s, before its first record at {begin:g} s")
    scheme = models.chosen_cc(trace, flow, cc) or _guessed(trace, flow, rtt)
    name = trace.metadata["environment"].get(f"flow {flow}", "")
    siblings = earlier.than(flow, float(series.time_s[0]), name)
    forecaster = models.Forecaster(
        scheme, horizons, rtt_s=rtt, on_break="restart", siblings=siblings
    )
    forecaster.observe(seen)
    payload_bytes = trace.metadata["mss_bytes"] or 0
    rows = []
    for horizon in horizons:
        forecast = forecaster.forecast(now, horizon)
        row: dict[str, Any] = {
            "horizon_s": horizon,
            "quantity": forecast.quantity,
            "median": forecast.point,
            "checked": forecast.basis["resolved"],
            "cold_start": forecast.basis["cold_start"],
            "quantiles": dict(
                zip(map(str, models.QUANTILE_LEVELS), forecast.quantiles, strict=True)
            ),
        }
        if forecast.quantity == "packets_per_s":
            row["throughput_bps"] = 8 * payload_bytes * forecast.point
            row["throughput_quantiles_bps"] = {
                level: 8 * payload_bytes * value for level, value in row["quantiles"].items()
            }
        rows.append(row)
    return {
        "trace": trace.file,
        "flow": flow,
        "cc": scheme,
        "at_s": now,
        "payload_bytes": payload_bytes,
        "horizons": rows,
        "basis": forecast.basis,
        "limits": _limited(trace, flow, scheme, now),
    }


class _Earlier:
    """The flows of a trace, for those that begin after them."""

    def __init__(self, trace: Trace, siblings: bool | None) -> None:
        """`siblings`: whether all flows are siblings, those to the same prefix (None), or none."""
        self._trace, self._siblings = trace, siblings
        flows, first = np.unique(trace.columns["flow"], return_index=True)
        names = trace.metadata["environment"]
        #: begin, number and prefix of each flow, in the order of their beginnings
        self._flows = sorted(
            (
                float(trace.columns["time_s"][at]),
                int(flow),
                prefix_of(names.get(f"flow {int(flow)}", "")),
            )
            for flow, at in zip(flows, first, strict=True)
        )

    def than(self, flow: int, begin: float, name: str) -> list[models.Forecaster]:
        """What the siblings of a flow had done when it began."""
        if self._siblings is False:
            return []
        prefix = prefix_of(name)
        chosen = [
            other
            for began, other, theirs in self._flows
            if other != flow and began < begin and (self._siblings or (prefix and theirs == prefix))
        ]
        siblings = []
        for other in chosen[-_SIBLINGS:]:
            scheme = models.chosen_cc(self._trace, other, None) or "other"
            siblings.append(models.Forecaster(scheme, [1.0], on_break="restart"))
            siblings[-1].observe(_until(self._trace.flow(other), np.nextafter(begin, -np.inf)))
        return siblings


def _limited(trace: Trace, flow: int, scheme: str, now: float) -> dict[str, Any] | None:
    """What limits the flow; None if its records do not say."""
    try:
        found = _limits.limits(trace, flow, scheme=scheme, until_s=now)
    except ModelError:
        return None
    return found.to_dict() | {"text": found.text_now()}


def _guessed(trace: Trace, flow: int, rtt: float | None) -> str:
    """The congestion control that a flow's window looks like."""
    return next(fit.cc for fit in models.fit(trace, rtt_s=rtt).flows if fit.flow == flow)


def _until(series: FlowSeries, now: float) -> FlowSeries:
    """The records up to a moment."""
    count = int(np.searchsorted(series.time_s, now, side="right"))
    there = {name: values[:count] for name, values in vars(series).items() if values is not None}
    return replace(series, **there)


def _print(found: dict[str, Any]) -> None:
    rows = found["horizons"]
    low, high = (str(models.QUANTILE_LEVELS[i]) for i in (0, -1))
    in_bits = "throughput_bps" in rows[0]
    out.print(f"{found['trace']}, flow {found['flow']} ({found['cc']}), as of {found['at_s']:g} s:")
    table = Table("next", "throughput" if in_bits else "mean cwnd, packets", "5 to 95 %")
    for row in rows:
        if in_bits:
            quantiles = row["throughput_quantiles_bps"]
            cells = (
                mbps(row["throughput_bps"]),
                f"{mbps(quantiles[low])} to {mbps(quantiles[high])}",
            )
        else:
            quantiles = row["quantiles"]
            cells = (f"{row['median']:.4g}", f"{quantiles[low]:.4g} to {quantiles[high]:.4g}")
        table.add_row(f"{row['horizon_s']:g} s", *cells)
    out.print(table)
    if not in_bits:
        out.print(
            "the trace has no sequence numbers, so the window is forecast, not the throughput"
        )
    unchecked = [row for row in rows if row["checked"] == 0]
    if unchecked:
        horizons = ", ".join(f"{row['horizon_s']:g} s" for row in unchecked)
        others = max(row["cold_start"] for row in unchecked)
        earlier = found["basis"]["siblings"]
        like = (
            f"{earlier} earlier flow{'s' * (earlier > 1)} of the path"
            if earlier
            else "simulated flows that began alike"
        )
        rest = f"; up to {others:.0%} of their weight is how {like} went on"
        out.print(
            f"note: the flow is too short for forecasts of {horizons} to have been compared with what came"
            + (rest if others >= 0.01 else ", and their bands are guesses"),
            soft_wrap=True,
        )
    if found["limits"]:
        out.print(found["limits"]["text"], soft_wrap=True)
    for note in found["basis"].get("notes") or ():
        out.print(f"note: {_NOTES.get(note, note)}")


#: What the names of notes mean.
_NOTES = {
    "no_loss": "no loss was seen, so the forecast rests on the window's growth and on past means",
    "one_loss": "one loss was seen, so how often losses come is known to a factor of ten",
    "slow_start_losses_only": "all losses ended slow starts; how often they come later is not known",
    "held": "the application or the receive window limits the flow: its window does not grow",
    "idle_restart": "after an idle time the window began anew; that does not count as a loss",
    "clock_step": "time went back or leapt by more than an hour; the flow's state begins there",
    "counter_reset": "the sequence number went back; the flow's state begins there",
    "path_changed": "the path changed; what was learned before counts little since then",
    "mixed_flows": "the window jumps as if several flows were mixed; the forecast is of no single flow",
}
