"""What a file should give, and how far what it gives may be off."""

from __future__ import annotations

from dataclasses import dataclass

#: Facts may differ by this share.
TOLERANCE = 0.01


@dataclass(frozen=True)
class Usable:
    """A file from which something can be had.

    Attributes:
        facts: numbers by name, such as `bytes`, `retransmissions`, `rtt_s`, `flow 1 bytes`; compared to 1 %.

    """

    facts: dict[str, float]


@dataclass(frozen=True)
class Unusable:
    """A file with nothing for Pathcast, which should say so.

    Attributes:
        what: what the file is.
        words: a refusal must have one of these, in whatever case, so that people know what they gave.

    """

    what: str
    words: tuple[str, ...]


def differences(expected: dict[str, float], found: dict[str, float]) -> list[str]:
    """The facts that are missing or off by more than the tolerance, in words."""
    wrong = []
    for name, value in expected.items():
        got = found.get(name)
        if got is None:
            wrong.append(f"{name}: nothing for {value:.6g}")
        elif not abs(got - value) <= TOLERANCE * abs(value) + 1e-12:
            wrong.append(f"{name}: {got:.6g} for {value:.6g}")
    return wrong
