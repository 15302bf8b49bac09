"""Runs servers inside a path: starts them, reports when all listen, and ends them with itself.

A program of the standard library alone, `python inside.py PLAN.json`, because it starts anew for each path. The plan has:

```text
commands  argument lists of the servers
listen    what they listen on in the end, such as "tcp 8443"
address   the file that then holds the address of this side of the path
```
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

#: Before the command of a server: it is killed if this program is, and may do no more than read. Ports above 1024 need
#: no privilege, but a folder that is its owner's alone does.
CONFINED = (
    *("setpriv", "--pdeathsig=KILL", "--no-new-privs", "--inh-caps=-all"),
    *("--bounding-set=-all,+dac_read_search", "--"),
)
#: How long a server may take to end, in seconds.
_END_S = 5.0
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
        # whoever waits for the file reads all of it
        part = Path(f"{plan['address']}.part")
        part.write_text(os.environ["PATHCAST_ADDRESS"])
        part.replace(plan["address"])
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
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
