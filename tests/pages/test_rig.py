"""Programs that experiments start in a namespace end with them, whatever ends these."""

import os
import signal
import subprocess
import sys

import pytest

from conftest import processes_that_name, wait_until
from pathcast.experiments.pages import rig

MADE = """
import sys
from pathlib import Path
from pathcast.experiments.pages.rig import Rig

with Rig.made() as made:
    made.start("sleeper", [sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]])
    command = [sys.executable, "-c", "print(1, flush=True); import time; time.sleep(600)", sys.argv[1]]
    made.client(Path(sys.argv[2]), 1, command)
    print("made", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_no_program_outlives_the_experiment(emulator, tmp_path, by):
    del emulator
    if missing := rig.missing([]):
        pytest.skip(f"there is no {', '.join(missing)}")
    path, mark = tmp_path / "path.toml", f"{tmp_path}/mark"
    path.write_text("rate = '10 Mbit/s'\ndelay = '10 ms'\n")
    command = ["unshare", "--net", sys.executable, "-P", "-c", MADE, mark, str(path)]
    made = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert made.stdout.readline() == "made\n"
    # this one, the sleeper, and the shell with its client
    assert len(processes_that_name(mark)) >= 4
    made.send_signal(by)
    made.wait(30)
    made.stdin.close()
    wait_until(lambda: not processes_that_name(mark), "the end of its programs", 30)


CLIENT = """
import sys, tempfile, time
with tempfile.TemporaryDirectory(prefix="profile-"):
    print(1, flush=True)
    sys.stdin.read()
    time.sleep(0.5)
"""
MADE_AND_ENDED = """
import sys
from pathlib import Path
from pathcast.experiments.pages.rig import Rig

with Rig.made() as made:
    client = made.client(Path(sys.argv[1]), 1, [sys.executable, "-c", sys.argv[2]])
    assert "slip_us" in client.end()
"""


def test_what_a_client_made_is_removed_when_its_input_ends(emulator, tmp_path):
    del emulator
    if missing := rig.missing([]):
        pytest.skip(f"there is no {', '.join(missing)}")
    path = tmp_path / "path.toml"
    path.write_text("rate = '10 Mbit/s'\ndelay = '10 ms'\n")
    command = ["unshare", "--net", sys.executable, "-P", "-c", MADE_AND_ENDED, str(path), CLIENT]
    subprocess.run(command, check=True, env=os.environ | {"TMPDIR": str(tmp_path)}, timeout=60)
    assert not list(tmp_path.glob("profile-*"))
