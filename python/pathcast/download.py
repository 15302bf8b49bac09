"""Measures the beginning of a download over HTTP: its timeline, and round-trip times before and after."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from pathcast.exceptions import DownloadError
from pathcast.short_flow import DEFAULT_MSS

#: Port of the small server, `pathcast predict download --serve`.
DEFAULT_PORT = 8642
#: Bytes that are downloaded if nothing else is said: as in De Silva et al. 2016.
DEFAULT_BYTES = 1_000_000
#: Connections that are timed before and after the download: five probes, as in the paper. The
#: handshake of the download itself is a sixth.
_PROBES_BEFORE, _PROBES_AFTER = 3, 2
#: The longest head of a response that is read, in bytes.
_MOST_HEAD = 65_536
#: Payload of packets as networks have them; beyond are loopback's.
_USUAL_MSS = range(500, 9_001)
#: Where Linux's struct tcp_info has the receiver's MSS and its count of packets out of order (5.4).
_RCV_MSS, _RCV_OOOPACK = 20, 224


@dataclass(frozen=True)
class Target:
    """Where a download comes from.

    Attributes:
        host: name or address.
        port: TCP port.
        path: what is asked for, query included.
        tls: whether it is https.

    """

    host: str
    port: int
    path: str
    tls: bool

    @classmethod
    def parse(cls, text: str, transferred_bytes: int = DEFAULT_BYTES) -> Target:
        """Read `HOST`, `HOST:PORT` (the small server) or a URL of any HTTP server.

        Raises:
            DownloadError: the text is not a URL that can be read.

        """
        wanted = "expected HOST, HOST:PORT or a URL with http:// or https://"
        is_url = "://" in text
        try:
            parts = urlsplit(text if is_url else f"http://{text}")
            port = parts.port
        except ValueError as error:
            raise DownloadError(f"got {text!r}: {error}, {wanted}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DownloadError(f"got {text!r}, {wanted}")
        if parts.username is not None or parts.password is not None:
            raise DownloadError(f"got a URL with a user for {parts.hostname}, {wanted} without one")
        if re.search(r"[\x00-\x20\x7f]", text):
            raise DownloadError(f"got {text!r} with a space or control character, {wanted}")
        if not is_url:
            if parts.path not in ("", "/") or parts.query:
                raise DownloadError(f"got {text!r}, {wanted}")
            return cls(parts.hostname, port or DEFAULT_PORT, f"/bytes/{transferred_bytes}", False)
        tls = parts.scheme == "https"
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        with contextlib.suppress(UnicodeEncodeError):
            path.encode("ascii")
            return cls(parts.hostname, port or (443 if tls else 80), path, tls)
        raise DownloadError(
            f"got the path {path!r}, expected one with %-escapes for what is not ASCII"
        )

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


@dataclass(frozen=True)
class Download:
    """What was measured of a download.

    Attributes:
        received_bytes: payload that arrived, the response's head included; at most what was requested.
        time_s: from its first byte to its last, seconds.
        rtts_s: of connections before and after, seconds.
        timeline: seconds since the first byte and bytes, one entry each time something arrived.
        mss_bytes: payload of the packets, where the kernel knows it and a network carried them.
        losses: 0 where the kernel reports that nothing arrived out of order; else None: not known.
        is_whole: whether the response ended before the requested bytes.

    """

    received_bytes: int
    time_s: float
    rtts_s: tuple[float, ...]
    timeline: tuple[tuple[float, ...], tuple[float, ...]]
    mss_bytes: int
    losses: int | None
    is_whole: bool


class _Clock:
    """The remaining time of a measurement."""

    def __init__(self, timeout_s: float) -> None:
        self._end = time.monotonic() + timeout_s
        self.timeout_s = timeout_s

    def left_s(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _connect(target: Target, clock: _Clock) -> tuple[socket.socket, float]:
    """A connection, and how long it took the kernel, seconds: names are looked up before."""
    addresses = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    failed: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        stream = socket.socket(family, kind, protocol)
        try:
            stream.settimeout(clock.left_s())
            began = time.perf_counter()
            stream.connect(address)
        except OSError as error:
            stream.close()
            failed = error
        else:
            return stream, time.perf_counter() - began
    raise failed or OSError("it has no address")


def _probe(target: Target, count: int, clock: _Clock) -> list[float]:
    rtts_s = []
    for _ in range(count):
        stream, rtt_s = _connect(target, clock)
        stream.close()
        rtts_s.append(rtt_s)
    return rtts_s


@contextlib.contextmanager
def _in_words(target: Target, clock: _Clock) -> Iterator[None]:
    where = f"{'https' if target.tls else 'http'}://{target.authority}"
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise DownloadError(
            f"{where}: its certificate is not trusted: {error.verify_message}"
        ) from None
    except TimeoutError:
        raise DownloadError(f"{where}: not done within {clock.timeout_s:g} s") from None
    except UnicodeError:
        raise DownloadError(f"{where}: is no name of a host") from None
    except OSError as error:
        raise DownloadError(f"{where}: {error.strerror or error}") from None


def _told_by_kernel(stream: socket.socket) -> tuple[int, int | None]:
    """The payload of packets, and 0 if none came out of order."""
    mss, losses = DEFAULT_MSS, None
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            if len(info) >= _RCV_OOOPACK + 4:
                (told,) = struct.unpack_from("=I", info, _RCV_MSS)
                (out_of_order,) = struct.unpack_from("=I", info, _RCV_OOOPACK)
                mss = told if told in _USUAL_MSS else DEFAULT_MSS
                losses = 0 if out_of_order == 0 else None
    return mss, losses


def _check_head(head: bytes, target: Target) -> None:
    """Refuse a response that is not the beginning of a file."""
    where = f"{target.authority}{target.path}"
    first, *lines = head.decode("latin-1").split("\r\n")
    found = re.fullmatch(r"HTTP/1\.[01] (\d{3})(?: (.*))?", first)
    if found is None:
        raise DownloadError(f"{where}: got {first[:60]!r}, expected an answer of HTTP/1.1")
    status, reason = int(found[1]), (found[2] or "").strip()
    if 300 <= status < 400:
        to = [
            line.partition(":")[2].strip() for line in lines if line.lower().startswith("location:")
        ]
        there = f" to {to[0][:200]}" if to else ""
        raise DownloadError(f"{where}: is redirected{there}: ask there")
    if status != 200:
        raise DownloadError(f"{where}: got {status} {reason[:60]}".rstrip() + ", expected 200")


def download(
    target: Target, wanted_bytes: int = DEFAULT_BYTES, *, timeout_s: float = 60.0
) -> Download:
    """Download the first `wanted_bytes`, note when what arrived, and close the connection.

    Round-trip times are those of six handshakes: three connections before the download, the download's
    own, and two after it. Redirects are not followed, because another host is on another path.

    Args:
        target: server and path to download from.
        wanted_bytes: number of bytes to download. A shorter response is downloaded whole.
        timeout_s: limit for everything together, in seconds.

    Raises:
        DownloadError: the server cannot be reached, its certificate is not trusted, its status is not
            200, it sends nothing, or the timeout is over.

    """
    clock = _Clock(timeout_s)
    request = (
        f"GET {target.path} HTTP/1.1\r\nHost: {target.authority}\r\nUser-Agent: pathcast\r\n"
        "Accept: */*\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n"
    )
    with _in_words(target, clock):
        rtts_s = _probe(target, _PROBES_BEFORE, clock)
        stream, rtt_s = _connect(target, clock)
        rtts_s.append(rtt_s)
        with contextlib.ExitStack() as stack:
            stack.enter_context(stream)
            if target.tls:
                trusted = ssl.create_default_context()
                stream = stack.enter_context(
                    trusted.wrap_socket(stream, server_hostname=target.host)
                )
            stream.sendall(request.encode("ascii"))
            times, counts, is_whole = _receive(stream, target, wanted_bytes, clock)
            mss, losses = _told_by_kernel(stream)
        with contextlib.suppress(OSError):  # those before will do
            rtts_s += _probe(target, _PROBES_AFTER, clock)
    return Download(
        received_bytes=counts[-1],
        time_s=times[-1] - times[0],
        rtts_s=tuple(rtts_s),
        timeline=(tuple(at - times[0] for at in times), tuple(map(float, counts))),
        mss_bytes=mss,
        losses=losses,
        is_whole=is_whole,
    )


def _receive(
    stream: socket.socket, target: Target, wanted_bytes: int, clock: _Clock
) -> tuple[list[float], list[int], bool]:
    """When how many bytes had arrived, and whether that was all there is."""
    times: list[float] = []
    counts: list[int] = []
    head: bytearray | None = bytearray()
    received = 0
    while received < wanted_bytes:
        stream.settimeout(clock.left_s())
        data = stream.recv(1 << 18)
        if not data:
            break
        # the last read may bring more than was requested
        received = min(received + len(data), wanted_bytes)
        times.append(time.perf_counter())
        counts.append(received)
        if head is not None:
            head += data[: _MOST_HEAD - len(head)]
            end = head.find(b"\r\n\r\n")
            if end >= 0:
                _check_head(bytes(head[:end]), target)
                head = None
            elif len(head) >= _MOST_HEAD:
                raise DownloadError(
                    f"{target.authority}: got {_MOST_HEAD} bytes without a response's head"
                )
    if head is not None:
        raise DownloadError(
            f"{target.authority}: closed the connection before its answer was whole"
        )
    return times, counts, received < wanted_bytes
