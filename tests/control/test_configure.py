"""`pathcast configure`: small grids in the simulator, and one cell in Chromium from nginx where that can run."""

import http.client
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time

import pytest

import pathcast
from conftest import processes_that_name, run, wait_until
from pathcast.control.learn.grid import DEFAULT, Cell, Condition, Configuration
from pathcast.control.learn.model import Model
from pathcast.experiments.engine.store import Store
from pathcast.experiments.engine.world import World
from pathcast.experiments.pages import apart, server
from pathcast.experiments.pages.benchmark import replica_of
from pathcast.experiments.pages.configurations import emulated, report, simulated, truth

PAGE = """
name = "small"
[[resources]]
url = "https://a.org/"
size = "30 kB"
[[resources]]
url = "https://a.org/style.css"
type = "stylesheet"
size = "15 kB"
after = { of = "https://a.org/", at = 0.2 }
[[resources]]
url = "https://a.org/photo.png"
type = "image"
size = "90 kB"
after = { of = "https://a.org/", at = 0.6 }
"""
SMALL = (
    *("--bandwidth", 5, "--rtt", 0.05, "--rtt", 0.4, "--loss", 0, "--loss", 0.05),
    *("--protocol", "h2", "--scheme", "cubic", "--scheme", "bbr"),
    *("--initial-window", 10, "--initial-window", 40),
)


