"""A client behind a path: for each line of standard input, an origin, it loads the page and prints a line of JSON."""

import json
import os
import sys
import time

from pathcast.experiments.pages.browser import Browser, BrowserError

#: A load that takes longer is given up, in seconds.
LONGEST_S = 60.0


def main():
    host = sys.argv[1]
    with Browser({host: os.environ["PATHCAST_BASE"]}) as browser:
        print(
            json.dumps({"browser": browser.version, "address": os.environ["PATHCAST_ADDRESS"]}),
            flush=True,
        )
        for line in sys.stdin:
            begin_s = time.time()
            try:
                load = browser.load(f"https://{line.strip()}/", LONGEST_S)
            except BrowserError as error:
                print(json.dumps({"error": str(error)}), flush=True)
                return 1
            # one connection is chosen as a whole, so a load has one protocol
            protocols = sorted(load.protocols)
            said = {
                "begin_s": begin_s,
                "load_ms": load.load_ms,
                "requests": load.requests,
                "protocol": protocols[0] if len(protocols) == 1 else " and ".join(protocols),
                "failed": list(load.failed),
            }
            print(json.dumps(said), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
