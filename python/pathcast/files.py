"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pathcast.exceptions import PathcastError


def check_output(file: str | os.PathLike[str]) -> None:
    """Refuses an output file that could not be written, before any long work is done for it.

    Raises:
        PathcastError: its folder is not there or not writable, or it is a folder itself.

    """
    path = Path(file)
    if path.is_dir():
        raise PathcastError(f"{path}: is a folder, expected the name of a file to write")
    if not path.parent.is_dir():
        raise PathcastError(f"{path}: cannot be written: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise PathcastError(f"{path}: cannot be written: no permission in {path.parent}")


def write_beside(file: str | os.PathLike[str], content: str | bytes) -> None:
    """Writes a file beside its final place and renames it there, so that nobody sees half of it.

    Raises:
        PathcastError: it cannot be written (no such folder, no permission, a full disk).

    """
    path = Path(file)
    part = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False
        ) as stream:
            part = Path(stream.name)
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        # a temporary file is private; what replaces it has the rights of any new file
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        part.replace(path)
    except OSError as error:
        if part is not None:
            part.unlink(missing_ok=True)
        raise PathcastError(f"{path}: cannot be written: {error.strerror}") from None
