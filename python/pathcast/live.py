"""Flows between two hosts over a real path, measured packet by packet at both ends; docs/explanation/live.md."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pathcast import _internal
from pathcast.exceptions import PathcastError, translated
from pathcast.files import check_output
from pathcast.runs import DEFAULT_DURATION_S, Progress, RunReport, checked
from pathcast.scenario import Scenario
from pathcast.trace import Trace

#: The default port of a server.
DEFAULT_PORT = 5600
#: The default address of a server, which only this machine reaches.
DEFAULT_LISTEN = f"127.0.0.1:{DEFAULT_PORT}"


@dataclass(frozen=True)
class Clock:
    """The server's clock against the client's, on which all one-way delays rest.

    Attributes:
        offset_s: the server's clock less the client's when the run began.
        drift_ppm: by how much the server's clock runs faster; 0 if that cannot be estimated.
        error_s: by how much the offset can be wrong at most, whatever the path is like: half the
            shortest round trip. Delays of one direction are too long by it, those of the other too
            short.
        jitter_s: by how much it is uncertain if the idle path takes the same time both ways.
        least_rtt_s: the shortest round trip.
        samples: comparisons of the clocks.

    """

    offset_s: float
    drift_ppm: float
    error_s: float
    jitter_s: float
    least_rtt_s: float
    samples: int


@dataclass(frozen=True)
class LiveReport:
    """What a run between two hosts did.

    Attributes:
        run: as of any run; look at `run.valid`.
        clock: how the hosts' clocks differ.
        server: what the server says of itself: kernel, load, version, congestion controls.
        refused: what was missing that helps, on either host.
        reordered_rate: share of the data packets that arrived which did so after one that was sent later.

    """

    run: RunReport
    clock: Clock
    server: dict[str, str]
    refused: tuple[str, ...]
    reordered_rate: float

    @classmethod
    def from_json(cls, text: str) -> LiveReport:
        """Read the JSON that the Rust crates write."""
        values = json.loads(text)
        clock, server = Clock(**values.pop("clock")), values.pop("server")
        refused, reordered = tuple(values.pop("refused")), values.pop("reordered_rate")
        return cls(RunReport.from_json(json.dumps(values)), clock, server, refused, reordered)

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it: the keys of any run, and those of live runs."""
        return self.run.to_dict() | {
            "clock": vars(self.clock),
            "server": self.server,
            "refused": list(self.refused),
            "reordered_rate": self.reordered_rate,
        }


def write_key(file: str | os.PathLike[str]) -> None:
    """Write a new random key to a new file, which only its owner may read.

    Raises:
        LiveError: the file is there, or cannot be written.

    """
    with translated():
        _internal.live_key(FilePath(file))


def serve(
    key: str | os.PathLike[str],
    listen: str = DEFAULT_LISTEN,
    *,
    clients: int = 4,
    max_duration_s: float = 600.0,
    once: bool = False,
    schemes: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Run flows with all clients that have the key, until Ctrl-C. Needs Linux, root and TUN.

    Args:
        key: the file with the key.
        listen: address and port; [ADDRESS]:PORT for IPv6.
        clients: how many at a time.
        max_duration_s: the longest run.
        once: end after the first client.
        schemes: also run schemes that clients ask for by name, contained.
        say: called with what happens, in words.

    Raises:
        LiveError: the key cannot be used, or the address not be listened on.

    """
    if not 1 <= clients <= 100:
        raise PathcastError(f"clients is {clients}, expected 1 to 100")
    checked(("cubic",), max_duration_s, 0)
    programs = None
    if schemes:
        from pathcast.schemes.live import SERVER

        programs = SERVER
    with translated():
        _internal.live_serve(listen, FilePath(key), clients, max_duration_s, once, programs, say)


def address(server: str) -> tuple[str, int]:
    """Host and port of `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.

    Raises:
        PathcastError: the port is invalid.

    """
    host, port = server, str(DEFAULT_PORT)
    if server.startswith("["):
        host, _, rest = server[1:].partition("]")
        port = rest.removeprefix(":") or port
    elif server.count(":") == 1:
        host, _, port = server.partition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise PathcastError(
            f"got {server!r}, expected HOST, HOST:PORT or [ADDRESS]:PORT with a port of 1 to 65535"
        )
    return host, int(port)


def run(
    server: str,
    key: str | os.PathLike[str],
    what: Scenario | Sequence[str] = ("cubic",),
    *,
    reverse: bool = False,
    workload: str | None = None,
    duration_s: float | None = None,
    seed: int = 1,
    packets_file: str | os.PathLike[str] | None = None,
    messages_file: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> tuple[LiveReport, Trace]:
    """Run flows with a server over the real path to it. Needs Linux, root and TUN.

    Args:
        server: `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
        key: the file with the server's key.
        what: one flow for each of these schemes, or the flows of a scenario: the real path takes
            the place of its link, this host is the near end.
        reverse: data comes from the server; a scenario says that of each flow.
        workload: what each flow sends, as TOML; by default `bulk`. A scenario has its own.
        duration_s: how long the flows send at most; by default the scenario's own, or 60.
        seed: of all that is random in the workloads.
        packets_file: write every event of every packet, both directions, here.
        messages_file: write where each message spent its time here; not those of request-response.
        progress: called some times a second with the time that has passed.

    Returns:
        The report, and the trace of the TCP senders of both hosts. Look at `report.run.valid`.

    Raises:
        LiveError: no answer, a refusal, or a run that two hosts cannot make.
        PathcastError: a wrong address, duration or seed, or a file that cannot be written.

    """
    packets, messages = (
        None if file is None else FilePath(file) for file in (packets_file, messages_file)
    )
    for file in (packets, messages):
        if file is not None:
            check_output(file)
    scenario, schemes = None, []
    if isinstance(what, Scenario):
        if reverse or workload is not None:
            raise PathcastError(
                f"{what.file}: is a scenario, whose flows have workloads and directions of their own"
            )
        scenario, schemes = what._spec, list(what.schemes)
        duration_s = duration_s or what.duration_s
    else:
        schemes = list(what)
    duration_s = DEFAULT_DURATION_S if duration_s is None else duration_s
    checked(schemes, duration_s, seed)
    with translated():
        report, trace = _internal.live_run(
            address(server),
            FilePath(key),
            scenario,
            schemes,
            reverse,
            workload,
            duration_s,
            seed,
            packets,
            messages,
            None,
            progress,
        )
    return LiveReport.from_json(report), Trace(trace)
