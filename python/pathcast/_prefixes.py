"""What limits the flows of each client prefix."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pathcast._limits import LIMITS, FlowLimits

#: Prefixes of clients: networks of this size are announced, and are in one place.
_BITS = {4: 24, 6: 48}
#: Limits that are not the network's: what the application does, and a path that is used to the full.
NOT_LOST = ("application", "idle", "path_rate")
#: A flow's name: from where to where, and what its source adds.
_NAME = re.compile(r".* -?> (?P<remote>[^ ]+)(?: \(.*\))?")


@dataclass(frozen=True)
class PrefixLimits:
    """What limits the flows to one prefix.

    Attributes:
        prefix: a /24 of IPv4 or a /48 of IPv6; empty: flows whose far end is not known.
        flows: how many were judged.
        bytes: payload that was acknowledged.
        seconds: seconds of all its flows by limit.
        lost_s: seconds in which a start, losses, a queue, a policer or the receiver's window kept flows below the rate of
            the path.
        limit: what took most of them; of all seconds if none were lost.

    """

    prefix: str
    flows: int
    bytes: int
    seconds: Mapping[str, float]
    lost_s: float
    limit: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return vars(self) | {"seconds": dict(self.seconds)}


def prefix_of(name: str) -> str:
    """The prefix of the far end of a flow, by its name in a trace; empty if that says no address.

    Example:
        >>> prefix_of("192.0.2.7:443 -> 198.51.100.23:5001 (socket 12)")
        '198.51.100.0/24'

    """
    found = _NAME.fullmatch(name)
    if not found:
        return ""
    address = _address(found["remote"]) or _address(found["remote"].rpartition(":")[0])
    if address is None:
        return ""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return str(ipaddress.ip_network(f"{address}/{_BITS[address.version]}", strict=False))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def by_prefix(flows: Iterable[tuple[str, int, FlowLimits]]) -> list[PrefixLimits]:
    """Sum up flows by the prefix of their far end, those that lost most time first.

    Args:
        flows: the name of each, its acknowledged bytes, and what limits it.

    """
    groups: dict[str, list[tuple[int, FlowLimits]]] = {}
    for name, count, found in flows:
        groups.setdefault(prefix_of(name), []).append((count, found))
    summed = []
    for prefix, members in groups.items():
        seconds = {
            limit: sum(found.duration_s * found.shares[limit] for _, found in members)
            for limit in LIMITS
        }
        lost = {limit: value for limit, value in seconds.items() if limit not in NOT_LOST}
        lost_s = sum(lost.values())
        among = lost if lost_s > 0.01 * sum(seconds.values()) else seconds
        summed.append(
            PrefixLimits(
                prefix,
                len(members),
                sum(count for count, _ in members),
                seconds,
                lost_s,
                max(among, key=lambda limit: among[limit]),
            )
        )
    return sorted(summed, key=lambda one: -one.lost_s)


__all__ = ["NOT_LOST", "PrefixLimits", "by_prefix", "prefix_of"]
