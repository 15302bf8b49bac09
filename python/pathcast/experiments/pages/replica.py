"""A page as static files of one server: sizes and graph are kept, contents are padding."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pathcast.exceptions import PathFileError
from pathcast.page import Page

#: The host of replicas; certificates are for it.
HOST = "page.test"
#: What a replica makes of each type: a stylesheet, a script, or an image for all others.
_TAGS = {"stylesheet": "c", "script": "s"}
_SUFFIXES = {"c": "css", "s": "js", "i": "png"}
#: How Chromium treats what these tags fetch: asynchronous scripts and images can wait.
_TYPES = {
    "c": ("stylesheet", "highest"),
    "s": ("script", "low"),
    "i": ("image", "low"),
}
#: Header bytes of nginx's responses, and of Chromium's requests, in HTTP/1.1.
_HEADER_BYTES = 240
_REQUEST_BYTES = 460
#: Makes the element of a resource, which adds its children when it has come.
_SCRIPT = (
    "function a(n){var t=T[n],e;if(t[0]=='c'){e=document.createElement('link');e.rel='stylesheet';e.href=n+'.css'}"
    "else if(t[0]=='s'){e=document.createElement('script');e.src=n+'.js'}"
    "else{e=document.createElement('img');e.src=n+'.png'}e.onload=function(){d(n)};document.body.appendChild(e)}"
    "function d(n){T[n][1].forEach(a)}"
)


@dataclass(frozen=True)
class Replica:
    """A page on disk.

    Attributes:
        folder: with `index.html` and one file a resource.
        page: what a browser finds there, as a graph.

    """

    folder: FilePath
    page: Page


def write_replica(page: Page, folder: FilePath) -> Replica:
    """Write the files of a page's replica.

    What the load event does not wait for is left out. A resource that a document causes in its course is named there;
    others are added when what causes them has come. Documents grow if they are too small to name their resources.

    Args:
        page: the original.
        folder: exists, and is empty.

    Raises:
        PathFileError: the page does not begin with one resource that causes all others.

    """
    kept = [number for number, one in enumerate(page.resources) if one["blocks_load"]]
    numbers = {old: new for new, old in enumerate(kept)}
    causes = {new: _cause(page, old, numbers) for new, old in enumerate(kept[1:], 1)}
    places = {new: at for new, (parent, at) in causes.items() if parent == 0}
    children: dict[int, list[int]] = {number: [] for number in range(len(kept))}
    for new, (parent, _) in causes.items():
        if parent > 0:
            children[parent].append(new)
    tags = [_TAGS.get(page.resources[old]["type"], "i") for old in kept]
    table = json.dumps(
        {n: [tags[n], children[n]] for n in range(1, len(kept))}, separators=(",", ":")
    )
    wanted = page.resources[kept[0]]["body_bytes"]
    html = _document(table, tags, places, wanted)
    (folder / "index.html").write_bytes(html)
    resources = [_resource("", "document", "highest", len(html), None)]
    for new, old in enumerate(kept[1:], 1):
        tag, size = tags[new], page.resources[old]["body_bytes"]
        content = _content(tag, size)
        name = f"{new}.{_SUFFIXES[tag]}"
        (folder / name).write_bytes(content)
        parent, at = causes[new]
        # what another resource than the document causes is added when all of that has come
        after = {"of": str(parent), "at": round(at, 3) if parent == 0 else 1}
        resources.append(_resource(name, *_TYPES[tag], len(content), after))
    toml = "\n".join(
        [f"name = {json.dumps(page.name)}"]
        + ["\n[[resources]]\n" + _keys(number, one) for number, one in enumerate(resources)]
    )
    return Replica(folder, Page.parse(toml, f"replica of {page.file}"))


def _cause(page: Page, number: int, numbers: dict[int, int]) -> tuple[int, float]:
    """The last of the resources that cause one, as the replica numbers them, and which part of it."""
    found: list[tuple[int, float]] = []
    for cause in page.resources[number]["causes"]:
        if "task" in cause:
            inner = page.tasks[cause["task"]]["causes"]
            of = next((one["resource"] for one in inner if "resource" in one), 0)
            at = 1.0
        else:
            of, at = cause["resource"], cause["at"]
        if of not in numbers:
            continue
        if numbers[of] >= numbers[number]:
            raise PathFileError(
                f"{page.file}: {page.resources[number]['id']} comes before its cause"
            )
        found.append((numbers[of], at))
    return max(found, default=(0, 1.0))


def _document(table: str, tags: list[str], places: dict[int, float], wanted: int) -> bytes:
    """The document, with each resource named about where it was in the original."""
    parts = {
        "c": '<link rel=stylesheet href={0}.css onload="d({0})">',
        "s": '<script async src={0}.js onload="d({0})"></script>',
        "i": '<img src={0}.png onload="d({0})">',
    }
    html = f"<!doctype html><title>replica</title><script>var T={table};{_SCRIPT}</script><body>"
    tail = "</body>"
    order = sorted(places, key=lambda number: (places[number], number))
    left = sum(len(parts[tags[number]].format(number)) for number in order)
    for number in order:
        at = places[number] * wanted
        # what is still to come needs its room too
        most = wanted - len(tail) - left
        html += _padding(int(min(at, most)) - len(html))
        part = parts[tags[number]].format(number)
        html += part
        left -= len(part)
    html += _padding(wanted - len(tail) - len(html)) + tail
    return html.encode()


def _padding(count: int) -> str:
    """A comment of so many bytes, or none if there are too few for one."""
    return f"<!--{'x' * (count - 7)}-->" if count >= 7 else ""


def _content(tag: str, size: int) -> bytes:
    """A file of so many bytes that a browser takes without an error."""
    if tag != "i":
        return b"/*" + b"x" * max(size - 4, 0) + b"*/"
    image = _png()
    # bytes after the end of a picture are left alone
    return image + b"\0" * max(size - len(image), 0)


def _png() -> bytes:
    """A picture of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0\0"))
        + chunk(b"IEND", b"")
    )


def _resource(
    name: str, kind: str, priority: str, size: int, after: dict[str, Any] | None
) -> dict[str, Any]:
    return {
        "url": f"https://{HOST}/{name}",
        "type": kind,
        "priority": priority,
        "request": f"{_REQUEST_BYTES} B",
        "header": f"{_HEADER_BYTES} B",
        "size": f"{size} B",
        "after": after,
    }


def _keys(number: int, resource: dict[str, Any]) -> str:
    lines = [f'id = "{number}"']
    for key, value in resource.items():
        if key == "after":
            cause = [] if value is None else [f'{{ of = "{value["of"]}", at = {value["at"]} }}']
            lines.append(f"after = [{', '.join(cause)}]")
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines)
