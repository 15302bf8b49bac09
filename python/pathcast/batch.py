"""Many simulations in parallel: sweeps over paths, schemes and seeds on all cores, or on a cluster."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pathcast import _internal
from pathcast.cluster import connected
from pathcast.exceptions import PathcastError, TraceError, translated
from pathcast.files import write_beside
from pathcast.path import Path
from pathcast.runs import specified
from pathcast.scenario import Scenario
from pathcast.trace import Column

if TYPE_CHECKING:
    import pyarrow

#: Chunks for each CPU of a cluster: the last ones to end keep the others waiting for little.
_CHUNKS_PER_CPU = 8
#: Runs in a chunk at most, so that progress is seen.
_RUNS_PER_CHUNK = 64


@dataclass(frozen=True)
class Simulation:
    """One simulation of a batch.

    Attributes:
        path: what lies between the hosts, or a whole scenario.
        schemes: one bulk flow over the path for each, by default one of `cubic`; a scenario has
            its own.
        duration_s: how much virtual time passes, in seconds; by default the scenario's own, or 60.
        seed: of all that is random.

    """

    path: Path | Scenario
    schemes: tuple[str, ...] | None = None
    duration_s: float | None = None
    seed: int = 1


class Results:
    """A row for each flow of each simulation, in their order, as an Arrow table.

    It speaks the Arrow PyCapsule interface: `pyarrow.table(results)`, `polars.DataFrame(results)`
    or DuckDB take it over without a copy.

    Columns: `simulation` (its index), `seed`, `duration_s`, `flow`, `scheme`, `goodput_bps`,
    `retransmits`, and of the whole simulation `packets_delivered`, `loss_rate`,
    `one_way_delay_mean_ms`, `one_way_delay_p50_ms` and `one_way_delay_p95_ms`; of the flow's
    `[[flows]]` table `group_loss_rate` and `group_one_way_delay_p95_ms`; of the flow `workload`,
    `start_s`, `completed_s`, `delivered_bytes`, and where it writes in messages
    `messages_written`, `messages_delivered`, `latency_mean_ms`, `latency_p50_ms`,
    `latency_p95_ms` and `latency_p99_ms`. A simulation that could make no progress has its reason
    in `error`. What there is not is null.
    """

    def __init__(self, inner: _Table) -> None:
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._inner.__arrow_c_stream__(requested_schema)

    def column(self, name: str) -> Column:
        """A column of numbers, NaN where a value is missing.

        Raises:
            TraceError: there is no such column, or it holds text.

        """
        with translated():
            return self._inner.numbers(name)

    def write(self, file: str | os.PathLike[str]) -> None:
        """Write the table as Parquet, whole or not at all.

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
    cluster: str | None = None,
) -> Results:
    """Run simulations on all cores, without Python's lock, or on all machines of a Ray cluster.
    The same specs give the same results, whatever the number of threads and machines.

    Args:
        simulations: what to run.
        threads: how many run in parallel; by default one for each core. Not with a cluster.
        progress: receives how many have ended, from time to time; may raise to stop the batch.
        cluster: address of a Ray cluster, `HOST:PORT`, `ray://HOST:PORT` or `local`; see
            `docs/how-to/sweep.md`.

    Raises:
        SchemeError: a scheme that the simulator lacks; nothing is run then.
        ClusterError: the cluster cannot be used, see `pathcast.cluster`.
        PathcastError: a duration or seed out of range, or both threads and a cluster.

    Example:
        >>> path = Path.parse("rate = '12 Mbit/s'\\ndelay = '30 ms'\\n")
        >>> results = simulate_many([Simulation(path, ("reno",), 5, seed) for seed in range(4)])
        >>> len(results), bool(results.column("goodput_bps").min() > 8e6)
        (4, True)

    """
    specs = _specified(simulations)
    if cluster is not None:
        if threads is not None:
            raise PathcastError(
                f"threads is {threads} and cluster is {cluster}, expected one of them: each task "
                "of a cluster has one thread"
            )
        with translated():
            _internal.check_simulations(specs)
        return Results(_simulate_on(cluster, simulations, progress))
    with translated():
        return Results(_internal.simulate_many(specs, threads or 0, progress))


