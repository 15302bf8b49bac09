"""What tests share: the command line, the emulator where it can run, real traces where they are."""

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import pathcast

ROOT = Path(__file__).parent.parent
#: The `pathcast` command of the environment that runs the tests.
PATHCAST = Path(sys.executable).with_name("pathcast")
IN_CI = os.environ.get("CI") == "true"


def run(*arguments, before=(), **options):
    """Runs `pathcast` with these arguments; the outcome has `returncode`, `stdout`, `stderr`.

    `before` are the words of a command that runs it, such as `unshare --net`.
    """
    command = [*before, str(PATHCAST), *map(str, arguments)]
    # a limit for what hangs, far above what anything takes on a slow machine that does other things too
    options = {"capture_output": True, "text": True, "timeout": 600, **options}
    return subprocess.run(command, check=False, **options)


def ended_well(done, codes=(0,)):
    """Fails the test if a command did not end with one of these codes, on a busy machine too; gives its outcome."""
    if done.returncode not in codes:
        pytest.fail(f"{done.args} ended with {done.returncode}: {done.stderr}")
    return done


def without_scheme(folder, toml):
    """A capture of a flow of 5 s over a path, which does not say its congestion control."""
    file = folder / "flow.pcap"
    path = pathcast.Path.parse(toml)
    pathcast.simulate(path, ["cubic"], duration_s=5, record=False, capture_file=file)
    return file


#: Files of tests that mostly wait for other processes, one after another, beside those in real time.
WAITING = {
    # Ray gives itself 30 s to start
    "test_cluster",
    "test_curves",
    "test_live",
    "test_live_schemes",
    "test_suite_cluster",
}
#: Files of tests that mostly wait, for runs in real time; one after another, beside those that compute.
REAL_TIME = {
    "test_acknowledgments",
    "test_benchmark_schemes_emulated",
    "test_captures",
    "test_containment",
    "test_demo",
    "test_goodput",
    "test_handshake",
    "test_kernel_schemes",
    "test_page_worlds",
    "test_quic",
    "test_quic_worlds",
    "test_receive_window",
    "test_recovery",
    "test_rootless",
    "test_runs",
    "test_scheme_flows",
    "test_shell",
    "test_udp_worlds",
    "test_video_worlds",
    "test_watch",
    "test_workloads",
    # names that it gives processes would stand in what others record of the kernel
    "test_foreign_text",
}


#: Each width and each theme of a page; all pairs of them in `make test-full`.
VIEWS = pytest.mark.parametrize(
    ("width", "theme"),
    [
        (360, "dark"),
        (1400, "light"),
        pytest.param(360, "light", marks=pytest.mark.full),
        pytest.param(1400, "dark", marks=pytest.mark.full),
    ],
)


