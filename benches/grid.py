"""The simulator against the kernel's TCP on a grid of cells: signed differences with intervals.

usage: benches/grid.py [--family NAME]... [--cell PATTERN]... [--seeds N] [--duration S] [--at-once N]
                       [--kernel FILE.json] [-o TABLE.md]

Runs every cell in the emulator (as root) and in the simulator with the same seeds, which lose the same
packets of the sequence that each flow sends. Lossy cells stand apart from those that fill their link, which
agree whatever the sender does. The kernel runs in real time, N runs at once; with `--kernel` the script keeps
each of these runs in a file and reuses those whose scenario, duration and seed are unchanged. `--cell` selects
cells whose name matches a shell pattern.
"""

import argparse
import concurrent.futures
import datetime
import fnmatch
import hashlib
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.progress import track
from scipy.stats import t as student

import pathcast

SCHEMES = ("reno", "cubic", "bbr", "vegas", "scalable")
#: Runs of the kernel that slipped are tried so often.
ATTEMPTS = 4
#: A relative difference says nothing of fewer retransmissions than these.
FEWEST_RETRANSMITS = 20
HEADING = """\
# The simulator against the kernel's TCP, cell by cell

Made by `{command}` on {day}. [Results: the
simulator](simulator.md) interprets the differences.

Differences are simulator against kernel, signed, with 95 % intervals over cells or seeds. "Significantly beyond" counts
the cells whose interval over the seeds lies outside of 5 %. In the second table, each pair of columns has the
kernel's value and the simulator's difference from it.

"""


class Cell(NamedTuple):
    """One scenario, to be run in both worlds."""

    family: str
    name: str
    #: Of which scheme a summary counts it; of several, all their names.
    scheme: str
    scenario: str


def link(rate, rtt, loss=0.0, queue="2 BDP", delay=None):
    """A link as a scenario has it: Mbit/s, ms, share of packets."""
    delay = f"'{rtt / 2:g} ms'" if delay is None else delay
    queue = queue if queue.startswith("{") else f"'{queue}'"
    return f"[links.link]\nrate = '{rate:g} Mbit/s'\ndelay = {delay}\nqueue = {queue}\nloss = {loss:g}\n"


def flows(scheme, count=1, **keys):
    """Flows that are alike; the values of further keys are TOML."""
    text = f"\n[[flows]]\nscheme = '{scheme}'\ncount = {count}\n"
    return text + "".join(f"{key} = {value}\n" for key, value in keys.items())


def lossy() -> Iterator[Cell]:
    """One flow whose window losses at random decide."""
    for scheme in SCHEMES:
        for rate, rtt, loss in (
            (50, 1, 1e-2), (50, 5, 1e-2), (20, 10, 5e-2), (12, 20, 1e-2), (100, 20, 1e-3),
            (20, 40, 8e-2), (50, 40, 1e-2), (12, 100, 1e-3), (50, 100, 2e-2), (20, 400, 1e-3),
        ):  # fmt: skip
            name = f"{scheme}, {rate} Mbit/s, {rtt} ms, {loss:.1%}"
            yield Cell("lossy", name, scheme, link(rate, rtt, loss) + flows(scheme))


def filled() -> Iterator[Cell]:
    """One flow that fills its link, in queues from a fifth of a BDP to eight."""
    for scheme in SCHEMES:
        for rate, rtt, queue in (
            (50, 2, 1),
            (50, 20, 0.5),
            (20, 40, 0.2),
            (12, 60, 2),
            (20, 100, 8),
        ):
            name = f"{scheme}, {rate} Mbit/s, {rtt} ms, {queue} BDP"
            yield Cell(
                "filled", name, scheme, link(rate, rtt, queue=f"{queue} BDP") + flows(scheme)
            )


