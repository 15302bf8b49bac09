"""Work spread over the machines of a Ray cluster; Ray alone schedules it."""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import logging
import os
import pickle
import platform
import re
import secrets
import signal
import socket
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from pathcast.exceptions import ClusterError, PathcastError
from pathcast.extras import need

Item = TypeVar("Item")
Result = TypeVar("Result")

#: The address that means: start Ray on this machine.
LOCAL = "local"
#: How long a connection to the address may take, in seconds.
_REACH_S = 5
#: How often a task whose worker died is run again; Ray's own default.
_RETRIES = 3
#: How often progress is reported while nothing ends, in seconds.
_TELL_S = 0.2
#: How long canceled tasks may take to end before their workers are killed, in seconds.
_CANCEL_S = 5
#: How long what `local` started may take to end, in seconds, and when Ray's processes get SIGTERM and SIGKILL.
_END_S, _TERMINATE_S, _KILL_S = 20, 6, 12
#: Of `sys/prctl.h`.
_SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 36, 37

_ADDRESSES = "expected local, HOST:PORT or ray://HOST:PORT"


class Cluster:
    """A connection to a Ray cluster; `connected` makes one.

    Attributes:
        address: as it was given.
        cpus: how many tasks can run in parallel, as known when the cluster was connected; at least 1.

    """

    def __init__(self, ray: ModuleType, address: str) -> None:
        self._ray = ray
        self.address = address
        self.cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def map(
        self,
        function: Callable[[Sequence[Item]], Result],
        chunks: Sequence[Sequence[Item]],
        *,
        progress: Callable[[float], None] | None = None,
    ) -> Iterator[Result]:
        """Call a function with each chunk, one task of one CPU a chunk; results in their order.

        The first error cancels the tasks that have not ended, and so do Ctrl-C and a caller who
        stops to ask for results.

        Args:
            function: of a module of pathcast, which the workers import; no nested one.
            chunks: what to call it with; each must be picklable, and so must the results.
            progress: receives how many items are in the chunks that have ended, from time to time; may
                raise to stop.

        Raises:
            ClusterError: a worker lacks pathcast or has another version, or dies again and again.
            PathcastError: what the function raised.

        """
        ray = self._ray
        task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_checked_call()).remote
        work, wanted = pickle.dumps(function), version("pathcast")
        refs = [task(work, wanted, chunk) for chunk in chunks]
        sizes = {ref: len(chunk) for ref, chunk in zip(refs, chunks, strict=True)}
        running, ended = list(refs), 0
        try:
            for ref in refs:
                while ref in running:
                    done, running = ray.wait(running, timeout=_TELL_S)
                    for one in done:
                        self._result(one)  # an error ends all, whatever its place in the order
                        ended += sizes[one]
                    if progress is not None:
                        progress(ended)
                yield self._result(ref)
        finally:
            self._cancel(running)

    def _result(self, ref: Any) -> Any:  # noqa: ANN401
        errors = self._ray.exceptions
        try:
            wrong, result = self._ray.get(ref)
        except errors.RayTaskError as error:
            if isinstance(error.cause, PathcastError):
                raise error.cause from None
            raise
        except errors.RayError as error:
            raise ClusterError(
                f"cluster {self.address}: a task was started {_RETRIES + 1} times and its worker "
                f"died each time ({_reason(error)}); expected a worker that lives until its task ends"
            ) from None
        if wrong is not None:
            raise ClusterError(f"cluster {self.address}: {wrong}")
        return result

    def _cancel(self, refs: Sequence[Any]) -> None:
        """Cancel tasks: interrupt those that run, and end the workers of those that do not stop."""
        if not refs:
            return
        for ref in refs:
            self._ray.cancel(ref)
        _, left = self._ray.wait(list(refs), num_returns=len(refs), timeout=_CANCEL_S)
        for ref in left:
            self._ray.cancel(ref, force=True)


