"""Every command in the docs runs, page by page; `make test-full`.

What a command takes (`PATH.toml`, `capture.pcap`) is there in a small form. `CHANGED` has what a test must change, and
`LEFT_OUT` what no test runs, each with the reason.
"""

import gzip
import os
import re
import shutil
import subprocess

import pytest

from conftest import PATHCAST, ROOT, run

#: Pages whose commands other tests run, or that have commands of the build alone.
ELSEWHERE = {
    "README.md": "test_examples.py, and scripts/try-wheel from the wheel alone",
    "CONTRIBUTING.md": "make: what CI does",
    "first-forecast.md": "test_examples.py",
}

#: Lines that no test runs, by a pattern, and why.
LEFT_OUT = {
    r"^(PATHCAST_DATA=\S+ )?make |^cargo test|^\.venv/bin/pytest": "the tests themselves; CI runs them",
    r"^cargo doc": "rustdoc opens a browser",
    r"^cargo (install|fuzz)|^scripts/fuzz": "needs a compiler for fuzzing, and minutes for each target",
    r"^ray |RAY_|GRPC_|--cluster HEAD": "several machines; tests/cluster runs a cluster of one",
    r"--cgroup /system.slice/nginx": "a service of systemd; tests/cli/test_watch.py has a control group of its own",
    r"make build && pathcast simulate .* (--scheme aimd|--workload)": "a controller or workload that the reader writes",
    r"make build && pathcast (simulate path.toml|FILE)": "a queue or format that the reader writes",
    r"--world emulator --samples 250": "two and a half hours; tests/cli/test_benchmark.py runs shorter ones",
    r"evaluate limits --held-out --world emulator": "a quarter of an hour in real time; without the emulator it runs",
    r"evaluate suite --duration 600": "an hour in real time; tests/cli/test_suite.py runs cells of it",
    r"evaluate suite --network short-flows": "five minutes in real time; tests/cli/test_suite.py runs cells of it",
    r"evaluate scoreboard(?!.*--group)": "an hour of all processors; the group one-minute runs",
    r"benches/short_flows.py": "an hour; tests/cli/test_estimate.py runs the same estimates",
    r"benchmark pages": "minutes in real time; tests/cli/test_benchmark_pages.py runs a small one",
    r"configure (learn|evaluate)": "minutes of all processors; tests/control/test_configure.py runs small ones",
    r"benches/several.py": "real data; tests/cli/test_calibrate_several.py runs the same",
    r"benches/what_if.py": "an hour in real time; tests/cli/test_what_if.py runs the same",
    r"(attainable-rate --world |calibrate --)live": "a second host; tests/cli/test_live.py runs it between namespaces",
    r"cargo run .*--example emulate": "a build of its own; tests/parity runs the same",
    r"pathcast agent|configure space|examples/cdn/run": "root, a manager and minutes; tests/agent runs the same",
    r"^pathcast manager|127\.0\.0\.1:8090": "a program of its own; crates/manager/tests runs the same requests",
    r"schemes (build|add|check go-reno)": "compilers and minutes; tests/schemes runs the same",
    r"tcpdump": "until Ctrl-C; a capture that is there already is converted",
}