def shared(family="shared", jitter_ms=0.0) -> Iterator[Cell]:
    """Several flows in one queue."""

    def delay(rtt):
        if not jitter_ms:
            return None
        keys = f"base = '{rtt / 2:g} ms', jitter = '{jitter_ms:g} ms', distribution = 'exponential'"
        return f"{{ kind = 'jitter', {keys} }}"

    for rate, rtt, queue, parts in (
        (50, 40, 1, [("bbr", 4)]),
        (100, 20, 1, [("bbr", 10)]),
        (50, 40, 1, [("cubic", 4)]),
        (50, 20, 0.5, [("reno", 10)]),
        (40, 40, 2, [("cubic", 2), ("bbr", 2)]),
        (40, 40, 1, [("cubic", 5), ("reno", 5)]),
        (40, 40, 2, [("reno", 2), ("vegas", 2)]),
        (40, 40, 1, [("cubic", 2), ("scalable", 2)]),
    ):
        names = " and ".join(f"{count} {scheme}" for scheme, count in parts)
        text = link(rate, rtt, queue=f"{queue} BDP", delay=delay(rtt))
        text += "".join(flows(scheme, count) for scheme, count in parts)
        name = f"{names}, {rate} Mbit/s, {rtt} ms, {queue} BDP"
        yield Cell(family, name, "+".join(scheme for scheme, _ in parts), text)
    text = link(40, 10, delay=delay(10))
    text += "".join(flows("cubic", 2, delay=f"'{d} ms'") for d in (0, 15, 35))
    yield Cell(family, "6 cubic of 10, 40 and 80 ms, 40 Mbit/s", "cubic", text)


def jittered() -> Iterator[Cell]:
    """The same over a delay that varies by 0.1 ms, so that flows do not run in step."""
    yield from shared("jittered", 0.1)


def idle() -> Iterator[Cell]:
    """Applications that pause and ask."""
    for scheme in ("reno", "cubic", "bbr"):
        for name, workload in (
            ("transfers of 1 MB with pauses", "{ kind = 'transfer', size = '1 MB', pause = '1500 ms' }"),
            ("answers of 100 kB", "{ kind = 'request-response', response = '100 kB', think = '300 ms' }"),
            ("on and off", "{ kind = 'on-off', on = '1 s', off = '700 ms' }"),
        ):  # fmt: skip
            text = link(30, 40, 5e-3) + flows(scheme, workload=workload)
            yield Cell("idle", f"{scheme}, {name}", scheme, text)


def reordering() -> Iterator[Cell]:
    """Packets that overtake each other."""
    for scheme in ("reno", "cubic", "bbr"):
        for jitter in (0.3, 4):
            delay = (
                "{ kind = 'jitter', base = '15 ms', reorder = true, distribution = 'exponential', "
                f"jitter = '{jitter} ms' }}"
            )
            text = link(20, 30, 1e-3, delay=delay) + flows(scheme)
            yield Cell("reordering", f"{scheme}, jitter of {jitter} ms", scheme, text)


def ecn() -> Iterator[Cell]:
    """Queues that mark."""
    for scheme in ("reno", "cubic", "bbr"):
        for queue in ("codel", "red"):
            text = link(30, 40, queue=f"{{ kind = '{queue}', ecn = true }}")
            text += flows(scheme, 2, ecn="true")
            yield Cell("ecn", f"2 {scheme}, {queue} that marks", scheme, text)


def windows() -> Iterator[Cell]:
    """Receivers that take little."""
    for scheme in ("cubic", "bbr"):
        for size in (60, 400):
            text = link(50, 60, 1e-3) + flows(scheme, receive_window=f"'{size} kB'")
            yield Cell("windows", f"{scheme}, receiver takes {size} kB", scheme, text)


def short() -> Iterator[Cell]:
    """Transfers that are over in a few round trips, one after another."""
    for scheme in ("reno", "cubic", "bbr"):
        for size, each_ms, loss in ((30, 250, 2e-2), (300, 700, 1e-2)):
            count = 7000 // each_ms
            keys = {
                "workload": f"{{ kind = 'transfer', size = '{size} kB' }}",
                "start": "'0 s'",
                "every": f"'{each_ms} ms'",
            }
            text = link(30, 60, loss) + flows(scheme, count, **keys)
            yield Cell("short", f"{count} of {size} kB, {scheme}", scheme, text)


FAMILIES = {
    family.__name__: family
    for family in (lossy, filled, shared, jittered, idle, reordering, ecn, windows, short)
}


class Measured(NamedTuple):
    """What is compared of a run."""

    goodput_bps: float
    retransmits: int
    p95_ms: float
    #: Of the flows' goodputs; None of one flow.
    jain: float | None
    #: Mean time of whole transfers or answers; None of flows without an end.
    completion_s: float | None
    invalid_because: list[str]


