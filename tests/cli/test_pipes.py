"""Traces out of pipes, and packed files that unpack to far more than they are."""

import gzip
import subprocess
import sys
import zlib

import pytest
from test_convert import probe_lines

import pathcast
from conftest import PATHCAST, run


def shell(script, *arguments):
    """Runs a script of bash in which `$0` is the `pathcast` command and `$1` ... are these arguments."""
    command = ["bash", "-c", script, str(PATHCAST), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def probe_file(tmp_path):
    file = tmp_path / "probe.txt"
    file.write_text(probe_lines())
    assert file.stat().st_size > 4 * 65_536
    return file


@pytest.mark.parametrize(
    "command",
    [
        '"$0" convert <(cat "$1") -o "$2"',
        'cat "$1" | "$0" convert - -o "$2"',
        'cat "$1" | "$0" convert /dev/stdin -o "$2"',
        '"$0" convert - -o "$2" < "$1"',
        'mkfifo "$2.pipe" && (cat "$1" > "$2.pipe" &) && "$0" convert "$2.pipe" -o "$2"',
        'gzip -c "$1" | "$0" convert - -o "$2"',
    ],
)
def test_a_pipe_gives_the_same_rows_as_the_file(command, probe_file, tmp_path):
    done = shell(command, probe_file, tmp_path / "t.parquet")
    assert done.returncode == 0, done.stderr
    columns = pathcast.read_trace(tmp_path / "t.parquet").columns
    wanted = pathcast.read_trace(probe_file).columns
    assert all((columns[name] == wanted[name]).all() for name in ("time_s", "cwnd_packets"))
    assert len(columns["time_s"]) == len(wanted["time_s"])


def test_a_pipe_gives_trace_and_packets(tmp_path):
    log = tmp_path / "tunnel.log"
    log.write_text(
        "# init timestamp: 1.000\n"
        + "".join(f"{ms}.000 + 1500 1\n{ms}.500 - 1500 0.500 1\n" for ms in range(4000))
    )
    script = 'cat "$1" | "$0" convert - -o "$2" --packets "$3"'
    done = shell(script, log, tmp_path / "t.parquet", tmp_path / "p.parquet")
    assert done.returncode == 0, done.stderr
    assert "8000 rows of merged log" in done.stdout
    assert len(pathcast.read_trace(tmp_path / "t.parquet")) == 3999


def test_a_pipe_of_parquet_is_read(probe_file, tmp_path):
    trace, windows = tmp_path / "t.parquet", tmp_path / "w.csv"
    assert run("convert", probe_file, "-o", trace).returncode == 0
    done = shell('cat "$1" | "$0" convert - -o "$2"', trace, windows)
    assert done.returncode == 0, done.stderr
    assert windows.read_text().count("\n") == 4001


def bomb(header, line, unpacked_bytes):
    """A gzip file of one line again and again."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    lines = line * (1_000_000 // len(line))
    packed = packer.compress(header)
    for _ in range(unpacked_bytes // len(lines)):
        packed += packer.compress(lines)
    return packed + packer.flush()


#: Runs a command and prints the most memory that it had, in KiB. A process of its own, since what is started counts as
#: large as what starts it, and the process of the tests may be larger than any command.
MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("header", "line", "said"),
    [
        # 4 bytes a row: the rows would take 2 GB
        (b"time_s,cwnd_packets\n", b"0,1\n", "more than 1048576 rows"),
        (b"time_s,cwnd_packets\n", b"0,1\n" + b"\n" * 96, "200 times as many"),
        (b"# base timestamp: 1\n", b"1 + 1504\n", "more than 1048576"),
        (b"# init timestamp: 1\n", b"1.0 + 1500 1\n", "more than 1048576"),
        (b"", b"0.1 1.1.1.1:5 1.1.1.2:6 32 0x9 0x8 10 99 200 23\n", "more than 1048576 rows"),
    ],
)
def test_a_small_gzip_takes_no_more_memory_than_a_small_file_may(header, line, said, tmp_path):
    file = tmp_path / "bomb.gz"
    file.write_bytes(bomb(header, line, 80_000_000))
    assert file.stat().st_size < 400_000
    option = "--packets" if b"timestamp" in header else "-o"
    command = [PATHCAST, "convert", file, option, tmp_path / "out"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, command)], capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
    most_kib = int(done.stdout.split()[-1])
    assert most_kib < 600 << 10, f"{most_kib} KiB"


def test_a_gzip_of_a_long_log_is_read(tmp_path):
    file = tmp_path / "probe.gz"
    file.write_bytes(gzip.compress(probe_lines(20_000).encode()))
    assert len(pathcast.read_trace(file)) == 20_000