#: What is written differently in a test: pattern, replacement, and why.
CHANGED = [
    (r"sudo ", "", "tests run as root, or skip"),
    (r"\$\(which pathcast\)", "pathcast", "the environment of the tests"),
    (r"^pathcast live key key", "rm key; pathcast live key key", "there is a key already"),
    (r"server\.example", "127.0.0.1", "no second host"),
    (r"(live server .*?)( &)?$", r"\1 & sleep 2", "a server runs until Ctrl-C"),
    (r"^(pathcast predict download --serve .*)", r"\1 & sleep 2", "a server runs until Ctrl-C"),
    (r"^(pathcast serve .*)", r"\1 & sleep 2", "a service runs until Ctrl-C"),
    (r"(watch --port 8642 .*)", r"\1 & watching=$!; sleep 2", "a terminal of its own"),
    (r"(shell access.toml .*)", r"\1; wait $watching", "a terminal of its own"),
    (r"(watch --port 443 -o \S+)", r"\1 --duration 1", "until Ctrl-C"),
    (r"--pid 4711 --duration 60", "--pid $$ --duration 1", "a process that exists, for a second"),
    (r"iperf3 --server --daemon", "iperf3 --server --one-off --daemon", "must end"),
    (r"--budget", "--yes --budget", "nobody answers a question"),
    (r"--samples 200 --epsilon 0.05", "--samples 20 --epsilon 0.3", "seconds instead of a quarter of an hour"),
    (r"^pathcast benchmark attainable-rate$",
     "pathcast benchmark attainable-rate --samples 20 --epsilon 0.3 --rate '1 Mbit/s' --longest 100 "
     "--configuration base", "hours"),
    (r"seeds 1000 ", "seeds 2 ", "hours"),
    (r"PATH\.toml\.\.\.", "PATH.toml", "any number of files"),
]  # fmt: skip

#: A page of one image.
HAR = """{"log": {"version": "1.2", "entries": [
{"startedDateTime": "2026-01-31T12:00:00.000Z", "time": 60, "request": {"url": "https://example.org/"},
 "response": {"status": 200, "bodySize": 20000}, "timings": {"wait": 40, "receive": 20}},
{"startedDateTime": "2026-01-31T12:00:00.050Z", "time": 60, "request": {"url": "https://example.org/photo.jpg"},
 "response": {"status": 200, "bodySize": 90000}, "timings": {"wait": 40, "receive": 20}}]}}
"""

#: Stands in for iperf3 where it is not installed: a server that sends, and a client that reads.
IPERF3 = """#!/usr/bin/env python3
import os, signal, socket, sys
signal.alarm(60)
if "--server" in sys.argv:
    server = socket.create_server(("0.0.0.0", 5201))
    if "--daemon" in sys.argv:
        if os.fork():
            sys.exit()
        # a child has no alarm, and whoever waits for the end of the output waits for it
        signal.alarm(60)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
    while True:
        socket_, _ = server.accept()
        socket_.sendall(bytes(1_000_000))
        socket_.close()
        if "--one-off" in sys.argv:
            sys.exit()
client = socket.create_connection((sys.argv[sys.argv.index("--client") + 1], 5201), timeout=30)
count = 0
while piece := client.recv(65536):
    count += len(piece)
sys.exit(count != 1_000_000)
"""

#: A file that a page has the reader save.
SAVED = r"Save this as `(\S+)`.*?^```\w+\n(.*?)^```"
ON_THE_KERNEL = r"pathcast (emulate|shell|live|watch|schemes check)|--world (live|emulator)"


def lines_of(page):
    """The lines of a page's shell blocks, those that end in a backslash joined, without comments."""
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", page.read_text(), re.M | re.S):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            line = re.sub(r"\s+#\s.*$", "", line).strip()
            if line:
                yield line


def reason_to_leave_out(line):
    return next((why for pattern, why in LEFT_OUT.items() if re.search(pattern, line)), None)


def as_run(line):
    for pattern, replacement, _ in CHANGED:
        line = re.sub(pattern, replacement, line)
    return line


PAGES = [
    page
    for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    if page.name not in ELSEWHERE and any(True for _ in lines_of(page))
]


