"""Manifests of adaptive video: versions, segments and their sizes, of DASH (ISO/IEC 23009-1) and HLS (RFC 8216).

Nothing is fetched. Sizes are in the manifest, as ranges of bytes, or are those of files beside it.
"""

from __future__ import annotations

import math
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path as FilePath
from urllib.parse import unquote

from pathcast.exceptions import PathFileError
from pathcast.files import unpacked
from pathcast.video import Ladder

#: The largest manifest that is read, in bytes.
MAX_BYTES = 1 << 24
#: Segments of one version at most.
MOST_SEGMENTS = 86_400


@dataclass(frozen=True)
class Manifest:
    """A video.

    Attributes:
        ladder: its versions.
        has_sizes: whether the sizes of segments are known; else they are what the bitrates say.
        warnings: what is missing or was left out.

    """

    ladder: Ladder
    has_sizes: bool
    warnings: tuple[str, ...]


@dataclass
class _Version:
    """A version as it is read: durations in seconds, and sizes in bytes where they are known."""

    bitrate_bps: float
    durations_s: list[float]
    sizes: list[int | None]


def read_manifest(file: str | os.PathLike[str]) -> Manifest:
    """Read a DASH or HLS manifest with the video's versions.

    Of an HLS video this is the master playlist; those of the versions lie beside it. Files that a manifest names are looked
    up below its folder alone.

    Raises:
        PathFileError: it is neither, has no video, or is not valid.

    """
    place = FilePath(file)
    text = _text(place)
    warnings: list[str] = []
    if text.lstrip("\ufeff \r\n\t").startswith("#EXTM3U"):
        versions = list(_of_hls(place, text, warnings))
    else:
        versions = list(_of_dash(place, text, warnings))
    return _manifest(place, versions, warnings)


