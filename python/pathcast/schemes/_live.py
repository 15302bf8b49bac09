"""A program at each host of a live run, which starts its ends of flows: see live.py.

`_live.py client FOLDER` runs the plan of a folder. `_live.py server` reads one line of JSON from standard input: what the
client asks for. Both run in the network namespace of the tunnel, whose addresses are PATHCAST_ADDRESS (the client) and
PATHCAST_BASE (the server), and end when their standard input does. They meet over a connection in the tunnel; the
files by which the two sides of a run meet (`_side.py`) are copied over it, and the server's results.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pathcast.exceptions import PathcastError, SchemeError
from pathcast.files import write_beside
from pathcast.foreign import visible
from pathcast.schemes import build, run
from pathcast.schemes._world import (
    die_with_parent,
    forget_sudo,
    provide,
    raise_loopback,
    side_words,
)
from pathcast.schemes.contain import Limits
from pathcast.schemes.scheme import catalog, nearest

#: Where the server's program waits for the client's, and for how long, in seconds.
PORT, MEET_S = 5002, 30.0
#: Of the port of the first flow's receiver; the tunnel tells flows apart by it.
FIRST_PORT = 30_000
#: The largest line that a program sends, and the largest file, in bytes.
_LINE_BYTES, _FILE_BYTES = 1 << 18, 1 << 16
#: How long the other host may say nothing beyond the run's duration, in seconds.
_SILENT_S = 150.0
#: How long each step of an end may take: by itself, then after a signal; the host allows both and more.
_END_S = 1.5
#: The files by which sides meet, by who writes them.
FILES = {
    "sender": re.compile(r"begin|end|\d{1,2}-sender\.json"),
    "receiver": re.compile(r"(?:ready|failed)-\d{1,2}|over|\d{1,2}-receiver\.json"),
}


class Link:
    """The connection with the program of the other host: lines of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._unread = b""
        self._said: list[dict[str, Any]] = []

    def say(self, what: dict[str, Any]) -> None:
        """Send an object."""
        self._connection.settimeout(MEET_S)
        self._connection.sendall(json.dumps(what).encode() + b"\n")

    def heard(self, seconds: float) -> list[dict[str, Any]]:
        """Objects that have come, after so many seconds at most if there are none.

        Raises:
            SchemeError: the other host says what is no object, or has gone.

        """
        if self._said:
            said, self._said = self._said, []
            return said
        self._connection.settimeout(seconds)
        try:
            got = self._connection.recv(1 << 16)
        except TimeoutError:
            return []
        except OSError as error:
            raise SchemeError(f"the other host's program: {error.strerror}") from None
        if not got:
            raise SchemeError("the other host's program has gone")
        *lines, self._unread = (self._unread + got).split(b"\n")
        if len(self._unread) > _LINE_BYTES or any(len(line) > _LINE_BYTES for line in lines):
            raise SchemeError(
                f"the other host's program sent more than {_LINE_BYTES} bytes without the end of a line"
            )
        found: list[Any]
        try:
            found = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            found = [None]
        if not all(isinstance(one, dict) for one in found):
            raise SchemeError("the other host's program says what is no JSON object")
        return found

    def hear(self, key: str, seconds: float) -> Any:  # noqa: ANN401 - JSON
        """The value of a key that the other host says first.

        Raises:
            SchemeError: it says something else, or nothing, or why it refuses.

        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if several := self.heard(0.1):
                said, *self._said = several
                if "refused" in said:
                    raise SchemeError(
                        f"the other host refused: {visible(str(said['refused'])[:300])}"
                    )
                if key in said:
                    return said[key]
                raise SchemeError("the other host's program says something else than expected")
        raise SchemeError(f"the other host's program has said nothing for {seconds:g} s")


def asked(line: bytes) -> tuple[list[run.Flow], float, bool]:
    """The flows, the duration and the direction that a client asks for.

    Raises:
        SchemeError: it is nothing that can be run.

    """
    try:
        what = json.loads(line)
        flows = [
            run.Flow(
                str(flow["scheme"]),
                float(flow["start_s"]),
                None if flow["stop_s"] is None else float(flow["stop_s"]),
                None if flow["bytes"] is None else int(flow["bytes"]),
            )
            for flow in what["flows"]
        ]
        duration_s, reverse = float(what["duration_s"]), bool(what["reverse"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise SchemeError(
            f"got no plan of flows ({type(error).__name__}); expected that of the same version of pathcast"
        ) from None
    run.check_times(flows, duration_s)
    return flows, duration_s, reverse


def plan_here(flows: list[run.Flow], duration_s: float, *, reverse: bool) -> dict[str, Any]:
    """The server's plan, of schemes that it has: it builds nothing while a client waits."""
    known = catalog()
    planned = []
    for number, flow in enumerate(flows):
        ready: build.Prepared | str
        if flow.scheme not in known:
            scheme = next(iter(known.values()))
            ready = f"the server has no such scheme{nearest(flow.scheme, known)}"
        elif not build.is_built(scheme := known[flow.scheme]):
            ready = f"is not built on the server: `pathcast schemes build {flow.scheme}` there"
        else:
            ready = run.try_prepare(scheme)
        planned.append(
            run.planned(number, flow, scheme, ready, Limits(), duration_s, first_port=FIRST_PORT)
        )
    return {"duration_s": duration_s, "reverse": reverse, "flows": planned}


def merge(plan: dict[str, Any], theirs: object) -> None:
    """Leave out flows that the other host cannot run."""
    flows = plan["flows"]
    if not isinstance(theirs, list) or len(theirs) != len(flows):
        raise SchemeError("the other host's program has another number of flows")
    for flow, why in zip(flows, theirs, strict=True):
        if why is not None:
            flow["why_not"] = flow["why_not"] or visible(str(why)[:300])


