"""Probes of one flow of a scenario, in the simulator and in the emulator."""

from __future__ import annotations

import itertools
import math
import re
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from pathcast import _internal, runs
from pathcast.attainable_rate.probes import (
    ATTEMPTS,
    MESSAGE_BITS,
    QUIC_MESSAGE_BITS,
    Plan,
    Progress,
    Train,
    at_random,
    check,
    counted,
    of_messages,
)
from pathcast.exceptions import EmulatorError, ProbingError, translated
from pathcast.extras import need
from pathcast.scenario import Scenario
from pathcast.trace import Trace


@dataclass(frozen=True)
class ScenarioProber(ABC):
    """A flow of a scenario that sends the trains, beside whatever else the scenario has.

    Attributes:
        scenario: of which the flow called by `flow` must have a workload of constant rate over TCP; it sends from the
            beginning to the end, whatever it says.
        flow: its number, from 0.

    """

    scenario: Scenario
    flow: int = 0
    _rate_at: tuple[int, int] = field(init=False, repr=False)
    _message: float = field(init=False, repr=False)

    unit = "bit"

    @property
    def message(self) -> float:
        """Payload of one write, in bits."""
        return self._message

    def __post_init__(self) -> None:
        toml = _begun(self.scenario.toml, self.flow)
        object.__setattr__(self, "scenario", Scenario.parse(toml, self.scenario.file))
        object.__setattr__(self, "_rate_at", _rate_of(self.scenario.toml, self.flow))
        object.__setattr__(self, "_message", _message_of(self.scenario.toml, self.flow))

    def describe(self) -> dict[str, Any]:
        """What is probed; JSON."""
        begin, end = self._rate_at
        toml = self.scenario.toml
        return {
            "world": self._world(),
            "scenario": toml[:begin] + "RATE" + toml[end:],
            "flow": self.flow,
        }

    @abstractmethod
    def _world(self) -> str:
        """Where it runs."""

    def _at(self, rate_bps: float) -> Scenario:
        begin, end = self._rate_at
        toml = self.scenario.toml
        return Scenario.parse(f"{toml[:begin]}{rate_bps:.3f} bit/s{toml[end:]}", self.scenario.file)

    def greedy(self, duration_s: float, seed: int) -> float:
        """What the flow gets when it sends as much as is taken, in bits a second from its start on.

        Raises:
            EmulatorError: the emulator cannot run here, or the run slipped.
            SimulationError: nothing that is sent arrives.

        """
        begin, end = _workload_of(self.scenario.toml, self.flow)
        toml = self.scenario.toml
        greedy = Scenario.parse(f"{toml[:begin]}'bulk'{toml[end:]}", self.scenario.file)
        return self._run(greedy, duration_s, seed).flows[self.flow].goodput_bps

    def least_s(self, rate: float) -> float:
        """Nothing is known of it."""
        del rate
        return 0.0

    @abstractmethod
    def _run(self, scenario: Scenario, duration_s: float, seed: int) -> runs.RunReport:
        """Runs a scenario there; raises if the run cannot be used."""


def _begun(toml: str, flow: int) -> str:
    """The scenario with this flow sending from beginning to end: when it starts is the warm-up's business."""
    at, _ = _workload_of(toml, flow)
    begin = toml.rindex("[[flows]]", 0, at)
    end = toml.find("[[flows]]", at)
    end = len(toml) if end < 0 else end
    table = re.sub(r"(?m)^(start|stop) = .*\n", "", toml[begin:end])
    return toml[:begin] + table.rstrip() + '\nstart = "0 s"\n\n' + toml[end:]


def _rate_of(toml: str, flow: int) -> tuple[int, int]:
    """Where the rate of a flow's workload stands in a scenario's text, all defaults being written out."""
    begin, end = _workload_of(toml, flow)
    rate = re.search(r'\brate = "([^"]*)"', toml[begin:end])
    if not re.search(r'\bkind = "constant-rate"', toml[begin:end]) or rate is None:
        raise ProbingError(
            f"flow {flow} of the scenario does not probe, expected workload = {{ kind = 'constant-rate', rate = ... }}"
        )
    return begin + rate.start(1), begin + rate.end(1)


def _message_of(toml: str, flow: int) -> float:
    """What a flow writes at once, in bits."""
    begin, end = _workload_of(toml, flow)
    portion = re.search(r'\bportion = "(\d+) (B|kB|MB)"', toml[begin:end])
    assert portion is not None, "defaults are written out"  # noqa: S101
    return 8.0 * int(portion[1]) * {"B": 1, "kB": 1_000, "MB": 1_000_000}[portion[2]]


def probing(scheme: str, message_bits: int | None = None) -> str:
    """The workload of a flow of this scheme that probes, in TOML: writes of one full packet each, if not told otherwise."""
    if message_bits is None:
        message_bits = QUIC_MESSAGE_BITS if scheme.startswith("quic-") else MESSAGE_BITS
    return f"{{ kind = 'constant-rate', rate = '1 Mbit/s', portion = '{message_bits // 8} B' }}"


