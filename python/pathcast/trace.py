"""Traces: the record of TCP senders, one row for each acknowledgment or change of the window."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, TypeAlias

from pathcast import _internal
from pathcast.exceptions import PathFileError, TraceError, translated
from pathcast.foreign import utf8

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Column: TypeAlias = "npt.NDArray[np.float64]"


class TraceWarning(UserWarning):
    """Warning about doubtful content of a trace."""


@dataclass(frozen=True)
class FlowSeries:
    """One flow's columns, in order of time; all arrays have the same length.

    A value that a row lacks is NaN, and the other rows keep theirs. A column that all rows lack is None.

    Attributes:
        time_s: seconds since the run began.
        cwnd_packets: congestion window in packets of one MSS.
        snd_nxt_packets: packets sent at least once, cumulative.
        srtt_s: smoothed round-trip time in seconds.
        retransmits: packets sent again, cumulative.

    """

    time_s: Column
    cwnd_packets: Column
    snd_nxt_packets: Column | None = None
    srtt_s: Column | None = None
    retransmits: Column | None = None

    def __len__(self) -> int:
        return len(self.time_s)


class Trace:
    """A trace, held in Rust; `docs/reference/trace-format.md` describes its columns and metadata."""

    def __init__(self, inner: _internal.Trace, file: str = "") -> None:
        self._inner = inner
        #: Where it was read from; empty if nowhere.
        self.file = file

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, npt.ArrayLike], metadata: Mapping[str, Any] | None = None
    ) -> Trace:
        """Make a trace from arrays.

        Args:
            columns: `time_s` and `cwnd_packets`, and any other column of the format; NaN for what
                is not known. All of one length.
            metadata: as in `docs/reference/trace-format.md`; by default of a trace of unknown source.

        Raises:
            TraceError: a column is missing or of another length.

        """
        import numpy as np

        arrays = {
            name: np.ascontiguousarray(values, np.float64) for name, values in columns.items()
        }
        description = {"schema": 1, "source": "csv", **(metadata or {})}
        with translated():
            return cls(_internal.Trace(arrays, json.dumps(description)))

    def __len__(self) -> int:
        return len(self._inner)

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_pickle, (self.columns, self._inner.metadata_json(), self.file)

    @cached_property
    def columns(self) -> dict[str, Column]:
        """All columns by name, NaN for unknown values."""
        return self._inner.columns()

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """What is known about the run."""
        return json.loads(self._inner.metadata_json())  # type: ignore[no-any-return]

    @property
    def flows(self) -> list[int]:
        """The flows that have rows, ascending."""
        import numpy as np

        return [int(flow) for flow in np.unique(self.columns["flow"])]

    def scheme(self, flow: int = 0) -> str | None:
        """The congestion control of a flow, if the metadata says."""
        schemes = self.metadata["schemes"]
        return schemes[flow] if flow < len(schemes) else None

    def flow(self, flow: int = 0) -> FlowSeries:
        """One flow's columns as the models take them.

        Raises:
            TraceError: the trace has no such flow.

        """
        import numpy as np

        chosen = self.columns["flow"] == flow
        if not chosen.any():
            message = f"has no flow {flow}, only {self.flows}"
            raise TraceError(f"{self.file or 'trace'}: {message}")

        def column(name: str, scale: float = 1.0) -> Column | None:
            values = self.columns[name][chosen] * scale
            return None if np.isnan(values).all() else values

        mss_bytes = self.metadata["mss_bytes"]
        return FlowSeries(
            self.columns["time_s"][chosen],
            self.columns["cwnd_packets"][chosen],
            column("snd_nxt_bytes", 1 / mss_bytes) if mss_bytes else None,
            column("srtt_s"),
            column("retransmits"),
        )

    def write(self, file: str | os.PathLike[str]) -> None:
        """Write the trace as Parquet, whole or not at all.

        Raises:
            TraceError: the file cannot be written (no such folder, no permission, a full disk).

        """
        with translated():
            self._inner.write(FilePath(file))


def _from_pickle(columns: dict[str, Column], metadata_json: str, file: str) -> Trace:
    return Trace(_internal.Trace(columns, metadata_json), file)


@contextlib.contextmanager
def reading(file: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the Rust module's exceptions into ours, and say of a path in place of a trace that it is one."""
    try:
        with translated():
            yield
    except TraceError:
        if (kind := _kind_of_path(file)) is not None:
            raise TraceError(
                f"{utf8(file)}: got {kind}, expected a trace; simulate, sweep, what-if and others take "
                f"it: `pathcast {utf8(file)}` lists them"
            ) from None
        raise


def _kind_of_path(file: str | os.PathLike[str]) -> str | None:
    """Return what a path or scenario is, as a file or by name; None for anything else."""
    from pathcast import scenario
    from pathcast.path import Path, is_name

    by_name = not FilePath(file).is_file()
    if not (is_name(utf8(file)) if by_name else FilePath(file).suffix == ".toml"):
        return None
    try:
        kind = "path" if isinstance(scenario.load(file), Path) else "scenario"
    except PathFileError:
        return None
    return f"the name of a {kind}" if by_name else f"a {kind} file"


def read_trace(
    file: str | os.PathLike[str], *, keep_prefix: bool = False, flow: int | None = None
) -> Trace:
    """Read a trace in any format that `docs/reference/import-formats.md` lists, packed or not.

    The content of the file decides the format. What is doubtful about what was read is warned of
    with [`TraceWarning`][pathcast.trace.TraceWarning].

    Args:
        file: the file, a pipe, or `-` for the standard input.
        keep_prefix: of a file that is damaged, take the rows before the damage and warn.
        flow: the one flow to read; by default all, but of a packet capture the busiest, 0.

    Raises:
        TraceError: it cannot be read, or holds no valid trace: file, line, row or byte, what was
            got and what was expected.

    ```python
    trace = pathcast.read_trace("capture.pcap", keep_prefix=True)
    ```

    """
    with reading(file):
        inner, said = _internal.import_trace(_internal.TraceFile(FilePath(file)), keep_prefix, flow)
    for warning in json.loads(said)["warnings"]:
        warnings.warn(warning, TraceWarning, stacklevel=2)
    return Trace(inner, utf8(file))
