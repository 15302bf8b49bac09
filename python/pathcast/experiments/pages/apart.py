"""Work in a network namespace of its own, where no other program's devices come and go.

Chromium aborts all requests (`ERR_NETWORK_CHANGED`) when a device of its network namespace changes, as those of another
emulator on the same machine do.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from typing import TypeVar

from pathcast.exceptions import PathcastError

Found = TypeVar("Found")

#: CLONE_NEWNET of `linux/sched.h`.
_NEW_NETWORK = 0x40000000


def in_own_network(work: Callable[[], Found]) -> Found:
    """Call a function in a thread of its own with a new network namespace, which the processes that it starts share.

    Args:
        work: what is called; the namespace ends with its processes.

    Returns:
        What it returned.

    Raises:
        PathcastError: this is not Linux, or not root.
        Exception: what the function raised.

    """
    results: list[Found] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            _leave_network()
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="pathcast-apart")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _leave_network() -> None:
    """Give the calling thread a network namespace with a loopback device alone."""
    unshare = getattr(ctypes.CDLL(None, use_errno=True), "unshare", None)
    if unshare is None:
        raise PathcastError("this system has no network namespaces; expected Linux")
    if unshare(_NEW_NETWORK) != 0:
        raise PathcastError(
            f"no network namespace: {os.strerror(ctypes.get_errno())}; expected root"
        )
    program = shutil.which("ip") or "/usr/sbin/ip"
    try:
        subprocess.run([program, "link", "set", "lo", "up"], check=True, capture_output=True)  # noqa: S603 - our own words
    except (OSError, subprocess.CalledProcessError) as error:
        raise PathcastError(f"the loopback device cannot be set up: {error}") from None
