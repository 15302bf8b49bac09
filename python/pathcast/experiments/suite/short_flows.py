"""Short flows: downloads of 20 MB by CUBIC, whose first 1 MB forecasts the times of 5, 10 and 20 MB.

As in De Silva et al. 2016, section 5: the clock begins with the first byte, errors are |estimate / truth - 1| of the
throughput. docs/explanation/short-flows.md has the estimate; benches/short_flows.py runs the same over other paths.
"""

from __future__ import annotations

import itertools
import json
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import numpy.typing as npt

from pathcast import runs
from pathcast._scores import ErrorSummary, coverage, error_pct, in_band
from pathcast.experiments.engine.case import Attempt, Passed, fingerprint
from pathcast.experiments.engine.world import World
from pathcast.experiments.suite import paper
from pathcast.extras import need
from pathcast.files import write_beside
from pathcast.scenario import Scenario
from pathcast.short_flow import WindowEvolution, estimate
from pathcast.trace import read_trace

Row = dict[str, Any]
Floats = npt.NDArray[np.float64]

#: The network's name on the command line and in cells' names.
NETWORK = "short-flows"
SIZES = (5e6, 10e6, 20e6)
MEASURED_BYTES = 1e6
DOWNLOAD_BYTES = 20e6
MSS_BYTES = 1448
RATES_MBPS = (3, 6, 10, 16, 25, 40, 60)
RTTS_MS = (40, 80, 140, 200)
#: The radio's scheduler: none, or the longest wait of a packet in ms.
JITTERS_MS = (0, 8)
LOSSES = (0, 1e-4, 1e-3)
RECEIVE_WINDOWS = (None, 1_048_576)
#: How long a download may last, in seconds.
PATIENCE_S = 150
#: Bytes that a deep LTE buffer holds.
QUEUE = "4 MB"
#: The suite's seed 1 is this one's next: downloads of smaller seeds were looked at while the estimate was made.
_FIRST_SEED = 1000
#: Points of the logged window that are kept.
_MOST_POINTS = 400
#: By what estimates are made: Pathcast's, without the timeline, the published algorithms, the 1 MB's own rate.
ESTIMATORS = ("pathcast", "blind", "published", "alone")


@dataclass(frozen=True)
class Download:
    """What is run: a scenario of one download, and facts about its path.

    Attributes:
        name: of the cell.
        title: the path in words.
        kind: `lte`, or what a caller has.
        toml: the scenario.
        expected_s: how long it lasts, about, in seconds.
        rtts_s: round-trip times of probes before it, in seconds.
        receive_window_bytes: the client's; None: the kernel's own.
        seed: of all that is random.
        opportunities_ms: mahimahi's, in milliseconds, which the scenario has as lte.trace.

    """

    name: str
    title: str
    kind: str
    toml: str
    expected_s: float
    rtts_s: tuple[float, ...]
    receive_window_bytes: int | None
    seed: int
    opportunities_ms: tuple[int, ...] = ()

    #: The file that is kept of a run.
    kept_as = "download.json"

    @property
    def duration_s(self) -> float:
        """What plans count with."""
        return self.expected_s

    def fingerprint(self, world: str) -> str:
        """Return a digest that a kept run of this download by this backend has."""
        return fingerprint([asdict(self), MEASURED_BYTES, SIZES, PATIENCE_S, world])

    def attempt(self, world: World, file: FilePath, progress: Passed | None = None) -> Attempt:
        """Run it once, and write what the client saw and the truth.

        Raises:
            EmulatorError: the emulator cannot run here.

        """
        report, why_not, row = measure(self, world, progress)
        if row is not None:
            write_beside(file, json.dumps(row, allow_nan=False) + "\n")
        return Attempt(report, tuple(why_not))


