"""libtorrent's uTP as a scheme: `ledbat.py receive|send ADDRESS:PORT [--bytes N]`.

The sender seeds a torrent of zeros, the receiver downloads it, over uTP alone. All files of the torrent are links to one
file, so that neither end needs space for what crosses.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

_PIECE_BYTES = 1 << 20
_FILE_BYTES = 32 << 20
#: What a flow without end would take hours for, at a gigabit per second.
_ENDLESS_BYTES = 64 << 30
_NAME = "zeros"
_TURN_S = 0.05

_SETTINGS: dict[str, Any] = {
    "user_agent": "pathcast",
    "enable_outgoing_tcp": False,
    "enable_incoming_tcp": False,
    "enable_outgoing_utp": True,
    "enable_incoming_utp": True,
    "enable_dht": False,
    "enable_lsd": False,
    "enable_upnp": False,
    "enable_natpmp": False,
    # no limits but uTP's own
    "rate_limit_utp": False,
    "download_rate_limit": 0,
    "upload_rate_limit": 0,
    "unchoke_slots_limit": 8,
    "max_out_request_queue": 4000,
    "max_allowed_in_request_queue": 4000,
    "request_queue_time": 10,
    "send_buffer_watermark": 16 << 20,
    "send_buffer_low_watermark": 1 << 20,
    "max_queued_disk_bytes": 64 << 20,
    # the zeros of all pieces lie in one place
    "disable_hash_checks": True,
    "in_enc_policy": 2,
    "out_enc_policy": 2,
    # LEDBAT's target: libtorrent's default, that of BEP 29
    "utp_target_delay": 100,
    "alert_mask": 0,
    # so that the sender sees that the receiver has everything
    "close_redundant_connections": False,
}
#: Counters of a session that tell uTP from TCP.
_COUNTS = ("utp.utp_payload_pkts_out", "peer.num_utp_peers", "peer.num_tcp_peers")

_stopped = False


def _stop(_number: int, _frame: FrameType | None) -> None:
    global _stopped
    _stopped = True


def _torrent(total: int) -> dict[bytes, Any]:
    """A torrent of so many zeros, of version 1."""
    whole, rest = divmod(total, _FILE_BYTES)
    sizes = [_FILE_BYTES] * whole + ([rest] if rest else [])
    full, last = divmod(total, _PIECE_BYTES)
    pieces = hashlib.sha1(bytes(_PIECE_BYTES)).digest() * full  # noqa: S324 - BitTorrent's
    pieces += hashlib.sha1(bytes(last)).digest() if last else b""  # noqa: S324
    files = [{b"length": size, b"path": [b"%d" % number]} for number, size in enumerate(sizes)]
    info = {
        b"name": _NAME.encode(),
        b"piece length": _PIECE_BYTES,
        b"pieces": pieces,
        b"files": files,
    }
    return {b"info": info}


def _add(libtorrent: Any, session: Any, total: int, seeds: bool) -> Any:  # noqa: ANN401
    """Add the torrent, of which one end has everything and the other one nothing."""
    torrent = _torrent(total)
    place = Path.home() / f"libtorrent-{'sender' if seeds else 'receiver'}"
    folder = place / _NAME
    folder.mkdir(parents=True)
    store = place / "store"
    with store.open("wb") as file:
        file.truncate(min(total, _FILE_BYTES))
    for number in range(len(torrent[b"info"][b"files"])):
        (folder / str(number)).symlink_to(store)
    flags = libtorrent.torrent_flags
    wished = libtorrent.add_torrent_params()
    wished.ti = libtorrent.torrent_info(torrent)
    wished.save_path = str(place)
    wished.flags = flags.no_verify_files | (flags.seed_mode if seeds else flags.sequential_download)
    return session.add_torrent(wished)


def receive(address: str, total: int) -> dict[str, object]:
    """Download until SIGTERM."""
    import libtorrent

    session = libtorrent.session(_SETTINGS | {"listen_interfaces": address})
    handle = _add(libtorrent, session, total or _ENDLESS_BYTES, seeds=False)
    while not _stopped and not session.is_listening():
        time.sleep(_TURN_S)
    print("listening", flush=True)
    began = last = 0.0
    received = 0
    while not _stopped:
        time.sleep(_TURN_S)
        status = handle.status()
        got = status.total_done if total else status.total_payload_download
        if got > received:
            last = time.monotonic()
            began = began or last
            received = got
    return {"received_bytes": received, "seconds": last - began}


def _counts(libtorrent: Any, session: Any, before: dict[str, int]) -> dict[str, int]:  # noqa: ANN401
    """The session's counters, each at its largest so far."""
    session.post_session_stats()
    counted = dict(before)
    for alert in session.pop_alerts():
        if isinstance(alert, libtorrent.session_stats_alert):
            for name in _COUNTS:
                counted[name] = max(counted.get(name, 0), alert.values[name])
    return counted


def send(address: str, total: int) -> dict[str, object]:
    """Seed until SIGTERM, or until the receiver has everything."""
    import libtorrent

    session = libtorrent.session(_SETTINGS | {"listen_interfaces": "0.0.0.0:0"})
    handle = _add(libtorrent, session, total or _ENDLESS_BYTES, seeds=True)
    while not _stopped and not session.is_listening():
        time.sleep(_TURN_S)
    host, _, port = address.rpartition(":")
    handle.connect_peer((host, int(port)))
    counted: dict[str, int] = {}
    done = False
    while not _stopped and not done:
        time.sleep(_TURN_S)
        done = total > 0 and any(peer.progress >= 1 for peer in handle.get_peer_info())
        counted = _counts(libtorrent, session, counted)
    sent = handle.status().total_payload_upload
    settings = session.get_settings()
    packets, utp, tcp = (counted.get(name, 0) for name in _COUNTS)
    evidence = (
        f"libtorrent {libtorrent.__version__}: {packets} packets of data over uTP, peers over uTP {utp}, over TCP "
        f"{tcp}; utp_target_delay {settings['utp_target_delay']} ms, enable_outgoing_tcp "
        f"{settings['enable_outgoing_tcp']}"
    )
    over_utp = packets > 0 and utp > 0 and tcp == 0
    return {
        # uTP has no other
        "controller": "ledbat" if over_utp else "unknown",
        "evidence": evidence,
        "sent_bytes": sent,
    }


def main() -> None:
    """Do what the command line says."""
    signal.signal(signal.SIGTERM, _stop)
    role, address, *rest = sys.argv[1:]
    total = int(rest[1]) if rest[:1] == ["--bytes"] else 0
    result = receive(address, total) if role == "receive" else send(address, total)
    print(json.dumps(result), flush=True)
    # sessions take seconds to say goodbye to trackers that there are none of
    import os

    os._exit(0)


if __name__ == "__main__":
    main()
