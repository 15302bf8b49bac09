"""How long it takes to give a running server other knobs of TCP, as the learner's emulated loads do.

usage: benches/reconfigure.py [--changes N]    as root, on Linux

Each change sets the congestion control and the initial window of a route and slow start after idle of a network namespace,
and reads all three back. A server of each template in a namespace of its own is started anew beside, as pools need it.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from pathcast.control.learn.grid import Condition
from pathcast.experiments.pages import server

KNOBS = [
    {"congestion_control": "bbr", "initial_window": 40, "slow_start_after_idle": False},
    {"congestion_control": "cubic", "initial_window": 10, "slow_start_after_idle": True},
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--starts", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "site").mkdir()
        (folder / "site" / "index.html").write_text("<!doctype html><title>page</title>")
        path = Condition(100, 20, 0).path()
        starts, changes = [], []
        for number in range(options.starts):
            work = folder / str(number)
            work.mkdir()
            began = time.perf_counter()
            with server.serving(folder / "site", path, "cubic", work, 1, knobs=True) as served:
                starts.append(time.perf_counter() - began)
                for change in range(options.changes // options.starts):
                    began = time.perf_counter()
                    served.set_knobs(**KNOBS[change % 2])
                    changes.append(time.perf_counter() - began)
    print(
        json.dumps(
            {
                "change_ms": shown(changes),
                "start_ms": shown(starts),
                "changes": len(changes),
                "starts": len(starts),
            }
        )
    )


def shown(seconds):
    """Median and greatest, in milliseconds."""
    return {"median": round(1e3 * statistics.median(seconds), 1), "max": round(1e3 * max(seconds), 1)}


if __name__ == "__main__":
    main()
