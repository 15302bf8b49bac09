"""The space of configurations, the conditions of networks, and their combinations with pages."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathcast.exceptions import ModelError
from pathcast.path import Path

#: Versions of HTTP, in the order of tables; `NAMES` has what they are called in names of templates.
PROTOCOLS = ("http/1.1", "h2", "h3")
_SHORT = {"http/1.1": "h1", "h2": "h2", "h3": "h3"}
#: Congestion controls that this space has: those of the kernel, and with HTTP/3 those of QUIC with the same names.
SCHEMES = ("cubic", "reno", "bbr")
#: Initial windows in packets: half, once, twice and four times the default of RFC 6928, nearly.
INITIAL_WINDOWS = (4, 10, 20, 40)
#: The most characters of a template's name.
MOST_NAME = 32
_NAME = re.compile(r"[a-z0-9-]{1,32}")


@dataclass(frozen=True, order=True)
class Configuration:
    """One configuration of a server.

    Attributes:
        scheme: congestion control.
        initial_window: packets.
        protocol: version of HTTP, as TLS negotiates it.
        slow_start_after_idle: whether TCP reduces its window after an idle RTO; always true with BBR and HTTP/3, which do
            not have this knob.

    """

    scheme: str = "cubic"
    initial_window: int = 10
    protocol: str = "h2"
    slow_start_after_idle: bool = True

    @property
    def name(self) -> str:
        """Its name as a template: lower-case letters, digits and `-`."""
        found = f"{self.scheme}-{self.initial_window}-{_SHORT[self.protocol]}"
        return found if self.slow_start_after_idle else f"{found}-kept"

    @property
    def is_live(self) -> bool:
        """Whether each of its knobs does something: BBR skips slow start after idle, and QUIC has none."""
        return self.slow_start_after_idle or (self.scheme != "bbr" and self.protocol != "h3")

    def knobs(self) -> dict[str, Any]:
        """Return the knobs of a template that differ from `DEFAULT`."""
        found: dict[str, Any] = {}
        if self.scheme != DEFAULT.scheme:
            found["congestion_control"] = self.scheme
        if self.initial_window != DEFAULT.initial_window:
            found["initial_window"] = self.initial_window
        if self.slow_start_after_idle != DEFAULT.slow_start_after_idle:
            found["slow_start_after_idle"] = self.slow_start_after_idle
        if self.protocol != DEFAULT.protocol:
            found["http_version"] = self.protocol
        return found

    def differs_from(self, other: Configuration) -> tuple[str, ...]:
        """Return the knobs in which two differ."""
        mine, theirs = vars(self), vars(other)
        return tuple(name for name in mine if mine[name] != theirs[name])


#: What Linux and a server of HTTP/2 do unless they are configured: CUBIC, ten packets (RFC 6928), slow start after idle
#: (tcp_slow_start_after_idle = 1), and HTTP/2, which browsers take where a server offers it.
DEFAULT = Configuration()


def space(
    protocols: Sequence[str] = PROTOCOLS,
    schemes: Sequence[str] = SCHEMES,
    initial_windows: Sequence[int] = INITIAL_WINDOWS,
    idle: bool = True,
) -> tuple[Configuration, ...]:
    """Return all configurations whose knobs do something, the default first.

    Args:
        protocols: versions of HTTP.
        schemes: congestion controls.
        initial_windows: packets.
        idle: whether TCP without slow start after idle is in it.

    Raises:
        ModelError: a protocol or scheme that the space does not have, or a window out of 1 to 1000.

    """
    for given, known in ((protocols, PROTOCOLS), (schemes, SCHEMES)):
        for name in given:
            if name not in known:
                raise ModelError(f"got {name!r}; expected {', '.join(known)}")
    for window in initial_windows:
        if not 1 <= window <= 1000:
            raise ModelError(f"got initial window {window}; expected 1 to 1000 packets")
    restarts = (True, False) if idle else (True,)
    product = itertools.product(schemes, initial_windows, protocols, restarts)
    found = [one for values in product if (one := Configuration(*values)).is_live]
    return (DEFAULT, *(one for one in dict.fromkeys(found) if one != DEFAULT))


@dataclass(frozen=True, order=True)
class Condition:
    """A condition of a network.

    Attributes:
        bandwidth_mbps: of the bottleneck, in Mbit/s.
        rtt_ms: of the empty path, in milliseconds.
        loss: probability that a packet towards the browser is lost at random.

    """

    bandwidth_mbps: float
    rtt_ms: float
    loss: float

    @property
    def name(self) -> str:
        """In file names and tables."""
        return f"{self.bandwidth_mbps:g}mbps-{self.rtt_ms:g}ms-{self.loss:g}"

    @property
    def features(self) -> tuple[float, float, float]:
        """As `FEATURES` names them."""
        return self.bandwidth_mbps, self.rtt_ms, self.loss

    def path(self) -> Path:
        """Return the path: data goes forward, through a queue of 500 kB."""
        ends = f"rate = '{self.bandwidth_mbps:g} Mbit/s'\ndelay = '{self.rtt_ms / 2:g} ms'\n"
        return Path.parse(
            f"{ends}queue = '500 kB'\nloss = {self.loss}\n[reverse]\n{ends}loss = 0.0\n"
        )


#: What a tree may ask for: Mbit/s, milliseconds, a fraction.
FEATURES = ("bandwidth_mbps", "rtt_ms", "loss")

BANDWIDTHS_MBPS = (1.0, 5.0)
#: For the smallest page alone: others take minutes.
SLOWEST_MBPS = 0.3
RTTS_MS = (50.0, 150.0, 400.0)
LOSSES = (0.0, 0.01, 0.025, 0.05)


@dataclass(frozen=True, order=True)
class Cell:
    """A page under a condition."""

    page: str
    condition: Condition

    @property
    def name(self) -> str:
        """Names its folder."""
        return f"{self.page}/{self.condition.name}"


def cells(
    sizes_bytes: Mapping[str, int],
    bandwidths_mbps: Sequence[float] = BANDWIDTHS_MBPS,
    rtts_ms: Sequence[float] = RTTS_MS,
    losses: Sequence[float] = LOSSES,
    slowest_mbps: float | None = SLOWEST_MBPS,
) -> list[Cell]:
    """Return the grid: each page under each condition, and the smallest page at the slowest rate.

    Args:
        sizes_bytes: of the pages by name, at least one.
        bandwidths_mbps: for all pages.
        rtts_ms: for all pages.
        losses: for all pages.
        slowest_mbps: for the smallest page alone; None: none.

    """
    if not sizes_bytes:
        raise ModelError("got no page; expected at least one")
    found = [
        Cell(page, Condition(*values))
        for page in sizes_bytes
        for values in itertools.product(bandwidths_mbps, rtts_ms, losses)
    ]
    if slowest_mbps is not None and slowest_mbps not in bandwidths_mbps:
        smallest = min(sizes_bytes, key=lambda name: (sizes_bytes[name], name))
        slow = itertools.product([slowest_mbps], rtts_ms, losses)
        found += [Cell(smallest, Condition(*values)) for values in slow]
    return found


def half(grid: Iterable[Cell]) -> list[Cell]:
    """Return the fixed half that is measured by brute force: of each page those cells whose names hash lowest."""
    of_page: dict[str, list[Cell]] = {}
    for cell in grid:
        of_page.setdefault(cell.page, []).append(cell)
    chosen: set[Cell] = set()
    for those in of_page.values():
        chosen |= set(sorted(those, key=_digest)[: (len(those) + 1) // 2])
    return [cell for those in of_page.values() for cell in those if cell in chosen]


def _digest(cell: Cell) -> str:
    return hashlib.sha256(cell.name.encode()).hexdigest()


def check_name(name: str) -> str:
    """Return a template's name.

    Raises:
        ModelError: it is not valid.

    """
    if not _NAME.fullmatch(name):
        raise ModelError(
            f"got template name {name!r}; expected at most {MOST_NAME} lower-case letters, digits and '-'"
        )
    return name
