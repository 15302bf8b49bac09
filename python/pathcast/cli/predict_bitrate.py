"""`pathcast predict bitrate`: the highest bitrate whose segments arrive in time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path as FilePath
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from pathcast import _internal, models
from pathcast.cli.console import err, mbps, out, print_json, progress_bar, styled
from pathcast.cli.options import Flows, Json, PathOrTrace, Seed
from pathcast.cli.what_if import read_path
from pathcast.exceptions import ModelError, translated
from pathcast.flows import read_flows
from pathcast.manifests import read_manifest
from pathcast.rates import LEVELS, read_rates, says_rates
from pathcast.video import SEGMENTS, Arrival, Ladder, arrivals


def bitrate(
    manifest: Annotated[
        FilePath | None,
        typer.Argument(help="A DASH manifest, or the master playlist of HLS; instead of --sizes."),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES,...",
            help="Of the next segment, for each version: 250000,500000,1000000.",
        ),
    ] = None,
    segment: Annotated[
        float, typer.Option(metavar="SECONDS", help="With --sizes: how long a segment plays.")
    ] = 4.0,
    number: Annotated[
        int, typer.Option("--next", metavar="N", help="Which segment is next, from 1.", min=1)
    ] = 1,
    path_file: PathOrTrace = None,
    trace: Annotated[
        FilePath | None,
        typer.Option(
            metavar="TRACE|SERIES",
            help="What the path carried until now: a trace of a flow, or a series of rates (JSON or CSV).",
        ),
    ] = None,
    chosen: Flows = None,
    confidence: Annotated[
        float, typer.Option(help="Probability with which the segment must arrive in time.")
    ] = 0.9,
    scheme: Annotated[
        str, typer.Option(help="With --path: congestion control of the server.")
    ] = "cubic",
    sessions: Annotated[
        int,
        typer.Option(help="With --path: simulated sessions of each version.", min=1, max=10_000),
    ] = 20,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Find the highest bitrate of a video whose segments arrive in their duration, with a chosen confidence.

    Over a path, segments are fetched in the simulator. From a trace, the rate of the next seconds is forecast.
    """
    if not 0 < confidence < 1:
        raise ModelError(f"--confidence: got {confidence:g}; expected more than 0 and less than 1")
    if path_file is not None and trace is not None:
        raise ModelError("got --path and --trace; expected one of them")
    if chosen and trace is None:
        raise ModelError("--flow goes with --trace")
    ladder = _ladder(manifest, sizes, segment, number)
    rate = None
    if path_file is not None:
        by = f"write its path with `pathcast calibrate {path_file} -o path.toml`, and give that"
        source = read_path(path_file, None, None, seed, by)
        with progress_bar("simulated", 1.0, "") as show:
            found = arrivals(
                ladder, source, scheme=scheme, sessions=sessions, seed=seed, progress=show
            )
    elif trace is not None and says_rates(trace):
        if chosen:
            raise ModelError(f"--flow: {trace} is a series of rates, which has no flows")
        rate, found = _of_rates(trace, ladder, confidence)
    elif trace is not None:
        rate = _rate_of(trace, chosen, ladder.segment_s, 1 - confidence)
        found = [
            _arrival(ladder, version, rate, 1 - rate.below(_rate_needed(ladder, version)))
            for version in range(len(ladder.bitrates_bps))
        ]
    else:
        raise ModelError("expected --path or --trace")
    fits = [one for one in found if one.probability >= confidence - 1e-9]
    choice = fits[-1] if fits else None
    values = {
        "confidence": confidence,
        "segment_s": ladder.segment_s,
        "choice": None if choice is None else _row(choice),
        "versions": [_row(one) for one in found],
    }
    if rate is not None:
        values["rate"] = rate.to_dict(1 - confidence)
    if as_json:
        print_json(values)
        return
    _print(found, choice, confidence, ladder.segment_s, rate)


def _ladder(manifest: FilePath | None, sizes: str | None, segment_s: float, number: int) -> Ladder:
    """The versions, from the next segment on."""
    if manifest is not None and sizes is not None:
        raise ModelError("got a manifest and --sizes; expected one of them")
    if sizes is not None:
        try:
            numbers = [int(one) for one in sizes.split(",")]
        except ValueError:
            numbers = [0]
        if min(numbers) < 1 or sorted(set(numbers)) != numbers:
            raise ModelError(
                f"--sizes: got {sizes!r}; expected bytes that ascend, with commas between them"
            )
        if not 0 < segment_s <= 3600:
            raise ModelError(f"--segment: got {segment_s:g}; expected more than 0 and at most 3600")
        rates = tuple(8 * one / segment_s for one in numbers)
        return Ladder(segment_s, rates, 1 + SEGMENTS)
    if manifest is None:
        raise ModelError("expected a manifest or --sizes")
    read = read_manifest(manifest)
    for warning in read.warnings:
        err.print(styled(("warning:", "yellow"), f" {manifest}: {warning}"), soft_wrap=True)
    ladder = read.ladder
    if number > ladder.count:
        raise ModelError(f"--next: got {number}; expected at most {ladder.count} segments")
    first = number - 1
    return Ladder(
        ladder.segment_s,
        ladder.bitrates_bps,
        ladder.count - first,
        tuple(one[first:] for one in ladder.sizes),
    )


