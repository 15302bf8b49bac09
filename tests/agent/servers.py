"""Namespaces of an agent, its servers and its clients. They need root; elsewhere these tests skip with the reason."""

import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "cdn"))

from wire import Wire  # noqa: E402 - it lies there

NUMBERS = itertools.count()
#: Before anything else, so that no test passes because something is missing.
SYSCTLS = (
    "tcp_slow_start_after_idle",
    "tcp_autocorking",
    "tcp_rmem",
    "tcp_wmem",
    "tcp_notsent_lowat",
)


def program():
    """The agent's program: PATHCAST_AGENT, or the newest that Cargo has built."""
    if given := os.environ.get("PATHCAST_AGENT"):
        return given
    built = [ROOT / "target" / kind / "pathcast-agent" for kind in ("debug", "release")]
    built = [one for one in built if one.exists()]
    return str(max(built, key=lambda one: one.stat().st_mtime)) if built else None


def command(*words, check=True):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=60)
    assert not check or done.returncode == 0, (words, done.stderr)
    return done.stdout


class Net:
    """Network namespaces with names of their own, and all that runs in them."""

    def __init__(self, folder):
        self.folder = folder
        self.made, self.processes, self.wires = [], [], []

    def namespace(self, name):
        name = f"pca{os.getpid() % 10000}x{next(NUMBERS)}{name}"
        command("ip", "netns", "add", name)
        self.made.append(name)
        command("ip", "-n", name, "link", "set", "lo", "up")
        words = "net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.default.router_solicitations=0"
        command("ip", "netns", "exec", name, "sysctl", "-qw", *words)
        return name

    def pair(self, one, two, addresses_one, addresses_two):
        """A link between two namespaces."""
        number = next(NUMBERS)
        devices = f"a{number}", f"b{number}"
        command("ip", "-n", one, "link", "add", devices[0], "type", "veth", "peer", "name", devices[1],
                "netns", two)  # fmt: skip
        for namespace, device, addresses in (
            (one, devices[0], addresses_one),
            (two, devices[1], addresses_two),
        ):
            for address in addresses:
                nodad = ["nodad"] if ":" in address else []
                command("ip", "-n", namespace, "address", "add", address, "dev", device, *nodad)
            command("ip", "-n", namespace, "link", "set", device, "up")
        for namespace, device in zip((one, two), devices, strict=True):
            words = "ip", "-n", namespace, "-6", "route", "show", "table", "all", "dev", device
            deadline = time.monotonic() + 10
            # what the kernel adds by itself, some of it a moment after the link is up
            added = "fe80::/64", "local fe80::", "ff00::/8"
            shown = command(*words)
            while any(route not in shown for route in added):
                assert time.monotonic() < deadline, shown
                time.sleep(0.02)
                shown = command(*words)
        return devices

    def start(self, namespace, *words, **options):
        log = (self.folder / f"{Path(words[0]).name}-{len(self.processes)}.log").open("w")
        process = subprocess.Popen(
            # ip netns exec would hide cgroups: it mounts /sys anew
            ["nsenter", f"--net=/run/netns/{namespace}", *map(str, words)],
            stdout=log,
            stderr=log,
            **options,
        )
        process.log = Path(log.name)
        self.processes.append(process)
        return process

    def wire(self, namespace):
        wire = Wire(namespace)
        self.wires.append(wire)
        return wire

    def agent(self, namespace, wire, *more, settings=""):
        """An agent's words: its program with options."""
        token = self.folder / "token"
        token.write_text(wire.secret + "\n")
        token.chmod(0o600)
        config = self.folder / "agent.toml"
        head = f'name = "edge-1"\nstate = "{self.folder}/state"\nreport_every_s = 1\n'
        config.write_text(head + settings)
        return [program(), "--manager", wire.url, "--token-file", token, "--config", config, *more]

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait(10)
        for wire in self.wires:
            wire.close()
        for name in self.made:
            command("ip", "netns", "del", name, check=False)


def state(*namespaces):
    """All that an agent may change."""
    found = {}
    for name in namespaces:
        for family in "-4", "-6":
            found[name, family, "rules"] = command("ip", "-n", name, family, "rule")
            routes = command("ip", "-n", name, family, "route", "show", "table", "all")
            found[name, family, "routes"] = routes
        found[name, "nft"] = command("ip", "netns", "exec", name, "nft", "list", "ruleset")
        for sysctl in SYSCTLS:
            words = "ip", "netns", "exec", name, "cat", f"/proc/sys/net/ipv4/{sysctl}"
            found[name, sysctl] = command(*words)
    return found


@pytest.fixture
def net(tmp_path):
    if os.geteuid() != 0 or not Path("/proc/sys/net/ipv4").exists():
        pytest.skip("needs root, for network namespaces")
    missing = [tool for tool in ("ip", "nft", "ss") if shutil.which(tool) is None]
    if missing or program() is None:
        missing += [] if program() else ["pathcast-agent (cargo build -p pathcast-agent)"]
        pytest.skip(
            f"needs {', '.join(missing)}; scripts/system-packages servers installs the tools"
        )
    net = Net(tmp_path)
    try:
        yield net
    finally:
        net.close()
