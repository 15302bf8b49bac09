"""The main job end to end: measure a flow, fit its loss curve, forecast it, compare."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Any

from pathcast import runs
from pathcast.exceptions import EmulatorError, SchemeError
from pathcast.experiments.engine.world import World
from pathcast.models import Evaluation, Fit, evaluate, fit
from pathcast.path import Path
from pathcast.trace import Trace

#: Seconds ahead that the demo forecasts.
HORIZONS_S = (1.0, 5.0, 10.0)

#: Congestion controls whose windows the models know.
SCHEMES = ("cubic", "reno")


@dataclass(frozen=True)
class ChosenWorld:
    """A world and why.

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
        path: what it ran over.
        world: where.
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
    file = resources.files("pathcast") / "paths" / "demo.toml"
    return Path.parse(file.read_text(), "demo.toml")


def choose_world(wanted: World | None) -> ChosenWorld:
    """Finds out where to run: in the emulator if it can run here and nothing is wanted.

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
) -> Measured:
    """Runs one bulk flow.

    Raises:
        SchemeError: a scheme that the models do not know.
        EmulatorError: a scheme that this kernel lacks.

    """
    if scheme not in SCHEMES:
        raise SchemeError(
            f"{scheme!r} cannot be forecast yet, expected one of {', '.join(SCHEMES)}"
        )
    run_in = runs.emulate if world.world is World.EMULATOR else runs.simulate
    run, trace = run_in(path, [scheme], duration_s=duration_s, seed=seed, progress=progress)
    assert trace is not None, "both worlds record by default"  # noqa: S101
    return Measured(path, world, run, trace)


def forecast(measured: Measured, horizons_s: tuple[float, ...] = HORIZONS_S) -> Result:
    """Fits the flow's first part and forecasts the rest again and again.

    Raises:
        ModelError: the flow is too short, or its congestion control is none the models know.

    """
    fitted = fit(measured.trace)
    evaluation = evaluate(measured.trace, horizons_s)
    predictions = evaluation.horizons[0].predictions
    first_s = float(predictions.time_s[0]) if len(predictions.time_s) else 0.0
    in_training = sum(epoch.end_s <= first_s for epoch in fitted.flows[0].epochs)
    return Result(measured, fitted, evaluation, first_s, in_training)
