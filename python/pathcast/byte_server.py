"""A small HTTP server of bytes to measure against: `pathcast estimate --serve`."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pathcast.exceptions import DownloadError

#: The most that is sent at once, in bytes.
MOST_BYTES = 100_000_000
#: Clients that are served at once; others are told to come back.
MOST_CLIENTS = 32
#: A client that neither sends nor takes anything for so long is left, in seconds.
IDLE_S = 10.0
#: A client is served so long at most, in seconds.
LONGEST_S = 300.0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    server_version = "pathcast"
    sys_version = ""
    #: Sent over and over; nothing on the way can compress it.
    _block = os.urandom(1 << 16)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        self.close_connection = True
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
        # who has seen enough closes the connection
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
        self._places = threading.BoundedSemaphore(MOST_CLIENTS)
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
        """Serves a client in a thread of its own, if there is a place left."""
        if not self._places.acquire(blocking=False):
            with contextlib.suppress(OSError):
                request.settimeout(1)
                request.sendall(
                    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n"
                    b"Connection: close\r\n\r\n"
                )
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no more threads
            self._places.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Ends a client that dawdles, whatever it does."""
        ended = threading.Timer(LONGEST_S, _shutdown, [request])
        ended.daemon = True
        ended.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            ended.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Nothing: clients come and go as they like."""


def _shutdown(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def serve(address: str, port: int, ready: Callable[[str, int], None]) -> None:
    """Serves until interrupted; `ready` is told where.

    Raises:
        DownloadError: it cannot listen there.

    """
    with ByteServer(address, port) as server:
        host, bound = server.server_address[:2]
        ready(str(host), int(bound))
        server.serve_forever()
