"""The path that explains flows: simulated flows over candidate paths are compared with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pathcast.calibration.changes import mean_rate_bps
from pathcast.calibration.closed_forms import (
    FirstEstimate,
    at_rate,
    first_estimate,
    first_estimate_beside,
    first_estimate_beside_steady,
    first_estimate_managed,
    first_estimate_policed,
    first_estimate_with_jitter,
    together,
)
from pathcast.calibration.features import Observation, features, floors
from pathcast.calibration.imitation import Imitation, Runner, Sender, on_cores
from pathcast.calibration.inference import ROUNDS, RUNS, infer
from pathcast.calibration.paths import SIMPLEST, Model
from pathcast.calibration.prior import Prior
from pathcast.trace import Column


@dataclass(frozen=True)
class Posterior:
    """Parameters of a path as far as a flow tells.

    Attributes:
        samples: draws of the parameters in the order of `PARAMETERS`; shape n x 5.
        model: what the path is like beside them.
        line_rate_bps: rate of the link behind a policer; None without a policer.
        misfit: root mean square of how far the flow's features lie from those of the best path, in standard deviations.
        log_evidence: of the model, as `Inferred` has it.
        runs: simulations that were made.
        competing: the flows that compete in each draw; empty: those of the model in all.

    """

    samples: Column
    model: Model
    line_rate_bps: float | None
    misfit: float
    log_evidence: float
    runs: int
    competing: tuple[tuple[str, ...], ...] = ()

    def of_model(self) -> Column:
        """Return the draws in which the flows of the model compete; shape n x 5."""
        if not self.competing:
            return self.samples
        return self.samples[[one == self.model.competing for one in self.competing]]


def fit(
    flows: Sequence[Sender],
    *,
    draws: int,
    seed: int,
    model: Model = SIMPLEST,
    rounds: int = ROUNDS,
    runner: Runner = on_cores,
    prior: Prior | None = None,
    progress: Callable[[float], None] | None = None,
) -> tuple[Posterior, FirstEstimate]:
    """Infer the path of a flow, or of several that used it one after another.

    Args:
        flows: at least one.
        draws: samples of the posterior.
        seed: of all that is random.
        model: what the path is like beside its parameters.
        rounds: of simulations.
        runner: runs them.
        prior: of queue and losses; by default a wide one.
        progress: called with the number of simulations so far.

    Raises:
        ModelError: no simulated flow resembles it.

    """
    first = together([_first(one.seen, model) for one in flows])
    if prior is not None and model.queue == "droptail" and not model.policed:
        first = prior.applied(first)
    imitation = Imitation.of(flows, model, first.line_rate_bps)
    y, floor = measured(flows)
    found = infer(
        first,
        lambda parameters, seeds: runner(imitation, parameters, seeds),
        y,
        floor,
        draws=draws,
        seed=seed,
        rounds=rounds,
        progress=progress,
    )
    posterior = Posterior(
        found.samples,
        model,
        first.line_rate_bps,
        found.misfit,
        found.log_evidence,
        rounds * RUNS,
    )
    return posterior, first


def measured(flows: Sequence[Sender]) -> tuple[Column, Column]:
    """Features of flows one after another, and the least standard deviation of each."""
    y: list[float] = []
    floor: list[float] = []
    for one in flows:
        found = features(one.seen)
        y += found.values()
        floor += list(floors(found, one.seen))
    return np.array(y), np.array(floor)


def _first(seen: Observation, model: Model) -> FirstEstimate:
    if model.policed:
        return first_estimate_policed(seen)
    if model.competing:
        return first_estimate_beside(seen, model.competing)
    if model.queue != "droptail":
        return first_estimate_managed(seen)
    if model.has_jitter:
        return first_estimate_with_jitter(seen)
    if model.steady_part:
        return first_estimate_beside_steady(seen, model.steady_part)
    first = first_estimate(seen)
    return first if model.link.kind == "constant" else at_rate(first, mean_rate_bps(seen))
