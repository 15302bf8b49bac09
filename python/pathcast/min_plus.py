"""Min-plus algebra: service curves, traffic traces, and the bounds of delay and backlog that follow."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from pathcast import _internal
from pathcast.exceptions import ModelError, translated
from pathcast.files import write_beside

_Column = npt.NDArray[np.float64]

#: The largest file of a curve that is read, in bytes.
_MOST_BYTES = 1 << 27


def _column(values: npt.ArrayLike, name: str) -> _Column:
    try:
        column = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{name}: {error}, expected a column of numbers") from None
    if column.ndim != 1:
        raise ModelError(f"{name}: has the shape {column.shape}, expected one column")
    return column


class Curve:
    """A wide-sense increasing function of time, exactly: linear segments and a tail.

    The tail is affine, periodic or infinite. Time is in seconds; data in any unit that is used
    throughout (bits, packets). The curve is left-continuous and 0 at 0: a burst is a jump right after
    0. Breakpoints nearer than 1e-12 of their time are one. After Le Boudec & Thiran, Network Calculus,
    2001; docs/explanation/network-calculus.md. Curves do not change: each operation returns a new one.

    Every operation raises `ModelError` where a number is out of range, where two curves of the same
    rate have periods without a common multiple, or where the result would be too large.

    Example:
        >>> service = Curve.latency_rate(10e6, 0.05)
        >>> arrivals = Curve.token_bucket(2e6, 100e3)
        >>> round(service.delay_bound(arrivals), 6), round(service.backlog_bound(arrivals))
        (0.06, 200000)

    """

    __slots__ = ("_inner",)

    def __init__(self, inner: _internal.MinPlusCurve) -> None:
        """Not for use: see the class methods."""
        self._inner = inner

    @classmethod
    def constant_rate(cls, rate: float) -> Curve:
        """`rate t`."""
        return cls.latency_rate(rate, 0.0)

    @classmethod
    def latency_rate(cls, rate: float, latency_s: float) -> Curve:
        """`rate [t - latency_s]+`, what most schedulers guarantee."""
        with translated():
            return cls(_internal.MinPlusCurve.latency_rate(float(rate), float(latency_s)))

    @classmethod
    def delay(cls, delay_s: float) -> Curve:
        """0 until `delay_s`, infinite after: a constant delay."""
        with translated():
            return cls(_internal.MinPlusCurve.delay(float(delay_s)))

    @classmethod
    def token_bucket(cls, rate: float, burst: float) -> Curve:
        """`burst + rate t` for `t > 0`: what a token bucket lets pass."""
        with translated():
            return cls(_internal.MinPlusCurve.token_bucket(float(rate), float(burst)))

    @classmethod
    def from_points(cls, times_s: npt.ArrayLike, values: npt.ArrayLike, rate: float) -> Curve:
        """Linear between points, from (0, 0) on; two of one time are a jump; `rate` after the last.

        Raises:
            ModelError: no points, columns of different lengths, a time or a value that falls.

        """
        times, data = _column(times_s, "times_s"), _column(values, "values")
        if times.shape != data.shape:
            raise ModelError(
                f"values: {len(data)} of them, expected {len(times)} as there are times_s"
            )
        with translated():
            return cls(_internal.MinPlusCurve.from_points(times, data, float(rate)))

    @classmethod
    def steps(cls, size: float, rate: float, *, early: bool = False) -> Curve:
        """Packets of `size` in place of a fluid of `rate`: each counts when it is whole, or, if `early`, from its first bit."""
        with translated():
            return cls(_internal.MinPlusCurve.steps(float(size), float(rate), early))

    @classmethod
    def window_flow_control(
        cls, rate: float, latency_s: float, rtt_s: float, window: float
    ) -> Curve:
        """A static window over a link (Lübben & Fidler, section III-A).

        `min over n >= 0 of n window + rate [t - latency_s - n rtt_s]+`.

        Args:
            rate: of the link, data per second; `math.inf` for no limit.
            latency_s: of the forward direction.
            rtt_s: there and back, at least `latency_s`.
            window: data; from `rate * rtt_s` on it no longer limits.

        Example:
            >>> Curve.window_flow_control(10e6, 0.05, 0.1, 500e3).rate
            5000000.0

        """
        with translated():
            numbers = (float(rate), float(latency_s), float(rtt_s), float(window))
            return cls(_internal.MinPlusCurve.window_flow_control(*numbers))

    @classmethod
    def from_probes(cls, rates: npt.ArrayLike, delays_s: npt.ArrayLike) -> Curve:
        """Service curve that probes at constant rates prove: `max over r of r [t - d(r)]+`.

        Equation 7 of Lübben & Fidler.

        Args:
            rates: one or more, data per second.
            delays_s: at each, a quantile of the steady-state delay. The curve holds except with the sum
                of the chances that they are exceeded.

        """
        with translated():
            return cls(
                _internal.MinPlusCurve.from_probes(
                    _column(rates, "rates"), _column(delays_s, "delays_s")
                )
            )

    @classmethod
    def from_backlogs(cls, rates: npt.ArrayLike, backlogs: npt.ArrayLike) -> Curve:
        """As `from_probes`, from quantiles of the backlog: `max over r of [r t - b(r)]+`."""
        with translated():
            return cls(
                _internal.MinPlusCurve.from_backlogs(
                    _column(rates, "rates"), _column(backlogs, "backlogs")
                )
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Curve:
        """Read a curve from the result of `to_dict`.

        Raises:
            ModelError: it is not a curve; the error says what was got and what was expected.

        """
        try:
            text = json.dumps(values, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ModelError(f"curve: {error}") from None
        with translated():
            return cls(_internal.MinPlusCurve.from_json(text))

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Curve:
        """Read a curve from a JSON file, as `save` writes it.

        Raises:
            ModelError: the file cannot be read, or holds no curve.

        """
        path = Path(file)
        try:
            with path.open("rb") as stream:
                content = stream.read(_MOST_BYTES + 1)
            if len(content) > _MOST_BYTES:
                raise ModelError(f"{path}: is larger than {_MOST_BYTES} bytes: no curve")
            text = content.decode()
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ModelError(f"{path}: is no UTF-8 text (byte {error.start})") from None
        try:
            return cls(_internal.MinPlusCurve.from_json(text))
        except _internal.ModelError as error:
            raise ModelError(f"{path}: {error}") from None

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the curve as JSON.

        Raises:
            PathcastError: the file cannot be written.

        """
        write_beside(file, json.dumps(self.to_dict()) + "\n")

    def to_dict(self) -> dict[str, Any]:
        """`segments` (each `start_s`, `value`, `slope`) and `tail` (`kind` and what it needs)."""
        values: dict[str, Any] = json.loads(self._inner.to_json())
        return values

    @overload
    def __call__(self, time_s: float) -> float: ...
    @overload
    def __call__(self, time_s: npt.ArrayLike) -> Any: ...  # noqa: ANN401 - as NumPy has it
    def __call__(self, time_s: npt.ArrayLike) -> Any:
        """The value at a time or at each of an array of them, at a jump that before it."""
        return _each(self._inner.at, time_s)

    def right_limit(self, time_s: npt.ArrayLike) -> Any:  # noqa: ANN401 - as __call__
        """As calling it, at a jump the value after it; at 0 the burst."""
        return _each(self._inner.right_limit, time_s)

    def attainable_rate(self, time_s: npt.ArrayLike) -> Any:  # noqa: ANN401 - as __call__
        """`f(t) / t` (Lübben & Fidler, equation 8), NaN where `t` is not above 0."""
        times = np.asarray(time_s, dtype=np.float64)
        usable = np.where(times > 0, times, np.nan)
        found = np.asarray(self(times)) / usable
        return float(found) if times.ndim == 0 else found

    def points(self, until_s: float) -> tuple[_Column, _Column]:
        """Times and values to draw lines between, up to `until_s`; a jump is two points."""
        with translated():
            return self._inner.points(float(until_s))

    @property
    def rate(self) -> float:
        """The long-term rate, data per second; infinite if the curve is."""
        return self._inner.rate()

    @property
    def tail_from_s(self) -> float:
        """Where the tail begins, seconds."""
        return self._inner.tail_from_s()

    @property
    def is_convex(self) -> bool:
        """Whether it is convex, 0 included; so is each latency-rate curve."""
        return self._inner.is_convex()

    @property
    def is_concave(self) -> bool:
        """Whether it is concave after 0; so is each token bucket."""
        return self._inner.is_concave()

    def min(self, other: Curve) -> Curve:
        """The smaller at each time."""
        with translated():
            return Curve(self._inner.min(other._inner))

    def max(self, other: Curve) -> Curve:
        """The larger at each time."""
        with translated():
            return Curve(self._inner.max(other._inner))

    def add(self, other: Curve) -> Curve:
        """The sum: of two flows' arrival curves, that of both."""
        with translated():
            return Curve(self._inner.add(other._inner))

    def minus(self, other: Curve) -> Curve:
        """The running maximum of `[f - g]+`: the service that is left for traffic of the lowest priority."""
        with translated():
            return Curve(self._inner.minus(other._inner))

    def convolve(self, other: Curve) -> Curve:
        """`inf over s of f(t - s) + g(s)`: the service of two systems in a row."""
        with translated():
            return Curve(self._inner.convolve(other._inner))

    def deconvolve(self, other: Curve) -> Curve:
        """`sup over u of f(t + u) - g(u)`: what leaves a server of curve `other` that this enters."""
        with translated():
            return Curve(self._inner.deconvolve(other._inner))

    def closure(self) -> Curve:
        """The sub-additive closure, the least sum of parts."""
        with translated():
            return Curve(self._inner.closure())

    def windowed(self, back_s: float, window: float) -> Curve:
        """A static window over this network, with the reverse delay (Lübben & Fidler, 2, 3)."""
        with translated():
            return Curve(self._inner.windowed(float(back_s), float(window)))

    def inverse(self) -> Curve:
        """`inf { t: f(t) >= y }`, with seconds and data exchanged."""
        with translated():
            return Curve(self._inner.inverse())

    def raised(self, value: float) -> Curve:
        """`f(t) + value` for `t > 0`."""
        with translated():
            return Curve(self._inner.raised(float(value)))

    def later(self, delay_s: float) -> Curve:
        """`f(t - delay_s)`."""
        with translated():
            return Curve(self._inner.later(float(delay_s)))

    def scaled(self, factor: float) -> Curve:
        """`factor f(t)`: another unit of data."""
        with translated():
            return Curve(self._inner.scaled(float(factor)))

    def delay_bound(self, arrivals: Curve) -> float:
        """The largest delay, seconds, of arrivals below a curve at a server of this one.

        The horizontal deviation; infinite where the arrivals are faster in the long run.
        `Arrivals.delay_bounds` has that of each packet of a trace.
        """
        with translated():
            return arrivals._inner.horizontal_deviation(self._inner)

    def backlog_bound(self, arrivals: Curve) -> float:
        """As `delay_bound`, the largest backlog: the vertical deviation; may be infinite."""
        with translated():
            return arrivals._inner.vertical_deviation(self._inner)

    def is_at_most(self, other: Curve) -> bool:
        """Whether it is nowhere above another, within rounding (1e-9 of time and value)."""
        with translated():
            return self._inner.is_at_most(other._inner)

    def is_same_as(self, other: Curve) -> bool:
        """Whether both are equal within rounding (1e-9 of time and value)."""
        with translated():
            return self._inner.is_same_as(other._inner)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Curve) and self._inner.equals(other._inner)

    def __hash__(self) -> int:
        return hash(self._inner.to_json())

    def __repr__(self) -> str:
        values = self.to_dict()
        shown = ", ".join(
            f"({one['start_s']:g}, {one['value']:g}, {one['slope']:g})"
            for one in values["segments"][:4]
        )
        more = ", ..." if len(values["segments"]) > 4 else ""
        return f"Curve([{shown}{more}], {values['tail']['kind']})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Curve.from_dict, (self.to_dict(),))


