"""Every model of throughput behind one interface: fit on a trace, forecast from a state."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pathcast import _internal
from pathcast.exceptions import translated
from pathcast.models import Protocol, check_rtt, chosen_cc, columns
from pathcast.trace import Trace

#: Horizons that an estimator knows by default, in seconds: those of the paper's section 5.2.
ESTIMATOR_HORIZONS_S = (1.0, 5.0, 10.0)


@dataclass(frozen=True)
class State:
    """Where a flow is at a moment. `dataclasses.replace(state, cwnd_packets=20)` asks "what if".

    Attributes:
        time_s: the moment in seconds of the trace.
        phase: `slow_start`, `avoidance` or `recovery`.
        cwnd_packets: the window.
        epoch_start_s: when the current epoch of avoidance began.
        epoch_start_packets: window there.
        w_max_packets: CUBIC's Wmax.
        last_loss_s: when the last loss was; None before the first.
        ssthresh_packets: where slow start ends; infinite before the first loss.
        growth: recent growth, relative to that of the law.
        held_s: how long the window has been constant although it grows by the law.
        release_in_s: even odds that it grows again within this time.

    """

    time_s: float
    phase: str
    cwnd_packets: float
    epoch_start_s: float
    epoch_start_packets: float
    w_max_packets: float
    last_loss_s: float | None
    ssthresh_packets: float
    growth: float
    held_s: float
    release_in_s: float


@dataclass(frozen=True)
class Estimate:
    """Forecast of one model: a point, a mean and quantiles.

    Attributes:
        quantity: unit of the values: `packets_per_s`, or `mean_cwnd_packets` without sequence numbers.
        point: the one number that the model gives.
        mean: mean of the distribution.
        quantiles: at `QUANTILE_LEVELS`: Pathcast's own; another model's number with what it was lately
            off by on the trace.

    """

    quantity: str
    point: float
    mean: float
    quantiles: tuple[float, ...]


class Estimator:
    """A model that has learned from a trace.

    Example:
        >>> import numpy as np
        >>> sawtooth = {"time_s": np.arange(2000) * 0.1, "cwnd_packets": 100 + np.arange(2000) % 101}
        >>> estimator = Estimator.fit("window_mean", Trace.from_columns(sawtooth), cc="reno")
        >>> round(estimator.forecast(5).point, -1)
        150.0

    """

    def __init__(self, model: str, inner: _internal.Estimator) -> None:
        """Use `Estimator.fit`."""
        self.model = model
        self._inner = inner

    @classmethod
    def fit(
        cls,
        model: str,
        trace: Trace,
        *,
        flow: int = 0,
        horizons_s: Sequence[float] = ESTIMATOR_HORIZONS_S,
        protocol: Protocol = "fair",
        cc: str | None = None,
        rtt_s: float | None = None,
    ) -> Estimator:
        """Learn from one flow of a trace.

        Args:
            model: one of `pathcast.MODELS`.
            trace: what was measured.
            flow: which of its flows.
            horizons_s: the horizons that will be asked for, in seconds.
            protocol: length of the samples that models of history see: `fair` 1 s, `paper` 10 s.
            cc: congestion control; by default what the trace says, else guessed: `cubic` or `reno`.
            rtt_s: round-trip time in seconds; by default from srtt, else estimated.

        Raises:
            ModelError: an unknown model, a time that is not greater than 0, or a flow of fewer
                than two records.

        """
        check_rtt(rtt_s)
        with translated():
            inner = _internal.Estimator(
                model,
                columns(trace.flow(flow)),
                [float(horizon_s) for horizon_s in horizons_s],
                protocol,
                chosen_cc(trace, flow, cc),
                rtt_s,
            )
        return cls(model, inner)

    def state(self) -> State:
        """Where the flow was at the end of the trace."""
        return State(**self._inner.state())

    def forecast(self, horizon_s: float, state: State | None = None) -> Estimate:
        """Forecast the `horizon_s` seconds from a state on, by default that at the end of the trace.

        Models of history and formulas do not look at the state.

        Raises:
            ModelError: a horizon that was not announced, a state with impossible values, or a model
                that says nothing of this flow (`pathcast.SUITED`).

        """
        values: dict[str, Any] = self._inner.state() if state is None else dataclasses.asdict(state)
        with translated():
            quantity, point, mean, quantiles = self._inner.forecast(values, float(horizon_s))
        return Estimate(quantity, point, mean, tuple(quantiles))
