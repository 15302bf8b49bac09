"""Schemes that misbehave are cut off and reported, those beside them go on, and nothing is left."""

import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import processes_that_name, wait_until
from pathcast.path import Path as PathFile
from pathcast.schemes import build, scheme
from pathcast.schemes.run import Flow, Limits, run_flows

HERE = Path(__file__).parent
PATH = PathFile.parse("rate = '20 Mbit/s'\ndelay = '5 ms'\nqueue = '1 BDP'\n")
LIMITS = Limits(
    memory_bytes=200 << 20,
    log_bytes=64 << 10,
    processes=12,
    file_bytes=8 << 20,
    ready_s=10,
    end_s=4,
)
DURATION_S = 4.0
#: How a scheme misbehaves, and what is then said of it.
WAYS = {
    "never-listens": "receiver: did not say `listening` within 10 s",
    "lies-about-listening": r"receiver: does not listen on port \d+, but said `listening`",
    "wrong-port": r"receiver: does not listen on port \d+, but said `listening`",
    "crashes": "sender: ended with code 1: an error of its own",
    "says-nothing": "sender: printed no report",
    "reports-nothing": "sender: printed no report",
    "never-stops": "sender: did not end within 4 s of SIGTERM",
    "floods": "sender: wrote more than 64 KiB of log",
    "forks": "sender: started more than 12 processes",
    "hoards": r"sender: (took more than 200 MiB of memory|ended with code (1|143): MemoryError)",
    "fills-disk": r"sender: ended with code (153|1: .*File too large)",
    "leaves-a-process": "sender: left 1 processes behind",
    "exaggerates": None,
}


