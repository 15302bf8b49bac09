"""`pathcast serve --watch`: samples from the kernel's sockets, in a network namespace of its own, without capabilities."""

import ctypes
import json
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from serving import serving

from conftest import run

CLIENT, SERVER, PORT = "192.0.2.7", "198.51.100.1", 5001
#: All capabilities are given away, so that the service has none even as the namespace's root.
PLAIN = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]


def send(connection):
    """Sends without a pause until the client closes."""
    try:
        while True:
            connection.sendall(bytes(1 << 16))
    except OSError:
        connection.close()


def inside():
    """In the namespace: a client fetches for some seconds; prints what the service knows then."""
    for address in (CLIENT, SERVER):
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with (
        socket.create_server((SERVER, PORT)) as server,
        serving("--watch", PORT, before=PLAIN) as service,
    ):
        with socket.create_connection((SERVER, PORT), source_address=(CLIENT, 0)) as client:
            threading.Thread(target=send, args=(server.accept()[0],), daemon=True).start()
            received, begin = 0, time.monotonic()
            while time.monotonic() < begin + 4:
                received += len(client.recv(1 << 16))
                time.sleep(0.005)
            took_s = time.monotonic() - begin
            answer = service.get(f"/v1/throughput?client={CLIENT}&horizon_s=1")
            known = service.get(f"/v1/prefix?client={CLIENT}")
        other = service.get(f"/v1/prefix?client={SERVER}")[0]
        watched = service.metric("watched_samples_total")
    print(json.dumps([8 * received / took_s, answer, known, other, watched]))


def test_flows_of_a_port_are_samples_without_any_privilege():
    missing = [tool for tool in ("ip", "setpriv", "unshare") if shutil.which(tool) is None]
    words = ["unshare", "--user", "--map-root-user", "--net"]
    if missing or subprocess.run([*words, "true"], check=False).returncode != 0:
        pytest.skip(f"needs ip, setpriv, unshare and user namespaces; missing: {missing}")
    # as pytest has it: the helpers of all tests, and those of this folder
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [*words, sys.executable, __file__],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    rate_bps, (status, answer), (_, known), other, watched = json.loads(done.stdout)
    assert status == 200, answer
    assert answer["basis"]["kind"] == "prefix" and answer["basis"]["name"] == "192.0.2.0/24"
    assert 0.7 * rate_bps < answer["rate_bps"] < 1.5 * rate_bps
    assert known["packets"] > 100 and known["rtt_s"] < 1
    assert 8 <= watched <= 20, "four a second"
    assert other == 404, "the client's own socket is at another port"


def without_netlink():
    """Makes the kernel refuse sockets of AF_NETLINK to this process, as RestrictAddressFamilies does."""
    numbers = {"x86_64": 41, "aarch64": 198}
    load, equal, give_back, allow = 0x20, 0x15, 0x06, 0x7FFF0000
    refused = 0x00050000 | 97  # EAFNOSUPPORT
    program = b"".join(
        struct.pack("HBBI", *line)
        for line in [
            (load, 0, 0, 0),  # the system call
            (equal, 0, 3, numbers[platform.machine()]),
            (load, 0, 0, 16),  # its first argument
            (equal, 0, 1, socket.AF_NETLINK),
            (give_back, 0, 0, refused),
            (give_back, 0, 0, allow),
        ]
    )
    held = ctypes.create_string_buffer(program)
    filled = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [ctypes.c_int] + 4 * [ctypes.c_void_p]
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, filled, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def test_where_the_kernel_refuses_the_service_says_so_and_does_not_start():
    if platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("the filter has the numbers of two machines")
    words = ("serve", "--listen", "127.0.0.1:0", "--watch")
    done = run(*words, "all", timeout=20, preexec_fn=without_netlink)
    assert done.returncode == 2
    said = done.stderr.replace("\n", " ")
    assert "AF_NETLINK" in said and "RestrictAddressFamilies" in said
    done = run(*words, "https", timeout=20)
    assert done.returncode == 2 and "expected a port" in done.stderr


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    inside()
