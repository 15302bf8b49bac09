"""Sessions of adaptive video in both worlds: over the simulator's TCP, and over the kernel's."""

import pytest

import pathcast
from conftest import valid_emulation

VIDEO = (
    "bitrates = ['300 kbit/s', '600 kbit/s', '1200 kbit/s', '2400 kbit/s', '4800 kbit/s'], segment = '1 s', "
    "count = 20, buffer = '6 s'"
)


def scenario(rule, scheme, unsent=""):
    # the link slows down after 5 s
    return pathcast.Scenario.parse(
        "duration = '30 s'\n[links.l]\n"
        "rate = { kind = 'steps', steps = [['0 s', '6 Mbit/s'], ['5 s', '1500 kbit/s']], period = '60 s' }\n"
        "delay = '20 ms'\nqueue = '60 kB'\n[links.l.reverse]\nrate = '100 Mbit/s'\n[[flows]]\n"
        f"scheme = '{scheme}'\nworkload = {{ kind = 'video', rule = '{rule}', {VIDEO}{unsent} }}\n"
    )


@pytest.mark.parametrize(("rule", "scheme"), [("dash.js", "cubic"), ("mpc", "bbr")])
def test_a_session_goes_as_over_the_kernels_tcp(emulator, rule, scheme):
    what = scenario(rule, scheme)
    simulated = pathcast.simulate(what, record=False)[0].flows[0].video
    emulated = valid_emulation(what).flows[0].video
    assert len(simulated.segments) == len(emulated.segments) == 20
    assert simulated.startup_s == pytest.approx(emulated.startup_s, rel=0.05)
    # until a choice differs, each segment takes as long
    same = 0
    for one, other in zip(simulated.segments, emulated.segments, strict=True):
        if one["version"] != other["version"]:
            break
        assert one["took_s"] == pytest.approx(other["took_s"], rel=0.1, abs=0.02)
        same += 1
    assert same >= 4
    assert simulated.mean_bitrate_bps == pytest.approx(emulated.mean_bitrate_bps, rel=0.15)
    # the path got slow: both went down
    assert simulated.segments[-1]["version"] < max(one["version"] for one in simulated.segments)


@pytest.mark.parametrize("unsent", ["", ", unsent = '16 kB'"])
def test_what_is_given_up_still_comes_as_far_as_it_was_written(emulator, unsent):
    what = scenario("dash.js", "cubic", unsent)
    simulated = pathcast.simulate(what, record=False)[0].flows[0].video
    emulated = valid_emulation(what).flows[0].video
    assert simulated.abandoned == emulated.abandoned == 1
    [one, other] = [
        next(segment for segment in video.segments if segment["abandoned"])
        for video in (simulated, emulated)
    ]
    assert one["version"] == other["version"]
    assert one["wasted_bytes"] == pytest.approx(other["wasted_bytes"], abs=3000)
    # all of it had been written into the kernel's socket, unless that has a limit: 0.6 s of 2.1 s
    assert one["took_s"] == pytest.approx(other["took_s"], rel=0.05)
    assert (other["took_s"] < 1.8) == bool(unsent)


def test_over_quic_little_comes_of_what_is_given_up(emulator):
    what = scenario("dash.js", "quic-cubic")
    simulated = pathcast.simulate(what, record=False)[0].flows[0].video
    emulated = valid_emulation(what).flows[0].video
    [one, other] = [
        next(segment for segment in video.segments if segment["abandoned"])
        for video in (simulated, emulated)
    ]
    assert one["version"] == other["version"]
    assert one["took_s"] == pytest.approx(other["took_s"], rel=0.1)
    # a server of HTTP/3 resets the stream: as where TCP's socket holds 16 kB, not as where it has no limit
    assert other["took_s"] < 1.8
