"""Probes of one flow of a scenario, in the simulator and in the emulator."""

from __future__ import annotations

import math
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
    """A flow of a scenario that sends the trains, together with the scenario's other flows.

    Attributes:
        scenario: of which the flow called by `flow` must have a workload of constant rate over TCP; it sends from the
            beginning to the end, whatever it says.
        flow: its number, from 0.

    """

    scenario: Scenario
    flow: int = 0
    _message: float = field(init=False, repr=False)

    unit = "bit"

    @property
    def message(self) -> float:
        """Payload of one write, in bits."""
        return self._message

    def __post_init__(self) -> None:
        keys = _probing_flow(self.scenario, self.flow)
        # when it starts is the warm-up's business
        begun = self.scenario.replace_flow(self.flow, start="0 s", stop=None)
        object.__setattr__(self, "scenario", begun)
        object.__setattr__(self, "_message", 8.0 * _bytes(keys["workload"]["portion"]))

    def describe(self) -> dict[str, Any]:
        """What is probed, whatever the rate; JSON."""
        # one rate stands for all
        return {"world": self._world(), "scenario": self._at(1.0).toml, "flow": self.flow}

    @abstractmethod
    def _world(self) -> str:
        """Where it runs."""

    def _at(self, rate_bps: float) -> Scenario:
        workload = self.scenario.flow(self.flow)["workload"]
        probing = {**workload, "rate": f"{rate_bps:.3f} bit/s"}
        return self.scenario.replace_flow(self.flow, workload=probing)

    def greedy(self, duration_s: float, seed: int) -> float:
        """What the flow gets when it sends as much as is taken, in bits a second from its start on.

        Raises:
            EmulatorError: the emulator cannot run here, or the run is not valid.
            SimulationError: nothing that is sent arrives.

        """
        greedy = self.scenario.replace_flow(self.flow, workload="bulk")
        return self._run(greedy, duration_s, seed).flows[self.flow].goodput_bps

    def least_s(self, rate: float) -> float:
        """No minimum duration."""
        del rate
        return 0.0

    @abstractmethod
    def _run(self, scenario: Scenario, duration_s: float, seed: int) -> runs.RunReport:
        """Run a scenario there; raises if the run cannot be used."""


def _probing_flow(scenario: Scenario, flow: int) -> dict[str, Any]:
    """The keys of the flow that probes.

    Raises:
        ProbingError: there is no such flow, or it cannot probe.

    """
    try:
        keys = scenario.flow(flow)
    except IndexError:
        raise ProbingError(
            f"the scenario has no flow {flow} to probe with, expected 0 to {len(scenario.schemes) - 1}"
        ) from None
    count = keys.get("count", 1)
    if count > 1:
        raise ProbingError(
            f"flow {flow} of the scenario is one of {count} that are alike, expected one alone"
        )
    if keys["scheme"] == "udp":
        raise ProbingError(
            f"flow {flow} of the scenario has no flow control (udp), expected a scheme of TCP or QUIC"
        )
    workload = keys["workload"]
    if not isinstance(workload, dict) or workload["kind"] != "constant-rate":
        raise ProbingError(
            f"flow {flow} of the scenario does not probe, expected workload = {{ kind = 'constant-rate', rate = ... }}"
        )
    return keys


def _bytes(size: str) -> int:
    """A size as a scenario has it, all defaults being written out."""
    number, unit = size.split()
    return int(number) * {"B": 1, "kB": 1_000, "MB": 1_000_000}[unit]


def probing(scheme: str, message_bits: int | None = None) -> str:
    """The workload of a flow of this scheme that probes, in TOML: by default, each write is one full packet."""
    if message_bits is None:
        message_bits = QUIC_MESSAGE_BITS if scheme.startswith("quic-") else MESSAGE_BITS
    return f"{{ kind = 'constant-rate', rate = '1 Mbit/s', portion = '{message_bits // 8} B' }}"


def _of_time(progress: Progress | None, plan: Plan) -> Progress | None:
    """The same in seconds of the run."""
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
        """Send one train; see `Plan`.

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
                scenario._spec,
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
        """Send one train; see `Plan`. A run that is not valid gives the reasons in `invalid_because`.

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
        """Run the train: the report, the trace, and what there is to say of it."""


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
