"""A program that runs another one contained: without privileges, in namespaces of its own, within limits.

It is run by its path, in the network namespace that the other program may use, and needs nothing but Python:
`contain.py SPEC PROGRAM ARGUMENT...`, where SPEC is the JSON that `words` makes. The contained program has

- new process, mount, IPC and host name namespaces, and no user but itself;
- a file system of the system's programs and of the folders that SPEC names, all read-only, and an empty `/tmp`;
- limits of memory, open files, file sizes, processes and time;
- the user `nobody` where this one is root, else this user without any capability.

When the program ends, or breaks a limit, all that it started is killed. When this process ends, however it ends, so
do they. To the descriptor that SPEC names, it writes `prepared` on a line when the program may begin, and then the result
as one JSON object.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import stat
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

NOBODY = 65534
#: The namespaces (sched.h).
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID = (
    *(0x0002_0000, 0x0400_0000, 0x0800_0000),
    *(0x1000_0000, 0x2000_0000),
)
#: Of mounts (mount.h): flags, and the attributes of mount_setattr.
_NOSUID, _NODEV, _BIND, _REC, _PRIVATE = 2, 4, 4096, 16384, 1 << 18
_DETACH, _AT_RECURSIVE, _ATTR_RDONLY, _ATTR_NOSUID = 2, 0x8000, 1, 2
#: Numbers of system calls that libc does not wrap; the second is the same on all machines.
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_SET_PDEATHSIG, _SET_NO_NEW_PRIVS = 1, 38
_CAP_SYS_ADMIN = 21
#: What programs need of the system beside what SPEC names.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/localtime", "/etc/ssl/openssl.cnf")
_DEVICES = ("null", "zero", "full", "random", "urandom")
#: How often limits are checked, in seconds.
_EVERY_S = 0.1
#: The size of the contained program's /tmp, in bytes.
_SCRATCH_BYTES = 64 << 20


@dataclass(frozen=True)
class Limits:
    """What a contained program may take.

    Attributes:
        memory_bytes: of all its processes together, and the writable data of each.
        open_files: of each process.
        file_bytes: the size of each file that it writes.
        processes: at a time.
        log_bytes: what it may write to standard output and standard error.
        ready_s: how long a receiver may take until it listens, in seconds.
        end_s: how long a program may take to end after SIGTERM, in seconds.

    """

    memory_bytes: int = 1 << 30
    open_files: int = 1024
    file_bytes: int = 64 << 20
    processes: int = 32
    log_bytes: int = 1 << 20
    ready_s: float = 10.0
    end_s: float = 3.0


def words(
    program: Sequence[str],
    *,
    root: str | os.PathLike[str],
    report: int,
    gate: int,
    readable: Sequence[str],
    limits: Limits,
    most_s: float,
    kernel_scheme: str | None = None,
) -> list[str]:
    """Return the command line that runs a program contained.

    Args:
        program: the program and its arguments.
        root: an empty folder, which becomes the program's root.
        report: an inherited descriptor for the result.
        gate: an inherited descriptor; the program starts when a byte can be read from it, or at its end.
        readable: files and folders that it may read and execute.
        limits: what it may take.
        most_s: it is killed so long after its start, in seconds.
        kernel_scheme: the kernel's name of the congestion control of a TCP socket that it inherits; the variable
            PATHCAST_SOCKET is its descriptor. Some schemes are only for users with privileges.

    """
    spec = {
        "root": os.fspath(root),
        "report": report,
        "gate": gate,
        "readable": list(readable),
        "limits": asdict(limits),
        "most_s": most_s,
        "kernel_scheme": kernel_scheme,
    }
    return [sys.executable, "-I", "-S", __file__, json.dumps(spec), *program]


_libc = ctypes.CDLL(None, use_errno=True)


def _checked(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    arguments = [text.encode() for text in (source, target, kind)]
    _checked(
        f"mounting {target}",
        _libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None),
    )


def _read_only(target: str) -> None:
    """Make a mount and all below it read-only (mount_setattr, Linux 5.12)."""
    attributes = (ctypes.c_uint64 * 4)(_ATTR_RDONLY | _ATTR_NOSUID, 0, 0, 0)
    here = -100  # AT_FDCWD
    result = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        here,
        target.encode(),
        _AT_RECURSIVE,
        attributes,
        ctypes.c_size_t(32),
    )
    _checked(f"making {target} read-only", result)


def _privileged() -> bool:
    """Whether this process may do what root may, in its user namespace."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return os.geteuid() == 0 and bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False


