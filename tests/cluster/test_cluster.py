"""`pathcast sweep --cluster`, `simulate_many(cluster=...)` and what they stand on: Ray, which the
tests start on this machine's loopback."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import pathcast
from conftest import PATHCAST, run
from pathcast.cluster import _descendants, _parse, _wait_until_ended, connected
from ray_head import needs_ray, ray_head

PATH = "rate = '20 Mbit/s'\ndelay = '10 ms'\nloss = 0.001\n"


@pytest.fixture(scope="module")
def cluster():
    """A cluster whose workers have the pathcast that is tested."""
    with ray_head(sys.executable) as addresses:
        yield addresses


def batch(runs=37, duration_s=2):
    path = pathcast.Path.parse(PATH)
    return [pathcast.Simulation(path, ("cubic", "reno"), duration_s, seed) for seed in range(runs)]


def ipc(table):
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.fixture(params=["member", "client", "local"])
def address(request, cluster):
    member, client = cluster
    return {"member": member, "client": client, "local": "local"}[request.param]


def simulate_on(address, progress):
    """A batch on a cluster; where Ray's server for clients did not start in its half minute, which
    happens on a busy machine, once more."""
    for _ in range(3):
        try:
            return pathcast.simulate_many(batch(), cluster=address, progress=progress)
        except pathcast.ClusterError as error:
            if not address.startswith("ray://") or "cannot be used" not in str(error):
                raise
            last = error
    raise last


def test_a_batch_is_the_same_on_a_cluster(address, tmp_path):
    told = []
    here = pathcast.simulate_many(batch())
    there = simulate_on(address, told.append)
    assert len(there) == len(here) == 74
    assert pyarrow.table(there).equals(pyarrow.table(here), check_metadata=True)
    assert ipc(pyarrow.table(there)) == ipc(pyarrow.table(here))
    assert told == sorted(told)
    assert told[-1] == 37
    for name in ("simulation", "seed", "goodput_bps"):
        assert np.array_equal(there.column(name), here.column(name))
    for results in (here, there):
        with pytest.raises(pathcast.TraceError, match="no column of numbers scheme"):
            results.column("scheme")
        with pytest.raises(pathcast.TraceError, match="nosuch"):
            results.write(tmp_path / "nosuch" / "runs.parquet")
    there.write(tmp_path / "there.parquet")
    here.write(tmp_path / "here.parquet")
    tables = [
        pyarrow.parquet.read_table(tmp_path / f"{name}.parquet") for name in ("here", "there")
    ]
    assert tables[0].equals(tables[1])


def test_a_sweep_prints_the_same_on_a_cluster(cluster, path_file):
    arguments = ["sweep", path_file(PATH), "--scheme", "cubic", "--scheme", "bbr", "--seeds", 5,
                 "--duration", 5, "--json"]  # fmt: skip
    here, there = run(*arguments), run(*arguments, "--cluster", cluster[0])
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.stdout
    assert there.stderr == ""


def test_a_calibration_is_the_same_on_a_cluster(cluster, tmp_path):
    trace = tmp_path / "trace.parquet"
    pathcast.simulate(pathcast.Path.parse(PATH), ["cubic"], duration_s=5)[1].write(trace)
    here, there = (
        run("calibrate", trace, "--json", *where) for where in ((), ("--cluster", cluster[0]))
    )
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.stdout


def test_wrong_batches_are_refused_alike(cluster):
    batches = [
        [*batch(20), pathcast.Simulation(pathcast.Path.parse(PATH), ("nosuch",))],
        [*batch(20), pathcast.Simulation(pathcast.Path.parse(PATH), ())],
    ]
    for wrong in batches:
        said = []
        for where in (None, cluster[0]):
            with pytest.raises(pathcast.SchemeError) as caught:
                pathcast.simulate_many(wrong, cluster=where)
            said.append(str(caught.value))
        assert said[0] == said[1]
    with pytest.raises(pathcast.PathcastError, match=r"threads is 2 .* expected one of them"):
        pathcast.simulate_many(batch(), threads=2, cluster=cluster[0])
    assert ipc(pyarrow.table(pathcast.simulate_many([], cluster=cluster[0]))) == ipc(
        pyarrow.table(pathcast.simulate_many([]))
    )


def test_an_address_that_nobody_answers_at_ends_with_exit_code_2(path_file):
    needs_ray()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen: nobody else can
        port = taken.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
            done = run("sweep", path_file(PATH), "--cluster", address)
            assert done.returncode == 2
            assert f"cluster {address}: cannot be reached: Connection refused" in done.stderr
        taken.listen()
        done = run("sweep", path_file(PATH), "--cluster", f"127.0.0.1:{port}")
        assert done.returncode == 2
        assert "cannot be used" in done.stderr
        assert "expected a running Ray cluster" in done.stderr


@pytest.mark.parametrize("address", ["nowhere", "", "host:", ":6379", "host:x", "host:99999",
                                     "http://host:1", "ray://host", "host:1/x", "me@host:1",
                                     # what Ray itself would take, import or look up
                                     "auto", "ray://auto", "os://host:1", "ray://ray://host:1", "/tmp/ray/session:1",
                                     "host:1?_node_ip_address=x", "host:1#x", "ray://host:1/?a=b",
                                     # what would be something else in an environment, a command or a terminal
                                     "host:1\n", "ho\nst:1", "host:1\0", "a b:1", "$(id):1", "`id`:1", "a;b:1", "a=b:1",
                                     "--address:1", "\x1b[2J:1", "host\u202e:1", "h\u00f6st:1", "host:\u0661", "x" * 300 + ":1",
                                     # no addresses, though they look like some
                                     "1.2.3.4.5:1", "999.1.1.1:1", "127.1:1", "[::1]", "[::1:1", "[fe80::1%lo]:1", "[host]:1",
                                     "::1:6379", "host..x:1", "-host:1", ".:1", "host:0", "host:+1", "host: 1"])  # fmt: skip
def test_what_is_no_address_is_refused(address):
    with (
        pytest.raises(pathcast.ClusterError, match="expected local, HOST:PORT"),
        connected(address),
    ):
        pass


def test_an_error_shows_an_address_without_what_a_terminal_obeys():
    with pytest.raises(pathcast.ClusterError) as raised, connected("\x1b[2J\u202e" + "x" * 5000):
        pass
    assert str(raised.value).isprintable() and len(str(raised.value)) < 250


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("local", (None, 0)),
        ("host:6379", ("host", 6379)),
        ("ray://head-1.example_2.org.:10001", ("head-1.example_2.org.", 10001)),
        ("192.0.2.1:1", ("192.0.2.1", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("ray://[2001:db8::1]:10001", ("2001:db8::1", 10001)),
    ],
)
def test_addresses_are_hosts_and_ports(address, expected):
    assert _parse(address) == expected


@pytest.mark.parametrize("package", ["ray", "pyarrow"])
def test_without_ray_the_error_says_how_to_get_it(package, monkeypatch):
    needs_ray()  # else it says ray twice
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        pathcast.ClusterError, match=rf"{package}.*pip install 'pathcast\[cluster\]'"
    ):
        pathcast.simulate_many(batch(), cluster="local")


# `eval` is a function that workers can import, and a text is a sequence: of its characters.


def test_results_come_in_the_order_of_their_chunks(cluster):
    chunks = ["__import__('time').sleep(0.5) or 'slow'", "'fast'", "'last'"]
    with connected(cluster[0]) as connection:
        assert connection.cpus == 2
        assert list(connection.map(eval, chunks)) == ["slow", "fast", "last"]
        with pytest.raises(pathcast.ClusterError, match="connected to a Ray cluster already"):
            pathcast.simulate_many(batch(), cluster=cluster[0])


def test_errors_of_pathcast_cross_and_end_the_others(cluster):
    chunks = ["__import__('time').sleep(1000)", "__import__('pathcast').Path.parse('x')"]
    with (
        connected(cluster[0]) as connection,
        pytest.raises(pathcast.PathFileError, match=r"path\.toml:1"),
    ):
        list(connection.map(eval, chunks))


def test_a_worker_that_dies_again_and_again_is_an_error(cluster):
    with (
        connected(cluster[0]) as connection,
        pytest.raises(pathcast.ClusterError, match="started 4 times and its worker died each time"),
    ):
        list(connection.map(eval, ["__import__('os')._exit(1)"]))


def test_progress_may_stop_a_batch(cluster):
    class StoppedError(Exception):
        pass

    def stop(_):
        raise StoppedError

    with pytest.raises(StoppedError):
        pathcast.simulate_many(batch(100, 20_000), cluster=cluster[0], progress=stop)
    # the CPUs are free again: this would wait for long
    assert len(pathcast.simulate_many(batch(2), cluster=cluster[0])) == 4


def running(group):
    """Processes of a group that run; those that ended count no more, though nobody may have asked for their status yet."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name, _, stat = (folder / "stat").read_text().rpartition(")")
            state, _, of_group = stat.split()[:3]  # proc(5)
            if int(of_group) == group and state not in "ZX":
                found.append(name)
    return found


