"""What an experiment must show, and whether it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: As it stands in `results.json`: `claim`, `got` and `holds` at least.
Claim = dict[str, Any]

#: What `got` is where nothing was measured.
NOTHING = "not measured"


def claim(text: str, got: str, holds: bool | None, **beside: object) -> Claim:
    """One claim.

    Args:
        text: what must show, in words.
        got: what did.
        holds: whether it does; None: not measured.
        beside: further keys, such as `wanted` (the expected value), `exceptions`, `verdict`.

    """
    return {"claim": text, "got": got, "holds": holds, **beside}


def wanted(
    text: str, wanted: str, got: str, holds: bool | None, exceptions: Sequence[str] = ()
) -> Claim:
    """A claim with the expected value, and where it fails."""
    return claim(text, got, holds, wanted=wanted, exceptions=list(exceptions))


def verdict_of(one: Mapping[str, Any]) -> tuple[str, str]:
    """Whether it holds, in a word and a color."""
    return {True: ("yes", "green"), False: ("no", "red"), None: ("-", "")}[one["holds"]]