def write_scheme(folder, name, command, **more):
    line = json.dumps(command)[1:-1]
    keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())
    (folder / f"{name}.toml").write_text(
        f'name = "{name}"\nimplementation = "a script"\nversion = "1"\nlicence = "MIT"\n'
        f'controller = "{name}"\ntransport = "tcp"\n{keys}'
        f'receiver = [{line}, "receive", "{{address}}:{{port}}"]\n'
        f'sender = [{line}, "send", "{{address}}:{{port}}"]\n'
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Schemes of the user's: each way to misbehave, and one whose program is missing."""
    made = tmp_path_factory.mktemp("schemes")
    made.chmod(0o755)  # as root, they run as nobody
    (made / "misbehaving.py").write_text((HERE / "misbehaving.py").read_text())
    for way in (*WAYS, "well", "is-busy"):
        write_scheme(made, way, ["{python}", "-I", "-S", "{folder}/misbehaving.py", way])
    write_scheme(made, "missing", ["{folder}/no-such-program"])
    return made


@pytest.fixture(scope="module")
def run(emulator, folder):
    """All of them beside one that behaves well, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATHCAST_SCHEMES", str(folder))
        names = [*WAYS, "missing", "well"]
        flows = [Flow(name) for name in names]
        done = run_flows(PATH, flows, duration_s=DURATION_S, limits=LIMITS)
    return dict(zip(names, done.flows, strict=True))


@pytest.mark.parametrize("way", WAYS)
def test_a_scheme_that_misbehaves_is_reported(run, way):
    found = run[way]
    if WAYS[way] is None:
        assert found.why_not is None
    else:
        assert re.match(WAYS[way], found.why_not or ""), found.why_not


def test_a_scheme_that_never_starts_is_reported(run):
    said = run["missing"].why_not
    assert said.startswith("receiver: ended with code 127: cannot start"), said


def test_the_scheme_beside_them_goes_on(run):
    found = run["well"]
    assert (found.why_not, found.controller, found.evidence) == (None, "well", "its own word")
    assert found.goodput_bps > 1e6
    assert 5 <= found.delay_ms["p50"] <= 30


def test_ends_report_their_time_of_processors(run):
    found = run["well"]
    for role in ("sender", "receiver"):
        assert 0 < found.cpu_s[role] < found.ran_s[role]
        assert 0 <= found.waited_s[role] < found.ran_s[role]
    assert found.ran_s["sender"] > 0.9 * DURATION_S


def test_a_run_whose_programs_wait_for_a_processor_is_not_valid(emulator, folder, monkeypatch):
    monkeypatch.setenv("PATHCAST_SCHEMES", str(folder))
    limits = replace(LIMITS, processes=4 * os.cpu_count() + 8)
    done = run_flows(PATH, [Flow("is-busy")], duration_s=3, limits=limits)
    (found,) = done.flows
    assert found.why_not is None
    # three times as many as processors, so each waits for two thirds of its time
    assert found.waited_s["sender"] > 0.4 * found.ran_s["sender"]
    said = [reason for reason in done.invalid_because if "waited for a processor" in reason]
    # the receiver may have to wait, too, where other programs run
    waiting = [
        one for one in ("sender", "receiver") if found.waited_s[one] > 0.4 * found.ran_s[one]
    ]
    assert [reason.split(" waited")[0] for reason in said] == [
        f"the {one} of is-busy" for one in waiting
    ]


def test_no_process_is_left(run, folder):
    assert run
    assert processes_that_name(str(folder)) == []


def test_what_a_receiver_says_counts_only_as_far_as_packets_carried_it(run):
    found = run["exaggerates"]
    assert found.goodput_bps <= found.throughput_bps


def test_the_program_sees_nothing_but_the_system_its_folder_and_the_path(
    emulator, tmp_path, monkeypatch
):
    monkeypatch.setenv("PATHCAST_SCHEMES", str(tmp_path / "schemes"))
    (tmp_path / "schemes").mkdir(mode=0o755)
    (tmp_path / "schemes" / "misbehaving.py").write_text((HERE / "misbehaving.py").read_text())
    secret = tmp_path / "secret"
    secret.write_text("nobody's business")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = ["{python}", "-I", "-S", "{folder}/misbehaving.py", "snoops"]
        write_scheme(tmp_path / "schemes", "snoops", script)
        file = tmp_path / "schemes" / "snoops.toml"
        more = f'"{{address}}:{{port}}", "{secret}", "{port}"'
        file.write_text(file.read_text().replace('"{address}:{port}"', more))
        (found,) = run_flows(PATH, [Flow("snoops")], duration_s=2).flows
    assert found.why_not is None
    seen = json.loads(found.evidence)
    assert seen["secret"] == "FileNotFoundError"
    assert seen["write"] == seen["usr"] == "OSError"  # a read-only file system
    assert seen["scratch"] == "done"
    assert seen["host"] == "ConnectionRefusedError"
    assert seen["abroad"] != "done"
    assert (seen["capabilities"], seen["links"]) == (0, [])
    assert seen["user"] == (65534 if os.geteuid() == 0 else os.getuid())
    assert seen["processes"] == 2


def test_a_run_that_is_interrupted_leaves_nothing(emulator, folder, monkeypatch):
    monkeypatch.setenv("PATHCAST_SCHEMES", str(folder))

    def interrupt(part):
        if part > 0.2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_flows(PATH, [Flow("well"), Flow("never-stops")], duration_s=5, progress=interrupt)
    wait_until(lambda: not processes_that_name(str(folder)), "the end of all processes", 5)


def test_a_run_whose_process_is_killed_leaves_nothing(emulator, folder, tmp_path):
    program = (
        "import sys\n"
        "from pathcast.path import Path\n"
        "from pathcast.schemes.run import Flow, run_flows\n"
        f"path = Path.parse({PATH.toml!r})\n"
        "run_flows(path, [Flow('well'), Flow('never-stops')], duration_s=60, progress=print)\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-u", "-c", program],
        env=os.environ | {"PATHCAST_SCHEMES": str(folder), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with started:
        try:
            assert any(float(line) > 0.01 for line in started.stdout)
            assert processes_that_name(str(folder))
        finally:
            started.kill()
    wait_until(lambda: not processes_that_name(str(folder)), "the end of all processes", 5)


def test_a_build_that_fails_is_reported_and_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATHCAST_SCHEMES", str(tmp_path))
    write_scheme(tmp_path, "built", ["{built}/program"], build="wrapper")
    wrapper = tmp_path / "wrapper"
    wrapper.mkdir()
    recipe = wrapper / "recipe.toml"
    recipe.write_text(
        'programs = ["sh"]\ncommands = [["sh", "-c", "echo no such thing; exit 7"]]\n'
    )
    one = scheme.catalog()["built"]
    with pytest.raises(scheme.SchemeError, match="sh ended with code 7: no such thing"):
        build.prepare(one)
    assert not build.is_built(one)
    recipe.write_text('programs = ["sh"]\ncommands = [["sh", "-c", "sleep 60"]]\nmost_s = 0.2\n')
    with pytest.raises(scheme.SchemeError, match=r"sh did not end within 0.2 s"):
        build.prepare(one)
    recipe.write_text(
        'programs = ["no-such-compiler"]\npackages = ["gcc-99"]\ncommands = [["true"]]\n'
    )
    with pytest.raises(
        scheme.SchemeError, match=r"there is no no-such-compiler; .* install gcc-99"
    ):
        build.prepare(one)
    recipe.write_text('programs = ["sh"]\ncommands = [["cp", "recipe.toml", "{built}/program"]]\n')
    prepared = build.prepare(one)
    assert build.is_built(one)
    assert Path(prepared.command("sender", {"address": "a", "port": "1"})[0]).exists()
