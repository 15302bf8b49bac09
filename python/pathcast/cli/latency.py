"""`pathcast predict transfer`: how long transfers take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path as FilePath
from typing import Annotated

import typer
from rich.table import Table

from pathcast._latency import (
    DEFAULT_SIZES_BYTES,
    QUANTILE_LEVELS,
    Latency,
    LearnedLatencies,
    Until,
    latency,
    latency_on_trace,
    parse_size,
)
from pathcast.cli.console import out, print_json
from pathcast.cli.options import path_of
from pathcast.exceptions import ModelError
from pathcast.path import Path
from pathcast.trace import read_trace


class Tls(StrEnum):
    """Handshakes after that of TCP."""

    TLS13 = "1.3"
    TLS12 = "1.2"


#: Congestion control of a new connection by default.
CUBIC = "cubic"

#: Round trips of the handshakes.
_ROUND_TRIPS = {None: 1.0, Tls.TLS13: 2.0, Tls.TLS12: 3.0}


def forecast_latency(
    trace: Annotated[
        FilePath | None,
        typer.Argument(
            metavar="[TRACE]", help="A flow that has measured the path; see `pathcast help traces`."
        ),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size", metavar="SIZE", help='Such as "100 kB"; several; default: 1 kB to 100 MB.'
        ),
    ] = None,
    path_file: Annotated[
        FilePath | None,
        typer.Option(
            "--path", metavar="PATH.toml", help="Instead of a trace; see `pathcast help path-file`."
        ),
    ] = None,
    rtt: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Instead of a trace, a path of this round-trip time, with the next three; beside "
            "one, its round-trip time.",
        ),
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help='Rate of the link, such as "50 Mbit/s"; default: no limit.')
    ] = None,
    loss: Annotated[
        float | None, typer.Option(help="Probability that a packet is lost; default: 0.")
    ] = None,
    buffer: Annotated[
        str | None, typer.Option(help='What may wait before the link; default: "1 BDP".')
    ] = None,
    scheme: Annotated[
        str | None,
        typer.Option(help="Congestion control; default: cubic, or what the trace says."),
    ] = None,
    connections: Annotated[
        int, typer.Option(help="So many share each transfer.", min=1, max=10_000)
    ] = 1,
    tls: Annotated[
        Tls | None, typer.Option(help="Version of TLS, whose handshake comes after TCP's.")
    ] = None,
    opened: Annotated[
        bool, typer.Option("--open", help="The connection is open already: no handshake.")
    ] = False,
    think: Annotated[
        float, typer.Option(metavar="SECONDS", help="What the server takes to answer.", min=0)
    ] = 0.0,
    initial_window: Annotated[
        float, typer.Option(metavar="PACKETS", help="First window.", min=1, max=1e6)
    ] = 10.0,
    at: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="The moment in the trace; default: its end."),
    ] = None,
    new: Annotated[
        bool,
        typer.Option(
            "--new", help="With a trace: a new connection, not the flow's own next bytes."
        ),
    ] = False,
    until: Annotated[Until, typer.Option(help="When the clock stops.")] = Until.ANSWERED,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Forecast how long transfers take, on a path given by numbers, a file or a trace."""
    sizes = [parse_size(text) for text in size] if size else list(DEFAULT_SIZES_BYTES)
    round_trips = 0.0 if opened else _ROUND_TRIPS[tls]
    if opened and tls is not None:
        raise ModelError("got --open and --tls, expected one of them: an open connection is set up")
    by_numbers = {"--rate": rate, "--loss": loss, "--buffer": buffer}
    given = [option for option, value in by_numbers.items() if value is not None]
    if trace is not None:
        if given or path_file is not None:
            option = "--path" if path_file is not None else given[0]
            raise ModelError(
                f"got a trace and {option}, expected one of them: a trace has its path"
            )
        learned = latency_on_trace(
            read_trace(trace),
            sizes,
            at_s=at,
            new=new,
            cc=scheme,
            rtt_s=rtt,
            connections=connections,
            handshake_round_trips=round_trips,
            think_s=think,
            initial_window=initial_window,
            until=until,
        )
        _print_learned(learned, new, as_json)
        return
    for option, wrong in (("--at", at is not None), ("--new", new)):
        if wrong:
            raise ModelError(f"got {option} without a trace, which it is about")
    if path_file is not None:
        if given or rtt is not None:
            option = "--rtt" if rtt is not None else given[0]
            raise ModelError(f"got --path and {option}, expected one of them")
        path = Path.load(path_file)
    elif rtt is not None:
        path = _path(rtt, rate, loss, buffer)
    else:
        raise ModelError("expected a trace, --path PATH.toml, or --rtt SECONDS")
    transfers = latency(
        path,
        sizes,
        cc=scheme or CUBIC,
        connections=connections,
        handshake_round_trips=round_trips,
        think_s=think,
        initial_window=initial_window,
        until=until,
    )
    if as_json:
        known: dict[str, object] = {
            "rtt_s": path.base_rtt_s,
            "rate_bps": path.rate_bps,
            "loss": path.loss,
            "scheme": scheme or CUBIC,
        }
        _print_json(known, transfers)
        return
    out.print(_table(transfers))
    _print_loss_of_law(transfers[0].not_applicable)
    out.print(
        f"{path.base_rtt_s * 1e3:g} ms round trip, "
        + (f"{path.rate_bps / 1e6:g} Mbit/s" if path.rate_bps else "no limit of rate")
        + f", loss {path.loss:g}; {scheme or CUBIC}, {round_trips:g} round trips of handshake"
    )


