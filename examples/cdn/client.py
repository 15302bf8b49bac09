"""A client behind an emulated path: loads pages, or requests one object again and again.

    python client.py loads SECONDS | requests NUMBER

Each line on standard output is JSON: `at` (seconds since 1970), and `ms` of a load or `done` and `failed` requests.
"""

import concurrent.futures
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time

SERVER = os.environ["PATHCAST_BASE"]
OBJECTS = 16
#: A connection is used for so many requests, so that many begin while maps are swapped.
REQUESTS_OF_A_CONNECTION = 20
WORKERS = 4
#: As browsers have to one host.
CONNECTIONS = "6"


def say(**what):
    print(json.dumps({"at": time.time()} | what), flush=True)


def curl(*words):
    base = ["curl", "--silent", "--insecure", "--http2", "--max-time", "60", "--fail"]
    quiet = subprocess.DEVNULL
    return subprocess.run([*base, *words], stdout=quiet, stderr=quiet, check=False).returncode == 0


def loads(seconds):
    """Load a page after another; each on new connections, with a beacon of how long it took."""
    end = time.monotonic() + seconds
    names = ["index.html", *(f"{number}.bin" for number in range(OBJECTS))]
    urls = [f"https://{SERVER}/{name}" for name in names]
    while time.monotonic() < end:
        begin = time.monotonic()
        fine = curl(
            "--parallel",
            "--parallel-max",
            CONNECTIONS,
            *(word for url in urls for word in ("--output", "/dev/null", url)),
        )
        ms = (time.monotonic() - begin) * 1000
        curl(f"https://{SERVER}/beacon?load_ms={ms:.1f}")
        say(ms=ms, failed=int(not fine))


def requests(number):
    """Send this many requests over many connections; any failure counts."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def some(count):
        done = failed = 0
        while done < count:
            connection = http.client.HTTPSConnection(SERVER, timeout=20, context=context)
            try:
                for _ in range(min(REQUESTS_OF_A_CONNECTION, count - done)):
                    done += 1
                    connection.request("GET", "/small.bin")
                    answer = connection.getresponse()
                    failed += answer.status != 200 or len(answer.read()) != 1000
            except (OSError, http.client.HTTPException):
                failed += 1
            finally:
                connection.close()
        return done, failed

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        results = list(pool.map(some, [number // WORKERS] * WORKERS))
    say(done=sum(done for done, _ in results), failed=sum(failed for _, failed in results))


if __name__ == "__main__":
    # curl ends with this program
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    {"loads": loads, "requests": requests}[sys.argv[1]](int(sys.argv[2]))
