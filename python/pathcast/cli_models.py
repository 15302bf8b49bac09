"""`pathcast fit` and `evaluate`: models of the loss, and how good their forecasts are."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path as FilePath
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from pathcast import cli_clusters, models
from pathcast.cli_options import Cc, Flows, Json, Rtt, Traces
from pathcast.console import out, print_json, styled
from pathcast.files import check_output, write_beside
from pathcast.flows import read_flows


class Protocol(StrEnum):
    """How forecasts are judged; docs/models.md defines both."""

    FAIR = "fair"
    PAPER = "paper"


def fit(
    traces: Traces,
    output: Annotated[
        FilePath | None, typer.Option("--output", "-o", help="Write the JSON here.")
    ] = None,
    chosen: Flows = None,
    cc: Cc = None,
    rtt: Rtt = None,
    clusters: cli_clusters.ClustersFile = None,
    prefix: cli_clusters.Prefix = None,
    network: cli_clusters.Network = None,
    region: cli_clusters.Region = None,
    as_json: Json = False,
) -> None:
    """Find loss epochs and fit the loss curve p(cwnd)."""
    for written in (output, clusters):
        if written is not None:
            check_output(written)
    loaded = [trace for file in traces for trace in read_flows(file, chosen)]
    fitted = models.fit(loaded, cc=cc, rtt_s=rtt)
    cli_clusters.add_to_store(clusters, loaded, prefix, network, region, cc, rtt)
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
    _print_not_applicable(fitted.not_applicable)
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


def _print_not_applicable(missing: dict[str, str]) -> None:
    """What a result does not say, a line for each reason."""
    for reason in dict.fromkeys(missing.values()):
        names = ", ".join(name for name, why in missing.items() if why == reason)
        out.print(f"without {names}: {reason}", markup=False)


def score_table(scores: tuple[models.HorizonScore, ...]) -> Table:
    """Models down, horizons across; the best of each horizon in bold."""
    table = Table("median error, %", *(f"{score.horizon_s:g} s" for score in scores))
    for model in models.judged(scores):
        cells: list[str | Text] = []
        for score in scores:
            errors = [error for error in score.median_error_pct.values() if error is not None]
            error = score.median_error_pct[model]
            if error is None:
                cells.append("-")
            elif error <= min(errors):
                cells.append(styled((f"{error:.1f}", "bold green")))
            else:
                cells.append(f"{error:.1f}")
        table.add_row(model, *cells)
    table.add_section()
    coverages = ("-" if s.coverage90 is None else f"{s.coverage90:.0%}" for s in scores)
    table.add_row("pathcast's 90 % band", *coverages)
    table.add_row("windows", *(str(score.windows) for score in scores))
    return table


def evaluate(
    traces: Traces,
    horizon: Annotated[
        list[float], typer.Option(metavar="SECONDS", help="How far ahead; several.")
    ] = list(models.DEFAULT_HORIZONS_S),  # noqa: B006 - typer's way to give a list's default
    protocol: Annotated[
        Protocol, typer.Option(help="What the baselines see; docs/models.md.")
    ] = Protocol.FAIR,
    chosen: Flows = None,
    cc: Cc = None,
    rtt: Rtt = None,
    window: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="All models learn on the last so many alone, 10 to 1000.",
            show_default="what suits each",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Forecast traces again and again, and compare with what then happened."""
    flows = [
        (trace, flow)
        for file in traces
        for trace in read_flows(file, chosen)
        for flow in trace.flows
    ]
    evaluations, left_out = models.evaluate_flows(
        flows, horizon, protocol=protocol.value, cc=cc, rtt_s=rtt, window_s=window
    )
    scores = models.pooled(evaluations)
    truths = sorted({evaluation.truth for evaluation in evaluations})
    if as_json:
        print_json(
            {
                "protocol": protocol.value,
                "window_s": window,
                "truth": truths[0] if len(truths) == 1 else "mixed",
                "horizons": [score.to_dict() for score in scores],
                "traces": [evaluation.to_dict() for evaluation in evaluations],
                "left_out": [flow.to_dict() for flow in left_out],
            }
        )
        return
    names = {"packets_per_s": "packets a second", "mean_cwnd_packets": "mean cwnd"}
    for evaluation in evaluations:
        if len(evaluations) > 1:
            out.print(f"{evaluation.file}, flow {evaluation.flow}:")
            out.print(score_table(evaluation.horizons))
    if len(evaluations) > 1:
        out.print("all together:")
    out.print(score_table(scores))
    out.print(
        f"median |forecast / truth - 1| in per cent, {protocol.value} protocol"
        + ("" if window is None else f", all models learning on {window:g} s alone")
        + "; truth is "
        + " and ".join(names[truth] for truth in truths)
        + (" (no sequence numbers in the trace)" if "mean_cwnd_packets" in truths else "")
    )
    unknown = {
        model: reason
        for evaluation in evaluations
        if models.law_of(evaluation.cc) == "other"
        for model, reason in evaluation.not_applicable.items()
    }
    _print_not_applicable(unknown)
    for flow in left_out:
        out.print(f"left out: {flow.file}, flow {flow.flow}: {flow.reason}", markup=False)
