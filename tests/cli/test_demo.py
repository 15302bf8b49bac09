"""`pathcast demo`: the main job, end to end."""

import json
import re

import pytest

import pathcast
from conftest import run


def test_the_demo_ends_in_a_report(tmp_path):
    report, trace = tmp_path / "report.html", tmp_path / "trace.parquet"
    done = run(
        "demo", "--world", "simulator", "--duration", 40, "-o", report, "--trace", trace, "--json"
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["world"] == "simulator"
    assert result["fit"]["losses"] > 5
    assert [score["horizon_s"] for score in result["evaluation"]["horizons"]] == [1, 5, 10]
    assert len(pathcast.read_trace(trace)) > 1000

    page = report.read_text()
    assert page.count("<svg ") == 4
    for words in ("Forecast against what happened", "p(cwnd)", "Error by horizon", "epoch"):
        assert words in page
    # it opens offline: nothing is fetched, nothing runs
    loads = re.findall(r"""(?:src|href)\s*=\s*["']([^"'#][^"']*)""", page)
    assert [target for target in loads if not target.startswith("data:")] == []
    assert "<script" not in page
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_without_the_emulator_the_demo_says_so(tmp_path, monkeypatch):
    from pathcast import demo

    nothing = pathcast.Capabilities(False, False, False, False, (), ("there is no TUN",))
    monkeypatch.setattr(demo.runs, "capabilities", lambda: nothing)
    chosen = demo.choose_world(None)
    assert chosen.world is demo.World.SIMULATOR
    assert "there is no TUN" in chosen.said
    with pytest.raises(pathcast.EmulatorError, match="there is no TUN"):
        demo.choose_world(demo.World.EMULATOR)


def test_a_name_cannot_break_out_of_the_page(tmp_path, path_file):
    path = path_file("name = '<script>alert(1)</script>'\ndelay = '20 ms'\nloss = 0.001\n")
    report = tmp_path / "r.html"
    done = run("demo", "--world", "simulator", "--path", path, "--duration", 20, "-o", report)
    assert done.returncode == 0, done.stderr
    assert "<script" not in report.read_text()


def test_the_demo_runs_the_kernel_where_it_can(emulator, tmp_path):
    done = run("demo", "--duration", 15, "-o", tmp_path / "r.html", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["world"] == "emulator"
    assert result["fit"]["flows"][0]["cc"] == "cubic"
    assert result["fit"]["flows"][0]["rtt_s"] == pytest.approx(0.042, abs=0.006)


def test_a_report_that_cannot_be_written_is_refused_at_once(tmp_path):
    done = run("demo", "-o", tmp_path / "no" / "r.html", timeout=20)
    assert done.returncode == 2
    assert "no folder" in done.stderr


def test_a_scheme_that_the_models_do_not_know_is_refused_before_the_run(tmp_path):
    done = run("demo", "--scheme", "bbr", "-o", tmp_path / "r.html", timeout=20)
    assert done.returncode == 2
    assert "cubic, reno" in done.stderr


def test_variants_of_cubic_are_fitted_as_cubic(tmp_path):
    trace = tmp_path / "t.parquet"
    path = tmp_path / "p.toml"
    path.write_text("rate = '20 Mbit/s'\ndelay = '20 ms'\nloss = 0.001\n")
    for scheme, cc in (("cubic-hystart++", "cubic"), ("cubic-rfc9438", "cubic"), ("bbr", "bbr")):
        run("simulate", path, "--scheme", scheme, "--duration", 20, "-o", trace)
        done = run("fit", trace, "--json")
        assert done.returncode == 0, (scheme, done.stderr)
        result = json.loads(done.stdout)
        assert result["flows"][0]["cc"] == cc
        assert ("econ" in result["not_applicable"]) == (cc == "bbr")


def test_in_a_hurry_it_takes_a_shorter_flow_and_names_the_page(tmp_path):
    done = run("demo", "--world", "simulator", "--quick", "-o", tmp_path / "r.html")
    assert done.returncode == 0, done.stderr
    assert "One cubic flow runs for 16 s" in done.stdout
    assert f"open it: {(tmp_path / 'r.html').as_uri()}" in done.stdout
    done = run("demo", "--quick", "--duration", 30, "-o", tmp_path / "r.html")
    assert done.returncode == 2 and "--quick and --duration" in done.stderr


def test_the_page_opens_itself_only_before_a_person_at_a_desktop(monkeypatch):
    from pathcast.cli.demo import has_desktop

    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    for display, terminal in (("", True), (":0", False), (":0", True)):
        monkeypatch.setenv("DISPLAY", display)
        monkeypatch.setattr("sys.stdout.isatty", lambda terminal=terminal: terminal, raising=False)
        assert has_desktop() == bool(display and terminal)


def test_forecasts_of_a_running_flow_are_said_with_how_they_came_out():
    from pathcast.demo import LiveForecasts
    from pathcast.runs import SenderState

    # 10 Mbit/s, until the flow stops at 40 s
    said = []
    live = LiveForecasts("reno", 20.0, said.append)
    for tenth in range(500):
        sent = int(min(tenth / 10, 40.0) * 10e6 / 8)
        live([SenderState(tenth / 10, 0, 50.0, sent, 0.05, 0)])
    assert len(said) == 6
    assert said[0].startswith("at 20 s: the next 5 s will carry ")
    assert said[1].startswith("at 25 s: it was 10.00, inside the band; ")
    assert "it was 0.00, outside the band" in said[5]
    assert (live.hits, live.misses) == (4, 1)


def test_the_demo_forecasts_the_kernels_flow_as_it_runs(emulator, tmp_path):
    done = run("demo", "--world", "emulator", "--quick", "-o", tmp_path / "r.html")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    forecasts = re.findall(
        r"at \d+ s: (it was [\d.]+, \w+ the band; )?the next 5 s will carry", said
    )
    # one each 5 s from a third of the 16 s on; a busy machine may be late for the last
    assert len(forecasts) in (2, 3)
    assert forecasts[0] == "" and all(forecasts[1:])
