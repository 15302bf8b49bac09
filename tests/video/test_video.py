"""Rates, manifests, and sessions of adaptive video."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

import pathcast
from pathcast import video
from pathcast.exceptions import ModelError, PathFileError, SchemeError, TraceError
from pathcast.manifests import read_manifest
from pathcast.rates import RateForecaster, read_rates, says_rates

PATH = "rate = '{rate}'\ndelay = '20 ms'\nqueue = '100 kB'\n"
LADDER = video.Ladder(4.0, (0.5e6, 1e6, 2e6, 4e6, 8e6), 40)


def path(rate):
    return pathcast.Path.parse(PATH.format(rate=rate))


def wandering(count, seed):
    rng = np.random.default_rng(seed)
    level, found = 0.0, []
    for _ in range(count):
        level = 0.95 * level + 0.3 * rng.standard_normal()
        found.append(5e6 * math.exp(level))
    return np.array(found)


def error(rates, rows=None):
    """The mean error of the point, or of the last second, over the next 4 s, in logarithms."""
    said = rates if rows is None else rows[:, 0]
    truth = np.array([rates[i + 1 : i + 5].mean() for i in range(len(rates) - 10)])
    return np.mean(np.abs(np.log(said[: len(truth)] / truth)))


def test_forecasts_of_rates_hold_what_they_say_and_see_no_future():
    rates = wandering(1500, 1)
    rows = RateForecaster(4.0).follow(np.ones(1500), rates, (0.1, 0.5, 0.9))
    truth = np.array([rates[i + 1 : i + 5].mean() for i in range(1490)])
    for column, share in ((1, 0.9), (2, 0.5), (3, 0.1)):
        assert np.mean(truth >= rows[:1490, column]) == pytest.approx(share, abs=0.05)
    # of a rate that wanders the last second is the best, of one that varies alone a mean: the pool finds it
    assert error(rates, rows) < 1.02 * error(rates)
    varying = 5e6 * np.exp(0.6 * np.random.default_rng(2).standard_normal(1500))
    assert error(varying, RateForecaster(4.0).follow(np.ones(1500), varying)) < 0.7 * error(varying)
    changed = rates.copy()
    changed[700:] *= 10
    again = RateForecaster(4.0).follow(np.ones(1500), changed, (0.1, 0.5, 0.9))
    assert np.array_equal(again[:700], rows[:700])
    assert not np.array_equal(again[700], rows[700])


def test_a_forecaster_of_rates_refuses_what_is_no_sample():
    forecaster = RateForecaster(4.0)
    with pytest.raises(ModelError, match="not observed"):
        forecaster.forecast()
    for seconds, bits in (
        ([0.0], [1.0]),
        ([1.0], [-1.0]),
        ([math.nan], [1.0]),
        ([1.0, 1.0], [1.0]),
    ):
        with pytest.raises(ModelError):
            forecaster.observe(seconds, bits)
    forecaster.observe([1.0], [1e6])
    with pytest.raises(ModelError, match="level"):
        forecaster.forecast([1.0])
    with pytest.raises(ModelError, match="horizon"):
        RateForecaster(0.0)


@pytest.mark.parametrize("rule", video.RULES)
def test_a_player_over_the_simulators_tcp_finds_what_the_path_carries(rule):
    session = video.watch(LADDER, path("5 Mbit/s"), rule)
    assert len(session.segments) == 40
    assert session.stalls == 0
    # 4 Mbit/s, or more by the buffer that is left at the end; rules that keep a part for safety take 2
    settled = np.mean([one["bitrate_bps"] for one in session.segments[15:]])
    assert 2e6 <= settled <= 6e6
    assert session.startup_s == session.segments[0]["took_s"] < 1
    # what TCP delivered in the time
    for one in session.segments[1:]:
        assert 8 * one["bytes"] / one["took_s"] < 5e6


def test_a_session_adds_up():
    session = video.watch(LADDER, path("1.5 Mbit/s"), "fixed:2", buffer_s=12.0)
    # 2 Mbit/s over 1.5: playback takes as long as the download
    first, last = session.segments[0], session.segments[-1]
    end_s = last["asked_s"] + last["took_s"]
    assert session.stalled_s == pytest.approx(end_s - first["took_s"] - 4.0 * 39, abs=0.01)
    assert session.qoe == pytest.approx(2 - 8 * session.stalled_s / 40)
    assert session.switches == 0


def test_the_same_seed_gives_the_same_session_and_a_loss_costs():
    lossy = pathcast.Path.parse(PATH.format(rate="8 Mbit/s") + "loss = 0.02\n[reverse]\nloss = 0.0")
    assert video.watch(LADDER, lossy, "mpc", seed=3) == video.watch(LADDER, lossy, "mpc", seed=3)
    took = [
        np.mean([one["took_s"] for one in video.watch(LADDER, over, "fixed:2").segments])
        for over in (path("8 Mbit/s"), lossy)
    ]
    assert took[1] > 1.5 * took[0]


#: 40 s of 8 Mbit/s, then 20 s of 0.6 Mbit/s, again and again.
BREAKS_DOWN = PATH.replace(
    "'{rate}'",
    "{{ kind = 'steps', steps = [['0 s', '8 Mbit/s'], ['40 s', '600 kbit/s']], period = '60 s' }}",
)


@pytest.mark.parametrize("rule", ["dash.js", "hls.js", "mpc"])
def test_a_player_that_gives_up_downloads_stalls_less_if_the_server_holds_little(rule):
    over = pathcast.Path.parse(BREAKS_DOWN.format())
    waits = video.watch(LADDER, over, rule, abandon="never", buffer_s=14.0)
    little = video.watch(LADDER, over, rule, unsent_bytes=16_384, buffer_s=14.0)
    much = video.watch(LADDER, over, rule, unsent_bytes=1 << 20, buffer_s=14.0)
    assert (waits.abandoned, waits.wasted_bytes) == (0, 0)
    assert little.abandoned > 0
    assert sum(one["abandoned"] for one in little.segments) == little.abandoned
    assert sum(one["wasted_bytes"] for one in little.segments) == little.wasted_bytes > 0
    assert len(little.segments) == 40
    assert little.stalled_s < 0.8 * waits.stalled_s
    # what was written comes before what is asked for instead
    assert little.stalled_s < much.stalled_s


def test_a_session_that_cannot_be_is_refused():
    with pytest.raises(PathFileError, match="robust-mpc"):
        video.watch(LADDER, path("5 Mbit/s"), "best")
    with pytest.raises(PathFileError, match=r"hls\.js"):
        video.watch(LADDER, path("5 Mbit/s"), abandon="often")
    with pytest.raises(PathFileError, match="expected a rule that plans: mpc"):
        video.watch(LADDER, path("5 Mbit/s"), "bola", abandon="plan")
    with pytest.raises(PathFileError, match="at least 4096 B"):
        video.watch(LADDER, path("5 Mbit/s"), unsent_bytes=10)
    with pytest.raises(SchemeError):
        video.watch(LADDER, path("5 Mbit/s"), "mpc", scheme="nonesuch")
    for wrong in (
        lambda: video.Ladder(0.0, (1e6,), 3),
        lambda: video.Ladder(4.0, (), 3),
        lambda: video.Ladder(4.0, (2e6, 1e6), 3),
        lambda: video.Ladder(4.0, (1e6,), 3, ((1, 2),)),
    ):
        with pytest.raises(ModelError):
            wrong()


def test_arrivals_fall_with_the_bitrate():
    found = video.arrivals(LADDER, path("3 Mbit/s"), sessions=2, segments=5)
    assert [one.probability for one in found] == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert found[2].took_s[2] == pytest.approx(8 * 1e6 / 3e6, rel=0.1)


def test_players_have_the_receive_window_that_a_calibration_saw():
    short = video.Ladder(4.0, (4e6,), 5)
    samples = np.array([[20e6, 0.15, 0.5, 0.02, 1e-6]])
    never, opens = (
        pathcast.Calibration(0, "cubic", 10.0, {}, samples, 0.0, (), receive_window=window)
        for window in (None, "auto")
    )
    took_s = [video.arrivals(short, one, sessions=1)[0].took_s for one in (never, opens)]
    assert took_s[1] != took_s[0]
    (over,) = opens.paths(1)
    session = video.watch(short, over, "fixed:0", receive_window="auto")
    assert max(one["took_s"] for one in session.segments[1:]) == took_s[1][-1]


SERIES = [{"duration_ms": 1000, "bandwidth_kbps": 1000 + 10 * n} for n in range(60)]


def test_series_of_rates_are_read_from_json_and_csv(tmp_path):
    file = tmp_path / "series.json"
    file.write_text(json.dumps(SERIES))
    assert says_rates(file)
    assert read_rates(file).rate_bps[5] == 1.05e6
    table = tmp_path / "series.csv"
    table.write_text("time_s,rate_mbps\n0.5,2\n2,4\n")
    assert says_rates(table)
    series = read_rates(table)
    assert series.seconds.tolist() == [0.5, 1.5]
    assert series.bits.tolist() == [1e6, 6e6]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[1]",
        "[" * 100_000,
        '[{"duration_ms": 0, "bandwidth_kbps": 1}]',
        '[{"duration_ms": 1000, "bandwidth_kbps": -1}]',
        '[{"duration_ms": 1000, "bandwidth_kbps": NaN}]',
        '[{"duration_ms": 1000}]',
        "time_s,rate_bps\n2,1\n1,1\n",
        "time_s,rate_bps\n1,x\n",
        "time_s,rate_bps\n1\n",
        "time_s,speed\n1,1\n",
        "duration_s,rate_bps\n1,inf\n",
    ],
)
def test_a_series_that_is_none_is_refused(content, tmp_path):
    file = tmp_path / "series"
    file.write_text(content)
    with pytest.raises(TraceError, match="series"):
        read_rates(file)


MPD = """<?xml version="1.0"?>
<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" mediaPresentationDuration="PT0M12S">
 <Period>
  <AdaptationSet contentType="audio"><Representation id="a" bandwidth="64000"/></AdaptationSet>
  <AdaptationSet mimeType="video/mp4">
   <SegmentTemplate duration="8" timescale="2" startNumber="1" media="v$RepresentationID$-$Number%03d$.m4s"/>
   <Representation id="1" bandwidth="2000000"/>
   <Representation id="0" bandwidth="500000"/>
  </AdaptationSet>
 </Period>
