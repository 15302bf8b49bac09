"""The examples that are folders: each runs by one command, and what it claims holds."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from conftest import IN_CI, ROOT


def run_example(name, needs, *options, timeout=900):
    """The JSON of an example; skips where a program is missing, and says which."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [one for one in (*needs, "unshare", "ip") if shutil.which(one, path=path) is None]
    if missing:
        pytest.skip(f"there is no {', '.join(missing)}; `scripts/system-packages` installs them")
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes a network namespace")
    done = subprocess.run(
        [ROOT / "examples" / name / "run", "--json", *map(str, options)],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
    if "npm cannot fetch" in done.stderr and not IN_CI:
        pytest.skip("npm cannot fetch dash.js: no network")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


@pytest.mark.full
def test_clients_get_the_version_of_http_that_is_best_for_their_path(emulator):
    needs = ("haproxy", "nginx", "chromium", "openssl", "curl")
    found = run_example("http-version", needs, "--loads", 3, "--requests", 2000)
    for path, protocol in (("clean", "h2"), ("lossy", "http/1.1")):
        assert found["learned"][path]["protocol"] == protocol
        assert found["learned"][path]["after_s"] <= 60
        assert found["steered_by"][path] == {protocol: 3}
    assert found["learned"]["lossy"]["loads"][0] == "h2", "an unknown client has the default"
    small = found["small_requests"]
    assert (small["requests"], small["failed"]) == (2000, 0)
    assert small["map_changes"] > 10 and min(small["by_protocol"].values()) > 0
    assert found["page_requests_failed"] == 0


@pytest.mark.full
def test_a_player_takes_what_the_server_says(emulator):
    found = run_example("video-cmsd", ("nginx", "chromium", "ffmpeg", "npm"), "--seconds", 15)
    assert all(found["claims"].values()), found


def test_examples_say_what_they_lack(tmp_path):
    """Without programs nothing starts."""
    for name in ("http-version", "video-cmsd"):
        done = subprocess.run(
            [sys.executable, "-P", ROOT / "examples" / name / "experiment.py"],
            env={**os.environ, "PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 2, done.stderr
        assert "lacks" in done.stderr and "chromium" in done.stderr
        wrong = subprocess.run(
            [sys.executable, "-P", ROOT / "examples" / name / "experiment.py", "--seed", "x"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert wrong.returncode == 2
