"""The two routers: HAProxy by its map, and forwarding by nftables. Connections under way are never moved."""

import shutil
import socket
import threading
import time

import pytest
from servers import command, state
from test_agent import connect
from wire import inside, listening

#: The fixture `net`.
pytest_plugins = ["servers"]

CLIENTS = "10.9.1.2", "10.9.2.2", "10.9.3.2"
OLD, NEW = "10.9.1.0/24", "10.9.2.0/24"


def serve(listener, name):
    """Answers each line with the server's name, for as long as the listener lives."""

    def talk(connection):
        with connection:
            while data := connection.recv(64):
                connection.sendall(name.encode() * data.count(b"\n") + b"\n")

    def accept():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener


def asked(connection):
    connection.sendall(b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        if not (more := connection.recv(64)):
            raise ConnectionError("the server has closed it")
        answer += more
    return answer.decode().strip()


class Load:
    """Short connections from a client, one after another; failures are counted."""

    def __init__(self, namespace, source, to):
        self.done, self.failed, self.over = 0, [], threading.Event()

        def work():
            while not self.over.is_set():
                try:
                    with socket.create_connection(to, 10, (source, 0)) as connection:
                        asked(connection)
                    self.done += 1
                except OSError as error:
                    self.failed.append(str(error))

        self.thread = threading.Thread(target=lambda: inside_for_long(namespace, work))
        self.thread.start()

    def stop(self):
        self.over.set()
        self.thread.join(30)
        assert self.done > 20 and not self.failed, (self.done, self.failed[:3])
        return self.done


def inside_for_long(namespace, work):
    done = threading.Event()

    def run():
        try:
            work()
        finally:
            done.set()

    inside(namespace, lambda: run())
    done.wait()


HAPROXY = """
global
    stats socket {folder}/admin.sock mode 600 level admin
defaults
    mode tcp
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend tls
    bind 10.9.0.1:443
    use_backend %[src,map_ip({folder}/pathcast.map,pool_h1)]
backend pool_h1
    server a 127.0.0.1:{h1}
backend pool_h2
    server a 127.0.0.1:{h2}
"""


def test_haproxy_routes_by_prefix_and_a_refused_map_changes_nothing(net):
    if shutil.which("haproxy") is None:
        pytest.skip("needs haproxy; scripts/system-packages servers installs it")
    server, client = net.namespace("s"), net.namespace("c")
    net.pair(server, client, ["10.9.0.1/16"], [f"{one}/16" for one in CLIENTS])
    pools = {name: serve(listening(server), name) for name in ("h1", "h2")}
    ports = {name: listener.getsockname()[1] for name, listener in pools.items()}
    map_file, config = net.folder / "pathcast.map", net.folder / "haproxy.cfg"
    map_file.write_text("10.9.3.0/24 pool_h2\n")
    config.write_text(HAPROXY.format(folder=net.folder, **ports))
    net.start(server, "haproxy", "-db", "-f", config)
    admin = net.folder / "admin.sock"
    deadline = time.monotonic() + 10
    while not admin.exists():
        assert time.monotonic() < deadline, net.processes[-1].log.read_text()
        time.sleep(0.05)
    before = state(server)
    settings = f"""
[[pool]]
name = "pool_h1"
http_version = "http/1.1"
default = true
[[pool]]
name = "pool_h2"
http_version = "h2"
[haproxy]
socket = "{admin}"
map = "{map_file}"
"""
    wire = net.wire(server)
    process = net.start(server, *net.agent(server, wire, settings=settings))
    to = ("10.9.0.1", 443)
    templates = {"two": {"http_version": "h2", "initial_window": 20}}
    wire.configure(1, templates, {OLD: "two"})
    assert wire.applied(1)["applied"] == {"version": 1, "ok": True, "errors": []}
    under_way = connect(client, CLIENTS[0], to)
    assert asked(under_way) == "h2"
    assert asked(connect(client, CLIENTS[1], to)) == "h1"
    assert asked(connect(client, CLIENTS[2], to)) == "h1"

    load = Load(client, CLIENTS[1], to)
    for version in range(2, 8):
        wire.configure(version, templates, {NEW: "two"} if version % 2 else {OLD: "two"})
        wire.applied(version)
    load.stop()
    assert asked(connect(client, CLIENTS[1], to)) == "h2"
    assert asked(connect(client, CLIENTS[0], to)) == "h1"
    assert asked(under_way) == "h2"
    assert map_file.read_text() == f"{NEW} pool_h2\n"

    # the default template in another pool than HAProxy's own
    wire.configure(8, templates, {NEW: "default"}, "two")
    assert wire.applied(8)["applied"]["ok"]
    assert [asked(connect(client, one, to)) for one in CLIENTS] == ["h2", "h1", "h2"]

    # a template that no pool serves is refused whole
    wire.configure(9, {"three": {"http_version": "h3"}}, {OLD: "three"})
    report = wire.report(lambda one: "version 9" in str(one["applied"]["errors"]))["applied"]
    assert report["version"] == 8 and "there is no pool" in str(report["errors"])
    assert [asked(connect(client, one, to)) for one in CLIENTS] == ["h2", "h1", "h2"]

    # an entry that somebody else adds is seen
    with socket.socket(socket.AF_UNIX) as api:
        api.connect(str(admin))
        api.sendall(f"add map {map_file} 10.9.9.0/24 pool_h1\n".encode())
    wire.report(
        lambda one: "haproxy's map has 6 entries, expected 5" in str(one["applied"]["errors"])
    )
    process.kill()
    process.wait(10)
    command(
        "ip", "netns", "exec", server, *net.agent(server, wire, "--uninstall", settings=settings)
    )
    assert map_file.read_text() == "10.9.3.0/24 pool_h2\n"
    assert [asked(connect(client, one, to)) for one in CLIENTS] == ["h1", "h1", "h2"]
    assert state(server) == before


def test_a_map_that_haproxy_refuses_leaves_all_as_it_was(net):
    if shutil.which("haproxy") is None:
        pytest.skip("needs haproxy; scripts/system-packages servers installs it")
    server, client = net.namespace("s"), net.namespace("c")
    net.pair(server, client, ["10.9.0.1/16"], [f"{one}/16" for one in CLIENTS])
    map_file, admin = net.folder / "pathcast.map", net.folder / "admin.sock"
    accepts = threading.Event()
    commands = []

    def answer():
        """HAProxy's runtime API, but for a commit that it refuses at first."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(admin))
        listener.listen(16)
        while True:
            connection, _ = listener.accept()
            with connection:
                text = connection.recv(1 << 16).decode()
                commands.append(text)
                said = ""
                if text.startswith("prepare"):
                    said = "New version created: 7\n"
                elif text.startswith("commit") and not accepts.is_set():
                    said = "No such map\n"
                connection.sendall(said.encode())

    threading.Thread(target=answer, daemon=True).start()
    settings = f"""
[[pool]]
name = "pool_h1"
default = true
[haproxy]
socket = "{admin}"
map = "{map_file}"
"""
    before = state(server)
    wire = net.wire(server)
    net.start(server, *net.agent(server, wire, settings=settings))
    knobs = {"initial_window": 20, "slow_start_after_idle": False}
    wire.configure(1, {"far": knobs}, {OLD: "far"}, "far")
    report = wire.report(lambda one: one["applied"]["errors"])["applied"]
    assert report["version"] == 0 and "commit map @7" in report["errors"][0]
    after = state(server)
    routes = [key for key in before if before[key] != after[key]]
    # a table without a rule is looked up by nothing; the next configuration fills it anew
    assert all(key[2] == "routes" for key in routes if len(key) == 3), routes
    assert any(one.startswith("clear map @7") for one in commands)
    assert not map_file.exists()
    accepts.set()


def test_forwarding_moves_no_connection_and_each_template_has_a_namespace(net):
    router, client = net.namespace("r"), net.namespace("c")
    clients = [*CLIENTS[:2], "fd09:1::2"]
    net.pair(router, client, ["10.9.0.1/16", "fd09:1::1/64"],
             ["10.9.1.2/16", "10.9.2.2/16", "fd09:1::2/64"])  # fmt: skip
    for name in "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding":
        command("ip", "netns", "exec", router, "sysctl", "-qw", f"{name}=1")
    pools = {}
    for number, name in enumerate(("plain", "one", "two"), 1):
        pool = net.namespace("p")
        device = net.pair(router, pool, [f"10.200.{number}.1/24", f"fd20:{number}::1/64"],
                          [f"10.200.{number}.2/24", f"fd20:{number}::2/64"])  # fmt: skip
        command("ip", "-n", pool, "route", "add", "default", "via", f"10.200.{number}.1")
        command("ip", "-n", pool, "-6", "route", "add", "default", "via", f"fd20:{number}::1",
                "dev", device[1])  # fmt: skip
        listeners = [listening(pool, address, 443)
                     for address in (f"10.200.{number}.2", f"fd20:{number}::2")]  # fmt: skip
        for listener in listeners:
            serve(listener, name)
        pools[name] = pool
    # the operator's own rules, for all clients while there is no agent
    site = """table inet site {
    chain prerouting {
        type nat hook prerouting priority dstnat + 10; policy accept;
        ip daddr 10.9.0.1 tcp dport 443 dnat ip to 10.200.1.2
        ip6 daddr fd09:1::1 tcp dport 443 dnat ip6 to fd20:1::2
    }
}
"""
    command("ip", "netns", "exec", router, "nft", site)
    names = [router, *pools.values()]
    before = state(*names)
    settings = '[forward]\naddresses = ["10.9.0.1", "fd09:1::1"]\nports = [443]\n'
    for number, (name, pool) in enumerate(pools.items(), 1):
        settings += f"""[[pool]]
name = "{name}"
namespace = "{pool}"
addresses = ["10.200.{number}.2", "fd20:{number}::2"]
default = {"true" if name == "plain" else "false"}
"""
    wire = net.wire(router)
    process = net.start(router, *net.agent(router, wire, settings=settings))
    idle = {"slow_start_after_idle": False, "initial_window": 25, "congestion_control": "reno"}
    wire.configure(1, {"idle": idle}, {"10.9.1.0/24": "idle", "fd09:1::/64": "idle"})
    assert wire.applied(1)["applied"] == {"version": 1, "ok": True, "errors": []}
    to, to6 = ("10.9.0.1", 443), ("fd09:1::1", 443)
    under_way = connect(client, clients[0], to)
    assert asked(under_way) == "one"
    assert asked(connect(client, clients[1], to)) == "plain"
    six = connect(client, clients[2], to6)
    assert asked(six) == "one"
    assert state(pools["one"])[pools["one"], "tcp_slow_start_after_idle"] == "0\n"
    assert state(pools["two"])[pools["two"], "tcp_slow_start_after_idle"] == "1\n"
    seen = command("ip", "netns", "exec", pools["one"], "ss", "-tinH", "sport = :443")
    assert "reno" in seen and "cwnd:25" in seen, seen

    load = Load(client, clients[1], to)
    templates = {"idle": idle, "small": {"initial_window": 4}}
    for version in range(2, 8):
        placed = {"10.9.0.0/16": "small", "10.9.2.0/24": "idle"}
        wire.configure(version, templates, placed if version % 2 else {"10.9.2.0/24": "small"})
        wire.applied(version)
    load.stop()
    assert asked(connect(client, clients[1], to)) == "one"
    assert asked(connect(client, clients[0], to)) == "two"
    assert (asked(under_way), asked(six)) == ("one", "one")
    process.kill()
    process.wait(10)
    command(
        "ip", "netns", "exec", router, *net.agent(router, wire, "--uninstall", settings=settings)
    )
    assert state(*names) == before
    # what is under way goes on without our table, because the operator's keeps the kernel translating
    assert (asked(under_way), asked(six)) == ("one", "one")
    assert asked(connect(client, clients[0], to)) == "plain"
