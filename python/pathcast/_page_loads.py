"""How long pages take over a path, by each version of HTTP."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from pathcast import _internal
from pathcast._what_if import Alternative
from pathcast.calibration import Calibration
from pathcast.calibration.result import paths_of
from pathcast.exceptions import ModelError, translated
from pathcast.page import BrowserTime, Page
from pathcast.path import Path
from pathcast.scenario import Scenario
from pathcast.trace import Column

#: The versions of HTTP, as TLS negotiates them.
PROTOCOLS = ("http/1.1", "h2", "h3")
#: The schemes of QUIC that carry HTTP/3, by those of TCP that carry the others.
QUIC_SCHEMES = {"cubic": "quic-cubic", "reno": "quic-reno", "bbr": "quic-bbr3", "bbr3": "quic-bbr3"}
#: Simulated loads of a page by each protocol.
LOADS = 200
#: What loads pages: packets, or formulas.
ENGINES = ("simulator", "model")
_PACKET_BYTES = 1500
#: Virtual seconds after which a load that has not ended counts as one that does not.
LONGEST_S = 300.0
#: Copies of the loads by which the confidence is estimated.
_COPIES = 2000
_BOOTSTRAP_SEED = 20
#: By how much a time in a browser differs from its forecast, as a standard deviation of the logarithm: that of pages left
#: out, without losses, if the forecast has the browser's own time and if it has not (docs/results/page-loads.md).
_DIFFERS = {"http/1.1": 0.05, "h2": 0.06, "h3": 0.11}
_DIFFERS_WITHOUT = {"http/1.1": 0.06, "h2": 0.09, "h3": 0.16}
#: Standard deviation of that of two protocols' ratio: what a page's browser takes by both is not in it.
_AGREEMENT = {"http/1.1": 0.05, "h2": 0.05, "h3": 0.15}
#: A normal distribution in equal parts.
_PARTS = np.array([statistics.NormalDist().inv_cdf((number + 0.5) / 40) for number in range(40)])


@dataclass(frozen=True)
class Loads:
    """Loads of a page by one protocol, over one path or over paths drawn from a calibration.

    Attributes:
        protocol: `http/1.1`, `h2` or `h3`.
        load_ms: from the beginning to the load event; infinite if it did not come within 300 s; shape of n loads.
        connections: opened in each load; shape n.
        wanted_ms: when the browser wanted each resource, since the beginning, NaN if it never did; shape n x resources.
        asked_ms: when the request left; the same shape.
        first_byte_ms: when the first byte of the response came; the same shape.
        finished_ms: when the last one came; the same shape.
        differs: standard deviation of the logarithm of a browser's time over the forecast one.

    """

    protocol: str
    load_ms: Column
    connections: Column
    wanted_ms: Column
    asked_ms: Column
    first_byte_ms: Column
    finished_ms: Column
    differs: float = 0.0

    @property
    def plt_ms(self) -> float:
        """The median time to the load event."""
        return float(np.median(self.load_ms))

    def quantile(self, level: float) -> float:
        """A quantile of a browser's time to the load event, in milliseconds; infinite if so many loads did not end.

        The distribution is that of the loads, wider by how browsers differ from forecasts.
        """
        times = self.load_ms
        if self.differs > 0:
            times = np.multiply.outer(np.exp(self.differs * _PARTS), times)
        # not interpolated: a load that does not end is infinite
        return float(np.quantile(times, level, method="higher"))

    @property
    def typical(self) -> int:
        """The number of the load whose time is nearest to the median."""
        return int(np.argsort(self.load_ms, kind="stable")[(len(self.load_ms) - 1) // 2])

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it; None where loads did not end."""
        found = {"plt_ms": self.plt_ms, "p10": self.quantile(0.1), "p90": self.quantile(0.9)}
        found["first_byte_ms"] = float(np.median(self.first_byte_ms[:, 0]))
        found["connections"] = float(np.median(self.connections))
        return {name: value if math.isfinite(value) else None for name, value in found.items()}


