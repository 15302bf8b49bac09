"""`pathcast predict download`: larger downloads from one small one."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import asdict, replace
from pathlib import Path as FilePath
from typing import Annotated, Any

import typer
from rich.table import Table

from pathcast import byte_server, short_flow
from pathcast.cli.console import INTERRUPTED, err, mbps, out, print_json
from pathcast.download import DEFAULT_BYTES, DEFAULT_PORT, Download, Target, download
from pathcast.exceptions import ModelError, PathcastError
from pathcast.short_flow import (
    DEFAULT_INITIAL_WINDOW,
    DEFAULT_MSS,
    DEFAULT_SIZES,
    ShortFlowEstimate,
)

_UNITS = {"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_COLUMNS = ("time_s", "received_bytes")
#: The largest file of a timeline that is read, in bytes.
_MOST_TIMELINE = 1 << 25


def parse_size(text: str) -> float:
    """Bytes of `5e6`, `5 MB` or `1448 B`.

    Raises:
        ModelError: the text is not a size.

    """
    found = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?[0-9]{1,2})?)\s*([A-Za-z]*)\s*", text)
    try:
        if found is not None:
            if found[2] not in _UNITS:
                raise ModelError(
                    f"size is {text!r}: got the unit {found[2]!r}, expected bytes such as 5e6, or kB, MB or GB as in 5 MB"
                )
            size = float(found[1]) * _UNITS[found[2]]
            if math.isfinite(size) and size > 0:
                return size
    except ValueError:
        pass
    raise ModelError(f"size is {text!r}, expected one above 0 such as 5e6, 5 MB or 1448 B")


def read_timeline(file: FilePath) -> tuple[list[float], list[float]]:
    """The columns `time_s` and `received_bytes` of a CSV file with a header line.

    Raises:
        ModelError: the file cannot be read, lacks the columns, or has something other than numbers in them.

    """
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_TIMELINE + 1)
        if len(content) > _MOST_TIMELINE:
            raise ModelError(f"{file}: is larger than {_MOST_TIMELINE} bytes: no timeline")
        rows = csv.reader(content.decode().splitlines())
    except OSError as error:
        raise ModelError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"{file}: is no UTF-8 text (byte {error.start})") from None
    header = [name.strip() for name in next(rows, [])]
    if not set(_COLUMNS) <= set(header):
        raise ModelError(
            f"{file}:1: got the columns {', '.join(header)[:200] or 'none'}, expected "
            f"{' and '.join(_COLUMNS)}"
        )
    places = [header.index(name) for name in _COLUMNS]
    columns: tuple[list[float], list[float]] = ([], [])
    for row in rows:
        if not row:
            continue
        for column, place in zip(columns, places, strict=True):
            try:
                column.append(float(row[place]))
            except (IndexError, ValueError):
                got = row[place][:40] if place < len(row) else "nothing"
                raise ModelError(
                    f"{file}:{rows.line_num}: {_COLUMNS[columns.index(column)]}: got {got!r}, "
                    "expected a number"
                ) from None
    if not columns[0]:
        raise ModelError(f"{file}: got no rows, expected what arrived over time")
    return columns


def estimate(
    transferred: Annotated[
        str | None,
        typer.Option(
            "--bytes",
            metavar="SIZE",
            help="How much was transferred, such as 1e6 or '1 MB'; with --from how much to fetch.",
        ),
    ] = None,
    time: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="What that took, from the first byte to the last."),
    ] = None,
    rtt: Annotated[
        list[float] | None,
        typer.Option(metavar="SECONDS", help="Round-trip time; several probes: the least counts."),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option("--size", metavar="SIZE", help="What to estimate; default: 5, 10 and 20 MB."),
    ] = None,
    since_request: Annotated[
        bool,
        typer.Option("--since-request", help="The clock began with the request; estimates alike."),
    ] = False,
    timeline: Annotated[
        FilePath | None,
        typer.Option(
            metavar="FILE.csv",
            help="What had arrived when, columns time_s and received_bytes; far surer.",
        ),
    ] = None,
    mss: Annotated[
        float | None, typer.Option(metavar="BYTES", help=f"Payload of a packet [{DEFAULT_MSS}].")
    ] = None,
    initial_window: Annotated[
        float, typer.Option(metavar="PACKETS", help="The sender's first window.")
    ] = DEFAULT_INITIAL_WINDOW,
    receive_window: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The largest window that the receiver offers."),
    ] = None,
    losses: Annotated[
        int | None,
        typer.Option(help="Packets lost meanwhile; default: looked for in the timeline.", min=0),
    ] = None,
    windows: Annotated[
        bool,
        typer.Option("--windows", help="With --json: the window over time, ours and the paper's."),
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="HOST|URL",
            help="Measure it: HOST or HOST:PORT of --serve, or the URL of a file on any HTTP server.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long --from may take.", min=0.1, max=3600)
    ] = 60.0,
    serve: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            help=f"Be the server of --from until Ctrl-C, such as 127.0.0.1:{DEFAULT_PORT}.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Forecast how long larger downloads take, from the download of one small file."""
    if serve is not None:
        _serve(serve)
        return
    sizes = [parse_size(text) for text in size or ()] or list(DEFAULT_SIZES)
    if windows and not as_json:
        raise PathcastError("got --windows without --json, expected both: they are many numbers")
    given: dict[str, Any] = {
        "windows": windows,
        "initial_window_packets": initial_window,
        "receive_window_bytes": None if receive_window is None else parse_size(receive_window),
    }
    wanted = None if transferred is None else parse_size(transferred)
    if source is not None:
        for name, value in {"time": time, "rtt": rtt, "timeline": timeline}.items():
            if value:
                raise PathcastError(
                    f"got --from and --{name}, expected one of them: --from measures"
                )
        if since_request:
            raise PathcastError("got --from and --since-request, expected one of them")
        seen = _measure(source, wanted or DEFAULT_BYTES, timeout)
        found = short_flow.estimate(
            seen.received_bytes,
            seen.time_s,
            seen.rtts_s,
            sizes,
            timeline=seen.timeline,
            mss_bytes=mss or seen.mss_bytes,
            losses=seen.losses if losses is None else losses,
            **given,
        )
    else:
        seen = None
        columns = None if timeline is None else read_timeline(timeline)
        if columns is not None:
            time = columns[0][-1] if time is None else time
            wanted = columns[1][-1] if wanted is None else wanted
        if wanted is None or time is None or not rtt:
            raise PathcastError(
                "expected --bytes, --time and --rtt (or a --timeline in place of the first two), or --from"
            )
        found = short_flow.estimate(
            wanted,
            time,
            rtt,
            sizes,
            since_request=since_request,
            timeline=columns,
            mss_bytes=mss or DEFAULT_MSS,
            losses=losses,
            **given,
        )
    if as_json:
        print_json(found.to_dict() | ({} if seen is None else {"measured": _summary(seen)}))
        return
    if seen is not None:
        out.print(
            f"{seen.received_bytes / 1e6:.3f} MB in {seen.time_s:.3f} s, {len(seen.rtts_s)} round-trip "
            f"times from {min(seen.rtts_s) * 1e3:.1f} to {max(seen.rtts_s) * 1e3:.1f} ms"
        )
    _print(found)


