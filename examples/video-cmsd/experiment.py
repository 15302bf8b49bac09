"""A player behind a path is told by CMSD what its path carries, and tells by CMCD what it measured.

    examples/video-cmsd/run [--json] [--seconds S] [--seed N]

nginx serves a stream of eight bitrates, and adds CMSD-Dynamic to each segment from the service's answer for the client.
dash.js plays it in Chromium behind an emulated path. Three sessions: with samples of what dash.js says by CMCD; with samples
of the kernel; and while the service is away. Exit code 1: a claim does not hold.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

from pathcast.experiments.pages import player
from pathcast.experiments.pages.replica import HOST
from pathcast.experiments.pages.rig import Rig, end, enter_namespace, missing, pathcast, use_scheme
from pathcast.experiments.pages.stream import dashjs, make_stream

HERE = Path(__file__).parent
NEEDED = ("nginx", "chromium", "ffmpeg", "npm")
#: Of the versions; nginx.conf has them with the audio's.
BITRATES_BPS = (300_000, 500_000, 800_000, 1_200_000, 1_800_000, 2_600_000, 3_600_000, 5_000_000)
AUDIO_BPS = 32_000
SEGMENT_S, VIDEO_S = 2.0, 120.0
PORT = 8000
SETTINGS = {
    "cmcd": {"enabled": True, "mode": "query", "sid": "example"},
    "cmsd": {"enabled": True, "abr": {"applyMb": True, "etpWeightRatio": 0.5}},
}
#: Segments at the end of a session that are looked at.
LAST = 5


def session(client, seconds, settings=SETTINGS):
    """Play from the start; what the player did."""
    client.ask(json.dumps({"open": f"http://{HOST}:{PORT}/player.html", "streaming": settings}))
    log = client.ask(json.dumps({"wait": seconds}))
    client.ask(json.dumps({"close": True}))
    said = [one for one in log["segments"] if one["cmsd"]]
    last = log["segments"][-LAST:]
    return {
        "segments": len(log["segments"]),
        "with_cmsd": len(said),
        "last_cmsd": said[-1]["cmsd"] if said else None,
        "bitrates_bps": [one["bitrate_bps"] for one in log["segments"]],
        "last_bitrates_bps": [one["bitrate_bps"] for one in last],
        # as the segment before had it
        "over_mb": sum(over(before, one) for before, one in pairwise(last)),
        "rates_bps": rates(log["segments"]),
        "stalls": log["stalls"],
        "errors": log["errors"],
    }


def over(before, segment):
    """Whether a segment is of a higher bitrate than the answer before allowed."""
    said = before["cmsd"] or {}
    return "mb" in said and segment["bitrate_bps"] + AUDIO_BPS > 1e3 * said["mb"]


def rates(segments):
    """Each segment's size over the time from its request to its last byte."""
    return [round(8e3 * one["bytes"] / max(one["end_ms"] - one["begin_ms"], 1)) for one in segments]


def play(given):
    with Rig.made() as made:
        www = made.folder / "www"
        www.mkdir()
        make_stream(www, BITRATES_BPS, SEGMENT_S, VIDEO_S, AUDIO_BPS)
        (www / "dash.js").symlink_to(dashjs())
        (www / "player.html").symlink_to(Path(player.__file__).with_name("player.html"))
        made.nginx(HERE / "nginx.conf")
        serving = made.serve('scheme = "cubic"\n')
        client = made.client(
            HERE / "path.toml", given.seed, [sys.executable, "-P", player.__file__, HOST]
        )
        use_scheme("cubic")
        found = {"browser": client.first["browser"], "kernel": os.uname().release}
        found["load_average"] = os.getloadavg()[0]
        address = client.first["address"]
        log = made.folder / "cmcd.log"
        sending = made.start(
            "feed", pathcast("feed", made.service.url, "--cmcd-log", log, "--every", 1)
        )
        found["by_cmcd"] = session(client, given.seconds)
        end(sending)
        # the service compares what it learned with what the player measured
        found["learned_from_cmcd"] = answer(made, address)
        sending = made.start(
            "feed", pathcast("feed", made.service.url, "--local-port", PORT, "--every", 1)
        )
        found["by_kernel"] = session(client, given.seconds)
        end(sending)
        found["learned"] = answer(made, address)
        end(serving)
        found["without_service"] = session(client, min(given.seconds, 10.0))
        found["cmcd_lines"] = Counter("mtp" in line for line in log.read_text().splitlines())[True]
        found["path_invalid"] = client.end().get("invalid_because", [])
        found["claims"] = claims(found)
        return found


def answer(made, address):
    """What the service answers about the client."""
    status, said = made.service.request(
        "GET", f"/v1/bitrate?client={address}&segment_s={SEGMENT_S:g}"
    )
    return said if status == 200 else None


def claims(found):
    """What is claimed, and whether it holds."""
    kernel, away = found["by_kernel"], found["without_service"]
    learned = found["learned_from_cmcd"]
    return {
        "what dash.js measures comes to the service by CMCD": learned is not None
        and 1e6 < learned["features"]["rate_bps"] < 4.4e6,
        "dash.js reads mb and etp of each segment": kernel["with_cmsd"]
        >= 0.9 * kernel["segments"]
        > 0
        and {"mb", "etp"} <= set(kernel["last_cmsd"] or {}),
        "dash.js takes no bitrate above mb": kernel["over_mb"] == 0,
        "without the service, segments come without the header": away["segments"] > 0
        and away["with_cmsd"] == 0
        and not away["errors"],
    }


def show(found):
    for name in ("by_cmcd", "by_kernel", "without_service"):
        one = found[name]
        print(
            f"{name}: {one['segments']} segments, {one['with_cmsd']} with CMSD, the last {one['last_cmsd']}; "
            f"last bitrates {', '.join(f'{rate / 1e3:.0f}' for rate in one['last_bitrates_bps'])} kbit/s; "
            f"{one['stalls']} stalls"
        )
    print(f"{found['cmcd_lines']} requests had a measurement by CMCD")
    for claim, holds in found["claims"].items():
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {claim}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seconds", type=float, default=30.0, help="of a session; default 30")
    parser.add_argument("--seed", type=int, default=1, help="of the path; default 1")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not 5 <= given.seconds <= 90:
        parser.error("expected 5 to 90 seconds: the video has two minutes")
    if lacks := missing(NEEDED):
        print(
            f"this machine lacks {', '.join(lacks)}; scripts/system-packages dash and pages install programs",
            file=sys.stderr,
        )
        return 2
    if not given.inside:
        # where there may be a network: the namespace has none
        dashjs()
        enter_namespace("--inside")
    begin_s = time.monotonic()
    found = play(given)
    found["seconds"] = round(time.monotonic() - begin_s, 1)
    if given.json:
        print(json.dumps(found))
    else:
        show(found)
    return int(not all(found["claims"].values()))


if __name__ == "__main__":
    sys.exit(main())
