"""Real schemes over an emulated path: what is measured, and that the controller that was asked for is at work."""

import base64
import importlib.util
import json
import os
import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

from conftest import IN_CI, ROOT, run, until_valid
from nobody import as_nobody, environment, may_make_user_namespaces
from pathcast.exceptions import SchemeError
from pathcast.path import Path as PathFile
from pathcast.schemes import catalog, measure, prepare
from pathcast.schemes.run import Flow, run_flows

PATH = PathFile.parse("rate = '20 Mbit/s'\ndelay = '10 ms'\nqueue = '2 BDP'\n")
#: That a full queue adds to the delay, in milliseconds.
QUEUE_MS = 40.0

pytestmark = pytest.mark.usefixtures("emulator")


def valid_run(flows, holds=None, **options):
    """A valid run of flows, for which `holds` asserts nothing false."""

    def attempt():
        done = run_flows(PATH, flows, **options)
        if holds and not done.invalid_because:
            holds(done)
        return (None if done.invalid_because else done), done.invalid_because

    return until_valid(attempt, times=4)


def test_flows_of_the_kernel_are_measured_each_within_its_own_time(tmp_path):
    def holds(done):
        """A scheme that a busy machine starts late has no rate where it should."""
        short = np.array(done.flows[1].series["rate_bps"])
        assert short[:3].sum() == 0 and short[6:].sum() == 0 and short[3:5].min() > 0

    file = tmp_path / "packets.parquet"
    done = valid_run(
        [Flow("tcp-cubic"), Flow("tcp-reno", start_s=1.5, stop_s=2.5), Flow("tcp-cubic", 0.5, bytes=300_000)],
        holds, duration_s=4, packets_file=file,
    )  # fmt: skip
    long, short, finite = done.flows
    assert [one.why_not for one in done.flows] == [None] * 3
    assert [one.controller for one in done.flows] == ["cubic", "reno", "cubic"]
    assert 0.25 < finite.completion_s < 3.4 and long.completion_s is short.completion_s is None
    rates = {
        name: np.array(one.series["rate_bps"]) for name, one in zip("lsf", done.flows, strict=True)
    }
    total = sum(rates.values())
    # 20 Mbit/s of IP packets, once the first windows are over
    assert np.all(total < 20.6e6) and np.mean(total[2:]) > 18e6
    assert 10 <= long.delay_ms["p50"] <= long.delay_ms["p95"] <= 10 + QUEUE_MS + 2
    assert long.goodput_bps < long.throughput_bps < 20.5e6
    # the same of the log, by its own columns
    packets = measure.read(file)
    assert packets.of(5000, reverse=False).sent > packets.of(5001, reverse=False).sent > 100
    assert packets.of(6000, reverse=False).sent == 0


def test_data_in_the_reverse_direction_is_measured_there():
    done = valid_run([Flow("tcp-reno", bytes=500_000)], duration_s=4, reverse=True)
    (flow,) = done.flows
    assert (flow.why_not, flow.controller) == (None, "reno")
    # 500 kB at 20 Mbit/s, and a few round trips
    assert 0.2 < flow.completion_s < 2
    assert flow.goodput_bps * flow.completion_s == pytest.approx(8 * 500_000, rel=0.05)


def test_a_transfer_that_does_not_end_in_time_is_no_completion():
    (flow,) = run_flows(PATH, [Flow("tcp-cubic", bytes=50_000_000)], duration_s=2).flows
    assert flow.completion_s is None
    assert flow.why_not == "sender: 50000000 bytes were not acknowledged within 2 s"


@pytest.mark.parametrize(
    ("flows", "said"),
    [
        ([], "got 0 flows; expected 1 to 64"),
        ([Flow("tcp-cubicc")], "flow 0: scheme 'tcp-cubicc' is unknown; did you mean 'tcp-cubic'"),
        ([Flow("tcp-cubic", start_s=2, stop_s=1)], "flow 0: start_s is 2 and stop_s is 1"),
        ([Flow("tcp-cubic"), Flow("tcp-cubic", stop_s=9)], "flow 1: start_s is 0 and stop_s is 9"),
        ([Flow("tcp-cubic", bytes=0)], "flow 0: bytes is 0"),
    ],
)
def test_impossible_flows_are_refused_before_anything_runs(flows, said):
    with pytest.raises(SchemeError, match=f"^{said}"):
        run_flows(PATH, flows, duration_s=3)


