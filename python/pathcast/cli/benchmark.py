"""`pathcast benchmark`: comparisons of whole configurations."""

from __future__ import annotations

import sys
from pathlib import Path as FilePath
from typing import Annotated

import typer
from rich.table import Table

from pathcast.attainable_rate import EmulatedProber, Options, SimulatedProber
from pathcast.cli import benchmark_schemes
from pathcast.cli.attainable_rate import parse_rate
from pathcast.cli.console import INTERRUPTED, err, out, print_json, progress_bar, styled
from pathcast.cli.options import Json, Seed
from pathcast.exceptions import ProbingError
from pathcast.experiments.attainable_rate import benchmark, claims, report
from pathcast.experiments.engine.store import make_folder
from pathcast.experiments.engine.world import World
from pathcast.page import BrowserTime, Page

app = typer.Typer(help="Compare whole configurations.", no_args_is_help=True)


@app.callback()
def main() -> None:
    """Compare estimators and schemes over many configurations."""


app.command(name="schemes")(benchmark_schemes.schemes)
app.command(name="pantheon")(benchmark_schemes.pantheon)


@app.command(name="attainable-rate")
def attainable_rate(
    configuration: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these: " + ", ".join(one.name for one in benchmark.CONFIGURATIONS) + "."
        ),
    ] = None,
    world: Annotated[
        World, typer.Option(help="emulator: the kernel's TCP, in real time.")
    ] = World.SIMULATOR,
    samples: Annotated[int, typer.Option(help="Independent delays at each rate.", min=20)] = 500,
    epsilon: Annotated[
        float,
        typer.Option(help="Probability that a delay is exceeded, at each rate.", min=0, max=1),
    ] = 0.01,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate",
            metavar="RATE",
            help="Probe these, such as '5 Mbit/s', ascending; default: 1, 2, 4, 5, 6 and 8 Mbit/s.",
        ),
    ] = None,
    at_once: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Run so many trains at the same time, which changes no result; default: one for each processor, in real time one.",
        ),
    ] = 0,
    longest: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Probe no rate for longer; default: 25,000 s, half an hour in real time.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all that is random.", min=0)] = 1,
    output: Annotated[
        FilePath,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="What is probed is kept here, and not probed again.",
        ),
    ] = FilePath("benchmark"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Probe one flow beside nine greedy ones, over several buffers, queues, losses and controllers.

    Example: pathcast benchmark attainable-rate --configuration base
    """
    if world is World.LIVE:
        raise ProbingError("the benchmark's links are not real: --world simulator or emulator")
    configurations = benchmark.chosen(configuration, world)
    real = world is World.EMULATOR
    options = Options(
        epsilon=epsilon,
        samples=samples,
        seed=seed,
        at_once=at_once,
        most_s=longest or (1800.0 if real else 25_000.0),
    )
    rates = [parse_rate(text, "bit", "rate") for text in rate or ()] or benchmark.RATES_BPS
    if real and not as_json:
        each_s = 8 * _GREEDY_S / 5 + len(rates) * samples * 2.0
        hours = len(configurations) * each_s / 3600 / max(1, at_once)
        err.print(
            f"in real time: about {hours:.1f} h if samples may lie 2 s apart; Ctrl-C stops, the same command continues"
        )
    with progress_bar("benchmark", len(configurations), "configurations") as progress:
        try:
            results = benchmark.run(
                configurations,
                options,
                rates_bps=rates,
                greedy_s=_GREEDY_S / 5 if real else _GREEDY_S,
                prober=EmulatedProber if real else SimulatedProber,
                folder=output / world,
                progress=progress,
            )
        except KeyboardInterrupt:
            err.print("interrupted; rates that were done are kept, the same command goes on")
            raise typer.Exit(INTERRUPTED) from None
    collected = report.collect(results, options, world.value)
    page = report.write(output, results, collected)
    if as_json:
        print_json(collected)
        return
    # Mbit/s and ms; the page has more
    table = Table("Mbit/s", "greedy", *(f"{time} s" for time in _SHOWN), "wait at 5", "video")
    for row in collected["configurations"]:
        of_time = (f"{row['attainable_bps'][time][0] / 1e6:.2f}" for time in _SHOWN)
        delay, video = row["delay_at_5_s"], row["video_s"]
        table.add_row(
            row["configuration"],
            f"{row['greedy_bps'][0] / 1e6:.2f}",
            *of_time,
            "-" if delay is None else f"{1e3 * delay:.0f} ms",
            "-" if video is None else f"{1e3 * video[1]:.0f} ms",
        )
    out.print(table)
    shown = Table("", "the paper finds", "got")
    for one in collected["claims"]:
        verdict = one["verdict"]
        shown.add_row(
            styled((verdict, "bold")) if verdict == claims.FAILS else verdict,
            one["claim"],
            one["got"],
        )
    out.print(shown)
    out.print(f"of the paper's findings {report.counted(collected, 'tested')}")
    if any(one["tuned"] for one in collected["claims"]):
        out.print(f"of what losses were tuned to give {report.counted(collected, 'tuned')}")
    out.print(f"report written to {page}")


@app.command(name="pages")
def pages(
    page: Annotated[
        list[FilePath],
        typer.Argument(metavar="PAGE...", help="HARs or page files; their replicas are served."),
    ],
    scheme: Annotated[
        list[str] | None,
        typer.Option(help="Congestion control of the server; several. Default: cubic and bbr."),
    ] = None,
    rate: Annotated[
        list[str] | None, typer.Option(help='Rate of the link; several. Default: "20 Mbit/s".')
    ] = None,
    rtt: Annotated[
        list[float] | None,
        typer.Option(metavar="SECONDS", help="Round-trip time; several. Default: 0.05."),
    ] = None,
    loss: Annotated[
        list[float] | None,
        typer.Option(help="Loss towards the browser; several. Default: 0, 1e-3, 3e-3, 1e-2."),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            help="http/1.1 or h2 from nginx, h3 or h2-caddy from Caddy; several. Default: http/1.1 and h2. "
            "h3 is measured with cubic alone."
        ),
    ] = None,
    loads: Annotated[int, typer.Option(help="By each protocol in each cell.", min=2)] = 20,
    browser: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What forecasts take for the browser's own time: none, chromium, or three times "
            "in milliseconds.",
        ),
    ] = "chromium",
    output: Annotated[
        FilePath,
        typer.Option("--output", "-o", metavar="FOLDER", help="What is measured is kept here."),
    ] = FilePath("pages"),
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Load pages in Chromium from nginx and Caddy over emulated paths, and set forecasts beside (Linux; root).

    Each page is served as static files with the sizes and the graph of the original. Loads by all protocols take
    turns. HTTP/2 from Caddy (h2-caddy) shows what of the difference between h2 and h3 is the server's.

    Example: pathcast benchmark pages page.har --loss 0 --loss 0.01 --loads 10
    """
    from pathcast.experiments.pages import benchmark as of_pages
    from pathcast.experiments.pages import report as of_report

    own_time = BrowserTime.parse(browser)
    schemes = scheme or ["cubic", "bbr"]
    protocols = protocol or of_pages.DEFAULT
    of_pages.check(protocols, schemes)
    folder = make_folder(output)
    replicas = {}
    for file in page:
        for number, one in enumerate(Page.load_all(file)):
            name = file.name.partition(".")[0] + (f"-{number}" if number else "")
            replicas[name] = of_pages.replica_of(one, folder)
    todo = of_pages.cells(replicas, schemes, rate or ["20 Mbit/s"], rtt or [0.05], loss or _LOSSES)
    compared = []
    with progress_bar("measured", len(todo) * loads, "loads") as show:
        for number, cell in enumerate(todo):
            names = of_pages.measurable(protocols, cell.scheme)
            try:
                found = of_pages.measure(
                    cell,
                    replicas[cell.page],
                    folder,
                    loads,
                    lambda done, number=number: show(number * loads + done),  # type: ignore[misc]
                    names,
                )
            except KeyboardInterrupt:
                err.print("interrupted; loads that were done are kept, the same command goes on")
                raise typer.Exit(INTERRUPTED) from None
            compared.append(
                of_pages.compare(cell, replicas[cell.page], found, seed, names, own_time)
            )
    collected = of_report.collect(compared, sys.argv[1:])
    written = of_report.write(output, collected)
    if as_json:
        print_json(collected)
        return
    out.print(of_report.text_table(collected))
    for line in of_report.lines(collected):
        out.print(line, markup=False, soft_wrap=True)
    out.print(f"report written to {written}")


_LOSSES = (0.0, 1e-3, 3e-3, 1e-2)
#: Times that the table shows, in seconds.
_SHOWN = ("0.1", "1", "10")
#: Length of a greedy source's runs in the simulator, in seconds.
_GREEDY_S = 300.0
