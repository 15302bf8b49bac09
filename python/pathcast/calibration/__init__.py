"""Infer a path from the trace of one flow, with the uncertainty of each parameter.

`calibrate` compares the flow with flows that the simulator sends over candidate paths. A `Calibration` holds draws of
the posterior, from which `what_if` runs other schemes and workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

from pathcast._limits import limits
from pathcast.calibration.features import Observation, observe
from pathcast.calibration.imitation import Sender, on_cluster, on_cores
from pathcast.calibration.measurements import Measurement, read_measurements
from pathcast.calibration.prior import Prior
from pathcast.calibration.refinement import refine
from pathcast.calibration.result import (
    Calibration,
    FlowUsed,
    Parameter,
    SchemeFit,
    posterior_file,
    summarized,
)
from pathcast.calibration.selection import MISFIT, likeliest
from pathcast.calibration.several import fit_several
from pathcast.cluster import connected
from pathcast.exceptions import ModelError, NoSchemeError
from pathcast.trace import Trace

#: Draws of a posterior.
DRAWS = 400
#: Packets of a flow that are compared: more only take longer.
_MOST_PACKETS = 250_000
#: From this error of its goodput on, a scheme is not explained.
_UNEXPLAINED = 0.25
#: Shares of time from which on something else than the path limited the flow.
_OTHERWISE_LIMITED = 0.5


def calibrate(
    trace: Trace,
    flow: int = 0,
    *,
    scheme: str | None = None,
    seed: int = 1,
    prior: Prior | None = None,
    cluster: str | None = None,
    emulate: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Calibration:
    """Infer the path of a flow: rate, propagation delay, queue, random loss and jitter, each with its uncertainty.

    The model is a droptail queue before one link, with independent losses and exponential jitter behind it; or, if that
    explains the flow better, a policer in place of the queue, a queue shared with flows of CUBIC or BBR, one managed by
    CoDel or PIE, or a rate that changes in steps while the flow fills the path. Acknowledgments
    distinguish other traffic that does not react from a slower link. A `misfit` of more than 1.5 says that something is
    missing, and a warning too.

    Args:
        trace: with acknowledged bytes and round-trip times, and retransmissions, if it is to separate losses.
        flow: its number.
        scheme: congestion control; by default what the trace says.
        seed: of the simulations.
        prior: of queue and losses, learned from known paths; by default a wide one.
        cluster: address of a Ray cluster that simulates; by default this machine.
        emulate: correct the simulator by the kernel's own flows over the path that was found, in real time (Linux, root
            or user namespaces).
        progress: called with the part of the work that is done, 0 to 1.

    Raises:
        ClusterError: the cluster cannot be used, see `pathcast.cluster`.
        EmulatorError: the emulator cannot run here.
        TraceError: the trace has no such flow.
        ModelError: columns are missing, the flow is too short, or its scheme is not known.
        SchemeError: the simulator has no such scheme.

    Example:
        >>> import pathcast
        >>> path = pathcast.Path.parse("rate = '10 Mbit/s'\\ndelay = '20 ms'\\nqueue = '2 BDP'")
        >>> _, trace = pathcast.simulate(path, ["cubic"], duration_s=10)
        >>> found = pathcast.calibrate(trace).parameters
        >>> round(found["rate_bps"].median / 1e6), round(found["rtt_s"].median * 1e3)
        (10, 40)

    """
    return calibrate_flows(
        [(trace, flow)],
        scheme=scheme,
        seed=seed,
        prior=prior,
        cluster=cluster,
        emulate=emulate,
        progress=progress,
    )


def calibrate_flows(
    flows: Sequence[tuple[Trace, int]],
    *,
    scheme: str | None = None,
    seed: int = 1,
    prior: Prior | None = None,
    cluster: str | None = None,
    emulate: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Calibration:
    """Infer one path from flows that used it one after another, as `calibrate` does from one.

    Each flow tells what others leave open: one that fills the path its rate and queue, one that does not its losses.

    Args:
        flows: traces as for `calibrate`, and the numbers of the flows.
        scheme: congestion control of all; by default what each trace says.
        seed: of the simulations.
        prior: of queue and losses, learned from known paths; by default a wide one.
        cluster: address of a Ray cluster that simulates; by default this machine.
        emulate: correct the simulator by the kernel's own flows over the path that was found, in real time (Linux, root
            or user namespaces).
        progress: called with the part of the work that is done, 0 to 1.

    Raises:
        ClusterError: the cluster cannot be used, see `pathcast.cluster`.
        EmulatorError: the emulator cannot run here.
        TraceError: a trace has no such flow.
        ModelError: there is no flow, columns are missing, a flow is too short, or its scheme is not known.
        SchemeError: the simulator has no such scheme.

    """
    if not flows:
        raise ModelError("got no flow, expected at least one")
    senders, policed, warnings = [], [], []
    for trace, flow in flows:
        seen = observe(trace, flow)
        name = scheme or trace.scheme(flow)
        if not name:
            raise NoSchemeError(
                f"{trace.file or 'trace'}: flow {flow} has no congestion control in the trace"
            )
        packets, most = float(seen.acked[-1]), _MOST_PACKETS / len(flows)
        if packets > most:
            seen = observe(trace, flow, max(seen.duration_s * most / packets, 5.0))
        senders.append(Sender(seen, name))
        shares = _shares(trace, flow, name)
        policed.append(shares.get("policer", 0.0))
        of = f"{name}: " if len(flows) > 1 else ""
        warnings += [f"{of}{one}" for one in _limited_otherwise(shares, seen)]
        if seen.retransmits is None:
            warnings.append(
                f"{of}the trace has no retransmissions: losses are known from the window alone"
            )
    with connected(cluster) if cluster is not None else nullcontext() as found:
        runner = on_cores if found is None else on_cluster(found)
        inferred = 0.4 if emulate else 1.0
        posterior, first = likeliest(
            senders,
            max(policed),
            draws=DRAWS,
            seed=seed,
            runner=runner,
            prior=prior,
            progress=_part(progress, 0.0, inferred),
        )
        if emulate:
            posterior = refine(
                posterior,
                first,
                senders,
                draws=DRAWS,
                seed=seed,
                runner=runner,
                progress=_part(progress, inferred, 1.0),
            )
    if posterior.misfit > MISFIT:
        what = "the flow differs" if len(flows) == 1 else "the flows differ"
        warnings.append(
            f"{what} from all simulated ones by {posterior.misfit:.1f} standard deviations: the path has "
            "something that the model lacks, such as a change of rate or other traffic that comes and goes"
        )
    single = senders[0].scheme if len(flows) == 1 else ""
    return Calibration(
        flows[0][1] if single else None,
        single,
        sum(one.seen.duration_s for one in senders),
        summarized(posterior.samples, first, posterior.model.queue, posterior.model.steady_part),
        posterior.samples,
        posterior.misfit,
        tuple(warnings),
        posterior.line_rate_bps,
        posterior.model.competing,
        posterior.model.link,
        queue=posterior.model.queue,
        competing_of_draws=posterior.competing,
        steady_part=posterior.model.steady_part,
        receive_window=next(filter(None, (one.seen.receive_window for one in senders)), None),
        opens=any(one.seen.opens for one in senders),
        flows=tuple(
            FlowUsed(trace.file, flow, one.scheme, one.seen.duration_s)
            for (trace, flow), one in zip(flows, senders, strict=True)
        ),
    )


def calibrate_several(
    measured: Sequence[Measurement],
    *,
    seed: int = 1,
    without: bool = True,
    progress: Callable[[float], None] | None = None,
) -> Calibration:
    """Infer one path from what several schemes got over it.

    The model is that of `calibrate`; packets may also leave by a Poisson process, or at a rate that wanders, if the path
    then predicts schemes better that it was not inferred from.

    Args:
        measured: runs, as `read_measurements` reads them; at least two schemes that the simulator has.
        seed: of the simulations.
        without: also leave out one scheme after another, and say how well the others predict it.
        progress: called with the part of the work that is done, 0 to 1.

    Raises:
        ModelError: fewer than two schemes are known and carried anything.

    """
    found = fit_several(measured, draws=DRAWS, seed=seed, without=without, progress=progress)
    warnings = [
        f"{one.scheme}: the path gives it {1 + one.goodput_error:.0%} of what was measured: the model lacks something, or "
        "the runs met different conditions"
        for one in found.schemes
        if abs(one.goodput_error) > _UNEXPLAINED
    ]
    return Calibration(
        None,
        "",
        sum(one.duration_s for one in measured),
        summarized(found.samples, found.first),
        found.samples,
        found.misfit,
        tuple(warnings),
        link=found.link,
        schemes=found.schemes,
        left_out=found.left_out,
    )


def _part(
    progress: Callable[[float], None] | None, from_: float, to: float
) -> Callable[[float], None] | None:
    return (lambda done: progress(from_ + (to - from_) * done)) if progress else None


def _shares(trace: Trace, flow: int, scheme: str) -> Mapping[str, float]:
    """Shares of the time by limit; none if that cannot be said."""
    try:
        return limits(trace, flow, scheme=scheme).shares
    except ModelError:
        return {}


def _limited_otherwise(shares: Mapping[str, float], seen: Observation) -> list[str]:
    """Say so if the application or the receiver limited the flow, of which simulated flows know nothing."""
    if not shares:
        return []
    found = []
    idle = shares["application"] + shares["idle"]
    if idle > _OTHERWISE_LIMITED:
        found.append(
            f"its application limited the flow for {idle:.0%} of the time: the rate is a lower bound, and queue and "
            "losses are hardly known"
        )
    if shares["receive_window"] > _OTHERWISE_LIMITED and not seen.window_bytes:
        found.append(
            f"the receiver's window limited the flow for {shares['receive_window']:.0%} of the time: the rate is a "
            "lower bound"
        )
    return found


__all__ = [
    "DRAWS",
    "Calibration",
    "FlowUsed",
    "Measurement",
    "Parameter",
    "Prior",
    "SchemeFit",
    "calibrate",
    "calibrate_flows",
    "calibrate_several",
    "posterior_file",
    "read_measurements",
]
