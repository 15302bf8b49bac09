"""Text that others chose, made harmless to show: file names, process names, values of files.

Such text may hold escape sequences, which a terminal obeys, or characters that turn the order of what
stands around them. Everything that Pathcast prints goes through this module (`console.py`, `shell.py`,
pages), so that no command has to remember it.
"""

from __future__ import annotations

import os


def visible(text: object) -> str:
    r"""Return text on one line in which every character that has no shape of its own is escaped.

    These are control characters (C0, DEL, C1), those that turn the direction of writing or take no room,
    unusual spaces and line ends, and the bytes of a file name that are not UTF-8.

    >>> print(visible("a\x1b[2Jb\n\u202ec"))
    a\x1b[2Jb\x0a\u202ec
    >>> print(visible(b"\xff.toml".decode(errors="surrogateescape")))
    \xff.toml
    """
    shown = str(text)
    return shown if shown.isprintable() else "".join(map(_escaped, shown))


def visible_lines(text: object) -> str:
    """Return the same, but with its line ends left: for text of several lines, some of them ours."""
    return "\n".join(map(visible, str(text).split("\n")))


def utf8(file: str | os.PathLike[str]) -> str:
    """Return the name of a file, with escapes for bytes that are not UTF-8, for strings of Rust."""
    return os.fsencode(file).decode(errors="backslashreplace")


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte that was no UTF-8 (PEP 383)
        number -= 0xDC00
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
