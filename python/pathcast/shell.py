"""Commands inside a path, and paths in the words of other tools."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shlex
import shutil
import signal
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path as FilePath
from typing import Any

from pathcast import _internal, ibox, rootless
from pathcast import scenario as scenarios
from pathcast.exceptions import EmulatorError, PathcastError, translated
from pathcast.files import check_output, write_beside
from pathcast.folders import MAX_BYTES
from pathcast.foreign import utf8, visible
from pathcast.path import Path, read_text
from pathcast.runs import Device, chosen_device

#: Exit codes of shells for a command that does not exist, or is not executable.
NOT_FOUND = 127
NOT_EXECUTABLE = 126
#: What is said where a profile's cross traffic cannot be.
_NO_CROSS_TRAFFIC = "cross traffic: left out; `pathcast path show` writes a scenario that has it"


class Form(StrEnum):
    """In whose words a path is shown."""

    TOML = "toml"
    MAHIMAHI = "mahimahi"
    NETEM = "netem"
    RATTAN = "rattan"


@dataclass(frozen=True)
class Links:
    """Links in a row, from a command outwards.

    Attributes:
        paths: each link as the TOML of a path, all defaults written out.
        file: what to call them.
        toml: a path or scenario file that says the same.
        command: the command that a command line of mahimahi ended with; may be empty.
        logs: where mm-link was to write its logs of the uplink and the downlink.
        left_out: what was understood, but has no meaning here.
        competing: flows of a profile of iBox that `toml` has, and a command behind the links does not meet.

    """

    paths: tuple[str, ...]
    file: str
    toml: str
    command: tuple[str, ...] = ()
    logs: tuple[str | None, str | None] = (None, None)
    left_out: tuple[str, ...] = ()
    competing: int = 0

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Links:
        """Read a path file, or the links of a scenario file that its first flow crosses.

        Raises:
            PathFileError: it is neither.

        """
        what = scenarios.load(file)
        if isinstance(what, Path):
            return cls((what.toml,), utf8(file), what.toml)
        with translated():
            route = tuple(link.to_toml() for link in what._spec.first_route())
            return cls(route, utf8(file), what.toml)

    @classmethod
    def from_mahimahi(cls, command_line: str) -> Links:
        """Read a command line such as `mm-delay 20 mm-link UPLINK DOWNLINK`.

        Raises:
            PathcastError: its quotes do not match.
            PathFileError: it has shells, options or queues that are not supported.

        """
        with translated():
            toml, paths, command, logs, left_out = _internal.from_mahimahi(_words(command_line))
        return cls(tuple(paths), "mahimahi", toml, tuple(command), logs, tuple(left_out))

    @classmethod
    def from_netem(cls, commands: str) -> Links:
        """Read tc commands, such as `tc qdisc add dev eth0 root netem delay 20ms`.

        The first device that they name is forward, a second one reverse.

        Raises:
            PathFileError: they have qdiscs or options that are not supported.

        """
        with translated():
            toml, left_out = _internal.from_netem(commands)
        return cls((toml,), "netem", toml, left_out=tuple(left_out))

    @classmethod
    def from_rattan(cls, file: str | os.PathLike[str]) -> Links:
        """Read a configuration file of rattan, and the traces that it names, from its folder.

        Raises:
            PathFileError: it cannot be read, or has cells that are not supported.

        """
        text = read_text(file)
        with translated():
            toml, left_out = _internal.from_rattan(text, utf8(file))
        return cls((toml,), utf8(file), toml, left_out=tuple(left_out))

    @classmethod
    def from_ibox(cls, file: str | os.PathLike[str]) -> Links:
        """Read a network profile of iBox. Its cross traffic makes it a scenario.

        Raises:
            PathFileError: it cannot be read, or is no profile.

        """
        found = scenarios.parse(ibox.to_toml(read_text(file), utf8(file)), utf8(file))
        if isinstance(found, Path):
            return cls((found.toml,), utf8(file), found.toml)
        link = found.first_link().toml
        return cls((link,), utf8(file), found.toml, competing=len(found.schemes))

    @classmethod
    def given(
        cls,
        from_mahimahi: str | None,
        from_netem: str | None,
        from_rattan: str | os.PathLike[str] | None,
        from_ibox: str | os.PathLike[str] | None = None,
    ) -> Links | None:
        """What one of these says; None if none is given.

        Raises:
            PathcastError: several are given.

        """
        several = [from_mahimahi, from_netem, from_rattan, from_ibox]
        if sum(one is not None for one in several) > 1:
            raise PathcastError(
                "expected one of --from-mahimahi, --from-netem, --from-rattan and --from-ibox"
            )
        if from_mahimahi is not None:
            return cls.from_mahimahi(from_mahimahi)
        if from_netem is not None:
            return cls.from_netem(from_netem)
        if from_ibox is not None:
            return cls.from_ibox(from_ibox)
        return None if from_rattan is None else cls.from_rattan(from_rattan)


def _words(command_line: str) -> list[str]:
    """The words of a command line, as a shell has them.

    Raises:
        PathcastError: its quotes do not match.

    """
    try:
        return shlex.split(command_line)
    except ValueError as error:
        raise PathcastError(f"{command_line!r}: {error}") from None


@dataclass(frozen=True)
class Crossed:
    """What crossed in one direction, in packets; packets in transit at the end are in `offered` only."""

    offered: int
    offered_bytes: int
    delivered: int
    dropped: int
    lost: int
    marked: int

    def __str__(self) -> str:
        drops = f"{self.dropped} dropped by queues, {self.lost} lost"
        return f"{self.delivered} of {self.offered} packets, {drops}"


@dataclass(frozen=True)
class ShellReport:
    """How a command inside a path ended, and what crossed.

    Attributes:
        exit_code: the command's; 128 and the signal if it was killed by one.
        forward: from the command outwards.
        reverse: to the command.
        slip_us: how late packets left, in microseconds: `p50`, `p99`, `max`.
        wall_s: how long the command ran, in seconds.
        cpu_s: processor time of the thread that carried the packets, in seconds.
        invalid_because: why what was measured inside must not be used; empty if it may.
        refused: what is missing that helps: real-time priority, settings of the kernel.

    """

    exit_code: int
    forward: Crossed
    reverse: Crossed
    slip_us: dict[str, float]
    wall_s: float
    cpu_s: float
    invalid_because: tuple[str, ...]
    refused: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return vars(self) | {"forward": vars(self.forward), "reverse": vars(self.reverse)}

    def lines(self) -> Iterator[str]:
        """The report for people."""
        yield f"{self.wall_s:.1f} s; sent {self.forward}; received {self.reverse}"
        if self.forward.delivered or self.reverse.delivered:
            slip = self.slip_us
            yield (
                f"packets left late by {slip['p50']:.0f} us (median), {slip['p99']:.0f} us (99 %), "
                f"{slip['max']:.0f} us (worst)"
            )
        for what in self.refused:
            yield f"not permitted: {what}"
        for reason in self.invalid_because:
            yield f"warning: what was measured inside cannot be trusted: {reason}"


def default_command() -> tuple[str, ...]:
    """The user's shell."""
    return (os.environ.get("SHELL") or "/bin/sh",)


