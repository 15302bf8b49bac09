"""The paths at hand: those that come with Pathcast, and files of your own, of calibrations and of other tools.

`catalog` lists them with where they come from, under which license, and their main numbers. `sample` draws from them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from pathcast import folders, scenario
from pathcast.exceptions import PathcastError
from pathcast.foreign import utf8
from pathcast.path import Path, built_in
from pathcast.scenario import Scenario

#: Where the first lines of a license file stand for the whole.
_LICENSES = {"mit": "MIT", "apache": "Apache-2.0", "bsd": "BSD", "gnu general public": "GPL"}


@dataclass(frozen=True)
class Entry:
    """One path at hand.

    Attributes:
        name: how to call it.
        source: `built-in`, `path`, `calibration`, `ibox`, `mahimahi` (rates alone) or `throughput` (rates and delay).
        about: the file's own words on where it comes from.
        license: as far as the folder says; `Apache-2.0 OR MIT` for what comes with Pathcast; empty: not known.
        file: that describes it.
        rate_bps: of the first link forward, its mean where it changes; None: no limit.
        rtt_s: propagation delay of both directions; of `mahimahi` assumed.
        queue_bytes: of the first link forward; None: not limited in bytes.
        loss: random losses forward.
        competing: flows of a scenario.

    """

    name: str
    source: str
    about: str
    license: str
    file: str
    rate_bps: float | None
    rtt_s: float
    queue_bytes: int | None
    loss: float
    competing: int
    _load: Callable[[], Path | Scenario] = field(repr=False, compare=False)

    def load(self) -> Path | Scenario:
        """Read it.

        Raises:
            PathFileError: its file is no longer what it was.

        """
        return self._load()

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


@dataclass(frozen=True)
class Catalog:
    """Paths at hand.

    Attributes:
        entries: in the order of sources and names.
        refused: files that look like paths and cannot be read, with the reason.

    """

    entries: tuple[Entry, ...]
    refused: tuple[str, ...]

    def where(
        self,
        *,
        sources: Iterable[str] = (),
        words: str = "",
        rate_bps: tuple[float, float] = (0.0, math.inf),
        rtt_s: tuple[float, float] = (0.0, math.inf),
    ) -> Catalog:
        """Return those that match.

        Args:
            sources: only these; none: all.
            words: part of the name or of `about`, whatever the case.
            rate_bps: lowest and highest rate; paths without a limit have an infinite one.
            rtt_s: lowest and highest round-trip time.

        """
        chosen = set(sources)

        def matches(one: Entry) -> bool:
            rate = math.inf if one.rate_bps is None else one.rate_bps
            return (
                (not chosen or one.source in chosen)
                and words.lower() in f"{one.name} {one.about}".lower()
                and rate_bps[0] <= rate <= rate_bps[1]
                and rtt_s[0] <= one.rtt_s <= rtt_s[1]
            )

        return Catalog(tuple(filter(matches, self.entries)), self.refused)

    def sample(self, count: int, seed: int = 1) -> Catalog:
        """Draw some at random, each at most once.

        Raises:
            PathcastError: there are fewer.

        """
        if count > len(self.entries):
            raise PathcastError(f"got {len(self.entries)} paths; expected at least {count}")
        drawn = np.random.default_rng(seed).choice(len(self.entries), count, replace=False)
        return Catalog(tuple(self.entries[i] for i in sorted(drawn)), self.refused)

    def named(self, name: str) -> Entry | None:
        """Return the one of this name."""
        return next((one for one in self.entries if one.name == name), None)


def catalog(within: Sequence[str | os.PathLike[str]] | None = None) -> Catalog:
    """List the paths that come with Pathcast and those of some folders.

    Read are path and scenario files, calibrations, profiles of iBox, delivery traces of mahimahi (`.up`, `.down`,
    `.trace`, packed by gzip or not) and JSON series of `duration_ms`, `bandwidth_kbps` and `latency_ms`. Other files
    are passed over.

    Args:
        within: folders that are looked through with all that is in them; by default those of the variable PATHCAST_PATHS.

    Raises:
        PathcastError: a folder is not there.

    Example:
        >>> fast = catalog([]).where(rate_bps=(50e6, 200e6), words="pantheon")
        >>> [one.name for one in fast.entries][0]
        'pantheon-calibrated-4-india-to-aws-india'

    """
    entries = list(_built_in())
    refused: list[str] = []
    for folder in folders.default_folders() if within is None else map(FilePath, within):
        for file in folders.files(folder):
            if (found := folders.reader(file)) is None:
                continue
            source, describe = found
            name, license = folders.name_of(folder, file), _license(file.parent, folder)
            load = partial(_described, describe, utf8(file))
            try:
                entries.append(_summary(name, source, license, file, load))
            except PathcastError as error:
                refused.append(str(error))
    return Catalog(tuple(entries), tuple(refused))


def _built_in() -> Iterator[Entry]:
    for name, file in built_in().items():
        yield _summary(name, "built-in", "Apache-2.0 OR MIT", file, partial(scenario.load, file))


def _described(describe: folders.Describe, file: str) -> Path | Scenario:
    return scenario.parse(describe(), file)


def _summary(
    name: str, source: str, license: str, file: FilePath, load: Callable[[], Path | Scenario]
) -> Entry:
    """The main numbers of a path; of a scenario, those of the link that its first flow crosses first."""
    found = load()
    competing = 0
    if isinstance(found, Scenario):
        link, competing = found.first_link(), len(found.schemes)
    else:
        link = found
    return Entry(
        name,
        source,
        found.name,
        license,
        utf8(file),
        link.rate_bps,
        link.base_rtt_s,
        link.queue_bytes,
        link.loss,
        competing,
        load,
    )


@cache
def _license(folder: FilePath, top: FilePath) -> str:
    """What the nearest license file says, up to the folder that was named."""
    for place in (folder, *folder.parents):
        for file in (
            place / "LICENSE",
            place / "LICENSE.md",
            place / "LICENSE.txt",
            place / "COPYING",
        ):
            if file.is_file():
                begin = folders.beginning(file)[:400].decode(errors="replace").lower()
                known = [name for word, name in _LICENSES.items() if word in begin]
                return known[0] if known else f"see {file.name}"
        if place == top:
            break
    return ""


__all__ = ["Catalog", "Entry", "catalog"]
