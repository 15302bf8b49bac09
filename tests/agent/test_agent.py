"""An agent on real kernels: what connections get, what is refused, and what stays."""

import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest
from servers import command, program, state
from wire import inside, listening

#: The fixture `net`.
pytest_plugins = ["servers"]

FAR = {"congestion_control": "reno", "initial_window": 33}
CLIENTS = "10.9.1.2", "10.9.2.2"
IN_CI = os.environ.get("CI") == "true"
PLACED = {"10.9.1.0/24": "far", "fd09:1::/64": "far"}


def connect(namespace, source, to):
    """A connection from a source address."""

    def work():
        family = socket.AF_INET6 if ":" in source else socket.AF_INET
        client = socket.socket(family)
        client.settimeout(10)
        client.bind((source, 0))
        client.connect(to)
        return client

    return inside(namespace, work)


def accepted(listener, namespace, source):
    """Congestion control and window of the server's socket of a new connection."""
    client = connect(namespace, source, listener.getsockname()[:2])
    server, _ = listener.accept()
    with client, server:
        scheme = server.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        info = server.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        return scheme.split(b"\0")[0].decode(), struct.unpack_from("I", info, 80)[0]


@pytest.fixture
def one_host(net):
    """A server's namespace and a client's, with two prefixes of clients."""
    server, client = net.namespace("s"), net.namespace("c")
    net.pair(server, client, ["10.9.0.1/16", "fd09:1::1/64"],
             [f"{one}/16" for one in CLIENTS] + ["fd09:1::2/64"])  # fmt: skip
    return net, server, client


def test_new_connections_get_their_prefix_template_and_nothing_stays(one_host):
    net, server, client = one_host
    before = state(server)
    wire = net.wire(server)
    listener = listening(server, "10.9.0.1")
    six = listening(server, "fd09:1::1")
    usual = accepted(listener, client, CLIENTS[0])
    process = net.start(server, *net.agent(server, wire))
    wire.configure(3, {"far": FAR}, PLACED)
    assert wire.applied(3)["applied"] == {"version": 3, "ok": True, "errors": []}
    assert accepted(listener, client, CLIENTS[0]) == ("reno", 33)
    assert accepted(six, client, "fd09:1::2") == ("reno", 33)
    assert accepted(listener, client, CLIENTS[1]) == usual

    # a configuration that the kernel refuses in part is refused whole, and the last good one stays
    wire.configure(4, {"far": FAR | {"initial_window": 5}, "no": {"congestion_control": "nosuch"}},
                   {"10.9.1.0/24": "far", "10.9.2.0/24": "no"})  # fmt: skip
    report = wire.report(lambda one: not one["applied"]["ok"])["applied"]
    assert report["version"] == 3
    assert "version 4" in report["errors"][0] and "congestion" in report["errors"][0]
    assert accepted(listener, client, CLIENTS[0]) == ("reno", 33)

    wire.configure(5, {"far": FAR | {"initial_window": 7}}, PLACED)
    wire.applied(5)
    assert accepted(listener, client, CLIENTS[0]) == ("reno", 7)

    # killed at any moment, it takes up what was in force, without a manager
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    wire.close()
    assert accepted(listener, client, CLIENTS[0]) == ("reno", 7)
    command("ip", "-n", server, "rule", "del", "pref", "32000")
    assert accepted(listener, client, CLIENTS[0]) == usual
    process = net.start(server, *net.agent(server, wire))
    deadline = time.monotonic() + 10
    while accepted(listener, client, CLIENTS[0]) != ("reno", 7):
        assert time.monotonic() < deadline, process.log.read_text()
        time.sleep(0.1)

    words = net.agent(server, wire, "--uninstall")
    refused = subprocess.run(
        ["ip", "netns", "exec", server, *map(str, words)], capture_output=True, text=True
    )
    assert refused.returncode == 2 and "stop it first" in refused.stderr
    process.kill()
    process.wait(10)
    command("ip", "netns", "exec", server, *words)
    assert state(server) == before
    assert not (net.folder / "state").exists()


def test_a_kill_at_any_moment_leaves_a_consistent_configuration(one_host):
    """PATHCAST_KILLS sets how often; 10 without it."""
    kills = int(os.environ.get("PATHCAST_KILLS", "10"))
    net, server, client = one_host
    before = state(server)
    wire = net.wire(server)
    listener = listening(server, "10.9.0.1")
    words = net.agent(server, wire)
    draw = random.Random(5)
    placed = {"10.9.1.0/24": "far", "10.9.2.0/24": "far"}
    window, applied, mixed = None, 0, 0
    for kill in range(1, kills + 1):
        # each version has a window of its own
        wire.configure(kill, {"far": FAR | {"initial_window": 10 + kill}}, placed)
        process = net.start(server, *words)
        time.sleep(draw.uniform(0, 1.3))
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        # whole: what was in force, or the new version, for all clients
        found = {accepted(listener, client, one) for one in CLIENTS}
        assert len(found) == 1, f"kill {kill}: {found}"
        ((_, now),) = found
        assert now in (10, window, 10 + kill) and (window is None or now != 10 or window == 10), (
            f"kill {kill}: window {now} after {window}"
        )
        applied += now == 10 + kill
        mixed += now != 10 + kill
        window = now
        record = net.folder / "state" / "agent.json"
        if record.exists():
            kept = json.loads(record.read_text())["configuration"]
            assert kept is None or json.loads(kept)["version"] in range(kill + 1)
    print(
        f"{kills} kills: after {applied} the new version was in force, after {mixed} the one before"
    )
    assert applied and mixed, "kills came before and after changes"
    net.start(server, *words)
    wire.configure(kills + 1, {"far": FAR}, placed)
    wire.applied(kills + 1)
    assert {accepted(listener, client, one) for one in CLIENTS} == {("reno", 33)}
    net.processes[-1].kill()
    net.processes[-1].wait(10)
    command("ip", "netns", "exec", server, *words, "--uninstall")
    assert state(server) == before