def _text(place: FilePath) -> str:
    try:
        content = unpacked(place, MAX_BYTES)
    except OSError as error:
        raise PathFileError(f"{place}: {error}") from None
    if content is None:
        raise PathFileError(f"{place}: expected at most {MAX_BYTES >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PathFileError(f"{place}: is not text; expected a DASH or HLS manifest") from None


def _manifest(place: FilePath, versions: list[_Version], warnings: list[str]) -> Manifest:
    """Put versions together: segments of one duration, and their sizes if all of them are known."""
    if not versions:
        raise PathFileError(f"{place}: has no version of a video")
    by_bitrate = {one.bitrate_bps: one for one in versions}
    if len(by_bitrate) < len(versions):
        warnings.append("of versions with one bitrate, one is taken")
    versions = [by_bitrate[bitrate] for bitrate in sorted(by_bitrate)]
    count = min(len(one.durations_s) for one in versions)
    if count == 0:
        raise PathFileError(f"{place}: has no segments")
    if any(len(one.durations_s) != count for one in versions):
        warnings.append(f"versions have different numbers of segments; the first {count} are taken")
    durations = versions[0].durations_s[:count]
    # the last segment is what is left
    segment_s = sorted(durations)[len(durations) // 2]
    if not 0 < segment_s <= 3600:
        raise PathFileError(f"{place}: got segments of {segment_s:g} s; expected 0 to an hour")
    if any(abs(one / segment_s - 1) > 0.1 for one in durations[:-1]):
        warnings.append(f"segments differ in duration; all are taken as {segment_s:g} s")
    missing = sorted(
        {n for one in versions for n, size in enumerate(one.sizes[:count], 1) if size is None}
    )
    has_sizes = not missing
    if missing and any(size for one in versions for size in one.sizes[:count]):
        named = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        warnings.append(
            f"segments {named} have no size in the manifest and no file; sizes are what the bitrates say"
        )
    elif missing:
        warnings.append("the manifest has no sizes; they are what the bitrates say")
    sizes = [[int(size or 0) for size in one.sizes[:count]] for one in versions]
    return Manifest(
        Ladder(
            segment_s,
            tuple(one.bitrate_bps for one in versions),
            count,
            tuple(map(tuple, sizes)) if has_sizes else (),
        ),
        has_sizes,
        tuple(warnings),
    )


def _size_of(folder: FilePath, name: str) -> int | None:
    """The size of a file below a folder; None if it is not there, empty, or elsewhere."""
    if "://" in name or name.startswith("/"):
        return None
    root = folder.resolve()
    try:
        place = (root / unquote(name.partition("?")[0])).resolve()
        if not place.is_relative_to(root) or not place.is_file():
            return None
        return place.stat().st_size or None
    except (OSError, ValueError):
        return None


# DASH


def _of_dash(place: FilePath, text: str, warnings: list[str]) -> Iterator[_Version]:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise PathFileError(f"{place}: has a document type, which no manifest needs")
    try:
        root = ET.fromstring(text)  # noqa: S314 - without a document type there are no entities
    except ET.ParseError as error:
        raise PathFileError(f"{place}: is no DASH or HLS manifest: {error}") from None
    if _name(root) != "MPD":
        raise PathFileError(f"{place}: got <{_name(root)}>, expected <MPD> or #EXTM3U")
    periods = [one for one in root if _name(one) == "Period"]
    if len(periods) > 1:
        warnings.append(f"has {len(periods)} periods; the first is taken")
    whole_s = _duration_s(root.get("mediaPresentationDuration"))
    for period in periods[:1]:
        whole_s = _duration_s(period.get("duration")) or whole_s
        sets = [one for one in period if _name(one) == "AdaptationSet" and _is_video(one)]
        if len(sets) > 1:
            warnings.append(f"has {len(sets)} sets of video; the first is taken")
        for adaptation in sets[:1]:
            for version in adaptation:
                if _name(version) == "Representation":
                    yield _representation(place, version, [period, adaptation, version], whole_s)


def _name(element: ET.Element) -> str:
    """Without its namespace."""
    return element.tag.rpartition("}")[2]


def _is_video(adaptation: ET.Element) -> bool:
    kinds = [adaptation.get("contentType"), adaptation.get("mimeType")]
    kinds += [one.get("mimeType") for one in adaptation if _name(one) == "Representation"]
    named = [kind for kind in kinds if kind]
    return not named or any(kind.startswith("video") for kind in named)


_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII)


def _duration_s(text: str | None) -> float:
    """An ISO 8601 duration in seconds; 0 if there is none, or it has years or months."""
    found = _DURATION.fullmatch(text or "")
    if not found:
        return 0.0
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 86_400 * days + 3600 * hours + 60 * minutes + seconds


def _number(place: FilePath, element: ET.Element, key: str, otherwise: float | None) -> float:
    text = element.get(key)
    try:
        value = otherwise if text is None else float(text)
    except ValueError:
        value = None
    if value is None or not math.isfinite(value):
        raise PathFileError(f"{place}: got {key} {text!r} in <{_name(element)}>; expected a number")
    return value


def _representation(
    place: FilePath, version: ET.Element, nested: list[ET.Element], whole_s: float
) -> _Version:
    bitrate = _number(place, version, "bandwidth", None)
    if bitrate <= 0:
        raise PathFileError(f"{place}: got a bandwidth of {bitrate:g}; expected more than 0")
    base = "".join(
        (one.text or "").strip() for element in nested for one in element if _name(one) == "BaseURL"
    )
    # what an inner element says goes before what is around it
    inner = [one for element in reversed(nested) for one in element]
    template = next((one for one in inner if _name(one) == "SegmentTemplate"), None)
    listed = next((one for one in inner if _name(one) == "SegmentList"), None)
    if template is not None:
        durations, times = _durations(place, template, whole_s)
        first = int(_number(place, template, "startNumber", 1))
        sizes = [
            _size_of(
                place.parent, base + _named(template.get("media", ""), version, first + n, time)
            )
            for n, time in enumerate(times)
        ]
        return _Version(bitrate, durations, sizes)
    if listed is not None:
        urls = [one for one in listed if _name(one) == "SegmentURL"]
        duration_s = _number(place, listed, "duration", None) / _timescale(place, listed)
        sizes = [
            _range(one.get("mediaRange")) or _size_of(place.parent, base + one.get("media", ""))
            for one in urls
        ]
        return _Version(bitrate, [duration_s] * len(urls), sizes)
    raise PathFileError(
        f"{place}: version {version.get('id')} has no list of segments; expected SegmentTemplate or SegmentList"
    )


def _timescale(place: FilePath, element: ET.Element) -> float:
    scale = _number(place, element, "timescale", 1)
    if scale <= 0:
        raise PathFileError(f"{place}: got a timescale of {scale:g}; expected more than 0")
    return scale


def _durations(
    place: FilePath, template: ET.Element, whole_s: float
) -> tuple[list[float], list[int]]:
    """Durations of segments in seconds, and when they begin in units of the time scale."""
    scale = _timescale(place, template)
    timeline = next((one for one in template if _name(one) == "SegmentTimeline"), None)
    if timeline is None:
        duration = _number(place, template, "duration", None)
        if duration <= 0:
            raise PathFileError(f"{place}: got segments of {duration:g}; expected more than 0")
        count = math.ceil(whole_s * scale / duration - 1e-6) if whole_s else 1
        if count > MOST_SEGMENTS:
            raise PathFileError(f"{place}: got {count} segments; expected at most {MOST_SEGMENTS}")
        return [duration / scale] * count, [round(n * duration) for n in range(count)]
    durations: list[float] = []
    times: list[int] = []
    time = 0
    for one in timeline:
        time = int(_number(place, one, "t", time))
        duration = int(_number(place, one, "d", None))
        repeats = int(_number(place, one, "r", 0))
        if repeats < 0:
            # until the end
            repeats = max(0, math.ceil((whole_s * scale - time) / max(duration, 1)) - 1)
        if duration <= 0 or len(durations) + repeats >= MOST_SEGMENTS:
            raise PathFileError(
                f"{place}: got {1 + repeats} segments of {duration}; expected a duration above 0, "
                f"and at most {MOST_SEGMENTS} segments"
            )
        for _ in range(1 + repeats):
            durations.append(duration / scale)
            times.append(time)
            time += duration
    return durations, times


_PLACE = re.compile(r"\$(RepresentationID|Number|Time|Bandwidth)?(?:%0(\d{1,2})d)?\$")


def _named(media: str, version: ET.Element, number: int, time: int) -> str:
    """A name of a segment by its template (ISO/IEC 23009-1, 5.3.9.4.4)."""
    values = {"Number": number, "Time": time}

    def value(found: re.Match[str]) -> str:
        key, width = found.groups()
        if key is None:
            return "$"
        if key == "RepresentationID":
            return version.get("id", "")
        if key == "Bandwidth":
            return version.get("bandwidth", "")
        return f"{values[key]:0{int(width or 1)}d}"

    return _PLACE.sub(value, media)


def _range(text: str | None) -> int | None:
    """The size of a range of bytes such as `100-299`."""
    found = re.fullmatch(r"(\d{1,15})-(\d{1,15})", text or "", re.ASCII)
    if not found:
        return None
    size = int(found[2]) - int(found[1]) + 1
    return size if size > 0 else None


# HLS


def _of_hls(place: FilePath, text: str, warnings: list[str]) -> Iterator[_Version]:
    lines = [line.strip() for line in text.splitlines()]
    if any(line.startswith("#EXTINF") for line in lines):
        raise PathFileError(
            f"{place}: is the playlist of one version; expected the master playlist, which has all of them"
        )
    for line, name in pairwise(lines):
        if not line.startswith("#EXT-X-STREAM-INF:"):
            continue
        found = re.search(r"(?:^|[:,])AVERAGE-BANDWIDTH=(\d{1,15})(?:,|$)", line, re.ASCII)
        found = found or re.search(r"(?:^|[:,])BANDWIDTH=(\d{1,15})(?:,|$)", line, re.ASCII)
        if not found or int(found[1]) == 0:
            raise PathFileError(f"{place}: got {line[:80]!r}; expected a BANDWIDTH above 0")
        if _size_of(place.parent, name) is None:
            raise PathFileError(f"{place}: the playlist {name[:80]!r} is not beside it")
        playlist = place.parent / unquote(name.partition("?")[0])
        yield _playlist(playlist, float(found[1]))


def _playlist(place: FilePath, bitrate_bps: float) -> _Version:
    """The segments of one version."""
    version = _Version(bitrate_bps, [], [])
    duration_s, size = None, None
    for line in map(str.strip, _text(place).splitlines()):
        if line.startswith("#EXTINF:"):
            try:
                duration_s = float(line[8:].partition(",")[0])
            except ValueError:
                raise PathFileError(f"{place}: got {line[:80]!r}; expected a duration") from None
        elif line.startswith("#EXT-X-BYTERANGE:"):
            digits = line[17:].partition("@")[0]
            size = int(digits) if re.fullmatch(r"\d{1,15}", digits, re.ASCII) else None
        elif line and not line.startswith("#") and duration_s is not None:
            version.durations_s.append(duration_s)
            version.sizes.append(size or _size_of(place.parent, line))
            duration_s, size = None, None
            if len(version.sizes) > MOST_SEGMENTS:
                raise PathFileError(f"{place}: expected at most {MOST_SEGMENTS} segments")
    return version
