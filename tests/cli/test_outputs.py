"""Output files, written by root where somebody else owns the folder; and outputs that are no files."""

import contextlib
import json
import os
import stat
import subprocess
import threading
import time

import pytest

from conftest import PATHCAST, run
from pathcast.exceptions import PathcastError
from pathcast.files import check_output, write_beside

PATH = "rate = '12 Mbit/s'\ndelay = '5 ms'\nqueue = '60 packets'\n"
NOBODY = 65534
SUDO = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has anything to lose here")


@pytest.fixture
def precious(tmp_path):
    """A file that only root may read; it is checked in the end."""
    file = tmp_path / "precious"
    file.write_text("precious")
    file.chmod(0o600)
    yield file
    found = file.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.geteuid(), 0o600)
    assert file.read_text() == "precious"


@pytest.fixture
def theirs(tmp_path):
    """A folder that belongs to nobody, the user."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    # nobody has to get there
    for above in folder.parents:
        if not above.stat().st_mode & stat.S_IXOTH:
            above.chmod(above.stat().st_mode | stat.S_IXOTH)
    return folder


@needs_root
def test_links_at_names_of_part_files_that_can_be_foreseen_are_not_followed(
    theirs, precious, path_file
):
    with open("/proc/loadavg") as load:
        last = int(load.read().split()[-1])
    for pid in range(last, last + 2000):
        (theirs / f"run.parquet.{pid}.part").symlink_to(precious)
    done = run("simulate", path_file(PATH), "--duration", "0.2", "-o", theirs / "run.parquet")
    assert done.returncode == 0, done.stderr
    assert (theirs / "run.parquet").read_bytes().startswith(b"PAR1")


@needs_root
def test_a_link_at_the_final_name_is_replaced(theirs, precious):
    file = theirs / "report.json"
    file.symlink_to(precious)
    write_beside(file, "new")
    assert not file.is_symlink()
    assert file.read_text() == "new"


@needs_root
def test_whoever_exchanges_the_part_file_gets_no_rights_of_others_changed(theirs, precious):
    """Succeeded as an attack when the rights were set by path: the private file became anybody's."""
    stop = threading.Event()

    def exchange():
        while not stop.is_set():
            for entry in theirs.iterdir():
                with contextlib.suppress(OSError):
                    entry.unlink()
                    entry.symlink_to(precious)

    attacker = threading.Thread(target=exchange)
    attacker.start()
    try:
        for _ in range(200):
            with contextlib.suppress(PathcastError):
                write_beside(theirs / "report.json", "new")
    finally:
        stop.set()
        attacker.join()


# exchanges the logs for links as soon as they are there, also after the command has ended
ATTACK = """
(while [ ! -e stop ]; do
  for log in log.parquet mm.up mm.down; do
    if [ -f $log ] && [ ! -L $log ]; then ln -sf {precious} $log; echo $log >> swapped; fi
  done
done) > /dev/null 2>&1 &
"""


@needs_root
@pytest.mark.usefixtures("emulator")
def test_the_command_in_a_shell_is_not_given_files_of_root(theirs, precious, path_file):
    """Succeeded as an attack when the owner was set by path: nobody owned root's file."""
    done = subprocess.run(
        [PATHCAST, "shell", path_file(PATH), "-q", "--log", "log.parquet", "--mm-log", "mm",
         "--report", "report.json", "--", "sh", "-c", ATTACK.format(precious=precious)],
        env=os.environ | SUDO, cwd=theirs, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    deadline = time.monotonic() + 10
    while not (theirs / "swapped").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    (theirs / "stop").touch()
    assert (theirs / "swapped").exists(), "the attacker was not there"
    assert done.returncode == 0, done.stderr
    report = theirs / "report.json"
    assert report.stat().st_uid == NOBODY
    assert json.loads(report.read_text())["exit_code"] == 0


@needs_root
@pytest.mark.usefixtures("emulator")
def test_root_writes_no_log_that_the_user_of_sudo_could_not(tmp_path, path_file):
    tmp_path.chmod(0o755)
    path = path_file(PATH)
    before = sorted(tmp_path.iterdir())
    done = subprocess.run(
        [PATHCAST, "shell", path, "-q", "--log", tmp_path / "log", "--", "true"],
        env=os.environ | SUDO, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"user {NOBODY}, who ran sudo, has no permission in" in " ".join(done.stderr.split())
    assert sorted(tmp_path.iterdir()) == before


@needs_root
def test_a_device_is_written_to_and_stays(tmp_path, path_file):
    null = tmp_path / "null"
    os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    for words in (["simulate", path_file(PATH), "--duration", "0.2", "-o"],
                  ["path", "show", path_file(PATH), "--as", "mahimahi", "-o"]):  # fmt: skip
        done = run(*words, null)
        assert stat.S_ISCHR(null.lstat().st_mode), done.stderr
    assert "expected a folder" in done.stderr


def test_standard_output_is_written_to_as_a_file_and_nothing_else_is_printed_there(
    tmp_path, path_file
):
    # as /dev/stdout is, which nothing must replace, not even where this fails
    link = tmp_path / "stdout"
    link.symlink_to("/proc/self/fd/1")
    write = ["simulate", path_file(PATH), "--duration", "0.2", "-o"]
    done = run(*write, link, text=False)
    assert done.returncode == 0, done.stderr
    assert link.is_symlink()
    assert done.stdout.startswith(b"PAR1")
    done = run(*write, "/proc/self/fd/1", text=False)
    assert done.stdout.startswith(b"PAR1")
    assert done.stdout.endswith(b"PAR1")
    assert b"written to" in done.stderr


def test_a_fifo_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_beside(pipe, "through")
    reader.join()
    assert read == ["through"]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_what_cannot_be_written_is_refused_first(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    for file, message in [
        (tmp_path, "is a folder, expected the name of a file to write"),
        (tmp_path / "no" / "file", f"cannot be written: there is no folder {tmp_path / 'no'}"),
        (link, "is a link to a device"),
    ]:
        for write in (check_output, lambda file: write_beside(file, "")):
            with pytest.raises(PathcastError, match=r"expected|no folder") as error:
                write(file)
            assert str(error.value).startswith(f"{file}: {message}")


def test_files_have_the_rights_of_new_files_and_no_text_is_too_odd(tmp_path):
    before = os.umask(0o027)
    try:
        write_beside(tmp_path / "file", "\udcff")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert (tmp_path / "file").read_bytes() == b"\\udcff"