def _serve(listen: str) -> None:
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not re.fullmatch(r"\d{1,5}", port) or int(port) > 65_535:
        raise PathcastError(
            f"got {listen!r} to listen on, expected ADDRESS:PORT such as 127.0.0.1:{DEFAULT_PORT}"
        )

    def ready(host: str, port: int) -> None:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        err.print(f"serving on {where} until Ctrl-C", markup=False, soft_wrap=True)

    try:
        byte_server.serve(host, int(port), ready)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _measure(source: str, wanted_bytes: float, timeout_s: float) -> Download:
    wanted = math.ceil(wanted_bytes)
    seen = download(Target.parse(source, wanted), wanted, timeout_s=timeout_s)
    if seen.is_whole and seen.received_bytes < wanted:
        err.print(
            f"the file ended after {seen.received_bytes} bytes, expected {wanted}: the estimate rests "
            "on less",
            markup=False,
            soft_wrap=True,
        )
    return seen


def _summary(seen: Download) -> dict[str, Any]:
    """What was measured, less the timeline."""
    values = asdict(replace(seen, timeline=((), ())))
    del values["timeline"]
    return values


def _print(found: ShortFlowEstimate) -> None:
    table = Table("size", "time", "throughput", "90 % sure", "De Silva et al. 2016")
    for one in found.sizes:
        low, high = one.throughput_quantiles_bps[0], one.throughput_quantiles_bps[-1]
        table.add_row(
            f"{one.size_bytes / 1e6:.4g} MB",
            f"{one.time_s:.3g} s",
            mbps(one.throughput_bps),
            f"{mbps(low).removesuffix(' Mbit/s')} - {mbps(high)}",
            f"{mbps(one.published_throughput_bps)}",
        )
    out.print(table)
    out.print(f"rests on: {found.rests_on}")