def test_what_is_not_from_the_manager_is_refused(one_host):
    net, server, client = one_host
    wire = net.wire(server)
    listener = listening(server, "10.9.0.1")
    usual = accepted(listener, client, CLIENTS[0])
    net.start(server, *net.agent(server, wire))
    wire.signs_with = "00" * 32
    wire.configure(1, {"far": FAR}, PLACED)
    report = wire.report(lambda one: one["applied"]["errors"])["applied"]
    assert report["version"] == 0 and "signature" in report["errors"][0]
    wire.signs_with = wire.secret
    for more, said in (({"format": 2}, "format is 2"), ({"more": 1}, "unknown field")):
        wire.configure(wire.version + 1, {"far": FAR}, PLACED, **more)
        report = wire.report(lambda one, said=said: said in str(one["applied"]["errors"]))
        assert report["applied"]["version"] == 0
    wire.configure(wire.version + 1, {"far": FAR}, {"10.9.1.7/24": "far"})
    wire.report(lambda one: "bits beyond" in str(one["applied"]["errors"]))
    assert accepted(listener, client, CLIENTS[0]) == usual
    wire.configure(wire.version + 1, {"far": FAR}, PLACED)
    wire.applied(wire.version)
    newest = wire.version
    wire.configure(newest - 1, {"far": FAR | {"initial_window": 5}}, PLACED)
    wire.report(lambda one: f"expected above {newest}" in str(one["applied"]["errors"]))
    assert accepted(listener, client, CLIENTS[0]) == ("reno", 33)
    assert not wire.refused


def test_a_dry_run_prints_commands_and_changes_nothing(one_host):
    net, server, _ = one_host
    before = state(server)
    wire = net.wire(server)
    wire.configure(1, {"far": FAR, "idle": {"slow_start_after_idle": False}}, PLACED, "idle")
    words = net.agent(server, wire, "--dry-run")
    said = command("ip", "netns", "exec", server, *words)
    assert "initcwnd 33 congctl lock reno" in said and "ip -4 -batch -" in said
    assert "ip -4 rule add pref 32000 lookup 5201" in said
    assert 'sysctl -w net.ipv4.tcp_slow_start_after_idle="0"' in said
    assert state(server) == before
    assert not (net.folder / "state").exists()


def test_sysctls_are_put_back_but_not_over_somebody_else(one_host):
    net, server, _ = one_host
    before = state(server)
    wire = net.wire(server)
    process = net.start(server, *net.agent(server, wire))
    knobs = {
        "slow_start_after_idle": False,
        "receive_buffer_bytes": 65536,
        "autocorking": False,
        "unsent_bytes": 16384,
    }
    wire.configure(1, {"base": knobs}, default="base")
    assert wire.applied(1)["applied"]["ok"]
    found = state(server)
    assert found[server, "tcp_slow_start_after_idle"] == "0\n"
    assert found[server, "tcp_rmem"].split()[2] == "65536"
    assert found[server, "tcp_notsent_lowat"] == "16384\n"
    # somebody changes one: the report says so
    command("ip", "netns", "exec", server, "sysctl", "-qw", "net.ipv4.tcp_autocorking=1")
    wire.report(lambda one: "tcp_autocorking is 1" in str(one["applied"]["errors"]))
    wire.configure(2)
    wire.applied(2)
    assert state(server) == before
    wire.configure(3, {"base": knobs}, default="base")
    wire.applied(3)
    process.kill()
    process.wait(10)
    command("ip", "netns", "exec", server, "sysctl", "-qw", "net.ipv4.tcp_rmem=4096 8192 16384")
    command("ip", "netns", "exec", server, *net.agent(server, wire, "--uninstall"))
    after = state(server)
    assert after.pop((server, "tcp_rmem")).split() == ["4096", "8192", "16384"]
    before.pop((server, "tcp_rmem"))
    assert after == before


