"""What probing found: delays by rate, and the service curve and attainable rate that follow."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from pathcast.exceptions import ProbingError
from pathcast.min_plus import Arrivals, Curve

Floats = npt.NDArray[np.float64]

#: Version of the JSON.
SCHEMA = 1
#: The most points of a file that is read.
_MOST_POINTS = 100_000


@dataclass(frozen=True)
class Point:
    """One rate.

    Attributes:
        rate: in units a second.
        stationary: whether delays have a steady state; where not, nothing that follows is known.
        delay_s: the delay that is exceeded with probability `epsilon`.
        delay_low_s: lower bound of it.
        delay_high_s: upper bound; None: too few samples.
        epsilon: of this rate.
        samples: independent ones that it rests on.
        spacing_s: the time between them.
        probed_s: for how long was probed, in seconds, all trains and warm-ups.
        buffered: share of messages that waited for the window.
        median_delay_s: of all samples.
        because: why it is not stationary, in words; empty: it is.
        notes: what else was seen, in words.
        undecided: not stationary only because samples still depended on each other when the time was over; whether
            there is a steady state is not known.

    """

    rate: float
    stationary: bool
    delay_s: float | None = None
    delay_low_s: float | None = None
    delay_high_s: float | None = None
    epsilon: float = 0.0
    samples: int = 0
    spacing_s: float = 0.0
    probed_s: float = 0.0
    buffered: float = 0.0
    median_delay_s: float | None = None
    because: str = ""
    notes: tuple[str, ...] = ()
    undecided: bool = False


@dataclass(frozen=True)
class AttainableRate:
    """The estimate of a service curve by probing, equation 7, and the attainable rate, equation 8.

    `service(t)` is what is served in any time t with probability 1 - `epsilon`, as long as there is something to serve:
    the maximum over rates r of r (t - d(r)), d(r) being the delay that is exceeded with probability epsilon(r);
    `epsilon` is the sum of these (union bound).

    Attributes:
        unit: what rates count a second: `packets` or `bit`.
        points: all rates that were probed, ascending.
        confidence: of the bounds, each rate by itself.
        probed: what was probed; see `Prober.describe`.
        greedy: what a greedy source gets, and its bounds, in units a second; None: not measured.

    """

    unit: str
    points: tuple[Point, ...]
    confidence: float
    probed: dict[str, Any]
    greedy: tuple[float, float, float] | None = None

    @property
    def used(self) -> tuple[Point, ...]:
        """The rates that have a steady state: the curve is made of them."""
        return tuple(point for point in self.points if point.stationary)

    @property
    def epsilon(self) -> float:
        """Probability that the service is less somewhere."""
        return sum(point.epsilon for point in self.used)

    @property
    def message_epsilon(self) -> float:
        """Probability with which one message is later than `delay_bounds` says."""
        return max((point.epsilon for point in self.used), default=0.0)

    @property
    def long_term_rate(self) -> float:
        """The largest rate with a steady state, in units a second; 0 if no rate has one."""
        return max((point.rate for point in self.used), default=0.0)

    @property
    def unstable_rate(self) -> float | None:
        """The smallest rate without a steady state; None if none was probed: the long-term rate may be larger."""
        rates = [point.rate for point in self.points if not point.stationary]
        return min(rates, default=None)

    @property
    def probed_s(self) -> float:
        """For how long was probed in all, in seconds."""
        return sum(point.probed_s for point in self.points)

    def service(self, time_s: npt.ArrayLike, bound: str = "") -> Floats:
        """The service curve.

        Args:
            time_s: seconds, of any shape.
            bound: `low` or `high` for the bounds: by the upper and lower bounds of all delays.

        Returns:
            Units, of the same shape. A rate without an upper bound of its delay adds nothing to `low`.

        """
        times = np.asarray(time_s, dtype=float)
        served = np.zeros(times.shape)
        for point in self.used:
            delay = {"": point.delay_s, "low": point.delay_high_s, "high": point.delay_low_s}[bound]
            if delay is not None:
                served = np.maximum(served, point.rate * (times - delay))
        return served

    def rate(self, time_s: npt.ArrayLike, bound: str = "") -> Floats:
        """The attainable rate `service(t) / t`, equation 8; arguments as of `service`, times above 0."""
        times = np.asarray(time_s, dtype=float)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(times > 0, self.service(times, bound) / times, 0.0)

    def convergence_s(self, share: float) -> float:
        """The time on which this share of the long-term rate is attainable, in seconds; else infinity."""
        if not self.used or not 0 < share < 1:
            return math.inf
        wanted = share * self.long_term_rate
        # r (t - d) / t >= wanted from t = r d / (r - wanted) on
        times = [
            point.rate * (point.delay_s or 0.0) / (point.rate - wanted)
            for point in self.used
            if point.rate > wanted
        ]
        return min(times, default=math.inf)

    def as_curve(self) -> Curve:
        """The service curve for the min-plus algebra: convex, one segment for each rate that is the maximum somewhere.

        Raises:
            ProbingError: no rate has a steady state.

        """
        if not self.used:
            raise ProbingError("no rate has a steady state, so that nothing is served for certain")
        return Curve.from_probes(
            [point.rate for point in self.used], [point.delay_s or 0.0 for point in self.used]
        )

    def delay_bounds(self, written_s: Floats, sizes: npt.ArrayLike) -> Floats:
        """For each message of an application, a delay that it exceeds with probability `message_epsilon` at most.

        Equation 6 for each rate by itself, r (t - d(r)), and of these the smallest: which rate is best for a message
        follows from when the application writes, not from what happens, so that its probability is that of one rate
        and no union bound is needed. (The curve of all rates holds for all of them together, with `epsilon`.)

        Args:
            written_s: when each is written, in seconds, in order.
            sizes: of each, or of all, in units.

        Returns:
            Seconds from writing to arrival.

        Raises:
            ProbingError: no rate has a steady state.
            ModelError: times or sizes that cannot be.

        """
        if not self.used:
            raise ProbingError("no rate has a steady state, so that nothing is served for certain")
        amounts = np.broadcast_to(np.asarray(sizes, dtype=float), len(written_s))
        arrivals = Arrivals(written_s, amounts)
        bounds = np.full(len(written_s), np.inf)
        for point in self.used:
            curve = Curve.from_probes([point.rate], [point.delay_s or 0.0])
            bounds = np.minimum(bounds, arrivals.delay_bounds(curve))
        return bounds

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON."""
        return {
            "schema": SCHEMA,
            "unit": self.unit,
            "epsilon": self.epsilon,
            "message_epsilon": self.message_epsilon,
            "long_term_rate": self.long_term_rate,
            "unstable_rate": self.unstable_rate,
            "greedy": None if self.greedy is None else list(self.greedy),
            "confidence": self.confidence,
            "probed_s": self.probed_s,
            "points": [asdict(point) for point in self.points],
            "probed": self.probed,
        }

    @classmethod
    def from_json(cls, text: str | bytes) -> AttainableRate:
        """Read a curve from the result of `to_dict`.

        Raises:
            ProbingError: it is something else.

        """
        try:
            values = json.loads(text)
            if values["schema"] != SCHEMA:
                raise ProbingError(f"schema {values['schema']!r} of an estimate, expected {SCHEMA}")
            if len(values["points"]) > _MOST_POINTS:
                raise ProbingError(
                    f"{len(values['points'])} rates, expected at most {_MOST_POINTS}"
                )
            points = tuple(_point(one) for one in values["points"])
            rates = [point.rate for point in points]
            if rates != sorted(set(rates)):
                raise ProbingError("the rates of an estimate must ascend")
            confidence = float(values["confidence"])
            greedy = values["greedy"]
            if greedy is not None:
                mean, low, high = map(float, greedy)
                if not all(map(math.isfinite, (mean, low, high))):
                    raise ProbingError("a greedy source's rate must be a number")
                greedy = mean, low, high
            return cls(str(values["unit"]), points, confidence, dict(values["probed"]), greedy)
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
            raise ProbingError(
                f"this is no estimate of an attainable rate: {type(error).__name__}: {error}"
            ) from None


def _point(values: dict[str, Any]) -> Point:
    known = {field.name for field in fields(Point)}
    if not set(values) <= known:
        raise ValueError(f"unknown {sorted(set(values) - known)[0]!r}")
    notes = tuple(map(str, values.get("notes", ())))
    point = Point(**(values | {"notes": notes}))
    numbers = [
        point.rate,
        point.epsilon,
        point.spacing_s,
        point.probed_s,
        point.buffered,
        point.samples,
    ]
    delays = [point.delay_s, point.delay_low_s, point.delay_high_s, point.median_delay_s]
    numbers += [delay for delay in delays if delay is not None]
    for number in numbers:
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not math.isfinite(number)
        ):
            raise ValueError(f"{number!r} is no number")
    if not isinstance(point.undecided, bool):
        raise ValueError(f"{point.undecided!r} is neither true nor false")
    if (
        point.rate <= 0
        or not 0 <= point.epsilon <= 1
        or (point.stationary and point.delay_s is None)
    ):
        raise ValueError(f"no such rate: {values}")
    return point