def _enter_user_namespace(user: int, group: int, extra: int = 0) -> None:
    """Enter a user namespace with one user, whose number stays."""
    _checked("making a user namespace", _libc.unshare(_NEWUSER | extra))
    Path("/proc/self/setgroups").write_text("deny")
    # root without privileges becomes nobody: number 0 would have rights in the namespace
    Path("/proc/self/uid_map").write_text(f"{user or NOBODY} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group or NOBODY} {group} 1")


def _bind(root: str, place: str) -> None:
    """Show a file or folder of the system at the same place below `root`."""
    there = Path(root + place)
    if Path(place).is_symlink():
        there.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            there.symlink_to(Path(place).readlink())
        return
    if not Path(place).exists():
        return
    if Path(place).is_dir():
        there.mkdir(parents=True, exist_ok=True)
    else:
        there.parent.mkdir(parents=True, exist_ok=True)
        there.touch()
    _mount(place, str(there), "none", _BIND | _REC)


def _build_root(root: str, readable: Sequence[str]) -> None:
    """Enter a root of the system's programs and of `readable`, read-only, with an empty /tmp."""
    _mount("none", "/", "none", _REC | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "mode=755,size=1m")
    for place in (*_SYSTEM, *_SYSTEM_FILES, *readable):
        _bind(root, place)
    Path(root, "dev").mkdir(exist_ok=True)
    for device in _DEVICES:
        _bind(root, f"/dev/{device}")
    for folder in ("proc", "tmp", "dev/shm"):
        Path(root, folder).mkdir(exist_ok=True)
    _read_only(root)
    with contextlib.suppress(OSError):  # some containers let no one see their processes
        _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV)
    for folder in ("tmp", "dev/shm"):
        data = f"mode=1777,size={_SCRATCH_BYTES}"
        _below = f"{root}/{folder}"
        _mount("tmpfs", _below, "tmpfs", _NOSUID | _NODEV, data)
    # folders of ours that lie below /tmp are hidden by that
    for place in readable:
        if place.startswith(("/tmp/", "/dev/shm/")):  # noqa: S108 - not a file of ours
            _bind(root, place)
            _read_only(root + place)
    os.chdir(root)
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(f"cannot contain programs on {os.uname().machine}")
    _checked("entering the new root", _libc.syscall(ctypes.c_long(number), b".", b"."))
    _checked("leaving the old root", _libc.umount2(b".", _DETACH))
    os.chdir("/tmp")  # noqa: S108 - its own


