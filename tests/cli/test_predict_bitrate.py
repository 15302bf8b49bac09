"""`pathcast predict bitrate`."""

import json

import pytest

from conftest import run

PATH = "rate = '3 Mbit/s'\ndelay = '20 ms'\nqueue = '100 kB'\n"
MPD = """<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" mediaPresentationDuration="PT40S"><Period>
<AdaptationSet contentType="video"><SegmentTemplate duration="4" media="$RepresentationID$-$Number$"/>
<Representation id="a" bandwidth="500000"/><Representation id="b" bandwidth="2000000"/>
<Representation id="c" bandwidth="6000000"/></AdaptationSet></Period></MPD>"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "path.toml"
    file.write_text(PATH)
    return file


@pytest.fixture
def series(tmp_path):
    file = tmp_path / "series.csv"
    rows = "".join(f"1,{3e6 if n % 2 else 5e6}\n" for n in range(60))
    file.write_text("duration_s,rate_bps\n" + rows)
    return file


def test_over_a_path_the_highest_bitrate_in_time_is_chosen(path, tmp_path):
    manifest = tmp_path / "video.mpd"
    manifest.write_text(MPD)
    found = run("predict", "bitrate", manifest, "--path", path, "--sessions", "2", "--json")
    assert found.returncode == 0, found.stderr
    assert "no sizes" in found.stderr
    values = json.loads(found.stdout)
    assert values["choice"]["bitrate_bps"] == 2e6
    assert [one["probability"] for one in values["versions"]] == [1.0, 1.0, 0.0]
    assert values["segment_s"] == 4.0
    shown = run("predict", "bitrate", manifest, "--path", path, "--sessions", "2")
    assert "2 Mbit/s is the highest bitrate" in shown.stdout


def test_from_a_series_the_confidence_decides(series):
    choices = []
    for confidence in ("0.5", "0.9"):
        found = run(
            *("predict", "bitrate", "--sizes", "500000,1500000,1990000,4000000"),
            *("--trace", series, "--confidence", confidence, "--json"),
        )
        assert found.returncode == 0, found.stderr
        values = json.loads(found.stdout)
        assert 3.5e6 < values["rate"]["point_bps"] < 4.5e6
        choices.append(values["choice"]["bitrate_bps"])
    assert choices[1] <= choices[0] <= 3.98e6
    assert choices[1] >= 1e6


def test_from_a_flow_its_own_forecast_is_taken(path, tmp_path):
    trace = tmp_path / "trace.parquet"
    assert run("simulate", path, "--duration", "40", "-o", trace).returncode == 0
    found = run(
        *("predict", "bitrate", "--sizes", "250000,1000000,3000000", "--trace", trace, "--json")
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["choice"]["bitrate_bps"] == 2e6


def test_nothing_that_arrives_in_time_is_said(path):
    found = run("predict", "bitrate", "--sizes", "9000000", "--path", path, "--sessions", "1")
    assert found.returncode == 0
    assert "No version arrives in time with 90%" in found.stdout


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), "expected a manifest or --sizes"),
        (("--sizes", "1,2"), "expected --path or --trace"),
        (("--sizes", "2,1", "--path", "PATH"), "ascend"),
        (("--sizes", "x", "--path", "PATH"), "ascend"),
        (("PATH", "--sizes", "1", "--path", "PATH"), "one of them"),
        (("PATH", "--path", "PATH"), "no DASH or HLS manifest"),
        (("--sizes", "1", "--path", "PATH", "--trace", "PATH"), "one of them"),
        (("--sizes", "1", "--path", "PATH", "--confidence", "1"), "--confidence"),
        (("--sizes", "1", "--path", "PATH", "--segment", "0"), "--segment"),
        (("--sizes", "1", "--path", "PATH", "--scheme", "nonesuch"), "nonesuch"),
        (("--sizes", "1", "--path", "PATH", "--flow", "1"), "--trace"),
    ],
)
def test_what_cannot_be_is_refused(given, expected, path):
    found = run("predict", "bitrate", *(str(path) if one == "PATH" else one for one in given))
    assert found.returncode == 2
    assert expected in found.stderr
    assert "Traceback" not in found.stderr
