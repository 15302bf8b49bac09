"""Packet-delivery traces of mahimahi: whole milliseconds, one opportunity a line."""

from __future__ import annotations

from pathlib import Path

from .facts import Unusable, Usable

#: Payload and IP header of an opportunity; mahimahi carries 4 bytes of its device beside them.
PACKET_BYTES = 1500


def expected(file: Path) -> Usable | Unusable:
    """The mean rate; it repeats after its last moment."""
    lines = file.read_text(errors="replace").split()
    if not all(line.isdigit() for line in lines):
        return Unusable("no trace of mahimahi", ("whole number", "milliseconds", "expected"))
    times = [int(line) for line in lines]
    if not times or times != sorted(times) or times[-1] == 0:
        return Unusable("no times that rise", ("never falling", "more than 0", "empty"))
    return Usable({"rate_bps": len(times) * PACKET_BYTES * 8 / (times[-1] / 1e3)})


def found(file: Path, scratch: Path) -> dict[str, float]:
    """The rate of a path file that names the trace."""
    import pathcast

    (scratch / "link").write_bytes(file.read_bytes())
    path = scratch / "path.toml"
    path.write_text('rate = { kind = "mahimahi", file = "link" }\ndelay = "10 ms"\n')
    rate_bps = pathcast.Path.load(path).rate_bps
    return {} if rate_bps is None else {"rate_bps": rate_bps}
