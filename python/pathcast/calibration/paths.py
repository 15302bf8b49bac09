"""Paths by their parameters, and the other things that a path may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pathcast.path import Path
from pathcast.scenario import Scenario, with_receive_window
from pathcast.trace import Column

#: A queue holds this much at least, in bytes: two packets.
_LEAST_QUEUE_BYTES = 3000
#: What a full datagram carries of its bytes on the link.
_PAYLOAD_PART = 1448 / 1476
#: Below this, delays have no jitter.
_LEAST_JITTER_S = 2e-6


@dataclass(frozen=True)
class Link:
    """How packets leave the bottleneck.

    Attributes:
        kind: of the rate in a path file: `constant`, `poisson` or `wandering`.
        spread: of a rate that wanders: standard deviation of its logarithm.
        correlation_s: likewise: after this time its correlation has fallen to 1/e.
        steps: of a rate that changes: from which second on, and how many times the mean; they repeat after `period_s`.
        period_s: likewise.

    """

    kind: str = "constant"
    spread: float = 0.0
    correlation_s: float = 0.0
    steps: tuple[tuple[float, float], ...] = ()
    period_s: float = 0.0

    def rate(self, rate_bps: float, later_s: float = 0.0) -> str:
        """Its rate as a value in a path file; steps begin so many seconds later."""
        rate = f"'{rate_bps:.0f} bit/s'"
        if self.kind == "constant":
            return rate
        if self.kind == "steps":
            starts = [0.0, *(later_s + start_s for start_s, _ in self.steps[1:])]
            pairs = ", ".join(
                f"['{1e3 * start_s:.0f} ms', '{rate_bps * factor:.0f} bit/s']"
                for start_s, (_, factor) in zip(starts, self.steps, strict=True)
            )
            return f"{{ kind = 'steps', steps = [{pairs}], period = '{1e3 * (later_s + self.period_s):.0f} ms' }}"
        wanders = (
            f", spread = {self.spread:.4f}, correlation = '{self.correlation_s * 1e3:.0f} ms'"
            if self.kind == "wandering"
            else ""
        )
        return f"{{ kind = '{self.kind}', rate = {rate}{wanders} }}"


#: A constant rate, and all kinds of links.
CONSTANT = Link()
LINKS = ("constant", "poisson", "wandering", "steps")
#: Queues, and how many times their target the interval of those with one is (RFC 8289, 8033).
QUEUES = ("droptail", "codel", "pie")
_INTERVALS = {"codel": ("interval", 20.0), "pie": ("update", 1.0)}


@dataclass(frozen=True)
class Model:
    """What a path may be like, beside its parameters.

    Attributes:
        policed: a policer limits the rate, instead of a queue before a link.
        competing: schemes of flows that share the queue and were there before.
        link: how packets leave.
        queue: its discipline.
        has_jitter: delays differ by more than hosts do, so that they are looked for there.
        steady_part: what other traffic of a constant rate takes of the link, which was there before.

    """

    policed: bool = False
    competing: tuple[str, ...] = ()
    link: Link = CONSTANT
    queue: str = "droptail"
    has_jitter: bool = False
    steady_part: float = 0.0


#: A queue before a link at a constant rate.
SIMPLEST = Model()


def path_of(
    parameters: Column,
    line_rate_bps: float | None = None,
    name: str = "",
    link: Link = CONSTANT,
    queue: str = "droptail",
    later_s: float = 0.0,
) -> Path:
    """Return the path with these parameters, in the order of `PARAMETERS`; shape 5.

    Args:
        parameters: of a queue before a link; of a policer, the rate is its rate, and the queue the depth of its bucket; of a
            managed queue, its target delay.
        line_rate_bps: rate of the link behind a policer; None: there is no policer.
        name: of the path.
        link: how packets leave the queue.
        queue: its discipline.
        later_s: by which the steps of the link begin later.

    """
    rate_bps, rtt_s, queue_s, loss, jitter_s = (float(value) for value in parameters)
    stored = max(queue_s * rate_bps / 8, _LEAST_QUEUE_BYTES)
    if queue != "droptail":
        key, factor = _INTERVALS[queue]
        managed = f"{{ kind = '{queue}', target = '{1e9 * queue_s:.0f} ns', {key} = '{1e9 * factor * queue_s:.0f} ns' }}"
        bottleneck = f"rate = {link.rate(rate_bps, later_s)}\nqueue = {managed}\n"
    elif line_rate_bps is None:
        bottleneck = f"rate = {link.rate(rate_bps, later_s)}\nqueue = '{stored:.0f} B'\n"
    else:
        bottleneck = (
            f"rate = '{max(line_rate_bps, rate_bps):.0f} bit/s'\n"
            f"policer = {{ rate = '{rate_bps:.0f} bit/s', burst = '{stored:.0f} B' }}\n"
        )
    one_way = f"'{rtt_s / 2 * 1e9:.0f} ns'"
    has_jitter = jitter_s > _LEAST_JITTER_S
    delay = one_way
    if has_jitter:
        delay = f"{{ kind = 'jitter', base = {one_way}, jitter = '{jitter_s * 1e9:.0f} ns', distribution = 'exponential' }}"
    text = (
        f"name = '{name}'\n{bottleneck}loss = {loss:.9f}\ndelay = {delay}\n"
        f"[reverse]\ndelay = {one_way}\n"
    )
    return Path.parse(text, "calibrated path")


def shared(
    path: Path,
    competing: Sequence[str],
    receive_window: str | None = None,
    *,
    steady_bps: float = 0.0,
) -> Path | Scenario:
    """Return a path with the flows that compete for it; the path alone if there are none.

    Args:
        path: what they share.
        competing: a scheme for each; they have no end.
        receive_window: of those over TCP, as in a scenario file; None: it is never in the way.
        steady_bps: payload of datagrams of a constant rate that are also there.

    """
    schemes = [*competing, *(["udp"] if steady_bps else [])]
    if not schemes:
        return path
    scenario = with_receive_window(Scenario.over(path, schemes), receive_window)
    if steady_bps:
        workload = {"kind": "constant-rate", "rate": f"{steady_bps:.0f} bit/s"}
        scenario = scenario.replace_flow(len(competing), workload=workload)
    return scenario


def steady_bps(parameters: Column, part: float) -> float:
    """Return the payload rate of other traffic that takes this part of the link of a path, of shape 5."""
    return float(parameters[0]) * part * _PAYLOAD_PART
