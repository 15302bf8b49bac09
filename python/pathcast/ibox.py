"""Path profiles of iBox (Ashok et al., HotNets 2020): rate, buffer, delay and cross traffic learned from a packet trace.

A profile is JSON. Under `config.uplink` it has `bottleneck_bandwidth` (kbit/s), `buffer_size_packets` (of 1500 bytes),
`propagation_delay` (ms, one way) and `cross_traffic_pattern` (kbit/s in each second). The downlink has default values,
which were not learned.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from pathcast.exceptions import PathFileError
from pathcast.foreign import visible

#: Bytes of a packet as iBox counts a buffer, and of one of the competing traffic without and with its headers.
_PACKET_BYTES, _PAYLOAD_BYTES, _WIRE_BYTES = 1500, 1448, 1476
#: The longest pattern of cross traffic, in seconds; those that were published have 30.
_LONGEST_S = 3600
#: Largest values that are taken for serious: 1 Tbit/s, a million packets, a minute.
_MOST_KBPS, _MOST_PACKETS, _MOST_MS = 1e9, 1e6, 60_000


def to_toml(text: str, where: str) -> str:
    """Describe a profile as a path, or as a scenario whose flows are the cross traffic, if there is any.

    The cross traffic is UDP at a constant rate in each second and repeats after its last. It does not react to losses.
    The reverse direction has no limit of rate and no delay, as in the published profiles.

    Args:
        text: the profile.
        where: names it in errors.

    Raises:
        PathFileError: it is no profile, or has values out of range.

    """
    try:
        profile = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PathFileError(f"{where}: is no JSON: {error}") from None
    uplink = _uplink(profile, where)
    rate_kbps = _number(uplink, "bottleneck_bandwidth", 0.001, _MOST_KBPS, where)
    packets = _number(uplink, "buffer_size_packets", 1, _MOST_PACKETS, where)
    delay_ms = _number(uplink, "propagation_delay", 0, _MOST_MS, where)
    pattern = uplink.get("cross_traffic_pattern", [])
    if not isinstance(pattern, list) or len(pattern) > _LONGEST_S:
        raise PathFileError(
            f"{where}: cross_traffic_pattern: expected a list of at most {_LONGEST_S} rates in kbit/s"
        )
    cross = [
        _number({"cross_traffic_pattern": one}, "cross_traffic_pattern", 0, _MOST_KBPS, where)
        for one in pattern
    ]
    keys = (
        f"rate = '{rate_kbps * 1e3:.0f} bit/s'\ndelay = '{delay_ms * 1e6:.0f} ns'\n"
        f"queue = '{packets * _PACKET_BYTES:.0f} B'\n"
    )
    reverse = "rate = 'unlimited'\ndelay = '0 s'\n"
    name = f"name = {_toml(_name(profile))}\n"
    flows = "".join(_flows(cross))
    if not flows:
        return f"{name}{keys}[reverse]\n{reverse}"
    return f"{name}[links.uplink]\n{keys}[links.uplink.reverse]\n{reverse}{flows}"


def _uplink(profile: Any, where: str) -> dict[str, Any]:  # noqa: ANN401 - whatever the file has
    config = profile.get("config") if isinstance(profile, dict) else None
    uplink = config.get("uplink") if isinstance(config, dict) else None
    if not isinstance(uplink, dict):
        raise PathFileError(f"{where}: has no config.uplink; expected a network profile of iBox")
    return uplink


def _number(uplink: dict[str, Any], key: str, least: float, most: float, where: str) -> float:
    value = uplink.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return float(value)
    raise PathFileError(
        f"{where}: {key}: got {visible(repr(value)[:40])}, expected a number from {least:g} to {most:g}"
    )


def _name(profile: dict[str, Any]) -> str:
    """Where it was measured, in words."""
    place, peer, link = (
        str(profile.get(key) or "")[:60]
        for key in ("measurement_node", "peer_cloud_server", "link_type")
    )
    words = " ".join(part for part in (place, link) if part)
    return f"iBox: {words} to {peer}" if peer else f"iBox: {words}"


def _toml(text: str) -> str:
    return '"' + visible(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _flows(cross: list[float]) -> list[str]:
    """One UDP flow for each stretch of equal rate; each repeats after the whole pattern."""
    found, at = [], 0
    for rate_kbps, stretch in groupby(cross):
        seconds = len(list(stretch))
        rate_bps = rate_kbps * 1e3 * _PAYLOAD_BYTES / _WIRE_BYTES
        if rate_bps >= 1:
            rest = len(cross) - seconds
            sends = (
                f"kind = 'on-off', on = '{seconds} s', off = '{rest} s', rate = '{rate_bps:.0f} bit/s'"
                if rest
                else f"kind = 'constant-rate', rate = '{rate_bps:.0f} bit/s'"
            )
            found.append(f"[[flows]]\nscheme = 'udp'\nstart = '{at} s'\nworkload = {{ {sends} }}\n")
        at += seconds
    return found
