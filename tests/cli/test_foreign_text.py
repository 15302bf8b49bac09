"""Names that others chose: they are shown as they are, and nothing in them is obeyed."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import unicodedata

import pytest

from conftest import PATHCAST, run
from pathcast import foreign
from pathcast.report import plots

PATH = "rate = '12 Mbit/s'\ndelay = '5 ms'\nqueue = '60 packets'\nloss = 0.001\n"

#: Markup that closes nothing, emoji, escape sequences, a direction mark, bytes that are no UTF-8, a formula.
HOSTILE = "[/x]:warning:\x1b]0;me\x07\x9b\u202e\udcff$\\frac{$<b>"
SHOWN = "[/x]:warning:\\x1b]0;me\\x07\\x9b\\u202e\\xff$\\frac{$<b>"


def harmless(output):
    """The output, in which there is nothing that a terminal obeys or that turns its text around."""
    text = output.decode()
    obeyed = {character for character in text if unicodedata.category(character) in ("Cc", "Cf")}
    assert obeyed <= {"\n"}, obeyed
    return text


def unwrapped(text):
    """What a table or a box of 80 columns shows, without its frame and its line ends."""
    return "".join(re.sub("[│┃|]", " ", text).split())


@pytest.fixture
def hostile(tmp_path):
    """A function that gives the path of a file of a hostile name, and what is shown of it."""
    folder = tmp_path / "f"
    folder.mkdir()

    def name(ending):
        return os.fsencode(folder / (HOSTILE.replace("/", ";") + ending))

    return name


def in_output(done, code=0):
    out, err = harmless(done.stdout), harmless(done.stderr)
    assert done.returncode == code, out + err
    assert "Traceback" not in err
    return unwrapped(out), unwrapped(err)


def pathcast(*arguments, **options):
    command = [
        os.fsencode(PATHCAST),
        *(a if isinstance(a, bytes) else str(a).encode() for a in arguments),
    ]
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        timeout=120,
        env=os.environ | {"COLUMNS": "400"},
        **options,
    )


def test_names_of_files_are_shown_by_all_that_write_and_read_traces(hostile):
    path, trace, other = hostile(".toml"), hostile(".parquet"), hostile(".csv")
    shown = unwrapped(SHOWN.replace("/", ";"))
    with open(path, "w") as file:
        file.write(PATH)
    out, _ = in_output(pathcast("simulate", path, "--duration", "20", "-o", trace))
    assert "tracewrittento" in out
    assert shown in out
    for words in (
        ["fit", trace],
        ["follow", trace],
        ["convert", trace, "-o", other],
        ["sweep", path, "--seeds", "1", "--duration", "1"],
        ["fit", trace, "-o", hostile(".json")],
    ):
        out, _ = in_output(pathcast(*words))
        assert shown in out, words
    in_output(pathcast("evaluate", trace, trace, "--horizon", "1"))
    in_output(pathcast("live", "key", hostile(".key")))
    in_output(pathcast("path", "show", path))


@pytest.mark.parametrize(
    "words",
    [
        ["simulate", "FILE.toml"],
        ["fit", "FILE.none"],
        ["fit", "FILE.toml"],
        ["watch", "--method", "NAME"],
        ["watch", "--cgroup", "NAME"],
        ["simulate", "FILE.toml", "--NAME"],
        ["NAME"],
        ["shell", "--from-mahimahi", "mm-delay NAME"],
        ["live", "run", "NAME", "--key", "FILE.none"],
    ],
)
def test_names_are_shown_in_errors(hostile, words):
    with open(hostile(".toml"), "w") as file:
        # a key of TOML may be any text
        file.write('"[/x]\\u001b[2J:warning:\\u202e" = 1\n')
    words = [
        hostile(word.removeprefix("FILE"))
        if word.startswith("FILE")
        else os.fsencode(word.replace("NAME", HOSTILE))
        for word in words
    ]
    _, err = in_output(pathcast(*words), code=2)
    assert re.search(r"\[[/;]x\]:warning:", err), err


def test_a_line_end_in_a_name_begins_no_line_as_if_it_were_ours(tmp_path):
    done = run("fit", tmp_path / "x\nerror: all is lost")
    assert done.returncode == 2
    assert "\nerror" not in done.stderr


PROCESS = """
import ctypes, socket, sys
ctypes.CDLL(None).prctl(15, sys.argv[2].encode(errors="surrogateescape"), 0, 0, 0)  # PR_SET_NAME
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print(flush=True)
while sys.stdin.readline() == "\\n":
    s.sendall(bytes(100_000))
    print(flush=True)
"""


@pytest.mark.parametrize("name", ["[/x]:warning:", "\x1b[2J\x9b\n> \u202e"])
def test_names_of_processes_are_shown_by_watch(name):
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(port), name],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        process.stdout.readline()
        connection, _ = server.accept()
        watch = subprocess.Popen(
            [PATHCAST, "watch", "--port", str(port), "--method", "sock_diag", "--duration", "2"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        connection.settimeout(0.05)
        while watch.poll() is None:
            process.stdin.write("\n")
            process.stdin.flush()
            process.stdout.readline()
            with contextlib.suppress(TimeoutError):
                while connection.recv(1 << 16):
                    pass
        out, err = watch.communicate()
        assert watch.returncode == 0, err
        shown = harmless(out)
        harmless(err)
        assert f"{foreign.visible(name)} {process.pid}" in shown
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        server.close()


def test_pages_escape_names_and_hold_no_control_characters(tmp_path):
    path, page = tmp_path / "p.toml", tmp_path / "page.html"
    path.write_text(f'name = "<script>[/x]\\u001b[2J\\u202e$\\\\frac{{$"\n{PATH}')
    done = run("demo", "--world", "simulator", "--duration", "20", "--path", path, "-o", page)
    assert done.returncode == 0, done.stderr
    harmless(done.stdout.encode())
    text = page.read_text()
    assert "&lt;script&gt;[/x]\\x1b[2J\\u202e$" in text
    assert "<script>" not in text
    assert not {"\x1b", "\u202e"} & set(text)


def test_a_dollar_in_a_picture_is_a_dollar():
    def draw(figure):
        axes = figure.subplots()
        axes.plot([1, 10, 1000], [1, 2, 3], label="$\\frac{$ \x1b<b>")
        axes.set(title="$x^$", xscale="log")
        axes.set_yticks([1, 2], ["$\\bad{$", "y"])
        axes.legend()

    picture = plots.svg(5, 3, draw)
    for text in ("$\\frac{$ \\x1b&lt;b&gt;", "$x^$", "$\\bad{$"):
        assert text in picture
    # ticks of powers of ten are still set as formulas
    assert "mathdefault" not in re.sub("<!--.*?-->", "", picture)
