"""`pathcast simulate` and `emulate`: runs over a path or a scenario."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer

from pathcast import rootless, runs
from pathcast import scenario as scenarios
from pathcast.cli.console import err, finish_run, progress_bar
from pathcast.cli.options import Device, Json, Seed, SuperPackets, WorkloadText
from pathcast.exceptions import PathcastError
from pathcast.files import check_output
from pathcast.path import Path
from pathcast.scenario import Scenario

WhatToRun = Annotated[
    FilePath,
    typer.Argument(
        metavar="FILE.toml", help="A path or a scenario; see `pathcast help path-file`."
    ),
]
Schemes = Annotated[
    list[str] | None,
    typer.Option(
        "--scheme",
        help="Congestion control, by name; over QUIC quic-cubic, quic-reno or quic-bbr3; several for "
        "mixed flows; default: cubic. Not with a scenario, as the next two.",
    ),
]
FlowsOfEach = Annotated[
    int | None, typer.Option("--flows", help="Flows of each scheme; default: 1.", min=1, max=10_000)
]
PacketsFile = Annotated[
    FilePath | None,
    typer.Option("--packets", help="Write every event of every packet here, as Parquet."),
]
Output = Annotated[
    FilePath | None, typer.Option("--output", "-o", help="Write the trace here, as Parquet.")
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
    queues: Annotated[
        FilePath | None,
        typer.Option("--queues", help="Write how much waits in each queue here, as Parquet."),
    ] = None,
    queues_every: Annotated[
        float,
        typer.Option(
            "--queues-every",
            metavar="SECONDS",
            help="How often queues are looked at.",
            min=1e-6,
            max=3600,
        ),
    ] = runs.DEFAULT_QUEUES_EVERY_S,
    pcap: Annotated[
        FilePath | None,
        typer.Option(
            "--pcap",
            help="Write the packets here as tcpdump sees them at the senders: headers, as pcapng.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run flows over a path, or a scenario, in the simulator."""
    what, schemes = _what_to_run(file, scheme, flows, workload)
    for written in (output, packets, queues, pcap):
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
            queues_file=queues,
            queues_every_s=queues_every,
            capture_file=pcap,
            progress=progress,
        )
    finish_run(run, as_json, trace=output, packets=packets, queues=queues, capture=pcap)


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
    super_packets: SuperPackets = None,
    output: Output = None,
    packets: PacketsFile = None,
    messages: Annotated[
        FilePath | None,
        typer.Option(help="Write where each message spent its time, as Parquet."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the kernel's TCP over emulated links (Linux; root or user namespaces)."""
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
            super_packets=super_packets,
            packets_file=packets,
            messages_file=messages,
            progress=progress,
        )
    if output is not None:
        trace.write(output)
    for line in rootless.caveats(trace.metadata["environment"]):
        err.print(line)
    finish_run(run, as_json, trace=output, packets=packets, messages=messages)
