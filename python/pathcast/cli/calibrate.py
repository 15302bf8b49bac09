"""`pathcast calibrate`: the path that explains a flow."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer
from rich.table import Table

from pathcast.calibration import Calibration, posterior_file
from pathcast.calibration import calibrate as infer
from pathcast.cli.console import out, print_json, progress_bar
from pathcast.cli.options import Json, Seed
from pathcast.exceptions import ModelError
from pathcast.files import check_output
from pathcast.flows import read_flows

#: What each parameter is called, its unit, and how many of them a parameter's own unit makes.
_SHOWN = {
    "rate_bps": ("rate", "Mbit/s", 1e-6),
    "rtt_s": ("propagation, both ways", "ms", 1e3),
    "queue_s": ("queue", "ms", 1e3),
    "queue_bytes": ("queue", "kB", 1e-3),
    "burst_bytes": ("the policer's bucket", "kB", 1e-3),
    "loss": ("random loss", "%", 100.0),
    "jitter_s": ("jitter", "ms", 1e3),
}


def calibrate(
    trace: Annotated[
        FilePath,
        typer.Argument(
            metavar="TRACE", help="A trace, or a file of another tool; see `pathcast help traces`."
        ),
    ],
    flow: Annotated[
        str | None,
        typer.Option(
            metavar="N|ADDRESS:PORT",
            help="Which flow; default: the first, of a capture the busiest.",
        ),
    ] = None,
    scheme: Annotated[
        str | None, typer.Option(help="Congestion control; default: what the trace says.")
    ] = None,
    output: Annotated[
        FilePath | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the path here, and draws of the posterior beside it, for `pathcast what-if`.",
        ),
    ] = None,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Infer the path of a flow from its trace: rate, delay, queue and loss, each with its uncertainty.

    Simulated flows over candidate paths are compared with the flow. The result is a path file with the most
    likely values, and a posterior that says how far each value is known. `pathcast what-if` takes both.
    """
    if output is not None:
        check_output(output)
        check_output(posterior_file(output))
    found = calibrated(trace, flow, scheme, seed)
    if output is not None:
        found.write(output)
    if as_json:
        print_json(found.to_dict())
        return
    print_calibration(found, str(trace))
    if output is not None:
        out.print(f"{output}: the path; {posterior_file(output)}: its posterior")


def calibrated(trace: FilePath, flow: str | None, scheme: str | None, seed: int) -> Calibration:
    """Calibrate with the first flow of a file, or the one that is named."""
    chosen = None if flow is None else [flow]
    for one in read_flows(trace, chosen):
        for number in one.flows:
            with progress_bar("simulated", 1.0, "") as show:
                return infer(one, number, scheme=scheme, seed=seed, progress=show)
    raise ModelError(f"{trace}: got no flow; expected at least one")


def print_calibration(found: Calibration, file: str) -> None:
    """Print the parameters as a table, and what to know of them."""
    out.print(
        f"{file}, flow {found.flow} ({found.scheme}), {found.duration_s:.3g} s: the path that explains it",
        markup=False,
        soft_wrap=True,
    )
    table = Table("", "value", "5 to 95 %", "to know more, measure")
    for name, one in found.parameters.items():
        label, unit, scale = _SHOWN[name]
        if name == "rate_bps" and found.line_rate_bps:
            label = "the policer's rate"
        median, p5, p95 = (f"{scale * value:.3g}" for value in (one.median, one.p5, one.p95))
        value = f"{median} {unit}" if one.identified else _bound(name, p5, p95, unit)
        table.add_row(label, value, f"{p5} to {p95}", one.narrowed_by)
    out.print(table)
    for warning in found.warnings:
        out.print(f"warning: {warning}", markup=False, soft_wrap=True)


def _bound(name: str, p5: str, p95: str, unit: str) -> str:
    """What is known of a parameter that the flow does not identify."""
    at_least = name in ("rate_bps", "queue_s", "queue_bytes", "burst_bytes")
    return f"at least {p5} {unit}" if at_least else f"at most {p95} {unit}"
