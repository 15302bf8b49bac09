"""`pathcast evaluate`: how good forecasts are."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from pathcast import models
from pathcast.cli.console import out, print_json, print_not_applicable, styled
from pathcast.cli.options import Cc, Flows, Json, Rtt, Traces
from pathcast.flows import read_flows


class Protocol(StrEnum):
    """How forecasts are judged."""

    FAIR = "fair"
    PAPER = "paper"


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
    for role, title in _COMPARED.items():
        skills = [score.against(role) for score in scores]
        if any(skills):
            table.add_row(title, *map(_verdict, skills))
    table.add_section()
    coverages = ("-" if s.coverage90 is None else f"{s.coverage90:.0%}" for s in scores)
    table.add_row("pathcast's 90 % band", *coverages)
    table.add_row("its interval score, %", *(_interval_score(s.bands["pathcast"]) for s in scores))
    best = (score.best_other_band() for score in scores)
    table.add_row("best other's", *(_interval_score(one and one[1]) for one in best))
    table.add_row("windows", *(str(score.windows) for score in scores))
    if any(score.zero_windows for score in scores):
        table.add_row("with nothing sent", *(str(score.zero_windows) for score in scores))
    return table


#: What the rows of `score_table` mean that do not say it themselves, for people.
SCORES_EXPLAINED = (
    "flat_curve is pathcast without its loss curve, no_state without its window law, no_analogs without analogs of the "
    "flow's past, no_window from its past alone. x 0.94: Pathcast's error is 0.94 "
    "times the other's; level: that may be chance. Interval score: width of the band, plus a penalty for truths "
    "outside; smaller is better. More: `pathcast help glossary`."
)


#: What Pathcast is compared with, and the row's title.
_COMPARED = {
    "best_by_hindsight": "against the best other",
    "flat_curve": "without its loss curve",
    "no_state": "without its window law",
    "no_analogs": "without analogs",
    "no_window": "from the flow's past alone",
}


def _verdict(skill: models.Skill | None) -> str | Text:
    if skill is None:
        return "-"
    said = f"{skill.verdict}, x {skill.error_ratio:.2f}"
    styles = {"better": "bold green", "worse": "bold red"}
    return styled((said, styles.get(skill.verdict, "")))


def _interval_score(band: models.BandScore | None) -> str:
    return "-" if band is None else f"{band.interval_score_pct:.1f}"


def evaluate(
    traces: Traces,
    horizon: Annotated[
        list[float], typer.Option(metavar="SECONDS", help="How far ahead; several.")
    ] = list(models.DEFAULT_HORIZONS_S),  # noqa: B006 - typer's way to give a list's default
    protocol: Annotated[
        Protocol,
        typer.Option(
            help="fair: all models see the same past; paper: baselines see what the ECON paper gave them."
        ),
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
    parallel: Annotated[
        bool,
        typer.Option(
            "--parallel",
            help="The flows of each trace are connections in parallel over one path: ECON and the formulas learn from "
            "all of them.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Forecast traces at many moments and score each model against what followed."""
    flows = [
        (trace, flow)
        for file in traces
        for trace in read_flows(file, chosen)
        for flow in trace.flows
    ]
    evaluations, left_out = models.evaluate_flows(
        flows,
        horizon,
        protocol=protocol.value,
        cc=cc,
        rtt_s=rtt,
        window_s=window,
        parallel=parallel,
    )
    scores = models.pooled(evaluations)
    truths = sorted({evaluation.truth for evaluation in evaluations})
    if as_json:
        print_json(
            {
                "protocol": protocol.value,
                "window_s": window,
                "parallel": parallel,
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
        f"median |forecast - truth| / truth in per cent, {protocol.value} protocol"
        + ("" if window is None else f", all models learning on {window:g} s alone")
        + "; truth is "
        + " and ".join(names[truth] for truth in truths)
        + (" (no sequence numbers in the trace)" if "mean_cwnd_packets" in truths else "")
    )
    out.print(SCORES_EXPLAINED)
    unknown = {
        model: reason
        for evaluation in evaluations
        if models.law_of(evaluation.cc) == "other"
        for model, reason in evaluation.not_applicable.items()
    }
    print_not_applicable(unknown)
    for flow in left_out:
        out.print(f"left out: {flow.file}, flow {flow.flow}: {flow.reason}", markup=False)
