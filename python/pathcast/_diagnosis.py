"""What limits many flows: each of them, and those of each client prefix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pathcast._advice import Advice
from pathcast._limits import FlowLimits, limits
from pathcast._prefixes import PrefixLimits, by_prefix
from pathcast.calibration.sharing import LinkUse, link_use
from pathcast.exceptions import ModelError
from pathcast.flows import Flow, flows_of
from pathcast.foreign import visible
from pathcast.trace import Trace


@dataclass(frozen=True)
class JudgedFlow:
    """A flow, and what limits it.

    Attributes:
        trace: that it is in.
        flow: what the trace says of it.
        limits: what limits it.
        link: whether it has its link alone; None: its records do not tell.
        advice: what would help; None: not asked.

    """

    trace: Trace
    flow: Flow
    limits: FlowLimits
    link: LinkUse | None = None
    advice: Advice | None = None

    def name(self) -> str:
        """What to call it: its file, or its ends."""
        return self.trace.file or visible(self.flow.name) or "trace"

    def title(self) -> str:
        """Its name, number and scheme."""
        scheme = f" ({self.limits.scheme})" if self.limits.scheme else ""
        return f"{self.name()}, flow {self.limits.flow}{scheme}"

    def lost_s(self) -> float:
        """Seconds that it lost."""
        (one,) = by_prefix([("", 0, self.limits)])
        return one.lost_s

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        about = {"trace": self.trace.file, "name": self.flow.name, "bytes": self.flow.bytes}
        said = {"advice": self.advice.to_dict()} if self.advice else {}
        link = {"link": self.link and vars(self.link)}
        return about | self.limits.to_dict() | link | said


@dataclass(frozen=True)
class Diagnosis:
    """What limits many flows.

    Attributes:
        flows: those that can be judged.
        prefixes: they by the prefix of their far end, those that lost most time first.
        unjudged: why others cannot.

    """

    flows: tuple[JudgedFlow, ...]
    prefixes: tuple[PrefixLimits, ...]
    unjudged: tuple[str, ...]

    def has_prefixes(self) -> bool:
        """Whether there is something to compare: several flows, and where they go."""
        return len(self.flows) > 1 and any(one.prefix for one in self.prefixes)

    def with_advice(self, said: Iterable[Advice | None]) -> Diagnosis:
        """The same, with advice for each flow in their order."""
        flows = (replace(one, advice=advice) for one, advice in zip(self.flows, said, strict=True))
        return replace(self, flows=tuple(flows))

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "flows": [one.to_dict() for one in self.flows],
            "prefixes": [one.to_dict() for one in self.prefixes],
            "unjudged": list(self.unjudged),
        }


def diagnose(traces: Iterable[Trace], scheme: str | None = None) -> Diagnosis:
    """Judge all flows of traces.

    Args:
        traces: as for `limits`.
        scheme: congestion control of all flows; by default what each trace says.

    """
    found: list[JudgedFlow] = []
    unjudged: list[str] = []
    for trace in traces:
        about = {one.flow: one for one in flows_of(trace)}
        for flow in trace.flows:
            try:
                judged = limits(trace, flow, scheme=scheme)
                found.append(JudgedFlow(trace, about[flow], judged, link_use(trace, flow)))
            except ModelError as error:
                unjudged.append(str(error))
    prefixes = by_prefix((one.flow.name, one.flow.bytes or 0, one.limits) for one in found)
    return Diagnosis(tuple(found), tuple(prefixes), tuple(unjudged))


__all__ = ["Diagnosis", "JudgedFlow", "diagnose"]
