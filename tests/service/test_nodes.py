"""`examples/serve/haproxy.cfg`: prefixes over several services by a consistent hash."""

import ipaddress
import shutil
import socket
import subprocess
import time
import zlib
from contextlib import ExitStack

import pytest
from serving import LINES, Service, samples, serving

from conftest import ROOT

EXAMPLE = ROOT / "examples" / "serve" / "haproxy.cfg"
CLIENTS = [f"{first}.{second}.7.1" for first in (10, 172, 192) for second in range(20)]
CLIENTS += [f"2001:db8:{number:x}::5" for number in range(20)]


def shard(client):
    """As the example says it."""
    bits = 48 if ":" in client else 24
    network = ipaddress.ip_network(f"{client}/{bits}", strict=False)
    return zlib.crc32(network.network_address.packed) % 1024


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Three services, and HAProxy in front of them."""
    if shutil.which("haproxy") is None:
        pytest.skip("there is no haproxy; scripts/system-packages http installs it")
    with ExitStack() as stack:
        services = [stack.enter_context(serving()) for _ in range(3)]
        text = EXAMPLE.read_text()
        for service, port in zip(services, (8081, 8082, 8083), strict=True):
            assert f"127.0.0.1:{port}" in text
            text = text.replace(f"127.0.0.1:{port}", service.address)
        address = f"127.0.0.1:{free_port()}"
        file = tmp_path_factory.mktemp("haproxy") / "haproxy.cfg"
        file.write_text(text.replace("127.0.0.1:8000", address))
        proxy = subprocess.Popen(["haproxy", "-db", "-f", str(file)], stderr=subprocess.DEVNULL)
        stack.callback(proxy.wait, 10)
        stack.callback(proxy.terminate)
        front = Service(proxy, address)
        until = time.monotonic() + 10
        while True:
            try:
                if front.get("/healthz", timeout=2)[0] == 200:
                    break
            except OSError:
                assert time.monotonic() < until, "haproxy does not answer"
                time.sleep(0.1)
        yield front, services


def test_a_question_goes_where_its_prefix_was_learned(nodes):
    front, services = nodes
    for client in CLIENTS:
        headers = {**LINES, "Pathcast-Shard": str(shard(client))}
        assert front.post(samples(client, count=5), headers)[0] == 200
    for client in CLIENTS:
        status, answer = front.get(f"/v1/throughput?client={client}")
        assert status == 200, (client, answer)
        assert answer["basis"]["kind"] == "prefix", (client, answer["basis"])
        network = answer["prefix"]
        assert front.get(f"/v1/prefix?client={network}")[0] == 200, "a prefix is asked about too"
    kept = [service.metric("prefixes") for service in services]
    assert sum(kept) == len(CLIENTS), "each prefix has one service"
    assert min(kept) > 10


def test_a_service_that_is_gone_moves_its_own_prefixes_alone(nodes):
    front, services = nodes
    before = [
        next(
            n for n, one in enumerate(services) if one.get(f"/v1/prefix?client={client}")[0] == 200
        )
        for client in CLIENTS
    ]
    services[2].stop()
    until = time.monotonic() + 15
    while (
        time.monotonic() < until
        and front.get("/v1/prefix?client=" + CLIENTS[before.index(2)])[0] == 503
    ):
        time.sleep(0.2)
    for client, place in zip(CLIENTS, before, strict=True):
        basis = front.get(f"/v1/throughput?client={client}")[1]["basis"]["kind"]
        assert (basis == "prefix") == (place != 2), client


def test_what_names_no_prefix_is_refused(nodes):
    front, _ = nodes
    status, said = front.post(samples())
    assert status == 400 and "Pathcast-Shard" in said
