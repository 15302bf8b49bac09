"""Which flows a workload has."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

#: The scheme under test, among the flows of a workload.
UNDER_TEST = ""
#: A page-like workload: a document, then resources over five connections when it is there.
PAGE_BYTES = (30_000, 20_000, 40_000, 80_000, 120_000, 200_000)
#: When its resources begin, in seconds: a browser has read the document by then.
PAGE_SECOND_WAVE_S = 0.3
#: Sizes in the units of path files.
_UNITS = {"B": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}
#: The largest transfer.
_MOST_BYTES = 1 << 40


@dataclass(frozen=True)
class Flow:
    """One flow of a run.

    Attributes:
        scheme: its name; empty: the scheme under test.
        start_s: when it begins, in seconds.
        stop_s: when it ends; None: with the run.
        size_bytes: how much it sends; None: as much as it can until it ends.

    """

    scheme: str = UNDER_TEST
    start_s: float = 0.0
    stop_s: float | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class Workload:
    """What the flows of a run do.

    Attributes:
        name: for people and folders.
        kind: `single`, `staggered`, `mixed`, `transfer` or `page`.
        flows: which flows there are.

    """

    name: str
    kind: str
    flows: tuple[Flow, ...]

    @property
    def is_finite(self) -> bool:
        """Whether the flows under test end when all of theirs is sent."""
        return all(flow.size_bytes is not None for flow in self.flows if flow.scheme == UNDER_TEST)


def size_bytes(text: object) -> int | None:
    """A size such as `1 MB` in bytes; None if it is not one."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(B|kB|MB|GB)", text) if isinstance(text, str) else None
    if found is None:
        return None
    value = float(found[1]) * _UNITS[found[2]]
    return int(value) if 1 <= value <= _MOST_BYTES else None


def seconds(text: object) -> float | None:
    """A time such as `30 s` or `250 ms` in seconds; None if it is not one."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|s|min)", text) if isinstance(text, str) else None
    if found is None:
        return None
    value = float(found[1]) * {"ms": 1e-3, "s": 1.0, "min": 60.0}[found[2]]
    return value if math.isfinite(value) else None


def single(name: str) -> Workload:
    """One flow."""
    return Workload(name, "single", (Flow(),))


def staggered(name: str, flows: int, every_s: float, duration_s: float) -> Workload:
    """Flows that begin one after another and end in the same order, as Pantheon has them.

    Args:
        name: of the workload.
        flows: how many.
        every_s: between two of them.
        duration_s: of the run.

    """
    tail_s = every_s * (flows - 1)
    made = [
        Flow(
            start_s=number * every_s,
            stop_s=duration_s - tail_s + number * every_s if number < flows - 1 else None,
        )
        for number in range(flows)
    ]
    return Workload(name, "staggered", tuple(made))


def mixed(name: str, beside: tuple[str, ...]) -> Workload:
    """One flow of the scheme under test beside flows of others."""
    return Workload(name, "mixed", (Flow(), *(Flow(scheme) for scheme in beside)))


def transfer(name: str, size: int, flows: int = 1) -> Workload:
    """Flows that each send so many bytes."""
    return Workload(name, "transfer", (Flow(size_bytes=size),) * flows)


def page(name: str, sizes: tuple[int, ...] = PAGE_BYTES) -> Workload:
    """A document, then the other sizes in parallel."""
    first, *others = sizes
    rest = (Flow(start_s=PAGE_SECOND_WAVE_S, size_bytes=size) for size in others)
    return Workload(name, "page", (Flow(size_bytes=first), *rest))
