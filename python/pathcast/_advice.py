"""What would help a flow: alternatives over the path that it saw, and what they would change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pathcast._limits import FlowLimits, limits
from pathcast._what_if import SURE, Alternative, Interval, Outcome, WhatIf, what_if
from pathcast.calibration import Calibration, calibrate
from pathcast.calibration.features import MSS_BYTES
from pathcast.exceptions import ModelError, NoSchemeError
from pathcast.trace import Column, Trace

#: Schemes that are tried beside the flow's own; each Linux has the first two, and the third as a module.
SCHEMES = ("cubic", "reno", "bbr")
#: Initial windows that are tried for a flow which its start limits, in packets.
INITIAL_WINDOWS = (20, 40)
#: Paths drawn from the posterior, each run with each alternative.
DRAWS = 20
#: Goodput, or time of completion, must change by this factor to be worth a change of the configuration, and the 95th
#: percentile of delay by that one.
WORTH, WORTH_DELAY = 1.1, 1.25
#: Less delay is no gain if more than this part of the goodput is lost.
GOODPUT_KEPT = 0.95
#: Limits that no configuration of the sender removes, and what would.
_ELSEWHERE = {
    "application": "The application sends less than the path would carry: no configuration of the transport helps.",
    "idle": "Nothing is in flight most of the time: no configuration of the transport helps.",
}


@dataclass(frozen=True)
class Advice:
    """What would help one flow.

    Attributes:
        text: what to change and what it brings, in sentences.
        change: the configuration to change to; None: none of those tried is worth it.
        by: what it improves: `goodput_bps`, `completion_s` or `delay_p95_ms`; None without a change.
        gain: how many times better, more than 1, over all draws of the path; None without a change, or if nothing was
            run.
        sure: whether it is better at all with a probability of 95 % or more.
        tried: all alternatives, the flow's own configuration first; None: nothing was run.
        calibration: the path that they ran over; None: nothing was run.

    """

    text: str
    change: Alternative | None = None
    by: str | None = None
    gain: Interval | None = None
    sure: bool = False
    tried: WhatIf | None = None
    calibration: Calibration | None = None

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "text": self.text,
            "change": self.change and vars(self.change),
            "by": self.by,
            "gain": self.gain and vars(self.gain),
            "sure": self.sure,
            "tried": self.tried and self.tried.to_dict(),
            "calibration": self.calibration and self.calibration.to_dict(),
        }


def advise(
    trace: Trace,
    flow: int = 0,
    *,
    scheme: str | None = None,
    schemes: Sequence[str] = SCHEMES,
    draws: int = DRAWS,
    seed: int = 1,
    found: FlowLimits | None = None,
    progress: Callable[[float], None] | None = None,
) -> Advice:
    """Say what would help a flow: another scheme, or a larger initial window.

    The path is inferred from the flow (`calibrate`), and alternatives run over it in the simulator (`what_if`), beside
    the flow's own configuration. Advice for more goodput, or an earlier end where the start limits the flow, comes
    first; then that for less delay at no less goodput. What the application or the receiver limits is not simulated.

    Args:
        trace: as for `calibrate`.
        flow: its number.
        scheme: congestion control; by default what the trace says.
        schemes: those that are tried.
        draws: paths drawn from the posterior.
        seed: of the simulations.
        found: what limits it, if that is known already.
        progress: called with the part of the work that is done, 0 to 1.

    Raises:
        TraceError: the trace has no such flow.
        ModelError: the flow is too short to be judged or calibrated, or its scheme is not known.
        SchemeError: the simulator has no such scheme.

    Example:
        >>> import pathcast
        >>> path = pathcast.Path.parse("rate = '20 Mbit/s'\\ndelay = '20 ms'\\nqueue = '2 BDP'\\nloss = 0.005")
        >>> _, trace = pathcast.simulate(path, ["cubic"], duration_s=10)
        >>> pathcast.advise(trace, draws=5).change.scheme
        'bbr'

    """
    found = found or limits(trace, flow, scheme=scheme)
    if found.limit in _ELSEWHERE:
        return Advice(_ELSEWHERE[found.limit])
    if found.limit == "receive_window":
        return Advice(_larger_window(trace, flow))
    own = scheme or found.scheme
    if not own:
        raise NoSchemeError(
            f"{trace.file or 'trace'}: flow {flow} has no congestion control in the trace"
        )
    starting = found.limit == "slow_start"
    try:
        calibration = calibrate(
            trace, flow, scheme=own, seed=seed, progress=_part(progress, 0.0, 0.6)
        )
    except ModelError:
        if not starting:
            raise
        return _fewer_round_trips(trace, flow, own)
    alternatives = _alternatives(own, schemes, _sent_bytes(trace, flow) if starting else None)
    tried = what_if(
        calibration,
        alternatives,
        duration_s=max(found.duration_s, 1.0),
        draws=draws,
        seed=seed,
        progress=_part(progress, 0.6, 0.4),
    )
    return _choose(tried, starting, calibration)


def _part(
    progress: Callable[[float], None] | None, from_: float, part: float
) -> Callable[[float], None] | None:
    return (lambda done: progress(from_ + part * done)) if progress else None


def _alternatives(own: str, schemes: Sequence[str], sent_bytes: float | None) -> list[Alternative]:
    """The flow's own configuration, and what to try beside it."""
    others = [one for one in schemes if one != own]
    if sent_bytes is None:
        return [Alternative(one) for one in (own, *others)]
    workload = _transfer(sent_bytes)
    return [
        *(Alternative(one, workload) for one in (own, *others)),
        *(Alternative(own, workload, window) for window in INITIAL_WINDOWS),
    ]


