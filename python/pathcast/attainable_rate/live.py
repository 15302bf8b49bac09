"""Probes of a real path, by a flow of the kernel's TCP between this host and a server; docs/explanation/live.md."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from pathcast import live, runs
from pathcast.attainable_rate.probes import ATTEMPTS, Plan, Progress
from pathcast.attainable_rate.scenarios import RealTimeProber, probing
from pathcast.exceptions import BudgetSpent, LiveError
from pathcast.path import Path
from pathcast.scenario import Scenario
from pathcast.trace import Trace

#: Payload of a full packet in the tunnel, in bits.
TUNNEL_MESSAGE_BITS = 8 * 1348
#: What a server accepts by default; see `pathcast.live.serve`.
DEFAULT_LONGEST_S = 600.0
#: What may be sent in total by default, in bytes.
DEFAULT_BUDGET_BYTES = 1e9


class Budget:
    """What may be sent over a path, in bytes; probing ends before more is."""

    def __init__(self, total_bytes: float = DEFAULT_BUDGET_BYTES) -> None:
        self.total_bytes = total_bytes
        self.spent_bytes = 0.0
        self._lock = threading.Lock()

    @property
    def left_bytes(self) -> float:
        """What may still be sent."""
        return self.total_bytes - self.spent_bytes

    def count(self, sent_bytes: float) -> None:
        """Take an amount that was not known before it was sent."""
        with self._lock:
            self.spent_bytes += sent_bytes

    def spend(self, what: str, sent_bytes: float) -> None:
        """Take bytes from the budget.

        Raises:
            BudgetSpent: there is not so much left.

        """
        with self._lock:
            if sent_bytes > self.left_bytes:
                raise BudgetSpent(
                    f"{what} would send {sent_bytes / 1e6:.4g} MB, of the {self.total_bytes / 1e6:.4g} MB that may be "
                    f"sent {max(0.0, self.left_bytes) / 1e6:.4g} MB are left"
                )
            self.spent_bytes += sent_bytes


@dataclass(frozen=True)
class LiveProber(RealTimeProber):
    """Probes the path to a server of `pathcast live server`.

    Attributes:
        scenario: as of any prober; the real path replaces its link. `over` makes one.
        flow: see there.
        server: `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
        key: the file with the server's key.
        longest_s: the longest run that the server takes, in seconds.
        budget: what may be sent.

    """

    server: str = ""
    key: str | os.PathLike[str] = ""
    longest_s: float = DEFAULT_LONGEST_S
    budget: Budget = field(default_factory=Budget, compare=False)

    @staticmethod
    def over(scheme: str = "cubic", *, reverse: bool = False) -> Scenario:
        """One flow that probes, to the server or from it."""
        path = Path.parse(
            "rate = '1 Gbit/s'\ndelay = '1 ms'\n", "live"
        )  # the real path replaces it
        scenario = Scenario.over(path, [scheme], probing(scheme, TUNNEL_MESSAGE_BITS))
        if reverse:
            scenario = scenario.replace_flow(0, direction="reverse")
        return scenario

    def _world(self) -> str:
        return f"live: {self.server}"

    def _send(
        self, plan: Plan, messages_file: FilePath, progress: Progress | None
    ) -> tuple[runs.RunReport, Trace, tuple[str, ...]]:
        self.budget.spend(
            f"the next train of {plan.rate / 1e6:g} Mbit/s", plan.rate / 8 * plan.lasts_s
        )
        report, trace = live.run(
            self.server,
            self.key,
            self._at(plan.rate),
            duration_s=plan.lasts_s,
            seed=plan.seed,
            messages_file=messages_file,
            progress=progress,
        )
        return report.run, trace, _notes(report)

    def _run(self, scenario: Scenario, duration_s: float, seed: int) -> runs.RunReport:
        for again in range(ATTEMPTS):
            # its amount is unknown in advance: it may begin if anything is left of the budget
            if self.budget.left_bytes <= 0:
                raise BudgetSpent(
                    f"all of the {self.budget.total_bytes / 1e6:.4g} MB that may be sent were sent"
                )
            report, _ = live.run(
                self.server, self.key, scenario, duration_s=duration_s, seed=seed + again
            )
            self.budget.count(sum(flow.delivered_bytes for flow in report.run.flows))
            if report.run.valid:
                return report.run
        raise LiveError(
            f"{ATTEMPTS} runs cannot be used, the last: " + "; ".join(report.run.invalid_because)
        )


def _notes(report: live.LiveReport) -> tuple[str, ...]:
    """What makes delays less accurate without making them useless."""
    clock = report.clock
    notes = [
        f"clocks are compared to within {1e3 * clock.error_s:.3g} ms at worst, {1e3 * clock.jitter_s:.2g} ms if the idle "
        f"path is as long there as back; the server's runs {clock.drift_ppm:+.1f} ppm faster"
    ]
    if report.run.loss_rate > 0:
        notes.append(f"{100 * report.run.loss_rate:.3g} % of packets were lost on the way")
    if report.reordered_rate > 0:
        notes.append(f"{100 * report.reordered_rate:.3g} % of packets came after a later one")
    return tuple(notes)
