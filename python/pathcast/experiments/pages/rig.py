"""Servers in a network namespace of their own, and clients behind emulated paths beside it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from pathcast.exceptions import PathcastError, ServiceError
from pathcast.experiments.pages.replica import HOST
from pathcast.service.client import Client

#: Where the service listens in the namespace.
LISTEN = "127.0.0.1:8080"
#: How long a program may take to start, to end by itself once its input has ended, and to end, in seconds.
_START_S, _END_ITSELF_S, _END_S = 30.0, 10.0, 15.0


def program(name: str) -> str | None:
    """Return where a program of the system is."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/sbin")


def missing(names: Sequence[str]) -> list[str]:
    """Return what this machine lacks of programs, and of root."""
    found = [name for name in (*names, "ip", "setpriv", "unshare") if program(name) is None]
    return found + ([] if os.geteuid() == 0 else ["root"])


def enter_namespace(flag: str) -> None:
    """Run this program again in a network namespace of its own, with a further argument; does not return."""
    unshare = program("unshare")
    if unshare is None:
        raise PathcastError("there is no unshare; expected util-linux")
    inside = [unshare, "--net", sys.executable, *sys.orig_argv[1:], flag]
    os.execv(inside[0], inside)  # noqa: S606 - this program again


def pathcast(*arguments: object) -> list[str]:
    """Return the command line of `pathcast` by this Python."""
    own = [sys.executable, "-P", "-c", "from pathcast.cli import main; main()"]
    return [*own, *map(str, arguments)]


def _ending_with_us(command: Sequence[object]) -> list[str]:
    """Return a command line of a program that gets SIGTERM when the thread that starts it has ended or was killed."""
    return [program("setpriv") or "setpriv", "--pdeathsig=TERM", "--", *map(str, command)]


def run_ip(*arguments: str) -> str:
    """Run ip(8), and return what it prints."""
    done = subprocess.run(  # noqa: S603 - of this machine
        [program("ip") or "ip", *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout


def end(process: subprocess.Popen[Any]) -> None:
    """End a process that was started here; one that reads from here ends by itself, so that it removes what it made."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_ITSELF_S)
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something.

    Raises:
        PathcastError: it takes too long.

    """
    deadline = time.monotonic() + _START_S
    while not condition():
        if time.monotonic() > deadline:
            raise PathcastError(f"{what} did not happen within {_START_S:g} s")
        time.sleep(0.05)


class Rig:
    """What runs in the namespace, and ends with it.

    Attributes:
        folder: for files of the servers.
        service: once `serve` was called.

    """

    def __init__(self, folder: FilePath, stack: contextlib.ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self.service: Client

    @classmethod
    @contextlib.contextmanager
    def made(cls) -> Iterator[Rig]:
        """Make a rig in the network namespace of this process; its loopback is switched on."""
        with (
            tempfile.TemporaryDirectory(prefix="pathcast-rig-") as name,
            contextlib.ExitStack() as stack,
        ):
            run_ip("link", "set", "lo", "up")
            yield cls(FilePath(name), stack)

    def start(
        self, name: str, command: Sequence[object], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program; what it prints goes to a file of its name."""
        with (self.folder / f"{name}.log").open("w") as output:
            process = subprocess.Popen(  # noqa: S603 - programs of this machine
                _ending_with_us(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | (environment or {}),
            )
        self._stack.callback(end, process)
        return process

    def said(self, name: str) -> str:
        """What a program printed."""
        return (self.folder / f"{name}.log").read_text()

    def certify(self) -> None:
        """Make `certificate.pem` and `key.pem` for the host of replicas."""
        subprocess.run(  # noqa: S603 - the openssl of this machine
            [
                *(program("openssl") or "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes"),
                *("-days", "30", "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"),
                *("-keyout", str(self.folder / "key.pem")),
                *("-out", str(self.folder / "certificate.pem")),
            ],
            check=True,
            capture_output=True,
        )

    def nginx(self, configuration: FilePath) -> None:
        """Start nginx; the names of its configuration are relative to the folder.

        Raises:
            PathcastError: it does not start.

        """
        # nginx looks for certificates beside the configuration
        own = self.folder / "nginx.conf"
        own.write_text(configuration.read_text())
        command = [program("nginx"), "-p", self.folder, "-c", own, "-g", "user root;"]
        process = self.start("nginx", command)
        until(
            lambda: (self.folder / "nginx.pid").exists() or process.poll() is not None,
            "the start of nginx",
        )
        if process.poll() is not None:
            raise PathcastError(f"nginx ends: {self.said('nginx').strip()[-300:]}")

    def serve(self, configuration: str) -> subprocess.Popen[bytes]:
        """Start the service, and return it when it answers.

        Raises:
            PathcastError: it does not start.

        """
        file = self.folder / "serve.toml"
        file.write_text(configuration)
        process = self.start("serve", pathcast("serve", "--listen", LISTEN, "--config", file))
        self.service = Client(f"http://{LISTEN}")

        def answers() -> bool:
            with contextlib.suppress(ServiceError):
                return self.service.request("GET", "/v1/pages")[0] == 200
            return False

        until(answers, "the start of the service")
        return process

    def client(self, path: FilePath, seed: int, command: Sequence[object]) -> Behind:
        """Start a program behind a path."""
        report = self.folder / f"path-{path.stem}-{seed}.json"
        made = Behind(path, seed, command, report)
        self._stack.callback(made.end)
        return made


def use_scheme(scheme: str) -> None:
    """Give what is sent to the clients a congestion control.

    By their routes: a namespace may not have each as its default (`tcp_allowed_congestion_control`).
    """
    for route in run_ip("route", "show").splitlines():
        if " dev pathcast" in route:
            words = route.replace("linkdown", "").split()
            run_ip("route", "change", *words, "congctl", scheme)


class Behind:
    """A program behind a path: a line of text in, a line of JSON out."""

    def __init__(
        self, path: FilePath, seed: int, command: Sequence[object], report: FilePath
    ) -> None:
        self._report = report
        asked = pathcast("shell", path, "--seed", seed, "--quiet", "--report", report, "--")
        self.process = subprocess.Popen(  # noqa: S603 - our own program
            _ending_with_us([*asked, *command]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        #: What it says first.
        self.first = self._read()

    def _read(self) -> Any:  # noqa: ANN401
        assert self.process.stdout is not None  # noqa: S101 - it is a pipe
        line = self.process.stdout.readline()
        if not line:
            raise PathcastError(f"a client ended with {self.process.wait()}")
        found = json.loads(line)
        if isinstance(found, dict) and "error" in found:
            raise PathcastError(str(found["error"]))
        return found

    def ask(self, line: str) -> Any:  # noqa: ANN401
        """Send a line, and return the answer.

        Raises:
            PathcastError: the program ended, or says why it cannot answer.

        """
        assert self.process.stdin is not None  # noqa: S101 - it is a pipe
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._read()

    def end(self) -> dict[str, Any]:
        """End it; return the report of the path: `invalid_because` says why what was measured must not be used."""
        end(self.process)
        found: dict[str, Any] = (
            json.loads(self._report.read_text()) if self._report.exists() else {}
        )
        return found
