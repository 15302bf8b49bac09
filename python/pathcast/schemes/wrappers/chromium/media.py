"""WebRTC of Chromium as a scheme: `media.py gcc|scream receive|send ADDRESS:PORT [--bytes N]`.

A browser without a window is at each end, and its page sends or receives media (media.js). The ends meet by datagrams of
JSON on the receiver's port, which its browser takes afterwards. The sender's report has the controller that is at work
by what both ends agreed on and by lines of the browser's log.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

_PROGRAMS = ("/usr/lib/chromium/chromium", "chromium", "google-chrome")
#: Both are needed: by the first alone, senders still run GCC.
_TRIALS = {
    "gcc": "",
    "scream": "WebRTC-Bwe-ScreamV2/Enabled,mode:always/WebRTC-RFC8888CongestionControlFeedback/Enabled,offer:true/",
}
#: What both ends agree on (transport-wide congestion control; RFC 8888), and whose lines the log has then.
_FEEDBACK = {"gcc": "transport-cc", "scream": "ack ccfb"}
_LINES = {"gcc": "goog_cc_network_control", "scream": "scream_v2"}
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # it is contained, without the rights that its own sandbox needs
    "--disable-gpu",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--mute-audio",
    "--no-zygote",
    "--in-process-gpu",
    "--remote-debugging-pipe",
    "--allow-loopback-in-peer-connection",
    "--autoplay-policy=no-user-gesture-required",
    "--disable-features=WebRtcHideLocalIpsWithMdns,Translate,MediaRouter,OptimizationHints",
    "--enable-logging=stderr",
    "--vmodule=*goog_cc_network_control*=1,*scream_v2*=1",
)
#: From which the browser reads requests, and to which it writes answers.
_DESCRIPTORS = (3, 4)
_EVERY_S = 0.1
_ANSWER_S = 10.0
_END_S = 2.0
_DATAGRAM_BYTES = 60_000
#: What a description may have at most; one of a single video has 2 kB.
_SDP_BYTES = 64 << 10

_stopped = threading.Event()


def _stop(_number: int, _frame: FrameType | None) -> None:
    _stopped.set()


class Browser:
    """A browser with one page, which runs media.js."""

    def __init__(self, scheme: str, port: int | None = None) -> None:
        found = [shutil.which(name) for name in _PROGRAMS]
        program = next((name for name in found if name), None)
        if program is None:
            raise SystemExit("there is no chromium; on Debian: apt-get install chromium")
        self.lines: Counter[str] = Counter()
        self.version = ""
        profile = Path.home() / f"chromium-{os.getpid()}"
        settings = {"webrtc": {"udp_port_range": f"{port}-{port}"}} if port else {}
        (profile / "Default").mkdir(parents=True)
        (profile / "Default" / "Preferences").write_text(json.dumps(settings))
        trials = [f"--force-fieldtrials={_TRIALS[scheme]}"] if _TRIALS[scheme] else []
        words = [program, *_OPTIONS, *trials, f"--user-data-dir={profile}", "about:blank"]
        self._answers: dict[int, Any] = {}
        self._asked = 0
        self._arrived = threading.Condition()
        requests, self._out = os.pipe()
        self._in, answers = os.pipe()
        log, lines = os.pipe()
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, lines, 2),
            # the numbers may overlap with those that are wanted
            *((os.POSIX_SPAWN_DUP2, one, 100 + at) for at, one in enumerate((requests, answers))),
            *((os.POSIX_SPAWN_DUP2, 100 + at, number) for at, number in enumerate(_DESCRIPTORS)),
            *((os.POSIX_SPAWN_CLOSE, 100 + at) for at in range(len(_DESCRIPTORS))),
        ]
        self._pid = os.posix_spawn(program, words, os.environ, file_actions=actions, setpgroup=0)
        for number in (requests, answers, lines):
            os.close(number)
        threading.Thread(target=self._read_answers, daemon=True).start()
        self._log = threading.Thread(target=self._read_log, args=(log,), daemon=True)
        self._log.start()
        self.version = self._ask("Browser.getVersion")["product"].rpartition("/")[2]
        targets = self._ask("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self._ask("Target.attachToTarget", {"targetId": page, "flatten": True})[
            "sessionId"
        ]
        folder = Path(__file__).parent
        self.evaluate((folder / "media.js").read_text() + "; true")
        self.worker = (folder / "worker.js").read_text()

    def _read_answers(self) -> None:
        kept = b""
        while got := os.read(self._in, 1 << 16):
            *whole, kept = (kept + got).split(b"\0")
            for one in whole:
                answer = json.loads(one)
                if "id" in answer:
                    with self._arrived:
                        self._answers[answer["id"]] = answer
                        self._arrived.notify_all()

    def _read_log(self, log: int) -> None:
        with open(log, "rb") as stream:
            for line in stream:
                found = re.search(rb"(\w+)\.cc:\d+\]", line)
                if found:
                    self.lines[found[1].decode()] += 1

    def _ask(
        self, method: str, parameters: dict[str, Any] | None = None, within_s: float = 20.0
    ) -> Any:  # noqa: ANN401
        self._asked += 1
        number = self._asked
        session = {"sessionId": self._session} if hasattr(self, "_session") else {}
        request = {"id": number, "method": method, "params": parameters or {}} | session
        os.write(self._out, json.dumps(request).encode() + b"\0")
        with self._arrived:
            if not self._arrived.wait_for(lambda: number in self._answers, within_s):
                raise SystemExit(f"the browser did not answer {method} within {within_s:g} s")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise SystemExit(f"the browser refused {method}: {answer['error'].get('message')}")
        return answer["result"]

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401
        """The value of an expression of the page's language, awaited."""
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        found = self._ask("Runtime.evaluate", asked)
        if "exceptionDetails" in found:
            thrown = found["exceptionDetails"].get("exception", {}).get("description", "an error")
            raise SystemExit(f"the page failed: {thrown}")
        return found["result"].get("value")

    def call(self, name: str, *arguments: object) -> Any:  # noqa: ANN401
        """The result of a function of media.js."""
        return self.evaluate(f"{name}({', '.join(json.dumps(one) for one in arguments)})")

    def end(self) -> None:
        """End the browser and all its processes."""
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        # all of them write to the log: at its end, none is left
        self._log.join(_END_S)