def _checked_call() -> Callable[[bytes, str, Sequence[Any]], tuple[str | None, Any]]:
    # Nested, so that Ray sends it by value: a worker without pathcast can then say so.
    def call(work: bytes, wanted: str, chunk: Sequence[Any]) -> tuple[str | None, Any]:
        import pickle
        import platform
        from importlib.metadata import PackageNotFoundError, version

        try:
            got = version("pathcast")
        except PackageNotFoundError:
            got = None
        if got != wanted:
            has = "no pathcast" if got is None else f"pathcast {got}"
            return f"the worker on {platform.node()} has {has}, expected pathcast {wanted}", None
        return None, pickle.loads(work)(chunk)  # noqa: S301 - Ray's own protocol does so too

    return call


@contextlib.contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Connect to a Ray cluster for as long as the block lasts.

    Args:
        address: `HOST:PORT` from one of the cluster's machines, `ray://HOST:PORT` from any other,
            or `local`, which starts Ray on this machine, reachable by nobody else, and stops it
            at the end.

    Raises:
        ClusterError: Ray is not installed, the address is no address or cannot be reached, the
            cluster has another version of Ray or Python, or this process is connected already.

    Example:
        >>> with connected("nowhere"):
        ...     pass
        Traceback (most recent call last):
        pathcast.exceptions.ClusterError: cluster nowhere: is no address, expected local, \
HOST:PORT or ray://HOST:PORT

    """
    host, port = _parse(address)
    if host is not None:
        _reach(address, host, port)
    loopback = host is None or _is_loopback(host)
    with (
        _environment(loopback=loopback, local=host is None),
        # sockets and logs of the processes that `local` starts
        tempfile.TemporaryDirectory(prefix="pathcast-", ignore_cleanup_errors=True) as folder,
        _adopting() if host is None else contextlib.nullcontext(),
    ):
        ray = _import_ray()
        if ray.is_initialized():
            raise ClusterError(
                f"cluster {address}: this process is connected to a Ray cluster already, expected "
                "none: call ray.shutdown() before"
            )
        _forget(ray)
        # Ray replaces a loopback address by the machine's own unless it is configured not to;
        # it reads the variable only when it is imported, which may have been long ago
        constants = ray._private.ray_constants
        before = constants.ENABLE_RAY_CLUSTER
        constants.ENABLE_RAY_CLUSTER = not loopback
        others = _descendants()
        try:
            _connect(ray, address, folder if host is None else None)
            yield Cluster(ray, address)
        finally:
            ray.shutdown()
            if host is None:
                _wait_until_ended(others)
            _forget(ray)
            constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Make processes whose parent has ended children of this one for a while (Linux).

    Ctrl-C of a terminal ends Ray's processes in any order. Those that lose their parent would not be found any more.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:
        yield
        return
    before = ctypes.c_int()
    prctl(_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def _descendants(there: Mapping[int, Sequence[str]] | None = None) -> set[int]:
    """Return the processes that this one and those that it started have started, among those of `_processes`."""
    parents = {pid: int(stat[1]) for pid, stat in (there or _processes()).items()}
    found: set[int] = set()
    more = {os.getpid()}
    while more:
        more = {pid for pid, parent in parents.items() if parent in more} - found
        found |= more
    return found


def _wait_until_ended(others: set[int]) -> None:
    """Wait until all that was started beside these has ended, which Ray's processes do some time after it was shut down.

    Some do not notice that those which started them were interrupted, or are started in that moment: they are ended here.
    Of processes that this one has adopted, nobody else would ask for the status.
    """
    begin_s = time.monotonic()
    while (waited_s := time.monotonic() - begin_s) < _END_S:
        there = _processes()
        started = _descendants(there) - others
        for pid in started:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        # a zombie has ended
        left = [pid for pid in started if there[pid][0] not in "ZX"]
        if not left:
            return
        if waited_s > _TERMINATE_S:
            how = signal.SIGKILL if waited_s > _KILL_S else signal.SIGTERM
            for pid in filter(_is_of_ray, left):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
        time.sleep(0.05)


def _is_of_ray(pid: int) -> bool:
    """Whether a process is a program of Ray, or has named itself so."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return command.startswith(b"ray::") or b"/ray/" in command


