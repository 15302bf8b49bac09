"""Path files: what lies between two hosts."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pathcast import _internal, folders
from pathcast.exceptions import PathFileError, translated
from pathcast.folders import MAX_BYTES
from pathcast.foreign import utf8

#: Folders of the path and scenario files that come with Pathcast.
_FOLDERS = tuple(FilePath(__file__).with_name(name) for name in ("paths", "scenarios"))


def built_in() -> dict[str, FilePath]:
    """List the path and scenario files that come with Pathcast, by name."""
    files = (file for folder in _FOLDERS for file in sorted(folder.glob("*.toml")))
    return {file.stem: file for file in files}


def read_text(file: str | os.PathLike[str]) -> str:
    """Read the text of a path or scenario file.

    Args:
        file: the file, or the name of one that comes with Pathcast, such as `100mbps-40ms-1bdp`, or of one of the
            folders in PATHCAST_PATHS, as `pathcast path list` has it. A file in the current folder takes precedence over
            such a name.

    Raises:
        PathFileError: the file cannot be read, is not text, or is far too large.

    """
    where = FilePath(file)
    if where.name == utf8(file) and not where.is_file():
        where = built_in().get(where.name, where)
    try:
        with where.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        if where.name == utf8(file) and (describe := folders.find(where.name)):
            return describe()
        names = built_in()
        if where.stem in names:
            near = [where.stem]
        else:
            near = difflib.get_close_matches(where.stem, names, n=1)
        hint = (
            f"did you mean {near[0]}, which comes with Pathcast?"
            if near
            else "`pathcast path list` lists the paths that come with Pathcast"
        )
        raise PathFileError(f"{file}: cannot be read: {error.strerror}; {hint}") from None
    except OSError as error:
        raise PathFileError(f"{file}: cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise PathFileError(
            f"{file}: has more than {MAX_BYTES} bytes; expected a path or scenario file"
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise PathFileError(
            f"{file}: is not UTF-8 text (byte {error.start}); expected a path or scenario file"
        ) from None


def is_name(text: str) -> bool:
    """Whether a path of this name comes with Pathcast, or is in one of the folders in PATHCAST_PATHS."""
    is_bare = FilePath(text).name == text
    return text in built_in() or (is_bare and folders.find(text) is not None)


@dataclass(frozen=True)
class Path:
    """A network path, described in TOML (`docs/reference/path-file.md` lists the keys).

    Attributes:
        toml: the description, every default written out.
        file: what to call it in errors.
        name: for people; may be empty.
        rate_bps: rate of the forward link in bits of whole packets a second; None: no limit.
        base_rtt_s: both delays together, in seconds.
        loss: probability that a data packet is lost on the wire.
        queue_bytes: what may wait before the forward link, in bytes; None: not limited in bytes.
        queue_packets: the same in packets.

    Example:
        >>> path = Path.parse("rate = '12 Mbit/s'\\ndelay = '30 ms'\\n")
        >>> path.rate_bps, path.base_rtt_s, path.queue_bytes
        (12000000.0, 0.06, 90000)

    """

    toml: str
    file: str
    name: str
    rate_bps: float | None
    base_rtt_s: float
    loss: float
    queue_bytes: int | None
    queue_packets: int | None
    _spec: _internal.PathSpec = field(repr=False, compare=False)

    @classmethod
    def parse(cls, toml: str, file: str = "path.toml") -> Path:
        """Read a description that names no other files; `file` names it in errors.

        Raises:
            PathFileError: it is not TOML, a key is missing, unknown or of the wrong type, or a
                quantity lacks its unit or is out of range; with line and column.

        """
        return cls._of(toml, file, load_files=False)

    @classmethod
    def _of(cls, toml: str, file: str, *, load_files: bool) -> Path:
        with translated():
            return cls._wrap(_internal.PathSpec.parse(toml, file, load_files), file)

    @classmethod
    def _wrap(cls, spec: _internal.PathSpec, file: str) -> Path:
        # the text has every trace file written out, and so stands for itself
        return cls(spec.to_toml(), file, *spec.summary(), spec)

    def __reduce__(self) -> tuple[Any, ...]:
        """As text, for other processes."""
        return type(self).parse, (self.toml, self.file)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Path:
        """Read a path file, and the trace files that it names, from its folder.

        Args:
            file: the file, or the name of a path that comes with Pathcast: `Path.load("100mbps-40ms-1bdp")`.

        Raises:
            PathFileError: the file cannot be read, or for the reasons of `parse`.

        """
        return cls._of(read_text(file), utf8(file), load_files=True)

    @property
    def bdp_bytes(self) -> float | None:
        """Bandwidth-delay product of the forward link and both delays; None without a rate."""
        return None if self.rate_bps is None else self.rate_bps * self.base_rtt_s / 8

    def replace(self, **keys: object) -> Path:
        """Copy with other values of some keys of `docs/reference/path-file.md`; None takes a key away.

        Raises:
            PathFileError: there is no such key, or its value is out of range.

        Example:
            >>> path = Path.parse("rate = '12 Mbit/s'\\ndelay = '30 ms'\\n")
            >>> path.replace(rate="24 Mbit/s", loss=0.01).rate_bps
            24000000.0

        """
        with translated():
            return self._wrap(self._spec.replaced(keys), self.file)

    def to_toml(self) -> str:
        """The description, every default written out."""
        return self.toml
