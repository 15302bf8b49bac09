"""Many simulations at once: sweeps over paths, schemes and seeds on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

from pathcast import _internal
from pathcast.exceptions import translated
from pathcast.path import Path
from pathcast.runs import checked
from pathcast.trace import Column


@dataclass(frozen=True)
class Simulation:
    """One simulation of a batch.

    Attributes:
        path: what lies between the hosts.
        schemes: one bulk flow for each.
        duration_s: how much virtual time passes, in seconds.
        seed: of all that is random.

    """

    path: Path
    schemes: tuple[str, ...] = ("cubic",)
    duration_s: float = 60.0
    seed: int = 1


class Results:
    """A row for each flow of each simulation, in their order, as an Arrow table.

    It speaks the Arrow PyCapsule interface: `pyarrow.table(results)`, `polars.DataFrame(results)`
    or DuckDB take it over without a copy.

    Columns: `simulation` (its index), `seed`, `duration_s`, `flow`, `scheme`, `goodput_bps`,
    `retransmits`, and of the whole simulation `packets_delivered`, `loss_rate`,
    `one_way_delay_mean_ms`, `one_way_delay_p50_ms` and `one_way_delay_p95_ms`.
    """

    def __init__(self, inner: _internal.ArrowTable) -> None:
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._inner.__arrow_c_stream__(requested_schema)

    def column(self, name: str) -> Column:
        """A column of numbers.

        Raises:
            TraceError: there is no such column, or it holds text.

        """
        with translated():
            return self._inner.numbers(name)

    def write(self, file: str | os.PathLike[str]) -> None:
        """Writes the table as Parquet, whole or not at all.

        Raises:
            TraceError: the file cannot be written.

        """
        with translated():
            self._inner.write(FilePath(file))


def simulate_many(
    simulations: Sequence[Simulation],
    *,
    threads: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Results:
    """Runs simulations on all cores, without Python's lock. The same specs give the same results,
    whatever the number of threads.

    Args:
        simulations: what to run.
        threads: how many at once; by default one for each core.
        progress: told now and then how many have ended; may raise to stop the batch.

    Raises:
        SchemeError: a scheme that the simulator lacks; nothing is run then.
        PathcastError: a duration or seed out of range.

    Example:
        >>> path = Path.parse("rate = '12 Mbit/s'\\ndelay = '30 ms'\\n")
        >>> results = simulate_many([Simulation(path, ("reno",), 5, seed) for seed in range(4)])
        >>> len(results), bool(results.column("goodput_bps").min() > 8e6)
        (4, True)

    """
    specs = [
        (
            spec.path.toml,
            spec.path.file,
            checked(spec.schemes, spec.duration_s, spec.seed),
            spec.duration_s,
            spec.seed,
        )
        for spec in simulations
    ]
    with translated():
        return Results(_internal.simulate_many(specs, threads or 0, progress))
