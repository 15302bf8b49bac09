"""`pathcast benchmark pages`: replicas of pages, and their loads in Chromium from nginx through the emulator."""

import json
import re
import shutil

import pytest

import pathcast
from conftest import run
from pathcast.experiments.pages import benchmark
from pathcast.experiments.pages.browser import BrowserError
from pathcast.experiments.pages.replica import write_replica

PAGE = """
name = "shop"
[[resources]]
url = "https://shop.example/?session=SECRET"
size = "12 kB"
[[resources]]
url = "https://shop.example/style.css"
type = "stylesheet"
size = "7001 B"
after = { of = "https://shop.example/?session=SECRET", at = 0.2 }
[[resources]]
url = "https://cdn.example/app.js"
type = "script"
size = "30 kB"
after = { of = "https://shop.example/", at = 0.6 }
[[resources]]
url = "https://cdn.example/photo.jpg"
type = "image"
size = "50 kB"
after = "work"
[[resources]]
url = "https://cdn.example/font.woff2"
type = "font"
size = "20 B"
after = "https://shop.example/style.css"
[[resources]]
url = "https://cdn.example/beacon"
size = "1 kB"
blocks_load = false
[[tasks]]
id = "work"
time = "1 s"
after = "https://cdn.example/app.js"
"""


@pytest.fixture
def replica(tmp_path):
    folder = tmp_path / "replica"
    folder.mkdir()
    return write_replica(pathcast.Page.parse(PAGE), folder)


def test_a_replica_keeps_sizes_and_graph(replica):
    page = replica.page
    files = {file.name: file.stat().st_size for file in replica.folder.iterdir()}
    # the smallest picture has 67 bytes
    assert files == {
        "index.html": 12_000,
        "1.css": 7001,
        "2.js": 30_000,
        "3.png": 50_000,
        "4.png": 67,
    }
    assert [one["body_bytes"] for one in page.resources] == [12_000, 7001, 30_000, 50_000, 67]
    causes = [
        [(cause["resource"], cause["at"]) for cause in one["causes"]] for one in page.resources
    ]
    assert causes == [[], [(0, 0.2)], [(0, 0.6)], [(2, 1.0)], [(1, 1.0)]]
    assert not page.tasks
    html = (replica.folder / "index.html").read_text()
    assert "SECRET" not in html
    # what a document causes is named about there; the rest is added when its cause has come
    for name, at in (("1.css", 0.2), ("2.js", 0.6)):
        assert html.index(name) / len(html) == pytest.approx(at, abs=0.01)
    assert not re.search(r"3\.png|4\.png", html)


def test_a_document_that_is_too_small_grows(tmp_path):
    resources = "".join(
        f"[[resources]]\nurl = 'https://a.org/{n}'\ntype = 'image'\nsize = '9 kB'\n"
        for n in range(200)
    )
    page = pathcast.Page.parse(
        f"[[resources]]\nurl = 'https://a.org/'\nsize = '100 B'\n{resources}"
    )
    found = write_replica(page, tmp_path)
    size = (tmp_path / "index.html").stat().st_size
    assert size == found.page.resources[0]["body_bytes"] > 5000


def compared(measured_ms, loss, seconds=""):
    """A cell with these measured times, and its forecast over a path of 20 Mbit/s and 50 ms."""
    cell = benchmark.Cell("shop", "cubic", "20 Mbit/s", 0.05, loss)
    page = pathcast.Page.parse(
        "[[resources]]\nurl = 'https://a.org/'\nsize = '10 kB'\n"
        + "".join(
            f"[[resources]]\nurl = 'https://a.org/{n}'\ntype = 'image'\nsize = '30 kB'\n"
            for n in range(60)
        )
    )
    forecast = pathcast.predict_page(page, cell.path(), loads=60)
    return benchmark.Compared(cell, measured_ms, forecast)


def test_choices_are_judged_where_the_difference_is_significant():
    h2_wins = compared({"http/1.1": [2000, 2100, 1900, 2050], "h2": [1000, 1010, 990, 1005]}, 0.0)
    level = compared({"http/1.1": [1000, 1400, 900], "h2": [1100, 950, 1300]}, 0.0)
    h1_wins = compared({"http/1.1": [2000, 2100, 1900], "h2": [4000, 4100, 4200]}, 0.01)
    assert (h2_wins.best, h2_wins.significant) == ("h2", True)
    assert not level.significant
    assert (h1_wins.best, h1_wins.significant) == ("http/1.1", True)
    found = benchmark.summary([h2_wins, level, h1_wins])
    assert (found["cells"], found["significant"], found["right"]) == (3, 2, 2)
    assert found["right_of_significant"]["always h2"] == 1
    assert found["right_of_significant"]["http/1.1 from a loss of 0.003"] == 2
    # 4100 ms in place of 2000
    assert found["summed_loss"]["always h2"] == pytest.approx(1.05, abs=0.11)
    assert found["summed_loss"]["forecast"] <= found["summed_loss"]["always h2"]


