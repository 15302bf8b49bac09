"""Servers of `pathcast benchmark pages`: what is written for them, and how they start and end."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from conftest import wait_until
from pathcast.experiments.pages import browser, caddy, inside, server

SERVER = """
import signal, socket, sys, time
kind, port = sys.argv[1:]
made = socket.socket(type=socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
made.bind(("127.0.0.1", int(port)))
if kind == "tcp":
    made.listen()
time.sleep(60)
"""


def test_caddy_speaks_one_protocol_on_each_port(tmp_path):
    command = caddy.command("/usr/bin/caddy", tmp_path, 8444, 8445)
    assert command[-3:] == ["run", "--config", str(tmp_path / "caddy.json")]
    found = json.loads((tmp_path / "caddy.json").read_text())
    assert found == caddy.configuration(tmp_path, 8444, 8445)
    servers = found["apps"]["http"]["servers"]
    said = {
        one["listen"][0]: (one["protocols"], one["tls_connection_policies"][0]["alpn"])
        for one in servers.values()
    }
    assert said == {":8444": (["h1", "h2"], ["h2"]), ":8445": (["h3"], ["h3"])}
    # the certificate and the files of nginx
    for one in servers.values():
        assert one["automatic_https"] == {"disable": True}
        assert one["routes"][0]["handle"][0]["root"] == str(tmp_path / "www")
    (certificate,) = found["apps"]["tls"]["certificates"]["load_files"]
    assert certificate == {
        "certificate": str(tmp_path / "certificate.pem"),
        "key": str(tmp_path / "key.pem"),
    }
    # nothing else changes it, and it keeps nothing elsewhere
    assert found["admin"] == {"disabled": True, "config": {"persist": False}}
    assert found["storage"]["root"].startswith(str(tmp_path))
    assert f"HOME={tmp_path}" in command
    assert "--bounding-set=-all,+dac_read_search" in command


def test_servers_listen_on_a_port_for_each_protocol(tmp_path, monkeypatch):
    ports = [one.port for one in server.ENDPOINTS.values()]
    assert len(set(ports)) == len(ports)
    monkeypatch.setattr(server, "nginx", lambda: "nginx")
    monkeypatch.setattr(caddy, "caddy", lambda: "caddy")
    plan = server._plan(tmp_path, tmp_path / "address", ["caddy", "nginx"])
    assert plan["listen"] == ["tcp 8441", "tcp 8443", "udp 8445", "tcp 8444"]
    assert len(plan["commands"]) == 2
    # none outlives what started it, or has the privileges of root
    for one in plan["commands"]:
        assert {"--pdeathsig=KILL", "--bounding-set=-all,+dac_read_search"} <= set(one)
    assert "master_process off;" in (tmp_path / "nginx.conf").read_text()
    alone = server._plan(tmp_path, tmp_path / "address", ["nginx"])
    assert (alone["listen"], len(alone["commands"])) == (["tcp 8441", "tcp 8443"], 1)


def test_chromium_speaks_http3_where_it_must_and_nowhere_else():
    plain = browser.options({"page.test": "10.0.0.1"})
    assert "--disable-quic" in plain
    assert "--host-resolver-rules=MAP page.test 10.0.0.1" in plain
    forced = browser.options({"page.test": "10.0.0.1"}, ["page.test:8445"], ["key="])
    assert "--disable-quic" not in forced
    assert "--origin-to-force-quic-on=page.test:8445" in forced
    assert "--ignore-certificate-errors-spki-list=key=" in forced


@contextlib.contextmanager
def started(folder, commands, listen):
    """`inside` with this plan, outside of a path."""
    plan = folder / "plan.json"
    plan.write_text(
        json.dumps({"commands": commands, "listen": listen, "address": str(folder / "address")})
    )
    process = subprocess.Popen(
        [sys.executable, "-I", inside.__file__, plan],
        env=os.environ | {"PATHCAST_ADDRESS": "10.0.0.1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def free_port(kind):
    with socket.socket(type=socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def servers(*kinds):
    """Commands of servers, and what they listen on."""
    ports = [(kind, str(free_port(kind))) for kind in kinds]
    # the plan's servers end with what starts them, however that ends
    before = [*("setpriv", "--pdeathsig=KILL", "--"), sys.executable, "-c", SERVER]
    return [[*before, *one] for one in ports], [" ".join(one) for one in ports]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_servers_end_with_what_started_them(tmp_path, number, code):
    commands, listen = servers("tcp", "udp")
    address = tmp_path / "address"
    with started(tmp_path, commands, listen) as process:
        wait_until(address.exists, "the file with the address")
        assert address.read_text() == "10.0.0.1"
        assert inside.listening() >= set(listen)
        process.send_signal(number)
        assert process.wait(20) == code
    wait_until(lambda: not inside.listening() & set(listen), "the end of the servers")


def test_a_server_that_ends_ends_the_others(tmp_path):
    commands, listen = servers("tcp")
    with started(tmp_path, [*commands, ["false"]], [*listen, "tcp 1"]) as process:
        assert process.wait(20) == 1
    assert not (tmp_path / "address").exists()
    assert not inside.listening() & set(listen)