def run(
    links: Links,
    command: Sequence[str],
    *,
    scheme: str | None = None,
    outside: Sequence[str] = (),
    device: Device | str = Device.AUTO,
    super_packets: bool | None = None,
    seed: int = 1,
    packets_file: str | os.PathLike[str] | None = None,
    mm_logs: tuple[str | os.PathLike[str] | None, str | os.PathLike[str] | None] = (None, None),
    report_file: str | os.PathLike[str] | None = None,
) -> ShellReport:
    """Run a command inside links, with this process's streams; needs Linux (`docs/reference/shell.md`).

    Without root, another process does it in a user namespace, whose network is then the outside: nothing
    is there but what `outside` starts.

    Call it from the main thread: signals that would end this process go to the command meanwhile.

    Args:
        links: what lies between the command and the outside.
        command: the program and its arguments.
        scheme: congestion control that TCP inside has unless it chooses another; by default that of the
            caller's network namespace.
        outside: a server that runs outside meanwhile, and its arguments; it is started first.
        device: what the packets go through.
        super_packets: whether TUN devices pass many packets of a flow in one piece; by default on links
            of more than 500 Mbit/s.
        seed: of all that is random in the links.
        packets_file: where to write what happened to each packet, as Parquet.
        mm_logs: where to write logs of the uplink and the downlink as mm-link writes them.
        report_file: where to write the report, as JSON.

    Raises:
        EmulatorError: not permitted, no such device, too many shells, no such scheme, a server that ends,
            or, without root, none.
        PathcastError: a file cannot be written.

    """
    outputs = [FilePath(file) for file in (packets_file, *mm_logs, report_file) if file is not None]
    user, environment = _invoking_user()
    for file in outputs:
        check_output(file, user)
    device = chosen_device(device)
    if rootless.needed():
        if not outside:
            raise EmulatorError(
                "without root, the machine's own network cannot be reached from a path: expected a "
                "server to run outside of it (--outside COMMAND), or root"
            )
        with _signals() as signals:
            return rootless.call(
                run,
                links,
                command,
                outside=outside,
                scheme=scheme,
                device=device,
                super_packets=super_packets,
                seed=seed,
                packets_file=packets_file,
                mm_logs=mm_logs,
                report_file=report_file,
                on_turn=lambda process: process.send_signal(signals.pop(0)) if signals else None,
            )
    with _signals() as signals, translated():
        report = json.loads(
            _internal.run_shell(
                [_internal.PathSpec.parse(path, links.file, False) for path in links.paths],
                seed,
                (command[0], list(command[1:])),
                scheme,
                environment,
                user,
                (outside[0], list(outside[1:])) if outside else None,
                device.kind,
                super_packets,
                None if packets_file is None else FilePath(packets_file),
                tuple(None if file is None else FilePath(file) for file in mm_logs),
                lambda: signals.pop(0) if signals else None,
            )
        )
    result = ShellReport(
        exit_code=report["exit_code"],
        forward=Crossed(**report["forward"]),
        reverse=Crossed(**report["reverse"]),
        slip_us=report["slip_us"],
        wall_s=report["wall_s"],
        cpu_s=report["cpu_s"],
        invalid_because=tuple(report["invalid_because"]),
        refused=tuple(report["refused"]),
    )
    if report_file is not None:
        write_beside(report_file, json.dumps(result.to_dict()) + "\n", user)
    return result