def download(
    title: str,
    kind: str,
    links: str,
    rtts_s: Sequence[float],
    receive_window_bytes: int | None,
    seed: int,
    *,
    name: str = "",
    expected_s: float = 0.0,
    opportunities_ms: tuple[int, ...] = (),
) -> Download:
    """One flow of CUBIC over links in the words of a path file."""
    window = (
        "" if receive_window_bytes is None else f"receive_window = '{receive_window_bytes} B'\n"
    )
    toml = (
        f"[links.lte]\n{links}\n[[flows]]\nscheme = 'cubic'\n{window}"
        f"workload = {{ kind = 'transfer', size = '{DOWNLOAD_BYTES / 1e6:g} MB' }}\n"
    )
    return Download(
        name, title, kind, toml, expected_s, tuple(rtts_s), receive_window_bytes, seed,
        opportunities_ms,
    )  # fmt: skip


def lte_like(seeds: Sequence[int]) -> Iterator[Download]:
    """Constant rates behind deep buffers, with and without the radio's jitter and random loss.

    Every rate, round-trip time and loss; jitter and receive window take turns.
    """
    for seed in seeds:
        paths = itertools.product(RATES_MBPS, RTTS_MS, LOSSES)
        for number, (of_rate, of_rtt, loss) in enumerate(paths):
            jitter = JITTERS_MS[(number + seed) % 2]
            window = RECEIVE_WINDOWS[(number // 2 + seed) % 2]
            rng = random.Random(f"{seed} {number}")  # noqa: S311 - no secret
            # no two alike: rate and RTT within 15 % of the path's
            rate = of_rate * (1 + rng.uniform(-0.15, 0.15))
            rtt = of_rtt * (1 + rng.uniform(-0.15, 0.15))
            one_way = f"{rtt / 2:.2f} ms"
            delay = f"'{one_way}'"
            if jitter:
                delay = f"{{ kind = 'jitter', base = '{one_way}', jitter = '{jitter} ms' }}"
            links = (
                f"rate = '{rate:.2f} Mbit/s'\ndelay = {delay}\nqueue = '{QUEUE}'\nloss = {loss}\n"
                f"[links.lte.reverse]\nrate = '20 Mbit/s'\ndelay = '{one_way}'\n"
            )
            # probes of 64 bytes
            rtts_s = [
                rtt / 1e3 + rng.uniform(0, jitter) / 1e3 + 64 * 8 / (rate * 1e6) for _ in range(5)
            ]
            yield download(
                f"{rate:.1f} Mbit/s, {rtt:.0f} ms, jitter {jitter} ms, loss {loss:g}",
                "lte",
                links,
                rtts_s,
                window,
                1000 * seed + number,
                name=f"{NETWORK}-{of_rate}mbps-{of_rtt}ms-loss-{loss:g}-seed{seed}",
                expected_s=8 * DOWNLOAD_BYTES / (rate * 1e6) + 2,
            )


def cells(*, full: bool, seeds: Sequence[int]) -> list[Download]:
    """The suite's downloads, the longest first: all 84 paths of a seed, or 21 of them.

    The short form has one round-trip time for each rate and loss; they take turns, as do jitters.
    """
    found = []
    for seed in dict.fromkeys(seeds):
        shape = len(RATES_MBPS), len(RTTS_MS), len(LOSSES)
        of_seed = lte_like([_FIRST_SEED + seed])
        for one, (r, t, p) in zip(of_seed, np.ndindex(shape), strict=True):
            if full or t == (r + 2 * ((p + seed + r // 2) % 2)) % len(RTTS_MS):
                found.append(one)
    return sorted(found, key=lambda one: -one.duration_s)


def _arrivals(packets_file: FilePath) -> tuple[Floats, npt.NDArray[np.int64], Floats]:
    """Seconds and bytes in order as the client's application gets them, time 0 at the first byte.

    Also when each packet was lost, by queue or wire.
    """
    table = need("pyarrow.parquet", "probing", "the short flows").read_table(packets_file)
    column = {name: table[name].to_numpy() for name in table.column_names}
    data = (column["direction"] == 0) & (column["size_bytes"] > 100) & (column["time_s"] >= 0)
    arrived = data & (column["event"] == 1)
    seq = column["seq"][arrived].astype(np.int64)
    at_s = column["time_s"][arrived]
    payload = column["size_bytes"][arrived].astype(np.int64) - 52
    order = np.lexsort((at_s, seq))
    seq, at_s, payload = seq[order], at_s[order], payload[order]
    first = np.concatenate(([True], seq[1:] != seq[:-1]))
    seq, at_s, payload = seq[first], at_s[first], payload[first]
    in_order = np.maximum.accumulate(at_s)
    # the simulator numbers packets, the kernel bytes; all but a few packets are full
    cumulative = np.cumsum(payload) if seq[1] == 1 else np.maximum.accumulate(seq + payload)
    # one entry for each moment
    last = np.concatenate((in_order[1:] != in_order[:-1], [True]))
    lost = column["time_s"][data & np.isin(column["event"], (2, 3))]
    return in_order[last] - in_order[0], cumulative[last], np.sort(lost) - in_order[0]


def measure(
    what: Download, world: str, progress: Callable[[float], None] | None = None
) -> tuple[Row, list[str], Row | None]:
    """Run one download, once.

    Args:
        what: to run.
        world: `emulator` or `simulator`.
        progress: receives the seconds that have passed; may raise to stop it.

    Returns:
        The run's report; why it does not count (empty: it does); and if it does what the client saw of the
        first 1 MB, and the truth.

    Raises:
        EmulatorError: the emulator cannot run here.

    """
    options: dict[str, Any] = {"duration_s": PATIENCE_S, "seed": what.seed, "progress": progress}
    with tempfile.TemporaryDirectory(prefix="pathcast-") as name:
        folder = FilePath(name)
        packets, file = folder / "packets.parquet", folder / "scenario.toml"
        file.write_text(what.toml)
        (folder / "lte.trace").write_text("".join(f"{ms}\n" for ms in what.opportunities_ms))
        scenario = Scenario.load(file)
        if world == "emulator":
            report, trace = runs.emulate(scenario, packets_file=packets, **options)
        else:
            trace_file = folder / "trace.parquet"
            report, _ = runs.simulate(
                scenario, packets_file=packets, trace_file=trace_file, **options
            )
            trace = read_trace(trace_file)
        if not report.valid:
            return report.to_dict(), list(report.invalid_because), None
        if report.flows[0].completed_s is None:
            return report.to_dict(), [f"it had not ended after {PATIENCE_S} s"], None
        return report.to_dict(), [], _row(what, packets, trace.columns)


def _row(what: Download, packets: FilePath, columns: Mapping[str, npt.NDArray[Any]]) -> Row:
    time_s, received, lost = _arrivals(packets)
    measured = int(np.searchsorted(received, MEASURED_BYTES)) + 1
    end = float(time_s[np.searchsorted(received, DOWNLOAD_BYTES - 1)])
    acked = int(np.searchsorted(columns["snd_una_bytes"], MEASURED_BYTES))
    return {
        "name": what.title,
        "kind": what.kind,
        "seed": what.seed,
        "rtts_s": list(what.rtts_s),
        "receive_window_bytes": what.receive_window_bytes,
        "time_s": time_s[:measured].round(6).tolist(),
        "received_bytes": received[:measured].tolist(),
        "truth_s": [float(time_s[np.searchsorted(received, min(s, received[-1]))]) for s in SIZES],
        "losses": int((lost < end).sum()),
        "losses_in_measured": int((lost < time_s[measured - 1]).sum()),
        "slow_start": bool(np.isnan(columns["ssthresh_packets"][acked])),
        **_logged_window(columns, min(what.rtts_s)),
    }


def _logged_window(columns: Mapping[str, npt.NDArray[Any]], rtt_s: float) -> Row:
    """The sender's window from its first packet until 20 MB are acknowledged, at evenly spaced moments.

    Seconds since the first packet was sent, a round trip before the first acknowledgment: what a window lets out
    reaches the client at just that moment by the client's clock, which begins with the first byte.
    """
    time_s, window = columns["time_s"], columns["cwnd_packets"]
    end = min(int(np.searchsorted(columns["snd_una_bytes"], DOWNLOAD_BYTES - 1)), len(time_s) - 1)
    at_s = np.linspace(time_s[0], time_s[end], _MOST_POINTS - 1)
    chosen = np.unique(np.searchsorted(time_s, at_s, side="right") - 1)
    since_s = time_s[chosen] - time_s[0] + rtt_s
    return {
        "cwnd_time_s": [0.0, *since_s.round(6).tolist()],
        "cwnd_packets": [float(window[0]), *window[chosen].tolist()],
    }


@dataclass(frozen=True)
class Score:
    """Estimates of one download against what it took; arrays have an entry for each of `SIZES`.

    Attributes:
        row: the download, as `measure` has it.
        error_pct: |estimate / truth - 1| of the throughput in per cent, by estimator.
        covered: whether the truth is in Pathcast's 90 % band.
        fast: whether all of it came at more than 13 Mbit/s.
        truth_bps: the throughput that was measured.
        estimate_bps: estimates of it, by estimator.

    """

    row: Row
    error_pct: dict[str, Floats]
    covered: npt.NDArray[np.bool_]
    fast: bool
    truth_bps: Floats = field(default_factory=lambda: np.full(len(SIZES), np.nan))
    estimate_bps: dict[str, Floats] = field(default_factory=dict)


def score(row: Row) -> Score:
    """Estimate one download from its first 1 MB."""
    time_s, received = np.array(row["time_s"]), np.array(row["received_bytes"], dtype=float)
    options: dict[str, Any] = {
        "mss_bytes": MSS_BYTES,
        "receive_window_bytes": row["receive_window_bytes"],
    }
    known = received[-1], time_s[-1], row["rtts_s"], SIZES
    found = estimate(*known, timeline=(time_s, received), **options)
    blind = estimate(*known, **options)
    truth = 8 * np.array(SIZES) / np.array(row["truth_s"])
    alone = np.full(len(SIZES), 8 * received[-1] / time_s[-1])
    estimates = (
        [one.throughput_bps for one in found.sizes],
        [one.throughput_bps for one in blind.sizes],
        [one.published_throughput_bps for one in found.sizes],
        alone,
    )
    said = {
        name: np.array(values, dtype=float)
        for name, values in zip(ESTIMATORS, estimates, strict=True)
    }
    errors = {name: error_pct(values, truth) for name, values in said.items()}
    bands = np.array([one.throughput_quantiles_bps for one in found.sizes])
    covered = in_band(bands, truth)
    return Score(row, errors, covered, bool(truth[-1] > 13e6), truth, said)


def evolution(row: Row) -> WindowEvolution:
    """The window that is estimated for a download from its first 1 MB, until 20 MB are sent."""
    time_s, received = np.array(row["time_s"]), np.array(row["received_bytes"], dtype=float)
    found = estimate(
        received[-1],
        time_s[-1],
        row["rtts_s"],
        SIZES,
        timeline=(time_s, received),
        mss_bytes=MSS_BYTES,
        receive_window_bytes=row["receive_window_bytes"],
        windows=True,
    )
    assert found.windows is not None  # noqa: S101 - asked for
    return found.windows


#: The three kinds of download of figure 9.
EVOLUTIONS: dict[str, Callable[[Row], bool]] = {
    "a: no loss": lambda row: row["losses"] == 0 and not row["slow_start"],
    "b: loss after the first MB": lambda row: row["losses"] > row["losses_in_measured"] == 0,
    "c: the first MB was slow start": lambda row: bool(row["slow_start"]),
}


def typical(scores: Sequence[Score]) -> dict[str, tuple[Score | None, int]]:
    """Figure 9: a download of each kind, and how many of the kind have no logged window.

    Of those with one it is that whose estimate at 20 MB is off by the median (the lower of two): neither the best
    nor the worst. Downloads that were run before windows were kept have none.
    """
    found: dict[str, tuple[Score | None, int]] = {}
    for kind, wanted in EVOLUTIONS.items():
        of_kind = [one for one in scores if wanted(one.row)]
        logged = [one for one in of_kind if one.row.get("cwnd_packets")]
        logged.sort(key=lambda one: (one.error_pct["pathcast"][-1], one.row["seed"]))
        middle = logged[(len(logged) - 1) // 2] if logged else None
        found[kind] = middle, len(of_kind) - len(logged)
    return found


def evolution_rows(scores: Sequence[Score]) -> list[Row]:
    """What figure 9 shows, as `results.json` has it."""
    return [
        {
            "kind": kind,
            "path": one and one.row["name"],
            "seed": one and one.row["seed"],
            "error_pct": one and {name: error.tolist() for name, error in one.error_pct.items()},
            "without_window": without,
        }
        for kind, (one, without) in (typical(scores).items() if scores else ())
    ]


#: Groups of downloads; they overlap.
GROUPS: dict[str, Callable[[Score], bool]] = {
    "no loss": lambda one: one.row["losses"] == 0,
    "no loss, radio's jitter": lambda one: one.row["losses"] == 0 and "jitter 8" in one.row["name"],
    "no loss, 1 MB was slow start": lambda one: one.row["losses"] == 0 and one.row["slow_start"],
    "no loss, above 13 Mbit/s": lambda one: one.row["losses"] == 0 and one.fast,
    "loss": lambda one: one.row["losses"] > 0,
    "loss, 1 packet in 10,000": lambda one: one.row["name"].endswith("loss 0.0001"),
    "loss, 1 packet in 1,000": lambda one: one.row["name"].endswith("loss 0.001"),
    "loss within the 1 MB": lambda one: one.row["losses_in_measured"] > 0,
    "all": lambda _: True,
}
#: Where the paper has them.
_TOLD = {"all": "figure 8", "no loss": "table 5", "loss": "table 6"}


def groups(scores: Sequence[Score]) -> Iterator[tuple[str, list[Score]]]:
    """Names of groups and the downloads in them, those that have any."""
    for name, wanted in GROUPS.items():
        chosen = [one for one in scores if wanted(one)]
        if chosen:
            yield name, chosen


def table(scores: Sequence[Score]) -> list[Row]:
    """Tables 5 and 6 and figure 8: a row for each group and size, the paper's numbers in it."""
    rows = []
    for name, chosen in groups(scores):
        for i, size_bytes in enumerate(SIZES):
            errors = {
                model: ErrorSummary.of(np.array([one.error_pct[model][i] for one in chosen]))
                for model in ESTIMATORS
            }
            told = paper.SHORT_FLOWS.get(_TOLD.get(name, ""), {}).get(int(size_bytes / 1e6))
            rows.append(
                {
                    "group": name,
                    "size_bytes": size_bytes,
                    "downloads": len(chosen),
                    **{
                        f"{key}_error_pct": {m: getattr(e, key, None) for m, e in errors.items()}
                        for key in ("mean", "median", "p10", "p90")
                    },
                    "coverage90": coverage(np.array([one.covered[i] for one in chosen])),
                    "largest_bps": _largest(chosen, i),
                    "paper": told
                    and {
                        "where": _TOLD[name],
                        "mean_error_pct": {"published": told[0], "alone": told[1]},
                    },
                }
            )
    return rows


def _largest(scores: Sequence[Score], size: int) -> dict[str, float | None]:
    """The largest throughput that was measured and that each estimator said: whether estimates level off."""
    found: dict[str, float | None] = dict.fromkeys(("measured", *ESTIMATORS))
    there = [one for one in scores if one.estimate_bps]
    if there:
        found["measured"] = max(float(one.truth_bps[size]) for one in there)
        for name in ESTIMATORS:
            found[name] = max(float(one.estimate_bps[name][size]) for one in there)
    return found