@dataclass(frozen=True)
class PageForecast:
    """How long a page takes by each protocol, and which one is the choice.

    Attributes:
        page: what was loaded.
        scheme: congestion control of the servers.
        loads: by protocol, in the order asked.
        choice: the protocol with the least median time to the load event.
        confidence: probability that its median is the least, over chance, what is not known of the path, and how the
            simulator differs from a browser.
        engine: `simulator` or `model`.

    """

    page: Page
    scheme: str
    loads: dict[str, Loads]
    choice: str
    confidence: float
    engine: str

    @property
    def gain(self) -> float:
        """How much longer the second best takes than the choice, as a part of the choice's median; 0 without another."""
        others = [one.plt_ms for name, one in self.loads.items() if name != self.choice]
        best = self.loads[self.choice].plt_ms
        if not others or not math.isfinite(best):
            return 0.0
        return min(others) / best - 1

    def verdict(self) -> str:
        """Say in one sentence which protocol loads the page sooner, by how much, and how sure that is."""
        best = self.loads[self.choice]
        if not math.isfinite(best.plt_ms):
            return f"Most loads do not end within {LONGEST_S:g} s by any protocol."
        took = f"half of the loads by {self.choice} end within {best.plt_ms:.0f} ms"
        if len(self.loads) == 1:
            return f"{took[0].upper()}{took[1:]}."
        if not math.isfinite(self.gain):
            return f"{self.choice} is the choice: {took}; most other loads do not end."
        times = {name: one.plt_ms for name, one in self.loads.items() if name != self.choice}
        second = min(times, key=lambda name: times[name])
        other = f"by {second} it takes {self.gain:.0%} longer"
        sure = "over 99 %" if self.confidence > 0.99 else f"{100 * self.confidence:.0f} %"
        if self.confidence < 0.8:
            return f"Level: {took}, and {other}, which is not sure ({sure})."
        return f"{self.choice} loads it sooner: {took}; {other} ({sure} sure)."

    def critical_path(self, protocol: str) -> list[dict[str, Any]]:
        """Return the resources and tasks of the typical load that the load event waited for, the first one first.

        Each is the last of what its successor waited for. Returns:
            `id`, `wanted_ms`, `asked_ms`, `first_byte_ms` and `finished_ms` of each resource.

        """
        found = self.loads[protocol]
        return critical_path(self.page, found, found.typical)

    def to_har(self) -> dict[str, Any]:
        """Return the typical load by each protocol as an HTTP archive (HAR 1.2), a page each."""
        return har_of(self.page, self.loads)

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        found: dict[str, Any] = {name: one.to_dict() for name, one in self.loads.items()}
        return found | {
            "choice": self.choice,
            "confidence": self.confidence,
            "engine": self.engine,
            "page": self.page.name,
            "scheme": self.scheme,
        }


#: When loads of a HAR begin: it needs dates.
_BEGIN = datetime(2000, 1, 1, tzinfo=UTC)


def har_of(page: Page, loads: Mapping[str, Loads]) -> dict[str, Any]:
    """Return the typical load by each protocol as a HAR; what did not finish is left out."""
    pages, entries = [], []
    for place, (protocol, one) in enumerate(loads.items()):
        run, begin = one.typical, _BEGIN + timedelta(hours=place)
        load_ms = float(one.load_ms[run])
        on_load_ms = load_ms if math.isfinite(load_ms) else -1
        pages.append(
            {
                "id": protocol,
                "title": f"{page.name} by {protocol}, forecast",
                "startedDateTime": begin.isoformat(timespec="milliseconds"),
                "pageTimings": {"onContentLoad": -1, "onLoad": on_load_ms},
            }
        )
        for number, resource in enumerate(page.resources):
            moments = [
                float(times[run, number])
                for times in (one.wanted_ms, one.asked_ms, one.first_byte_ms, one.finished_ms)
            ]
            if all(map(math.isfinite, moments)):
                entries.append(_entry(resource, protocol, begin, moments))
    entries.sort(key=lambda entry: entry["startedDateTime"])
    creator = {"name": "pathcast", "version": _internal.__version__}
    return {"log": {"version": "1.2", "creator": creator, "pages": pages, "entries": entries}}


