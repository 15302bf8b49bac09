"""Runs what an experiment lacks, with progress: what its commands share."""

from __future__ import annotations

from collections.abc import Sequence

from pathcast.cli.console import err, progress_bar
from pathcast.experiments.engine.runner import ATTEMPTS, AnyCase, Status, plan, run
from pathcast.experiments.engine.store import Record, Store
from pathcast.experiments.engine.world import World


def run_missing(
    cases: Sequence[AnyCase], store: Store, world: World, at_once: int | None
) -> list[tuple[AnyCase, Record]]:
    """Run the cases that a store lacks, and say before how long those in real time take.

    Args:
        cases: what to run.
        store: where runs are kept; locked by the caller.
        world: where to run them.
        at_once: emulated cases that run together; None: what suits the machine.

    Returns:
        All cases, those that were kept before first.

    Raises:
        PathcastError: a case cannot be run here, or a file cannot be written.

    """
    planned = plan(cases, store, world, at_once if world is World.EMULATOR else None)
    if planned.missing and world is World.EMULATOR:
        err.print(
            f"{len(planned.missing)} flows in real time, {planned.at_once} together: about "
            f"{planned.estimate_s / 60:.0f} min; Ctrl-C stops, the same command goes on",
            soft_wrap=True,
        )
    with progress_bar(world.value, len(planned.missing), "flows") as progress:

        def ended(status: Status[AnyCase]) -> None:
            progress(len(status.ended))

        return run(planned, store, attempts=ATTEMPTS, progress=ended)
