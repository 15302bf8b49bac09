"""Trains of packets at a constant rate, and the worlds that carry them.

A prober sends a train and tells of some of its messages when they were written, where they spent their time and when
they arrived. There is one for window flow control alone, for a scenario in the simulator, and for a scenario in the
emulator. What a message is: a packet of the loop, a write of one full packet over TCP.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pathcast import _internal, runs
from pathcast.exceptions import EmulatorError, ProbingError, translated
from pathcast.scenario import Scenario

Floats = npt.NDArray[np.float64]
#: Told the share that is done, 0 to 1; may raise to stop.
Progress = Callable[[float], None]

#: Payload of a probe over TCP, in bits: a full packet.
MESSAGE_BITS = 8 * 1448
#: Trains of more messages than this are a mistake.
_MOST_MESSAGES = 10**13
#: A message may arrive this much before the one written before it, and clocks differ so much, in seconds.
_TOLERANCE_S = 1e-6


@dataclass(frozen=True)
class Train:
    """What is known of one train. Arrays have an entry for each message that was sampled.

    Attributes:
        rate: at which it was sent, in the prober's units a second.
        begin_s: from when on samples were taken, in seconds of the run.
        end_s: until when.
        written_s: when each was written, in seconds of the run.
        delay_s: from writing to reading, in seconds.
        sender_s: of it, what it spent in the sender's stack.
        network_s: in the network.
        receiver_s: in the receiver's stack.
        buffered: share of messages that waited for the window before they were first sent.
        messages: how many were written in that time and arrived.
        missing: how many of them did not arrive before the run ended.
        windows: congestion window at equal distances, in packets.
        window_every_s: these distances.
        invalid_because: why it must not be used; empty: it may.

    """

    rate: float
    begin_s: float
    end_s: float
    written_s: Floats
    delay_s: Floats
    sender_s: Floats
    network_s: Floats
    receiver_s: Floats
    buffered: float
    messages: int
    missing: int
    windows: Floats
    window_every_s: float
    invalid_because: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """How a train is sent.

    Attributes:
        rate: in the prober's units a second.
        warm_up_s: what passes before the first sample.
        duration_s: for how long samples are taken.
        every_s: from one sample to the next, on average.
        seed: of all that is random.
        window_every_s: from one look at the congestion window to the next; of a loop, which is looked at with each
            sample, nothing.

    """

    rate: float
    warm_up_s: float
    duration_s: float
    every_s: float
    seed: int
    window_every_s: float = 0.1

    @property
    def end_s(self) -> float:
        """When the last sample is written."""
        return self.warm_up_s + self.duration_s

    @property
    def lasts_s(self) -> float:
        """How long a run goes on so that what was written last may arrive."""
        return self.end_s + max(5.0, 0.02 * self.duration_s)


class Prober(Protocol):
    """Carries trains."""

    #: What rates count a second: `packets` or `bit`.
    unit: str
    #: What one message has of it.
    message: float
    #: Whether a train takes as long as it lasts.
    real_time: bool
    #: Delays are right to within so many seconds; what differs by less is the same.
    resolution_s: float

    def describe(self) -> dict[str, Any]:
        """What is probed, for people and as the fingerprint of what is kept; JSON."""

    def train(self, plan: Plan, progress: Progress | None = None) -> Train:
        """Sends one train."""

    def greedy(self, duration_s: float, seed: int) -> float:
        """What a source gets instead that always has something to send, in units a second."""

    def least_s(self, rate: float) -> float:
        """No shorter train tells anything, in seconds: rare events that are known would not be in it."""


def fingerprint(prober: Prober) -> str:
    """Tells one prober from another."""
    return hashlib.sha256(json.dumps(prober.describe(), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class WindowLoop:
    """Window flow control without a transport, as in section III-C: `crates/sim/src/window_loop`.

    Packets cross a network of a rate and a latency and are acknowledged after a delay; no more than a window of them
    are under way. The window is fixed, or, with marks, grows by one packet for each window of acknowledgments and is
    halved by a mark.

    Attributes:
        latency_s: of the network, in seconds.
        acknowledgment_s: of the way back.
        window_packets: the static window.
        mark_probability: instead, that a packet is marked, whatever the others.
        mark_every: instead, every so many packets.
        rate_pps: capacity in packets a second; None: no limit.
        fluid_steps: send trains as a fluid, in so many steps of a round trip, instead of packet by packet: delays are
            right to within some steps, and a hundred times as long trains take no longer. Only without a capacity.

    Example:
        >>> loop = WindowLoop(0.05, 0.05, window_packets=500, rate_pps=10_000)
        >>> train = loop.train(Plan(4_000, 1.0, 10.0, 0.1, seed=1))
        >>> bool(abs(train.delay_s - 0.0501).max() < 1e-9)
        True

    """

    latency_s: float
    acknowledgment_s: float
    window_packets: int | None = None
    mark_probability: float | None = None
    mark_every: int | None = None
    rate_pps: float | None = None
    fluid_steps: int | None = None

    unit = "packets"
    message = 1.0
    real_time = False
    resolution_s = 1e-9

    def _inner(self) -> _internal.WindowLoop:
        try:
            return _internal.WindowLoop(
                math.inf if self.rate_pps is None else self.rate_pps,
                self.latency_s,
                self.acknowledgment_s,
                self.window_packets,
                self.mark_probability,
                self.mark_every,
            )
        except (ValueError, OverflowError) as error:
            raise ProbingError(f"no such loop: {error}") from None

    def check(self) -> None:
        """Refuses a loop that cannot be.

        Raises:
            ProbingError: it says which number is wrong.

        """
        self._inner()

    def describe(self) -> dict[str, Any]:
        """What is probed; JSON."""
        return {"loop": {name: value for name, value in vars(self).items() if value is not None}}

    def train(self, plan: Plan, progress: Progress | None = None) -> Train:
        """Sends one train; see `Plan`.

        Raises:
            ProbingError: no such loop or train.

        """
        _check(plan)
        inner = self._inner()
        begin = plan.rate, plan.warm_up_s, plan.duration_s, plan.every_s
        try:
            if self.fluid_steps is not None:
                found = inner.probe_fluid(*begin, self.fluid_steps, plan.seed, progress)
            else:
                warm_up, packets, per_sample = (_count(plan.rate * span) for span in begin[1:])
                train = plan.rate, warm_up, max(packets, 1), max(per_sample, 1)
                found = inner.probe(*train, plan.seed, progress)
        except (ValueError, OverflowError) as error:
            raise ProbingError(f"no such train: {error}") from None
        delay_s, sender_s = found["delay_s"], found["sender_s"]
        return Train(
            plan.rate,
            plan.warm_up_s,
            plan.end_s,
            found["written_s"],
            delay_s,
            sender_s,
            delay_s - sender_s,
            np.zeros_like(delay_s),
            found["buffered"] / max(found["packets"], 1),
            found["packets"],
            0,
            found["window_packets"],
            plan.every_s,
        )

    def greedy(self, duration_s: float, seed: int) -> float:
        """What a source gets that always has a packet, in packets a second, over so many seconds.

        Raises:
            ProbingError: no such loop.

        """
        try:
            return self._inner().greedy_rate(duration_s, self.fluid_steps or 20, seed)
        except (ValueError, OverflowError) as error:
            raise ProbingError(f"no such train: {error}") from None

    def least_s(self, rate: float) -> float:
        """The time of 50 marks."""
        if self.mark_probability is None and self.mark_every is None:
            return 0.0
        return 50 * (self.mark_every or 1 / (self.mark_probability or 1)) / rate

    def carry(self, written_s: Floats, seed: int) -> Floats:
        """When each packet of an application arrives.

        Args:
            written_s: when each is written, in seconds, in order.
            seed: of the marks.

        Returns:
            Arrivals, in seconds. The window had lived for 50 marks before; nothing was under way.

        """
        warm_up = 0
        if self.mark_probability is not None or self.mark_every is not None:
            warm_up = _count(50 * (self.mark_every or 1 / (self.mark_probability or 1)))
            # no two flows begin in the same part of a period
            warm_up += int(np.random.default_rng(seed).integers(0, warm_up))
        try:
            return self._inner().carry(np.ascontiguousarray(written_s, float), warm_up, seed)
        except ValueError as error:
            raise ProbingError(f"no such packets: {error}") from None


def _count(value: float) -> int:
    if not value < _MOST_MESSAGES:
        raise ProbingError(
            f"{value:g} messages in one train are too many, expected at most {_MOST_MESSAGES:g}"
        )
    return round(value)


def _check(plan: Plan) -> None:
    for what, value in (
        ("rate", plan.rate),
        ("duration", plan.duration_s),
        ("distance of samples", plan.every_s),
        ("distance of looks at the window", plan.window_every_s),
    ):
        if not 0 < value < math.inf:
            raise ProbingError(f"the {what} of a train must be above 0 and finite, got {value:g}")
    if not 0 <= plan.warm_up_s < math.inf:
        raise ProbingError(f"the warm-up of a train must be 0 s or more, got {plan.warm_up_s:g}")


@dataclass(frozen=True)
class _ScenarioProber(ABC):
    """A flow of a scenario that sends the trains, beside whatever else the scenario has.

    Attributes:
        scenario: of which the flow called by `flow` must have a workload of constant rate over TCP; it sends from the
            beginning to the end, whatever it says.
        flow: its number, from 0.

    """

    scenario: Scenario
    flow: int = 0
    _rate_at: tuple[int, int] = field(init=False, repr=False)

    unit = "bit"
    message = float(MESSAGE_BITS)

    def __post_init__(self) -> None:
        toml = _begun(self.scenario.toml, self.flow)
        object.__setattr__(self, "scenario", Scenario.parse(toml, self.scenario.file))
        object.__setattr__(self, "_rate_at", _rate_of(self.scenario.toml, self.flow))

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
class SimulatedProber(_ScenarioProber):
    """Probes a scenario in the simulator."""

    real_time = False
    resolution_s = 1e-9

    def _world(self) -> str:
        return "simulator"

    def train(self, plan: Plan, progress: Progress | None = None) -> Train:
        """Sends one train; see `Plan`.

        Raises:
            ProbingError: no such train.
            SimulationError: nothing that is sent arrives.

        """
        _check(plan)
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
                _count(plan.every_s / gap_s) or 1,
                plan.window_every_s,
                told,
            )
        return _of_messages(
            plan, gap_s, {name: found[name] for name in _TIMES}, found["window_packets"],
            found["buffered"] / max(found["packets"], 1),
        )  # fmt: skip

    def _run(self, scenario: Scenario, duration_s: float, seed: int) -> runs.RunReport:
        return runs.simulate(scenario, duration_s=duration_s, seed=seed, record=False)[0]


#: Columns of messages.
_TIMES = ("written_s", "entered_s", "sent_s", "left_s", "read_s")


@dataclass(frozen=True)
class EmulatedProber(_ScenarioProber):
    """Probes a scenario in the emulator, over the kernel's TCP or QUIC, in real time."""

    real_time = True
    #: How late the emulator may be before a run is not valid.
    resolution_s = 1e-3

    def _world(self) -> str:
        return "emulator"

    def train(self, plan: Plan, progress: Progress | None = None) -> Train:
        """Sends one train; see `Plan`. A run that slipped says so in `invalid_because`.

        Raises:
            ProbingError: no such train.
            EmulatorError: the emulator cannot run here.

        """
        _check(plan)
        try:
            import pyarrow.parquet
        except ImportError:
            raise ProbingError(
                "probing in the emulator needs pyarrow, which is not here; pip install 'pathcast[cluster]' has it"
            ) from None
        gap_s = self.message / plan.rate
        told = _of_time(progress, plan)
        with tempfile.TemporaryDirectory(prefix="pathcast-") as name:
            file = FilePath(name) / "messages.parquet"
            report, trace = runs.emulate(
                self._at(plan.rate),
                duration_s=plan.lasts_s,
                seed=plan.seed,
                messages_file=file,
                progress=told,
            )
            table = pyarrow.parquet.read_table(file)
        column = {name: table[name].to_numpy() for name in table.column_names}
        ours = (column["flow"] == self.flow) & (column["direction"] == 0)
        ours &= column["written_s"] >= plan.warm_up_s
        times = {name: column[name][ours] for name in _TIMES}
        if not len(times["written_s"]):
            raise EmulatorError(
                f"no probe written after {plan.warm_up_s:g} s arrived within {plan.lasts_s:g} s"
            )
        # the emulator says how late it may be: what waits longer waits for the window
        slip_s = 1e-3
        buffered = float(np.mean(times["entered_s"] - times["written_s"] > slip_s))
        flow = trace.columns["flow"] == self.flow
        grid = np.arange(plan.warm_up_s, plan.end_s, plan.window_every_s)
        at = np.searchsorted(trace.columns["time_s"][flow], grid, side="right") - 1
        windows = trace.columns["cwnd_packets"][flow][np.maximum(at, 0)]
        keep = _at_random(len(times["written_s"]), max(1, round(plan.every_s / gap_s)), plan.seed)
        return _of_messages(
            plan, gap_s, times, windows, buffered, keep, tuple(report.invalid_because)
        )

    def _run(self, scenario: Scenario, duration_s: float, seed: int) -> runs.RunReport:
        report, _ = runs.emulate(scenario, duration_s=duration_s, seed=seed)
        if not report.valid:
            raise EmulatorError("; ".join(report.invalid_because))
        return report