def test_each_line_left_out_or_changed_is_in_the_docs():
    """A pattern that matches nothing has outlived its command."""
    lines = [line for page in PAGES for line in lines_of(page)]
    for pattern in (*LEFT_OUT, *(pattern for pattern, *_ in CHANGED)):
        assert any(re.search(pattern, line) for line in lines), pattern


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """A folder with the files that commands in the docs name."""
    folder = tmp_path_factory.mktemp("samples")
    path = "rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\nloss = 0.0005\n"
    for name in ("path.toml", "PATH.toml", "deep.toml", "access.toml"):
        (folder / name).write_text(path)
    shutil.copy(ROOT / "scenarios" / "dumbbell.toml", folder / "SCENARIO.toml")
    data = ROOT / "tests" / "data"
    shutil.copy(data / "flow.pcap", folder / "server.pcap")
    for name in ("FILE", "LOG"):
        shutil.copy(data / "ss.txt", folder / name)
    (folder / "LOG.gz").write_bytes(gzip.compress((data / "ss.txt").read_bytes()))
    for name in ("up.trace", "down.trace", "link.trace"):
        (folder / name).write_text("".join(f"{ms}\n" for ms in range(1, 101)))
    (folder / "client").write_text("#!/bin/sh\nip address\n")
    (folder / "client").chmod(0o755)
    (folder / "arrivals.csv").write_text(
        "time_s,size_bytes\n" + "".join(f"{n * 0.01},1500\n" for n in range(100))
    )
    (folder / "page.har").write_text(HAR)
    import pathcast

    pathcast.Curve.latency_rate(10e6, 0.05).save(folder / "curve.json")
    mm_link = "".join(f"{ms} + 1504\n{ms} # 1504\n{ms} - 1504 0\n" for ms in range(1, 2000))
    (folder / "mm-link.log").write_text(f"# base timestamp: 0\n{mm_link}")
    # a tunnel of Pantheon: the packets that entered, and when they left
    ingress, egress = ["# mm-tunnelclient ingress: 0.000\n"], ["# mm-tunnelserver egress: 0.000\n"]
    for number in range(1000):
        ingress.append(f"{number:.3f} - {number} - 1500\n")
        egress.append(f"{number + 20:.3f} - {number} - 1500\n")
    (folder / "INGRESS").write_text("".join(ingress))
    (folder / "EGRESS").write_text("".join(egress))
    capture = (folder / "SCENARIO.toml", "--duration", 10, "--pcap", folder / "capture.pcap")
    done = run("simulate", *capture)
    assert done.returncode == 0, done.stderr
    for name in ("trace", "flows", "cubic", "bbr"):
        done = run(
            "simulate", folder / "path.toml", "--duration", 150, "-o", folder / f"{name}.parquet"
        )
        assert done.returncode == 0, done.stderr
    (folder / "FOLDER").mkdir()
    cell = folder / "suite" / "cells" / "NAME"
    cell.mkdir(parents=True)
    shutil.copy(folder / "trace.parquet", cell / "trace.parquet")
    done = run("live", "key", folder / "key")
    assert done.returncode == 0, done.stderr
    for name in ("paths", "scenarios", "benches"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_the_commands_of_a_page_run(page, samples, tmp_path, request):
    lines = [as_run(line) for line in lines_of(page) if reason_to_leave_out(line) is None]
    if not lines:
        pytest.skip("; ".join({reason_to_leave_out(line) or "" for line in lines_of(page)}))
    if any(re.search(ON_THE_KERNEL, line) for line in lines):
        request.getfixturevalue("emulator")
        if os.geteuid() != 0:
            pytest.skip("needs root")
    folder = tmp_path / "here"
    shutil.copytree(samples, folder, symlinks=True)
    for file, text in re.findall(SAVED, page.read_text(), re.M | re.S):
        (folder / file).write_text(text)
    bin = tmp_path / "bin"
    bin.mkdir()
    if shutil.which("iperf3") is None:
        (bin / "iperf3").write_text(IPERF3)
        (bin / "iperf3").chmod(0o755)
    # what a page starts in the background ends with it
    ended = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"
    script = "\n".join(["set -eux", ended, *lines])
    environment = os.environ | {"PATH": f"{PATHCAST.parent}:{os.environ['PATH']}:{bin}"}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
