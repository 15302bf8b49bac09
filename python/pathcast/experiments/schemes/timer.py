"""A systemd timer and a cron line that repeat a benchmark, each time in a folder of its own."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

#: How often, as systemd and cron write it.
EVERY = {"hourly": "0 * * * *", "daily": "0 3 * * *", "weekly": "0 3 * * 0"}
_DATE = "%Y-%m-%dT%H%M"


def units(name: str, command: Sequence[str], folder: str, every: str) -> str:
    """The text of a service, of its timer, and of a line for cron.

    Args:
        name: of the units, without `.service`.
        command: the program and its arguments, without the folder of the results.
        folder: that has one folder a run, named by the date.
        every: a key of `EVERY`.

    """
    line = shlex.join([*command, "-o"])
    shell = f'{line} {shlex.quote(folder)}/"$(date +{_DATE})"'
    # systemd expands % and $ in units, and reads quotes as a shell does
    escaped = shell.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f"""\
# {name}.service
[Unit]
Description=Pathcast: {name}

[Service]
Type=oneshot
ExecStart=/bin/sh -c "{escaped}"

# {name}.timer
[Unit]
Description=Pathcast: {name}, {every}

[Timer]
OnCalendar={every}
Persistent=true

[Install]
WantedBy=timers.target

# or a line for cron
{EVERY[every]} {shell.replace("%", chr(92) + "%")}
"""
