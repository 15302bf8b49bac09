"""Forecasts of one flow as its records come in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pathcast import _internal
from pathcast._fit import check_rtt, columns
from pathcast.exceptions import ModelError, translated
from pathcast.trace import FlowSeries


@dataclass(frozen=True)
class Forecast:
    """Forecast of a flow: point, mean, quantiles and their basis.

    Attributes:
        time_s: moment of prediction in seconds of the flow's records.
        horizon_s: seconds ahead.
        quantity: `packets_per_s`, or `mean_cwnd_packets` without sequence numbers.
        point: the one number to use.
        mean: mean of the distribution.
        quantiles: at `QUANTILE_LEVELS`.
        weights: by expert: its weight in `point`, and its own forecast.
        basis: what the forecast rests on: losses and packets seen, forecasts already resolved, RTT.

    """

    time_s: float
    horizon_s: float
    quantity: str
    point: float
    mean: float
    quantiles: tuple[float, ...]
    weights: dict[str, tuple[float, float]]
    basis: dict[str, Any]


class Forecaster:
    """Forecaster of one flow, record by record; its memory is bounded.

    Example:
        >>> import numpy as np
        >>> forecaster = Forecaster("reno", horizons_s=[5.0], rtt_s=0.1)
        >>> forecaster.observe(FlowSeries(np.arange(300) * 0.1, 100.0 + np.arange(300)))
        >>> round(forecaster.forecast(29.9, 5.0).point)  # one packet more each 0.1 s
        424

    """

    def __init__(
        self,
        cc: str,
        horizons_s: Sequence[float],
        *,
        rtt_s: float | None = None,
        on_break: Literal["refuse", "restart"] = "refuse",
        siblings: Sequence[Forecaster] = (),
    ) -> None:
        """A forecaster that has seen nothing.

        Args:
            cc: congestion control. Where no window law of it is known, forecasts rest on the past alone.
            horizons_s: the horizons that will be asked for, in seconds.
            rtt_s: round-trip time in seconds; by default from srtt, else estimated.
            on_break: when time or the sequence number goes back: `refuse` the record, or `restart`
                there with what was learned of the path; `basis["notes"]` then says so. Docs:
                docs/reference/loss-curves.md.
            siblings: flows of the same path, or of the same client prefix, in the order in which they began. What
                they have sent so far says how this one will go on; the eight newest count. It is taken once, now.

        Raises:
            ModelError: an empty `cc`, or a time that is not greater than 0.

        """
        check_rtt(rtt_s)
        if on_break not in ("refuse", "restart"):
            raise ModelError(f"on_break is {on_break!r}, expected 'refuse' or 'restart'")
        horizons_s = [float(h) for h in horizons_s]
        with translated():
            self._inner = _internal.Forecaster(cc, horizons_s, rtt_s, on_break == "restart")
            self._inner.take_siblings([one._inner for one in siblings])

    def observe(self, records: FlowSeries) -> None:
        """Take records that follow those before; NaN is a value that a record lacks.

        Raises:
            ModelError: a value that is infinite or a time that goes back.

        """
        with translated():
            self._inner.observe(columns(records))

    def forecast(self, now_s: float, horizon_s: float) -> Forecast:
        """Forecast the `horizon_s` seconds from `now_s` on, which is not before the last record.

        Raises:
            ModelError: no record yet, or a horizon that was not announced.

        """
        with translated():
            values = json.loads(self._inner.forecast(now_s, horizon_s))
        return Forecast(
            values["time_s"],
            values["horizon_s"],
            values["quantity"],
            values["point"],
            values["mean"],
            tuple(values["quantiles"]),
            {w["expert"]: (w["weight"], w["value"]) for w in values["weights"]},
            values["basis"],
        )