def _workload_of(toml: str, flow: int) -> tuple[int, int]:
    """Where the workload of a flow stands in a scenario's text."""
    tables = [match.start() for match in re.finditer(r"(?m)^\[\[flows\]\]$", toml)]
    number = 0
    for begin, end in itertools.pairwise([*tables, len(toml)]):
        text = toml[begin:end]
        counted = re.search(r"(?m)^count = (\d+)$", text)
        count = 1 if counted is None else int(counted[1])
        if number <= flow < number + count:
            if count > 1:
                raise ProbingError(
                    f"flow {flow} of the scenario is one of {count} that are alike, expected one alone"
                )
            if re.search(r'(?m)^scheme = "udp"$', text):
                raise ProbingError(
                    f"flow {flow} of the scenario has no flow control (udp), expected a scheme of TCP or QUIC"
                )
            workload = re.search(r"(?m)^workload = (.*)$", text)
            assert workload is not None, "defaults are written out"  # noqa: S101
            return begin + workload.start(1), begin + workload.end(1)
        number += count
    raise ProbingError(f"the scenario has no flow {flow} to probe with, expected 0 to {number - 1}")


def _of_time(progress: Progress | None, plan: Plan) -> Progress | None:
    """The same told in seconds of the run."""
    return None if progress is None else lambda now_s: progress(min(1.0, now_s / plan.lasts_s))


@dataclass(frozen=True)
class SimulatedProber(ScenarioProber):
    """Probes a scenario in the simulator."""

    real_time = False
    resolution_s = 1e-9
    longest_s = math.inf

    def _world(self) -> str:
        return "simulator"

    def train(self, plan: Plan, progress: Progress | None = None) -> Train:
        """Sends one train; see `Plan`.

        Raises:
            ProbingError: no such train.
            SimulationError: nothing that is sent arrives.

        """
        check(plan)
        gap_s = self.message / plan.rate
        scenario = self._at(plan.rate)
        told = _of_time(progress, plan)
        with translated():
            _, found = _internal.simulate_probe(
                scenario.toml,
                scenario.file,
                plan.lasts_s,
                plan.seed,
                self.flow,
                plan.warm_up_s,
                counted(plan.every_s / gap_s) or 1,
                plan.window_every_s,
                told,
            )
        return of_messages(
            plan, gap_s, {name: found[name] for name in _TIMES}, found["window_packets"],
            found["buffered"] / max(found["packets"], 1),
        )  # fmt: skip

    def _run(self, scenario: Scenario, duration_s: float, seed: int) -> runs.RunReport:
        return runs.simulate(scenario, duration_s=duration_s, seed=seed, record=False)[0]


#: Columns of messages.
_TIMES = ("written_s", "entered_s", "sent_s", "left_s", "read_s")


class RealTimeProber(ScenarioProber):
    """A flow of kernels' TCP, or of QUIC; a train takes as long as it lasts."""

    real_time = True
    #: How late a run may be before it is not valid.
    resolution_s = 1e-3

    def train(self, plan: Plan, progress: Progress | None = None) -> Train:
        """Sends one train; see `Plan`. A run that slipped says so in `invalid_because`.

        Raises:
            ProbingError: no such train.
            EmulatorError: the emulator cannot run here.
            LiveError: the server of a real path does not answer, or refuses.

        """
        check(plan)
        parquet = need("pyarrow.parquet", "probing", "probing in real time", ProbingError)
        gap_s = self.message / plan.rate
        told = _of_time(progress, plan)
        with tempfile.TemporaryDirectory(prefix="pathcast-") as name:
            file = FilePath(name) / "messages.parquet"
            report, trace, notes = self._send(plan, file, told)
            table = parquet.read_table(file)
        column = {name: table[name].to_numpy() for name in table.column_names}
        ours = (column["flow"] == self.flow) & (column["direction"] == 0)
        ours &= column["written_s"] >= plan.warm_up_s
        times = {name: column[name][ours] for name in _TIMES}
        if not len(times["written_s"]):
            raise ProbingError(
                f"no probe written after {plan.warm_up_s:g} s arrived within {plan.lasts_s:g} s"
            )
        # what waits for longer than a run may be late waits for the window
        buffered = float(np.mean(times["entered_s"] - times["written_s"] > self.resolution_s))
        flow = trace.columns["flow"] == self.flow
        grid = np.arange(plan.warm_up_s, plan.end_s, plan.window_every_s)
        at = np.searchsorted(trace.columns["time_s"][flow], grid, side="right") - 1
        windows = trace.columns["cwnd_packets"][flow][np.maximum(at, 0)]
        keep = at_random(len(times["written_s"]), max(1, round(plan.every_s / gap_s)), plan.seed)
        train = of_messages(
            plan, gap_s, times, windows, buffered, keep, tuple(report.invalid_because)
        )
        return replace(train, notes=notes)

    @abstractmethod
    def _send(
        self, plan: Plan, messages_file: FilePath, progress: Progress | None
    ) -> tuple[runs.RunReport, Trace, tuple[str, ...]]:
        """Runs the train: the report, the trace, and what there is to say of it."""


@dataclass(frozen=True)
class EmulatedProber(RealTimeProber):
    """Probes a scenario in the emulator, over the kernel's TCP or QUIC, in real time."""

    longest_s = math.inf

    def _world(self) -> str:
        return "emulator"

    def _send(
        self, plan: Plan, messages_file: FilePath, progress: Progress | None
    ) -> tuple[runs.RunReport, Trace, tuple[str, ...]]:
        report, trace = runs.emulate(
            self._at(plan.rate),
            duration_s=plan.lasts_s,
            seed=plan.seed,
            messages_file=messages_file,
            progress=progress,
        )
        return report, trace, ()

    def _run(self, scenario: Scenario, duration_s: float, seed: int) -> runs.RunReport:
        for again in range(ATTEMPTS):
            report, _ = runs.emulate(scenario, duration_s=duration_s, seed=seed + again)
            if report.valid:
                return report
        raise EmulatorError(
            f"{ATTEMPTS} runs cannot be used, the last: " + "; ".join(report.invalid_because)
        )
