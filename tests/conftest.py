"""What tests share: the command line, the emulator where it can run, real traces where they are."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pathcast

ROOT = Path(__file__).parent.parent
#: The `pathcast` command of the environment that runs the tests.
PATHCAST = Path(sys.executable).with_name("pathcast")
IN_CI = os.environ.get("CI") == "true"


def run(*arguments, **options):
    """Runs `pathcast` with these arguments; the outcome has `returncode`, `stdout`, `stderr`."""
    command = [str(PATHCAST), *map(str, arguments)]
    options = {"capture_output": True, "text": True, "timeout": 120, **options}
    return subprocess.run(command, check=False, **options)


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """What tests start ends at SIGINT, as in a terminal.

    A shell starts jobs in the background with SIGINT ignored, and so would be what they start in turn; a signal
    that is handled here is the default's there.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def emulator():
    """Skips where the emulator cannot run and says why; in CI it must run if the machine can."""
    found = pathcast.capabilities()
    if not found.can_emulate:
        reason = "the emulator cannot run here: " + "; ".join(found.reasons)
        if IN_CI and os.geteuid() == 0 and Path("/dev/net/tun").exists():
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def stolen_ticks():
    """Time that the host took away from this machine's processors, in hundredths of a second."""
    with open("/proc/stat") as stat:
        return int(stat.readline().split()[8])


def valid_run(path, schemes=None, **options):
    """A run that did not slip, of at most six: report and trace; skips if the host takes the processors
    away in all of them."""
    stolen_in_all = True
    for _ in range(6):
        before = stolen_ticks()
        report, trace = pathcast.emulate(path, schemes, **options)
        if report.valid:
            return report, trace
        stolen_in_all &= stolen_ticks() > before
    if stolen_in_all:
        pytest.skip("the host takes the processors away too often for a run in real time")
    raise AssertionError(f"six runs slipped: {report.invalid_because}")


def valid_emulation(path, schemes=None, **options):
    """The report of such a run."""
    return valid_run(path, schemes, **options)[0]


@pytest.fixture
def needs_scheme(emulator):
    """A function that skips where the emulator cannot have a scheme, and says why; in CI it must have
    it if it can be built."""

    def check(scheme):
        if scheme in (*emulator.schemes, *emulator.bpf_schemes):
            return
        reason = f"no {scheme} here: " + "; ".join(emulator.reasons)
        if IN_CI and shutil.which("clang"):
            pytest.fail(reason)
        pytest.skip(reason)

    return check


@pytest.fixture(scope="session")
def real_data():
    """The folder of real data that PATHCAST_DATA names; skips if it names none."""
    folder = os.environ.get("PATHCAST_DATA")
    if not folder:
        pytest.skip("PATHCAST_DATA is not set: it names the folder of real data")
    if not Path(folder).is_dir():
        pytest.fail(f"PATHCAST_DATA is {folder}; expected a folder")
    return Path(folder)


@pytest.fixture(scope="session")
def econ_traces(real_data):
    """The folder of real cwnd traces in it; which of them is missing, the test says by failing."""
    return real_data / "econ"


@pytest.fixture
def path_file(tmp_path):
    """A function that writes a path file."""

    def write(text, name="path.toml"):
        file = tmp_path / name
        file.write_text(text)
        return file

    return write
