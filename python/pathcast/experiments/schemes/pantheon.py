"""Sections 3 to 5 of Pantheon (Yan et al., USENIX ATC 2018) on its 18 published paths: what is run, what must show.

The paper measured real paths. Here its published emulators take their place, so that what differs with a path, its
direction and the number of flows can be run again by anyone. Its own numbers stand beside.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

from pathcast.calibration import Measurement, calibrate_several
from pathcast.exceptions import ModelError
from pathcast.experiments.engine.case import fingerprint
from pathcast.experiments.engine.claim import Claim, wanted
from pathcast.experiments.engine.store import make_folder
from pathcast.experiments.engine.world import World
from pathcast.experiments.schemes import workloads
from pathcast.experiments.schemes.measures import FlowMeasure, flow_rates_together
from pathcast.experiments.schemes.plan import Plan
from pathcast.experiments.schemes.summary import Block, welch_p
from pathcast.experiments.schemes.tables import Table
from pathcast.path import Path, built_in

#: Of its runs (section 3.2 and footnote 7).
DURATION_S = 30.0
#: Its schemes, and ours of the same algorithm; Vivace stands for PCC, whose successor it is. Its LEDBAT was libutp.
SCHEMES = {
    World.SIMULATOR: ("cubic", "bbr", "vegas", "copa", "vivace", "utp", "reno"),
    World.EMULATOR: (
        *(
            "tcp-cubic",
            "tcp-bbr",
            "tcp-vegas",
            "udp-copa",
            "udp-vivace",
            "libutp-ledbat",
            "quic-go-cubic",
        ),
    ),
}
#: The six paths that its emulators were calibrated on, and the replication error that it gives (figure 4), in percent.
CALIBRATED = {
    "pantheon-calibrated-1-nepal-to-india": 19.1,
    "pantheon-calibrated-2-mexico-cellular-to-california": 25.1,
    "pantheon-calibrated-3-brazil-to-colombia-cellular": 13.0,
    "pantheon-calibrated-4-india-to-aws-india": 15.6,
    "pantheon-calibrated-5-korea-to-china": 17.7,
    "pantheon-calibrated-6-california-to-mexico": 12.7,
}
CHINA, COLOMBIA = list(CALIBRATED)[4], list(CALIBRATED)[2]
#: A path without a queue or a delay cannot be run; what stands for "no delay".
_NO_DELAY = "1 ms"
#: The steps of figure 5: name, keys of the China path so far, and the paper's error in percent.
CHINA_STEPS: tuple[tuple[str, Mapping[str, object], float], ...] = (
    ("rate alone", {}, 211.8),
    ("and delay", {"delay": "51 ms"}, 189.7),
    ("and queue", {"delay": "51 ms", "queue": "94 packets"}, 32.3),
    ("and loss", {"delay": "51 ms", "queue": "94 packets", "loss": 0.0006}, 17.7),
)
#: The same of the Colombia path: a constant rate, and deliveries by a Poisson process.
COLOMBIA_STEPS = (("constant rate", "3.01 Mbit/s", 23.7), ("Poisson", None, 13.0))
#: Of the error that the paper has on average over its paths, in percent.
MEAN_ERROR = 17.0
#: Paths are calibrated on four schemes, and judged by all; fast ones on short runs: hundreds of candidates are simulated.
_CALIBRATING_S, _CALIBRATING = 10.0, ("cubic", "bbr", "vegas", "copa")
#: Seeds of the second measurement, "two days later".
_LATER = 1000
SINGLE, THREE = "one flow", "three flows"


@dataclass(frozen=True)
class Parts:
    """The plans of the findings.

    Attributes:
        main: all paths, forward, one flow and three.
        reverse: the calibrated paths, the other way round.
        later: the calibrated paths again, with other seeds.
        ablation: the paths of figure 5.
        calibrating: what the calibrated paths are calibrated on.

    """

    main: Plan
    reverse: Plan
    later: Plan
    ablation: Plan
    calibrating: tuple[Plan, ...]

    def all(self) -> tuple[Plan, ...]:
        """In the order in which they are run."""
        return self.main, self.reverse, self.later, self.ablation, *self.calibrating


def parts(world: World, runs: int, duration_s: float, seed: int) -> Parts:
    """The plans of a backend."""
    every = {name: Path.load(name) for name in sorted(built_in(), key=_number) if _is_ours(name)}
    calibrated = {name: every[name] for name in CALIBRATED}
    three = workloads.staggered(THREE, 3, duration_s / 6, duration_s)
    one = workloads.single(SINGLE)

    def made(
        name: str, paths: Mapping[str, Path], of: tuple[workloads.Workload, ...], first_seed: int
    ) -> Plan:
        return Plan(
            name, SCHEMES[world], paths, of, runs=runs, duration_s=duration_s, seed=first_seed
        )

    back = made("the other direction", calibrated, (one,), seed)
    slow, fast = list(CALIBRATED)[:3], list(CALIBRATED)[3:]
    few = [name for name in SCHEMES[world] if name.rpartition("-")[2] in _CALIBRATING]
    return Parts(
        made("Pantheon's findings", every, (one, three), seed),
        replace(back, directions=("reverse",)),
        made("two days later", {f"{name}, later": path for name, path in calibrated.items()},
             (one,), seed + _LATER),
        made("ablation", {**china(), **colombia()}, (one,), seed + 2 * _LATER),
        tuple(
            replace(
                made("calibrating", {f"{name}, calibrating": calibrated[name] for name in names},
                     (one,), seed + 3 * _LATER).with_schemes(few),
                duration_s=min(duration_s, longest_s),
            )
            for names, longest_s in ((slow, duration_s), (fast, _CALIBRATING_S))
        ),
    )  # fmt: skip


def _is_ours(name: str) -> bool:
    return name.startswith("pantheon-")


def _number(name: str) -> int:
    return next((int(part) for part in name.split("-") if part.isdecimal()), 0)


def china() -> dict[str, Path]:
    """The China path with more and more of its parameters."""
    bare = Path.parse(f"delay = '{_NO_DELAY}'\n").replace(rate="77.72 Mbit/s", queue="unlimited")
    return {
        f"China, {name}": bare.replace(**keys) if keys else bare for name, keys, _ in CHINA_STEPS
    }


def colombia() -> dict[str, Path]:
    """The Colombia path with a constant rate, and as it is."""
    whole = Path.load(COLOMBIA)
    return {
        f"Colombia, {name}": whole if rate is None else whole.replace(rate=rate)
        for name, rate, _ in COLOMBIA_STEPS
    }


def replication_error(truth: Block, other: Block) -> float | None:
    """The mean difference of schemes' mean throughput and 95th-percentile delay, in percent (section 5.2).

    Args:
        truth: what they got over the path that is replicated.
        other: what they got over the one that replicates it.

    """
    differences = []
    for row in truth.rows:
        beside = other.row(row.scheme)
        if beside is None:
            continue
        for metric in ("throughput_bps", "delay_p95_ms"):
            if metric in row.metrics and metric in beside.metrics and row.metrics[metric].mean > 0:
                there, here = row.metrics[metric].mean, beside.metrics[metric].mean
                differences.append(100 * abs(here - there) / there)
    return sum(differences) / len(differences) if differences else None


def imitations(
    flows: Mapping[tuple[str, str], Sequence[FlowMeasure]],
    runs_as: Mapping[str, str],
    seed: int,
    folder: FilePath,
    progress: Callable[[float], None],
) -> dict[str, Path]:
    """Calibrate a path on what the schemes got over each of the six (`pathcast calibrate`).

    Args:
        flows: by path and scheme, the flows of the runs to calibrate on.
        runs_as: the simulator's name of each scheme.
        seed: of the simulations.
        folder: keeps the paths, which are not calibrated again.
        progress: receives how many paths are done.

    Returns:
        The paths that were found, by the name of the one they imitate; without those that cannot be.

    Raises:
        PathcastError: a path cannot be written.

    """
    made: dict[str, Path] = {}
    for number, name in enumerate(CALIBRATED):
        measured = [
            Measurement(
                scheme=runs_as[scheme],
                flows=1,
                duration_s=flow.end_s - flow.start_s,
                goodput_bps=flow.throughput_bps * _PAYLOAD,
                delay_p95_s=1e-3 * flow.delay_ms["p95"],
                loss=flow.loss,
            )
            for (path, scheme), several in sorted(flows.items())
            if path.removesuffix(", calibrating") == name and scheme in runs_as
            for flow in several
            if flow.throughput_bps and flow.delay_ms
        ]
        digest = fingerprint([[vars(one) for one in measured], seed])[:12]
        file = make_folder(folder) / f"{name}-{digest}.toml"
        with contextlib.suppress(ModelError):
            if not file.exists():
                calibrate_several(
                    measured,
                    seed=seed,
                    without=False,
                    progress=lambda part, number=number: progress(number + part),  # type: ignore[misc]
                ).write(file)
            made[name] = Path.load(file)
        progress(number + 1)
    return made


#: Payload of TCP in a packet of 1500 bytes.
_PAYLOAD = 1448 / 1500


def claims(
    main: Sequence[Block],
    reverse: Sequence[Block],
    later: Sequence[Block],
    ablation: Sequence[Block],
    replicated: Sequence[Block],
) -> list[Claim]:
    """Judge the findings by what was measured."""
    single = {block.path: block for block in main if block.workload == SINGLE}
    three = {block.path: block for block in main if block.workload == THREE}
    return [
        *_winners(single),
        _directions(single, {block.path: block for block in reverse}),
        _numbers_of_flows(single, three),
        _unfairness(three),
        _time(single, {block.path.removesuffix(", later"): block for block in later}),
        _replications(
            single, {block.path.removesuffix(", replicated"): block for block in replicated}
        ),
        *_ablations(single, {block.path: block for block in ablation}),
        wanted(
            "the tunnel changes nothing: distributions inside and outside",
            "two-sample K-S tests of CUBIC, Vegas and BBR, 50 runs each: none below p = 0.2",
            "not measured here, for the emulator needs no tunnel: benches/tunnel.py measures it",
            None,
        ),
    ]


def _winners(single: Mapping[str, Block]) -> list[Claim]:
    found = []
    for metric, word in (("throughput_bps", "throughput"), ("power", "power")):
        wins: dict[str, int] = {}
        for block in single.values():
            for scheme in block.best(metric):
                wins[scheme] = wins.get(scheme, 0) + 1
        most = max(wins.values(), default=0)
        got = ", ".join(f"{name} {wins[name]}" for name in sorted(wins, key=lambda one: -wins[one]))
        found.append(
            wanted(
                f"no scheme wins everywhere, by {word}",
                "PCC: 80 % of the best throughput on one path at 20 times the lowest delay, 52 % on another with the lowest",
                f"of {len(single)} paths, best or not significantly worse: {got}",
                most < len(single) if wins else None,
            )
        )
    return found


def _changed(one: Mapping[str, Block], other: Mapping[str, Block]) -> tuple[list[str], int]:
    """The paths whose best schemes by power differ, and how many both have."""
    both = [name for name in one if name in other]
    changed = [
        f"{name}: {', '.join(one[name].best('power'))} against {', '.join(other[name].best('power'))}"
        for name in both
        if not set(one[name].best("power")) & set(other[name].best("power"))
    ]
    return changed, len(both)


def _directions(single: Mapping[str, Block], reverse: Mapping[str, Block]) -> Claim:
    changed, both = _changed(single, reverse)
    return wanted(
        "the direction changes the winner, by power",
        "Brazil to Colombia QUIC dominates Vegas; back, Vegas has slightly less throughput and 9 times less delay",
        f"the winners differ on {len(changed)} of {both} paths",
        bool(changed) if both else None,
        changed,
    )


def _numbers_of_flows(single: Mapping[str, Block], three: Mapping[str, Block]) -> Claim:
    changed, both = _changed(single, three)
    return wanted(
        "the number of flows changes the winner, by power",
        "with three flows PCC and CUBIC dominate Vegas, unlike with one; the effect is modest",
        f"the winners differ on {len(changed)} of {both} paths",
        bool(changed) if both else None,
        changed,
    )


def _unfairness(three: Mapping[str, Block]) -> Claim:
    worst: tuple[float, str, str] = (0.0, "", "")
    least: dict[str, list[float]] = {}
    for block in three.values():
        for row in block.rows:
            if "jain" in row.metrics:
                least.setdefault(row.scheme, []).append(row.metrics["jain"].mean)
            rates = sorted(flow_rates_together([one for one in row.flows if one.under_test]))
            if "vivace" in row.scheme and len(rates) > 1 and rates[0] > 0:
                worst = max(worst, (rates[-1] / rates[0], row.scheme, block.path))
    jain = {name: sum(values) / len(values) for name, values in least.items()}
    got = ", ".join(f"{name} {jain[name]:.2f}" for name in sorted(jain, key=lambda one: jain[one]))
    ratio = f"; {worst[1]} up to {worst[0]:.1f}:1 on {worst[2]}" if worst[1] else ""
    return wanted(
        "schemes that leave traditional congestion control are unfair in some places",
        "three PCC flows share a path 32:4:1",
        f"mean Jain's index of three flows: {got}{ratio}",
        worst[0] > 4 if worst[1] else None,
    )


def _time(single: Mapping[str, Block], later: Mapping[str, Block]) -> Claim:
    differ, tested = [], 0
    for name, block in later.items():
        for row in block.rows:
            first = single[name].row(row.scheme) if name in single else None
            for metric in ("throughput_bps", "delay_p95_ms"):
                if first is None or len(row.values.get(metric, ())) < 2:
                    continue
                tested += 1
                if welch_p(first.values[metric], row.values[metric]) * _TESTED < _LEVEL:
                    differ.append(f"{row.scheme} on {name}: {metric}")
    return wanted(
        "what a real path does two days later, an emulated one must not: measured again, it is the same",
        "two days later Vegas has 23 % less throughput and less than half the delay",
        f"{len(differ)} of {tested} means differ significantly",
        not differ if tested else None,
        differ,
    )


#: Level of a test, by Bonferroni over so many.
_LEVEL, _TESTED = 0.05, 2 * 6 * 7


def _replications(single: Mapping[str, Block], replicated: Mapping[str, Block]) -> Claim:
    errors = {
        name: error
        for name, block in replicated.items()
        if name in single and (error := replication_error(single[name], block)) is not None
    }
    mean = sum(errors.values()) / len(errors) if errors else None
    paper = ", ".join(f"{_number(name)}: {error}" for name, error in CALIBRATED.items())
    shown = ", ".join(f"{_number(name)}: {error:.1f}" for name, error in errors.items())
    return wanted(
        f"a path calibrated on what four schemes got replicates all to within {MEAN_ERROR:g} % on average",
        f"error in percent by path: {paper}",
        "not measured" if mean is None else f"mean {mean:.1f}; by path: {shown}",
        None if mean is None else mean <= MEAN_ERROR,
    )


def ablation_errors(
    single: Mapping[str, Block], ablation: Mapping[str, Block]
) -> dict[str, float | None]:
    """The replication error of each step of figure 5, against the whole path."""
    return {
        name: replication_error(single[CHINA if name.startswith("China") else COLOMBIA], block)
        for name, block in ablation.items()
    }


def _ablations(single: Mapping[str, Block], ablation: Mapping[str, Block]) -> list[Claim]:
    errors = ablation_errors(single, ablation)
    found = []
    for place, steps in (
        ("China", [(name, paper) for name, _, paper in CHINA_STEPS]),
        ("Colombia", [(name, paper) for name, _, paper in COLOMBIA_STEPS]),
    ):
        got = [errors.get(f"{place}, {name}") for name, _ in steps]
        known = [error for error in got if error is not None]
        falls = all(after < before for before, after in itertools.pairwise(known))
        found.append(
            wanted(
                f"each parameter makes the replication of the {place} path better",
                ", ".join(f"{name} {paper} %" for name, paper in steps),
                ", ".join(
                    f"{name} -" if error is None else f"{name} {error:.1f} %"
                    for (name, _), error in zip(steps, got, strict=True)
                ),
                falls if len(known) == len(steps) else None,
            )
        )
    return found


def ablation_table(single: Mapping[str, Block], ablation: Mapping[str, Block]) -> Table:
    """Figure 5, with the paper's errors beside."""
    paper = {f"China, {name}": error for name, _, error in CHINA_STEPS}
    paper |= {f"Colombia, {name}": error for name, _, error in COLOMBIA_STEPS}
    rows = [
        (name, "-" if error is None else f"{error:.1f}", f"{paper[name]:.1f}")
        for name, error in ablation_errors(single, ablation).items()
    ]
    return Table("ablation", ("path", "error here (%)", "error in the paper (%)"), tuple(rows))


__all__ = ["Parts", "ablation_table", "claims", "imitations", "parts"]
