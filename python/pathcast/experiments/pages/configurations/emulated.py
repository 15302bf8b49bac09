"""Loads in Chromium from nginx over an emulated path, with other knobs of the kernel's TCP for each load."""

from __future__ import annotations

import platform
import random
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from pathcast import __version__
from pathcast.control.learn.grid import Cell, Configuration
from pathcast.exceptions import PathcastError
from pathcast.experiments.engine.case import Attempt, Passed, fingerprint
from pathcast.experiments.engine.store import Store
from pathcast.experiments.engine.world import World
from pathcast.experiments.pages import server
from pathcast.experiments.pages.apart import in_own_network
from pathcast.experiments.pages.benchmark import wait_for_quiet, wrong
from pathcast.experiments.pages.browser import Browser, BrowserError, chromium
from pathcast.experiments.pages.configurations.simulated import written
from pathcast.experiments.pages.configurations.truth import Progress, Truth
from pathcast.experiments.pages.replica import HOST, Replica
from pathcast.experiments.pages.server import ENDPOINTS
from pathcast.files import write_beside

#: Version of what is kept.
_SCHEMA = 1
#: What nginx serves here. Its HTTP/3 is not in all versions, and Caddy's has one congestion control that no knob changes.
PROTOCOLS = ("http/1.1", "h2")
#: A load that takes longer is given up, and counts as this many seconds.
LONGEST_S = 90.0
#: How long a load waits for a quiet machine at most, in seconds.
_QUIET_S = 1.0
#: Seconds that start servers and browser, and what a load takes beside its bytes.
_START_S, _LOAD_S = 5.0, 2.0
#: The page that warms the browser up.
_WARM = "warm.html"


@dataclass(frozen=True)
class EmulatedCase:
    """Loads of one cell by several configurations over one run of the emulator.

    Attributes:
        cell: the page and its condition.
        replica: its files.
        configurations: whose loads are made, in an order drawn by the seed for each round.
        first: the seed, of the path and the order.
        loads: rounds: loads by each configuration.
        part: names these loads among those of the cell.

    """

    cell: Cell
    replica: Replica = field(repr=False)
    configurations: tuple[Configuration, ...]
    first: int
    loads: int
    part: str

    @property
    def name(self) -> str:
        """Names its folder."""
        return f"{self.cell.name}/{self.part}"

    @property
    def duration_s(self) -> float:
        """About: bytes over the rate, and ten round trips."""
        one_s = 8e-6 * self.replica.page.body_bytes / self.cell.condition.bandwidth_mbps
        one_s += 0.01 * self.cell.condition.rtt_ms + _LOAD_S
        return _START_S + self.loads * len(self.configurations) * one_s

    @property
    def kept_as(self) -> str:
        """The file of load times."""
        return "loads.json"

    def fingerprint(self, world: str) -> str:
        """Return a digest of all that decides the loads, but for the machine."""
        return fingerprint(
            [
                *(_SCHEMA, world, self.replica.page.to_toml()),
                self.cell.condition.path().to_toml(),
                *([one.name for one in self.configurations], self.first, self.loads),
            ]
        )

    def attempt(self, world: World, file: FilePath, progress: Passed | None = None) -> Attempt:
        """Load the page by each configuration in turn, so often.

        Raises:
            PathcastError: a server or Chromium cannot run, or the kernel refuses a knob.

        """
        if world is not World.EMULATOR:
            raise PathcastError(f"got backend {world}; Chromium's loads need the emulator")
        times: dict[str, list[float]] = {one.name: [] for one in self.configurations}
        report: dict[str, object] = {"valid": True, "knobs": {}}
        with tempfile.TemporaryDirectory(prefix="pathcast-pages-") as name:
            try:
                why = in_own_network(lambda: self._session(FilePath(name), times, report, progress))
            except BrowserError as error:
                # a busy machine may starve it
                why = str(error)
        if not why:
            write_beside(file, written(times))
        return Attempt(report, (why,) if why else ())

    def _session(
        self,
        work: FilePath,
        times: dict[str, list[float]],
        report: dict[str, object],
        progress: Passed | None,
    ) -> str:
        """Fill in load times and the report; return why they do not count, if so."""
        order, generator = list(self.configurations), random.Random(self.first)  # noqa: S311 - an order
        why, done, pressures, knobs = "", 0, [], {}
        path = self.cell.condition.path()
        behind = server.serving(self.replica.folder, path, "cubic", work, self.first, knobs=True)
        with behind as served, Browser({HOST: served.address}) as browser:
            browser.load(f"https://{ENDPOINTS['h2'].origin}/{_WARM}", LONGEST_S)
            for _ in range(self.loads):
                generator.shuffle(order)
                for one in order:
                    knobs[one.name] = served.set_knobs(
                        congestion_control=one.scheme,
                        initial_window=one.initial_window,
                        slow_start_after_idle=one.slow_start_after_idle,
                    )
                    pressures.append(wait_for_quiet(_QUIET_S))
                    endpoint = ENDPOINTS[one.protocol]
                    load = browser.load(f"https://{endpoint.origin}/", LONGEST_S)
                    if load.load_ms is None and not load.failed:
                        times[one.name].append(1e3 * LONGEST_S)
                    else:
                        why = why or wrong(load, endpoint, len(self.replica.page.resources))
                        times[one.name].append(load.load_ms or 1e3 * LONGEST_S)
                    done += 1
                    if progress is not None:
                        progress(self.duration_s * done / (self.loads * len(order)))
                    if why:
                        return why
            report["versions"] = {
                "pathcast": __version__,
                "kernel": platform.release(),
                "browser": browser.version,
                **server.versions(["nginx"]),
            }
        report["knobs"] = knobs
        report["pressure"] = round(max(pressures), 3)
        return why or "; ".join(served.report["invalid_because"])


def emulator(
    folder: FilePath,
    replicas: Mapping[str, Replica],
    progress: Progress | None = None,
    at_once: int | None = None,
) -> Truth:
    """Return Chromium's loads from nginx over the kernel's TCP as truth.

    Args:
        folder: where loads are kept.
        replicas: pages by name.
        progress: of a batch of loads.
        at_once: runs of the emulator together; None: one.

    Raises:
        PathcastError: there is no Chromium or nginx.

    """
    chromium()
    server.nginx()
    for replica in replicas.values():
        write_beside(replica.folder / _WARM, "<!doctype html><title>warm</title>")

    def make(
        cell: Cell, configurations: tuple[Configuration, ...], first: int, loads: int, part: str
    ) -> EmulatedCase:
        for one in configurations:
            if one.protocol not in PROTOCOLS:
                raise PathcastError(
                    f"got {one.protocol} with the emulator; expected {' or '.join(PROTOCOLS)}"
                )
        return EmulatedCase(cell, replicas[cell.page], configurations, first, loads, part)

    return Truth(Store(folder), World.EMULATOR, make, at_once, progress)