def _processes() -> dict[int, list[str]]:
    """Return state, parent and what follows in proc(5) of each process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (folder / "stat").read_text(errors="replace")
            found[int(folder.name)] = stat.rpartition(")")[2].split()
    return found


def _parse(address: str) -> tuple[str | None, int]:
    """Host and port; no host for `local`.

    Ray takes more than addresses: `auto`, names of other schemes, which it imports, and paths of files. None of
    these gets through: a host is an IP address or a name of DNS (RFC 1123), and nothing else stands around it.
    """
    if address == LOCAL:
        return None, 0
    found = _ADDRESS.fullmatch(address)
    if found is not None:
        host, port = found["v6"] or found["host"], int(found["port"])
        if 0 < port < 1 << 16 and (_is_address(host) if found["v6"] else _is_host(host)):
            return host, port
    # quoted: what was given may hold anything
    shown = address if address.isascii() and address.isprintable() else ascii(address)
    raise ClusterError(f"cluster {shown[:100]}: is no address, {_ADDRESSES}")


_ADDRESS = re.compile(
    r"(?:ray://)?(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[0-9A-Za-z._-]{1,253})):(?P<port>[0-9]{1,5})"
)
_LABEL = re.compile(r"[0-9A-Za-z_](?:[0-9A-Za-z_-]{0,61}[0-9A-Za-z_])?")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_host(host: str) -> bool:
    """Whether it is an IPv4 address or a name; what ends in a number must be an address."""
    labels = host.removesuffix(".").split(".")
    if labels[-1].isdecimal():
        return _is_address(host)
    return all(_LABEL.fullmatch(label) for label in labels)


def _reach(address: str, host: str, port: int) -> None:
    """Check immediately what Ray would wait minutes for."""
    try:
        socket.create_connection((host, port), timeout=_REACH_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterError(
            f"cluster {address}: cannot be reached: {reason}; expected the address of a Ray "
            "cluster as `ray start --head` prints it, or local"
        ) from None


def _is_loopback(host: str) -> bool:
    found = socket.getaddrinfo(host, None)[0][4][0]
    return ipaddress.ip_address(found).is_loopback


@contextlib.contextmanager
def _environment(*, loopback: bool, local: bool) -> Iterator[None]:
    """What Ray and the processes that it starts take from the environment."""
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",
        # one attempt of a few seconds where Ray has twenty of half a minute
        "RAY_NUM_REDIS_GET_RETRIES": "1",
        "RAY_py_gcs_connect_timeout_s": str(_REACH_S),
        "RAY_gcs_rpc_server_connect_timeout_s": str(_REACH_S),
    }
    if loopback:
        settings["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    if local and "RAY_AUTH_MODE" not in os.environ:
        # other users of this machine reach its loopback too; Ray itself would keep a token in
        # the home folder
        settings |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _import_ray() -> ModuleType:
    what = "work on a cluster"
    need("pyarrow", "cluster", what, ClusterError)
    ray: ModuleType = need("ray", "cluster", what, ClusterError)
    return ray


def _forget(ray: ModuleType) -> None:
    """Make Ray read its environment again, which it does once a process."""
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()
    ray._raylet.Config.initialize("")


def _reason(error: Exception) -> str:
    """Ray's message, on one line of a length that can be read."""
    return textwrap.shorten(str(error), 400, placeholder=" ...")


def _connect(ray: ModuleType, address: str, local_folder: str | None) -> None:
    logging.getLogger("ray").setLevel(logging.ERROR)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if local_folder is not None:
        options |= {
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": local_folder,
        }
    try:
        context = ray.init(address, **options)
    except Exception as error:  # Ray raises what it likes: ConnectionError, RuntimeError, ...
        raise ClusterError(
            f"cluster {address}: cannot be used: {_reason(error)}; expected a running Ray cluster of "
            f"version {ray.__version__} and Python {platform.python_version()}"
        ) from None
    if local_folder is not None and context.address_info["node_ip_address"] != "127.0.0.1":
        raise ClusterError(
            f"cluster {address}: Ray listens on {context.address_info['node_ip_address']}, "
            "expected 127.0.0.1"
        )
