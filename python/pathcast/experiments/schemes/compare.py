"""The ranking of schemes in one folder against that in another: Kendall's tau by path and metric."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pathcast.exceptions import PathcastError
from pathcast.experiments.schemes.summary import Estimate

#: The largest results.json that is read.
_MAX_BYTES = 1 << 28
#: Rankings that agree as well as this are good.
GOOD_TAU = 0.8


@dataclass(frozen=True)
class Agreement:
    """How far two folders rank schemes alike.

    Attributes:
        path: where.
        workload: in which.
        direction: of the data.
        metric: by which.
        tau: (concordant - discordant) / (concordant + discordant); None: no pair differs in both.
        concordant: pairs that both rank alike.
        discordant: pairs that they rank the other way round.
        pairs: of schemes that both have.
        disagree: the discordant pairs, the better one of this folder first.
        tau_implementations: likewise, over pairs of which the simulator has both implementations and not only their
            algorithms.
        told_implementations: those of them that both tell apart.

    """

    path: str
    workload: str
    direction: str
    metric: str
    tau: float | None
    concordant: int
    discordant: int
    pairs: int
    disagree: tuple[tuple[str, str], ...] = ()
    tau_implementations: float | None = None
    told_implementations: int = 0


def read(folder: FilePath) -> dict[str, Any]:
    """Read the results of a folder.

    Raises:
        PathcastError: there are none.

    """
    file = folder / "results.json"
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise PathcastError(f"{file}: is larger than {_MAX_BYTES} bytes; expected results")
        values = json.loads(file.read_bytes())
        if values["experiment"] != "schemes":
            raise KeyError("experiment")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PathcastError(
            f"{file}: cannot be used ({type(error).__name__}); expected the folder of `pathcast benchmark schemes`"
        ) from None
    return dict(values)


def agreements(
    mine: Iterable[Mapping[str, Any]],
    other: Iterable[Mapping[str, Any]],
    implementations: Collection[str] = (),
) -> list[Agreement]:
    """Compare the blocks of two results, as `summary.to_dict` gives them.

    Args:
        mine: of this folder.
        other: of the other one.
        implementations: schemes whose implementation the simulator has.

    """
    places = {_place(block): block for block in other}
    found = []
    for block in mine:
        beside = places.get(_place(block))
        if beside is None:
            continue
        here, there = _estimates(block), _estimates(beside)
        for metric in dict.fromkeys(metric for metric, _ in here):
            schemes = [name for of, name in here if of == metric and (of, name) in there]
            found.append(
                _agreement(
                    _place(block),
                    metric,
                    {name: here[metric, name] for name in schemes},
                    {name: there[metric, name] for name in schemes},
                    implementations,
                )
            )
    return found


def _place(block: Mapping[str, Any]) -> tuple[str, str, str]:
    return block["path"], block["workload"], block["direction"]


def _estimates(block: Mapping[str, Any]) -> dict[tuple[str, str], Estimate]:
    return {
        (metric, row["scheme"]): Estimate(**values)
        for row in block["schemes"]
        for metric, values in row["metrics"].items()
    }


def _agreement(
    place: tuple[str, str, str],
    metric: str,
    here: Mapping[str, Estimate],
    there: Mapping[str, Estimate],
    implementations: Collection[str],
) -> Agreement:
    concordant, pairs, disagree = 0, 0, []
    same: list[int] = []
    for one, other in itertools.combinations(here, 2):
        pairs += 1
        if not (here[one].is_apart_from(here[other]) and there[one].is_apart_from(there[other])):
            continue
        mine = here[one].mean > here[other].mean
        alike = mine == (there[one].mean > there[other].mean)
        if alike:
            concordant += 1
        else:
            disagree.append((one, other) if mine else (other, one))
        if one in implementations and other in implementations:
            same.append(1 if alike else -1)
    told = concordant + len(disagree)
    return Agreement(
        *place,
        metric,
        (concordant - len(disagree)) / told if told else None,
        concordant,
        len(disagree),
        pairs,
        tuple(disagree),
        sum(same) / len(same) if same else None,
        len(same),
    )


def lines(found: Sequence[Agreement]) -> list[str]:
    """The comparison in words."""
    known = [one.tau for one in found if one.tau is not None]
    same = [one.tau_implementations for one in found if one.tau_implementations is not None]
    said = [
        f"Kendall's tau is at least {GOOD_TAU:g} in {_good(known)} places with pairs that both tell apart; "
        f"{len(found) - len(known)} places have none"
    ]
    if same:
        said.append(
            f"of schemes whose implementation the simulator has, and not only the algorithm, in {_good(same)}"
        )
    return said


def _good(taus: Sequence[float]) -> str:
    return f"{sum(tau >= GOOD_TAU for tau in taus)} of {len(taus)}"
