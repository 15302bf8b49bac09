"""The kernel's TCP as a scheme: `tcp.py receive|send ADDRESS:PORT [--bytes N]`.

The sender's congestion control is that of the socket that it inherits (PATHCAST_SOCKET), and is read back from it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import struct
import sys
import time
from types import FrameType

_PORTION = 1 << 18
#: SIGTERM is looked for so often, in seconds.
_TURN_S = 0.1


class _Stopped(BaseException):
    """SIGTERM came."""


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise _Stopped


class _Waiting:
    """Whether SIGTERM has come."""

    stopped = False

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stopped = True


def receive(address: tuple[str, int]) -> dict[str, object]:
    """Read what one sender after the other sends, until SIGTERM."""
    received, seconds, began = 0, 0.0, 0.0
    with socket.create_server(address) as listener:
        print("listening", flush=True)
        portion = bytearray(_PORTION)
        try:
            while True:
                connection, _ = listener.accept()
                began = time.monotonic()
                with connection, contextlib.suppress(ConnectionResetError):
                    while size := connection.recv_into(portion):
                        received += size
                        seconds = time.monotonic() - began
        except _Stopped:
            pass
    return {"received_bytes": received, "seconds": seconds}


def send(address: tuple[str, int], most: int) -> dict[str, object]:
    """Send `most` bytes, 0: until SIGTERM."""
    inherited = os.environ.get("PATHCAST_SOCKET")
    sender = socket.socket(fileno=int(inherited)) if inherited else socket.socket()
    sent, portion = 0, memoryview(bytes(_PORTION))
    with sender:
        sender.settimeout(_TURN_S)
        waiting = _Waiting()
        signal.signal(signal.SIGTERM, waiting.stop)
        while not waiting.stopped:
            failed = sender.connect_ex(address)
            if failed in (0, errno.EISCONN):
                break
            if failed not in (errno.EAGAIN, errno.EALREADY, errno.EINPROGRESS):
                raise OSError(failed, os.strerror(failed))
            time.sleep(0.01)
        while not waiting.stopped and (not most or sent < most):
            with contextlib.suppress(TimeoutError):
                sent += sender.send(portion[: most - sent] if most else portion)
        if not waiting.stopped:
            sender.shutdown(socket.SHUT_WR)
        # the receiver closes when it has everything
        while not waiting.stopped:
            with contextlib.suppress(TimeoutError):
                if not sender.recv(_PORTION):
                    break
        if waiting.stopped:
            # what waits in the kernel is not sent any more
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        name = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return {
        "controller": name.split(b"\0")[0].decode(),
        "evidence": "getsockopt(TCP_CONGESTION) of the connection",
        "sent_bytes": sent,
    }


def main() -> None:
    """Do what the command line says."""
    signal.signal(signal.SIGTERM, _stop)
    role, place, *rest = sys.argv[1:]
    host, _, port = place.rpartition(":")
    address = (host, int(port))
    most = int(rest[1]) if rest[:1] == ["--bytes"] else 0
    print(json.dumps(receive(address) if role == "receive" else send(address, most)), flush=True)


if __name__ == "__main__":
    main()
