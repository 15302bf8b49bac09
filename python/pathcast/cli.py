"""The command line: `pathcast --help`."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path as FilePath
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.table import Table
from typer.core import TyperGroup

from pathcast import (
    __version__,
    batch,
    cli_attainable_rate,
    cli_benchmark,
    cli_bound,
    cli_clusters,
    cli_estimate,
    cli_follow,
    cli_latency,
    cli_live,
    cli_suite,
    cli_watch,
    demo,
    models,
    report,
    rootless,
    runs,
    shell,
)
from pathcast import scenario as scenarios
from pathcast.console import (
    INTERRUPTED,
    err,
    finish_run,
    mbps,
    out,
    print_json,
    print_run,
    progress_bar,
)
from pathcast.convert import convert as convert_trace
from pathcast.exceptions import PathcastError
from pathcast.files import check_output, write_beside
from pathcast.path import Path
from pathcast.scenario import Scenario
from pathcast.trace import read_trace

#: Exit code for what the caller got wrong.
BAD_INPUT = 2


class _Commands(TyperGroup):
    """Lets a command have a name of two words: `evaluate suite` stands beside `evaluate TRACE...`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        two = " ".join(args[:2])
        return super().resolve_command(ctx, [two, *args[2:]] if two in self.commands else args)


app = typer.Typer(
    cls=_Commands,
    help="Measure a network path once; forecast how any application will perform on it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
path_app = typer.Typer(help="Show paths.", no_args_is_help=True)
app.add_typer(path_app, name="path")
app.add_typer(cli_live.app, name="live")
app.add_typer(cli_benchmark.app, name="benchmark")
app.command()(cli_watch.watch)
app.command(name="attainable-rate")(cli_attainable_rate.attainable_rate)
app.command()(cli_follow.follow)
app.command()(cli_clusters.curve)
app.command()(cli_estimate.estimate)
app.command(name="latency")(cli_latency.forecast_latency)
app.command()(cli_bound.bound)

PathFile = Annotated[
    FilePath, typer.Argument(metavar="PATH.toml", help="The path; see docs/path-file.md.")
]
WorkloadText = Annotated[
    str | None,
    typer.Option(
        metavar="TOML",
        help="What each flow sends, such as \"{ kind = 'transfer', size = '5 MB' }\"; default: "
        "bulk; docs/scenario-file.md.",
    ),
]
Traces = Annotated[
    list[FilePath],
    typer.Argument(
        metavar="TRACE...", help="Parquet, CSV, or of another tool; docs/trace-format.md."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Flows = Annotated[int, typer.Option(help="Flows of each scheme.", min=1, max=10_000)]
Seed = Annotated[int, typer.Option(help="Seed of all that is random.", min=0)]
Cc = Annotated[
    str | None,
    typer.Option(help="cubic or reno; default: what the trace says, else guessed."),
]
Rtt = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Round-trip time; default: the trace's srtt, else estimated."
    ),
]


FromMahimahi = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND_LINE", help='Instead of a file: "mm-delay 20 mm-link UP DOWN ...".'
    ),
]


class Protocol(StrEnum):
    """How forecasts are judged; docs/models.md defines both."""

    FAIR = "fair"
    PAPER = "paper"


