"""A video of variable bit rate, as an application whose delays matter.

A stand-in for the movies of Lübben and Fidler, sections III-D and VII, whose traces are not public: frames of H.264 in
groups of 12 (I, then P with two B between), at 25 frames a second. Sizes are log-normal around the mean of their kind,
and of their scene; scenes last 4 s on average, and how much they move is log-normal too. That gives the two things
that a link feels: rhythm within a group, and busy scenes of seconds (Dai and Loguinov 2005 and the works that they
compare have both).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pathcast.exceptions import ProbingError

Floats = npt.NDArray[np.float64]

#: Kinds of frames of a group, in the order of coding.
_GROUP = "IPBBPBBPBBPB"
#: Mean sizes relative to each other.
_MEANS = {"I": 4.0, "P": 2.0, "B": 1.0}
#: Standard deviation of the logarithm of a frame's size, and of its scene's.
_OF_FRAME = 0.25
_OF_SCENE = 0.35
_SCENE_S = 4.0
_FRAMES_PER_S = 25.0


def video(mean_packets_per_s: float, packets: int, seed: int = 1) -> Floats:
    """When the packets of a video are written, in seconds from 0.

    The packets of a frame are written together. So many frames as `packets` take, scaled so that their mean
    rate is what is wanted.

    Args:
        mean_packets_per_s: above 25: frames have a packet or more.
        packets: how many, at least 1000.
        seed: of sizes and scenes.

    Raises:
        ProbingError: one of them is out of range.

    Example:
        >>> written_s = video(2000, 40_000)
        >>> len(written_s), bool(abs(40_000 / written_s[-1] / 2000 - 1) < 0.02)
        (40000, True)

    """
    if not _FRAMES_PER_S < mean_packets_per_s < math.inf:
        raise ProbingError(
            f"a video has more than {_FRAMES_PER_S:g} packets a second, got {mean_packets_per_s:g}"
        )
    if not 1000 <= packets <= 100_000_000:
        raise ProbingError(f"a video has 1,000 to 100,000,000 packets, got {packets}")
    rng = np.random.default_rng([seed, 0x766964])
    frames = math.ceil(packets / mean_packets_per_s * _FRAMES_PER_S)
    kinds = np.array([_MEANS[_GROUP[i % len(_GROUP)]] for i in range(frames)])
    moves, lasts = (np.array(column) for column in zip(*_scenes(rng, frames), strict=True))
    scene = np.repeat(moves, lasts)[:frames]
    sizes = kinds * scene * np.exp(_OF_FRAME * rng.standard_normal(frames))
    until = np.cumsum(sizes)
    counts = np.diff(np.round(until / until[-1] * packets).astype(int), prepend=0)
    return np.repeat(np.arange(frames) / _FRAMES_PER_S, counts)


def _scenes(rng: np.random.Generator, frames: int) -> list[tuple[float, int]]:
    """How much each scene moves, and its frames."""
    found, left = [], frames
    while left > 0:
        lasts = max(1, round(rng.exponential(_SCENE_S) * _FRAMES_PER_S))
        found.append((math.exp(_OF_SCENE * rng.standard_normal()), lasts))
        left -= lasts
    return found
