"""`pathcast predict page`: how long pages take, and by which version of HTTP they load sooner."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from enum import StrEnum
from itertools import product
from pathlib import Path as FilePath
from typing import Annotated, Any, NamedTuple

import typer
from rich.table import Table

from pathcast._page_loads import (
    LOADS,
    PROTOCOLS,
    Loads,
    PageForecast,
    depends_on,
    predict_page,
)
from pathcast._what_if import Alternative, check_alternatives
from pathcast.calibration import Calibration
from pathcast.cli.console import err, out, print_json, progress_bar, styled
from pathcast.cli.options import Json, PathOrTrace, Seed, path_of
from pathcast.cli.what_if import read_path
from pathcast.exceptions import ModelError
from pathcast.files import check_output, write_beside
from pathcast.page import BrowserTime, Page
from pathcast.path import Path
from pathcast.scenario import Scenario

_RATE = "20 Mbit/s"
_RTT_S = 0.05


class Tls(StrEnum):
    """What secures connections."""

    NONE = "none"
    TLS12 = "1.2"
    TLS13 = "1.3"


class Engine(StrEnum):
    """What loads pages."""

    SIMULATOR = "simulator"
    MODEL = "model"


class Streams(StrEnum):
    """Which response a server of HTTP/2 or HTTP/3 sends first."""

    PRIORITY = "priority"
    ROUND_ROBIN = "round-robin"


def page(
    pages: Annotated[
        list[FilePath],
        typer.Argument(
            metavar="PAGE...",
            help="HTTP archives (HAR), Chrome traces or page files; see `pathcast help page-file`.",
        ),
    ],
    path_file: PathOrTrace = None,
    rtt: Annotated[
        list[float] | None,
        typer.Option(
            metavar="SECONDS",
            help=f"Instead of --path, the round-trip time; several: a sweep. Default: {_RTT_S:g}.",
        ),
    ] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            help=f'Instead of --path, the rate of the link; several: a sweep. Default: "{_RATE}".'
        ),
    ] = None,
    loss: Annotated[
        list[float] | None,
        typer.Option(
            help="Instead of --path, the probability that a packet to the browser is lost; several: a sweep. Default: 0."
        ),
    ] = None,
    buffer: Annotated[
        str | None,
        typer.Option(help='Instead of --path, what may wait before the link; default: "1 BDP".'),
    ] = None,
    scheme: Annotated[
        list[str] | None,
        typer.Option(help="Congestion control of the servers; several. Default: cubic."),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{', '.join(PROTOCOLS[:-1])} or {PROTOCOLS[-1]}; several. Default: all that the scheme has."
        ),
    ] = None,
    initial_window: Annotated[
        int | None, typer.Option(metavar="PACKETS", help="First window of servers.", min=1)
    ] = None,
    slow_start_after_idle: Annotated[
        bool,
        typer.Option(
            help="Whether servers' TCP reduces its window after a pause, as Linux does by default."
        ),
    ] = True,
    tls: Annotated[
        Tls, typer.Option(help="Version of TLS, or none; h3 always has 1.3.")
    ] = Tls.TLS13,
    dns: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a name takes to be resolved.", min=0)
    ] = 0.0,
    streams: Annotated[
        Streams | None,
        typer.Option(
            help="Which response a server sends first. Default: priority by h2, round-robin by h3."
        ),
    ] = None,
    early_data: Annotated[
        bool,
        typer.Option(
            "--early-data",
            help="The browser knows the servers: h3 asks with its first packets (0-RTT).",
        ),
    ] = False,
    browser: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What the browser takes itself: none, chromium, or milliseconds for navigation, network thread and "
            "main thread such as 70,0.9,2. A recording of a load has it already.",
        ),
    ] = "none",
    engine: Annotated[
        Engine, typer.Option(help="simulator: packet by packet; model: formulas, in microseconds.")
    ] = Engine.SIMULATOR,
    curve: Annotated[
        FilePath | None,
        typer.Option(
            metavar="FILE",
            help="By the model, with the loss curve that `pathcast fit -o` wrote, instead of --loss.",
        ),
    ] = None,
    replica: Annotated[
        bool,
        typer.Option(
            "--replica",
            help="Take each page as static files of one server: one origin, no time to compute.",
        ),
    ] = False,
    loads: Annotated[
        int, typer.Option(help="Simulated loads by each protocol.", min=1, max=100_000)
    ] = LOADS,
    output: Annotated[
        FilePath | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write a report here, one HTML page."),
    ] = None,
    table: Annotated[
        FilePath | None,
        typer.Option("--csv", metavar="FILE", help="Write a row for each page, path and scheme."),
    ] = None,
    har: Annotated[
        FilePath | None,
        typer.Option(
            "--har", metavar="FILE", help="Write the typical load by each protocol as a HAR."
        ),
    ] = None,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Forecast how long a page takes by HTTP/1.1, HTTP/2 and HTTP/3 over a path, and which one loads it sooner.

    Each page is loaded many times, packet by packet in the simulator, or by formulas (--engine model).
    """
    for file in (output, table, har):
        if file is not None:
            check_output(file)
    chosen = [one for file in pages for one in Page.load_all(file)]
    if replica:
        chosen = [one.as_replica() for one in chosen]
    for one in chosen:
        for warning in one.warnings:
            err.print(styled(("warning:", "yellow"), f" {one.file}: {warning}"), soft_wrap=True)
    check_alternatives([Alternative(one) for one in scheme or ()])
    paths = _paths(path_file, rtt, rate, loss, buffer, seed)
    cases = [
        _Case(one, name, where, numbers)
        for one in chosen
        for where, numbers in paths
        for name in scheme or ["cubic"]
    ]
    options: dict[str, Any] = {
        "protocols": tuple(dict.fromkeys(protocol)) if protocol else None,
        "initial_window": initial_window,
        "slow_start_after_idle": slow_start_after_idle,
        "tls": tls,
        "dns_s": dns,
        "streams": streams,
        "early_data": early_data,
        "browser": BrowserTime.parse(browser),
        "loads": loads,
        "engine": engine if curve is None else Engine.MODEL,
        "curves": None if curve is None else _read_curves(curve, loss),
        "seed": seed,
    }
    found: list[tuple[_Case, PageForecast]] = []
    with progress_bar("loaded", 1.0, "") as show:
        for number, case in enumerate(cases):

            def note(done: float, number: int = number) -> None:
                show((number + done) / len(cases))

            forecast = predict_page(
                case.page,
                case.where,
                scheme=case.scheme,
                progress=note,
                **options,
            )
            found.append((case, forecast))
    if table is not None:
        write_beside(table, _csv(found))
    if har is not None:
        if len(found) > 1:
            raise ModelError("--har: expected one page, path and scheme")
        write_beside(har, json.dumps(found[0][1].to_har()) + "\n")
    if output is not None:
        from pathcast.report.page_loads import render_page_loads  # takes long to import

        dependences = []
        if len(found) == 1 and len(found[0][1].loads) > 1:
            with progress_bar("loaded under other conditions", 1.0, "") as show:
                dependences = depends_on(found[0][1], cases[0].where, show, **options)
        forecasts = [(case.page, case.numbers, forecast) for case, forecast in found]
        report = render_page_loads(forecasts, dependences=dependences, loads=loads, seed=seed)
        write_beside(output, report)
    if as_json:
        values = [case.numbers | forecast.to_dict() for case, forecast in found]
        print_json(values[0] if len(values) == 1 else {"pages": values})
        return
    _print(found)
    for file, what in ((output, "the report"), (table, "the table"), (har, "the archive")):
        if file is not None:
            out.print(f"{file}: {what}", markup=False)


