"""The programs that place configurations on servers: `pathcast-agent` and `pathcast-manager`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Literal

from pathcast.exceptions import PathcastError


def program(name: Literal["agent", "manager"]) -> str:
    """Return the program: the one that PATHCAST_AGENT or PATHCAST_MANAGER names, beside Python, or on the path.

    Args:
        name: which.

    Raises:
        PathcastError: there is none.

    """
    variable, file = f"PATHCAST_{name.upper()}", f"pathcast-{name}"
    beside = Path(sys.executable).with_name(file)
    found = os.environ.get(variable) or (str(beside) if beside.exists() else shutil.which(file))
    if found is None or not os.access(found, os.X_OK):
        message = (
            f"got no program {file} ({found or 'not on the path'}); expected it beside Python, on the path, or "
            f"named by {variable}: cargo install --locked --path crates/{name}"
        )
        raise PathcastError(message)
    return found
