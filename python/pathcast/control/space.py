"""The configuration space: what can be configured on this machine, tried on real connections."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any

from pathcast.control.programs import program
from pathcast.exceptions import PathcastError

#: The experiments take about 10 s; a busy machine takes longer.
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Place:
    """One way to set a knob.

    Attributes:
        scope: `route`, `connection`, `namespace`, `listener` or `machine`.
        how: what sets it.
        effective: whether it does something here; None: not tried.
        seen: what was seen, or why nothing was tried.

    """

    scope: str
    how: str
    effective: bool | None
    seen: str


@dataclass(frozen=True)
class Knob:
    """One knob of the configuration space.

    Attributes:
        knob: its name in templates; of one that templates lack, the kernel's.
        layer: `tcp`, `tls` or `http`.
        values: those to choose from, or their range.
        default: of a server that nobody has configured; None: it differs between machines.
        places: where it can be set.
        read_back: how the value in force is read.
        pruned: whether searches should leave it out.
        why: the reason, or a restriction.

    """

    knob: str
    layer: str
    values: tuple[str, ...]
    default: str | None
    places: tuple[Place, ...]
    read_back: str
    pruned: bool
    why: str | None


def space() -> tuple[Knob, ...]:
    """Return all knobs. As root, each of the kernel is tried in network namespaces, which takes about 10 s.

    Raises:
        PathcastError: the program pathcast-agent is not there, or fails.

    """
    words = [program("agent"), "--space"]
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            words, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
        return tuple(_knob(one) for one in json.loads(done.stdout))
    except subprocess.CalledProcessError as error:
        raise PathcastError(f"{words[0]}: {error.stderr.strip()}") from error
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError) as error:
        raise PathcastError(f"{words[0]}: {error}; expected the program of this version") from error


def _knob(text: dict[str, Any]) -> Knob:
    places = tuple(Place(**one) for one in text.pop("places"))
    return Knob(values=tuple(text.pop("values")), places=places, **text)