def _mean(values: npt.NDArray[np.float64]) -> float | None:
    """The mean of those that are there; None if there is none."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if there.size else None


Scheme = Annotated[
    list[str], typer.Option(help="Congestion control, by name; several for mixed flows.")
]
Output = Annotated[
    FilePath | None, typer.Option("--output", "-o", help="Write the trace here, as Parquet.")
]


WhatToRun = Annotated[
    FilePath,
    typer.Argument(
        metavar="FILE.toml", help="A path, or a scenario; docs/path-file.md, docs/scenario-file.md."
    ),
]
Schemes = Annotated[
    list[str] | None,
    typer.Option(
        "--scheme",
        help="Congestion control, by name; emulate: also quic-cubic, quic-reno, quic-bbr3; several for "
        "mixed flows; default: cubic. Not with a scenario, as the next two.",
    ),
]
FlowsOfEach = Annotated[
    int | None, typer.Option("--flows", help="Flows of each scheme; default: 1.", min=1, max=10_000)
]
Device = Annotated[
    runs.Device,
    typer.Option(
        "--device", help="What packets go through; auto: TUN if it can be had, else veth."
    ),
]
PacketsFile = Annotated[
    FilePath | None,
    typer.Option("--packets", help="Write every event of every packet here, as Parquet."),
]


def _what_to_run(
    file: FilePath, scheme: list[str] | None, flows: int | None, workload: str | None
) -> tuple[Path | Scenario, list[str] | None]:
    """What the file and the options of a run say together: a path and schemes, or a scenario."""
    what = scenarios.load(file)
    if isinstance(what, Path):
        schemes = [name for name in scheme or ["cubic"] for _ in range(flows or 1)]
        return (
            (what, schemes) if workload is None else (Scenario.over(what, schemes, workload), None)
        )
    for option, given in (("--scheme", scheme), ("--flows", flows), ("--workload", workload)):
        if given is not None:
            raise PathcastError(f"{file}: is a scenario, whose flows are in the file: no {option}")
    return what, None


@app.command()
def simulate(
    file: WhatToRun,
    scheme: Schemes = None,
    flows: FlowsOfEach = None,
    workload: WorkloadText = None,
    duration: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Virtual time; default: the scenario's, or 60."),
    ] = None,
    seed: Seed = 1,
    output: Output = None,
    packets: PacketsFile = None,
    as_json: Json = False,
) -> None:
    """Run flows over a path, or a whole scenario, in the simulator."""
    what, schemes = _what_to_run(file, scheme, flows, workload)
    for written in (output, packets):
        if written is not None:
            check_output(written)
    spec = runs.specified(what, schemes, duration, seed)
    with progress_bar("simulating", spec[3]) as progress:
        run, _ = runs.simulate(
            what,
            schemes,
            duration_s=duration,
            seed=seed,
            record=False,
            trace_file=output,
            packets_file=packets,
            progress=progress,
        )
    finish_run(run, as_json, trace=output, packets=packets)


@app.command()
def emulate(
    file: WhatToRun,
    scheme: Schemes = None,
    flows: FlowsOfEach = None,
    workload: WorkloadText = None,
    duration: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Real time; default: the scenario's, or 60."),
    ] = None,
    seed: Seed = 1,
    ipv6: Annotated[bool, typer.Option("--ipv6", help="Use IPv6 instead of IPv4.")] = False,
    device: Device = runs.Device.AUTO,
    output: Output = None,
    packets: PacketsFile = None,
    messages: Annotated[
        FilePath | None,
        typer.Option(help="Write where each message over TCP spent its time, as Parquet."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the kernel's TCP over emulated links (Linux; root, or user namespaces)."""
    what, schemes = _what_to_run(file, scheme, flows, workload)
    for written in (output, packets, messages):
        if written is not None:
            check_output(written)
    spec = runs.specified(what, schemes, duration, seed)
    with progress_bar("emulating", spec[3]) as progress:
        run, trace = runs.emulate(
            what,
            schemes,
            duration_s=duration,
            seed=seed,
            ipv6=ipv6,
            device=device,
            packets_file=packets,
            messages_file=messages,
            progress=progress,
        )
    if output is not None:
        trace.write(output)
    for line in rootless.caveats(trace.metadata["environment"]):
        err.print(line)
    finish_run(run, as_json, trace=output, packets=packets, messages=messages)