@pytest.mark.skipif(os.geteuid() != 0, reason="a scheme by BPF needs root")
def test_vegas_is_the_kernels_or_ours_and_says_which():
    (flow,) = valid_run([Flow("tcp-vegas")], duration_s=4).flows
    if flow.why_not is not None:
        assert "vegas" in flow.why_not
        pytest.skip(flow.why_not)
    assert flow.controller == "vegas"
    builtin = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    assert flow.ours == ("vegas" not in builtin)
    assert ("Pathcast's own code by BPF" in flow.evidence) == flow.ours
    # it keeps a few packets in the queue
    assert flow.delay_ms["p50"] < 10 + QUEUE_MS / 2


#: What is built for the tests, if its compiler is here: no more than these.
BUILT = {"quic-go-reno": "go", "noq-bbr3": "cargo"}


@pytest.fixture
def built(request):
    """A scheme with a wrapper that is built; kept in the cache."""
    name = request.param
    if shutil.which(BUILT[name]) is None and not IN_CI:
        pytest.skip(f"there is no {BUILT[name]}")
    try:
        prepare(catalog()[name])
    except SchemeError as error:
        if IN_CI:
            raise
        pytest.skip(f"its sources may be out of reach: {error}")
    return name


@pytest.mark.parametrize("built", BUILT, indirect=True)
def test_a_wrapper_that_was_built_moves_data_by_its_own_controller(built):
    flows = [Flow(built, stop_s=3), Flow(built, start_s=3.2, bytes=200_000)]
    endless, finite = valid_run(flows, duration_s=6).flows
    assert (endless.why_not, finite.why_not) == (None, None)
    assert endless.controller == catalog()[built].controller
    assert endless.goodput_bps > 10e6
    assert 0.05 < finite.completion_s < 2.5
    if built == "noq-bbr3":
        # BBR keeps the queue short, Reno fills it
        assert endless.delay_ms["p50"] < 10 + QUEUE_MS / 2
    else:
        assert endless.delay_ms["p95"] > 10 + 0.6 * QUEUE_MS


@pytest.mark.skipif(
    shutil.which("chromium") is None and not IN_CI,
    reason="there is no chromium (scripts/system-packages browser)",
)
@pytest.mark.parametrize("name", ["chromium-gcc", "chromium-scream"])
def test_a_browser_sends_media_as_fast_as_its_controller_allows(name, monkeypatch):
    lossy = PathFile.parse("rate = '20 Mbit/s'\ndelay = '10 ms'\nqueue = '2 BDP'\nloss = 0.003\n")
    # beside other tests, a browser's many threads wait; half of the time changes nothing below
    monkeypatch.setattr("pathcast.schemes.run.MOST_WAITING", 0.5)

    def attempt():
        flows = [Flow(name, stop_s=7), Flow(name, start_s=7.2, bytes=500_000)]
        done = run_flows(lossy, flows, duration_s=14)
        return (None if done.invalid_because else done), done.invalid_because

    endless, finite = until_valid(attempt).flows
    assert (endless.why_not, finite.why_not) == (None, None)
    assert endless.controller == finite.controller == catalog()[name].controller
    # no encoder makes that of such pictures
    assert endless.goodput_bps > 4e6
    # what losses took was sent again
    assert 0.2 < finite.completion_s < 6


@pytest.mark.parametrize(
    ("lines", "answer", "controller"),
    [
        ({"goog_cc_network_control": 90}, "a=rtcp-fb:96 transport-cc", "gcc"),
        ({"goog_cc_network_control": 2, "scream_v2": 90}, "a=rtcp-fb:* ack ccfb", "scream"),
        # with one of the two trials alone, senders run GCC
        ({"goog_cc_network_control": 90}, "a=rtcp-fb:* ack ccfb", "unknown"),
        ({}, "a=rtcp-fb:96 transport-cc", "unknown"),
    ],
)
def test_a_browsers_controller_is_read_from_its_log_and_what_was_agreed(lines, answer, controller):
    assert media().at_work(lines, answer)[0] == controller


