"""What other schemes, workloads and windows would get over a path."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pathcast.batch import Results, Simulation, simulate_many
from pathcast.calibration import Calibration
from pathcast.calibration.result import paths_of
from pathcast.exceptions import ModelError, PathFileError, SchemeError
from pathcast.path import Path
from pathcast.scenario import Scenario, with_receive_window
from pathcast.trace import Column

#: Seconds of flows without an end, and how many times as long others may take.
DURATION_S = 30.0
LONGEST = 20.0
#: Paths drawn from a posterior, each run with a seed of its own.
DRAWS = 60
#: Standard deviation of logarithms, simulator against kernel: of 124 cells 121 agree within 5 % in goodput, and lossy
#: ones on average within 2 to 5 % in the 95th percentile of delay (docs/results/simulator-grid.md).
_AGREEMENT = {"goodput_bps": 0.02, "delay_p95_ms": 0.03, "loss": 0.05, "completion_s": 0.02}
#: Seconds for which other traffic of a scenario runs before the flows that are compared start.
HEAD_START_S = 5.0
#: Parts of the longest time that alternatives with an end are given one after another beside flows without one: most are done
#: soon, and what others send after that says nothing of them.
_PARTS = (0.05, 0.25, 1.0)
#: Copies of each draw, by which that widens an interval.
_COPIES = 50
#: Probability of being the better one from which on that is sure.
SURE = 0.95

#: What an alternative is called in errors.
_ALTERNATIVE = "alternative"

#: What configurations are ranked by, and whether more is better.
METRICS = {"goodput_bps": True, "delay_p95_ms": False, "loss": False, "completion_s": False}
#: What each quantity is called, its unit, and how many of them its own unit makes.
QUANTITIES = {
    "goodput_bps": ("goodput", "Mbit/s", 1e-6),
    "delay_p95_ms": ("95 % one-way delay", "ms", 1.0),
    "loss": ("loss", "%", 100.0),
    "completion_s": ("completion time", "s", 1.0),
}


@dataclass(frozen=True)
class Alternative:
    """One configuration.

    Attributes:
        scheme: congestion control, such as `bbr` or `quic-cubic`.
        workload: what each flow sends, as a TOML value.
        initial_window: packets; None: the scheme's.
        flows: how many of them at once.

    """

    scheme: str
    workload: str = "'bulk'"
    initial_window: int | None = None
    flows: int = 1

    def scenario(
        self, path: Path | Scenario, receive_window: str | None = None, *, opens: bool = False
    ) -> Scenario:
        """Return it over a path; beside the flows of a scenario, 5 s after their start, as its last flows.

        Args:
            path: or what else is on it.
            receive_window: what its receiver takes if it is over TCP, as in a scenario file; None: it is never in the way.
            opens: beside the flows of a scenario, its connections open over the path when it starts.

        Raises:
            PathFileError: the workload or a value is not valid.

        """
        scenario = self._beside(path, opens) if isinstance(path, Scenario) else self._alone(path)
        begin = len(path.schemes) if isinstance(path, Scenario) else 0
        return with_receive_window(scenario, receive_window, begin)

    def _alone(self, path: Path) -> Scenario:
        scenario = Scenario.over(path, [self.scheme] * self.flows, self.workload)
        if self.initial_window is not None:
            for number in range(self.flows):
                scenario = scenario.replace_flow(number, initial_window=self.initial_window)
        return scenario

    def _beside(self, others: Scenario, opens: bool) -> Scenario:
        try:
            sends: dict[str, object] = tomllib.loads(f"workload = {self.workload}")
        except tomllib.TOMLDecodeError as error:
            raise PathFileError(
                f"workload: got {self.workload}, expected a TOML value ({error})"
            ) from None
        keys = sends | {"scheme": self.scheme, "count": self.flows, "start": f"{HEAD_START_S:g} s"}
        if self.initial_window is not None:
            keys["initial_window"] = self.initial_window
        if opens and self.scheme != "udp":
            keys["handshake"] = True
        return others.with_flow(**keys)

    def __str__(self) -> str:
        words = [self.scheme]
        if self.flows > 1:
            words.insert(0, f"{self.flows} x")
        if self.initial_window is not None:
            words.append(f"with an initial window of {self.initial_window}")
        if self.workload.strip("'\"") != "bulk":
            words.append(self.workload)
        return " ".join(words)


@dataclass(frozen=True)
class Interval:
    """A quantity over all draws of the path: chance, what is not known of the path, and how the simulator and the kernel
    differ.

    Attributes:
        median: of the draws.
        p5: their 5 % quantile.
        p95: their 95 % quantile.

    """

    median: float
    p5: float
    p95: float

    def text(self, scale: float = 1.0) -> str:
        """Return it as tables have it, in a unit of which `scale` make one; empty if the median is not finite."""
        median, p5, p95 = (scale * one for one in (self.median, self.p5, self.p95))
        if not math.isfinite(median):
            return ""
        return f"{median:.3g} ({p5:.3g} to {p95:.3g})"


@dataclass(frozen=True)
class Outcome:
    """What an alternative would get.

    Attributes:
        alternative: the configuration.
        goodput_bps: of all its flows together.
        delay_p95_ms: 95th percentile of the one-way delay of its data packets.
        loss: part of its data packets that is dropped.
        completion_s: until all its flows have sent what they have; None for flows without an end, and where more than
            one draw in twenty is not done in time.
        draws: each quantity by draw; NaN where there is none; shape of each n.

    """

    alternative: Alternative
    goodput_bps: Interval
    delay_p95_ms: Interval
    loss: Interval
    completion_s: Interval | None
    draws: dict[str, Column]

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        found = {name: getattr(self, name) for name in METRICS}
        return vars(self.alternative) | {
            name: None if one is None else vars(one) for name, one in found.items()
        }


@dataclass(frozen=True)
class WhatIf:
    """Alternatives over one path, compared draw by draw.

    Attributes:
        outcomes: in the order asked.
        by: what they are ranked by.
        ranking: numbers of the outcomes, the best first.
        better: probability that one outcome is better than another; shape n x n.

    """

    outcomes: tuple[Outcome, ...]
    by: str
    ranking: tuple[int, ...]
    better: Column

    @property
    def best(self) -> int:
        """The number of the best alternative."""
        return self.ranking[0]

    @property
    def sure(self) -> bool:
        """Whether it is better than each other one with a probability of 95 % or more."""
        others = [i for i in self.ranking if i != self.best]
        return all(self.better[self.best, i] >= SURE for i in others)

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "alternatives": [one.to_dict() for one in self.outcomes],
            "by": self.by,
            "ranking": list(self.ranking),
            "better": self.better.tolist(),
            "best": self.best,
            "sure": self.sure,
        }


def check_alternatives(alternatives: Sequence[Alternative], by: str | None = None) -> None:
    """Refuse alternatives and a ranking that `what_if` cannot run, before a path is known.

    Raises:
        SchemeError: the simulator has no such scheme.
        PathFileError: a workload or an initial window is not valid.
        ModelError: there is no such ranking.

    """
    if by is not None and by not in METRICS:
        raise ModelError(f"got {by!r}; expected one of {', '.join(METRICS)}")
    path = Path.parse("rate = '10 Mbit/s'\ndelay = '10 ms'\n", _ALTERNATIVE)
    try:
        simulations = [
            Simulation(replace(one, flows=1).scenario(path), duration_s=0.001)
            for one in alternatives
        ]
        simulate_many(simulations, threads=1)
    except (PathFileError, SchemeError) as error:
        # places in a text or a list that nobody wrote
        place = rf"^({_ALTERNATIVE}:\d+:\d+|simulation \d+): "
        raise type(error)(re.sub(place, "", str(error))) from None


def what_if(
    source: Path | Scenario | Calibration,
    alternatives: Sequence[Alternative],
    *,
    by: str | None = None,
    duration_s: float = DURATION_S,
    draws: int = DRAWS,
    seed: int = 1,
    threads: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> WhatIf:
    """Run each alternative over the path, or over paths drawn from a calibration, in the simulator.

    Draw k of each alternative has the same path and the same seed, so that alternatives are compared on equal paths.

    Args:
        source: a path that is known, or a scenario whose flows compete with the alternatives, or a calibration.
        alternatives: at least one.
        by: `goodput_bps`, `delay_p95_ms`, `loss` or `completion_s`; by default the completion where all have one, else
            the goodput.
        duration_s: of flows without an end; others may take 20 times as long.
        draws: runs of each alternative.
        seed: of the draws.
        threads: how many run at once; by default one for each core.
        progress: called with the part of the work that is done, 0 to 1.

    Raises:
        ModelError: there is no alternative, or none has what `by` asks for.
        PathFileError: a workload or a window is not valid.
        SchemeError: the simulator has no such scheme.

    Example:
        >>> import pathcast
        >>> path = pathcast.Path.parse("rate = '20 Mbit/s'\\ndelay = '20 ms'\\nloss = 0.01")
        >>> schemes = [pathcast.Alternative(name) for name in ("cubic", "bbr")]
        >>> pathcast.what_if(path, schemes, draws=5, duration_s=5).best
        1

    """
    if not alternatives:
        raise ModelError("got no alternative; expected at least one scheme")
    if by is not None and by not in METRICS:
        raise ModelError(f"got {by!r}; expected one of {', '.join(METRICS)}")
    paths, receive_window = paths_of(source, draws, seed)
    opens = isinstance(source, Calibration) and source.opens
    simulations = [
        Simulation(
            one.scenario(path, receive_window, opens=opens),
            duration_s=(duration_s if is_endless(one) else LONGEST * duration_s)
            + (HEAD_START_S if isinstance(path, Scenario) else 0.0),
            seed=seed + number,
        )
        for one in alternatives
        for number, path in enumerate(paths)
    ]
    flows = np.repeat([one.flows for one in alternatives], draws)
    may_end = np.repeat([not is_endless(one) for one in alternatives], draws)
    is_shared = np.tile([isinstance(path, Scenario) for path in paths], len(alternatives))
    got = _simulated(simulations, flows, may_end & is_shared, threads, progress)
    outcomes = _outcomes(got, alternatives, draws)
    if by is None:
        complete = all(one.completion_s is not None for one in outcomes)
        by = "completion_s" if complete else "goodput_bps"
    elif any(getattr(one, by) is None for one in outcomes):
        raise ModelError(
            f"an alternative has no {by}: it has no end, or is not done within the time given"
        )
    values = np.array([one.draws[by] for one in outcomes])
    sign = 1.0 if METRICS[by] else -1.0
    values = np.where(np.isnan(values), -math.inf, sign * values)
    better = np.array([[_share_better(mine, other) for other in values] for mine in values])
    medians = [float(np.median(one)) for one in values]
    ranking = sorted(range(len(outcomes)), key=lambda i: (-medians[i], i))
    return WhatIf(outcomes, by, tuple(ranking), better)


def is_endless(alternative: Alternative) -> bool:
    """Whether its flows send for the whole time given."""
    return alternative.workload.strip().strip("'\"") == "bulk"


def _share_better(mine: Column, other: Column) -> float:
    """How often one is better than another; equal ones count half."""
    return float(np.mean(mine > other) + np.mean(mine == other) / 2)


def _simulated(
    simulations: Sequence[Simulation],
    flows: np.ndarray,
    in_parts: np.ndarray,
    threads: int | None,
    progress: Callable[[float], None] | None,
) -> dict[str, Column]:
    """Run simulations; return what their last flows get, by metric, shape n of each.

    Args:
        simulations: n of them.
        flows: how many of the last flows of each count; shape n.
        in_parts: those that are first run for a part of their time, and to their end unless their flows are done then; shape
            n.
        threads: number of simulations that run at once; None: as many as there are cores.
        progress: called with the part of the work that is done.

    """
    values = {name: np.full(len(simulations), np.nan) for name in METRICS}
    left, before = np.arange(len(simulations)), 0.0
    for part in _PARTS if in_parts.any() else (1.0,):
        tried = [
            _shortened(simulations[i], part) if in_parts[i] else simulations[i]
            for i in left.tolist()
        ]
        # those that are left take longer than those before
        share = (1.0 - before) * (0.5 if part < 1 else 1.0) / len(left)
        tell = _later(progress, before, share) if progress else None
        found = _of_flows(simulate_many(tried, threads=threads, progress=tell), flows[left])
        for name, column in found.items():
            values[name][left] = column
        before += share * len(left)
        left = left[in_parts[left] & np.isnan(found["completion_s"])]
        if not len(left):
            break
    if progress:
        progress(1.0)
    return values


def _later(
    progress: Callable[[float], None], before: float, share: float
) -> Callable[[float], None]:
    return lambda done: progress(before + share * done)


def _shortened(simulation: Simulation, part: float) -> Simulation:
    """Let flows that start after the head start have a part of their time."""
    rest_s = (simulation.duration_s or 0.0) - HEAD_START_S
    return replace(simulation, duration_s=HEAD_START_S + part * rest_s)


def _of_flows(results: Results, flows: np.ndarray) -> dict[str, Column]:
    """Return what the last flows of each simulation get, so many of each, by metric."""
    columns = {
        name: results.column(name)
        for name in (
            "simulation",
            "goodput_bps",
            "start_s",
            "completed_s",
            "group_loss_rate",
            "group_one_way_delay_p95_ms",
        )
    }
    # rows are in the order of the simulations
    ends = np.searchsorted(columns["simulation"], np.arange(len(flows)), side="right")
    rows = [np.arange(end - count, end) for end, count in zip(ends, flows, strict=True)]
    took_s = columns["completed_s"] - columns["start_s"]
    return {
        "goodput_bps": np.array([columns["goodput_bps"][own].sum() for own in rows]),
        "delay_p95_ms": columns["group_one_way_delay_p95_ms"][ends - 1],
        "loss": columns["group_loss_rate"][ends - 1],
        "completion_s": np.array([took_s[own].max() for own in rows]),
    }


def _outcomes(
    values: dict[str, Column], alternatives: Sequence[Alternative], draws: int
) -> tuple[Outcome, ...]:
    found = []
    for i, alternative in enumerate(alternatives):
        by_draw = {name: column[i * draws : (i + 1) * draws] for name, column in values.items()}
        done = np.mean(~np.isnan(by_draw["completion_s"])) >= SURE
        intervals = {
            name: _interval(values, _AGREEMENT[name])
            for name, values in by_draw.items()
            if name != "completion_s" or done
        }
        found.append(
            Outcome(
                alternative,
                intervals["goodput_bps"],
                intervals["delay_p95_ms"],
                intervals["loss"],
                intervals.get("completion_s"),
                by_draw,
            )
        )
    return tuple(found)


def _interval(values: Column, deviation: float) -> Interval:
    """Summarize draws, each of them as uncertain as the simulator itself."""
    noise = np.random.default_rng(len(values)).standard_normal((_COPIES, len(values)))
    p5, p95 = np.nanquantile(values * np.exp(deviation * noise), [0.05, 0.95])
    return Interval(float(np.nanmedian(values)), float(p5), float(p95))