def test_kept_loads_of_another_page_do_not_count(replica, tmp_path):
    cell = benchmark.Cell("shop", "cubic", "20 Mbit/s", 0.05, 0.0)
    found = benchmark.kept(cell, replica, tmp_path)
    found["loads"] = [{"protocol": "h2", "load_ms": 7.0}]
    (tmp_path / "loads").mkdir()
    file = tmp_path / "loads" / f"{cell.name}.json"
    file.write_text(json.dumps(found))
    assert benchmark.kept(cell, replica, tmp_path) == found
    found["page_sha256"] = "another"
    file.write_text(json.dumps(found))
    assert not benchmark.kept(cell, replica, tmp_path)["loads"]
    file.write_text("{")
    assert not benchmark.kept(cell, replica, tmp_path)["loads"]


def test_runs_that_do_not_count_are_repeated_and_kept_with_their_reason(
    replica, tmp_path, monkeypatch
):
    def row(protocol):
        return {"protocol": protocol, "load_ms": 900.0}

    outcomes = iter(
        [BrowserError("Chromium ended"), ([], "the emulator slipped", {})]
        + [([row("h2"), row("http/1.1")] * 2, "", {"kernel": "6"})]
        + [BrowserError("Chromium ended")] * benchmark.ATTEMPTS
    )

    def session(*_):
        outcome = next(outcomes)
        if isinstance(outcome, BrowserError):
            raise outcome
        return outcome

    monkeypatch.setattr(benchmark, "_session", session)
    monkeypatch.setattr(benchmark, "chromium", lambda: "chromium")
    cell = benchmark.Cell("shop", "cubic", "20 Mbit/s", 0.05, 0.0)
    found = benchmark.measure(cell, replica, tmp_path, 2)
    assert found["invalid"] == ["Chromium ended", "the emulator slipped"]
    assert len(found["loads"]) == 4
    # what is there counts; what is missing does not come
    with pytest.raises(pathcast.PathcastError, match="Chromium ended"):
        benchmark.measure(cell, replica, tmp_path, 3)
    assert benchmark.kept(cell, replica, tmp_path)["loads"] == found["loads"]


@pytest.fixture
def page_servers(emulator):
    """What a page load needs beside the emulator."""
    for name in ("nginx", "openssl", "chromium"):
        if shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/bin:/bin") is None:
            pytest.skip(f"there is no {name}; `scripts/system-packages pages` installs it")
    if not emulator.root:
        pytest.skip("nginx behind a path that a browser outside reaches needs root")


def test_chromium_loads_a_page_by_both_protocols(page_servers, tmp_path):
    page = tmp_path / "shop.toml"
    page.write_text(PAGE)
    command = (
        "benchmark",
        "pages",
        page,
        "--scheme",
        "cubic",
        "--loss",
        "0",
        "-o",
        tmp_path / "out",
        "--json",
    )
    done = run(*command, "--loads", "2")
    if done.returncode and "runs in a row were invalid" in done.stderr:
        pytest.skip(f"the machine is busy: {done.stderr}")
    assert done.returncode == 0, done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    for protocol in ("http/1.1", "h2"):
        one = cell[protocol]
        assert one["loads"] == 2
        # handshakes and requests alone take four round trips of 50 ms
        assert one["measured_ms"] > 200
        assert 0.5 < one["forecast_ms"] / one["measured_ms"] < 1.5
    (kept,) = (tmp_path / "out" / "loads").iterdir()
    found = json.loads(kept.read_text())
    assert {"kernel", "browser", "server"} <= set(found["versions"])
    connections = {one["protocol"]: one["connections"] for one in found["loads"]}
    assert connections["h2"] == 1
    assert connections["http/1.1"] > 1
    assert (tmp_path / "out" / "report.html").is_file()
    # what is there is not measured again
    before = kept.stat().st_mtime_ns
    assert run(*command, "--loads", "2").returncode == 0
    assert kept.stat().st_mtime_ns == before