@pytest.mark.parametrize("where", ["member", "local"])
def test_ctrl_c_cancels_the_tasks(where, cluster, path_file):
    address = {"member": cluster[0], "local": "local"}[where]
    process = subprocess.Popen(
        [str(PATHCAST), "sweep", str(path_file(PATH)), "--seeds", "200", "--duration", "20000",
         "--cluster", address],
        stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"PYTHONFAULTHANDLER": "1"},
    )  # fmt: skip
    time.sleep(8)
    assert process.poll() is None
    assert running(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130, stderr
    assert "interrupted; nothing was written and nothing is left running" in stderr
    assert not running(process.pid)
    assert len(pathcast.simulate_many(batch(2), cluster=cluster[0])) == 4


def test_processes_of_ray_that_do_not_end_are_ended_and_others_are_left(monkeypatch):
    for name, seconds in (("_TERMINATE_S", 0.2), ("_KILL_S", 0.5), ("_END_S", 1.5)):
        monkeypatch.setattr(f"pathcast.cluster.{name}", seconds)
    others = _descendants()
    ends, stays = (
        subprocess.Popen(["bash", "-c", f"{before} exec -a ray::Agent sleep 60"])
        for before in ("", "trap '' TERM;")
    )
    own = subprocess.Popen(["sleep", "60"])
    try:
        _wait_until_ended(others)
        assert own.poll() is None
        assert ends.poll() is not None
        assert stays.poll() is not None
    finally:
        for process in (ends, stays, own):
            process.kill()
            process.wait()


def test_local_ray_listens_on_the_loopback_alone():
    needs_ray()

    def ports():
        """Listening sockets that others can reach, by /proc/net/tcp and tcp6."""
        found = set()
        for name in ("tcp", "tcp6"):
            with open(f"/proc/net/{name}") as table:
                for line in list(table)[1:]:
                    _, local, _, state, *_ = line.split()
                    # 7F00 0001 in the kernel's order of bytes, mapped into IPv6 or not; ::1
                    own = local.split(":")[0].endswith(
                        ("0100007F", "00000000000000000000000001000000")
                    )
                    if state == "0A" and not own:
                        found.add(local)
        return found

    before = ports()
    with connected("local") as connection:
        assert list(connection.map(eval, ["1"])) == [1]
        assert ports() <= before