def missing_program(program: str) -> int | None:
    """The exit code of shells if a program cannot be run; None if it can."""
    if shutil.which(program) is not None:
        return None
    return NOT_EXECUTABLE if "/" in program and FilePath(program).exists() else NOT_FOUND


def _invoking_user() -> tuple[tuple[int, int] | None, list[tuple[str, str]]]:
    """The user who ran sudo, and their part of the environment; None without sudo."""
    names = ("SUDO_UID", "SUDO_GID")
    ids = [int(value) for name in names if (value := os.environ.get(name, "")).isdecimal()]
    if os.geteuid() != 0 or len(ids) < 2 or ids[0] == 0 or rootless.inside():
        return None, []
    try:
        entry = pwd.getpwuid(ids[0])
    except KeyError:
        return (ids[0], ids[1]), []
    home = [("HOME", entry.pw_dir), ("USER", entry.pw_name), ("LOGNAME", entry.pw_name)]
    return (ids[0], ids[1]), home


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Keep signals from ending this process; those that a terminal does not send are to be passed on.

    They are not ignored, because a command would inherit that.
    """
    to_pass_on: list[int] = []
    handlers = {
        signal.SIGINT: lambda *_: None,
        signal.SIGQUIT: lambda *_: None,
        signal.SIGTERM: lambda number, _: to_pass_on.append(number),
        signal.SIGHUP: lambda number, _: to_pass_on.append(number),
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield to_pass_on
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say(line: str) -> None:
    """Report people something, out of the way of what the command writes."""
    sys.stderr.write(f"pathcast: {visible(line)}\n")


def enter(
    arguments: Sequence[str],
    *,
    given: Links | None,
    scheme: str | None,
    outside: str | None,
    device: Device,
    super_packets: bool | None,
    seed: int,
    log: FilePath | None,
    mm_log: FilePath | None,
    report: FilePath | None,
    quiet: bool,
) -> int:
    """What `pathcast shell` does: the exit code."""
    if given is not None:
        links, command = given, tuple(arguments)
        if links.command and command:
            raise PathcastError(
                f"got two commands, {shlex.join(links.command)!r} and {shlex.join(command)!r}, "
                "expected one"
            )
        command = command or links.command
    elif arguments:
        links, command = Links.load(arguments[0]), tuple(arguments[1:])
    else:
        raise PathcastError(
            "got no path, expected PATH.toml, --from-mahimahi, --from-netem, --from-rattan or --from-ibox"
        )
    command = command or default_command()
    for what in () if quiet else links.left_out:
        say(what)
    if links.competing and not quiet:
        say(f"{links.file}: {_NO_CROSS_TRAFFIC}")
    code = missing_program(command[0])
    if code is not None:
        say(f"cannot start {command[0]!r}: expected a program by its path or its name in PATH")
        return code
    if given is None and not quiet and _queues_without_limit(links):
        say(
            "note: the queue towards the command has no limit, so a download can wait there for seconds; "
            'to limit it, write queue = "1 BDP" under [reverse] in the path file'
        )
    logs: tuple[str | FilePath | None, str | FilePath | None] = links.logs
    if mm_log is not None:
        logs = (f"{mm_log}.up", f"{mm_log}.down")
    done = run(
        links,
        command,
        scheme=scheme,
        outside=_words(outside) if outside else (),
        device=device,
        super_packets=super_packets,
        seed=seed,
        packets_file=log,
        mm_logs=logs,
        report_file=report,
    )
    for line in () if quiet else done.lines():
        say(line)
    return done.exit_code


def _queues_without_limit(links: Links) -> bool:
    """Whether what comes to the command waits for a link's rate in a queue without a limit."""
    reverse = [tomllib.loads(path).get("reverse", {}) for path in links.paths]
    return any("rate" in keys and keys.get("queue") == "unlimited" for keys in reverse)


