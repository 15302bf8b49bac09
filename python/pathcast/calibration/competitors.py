"""Which flows share a path: sets of them, each as probable as it makes what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pathcast.calibration.closed_forms import FirstEstimate
from pathcast.calibration.fit import Posterior
from pathcast.calibration.paths import Model
from pathcast.trace import Column

#: Sets that are considered: of each scheme ever more flows.
FAMILIES = (
    tuple(Model(competing=("cubic",) * count) for count in (1, 2, 3, 4, 5, 6, 8)),
    tuple(Model(competing=("bbr",) * count) for count in (1, 2)),
)
#: How many sets these are.
COUNT = sum(map(len, FAMILIES))
#: Features depend on each other in more ways than their covariance tells, so that logarithms of the evidence count this
#: part.
_EVIDENCE_PART = 0.4
#: The logarithm of the evidence that no other flow has in advance: beside random losses, sets that are not there lead by 7 at
#: most, and those that are by 6 and more.
_AGAINST = 8.0
#: The most sets that are kept, and the least probability of one beside the likeliest.
_MOST, _LEAST = 4, 0.05
#: So many sets in a row that are less probable than that: larger ones are not tried.
_IN_A_ROW = 2


def are_too_many(screened: Sequence[Posterior]) -> bool:
    """Say whether the last sets, each larger than the one before, are far less probable than a smaller one."""
    if len(screened) <= _IN_A_ROW:
        return False
    parts = _probabilities(screened)
    return bool((parts[-_IN_A_ROW:] < _LEAST * parts.max()).all())


def plausible(screened: Sequence[Posterior]) -> list[Model]:
    """Return the models that are worth a closer look, the likeliest first; all were fitted to the same features."""
    if not screened:
        return []
    parts = _probabilities(screened)
    order = np.argsort(-parts)[:_MOST]
    return [screened[i].model for i in order if parts[i] >= _LEAST * parts[order[0]]]


def mixed(
    fitted: Sequence[tuple[Posterior, FirstEstimate]], draws: int
) -> tuple[Posterior, FirstEstimate]:
    """Return the likeliest of several sets, with draws of all, each as often as it is probable; a single one as it is.

    Args:
        fitted: at least one, all to the same features; one may be without such flows.
        draws: samples of the result.

    """
    if len(fitted) == 1:
        return fitted[0]
    posteriors = [posterior for posterior, _ in fitted]
    parts = _probabilities(posteriors)
    best = int(np.argmax(parts))
    counts = np.floor(draws * parts).astype(int)
    counts[best] += draws - counts.sum()
    taken = [
        one.samples[np.arange(n) % len(one.samples)]
        for one, n in zip(posteriors, counts, strict=True)
    ]
    competing = [
        one.model.competing for one, n in zip(posteriors, counts, strict=True) for _ in range(n)
    ]
    posterior, first = fitted[best]
    return replace(posterior, samples=np.vstack(taken), competing=tuple(competing)), first


def _probabilities(posteriors: Sequence[Posterior]) -> Column:
    """Probabilities of models; sets of flows are equally likely beforehand, no other flow is more so."""
    evidence = np.array(
        [one.log_evidence + (0.0 if one.model.competing else _AGAINST) for one in posteriors]
    )
    parts = np.exp(_EVIDENCE_PART * (evidence - evidence.max()))
    return np.asarray(parts / parts.sum())


__all__ = ["COUNT", "FAMILIES", "are_too_many", "mixed", "plausible"]
