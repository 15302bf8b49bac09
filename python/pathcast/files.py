"""Files that are read up to a limit, and written whole or not at all.

Rust writes them, by descriptors alone: whoever may exchange entries of the folder meanwhile gets no other
file overwritten, and nobody else's file for their own (SECURITY.md).
"""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

from pathcast import _internal
from pathcast.exceptions import PathcastError

#: A user id and a group id.
User = tuple[int, int]
#: What files that are packed by gzip begin with.
_GZIP = b"\x1f\x8b"


def check_output(file: str | os.PathLike[str], user: User | None = None) -> None:
    """Refuse an output file that could not be written, before any long work is done for it.

    Raises:
        PathcastError: its folder does not exist or is not writable, or it is a folder itself.

    """
    try:
        _internal.check_output(Path(file), user)
    except _internal.TraceError as error:
        raise PathcastError(str(error)) from None


def unpacked(file: Path, most_bytes: int) -> bytes | None:
    """Read a file, which may be packed by gzip.

    Args:
        file: where.
        most_bytes: how many it may have, unpacked; no more are kept in memory.

    Returns:
        its bytes; None if it has more.

    Raises:
        OSError: it cannot be read, or what is packed is damaged.

    """
    with file.open("rb") as stream:
        is_packed = stream.read(len(_GZIP)) == _GZIP
        stream.seek(0)
        try:
            with gzip.open(stream) if is_packed else stream as content:
                found: bytes = content.read(most_bytes + 1)
        except (EOFError, zlib.error) as error:
            raise OSError(f"what is packed in it is damaged: {error}") from None
    return found if len(found) <= most_bytes else None


def write_beside(
    file: str | os.PathLike[str], content: str | bytes, user: User | None = None
) -> None:
    """Write a file under a temporary name in its folder and rename it, so that no reader sees half of it.

    A link at the final place is replaced. A FIFO or a character device is written to as it is, and so are
    `/dev/stdout` and the like.

    Args:
        file: where.
        content: text is written as UTF-8.
        user: the owner of the file, who must be able to write it; needs root. By default the process's user.

    Raises:
        PathcastError: it cannot be written (no such folder, no permission, a full disk).

    """
    if isinstance(content, str):
        content = content.encode(errors="backslashreplace")
    try:
        _internal.write_file(Path(file), content, user)
    except _internal.TraceError as error:
        raise PathcastError(str(error)) from None