def _read_curves(
    file: FilePath, losses: Sequence[float] | None
) -> dict[int, list[tuple[float, float]]]:
    """The points of a file of `pathcast fit -o`, by the number of connections."""
    if losses:
        raise ModelError("got --curve and --loss, expected one of them: the curve has the losses")
    try:
        found = json.loads(file.read_text())
        curves = {
            int(one["npc"]): [
                (float(point["cwnd_packets"]), float(point["loss_probability"]))
                for point in one["points"]
                if point["loss_probability"] is not None
            ]
            for one in found["curves"]
        }
    except OSError as error:
        raise ModelError(f"{file}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError):
        raise ModelError(f"{file}: is no loss curve of `pathcast fit -o`") from None
    curves = {npc: points for npc, points in curves.items() if points}
    if not curves:
        raise ModelError(f"{file}: has no loss curve with a point")
    return curves


class _Case(NamedTuple):
    """A page over a path with a scheme, and the numbers of the path for tables."""

    page: Page
    scheme: str
    where: Path | Scenario | Calibration
    numbers: dict[str, Any]


def _paths(
    file: FilePath | None,
    rtts: Sequence[float] | None,
    rates: Sequence[str] | None,
    losses: Sequence[float] | None,
    buffer: str | None,
    seed: int,
) -> list[tuple[Path | Scenario | Calibration, dict[str, Any]]]:
    """The paths that are asked for, each with its numbers for tables."""
    numeric = {"--rtt": rtts, "--rate": rates, "--loss": losses, "--buffer": buffer}
    if file is not None:
        for option, value in numeric.items():
            if value:
                raise ModelError(f"got --path and {option}, expected one of them")
        by = f"write its path with `pathcast calibrate {file} --scheme cubic -o path.toml`, and give that"
        return [(read_path(file, None, None, seed, by), {"path": str(file)})]
    found: list[tuple[Path | Scenario | Calibration, dict[str, Any]]] = []
    for rate, rtt_s, loss in product(rates or [_RATE], rtts or [_RTT_S], losses or [0.0]):
        if not 0 < rtt_s < 10:
            raise ModelError(f"--rtt: got {rtt_s:g}, expected seconds, more than 0")
        if not 0 <= loss < 1:
            raise ModelError(f"--loss: got {loss:g}, expected a probability from 0 to 1")
        given: dict[str, tuple[str, str | float | None]] = {
            "--rate": ("rate", rate),
            "--rtt": ("delay", f"{500 * rtt_s:.6f} ms"),
            "--buffer": ("queue", "1 BDP" if buffer is None else buffer),
            "--loss": ("loss", loss),
        }
        numbers = {"rate": rate, "rtt_s": rtt_s, "loss": loss}
        found.append((path_of(given, "[reverse]\nloss = 0.0"), numbers))
    return found


def _csv(found: Sequence[tuple[_Case, PageForecast]]) -> str:
    """A row for each forecast."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(found[0][0].numbers)
    protocols = list(found[0][1].loads)
    columns = [f"{one} {what}" for one in protocols for what in ("plt_ms", "p10", "p90")]
    writer.writerow(["page", "scheme", *names, *columns, "choice", "confidence", "gain"])
    for case, forecast in found:
        times = [
            value if math.isfinite(value) else ""
            for one in forecast.loads.values()
            for value in (one.plt_ms, one.quantile(0.1), one.quantile(0.9))
        ]
        gain = f"{forecast.gain:.4f}" if math.isfinite(forecast.gain) else ""
        row = [case.page.name, case.scheme, *case.numbers.values(), *times, forecast.choice]
        writer.writerow([*row, f"{forecast.confidence:.4f}", gain])
    return text.getvalue()


def _print(found: Sequence[tuple[_Case, PageForecast]]) -> None:
    protocols = list(found[0][1].loads)
    several = len(found) > 1
    names = list(found[0][0].numbers)
    table = Table(
        "page",
        *(names if several else []),
        "scheme",
        *(f"{one}, ms (10 to 90 %)" for one in protocols),
        "choice",
        "sure",
    )
    for case, forecast in found:
        cells = [_cell(one) for one in forecast.loads.values()]
        numbers = [str(value) for value in case.numbers.values()] if several else []
        sure = f"{forecast.confidence:.0%}" if len(cells) > 1 else ""
        table.add_row(case.page.name, *numbers, case.scheme, *cells, forecast.choice, sure)
    out.print(table)
    if not several:
        out.print(found[0][1].verdict(), markup=False, soft_wrap=True)
    out.print(
        f"Times to the load event: median of {len(next(iter(found[0][1].loads.values())).load_ms)} loads by the "
        f"{found[0][1].engine}."
    )


def _cell(one: Loads) -> str:
    if not math.isfinite(one.plt_ms):
        return "not done"
    p10, p90 = one.quantile(0.1), one.quantile(0.9)
    upper = f"{p90:.0f}" if math.isfinite(p90) else "not done"
    return f"{one.plt_ms:.0f} ({p10:.0f} to {upper})"
