"""Ray on this machine's loopback, for the tests alone."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from conftest import IN_CI


def needs_ray():
    """Skips where Ray is not installed and says so; in CI it must be."""
    if find_spec("ray") is None:
        reason = "there is no Ray here: pip install pathcast[cluster]"
        if IN_CI:
            pytest.fail(reason)
        pytest.skip(reason)


def accepts(port):
    """Whether somebody listens on this port of the loopback."""
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def free_port():
    """A port of the loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def ray_head(python):
    """Starts a cluster of one machine with two CPUs; its addresses, for members and for clients."""
    needs_ray()
    port, client_port = free_port(), free_port()
    # a secret between the tests and the cluster
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    # not tmp_path: names of sockets are short
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        log = Path(folder, "log")
        with log.open("w") as output:
            process = subprocess.Popen(
                [
                    python, "-m", "ray.scripts.scripts", "start", "--head", "--block",
                    "--node-ip-address=127.0.0.1", f"--port={port}", "--num-cpus=2",
                    f"--ray-client-server-port={client_port}", "--include-dashboard=false",
                    "--disable-usage-stats", f"--temp-dir={folder}",
                ],
                stdout=output, stderr=output, start_new_session=True,
                env={
                    **os.environ,
                    **token,
                    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
                    # else gRPC's fork handlers stop Ray's server for clients now and then
                    "GRPC_ENABLE_FORK_SUPPORT": "0",
                },
            )  # fmt: skip
        try:
            deadline = time.monotonic() + 60
            while "Ray runtime started" not in log.read_text() or not accepts(client_port):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            with pytest.MonkeyPatch.context() as patch:
                for name, value in token.items():
                    patch.setenv(name, value)
                yield f"127.0.0.1:{port}", f"ray://127.0.0.1:{client_port}"
        finally:
            process.terminate()
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
