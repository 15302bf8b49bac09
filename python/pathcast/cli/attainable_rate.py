"""`pathcast attainable-rate`: what a non-greedy application can expect, by probing."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pathcast.attainable_rate import (
    AttainableRate,
    Budget,
    EmulatedProber,
    LiveProber,
    Options,
    Probed,
    Prober,
    SimulatedProber,
    WindowLoop,
    estimate,
    estimate_adaptively,
    steps,
)
from pathcast.attainable_rate import figures as pictures
from pathcast.attainable_rate.live import DEFAULT_LONGEST_S
from pathcast.attainable_rate.scenarios import probing
from pathcast.cli.console import INTERRUPTED, err, out, print_json
from pathcast.exceptions import ProbingError
from pathcast.experiments.attainable_rate.folder import Folder, resumed
from pathcast.experiments.engine.store import locked
from pathcast.experiments.engine.world import World
from pathcast.files import write_beside
from pathcast.report.plots import alone
from pathcast.scenario import Scenario, load

_UNITS = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}


def attainable_rate(
    what: Annotated[
        FilePath | None,
        typer.Argument(
            metavar="[FILE.toml]",
            help="A scenario of which one flow has a workload of constant rate (`pathcast help scenario-file`), or a path.",
        ),
    ] = None,
    world: Annotated[
        World, typer.Option(help="emulator: the kernel's TCP, in real time; live: over the path to --server.")
    ] = World.SIMULATOR,
    flow: Annotated[
        int, typer.Option(help="Number of the scenario's flow that probes, from 0.", min=0)
    ] = 0,
    scheme: Annotated[
        str | None, typer.Option(help="Over a path: congestion control of the probes; default: cubic.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="HOST", help="With --world live: the host where `pathcast live server` runs, as HOST, HOST:PORT or [ADDRESS]:PORT."
        ),
    ] = None,
    key_file: Annotated[
        FilePath | None, typer.Option("--key", metavar="FILE", help="The server's key.")
    ] = None,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="With --world live: the server sends.")
    ] = False,
    budget: Annotated[
        str, typer.Option(metavar="SIZE", help="With --world live: send no more than this.")
    ] = "1 GB",
    longest_run: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="With --world live: the longest run that the server takes.", min=30),
    ] = DEFAULT_LONGEST_S,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --world live: do not ask before sending.")
    ] = False,
    step: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help='Distance of rates, as "1 Mbit/s", of a loop packets a second; with --adaptive the resolution of the '
            "largest one.",
        ),
    ] = None,
    most: Annotated[
        str | None, typer.Option(metavar="RATE", help="No rate above this; default with --adaptive: what a greedy source gets.")
    ] = None,
    adaptive: Annotated[
        int | None,
        typer.Option(
            metavar="RATES",
            help="Choose at most so many rates by what they add, instead of equal steps.",
            min=2,
        ),
    ] = None,
    epsilon: Annotated[
        float, typer.Option(help="Probability that a delay is exceeded, at each rate.", min=0, max=1)
    ] = 0.01,
    samples: Annotated[
        int, typer.Option(help="Independent delays at each rate.", min=20)
    ] = 750,
    longest: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Probe no rate for longer than this; default: 20,000 s, two hours in real time, three years of a fluid.",
        ),
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Instead of a file, window flow control alone, of this latency each way, with one of the next three.",
        ),
    ] = None,
    window: Annotated[int | None, typer.Option(metavar="PACKETS", help="Static window.")] = None,
    marks: Annotated[
        float | None,
        typer.Option(metavar="PROBABILITY", help="Adaptive window; a mark halves it."),
    ] = None,
    marks_every: Annotated[
        int | None, typer.Option(metavar="PACKETS", help="The same, marks being periodic.")
    ] = None,
    capacity: Annotated[
        float | None,
        typer.Option(metavar="PACKETS/S", help="Of the loop's network; default: no limit."),
    ] = None,
    fluid: Annotated[
        int | None,
        typer.Option(metavar="STEPS", help="Probe the loop as a fluid, in so many steps of a round trip.", min=1),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all that is random.", min=0)] = 1,
    at_once: Annotated[
        int,
        typer.Option(
            help="Run so many trains at the same time, which changes no result; 0: one for each processor, in real time one.",
            min=0,
        ),
    ] = 0,
    trains: Annotated[
        int,
        typer.Option(help="Divide the samples of a rate among so many trains, each of 60 samples or more.", min=1),
    ] = 4,
    output: Annotated[
        FilePath | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER",
            help="Write estimate.json and pictures here; rates that are there are not probed again.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:  # fmt: skip
    """Probe for the rate that TCP sustains at each time scale, for rate-limited applications."""
    prober: Prober
    if world is World.LIVE:
        loop = (latency, window, marks, marks_every, capacity, fluid)
        if any(one is not None for one in loop):
            raise ProbingError("window flow control alone is simulated: no --world live")
        if adaptive is not None and most is None:
            raise ProbingError(
                "on a real path --adaptive needs --most: what a greedy source gets is found by filling the path"
            )
        prober = _live(what, flow, scheme, server, key_file, budget, longest_run, reverse=reverse)
    else:
        if server is not None or key_file is not None or reverse:
            raise ProbingError("--server, --key and --reverse go with --world live")
        prober = _prober(
            what, world, flow, scheme, latency, window, marks, marks_every, capacity, fluid
        )
    if longest is None:
        longest = 7200.0 if prober.real_time else 20_000.0
        if isinstance(prober, WindowLoop) and prober.fluid_steps is not None:
            longest = 1e8
    options = Options(
        epsilon=epsilon,
        samples=samples,
        most_s=longest,
        at_once=at_once,
        seed=seed,
        pilot_s=min(60.0, longest),
        trains=trains,
    )
    by = 1e6 if prober.unit == "bit" else 100.0
    if step is not None:
        by = parse_rate(step, prober.unit, "step")
    largest = None if most is None else parse_rate(most, prober.unit, "largest rate")
    folder = None if output is None else Folder(output, prober, options)
    kept, keep = resumed(folder)
    if prober.real_time and not as_json:
        each_s = options.samples * 1.0
        err.print(
            f"in real time: {options.samples} samples of each rate take at least {each_s / 60:.0f} min if they may lie "
            "1 s apart, more where delays hang together longer; Ctrl-C stops"
            + ("" if folder is None else ", the same command goes on")
        )
    if isinstance(prober, LiveProber) and not yes:
        _ask(prober, largest)
    alone = contextlib.nullcontext() if output is None else locked(output)
    with alone, _watched(prober) as watch:
        if adaptive is None:
            rates = steps(by, math.inf if largest is None else largest)
            found, probed = estimate(prober, rates, options, kept=kept, keep=keep, watch=watch)
        else:
            found, probed = estimate_adaptively(
                prober, adaptive, by, options, most=largest, kept=kept, keep=keep, watch=watch
            )
    if isinstance(prober, LiveProber):
        spent = prober.budget
        err.print(f"sent {spent.spent_bytes / 1e6:.4g} MB of {spent.total_bytes / 1e6:.4g} MB")
    if output is not None:
        write(output, found, probed)
    if as_json:
        print_json(found.to_dict())
    else:
        print_estimate(found)
        if output is not None:
            out.print(f"written to {output}: estimate.json, *.svg")


def _live(
    what: FilePath | None,
    flow: int,
    scheme: str | None,
    server: str | None,
    key_file: FilePath | None,
    budget: str,
    longest_run: float,
    *,
    reverse: bool,
) -> LiveProber:
    if server is None or key_file is None:
        raise ProbingError(
            "a real path is probed between this host and a server: expected --server and --key (`pathcast live server --help`)"
        )
    if what is None:
        scenario = LiveProber.over(scheme or "cubic", reverse=reverse)
    else:
        loaded = load(what)
        if not isinstance(loaded, Scenario):
            raise ProbingError(f"{what}: is a path, expected a scenario: here the path is real")
        if scheme is not None or reverse:
            raise ProbingError("--scheme and --reverse are in the scenario, of each flow")
        scenario = loaded
    total_bytes = _size(budget)
    return LiveProber(
        scenario, flow, server, key_file, longest_s=longest_run, budget=Budget(total_bytes)
    )


def _ask(prober: LiveProber, most: float | None) -> None:
    """Ask before a real path is filled."""
    upto = "the first rate that it does not carry" if most is None else shown(most, prober.unit)
    question = (
        f"This sends up to {prober.budget.total_bytes / 1e6:.4g} MB over the path to {prober.server}, at rates up to "
        f"{upto}; others on it will notice. Go on?"
    )
    if not sys.stdin.isatty():
        raise ProbingError(f"{question} Standard input is no terminal: confirm with --yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


def _size(text: str) -> float:
    """A size of the command line, in bytes."""
    size = _quantity(text, {"kB": 1e3, "MB": 1e6, "GB": 1e9})
    if size is None:
        raise ProbingError(f"{text!r} is no size, expected such as '500 MB'")
    return size


def _quantity(text: str, units: Mapping[str, float]) -> float | None:
    """A positive number and its unit, in the one that counts 1; None if it is no such thing."""
    number, _, name = text.strip().partition(" ")
    factor = units.get(name.strip())
    try:
        value = float(number)
    except ValueError:
        return None
    return None if factor is None or not 0 < value < math.inf else value * factor


def _prober(
    what: FilePath | None,
    world: World,
    flow: int,
    scheme: str | None,
    latency: float | None,
    window: int | None,
    marks: float | None,
    marks_every: int | None,
    capacity: float | None,
    fluid: int | None,
) -> Prober:
    of_loop = (window, marks, marks_every)
    if what is None:
        if latency is None or sum(one is not None for one in of_loop) != 1:
            raise ProbingError(
                "nothing to probe: expected a scenario or path file, or --latency with one of --window, --marks and "
                "--marks-every"
            )
        if world is not World.SIMULATOR or scheme is not None:
            raise ProbingError(
                "window flow control alone is simulated and has no scheme: --world and --scheme need a file"
            )
        loop = WindowLoop(latency, latency, window, marks, marks_every, capacity, fluid)
        loop.check()
        return loop
    if (
        latency is not None
        or capacity is not None
        or fluid is not None
        or any(one is not None for one in of_loop)
    ):
        raise ProbingError(
            "--latency, --window, --marks, --marks-every, --capacity and --fluid are instead of a file, not beside one"
        )
    loaded = load(what)
    if isinstance(loaded, Scenario):
        if scheme is not None:
            raise ProbingError("--scheme goes with a path; the flows of a scenario have their own")
        scenario = loaded
    else:
        scheme = scheme or "cubic"
        scenario = Scenario.over(loaded, [scheme], probing(scheme))
    kind = SimulatedProber if world is World.SIMULATOR else EmulatedProber
    return kind(scenario, flow)


def parse_rate(text: str, unit: str, what: str) -> float:
    """A rate of the command line, in units a second."""
    rate = _quantity(text, _UNITS if unit == "bit" else {"": 1.0})
    if rate is None:
        wanted = (
            'such as "1 Mbit/s"' if unit == "bit" else "a number of packets a second, such as 100"
        )
        raise ProbingError(f"{text!r} is no {what}, expected {wanted}")
    return rate


def shown(rate: float, unit: str) -> str:
    """A rate for people."""
    return f"{rate / 1e6:.4g} Mbit/s" if unit == "bit" else f"{rate:.5g} packets/s"


@contextlib.contextmanager
def _watched(prober: Prober) -> Iterator[Callable[[float, float, float | None], None]]:
    """A progress bar on standard error, where that is a terminal."""
    with Progress(
        TextColumn("probing {task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:.0f} s of about {task.total:.0f} s", markup=False),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    ) as bar:
        task = bar.add_task("", total=1.0)
        try:
            yield lambda rate, done_s, all_s: bar.update(
                task, description=shown(rate, prober.unit), completed=done_s, total=all_s or done_s
            )
        except KeyboardInterrupt:
            err.print("interrupted; rates that were done are kept if there is an --output")
            raise typer.Exit(INTERRUPTED) from None


def write(folder: FilePath, found: AttainableRate, probed: list[Probed]) -> None:
    """Write an estimate and its pictures."""
    write_beside(
        folder / "estimate.json", json.dumps(found.to_dict(), allow_nan=False, indent=1) + "\n"
    )
    for name, (_, picture) in pictures.of_estimate(found, probed).items():
        write_beside(folder / f"{name}.svg", alone(picture))


def print_estimate(found: AttainableRate) -> None:
    """Print an estimate for people."""
    by, unit = (1e6, "Mbit/s") if found.unit == "bit" else (1.0, "packets/s")
    if found.used:
        epsilon = found.used[0].epsilon
        table = Table(unit, f"delay, {epsilon:g}", "95 % bounds", "median", "in sender", "apart")
        for point in found.used:
            bounds = (point.delay_low_s, point.delay_high_s)
            table.add_row(
                f"{point.rate / by:.5g}",
                _span(point.delay_s),
                " to ".join(map(_span, bounds)),
                _span(point.median_delay_s),
                f"{100 * point.buffered:.3g} %",
                _span(point.spacing_s),
            )
        out.print(table)
    for point in found.used:
        for note in point.notes:
            out.print(f"{point.rate / by:.5g} {unit}: {note}")
    for point in found.points:
        if not point.stationary:
            verdict = "is undecided" if point.undecided else "has no steady state"
            out.print(f"{point.rate / by:.5g} {unit} {verdict}: {point.because}")
    if not found.used:
        out.print("no rate has a steady state: probe smaller ones, or for longer")
        return
    if found.greedy is not None:
        mean, low, high = (f"{rate / by:.5g}" for rate in found.greedy)
        out.print(f"a greedy source gets {mean} {unit} ({low} to {high})")
    beyond = found.unstable_rate
    out.print(
        f"long-term rate: {found.long_term_rate / by:.5g} {unit}"
        + ("" if beyond is None else f", less than {beyond / by:.5g}")
    )
    times = _times(found)
    shown = Table("within", f"attainable, {unit}", "bounds")
    for time, rate, low, high in zip(
        times, *(found.rate(times, bound) / by for bound in ("", "low", "high")), strict=True
    ):
        shown.add_row(f"{time:g} s", f"{rate:.4g}", f"{low:.4g} to {high:.4g}")
    out.print(shown)
    out.print(
        f"with probability {1 - found.epsilon:.4g} or more; bounds are those of the delays, "
        f"{100 * found.confidence:g} % each"
    )


def _span(seconds: float | None) -> str:
    """A time for people."""
    if seconds is None:
        return "?"
    return f"{1e3 * seconds:.4g} ms" if seconds < 1 else f"{seconds:.4g} s"


def _times(found: AttainableRate) -> list[float]:
    """Round times from the least delay to ten times the largest, in seconds; at most ten."""
    delays = [point.delay_s or 1e-3 for point in found.used]
    first, last = math.floor(math.log10(min(delays))), math.ceil(math.log10(10 * max(delays)))
    times = [digit * 10.0**power for power in range(first, last + 1) for digit in (1, 3)]
    chosen = [time for time in times if min(delays) < time <= 10 * max(delays)]
    return chosen[:: math.ceil(len(chosen) / 10)] or [times[-1]]
