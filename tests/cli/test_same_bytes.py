"""The same seeds give the same bytes: what a recorded set of commands gave, they give.

A change that moves code and means to change no behavior leaves the record as it is. One that does change
what is printed or written records anew, and the record's difference says what it changed:

    .venv/bin/python tests/cli/test_same_bytes.py
"""

import csv
import hashlib
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
RECORD = ROOT / "tests/data/same_bytes.json"
#: Keys of what differs from run to run: times of the processor and of the wall, versions, folders.
OTHERWISE = {
    "cpu_s",
    "wall_s",
    "seconds",
    "version",
    "folder",
    "trace",
    "traces",
    "file",
    "files",
    "host",
    "at",
}
#: Figures agree to so many digits on machines with another mathematical library.
DIGITS = 9

LINK = "paths/12mbps-60ms-1bdp.toml"
SHORT = "tests/data/path.toml"
CALIBRATED = "paths/pantheon-calibrated-2-mexico-cellular-to-california.toml"
POLICER = "paths/pantheon-pathological-8-policer-12mbps-50ms.toml"
CHANGING = "paths/dynamic-econ.toml"
SCHEMES = (
    "cubic",
    "reno",
    "bbr",
    "bbr3",
    "copa",
    "ledbat",
    "vegas",
    "scalable",
    "quic-cubic",
    "quic-reno",
)
TRANSFER = "{ kind = 'transfer', size = '300 kB', count = 5, pause = '200 ms' }"
REQUESTS = "{ kind = 'request-response', response = { kind = 'pareto', mean = '60 kB', index = 1.2 }, think = '0.1 s' }"
ON_OFF = "{ kind = 'on-off', on = '0.5 s', off = { kind = 'exponential', mean = '1 s' } }"


def _simulations():
    """Name and arguments of each run of the simulator."""
    for scheme in SCHEMES:
        yield (
            f"simulate {scheme}",
            [LINK, "--scheme", scheme, "--duration", "20", "-o", "trace.parquet"],
        )
    for path in (CALIBRATED, POLICER, CHANGING):
        yield f"simulate over {Path(path).stem}", [path, "--duration", "20", "-o", "trace.parquet"]
        yield (
            f"simulate reno over {Path(path).stem}",
            [path, "--scheme", "reno", "--duration", "20"],
        )
    for name, workload in (("transfers", TRANSFER), ("requests", REQUESTS), ("on and off", ON_OFF)):
        yield (
            f"simulate {name}",
            [LINK, "--workload", workload, "--duration", "20", "-o", "trace.parquet"],
        )
        yield f"simulate {name} over QUIC", [
            LINK, "--workload", workload, "--scheme", "quic-cubic", "--duration", "10",
        ]  # fmt: skip
    yield "simulate mixed flows", [
        LINK, "--scheme", "cubic", "--scheme", "bbr", "--flows", "3", "--duration", "20", "-o", "trace.parquet",
    ]  # fmt: skip
    yield "simulate packets and queues", [
        LINK, "--seed", "7", "--duration", "3", "--packets", "packets.parquet", "--queues", "queues.parquet",
    ]  # fmt: skip
    for scenario in ("dumbbell", "parking-lot", "web-beside-bulk"):
        yield (
            f"simulate {scenario}",
            [f"scenarios/{scenario}.toml", "--duration", "10", "-o", "trace.parquet"],
        )


def _of_traces():
    """Name and arguments of what reads a trace; `TRACE` is one of a lossy path."""
    for trace in ("TRACE", "tests/data/reno.cwnd.csv.gz"):
        of = Path(trace).name.partition(".")[0].lower()
        yield f"fit {of}", ["fit", trace]
        yield f"evaluate {of}", ["evaluate", trace]
        yield (
            f"evaluate {of} as in the paper",
            ["evaluate", trace, "--protocol", "paper", "--horizon", "10"],
        )
        yield f"follow {of}", ["follow", trace]
        yield f"latency {of}", ["latency", trace, *(["--rtt", "0.05"] if of == "reno" else [])]
    yield "latency of a new connection", ["latency", "TRACE", "--new", "--tls", "1.3"]
    for kind, file in (("capture", "flow.pcap"), ("iperf3", "iperf3.json"), ("ss", "ss.txt")):
        yield f"convert {kind}", ["convert", f"tests/data/{file}", "-o", "converted.parquet"]
    yield "convert tcp_probe", ["convert", "tests/data/tcp_probe.txt.gz", "-o", "converted.csv"]


