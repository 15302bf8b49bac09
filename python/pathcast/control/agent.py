"""The agent's program, which applies configurations to this server."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from pathcast.exceptions import PathcastError

#: Names the program where it is not on the path.
VARIABLE = "PATHCAST_AGENT"


def program() -> str:
    """Return the program `pathcast-agent`: the one that PATHCAST_AGENT names, beside Python, or on the path.

    Raises:
        PathcastError: there is none.

    """
    given = os.environ.get(VARIABLE)
    beside = Path(sys.executable).with_name("pathcast-agent")
    found = given or (str(beside) if beside.exists() else shutil.which("pathcast-agent"))
    if found is None or not os.access(found, os.X_OK):
        message = (
            f"got no program pathcast-agent ({found or 'not on the path'}); expected it beside Python, on the path, or "
            f"named by {VARIABLE}: cargo install --locked --path crates/agent"
        )
        raise PathcastError(message)
    return found