def media():
    """The program that runs browsers."""
    file = ROOT / "python/pathcast/schemes/wrappers/chromium/media.py"
    spec = importlib.util.spec_from_file_location("media", file)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_hostile_datagrams_are_no_offers():
    program = media()
    assert program._unpacked(program._packed("offer", "v=0"), "offer") == "v=0"
    bomb = base64.b64encode(zlib.compress(bytes(50_000_000), 9)).decode()
    assert len(program._unpacked(json.dumps({"offer": bomb}).encode(), "offer")) <= 1 << 16
    for datagram in (
        b"",
        b"[]",
        b"\xff",
        b"[" * 50_000,
        b'{"offer": 1}',
        b'{"offer": "AAAA"}',
        b"{}",
    ):
        assert program._unpacked(datagram, "offer") is None


def test_the_check_finds_a_controller_that_is_not_the_one_asked_for(tmp_path, monkeypatch):
    """A wrong program: it says that it has BBR, and sets nothing."""
    monkeypatch.setenv("PATHCAST_SCHEMES", str(tmp_path))
    text = (ROOT / "python/pathcast/schemes/catalog/tcp-reno.toml").read_text()
    text = text.replace('"tcp-reno"', '"wrong"').replace(
        'controller = "reno"', 'controller = "bbr"'
    )
    (tmp_path / "wrong.toml").write_text(text)
    done = run("schemes", "check", "tcp-reno", "wrong", "--duration", 2, "--json")
    assert done.returncode == 1, done.stderr
    right, wrong = json.loads(done.stdout)
    assert (right["works"], right["controller"], right["why_not"]) == (True, "reno", None)
    assert 10 <= right["delay_p95_ms"] <= 55 and right["completion_s"] < 2
    assert (wrong["works"], wrong["controller"]) == (False, "reno")
    assert wrong["why_not"] == "the controller at work is 'reno'; expected 'bbr'"


def test_an_ordinary_user_runs_schemes_too(tmp_path):
    reason = may_make_user_namespaces()
    if reason is not None:
        pytest.skip(reason)
    home = tmp_path / "home"
    home.mkdir()
    program = (
        "from pathcast.path import Path\n"
        "from pathcast.schemes.run import Flow, run_flows\n"
        "path = Path.parse(\"rate = '20 Mbit/s'\\ndelay = '10 ms'\\n\")\n"
        "done = run_flows(path, [Flow('tcp-reno', bytes=100000), Flow('tcp-vegas')], duration_s=2)\n"
        "import json; print(json.dumps([[one.controller, one.why_not] for one in done.flows]))\n"
    )
    import sys

    done = subprocess.run(
        as_nobody(home, sys.executable, "-c", program),
        check=False, capture_output=True, text=True, timeout=120, cwd=home, env=environment(home),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reno, vegas = json.loads(done.stdout)
    assert reno == ["reno", None]
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    assert ("vegas" in available) or vegas[1] is not None


@pytest.mark.full
def test_the_example_in_another_language_works(monkeypatch):
    if shutil.which("go") is None:
        pytest.skip("there is no go")
    monkeypatch.setenv("PATHCAST_SCHEMES", str(ROOT / "examples/scheme"))
    done = run("schemes", "check", "go-reno", "--duration", 3, "--json", timeout=600)
    (found,) = json.loads(done.stdout)
    assert found["works"], found["why_not"]
    assert found["controller"] == "reno"


@pytest.mark.full
def test_most_schemes_work_each_in_its_own_way():
    """All that can be built here: 14 real ones of 7 code bases, and their queues as their files say."""
    done = run("schemes", "check", "--json", timeout=6000)
    found = json.loads(done.stdout)
    works = [one for one in found if one["works"]]
    assert len([one for one in works if not one["ours"]]) >= 14, [one["why_not"] for one in found]
    assert len({one["implementation"] for one in works}) >= 7
    judged = [one for one in works if one["as_expected"] is not None and not one["invalid_because"]]
    assert sum(one["as_expected"] for one in judged) >= 0.8 * len(judged), judged