def _entry(
    resource: Mapping[str, Any], protocol: str, begin: datetime, moments: Sequence[float]
) -> dict[str, Any]:
    """An entry of a HAR; moments are when it was wanted, asked for, first came, and was there, in milliseconds."""
    wanted, asked, first, last = moments
    nothing: dict[str, Any] = {"httpVersion": protocol, "cookies": [], "headers": []}
    return {
        "pageref": protocol,
        "startedDateTime": (begin + timedelta(milliseconds=wanted)).isoformat(),
        "time": last - wanted,
        "request": nothing
        | {"method": "GET", "url": resource["url"], "queryString": []}
        | {"headersSize": resource["request_bytes"], "bodySize": 0},
        "response": nothing
        | {"status": 200, "statusText": "", "redirectURL": ""}
        | {"headersSize": resource["header_bytes"], "bodySize": resource["body_bytes"]}
        | {"content": {"size": resource["body_bytes"], "mimeType": _MIME_TYPES[resource["type"]]}},
        "cache": {},
        "timings": {
            "blocked": asked - wanted,
            "send": 0,
            "wait": first - asked,
            "receive": last - first,
        },
    }


#: What HARs call types of resources.
_MIME_TYPES = {
    "document": "text/html",
    "stylesheet": "text/css",
    "script": "text/javascript",
    "image": "image/png",
    "font": "font/woff2",
    "fetch": "application/json",
    "media": "video/mp4",
    "other": "application/octet-stream",
}


def critical_path(page: Page, loads: Loads, run: int) -> list[dict[str, Any]]:
    """Return what the load event of one load waited for, back to the beginning."""
    ends = loads.finished_ms[run]
    blocking = [
        number
        for number, one in enumerate(page.resources)
        if one["blocks_load"] and math.isfinite(ends[number])
    ]
    if not blocking:
        return []
    resource = max(blocking, key=lambda number: ends[number])
    chain = [resource]
    while True:
        causes = _resources_before(page, page.resources[chain[-1]]["causes"])
        wanted = loads.wanted_ms[run, chain[-1]]
        # the last of the causes to be met: it had come by the time the resource was wanted, wholly or in part
        known = [one for one in causes if math.isfinite(loads.first_byte_ms[run, one])]
        if not known or len(chain) > len(page.resources):
            break
        chain.append(
            max(known, key=lambda one: (min(ends[one], wanted), loads.first_byte_ms[run, one]))
        )
    return [
        {
            "id": page.resources[one]["id"],
            "url": page.resources[one]["url"],
            "wanted_ms": float(loads.wanted_ms[run, one]),
            "asked_ms": float(loads.asked_ms[run, one]),
            "first_byte_ms": float(loads.first_byte_ms[run, one]),
            "finished_ms": float(ends[one]),
        }
        for one in reversed(chain)
    ]


def _resources_before(page: Page, causes: Sequence[dict[str, Any]]) -> list[int]:
    """The resources that causes name, by way of tasks."""
    found: list[int] = []
    waiting, seen = list(causes), set[int]()
    while waiting:
        cause = waiting.pop()
        if "resource" in cause:
            found.append(cause["resource"])
        elif cause["task"] not in seen:
            seen.add(cause["task"])
            waiting.extend(page.tasks[cause["task"]]["causes"])
    return found


