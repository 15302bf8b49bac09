"""An agent and the real manager: after the first configuration, what changed alone crosses the wire."""

import json
import sys
import time
import urllib.request
from pathlib import Path

from servers import command, program
from wire import inside

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "manager"))

from managing import MODEL, QUICK
from managing import program as built

pytest_plugins = ["servers"]
MANY = 200


def test_changes_alone_cross_the_wire_and_all_of_them_are_in_force(net):
    server, client = net.namespace("s"), net.namespace("c")
    net.pair(server, client, ["10.9.0.1/16", "fd09:1::1/64"], ["10.9.0.2/16", "fd09:1::2/64"])
    command("ip", "-n", server, "route", "add", "default", "via", "10.9.0.2")
    config = net.folder / "manager.toml"
    config.write_text(QUICK)
    state = f"sqlite://{net.folder}/manager.sqlite"
    words = ["--listen", "127.0.0.1:8090", "--state", state, "--config", config]
    net.start(server, built("pathcast-manager"), *words)

    def ask(method, path, body=None):
        asked = urllib.request.Request(
            f"http://127.0.0.1:8090{path}", body and json.dumps(body).encode(), method=method
        )

        def answered():
            with urllib.request.urlopen(asked, timeout=10) as answer:
                text = answer.read().decode()
                return json.loads(text) if "json" in answer.headers["Content-Type"] else text

        return inside(server, answered)

    def until(what, check):
        deadline = time.monotonic() + 30
        while True:
            try:
                if check():
                    return
            except (OSError, IndexError, TypeError):
                pass
            assert time.monotonic() < deadline, what
            time.sleep(0.1)

    def placed():
        shown = command("ip", "-n", server, "-4", "route", "show", "table", "all")
        return sum("congctl" in line for line in shown.splitlines())

    until("the manager listens", lambda: ask("GET", "/healthz") == "ok\n")
    model = {**MODEL, "templates": [{"name": "lossy", "knobs": {"congestion_control": "reno"}}]}
    ask("PUT", "/v1/model", model)
    token = net.folder / "token"
    token.write_text(ask("POST", "/v1/agents", {"name": "edge-1"})["token"])
    token.chmod(0o600)
    for number in range(MANY):
        ask("POST", "/v1/pin", {"prefix": f"10.20.{number}.0/24", "template": "lossy"})
    agent = net.folder / "agent.toml"
    agent.write_text(f'name = "edge-1"\nstate = "{net.folder}/state"\nreport_every_s = 1\n')
    options = ["--manager", "http://127.0.0.1:8090", "--token-file", token, "--config", agent]
    net.start(server, program(), *options)
    until("all are in force", lambda: placed() == MANY)

    ask("POST", "/v1/pin", {"prefix": "10.21.0.0/24", "template": "lossy"})
    ask("POST", "/v1/unpin", {"prefix": "10.20.0.0/24"})
    newest = ask("GET", "/v1/status")["version"]
    until(
        "the agent applied the newest",
        lambda: ask("GET", "/v1/agents")["agents"][0]["applied"]["version"] == newest,
    )
    assert placed() == MANY, "one more and one less"
    shown = command("ip", "-n", server, "-4", "route", "show", "table", "all")
    assert "10.21.0.0/24" in shown and "10.20.0.0/24" not in shown
    metrics = ask("GET", "/metrics")

    def metric(name, kind):
        head = f'pathcast_manager_{name}{{kind="{kind}"}} '
        return next(float(one[len(head) :]) for one in metrics.splitlines() if head in one)

    assert metric("configurations_total", "whole") == 1
    assert metric("configurations_total", "delta") >= 1
    bytes_each = metric("configuration_bytes_total", "delta") / metric(
        "configurations_total", "delta"
    )
    assert bytes_each < metric("configuration_bytes_total", "whole") / 5
