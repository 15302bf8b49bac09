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
