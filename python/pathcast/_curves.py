"""Loss curves of many services, as Parquet: exported from each, merged into one."""

from __future__ import annotations

import json
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pathcast.cluster import Cluster
from pathcast.exceptions import ServiceError
from pathcast.extras import need

#: What makes a cell of a curve, and how cells of several services are put together.
KEYS = ("prefix", "npc", "cwnd_packets")
_MERGED = (("packets", "sum"), ("losses", "sum"), ("newest_s", "max"))
#: Rows of a file that are read together.
_ROWS = 1 << 18
#: Longest answer of a service, in bytes.
_MOST_BYTES = 1 << 30


def export_curves(
    service: str,
    destination: str,
    *,
    token: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> int:
    """Write the loss curves of all prefixes that a service knows, as Parquet.

    Columns: prefix, npc (parallel connections), cwnd_packets (the middle of the window's class), packets, losses, and newest_s
    (when the newest sample of the prefix was taken, seconds since 1970). The file is complete or absent.

    Args:
        service: its address, such as http://127.0.0.1:8080.
        destination: a file, or any URL of fsspec.
        token: of a client that may read.
        progress: receives how many parts were read; may raise to stop.

    Returns:
        The number of rows.

    Raises:
        ServiceError: the service does not answer as it should, the destination cannot be written, or pyarrow or fsspec is
            missing.

    """
    arrow, parquet = _needed("pyarrow"), _needed("pyarrow.parquet")
    schema = _schema(arrow)
    parts, part, rows = 1, 0, 0
    with _written(destination) as file, parquet.ParquetWriter(file, schema) as writer:
        while part < parts:
            found = _part(service, part, token)
            parts = found["parts"]
            rows += len(found["rows"])
            writer.write_table(arrow.Table.from_pylist(found["rows"], schema=schema))
            part += 1
            if progress is not None:
                progress(part / parts)
    return rows


def merge_curves(
    sources: Sequence[str],
    destination: str,
    *,
    partitions: int = 1,
    cluster: Cluster | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[str]:
    """Sum up the curves of several exports.

    Prefixes are spread over the partitions by a hash. Each partition is a task and a file of its own, so memory is that of one
    partition for each processor.

    Args:
        sources: files or URLs of exports.
        destination: the file or URL of the result; with several partitions, a folder for them.
        partitions: how many.
        cluster: where the tasks run; by default here, one after another.
        progress: receives how many partitions are done; may raise to stop.

    Returns:
        The files.

    Raises:
        ServiceError: a file is missing or is no export, the destination cannot be written, or a package is missing.

    """
    if not sources or partitions < 1:
        raise ServiceError(
            f"got {len(sources)} exports and {partitions} partitions; expected at least one of each"
        )
    names = [
        destination if partitions == 1 else f"{destination.rstrip('/')}/part-{number:05}.parquet"
        for number in range(partitions)
    ]
    task = partial(_merge_partitions, tuple(sources), partitions)
    chunks = [[(number, name)] for number, name in enumerate(names)]
    done: list[str] = []
    if cluster is not None:
        for ended in cluster.map(task, chunks, progress=progress):
            done.extend(ended)
        return done
    for chunk in chunks:
        done.extend(task(chunk))
        if progress is not None:
            progress(len(done) / partitions)
    return done


def _merge_partitions(
    sources: Sequence[str], partitions: int, chunk: Sequence[tuple[int, str]]
) -> list[str]:
    """Merge some partitions: their numbers and files."""
    parquet = _needed("pyarrow.parquet")
    for number, name in chunk:
        merged = _merged(sources, number, partitions)
        with _written(name) as file:
            parquet.write_table(merged, file)
    return [name for _, name in chunk]


def _merged(sources: Sequence[str], number: int, partitions: int) -> Any:  # noqa: ANN401 - a table of pyarrow
    arrow = _needed("pyarrow")
    merged = _schema(arrow).empty_table()
    for source in sources:
        for table in _tables(source):
            mine = table if partitions == 1 else table.filter(_is_of(table, number, partitions))
            both = arrow.concat_tables([merged, mine])
            found = both.group_by(list(KEYS)).aggregate(list(_MERGED))
            columns = {f"{name}_{how}": name for name, how in _MERGED}
            merged = found.rename_columns([columns.get(one, one) for one in found.column_names])
            merged = merged.select(_schema(arrow).names).cast(_schema(arrow))
    return merged.sort_by([(key, "ascending") for key in KEYS])


def _is_of(table: Any, number: int, partitions: int) -> Any:  # noqa: ANN401 - of pyarrow
    """Which rows have a prefix of the partition."""
    arrow = _needed("pyarrow")
    coded = table["prefix"].combine_chunks().dictionary_encode()
    mine = [zlib.crc32(one.as_py().encode()) % partitions == number for one in coded.dictionary]
    return arrow.array(mine, arrow.bool_()).take(coded.indices)


def _tables(source: str) -> Iterator[Any]:
    arrow, parquet = _needed("pyarrow"), _needed("pyarrow.parquet")
    schema = _schema(arrow)
    try:
        with _needed("fsspec").open(source, "rb") as file:
            for batch in parquet.ParquetFile(file).iter_batches(_ROWS, columns=schema.names):
                yield arrow.Table.from_batches([batch]).cast(schema)
    except (OSError, ValueError, KeyError, arrow.ArrowException) as error:
        raise ServiceError(
            f"{source}: {error}; expected a file of `pathcast curves export`"
        ) from None


def _schema(arrow: Any) -> Any:  # noqa: ANN401 - of pyarrow
    number = arrow.float64()
    return arrow.schema(
        [
            ("prefix", arrow.string()),
            ("npc", arrow.int32()),
            ("cwnd_packets", number),
            ("packets", number),
            ("losses", number),
            ("newest_s", number),
        ]
    )


class _written:
    """A file that is there once the block has ended without an error."""

    def __init__(self, destination: str) -> None:
        self._destination = destination

    def __enter__(self) -> Any:  # noqa: ANN401 - a file of fsspec
        fsspec = _needed("fsspec")
        try:
            is_local = fsspec.utils.get_protocol(self._destination) in ("file", "local")
            options = {"auto_mkdir": True} if is_local else {}
            self._system, path = fsspec.core.url_to_fs(self._destination, **options)
            self._system.start_transaction()
            self._file = self._system.open(path, "wb")
        except (OSError, ValueError, ImportError) as error:
            raise ServiceError(
                f"{self._destination}: {error}; expected a file, or a URL of fsspec"
            ) from None
        return self._file

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self._file.close()
            self._system.end_transaction() if kind is None else self._discard()
        except OSError as why:
            raise ServiceError(f"{self._destination}: {why}") from None

    def _discard(self) -> None:
        self._system.transaction.complete(commit=False)
        self._system._intrans = False


def _part(service: str, part: int, token: str | None) -> dict[str, Any]:
    if not service.startswith(("http://", "https://")):
        raise ServiceError(f"got {service!r}; expected an address such as http://127.0.0.1:8080")
    url = f"{service.rstrip('/')}/v1/curves?part={part}"
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        asked = urllib.request.Request(url, headers=headers)  # noqa: S310 - http and https alone
        with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
            found = json.loads(answer.read(_MOST_BYTES))
    except (OSError, ValueError) as error:
        raise ServiceError(f"{url}: {error}; expected a running `pathcast serve`") from None
    if not (isinstance(found, dict) and isinstance(found.get("rows"), list) and found.get("parts")):
        raise ServiceError(f"{url}: the answer has no rows; expected a running `pathcast serve`")
    return found


def _needed(module: str) -> Any:  # noqa: ANN401 - a module
    return need(module, "cluster", "the export of curves", ServiceError)
