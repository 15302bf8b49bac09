"""`pathcast follow`: a path's curve of the last seconds, and when it changed."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer
from rich.table import Table

from pathcast._follow import WINDOW_S, CurveEstimate, Followed, PathChange
from pathcast._follow import follow as follow_trace
from pathcast.cli.console import out, print_json
from pathcast.cli.options import Flows
from pathcast.flows import read_flows

#: Windows that the table of a curve shows at most; `--json` has all.
MOST_POINTS = 16


def follow(
    traces: Annotated[
        list[FilePath],
        typer.Argument(
            metavar="TRACE...", help="Traces, or files of other tools; see `pathcast help traces`."
        ),
    ],
    window: Annotated[
        float, typer.Option(metavar="SECONDS", help="Length of the sliding window.")
    ] = WINDOW_S,
    flow: Flows = None,
    cc: Annotated[
        str | None,
        typer.Option(help="Congestion control; default: what the trace says, else guessed."),
    ] = None,
    rtt: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Round-trip time; default: the trace's srtt."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Replay traces as a live service sees them: detect path changes and track p(cwnd)."""
    followed = [
        follow_trace(trace, window_s=window, cc=cc, rtt_s=rtt)
        for file in traces
        for trace in read_flows(file, flow)
    ]
    if as_json:
        print_json({"traces": [path.to_dict() for path in followed]})
        return
    for path in followed:
        _print(path)


def _print(path: Followed) -> None:
    out.print(f"{path.file}: {len(path.changes)} change(s) of the path")
    if path.changes:
        table = Table("change of", "at, s", "known at, s", "before", "after", "sure", "flow")
        for change in path.changes:
            before, after = _values(change)
            table.add_row(
                "round-trip time" if change.kind == "rtt" else "loss rate",
                f"{change.at_s:.1f}",
                f"{change.detected_s:.1f}",
                before,
                after,
                f"{change.probability:.1%}",
                str(change.flow),
            )
        out.print(table)
    for reason in dict.fromkeys(path.not_applicable.values()):
        out.print(f"without {', '.join(path.not_applicable)}: {reason}", markup=False)
    for curve in path.curves:
        bound = "" if curve.upper_bound is None else f"; p below {curve.upper_bound:.2g} (95 %)"
        out.print(
            f"last {path.window_s:g} s, {curve.npc} parallel connection(s): {curve.losses} losses in "
            f"{curve.packets:.3g} packets{bound}"
        )
        print_estimates(curve.points)


def _values(change: PathChange) -> tuple[str, str]:
    if change.kind == "rtt":
        return f"{change.before * 1e3:.1f} ms", f"{change.after * 1e3:.1f} ms"
    return f"{change.before:.2g}", f"{change.after:.2g}"


def print_estimates(points: tuple[CurveEstimate, ...]) -> None:
    """Print p(cwnd) with its bounds, at no more than `MOST_POINTS` windows."""
    if not points:
        return
    table = Table("cwnd, packets", "p(cwnd)", "5 %", "95 %", "losses", "packets")
    count = min(len(points), MOST_POINTS)
    for i in range(count):
        point = points[i * (len(points) - 1) // max(count - 1, 1)]
        table.add_row(
            f"{point.cwnd_packets:.0f}",
            f"{point.loss_probability:.2g}",
            f"{point.low:.2g}",
            f"{point.high:.2g}",
            f"{point.losses:.1f}",
            f"{point.packets:.3g}",
        )
    out.print(table)
