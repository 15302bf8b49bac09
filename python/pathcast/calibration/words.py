"""A calibration in words: rows of its tables, and sentences."""

from __future__ import annotations

from pathcast.calibration.result import Calibration, Parameter, flows_text

#: What each parameter is called, its unit, and how many of them a parameter's own unit makes.
_SHOWN = {
    "rate_bps": ("rate", "Mbit/s", 1e-6),
    "steady_bps": ("other traffic that does not react", "Mbit/s", 1e-6),
    "rtt_s": ("propagation, both ways", "ms", 1e3),
    "queue_s": ("queue", "ms", 1e3),
    "queue_bytes": ("queue", "kB", 1e-3),
    "target_s": ("target delay of the queue", "ms", 1e3),
    "burst_bytes": ("the policer's bucket", "kB", 1e-3),
    "loss": ("random loss", "%", 100.0),
    "jitter_s": ("jitter", "ms", 1e3),
}
#: Of these a flow that does not tell them gives a lower bound; of others an upper one.
_AT_LEAST = ("rate_bps", "queue_s", "queue_bytes", "burst_bytes")
#: Names of managed queues.
_QUEUES = {"codel": "CoDel", "pie": "PIE"}
#: Headers of the rows.
PARAMETER_COLUMNS = ("", "value", "5 to 95 %", "to know more, measure")


def parameter_rows(found: Calibration) -> list[tuple[str, str, str, str]]:
    """Name, value, interval and what would narrow it, of each parameter."""
    rows = []
    for name, one in found.parameters.items():
        label, unit, scale = _SHOWN[name]
        if name == "rate_bps" and found.line_rate_bps:
            label = "the policer's rate"
        between = f"{scale * one.p5:.3g} to {scale * one.p95:.3g} {unit}"
        rows.append((label, _value(name, one, unit, scale), between, one.narrowed_by))
    return rows


def _value(name: str, one: Parameter, unit: str, scale: float) -> str:
    if one.identified:
        return f"{scale * one.median:.3g} {unit}"
    if name in _AT_LEAST:
        return f"at least {scale * one.p5:.3g} {unit}"
    return f"at most {scale * one.p95:.3g} {unit}"


def link_text(found: Calibration) -> str:
    """What is special of the queue, and how packets leave it if not at a constant rate."""
    if found.queue != "droptail":
        return f"The queue is managed, as by {_QUEUES[found.queue]}."
    if found.link.kind == "steps":
        rate_bps = found.parameters["rate_bps"].median
        steps = ", ".join(
            f"{1e-6 * rate_bps * factor:.3g} from {start_s:.3g} s on"
            for start_s, factor in found.link.steps
        )
        return f"The rate changes, in Mbit/s: {steps}; the table has its mean."
    if found.link.kind == "poisson":
        return "Packets leave by a Poisson process."
    if found.link.kind == "wandering":
        return (
            f"The rate wanders: the standard deviation of its logarithm is {found.link.spread:.2g}, and it changes "
            f"within {found.link.correlation_s:.2g} s."
        )
    return ""


def competing_text(found: Calibration) -> str:
    """Which flows share the path, each set with its probability, or what other traffic takes; empty if none does."""
    if found.steady_part:
        return f"Other traffic of a constant rate takes {found.steady_part:.0%} of the link."
    sets = found.competing_sets
    if not sets:
        return ""
    said = ", or ".join(f"{flows_text(one)} ({part:.0%})" for one, part in sets.items())
    return f"It {'may be' if () in sets else 'is'} shared with {said}."


__all__ = ["PARAMETER_COLUMNS", "competing_text", "link_text", "parameter_rows"]
