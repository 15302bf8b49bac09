"""Without root: the emulator and shells in a user namespace, as a user without privileges."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import pathcast
from conftest import PATHCAST, ended_well, run, until_valid, wait_until
from nobody import NOBODY, as_nobody, environment, may_make_user_namespaces, run_as_nobody

# a long way: packets may leave 1 ms late, which an ordinary thread mostly keeps
PATH = "rate = '20 Mbit/s'\ndelay = '100 ms'\nqueue = '0.5 BDP'\nloss = 0.001\n"

pytestmark = pytest.mark.usefixtures("user_namespaces")


@pytest.fixture(scope="module")
def user_namespaces():
    reason = may_make_user_namespaces()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def home(tmp_path):
    """The home of a user without privileges, with a path file in it."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "path.toml").write_text(PATH)
    return folder


def emulated(home, *options, **more):
    """The report and the trace of a valid run."""

    def attempt():
        done = run_as_nobody(
            home, "emulate", "path.toml", "--json", "-o", "trace.parquet", *options, **more
        )
        ended_well(done)
        if "without root: in a user namespace" not in done.stderr:
            pytest.fail(done.stderr)
        report = json.loads(done.stdout)
        return ((report, done) if report["valid"] else None), report["invalid_because"]

    report, done = until_valid(attempt)
    return report, pathcast.read_trace(home / "trace.parquet"), done


def test_an_ordinary_user_runs_the_kernels_tcp_and_each_drop_is_repaired(home):
    report, trace, done = emulated(home, "--duration", 6, "--packets", "packets.parquet")
    found = trace.metadata["environment"]
    assert found["rootless"] == "yes"
    assert f"over {'veth pairs' if found['device'] == 'veth' else 'TUN devices'}" in done.stderr
    drops, to_repair = int(found["data_packets_dropped"]), int(found["drops_to_repair"])
    assert drops > 0
    # each drop is repaired by one packet, but for those just before the end
    assert to_repair <= report["flows"][0]["retransmits"] <= drops
    assert trace.metadata["valid"]
    assert ("SCHED_FIFO" in done.stderr) == (found["fifo"] != "yes")
    assert found["fifo"] == "yes" or "p99" in report["slip_us"]
    assert 30 < report["one_way_delay_ms"]["p50"] < 400
    names = {"path.toml", "trace.parquet", "packets.parquet"}
    assert names <= {file.name for file in home.iterdir()}
    owner = NOBODY if os.geteuid() == 0 else os.geteuid()
    assert all((home / name).stat().st_uid == owner for name in names - {"path.toml"})


def test_a_scenario_of_many_flows_over_ipv6_runs_likewise(home):
    (home / "path.toml").write_text(
        "[links.core]\nrate = '20 Mbit/s'\ndelay = '100 ms'\nqueue = '1 BDP'\n"
        "[[flows]]\nscheme = 'reno'\ncount = 2\n[[flows]]\nscheme = 'cubic'\ndirection = 'reverse'\n"
        "[[flows]]\nscheme = 'udp'\nworkload = { kind = 'constant-rate', rate = '1 Mbit/s', "
        "portion = '1000 B' }\n"
    )
    report, trace, _ = emulated(home, "--duration", 4, "--ipv6")
    assert [flow["scheme"] for flow in report["flows"]] == ["reno", "reno", "cubic", "udp"]
    assert all(flow["delivered_bytes"] > 100_000 for flow in report["flows"])
    assert set(trace.flows) == {0, 1, 2}


def test_tun_is_taken_where_all_may_open_it(home):
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists():
        pytest.skip("needs root, to give all a TUN device in a mount namespace")
    _, trace, _ = emulated(home, "--duration", 2, tun=True)
    assert trace.metadata["environment"]["device"] == "tun"
    _, trace, _ = emulated(home, "--duration", 2, "--device", "veth", tun=True)
    assert trace.metadata["environment"]["device"] == "veth"


API = """
import json, pathcast, sys
told = []
path = pathcast.Path.load("path.toml")
report, trace = pathcast.emulate(path, ["reno"], duration_s=1.5, progress=told.append)
found = pathcast.capabilities()
print(json.dumps({
    "scheme": report.flows[0].scheme, "rows": len(trace), "told": told, "root": found.root,
    "can": found.can_emulate, "rootless": found.rootless, "veth": found.veth,
    "environment": trace.metadata["environment"], "reasons": found.reasons,
}))
try:
    pathcast.emulate(path, ["nosuch"], duration_s=1)
except pathcast.EmulatorError as error:
    print(error)
def broken(_):
    raise KeyError("progress breaks")
try:
    pathcast.emulate(path, duration_s=60, progress=broken)
except KeyError as error:
    print(error)
"""