def _closed_forms():
    """Name and arguments of what runs nothing."""
    yield (
        "latency by numbers",
        ["latency", "--rtt", "0.05", "--rate", "20 Mbit/s", "--loss", "0.01"],
    )
    yield "latency of a path", ["latency", "--path", LINK, "--scheme", "reno", "--connections", "6"]
    of_probe = ["estimate", "--bytes", "1 MB", "--time", "1.1", "--rtt", "0.06"]
    yield "estimate", of_probe
    yield "estimate with losses", [*of_probe, "--losses", "3", "--windows"]
    bucket = ["--token-bucket", "2 Mbit/s", "100 kbit"]
    yield "bound", ["bound", "--rate", "10 Mbit/s", "--latency", "0.02", *bucket]
    yield "bound of a window", [
        "bound", "--rate", "10 Mbit/s", "--window", "500 kbit", "--rtt", "0.1", *bucket,
    ]  # fmt: skip
    yield "path show", ["path", "show", CALIBRATED]


def _experiments():
    """Name and arguments of what runs many."""
    yield (
        "sweep",
        [
            "sweep",
            LINK,
            POLICER,
            "--scheme",
            "cubic",
            "--scheme",
            "reno",
            "--seeds",
            "3",
            "--duration",
            "10",
        ],
    )
    yield "attainable rate of a window", [
        "attainable-rate", "--latency", "0.02", "--window", "8", "--samples", "60",
        "--epsilon", "0.1", "-o", "rate",
    ]  # fmt: skip
    yield "benchmark attainable-rate", [
        "benchmark", "attainable-rate", "--configuration", "buffer-21", "--samples", "60",
        "--epsilon", "0.1", "--rate", "2 Mbit/s", "--rate", "5 Mbit/s", "-o", "benchmark",
    ]  # fmt: skip
    yield "evaluate suite", [
        "evaluate", "suite", "--world", "simulator", "--network", "last-mile-1", "--network", "short-flows",
        "-o", "suite",
    ]  # fmt: skip


CASES = {
    **{name: ["simulate", *arguments] for name, arguments in _simulations()},
    **dict(_of_traces()),
    **dict(_closed_forms()),
    **dict(_experiments()),
}


def _plain(value):
    """A JSON value without what differs from run to run, and from clone to clone."""
    match value:
        case dict():
            return {key: _plain(one) for key, one in value.items() if key not in OTHERWISE}
        case list():
            return [_plain(one) for one in value]
        case float():
            return f"{value:.{DIGITS}g}"
        case str():
            return value.replace(f"{ROOT}/", "")  # wherever the repository lies
    return value


def _figure(field):
    """A field of a CSV file, figures as in JSON."""
    try:
        return _plain(float(field))
    except ValueError:
        return _plain(field)


def _digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def _run(arguments, folder):
    """Runs a command in a folder; digests of what it printed and wrote."""
    arguments = [str(ROOT / one) if (ROOT / one).is_file() else one for one in arguments]
    command = [str(Path(sys.executable).with_name("pathcast")), *arguments]
    if arguments[0] != "path":
        command.append("--json")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    printed = done.stdout
    if arguments[0] != "path":
        printed = json.dumps(_plain(json.loads(printed)), sort_keys=True)
    digests = {"printed": _digest(printed.encode())}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if file.suffix == ".json":
            value = _plain(json.loads(file.read_text()))
            digests[name] = _digest(json.dumps(value, sort_keys=True).encode())
        elif file.suffix == ".csv":
            with file.open(newline="") as lines:
                rows = [[_figure(field) for field in row] for row in csv.reader(lines)]
            digests[name] = _digest(json.dumps(rows).encode())
        elif file.suffix == ".parquet":
            digests[name] = _digest(file.read_bytes())
    return digests


def _trace_of_a_lossy_path(folder):
    """The trace that `TRACE` stands for."""
    path = folder / "lossy.toml"
    path.write_text("rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\nloss = 0.001\n")
    trace = folder / "lossy.parquet"
    command = [
        str(Path(sys.executable).with_name("pathcast")),
        "simulate",
        str(path),
        "--duration",
        "120",
    ]
    subprocess.run([*command, "--seed", "3", "-o", str(trace)], check=True, capture_output=True)
    return trace


def _digests_of(name, trace, folder):
    arguments = [str(trace) if one == "TRACE" else one for one in CASES[name]]
    return _run(arguments, folder)


@pytest.fixture(scope="module")
def lossy_trace(tmp_path_factory):
    return _trace_of_a_lossy_path(tmp_path_factory.mktemp("lossy"))


@pytest.mark.parametrize("name", CASES)
def test_the_same_bytes_as_recorded(name, lossy_trace, tmp_path):
    assert _digests_of(name, lossy_trace, tmp_path) == json.loads(RECORD.read_text())[name]


def test_each_record_is_of_a_run():
    assert set(json.loads(RECORD.read_text())) == set(CASES)
    assert len(CASES) >= 40


def _record():
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:
        trace = _trace_of_a_lossy_path(Path(scratch))

        def digests_of(item):
            number, name = item
            folder = Path(scratch) / str(number)
            folder.mkdir()
            return name, _digests_of(name, trace, folder)

        record = dict(pool.map(digests_of, enumerate(CASES)))
    before = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    for name, digests in record.items():
        if digests != before.get(name):
            print(f"changed: {name}")


if __name__ == "__main__":
    _record()
