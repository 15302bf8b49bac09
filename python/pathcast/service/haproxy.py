"""Maps of a running HAProxy, by its runtime API (HAProxy Management Guide, section 9.3)."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath

from pathcast.exceptions import ServiceError

#: How long HAProxy may take to answer a command, in seconds.
ANSWER_S = 5.0
#: A command with its payload must fit into a buffer (tune.bufsize: 16384 by default, of which 1024 are kept free).
PAYLOAD_BYTES = 12_000
_BACKEND = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_VERSION = re.compile(r"New version created: (\d+)")


class Haproxy:
    """The runtime API of a HAProxy on this machine.

    Args:
        socket_path: of `stats socket PATH level admin`.

    """

    def __init__(self, socket_path: FilePath) -> None:
        self.socket_path = socket_path

    def ask(self, command: str, payload: str = "") -> str:
        """Send one command, and return the answer.

        Raises:
            ServiceError: HAProxy cannot be reached, or does not answer in time.

        """
        text = f"{command} <<\n{payload}\n" if payload else f"{command}\n"
        parts = []
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.settimeout(ANSWER_S)
                made.connect(str(self.socket_path))
                made.sendall(text.encode())
                while part := made.recv(1 << 16):
                    parts.append(part)
        except OSError as error:
            raise ServiceError(
                f"{self.socket_path}: {error.strerror or error}; expected the socket of a running HAProxy "
                "(stats socket PATH level admin)"
            ) from None
        return b"".join(parts).decode(errors="replace")

    def shown(self, file: FilePath) -> dict[str, str]:
        """Return the entries of a map, as HAProxy has them now.

        Args:
            file: the map's file, as HAProxy's configuration names it.

        Raises:
            ServiceError: HAProxy cannot be reached, or has no such map.

        """
        answer = self.ask(f"show map {_plain(file)}")
        entries = {}
        for line in answer.splitlines():
            words = line.split(" ", 2)
            # 0x55d5f0 192.0.2.0/24 pool_h1
            if len(words) == 3 and words[0].startswith("0x"):
                entries[words[1]] = words[2].strip()
            elif line.strip():
                raise ServiceError(f"HAProxy has no map {file}: {line.strip()[:200]}")
        return entries

    def swap(self, file: FilePath, entries: Mapping[str, str]) -> None:
        """Exchange all entries of a map at one moment: each connection sees the old map or the new one.

        Args:
            file: the map's file, as HAProxy's configuration names it.
            entries: backends by prefix.

        Raises:
            ServiceError: HAProxy refuses; then the map is as it was.

        """
        name = _plain(file)
        payloads = list(_payloads(entries))
        found = _VERSION.search(answer := self.ask(f"prepare map {name}"))
        if found is None:
            raise ServiceError(f"HAProxy does not prepare the map {file}: {answer.strip()[:200]}")
        version = f"@{found[1]}"
        for payload in payloads:
            answer = self.ask(f"add map {version} {name}", payload)
            if answer.strip():
                self.ask(f"clear map {version} {name}")
                raise ServiceError(f"HAProxy refuses entries of {file}: {answer.strip()[:200]}")
        answer = self.ask(f"commit map {version} {name}")
        if answer.strip():
            raise ServiceError(f"HAProxy does not commit {file}: {answer.strip()[:200]}")


def _plain(file: FilePath) -> str:
    """The file's name, if a command can hold it."""
    text = str(file)
    if re.search(r"[\s;\\<]", text) or not text:
        raise ServiceError(
            f"the map's file is {text!r}; expected a name without spaces, ;, < and backslashes"
        )
    return text


def _payloads(entries: Mapping[str, str]) -> Iterator[str]:
    """The lines of entries, in pieces that fit into HAProxy's buffer."""
    lines: list[str] = []
    size = 0
    for line in map_lines(entries):
        if lines and size + len(line) > PAYLOAD_BYTES:
            yield "".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield "".join(lines)


def map_lines(entries: Mapping[str, str]) -> Iterator[str]:
    """Return the lines of a map file.

    Raises:
        ServiceError: a prefix or a backend is none.

    """
    for prefix, backend in entries.items():
        try:
            ipaddress.ip_network(prefix)
        except ValueError:
            raise ServiceError(f"got {prefix!r}; expected a prefix such as 192.0.2.0/24") from None
        if not _BACKEND.fullmatch(backend):
            raise ServiceError(
                f"got backend {backend!r}; expected letters, digits and _ . : - (HAProxy's proxy names)"
            )
        yield f"{prefix} {backend}\n"


def read_map(file: FilePath) -> dict[str, str]:
    """Read a map file.

    Raises:
        ServiceError: it cannot be read, or has something else.

    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ServiceError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    entries = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise ServiceError(
                f"{file}:{number}: got {line[:80]!r}; expected a prefix and a backend"
            )
        entries[words[0]] = words[1]
    # what was read must be what could be written
    for _ in map_lines(entries):
        pass
    return entries
