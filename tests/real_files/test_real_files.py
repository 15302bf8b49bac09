"""Real files are read, agree with readers of our own within 1 %, or are refused by what they are."""

import subprocess
import sys

import pytest

from . import KINDS
from .judge import files_of, has_reader, judged, missing


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::pathcast.trace.TraceWarning")
def test_real_files(real_data, kind):
    if not has_reader(kind):
        pytest.skip(f"no independent reader of {kind} files")
    if (lacks := missing(kind)) is not None:
        pytest.skip(lacks)
    files = files_of(real_data / "real-files", kind)
    assert files
    verdicts = [judged(kind, file) for file in files]
    wrong = [f"{v.file}: {v.name}: {v.why}" for v in verdicts if not v.right]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["zeek-cwd-navigation.pcap", "zeek-smb2.pcap"])
def test_fit_finds_no_losses_in_captures_without_any(real_data, name):
    # the one of short messages, whose windows rise and fall with them; the other of requests and answers
    file = real_data / "real-files" / "pcap" / name
    command = [sys.executable, "-c", "from pathcast.cli import main; main()", "fit", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "no loss in" in done.stdout, done.stdout
