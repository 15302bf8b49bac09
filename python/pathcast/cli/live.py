"""`pathcast live`: flows between two hosts."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer

from pathcast import live
from pathcast.cli.console import err, out, print_json, print_run, progress_bar
from pathcast.exceptions import PathcastError
from pathcast.files import check_output
from pathcast.path import Path
from pathcast.runs import DEFAULT_DURATION_S
from pathcast.scenario import Scenario, load

app = typer.Typer(
    help="Run flows between two hosts over the real path (Linux; root).",
    no_args_is_help=True,
)

KeyFile = Annotated[
    FilePath,
    typer.Option("--key", metavar="FILE", help="The key of both hosts; `pathcast live key`."),
]


@app.command()
def key(
    file: Annotated[FilePath, typer.Argument(metavar="FILE", help="A file that is not there yet.")],
) -> None:
    """Write a new key; copy it to the other host, where only its owner may read it, too.

    Example: pathcast live key key
    """
    live.write_key(file)
    out.print(f"key written to {file}", soft_wrap=True)


@app.command()
def server(
    key_file: KeyFile,
    listen: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS:PORT",
            help="Where to wait for clients; 0.0.0.0:5600 for all of them, [::]:5600 for IPv6.",
        ),
    ] = live.DEFAULT_LISTEN,
    clients: Annotated[int, typer.Option(help="Clients at a time.", min=1, max=100)] = 4,
    max_duration: Annotated[
        float, typer.Option(metavar="SECONDS", help="The longest run of a client.")
    ] = 600.0,
    once: Annotated[bool, typer.Option("--once", help="End after the first client.")] = False,
    schemes: Annotated[
        bool,
        typer.Option("--schemes", help="Also run schemes that clients ask for by name, contained."),
    ] = False,
) -> None:
    """Wait for clients that have the key, and run flows with them, until Ctrl-C.

    Example: pathcast live server --key key --listen 0.0.0.0:5600
    """

    def say(line: str) -> None:
        err.print(line, markup=False, soft_wrap=True)

    live.serve(
        key_file,
        listen,
        clients=clients,
        max_duration_s=max_duration,
        once=once,
        schemes=schemes,
        say=say,
    )


@app.command()
def run(
    host: Annotated[
        str, typer.Argument(metavar="HOST", help="The server: HOST, HOST:PORT or [ADDRESS]:PORT.")
    ],
    file: Annotated[
        FilePath | None,
        typer.Argument(
            metavar="[SCENARIO.toml]",
            help="Flows; the real path takes the place of the links. Default: one of --scheme.",
        ),
    ] = None,
    *,
    key_file: KeyFile,
    scheme: Annotated[
        list[str] | None,
        typer.Option("--scheme", help="Congestion control, by name; several for mixed flows."),
    ] = None,
    flows: Annotated[
        int | None, typer.Option(help="Flows of each scheme; default: 1.", min=1, max=1000)
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(metavar="TOML", help="What each flow sends; see `pathcast help workloads`."),
    ] = None,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="Data comes from the server: a download.")
    ] = False,
    duration: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How long; default: the scenario's, or 60."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all that is random.", min=0)] = 1,
    output: Annotated[
        FilePath | None, typer.Option("--output", "-o", help="Write the trace here, as Parquet.")
    ] = None,
    packets: Annotated[
        FilePath | None, typer.Option(help="Write every event of every packet here, as Parquet.")
    ] = None,
    messages: Annotated[
        FilePath | None,
        typer.Option(help="Write where each message spent its time here, as Parquet."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Run flows with a server, which may send or receive, also from behind a NAT.

    Example: pathcast live run server.example --key key --duration 20
    """
    for written in (output, packets, messages):
        if written is not None:
            check_output(written)
    what = _what_to_run(file, scheme, flows, workload, reverse=reverse)
    expected_s = what.duration_s if isinstance(what, Scenario) else None
    expected_s = duration or expected_s or DEFAULT_DURATION_S
    with progress_bar("running", expected_s) as progress:
        report, trace = live.run(
            host,
            key_file,
            what,
            reverse=reverse,
            workload=workload,
            duration_s=duration,
            seed=seed,
            packets_file=packets,
            messages_file=messages,
            progress=progress,
        )
    if output is not None:
        trace.write(output)
    if as_json:
        print_json(report.to_dict())
        return
    print_run(report.run)
    clock = report.clock
    out.print(
        f"shortest round trip {clock.least_rtt_s * 1e3:.2f} ms; the server's clock is "
        f"{clock.offset_s:+.6f} s against this one, within {clock.error_s * 1e3:.2f} ms "
        f"({clock.jitter_s * 1e3:.3f} ms if the idle path is as long there as back)"
    )
    if report.reordered_rate > 0:
        out.print(f"{100 * report.reordered_rate:.3g} % of packets came after a later one")
    for what_is_missing in report.refused:
        err.print(f"not permitted: {what_is_missing}", markup=False, soft_wrap=True)
    for name, written in (("trace", output), ("packets", packets), ("messages", messages)):
        if written is not None:
            out.print(f"{name} written to {written}", soft_wrap=True)


def _what_to_run(
    file: FilePath | None,
    scheme: list[str] | None,
    flows: int | None,
    workload: str | None,
    *,
    reverse: bool,
) -> Scenario | list[str]:
    if file is None:
        return [name for name in scheme or ["cubic"] for _ in range(flows or 1)]
    what = load(file)
    if isinstance(what, Path):
        raise PathcastError(f"{file}: is a path, expected a scenario: here the path is real")
    given = {
        "--scheme": scheme,
        "--flows": flows,
        "--workload": workload,
        "--reverse": reverse or None,
    }
    for option, value in given.items():
        if value is not None:
            raise PathcastError(f"{file}: is a scenario, whose flows are in the file: no {option}")
    return what
