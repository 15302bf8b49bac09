"""nginx behind an emulated path: HTTP/1.1 and HTTP/2 on a port each."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pathcast.exceptions import PathcastError
from pathcast.experiments.pages.replica import HOST
from pathcast.path import Path

#: The port of each protocol.
PORTS = {"http/1.1": 8441, "h2": 8443}
_START_S = 20.0
_CONFIGURATION = """\
worker_processes 1;
daemon off;
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


@dataclass
class Served:
    """A server behind a path.

    Attributes:
        address: of the server.
        report: of the path, when the server has ended; `invalid_because` says why loads must not be used.

    """

    address: str
    report: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def serving(
    root: FilePath, path: Path, scheme: str, folder: FilePath, seed: int
) -> Iterator[Served]:
    """Serve a folder behind a path: data crosses it forward.

    Args:
        root: what is served.
        path: between server and browser.
        scheme: congestion control of the server.
        folder: for files of the server; exists.
        seed: of the path.

    Raises:
        PathcastError: there is no nginx or openssl, or it does not start.

    """
    _certificate(folder)
    # the configuration holds no name that a user chose
    (folder / "www").symlink_to(root.resolve())
    configuration = folder / "nginx.conf"
    configuration.write_text(
        _CONFIGURATION.format(
            folder=folder,
            user=pwd.getpwuid(os.getuid()).pw_name,
            h1=PORTS["http/1.1"],
            h2=PORTS["h2"],
        )
    )
    (folder / "path.toml").write_text(path.to_toml())
    address, report, errors = folder / "address", folder / "report.json", folder / "shell.log"
    inside = 'printf %s "$PATHCAST_ADDRESS" > "$1"; exec "$2" -c "$3"'
    command = [
        *(sys.executable, "-P", "-c", "from pathcast.cli import main; main()"),
        *("shell", folder / "path.toml", "--scheme", scheme),
        *("--seed", seed, "--quiet", "--report", report, "--"),
        *("sh", "-c", inside, "sh", address, nginx(), configuration),
    ]
    address.unlink(missing_ok=True)
    with errors.open("w") as log:
        process = subprocess.Popen(  # noqa: S603 - our own program
            list(map(str, command)), stdin=subprocess.DEVNULL, stderr=log
        )
    try:
        end = time.monotonic() + _START_S
        while not (address.exists() and (folder / "nginx.pid").exists()):
            if process.poll() is not None or time.monotonic() > end:
                raise PathcastError(
                    f"nginx behind the path does not start: {errors.read_text()[-500:]}"
                )
            time.sleep(0.02)
        served = Served(address.read_text())
        yield served
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(30)
    served.report = json.loads(report.read_text())


def _certificate(folder: FilePath) -> None:
    """Make a certificate for the host of replicas, with a chain as long as usual ones."""
    if (folder / "certificate.pem").exists():
        return
    program = shutil.which("openssl")
    if program is None:
        raise PathcastError("there is no openssl; `scripts/system-packages pages` installs it")
    subprocess.run(  # noqa: S603 - the openssl of this machine
        [
            *(program, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650"),
            *("-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")),
        ],
        check=True,
        capture_output=True,
    )