def lane(file):
    """What tests of a file that mostly wait share a process with; None for those that compute."""
    lanes = {"in real time": REAL_TIME, "waiting": WAITING}
    return next((name for name, files in lanes.items() if Path(file).stem in files), None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `pytest -n 4`: all of real time in one process, all that waits in one, files of other tests in the others."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            return lane(file) or file

    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    """With `pytest -n 4`, what computes gives way to what waits, and all that either starts."""
    if "PYTEST_XDIST_WORKER" in os.environ and os.geteuid() == 0:  # others could not go back
        os.setpriority(os.PRIO_PROCESS, 0, 0 if lane(item.path) else 15)


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


def wait_until(condition, what, timeout_s=120):
    """Waits until a condition holds, and gives what it gave; the test fails if it never does."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s} s"
        time.sleep(0.01)
    return found


def processes_that_name(text):
    """Command lines of other processes that have a text, such as a folder."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in command:
                found.append(command)
    return found


def cpu_s(process):
    """Processor time that a started process has used; how far it is, however busy the machine."""
    assert process.poll() is None, process.communicate()
    stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def network_namespaces_of(pid):
    """The network namespaces that a process and its threads are in or hold open."""
    found = set()
    for link in [*Path(f"/proc/{pid}/task").glob("*/ns/net"), *Path(f"/proc/{pid}/fd").glob("*")]:
        with contextlib.suppress(OSError):
            found.add(os.readlink(link))
    return {name for name in found if name.startswith("net:")}


def tcp_info(sock, offset, form="I"):
    """A field of a socket's tcp_info (linux/tcp.h)."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return struct.unpack_from(form, info, offset)[0]


def wait_until_acknowledged(sock):
    """Waits until nothing that the socket sent is on its way (tcpi_unacked, tcpi_notsent_bytes)."""
    wait_until(lambda: tcp_info(sock, 24) == tcp_info(sock, 144) == 0, "the last acknowledgment")


def _ticks():
    """Time of all processors together, idle time, and what the host took away, in hundredths of a second."""
    with open("/proc/stat") as stat:
        # cpu user nice system idle iowait irq softirq steal (proc(5))
        ticks = [int(n) for n in stat.readline().split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4], ticks[7]


class _Wakes(threading.Thread):
    """Wakes each millisecond at a real-time priority, and keeps how late: what no run can do better."""

    def __init__(self):
        super().__init__(daemon=True)
        self.late_s = []
        self._ended = threading.Event()

    def run(self):
        with contextlib.suppress(PermissionError):
            # of this thread alone; below the emulator's
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        while not self._ended.is_set():
            due = time.monotonic() + 0.001
            time.sleep(0.001)
            self.late_s.append(time.monotonic() - due)

    def end(self):
        """How late one wake in a hundred was, or more, and one in a thousand, seconds."""
        self._ended.set()
        self.join()
        late_s = sorted(self.late_s)
        return [late_s[int(len(late_s) * share)] for share in (0.99, 0.999)] if late_s else [0, 0]


def until_valid(attempt, times=8):
    """What the first of several attempts gives that gives anything.

    A machine that is kept busy spoils a run in real time: the attempt then gives nothing, or what it asserts
    does not hold. If all of them were spoilt the test skips and says so; on a machine that had time they are
    failures. A thread beside each measures how late the machine wakes anything up.

    Args:
        attempt: gives what it found, or None, and why that is None; may assert what does.
        times: how often to try.

    """
    busy = None
    for _ in range(times):
        before = _ticks()
        wakes = _Wakes()
        wakes.start()
        wrong = None
        try:
            found, why = attempt()
        except AssertionError as error:
            found, why, wrong = None, f"this did not hold: {error}", error
        finally:
            in_hundred_s, in_thousand_s = wakes.end()
        if found is not None:
            return found
        spent, idle, stolen = (now - then for now, then in zip(_ticks(), before, strict=True))
        # a run of its own takes less than half of two processors, and wakes that are later than this come
        # near the bounds of a run's verdict
        if stolen or 3 * idle < spent or in_hundred_s > 250e-6 or in_thousand_s > 1e-3:
            percent = 100 / max(spent, 1)
            busy = (
                f"the processors were idle for {idle * percent:.0f} % of the time, stolen by the host for "
                f"{stolen * percent:.0f} %; one wake in a hundred was {in_hundred_s * 1e3:.2f} ms late, one "
                f"in a thousand {in_thousand_s * 1e3:.2f} ms"
            )
        elif wrong is not None:
            raise wrong
    if busy is None:
        raise AssertionError(
            f"{times} runs in a row were invalid on a machine that had time: {why}"
        )
    pytest.skip(f"{times} runs in a row were invalid, the last because {why}; {busy}")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """A test that compares the two worlds is tried again where a busy machine may have made them differ."""
    if pyfuncitem.path.parent.name != "parity":
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    def attempt():
        pyfuncitem.obj(**arguments)
        return True, ""

    return until_valid(attempt, 3)


def valid_run(path, schemes=None, **options):
    """A run that did not slip: report and trace; see `until_valid`."""

    def attempt():
        report, trace = pathcast.emulate(path, schemes, **options)
        return ((report, trace) if report.valid else None), "; ".join(report.invalid_because)

    return until_valid(attempt, 6)


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


@pytest.fixture(scope="session")
def browser():
    """A real browser."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium; `scripts/system-packages browser` installs it")
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--disable-gpu"]
    with sync_playwright() as tool:
        opened = tool.chromium.launch(executable_path=chromium, args=arguments)
        yield opened
        opened.close()


def violations(page):
    """What axe finds wrong with a page that a browser shows."""
    from axe_playwright_python.sync_playwright import Axe

    # nodes of rules that hold are not described
    return Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]


def serious_violations(page):
    """Of these, each that keeps somebody from using the page: its rule, and where it is broken."""
    return [
        (one["id"], [node["html"][:120] for node in one["nodes"][:3]])
        for one in violations(page)
        if one["impact"] in ("serious", "critical")
    ]