def mirror(
    folder: Path, side: subprocess.Popen[bytes], link: Link, role: str, most_s: float
) -> None:
    """Copy what the sides write for each other, until both have ended."""
    other = "sender" if role == "receiver" else "receiver"
    known: set[str] = set()
    ended = over = False
    deadline = time.monotonic() + most_s
    while not (ended and over):
        has_ended = side.poll() is not None
        for file in sorted(folder.iterdir()):
            name = file.name
            if name not in known and FILES[role].fullmatch(name):
                known.add(name)
                link.say({"file": name, "content": _content(file)})
        if has_ended and not ended:
            ended = True
            link.say({"over": True})
        try:
            said = link.heard(0.01)
        except SchemeError:
            if ended and over:
                return
            raise
        for one in said:
            over = over or "over" in one
            if "file" in one:
                take(folder, one, FILES[other])
        if time.monotonic() > deadline:
            raise SchemeError(f"the run did not end within {most_s:.0f} s")


def _content(file: Path) -> str:
    """What a file of this side says; of a result that is too long, without what its program said."""
    text = file.read_text()
    if len(text) <= _FILE_BYTES:
        return text
    return json.dumps(json.loads(text) | {"said": None, "log_tail": "more than is kept"})


def take(folder: Path, said: dict[str, Any], names: re.Pattern[str]) -> None:
    """Write a file that the other host has sent.

    Raises:
        SchemeError: it is none by which sides meet.

    """
    name, content = said["file"], said.get("content")
    if not (isinstance(name, str) and names.fullmatch(name) and isinstance(content, str)):
        raise SchemeError("the other host's program sends a file that is none of a run")
    if len(content) > _FILE_BYTES or not content.isascii():
        raise SchemeError(
            f"the other host's program sends no ASCII, or more than {_FILE_BYTES} bytes of a file"
        )
    write_beside(folder / name, content)


def _link(connection: socket.socket) -> Link:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Link(connection)


def _take_part(folder: Path, plan: dict[str, Any], link: Link, role: str, where: str) -> None:
    """Run this host's ends of the flows."""
    own = [flow["why_not"] for flow in plan["flows"]]
    link.say({"why_not": own})
    merge(plan, link.hear("why_not", MEET_S))
    (folder / "plan.json").write_text(json.dumps(plan))
    provided = provide(folder) if role == "sender" else []
    with (folder / "side.log").open("wb") as log:
        side = subprocess.Popen(  # noqa: S603 - our own program
            [*side_words(folder), where],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent,
        )
    try:
        mirror(folder, side, link, role, plan["duration_s"] + _SILENT_S)
    finally:
        side.kill()
        side.wait()
        del provided
    if side.returncode not in (0, -signal.SIGKILL):
        raise SchemeError(
            f"one side ended with code {side.returncode}: {(folder / 'side.log').read_text()[-300:]}"
        )


def _line() -> bytes:
    """The line that the standard input begins with; what follows stays unread."""
    return io.FileIO(0, closefd=False).readline(_LINE_BYTES)


def _end_with_input() -> None:
    """End this process and all that it started soon after its standard input ends."""

    def stop(_number: int, _frame: object) -> None:
        raise SystemExit(1)

    def watch() -> None:
        while os.read(0, 1 << 16):
            pass
        # first it may end by itself, then tidy up
        time.sleep(_END_S)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_END_S)
        os.killpg(0, signal.SIGKILL)

    signal.signal(signal.SIGTERM, stop)
    threading.Thread(target=watch, daemon=True).start()


def client(folder: Path) -> None:
    """Run the client's part of a plan."""
    _line()  # empty: the plan is in the folder
    _end_with_input()
    plan = json.loads((folder / "plan.json").read_text())
    deadline = time.monotonic() + MEET_S
    while True:
        try:
            connection = socket.create_connection((os.environ["PATHCAST_BASE"], PORT), MEET_S)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise SchemeError(f"the server's program: {error.strerror or error}") from None
            time.sleep(0.05)
    with connection:
        _take_part(
            folder, plan, _link(connection), "receiver" if plan["reverse"] else "sender", "inside"
        )


def server() -> None:
    """Run what a client asks for."""
    line = _line()
    _end_with_input()
    address = os.environ["PATHCAST_BASE"], PORT
    with tempfile.TemporaryDirectory(prefix="pathcast-live-") as name:
        with socket.create_server(address) as listener:
            listener.settimeout(MEET_S)
            connection = listener.accept()[0]
        with connection:
            link = _link(connection)
            try:
                flows, duration_s, reverse = asked(line)
                plan = plan_here(flows, duration_s, reverse=reverse)
            except SchemeError as error:
                link.say({"refused": str(error)})
                return
            role = "sender" if reverse else "receiver"
            _take_part(Path(name), plan, link, role, "outside")


def question(flows: list[run.Flow], duration_s: float, *, reverse: bool) -> str:
    """The line that asks a server for flows."""
    return json.dumps(
        {"duration_s": duration_s, "reverse": reverse, "flows": [asdict(flow) for flow in flows]}
    )


def main() -> None:
    """Run one host's part."""
    forget_sudo()
    try:
        raise_loopback()
        if sys.argv[1] == "server":
            with contextlib.suppress(TimeoutError):  # nobody came
                server()
        else:
            client(Path(sys.argv[2]))
    except (PathcastError, OSError) as error:
        if sys.argv[1] == "client":
            (Path(sys.argv[2]) / "error").write_text(str(error))
        else:
            sys.stderr.write(f"schemes: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
