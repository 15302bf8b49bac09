"""The path between two hosts: flows that measure it, and the path that explains them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pathcast import live
from pathcast.calibration import calibrate_flows
from pathcast.calibration.closed_forms import RATE
from pathcast.calibration.features import HEADER_BYTES
from pathcast.calibration.result import Calibration
from pathcast.exceptions import LiveError, ModelError
from pathcast.trace import Trace

#: Schemes of the flows: one that fills queues and shows losses, one that fills paths with losses.
SCHEMES = ("cubic", "bbr")
#: How long each lasts, in seconds; both and the calibration take less than three minutes.
DURATION_S = 15.0
#: What the tunnel adds to each packet: IP, UDP and a header of its own, in bytes.
_TUNNEL_BYTES = 60


@dataclass(frozen=True)
class Measured:
    """Flows over the path to a server.

    Attributes:
        traces: one for each flow.
        warnings: schemes that did not run, and runs that are not valid.

    """

    traces: tuple[Trace, ...]
    warnings: tuple[str, ...]


def measure(
    server: str,
    key: str | os.PathLike[str],
    schemes: Sequence[str] = SCHEMES,
    *,
    reverse: bool = False,
    duration_s: float = DURATION_S,
    progress: Callable[[float], None] | None = None,
) -> Measured:
    """Run one flow of each scheme over the path to a server, one after another. Needs what `live.run` needs.

    Args:
        server: `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
        key: the file with the server's key.
        schemes: at least one; one that a host lacks is left out, if another is left.
        reverse: data comes from the server.
        duration_s: how long each flow sends.
        progress: called with the seconds that have passed.

    Raises:
        LiveError: no answer, a refusal, or no scheme ran.
        PathcastError: a wrong address or duration.

    """
    if not schemes:
        raise ModelError("got no scheme, expected at least one")
    traces: list[Trace] = []
    warnings: list[str] = []
    failed: LiveError | None = None
    for number, scheme in enumerate(schemes):
        before_s = number * duration_s
        note = (lambda done, before=before_s: progress(before + done)) if progress else None
        try:
            report, trace = live.run(
                server, key, [scheme], reverse=reverse, duration_s=duration_s, progress=note
            )
        except LiveError as error:
            failed = error
            warnings.append(f"{scheme} did not run: {error}")
            continue
        traces.append(trace)
        if not report.run.valid:
            reasons = "; ".join(report.run.invalid_because)
            warnings.append(f"the run of {scheme} is not valid: {reasons}")
    if not traces and failed:
        raise failed
    return Measured(tuple(traces), tuple(warnings))


def calibrate_measured(
    measured: Measured,
    *,
    seed: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Calibration:
    """Infer the path between two hosts from the flows of `measure`.

    Its rate counts whole packets of the real path, with what the tunnel of live runs adds to each.

    Raises:
        ModelError: a flow is too short to say anything.

    """
    flows = [(trace, trace.flows[0]) for trace in measured.traces]
    found = calibrate_flows(flows, seed=seed, progress=progress)
    mss = max(int(trace.metadata["mss_bytes"]) for trace in measured.traces)
    factor = 1 + _TUNNEL_BYTES / (mss + HEADER_BYTES)
    samples = found.samples.copy()
    samples[:, RATE] *= factor
    return replace(
        found,
        samples=np.asarray(samples),
        parameters={
            name: replace(one, median=factor * one.median, p5=factor * one.p5, p95=factor * one.p95)
            if name in ("rate_bps", "queue_bytes", "burst_bytes")
            else one
            for name, one in found.parameters.items()
        },
        line_rate_bps=found.line_rate_bps and factor * found.line_rate_bps,
        warnings=(*measured.warnings, *found.warnings),
    )


__all__ = ["DURATION_S", "SCHEMES", "Measured", "calibrate_measured", "measure"]
