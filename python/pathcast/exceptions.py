"""All that Pathcast raises on purpose.

```text
PathcastError
├── PathFileError     a path or scenario file that cannot be used
├── TraceError        a trace that cannot be read or written
├── SchemeError       a congestion control that is not available
├── SimulationError   a simulation that can make no progress
├── EmulatorError     the emulator cannot run here, or not so
├── LiveError         two hosts that cannot run flows with each other
├── ProbeError        flows that cannot be watched
├── ServiceError      the service of decisions cannot start
├── ProbingError      trains of probes that cannot be sent, or of which nothing can be said
├── ClusterError      a Ray cluster that cannot be used
├── DownloadError     a download that cannot be measured, or a server of bytes that cannot listen
└── ModelError        a series that no model can use
    └── NoSchemeError a flow whose congestion control is needed and not known
```

Each message says what was got, what was expected, and where.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pathcast import _internal


class PathcastError(Exception):
    """Base class of all errors that Pathcast raises on purpose."""


class PathFileError(PathcastError):
    """Raised for a path or scenario file that cannot be used: file, line, column, got and expected."""


class TraceError(PathcastError):
    """Raised for a trace that cannot be read or written: file, line or row, column, got and expected."""


class SchemeError(PathcastError):
    """Raised for a congestion control that the simulator lacks, or a run without flows."""


class SimulationError(PathcastError):
    """Raised for a simulation that makes no progress; the message has its state."""


class EmulatorError(PathcastError):
    """Raised when the emulator cannot run here, or cannot run this request."""


class LiveError(PathcastError):
    """Raised for a server that does not answer or refuses, or a run between two hosts that cannot be made."""


class ProbeError(PathcastError):
    """Raised for flows that cannot be watched: they do not exist, are not permitted, or an option is wrong."""


class ServiceError(PathcastError):
    """Raised for an invalid configuration of the service, a state folder in use, or an address in use."""


class ProbingError(PathcastError):
    """Raised for trains of probes that cannot be sent, or delays that allow no statement."""


class BudgetSpent(ProbingError):
    """Probing a real path would send more than it may."""


class ClusterError(PathcastError):
    """Raised for a Ray cluster that cannot be reached or used, or whose workers fail."""


class DownloadError(PathcastError):
    """Raised for a host that cannot be reached or trusted, a response that is not the file, or an address in use."""


class ModelError(PathcastError):
    """Raised for a series that no model can use, or a wrong option of a model."""


class NoSchemeError(ModelError):
    """Raised for a flow whose trace does not say its congestion control, where that is needed.

    Attributes:
        what: what lacks it, without how to give it.

    """

    def __init__(self, what: str, how: str = "give it by scheme") -> None:
        super().__init__(f"{what}; {how}")
        self.what = what


_KINDS: dict[type[Exception], type[PathcastError]] = {
    _internal.PathFileError: PathFileError,
    _internal.TraceError: TraceError,
    _internal.SchemeError: SchemeError,
    _internal.SimulationError: SimulationError,
    _internal.EmulatorError: EmulatorError,
    _internal.LiveError: LiveError,
    _internal.ProbeError: ProbeError,
    _internal.ServiceError: ServiceError,
    _internal.ModelError: ModelError,
}


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turn the Rust module's exceptions into this tree's."""
    try:
        yield
    except tuple(_KINDS) as error:
        raise _KINDS[type(error)](str(error)) from None
