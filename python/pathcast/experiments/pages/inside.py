"""Runs servers inside a path: starts them, reports when all listen, and ends them with itself.

A program of the standard library alone, `python inside.py PLAN.json`, because it starts anew for each path. The plan has:

```text
commands  argument lists of the servers
listen    what they listen on in the end, such as "tcp 8443"
address   the file that then holds the address of this side of the path
knobs     where to listen for knobs of TCP, a socket of the file system; may be missing
```

Knobs come as a line of JSON, and the answer is what is in force then, or `error`. They hold for connections that open
later: `congestion_control` and `initial_window` by the route to the browser, `slow_start_after_idle` by the namespace.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

#: Before the command of a server: it is killed if this program is, and may do no more than read. Ports above 1024 need
#: no privilege, but a folder that is its owner's alone does.
CONFINED = (
    *("setpriv", "--pdeathsig=KILL", "--no-new-privs", "--inh-caps=-all"),
    *("--bounding-set=-all,+dac_read_search", "--"),
)
#: How long a server may take to end, in seconds.
_END_S = 5.0
#: How often servers are looked at, in seconds.
_TURN_S = 0.05
#: States of sockets that wait for others to begin: TCP_LISTEN, and TCP_CLOSE for those without connections.
_WAITING = {"tcp": "0A", "udp": "07"}


def main(plan_file: str) -> int:
    """Run what the plan says until SIGTERM, or until a server ends, which is an error."""
    plan = json.loads(Path(plan_file).read_text())
    signal.signal(signal.SIGTERM, _leave)
    servers: list[subprocess.Popen[bytes]] = []
    try:
        for command in plan["commands"]:
            servers.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))  # noqa: S603 - our own plan
        while not listening() >= set(plan["listen"]):
            if any(one.poll() is not None for one in servers):
                return 1
            time.sleep(0.01)
        if "knobs" in plan:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(plan["knobs"])
            listener.listen()
            threading.Thread(target=_serve_knobs, args=(listener,), daemon=True).start()
        # whoever waits for the file reads all of it
        part = Path(f"{plan['address']}.part")
        part.write_text(os.environ["PATHCAST_ADDRESS"])
        part.replace(plan["address"])
        # children that set knobs end, too
        while all(one.poll() is None for one in servers):
            time.sleep(_TURN_S)
        return 1
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end(servers)


def listening() -> set[str]:
    """What others can reach in this network namespace, such as `tcp 8443`."""
    found = set()
    for kind, state in _WAITING.items():
        for table in (kind, f"{kind}6"):
            file = Path("/proc/self/net") / table
            # without IPv6 there is no table of it
            for line in file.read_text().splitlines()[1:] if file.exists() else ():
                # sl local_address:port rem_address:port st ...
                words = line.split()
                if words[3] == state:
                    found.add(f"{kind} {int(words[1].rpartition(':')[2], 16)}")
    return found


#: What Linux does with the window after an idle RTO, in this network namespace.
_IDLE = Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle")


def _serve_knobs(listener: socket.socket) -> None:
    """Set knobs for one caller after another."""
    while True:
        caller = listener.accept()[0]
        with caller, caller.makefile("rw") as stream:
            try:
                answer = set_knobs(os.environ["PATHCAST_BASE"], **json.loads(stream.readline()))
            except (OSError, ValueError, TypeError, KeyError, subprocess.SubprocessError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            stream.write(json.dumps(answer) + "\n")


def set_knobs(
    browser: str, *, congestion_control: str, initial_window: int, slow_start_after_idle: bool
) -> dict[str, Any]:
    """Set knobs of TCP towards an address, and read back what is in force.

    Raises:
        OSError: the kernel refuses the sysctl, or there is no `ip`.
        subprocess.SubprocessError: it refuses the route.
        ValueError: something else is in force afterwards.

    """
    wanted = {
        "congestion_control": congestion_control,
        "initial_window": int(initial_window),
        "slow_start_after_idle": bool(slow_start_after_idle),
    }
    _IDLE.write_text(f"{int(slow_start_after_idle)}\n")
    (route,) = _ip("route", "show", f"{browser}/32")
    _ip(
        *("route", "change", f"{browser}/32", "dev", route["dev"], "scope", route["scope"]),
        *("initcwnd", str(int(initial_window)), "congctl", congestion_control),
    )
    (route,) = _ip("route", "show", f"{browser}/32")
    metrics: dict[str, Any] = {}
    for one in route.get("metrics", ()):
        metrics |= one
    found = {
        # newer versions of ip call it congctl, older ones congestion
        "congestion_control": metrics.get("congctl", metrics.get("congestion")),
        "initial_window": metrics.get("initcwnd"),
        "slow_start_after_idle": _IDLE.read_text().strip() == "1",
    }
    if found != wanted:
        raise ValueError(f"got {found} in force; expected {wanted}")
    return found


def _ip(*arguments: str) -> list[dict[str, Any]]:
    """Run `ip` with JSON as its output."""
    program = shutil.which("ip") or "/usr/sbin/ip"
    command = [program, "-json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    if done.returncode:
        raise subprocess.SubprocessError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    found: list[dict[str, Any]] = json.loads(done.stdout) if done.stdout.strip() else []
    return found


def _leave(*_: object) -> NoReturn:
    sys.exit(0)


def _end(servers: list[subprocess.Popen[bytes]]) -> None:
    for one in servers:
        one.terminate()
    end = time.monotonic() + _END_S
    for one in servers:
        try:
            one.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
