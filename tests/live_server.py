"""A server of `pathcast live`, for tests."""

import contextlib
import os
import signal
import socket
import subprocess
import threading

from conftest import PATHCAST


class Server:
    """A server, and what it has said so far."""

    def __init__(self, process, port):
        self.process, self.port = process, port
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(process.stderr))
        first = process.stderr.readline()
        assert "waiting for clients" in first, first + process.stderr.read()
        self.reader.start()

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@contextlib.contextmanager
def serving(key, *options, within=()):
    """A server that anybody on this machine reaches; `within` is a command that starts it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    command = [str(PATHCAST), "live", "server", "--key", str(key), "--listen", f"0.0.0.0:{port}"]
    process = subprocess.Popen(
        [*within, *command, *options], stderr=subprocess.PIPE, text=True, bufsize=1
    )
    server = Server(process, port)
    try:
        yield server
    finally:
        if process.poll() is None:
            # what `within` started has its signals from us
            for child in children(process.pid) or [process.pid]:
                os.kill(child, signal.SIGINT)
        process.wait(20)
        server.reader.join()
        process.stderr.close()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]