def test_the_python_api_gives_trace_progress_and_errors(home):
    done = subprocess.run(
        as_nobody(home, sys.executable, "-c", API),
        check=False, capture_output=True, text=True, timeout=60, cwd=home, env=environment(home),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result, refused, broken = done.stdout.splitlines()
    result = json.loads(result)
    assert result["scheme"] == "reno"
    assert result["rows"] > 50
    assert len(result["told"]) > 5
    assert result["told"] == sorted(result["told"])
    assert (result["root"], result["rootless"], result["can"], result["veth"]) == (
        False, True, True, True,
    )  # fmt: skip
    assert result["environment"]["rootless"] == "yes"
    assert "this kernel has no congestion control" in refused
    assert "progress breaks" in broken


def machine(home):
    """What a run could leave behind: network namespaces, processes, files."""
    namespaces, ours = set(), []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            namespaces.add(os.readlink(f"/proc/{process}/ns/net"))
            if str(home) in Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace"):
                ours.append(Path(f"/proc/{process}/cmdline").read_text())
        except OSError:
            continue
    return namespaces, ours, sorted(file.name for file in home.iterdir())


def networks_of(home):
    """The network namespaces of the processes that have this home."""
    found = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if str(home) in Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace"):
                found.add(os.readlink(f"/proc/{process}/ns/net"))
    return found


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)]
)
def test_nothing_is_left_of_a_run_that_is_ended(home, number, code):
    command = as_nobody(home, PATHCAST, "emulate", "path.toml", "--duration", 60, "-o", "t.parquet")
    before_files = sorted(file.name for file in home.iterdir())
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=home,
        env=environment(home),
    )  # fmt: skip

    def run_is_in_namespaces():
        _, processes, _ = machine(home)
        own = os.readlink("/proc/self/ns/net")
        return len(processes) == 2 and networks_of(home) - {own}

    wait_until(run_is_in_namespaces, "a run in namespaces of its own")
    namespaces, processes, _ = machine(home)
    assert len(processes) == 2, processes  # the command, and what it started
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == code, stderr
    # the kernel ends the other process, but does not wait for it
    wait_until(lambda: not machine(home)[1], "the end of the other process")
    after, processes, files = machine(home)
    assert processes == []
    assert after < namespaces  # those that the run had are gone
    assert files == before_files


def write(home, **scripts):
    """Writes Python scripts to run as nobody, all with the same port, which was free."""
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    for name, script in scripts.items():
        (home / f"{name}.py").write_text(script.replace("PORT", str(port)))


SERVER = """
import os, socket
server = socket.create_server(("", PORT))
while True:
    client, _ = server.accept()
    client.sendall(f"{os.getuid()} {os.environ['PATHCAST_ADDRESS']}".encode())
    client.close()
"""

CLIENT = """
import os, socket, time
began = time.monotonic()
client = socket.create_connection((os.environ["PATHCAST_BASE"], PORT), timeout=10)
took_ms = 1e3 * (time.monotonic() - began)
said = client.makefile().read()
capabilities = [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")]
print(os.getuid(), os.getgid(), int(capabilities[0], 16), said, took_ms)
raise SystemExit(9)
"""


def test_a_shell_reaches_a_server_that_runs_outside(home):
    (home / "path.toml").write_text("rate = '10 Mbit/s'\ndelay = '30 ms'\n")
    write(home, server=SERVER, client=CLIENT)
    done = run_as_nobody(
        home, "shell", "path.toml", "--outside", f"{sys.executable} server.py",
        "--log", "log.parquet", "--report", "report.json", "--", sys.executable, "client.py",
    )  # fmt: skip
    assert done.returncode == 9, done.stderr
    user, group, capabilities, server, address, took_ms = done.stdout.split()
    owner = NOBODY if os.geteuid() == 0 else os.getuid()
    assert int(user) == int(server) == owner
    assert int(group) == (NOBODY if os.geteuid() == 0 else os.getgid())
    assert int(capabilities) == 0
    assert address.startswith("198.18.")
    assert float(took_ms) > 60
    assert json.loads((home / "report.json").read_text())["reverse"]["delivered"] >= 3
    assert (home / "log.parquet").stat().st_uid == owner
    assert machine(home)[1] == []


OWN_SCHEME = """
import os, socket
client = socket.create_connection((os.environ["PATHCAST_BASE"], PORT), timeout=10)
print(client.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode())
"""


@pytest.mark.parametrize("scheme", ["cubic", "reno"])
def test_a_shell_has_the_scheme_that_was_asked_for(home, scheme):
    (home / "path.toml").write_text("rate = '10 Mbit/s'\ndelay = '1 ms'\n")
    write(home, server=SERVER, client=OWN_SCHEME)
    done = run_as_nobody(
        home, "shell", "path.toml", "--scheme", scheme, "--outside", f"{sys.executable} server.py",
        "--", sys.executable, "client.py",
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, scheme), done.stderr