@dataclass(frozen=True)
class _Rate:
    """The distribution of the mean rate over the next segment's duration: rates at levels, in bit/s."""

    levels: tuple[float, ...]
    rates_bps: tuple[float, ...]
    point_bps: float
    observed_s: float

    def at(self, level: float) -> float:
        """The rate below which it is with this probability."""
        return float(np.interp(level, self.levels, self.rates_bps))

    def below(self, rate_bps: float) -> float:
        """How probable less is; what is outside of the levels is taken as the outermost."""
        return float(np.interp(rate_bps, self.rates_bps, self.levels))

    def to_dict(self, level: float) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "point_bps": self.point_bps,
            "quantiles_bps": {str(one): self.at(one) for one in LEVELS},
            "at_confidence_bps": self.at(level),
            "observed_s": self.observed_s,
        }


def _rate_of(file: FilePath, chosen: Sequence[str] | None, horizon_s: float, level: float) -> _Rate:
    """Forecast the mean rate over the next segment's duration."""
    flows = [(one, flow) for one in read_flows(file, chosen) for flow in one.flows]
    if len(flows) != 1:
        raise ModelError(f"{file}: got {len(flows)} flows; expected one, see --flow")
    records, flow = flows[0]
    series_of_flow = records.flow(flow)
    now_s = float(series_of_flow.time_s[-1])
    cc = models.chosen_cc(records, flow, None) or "unknown"
    of_flow = models.Forecaster(cc, [horizon_s], on_break="restart")
    of_flow.observe(series_of_flow)
    said = of_flow.forecast(now_s, horizon_s)
    payload = records.metadata["mss_bytes"]
    if said.quantity != "packets_per_s" or not payload:
        raise ModelError(
            f"{file}: has windows but no sequence numbers; expected what the flow delivered"
        )
    lowest, highest = models.QUANTILE_LEVELS[0], models.QUANTILE_LEVELS[-1]
    if not lowest - 1e-9 <= level <= highest + 1e-9:
        raise ModelError(
            f"--confidence: got {1 - level:g}; expected {lowest:g} to {highest:g} with a flow's trace"
        )
    return _Rate(
        tuple(models.QUANTILE_LEVELS),
        tuple(8 * payload * value for value in said.quantiles),
        8 * payload * said.point,
        now_s - float(series_of_flow.time_s[0]),
    )


def _of_rates(file: FilePath, ladder: Ladder, confidence: float) -> tuple[_Rate, list[Arrival]]:
    """From a series of rates, as `pathcast serve` chooses from samples of a client."""
    series = read_rates(file)
    versions = range(len(ladder.bitrates_bps))
    sizes = [float(ladder.bytes(version, 0)) for version in versions]
    levels = sorted({*LEVELS, 1 - confidence, *(1 - level for level in LEVELS)})
    with translated():
        _, confidences, rates, observed_s = _internal.choose_bitrate(
            series.seconds, series.bits, ladder.segment_s, sizes, confidence, levels
        )
    rate = _Rate(tuple(levels), tuple(rates), rates[levels.index(0.5)], observed_s)
    return rate, [_arrival(ladder, version, rate, confidences[version]) for version in versions]


def _rate_needed(ladder: Ladder, version: int) -> float:
    """The mean rate by which the next segment arrives in its duration."""
    return 8 * ladder.bytes(version, 0) / ladder.segment_s


def _arrival(ladder: Ladder, version: int, rate: _Rate, probability: float) -> Arrival:
    """Of the next segment, by the distribution of the rate."""
    bits = 8 * ladder.bytes(version, 0)
    slowest = [rate.at(1 - level) for level in LEVELS]
    return Arrival(
        version,
        ladder.bitrates_bps[version],
        bits / 8,
        probability,
        tuple(bits / one if one > 0 else math.inf for one in slowest),
    )


def _row(one: Arrival) -> dict[str, Any]:
    took = {
        str(level): value if math.isfinite(value) else None
        for level, value in zip(LEVELS, one.took_s, strict=True)
    }
    return asdict(one) | {"took_s": took}


def _print(
    found: Sequence[Arrival],
    choice: Arrival | None,
    confidence: float,
    segment_s: float,
    rate: _Rate | None,
) -> None:
    table = Table("bitrate", "segment, kB", f"in {segment_s:g} s", "takes, s (5 to 95 %)")
    for one in found:
        low, middle, high = (one.took_s[i] for i in (0, 2, -1))
        table.add_row(
            mbps(one.bitrate_bps),
            f"{one.bytes / 1e3:.0f}",
            f"{one.probability:.0%}",
            f"{middle:.2f} ({low:.2f} to {high:.2f})",
        )
    out.print(table)
    if rate is not None:
        out.print(
            f"The path carries {mbps(rate.point_bps)} over the next {segment_s:g} s "
            f"({mbps(rate.at(0.05))} to {mbps(rate.at(0.95))})."
        )
    if choice is None:
        out.print(
            f"No version arrives in time with {confidence:.0%}; {mbps(found[0].bitrate_bps)} comes nearest."
        )
        return
    out.print(
        f"{mbps(choice.bitrate_bps)} is the highest bitrate whose segment arrives in time with {confidence:.0%}."
    )
