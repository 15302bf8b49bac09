"""Servers behind an emulated path, with a port for each protocol: nginx, and Caddy if it is asked for."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pathcast.exceptions import PathcastError
from pathcast.experiments.pages import caddy, inside
from pathcast.experiments.pages.replica import HOST
from pathcast.path import Path


@dataclass(frozen=True)
class Endpoint:
    """A protocol of a server, which a browser reaches on a port of its own.

    Attributes:
        name: of the loads from it.
        protocol: what Chromium reports of each request.
        server: `nginx` or `caddy`.
        port: TCP's, or UDP's of HTTP/3.

    """

    name: str
    protocol: str
    server: str
    port: int

    @property
    def listens(self) -> str:
        """The port, as `inside` names it."""
        return f"{'udp' if self.protocol == 'h3' else 'tcp'} {self.port}"

    @property
    def origin(self) -> str:
        """Host and port."""
        return f"{HOST}:{self.port}"


#: What can be measured. HTTP/2 from Caddy shows which part of a difference between HTTP/2 and HTTP/3 is the server's.
ENDPOINTS = {
    one.name: one
    for one in (
        Endpoint("http/1.1", "http/1.1", "nginx", 8441),
        Endpoint("h2", "h2", "nginx", 8443),
        Endpoint("h3", "h3", "caddy", 8445),
        Endpoint("h2-caddy", "h2", "caddy", 8444),
    )
}
_START_S = 20.0
#: By these `pathcast shell` knows the user who ran sudo.
_OF_SUDO = ("SUDO_UID", "SUDO_GID")
_CONFIGURATION = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
user {user};
events {{ worker_connections 512; }}
http {{
  access_log off;
  types {{ text/html html; text/css css; application/javascript js; image/png png; }}
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  ssl_certificate {folder}/certificate.pem;
  ssl_certificate_key {folder}/key.pem;
  ssl_protocols TLSv1.3;
  keepalive_requests 10000;
  # on slow paths, streams wait longer than the minute that nginx gives them
  send_timeout 10m;
  client_header_timeout 10m;
  keepalive_timeout 10m;
  tcp_nodelay on;
  sendfile on;
  gzip off;
  root {folder}/www;
  server {{ listen {h1} ssl; }}
  server {{ listen {h2} ssl http2; }}
}}
"""


def nginx() -> str:
    """Return where nginx is.

    Raises:
        PathcastError: there is none.

    """
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise PathcastError("there is no nginx; `scripts/system-packages pages` installs it")
    return found


def version(program: str) -> str:
    """Return what nginx says of itself."""
    said = subprocess.run(  # noqa: S603 - the nginx of this machine
        [program, "-v"], capture_output=True, text=True, check=False
    )
    return said.stderr.strip().removeprefix("nginx version: ")


def versions(servers: Collection[str]) -> dict[str, str]:
    """Return what servers call themselves; nginx was the only server once, and is `server`.

    Raises:
        PathcastError: one is not there.

    """
    found = {}
    if "nginx" in servers:
        found["server"] = version(nginx())
    if "caddy" in servers:
        found["caddy"] = caddy.version(caddy.caddy())
    return found


@dataclass
class Served:
    """Servers behind a path.

    Attributes:
        address: of the servers.
        key: SHA-256 of their public key in base64.
        report: of the path, when the servers have ended; `invalid_because` says why loads must not be used.
        knobs: where they take knobs of TCP; None: nowhere.

    """

    address: str
    key: str
    report: dict[str, Any] = field(default_factory=dict)
    knobs: FilePath | None = None

    def set_knobs(self, **values: object) -> dict[str, Any]:
        """Set knobs of TCP for connections that open later; see `inside.set_knobs`.

        Returns:
            What is in force.

        Raises:
            PathcastError: these servers have no knobs, or the kernel refuses one.

        """
        if self.knobs is None:
            raise PathcastError("these servers were started without knobs")
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
            connection.settimeout(_START_S)
            connection.connect(str(self.knobs))
            with connection.makefile("rw") as stream:
                stream.write(json.dumps(values) + "\n")
                stream.flush()
                found: dict[str, Any] = json.loads(stream.readline() or '{"error": "no answer"}')
            if "error" in found:
                raise PathcastError(f"knobs {values}: {found['error']}")
            return found
        raise PathcastError(f"knobs {values}: the servers do not answer")


