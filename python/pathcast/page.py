"""Web pages as graphs of resources and tasks, read from recordings of loads and page files."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pathcast import _internal
from pathcast.exceptions import ModelError, PathFileError, translated
from pathcast.files import unpacked
from pathcast.foreign import utf8

#: The largest page file or recording that is read, in bytes after unpacking.
MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class BrowserTime:
    """What a browser takes itself, in milliseconds of processor time.

    Attributes:
        navigation_ms: from a document's first byte until what it names can begin, where nothing caused the document.
        network_thread_ms: for each response, one after another, before its connection takes another request.
        main_thread_ms: for each response, one after another, before what it causes can begin.

    """

    navigation_ms: float = 0.0
    network_thread_ms: float = 0.0
    main_thread_ms: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value <= MAX_BROWSER_MS:
                raise ModelError(f"got {name} {value}; expected 0 to {MAX_BROWSER_MS:g}")

    @classmethod
    def parse(cls, text: str) -> BrowserTime:
        """Read the name of one of `BROWSERS`, or three numbers with commas between them.

        Raises:
            ModelError: the text is neither, or a number is not valid.

        """
        if text in BROWSERS:
            return BROWSERS[text]
        try:
            navigation, network_thread, main_thread = map(float, text.split(","))
        except ValueError:
            raise ModelError(
                f"got browser {text!r}; expected {' or '.join(BROWSERS)}, or three times in milliseconds such as 70,0.9,2"
            ) from None
        return cls(navigation, network_thread, main_thread)


#: The longest that a browser may take for one thing.
MAX_BROWSER_MS = 60e3
#: Browsers by name: one that takes no time, and Chromium 156 on a virtual machine with two processors, fitted to loads of
#: static files (docs/results/page-loads.md).
BROWSERS = {"none": BrowserTime(), "chromium": BrowserTime(70.0, 0.9, 2.0)}


@dataclass(frozen=True)
class Page:
    """What a browser fetches and computes for a page, and why (`docs/reference/page-file.md`).

    Attributes:
        name: for people.
        resources: in the order in which the browser learns of them. Each has `id`, `url` (without its query), `type`,
            `priority`, `request_bytes`, `header_bytes`, `body_bytes`, `server_ms` from request to response, `causes`
            and `blocks_load`. A cause is `resource` or `task` (a position), the part `at` of it that must have come,
            and `wait_ms` after that.
        tasks: what the browser computes, each with `id`, `ms`, `causes` and `blocks_load`.
        file: what to call it in errors.
        on_load_ms: when the load event came in the recording; None: not known.
        warnings: what the file lacks, and what was inferred in its place.

    Example:
        >>> page = Page.parse('''
        ... [[resources]]
        ... url = "https://example.org/"
        ... size = "31 kB"
        ...
        ... [[resources]]
        ... url = "https://example.org/style.css"
        ... size = "9 kB"
        ... ''')
        >>> [one["url"] for one in page.resources]
        ['https://example.org/', 'https://example.org/style.css']

    """

    name: str
    resources: tuple[dict[str, Any], ...]
    tasks: tuple[dict[str, Any], ...]
    file: str
    on_load_ms: float | None
    warnings: tuple[str, ...]
    _spec: _internal.PageSpec = field(repr=False, compare=False)

    @classmethod
    def parse(cls, content: str | bytes, file: str = "page.toml") -> Page:
        """Read the text of a page file, or of a recording with one page; `file` names it in errors.

        A recording is a HAR, a log of the DevTools protocol, a Chrome trace, or a dependency graph of EPLOAD or WProfX.

        Raises:
            PathFileError: it is neither, or what it says cannot be; with the place or the number of the entry or event.

        """
        return cls.parse_all(content, file)[0]

    @classmethod
    def parse_all(cls, content: str | bytes, file: str = "page.toml") -> list[Page]:
        """Read all pages of a text; a page file has one.

        Raises:
            PathFileError: as `parse`.

        """
        content = content.encode() if isinstance(content, str) else content
        with translated():
            specs = _internal.PageSpec.parse(content, file)
        return [cls._of(spec, file) for spec in specs]

    @classmethod
    def load(cls, file: str | os.PathLike[str], page: int | None = None) -> Page:
        """Read a page file or a recording, also if it is gzipped.

        Args:
            file: the file.
            page: which page of a recording, from 0; None: the only one.

        Raises:
            PathFileError: it cannot be read, for the reasons of `parse`, or it has several pages and `page` is None.

        """
        pages = cls.load_all(file)
        if page is None:
            if len(pages) > 1:
                names = ", ".join(f"{number} ({one.name})" for number, one in enumerate(pages))
                raise PathFileError(f"{utf8(file)}: has {len(pages)} pages, choose one: {names}")
            return pages[0]
        if not 0 <= page < len(pages):
            message = f"{utf8(file)}: got page {page}, expected 0 to {len(pages) - 1}"
            raise PathFileError(message)
        return pages[page]

    @classmethod
    def load_all(cls, file: str | os.PathLike[str]) -> list[Page]:
        """Read all pages of a file.

        Raises:
            PathFileError: it cannot be read, or for the reasons of `parse`.

        """
        name = utf8(file)
        try:
            content = unpacked(FilePath(file), MAX_BYTES)
        except OSError as error:
            raise PathFileError(f"{name}: {error.strerror or error}") from None
        if content is None:
            raise PathFileError(f"{name}: is larger than {MAX_BYTES >> 20} MiB unpacked")
        return cls.parse_all(content, name)

    @classmethod
    def _of(cls, spec: _internal.PageSpec, file: str) -> Page:
        summary = json.loads(spec.summary())
        return cls(
            summary["name"],
            tuple(summary["resources"]),
            tuple(summary["tasks"]),
            file,
            spec.on_load_ms,
            tuple(spec.warnings),
            spec,
        )

    @property
    def body_bytes(self) -> int:
        """Bytes of all bodies."""
        return sum(one["body_bytes"] for one in self.resources)

    @property
    def origins(self) -> int:
        """How many origins its resources have."""
        return len({one["url"].split("/", 3)[2] for one in self.resources})

    def to_toml(self) -> str:
        """Return it as a page file, every default written out."""
        return self._spec.to_toml()

    def to_inline_toml(self) -> str:
        """Return it as a TOML value in one line, for the key `page` of a workload."""
        return self._spec.to_inline_toml()

    def as_replica(self) -> Page:
        """Return it as static files of one server: on one origin, without the time that servers and browser compute."""
        return self._of(self._spec.as_replica(), self.file)
