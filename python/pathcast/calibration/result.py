"""What a calibration found: draws of the posterior, their summary, and the files that hold both."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pathcast.calibration.closed_forms import PARAMETERS, FirstEstimate
from pathcast.calibration.paths import CONSTANT, LINKS, QUEUES, Link, path_of, shared, steady_bps
from pathcast.exceptions import PathFileError
from pathcast.files import write_beside
from pathcast.path import Path, read_text
from pathcast.scenario import Scenario
from pathcast.trace import Column

#: Spreads of logarithms up to which a parameter counts as identified.
_IDENTIFIED = {"rate_bps": 0.15, "rtt_s": 0.05, "queue_s": 0.2, "loss": 0.4, "jitter_s": 0.5}
#: Fewer losses that no queue explains bound their probability from above only.
_LEAST_LOSSES = 10
#: A posterior file has this many of them at most.
_MOST_COMPETING, _MOST_STEPS = 100, 1000
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
    "target_s": "a longer flow that fills the queue",
}

#: Parameters that the same measurement tells.
_TOLD_WITH = {"queue_bytes": "queue_s", "steady_bps": "rate_bps"}


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
class FlowUsed:
    """A flow that a path was inferred from.

    Attributes:
        trace: file of its trace; empty if it has none.
        flow: its number in it.
        scheme: its congestion control.
        duration_s: seconds of it that were used.

    """

    trace: str
    flow: int
    scheme: str
    duration_s: float


@dataclass(frozen=True)
class SchemeFit:
    """One scheme over the path that was found.

    Attributes:
        scheme: its name.
        runs: how many were measured.
        goodput_bps: measured, mean of the runs.
        delay_p95_s: measured likewise; None: not measured.
        goodput_error: simulated against measured, as a part; of all schemes' path.
        delay_error: likewise; None: not measured.
        goodput_error_without: the same on the path that the other schemes alone tell; None: too few others.
        delay_error_without: likewise.
        goodput_range_without: 5 and 95 % quantiles of `goodput_error_without`, over what the others leave open and chance.

    """

    scheme: str
    runs: int
    goodput_bps: float
    delay_p95_s: float | None
    goodput_error: float
    delay_error: float | None
    goodput_error_without: float | None = None
    delay_error_without: float | None = None
    goodput_range_without: tuple[float, float] | None = None


@dataclass(frozen=True)
class Calibration:
    """The path of a flow or several, as far as they tell; or of the runs of several schemes.

    Attributes:
        flow: its number in the trace; None: several flows or schemes were measured.
        scheme: its congestion control; empty likewise.
        duration_s: seconds of it that were used; of all runs likewise.
        parameters: `rate_bps`, `rtt_s` (propagation, both ways), `queue_s` (time that a full queue takes to drain),
            `queue_bytes`, `loss` and `jitter_s`. With a policer, `rate_bps` is the policer's, and `burst_bytes` stands in
            place of the queue.
        samples: draws of the posterior; columns `rate_bps`, `rtt_s`, `queue_s`, `loss`, `jitter_s`; shape n x 5.
        misfit: how far the flow lies from those over the best path, in standard deviations of its features.
        warnings: what to know of the result.
        line_rate_bps: rate of the link behind the policer; None: there is no policer.
        link: how packets leave the queue.
        schemes: how each of several schemes does over the path; none if a flow was measured.
        left_out: schemes that were measured and that the simulator does not have.
        competing: schemes of the flows that share the path and react to it, the likeliest; none if none are needed to
            explain the flow, or if that is likelier.
        flows: those that were used; none if only what schemes got was measured.
        queue: its discipline: `droptail`, `codel` or `pie`. Of a managed one, `target_s` stands in place of `queue_s`.
        competing_of_draws: the flows that share the path in each draw, n of them; empty: `competing` in all.
        receive_window: what receivers of flows over TCP take: `auto` if their windows were seen to open with what arrives;
            None: not known, and never in the way.
        steady_part: what other traffic of a constant rate takes of the link; 0: none was seen. `parameters` has its rate then,
            as `steady_bps` of whole packets.
        opens: the connection that was measured opened over the path, beside what else is there, and alternatives do so too.

    """

    flow: int | None
    scheme: str
    duration_s: float
    parameters: Mapping[str, Parameter]
    samples: Column
    misfit: float
    warnings: tuple[str, ...]
    line_rate_bps: float | None = None
    competing: tuple[str, ...] = ()
    link: Link = CONSTANT
    schemes: tuple[SchemeFit, ...] = ()
    left_out: tuple[str, ...] = ()
    flows: tuple[FlowUsed, ...] = ()
    queue: str = "droptail"
    competing_of_draws: tuple[tuple[str, ...], ...] = ()
    receive_window: str | None = None
    steady_part: float = 0.0
    opens: bool = False

    @property
    def competing_sets(self) -> dict[tuple[str, ...], float]:
        """The probability of each set of flows that may share the path, the likeliest first; empty if none do.

        A set without flows is there where the path may be the flow's own.
        """
        counts = Counter(self.competing_of_draws or [self.competing])
        if list(counts) == [()]:
            return {}
        total = counts.total()
        return {schemes: count / total for schemes, count in counts.most_common()}

    def path(self) -> Path:
        """Return the path with the medians of the parameters, without the flows that compete for it.

        If several sets of flows may share it, these are the medians beside the likeliest.
        """
        here = [one == self.competing for one in self.competing_of_draws] or slice(None)
        return self._path(np.median(self.samples[here], axis=0))

    def paths(self, count: int, seed: int = 1) -> list[Path | Scenario]:
        """Draw paths from the posterior; each is a scenario if flows compete for it.

        Args:
            count: how many.
            seed: of the draw.

        """
        chosen = np.random.default_rng(seed).integers(0, len(self.samples), count)
        beside = self.competing_of_draws or [self.competing] * len(self.samples)
        return [
            shared(
                self._path(self.samples[i]),
                beside[i],
                self.receive_window,
                steady_bps=steady_bps(self.samples[i], self.steady_part),
            )
            for i in chosen
        ]

    def _path(self, parameters: Column) -> Path:
        beside = f"; {flows_text(self.competing)} beside it" if self.competing else ""
        if self.steady_part:
            beside += f"; other traffic takes {self.steady_part:.0%} of it"
        name = f"calibrated{beside}"
        return path_of(parameters, self.line_rate_bps, name, self.link, self.queue)

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "flow": self.flow,
            "scheme": self.scheme,
            "duration_s": self.duration_s,
            "bottleneck": "queue" if self.line_rate_bps is None else "policer",
            "line_rate_bps": self.line_rate_bps,
            "competing": list(self.competing),
            "competing_sets": [
                {"schemes": list(schemes), "probability": part}
                for schemes, part in self.competing_sets.items()
            ],
            "steady_part": self.steady_part,
            "link": vars(self.link),
            "queue": self.queue,
            "receive_window": self.receive_window,
            "opens": self.opens,
            "flows": [vars(one) for one in self.flows],
            "schemes": [vars(one) for one in self.schemes],
            "left_out": list(self.left_out),
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
        if self.competing_of_draws:
            numbers = {schemes: number for number, schemes in enumerate(self.competing_sets)}
            posterior["set_of_sample"] = [numbers[one] for one in self.competing_of_draws]
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
                None if values["flow"] is None else int(values["flow"]),
                str(values["scheme"]),
                float(values["duration_s"]),
                {key: Parameter(**one) for key, one in values["parameters"].items()},
                samples,
                float(values["misfit"]),
                tuple(map(str, values["warnings"])),
                _positive(values.get("line_rate_bps")),
                _schemes(values.get("competing", [])),
                _link(values.get("link")),
                tuple(map(_scheme_fit, values.get("schemes", []))),
                _schemes(values.get("left_out", [])),
                tuple(_flow_used(one) for one in values.get("flows", [])),
                _queue(values.get("queue", "droptail")),
                _competing_of_draws(values, len(samples)),
                _receive_window(values.get("receive_window")),
                _part(values.get("steady_part", 0.0)),
                values.get("opens", False) is True,
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


def _part(value: object) -> float:
    """A part of a link that others take."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"got {value!r}; expected a number from 0 to less than 1")
    return float(value)


