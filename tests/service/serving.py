"""A service in another process, and what asks it."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

from conftest import PATHCAST

LINES = {"Content-Type": "application/x-ndjson"}


class Service:
    """A running `pathcast serve`."""

    def __init__(self, process, address, scheme="http", context=None):
        self.process = process
        self.address = address
        self.base = f"{scheme}://{address}"
        self.context = context

    def request(self, method, path, body=None, headers=None, timeout=20):
        """Status and content of a response; JSON is read."""
        asked = urllib.request.Request(
            self.base + path, data=body, method=method, headers=headers or {}
        )
        try:
            with urllib.request.urlopen(asked, timeout=timeout, context=self.context) as answer:
                status, content, kind = answer.status, answer.read(), answer.headers["Content-Type"]
        except urllib.error.HTTPError as error:
            status, content, kind = error.code, error.read(), error.headers["Content-Type"]
        is_json = kind is not None and kind.startswith("application/json")
        return status, json.loads(content) if is_json else content.decode()

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, samples, headers=LINES):
        body = "".join(json.dumps(one) + "\n" for one in samples).encode()
        return self.request("POST", "/v1/samples", body, headers)

    def metric(self, name):
        _, text = self.get("/metrics")
        return next(
            float(line.split()[-1])
            for line in text.splitlines()
            if line.startswith(f"pathcast_{name} ")
        )

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(20)
        return self.process.returncode


def started(*arguments, listen="127.0.0.1:0", env=None, before=()):
    """The process, its address, and how long it took until it said so; `before` are words of a command that runs it."""
    begin = time.monotonic()
    process = subprocess.Popen(
        [*before, str(PATHCAST), "serve", "--listen", listen, *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    for line in process.stderr:
        if '"started"' in line:
            said = json.loads(line)
            return Service(process, said["listen"]), said, time.monotonic() - begin
    process.wait(10)
    raise AssertionError(f"the service ended with {process.returncode}")


@contextmanager
def serving(*arguments, **options):
    service, _, _ = started(*arguments, **options)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.stop()
        service.process.stderr.close()


def samples(client="192.0.2.7", count=100, rate_bps=8e6, **more):
    """Samples of one client over the last minute, in order: of flows that fill the queue of their link."""
    now = time.time()
    return [
        {
            "client": client,
            "time_s": now - 0.5 * (count - number),
            "rate_bps": rate_bps * (1 + 0.1 * (number % 3 - 1)),
            "rtt_s": 0.05 + 0.009 * (number % 3 - 1),
            "cwnd_packets": 40,
            "packets": 300,
            "losses": int(number % 20 == 0),
            **more,
        }
        for number in range(count)
    ]
