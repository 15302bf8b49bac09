"""Runs of TCP flows over a path, in the simulator or with the kernel's TCP in the emulator."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from pathcast import _internal, rootless
from pathcast.exceptions import EmulatorError, PathcastError, SchemeError, translated
from pathcast.path import Path
from pathcast.scenario import Scenario
from pathcast.trace import Trace

#: Called now and then with the seconds of the run that have passed.
Progress = Callable[[float], None]


class SenderState(NamedTuple):
    """A TCP sender at a moment of a run.

    Attributes:
        time_s: seconds since the run began.
        flow: its number.
        cwnd_packets: congestion window in packets of one MSS.
        snd_nxt_bytes: payload sent at least once, in bytes; None if unknown.
        srtt_s: smoothed round-trip time in seconds; None before the first.
        retransmits: packets sent again; None if unknown.

    """

    time_s: float
    flow: int
    cwnd_packets: float
    snd_nxt_bytes: int | None
    srtt_s: float | None
    retransmits: int | None


@dataclass(frozen=True)
class MessageReport:
    """Counts and times of an application's messages: transfers, probes, requests.

    Attributes:
        written: messages written.
        delivered: messages that arrived whole; requests that were answered.
        latency_ms: `mean`, `p50`, `p95` and `p99` from writing a message to its arrival as a whole,
            of those that arrived; of a request to that of its answer.
        delay_split_ms: of messages over TCP in the emulator, where they spent their time:
            `sender_stack`, `network` and `receiver_stack`, each as `latency_ms`, and
            `buffered_fraction` of those that waited in the sender's stack; docs/reference/emulator.md.

    """

    written: int
    delivered: int
    latency_ms: dict[str, float]
    delay_split_ms: dict[str, Any] | None = None


@dataclass(frozen=True)
class VideoSession:
    """What the viewer of an adaptive video had.

    Attributes:
        rule: that chose the versions.
        startup_s: from the first request to the first picture; None: there was none.
        stalled_s: how long playback stood still after that.
        stalls: how often.
        mean_bitrate_bps: of what was fetched.
        switches: how often the bitrate changed.
        abandoned: downloads that were given up.
        wasted_bytes: what had come of them.
        qoe: for each segment, its bitrate in Mbit/s, less its change from the segment before, less the highest bitrate for
            each second that playback stood still.
        segments: each with `version`, `bitrate_bps`, `bytes`, `abandoned`, `wasted_bytes`, `asked_s` at first, `took_s`,
            `buffer_s` when it was first asked for, and `stalled_s` until it was there.

    """

    rule: str
    startup_s: float | None
    stalled_s: float
    stalls: int
    mean_bitrate_bps: float
    switches: int
    abandoned: int
    wasted_bytes: int
    qoe: float
    segments: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class FlowReport:
    """One flow of a run.

    Attributes:
        scheme: congestion control, by the kernel's name or QUIC's; `udp` for a flow without.
        goodput_bps: payload bits delivered in order to the receiving application, a second from
            the flow's start to its completion, or to the end of the run.
        retransmits: packets sent again.
        workload: what the application sends: `bulk`, `transfer` and so on.
        start_s: when the flow began, in seconds of the run.
        completed_s: when all that it ever writes had arrived; None if that did not happen.
        delivered_bytes: payload bytes delivered to the receiving application.
        messages: of an application that writes in messages, what became of them.
        video: of an adaptive video, its session; docs/explanation/video.md.

    """

    scheme: str
    goodput_bps: float
    retransmits: int
    workload: str = "bulk"
    start_s: float = 0.0
    completed_s: float | None = None
    delivered_bytes: int = 0
    messages: MessageReport | None = None
    video: VideoSession | None = None

    @classmethod
    def _of(cls, values: dict[str, Any]) -> FlowReport:
        messages, video = values.pop("messages", None), values.pop("video", None)
        return cls(
            **values,
            messages=None if messages is None else MessageReport(**messages),
            video=None
            if video is None
            else VideoSession(**{**video, "segments": tuple(video["segments"])}),
        )


@dataclass(frozen=True)
class PageReport:
    """One load of a page.

    Attributes:
        name: the page's.
        protocol: `http/1.1`, `h2` or `h3`.
        first_flow: the flow of its first connection; those of the others follow.
        connections: how many were opened.
        start_s: when the load began, in seconds of the run.
        first_byte_ms: from then to the first byte of the first resource; None if it did not come.
        load_ms: from the beginning to the load event; None if the run ended before.
        resources: of each resource, its `id`, the `flow` that it came over, and in milliseconds since the beginning
            `wanted_ms` (the browser wanted it), `asked_ms` (the request left), `first_byte_ms` and `finished_ms`;
            None for what did not happen.

    """

    name: str
    protocol: str
    first_flow: int
    connections: int
    start_s: float
    first_byte_ms: float | None
    load_ms: float | None
    resources: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class RunReport:
    """Report of a run, over its whole duration, slow start included.

    Attributes:
        flows: one entry a flow.
        packets_delivered: data packets that arrived at the far end of the path.
        loss_rate: data packets dropped by the queue or by loss, over those sent.
        one_way_delay_ms: `mean`, `p50` and `p95` of data packets: queue, link and delay.
        cpu_s: processor time of the run in seconds.
        wall_s: time that it took on the wall, in seconds.
        seed: seed of the path's random elements.
        valid: False if the run must not be used.
        invalid_because: why, in words.
        slip_us: `p50`, `p99` and `max` of how late the emulator let packets go; None if simulated.
        pages: one entry a page that was loaded.
        groups: of each `[[flows]]` table in its order `flows` (their number), `packets_delivered`, `loss_rate` and
            `one_way_delay_ms` of its data packets; empty if there is one table, or more than 64, or the run was live.

    """

    flows: tuple[FlowReport, ...]
    packets_delivered: int
    loss_rate: float
    one_way_delay_ms: dict[str, float]
    cpu_s: float
    wall_s: float
    seed: int
    valid: bool
    invalid_because: tuple[str, ...] = ()
    slip_us: dict[str, float] | None = None
    pages: tuple[PageReport, ...] = ()
    groups: tuple[dict[str, Any], ...] = ()

    @classmethod
    def from_json(cls, text: str) -> RunReport:
        """Read the JSON that the Rust crates write."""
        values = json.loads(text)
        values["flows"] = tuple(FlowReport._of(flow) for flow in values["flows"])
        values["invalid_because"] = tuple(values["invalid_because"])
        values["pages"] = tuple(
            PageReport(**{**page, "resources": tuple(page["resources"])})
            for page in values.get("pages", ())
        )
        values["groups"] = tuple(values.get("groups", ()))
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        values = asdict(self)
        for flow in values["flows"]:
            for key in ("completed_s", "messages", "video"):
                if flow[key] is None:
                    del flow[key]
            if "messages" in flow and flow["messages"]["delay_split_ms"] is None:
                del flow["messages"]["delay_split_ms"]
        if values["slip_us"] is None:
            del values["slip_us"]
        for key in ("pages", "groups"):
            if not values[key]:
                del values[key]
        return values


class Device(StrEnum):
    """How packets get from the kernel to the emulator and back."""

    #: `TUN` where it is available, else `VETH`.
    AUTO = "auto"
    TUN = "tun"
    #: A veth pair with a packet socket (AF_PACKET) at its other end.
    VETH = "veth"

    @property
    def kind(self) -> str | None:
        """As the Rust module takes it."""
        return None if self is Device.AUTO else self.value


@dataclass(frozen=True)
class Capabilities:
    """What the emulator can do on this machine, as tests of each feature found.

    Attributes:
        root: network namespaces can be made and configured by this process itself.
        tun: TUN devices can be made.
        fifo: threads can have real-time priority; without it, most runs on a busy machine are not valid.
        tcp_probe: the kernel's tcp_probe can be read; without it senders are polled.
        schemes: congestion controls that the kernel has.
        reasons: why what is missing is missing.
        bpf_schemes: those that it lacks and that Pathcast brings for a run, by BPF; others may be there
            as modules.
        veth: veth pairs can be made; they replace TUN devices where there are none.
        rootless: without root, user namespaces can be made, and all that was said holds for them.

    """

    root: bool
    tun: bool
    fifo: bool
    tcp_probe: bool
    schemes: tuple[str, ...]
    reasons: tuple[str, ...]
    bpf_schemes: tuple[str, ...] = ()
    veth: bool = False
    rootless: bool = False

    @property
    def can_emulate(self) -> bool:
        """Whether `emulate` can run at all."""
        return (self.root or self.rootless) and (self.tun or self.veth)


def capabilities() -> Capabilities:
    """Test everything that the emulator needs, and clean up."""
    refused: tuple[str, ...] = ()
    if rootless.needed():
        try:
            return replace(rootless.call(capabilities), root=False, rootless=True)
        except EmulatorError as error:
            refused = (str(error),)
    (root, tun, veth, fifo, tcp_probe), *names = _internal.capabilities()
    schemes, reasons, bpf_schemes = map(tuple, names)
    reasons = tuple(map(_for_this_install, reasons))
    return Capabilities(
        root, tun, fifo, tcp_probe, schemes, (*refused, *reasons), bpf_schemes, veth=veth
    )


#: The Rust module's advice where BPF was left out of a build, which is for a source tree.
_BPF_ADVICE = re.compile(r"install clang, .*`cargo build --features bpf`", re.DOTALL)
#: The same for an installed wheel.
_BPF_OF_A_WHEEL = "this install has no BPF programs; a build from source has them (`make build`)"


def _for_this_install(reason: str) -> str:
    """Return a reason with advice that fits how Pathcast was installed: from source, or as a wheel."""
    if (FilePath(__file__).parents[2] / "Cargo.toml").is_file():
        return reason
    return _BPF_ADVICE.sub(_BPF_OF_A_WHEEL, reason)


def chosen_device(name: str) -> Device:
    """The device of this name.

    Raises:
        PathcastError: there is no such device.

    """
    try:
        return Device(name)
    except ValueError:
        raise PathcastError(f"device is {name!r}, expected one of {', '.join(Device)}") from None


def checked(schemes: Sequence[str], duration_s: float, seed: int) -> list[str]:
    """The schemes as a list, if a run of them can be asked for.

    Raises:
        SchemeError: the list is empty.
        PathcastError: the duration or the seed is out of range.

    """
    if not (math.isfinite(duration_s) and 0 < duration_s <= 1e6):
        raise PathcastError(f"duration is {duration_s} s, expected more than 0 and at most 1e6 s")
    if not 0 <= seed < 2**64:
        raise PathcastError(f"seed is {seed}, expected 0 to 2^64 - 1")
    if not schemes:
        raise SchemeError("got no flow to run, expected at least one scheme")
    return list(schemes)


#: The default duration of a run, in seconds.
DEFAULT_DURATION_S = 60.0
#: Between two looks at the queues.
DEFAULT_QUEUES_EVERY_S = 0.01


def specified(
    path: Path | Scenario, schemes: Sequence[str] | None, duration_s: float | None, seed: int
) -> tuple[_internal.PathSpec | _internal.ScenarioSpec, list[str] | None, float, int]:
    """A simulation as the Rust module takes it: what, schemes, duration, seed.

    Raises:
        SchemeError: schemes for a scenario, which has its own, or none at all.
        PathcastError: the duration or the seed is out of range.

    """
    if isinstance(path, Scenario):
        if schemes is not None:
            raise SchemeError(
                f"{path.file}: got schemes {', '.join(schemes)} for a scenario, expected none: its "
                "flows have their own"
            )
        if duration_s is None:
            duration_s = path.duration_s or DEFAULT_DURATION_S
        checked(path.schemes, duration_s, seed)
        return path._spec, None, duration_s, seed
    duration_s = DEFAULT_DURATION_S if duration_s is None else duration_s
    names = checked(("cubic",) if schemes is None else schemes, duration_s, seed)
    return path._spec, names, duration_s, seed


def simulate(
    path: Path | Scenario,
    schemes: Sequence[str] | None = None,
    *,
    duration_s: float | None = None,
    seed: int = 1,
    record: bool = True,
    trace_file: str | os.PathLike[str] | None = None,
    packets_file: str | os.PathLike[str] | None = None,
    queues_file: str | os.PathLike[str] | None = None,
    queues_every_s: float = DEFAULT_QUEUES_EVERY_S,
    capture_file: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> tuple[RunReport, Trace | None]:
    """Run flows in the simulator. The same seed gives the same run.

    Args:
        path: what lies between the hosts, or a whole scenario.
        schemes: one bulk flow over the path for each, by default one of `cubic`; docs/explanation/congestion.md
            lists them. A scenario has its own.
        duration_s: how much virtual time passes at most, in seconds; by default the scenario's
            own, or 60. A run ends before if all flows have done what they ever will.
        seed: of all that is random.
        record: whether to keep a trace of the senders in memory.
        trace_file: write the trace here instead, during the run, in bounded memory.
        packets_file: write every event of every data packet here, during the run.
        queues_file: write here, during the run, how much waits for each direction of each link.
        queues_every_s: how often it is looked at, in seconds: from a microsecond to an hour.
        capture_file: write the packets here, during the run, as tcpdump sees them on the senders' hosts:
        headers, as
            pcapng.
        progress: called now and then with the virtual time; may raise to stop the run.

    Returns:
        The report and, if `record` and neither file is asked for, the trace.

    Raises:
        SchemeError: a scheme that the simulator lacks.
        SimulationError: nothing that is sent arrives.
        TraceError: a file that cannot be written; nothing of it is left then.
        PathcastError: a duration, an interval or a seed out of range.

    Example:
        >>> path = Path.parse("rate = '12 Mbit/s'\\ndelay = '30 ms'\\n")
        >>> report, trace = simulate(path, ["reno"], duration_s=10)
        >>> 9e6 < report.flows[0].goodput_bps < 12e6
        True

    """
    spec = specified(path, schemes, duration_s, seed)
    if not 1e-6 <= queues_every_s <= 3600:
        message = f"queues every {queues_every_s:g} s: expected a microsecond to an hour"
        raise PathcastError(message)
    with translated():
        report, trace = _internal.simulate(
            *spec,
            record,
            progress,
            None if trace_file is None else FilePath(trace_file),
            None if packets_file is None else FilePath(packets_file),
            None if queues_file is None else FilePath(queues_file),
            queues_every_s,
            None if capture_file is None else FilePath(capture_file),
        )
    return RunReport.from_json(report), None if trace is None else Trace(trace)


def emulate(
    path: Path | Scenario,
    schemes: Sequence[str] | None = None,
    *,
    duration_s: float | None = None,
    seed: int = 1,
    ipv6: bool = False,
    device: Device | str = Device.AUTO,
    super_packets: bool | None = None,
    packets_file: str | os.PathLike[str] | None = None,
    messages_file: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    senders: Callable[[list[SenderState]], None] | None = None,
) -> tuple[RunReport, Trace]:
    """Run flows of the kernel's TCP in real time. Needs Linux, and root or user namespaces.

    Without root, another process runs it in its own user namespace, mostly without real-time
    priority: the trace's `environment` says so (`rootless`, `fifo`, `device`).

    Args:
        path: what lies between the hosts, or a whole scenario.
        schemes: one bulk flow over the path for each, by default one of `cubic`; all begin at
            once. A scenario has its own. docs/reference/emulator.md says which there are.
        duration_s: how long the flows send at most, in seconds; by default the scenario's own, or
            60. A run ends before if all flows have done what they ever will.
        seed: of all that is random in the path or scenario; the kernel's timing is not repeatable.
        ipv6: use IPv6 instead of IPv4.
        device: what the packets go through.
        super_packets: whether TUN devices pass many packets of a flow in one piece; by default on links
            of more than 500 Mbit/s.
        packets_file: write every event of every packet, both directions, here during the run.
        messages_file: write when each message over TCP was written, entered and left the network, and
            was read, here during the run; docs/reference/trace-format.md.
        progress: called about ten times a second with the time that has passed.
        senders: called as often with the state of each TCP sender. Without root it is not called.

    Returns:
        The report and the trace. Check `report.valid`: do not use a run that is not valid.

    Raises:
        EmulatorError: neither root nor user namespaces, no such device, a scheme that is not available
            here, or a setting that the kernel cannot have for a single flow.
        SchemeError: schemes for a scenario, which has its own, or none at all.
        PathcastError: a duration or seed out of range.

    """
    what, names, duration_s, seed = specified(path, schemes, duration_s, seed)
    device = chosen_device(device)
    packets = None if packets_file is None else FilePath(packets_file)
    messages = None if messages_file is None else FilePath(messages_file)
    if rootless.needed():
        return rootless.call(
            emulate,
            path,
            schemes,
            duration_s=duration_s,
            seed=seed,
            ipv6=ipv6,
            device=device,
            super_packets=super_packets,
            packets_file=packets,
            messages_file=messages,
            progress=progress,
        )
    with translated():
        report, trace = _internal.emulate(
            what,
            names,
            duration_s,
            seed,
            ipv6,
            device.kind,
            super_packets,
            packets,
            messages,
            progress,
            None if senders is None else lambda rows: senders([SenderState(*row) for row in rows]),
        )
    assert trace is not None, "the emulator always records"  # noqa: S101
    return RunReport.from_json(report), Trace(trace)
