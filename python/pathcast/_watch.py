"""Watches the kernel's TCP senders: flows of any process, or sockets of this one."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path as FilePath
from types import TracebackType
from typing import Any

from pathcast import _internal
from pathcast.exceptions import ProbeError, translated
from pathcast.files import check_output
from pathcast.trace import Trace

#: Called some times a second with seconds, flows and records so far; may raise to end the watch.
WatchProgress = Callable[[float, int, int], None]

#: How often progress is reported, in seconds.
_EVERY_S = 0.2


class Method(StrEnum):
    """How records are taken; `docs/reference/measuring.md` compares them."""

    TCP_PROBE = "tcp_probe"
    SOCK_DIAG = "sock_diag"
    TCP_INFO = "tcp_info"
    OPT_STATS = "opt_stats"


@dataclass(frozen=True)
class WatchedFlow:
    """One flow, which is a socket. Counters count from when it was first seen; of a flow that began
    during the watch, from its beginning.

    Attributes:
        local: address and port at this end.
        remote: address and port at the far end.
        scheme: congestion control, by the kernel's name; None if not known.
        pid: the process that held the socket; None if not known.
        process: what that process calls itself.
        cookie: the kernel's number of the socket, unique on the machine.
        first_s: when it was first seen, in seconds of the watch.
        last_s: when something of it last changed.
        ended: whether it ended during the watch.
        records: its rows in the trace.
        acked_bytes: payload bytes acknowledged by the far end.
        received_bytes: payload bytes received from the far end; None if not known.
        goodput_bps: payload bits acknowledged a second, between the first and the last row with
            payload bytes; None with less than two.
        retransmits: packets sent again; None if not known.
        srtt_min_ms: the least smoothed round-trip time, in milliseconds.
        srtt_median_ms: the smoothed round-trip time at which the median byte was acknowledged.
        cwnd_median_packets: the congestion window at which the median byte was acknowledged.
        mss_bytes: payload bytes of a full packet; None if not known.

    """

    local: str
    remote: str
    scheme: str | None
    pid: int | None
    process: str | None
    cookie: int
    first_s: float
    last_s: float
    ended: bool
    records: int
    acked_bytes: int
    received_bytes: int | None
    goodput_bps: float | None
    retransmits: int | None
    srtt_min_ms: float | None
    srtt_median_ms: float | None
    cwnd_median_packets: float | None
    mss_bytes: int | None


@dataclass(frozen=True)
class WatchReport:
    """Report of a watch: its flows and their counters.

    Attributes:
        flows: in the order in which they were found; their places are their numbers in the trace.
        method: how the records were taken.
        duration_s: how long the watch lasted, in seconds.
        records: rows of the trace.
        records_lost: records that came faster than they were read: the trace has gaps.
        flows_elsewhere: flows with the right ports and addresses that are in another network
            namespace, or had ended before they could be asked for.
        flows_left_out: flows beyond the number that one watch can hold.
        cpu_s: processor time of the watch in seconds.
        fallback_because: why it was not tcp_probe, if that was tried first.

    """

    flows: tuple[WatchedFlow, ...]
    method: str
    duration_s: float
    records: int
    records_lost: int
    flows_elsewhere: int
    flows_left_out: int
    cpu_s: float
    fallback_because: str | None = None

    @classmethod
    def from_json(cls, text: str) -> WatchReport:
        """Read the JSON that the Rust crates write."""
        values = json.loads(text)
        values["flows"] = tuple(WatchedFlow(**flow) for flow in values["flows"])
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return asdict(self)


class Watch:
    """Watch in the background, until `finish` or the end of a `with` block.

    Args:
        port: port at either end.
        local_port: port at this end.
        remote_port: port at the far end.
        pid: the process that holds the socket, in whichever network namespace it is.
        cgroup: the cgroup (version 2) in which the socket was made, or one below it: its folder,
            its path as `/proc/PID/cgroup` says it, or its number.
        prefix: where the far end is, such as `192.0.2.0/24`.
        all_namespaces: watch flows of other network namespaces too; by tcp_probe only.
        sockets: watch these sockets of this process instead, connected ones of TCP.
        method: how to observe; by default tcp_probe or, where that is not available, sock_diag (of own sockets
            tcp_info).
        record: whether to keep a trace in memory, about 100 bytes a record.
        trace_file: write the trace here instead, as it comes.

    All that is given must hold; nothing given, all flows of the network namespace are watched.

    Raises:
        ProbeError: a process, cgroup or socket does not exist or is not permitted; a port or prefix is
        invalid; a method is not available.
        PathcastError: the file cannot be written.

    Example:
        >>> server = socket.create_server(("127.0.0.1", 0))
        >>> with Watch(port=server.getsockname()[1], method="sock_diag") as flows:
        ...     sender = socket.create_connection(server.getsockname())
        ...     sender.sendall(bytes(100_000))
        ...     receiver, _ = server.accept()
        ...     got = sum(len(receiver.recv(65536)) for _ in range(2))
        >>> len(flows.report.flows)
        2

    """

    def __init__(
        self,
        *,
        port: int | None = None,
        local_port: int | None = None,
        remote_port: int | None = None,
        pid: int | None = None,
        cgroup: str | os.PathLike[str] | None = None,
        prefix: str | None = None,
        all_namespaces: bool = False,
        sockets: Sequence[socket.socket] | None = None,
        method: str | None = None,
        record: bool = True,
        trace_file: str | os.PathLike[str] | None = None,
    ) -> None:
        for name, number, most in (
            ("port", port, 65535),
            ("local port", local_port, 65535),
            ("remote port", remote_port, 65535),
            ("process", pid, 2**31 - 1),
        ):
            if number is not None and not 1 <= number <= most:
                raise ProbeError(f"{name} is {number}, expected 1 to {most}")
        selected = (port, local_port, remote_port, pid, cgroup, prefix)
        if sockets is not None and (all_namespaces or any(v is not None for v in selected)):
            raise ProbeError("got sockets and a selection of flows, expected one of them")
        if trace_file is not None:
            check_output(trace_file)
        with translated():
            self._inner = _internal.Watch(
                port,
                local_port,
                remote_port,
                pid,
                None if cgroup is None else os.fspath(cgroup),
                prefix,
                all_namespaces,
                None if sockets is None else [one.fileno() for one in sockets],
                None if method is None else str(method),
                record,
                None if trace_file is None else FilePath(trace_file),
            )
        self._began = time.monotonic()
        self._report: WatchReport | None = None
        #: The trace, after the end, if it was to be kept in memory.
        self.trace: Trace | None = None

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()

    @property
    def report(self) -> WatchReport:
        """The report, after the end.

        Raises:
            ProbeError: the watch continues, or was abandoned.

        """
        if self._report is None:
            raise ProbeError("the watch has no report: it goes on, or was given up")
        return self._report

    def progress(self) -> tuple[float, int, int]:
        """Seconds since the beginning, flows, records (of own sockets known at the end only)."""
        flows, records = self._inner.progress() or (0, 0)
        return time.monotonic() - self._began, flows, records

    def finish(self) -> tuple[WatchReport, Trace | None]:
        """Take a last look and end: the report, and the trace if it was to be kept in memory.

        Raises:
            ProbeError: the kernel stopped listing its sockets, or the file could not be written.

        """
        with translated():
            ended = self._inner.finish()
        if ended is not None:
            text, trace = ended
            self._report = WatchReport.from_json(text)
            self.trace = None if trace is None else Trace(trace)
        return self.report, self.trace

    def close(self) -> None:
        """End the watch and discard what it recorded, files included."""
        self._inner.close()


def watch(
    *,
    port: int | None = None,
    local_port: int | None = None,
    remote_port: int | None = None,
    pid: int | None = None,
    cgroup: str | os.PathLike[str] | None = None,
    prefix: str | None = None,
    all_namespaces: bool = False,
    method: str | None = None,
    duration_s: float | None = None,
    record: bool = True,
    trace_file: str | os.PathLike[str] | None = None,
    progress: WatchProgress | None = None,
) -> tuple[WatchReport, Trace | None]:
    """Watch flows of any process for some time, or until Ctrl-C, which is its normal end.

    Args:
        port: see [`Watch`][pathcast.watch.Watch], as for the next ones.
        local_port: port at this end.
        remote_port: port at the far end.
        pid: the process that holds the socket.
        cgroup: the cgroup in which the socket was made, or one below it.
        prefix: where the far end is.
        all_namespaces: watch flows of other network namespaces too.
        method: `tcp_probe` or `sock_diag`.
        duration_s: how long, in seconds; by default until Ctrl-C.
        record: whether to keep a trace in memory.
        trace_file: write the trace here instead, as it comes.
        progress: called some times a second.

    Returns:
        The report and, if `record` and no file is asked for, the trace.

    Raises:
        ProbeError: the selection does not exist, is not permitted, or is inconsistent.
        PathcastError: the file cannot be written.

    """
    if duration_s is not None and not 0 < duration_s <= 1e9:
        raise ProbeError(f"duration is {duration_s} s, expected more than 0 and at most 1e9 s")
    going = Watch(
        port=port,
        local_port=local_port,
        remote_port=remote_port,
        pid=pid,
        cgroup=cgroup,
        prefix=prefix,
        all_namespaces=all_namespaces,
        method=method,
        record=record,
        trace_file=trace_file,
    )
    end_s = float("inf") if duration_s is None else duration_s
    try:
        with contextlib.suppress(KeyboardInterrupt):
            while (rest_s := end_s - going.progress()[0]) > 0:
                time.sleep(min(rest_s, _EVERY_S))
                if progress is not None:
                    progress(*going.progress())
        return going.finish()
    finally:
        going.close()
