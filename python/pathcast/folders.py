"""Files of paths in folders: which of them are paths, in which format, and their descriptions as TOML.

A file of a path or a scenario is known by its keys, others by their endings or the beginning of their content.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path as FilePath
from statistics import median

from pathcast import _internal, ibox
from pathcast.exceptions import PathcastError, PathFileError, translated
from pathcast.files import unpacked
from pathcast.foreign import utf8

#: Folders whose paths have names beside the built-in paths, separated as in PATH.
FOLDERS_VARIABLE = "PATHCAST_PATHS"
#: The largest file of a path that is read. The longest published traces, written out for both directions, take 3 MB.
MAX_BYTES = 16 << 20
#: Files of a folder that are looked at, at most.
_MOST_FILES = 20_000
#: What rates alone do not say: the round trip and the queue that they get.
_ASSUMED_RTT_MS, _ASSUMED_QUEUE_PACKETS = 50.0, 250
#: Series of throughput have at most so many steps, and so many seconds.
_MOST_STEPS, _MOST_SECONDS = 100_000, 86_400

#: Returns the description of a path or scenario, and raises PathFileError.
Describe = Callable[[], str]


def default_folders() -> list[FilePath]:
    """List the folders of the variable PATHCAST_PATHS."""
    return [
        FilePath(part) for part in os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep) if part
    ]


def find(name: str) -> Describe | None:
    """Find the path of this name in the folders of PATHCAST_PATHS; None if there is none.

    Raises:
        PathcastError: a folder is not there.

    """
    for folder in default_folders():
        for file in files(folder):
            if name_of(folder, file) == name and (found := reader(file)):
                return found[1]
    return None


def name_of(folder: FilePath, file: FilePath) -> str:
    """How to call a file of a folder: by both names, and those of the folders between them."""
    stem = file.relative_to(folder).as_posix()
    for ending in (".gz", ".toml", ".json", ".trace"):
        stem = stem.removesuffix(ending)
    return "-".join([folder.resolve().name, *stem.split("/")])


def files(folder: FilePath) -> Iterator[FilePath]:
    """All files in a folder, and in those within it.

    Raises:
        PathcastError: it is not there, or has far too many.

    """
    if not folder.is_dir():
        raise PathcastError(f"{utf8(folder)}: got no folder; expected one with paths")
    for number, file in enumerate(sorted(folder.rglob("*"))):
        if number >= _MOST_FILES:
            raise PathcastError(f"{utf8(folder)}: has more than {_MOST_FILES} files; name a folder")
        if file.is_file():
            yield file


def reader(file: FilePath) -> tuple[str, Describe] | None:
    """The source of a file and how to read it, by its name and its beginning."""
    bare = file.name.removesuffix(".gz")
    if bare.endswith(".toml"):
        if file.with_name(bare.removesuffix(".toml") + ".posterior.json").is_file():
            return "calibration", partial(_of_toml, file)
        return ("path", partial(_of_toml, file)) if _is_path(file) else None
    if bare.endswith((".up", ".down", ".trace")):
        return "mahimahi", partial(_of_opportunities, file)
    if bare.endswith(".json") and not bare.endswith(".posterior.json"):
        begin = beginning(file)
        if b'"bottleneck_bandwidth"' in begin:
            return "ibox", partial(_of_profile, file)
        if b'"bandwidth_kbps"' in begin:
            return "throughput", partial(_of_series, file)
    return None


def _is_path(file: FilePath) -> bool:
    """Whether a TOML file looks like a path or a scenario, as those of other programs do not."""
    begin = beginning(file)
    return b"delay" in begin or b"[links" in begin


def beginning(file: FilePath) -> bytes:
    """The first bytes of a file; none if it cannot be read."""
    try:
        with file.open("rb") as stream:
            return stream.read(4096)
    except OSError:
        return b""


def _of_toml(file: FilePath) -> str:
    """The description in a path or scenario file, with the traces that it names written out."""
    text = _text(file)
    parse = (
        _internal.ScenarioSpec.parse if _internal.is_scenario(text) else _internal.PathSpec.parse
    )
    with translated():
        return parse(text, utf8(file), True).to_toml()


def _of_profile(file: FilePath) -> str:
    return ibox.to_toml(_text(file), utf8(file))


def _of_opportunities(file: FilePath) -> str:
    """The path of a delivery trace; its delay and queue are assumed."""
    lines = _content(file).split()
    if not all(line.isdigit() for line in lines):
        raise PathFileError(f"{utf8(file)}: expected one integer millisecond a line")
    moments = ", ".join(line.decode() for line in lines)
    return (
        f"name = '{_quoted(file)}: rates; delay and queue are assumed'\n"
        f"rate = {{ kind = 'mahimahi', opportunities_ms = [{moments}] }}\n{_assumed(_ASSUMED_RTT_MS)}"
    )


def _of_series(file: FilePath) -> str:
    """The path of a series of throughput; its queue is assumed."""
    where = utf8(file)
    try:
        series = json.loads(_content(file))
        if not isinstance(series, list) or not 0 < len(series) <= _MOST_STEPS:
            raise ValueError(f"expected a list of 1 to {_MOST_STEPS} entries")
        took = [_number(one["duration_ms"], 1e3 * _MOST_SECONDS) for one in series]
        rates = [_number(one["bandwidth_kbps"], 1e9) for one in series]
        delays = [_number(one["latency_ms"], 60_000.0) for one in series]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PathFileError(
            f"{where}: expected entries of duration_ms, bandwidth_kbps and latency_ms; {error}"
        ) from None
    *starts, end = accumulate(took, initial=0.0)
    steps = ", ".join(
        f"['{1e3 * at:.0f} us', '{1e3 * rate:.0f} bit/s']"
        for at, rate, length in zip(starts, rates, took, strict=True)
        if length > 0
    )
    return (
        f"name = '{_quoted(file)}: rates and round trip; the queue is assumed'\n"
        f"rate = {{ kind = 'steps', steps = [{steps}], period = '{1e3 * end:.0f} us' }}\n"
        f"{_assumed(median(delays))}"
    )


def _number(value: object, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError(f"got {str(value)[:40]!r}, expected a number from 0 to {most:g}")
    return float(value)


def _assumed(rtt_ms: float) -> str:
    return (
        f"delay = '{rtt_ms / 2 * 1e3:.0f} us'\nqueue = '{_ASSUMED_QUEUE_PACKETS} packets'\n"
        "[reverse]\nrate = 'unlimited'\n"
    )


def _quoted(file: FilePath) -> str:
    """The name of a file as part of a literal string of TOML."""
    return utf8(file.name).replace("'", "_")


def _content(file: FilePath) -> bytes:
    """The bytes of a file, unpacked.

    Raises:
        PathFileError: it cannot be read or is far too large.

    """
    try:
        content = unpacked(file, MAX_BYTES)
    except OSError as error:
        raise PathFileError(f"{utf8(file)}: cannot be read: {error}") from None
    if content is None:
        raise PathFileError(f"{utf8(file)}: has more than {MAX_BYTES} bytes; expected a trace")
    return content


def _text(file: FilePath) -> str:
    try:
        return _content(file).decode()
    except UnicodeDecodeError as error:
        raise PathFileError(f"{utf8(file)}: is not UTF-8 text (byte {error.start})") from None