def measured(report):
    """What is compared of a run."""
    rates = [flow.goodput_bps for flow in report.flows]
    times = [f.completed_s - f.start_s for f in report.flows if f.completed_s is not None]
    times += [
        f.messages.latency_ms["mean"] / 1e3
        for f in report.flows
        if f.messages and f.messages.delivered
    ]
    jain = sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates)) if any(rates) else None
    return Measured(
        sum(rates),
        sum(flow.retransmits for flow in report.flows),
        report.one_way_delay_ms["p95"],
        jain if len(rates) > 1 and not times else None,
        statistics.mean(times) if times else None,
        list(report.invalid_because),
    )


def in_kernel(job):
    """One run in the emulator, again if it slipped."""
    text, duration_s, seed = job
    scenario = pathcast.Scenario.parse(text)
    for _ in range(ATTEMPTS):
        report, _ = pathcast.emulate(scenario, duration_s=duration_s, seed=seed)
        if report.valid:
            break
    return measured(report)


def in_simulator(job):
    """One run in the simulator."""
    text, duration_s, seed = job
    scenario = pathcast.Scenario.parse(text)
    return measured(pathcast.simulate(scenario, duration_s=duration_s, seed=seed, record=False)[0])


def key_of(job):
    """A job's name in the file of the kernel's half."""
    return hashlib.sha256(json.dumps(job).encode()).hexdigest()[:16]


class Compared(NamedTuple):
    """A cell's means over seeds: the kernel's and the simulator's, and the differences; None where there are none."""

    cell: Cell
    seeds: int
    kernel: Measured
    ours: Measured
    goodput: float
    #: Half of the 95 % interval of that difference, over the seeds; None of fewer than two.
    goodput_half: float | None
    retransmits: float | None
    p95: float
    jain: float | None
    completion: float | None

    @property
    def differs(self):
        """Whether goodput differs by more than 5 % whatever chance did."""
        return self.goodput_half is not None and abs(self.goodput) - self.goodput_half > 0.05


def compared(cell, pairs):
    """The means of the seeds whose runs in the kernel were valid; None without any."""
    pairs = [(kernel, ours) for kernel, ours in pairs if not kernel.invalid_because]
    if not pairs:
        return None

    def mean(runs):
        columns = zip(*(run[:-1] for run in runs), strict=True)
        known = [[value for value in column if value is not None] for column in columns]
        return Measured(*(statistics.mean(column) if column else None for column in known), [])

    kernel, ours = (mean(runs) for runs in zip(*pairs, strict=True))

    def ratio(mine, theirs):
        return None if mine is None or not theirs else mine / theirs - 1

    return Compared(
        cell,
        len(pairs),
        kernel,
        ours,
        ratio(ours.goodput_bps, kernel.goodput_bps) or 0.0,
        half_width(
            [(mine.goodput_bps - theirs.goodput_bps) / kernel.goodput_bps for theirs, mine in pairs]
        ),
        ratio(ours.retransmits, kernel.retransmits)
        if kernel.retransmits >= FEWEST_RETRANSMITS
        else None,
        ratio(ours.p95_ms, kernel.p95_ms) or 0.0,
        None if kernel.jain is None or ours.jain is None else ours.jain - kernel.jain,
        ratio(ours.completion_s, kernel.completion_s),
    )


def half_width(values):
    """Half of the 95 % interval of the values' mean; None of fewer than two."""
    if len(values) < 2:
        return None
    return student.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5


def interval(values):
    """A mean with its 95 % interval over cells, signed; a dash without values."""
    if not values:
        return "-"
    mean, half = statistics.mean(values), half_width(values)
    return f"{mean:+.1%}" if half is None else f"{mean:+.1%} ± {half:.1%}"


