"""ECON's section 6.2 again: the latency of 500 objects from nginx through the emulator, beside both engines' forecasts.

    .venv/bin/python benches/econ_objects.py [--loads N] [--forecasts N] [--size BYTES]... [--loss P]... [--path RATE,RTT_MS]...

curl is the client (Linux; root): over HTTP/1.1 with six connections that each take the next object, over HTTP/2 with one
connection and at most 100 streams. curl requests all objects immediately; the latency ends when the last one has arrived. The paper's
mean error is 3.0 % by HTTP/1.1 and 7.4 % by HTTP/2; its objects are of 10 kB, 100 kB and 1 MB, its losses 5e-5 to 5e-4.
"""

import argparse
import itertools
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import pathcast
from pathcast.experiments.pages import server

COUNT = 500
#: As nginx and curl send them.
HEADERS = "request = '100 B'\nheader = '240 B'\n"
PROTOCOLS = {
    "http/1.1": ["--http1.1", "--parallel-max", "6"],
    "h2": ["--http2", "--parallel-max", "100"],
}
PATH = "rate = '{rate}'\ndelay = '{delay_ms:g} ms'\nqueue = '500 kB'\nloss = {loss}\n[reverse]\nloss = 0.0\n"
LONGEST_S = 900


def page(size):
    objects = (
        f"[[resources]]\nurl = 'https://{server.HOST}/{number}'\ntype = 'stylesheet'\nsize = '{size} B'\n{HEADERS}after = []\n"
        for number in range(COUNT)
    )
    return pathcast.Page.parse("".join(objects))


def latency_s(served, protocol, work):
    """All objects by curl; curl's own start is not in it."""
    endpoint = server.ENDPOINTS[protocol]
    listed = work / "urls"
    listed.write_text(
        "".join(
            f'url = "https://{endpoint.origin}/object"\noutput = "/dev/null"\n'
            for _ in range(COUNT)
        )
    )
    command = [
        *(
            shutil.which("curl"),
            "--silent",
            "--fail",
            "--insecure",
            "--parallel",
            *PROTOCOLS[protocol],
        ),
        *("--resolve", f"{endpoint.origin}:{served.address}", "--config", str(listed)),
    ]
    began = time.monotonic()
    # it shows progress of parallel transfers whatever it is asked for
    subprocess.run(command, check=True, timeout=LONGEST_S, stderr=subprocess.DEVNULL)
    took = time.monotonic() - began
    began = time.monotonic()
    subprocess.run([command[0], "--version"], check=True, capture_output=True)
    return took - (time.monotonic() - began)


def measured_s(size, path, loads):
    """Latencies by protocol; runs that the emulator calls invalid are made again."""
    found = {name: [] for name in PROTOCOLS}
    seed = 0
    while any(len(those) < loads for those in found.values()):
        seed += 1
        if seed > 3 * loads:
            break
        with tempfile.TemporaryDirectory() as folder:
            root, work = Path(folder) / "www", Path(folder) / "work"
            root.mkdir()
            work.mkdir()
            # root alone may enter a temporary folder
            (root / "object").write_bytes(b"x" * size)
            with server.serving(root, path, "cubic", work, seed) as served:
                took = {name: latency_s(served, name, work) for name in PROTOCOLS}
            if not served.report["invalid_because"]:
                for name, one in took.items():
                    found[name].append(one)
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--loads", type=int, default=3)
    parser.add_argument("--forecasts", type=int, default=40)
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--loss", type=float, action="append")
    parser.add_argument("--path", action="append", help="such as 100,50: Mbit/s and ms")
    given = parser.parse_args()
    errors = {(engine, name): [] for engine in ("simulator", "model") for name in PROTOCOLS}
    print(
        "| size, kB | Mbit/s, ms | loss | HTTP/1.1: measured, simulator, model, s | HTTP/2: measured, simulator, model, s |"
    )
    print("|---|---|---|---|---|")
    for over, size, loss in itertools.product(
        given.path or ["100,50"],
        given.size or [10_000, 100_000, 1_000_000],
        given.loss or [5e-5, 5e-4],
    ):
        rate, rtt_ms = map(float, over.split(","))
        path = pathcast.Path.parse(
            PATH.format(rate=f"{rate:g} Mbit/s", delay_ms=rtt_ms / 2, loss=loss)
        )
        found = measured_s(size, path, given.loads)
        cells = []
        for name in PROTOCOLS:
            median = statistics.median(found[name]) if found[name] else float("nan")
            cell = [
                f"{median:.2f} ({min(found[name]):.2f} to {max(found[name]):.2f})"
                if found[name]
                else "none"
            ]
            for engine in ("simulator", "model"):
                forecast = pathcast.predict_page(
                    page(size), path, protocols=[name], loads=given.forecasts, engine=engine
                )
                took = forecast.loads[name].plt_ms / 1e3
                errors[engine, name].append(abs(took / median - 1))
                cell.append(f"{took:.2f}")
            cells.append(", ".join(cell))
        print(
            f"| {size / 1e3:g} | {rate:g}, {rtt_ms:g} | {loss:g} | {' | '.join(cells)} |",
            flush=True,
        )
    for (engine, name), those in errors.items():
        print(
            f"{engine}, {name}: mean error {statistics.mean(those):.1%}, median {statistics.median(those):.1%}"
        )


if __name__ == "__main__":
    main()