@contextlib.contextmanager
def serving(
    root: FilePath,
    path: Path,
    scheme: str,
    folder: FilePath,
    seed: int,
    servers: Collection[str] = ("nginx",),
    knobs: bool = False,
) -> Iterator[Served]:
    """Serve a folder behind a path: data crosses it forward.

    Args:
        root: what is served.
        path: between servers and browser.
        scheme: congestion control of TCP.
        folder: for files of the servers; exists.
        seed: of the path.
        servers: among `nginx` and `caddy`.
        knobs: whether `Served.set_knobs` works.

    Raises:
        PathcastError: there is no such server, no openssl, or one does not start.

    """
    key = _certificate(folder)
    # the configurations hold no name that a user chose
    (folder / "www").symlink_to(root.resolve())
    (folder / "path.toml").write_text(path.to_toml())
    address, report, errors = folder / "address", folder / "report.json", folder / "shell.log"
    plan = folder / "servers.json"
    taken = folder / "knobs" if knobs else None
    extra = {} if taken is None else {"knobs": str(taken)}
    plan.write_text(json.dumps(_plan(folder, address, servers) | extra))
    command = [
        # it ends with this program, however that ends
        *("setpriv", "--pdeathsig=TERM", "--"),
        *(sys.executable, "-P", "-c", "from pathcast.cli import main; main()"),
        *("shell", folder / "path.toml", "--scheme", scheme),
        *("--seed", seed, "--quiet", "--report", report, "--"),
        *(sys.executable, "-I", inside.__file__, plan),
    ]
    address.unlink(missing_ok=True)
    # with sudo, the shell would run them as the user who ran it, whom this folder does not admit
    environment = {name: value for name, value in os.environ.items() if name not in _OF_SUDO}
    with errors.open("w") as log:
        process = subprocess.Popen(  # noqa: S603 - our own program
            list(map(str, command)), stdin=subprocess.DEVNULL, stderr=log, env=environment
        )
    try:
        end = time.monotonic() + _START_S
        while not address.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise PathcastError(
                    f"{' or '.join(servers)} does not start behind the path: "
                    f"{errors.read_text()[-500:]}"
                )
            time.sleep(0.02)
        served = Served(address.read_text(), key, knobs=taken)
        yield served
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(30)
    if not report.exists():
        raise PathcastError(f"the path ended early: {errors.read_text()[-500:]}")
    served.report = json.loads(report.read_text())


def _plan(folder: FilePath, address: FilePath, servers: Collection[str]) -> dict[str, Any]:
    """What `inside` runs; writes the configurations of the servers."""
    ports = {name: one.port for name, one in ENDPOINTS.items()}
    commands = []
    if "nginx" in servers:
        configuration = folder / "nginx.conf"
        configuration.write_text(
            _CONFIGURATION.format(
                folder=folder,
                user=pwd.getpwuid(os.getuid()).pw_name,
                h1=ports["http/1.1"],
                h2=ports["h2"],
            )
        )
        # one process: a worker of its own would outlive a master that is killed
        commands.append([*inside.CONFINED, nginx(), "-c", str(configuration)])
    if "caddy" in servers:
        commands.append(caddy.command(caddy.caddy(), folder, ports["h2-caddy"], ports["h3"]))
    listen = [one.listens for one in ENDPOINTS.values() if one.server in servers]
    return {"commands": commands, "listen": listen, "address": str(address)}


def _certificate(folder: FilePath) -> str:
    """Make a certificate for the host of replicas; return the hash of its key, by which Chromium accepts it for QUIC."""
    program = shutil.which("openssl")
    if program is None:
        raise PathcastError("there is no openssl; `scripts/system-packages pages` installs it")
    certificate = folder / "certificate.pem"
    if not certificate.exists():
        subprocess.run(  # noqa: S603 - the openssl of this machine
            [
                *(program, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650"),
                *("-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"),
                *("-keyout", str(folder / "key.pem"), "-out", str(certificate)),
            ],
            check=True,
            capture_output=True,
        )
    said = subprocess.run(  # noqa: S603 - the openssl of this machine
        [program, "x509", "-in", str(certificate), "-noout", "-pubkey"],
        check=True,
        capture_output=True,
        text=True,
    )
    # what PEM has between its first and its last line is the key's SubjectPublicKeyInfo
    key = base64.b64decode("".join(said.stdout.split("\n")[1:-2]))
    return base64.b64encode(hashlib.sha256(key).digest()).decode()
