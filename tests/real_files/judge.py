"""Each file's verdict, and the table by kind."""

from __future__ import annotations

import importlib
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pathcast.exceptions import PathcastError

from . import KINDS
from .facts import Unusable, Usable, differences

#: The names of verdicts, and whether they are as they should be.
VERDICTS = {
    "agrees": True,
    "refused by what it is": True,
    "differs": False,
    "refused though usable": False,
    "refused without a name": False,
    "read though unusable": False,
}


@dataclass(frozen=True)
class Verdict:
    """What became of one file: a name of `VERDICTS`, and why."""

    kind: str
    file: str
    name: str
    why: str

    @property
    def right(self) -> bool:
        return VERDICTS[self.name]


def judged(kind: str, file: Path) -> Verdict:
    """Reads a file with the reader of its kind, then with Pathcast, and compares."""
    module = importlib.import_module(f".{kind}", __package__)
    expected = module.expected(file)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            found = module.found(file, Path(scratch))
            refusal = None
        except PathcastError as error:
            found, refusal = {}, str(error)
    if isinstance(expected, Usable):
        wrong = differences(expected.facts, found)
        if refusal is not None:
            name, why = "refused though usable", refusal
        elif wrong:
            name, why = "differs", "; ".join(wrong)
        else:
            name, why = "agrees", ", ".join(f"{k} {v:.6g}" for k, v in list(found.items())[:5])
    else:
        assert isinstance(expected, Unusable)
        if refusal is None:
            name, why = "read though unusable", f"{expected.what}: {found}"
        elif any(word.lower() in refusal.lower() for word in expected.words):
            name, why = "refused by what it is", refusal
        else:
            name, why = "refused without a name", f"{expected.what}: {refusal}"
    return Verdict(kind, file.name, name, why)


def has_reader(kind: str) -> bool:
    """Whether there is an independent reader for files of a kind."""
    return importlib.util.find_spec(f".{kind}", __package__) is not None


def missing(kind: str) -> str | None:
    """What the reader of a kind lacks on this machine, in words."""
    module = importlib.import_module(f".{kind}", __package__)
    return module.missing() if hasattr(module, "missing") else None


def files_of(folder: Path, kind: str) -> list[Path]:
    """The files of a kind, in order."""
    return sorted(file for file in (folder / kind).iterdir() if file.is_file())


def table(verdicts: list[Verdict]) -> str:
    """Counts by kind, as text."""
    heads = ("kind", "files", "usable", "read", "agree in 1 %", "refused by what they are", "wrong")
    rows = []
    for kind in dict.fromkeys(verdict.kind for verdict in verdicts):
        count = Counter(verdict.name for verdict in verdicts if verdict.kind == kind)
        read = count["agrees"] + count["differs"]
        rows.append(
            (
                kind,
                count.total(),
                read + count["refused though usable"],
                read,
                count["agrees"],
                count["refused by what it is"],
                sum(n for name, n in count.items() if not VERDICTS[name]),
            )
        )
    rows.append(("all", *(sum(row[i] for row in rows) for i in range(1, len(heads)))))
    widths = [max(len(str(row[i])) for row in [heads, *rows]) for i in range(len(heads))]
    lines = [
        "  ".join(
            str(c).ljust(w) if i == 0 else str(c).rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in [heads, *rows]
    ]
    return "\n".join(lines)


__all__ = ["KINDS", "Verdict", "files_of", "has_reader", "judged", "missing", "table"]