def predict_page(
    page: Page,
    source: Path | Scenario | Calibration,
    *,
    scheme: str = "cubic",
    protocols: Sequence[str] | None = None,
    initial_window: int | Mapping[str, int] | None = None,
    slow_start_after_idle: bool = True,
    tls: str = "1.3",
    dns_s: float = 0.0,
    certificate_bytes: int = 3000,
    streams: str | None = None,
    early_data: bool = False,
    browser: BrowserTime | None = None,
    loads: int = LOADS,
    engine: str = "simulator",
    curves: Mapping[int, Sequence[tuple[float, float]]] | None = None,
    seed: int = 1,
    threads: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> PageForecast:
    """Load a page over a path many times by each protocol: packet by packet in the simulator, or by the model.

    Data goes forward over the path: servers are at its near end. Load k of each protocol has the same path and seed.

    Args:
        page: what is loaded.
        source: a path; a scenario, whose flows compete; or a calibration: each load has a path of its posterior.
        scheme: congestion control of the servers. HTTP/3 has that of QUIC with this name, and BBR's version 3 for `bbr`.
        protocols: among `PROTOCOLS`, at least one; None: all, but HTTP/3 only with TLS and a scheme that QUIC has.
        initial_window: packets, for all protocols or by protocol; None: the scheme's.
        slow_start_after_idle: whether a connection of TCP reduces its window after an idle RTO, as Linux does by default.
            BBR does not, nor does HTTP/3, nor the model.
        tls: `none`, `1.2` or `1.3`; HTTP/3 always has 1.3.
        dns_s: how long a name takes to be resolved, in seconds.
        certificate_bytes: what a server sends of certificates.
        streams: which response a server of HTTP/2 or HTTP/3 sends first: `priority` or `round-robin`; None: `priority` by
            HTTP/2, `round-robin` by HTTP/3.
        early_data: whether the browser has been to the servers before, so that HTTP/3 asks with its first packets (0-RTT).
        browser: what the browser takes itself; None: nothing, for a page whose graph has the browser's time, as
            recordings have.
        loads: by each protocol.
        engine: `simulator`, or `model`: formulas, in microseconds; of a path it takes rate, round-trip time, queue and
            loss.
        curves: for the model, instead of the path's loss: points of a loss curve (a window in packets, a probability),
            ascending, by the number of parallel connections that it was measured with; at each moment that of the nearest
            number of connections that send is taken.
        seed: of the loads.
        threads: how many simulations run in parallel; by default one for each core.
        progress: called with the part of the work that is done, 0 to 1.

    Raises:
        ModelError: no protocol, one that is not known, or HTTP/3 with what QUIC lacks; the model got a scenario, or a curve
            without valid points.
        PathFileError: a value is not valid.
        SchemeError: the simulator has no such scheme.
        SimulationError: nothing that is sent arrives.

    Example:
        >>> import pathcast
        >>> page = pathcast.Page.parse('''
        ... [[resources]]
        ... url = "https://example.org/"
        ... size = "300 kB"
        ... ''')
        >>> path = pathcast.Path.parse("rate = '20 Mbit/s'\\ndelay = '25 ms'")
        >>> found = pathcast.predict_page(page, path, loads=3)
        >>> 200 < found.loads["h2"].plt_ms < 500
        True

    """
    protocols = _checked(protocols, scheme, tls)
    browser = browser or BrowserTime()
    if loads < 1:
        raise ModelError(f"got {loads} loads; expected at least one")
    if engine not in ENGINES:
        raise ModelError(f"got engine {engine!r}; expected {' or '.join(ENGINES)}")
    if curves is not None and engine != "model":
        raise ModelError("a loss curve is for the model, expected engine model")
    paths, receive_window = paths_of(source, loads, seed)
    tcp = (scheme, initial_window, slow_start_after_idle, receive_window)
    how = _How(*tcp, tls, dns_s, certificate_bytes, streams, early_data, browser)
    if engine == "model":
        found = {one: _modelled(page, one, how, paths, curves, seed) for one in protocols}
        return _chosen(page, scheme, found, engine)
    specs = []
    for protocol in protocols:
        made: dict[int, Scenario] = {}
        for number, path in enumerate(paths):
            # the same path again and again is read once
            scenario = made.get(id(path))
            if scenario is None:
                scenario = made[id(path)] = how.scenario(page, protocol, path)
            specs.append((scenario._spec, None, LONGEST_S, seed + number))
    total = len(specs)
    with translated():
        tables = _internal.load_pages(
            specs, threads or 0, (lambda done: progress(done / total)) if progress else None
        )
    found = {}
    for number, protocol in enumerate(protocols):
        rows = slice(number * loads, (number + 1) * loads)
        of_rows = {name: one[rows] for name, one in tables.items()}
        found[protocol] = _of_tables(protocol, of_rows, browser)
    return _chosen(page, scheme, found, engine)


@dataclass(frozen=True)
class _How:
    """How servers and browser speak: see `predict_page`."""

    scheme: str
    initial_window: int | Mapping[str, int] | None
    slow_start_after_idle: bool
    receive_window: str | None
    tls: str
    dns_s: float
    certificate_bytes: int
    streams: str | None
    early_data: bool
    browser: BrowserTime

    def window(self, protocol: str) -> int | None:
        """The first window of a protocol."""
        if self.initial_window is None or isinstance(self.initial_window, int):
            return self.initial_window
        return self.initial_window.get(protocol)

    def scenario(self, page: Page, protocol: str, path: Path | Scenario) -> Scenario:
        """A flow that loads the page over the path."""
        keys = {
            "page": page.to_inline_toml(),
            "protocol": f"'{protocol}'",
            "dns": f"'{1e3 * self.dns_s:.6f} ms'",
            "certificate": f"'{self.certificate_bytes} B'",
        }
        for name, took_ms in asdict(self.browser).items():
            keys[name.removesuffix("_ms")] = f"'{took_ms:.6f} ms'"
        if self.streams is not None and protocol != "http/1.1":
            keys["streams"] = f"'{self.streams}'"
        if protocol != "h3":
            keys["tls"] = f"'{self.tls}'"
        elif self.early_data:
            keys["early_data"] = "true"
        written = ", ".join(f"{name} = {value}" for name, value in keys.items())
        servers = QUIC_SCHEMES[self.scheme] if protocol == "h3" else self.scheme
        workload = f"{{ kind = 'page', {written} }}"
        alternative = Alternative(servers, workload, self.window(protocol))
        made = alternative.scenario(path, self.receive_window)
        if self.slow_start_after_idle or protocol == "h3":
            return made
        # beside the flows of a scenario, it is the last
        number = len(path.schemes) if isinstance(path, Scenario) else 0
        return made.replace_flow(number, slow_start_after_idle=False)


def _checked(protocols: Sequence[str] | None, scheme: str, tls: str) -> tuple[str, ...]:
    """The protocols that are asked for, or all that there can be."""
    why_not = ""
    if scheme not in QUIC_SCHEMES:
        why_not = f"QUIC has no {scheme} here; expected {', '.join(QUIC_SCHEMES)}"
    elif tls == "none":
        why_not = "it is always secured; expected tls 1.3"
    if protocols is None:
        return PROTOCOLS[:2] if why_not else PROTOCOLS
    if not protocols:
        raise ModelError(f"got no protocol; expected some of {', '.join(PROTOCOLS)}")
    for one in protocols:
        if one not in PROTOCOLS:
            raise ModelError(
                f"got {one!r}; expected {', '.join(PROTOCOLS[:-1])} or {PROTOCOLS[-1]}"
            )
        if one == "h3" and why_not:
            raise ModelError(f"h3: {why_not}")
    return tuple(protocols)


def _of_tables(protocol: str, tables: Mapping[str, Column], browser: BrowserTime) -> Loads:
    differs = _DIFFERS_WITHOUT if browser == BrowserTime() else _DIFFERS
    load_ms = tables["load"][:, 0]
    return Loads(
        protocol,
        np.where(np.isnan(load_ms), math.inf, load_ms),
        tables["connections"][:, 0],
        tables["wanted"],
        tables["asked"],
        tables["first_byte"],
        tables["finished"],
        differs[protocol],
    )


def _modelled(
    page: Page,
    protocol: str,
    how: _How,
    paths: Sequence[Path | Scenario],
    curves: Mapping[int, Sequence[tuple[float, float]]] | None,
    seed: int,
) -> Loads:
    """Load a page by the model over each path."""
    numbers = []
    for path in paths:
        if isinstance(path, Scenario):
            raise ModelError("the model knows no competing flows, expected a path or the simulator")
        by_npc = [*curves.items()] if curves else [(1, [(0.0, path.loss)])]
        queue_bytes = path.queue_bytes
        if queue_bytes is None and path.queue_packets is not None:
            queue_bytes = _PACKET_BYTES * path.queue_packets
        waiting = None if queue_bytes is None else float(queue_bytes)
        numbers.append((path.base_rtt_s, path.rate_bps, waiting, by_npc))
    with translated():
        tables = _internal.model_pages(
            page._spec,
            protocol,
            "1.3" if protocol == "h3" else how.tls,
            how.certificate_bytes,
            how.dns_s,
            how.streams,
            how.early_data,
            [1e-3 * took_ms for took_ms in astuple(how.browser)],
            how.scheme,
            float(how.window(protocol) or 10),
            numbers,
            seed,
        )
    return _of_tables(protocol, tables, how.browser)


@dataclass(frozen=True)
class Dependence:
    """What the choice would be if something were otherwise.

    Attributes:
        what: the other condition, in words.
        forecast: under it.

    """

    what: str
    forecast: PageForecast


#: Random loss that is tried beside what a path has.
_OTHER_LOSS = 0.01


def depends_on(
    forecast: PageForecast,
    source: Path | Scenario | Calibration,
    progress: Callable[[float], None] | None = None,
    **options: Any,  # noqa: ANN401 - those of predict_page
) -> list[Dependence]:
    """Forecast a page under other conditions, one changed at a time: the servers' scheme, random loss, TLS.

    Args:
        forecast: what was forecast over the source.
        source: its path.
        progress: called with the part of the work that is done, 0 to 1.
        options: those of `predict_page` by which it was made.

    """
    others = [name for name in ("cubic", "bbr") if name != forecast.scheme]
    cases: list[tuple[str, Path | Scenario | Calibration, dict[str, Any]]] = [
        (f"servers use {name}", source, {"scheme": name}) for name in others
    ]
    if isinstance(source, Path) and not options.get("curves"):
        if source.loss > 0:
            cases.append(("there is no random loss", source.replace(loss=0.0), {}))
        if source.loss < _OTHER_LOSS / 2:
            other = source.replace(loss=_OTHER_LOSS)
            cases.append((f"{_OTHER_LOSS:.0%} of the packets are lost at random", other, {}))
    cases.append(("servers begin with a window of 30 packets", source, {"initial_window": 30}))
    found = []
    for number, (what, path, changed) in enumerate(cases):
        given = options | {"scheme": forecast.scheme, "protocols": [*forecast.loads]} | changed
        if progress:
            progress(number / len(cases))
        found.append(Dependence(what, predict_page(forecast.page, path, **given)))
    return found


def _chosen(page: Page, scheme: str, found: dict[str, Loads], engine: str) -> PageForecast:
    """Which protocol is best, and how sure that is, over loads drawn anew and what the simulator leaves out."""
    names = list(found)
    choice = min(names, key=lambda name: (found[name].plt_ms, names.index(name)))
    count = len(found[choice].load_ms)
    draws = np.random.default_rng(_BOOTSTRAP_SEED).integers(0, count, (_COPIES, count))
    # of real pages the ratio of two protocols differs from that of the simulator by this
    noise = np.random.default_rng(_BOOTSTRAP_SEED + 1).standard_normal((len(found), _COPIES))
    with np.errstate(invalid="ignore"):
        medians = {
            name: np.median(one.load_ms[draws], axis=1)
            * np.exp(_AGREEMENT[name] * noise[number] / math.sqrt(2))
            for number, (name, one) in enumerate(found.items())
        }
    least = np.minimum.reduce(list(medians.values()))
    confidence = float(np.mean(medians[choice] <= least))
    return PageForecast(page, scheme, found, choice, confidence, engine)
