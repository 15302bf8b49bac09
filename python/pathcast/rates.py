"""How much a path carries next, from samples of what it carried."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

import numpy as np
import numpy.typing as npt

from pathcast import _internal
from pathcast.exceptions import ModelError, TraceError, translated
from pathcast.files import unpacked

Floats = npt.NDArray[np.float64]

#: The largest file of a series that is read, in bytes after unpacking.
MAX_BYTES = 1 << 28
#: Levels of the quantiles in tables and JSON.
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class RateForecast:
    """The mean rate of a path over the next seconds.

    Attributes:
        horizon_s: how many.
        point_bps: the one number to use.
        levels: of the quantiles.
        quantiles_bps: at these levels; 0 where the path may carry nothing.
        observed_s: how long the path was observed.

    """

    horizon_s: float
    point_bps: float
    levels: tuple[float, ...]
    quantiles_bps: tuple[float, ...]
    observed_s: float


class RateForecaster:
    """Forecasts of one path's mean rate over a horizon; its memory is bounded.

    Time is that of the samples: pauses between them do not count. Simple forecasts (the last sample, means with five
    half-lives, a harmonic mean) are pooled by how far off each was lately, and the quantiles are those of the pool's own
    errors, in units of how much the rate varies (`docs/explanation/video.md`).

    Example:
        >>> path = RateForecaster(horizon_s=4.0)
        >>> path.observe([1.0] * 60, [4e6, 6e6] * 30)
        >>> found = path.forecast([0.1])
        >>> found.quantiles_bps[0] < found.point_bps
        True

    """

    def __init__(self, horizon_s: float) -> None:
        """A path that was not observed.

        Raises:
            ModelError: the horizon is not above 0, or more than a day.

        """
        with translated():
            self._inner = _internal.RateForecaster(horizon_s)
        self.horizon_s = horizon_s

    def observe(self, seconds: Sequence[float] | Floats, bits: Sequence[float] | Floats) -> None:
        """Take samples in their order: seconds, and the bits that came in them.

        Raises:
            ModelError: they are not as many, or one is not valid; those before it were taken.

        """
        with translated():
            self._inner.observe(*_samples(seconds, bits))

    def follow(
        self,
        seconds: Sequence[float] | Floats,
        bits: Sequence[float] | Floats,
        levels: Sequence[float] = LEVELS,
    ) -> Floats:
        """Observe samples, and return the forecast after each: the point, then the quantiles, in bit/s.

        Returns:
            shape n x (1 + number of levels), NaN before the first forecast.

        Raises:
            ModelError: as `observe` and `forecast`.

        """
        with translated():
            rows = self._inner.follow(*_samples(seconds, bits), _checked(levels))
        nothing = [math.nan] * (1 + len(levels))
        return np.array([row or nothing for row in rows]).reshape(-1, 1 + len(levels))

    def forecast(self, levels: Sequence[float] = LEVELS) -> RateForecast:
        """Forecast the seconds that come.

        Raises:
            ModelError: nothing was observed yet, or a level is not between 0 and 1.

        """
        found = self._inner.forecast(_checked(levels))
        if found is None:
            raise ModelError("the path was not observed yet, expected samples before a forecast")
        point, *quantiles = found
        return RateForecast(
            self.horizon_s, point, tuple(levels), tuple(quantiles), self._inner.observed_s
        )


def _samples(
    seconds: Sequence[float] | Floats, bits: Sequence[float] | Floats
) -> tuple[Floats, Floats]:
    both = np.asarray(seconds, dtype=np.float64), np.asarray(bits, dtype=np.float64)
    if both[0].shape != both[1].shape or both[0].ndim != 1:
        raise ModelError(
            f"got {both[0].size} times and {both[1].size} amounts; expected as many of both"
        )
    return both


def _checked(levels: Sequence[float]) -> list[float]:
    for level in levels:
        if not 0 < level < 1:
            raise ModelError(f"got level {level}; expected more than 0 and less than 1")
    return list(map(float, levels))


@dataclass(frozen=True)
class RateSeries:
    """What a path carried, from a file.

    Attributes:
        seconds: of each sample; shape n.
        rate_bps: of each; shape n.
        file: what to call it in errors.

    """

    seconds: Floats
    rate_bps: Floats
    file: str

    @property
    def bits(self) -> Floats:
        """What each sample brought."""
        return self.seconds * self.rate_bps


def read_rates(file: str | os.PathLike[str]) -> RateSeries:
    """Read a series of rates.

    JSON is a list of objects with `duration_ms` and `bandwidth_kbps`, as those of Sabre. CSV has a header with `rate_bps` or
    `rate_mbps`, and `duration_s` or `time_s`; a time is that of the sample's end. Packed files are unpacked.

    Raises:
        TraceError: the file is neither, or a value is not valid.

    """
    place = FilePath(file)
    try:
        content = unpacked(place, MAX_BYTES)
    except OSError as error:
        raise TraceError(f"{place}: {error}") from None
    if content is None:
        raise TraceError(f"{place}: expected at most {MAX_BYTES >> 20} MiB")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise TraceError(f"{place}: is not text; expected JSON or CSV with rates") from None
    rows = _of_json(text) if text.lstrip().startswith("[") else _of_csv(text)
    if isinstance(rows, str):
        raise TraceError(f"{place}: {rows}")
    for number, (seconds, rate_bps) in enumerate(rows, 1):
        if not (0 < seconds < math.inf and 0 <= rate_bps < math.inf):
            raise TraceError(
                f"{place}: sample {number} has {seconds} s and {rate_bps} bit/s; expected a time above 0 and a rate of 0 or more"
            )
    if not rows:
        raise TraceError(f"{place}: has no sample")
    seconds, rates = np.array(rows, dtype=np.float64).T
    return RateSeries(seconds, rates, str(place))


def says_rates(file: str | os.PathLike[str]) -> bool:
    """Whether a file looks like a series of rates: what `read_rates` reads, not a trace of flows."""
    try:
        content = unpacked(FilePath(file), MAX_BYTES)
    except OSError:
        return False
    begin = (content or b"")[:4096].decode(errors="replace").lstrip("\ufeff \r\n\t")
    if begin.startswith("["):
        return "bandwidth_kbps" in begin
    columns = [name.strip() for name in begin.splitlines()[0].split(",")] if begin else []
    return "rate_bps" in columns or "rate_mbps" in columns


_FORMS = "expected a list of objects with duration_ms and bandwidth_kbps"


def _of_json(text: str) -> list[tuple[float, float]] | str:
    """Seconds and rates; or what is wrong."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"is no JSON: {error}"
    rows = []
    for number, one in enumerate(found, 1):
        try:
            rows.append((float(one["duration_ms"]) / 1e3, 1e3 * float(one["bandwidth_kbps"])))
        except (TypeError, KeyError, ValueError):
            return f"item {number}: {_FORMS}"
    return rows


def _of_csv(text: str) -> list[tuple[float, float]] | str:
    """Seconds and rates; or what is wrong."""
    reader = csv.DictReader(io.StringIO(text))
    names = reader.fieldnames or []
    rate = next((name for name in ("rate_bps", "rate_mbps") if name in names), None)
    time = next((name for name in ("duration_s", "time_s") if name in names), None)
    if rate is None or time is None:
        return f"got columns {', '.join(names[:8]) or 'none'}; expected rate_bps or rate_mbps, and duration_s or time_s"
    rows, before = [], 0.0
    try:
        for number, row in enumerate(reader, 1):
            try:
                at, value = float(row[time]), float(row[rate])
            except (TypeError, ValueError):
                return f"row {number}: expected numbers in {time} and {rate}"
            rows.append((at - before, value * (1e6 if rate == "rate_mbps" else 1.0)))
            before = at if time == "time_s" else 0.0
    except csv.Error as error:
        return str(error)
    return rows
