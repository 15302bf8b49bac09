"""`pathcast fit`: the losses of traces, and the loss curve."""

from __future__ import annotations

import json
from pathlib import Path as FilePath
from typing import Annotated

import typer
from rich.table import Table

from pathcast import models
from pathcast.cli.console import out, print_json, print_not_applicable
from pathcast.cli.curve import ClustersFile, Network, Prefix, Region, add_to_store
from pathcast.cli.options import Cc, Flows, Json, Rtt, Traces
from pathcast.files import check_output, write_beside
from pathcast.flows import read_flows


def fit(
    traces: Traces,
    output: Annotated[
        FilePath | None, typer.Option("--output", "-o", help="Write the JSON here.")
    ] = None,
    chosen: Flows = None,
    cc: Cc = None,
    rtt: Rtt = None,
    clusters: ClustersFile = None,
    prefix: Prefix = None,
    network: Network = None,
    region: Region = None,
    as_json: Json = False,
) -> None:
    """Find loss epochs and fit the loss curve p(cwnd)."""
    for written in (output, clusters):
        if written is not None:
            check_output(written)
    loaded = [trace for file in traces for trace in read_flows(file, chosen)]
    fitted = models.fit(loaded, cc=cc, rtt_s=rtt)
    add_to_store(clusters, loaded, prefix, network, region, cc, rtt)
    result = fitted.to_dict()
    if output is not None:
        write_beside(output, json.dumps(result, allow_nan=False) + "\n")
    if as_json:
        print_json(result)
        return
    table = Table("trace", "flow", "cc", "RTT", "losses", "rate, packets/s", "loss rate", "epochs")
    for flow in fitted.flows:
        rtt_text = f"{flow.rtt_s * 1e3:.1f} ms ({flow.rtt_source})"
        table.add_row(
            flow.file,
            str(flow.flow),
            flow.cc,
            rtt_text,
            str(flow.losses),
            "-" if flow.rate_packets_per_s is None else f"{flow.rate_packets_per_s:.1f}",
            "-" if flow.loss_rate is None else f"{flow.loss_rate:.2g}",
            "-" if "epochs" in fitted.not_applicable else str(len(flow.epochs)),
        )
    out.print(table)
    sources = {flow.losses_source for flow in fitted.flows}
    from_where = {
        "retransmissions": "losses are counted: packets sent again, a window of data at a time",
        "window": "losses are inferred from the window's falls: nothing counts packets sent again",
    }
    for source in sorted(sources):
        which = "" if len(sources) == 1 else f" ({_of(fitted, source)})"
        out.print(from_where[source] + which, markup=False)
    print_not_applicable(fitted.not_applicable)
    for curve in fitted.curves:
        lossy = [point for point in curve.points if point.losses]
        said = (
            f"{curve.losses} losses in {curve.packets:.3g} packets, at windows of "
            f"{lossy[0].cwnd_packets} to {lossy[-1].cwnd_packets} packets"
            if lossy
            else f"no loss in {curve.packets:.3g} packets: p(cwnd) is 0 as far as this trace says"
        )
        out.print(f"loss curve for {curve.npc} parallel connection(s): {said}")
    for what, written in (("curve written", output), ("evidence added", clusters)):
        if written is not None:
            out.print(f"{what} to {written}")


def _of(fitted: models.Fit, source: str) -> str:
    """The flows whose losses come from there."""
    flows = (flow for flow in fitted.flows if flow.losses_source == source)
    return ", ".join(f"{flow.file}, flow {flow.flow}" for flow in flows)
