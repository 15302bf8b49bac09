"""Infer a path from the trace of one flow, with the uncertainty of each parameter.

`calibrate` compares the flow with flows that the simulator sends over candidate paths. A `Calibration` holds draws of
the posterior, from which `what_if` runs other schemes and workloads.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pathcast._limits import limits
from pathcast.calibration.closed_forms import PARAMETERS, FirstEstimate
from pathcast.calibration.features import Observation, first_seconds, observe
from pathcast.calibration.fit import Posterior, fit, path_of, shared
from pathcast.calibration.inference import ROUNDS, RUNS
from pathcast.exceptions import ModelError, PathFileError
from pathcast.files import write_beside
from pathcast.path import Path, read_text
from pathcast.scenario import Scenario
from pathcast.trace import Column, Trace

#: Draws of a posterior.
DRAWS = 400
#: Packets of a flow that are compared: more only take longer.
_MOST_PACKETS = 250_000
#: Spreads of logarithms up to which a parameter counts as identified.
_IDENTIFIED = {"rate_bps": 0.15, "rtt_s": 0.05, "queue_s": 0.2, "loss": 0.4, "jitter_s": 0.5}
#: Fewer losses that no queue explains bound their probability from above only.
_LEAST_LOSSES = 10
#: From this misfit on, the path has something that these parameters do not describe.
_MISFIT = 1.5
#: Shares of time from which on something else than the path limited the flow.
_OTHERWISE_LIMITED = 0.5
#: Shares of the time in which a policer limits the flow, by the evidence of `limits`: from the first on, a policer is
#: considered beside a queue; from the second on, before it.
_MAYBE_POLICED, _PROBABLY_POLICED = 0.2, 0.5
#: Flows that may compete.
_RIVALS = (*(("cubic",) * count for count in (1, 2, 3, 4, 6)), ("bbr",))
#: From this misfit on they are considered; they are believed if the misfit falls to this part at most.
_MAYBE_COMPETING, _COMPETING_PART = 0.9, 0.75
#: Rounds of simulations, and packets of the flow, that tell which of them are likely.
_SCREENING, _SCREENING_PACKETS = 3, 40_000
#: A posterior file has this many of them at most.
_MOST_COMPETING = 100
#: What a posterior file says that it is.
_FORMAT = "pathcast-posterior/1"
#: The files of a calibration: the path, and beside it the posterior.
_SUFFIX = ".posterior.json"

_NARROWED_BY = {
    "rate_bps": "a flow that fills the path, such as BBR, or a longer one",
    "rtt_s": "a flow on the path while nothing else queues",
    "queue_s": "a flow that overflows the queue: several flows at once, or a longer one",
    "loss": "a longer flow",
    "jitter_s": "one-way delays, as of captures at both ends",
    "burst_bytes": "a longer flow",
}


@dataclass(frozen=True)
class Parameter:
    """What is known of one parameter of a path.

    Attributes:
        median: of the posterior.
        p5: its 5 % quantile; a lower bound where `identified` is false.
        p95: its 95 % quantile.
        identified: whether the flow tells it. If not, the interval comes mostly from the prior.
        narrowed_by: which measurement would tell more; empty if identified.

    """

    median: float
    p5: float
    p95: float
    identified: bool
    narrowed_by: str


@dataclass(frozen=True)
class Calibration:
    """The path of a flow, as far as the flow tells.

    Attributes:
        flow: its number in the trace.
        scheme: its congestion control.
        duration_s: seconds of it that were used.
        parameters: `rate_bps`, `rtt_s` (propagation, both ways), `queue_s` (time that a full queue takes to drain),
            `queue_bytes`, `loss` and `jitter_s`. With a policer, `rate_bps` is the policer's, and `burst_bytes` stands in
            place of the queue.
        samples: draws of the posterior; columns `rate_bps`, `rtt_s`, `queue_s`, `loss`, `jitter_s`; shape n x 5.
        misfit: how far the flow lies from those over the best path, in standard deviations of its features.
        warnings: what to know of the result.
        line_rate_bps: rate of the link behind the policer; None: there is no policer.
        competing: schemes of the flows that share the path and react to it; none if none are needed to explain the flow.

    """

    flow: int
    scheme: str
    duration_s: float
    parameters: Mapping[str, Parameter]
    samples: Column
    misfit: float
    warnings: tuple[str, ...]
    line_rate_bps: float | None = None
    competing: tuple[str, ...] = ()

    def path(self) -> Path:
        """Return the path with the medians of the parameters, without the flows that compete for it."""
        return path_of(np.median(self.samples, axis=0), self.line_rate_bps, self._name())

    def paths(self, count: int, seed: int = 1) -> list[Path | Scenario]:
        """Draw paths from the posterior; each is a scenario if flows compete for it.

        Args:
            count: how many.
            seed: of the draw.

        """
        chosen = np.random.default_rng(seed).integers(0, len(self.samples), count)
        paths = (path_of(self.samples[i], self.line_rate_bps, self._name()) for i in chosen)
        return [shared(path, self.competing) for path in paths]

    def _name(self) -> str:
        return (
            f"calibrated; {_beside(self.competing)} beside it" if self.competing else "calibrated"
        )

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "flow": self.flow,
            "scheme": self.scheme,
            "duration_s": self.duration_s,
            "bottleneck": "queue" if self.line_rate_bps is None else "policer",
            "line_rate_bps": self.line_rate_bps,
            "competing": list(self.competing),
            "parameters": {name: vars(one) for name, one in self.parameters.items()},
            "misfit": self.misfit,
            "warnings": list(self.warnings),
            "path": self.path().to_toml(),
        }

    def write(self, file: str | os.PathLike[str]) -> None:
        """Write the path as a path file, and beside it the posterior: `NAME.posterior.json`.

        Raises:
            PathcastError: a file cannot be written.

        """
        posterior = {
            "format": _FORMAT,
            **{name: value for name, value in self.to_dict().items() if name != "path"},
            "columns": list(PARAMETERS),
            "samples": self.samples.tolist(),
        }
        write_beside(posterior_file(file), json.dumps(posterior, indent=1) + "\n")
        write_beside(file, self.path().to_toml())

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Calibration:
        """Read what `write` wrote, by the name of the path file or of the posterior.

        Raises:
            PathFileError: it cannot be read, or is none.

        """
        name = posterior_file(file)
        text = read_text(name)
        try:
            values = json.loads(text)
            samples = np.array(values["samples"], dtype=float)
            if values["format"] != _FORMAT or values["columns"] != list(PARAMETERS):
                raise ValueError("it has another format")
            if samples.ndim != 2 or samples.shape[1] != len(PARAMETERS) or not len(samples):
                raise ValueError(f"its samples have the shape {samples.shape}")
            if not (np.isfinite(samples).all() and (samples > 0).all()):
                raise ValueError("a sample is not a positive number")
            return cls(
                int(values["flow"]),
                str(values["scheme"]),
                float(values["duration_s"]),
                {key: Parameter(**one) for key, one in values["parameters"].items()},
                samples,
                float(values["misfit"]),
                tuple(map(str, values["warnings"])),
                _positive(values.get("line_rate_bps")),
                _schemes(values.get("competing", [])),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PathFileError(
                f"{name}: expected a posterior as `pathcast calibrate -o` writes it; {error}"
            ) from None


def _positive(value: object) -> float | None:
    """A number of a posterior file that may be missing."""
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (math.isfinite(value) and value > 0)
    ):
        raise ValueError(f"got {value!r}; expected a positive number")
    return float(value)


def _schemes(value: object) -> tuple[str, ...]:
    """Schemes of a posterior file."""
    if not isinstance(value, list) or len(value) > _MOST_COMPETING:
        raise ValueError(f"got {str(value)[:40]!r}; expected at most {_MOST_COMPETING} schemes")
    return tuple(map(str, value))


def _beside(competing: Sequence[str]) -> str:
    """Flows that compete, in words."""
    scheme = competing[0]
    return f"one {scheme} flow" if len(competing) == 1 else f"{len(competing)} {scheme} flows"


def posterior_file(file: str | os.PathLike[str]) -> str:
    """Return the name of the posterior beside a path file; that of a posterior itself."""
    name = os.fspath(file)
    return name if name.endswith(_SUFFIX) else name.removesuffix(".toml") + _SUFFIX


def calibrate(
    trace: Trace,
    flow: int = 0,
    *,
    scheme: str | None = None,
    seed: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Calibration:
    """Infer the path of a flow: rate, propagation delay, queue, random loss and jitter, each with its uncertainty.

    The model is a droptail queue before one link, with independent losses and exponential jitter behind it; or, if that
    explains the flow better, a policer in place of the queue, or a queue shared with flows of CUBIC or BBR. Other traffic
    that does not react counts as missing rate. Changes of the path are not part of it; a `misfit` of more than 1.5 says
    that something is missing, and a warning too.

    Args:
        trace: with acknowledged bytes and round-trip times, and retransmissions, if it is to separate losses.
        flow: its number.
        scheme: congestion control; by default what the trace says.
        seed: of the simulations.
        progress: called with the part of the work that is done, 0 to 1.

    Raises:
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
    seen = observe(trace, flow)
    packets = float(seen.acked[-1])
    if packets > _MOST_PACKETS:
        seen = observe(trace, flow, max(seen.duration_s * _MOST_PACKETS / packets, 5.0))
    scheme = scheme or trace.scheme(flow)
    if not scheme:
        raise ModelError(
            f"{trace.file or 'trace'}: flow {flow} has no congestion control in the trace; give it by scheme"
        )
    shares = _shares(trace, flow, scheme)
    warnings = _limited_otherwise(shares, seen)
    posterior, first = _likeliest(seen, scheme, shares.get("policer", 0.0), seed, progress)
    if posterior.misfit > _MISFIT:
        warnings.append(
            f"the flow differs from all simulated ones by {posterior.misfit:.1f} standard deviations: the path has "
            "something that the model lacks, such as a change of rate or other traffic that comes and goes"
        )
    if seen.retransmits is None:
        warnings.append("the trace has no retransmissions: losses are known from the window alone")
    parameters = _parameters(posterior.samples, first)
    return Calibration(
        flow,
        scheme,
        seen.duration_s,
        parameters,
        posterior.samples,
        posterior.misfit,
        tuple(warnings),
        posterior.line_rate_bps,
        posterior.competing,
    )


