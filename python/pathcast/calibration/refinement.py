"""A calibration whose simulator is corrected by the kernel's own flows over the path that was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pathcast.calibration.closed_forms import FirstEstimate
from pathcast.calibration.fit import Posterior, measured
from pathcast.calibration.imitation import Imitation, Runner, Sender
from pathcast.calibration.inference import infer
from pathcast.exceptions import ModelError

#: Runs of the kernel, those that must be valid, and of the simulator.
_EMULATED, _LEAST_VALID, _SIMULATED = 4, 2, 32
#: The deviation of the simulator that is left after it was corrected, as a part of what it had.
_LEFT = 0.4
#: Rounds of simulations after it, which look this part of the prior's spread around.
_ROUNDS, _FIRST_PART = 3, 0.1


def refine(
    posterior: Posterior,
    first: FirstEstimate,
    flows: Sequence[Sender],
    *,
    draws: int,
    seed: int,
    runner: Runner,
    progress: Callable[[float], None] | None = None,
) -> Posterior:
    """Run the flows on the kernel over the path with the median parameters, and infer again with what that tells.

    What the kernel's flows differ by from simulated ones is taken off what was measured. Of flows that may compete, the
    likeliest are taken.

    Args:
        posterior: what was inferred.
        first: where that began.
        flows: that it was inferred from.
        draws: samples of the posterior.
        seed: of all that is random.
        runner: runs simulations.
        progress: called with the part of the work that is done, 0 to 1.

    Raises:
        EmulatorError: the emulator cannot run here.
        SchemeError: the kernel has no such scheme.
        ModelError: fewer than two runs of the kernel were valid.

    """
    imitation = Imitation.of(flows, posterior.model, posterior.line_rate_bps)
    # connections of the emulator are open before the flows that compete begin
    open_before = [replace(one, seen=replace(one.seen, opens=False)) for one in flows]
    both = Imitation.of(open_before, posterior.model, posterior.line_rate_bps)
    middle = np.median(posterior.of_model(), axis=0)
    real = []
    for number in range(_EMULATED):
        one = both(middle, seed + number, emulated=True)
        if one is not None and np.isfinite(one).all():
            real.append(one)
        if progress:
            progress(0.7 * (number + 1) / _EMULATED)
    if len(real) < _LEAST_VALID:
        raise ModelError(
            f"got {len(real)} valid runs of {_EMULATED} on the emulator, expected at least {_LEAST_VALID}: the machine is "
            "too busy, or the path too fast for it"
        )
    seeds = np.arange(seed, seed + _SIMULATED, dtype=float)
    tried = runner(both, np.tile(middle, (_SIMULATED, 1)), seeds)
    simulated = np.array([one for one in tried if one is not None and np.isfinite(one).all()])
    if len(simulated) < _LEAST_VALID:
        raise ModelError("the path that was found carries nothing in most simulations of it")
    deviation = np.mean(real, axis=0) - simulated.mean(axis=0)
    error = simulated.std(axis=0, ddof=1) * np.sqrt(1 / len(real) + 1 / len(simulated))
    y, floor = measured(flows)
    found = infer(
        replace(first, start=first.logs(middle)),
        lambda parameters, seeds: runner(imitation, parameters, seeds),
        y - deviation,
        np.hypot(_LEFT * floor, error),
        draws=draws,
        seed=seed,
        rounds=_ROUNDS,
        first_part=_FIRST_PART,
    )
    if progress:
        progress(1.0)
    return replace(
        posterior,
        samples=found.samples,
        misfit=found.misfit,
        log_evidence=found.log_evidence,
        competing=(),
    )


__all__ = ["refine"]