def _flow_used(value: dict[str, Any]) -> FlowUsed:
    """One flow of a posterior file."""
    return FlowUsed(
        str(value["trace"]), int(value["flow"]), str(value["scheme"]), float(value["duration_s"])
    )


def _scheme_fit(value: dict[str, Any]) -> SchemeFit:
    """One scheme of a posterior file."""
    found = SchemeFit(**value)
    between = found.goodput_range_without
    if between is None:
        return found
    p5, p95 = between
    return replace(found, goodput_range_without=(float(p5), float(p95)))


def _link(value: object) -> Link:
    """The link of a posterior file, constant in old ones."""
    if value is None:
        return CONSTANT
    if not isinstance(value, dict) or value.get("kind") not in LINKS:
        raise ValueError(f"got the link {str(value)[:40]!r}; expected one of {', '.join(LINKS)}")
    steps = tuple((float(start_s), float(factor)) for start_s, factor in value.get("steps", []))
    if len(steps) > _MOST_STEPS:
        raise ValueError(f"got {len(steps)} steps; expected at most {_MOST_STEPS}")
    return Link(
        value["kind"],
        float(value["spread"]),
        float(value["correlation_s"]),
        steps,
        float(value.get("period_s", 0.0)),
    )


def _queue(value: object) -> str:
    """The queue of a posterior file."""
    if value not in QUEUES:
        raise ValueError(f"got the queue {str(value)[:40]!r}; expected one of {', '.join(QUEUES)}")
    return str(value)