def _transfer(size_bytes: float) -> str:
    """The workload that sends so much and ends."""
    return f"{{ kind = 'transfer', size = '{size_bytes:.0f} B', count = 1 }}"


def _column(trace: Trace, flow: int, name: str) -> Column:
    """The known values of a column of one flow, in order of time."""
    values: Column = trace.columns[name][trace.columns["flow"] == flow]
    return values[np.isfinite(values)]


def _sent_bytes(trace: Trace, flow: int) -> float:
    """What was acknowledged of a flow; at least one byte."""
    acked = _column(trace, flow, "snd_una_bytes")
    return max(float(acked[-1] - acked[0]), 1.0) if len(acked) else 1.0


def _fewer_round_trips(trace: Trace, flow: int, own: str) -> Advice:
    """The advice for a flow that ended within its start, too short to say what its path is like."""
    sent, rtt_s = _sent_bytes(trace, flow), _column(trace, flow, "srtt_s")
    window = INITIAL_WINDOWS[-1]
    begun = max(float(_column(trace, flow, "cwnd_packets")[0]), 1.0)
    now, then = (_round_trips(sent / MSS_BYTES, first) for first in (begun, float(window)))
    if then >= now or not len(rtt_s):
        return Advice(
            "The flow ended within its start, and a larger initial window would not save a round trip."
        )
    return Advice(
        f"The flow ended within its start. An initial window of {window} packets needs about {then} round trips of "
        f"{1e3 * float(rtt_s.min()):.3g} ms instead of {now}. The flow was too short to show whether the path carries so "
        "many packets at once.",
        Alternative(own, _transfer(sent), window),
        "completion_s",
    )


def _round_trips(packets: float, initial_window: float) -> int:
    """Round trips in which a window that doubles carries so many packets."""
    return max(math.ceil(math.log2(packets / initial_window + 1)), 1)


def _larger_window(trace: Trace, flow: int) -> str:
    """What to say of a flow whose receiver's window limits it."""
    window, rtt_s = (_column(trace, flow, name) for name in ("rwnd_bytes", "srtt_s"))
    known = ""
    if len(window) and len(rtt_s) and rtt_s.min() > 0:
        bytes_, least_s = float(np.median(window)), float(rtt_s.min())
        known = (
            f" ({bytes_ / 1e3:.3g} kB in a round trip of {1e3 * least_s:.3g} ms are at most "
            f"{8e-6 * bytes_ / least_s:.3g} Mbit/s)"
        )
    return (
        f"The receiver's window limits the flow{known}: raise the receiver's buffer (on Linux net.ipv4.tcp_rmem). No "
        "configuration of the sender helps."
    )


def _choose(tried: WhatIf, starting: bool, calibration: Calibration) -> Advice:
    """The first advice: more goodput or an earlier end, else less delay."""
    own = tried.outcomes[0]
    by = "completion_s" if starting and own.completion_s is not None else "goodput_bps"
    gains = [_gain(own.draws[by], one.draws[by], by) for one in tried.outcomes]
    number = _best(gains, WORTH)
    if number is None:
        by = "delay_p95_ms"
        gains = [
            _gain(own.draws[by], one.draws[by], by) if _keeps_goodput(own, one) else np.ones(1)
            for one in tried.outcomes
        ]
        number = _best(gains, WORTH_DELAY)
    if number is None:
        text = f"None of {len(tried.outcomes)} configurations tried would change much; {own.goodput_bps.text(1e-6)} Mbit/s stay."
        return Advice(text, tried=tried, calibration=calibration)
    gain, then = gains[number], tried.outcomes[number]
    low, median, high = (float(value) for value in np.nanquantile(gain, [0.05, 0.5, 0.95]))
    sure = float(np.mean(gain > 1)) >= SURE
    now_is, then_is = getattr(own, by), getattr(then, by)
    what, unit, scale = _SHOWN[by]
    text = (
        f"{then.alternative}: {what} {then_is.text(scale)} {unit} instead of {now_is.text(scale)}, "
        f"{median:.2g} times as {'much' if by == 'goodput_bps' else 'short'}"
        f"{'' if sure else '; that is not sure'}."
    )
    return Advice(text, then.alternative, by, Interval(median, low, high), sure, tried, calibration)


#: What each quantity is called, its unit, and how many of them its own unit makes.
_SHOWN = {
    "goodput_bps": ("goodput", "Mbit/s", 1e-6),
    "completion_s": ("completion after", "s", 1.0),
    "delay_p95_ms": ("95th percentile of delay", "ms", 1.0),
}


def _keeps_goodput(now: Outcome, then: Outcome) -> bool:
    """Whether an alternative has nearly the goodput of the flow's own configuration."""
    share = np.nanmedian(then.draws["goodput_bps"] / now.draws["goodput_bps"])
    return float(share) >= GOODPUT_KEPT


def _gain(now: Column, then: Column, by: str) -> Column:
    """How many times better, draw by draw; 0 where the alternative has no value."""
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = then / now if by == "goodput_bps" else now / then
    return np.nan_to_num(gain, nan=0.0, posinf=1e9)


def _best(gains: Sequence[Column], worth: float) -> int | None:
    """The alternative with the largest median gain, if that is worth a change."""
    medians = [float(np.median(gain)) for gain in gains]
    number = int(np.argmax(medians))
    return number if medians[number] >= worth else None