def _specified(simulations: Sequence[Simulation]) -> list[_internal.Spec]:
    return [specified(one.path, one.schemes, one.duration_s, one.seed) for one in simulations]


def _simulate_on(
    address: str, simulations: Sequence[Simulation], progress: Callable[[float], None] | None
) -> _Table:
    with connected(address) as cluster:
        size = math.ceil(len(simulations) / (_CHUNKS_PER_CPU * cluster.cpus))
        size = min(max(size, 1), _RUNS_PER_CHUNK)
        # no spec is a chunk too: its table has columns
        starts = range(0, max(len(simulations), 1), size)
        sent = [_plain(one) for one in simulations]
        chunks = [sent[start : start + size] for start in starts]
        tables = cluster.map(_simulate_chunk, chunks, progress=progress)
        return _JoinedTable(zip(starts, tables, strict=True))


#: A simulation as a worker gets it, which may lack pathcast and has to say so: whether it is of a scenario, its
#: text and file, and the rest.
_Plain = tuple[bool, str, str, tuple[str, ...] | None, float | None, int]


def _plain(one: Simulation) -> _Plain:
    what = one.path
    schemes = None if one.schemes is None else tuple(one.schemes)
    of_scenario = isinstance(what, Scenario)
    return of_scenario, what.toml, what.file, schemes, one.duration_s, one.seed


def _simulate_chunk(chunk: Sequence[_Plain]) -> bytes:
    """What a task does; its table as an Arrow stream."""
    import pyarrow

    simulations = [
        Simulation((Scenario if of_scenario else Path).parse(toml, file), schemes, duration_s, seed)
        for of_scenario, toml, file, schemes, duration_s, seed in chunk
    ]
    specs = _specified(simulations)
    with translated():
        table = pyarrow.table(_internal.simulate_many(specs, 1))
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


class _Table(Protocol):
    """What is asked of a table; `_internal.ArrowTable` is one."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __len__(self) -> int: ...
    def write(self, file: FilePath) -> None: ...
    def numbers(self, name: str) -> Column: ...


class _JoinedTable:
    """Tables of chunks, as if they were one batch.

    Args:
        chunks: of each, the index of its first simulation in the batch, and an Arrow stream.

    """

    def __init__(self, chunks: Iterable[tuple[int, bytes]]) -> None:
        import pyarrow
        import pyarrow.compute

        tables = []
        for start, stream in chunks:
            table = pyarrow.ipc.open_stream(stream).read_all()
            at = table.schema.get_field_index("simulation")
            field = table.schema.field(at)
            within = table.column(at)
            whole = pyarrow.compute.add(within, pyarrow.scalar(start, field.type))
            tables.append(table.set_column(at, field, whole))
        # "default": a column that has nulls in some chunks may have them in all
        joined = pyarrow.concat_tables(tables, promote_options="default")
        self._table: pyarrow.Table = joined.combine_chunks()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def write(self, file: FilePath) -> None:
        import pyarrow.parquet

        sink = io.BytesIO()
        pyarrow.parquet.write_table(self._table, sink)
        try:
            write_beside(file, sink.getvalue())
        except PathcastError as error:
            raise TraceError(str(error)) from None

    def numbers(self, name: str) -> Column:
        import pyarrow

        at = self._table.schema.get_field_index(name)
        if at < 0 or not _is_number(self._table.schema.field(at).type):
            raise TraceError(f"there is no column of numbers {name}")
        return np.asarray(self._table.column(at).cast(pyarrow.float64()).to_numpy())


def _is_number(kind: pyarrow.DataType) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind))
