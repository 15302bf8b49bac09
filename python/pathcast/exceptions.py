"""All that Pathcast raises on purpose.

```text
PathcastError
├── PathFileError     a path or scenario file that cannot be used
├── TraceError        a trace that cannot be read or written
├── SchemeError       a congestion control that is not there
├── SimulationError   a simulation that can make no progress
├── EmulatorError     the emulator cannot run here, or not so
├── LiveError         two hosts that cannot run flows with each other
├── ProbeError        flows that cannot be watched
├── ProbingError      trains of probes that cannot be sent, or of which nothing can be said
├── ClusterError      a Ray cluster that cannot be used
├── DownloadError     a download that cannot be measured, or a server of bytes that cannot listen
└── ModelError        a series that no model can use
```

Each message says what was got, what was wanted, and where.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pathcast import _internal


class PathcastError(Exception):
    """The root: catch this to catch everything that Pathcast raises on purpose."""


class PathFileError(PathcastError):
    """A path or scenario file that cannot be used: file, line, column, what was got and what was wanted."""


class TraceError(PathcastError):
    """A trace that cannot be read or written: file, line or row, column, got and wanted."""


class SchemeError(PathcastError):
    """A congestion control that the simulator lacks, or no flow at all."""


class SimulationError(PathcastError):
    """A simulation that can make no progress: how far it got, why, and the state it was left in."""


class EmulatorError(PathcastError):
    """The emulator cannot run here, or not what it was asked for."""


class LiveError(PathcastError):
    """A server that does not answer or refuses, or a run that two hosts cannot make."""


class ProbeError(PathcastError):
    """Flows that cannot be watched: what was asked for is not there, not permitted, or makes no sense."""


class ProbingError(PathcastError):
    """Trains of probes that cannot be sent, or delays of which nothing can be said: what was wanted."""


class BudgetSpent(ProbingError):
    """Probing a real path would send more than it may."""


class ClusterError(PathcastError):
    """A Ray cluster that cannot be reached or used, or whose workers cannot do what they must."""


class DownloadError(PathcastError):
    """A host that cannot be reached or trusted, an answer that is not the file, an address in use."""


class ModelError(PathcastError):
    """A series that no model can use, or a wrong option of a model."""


_KINDS: dict[type[Exception], type[PathcastError]] = {
    _internal.PathFileError: PathFileError,
    _internal.TraceError: TraceError,
    _internal.SchemeError: SchemeError,
    _internal.SimulationError: SimulationError,
    _internal.EmulatorError: EmulatorError,
    _internal.LiveError: LiveError,
    _internal.ProbeError: ProbeError,
    _internal.ModelError: ModelError,
}


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turns the Rust module's exceptions into this tree's."""
    try:
        yield
    except tuple(_KINDS) as error:
        raise _KINDS[type(error)](str(error)) from None
