"""The live page of the service, in Chromium."""

import re
import shutil
import subprocess

import pytest
from serving import samples, serving

CHROMIUM = shutil.which("chromium")
OPTIONS = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-proxy-server "
OPTIONS += "--virtual-time-budget=4000 --dump-dom"


@pytest.fixture(scope="module")
def service():
    if CHROMIUM is None:
        pytest.skip("there is no chromium; scripts/system-packages pages installs it")
    with serving() as one:
        one.post(samples())
        assert one.get("/v1/throughput?client=192.0.2.7")[0] == 200
        yield one


def shown(service, folder):
    """The page after some seconds, as HTML."""
    done = subprocess.run(
        [CHROMIUM, *OPTIONS.split(), f"--user-data-dir={folder}", service.base + "/"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_shows_decisions_and_how_they_fared(service, tmp_path):
    page = shown(service, tmp_path)
    assert "version" in re.search(r'id="state"[^>]*>([^<]*)', page)[1]
    assert re.search(r'id="problem"[^>]*></p>', page), "nothing is wrong"
    for text in ("throughput", "prefix 192.0.2.0/24", "No prefix has ten outcomes yet"):
        assert text in page