</MPD>
"""


def test_a_dash_manifest_has_the_sizes_of_files_beside_it(tmp_path):
    file = tmp_path / "manifest.mpd"
    file.write_text(MPD)
    bare = read_manifest(file)
    assert not bare.has_sizes
    assert bare.ladder == video.Ladder(4.0, (500000.0, 2000000.0), 3)
    assert "no sizes" in " ".join(bare.warnings)
    for version in (0, 1):
        for number in (1, 2, 3):
            (tmp_path / f"v{version}-00{number}.m4s").write_bytes(b"x" * (100 * number + version))
    whole = read_manifest(file)
    assert whole.ladder.sizes == ((100, 200, 300), (101, 201, 301))
    assert not whole.warnings
    (tmp_path / "v1-002.m4s").unlink()
    missing = read_manifest(file)
    assert "segments 2 " in " ".join(missing.warnings)
    assert not missing.has_sizes


def test_a_timeline_and_ranges_are_read(tmp_path):
    template = MPD.replace(
        '<SegmentTemplate duration="8" timescale="2" startNumber="1" media="v$RepresentationID$-$Number%03d$.m4s"/>',
        '<SegmentTemplate timescale="10" media="$Time$-$Bandwidth$"><SegmentTimeline><S t="0" d="40" r="1"/><S d="20"/>'
        "</SegmentTimeline></SegmentTemplate>",
    )
    file = tmp_path / "manifest.mpd"
    file.write_text(template)
    (tmp_path / "80-500000").write_bytes(b"x")
    found = read_manifest(file)
    assert (found.ladder.count, found.ladder.segment_s) == (3, 4.0)
    # of one version the third is there
    assert "segments 1, 2, 3 have no size" in " ".join(found.warnings)
    listed = (
        "<MPD><Period><AdaptationSet><Representation bandwidth='800000'><SegmentList duration='5'>"
        "<SegmentURL mediaRange='0-99'/><SegmentURL mediaRange='100-299'/></SegmentList></Representation>"
        "</AdaptationSet></Period></MPD>"
    )
    file.write_text(listed)
    assert read_manifest(file).ladder.sizes == ((100, 200),)


def test_an_hls_playlist_is_read_with_those_of_its_versions(tmp_path):
    master = tmp_path / "master.m3u8"
    master.write_text(
        "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=900000,AVERAGE-BANDWIDTH=800000\nlow/index.m3u8\n"
        '#EXT-X-STREAM-INF:CODECS="a,b",BANDWIDTH=3000000\nhigh.m3u8\n'
    )
    (tmp_path / "low").mkdir()
    (tmp_path / "low" / "index.m3u8").write_text(
        "#EXTM3U\n#EXTINF:6.0,\n0.ts\n#EXTINF:6.0,\n1.ts\n#EXTINF:2.5,\n2.ts\n#EXT-X-ENDLIST\n"
    )
    for number in range(3):
        (tmp_path / "low" / f"{number}.ts").write_bytes(b"x" * (10 + number))
    (tmp_path / "high.m3u8").write_text(
        "#EXTM3U\n" + "".join(f"#EXTINF:6,\n#EXT-X-BYTERANGE:{n}@0\nall.ts\n" for n in (70, 80, 30))
    )
    found = read_manifest(master)
    assert found.ladder == video.Ladder(6.0, (800000.0, 3000000.0), 3, ((10, 11, 12), (70, 80, 30)))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "<MPD",
        "<html/>",
        "<MPD/>",
        '<!DOCTYPE MPD [<!ENTITY a "b">]><MPD>&a;</MPD>',
        MPD.replace('bandwidth="2000000"', 'bandwidth="0"'),
        MPD.replace('bandwidth="2000000"', 'bandwidth="many"'),
        MPD.replace('timescale="2"', 'timescale="0"'),
        MPD.replace('duration="8"', 'duration="0"'),
        MPD.replace('duration="8"', 'duration="0.0000001"'),
        MPD.replace("PT0M12S", "P99999999D"),
        "#EXTM3U\n#EXTINF:6,\n0.ts\n",
        "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\nmissing.m3u8\n",
        "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\n../../../../etc/passwd\n",
        "#EXTM3U\n#EXT-X-STREAM-INF:RESOLUTION=1x1\nmissing.m3u8\n",
        "#EXTM3U\n",
    ],
)
def test_a_manifest_that_is_none_is_refused(content, tmp_path):
    file = tmp_path / "manifest"
    file.write_text(content)
    with pytest.raises(PathFileError, match="manifest"):
        read_manifest(file)


def test_files_elsewhere_are_not_looked_at(tmp_path):
    (tmp_path / "secret").write_bytes(b"x" * 77)
    inner = tmp_path / "video"
    inner.mkdir()
    file = inner / "manifest.mpd"
    for name in ("../secret", str(tmp_path / "secret"), "%2e%2e/secret", "file:///etc/passwd"):
        file.write_text(MPD.replace("v$RepresentationID$-$Number%03d$.m4s", name))
        assert not read_manifest(file).has_sizes, name
    (inner / "link").symlink_to(tmp_path / "secret")
    file.write_text(MPD.replace("v$RepresentationID$-$Number%03d$.m4s", "link"))
    assert not read_manifest(file).has_sizes


@pytest.mark.skipif(
    "PATHCAST_DATA" not in os.environ,
    reason="PATHCAST_DATA is not set: it names the folder of real data",
)
@pytest.mark.parametrize("group", ["3G", "4G"])
def test_on_real_series_the_forecast_is_as_good_as_the_best_of_others(group):
    ours, others = [], {"last": [], "mean": [], "dash.js": []}
    for file in sorted((Path(os.environ["PATHCAST_DATA"]) / "throughput").glob(f"{group}*")):
        series = read_rates(file)
        times = np.concatenate([[0.0], np.cumsum(series.seconds)])
        bits = np.concatenate([[0.0], np.cumsum(series.bits)])
        rates = np.diff(np.interp(np.arange(int(times[-1]) + 1), times, bits))
        places = np.arange(11, len(rates) - 4)
        truth = np.array([rates[i + 1 : i + 5].mean() for i in places])
        said = RateForecaster(4.0).follow(np.ones(len(rates)), rates, (0.1,))[places]
        ours.append(np.mean(np.abs(said[:, 0] - truth)) / rates.mean())
        for name, half_lives in (("last", (0.01,)), ("mean", (2.0,)), ("dash.js", (3.0, 8.0))):
            means = []
            for half_life in half_lives:
                keep, total, weight, values = 0.5 ** (1 / half_life), 0.0, 0.0, []
                for rate in rates:
                    total, weight = keep * total + (1 - keep) * rate, keep * weight + 1 - keep
                    values.append(total / weight)
                means.append(values)
            guess = np.min(means, axis=0)[places]
            others[name].append(np.mean(np.abs(guess - truth)) / rates.mean())
    assert len(ours) == 20
    assert np.mean(ours) < min(np.mean(those) for those in others.values())
