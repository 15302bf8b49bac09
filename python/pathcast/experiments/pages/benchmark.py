"""Loads pages in Chromium from real servers over emulated paths, keeps what was measured, and sets forecasts beside it."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import platform
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from pathcast import __version__
from pathcast._page_loads import PROTOCOLS, PageForecast, predict_page
from pathcast.exceptions import PathcastError
from pathcast.experiments.engine.store import make_folder
from pathcast.experiments.pages import caddy, server
from pathcast.experiments.pages.browser import Browser, BrowserError, Load, chromium
from pathcast.experiments.pages.replica import HOST, Replica, write_replica
from pathcast.experiments.pages.server import ENDPOINTS, Endpoint
from pathcast.files import write_beside
from pathcast.page import BROWSERS, BrowserTime, Page
from pathcast.path import Path

#: Version of kept files.
SCHEMA = 1
#: What Chromium takes itself.
CHROMIUM = BROWSERS["chromium"]
#: What is measured unless more is asked for.
DEFAULT = ("http/1.1", "h2")
#: Loads by each protocol over one run of the emulator; before them one that warms up and does not count.
SESSION_LOADS = 5
#: Runs of the emulator in a row that may be invalid.
ATTEMPTS = 4
#: A load that takes longer is given up, in seconds.
LONGEST_S = 90.0
#: Other programs may keep processors busy for this part of the time before a load.
_PRESSURE = 0.2
_PRESSURE_S = 0.3
_MOST_PRESSURE_S = 20.0
_COPIES = 2000
#: Loss from which on the fixed rule takes HTTP/1.1; the one that does best is reported.
THRESHOLDS = (1e-3, 3e-3, 1e-2, 3e-2)


@dataclass(frozen=True)
class Cell:
    """A page over a path.

    Attributes:
        page: its name, which names its file.
        scheme: congestion control of the server.
        rate: of the link, such as `20 Mbit/s`.
        rtt_s: round-trip time of the empty path in seconds.
        loss: probability that a packet to the browser is lost.

    """

    page: str
    scheme: str
    rate: str
    rtt_s: float
    loss: float

    @property
    def name(self) -> str:
        """Names its file."""
        rate = self.rate.replace(" ", "").replace("/", "p")
        return f"{self.page}-{self.scheme}-{rate}-{1e3 * self.rtt_s:g}ms-{self.loss:g}"

    def path(self) -> Path:
        """Return the path: data goes forward, through a queue of 500 kB."""
        ends = f"rate = '{self.rate}'\ndelay = '{500 * self.rtt_s:g} ms'\n"
        return Path.parse(
            f"{ends}queue = '500 kB'\nloss = {self.loss}\n[reverse]\n{ends}loss = 0.0\n"
        )


def cells(
    pages: Iterable[str],
    schemes: Sequence[str],
    rates: Sequence[str],
    rtts_s: Sequence[float],
    losses: Sequence[float],
) -> list[Cell]:
    """Return all combinations, page by page."""
    return [Cell(*one) for one in itertools.product(pages, schemes, rates, rtts_s, losses)]


def check(protocols: Sequence[str], schemes: Sequence[str]) -> None:
    """Check what is to be measured before anything is.

    Raises:
        PathcastError: a protocol is not known, none of them has a forecast, HTTP/3 has no cell, or Caddy is not there.

    """
    for one in protocols:
        if one not in ENDPOINTS:
            raise PathcastError(f"got protocol {one!r}; expected {' or '.join(ENDPOINTS)}")
    if "h3" in protocols and not set(schemes) & set(caddy.SCHEMES):
        raise PathcastError(
            f"got protocol h3 with scheme {' and '.join(schemes)}; expected {' or '.join(caddy.SCHEMES)}, to which the "
            "one congestion control of Caddy's QUIC is nearest"
        )
    for scheme in schemes:
        if not set(measurable(protocols, scheme)) & set(PROTOCOLS):
            raise PathcastError(
                f"got no protocol that has a forecast with {scheme}; expected one among "
                f"{', '.join(measurable(PROTOCOLS, scheme))}"
            )
    if any(ENDPOINTS[one].server == "caddy" for one in protocols):
        caddy.caddy()


def measurable(protocols: Iterable[str], scheme: str) -> tuple[str, ...]:
    """Those that a server of this scheme can speak, in the order of `ENDPOINTS`."""
    asked = set(protocols) if scheme in caddy.SCHEMES else set(protocols) - {"h3"}
    return tuple(name for name in ENDPOINTS if name in asked)


def _digest(page: Page) -> str:
    return hashlib.sha256(page.to_toml().encode()).hexdigest()


def replica_of(page: Page, folder: FilePath) -> Replica:
    """Write the replica of a page into a folder of its own below `folder`, and its graph beside it."""
    name = _digest(page)[:12]
    place = make_folder(folder / "replicas" / name)
    replica = write_replica(page, place)
    write_beside(folder / "replicas" / f"{name}.toml", replica.page.to_toml())
    return replica


def kept(cell: Cell, replica: Replica, folder: FilePath) -> dict[str, Any]:
    """What was measured of a cell; an empty list of loads if that is nothing, or of another page."""
    fresh: dict[str, Any] = {
        "schema": SCHEMA,
        "cell": asdict(cell),
        "page_sha256": _digest(replica.page),
        "loads": [],
        "invalid": [],
    }
    file = folder / "loads" / f"{cell.name}.json"
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return fresh
    keys = ("schema", "cell", "page_sha256")
    return found if all(found.get(key) == fresh[key] for key in keys) else fresh


def measure(
    cell: Cell,
    replica: Replica,
    folder: FilePath,
    loads: int,
    progress: Callable[[int], None] | None = None,
    protocols: Sequence[str] = DEFAULT,
) -> dict[str, Any]:
    """Load a page by all protocols in turn until so many loads by each count; what is there already is kept.

    A protocol that is asked for later is loaded in turn with all others again: a machine changes in the meantime.

    Args:
        cell: the page and its path.
        replica: its files.
        folder: of the benchmark.
        loads: by each protocol.
        progress: called with the loads by each protocol that count so far.
        protocols: names among `ENDPOINTS`.

    Raises:
        PathcastError: a server or Chromium cannot run, or too many runs of the emulator in a row were invalid.

    """
    found = kept(cell, replica, folder)
    make_folder(folder / "loads")
    chromium()
    failures = 0
    while (have := _count(found, protocols)) < loads:
        if progress:
            progress(have)
        session = min(SESSION_LOADS, loads - have)
        seed = 1 + have + 1000 * len(found["invalid"])
        try:
            rows, why, versions = _session(cell, replica, session, seed, protocols)
        except BrowserError as error:
            # a busy machine may starve it
            rows, why, versions = [], str(error), {}
        if why:
            failures += 1
            found["invalid"].append(why)
        else:
            failures = 0
            found["loads"] += rows
            # of servers that were there earlier too
            found["versions"] = found.get("versions", {}) | versions
        write_beside(folder / "loads" / f"{cell.name}.json", json.dumps(found, indent=1) + "\n")
        if failures == ATTEMPTS:
            raise PathcastError(f"{cell.name}: {ATTEMPTS} runs in a row were invalid: {why}")
    return found


def _count(found: Mapping[str, Any], protocols: Sequence[str]) -> int:
    """Loads by each protocol that count."""
    return min(len(times) for times in measured_ms(found, protocols).values())


def measured_ms(found: Mapping[str, Any], protocols: Sequence[str]) -> dict[str, list[float]]:
    """The times to the load event that were kept, by protocol."""
    # nginx was the only server once
    kept = [(one["protocol"], one.get("server", "nginx"), one["load_ms"]) for one in found["loads"]]
    wanted = [(name, ENDPOINTS[name].protocol, ENDPOINTS[name].server) for name in protocols]
    return {name: [time for *by, time in kept if by == of] for name, *of in wanted}


def _session(
    cell: Cell, replica: Replica, loads: int, seed: int, protocols: Sequence[str]
) -> tuple[list[dict[str, Any]], str, dict[str, str]]:
    """Loads over one run of the emulator; why they do not count, if so; and what they were made with."""
    rows: list[dict[str, Any]] = []
    why = ""
    endpoints = [ENDPOINTS[name] for name in protocols]
    servers = sorted({one.server for one in endpoints})
    http3 = [one.origin for one in endpoints if one.protocol == "h3"]
    with tempfile.TemporaryDirectory(prefix="pathcast-pages-") as name:
        work = FilePath(name)
        with contextlib.ExitStack() as stack:
            behind = server.serving(replica.folder, cell.path(), cell.scheme, work, seed, servers)
            served = stack.enter_context(behind)
            browser = stack.enter_context(Browser({HOST: served.address}, http3, [served.key]))
            for number in range(loads + 1):
                for endpoint in endpoints:
                    pressure = wait_for_quiet()
                    load = browser.load(f"https://{endpoint.origin}/", LONGEST_S)
                    why = why or wrong(load, endpoint, len(replica.page.resources))
                    if number > 0:
                        rows.append(_row(endpoint, load, pressure))
            versions = {
                "pathcast": __version__,
                "kernel": platform.release(),
                "browser": browser.version,
                **server.versions(servers),
            }
        why = why or "; ".join(served.report["invalid_because"])
    return rows, why, versions


def _row(endpoint: Endpoint, load: Load, pressure: float) -> dict[str, Any]:
    return {
        "protocol": endpoint.protocol,
        "server": endpoint.server,
        "load_ms": load.load_ms,
        "first_byte_ms": load.first_byte_ms,
        "connections": load.connections,
        "pressure": round(pressure, 3),
    }


def wrong(load: Load, endpoint: Endpoint, requests: int) -> str:
    """Why a load does not count; empty if it does."""
    name = endpoint.name
    if load.failed:
        return f"{name}: {len(load.failed)} requests failed, the first of {load.failed[0]}"
    if load.load_ms is None:
        return f"{name}: no load event within {LONGEST_S:g} s"
    if load.protocols != {endpoint.protocol: requests}:
        return f"{name}: expected {requests} requests by {endpoint.protocol}, got {load.protocols}"
    return ""


def wait_for_quiet(most_s: float = _MOST_PRESSURE_S) -> float:
    """Wait until other programs leave processors free; return the part of the time for which tasks waited for one.

    A busy machine makes a browser slow: see PSI (`/proc/pressure/cpu`). After `most_s` seconds it goes on all the same.
    """
    end = time.monotonic() + most_s
    while True:
        before = _stalled_s()
        if before is None:
            return math.nan
        time.sleep(_PRESSURE_S)
        pressure = ((_stalled_s() or before) - before) / _PRESSURE_S
        if pressure <= _PRESSURE or time.monotonic() > end:
            return pressure


def _stalled_s() -> float | None:
    """For how long, since the machine started, a task has waited for a processor."""
    try:
        some = FilePath("/proc/pressure/cpu").read_text().splitlines()[0]
    except OSError:
        return None
    return int(some.split("total=")[1]) / 1e6


@dataclass(frozen=True)
class Compared:
    """Measured loads of a cell beside their forecast.

    Attributes:
        cell: which.
        measured_ms: times to the load event by each protocol.
        forecast: of the same graph.
        versions: what the loads were made with.

    """

    cell: Cell
    measured_ms: dict[str, list[float]]
    forecast: PageForecast
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def choices(self) -> tuple[str, ...]:
        """The protocols that are measured and forecast: one of them is the choice."""
        return tuple(name for name in self.measured_ms if name in self.forecast.loads)

    def median(self, protocol: str) -> float:
        """The median of the measured loads, in milliseconds."""
        return float(np.median(self.measured_ms[protocol]))

    @property
    def best(self) -> str:
        """The choice with the least measured median."""
        return min(self.choices, key=self.median)

    @property
    def significant(self) -> bool:
        """Whether the 95 % intervals of the ratios of the best measured median to those of other choices leave 1 out."""
        # in the order of the choices, as `ratio_interval` draws
        pairs = [pair for pair in itertools.combinations(self.choices, 2) if self.best in pair]
        intervals = [self.ratio_interval(*pair) for pair in pairs]
        return bool(intervals) and all(low > 1 or high < 1 for low, high in intervals)

    def ratio_interval(self, over: str = "http/1.1", under: str = "h2") -> tuple[float, float]:
        """The 95 % interval of one measured median over another one, by the bootstrap."""
        generator = np.random.default_rng(1)
        medians = []
        for name in (over, under):
            times = np.asarray(self.measured_ms[name])
            draws = generator.integers(0, len(times), (_COPIES, len(times)))
            medians.append(np.median(times[draws], axis=1))
        low, high = np.quantile(medians[0] / medians[1], [0.025, 0.975])
        return float(low), float(high)

    def ratio(self, over: str, under: str) -> float | None:
        """One measured median over another one; None if one was not measured."""
        if over not in self.measured_ms or under not in self.measured_ms:
            return None
        return self.median(over) / self.median(under)

    def error(self, protocol: str) -> float:
        """The forecast median over the measured one, less 1."""
        return self.forecast.loads[protocol].plt_ms / self.median(protocol) - 1

    def held(self, protocol: str) -> bool:
        """Whether the measured median lies in the 10 to 90 % range of the forecast."""
        one = self.forecast.loads[protocol]
        return one.quantile(0.1) <= self.median(protocol) <= one.quantile(0.9)

    def lost(self, protocol: str) -> float:
        """How much longer a choice takes than the measured best, as a part of the best."""
        return self.median(protocol) / self.median(self.best) - 1


def compare(
    cell: Cell,
    replica: Replica,
    found: Mapping[str, Any],
    seed: int = 1,
    protocols: Sequence[str] = DEFAULT,
    browser: BrowserTime = CHROMIUM,
) -> Compared:
    """Forecast a cell by those of the protocols that have a forecast, and set what was measured beside it.

    Args:
        cell: which.
        replica: its page.
        found: what was measured.
        seed: of the forecast.
        protocols: names among `ENDPOINTS`.
        browser: what the browser takes itself.

    """
    forecast = predict_page(
        replica.page,
        cell.path(),
        scheme=cell.scheme,
        protocols=[name for name in protocols if name in PROTOCOLS],
        initial_window={"h3": caddy.INITIAL_WINDOW},
        browser=browser,
        seed=seed,
    )
    return Compared(cell, measured_ms(found, protocols), forecast, found.get("versions", {}))


def _from_loss(threshold: float, one: Compared) -> str:
    return "http/1.1" if one.cell.loss >= threshold else "h2"


def _rules(choices: Collection[str]) -> dict[str, Callable[[Compared], str]]:
    """Rules by which a protocol can be chosen where there are these choices."""
    rules: dict[str, Callable[[Compared], str]] = {"forecast": lambda one: one.forecast.choice}
    for name in choices:
        rules[f"always {name}"] = partial(_always, name)
    if set(choices) >= set(DEFAULT):
        for threshold in THRESHOLDS:
            rules[f"http/1.1 from a loss of {threshold:g}"] = partial(_from_loss, threshold)
    return rules


def _always(name: str, _: Compared) -> str:
    return name


def summary(compared: Sequence[Compared]) -> dict[str, Any]:
    """What the cells say together: errors, choices, and what fixed rules lose."""
    errors: dict[str, list[float]] = {}
    for one in compared:
        for name in one.choices:
            errors.setdefault(name, []).append(abs(one.error(name)))
    clear = [one for one in compared if one.significant]
    rules = _rules([name for name in errors if len(errors[name]) == len(compared)])
    return {
        "cells": len(compared),
        "significant": len(clear),
        "right": sum(one.forecast.choice == one.best for one in clear),
        "median_error": float(np.median([value for those in errors.values() for value in those])),
        "median_error_by_protocol": {
            name: float(np.median(those)) for name, those in errors.items()
        },
        "held": float(np.mean([one.held(name) for one in compared for name in one.choices])),
        "summed_loss": {
            name: float(sum(one.lost(rule(one)) for one in compared))
            for name, rule in rules.items()
        },
        "right_of_significant": {
            name: sum(rule(one) == one.best for one in clear) for name, rule in rules.items()
        },
        "ratios": _ratios(compared),
    }


#: What else is compared: the servers, and the two protocols of one server.
_PAIRS = (("h2-caddy", "h2"), ("h3", "h2-caddy"))


def _ratios(compared: Sequence[Compared]) -> list[dict[str, Any]]:
    """Medians over cells of the ratios of measured medians."""
    found = []
    for over, under in _PAIRS:
        ratios = [value for one in compared if (value := one.ratio(over, under)) is not None]
        if ratios:
            median = float(np.median(ratios))
            found.append({"over": over, "under": under, "cells": len(ratios), "median": median})
    return found


def rows(compared: Sequence[Compared]) -> list[dict[str, Any]]:
    """A row for each cell, for tables."""
    found = []
    for one in compared:
        row: dict[str, Any] = asdict(one.cell)
        for name in one.measured_ms:
            row[name] = _measured(one, name)
        if set(DEFAULT) <= set(one.measured_ms):
            row["ratio_interval"] = list(one.ratio_interval())
        row |= {
            "significant": one.significant,
            "best": one.best,
            "choice": one.forecast.choice,
            "confidence": one.forecast.confidence,
        }
        found.append(row)
    return found


def _measured(one: Compared, name: str) -> dict[str, Any]:
    """What was measured of a protocol, and its forecast if there is one."""
    found: dict[str, Any] = {
        "server": ENDPOINTS[name].server,
        "measured_ms": one.median(name),
        "loads": len(one.measured_ms[name]),
        # over the medians of the others
        "ratio_intervals": {
            other: list(one.ratio_interval(name, other))
            for other in one.measured_ms
            if other != name
        },
    }
    if name in one.choices:
        forecast = one.forecast.loads[name]
        found |= {
            "forecast_ms": forecast.plt_ms,
            "p10": forecast.quantile(0.1),
            "p90": forecast.quantile(0.9),
            "error": one.error(name),
            "held": one.held(name),
        }
    return found
