"""`pathcast sweep`: many simulations in parallel."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.table import Table

from pathcast import batch
from pathcast.cli.console import err, mbps, out, print_json, progress_bar
from pathcast.cli.options import Json, WorkloadText
from pathcast.files import check_output
from pathcast.path import Path
from pathcast.scenario import Scenario

Scheme = Annotated[
    list[str], typer.Option(help="Congestion control, by name; several for mixed flows.")
]


def _mean(values: npt.NDArray[np.float64]) -> float | None:
    """The mean of the values that are not NaN; None if all are NaN."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if there.size else None


def sweep(
    path_files: Annotated[
        list[FilePath], typer.Argument(metavar="PATH.toml...", help="Paths to run over.")
    ],
    scheme: Scheme = ["cubic"],  # noqa: B006 - typer's way to give a list's default
    seeds: Annotated[int, typer.Option(help="Runs of each, with seeds 1, 2, ...", min=1)] = 10,
    workload: WorkloadText = None,
    duration: Annotated[float, typer.Option(metavar="SECONDS", help="Virtual time.")] = 60.0,
    threads: Annotated[
        int | None, typer.Option(help="Runs in parallel; default: one for each core.", min=1)
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run on a Ray cluster: HOST:PORT, ray://HOST:PORT or local.",
        ),
    ] = None,
    output: Annotated[
        FilePath | None, typer.Option("--output", "-o", help="Write each run here, as Parquet.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate each path with each scheme and many seeds, on all cores or a cluster."""
    if output is not None:
        check_output(output)
    cells = [(Path.load(file), name) for file in path_files for name in scheme]
    specs = [
        batch.Simulation(Scenario.over(path, (name,), workload), None, duration, seed)
        if workload is not None
        else batch.Simulation(path, (name,), duration, seed)
        for path, name in cells
        for seed in range(1, seeds + 1)
    ]
    with progress_bar("simulating", len(specs), "runs") as progress:
        results = batch.simulate_many(specs, threads=threads, progress=progress, cluster=cluster)
    if output is not None:
        results.write(output)
    columns = {
        name: results.column(name).reshape(len(cells), seeds)
        for name in ("goodput_bps", "loss_rate", "one_way_delay_p95_ms", "latency_p50_ms")
    }
    rows: list[dict[str, Any]] = []
    for i, (path, name) in enumerate(cells):
        goodput = columns["goodput_bps"][i]
        row: dict[str, Any] = {
            "path": path.file,
            "scheme": name,
            "runs": seeds,
            "without_progress": int(np.isnan(columns["loss_rate"][i]).sum()),
            "goodput_bps": float(goodput.mean()),
            "goodput_stderr_bps": float(goodput.std(ddof=1) / seeds**0.5) if seeds > 1 else None,
            "loss_rate": _mean(columns["loss_rate"][i]),
            "one_way_delay_p95_ms": _mean(columns["one_way_delay_p95_ms"][i]),
        }
        latency = _mean(columns["latency_p50_ms"][i])
        rows.append(row if latency is None else row | {"latency_p50_ms": latency})
    if as_json:
        print_json(rows)
        return
    in_messages = any("latency_p50_ms" in row for row in rows)
    more = ("median latency",) if in_messages else ()
    table = Table("path", "scheme", "goodput", "+- (standard error)", "loss", "95 % delay", *more)
    for row in rows:
        error, loss, delay = (
            row[key] for key in ("goodput_stderr_bps", "loss_rate", "one_way_delay_p95_ms")
        )
        cells_of_row = [
            str(row["path"]),
            str(row["scheme"]),
            mbps(row["goodput_bps"]),
            "-" if error is None else f"{error / 1e6:.3f} Mbit/s",
            "-" if loss is None else f"{loss:.3%}",
            "-" if delay is None else f"{delay:.1f} ms",
        ]
        if in_messages:
            latency = row.get("latency_p50_ms")
            cells_of_row.append("-" if latency is None else f"{latency:.4g} ms")
        table.add_row(*cells_of_row)
    out.print(table)
    stuck = sum(row["without_progress"] for row in rows)
    if stuck:
        err.print(f"{stuck} of {len(specs)} runs made no progress and count as goodput 0")
    if output is not None:
        out.print(f"runs written to {output}")