def _path(rtt_s: float, rate: str | None, loss: float | None, buffer: str | None) -> Path:
    """A path by numbers, read as a path file is."""
    if not 0 < rtt_s < 60:
        raise ModelError(f"rtt is {rtt_s} s, expected more than 0 and less than 60 s")
    if loss is not None and not 0 <= loss < 1:
        raise ModelError(f"loss is {loss}, expected 0 to less than 1")
    return path_of(
        {
            "--rtt": ("delay", f"{rtt_s / 2 * 1e9:.0f} ns"),
            "--rate": ("rate", rate),
            "--buffer": ("queue", buffer),
            "--loss": ("loss", loss),
        }
    )


def _print_learned(learned: LearnedLatencies, new: bool, as_json: bool) -> None:
    if as_json:
        known = {key: value for key, value in vars(learned).items() if key != "transfers"}
        _print_json(known, learned.transfers)
        return
    out.print(_table(learned.transfers))
    _print_loss_of_law(learned.not_applicable)
    capacity = learned.capacity_packets_per_s
    out.print(
        (
            "a new connection"
            if new
            else f"the flow's next bytes, its window {learned.cwnd_packets:.0f}"
        )
        + f"; {learned.cc}, {learned.rtt_s * 1e3:.1f} ms round trip, loss {learned.loss:.2g}"
        + ("" if capacity is None else f", {capacity:.0f} packets/s at most")
    )


def _print_loss_of_law(missing: dict[str, str]) -> None:
    for what in ("loss", "window"):
        if what in missing:
            out.print(missing[what], markup=False)


def _print_json(known: dict[str, object], transfers: tuple[Latency, ...]) -> None:
    print_json(
        known
        | {
            "quantile_levels": list(QUANTILE_LEVELS),
            "transfers": [transfer.to_dict() for transfer in transfers],
        }
    )


def _table(transfers: tuple[Latency, ...]) -> Table:
    literature = any(transfer.literature for transfer in transfers)
    more = ("Cardwell",) if literature else ()
    table = Table("size", "5 %", "25 %", "median", "75 %", "95 %", "mean", "no loss", *more)
    for transfer in transfers:
        row = [_bytes(transfer.size_bytes)]
        row += [_seconds(s) for s in (*transfer.quantiles_s, transfer.mean_s)]
        row.append(f"{transfer.no_loss_probability:.1%}")
        if literature:
            others = transfer.literature or {}
            cardwell = others.get("cardwell_s")
            row.append("-" if cardwell is None else _seconds(cardwell))
        table.add_row(*row)
    return table


def _bytes(size: int) -> str:
    for unit, factor in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size} B"


def _seconds(s: float) -> str:
    return f"{s * 1e3:.3g} ms" if s < 1 else f"{s:.3g} s"