def _likeliest(
    seen: Observation,
    scheme: str,
    policer_share: float,
    seed: int,
    progress: Callable[[float], None] | None,
) -> tuple[Posterior, FirstEstimate]:
    """Fit a queue, a policer where the flow looks like that, and competing flows where neither explains it.

    The one with the least misfit is taken; competing flows only if they explain clearly more.
    """

    def fitted(
        from_: float,
        to: float,
        like: Observation = seen,
        **keys: Any,  # noqa: ANN401
    ) -> tuple[Posterior, FirstEstimate]:
        total = RUNS * keys.get("rounds", ROUNDS)
        note = (lambda done: progress(from_ + (to - from_) * done / total)) if progress else None
        return fit(like, scheme, draws=DRAWS, seed=seed, progress=note, **keys)

    order = [True, False] if policer_share >= _PROBABLY_POLICED else [False, True]
    is_open = _MAYBE_POLICED <= policer_share < _PROBABLY_POLICED
    best = fitted(0.0, 0.4, policed=order[0])
    if best[0].misfit > _MISFIT or is_open:
        best = min(best, fitted(0.4, 0.6, policed=order[1]), key=_misfit)
    if _misfit(best) > _MAYBE_COMPETING:
        parts = np.linspace(0.6, 0.8, len(_RIVALS) + 1)
        part = min(_SCREENING_PACKETS / max(float(seen.acked[-1]), 1.0), 1.0)
        begin = first_seconds(seen, part * seen.duration_s)
        tried = [
            fitted(from_, to, begin, competing=rivals, rounds=_SCREENING)
            for rivals, from_, to in zip(_RIVALS, parts[:-1], parts[1:], strict=True)
        ]
        likely = min(tried, key=_misfit)
        if _misfit(likely) <= _COMPETING_PART * _misfit(best):
            full = fitted(0.8, 1.0, competing=likely[0].competing)
            if _misfit(full) <= _COMPETING_PART * _misfit(best):
                best = full
    if progress:
        progress(1.0)
    return best