def summary(rows):
    """Signed means over cells: by family, the lossy ones by scheme too."""
    lines = [
        "| cells | number | goodput | within 5 % | significantly beyond | retransmits | 95 % delay | completion | Jain's index, furthest |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups = [(f"lossy, {scheme}", "lossy", scheme) for scheme in SCHEMES]
    groups += [(family, family, None) for family in FAMILIES] + [("all", None, None)]
    for title, family, scheme in groups:
        chosen = [
            row
            for row in rows
            if family in (row.cell.family, None) and scheme in (row.cell.scheme, None)
        ]
        if not chosen:
            continue
        near = sum(abs(row.goodput) <= 0.05 for row in chosen)
        far = sum(row.differs for row in chosen)
        known = {
            name: [value for row in chosen if (value := getattr(row, name)) is not None]
            for name in ("goodput", "retransmits", "p95", "completion", "jain")
        }
        furthest = max(known["jain"], key=abs, default=None)
        lines.append(
            f"| {title} | {len(chosen)} | {interval(known['goodput'])} | {near} | {far} | {interval(known['retransmits'])} "
            f"| {interval(known['p95'])} | {interval(known['completion'])} "
            f"| {'-' if furthest is None else f'{furthest:+.3f}'} |"
        )
    return lines


def table(rows):
    """All cells: the kernel's value, and by how much the simulator's differs."""
    lines = [
        "| family | cell | seeds | goodput, Mbit/s | | retransmits | | 95 % delay, ms | | completion, s | | Jain | |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]

    def share(value):
        return "" if value is None else f"{value:+.1%}"

    for row in rows:
        kernel = row.kernel
        goodput = share(row.goodput)
        if row.goodput_half is not None:
            goodput += f" ± {row.goodput_half:.1%}"
        completion = "" if kernel.completion_s is None else f"{kernel.completion_s:.3f}"
        jain = ("", "") if row.jain is None else (f"{kernel.jain:.3f}", f"{row.jain:+.3f}")
        lines.append(
            f"| {row.cell.family} | {row.cell.name} | {row.seeds} | {kernel.goodput_bps / 1e6:.2f} | {goodput} "
            f"| {kernel.retransmits:.0f} | {share(row.retransmits)} | {kernel.p95_ms:.1f} | {share(row.p95)} "
            f"| {completion} | {share(row.completion)} | {jain[0]} | {jain[1]} |"
        )
    return lines


def run_kernel(jobs, file, at_once):
    """The kernel's half: what the file has, and the rest in real time, kept as it comes."""
    kept = json.loads(file.read_text()) if file is not None and file.exists() else {}
    missing = [job for job in jobs if key_of(job) not in kept]
    if missing and not pathcast.capabilities().can_emulate:
        sys.exit("the emulator cannot run here: " + "; ".join(pathcast.capabilities().reasons))
    with concurrent.futures.ProcessPoolExecutor(at_once) as pool:
        runs = pool.map(in_kernel, missing)
        silent = not sys.stderr.isatty()
        for job, run in zip(
            missing, track(runs, "kernel", len(missing), disable=silent), strict=True
        ):
            kept[key_of(job)] = run
            if file is not None:
                file.write_text(json.dumps(kept))
    return [Measured(*kept[key_of(job)]) for job in jobs]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", action="append", choices=FAMILIES)
    parser.add_argument("--cell", action="append", metavar="PATTERN")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--duration", type=float, default=15.0)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--kernel", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    cells = [
        cell
        for family in options.family or FAMILIES
        for cell in FAMILIES[family]()
        if options.cell is None or any(fnmatch.fnmatch(cell.name, one) for one in options.cell)
    ]
    if not cells:
        sys.exit("no cell of the grid has such a name")
    found = pathcast.capabilities()
    have = {*found.schemes, *found.bpf_schemes}
    lacking = sorted({scheme for cell in cells for scheme in cell.scheme.split("+")} - have)
    cells = [cell for cell in cells if not set(lacking) & set(cell.scheme.split("+"))]
    seeds = range(1, options.seeds + 1)
    jobs = [(cell.scenario, options.duration, seed) for cell in cells for seed in seeds]
    kernel = run_kernel(jobs, options.kernel, options.at_once)
    with concurrent.futures.ProcessPoolExecutor() as pool:
        ours = list(pool.map(in_simulator, jobs))
    pairs = list(zip(kernel, ours, strict=True))
    size = len(seeds)
    all_rows = [compared(cell, pairs[i * size : (i + 1) * size]) for i, cell in enumerate(cells)]
    rows = [row for row in all_rows if row is not None]
    slipped = sum(bool(run.invalid_because) for run in kernel)
    text = "\n".join(
        [
            *summary(rows),
            "",
            f"Runs of the kernel that were invalid {ATTEMPTS} times, and are omitted: {slipped} of {len(kernel)}.",
            *([f"Schemes that the kernel lacks here: {', '.join(lacking)}."] if lacking else []),
            "",
            *table(rows),
            "",
        ]
    )
    if options.output is not None:
        command = " ".join(["benches/grid.py", *sys.argv[1:]])
        day = datetime.date.today().isoformat()
        options.output.write_text(HEADING.format(command=command, day=day) + text)
    print(text)


if __name__ == "__main__":
    main()