@app.command()
def sweep(
    path_files: Annotated[
        list[FilePath], typer.Argument(metavar="PATH.toml...", help="Paths to run over.")
    ],
    scheme: Scheme = ["cubic"],  # noqa: B006 - typer's way to give a list's default
    seeds: Annotated[int, typer.Option(help="Runs of each, with seeds 1, 2, ...", min=1)] = 10,
    workload: WorkloadText = None,
    duration: Annotated[float, typer.Option(metavar="SECONDS", help="Virtual time.")] = 60.0,
    threads: Annotated[
        int | None, typer.Option(help="Runs at once; default: one a core.", min=1)
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run on a Ray cluster: HOST:PORT, ray://HOST:PORT or local; docs/simulator.md.",
        ),
    ] = None,
    output: Annotated[
        FilePath | None, typer.Option("--output", "-o", help="Write each run here, as Parquet.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate every path with every scheme, one flow, many seeds, on all cores or a cluster."""
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
            "-" if error is None else mbps(error),
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


@app.command()
def convert(
    file: Annotated[
        FilePath,
        typer.Argument(
            metavar="INPUT", help="A trace of any tool that docs/trace-format.md lists."
        ),
    ],
    output: Annotated[
        FilePath | None,
        typer.Option("--output", "-o", help="Write the trace here, as Parquet, or CSV if .csv."),
    ] = None,
    packets: Annotated[
        FilePath | None,
        typer.Option(
            help="Write the packets here, as Parquet, a log of mm-link if .log, or a "
            "packet-delivery trace if .trace."
        ),
    ] = None,
    egress: Annotated[
        FilePath | None,
        typer.Option(
            help="Of a Pantheon tunnel whose logs are not merged: that of what left it; INPUT is that "
            "of what entered it."
        ),
    ] = None,
    flow: Annotated[
        int | None,
        typer.Option(help="The one flow to take; default: all, of a capture the busiest.", min=0),
    ] = None,
    keep_prefix: Annotated[
        bool, typer.Option("--keep-prefix", help="Take what comes before any damage.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read a trace of another tool and write it as a trace of ours."""
    for written in (output, packets):
        if written is not None:
            check_output(written)
    done = convert_trace(
        file, output, packets=packets, egress=egress, flow=flow, keep_prefix=keep_prefix
    )
    for warning in done.warnings:
        err.print(warning, markup=False, soft_wrap=True)
    if as_json:
        print_json(asdict(done))
        return
    for rows, written in ((done.rows, output), (done.packets, packets)):
        if rows is not None:
            out.print(f"{rows} rows of {done.format} written to {written}")
    for number, rate_bps in done.goodput_bps.items():
        out.print(f"goodput of flow {number}: {mbps(rate_bps)}")


@app.command()
def fit(
    traces: Traces,
    output: Annotated[
        FilePath | None, typer.Option("--output", "-o", help="Write the JSON here.")
    ] = None,
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
    loaded = [read_trace(trace) for trace in traces]
    fitted = models.fit(loaded, cc=cc, rtt_s=rtt)
    cli_clusters.add_to_store(clusters, loaded, prefix, network, region, cc, rtt)
    result = fitted.to_dict()
    if output is not None:
        write_beside(output, json.dumps(result, allow_nan=False) + "\n")
    if as_json:
        print_json(result)
        return
    table = Table("trace", "flow", "cc", "RTT", "losses", "epochs")
    for flow in fitted.flows:
        rtt_text = f"{flow.rtt_s * 1e3:.1f} ms ({flow.rtt_source})"
        table.add_row(
            flow.file, str(flow.flow), flow.cc, rtt_text, str(flow.losses), str(len(flow.epochs))
        )
    out.print(table)
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


def _score_table(scores: tuple[models.HorizonScore, ...]) -> Table:
    """Models down, horizons across; the best of each horizon in bold."""
    table = Table("median error, %", *(f"{score.horizon_s:g} s" for score in scores))
    for model in models.judged(scores):
        cells = []
        for score in scores:
            errors = [error for error in score.median_error_pct.values() if error is not None]
            error = score.median_error_pct[model]
            if error is None:
                cells.append("-")
            elif error <= min(errors):
                cells.append(f"[bold green]{error:.1f}[/]")
            else:
                cells.append(f"{error:.1f}")
        table.add_row(model, *cells)
    table.add_section()
    coverages = ("-" if s.coverage90 is None else f"{s.coverage90:.0%}" for s in scores)
    table.add_row("pathcast's 90 % band", *coverages)
    table.add_row("windows", *(str(score.windows) for score in scores))
    return table


@app.command()
def evaluate(
    traces: Traces,
    horizon: Annotated[
        list[float], typer.Option(metavar="SECONDS", help="How far ahead; several.")
    ] = list(models.DEFAULT_HORIZONS_S),  # noqa: B006 - typer's way to give a list's default
    protocol: Annotated[
        Protocol, typer.Option(help="What the baselines see; docs/models.md.")
    ] = Protocol.FAIR,
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
    evaluations = [
        models.evaluate(
            trace, horizon, flow=flow, protocol=protocol.value, cc=cc, rtt_s=rtt, window_s=window
        )
        for trace in [read_trace(file) for file in traces]
        for flow in trace.flows
    ]
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
            }
        )
        return
    names = {"packets_per_s": "packets a second", "mean_cwnd_packets": "mean cwnd"}
    for evaluation in evaluations:
        if len(evaluations) > 1:
            out.print(f"{evaluation.file}, flow {evaluation.flow}:")
            out.print(_score_table(evaluation.horizons))
    if len(evaluations) > 1:
        out.print("all together:")
    out.print(_score_table(scores))
    out.print(
        f"median |forecast / truth - 1| in per cent, {protocol.value} protocol"
        + ("" if window is None else f", all models learning on {window:g} s alone")
        + "; truth is "
        + " and ".join(names[truth] for truth in truths)
        + (" (no sequence numbers in the trace)" if "mean_cwnd_packets" in truths else "")
    )


app.command(name="evaluate suite")(cli_suite.suite)


@app.command(name="demo")
def run_demo(
    path_file: Annotated[
        FilePath | None,
        typer.Option("--path", metavar="PATH.toml", help="Another path than the demo's own."),
    ] = None,
    scheme: Annotated[str, typer.Option(help="cubic or reno.")] = "cubic",
    duration: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long the flow runs.", min=15)
    ] = 60.0,
    seed: Seed = 1,
    world: Annotated[
        demo.World, typer.Option(help="auto: the emulator if it can run here, else the simulator.")
    ] = demo.World.AUTO,
    output: Annotated[
        FilePath, typer.Option("--output", "-o", help="The report, one HTML page.")
    ] = FilePath("report.html"),
    trace_output: Annotated[
        FilePath | None, typer.Option("--trace", help="Keep the trace here, as Parquet.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure a TCP flow, fit its loss curve, forecast it, show the forecast against the truth."""
    for file in (output, trace_output):
        if file is not None:
            check_output(file)
    path = demo.demo_path() if path_file is None else Path.load(path_file)
    chosen = demo.choose_world(world)
    if not as_json:
        out.print(
            f"{chosen.said}: one {scheme} flow, {duration:g} s, over {path.name or path.file}"
        )
    with progress_bar("running the flow", duration) as progress:
        measured = demo.measure(
            path, chosen, scheme=scheme, duration_s=duration, seed=seed, progress=progress
        )
    if trace_output is not None:
        measured.trace.write(trace_output)
    result = demo.forecast(measured)
    write_beside(output, report.render(result))
    if as_json:
        print_json(result.to_dict() | {"report": str(output)})
        return
    print_run(measured.run)
    for line in rootless.caveats(measured.trace.metadata["environment"]):
        out.print(line)
    fitted = result.fit.flows[0]
    out.print(
        f"{fitted.losses} losses found in {duration:g} s, {result.losses_in_training} of them in the "
        f"first {result.training_s:.0f} s, which the forecasts begin with"
    )
    out.print(_score_table(result.evaluation.horizons))
    out.print("one forecast each second from there on; an error is |forecast / truth - 1|")
    out.print(f"report written to [bold]{output}[/]")


@app.command()
def capabilities(as_json: Json = False) -> None:
    """Say what the emulator can do on this machine, and why what is missing is missing."""
    found = runs.capabilities()
    if as_json:
        print_json(vars(found) | {"can_emulate": found.can_emulate})
        return
    for name, there in (
        ("network namespaces", found.root),
        ("user namespaces, without root", found.rootless),
        ("TUN devices", found.tun),
        ("veth pairs", found.veth),
        ("real-time priority", found.fifo),
        ("tcp_probe", found.tcp_probe),
    ):
        out.print(f"{'[green]yes[/]' if there else '[red]no [/]'}  {name}")
    out.print(f"congestion controls: {', '.join(found.schemes) or 'none'}")
    if found.bpf_schemes:
        out.print(f"for a run, by BPF: {', '.join(found.bpf_schemes)}")
    for reason in found.reasons:
        out.print(reason)


@app.command(name="shell")
def run_shell(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH.toml -- COMMAND", help="Default: $SHELL."),
    ] = None,
    from_mahimahi: FromMahimahi = None,
    scheme: Annotated[
        str | None,
        typer.Option(help="Congestion control of TCP inside; default: as outside."),
    ] = None,
    outside: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", help="Run this server outside meanwhile; ended at the end."
        ),
    ] = None,
    device: Device = runs.Device.AUTO,
    seed: Seed = 1,
    log: Annotated[
        FilePath | None,
        typer.Option("--log", "--packets", help="Write what happened to each packet, as Parquet."),
    ] = None,
    mm_log: Annotated[
        FilePath | None,
        typer.Option(metavar="FILE", help="Write mm-link's logs: FILE.up and FILE.down."),
    ] = None,
    report_file: Annotated[
        FilePath | None, typer.Option("--report", help="Write what crossed here, as JSON.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing at the end.")] = False,
) -> None:
    """Run a shell or a command inside a path (Linux; without root: --outside); docs/shell.md."""
    code = shell.enter(
        arguments or [],
        from_mahimahi=from_mahimahi,
        scheme=scheme,
        outside=outside,
        device=device,
        seed=seed,
        log=log,
        mm_log=mm_log,
        report=report_file,
        quiet=quiet,
    )
    raise typer.Exit(code)


@path_app.command(name="show")
def show_path(
    path_file: Annotated[
        FilePath | None, typer.Argument(metavar="PATH.toml", help="docs/path-file.md.")
    ] = None,
    form: Annotated[shell.Form, typer.Option("--as", help="In whose words.")] = shell.Form.TOML,
    from_mahimahi: FromMahimahi = None,
    output: Annotated[
        FilePath | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Write the trace files here."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if anything cannot be said in these words.")
    ] = False,
) -> None:
    """Show a path with all defaults, or in the words of another tool."""
    if (path_file is None) == (from_mahimahi is None):
        raise PathcastError("expected either PATH.toml or --from-mahimahi")
    links = (
        shell.Links.from_mahimahi(from_mahimahi)
        if from_mahimahi is not None
        else shell.Links.load(path_file or "")
    )
    sys.stdout.write(shell.show(links, form, output, strict))


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Runs the command line; what the caller got wrong ends with exit code 2."""
    # what is doubtful about a trace, without the line of ours that found it
    warnings.formatwarning = lambda message, *_args, **_kwargs: f"{message}\n"
    try:
        app(prog_name="pathcast")
    except PathcastError as error:
        err.print("[bold red]error:[/]", end=" ")
        err.print(str(error), markup=False, soft_wrap=True)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        err.print("interrupted; nothing is left behind")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