def _misfit(fitted: tuple[Posterior, FirstEstimate]) -> float:
    return fitted[0].misfit


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


def _parameters(samples: Column, first: FirstEstimate) -> dict[str, Parameter]:
    """Summarize the draws of each parameter."""
    columns = {name: samples[:, i] for i, name in enumerate(PARAMETERS)}
    spreads = {name: float(np.log(values).std()) for name, values in columns.items()}
    policed = first.line_rate_bps is not None
    stored = "burst_bytes" if policed else "queue_bytes"
    columns[stored] = columns["queue_s"] * columns["rate_bps"] / 8
    is_identified = {name: spreads[name] <= most for name, most in _IDENTIFIED.items()}
    is_identified["queue_s"] &= first.queue_filled
    is_identified["loss"] &= first.random_losses >= _LEAST_LOSSES
    is_identified[stored] = is_identified["queue_s"]
    found = {}
    queue = (stored,) if policed else ("queue_s", stored)
    for name in ("rate_bps", "rtt_s", *queue, "loss", "jitter_s"):
        p5, median, p95 = (float(value) for value in np.quantile(columns[name], [0.05, 0.5, 0.95]))
        told = bool(is_identified[name])
        by = "" if told else _NARROWED_BY[name.replace("queue_bytes", "queue_s")]
        found[name] = Parameter(median, p5, p95, told, by)
    return found


__all__ = ["DRAWS", "Calibration", "Parameter", "calibrate", "posterior_file"]
