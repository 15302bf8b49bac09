"""Sessions of adaptive video in both worlds: over the simulator's TCP, and over the kernel's."""

import pytest

import pathcast
from conftest import valid_emulation

VIDEO = (
    "bitrates = ['300 kbit/s', '600 kbit/s', '1200 kbit/s', '2400 kbit/s', '4800 kbit/s'], segment = '1 s', "
    "count = 20, buffer = '6 s'"
)


def sessions(*flows):
    """What comes of sessions at the same time, each over a link of its own: simulated and emulated, in turns."""
    toml = "duration = '22 s'\n"
    for number, (rule, scheme, more) in enumerate(flows):
        # the link slows down after 5 s
        toml += (
            f"[links.l{number}]\n"
            "rate = { kind = 'steps', steps = [['0 s', '6 Mbit/s'], ['5 s', '1500 kbit/s']], period = '60 s' }\n"
            f"delay = '20 ms'\nqueue = '60 kB'\n[links.l{number}.reverse]\nrate = '100 Mbit/s'\n"
            f"[[flows]]\nscheme = '{scheme}'\nroute = ['l{number}']\n"
            f"workload = {{ kind = 'video', rule = '{rule}', {VIDEO}{more} }}\n"
        )
    what = pathcast.Scenario.parse(toml)
    simulated = pathcast.simulate(what, record=False)[0].flows
    emulated = valid_emulation(what).flows
    return [(one.video, other.video) for one, other in zip(simulated, emulated, strict=True)]


def given_up(video):
    """The first segment that was not downloaded whole."""
    return next(segment for segment in video.segments if segment["abandoned"])


def test_a_session_goes_as_over_the_kernels_tcp(emulator):
    for simulated, emulated in sessions(("dash.js", "cubic", ""), ("mpc", "bbr", "")):
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


def test_what_is_given_up_still_comes_as_far_as_it_was_written(emulator):
    limited = ", unsent = '16 kB'"
    *over_tcp, over_quic = sessions(
        ("dash.js", "cubic", ""), ("dash.js", "cubic", limited), ("dash.js", "quic-cubic", "")
    )
    for (simulated, emulated), is_limited in zip(over_tcp, (False, True), strict=True):
        assert simulated.abandoned == emulated.abandoned == 1
        one, other = given_up(simulated), given_up(emulated)
        assert one["version"] == other["version"]
        assert one["wasted_bytes"] == pytest.approx(other["wasted_bytes"], abs=3000)
        # all of it had been written into the kernel's socket, unless that has a limit: 0.6 s of 2.1 s
        assert one["took_s"] == pytest.approx(other["took_s"], rel=0.05)
        assert (other["took_s"] < 1.8) == is_limited
    # a server of HTTP/3 resets the stream: as where TCP's socket holds 16 kB, not as where it has no limit
    one, other = map(given_up, over_quic)
    assert one["version"] == other["version"]
    assert one["took_s"] == pytest.approx(other["took_s"], rel=0.1)
    assert other["took_s"] < 1.8
