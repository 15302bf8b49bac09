"""Headless Chromium by the DevTools protocol over a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from pathcast.exceptions import PathcastError

#: What it may be called on this machine. The first has no window; with one, page loads take three times the processor time.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--disable-extensions",
    "--disable-features=HttpsUpgrades,OptimizationHints,MediaRouter,Translate",
    "--ignore-certificate-errors",
    "--remote-debugging-pipe",
    # videos without a user
    "--autoplay-policy=no-user-gesture-required",
    "--mute-audio",
)
#: Descriptors by which Chromium reads commands and writes answers.
_READS, _WRITES = 3, 4
#: How long Chromium may take to answer a command that does nothing, in seconds.
_ANSWER_S = 30.0
_END_S = 5.0


@dataclass(frozen=True)
class Load:
    """One load of a page.

    Attributes:
        load_ms: from the start of the navigation to the load event; None: it did not come in time.
        first_byte_ms: to the first byte of the document.
        requests: how many were answered.
        protocols: how many by each protocol.
        connections: how many were used.
        failed: URLs whose requests failed.

    """

    load_ms: float | None
    first_byte_ms: float | None
    requests: int
    protocols: dict[str, int]
    connections: int
    failed: tuple[str, ...]


class BrowserError(PathcastError):
    """Chromium is not there, ended, or does not answer."""


def chromium() -> str:
    """Return where Chromium is.

    Raises:
        BrowserError: there is none.

    """
    for name in _NAMES:
        found = shutil.which(name)
        if found is not None:
            return found
    raise BrowserError("there is no Chromium; `scripts/system-packages browser` installs it")


def options(
    hosts: Mapping[str, str], http3: Sequence[str] = (), keys: Sequence[str] = ()
) -> list[str]:
    """Return the options by which names have these addresses, and HTTP/3 is spoken where it is to be and nowhere else.

    Args:
        hosts: addresses by name.
        http3: origins, `host:port`, that are reached by HTTP/3 alone.
        keys: SHA-256 of the public keys of their servers, in base64.

    """
    rules = ",".join(f"MAP {name} {address}" for name, address in hosts.items())
    found = [*_FLAGS, f"--host-resolver-rules={rules}"]
    if not http3:
        return [*found, "--disable-quic"]
    return [
        *found,
        "--enable-quic",
        f"--origin-to-force-quic-on={','.join(http3)}",
        # other errors of certificates are ignored for TCP alone
        f"--ignore-certificate-errors-spki-list={','.join(keys)}",
    ]


class Browser:
    """A running Chromium, with an empty profile.

    Args:
        hosts: addresses that names are to have, by name.
        http3: see `options`.
        keys: see `options`.

    Raises:
        BrowserError: it does not start.

    """

    def __init__(
        self, hosts: Mapping[str, str], http3: Sequence[str] = (), keys: Sequence[str] = ()
    ) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="pathcast-chromium-")
        program = chromium()
        reads, self._to = os.pipe()
        self._from, writes = os.pipe()
        arguments = [
            program,
            *options(hosts, http3, keys),
            f"--user-data-dir={self._profile.name}",
            "about:blank",
        ]
        try:
            self._pid = os.posix_spawn(
                program,
                arguments,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                    # the numbers may overlap with those that are wanted
                    (os.POSIX_SPAWN_DUP2, reads, 100),
                    (os.POSIX_SPAWN_DUP2, writes, 101),
                    (os.POSIX_SPAWN_DUP2, 100, _READS),
                    (os.POSIX_SPAWN_DUP2, 101, _WRITES),
                    (os.POSIX_SPAWN_CLOSE, 100),
                    (os.POSIX_SPAWN_CLOSE, 101),
                ],
                setpgroup=0,
            )
        finally:
            os.close(reads)
            os.close(writes)
        self._buffer = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []
        self.version: str = self._call("Browser.getVersion")["product"]

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End Chromium and remove its profile."""
        os.close(self._to)
        end = time.monotonic() + _END_S
        while time.monotonic() < end:
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                break
            time.sleep(0.02)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._from)
        with contextlib.suppress(OSError):
            self._profile.cleanup()

    def load(self, url: str, timeout_s: float) -> Load:
        """Load a page with nothing cached: new connections, and full handshakes.

        Raises:
            BrowserError: Chromium ended.

        """
        context = self._call("Target.createBrowserContext")["browserContextId"]
        try:
            target = self._call("Target.createTarget", url="about:blank", browserContextId=context)
            session = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            return self._load(session["sessionId"], url, timeout_s)
        finally:
            self._call("Target.disposeBrowserContext", browserContextId=context)

    def open(self, url: str, timeout_s: float) -> Tab:
        """Open a page, and leave it open.

        Raises:
            BrowserError: Chromium ended, or the page has no load event in time.

        """
        context = self._call("Target.createBrowserContext")["browserContextId"]
        target = self._call("Target.createTarget", url="about:blank", browserContextId=context)
        answer = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        session = answer["sessionId"]
        self._call("Page.enable", session)
        self._events.clear()
        self._call("Page.navigate", session, url=url)
        if not self._wait(lambda event: event.get("method") == "Page.loadEventFired", timeout_s):
            raise BrowserError(f"{url} has no load event within {timeout_s:g} s")
        return Tab(self, session, context)

    def _load(self, session: str, url: str, timeout_s: float) -> Load:
        for domain in ("Network", "Page"):
            self._call(f"{domain}.enable", session)
        self._events.clear()
        self._call("Page.navigate", session, url=url)

        def is_loaded(event: dict[str, Any]) -> bool:
            return event.get("method") == "Page.loadEventFired"

        loaded = self._wait(is_loaded, timeout_s)
        times = {}
        if loaded:
            entry = "performance.getEntriesByType('navigation')[0]"
            code = f"JSON.stringify([{entry}.loadEventStart, {entry}.responseStart])"
            answer = self._call("Runtime.evaluate", session, expression=code)
            times = dict(zip(("load", "first"), json.loads(answer["result"]["value"]), strict=True))
        urls: dict[str, str] = {}
        protocols: Counter[str] = Counter()
        connections, failed = set(), []
        for event in self._events:
            values = event.get("params", {})
            match event.get("method"):
                case "Network.requestWillBeSent":
                    urls[values["requestId"]] = values["request"]["url"]
                case "Network.responseReceived":
                    protocols[values["response"].get("protocol", "")] += 1
                    connections.add(values["response"].get("connectionId"))
                    if values["response"]["status"] != 200:
                        failed.append(values["response"]["url"])
                case "Network.loadingFailed":
                    failed.append(
                        f"{urls.get(values['requestId'], '')} ({values.get('errorText')})"
                    )
        return Load(
            times.get("load"),
            times.get("first"),
            sum(protocols.values()),
            dict(protocols),
            len(connections),
            tuple(failed),
        )

    def _call(self, method: str, session: str | None = None, **values: object) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": values}
        if session is not None:
            message["sessionId"] = session
        try:
            os.write(self._to, json.dumps(message).encode() + b"\0")
        except OSError as error:
            raise BrowserError(f"Chromium ended: {error.strerror}") from None
        found: list[dict[str, Any]] = []

        def is_answer(event: dict[str, Any]) -> bool:
            if event.get("id") == number:
                found.append(event)
            return bool(found)

        if not self._wait(is_answer, _ANSWER_S):
            raise BrowserError(f"Chromium does not answer {method} within {_ANSWER_S:g} s")
        if "error" in found[0]:
            raise BrowserError(f"Chromium refuses {method}: {found[0]['error'].get('message')}")
        result: dict[str, Any] = found[0]["result"]
        return result

    def _wait(self, is_it: Callable[[dict[str, Any]], bool], timeout_s: float) -> bool:
        """Keep what comes until one is it; False if that takes too long."""
        end = time.monotonic() + timeout_s
        while True:
            while b"\0" in self._buffer:
                message, _, self._buffer = self._buffer.partition(b"\0")
                event = json.loads(message)
                self._events.append(event)
                if is_it(event):
                    return True
            left_s = end - time.monotonic()
            if left_s <= 0 or not select.select([self._from], [], [], left_s)[0]:
                return False
            more = os.read(self._from, 1 << 16)
            if not more:
                raise BrowserError("Chromium ended")
            self._buffer += more


class Tab:
    """A page that is open."""

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self._context = context

    def evaluate(self, code: str) -> Any:  # noqa: ANN401
        """Return the value of an expression of JavaScript, as JSON has it.

        Raises:
            BrowserError: Chromium ended, or the code fails.

        """
        browser = self._browser
        # what came in the meantime is of no use
        browser._events.clear()
        answer = browser._call(
            "Runtime.evaluate",
            self._session,
            expression=code,
            returnByValue=True,
            awaitPromise=True,
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"the page fails: {json.dumps(answer['exceptionDetails'])[:300]}")
        return answer["result"].get("value")

    def close(self) -> None:
        """Close the page, and forget what it kept."""
        self._browser._call("Target.disposeBrowserContext", browserContextId=self._context)