@pytest.fixture
def page_file(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(PAGE)
    return file


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "kept"


def test_learn_writes_the_model_that_json_prints(page_file, folder):
    done = run("configure", "learn", page_file, *SMALL, "-o", folder, "--budget", 8, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    read = Model.parse((folder / "model.json").read_text())
    assert read.to_dict() == found["model"]
    assert found["loads"] <= 8 * 4
    # BBR takes half the time where 5 % are lost
    assert read.template(5, 400, 0.05).startswith("bbr")


def test_loads_are_kept_and_not_made_again(page_file, folder):
    command = ("configure", "learn", page_file, *SMALL, "-o", folder, "--budget", 8, "--json")
    first = run(*command)
    kept = {file: file.stat().st_mtime_ns for file in folder.glob("simulated/**/cell.json")}
    assert kept and first.stdout == run(*command).stdout
    assert kept == {file: file.stat().st_mtime_ns for file in folder.glob("simulated/**/cell.json")}
    # one that is damaged is made again, and is the same
    next(folder.glob("simulated/**/loads.json")).write_text("{}")
    assert run(*command).stdout == first.stdout


def test_evaluate_judges_choices_by_loads_of_their_own(page_file, folder):
    done = run("configure", "evaluate", page_file, *SMALL, "-o", folder, "--loads", 20, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((folder / "results.json").read_text())
    assert found["cells"] == 4 and found["loads"] == 20 and found["truth"] == "simulator"
    # CUBIC and BBR by two windows, and CUBIC's with the window kept over pauses
    assert len(found["configurations"]) == 6
    lossy = [row for row in found["rows"] if row["loss"] == 0.05 and row["rtt_ms"] == 400]
    assert all(row["best"].startswith("bbr") and row["gain"] > 0.2 for row in lossy)
    held = found["choices"]["held_out_condition"]
    assert held["default"]["regret"]["value"] > held["best single"]["regret"]["value"] > -0.05
    assert held["oracle"]["regret"]["value"] == pytest.approx(0, abs=1e-9)
    assert found["learner"]["share_of_loads"] <= 0.1
    assert [row["templates"] for row in found["by_templates"]] == list(range(1, 7))
    for part in ("policies", "off_policy_log_ms", "arms"):
        assert part in found["online"]
    html = (folder / "report.html").read_text()
    for figure in ("Figure 3", "Figure 4", "Figure 5"):
        assert figure in html
    assert not re.search(r'(src|href)="https?:', html)
    assert (folder / "tables" / "top-four.csv").exists()
    said = " ".join(report.lines(found))
    assert "sooner than the default" in said and "Cheap loads alone" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--protocol", "h9"), "h9"),
        (("--scheme", "vegas"), "vegas"),
        (("--initial-window", 0), "initial window 0"),
        (("--truth", "live"), "live"),
        (("--loss", 0.9), "loss"),
        (("--templates", 9), "templates"),
    ],
)
def test_what_is_not_valid_is_refused_with_code_2(page_file, folder, options, said):
    done = run("configure", "learn", page_file, *options, "-o", folder)
    assert done.returncode == 2 and said in done.stderr


def test_pages_with_one_name_are_refused(page_file, folder):
    done = run("configure", "learn", page_file, page_file, *SMALL, "-o", folder)
    assert done.returncode == 2 and "small is taken" in done.stderr


def test_each_knob_reaches_the_simulator(tmp_path):
    """A page that a pause divides, over a path on which each knob has an effect."""
    page = pathcast.Page.parse(
        PAGE.replace("90 kB", "300 kB")
        + "[[tasks]]\nid = 'work'\ntime = '3 s'\nafter = 'https://a.org/photo.png'\n"
        "[[resources]]\nurl = 'https://a.org/b.png'\nsize = '300 kB'\nafter = 'work'\n"
    )
    cell = Cell("p", Condition(50, 100, 0.0))

    def took_ms(**changed):
        values = {"initial_window": 10, "protocol": "h2", "slow_start_after_idle": True}
        made = Configuration(**(values | changed))
        return simulated.load_ms(page, cell, made, loads=1)[0]

    usual = took_ms()
    assert took_ms(initial_window=40) < usual - 90
    assert took_ms(slow_start_after_idle=False) < usual - 90
    assert took_ms(protocol="http/1.1") != usual
    assert took_ms(scheme="bbr") != usual


def test_a_load_that_does_not_end_is_kept_as_null(tmp_path):
    file = tmp_path / "loads.json"
    file.write_text(simulated.written({DEFAULT.name: [1.5, float("inf")]}))
    assert simulated.read(file, [DEFAULT]) == {DEFAULT: [1.5, float("inf")]}
    assert json.loads(file.read_text()) == {DEFAULT.name: [1.5, None]}


def test_learners_loads_are_none_of_those_that_judge(page_file, folder):
    page = pathcast.Page.load(page_file)
    makes = truth.simulator(folder, {"p": page})
    cell = Cell("p", Condition(5, 50, 0.05))
    with makes.store.locked():
        judged = makes.brute_force([cell], (DEFAULT,), 20)
        learned = makes.learn({cell: [DEFAULT]}, 0, 20)
    assert makes.made == 20
    assert not set(judged.ms[0, 0]) & set(learned[cell][DEFAULT])


def test_emulated_cases_are_short_and_have_each_configuration_once_a_round(folder):
    class Kept(truth.Truth):
        """Answers the load's number; nothing is loaded."""

        def tables(self, cases):
            self.cases = cases
            return [{one: [float(case.first)] for one in case.configurations} for case in cases]

    def make(cell, configurations, first, loads, part):
        return emulated.EmulatedCase(cell, None, configurations, first, loads, part)

    makes = Kept(Store(folder), World.EMULATOR, make)
    asked = [Configuration(initial_window=1 + number) for number in range(23)]
    cells = [Cell(page, Condition(5, 50, 0.0)) for page in ("a", "b")]
    outcomes = makes.brute_force(cells, asked, 2)
    assert outcomes.ms.tolist() == [[[1.0, 2.0]] * 23] * 2
    assert max(len(case.configurations) for case in makes.cases) <= truth.TOGETHER
    names = [case.name for case in makes.cases]
    assert len(names) == len(set(names)) == 2 * 2 * 3
    # neighbors are dealt out anew in each round
    first, second = (
        {case.configurations for case in makes.cases if case.first == number} for number in (1, 2)
    )
    assert first != second


@pytest.fixture
def browser(emulator):
    for name in ("chromium", "nginx", "openssl"):
        if shutil.which(name) is None and shutil.which(name, path="/usr/sbin") is None:
            pytest.skip(f"there is no {name}")


def test_chromium_loads_by_each_configuration_over_one_run_of_the_emulator(browser, tmp_path):
    replica = replica_of(pathcast.Page.parse(PAGE), tmp_path)
    makes = emulated.emulator(tmp_path, {"p": replica})
    asked = (DEFAULT, Configuration("reno", 40, "http/1.1", False), Configuration("bbr", 4))
    cell = Cell("p", Condition(5, 200, 0.0))
    with makes.store.locked():
        (times,) = makes.tables([makes.make(cell, asked, 1, 1, "test")])
        record, _ = makes.store.find(makes.make(cell, asked, 1, 1, "test"), World.EMULATOR)
    # read back from the kernel: of each load what was in force
    assert record.report["knobs"]["reno-40-h1-kept"] == {
        "congestion_control": "reno",
        "initial_window": 40,
        "slow_start_after_idle": False,
    }
    assert record.report["knobs"]["bbr-4-h2"]["initial_window"] == 4
    # a busy machine makes Chromium slow, but no path is faster than its link
    for those in times.values():
        assert 250 < those[0] < 90_000


def test_knobs_hold_for_connections_that_open_later(browser, tmp_path):
    """90 kB over a round-trip time of 200 ms: five windows from 4 packets on, two from 40 on."""
    replica = replica_of(pathcast.Page.parse(PAGE), tmp_path)
    trusting = ssl._create_unverified_context()
    work = tmp_path / "work"
    work.mkdir()
    path = Condition(50, 200, 0.0).path()
    with server.serving(replica.folder, path, "cubic", work, 1, knobs=True) as served:

        def took_s(window):
            served.set_knobs(
                congestion_control="reno", initial_window=window, slow_start_after_idle=True
            )
            found = []
            for _ in range(2):
                began = time.monotonic()
                client = http.client.HTTPSConnection(
                    served.address, server.ENDPOINTS["http/1.1"].port, context=trusting, timeout=30
                )
                client.request("GET", "/2.png")
                assert len(client.getresponse().read()) == 90_000
                found.append(time.monotonic() - began)
                client.close()
            return min(found)

        assert took_s(4) > took_s(40) + 0.3
        with pytest.raises(pathcast.PathcastError, match="nosuch"):
            served.set_knobs(
                congestion_control="nosuch", initial_window=10, slow_start_after_idle=True
            )
    with pytest.raises(pathcast.PathcastError, match="without knobs"):
        server.Served("", "").set_knobs(initial_window=1)


def test_servers_end_with_a_program_that_is_killed(browser, tmp_path):
    replica = replica_of(pathcast.Page.parse(PAGE), tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    program = (
        "import os, pathlib, signal, sys\n"
        "from pathcast.experiments.pages import server\n"
        "from pathcast.control.learn.grid import Condition\n"
        "path = Condition(50, 20, 0.0).path()\n"
        "root, work = map(pathlib.Path, sys.argv[1:])\n"
        "with server.serving(root, path, 'cubic', work, 1):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    words = [sys.executable, "-c", program, replica.folder, work]
    assert subprocess.run(words, check=False, timeout=60).returncode == -signal.SIGKILL

    wait_until(lambda: not processes_that_name(str(work)), "the end of the servers", timeout_s=20)


def test_work_apart_has_a_network_of_its_own(browser):
    outside = set(os.listdir("/sys/class/net"))

    def devices():
        said = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
        return re.findall(r"^\d+: ([^:@]+)", said.stdout, re.M)

    assert apart.in_own_network(devices) == ["lo"]
    with pytest.raises(ZeroDivisionError):
        apart.in_own_network(lambda: 1 / 0)
    assert set(os.listdir("/sys/class/net")) >= outside & {"lo"}
    assert "lo" in devices()


def test_http3_is_no_knob_of_the_emulator(browser, tmp_path):
    replica = replica_of(pathcast.Page.parse(PAGE), tmp_path)
    makes = emulated.emulator(tmp_path, {"p": replica})
    with pytest.raises(pathcast.PathcastError, match="h3 with the emulator"):
        makes.make(Cell("p", Condition(5, 50, 0)), (Configuration(protocol="h3"),), 1, 1, "x")