def test_conditions_and_completions_are_reported_by_prefix(one_host):
    net, server, client = one_host
    log = net.folder / "log"
    wire = net.wire(server)
    listener = listening(server, "10.9.0.1")
    port = listener.getsockname()[1]
    net.start(server, *net.agent(server, wire, settings=f'ports = [{port}]\nlogs = ["{log}"]\n'))
    wire.configure(1, {"far": FAR}, {"10.9.1.0/24": "far"})
    wire.applied(1)
    time.sleep(0.5)
    with connect(client, CLIENTS[0], listener.getsockname()) as one:
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"x" * 300_000)
            received = 0
            while received < 300_000:
                received += len(one.recv(1 << 16))
    lines = [{"client": CLIENTS[0], "request_s": "0.100", "status": "200"}] * 3
    lines += [{"client": CLIENTS[1], "request_s": "0.300", "status": "200"}]
    lines += [{"client": CLIENTS[1], "request_s": "0.300", "status": "502"}]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines) + "no JSON\n")
    seen = {}

    def all_seen(report):
        for one in report["prefixes"]:
            seen.setdefault(one["prefix"], {}).update(one)
        return "rtt_ms" in seen.get("10.9.1.0/24", {}) and len(seen) == 2

    wire.report(all_seen)
    placed = seen["10.9.1.0/24"]
    assert 0 < placed["rtt_ms"] < 50 and placed["loss"] == 0 and placed["flows"] == 1
    done = placed["completions"][0]
    assert (done["template"], done["version"], done["count"]) == ("far", 1, 3)
    assert done["sum_ms"] == pytest.approx(300) and done["quantiles_ms"] == [100, 100, 100]
    assert seen["10.9.2.0/24"]["completions"][0]["template"] == "default"
    assert seen["10.9.2.0/24"]["completions"][0]["count"] == 1


def test_sock_ops_set_what_routes_cannot(one_host):
    net, server, client = one_host
    cgroups = next((one for one in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")
                    if os.path.exists(f"{one}/cgroup.procs")), None)  # fmt: skip
    if cgroups is None:
        pytest.skip("needs cgroup version 2")
    cgroup = f"{cgroups}/pathcast-test-{os.getpid()}"
    os.mkdir(cgroup)
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    home = next(line.split("::")[1].strip() for line in lines if "0::" in line)
    try:
        # a socket is of the cgroup that its process had when it was made
        with open(f"{cgroup}/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
        listener = listening(server, "10.9.0.1")
        with open(f"{cgroups}{home}/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
        wire = net.wire(server)
        settings = f'connections = "sock_ops"\ncgroup = "{cgroup}"\n'
        process = net.start(server, *net.agent(server, wire, settings=settings))
        usual = accepted(listener, client, CLIENTS[1])
        wire.configure(1, {"far": FAR | {"pacing": "on"}}, {"10.9.1.0/24": "far"})
        report = wire.report(lambda one: one["applied"]["version"] or one["applied"]["errors"])
        if "--features bpf" in str(report):
            # CI builds with the feature wherever there is a compiler for it
            unbuilt = "pathcast-agent was built without the feature bpf"
            (pytest.fail if IN_CI and shutil.which("clang") else pytest.skip)(unbuilt)
        assert report["applied"]["ok"], report
        assert accepted(listener, client, CLIENTS[0]) == ("reno", 33)
        assert accepted(listener, client, CLIENTS[1]) == usual
        with connect(client, CLIENTS[0], listener.getsockname()):
            peer, _ = listener.accept()
            rate = peer.getsockopt(socket.SOL_SOCKET, socket.SO_MAX_PACING_RATE if hasattr(
                socket, "SO_MAX_PACING_RATE") else 47, 4)  # fmt: skip
            assert struct.unpack("I", rate)[0] == 0xFFFFFFFE
            peer.close()
        wire.configure(2, {"far": FAR}, {"10.9.2.0/24": "far"})
        wire.applied(2)
        assert accepted(listener, client, CLIENTS[0]) == usual
        assert accepted(listener, client, CLIENTS[1]) == ("reno", 33)
        process.kill()
        process.wait(10)
        time.sleep(0.2)
        assert accepted(listener, client, CLIENTS[1]) == usual
    finally:
        with open(f"{cgroups}{home}/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
        for _ in range(50):
            try:
                os.rmdir(cgroup)
                break
            except OSError:
                time.sleep(0.1)


def test_the_space_has_been_tried_and_dead_knobs_are_named():
    if os.geteuid() != 0 or program() is None or shutil.which("tc") is None:
        pytest.skip("needs root, iproute2 and cargo build -p pathcast-agent")
    knobs = {one["knob"]: one for one in json.loads(command(program(), "--space"))}

    def effective(knob, scope):
        return next(one["effective"] for one in knobs[knob]["places"] if one["scope"] == scope)

    assert effective("initial_window", "route") and effective("congestion_control", "route")
    assert effective("slow_start_after_idle", "namespace")
    assert effective("unsent_bytes", "namespace")
    assert "bbr" in knobs["slow_start_after_idle"]["why"] or "bbr" not in str(knobs)
    assert knobs["tcp_low_latency"]["pruned"] and knobs["tcp_pacing"]["pruned"]
    assert all(one["why"] for one in knobs.values() if one["pruned"])