def _limit(limits: dict[str, Any]) -> None:
    for what, most in (
        (resource.RLIMIT_DATA, limits["memory_bytes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        # threads count as well
        (resource.RLIMIT_NPROC, 16 * limits["processes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def _become(spec: dict[str, Any], program: Sequence[str]) -> NoReturn:
    """In the child: give up all rights, and run the program."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        # so that its processes are counted apart from those of others
        with contextlib.suppress(OSError):
            _enter_user_namespace(NOBODY, NOBODY)
    _checked("giving up privileges", _libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _limit(spec["limits"])
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in ("LANG", "LC_ALL", "PATH") or name.startswith("PATHCAST_")
    }
    environment["HOME"] = "/tmp"  # noqa: S108 - its own
    os.execvpe(program[0], list(program), environment)  # noqa: S606 - that is what it is for


def _processes() -> list[int]:
    """The processes of this namespace but this one."""
    names = (entry.name for entry in Path("/proc").iterdir())
    return [int(name) for name in names if name.isdecimal() and int(name) != 1]


def _memory_bytes(processes: Sequence[int]) -> int:
    pages = 0
    for process in processes:
        with contextlib.suppress(OSError, IndexError):
            resident, shared = Path(f"/proc/{process}/statm").read_text().split()[1:3]
            pages += int(resident) - int(shared)
    return pages * resource.getpagesize()


class _Processor:
    """What threads got of processors, and how long they waited for one (proc(5), schedstat)."""

    def __init__(self) -> None:
        self.of_thread: dict[Path, tuple[int, int]] = {}

    def look(self, processes: Sequence[int]) -> None:
        """Read the counts of these processes; threads that have ended keep what was read last."""
        for process in processes:
            with contextlib.suppress(OSError, ValueError):
                for thread in Path(f"/proc/{process}/task").iterdir():
                    ran, waited, _ = (thread / "schedstat").read_text().split()
                    self.of_thread[thread] = int(ran), int(waited)

    def report(self) -> dict[str, float]:
        """Seconds of processors of all threads together, and of waiting of the one that waited longest."""
        ran_ns = sum(ran for ran, _ in self.of_thread.values())
        waited_ns = max((waited for _, waited in self.of_thread.values()), default=0)
        return {"cpu_s": ran_ns / 1e9, "waited_s": waited_ns / 1e9}


def _broken(limits: dict[str, Any], running: Sequence[int]) -> str | None:
    """Which limit is broken, if any."""
    if len(running) > limits["processes"]:
        return f"started more than {limits['processes']} processes"
    if _memory_bytes(running) > limits["memory_bytes"]:
        return f"took more than {limits['memory_bytes'] >> 20} MiB of memory"
    return None


def _watch(child: int, spec: dict[str, Any]) -> dict[str, Any]:
    """Wait for the program; kill it where it breaks a limit."""
    limits, began = spec["limits"], time.monotonic()
    deadline, asked, because = began + spec["most_s"], False, None
    processor = _Processor()
    while True:
        got = signal.sigtimedwait([signal.SIGCHLD, signal.SIGTERM], _EVERY_S)
        if got is not None and got.si_signo == signal.SIGTERM and not asked:
            asked = True
            deadline = min(deadline, time.monotonic() + limits["end_s"])
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        while True:
            ended, status = _reap()
            if ended == 0:
                break
            if ended == child:
                code = os.waitstatus_to_exitcode(status)
                return {
                    "exit_code": 128 - code if code < 0 else code,
                    "ran_s": time.monotonic() - began,
                    "killed_because": because,
                    "asked": asked,
                    "left": _left(),
                    **processor.report(),
                }
        running: list[int] = []
        with contextlib.suppress(OSError):  # some containers let no one see their processes
            running = _processes()
        processor.look(running)
        if because is None:
            because = _broken(limits, running)
            if because is None and time.monotonic() > deadline:
                after = f"{limits['end_s']:g} s of SIGTERM" if asked else f"{spec['most_s']:g} s"
                because = f"did not end within {after}"
            if because is not None:
                os.kill(-1, signal.SIGKILL)


def _reap() -> tuple[int, int]:
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return 0, 0


def _left() -> int:
    """How many processes the program left behind."""
    try:
        states = [Path(f"/proc/{process}/stat") for process in _processes()]
        return sum(state.read_text().rpartition(")")[2].split()[0] != "Z" for state in states)
    except (OSError, IndexError):
        return 0


def _first_process(spec: dict[str, Any], program: Sequence[str]) -> NoReturn:
    """The namespace's process 1: build the file system, start the program, watch it."""
    report: dict[str, Any]
    try:
        _libc.prctl(_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        for number in (spec["report"], spec["gate"]):
            os.set_inheritable(number, False)
        _build_root(spec["root"], spec["readable"])
        os.write(spec["report"], b"prepared\n")
        if not os.read(spec["gate"], 1):
            raise OSError("was stopped before its start")
        child = os.fork()
        if child == 0:
            try:
                _become(spec, program)
            except OSError as error:
                os.write(2, f"cannot start {program[0]}: {error.strerror}\n".encode())
                os._exit(126 if stat.S_ISREG(_mode(program[0])) else 127)
        report = _watch(child, spec)
    except OSError as error:
        report = {"refused": str(error)}
    os.write(spec["report"], json.dumps(report).encode())
    os._exit(0)


def _mode(place: str) -> int:
    try:
        return Path(place).stat().st_mode
    except OSError:
        return 0


def main() -> None:
    """Run the program of the command line, and wait for its end."""
    spec, program = json.loads(sys.argv[1]), sys.argv[2:]
    signals = [signal.SIGTERM, signal.SIGCHLD]
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _libc.prctl(_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    made_socket = False
    try:
        if (scheme := spec["kernel_scheme"]) is not None:
            with socket.socket() as made:
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, scheme.encode())
                number = made.detach()
            os.set_inheritable(number, True)
            os.environ["PATHCAST_SOCKET"] = str(number)
            made_socket = True
        spaces = _NEWNS | _NEWPID | _NEWIPC | _NEWUTS
        if _privileged():
            _checked("making namespaces", _libc.unshare(spaces))
        else:
            _enter_user_namespace(os.geteuid(), os.getegid(), spaces)
    except OSError as error:
        refused = str(error)
        if not made_socket and spec["kernel_scheme"] is not None:
            refused = f"the kernel refuses {spec['kernel_scheme']} to this user: {error}"
        os.write(spec["report"], json.dumps({"refused": refused}).encode())
        return
    first = os.fork()
    if first == 0:
        _first_process(spec, program)
    while True:
        got = signal.sigwaitinfo(signals).si_signo
        if got == signal.SIGTERM:
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGTERM)
        elif os.waitpid(first, os.WNOHANG)[0] == first:
            return


if __name__ == "__main__":
    main()
