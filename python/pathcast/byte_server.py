"""A small HTTP server of bytes to measure against: `pathcast predict download --serve`."""

from __future__ import annotations

import collections
import contextlib
import ipaddress
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pathcast.exceptions import DownloadError

#: The size of one write, in bytes.
MOST_BYTES = 100_000_000
#: The most clients served at a time; others are asked to come back.
MOST_CLIENTS = 32
#: The most clients of one network served at a time: an IPv4 address, or a /64 of IPv6.
MOST_OF_NETWORK = 8
#: The most clients that have not sent their request yet; the next one replaces the one that has taken longest.
MOST_ASKING = 64
#: How long a client may take to send its request, in seconds.
ASK_WITHIN_S = 5.0
#: A client that neither sends nor takes anything for so long is left, in seconds.
IDLE_S = 10.0
#: A client is served so long at most, in seconds.
LONGEST_S = 300.0
#: When all places are taken, the client that has been served longest makes room after so long, in seconds.
LONG_ENOUGH_S = 30.0

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def network_of(address: str) -> str:
    """Return the network of an address that belongs to one client: the address itself, or the /64 of an
    IPv6 address.

    Example:
        >>> network_of("192.0.2.1"), network_of("::ffff:192.0.2.1"), network_of("2001:db8::1:2:3:4")
        ('192.0.2.1', '192.0.2.1', '2001:db8::/64')

    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, 64), strict=False))


class _Places:
    """Who asks, and who is served.

    A client first asks: it has a short time, and makes room for newer ones, so that no number of slow ones
    keeps others out. It has a place among those served only once its request is whole.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # in the order in which they came
        self._asking: dict[socket.socket, str] = {}
        self._served: dict[socket.socket, tuple[str, float]] = {}

    def ask(self, client: socket.socket, network: str) -> None:
        """A client has come; the one that has asked longest goes if there are too many, of its network first."""
        with self._lock:
            counts = collections.Counter(self._asking.values())
            if counts[network] >= MOST_OF_NETWORK:
                crowded = [one for one, whose in self._asking.items() if whose == network]
            elif len(self._asking) >= MOST_ASKING:
                crowded = list(self._asking)
            else:
                crowded = []
            for oldest in crowded[:1]:
                del self._asking[oldest]
                _shutdown(oldest)
            self._asking[client] = network

    def late(self, client: socket.socket) -> None:
        """End a client that has not sent its request in time."""
        with self._lock:
            if self._asking.pop(client, None) is not None:
                _shutdown(client)

    def serve(self, client: socket.socket) -> bool:
        """Give a place to a client whose request is whole, if one is free."""
        now = time.monotonic()
        with self._lock:
            network = self._asking.pop(client, None)
            if network is None:
                return False
            of_network = sum(whose == network for whose, _ in self._served.values())
            if of_network >= MOST_OF_NETWORK:
                return False
            if len(self._served) >= MOST_CLIENTS:
                longest, (_, since) = next(iter(self._served.items()))
                if now - since < LONG_ENOUGH_S:
                    return False
                del self._served[longest]
                _shutdown(longest)
            self._served[client] = (network, now)
            return True

    def leave(self, client: socket.socket) -> None:
        """A client has gone."""
        with self._lock:
            self._asking.pop(client, None)
            self._served.pop(client, None)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    server_version = "pathcast"
    sys_version = ""
    #: Sent repeatedly; no middlebox can compress it.
    _block = os.urandom(1 << 16)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        self.close_connection = True
        if not self.server.places.serve(self.connection):  # type: ignore[attr-defined]
            self.wfile.write(_BUSY)
            return
        found = re.fullmatch(r"/bytes/(\d{1,12})", self.path)
        if found is None:
            self.send_error(404, "only /bytes/N is here")
            return
        size = int(found[1])
        if size > MOST_BYTES:
            self.send_error(403, f"at most {MOST_BYTES} bytes")
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(size))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        # a client that has enough closes the connection
        with contextlib.suppress(ConnectionError, TimeoutError):
            while with_body and size > 0:
                self.wfile.write(self._block[: min(size, len(self._block))])
                size -= len(self._block)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the server is silent."""


class ByteServer(ThreadingHTTPServer):
    """Serves `/bytes/N`, N bytes that nothing can compress, to any HTTP client.

    Args:
        address: where to listen.
        port: 0 for any that is free; `server_address` says which.

    Raises:
        DownloadError: it cannot listen there.

    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str = "127.0.0.1", port: int = 0) -> None:
        self.places = _Places()
        try:
            found = socket.getaddrinfo(
                address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            self.address_family = found[0][0]
            super().__init__(found[0][4][:2], _Handler)  # type: ignore[arg-type]
        except (OSError, UnicodeError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise DownloadError(f"cannot listen on {address} port {port}: {why}") from None

    def server_bind(self) -> None:
        """Binds; the estimator knows CUBIC, so that is what is used where the kernel has it."""
        if hasattr(socket, "TCP_CONGESTION"):
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        if self.address_family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Serve a client in its own thread."""
        self.places.ask(request, network_of(client_address[0]))
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no more threads
            self.places.leave(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """End a client that takes too long."""
        timers = [
            threading.Timer(ASK_WITHIN_S, self.places.late, [request]),
            threading.Timer(LONGEST_S, _shutdown, [request]),
        ]
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            for timer in timers:
                timer.cancel()
            self.places.leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Nothing: clients come and go as they like."""


def _shutdown(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def serve(address: str, port: int, ready: Callable[[str, int], None]) -> None:
    """Serve until interrupted; `ready` receives the address.

    Raises:
        DownloadError: it cannot listen there.

    """
    with ByteServer(address, port) as server:
        host, bound = server.server_address[:2]
        ready(str(host), int(bound))
        server.serve_forever()
