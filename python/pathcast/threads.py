"""Threads that Ctrl-C ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor


@contextlib.contextmanager
def pool(threads: int, stop: Callable[[], object]) -> Iterator[ThreadPoolExecutor]:
    """Threads that run what is submitted, and are waited for at the end.

    `ThreadPoolExecutor` alone waits for all that was submitted also after Ctrl-C, which may come while the
    first job runs and the last is not submitted yet.

    Args:
        threads: how many.
        stop: asks running jobs to end; called after an exception.

    """
    executor = ThreadPoolExecutor(threads)
    try:
        yield executor
    except BaseException:
        stop()
        executor.shutdown(cancel_futures=True)
        raise
    executor.shutdown()