def at_work(lines: Mapping[str, int], answer: str) -> tuple[str, str]:
    """The controller at work, and how that is seen.

    Args:
        lines: how many the browser's log has of each source file.
        answer: what the receiver agreed to (SDP).

    """
    counts = {name: lines.get(source, 0) for name, source in _LINES.items()}
    agreed = [words for words in _FEEDBACK.values() if words in answer]
    # a few lines of GCC may come before those of SCReAM
    most = max(counts, key=lambda name: counts[name])
    found = most if counts[most] > 0 and _FEEDBACK[most] in agreed else "unknown"
    seen = ", ".join(f"{count} lines of {_LINES[name]}" for name, count in counts.items())
    return found, f"agreed on {' and '.join(agreed) or 'no feedback'}; its log has {seen}"


def _packed(kind: str, sdp: str) -> bytes:
    return json.dumps({kind: base64.b64encode(zlib.compress(sdp.encode(), 9)).decode()}).encode()


def _unpacked(datagram: bytes, kind: str) -> str | None:
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError, zlib.error):
        packed = base64.b64decode(json.loads(datagram)[kind])
        return zlib.decompressobj().decompress(packed, _SDP_BYTES).decode()
    return None


def receive(scheme: str, address: str, port: int, total: int) -> dict[str, object]:
    """Receive until SIGTERM."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as meeting:
        meeting.bind((address, port))
        browser = Browser(scheme, port)
        meeting.settimeout(_EVERY_S)
        print("listening", flush=True)
        answer, met = None, False
        while not _stopped.is_set() and not met:
            try:
                datagram, peer = meeting.recvfrom(_DATAGRAM_BYTES)
            except TimeoutError:
                continue
            offer = _unpacked(datagram, "offer")
            if offer is not None and answer is None:
                answer = _packed("answer", browser.call("answer", browser.worker, offer, total))
            if offer is not None and answer is not None:
                meeting.sendto(answer, peer)
            elif answer is not None:
                # it has the answer, or its browser is already there
                met = True
    if met:
        browser.call("listen")
    _stopped.wait()
    state = browser.call("state")
    browser.end()
    return {"received_bytes": state["bytes"]}


def _meet(browser: Browser, peer: tuple[str, int], total: int) -> None:
    offer = _packed("offer", browser.call("offer", browser.worker, total))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as meeting:
        meeting.settimeout(2 * _EVERY_S)
        deadline = time.monotonic() + _ANSWER_S
        while not _stopped.is_set():
            if time.monotonic() > deadline:
                raise SystemExit(f"no answer within {_ANSWER_S:g} s")
            with contextlib.suppress(TimeoutError, ConnectionRefusedError):
                meeting.sendto(offer, peer)
                answer = _unpacked(meeting.recv(_DATAGRAM_BYTES), "answer")
                if answer is not None:
                    for _ in range(3):
                        meeting.sendto(b"{}", peer)
                    browser.call("accept", answer, *peer)
                    return


def send(scheme: str, address: str, port: int, total: int) -> dict[str, object]:
    """Send until SIGTERM, or until the receiver has everything."""
    browser = Browser(scheme)
    _meet(browser, (address, port), total)
    state = browser.call("state")
    while not _stopped.wait(_EVERY_S) and not state["done"]:
        state = browser.call("state")
    browser.end()
    found, evidence = at_work(browser.lines, state["remote"] or "")
    return {
        "controller": found,
        "evidence": f"Chromium {browser.version}: {evidence}",
        "sent_bytes": state["bytes"],
    }


def main() -> None:
    """Do what the command line says."""
    signal.signal(signal.SIGTERM, _stop)
    scheme, role, where, *rest = sys.argv[1:]
    total = int(rest[1]) if rest[:1] == ["--bytes"] else 0
    address, _, port = where.rpartition(":")
    act = receive if role == "receive" else send
    print(json.dumps(act(scheme, address, int(port), total)), flush=True)


if __name__ == "__main__":
    main()
