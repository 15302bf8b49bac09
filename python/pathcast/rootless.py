"""What needs root, without root: in a user namespace.

A process with more than one thread, as most that have loaded NumPy, cannot enter a user namespace. So
another Python does, and calls there what was called here. It has no name in the file system and leaves
no file; the kernel kills it when this process ends, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pathcast import _internal
from pathcast.exceptions import EmulatorError, PathcastError

if TYPE_CHECKING:
    import subprocess
    from multiprocessing.connection import Connection

T = TypeVar("T")

#: How long the other process has to take down what it made, in seconds.
END_WITHIN_S = 10.0
#: How often `on_turn` is called, in seconds.
TURN_S = 0.1

_inside = False


def needed() -> bool:
    """Whether this process lacks the privileges that namespaces need, and may look for them elsewhere."""
    return not _inside and not _internal.may_make_namespaces()


def inside() -> bool:
    """Whether this process is the one in the user namespace."""
    return _inside


def call(
    function: Callable[..., T],
    *args: Any,  # noqa: ANN401
    progress: Callable[[float], None] | None = None,
    on_turn: Callable[[subprocess.Popen[bytes]], None] | None = None,
    **kwargs: Any,  # noqa: ANN401
) -> T:
    """Call a function of Pathcast in a user namespace, and return what it returns.

    Args:
        function: named in a module, so that the other process finds it; what it takes and returns can
            be pickled.
        args: what it takes.
        progress: called here when the function calls its own `progress`; may raise, as Ctrl-C does:
            then the function is stopped.
        on_turn: called some times a second with the process; without it, the process is in no group of
            a terminal's.
        kwargs: what it takes by name.

    Raises:
        EmulatorError: this user may not make user namespaces, or the process broke.
        PathcastError: what the function raises.

    """
    from multiprocessing import Pipe

    ours, theirs = Pipe()
    with ours:
        with theirs:
            process = _start(theirs, of_terminal=on_turn is not None)
        what = (function, args, kwargs, progress is not None)
        try:
            result: T = _converse(ours, process, what, progress, on_turn)
        except BaseException:
            process.terminate()
            raise
        finally:
            _end(process)
    return result


def _start(theirs: Connection, of_terminal: bool) -> subprocess.Popen[bytes]:
    import subprocess

    program = FilePath(__file__).with_name("_inside.py")
    descriptor = theirs.fileno()
    try:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", program, str(descriptor), str(os.getpid())],
            pass_fds=[descriptor],
            stdin=None if of_terminal else subprocess.DEVNULL,
            process_group=None if of_terminal else 0,
        )
    except OSError as error:
        raise EmulatorError(
            "without root, the emulator runs in another process of the Python that runs "
            f"(sys.executable is {sys.executable!r}), which cannot be started: {error}"
        ) from None


def _converse(
    ours: Connection,
    process: subprocess.Popen[bytes],
    what: tuple[Any, ...],
    progress: Callable[[float], None] | None,
    on_turn: Callable[[subprocess.Popen[bytes]], None] | None,
) -> Any:  # noqa: ANN401
    try:
        ours.send((sys.path, _internal.__file__))
        ours.send(what)
        while True:
            while on_turn is not None and not ours.poll(TURN_S):
                on_turn(process)
            kind, value = ours.recv()
            if kind == "returned":
                return value
            if kind == "raised":
                raise value
            if kind == "refused":
                raise EmulatorError(value)
            if progress is not None:
                progress(value)
    except (EOFError, ConnectionError):
        raise EmulatorError(
            f"the process in the user namespace ended without a result (code {process.wait()})"
        ) from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that has nothing left to do, but only for a limited time."""
    import subprocess

    try:
        process.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Stopped(BaseException):
    """The caller no longer needs the result."""


def serve(connection: Connection) -> None:
    """In the other process: make the call, and send its result."""
    global _inside
    _inside = True

    def stop(*_: object) -> NoReturn:
        raise _Stopped

    signal.signal(signal.SIGTERM, stop)
    # Ctrl-C in a terminal is for the caller to see, who then stops us
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(_Stopped, EOFError, ConnectionError):
        function, args, kwargs, tells = connection.recv()
        if tells:
            kwargs["progress"] = lambda value: connection.send(("progress", value))
        try:
            result = function(*args, **kwargs)
        except PathcastError as error:
            connection.send(("raised", error))
        else:
            connection.send(("returned", result))


def caveats(environment: Mapping[str, str]) -> Iterator[str]:
    """Caveats of a run of the emulator whose trace has this environment."""
    if environment.get("rootless") == "yes":
        device = {"tun": "TUN devices", "veth": "veth pairs"}[environment["device"]]
        yield f"without root: in a user namespace, over {device}"
    if environment.get("fifo", "yes") != "yes":
        yield "without real-time priority (SCHED_FIFO): packets leave later, and more runs are not valid"
