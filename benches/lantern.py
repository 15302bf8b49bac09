"""Lantern, the simulator in Lighthouse, beside Pathcast: the same pages, each as static files of one server.

    npm install --prefix FOLDER --ignore-scripts lighthouse@12.8.2
    .venv/bin/python benches/lantern.py --lantern FOLDER PAGE.har...

Lantern knows rate and round-trip time, and no losses: its choice between HTTP/1.1 and HTTP/2 is one for all of them. Prints both
tools' times over 20 Mbit/s and 50 ms for several losses, and the choice of each. `pathcast benchmark pages` measures.
"""

import argparse
import json
import subprocess
from pathlib import Path

import pathcast

LOSSES = (0.0, 0.003, 0.01)
RATE_KBPS, RTT_MS = 20_000, 50
PATH = (
    f"rate = '{RATE_KBPS} kbit/s'\ndelay = '{RTT_MS / 2:g} ms'\nqueue = '500 kB'\n"
    "loss = {loss}\n[reverse]\nloss = 0.0\n"
)
TCP = ("http/1.1", "h2")
#: What a server of static files takes to answer; Lantern takes 0 for 30 ms.
SERVER_MS = 1
TYPES = {
    "document": "Document",
    "stylesheet": "Stylesheet",
    "script": "Script",
    "image": "Image",
    "font": "Font",
    "fetch": "Fetch",
    "media": "Media",
    "other": "Other",
}
PRIORITIES = {
    "highest": "VeryHigh",
    "high": "High",
    "medium": "Medium",
    "low": "Low",
    "lowest": "VeryLow",
}


def lantern(folder, page):
    """What Lantern says, in ms by protocol."""
    resources = []
    for number, one in enumerate(page.resources):
        causes = [cause["resource"] for cause in one["causes"] if "resource" in cause]
        resources.append(
            {
                "url": one["url"],
                "type": TYPES[one["type"]],
                "priority": PRIORITIES[one["priority"]],
                "bytes": one["body_bytes"] + one["header_bytes"],
                "parent": max(causes, default=0) if number else None,
            }
        )
    given = {"rtt_ms": RTT_MS, "kbps": RATE_KBPS, "server_ms": SERVER_MS, "resources": resources}
    script = Path(__file__).with_suffix(".mjs")
    done = subprocess.run(
        ["node", str(script), folder], input=json.dumps(given), capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{page.file}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--lantern", required=True, metavar="FOLDER")
    options.add_argument("--scheme", default="cubic")
    options.add_argument("pages", nargs="+")
    given = options.parse_args()
    losses = " | ".join(f"loss {loss:g}: h1, h2, choice" for loss in LOSSES)
    print(f"| page | Lantern: h1, h2, choice | {losses} |")
    print("|---" * (2 + len(LOSSES)) + "|")
    for file in given.pages:
        page = pathcast.Page.load(file).as_replica()
        said = lantern(given.lantern, page)
        cells = [", ".join(f"{said[name]:.0f}" for name in TCP) + f", {min(TCP, key=said.get)}"]
        for loss in LOSSES:
            path = pathcast.Path.parse(PATH.format(loss=loss))
            found = pathcast.predict_page(page, path, scheme=given.scheme, protocols=TCP, loads=100)
            times = ", ".join(f"{found.loads[name].plt_ms:.0f}" for name in TCP)
            cells.append(f"{times}, {found.choice}")
        print(f"| {page.name or Path(file).stem} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
