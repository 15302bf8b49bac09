"""The main job end to end: measure a flow, fit its loss curve, forecast it, compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pathcast import runs
from pathcast.exceptions import EmulatorError, SchemeError
from pathcast.experiments.engine.world import World
from pathcast.models import Evaluation, Fit, Forecaster, evaluate, fit
from pathcast.path import Path, built_in
from pathcast.trace import FlowSeries, Trace

#: Seconds ahead that the demo forecasts.
HORIZONS_S = (1.0, 5.0, 10.0)

#: Payload of a full packet of TCP over IPv4 with timestamps, in bytes.
PAYLOAD_BYTES = 1448

#: Congestion controls whose windows the models know.
SCHEMES = ("cubic", "reno")


@dataclass(frozen=True)
class ChosenWorld:
    """A backend, and why it was chosen.

    Attributes:
        world: the emulator or the simulator.
        said: the choice in words, for people.

    """

    world: World
    said: str


@dataclass(frozen=True)
class Measured:
    """A flow that was run.

    Attributes:
        path: the path that the flow ran over.
        world: the backend.
        run: what it did.
        trace: its record.

    """

    path: Path
    world: ChosenWorld
    run: runs.RunReport
    trace: Trace


@dataclass(frozen=True)
class Result:
    """All that the report shows.

    Attributes:
        measured: the run.
        fit: epochs and loss curve over the whole flow.
        evaluation: forecasts against what happened.
        training_s: seconds of the flow before the first forecast.
        losses_in_training: loss events in them.

    """

    measured: Measured
    fit: Fit
    evaluation: Evaluation
    training_s: float
    losses_in_training: int

    def to_dict(self) -> dict[str, Any]:
        """As `pathcast demo --json` prints it."""
        return {
            "world": self.measured.world.world.value,
            "run": self.measured.run.to_dict(),
            "fit": self.fit.to_dict(),
            "evaluation": self.evaluation.to_dict(),
            "training_s": self.training_s,
        }


def demo_path() -> Path:
    """The demo's own path: an access link with random loss and a queue of one BDP."""
    return Path.parse(built_in()["demo"].read_text(), "demo.toml")


def choose_world(wanted: World | None) -> ChosenWorld:
    """Choose the backend: the emulator if it can run here and none was chosen.

    Raises:
        EmulatorError: the emulator was asked for and cannot run here.

    """
    if wanted is World.SIMULATOR:
        return ChosenWorld(World.SIMULATOR, "in the simulator, as asked")
    found = runs.capabilities()
    if found.can_emulate:
        without = "" if found.root else ", without root"
        return ChosenWorld(World.EMULATOR, f"with the kernel's TCP, in the emulator{without}")
    why = "; ".join(found.reasons)
    if wanted is World.EMULATOR:
        raise EmulatorError(why)
    return ChosenWorld(
        World.SIMULATOR, f"in the simulator, for the emulator cannot run here ({why})"
    )


def measure(
    path: Path,
    world: ChosenWorld,
    *,
    scheme: str = "cubic",
    duration_s: float = 60.0,
    seed: int = 1,
    progress: runs.Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Measured:
    """Run one bulk flow.

    Args:
        path: the path that the flow runs over.
        world: the backend.
        scheme: its congestion control.
        duration_s: how long it sends, in seconds.
        seed: of all that is random in the path.
        progress: called about ten times a second with the time that has passed.
        say: called with each forecast that is made while the flow runs, and with how it came out.

    Raises:
        SchemeError: a scheme that the models do not know.
        EmulatorError: a scheme that this kernel lacks.

    """
    if scheme not in SCHEMES:
        raise SchemeError(
            f"{scheme!r} cannot be forecast yet, expected one of {', '.join(SCHEMES)}"
        )
    if world.world is World.EMULATOR:
        live = None if say is None else LiveForecasts(scheme, duration_s / 3, say)
        return Measured(
            path,
            world,
            *runs.emulate(
                path, [scheme], duration_s=duration_s, seed=seed, progress=progress, senders=live
            ),
        )
    # it ends before anybody could follow it
    run, trace = runs.simulate(path, [scheme], duration_s=duration_s, seed=seed, progress=progress)
    assert trace is not None, "it records by default"  # noqa: S101
    return Measured(path, world, run, trace)


class LiveForecasts:
    """Forecasts a flow as it runs, and says how each forecast came out."""

    #: Seconds ahead, and from one forecast to the next.
    HORIZON_S = 5.0

    def __init__(self, scheme: str, from_s: float, say: Callable[[str], None]) -> None:
        """Nothing was seen yet; the first forecast is made at `from_s` seconds of the flow."""
        self._forecaster = Forecaster(scheme, [self.HORIZON_S])
        self._next_s = from_s
        self._say = say
        #: Moment and bytes sent when the last forecast was made, and its low and high end in bit/s.
        self._made: tuple[float, int, float, float] | None = None
        self._last_s = -1.0
        self.hits = self.misses = 0

    def __call__(self, states: Sequence[runs.SenderState]) -> None:
        """Take the state of the one flow."""
        for state in states:
            if state.snd_nxt_bytes is None or state.time_s <= self._last_s:
                continue
            self._last_s = state.time_s
            row = (state.time_s, state.cwnd_packets, state.snd_nxt_bytes / PAYLOAD_BYTES)
            known = (state.srtt_s, state.retransmits)
            columns = (np.array([one], np.float64) for one in (*row, *known))
            self._forecaster.observe(FlowSeries(*columns))
            if state.time_s >= self._next_s:
                self._say(f"at {state.time_s:.0f} s: {self._past(state)}{self._ahead(state)}")
                self._next_s = state.time_s + self.HORIZON_S

    def _past(self, state: runs.SenderState) -> str:
        """How the last forecast came out."""
        if self._made is None or state.snd_nxt_bytes is None:
            return ""
        at_s, sent_bytes, low_bps, high_bps = self._made
        truth_bps = 8 * (state.snd_nxt_bytes - sent_bytes) / (state.time_s - at_s)
        hit = low_bps <= truth_bps <= high_bps
        self.hits, self.misses = self.hits + hit, self.misses + (not hit)
        return f"it was {truth_bps / 1e6:.2f}, {'inside' if hit else 'outside'} the band; "

    def _ahead(self, state: runs.SenderState) -> str:
        """What the flow will do next."""
        made = self._forecaster.forecast(state.time_s, self.HORIZON_S)
        median, low, high = (
            8 * PAYLOAD_BYTES * one for one in (made.point, made.quantiles[0], made.quantiles[-1])
        )
        self._made = (state.time_s, state.snd_nxt_bytes or 0, low, high)
        return (
            f"the next {self.HORIZON_S:g} s will carry {median / 1e6:.2f} Mbit/s "
            f"(90 % band {low / 1e6:.2f} to {high / 1e6:.2f})"
        )


def forecast(measured: Measured, horizons_s: tuple[float, ...] = HORIZONS_S) -> Result:
    """Fit the flow's first part and forecast the rest again and again.

    Raises:
        ModelError: the flow is too short, or the models do not know its congestion control.

    """
    fitted = fit(measured.trace)
    evaluation = evaluate(measured.trace, horizons_s)
    predictions = evaluation.horizons[0].predictions
    first_s = float(predictions.time_s[0]) if len(predictions.time_s) else 0.0
    in_training = sum(epoch.end_s <= first_s for epoch in fitted.flows[0].epochs)
    return Result(measured, fitted, evaluation, first_s, in_training)
