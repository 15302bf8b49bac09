"""What players say of their network by CMCD (CTA-5004), as samples for the service."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote_plus

#: A line of a log is no longer.
MOST_BYTES = 65_536
#: Values are tokens, numbers, or strings in quotes; a key alone means true.
_PAIR = re.compile(r'([A-Za-z][A-Za-z0-9.-]*)(?:=("(?:[^"\\]|\\.)*"|[^,"]*))?(?:,|$)')
#: Fields of a log that may hold CMCD: the query argument, and the headers.
_FIELDS = ("cmcd", "cmcd_request", "cmcd_object", "cmcd_status", "cmcd_session")


def parse(text: str) -> dict[str, str | bool]:
    """Read the value of a CMCD header or query argument, decoded or not; what is no pair is left out.

    Example:
        >>> parse('bl=21300,mtp=25400,bs,sid="a,b"')
        {'bl': '21300', 'mtp': '25400', 'bs': True, 'sid': 'a,b'}
        >>> parse("mtp%3D25400%2Cot%3Dv")
        {'mtp': '25400', 'ot': 'v'}

    """
    if "%" in text and "=" not in text:
        text = unquote_plus(text)
    found: dict[str, str | bool] = {}
    place = 0
    while place < len(text):
        pair = _PAIR.match(text, place)
        if pair is None:
            # the rest after the next comma may be valid
            comma = text.find(",", place)
            place = len(text) if comma < 0 else comma + 1
            continue
        key, value = pair.groups()
        if value is None:
            found[key] = True
        else:
            found[key] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value[:1] == '"' else value.strip()
        place = max(pair.end(), place + 1)
    return found


def sample_of(line: str | bytes) -> dict[str, Any] | None:
    """Return the sample that a line of a server's log means; None if its player measured nothing.

    Args:
        line: JSON with `client`, `time_s` (seconds since 1970) and one or several of `cmcd` (the query argument),
            `cmcd_request`, `cmcd_object`, `cmcd_status` and `cmcd_session` (the headers).

    Returns:
        `client`, `time_s` and `rate_bps`: `mtp`, the throughput that the player measured, in kbit/s.

    Example:
        >>> sample_of('{"client": "192.0.2.7", "time_s": 1.5, "cmcd": "mtp%3D25400"}')
        {'client': '192.0.2.7', 'rate_bps': 25400000.0, 'time_s': 1.5}

    """
    if len(line) > MOST_BYTES:
        return None
    try:
        logged = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(logged, dict) or not isinstance(logged.get("client"), str):
        return None
    said: dict[str, str | bool] = {}
    for name in _FIELDS:
        if isinstance(logged.get(name), str):
            said |= parse(logged[name])
    rate_kbps = _number(said.get("mtp"))
    if rate_kbps is None or not 0 < rate_kbps < 1e9:
        return None
    sample = {"client": logged["client"], "rate_bps": 1e3 * rate_kbps}
    time_s = _number(logged.get("time_s"))
    return sample if time_s is None else sample | {"time_s": time_s}


def samples_of(lines: Iterable[str | bytes]) -> list[dict[str, Any]]:
    """Return the samples of a log, without those that repeat the client's last measurement.

    A player sends the same `mtp` until it has measured again, and with each request for audio and video.
    """
    found = []
    last: dict[str, float] = {}
    for line in lines:
        sample = sample_of(line)
        if sample is not None and last.get(sample["client"]) != sample["rate_bps"]:
            last[sample["client"]] = sample["rate_bps"]
            found.append(sample)
    return found


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
