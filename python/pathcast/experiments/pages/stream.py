"""A DASH stream of several bitrates, made by ffmpeg, and the player dash.js."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path as FilePath

from pathcast import manifests
from pathcast.exceptions import PathcastError
from pathcast.experiments.engine.store import make_folder
from pathcast.experiments.pages.rig import program
from pathcast.video import Ladder

#: Pictures a second, and the size of each: what is decoded costs little, for the rate is what counts.
_RATE, _SIZE = 20, "320x180"
#: dash.js on npm, and the hash of its package: BSD-3-Clause, fetched on demand and never shipped.
DASHJS = ("dashjs", "5.2.1")
_INTEGRITY = (
    "axcJmLeJCTJMLUfQRErUJB1KOiU5iHF+DMLBc3FKeox1HPYtGUQlC6Xm5Mm6vhBUR3CHHLIPOqw0JDIqMtP+Dw=="
)
_SCRIPT = "package/dist/modern/umd/dash.all.min.js"
_FETCH_S = 120.0


@dataclass(frozen=True)
class Stream:
    """A stream in a folder, with `stream.mpd`.

    Attributes:
        folder: where.
        ladder: its video, with the size of each segment.
        audio_bps: bitrate of its audio; 0: it has none.

    """

    folder: FilePath
    ladder: Ladder
    audio_bps: int


def make_stream(
    folder: FilePath,
    bitrates_bps: tuple[int, ...],
    segment_s: float,
    duration_s: float,
    audio_bps: int = 32_000,
) -> Stream:
    """Encode a test picture by H.264 at constant bitrates.

    Args:
        folder: exists.
        bitrates_bps: of the versions, ascending.
        segment_s: a whole number of pictures at 20 a second.
        duration_s: of the video.
        audio_bps: of a tone by AAC; 0: no audio.

    Raises:
        PathcastError: there is no ffmpeg, or it fails.

    """
    ffmpeg = program("ffmpeg")
    if ffmpeg is None:
        raise PathcastError("there is no ffmpeg; `scripts/system-packages dash` installs it")
    pictures = round(segment_s * _RATE)
    if abs(pictures - segment_s * _RATE) > 1e-9:
        raise PathcastError(
            f"got segments of {segment_s} s; expected whole pictures at {_RATE} a second"
        )
    command = [ffmpeg, "-hide_banner", "-loglevel", "error", "-nostdin", "-y"]
    command += ["-f", "lavfi", "-i", f"testsrc2=size={_SIZE}:rate={_RATE}"]
    sets = "id=0,streams=v"
    if audio_bps:
        command += ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=44100"]
        sets += " id=1,streams=a"
    command += ["-t", str(duration_s)]
    for number, bitrate in enumerate(bitrates_bps):
        command += [
            "-map",
            "0:v",
            f"-b:v:{number}",
            str(bitrate),
            f"-minrate:v:{number}",
            str(bitrate),
        ]
        command += [f"-maxrate:v:{number}", str(bitrate), f"-bufsize:v:{number}", str(bitrate)]
    command += ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"]
    command += ["-g", str(pictures), "-keyint_min", str(pictures), "-sc_threshold", "0"]
    # what the picture does not need is filled
    command += ["-x264-params", "nal-hrd=cbr"]
    if audio_bps:
        command += ["-map", "1:a", "-c:a", "aac", "-b:a", str(audio_bps)]
    command += [
        "-f",
        "dash",
        "-seg_duration",
        str(segment_s),
        "-use_template",
        "1",
        "-use_timeline",
        "0",
    ]
    command += ["-init_seg_name", "init-$RepresentationID$.mp4"]
    command += ["-media_seg_name", "chunk-$RepresentationID$-$Number$.m4s"]
    command += ["-adaptation_sets", sets, str(folder / "stream.mpd")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise PathcastError(f"ffmpeg fails: {done.stderr.strip()[-300:]}")
    return Stream(folder, manifests.read_manifest(folder / "stream.mpd").ladder, audio_bps)


def cache() -> FilePath:
    """The folder of what is fetched; `XDG_CACHE_HOME` has another place for it."""
    base = os.environ.get("XDG_CACHE_HOME") or FilePath.home() / ".cache"
    return FilePath(base) / "pathcast"


def dashjs() -> FilePath:
    """Return the script of dash.js; it is fetched by npm once, and checked.

    Raises:
        PathcastError: there is no npm or no network, or the package is another one.

    """
    name, version = DASHJS
    kept = cache() / f"{name}-{version}.js"
    if kept.exists():
        return kept
    npm = program("npm")
    if npm is None:
        raise PathcastError("there is no npm; `scripts/system-packages dash` installs it")
    with tempfile.TemporaryDirectory(prefix="pathcast-dashjs-") as folder:
        try:
            subprocess.run(  # noqa: S603 - the npm of this machine
                [npm, "pack", "--silent", f"{name}@{version}"],
                cwd=folder,
                check=True,
                capture_output=True,
                timeout=_FETCH_S,
            )
        except (subprocess.SubprocessError, OSError) as error:
            raise PathcastError(f"npm cannot fetch {name} {version}: {error}") from None
        package = FilePath(folder) / f"{name}-{version}.tgz"
        digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
        if digest != _INTEGRITY:
            raise PathcastError(
                f"got {name} {version} with SHA-512 {digest}; expected {_INTEGRITY}"
            )
        with tarfile.open(package) as archive:
            member = archive.extractfile(_SCRIPT)
            if member is None:
                raise PathcastError(f"{name} {version} has no {_SCRIPT}")
            content = member.read()
    make_folder(kept.parent)
    part = kept.with_suffix(".part")
    part.write_bytes(content)
    part.replace(kept)
    return kept
