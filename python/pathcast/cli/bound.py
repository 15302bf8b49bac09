"""`pathcast bound`: delay and backlog that a service curve guarantees."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from pathcast.cli.console import mbps, out, print_json
from pathcast.exceptions import ModelError
from pathcast.files import check_output, write_beside
from pathcast.min_plus import Arrivals, Curve
from pathcast.report.plots import BLUE, GRAY, ORANGE, alone, svg, thinned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BITS = {
    "bit": 1.0, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "B": 8.0, "kB": 8e3, "MB": 8e6, "GB": 8e9,
}  # fmt: skip
_COLUMNS = ("time_s", "size_bytes")
#: The largest file of a trace that is read, in bytes.
_MOST_TRACE = 1 << 27
#: Quantiles of the packets' delay bounds.
_LEVELS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def parse_bits(text: str, name: str, *, rate: bool = False) -> float:
    """Bits (bit/s if `rate`) of `10 Mbit/s`, `500 kbit`, `64 kB` or a number.

    Raises:
        ModelError: the text is neither.

    """
    found = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?[0-9]{1,2})?)\s*([A-Za-z]*)(/s)?\s*", text)
    example = "10 Mbit/s" if rate else "500 kbit or 64 kB"
    try:
        if found is not None and (not found[2] or bool(found[3]) == rate):
            bits = float(found[1]) * (_BITS[found[2]] if found[2] else 1.0)
            if math.isfinite(bits):
                return bits
    except (KeyError, ValueError):
        pass
    raise ModelError(f"{name} is {text!r}, expected one such as {example}")


def read_arrivals(file: FilePath) -> Arrivals:
    """The packets of a CSV file with the columns `time_s` and `size_bytes`; sizes in bits.

    Raises:
        ModelError: it cannot be read, has no such columns, no numbers in them, or times that fall.

    """
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_TRACE + 1)
        if len(content) > _MOST_TRACE:
            raise ModelError(
                f"{file}: is larger than {_MOST_TRACE} bytes: expected a smaller trace"
            )
        rows = csv.reader(content.decode().splitlines())
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
            for place, name, column in zip(places, _COLUMNS, columns, strict=True):
                text = row[place].strip() if place < len(row) else ""
                try:
                    column.append(float(text))
                except ValueError:
                    raise ModelError(
                        f"{file}:{rows.line_num}: {name} is {text[:40]!r}, expected a number"
                    ) from None
    except OSError as error:
        raise ModelError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"{file}: is no UTF-8 text (byte {error.start})") from None
    except csv.Error as error:
        raise ModelError(f"{file}: {error}, expected CSV") from None
    try:
        return Arrivals(columns[0], np.asarray(columns[1]) * 8)
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from None


def bound(
    service_file: Annotated[
        FilePath | None,
        typer.Option(
            "--service",
            metavar="CURVE.json",
            help="A service curve in bits, as Curve.save writes it.",
        ),
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help='Instead of a curve, a link: its rate, such as "10 Mbit/s".')
    ] = None,
    latency: Annotated[
        float, typer.Option(metavar="SECONDS", help="With --rate: its latency, one way.", min=0)
    ] = 0.0,
    window: Annotated[
        str | None,
        typer.Option(help='With --rate and --rtt: a static window, such as "500 kbit".'),
    ] = None,
    rtt: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="With --window: round-trip time.")
    ] = None,
    trace: Annotated[
        FilePath | None,
        typer.Option(
            metavar="ARRIVALS.csv", help="Packets: a CSV file, columns time_s and size_bytes."
        ),
    ] = None,
    token_bucket: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="RATE BURST", help='Instead of a trace, such as "2 Mbit/s" "100 kbit".'
        ),
    ] = None,
    output: Annotated[
        FilePath | None,
        typer.Option("--output", "-o", metavar="FILE.svg", help="Write a picture here."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Bound the delay and backlog of traffic behind a service curve."""
    if (service_file is None) == (rate is None):
        raise ModelError("expected either --service or --rate")
    if (trace is None) == (token_bucket is None):
        raise ModelError("expected either --trace or --token-bucket")
    if (window is None) != (rtt is None):
        raise ModelError("expected --window and --rtt together")
    if service_file is not None and (window is not None or latency > 0):
        raise ModelError("got --service and --latency or --window, expected them with --rate")
    if output is not None:
        check_output(output)
    service = _service(service_file, rate, latency, window, rtt)
    if trace is not None:
        found, picture = _of_trace(service, read_arrivals(trace))
    else:
        assert token_bucket is not None  # noqa: S101 - one of the two, as checked
        found, picture = _of_bucket(service, *token_bucket)
    if output is not None:
        write_beside(output, alone(picture))
    if as_json:
        print_json(found)
        return
    _print(found)
    if output is not None:
        out.print(f"picture written to {output}", soft_wrap=True)


