"""dash.js in Chromium, behind a path: for each line of standard input a command in JSON, a line of JSON out.

```text
{"open": URL, "streaming": SETTINGS}   plays the stream whose player.html is at the URL; closes the one before
{"wait": SECONDS, "segments": N}       waits so long, or until so many segments came; what the player did so far
{"close": true}                        closes it
```
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any
from urllib.parse import quote

from pathcast.exceptions import PathcastError
from pathcast.experiments.pages.browser import Browser, Tab

#: How long the page with the player may take to load, in seconds.
_LOAD_S = 60.0
_EVERY_S = 0.25


def main(host: str) -> int:
    """Obey standard input until it ends."""
    with Browser({host: os.environ["PATHCAST_BASE"]}) as browser:
        _say({"browser": browser.version, "address": os.environ["PATHCAST_ADDRESS"]})
        tab: Tab | None = None
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                if tab is not None and ("open" in asked or "close" in asked):
                    tab.close()
                    tab = None
                if "open" in asked:
                    settings = quote(json.dumps({"streaming": asked.get("streaming", {})}))
                    tab = browser.open(f"{asked['open']}#{settings}", _LOAD_S)
                    _say({})
                elif "wait" in asked and tab is not None:
                    _say(_wait(tab, float(asked["wait"]), int(asked.get("segments", 1 << 30))))
                else:
                    _say({})
            except PathcastError as error:
                _say({"error": str(error)})
                return 1
    return 0


def _wait(tab: Tab, seconds: float, segments: int) -> dict[str, Any]:
    end_s = time.monotonic() + seconds
    while True:
        time.sleep(_EVERY_S)
        count = int(tab.evaluate("log.segments.length"))
        if count >= segments or time.monotonic() > end_s:
            found: dict[str, Any] = json.loads(tab.evaluate("JSON.stringify(log)"))
            return found


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
