"""Whether schemes work here: each moves data over a path, by the controller that it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pathcast.exceptions import EmulatorError, SchemeError
from pathcast.path import Path
from pathcast.schemes import build
from pathcast.schemes.scheme import Scheme, catalog, chosen

#: The path of the check: 20 ms there and back, and a queue of 2 BDP.
PATH = 'rate = "50 Mbit/s"\ndelay = "10 ms"\nqueue = "2 BDP"\n'
#: Its propagation delay one way, and what a full queue adds.
DELAY_MS, QUEUE_MS = 10.0, 40.0
#: How long a flow without end runs, in seconds; a finite one has as long.
DURATION_S = 8.0
FINITE_BYTES = 1_000_000
#: A flow as fast as its controller allows moves at least this.
LEAST_BPS = 1e6
#: Runs that the emulator could not keep in time are repeated so often.
ATTEMPTS = 3
#: Congestion controls that Pathcast brings by BPF where the kernel has none (crates/kernel-schemes).
_BY_BPF = ("scalable", "vegas")


@dataclass(frozen=True)
class Checked:
    """The result of the check of one scheme.

    Attributes:
        scheme: which.
        works: whether it did all that it was to do; None if that was not tried.
        why_not: why not, or why it was not tried.
        goodput_bps: of the flow without end.
        delay_p95_ms: one-way delay of its packets.
        delay_p50_ms: their median.
        loss: part of its packets that the path dropped.
        completion_s: of 1 MB.
        controller: what the implementation said is at work.
        evidence: how that was read.
        ours: whether the algorithm's code was Pathcast's own.
        invalid_because: why the figures must not be used; empty if they may.
        log_tail: the end of what its ends wrote.

    """

    scheme: Scheme
    works: bool | None = None
    why_not: str | None = None
    goodput_bps: float | None = None
    delay_p95_ms: float | None = None
    delay_p50_ms: float | None = None
    loss: float | None = None
    completion_s: float | None = None
    controller: str | None = None
    evidence: str | None = None
    ours: bool = False
    invalid_because: tuple[str, ...] = ()
    log_tail: str = field(default="", repr=False)

    @property
    def as_expected(self) -> bool | None:
        """Whether its queue is as the scheme's file expects; None if either is not known.

        `full`: the 95th percentile of the queueing delay is at least 0.7 of the queue. `short`: the median is
        at most half of it.
        """
        if self.delay_p50_ms is None or self.delay_p95_ms is None:
            return None
        if self.scheme.queue == "full":
            return self.delay_p95_ms >= DELAY_MS + 0.7 * QUEUE_MS
        if self.scheme.queue == "short":
            return self.delay_p50_ms <= DELAY_MS + 0.5 * QUEUE_MS
        return None

    @property
    def queue_in_words(self) -> str:
        """What was expected of its queue, and whether it was so."""
        words = {None: "", True: ", as expected", False: ", not as expected"}
        return f"{self.scheme.queue}{words[self.as_expected]}"

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        scheme = self.scheme
        return {
            "name": scheme.name,
            "implementation": scheme.implementation,
            "version": scheme.running_version,
            "licence": scheme.licence,
            "works": self.works,
            "why_not": self.why_not,
            "goodput_bps": self.goodput_bps,
            "delay_p95_ms": self.delay_p95_ms,
            "delay_p50_ms": self.delay_p50_ms,
            "loss": self.loss,
            "completion_s": self.completion_s,
            "expected_controller": scheme.controller,
            "controller": self.controller,
            "evidence": self.evidence,
            "ours": self.ours,
            "tier": scheme.tier,
            "transport": scheme.transport,
            "simulator": scheme.simulator,
            "simulator_has": scheme.simulator_has if scheme.simulator else None,
            "expected_queue": scheme.queue or None,
            "as_expected": self.as_expected,
            "note": scheme.note,
            "invalid_because": list(self.invalid_because),
        }


def listed(schemes: Sequence[Scheme]) -> list[Checked]:
    """What is known of schemes without running or building anything."""
    found = []
    for scheme in schemes:
        try:
            lacking = build.missing(scheme)
        except SchemeError as error:
            lacking = str(error)
        ours = scheme.ours
        if scheme.kernel is not None and scheme.kernel not in _of_the_kernel():
            # a module may have it; that is seen when it is run
            ours = scheme.kernel in _BY_BPF
            if not ours:
                lacking = f"the kernel lists no congestion control {scheme.kernel!r}"
        why_not = lacking or (None if build.is_built(scheme) else "not built")
        found.append(Checked(scheme, None if lacking is None else False, why_not, ours=ours))
    return found


def _of_the_kernel() -> list[str]:
    try:
        return FilePath("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    except OSError:
        return []


def check(
    names: Sequence[str] = (),
    *,
    duration_s: float = DURATION_S,
    tier: str = "default",
    progress: Callable[[str, str], None] | None = None,
) -> list[Checked]:
    """Run each scheme over a path of 50 Mbit/s and 20 ms: a flow without end, and a transfer of 1 MB.

    One that fails does not keep others from being checked.

    Args:
        names: of the schemes; none: all of the tier.
        duration_s: of each of the two flows.
        tier: which schemes, if none are named.
        progress: called with a scheme's name and what is done.

    Raises:
        SchemeError: a name is unknown.

    """
    known = catalog()
    schemes = chosen(list(names), known) if names else [s for s in known.values() if s.tier == tier]
    return [_checked(scheme, duration_s, progress or (lambda *_: None)) for scheme in schemes]


def _checked(scheme: Scheme, duration_s: float, progress: Callable[[str, str], None]) -> Checked:
    from pathcast.schemes.run import Flow, FlowsRun, run_flows

    try:
        if not build.is_built(scheme):
            progress(scheme.name, "is built")
            build.prepare(scheme)
        path = Path.parse(PATH)
        runs: list[FlowsRun] = []
        for what, size in (("runs", None), ("moves 1 MB", FINITE_BYTES)):
            progress(scheme.name, what)
            for _ in range(ATTEMPTS):
                run = run_flows(path, [Flow(scheme.name, bytes=size)], duration_s=duration_s)
                # the figures of a finite transfer are not shown
                if not run.invalid_because or size is not None:
                    break
            runs.append(run)
            if run.flows[0].why_not is not None:
                break
    except (SchemeError, EmulatorError) as error:
        return Checked(scheme, False, str(error), ours=scheme.ours)
    endless, finite = runs[0].flows[0], runs[-1].flows[0]
    why_not = next((run.flows[0].why_not for run in runs if run.flows[0].why_not), None)
    if why_not is None and endless.controller != scheme.controller:
        why_not = (
            f"the controller at work is {endless.controller!r}; expected {scheme.controller!r}"
        )
    if why_not is None and endless.goodput_bps < LEAST_BPS:
        why_not = f"its goodput is {endless.goodput_bps / 1e6:.2f} Mbit/s; expected {LEAST_BPS / 1e6:g} or more"
    return Checked(
        scheme=scheme,
        works=why_not is None,
        why_not=why_not,
        goodput_bps=endless.goodput_bps,
        delay_p95_ms=_number(endless.delay_ms["p95"]),
        delay_p50_ms=_number(endless.delay_ms["p50"]),
        loss=_number(endless.loss),
        completion_s=finite.completion_s,
        controller=endless.controller,
        evidence=endless.evidence,
        ours=endless.ours,
        invalid_because=runs[0].invalid_because,
        log_tail=endless.log_tail + (finite.log_tail if len(runs) > 1 else ""),
    )


def _number(value: float) -> float | None:
    """A number that JSON can have."""
    return None if value != value else value