def _service(
    file: FilePath | None,
    rate: str | None,
    latency_s: float,
    window: str | None,
    rtt_s: float | None,
) -> Curve:
    if rate is None:
        return Curve.load(file or "")
    rate_bps = parse_bits(rate, "rate", rate=True)
    if window is None or rtt_s is None:
        return Curve.latency_rate(rate_bps, latency_s)
    return Curve.window_flow_control(rate_bps, latency_s, rtt_s, parse_bits(window, "window"))


def _known(value: float) -> float | None:
    """A number for JSON; none where there is no bound."""
    return value if math.isfinite(value) else None


def _of_trace(service: Curve, arrivals: Arrivals) -> tuple[dict[str, Any], str]:
    delays_s, backlogs = arrivals.delay_bounds(service), arrivals.backlog_bounds(service)
    delay_s = {"max": float(delays_s.max()), "mean": float(delays_s.mean())}
    # the bound of a packet: no quantile lies between two of them
    for name, level in _LEVELS.items():
        delay_s[name] = float(np.quantile(delays_s, level, method="higher"))
    found = {
        "packets": len(arrivals),
        "arrival_rate_bps": _known(arrivals.mean_rate),
        "service_rate_bps": _known(service.rate),
        "delay_s": {name: _known(value) for name, value in delay_s.items()},
        "backlog_bits": {"max": float(backlogs.max()), "mean": float(backlogs.mean())},
        "unbounded_packets": int(np.isinf(delays_s).sum()),
    }

    def draw(figure: Figure) -> None:
        upper, lower = figure.subplots(2, 1)
        numbers = np.arange(len(delays_s), dtype=np.float64)
        finite = np.isfinite(delays_s)
        upper.plot(*thinned(numbers[finite], delays_s[finite]), color=BLUE, lw=1)
        upper.set(xlabel="packet", ylabel="delay bound (s)", ylim=(0, None))
        until_s = max(2 * delay_s["max"] if math.isfinite(delay_s["max"]) else 0.0, 1e-3)
        lower.plot(*_curve_points(service, until_s), color=ORANGE, label="service curve")
        lower.set(xlabel="time (s)", ylabel="Mbit", ylim=(0, None))
        lower.legend()

    return found, svg(9, 5.5, draw)


def _of_bucket(service: Curve, rate: str, burst: str) -> tuple[dict[str, Any], str]:
    rate_bps = parse_bits(rate, "rate of the token bucket", rate=True)
    arrivals = Curve.token_bucket(rate_bps, parse_bits(burst, "burst of the token bucket"))
    delay_s, backlog_bits = service.delay_bound(arrivals), service.backlog_bound(arrivals)
    found = {
        "arrival_rate_bps": rate_bps,
        "service_rate_bps": _known(service.rate),
        "delay_s": {"max": _known(delay_s)},
        "backlog_bits": {"max": _known(backlog_bits)},
    }

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        known_s = delay_s if math.isfinite(delay_s) else 0.0
        until_s = max(3 * known_s, 2 * service.tail_from_s, 1e-3)
        axes.plot(*_curve_points(arrivals, until_s), color=GRAY, label="arrivals")
        axes.plot(*_curve_points(service, until_s), color=ORANGE, label="service curve")
        axes.set(xlabel="time (s)", ylabel="Mbit", ylim=(0, None))
        axes.legend()

    return found, svg(9, 3.5, draw)


def _curve_points(curve: Curve, until_s: float) -> tuple[Any, Any]:
    times_s, values = curve.points(until_s)
    return thinned(times_s, values / 1e6)


def _print(found: dict[str, Any]) -> None:
    def shown(value: float | None, scale: float, unit: str) -> str:
        return "unbounded" if value is None else f"{value * scale:.4g} {unit}"

    rates = [found["arrival_rate_bps"], found["service_rate_bps"]]
    arriving, served = ("no limit" if rate is None else mbps(rate) for rate in rates)
    what = f"{found['packets']} packets of " if "packets" in found else ""
    out.print(f"{what}{arriving} at a service of {served}")
    table = Table("bound", *found["delay_s"])
    table.add_row("delay", *(shown(value, 1e3, "ms") for value in found["delay_s"].values()))
    backlog = found["backlog_bits"]
    cells = [
        shown(backlog[name], 1e-3, "kbit") if name in backlog else "" for name in found["delay_s"]
    ]
    table.add_row("backlog", *cells)
    out.print(table)
    if found.get("unbounded_packets"):
        out.print(
            f"{found['unbounded_packets']} packets have no bound: the service ends before them"
        )