def test_a_shell_that_could_reach_nothing_is_refused(home):
    done = run_as_nobody(home, "shell", "path.toml", "--", "true")
    assert done.returncode == 2
    assert "--outside" in done.stderr
    done = run_as_nobody(home, "shell", "path.toml", "--outside", "false", "--", "true")
    assert done.returncode == 2
    assert "ended before it listened (exit status: 1)" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 5)])
def test_signals_end_the_command_in_a_shell(home, number, code):
    write(home, server=SERVER)
    script = "trap 'exit 5' INT; echo ready; while :; do sleep 0.05; done"
    shell = subprocess.Popen(
        as_nobody(
            home, PATHCAST, "shell", "path.toml", "--outside", f"{sys.executable} server.py",
            "--", "sh", "-c", script,
        ),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=home,
        env=environment(home),
    )  # fmt: skip
    said = shell.stdout.readline()
    assert said == "ready\n", shell.communicate(timeout=30)[1]
    os.killpg(shell.pid, number) if number == signal.SIGINT else shell.send_signal(number)
    _, errors = shell.communicate(timeout=30)
    assert shell.returncode == code, errors
    assert "sent 0 of 0 packets" in errors
    assert machine(home)[1] == []


def test_the_demo_runs_the_kernel(home):
    done = run_as_nobody(home, "demo", "--duration", 15, "--json", "-o", "report.html")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["world"] == "emulator"
    assert (home / "report.html").exists()


def test_who_may_not_make_user_namespaces_is_told_what_is_in_the_way(path_file):
    # the limit of a user namespace is for those within; root there without privileges is nobody
    forbid = (
        "echo 0 > /proc/sys/user/max_user_namespaces && "
        'exec setpriv --bounding-set=-net_admin,-sys_admin -- "$@"'
    )
    within = ["unshare", "--user", "--map-root-user", "sh", "-ec", forbid, "sh"]
    path = path_file("delay = '10 ms'\n")
    for command, code in ((["emulate", str(path), "--duration", "1"], 2), (["capabilities"], 0)):
        done = subprocess.run(
            [*within, str(PATHCAST), *command],
            check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        said = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == code, said
        assert "user.max_user_namespaces is 0" in said
        assert "CAP_NET_ADMIN" in said
        assert "simulator" in said


def test_root_may_choose_the_device(emulator, path_file, tmp_path):
    for device in ("tun", "veth"):
        if not vars(emulator)[device]:
            continue
        trace = tmp_path / f"{device}.parquet"
        path = path_file("rate = '10 Mbit/s'\ndelay = '10 ms'\n")
        done = run("emulate", path, "--duration", 1, "--device", device, "-o", trace)
        assert done.returncode == 0, done.stderr
        assert pathcast.read_trace(trace).metadata["environment"]["device"] == device
    done = run("emulate", path, "--duration", 1, "--device", "tap")
    assert done.returncode == 2
    with pytest.raises(pathcast.PathcastError, match="expected one of auto, tun, veth"):
        pathcast.emulate(pathcast.Path.load(path), duration_s=1, device="tap")


SEGMENTED = """
import os, socket
UDP_SEGMENT = 103
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
out.sendto(b"x" * 20_000, (os.environ["PATHCAST_BASE"], 8124))
"""

COUNTING = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", 8124))
while True:
    print(len(server.recv(65536)), file=open("sizes", "a"), flush=True)
"""


@pytest.mark.parametrize("device", ["tun", "veth"])
def test_what_the_kernel_would_cut_late_crosses_in_packets_of_the_wire(
    emulator, path_file, tmp_path, device
):
    if not vars(emulator)[device]:
        pytest.skip(f"no {device} device")
    (tmp_path / "server.py").write_text(COUNTING)

    def attempt():
        (tmp_path / "sizes").unlink(missing_ok=True)
        done = run(
            "shell", path_file("delay = '1 ms'\n"), "--device", device, "--report", tmp_path / "r.json",
            "--outside", f"{sys.executable} server.py",
            "--", "sh", "-c", f"{sys.executable} -c '{SEGMENTED}' && sleep 0.5", cwd=tmp_path,
        )  # fmt: skip
        ended_well(done)
        report = json.loads((tmp_path / "r.json").read_text())
        why = report["invalid_because"]
        return (None if why else report), "; ".join(why)

    report = until_valid(attempt)
    assert report["forward"]["delivered"] == 20
    assert (tmp_path / "sizes").read_text().split() == ["1000"] * 20


def test_a_trace_crosses_to_another_process_unchanged():
    import pickle

    path = pathcast.Path.parse("rate = '10 Mbit/s'\ndelay = '10 ms'\n")
    _, trace = pathcast.simulate(path, ["reno"], duration_s=5)
    other = pickle.loads(pickle.dumps(trace))
    assert other.metadata == trace.metadata
    assert other.columns.keys() == trace.columns.keys()
    for name, column in trace.columns.items():
        assert other.columns[name].tobytes() == column.tobytes()