def _each(read: Any, time_s: npt.ArrayLike) -> Any:  # noqa: ANN401 - a float for a float, else an array
    try:
        times = np.asarray(time_s, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"time_s: {error}, expected numbers") from None
    found = read(np.ascontiguousarray(times.reshape(-1))).reshape(times.shape)
    return float(found) if times.ndim == 0 else found


class Arrivals:
    """A traffic trace: packets with times and sizes.

    Args:
        times_s: `n` times of arrival, seconds, not falling.
        sizes: `n` sizes above 0, in the unit of the service curves.

    Raises:
        ModelError: no packets, columns of different lengths, a time that falls, a number out of range.

    Example:
        >>> trace = Arrivals([0.0, 0.5, 3.0], [10.0, 10.0, 10.0])
        >>> trace.delay_bounds(Curve.latency_rate(10.0, 1.0)).tolist()
        [2.0, 2.5, 2.0]

    """

    __slots__ = ("_inner",)

    def __init__(self, times_s: npt.ArrayLike, sizes: npt.ArrayLike) -> None:
        with translated():
            self._inner = _internal.MinPlusArrivals(
                _column(times_s, "times_s"), _column(sizes, "sizes")
            )

    def __len__(self) -> int:
        return len(self._inner)

    @property
    def total(self) -> float:
        """Size of all packets."""
        return self._inner.total()

    @property
    def span_s(self) -> float:
        """Time from the first packet to the last, in seconds."""
        return self._inner.span_s()

    @property
    def mean_rate(self) -> float:
        """Data per second, from the first packet to the last; infinite if they all come at one time."""
        return self.total / self.span_s if self.span_s > 0 else math.inf

    def delay_bounds(self, service: Curve) -> _Column:
        """The delay bound of each packet, seconds; infinite where none is guaranteed.

        Equations 5 and 6 of Lübben & Fidler.
        """
        with translated():
            return self._inner.delay_bounds(service._inner)

    def backlog_bounds(self, service: Curve) -> _Column:
        """The backlog bound at each arrival, the packet itself included."""
        with translated():
            return self._inner.backlog_bounds(service._inner)

    def cumulative(self) -> Curve:
        """Data that arrived before each time, counted from 0."""
        with translated():
            return Curve(self._inner.cumulative())

    def envelope(self, windows_s: npt.ArrayLike | None = None) -> Curve:
        """The empirical envelope: most data in any window of each length (Wrege et al. 1996).

        Args:
            windows_s: lengths at which it is exact, rising; between it is that of the next, and beyond
                the longest the sum of several. By default all pairs of packets count, of at most 8192.

        """
        windows = None if windows_s is None else _column(windows_s, "windows_s")
        with translated():
            return Curve(self._inner.envelope(windows))

    def smallest_burst(self, rate: float) -> float:
        """Smallest burst of a token bucket of this rate that lets the trace pass."""
        with translated():
            return self._inner.smallest_burst(float(rate))
