"""Carries decisions about the version of HTTP into a map of HAProxy, by which it chooses servers for each client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pathcast._page_loads import PROTOCOLS
from pathcast.exceptions import ServiceError
from pathcast.files import write_beside
from pathcast.service.client import Client
from pathcast.service.haproxy import Haproxy, map_lines, read_map

#: Prefixes in the map at most; those decided longest ago leave first.
MOST_PREFIXES = 100_000


@dataclass(frozen=True)
class Policy:
    """When a prefix goes to which servers.

    Attributes:
        page: class of pages that the service decides by.
        pools: HAProxy's backends, by protocol.
        confidence: a prefix changes its backend if its decision has at least this probability of being right.
        keep_s: an entry stays for so many seconds without new samples.

    """

    page: str
    pools: Mapping[str, str]
    confidence: float = 0.6
    keep_s: float = 86_400.0

    def __post_init__(self) -> None:
        unknown = [name for name in self.pools if name not in PROTOCOLS]
        if unknown or len(self.pools) < 2:
            raise ServiceError(
                f"got pools of {', '.join(self.pools) or 'nothing'}; expected at least two of {', '.join(PROTOCOLS)}"
            )
        if len(set(self.pools.values())) < len(self.pools):
            raise ServiceError("got one backend for two protocols; expected one for each")
        if not 0 <= self.confidence < 1:
            raise ServiceError(f"got confidence {self.confidence}; expected 0 to 1")

    def backend(self, answer: Mapping[str, Any]) -> tuple[str, float] | None:
        """Return the backend that an answer of the service means, and how sure it is; None if no pool can serve it."""
        if answer["protocol"] in self.pools:
            return self.pools[answer["protocol"]], float(answer["confidence"])
        # the service offers a protocol that has no pool here: the best of the others
        times = {
            one["protocol"]: one["quantiles_ms"]["0.5"]
            for one in answer["load_times"]
            if one["protocol"] in self.pools
        }
        if not times:
            return None
        return self.pools[min(times, key=lambda name: times[name])], 0.5


@dataclass(frozen=True)
class Change:
    """A prefix whose backend changes; `before` is None if it had the default."""

    prefix: str
    before: str | None
    after: str
    confidence: float


@dataclass
class Steering:
    """The map, as it is and as it is to be.

    Attributes:
        service: which decides.
        haproxy: whose map it is.
        file: of the map, as HAProxy's configuration names it; it is written too, so that a reload has it.
        policy: when a prefix goes where.

    """

    service: Client
    haproxy: Haproxy
    file: FilePath
    policy: Policy
    _entries: dict[str, str] = field(default_factory=dict)
    _decided: dict[str, float] = field(default_factory=dict)
    _asked_s: float | None = None

    def begin(self) -> None:
        """Take over what the map's file has.

        Raises:
            ServiceError: the file is no map, or HAProxy has no such map.

        """
        self._entries = read_map(self.file)
        now_s = time.monotonic()
        self._decided = dict.fromkeys(self._entries, now_s)
        self.haproxy.shown(self.file)

    def turn(self) -> list[Change]:
        """Ask about the prefixes that have new samples, and exchange the map if it is to be another one.

        Returns:
            What changed.

        Raises:
            ServiceError: the service or HAProxy does not answer, or refuses; then the map is as it was.

        """
        begin_s = time.monotonic()
        since_s = None if self._asked_s is None else begin_s - self._asked_s + 1.0
        wanted = self._kept(begin_s)
        changes, decided = [], {}
        for seen in self.service.prefixes(since_s):
            answer = self.service.http_version(seen.prefix, self.policy.page)
            chosen = None if answer is None else self.policy.backend(answer)
            if chosen is None:
                continue
            backend, confidence = chosen
            decided[seen.prefix] = begin_s
            before = wanted.get(seen.prefix)
            if backend != before and confidence >= self.policy.confidence:
                wanted[seen.prefix] = backend
                changes.append(Change(seen.prefix, before, backend, confidence))
        self._decided |= {name: at for name, at in decided.items() if name in wanted}
        wanted = self._newest(wanted)
        # a HAProxy that started anew has what the file had
        if wanted != self.haproxy.shown(self.file):
            self.haproxy.swap(self.file, wanted)
        if wanted != self._entries or changes:
            write_beside(self.file, "".join(map_lines(wanted)))
        self._entries = wanted
        self._decided = {name: self._decided[name] for name in wanted}
        self._asked_s = begin_s
        return changes

    @property
    def entries(self) -> dict[str, str]:
        """Backends by prefix."""
        return dict(self._entries)

    def _kept(self, now_s: float) -> dict[str, str]:
        """Entries whose decision is not too old."""
        oldest = now_s - self.policy.keep_s
        return {name: pool for name, pool in self._entries.items() if self._decided[name] >= oldest}

    def _newest(self, entries: dict[str, str]) -> dict[str, str]:
        if len(entries) <= MOST_PREFIXES:
            return entries
        newest = sorted(entries, key=lambda name: self._decided[name], reverse=True)
        return {name: entries[name] for name in newest[:MOST_PREFIXES]}


def follow(
    steering: Steering,
    every_s: float,
    *,
    duration_s: float | None = None,
    changed: Callable[[list[Change]], None],
    failed: Callable[[str], None],
) -> None:
    """Take turns until Ctrl-C or the end. A turn that fails is said once, and tried again: the map stays as it is.

    Args:
        steering: the map.
        every_s: seconds between turns.
        duration_s: when to end; None: never.
        changed: called with what a turn changed.
        failed: called with why turns fail, and with an empty text when they no longer do.

    """
    end_s = None if duration_s is None else time.monotonic() + duration_s
    problem = ""
    while end_s is None or time.monotonic() < end_s:
        due_s = time.monotonic() + every_s
        try:
            changes = steering.turn()
            if problem:
                failed(problem := "")
            if changes:
                changed(changes)
        except ServiceError as error:
            if str(error) != problem:
                failed(problem := str(error))
        time.sleep(max(0.0, due_s - time.monotonic()))


def pools_of(words: Iterable[str]) -> dict[str, str]:
    """Read pools such as `h2=pool_h2`.

    Raises:
        ServiceError: one is not of this form.

    """
    pools = {}
    for word in words:
        protocol, equals, backend = word.partition("=")
        if not (equals and backend):
            raise ServiceError(f"got pool {word!r}; expected PROTOCOL=BACKEND such as h2=pool_h2")
        if protocol in pools:
            raise ServiceError(f"got two pools of {protocol}; expected one")
        pools[protocol] = backend
    for _ in map_lines({f"192.0.2.{n}/32": pool for n, pool in enumerate(pools.values())}):
        pass
    return pools