#: What the text of each form is called in the folder `--output`.
_FILES = {
    Form.TOML: "path.toml",
    Form.MAHIMAHI: "mahimahi.sh",
    Form.NETEM: "netem.sh",
    Form.RATTAN: "rattan.toml",
}


def show(links: Links, form: Form, output: FilePath | None, strict: bool) -> str:
    """What `pathcast path show` prints; writes it, and the traces that it names, into the folder `output`.

    Raises:
        PathcastError: the path is several links in a row, cannot be said in these words and `strict`
            is set, `output` is no folder, or a path file would be too long to be read.

    """
    if output is not None and not output.is_dir():
        raise PathcastError(f"{output}: expected a folder that is there")
    files: list[tuple[str, str]] = []
    lost = [*links.left_out]
    if links.competing and form is not Form.TOML:
        lost.append(_NO_CROSS_TRAFFIC)
    if form is Form.TOML:
        text = links.toml
        if output is not None:
            text, files = _internal.traces_to_files(links.toml)
    elif len(links.paths) > 1:
        raise PathcastError(
            f"{links.file}: is {len(links.paths)} links in a row, expected one path for {form.value}"
        )
    else:
        with translated():
            spec = _internal.PathSpec.parse(links.paths[0], links.file, False)
            text, files, not_said = _internal.path_as(spec, form.value)
        lost += [f"{form.value} cannot say it: {what}" for what in not_said]
    for what in lost:
        say(what)
    if lost and strict:
        raise PathcastError(f"{links.file}: cannot be said in the words of {form.value}")
    text = text if text.endswith("\n") else f"{text}\n"
    if form is Form.TOML and len(text.encode()) > MAX_BYTES:
        raise PathcastError(
            f"{links.file}: is {len(text.encode())} bytes with its traces written out, expected at most "
            f"{MAX_BYTES}: --output FOLDER writes the traces beside it"
        )
    if output is not None:
        for name, content in [*files, (_FILES[form], text)]:
            write_beside(output / name, content)
    elif files:
        say(f"--output FOLDER writes the files that this names: {', '.join(n for n, _ in files)}")
    return text