def _at_random(count: int, mean_gap: int, seed: int) -> npt.NDArray[np.int64]:
    gaps = np.random.default_rng(seed).integers(1, 2 * mean_gap, size=count // mean_gap * 2 + 2)
    at = np.cumsum(gaps) - 1
    return at[at < count]


def _of_messages(
    plan: Plan,
    gap_s: float,
    times: dict[str, Floats],
    windows: Floats,
    buffered: float,
    keep: npt.NDArray[np.int64] | None = None,
    invalid_because: tuple[str, ...] = (),
) -> Train:
    """A train of messages that were written at known moments; those written after its end are left out."""
    written_s, read_s = times["written_s"], times["read_s"]
    inside = written_s < plan.end_s
    # TCP delivers in order: what was written after the last that arrived is missing
    last_s = float(written_s[inside].max(initial=plan.warm_up_s))
    missing = max(
        0, math.floor((plan.end_s - last_s) / gap_s - 1 + _TOLERANCE_S) - _slack(plan, gap_s, keep)
    )
    wrong = list(invalid_because)
    if len(read_s) and float((read_s - written_s).min()) < -_TOLERANCE_S:
        wrong.append("a probe arrived before it was written: the clocks of both ends differ")
    if np.any(np.diff(read_s[np.argsort(written_s, kind="stable")]) < -_TOLERANCE_S):
        wrong.append("probes arrived in another order than they were written in")
    chosen = np.flatnonzero(inside) if keep is None else keep[inside[keep]]
    of = {name: values[chosen] for name, values in times.items()}
    return Train(
        plan.rate,
        plan.warm_up_s,
        plan.end_s,
        of["written_s"],
        of["read_s"] - of["written_s"],
        of["sent_s"] - of["written_s"],
        of["left_s"] - of["sent_s"],
        of["read_s"] - of["left_s"],
        buffered,
        int(inside.sum()) if keep is not None else round((last_s - plan.warm_up_s) / gap_s),
        missing,
        windows,
        plan.window_every_s,
        tuple(wrong),
    )


def _slack(plan: Plan, gap_s: float, keep: npt.NDArray[np.int64] | None) -> int:
    """Messages at the end that may lie after the last sample without one being missing."""
    return 0 if keep is not None else 2 * max(1, round(plan.every_s / gap_s))