def _receive_window(value: object) -> str | None:
    """What receivers take, not known in old posterior files."""
    if value not in (None, "auto"):
        raise ValueError(f"got the receive_window {str(value)[:40]!r}; expected auto or null")
    return None if value is None else "auto"


def _competing_of_draws(values: dict[str, Any], draws: int) -> tuple[tuple[str, ...], ...]:
    """The flows that compete in each draw of a posterior file."""
    numbers = values.get("set_of_sample")
    if numbers is None:
        return ()
    sets = [_schemes(one["schemes"]) for one in values["competing_sets"]]
    if (
        not isinstance(numbers, list)
        or len(numbers) != draws
        or not all(type(one) is int and 0 <= one < len(sets) for one in numbers)
    ):
        raise ValueError(f"its set_of_sample are not {draws} numbers of the {len(sets)} sets")
    found = tuple(sets[number] for number in numbers)
    if _schemes(values["competing"]) not in found:
        raise ValueError("no draw has the flows that it says compete")
    return found


def _schemes(value: object) -> tuple[str, ...]:
    """Schemes of a posterior file."""
    if not isinstance(value, list) or len(value) > _MOST_COMPETING:
        raise ValueError(f"got {str(value)[:40]!r}; expected at most {_MOST_COMPETING} schemes")
    return tuple(map(str, value))


def flows_text(competing: Sequence[str]) -> str:
    """Flows that compete, in words."""
    if not competing:
        return "no other flow"
    scheme = competing[0]
    return f"one {scheme} flow" if len(competing) == 1 else f"{len(competing)} {scheme} flows"


def paths_of(
    source: Path | Scenario | Calibration, count: int, seed: int
) -> tuple[list[Path | Scenario], str | None]:
    """Return paths to run over, and what receivers there take over TCP, as in a scenario file.

    Args:
        source: a calibration, whose posterior is drawn from; or what all runs share, of whose receivers nothing is known.
        count: how many.
        seed: of the draw.

    """
    if isinstance(source, Calibration):
        return source.paths(count, seed), source.receive_window
    return [source] * count, None


def posterior_file(file: str | os.PathLike[str]) -> str:
    """Return the name of the posterior beside a path file; that of a posterior itself."""
    name = os.fspath(file)
    return name if name.endswith(_SUFFIX) else name.removesuffix(".toml") + _SUFFIX


def summarized(
    samples: Column, first: FirstEstimate, discipline: str = "droptail", steady_part: float = 0.0
) -> dict[str, Parameter]:
    """Summarize the draws of each parameter, and the rate of what takes a part of the link, if anything does."""
    columns = {name: samples[:, i] for i, name in enumerate(PARAMETERS)}
    spreads = {name: float(np.log(values).std()) for name, values in columns.items()}
    policed = first.line_rate_bps is not None
    stored = "burst_bytes" if policed else "queue_bytes"
    columns[stored] = columns["queue_s"] * columns["rate_bps"] / 8
    is_identified = {name: spreads[name] <= most for name, most in _IDENTIFIED.items()}
    is_identified["queue_s"] &= first.queue_filled
    if first.most_rtt_s is not None:
        # what is known is the longest round trip; without the propagation delay nothing says how much of it is a queue
        is_identified["queue_s"] &= is_identified["rtt_s"]
    is_identified["loss"] &= first.random_losses >= _LEAST_LOSSES
    is_identified[stored] = is_identified["queue_s"]
    columns["steady_bps"] = columns["rate_bps"] * steady_part
    is_identified["steady_bps"] = is_identified["rate_bps"]
    found = {}
    queue: tuple[str, ...] = (stored,) if policed else ("queue_s", stored)
    if discipline != "droptail":
        columns["target_s"], is_identified["target_s"] = (
            columns["queue_s"],
            is_identified["queue_s"],
        )
        queue = ("target_s",)
    others = ("steady_bps",) if steady_part else ()
    for name in ("rate_bps", *others, "rtt_s", *queue, "loss", "jitter_s"):
        p5, median, p95 = (float(value) for value in np.quantile(columns[name], [0.05, 0.5, 0.95]))
        told = bool(is_identified[name])
        by = "" if told else _NARROWED_BY[_TOLD_WITH.get(name, name)]
        found[name] = Parameter(median, p5, p95, told, by)
    return found


__all__ = [
    "Calibration",
    "Parameter",
    "SchemeFit",
    "flows_text",
    "paths_of",
    "posterior_file",
    "summarized",
]
