"""Where things run."""

from __future__ import annotations

from enum import StrEnum


class World(StrEnum):
    """The three backends; docs/architecture.md."""

    #: The kernel's TCP over an emulated path, in real time.
    EMULATOR = "emulator"
    #: Virtual time.
    SIMULATOR = "simulator"
    #: Two hosts and the path between them.
    LIVE = "live"
