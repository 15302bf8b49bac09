"""`pathcast simulate` and `pathcast emulate`."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pyarrow.parquet
import pytest

import pathcast
from conftest import PATHCAST, network_namespaces_of, run, wait_until

PATH = "rate = '20 Mbit/s'\ndelay = '10 ms'\nqueue = '1 BDP'\nloss = 0.0005\n"
KEYS = {
    "flows", "packets_delivered", "loss_rate", "one_way_delay_ms", "cpu_s", "wall_s", "seed",
    "valid", "invalid_because",
}  # fmt: skip


def test_simulate_prints_its_report_as_json(path_file, tmp_path):
    trace_file = tmp_path / "trace.parquet"
    done = run(
        "simulate", path_file(PATH), "--scheme", "cubic", "--scheme", "reno", "--flows", 2,
        "--duration", 20, "--seed", 7, "-o", trace_file, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report) == KEYS | {"groups"}
    # one table for each scheme and flow
    assert [group["flows"] for group in report["groups"]] == [1] * 4
    delivered = [group["packets_delivered"] for group in report["groups"]]
    assert sum(delivered) == report["packets_delivered"]
    assert [flow["scheme"] for flow in report["flows"]] == ["cubic", "cubic", "reno", "reno"]
    assert 17e6 < sum(flow["goodput_bps"] for flow in report["flows"]) < 20e6
    assert 10 < report["one_way_delay_ms"]["p50"] <= report["one_way_delay_ms"]["p95"] < 31
    assert (report["seed"], report["valid"]) == (7, True)

    trace = pathcast.read_trace(trace_file)
    assert trace.flows == [0, 1, 2, 3]
    assert trace.metadata["source"] == "simulator"
    assert trace.metadata["seed"] == 7
    assert pathcast.Path.parse(trace.metadata["path_toml"]).rate_bps == 20e6


def test_packets_are_written_and_add_up(path_file, tmp_path):
    packets, trace = tmp_path / "packets.parquet", tmp_path / "trace.parquet"
    done = run(
        "simulate", path_file(PATH), "--duration", 20, "--packets", packets, "-o", trace, "--json"
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    table = pyarrow.parquet.read_table(packets)
    events = table["event"].to_numpy()
    sent, delivered = (events == 0).sum(), (events == 1).sum()
    assert delivered == report["packets_delivered"]
    assert (events >= 2).sum() / sent == pytest.approx(report["loss_rate"])
    assert 0 <= sent - delivered - (events >= 2).sum() < 100  # in flight at the end
    delay_ms = 1e3 * table["one_way_delay_s"].drop_null().to_numpy()
    assert delay_ms.mean() == pytest.approx(report["one_way_delay_ms"]["mean"], rel=1e-6)
    assert len(pathcast.read_trace(trace)) > 1000


def test_a_capture_is_read_by_tcpdump_and_by_ourselves(tmp_path):
    scenario, capture, trace = (tmp_path / name for name in ("s.toml", "c.pcapng", "t.parquet"))
    scenario.write_text(
        "duration = '5 s'\n[links.l]\nrate = '10 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n"
        "[[flows]]\nscheme = 'cubic'\nhandshake = true\nreceive_window = 'auto'\n"
        "[[flows]]\nscheme = 'udp'\nworkload = { kind = 'constant-rate', rate = '100 kbit/s', "
        "portion = '160 B' }\n"
    )
    queues = tmp_path / "q.parquet"
    done = run("simulate", scenario, "--pcap", capture, "-o", trace, "--queues", queues)
    assert done.returncode == 0, done.stderr
    assert f"capture written to {capture}" in done.stdout.replace("\n", "")
    ours, theirs = pathcast.read_trace(trace), pathcast.read_trace(capture)
    sent, again = ours.columns, theirs.columns
    assert len(again["time_s"]) == pytest.approx(len(sent["time_s"]), abs=1)
    assert again["retransmits"].max() == sent["retransmits"].max() > 0
    assert again["snd_una_bytes"].max() == pytest.approx(sent["snd_una_bytes"].max(), rel=0.01)
    whole = run("simulate", scenario, "--pcap", tmp_path / "again.pcapng")
    assert whole.returncode == 0, whole.stderr
    assert (tmp_path / "again.pcapng").read_bytes() == capture.read_bytes()
    if shutil.which("tcpdump"):
        command = ["tcpdump", "-n", "-t", "-vv", "-r", str(capture)]
        shown = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "(correct)" in shown.stdout
        assert not any(word in shown.stdout for word in ("incorrect", "truncated", "[|tcp]"))
        first = shown.stdout.split("\n    ")[1]
        assert "Flags [S]" in first and "mss 1460,sackOK,TS val" in first and "wscale 10" in first
        assert ", length 1448" in shown.stdout and "UDP, length 160" in shown.stdout


def test_queues_hold_what_delays_packets(path_file, tmp_path):
    queues, packets = tmp_path / "queues.parquet", tmp_path / "packets.parquet"
    command = ["simulate", path_file(PATH), "--duration", 20, "--json"]
    done = run(*command, "--queues", queues, "--queues-every", "0.004", "--packets", packets)
    assert done.returncode == 0, done.stderr
    # looking changes nothing
    report, plain = (json.loads(text) for text in (done.stdout, run(*command).stdout))
    assert report["flows"] == plain["flows"]

    table = pyarrow.parquet.read_table(queues)
    rows = {name: table[name].to_numpy() for name in table.column_names}
    assert len(rows["time_s"]) == 2 * (20 / 0.004 + 1)
    assert set(rows["link"]) == {0}
    out = rows["direction"] == 0
    assert not rows["backlog_bytes"][~out].any()  # acknowledgments never wait here
    time_s, backlog = rows["time_s"][out], rows["backlog_bytes"][out]
    assert 40_000 < backlog.max() <= 50_000

    table = pyarrow.parquet.read_table(packets)
    arrived = table.filter(table["event"].to_numpy() == 1)
    delay_s = arrived["one_way_delay_s"].to_numpy()
    sent_s = arrived["time_s"].to_numpy() - delay_s
    # of the packet that came next after each look: it waited for what was there, with one in transmission
    after = np.searchsorted(sent_s, time_s)
    near = after < len(sent_s)
    near[near] &= sent_s[after[near]] - time_s[near] < 0.0005
    waited_bytes = (delay_s[after[near]] - 0.010) * 20e6 / 8
    missing = waited_bytes - backlog[near]
    assert near.sum() > 1000
    assert np.quantile(missing, 0.02) > -1500
    assert np.quantile(missing, 0.98) < 3 * 1500


def test_queues_of_each_link_are_told(tmp_path):
    scenario = tmp_path / "two.toml"
    links = "".join(
        f"[links.{name}]\nrate = '{rate} Mbit/s'\ndelay = '5 ms'\n"
        for name, rate in (("a", 20), ("b", 5))
    )
    scenario.write_text(links + "[[flows]]\nscheme = 'cubic'\nroute = ['a', 'b']\n")
    file = tmp_path / "q.parquet"
    done = run("simulate", scenario, "--duration", 5, "--queues", file)
    assert done.returncode == 0, done.stderr
    assert f"queues written to {file}" in done.stdout.replace("\n", "")
    table = pyarrow.parquet.read_table(file)
    link, backlog = table["link"].to_numpy(), table["backlog_bytes"].to_numpy()
    # the slow link is where packets wait
    assert backlog[link == 1].mean() > 10 * backlog[link == 0].mean()
    wrong = run("simulate", scenario, "--queues", file, "--queues-every", "0")
    assert wrong.returncode == 2
    with pytest.raises(pathcast.PathcastError, match="a microsecond to an hour"):
        pathcast.simulate(
            pathcast.Scenario.load(scenario), queues_file=file, queues_every_s=float("nan")
        )


def test_recording_takes_no_memory_that_grows_with_the_run(path_file, tmp_path):
    script = (
        "import resource, sys, pathcast\n"
        "path = pathcast.Path.load(sys.argv[1])\n"
        "pathcast.simulate(path, duration_s=float(sys.argv[2]), packets_file=sys.argv[3],"
        " trace_file=sys.argv[4])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )

    def peak_kib(duration_s):
        command = [sys.executable, "-c", script, path_file(PATH), str(duration_s)]
        files = [tmp_path / "p.parquet", tmp_path / "t.parquet"]
        done = subprocess.run(command + files, check=True, capture_output=True, timeout=120)
        return int(done.stdout)

    # 60 times the packets, some 170 MB of rows
    assert peak_kib(1200) < peak_kib(20) + 60_000


def test_the_same_seed_gives_the_same_file(path_file, tmp_path):
    path = path_file(PATH)
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        run("simulate", path, "--duration", 10, "--seed", seed, "-o", tmp_path / name)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c


def test_human_text_goes_without_json(path_file):
    done = run("simulate", path_file(PATH), "--duration", 5)
    assert done.returncode == 0
    assert "Mbit/s" in done.stdout
    assert "packets delivered" in done.stdout
    assert done.stderr == ""


def test_emulate_prints_its_report_as_json(emulator, path_file, tmp_path):
    trace_file = tmp_path / "trace.parquet"
    done = run("emulate", path_file(PATH), "--duration", 3, "-o", trace_file, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report) == KEYS | {"slip_us"}
    assert set(report["slip_us"]) == {"p50", "p99", "max"}
    assert report["flows"][0]["scheme"] == "cubic"
    trace = pathcast.read_trace(trace_file)
    assert trace.metadata["source"] == "emulator"
    assert trace.metadata["valid"] == report["valid"]
    assert len(trace) > 500


def test_a_scheme_that_the_kernel_lacks_is_refused(emulator, path_file):
    done = run("emulate", path_file(PATH), "--scheme", "nosuch", "--duration", 3)
    assert done.returncode == 2
    assert "nosuch" in done.stderr
    assert "cubic" in done.stderr


@pytest.mark.parametrize("name", ["", "../../x", "a-name-of-16-chr", "Vegas", "reno cubic"])
def test_what_cannot_be_a_schemes_name_is_refused_before_anything_runs(
    emulator, path_file, tmp_path, name
):
    output = tmp_path / "trace.parquet"
    for command in (
        ["emulate", path_file(PATH), "--scheme", name, "--duration", 3, "-o", output],
        ["shell", path_file(PATH), "--scheme", name, "--", "touch", output],
    ):
        done = run(*command)
        assert done.returncode == 2
        assert "1 to 15 characters" in done.stderr
        assert repr(name)[1:-1] in done.stderr
        assert not output.exists()


def test_a_scheme_that_the_kernel_lacks_comes_by_bpf_for_the_run(
    emulator, needs_scheme, path_file, tmp_path
):
    needs_scheme("vegas")
    if "vegas" in emulator.schemes:
        pytest.skip("this kernel has vegas by itself")
    output = tmp_path / "trace.parquet"
    done = run(
        "emulate", path_file(PATH), "--scheme", "vegas", "--duration", 2, "--json", "-o", output
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["flows"][0]["scheme"] == "vegas"
    trace = pathcast.read_trace(output)
    assert trace.scheme() == "vegas"
    asked, _, name = trace.metadata["environment"]["schemes_by_bpf"].partition(" as ")
    assert (asked, name[:6], len(name)) == ("vegas", "vegas_", 12)
    assert name not in pathcast.capabilities().schemes

    script = "test $(cat /proc/sys/net/ipv4/tcp_congestion_control) = $PATHCAST_SCHEME"
    done = run("shell", path_file(PATH), "--scheme", "vegas", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr


def network_namespaces():
    """Every network namespace that some process is in or holds open."""
    found = set()
    for process in os.listdir("/proc"):
        if process.isdigit():
            try:
                found.add(os.readlink(f"/proc/{process}/ns/net"))
            except OSError:
                continue
    return found


def test_ctrl_c_ends_an_emulation_and_leaves_nothing(emulator, path_file, tmp_path):
    before = network_namespaces()
    output = tmp_path / "out" / "trace.parquet"
    output.parent.mkdir()
    process = subprocess.Popen(
        [str(PATHCAST), "emulate", str(path_file(PATH)), "--duration", "60", "-o", str(output)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(
        lambda: network_namespaces_of(process.pid) - before, "a run in namespaces of its own"
    )
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130, stderr
    assert "interrupted" in stderr
    assert network_namespaces() <= before
    assert list(output.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--duration", "0"], "duration"),
        (["--duration", "nan"], "duration"),
        (["--scheme", "nosuch"], "nosuch"),
        (["--flows", "0"], "flows"),
        (["--seed", "-1"], "seed"),
        (["-o", "no/such/folder/t.parquet"], "no folder"),
        (["--wrong"], "--wrong"),
    ],
)
def test_wrong_options_are_refused(path_file, options, said):
    done = run("simulate", path_file(PATH), *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rate = 12\ndelay = '1 ms'\n", "path.toml:1:8: rate: "),
        ("delay = '1 ms'\nrate = '-3 Mbit/s'\n", 'path.toml:2:8: rate: got "-3 Mbit/s"'),
        ("delay = '1 lightyear'\n", "units: ns, us, ms, s"),
        ("delay = '1 ms'\nspeed = 3\n", "path.toml:2:1: unknown field `speed`"),
        ("delay = '1 ms'\nloss = -0.1\n", "path.toml:2:8: loss: "),
        ("delay = '1 ms'\ndelay = '2 ms'\n", "path.toml:2:1"),
        ("rate = '1 Mbit/s'\n", "missing field `delay`"),
        ("[[[", "path.toml:1:"),
        ("", "missing field `delay`"),
    ],
)
def test_a_wrong_path_file_is_refused_with_its_place(path_file, text, said):
    done = run("simulate", path_file(text))
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_a_path_file_that_is_not_there_or_no_text_is_refused(tmp_path):
    assert "No such file" in run("simulate", tmp_path / "none.toml").stderr
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    done = run("simulate", binary)
    assert done.returncode == 2
    assert "not UTF-8" in done.stderr
    assert run("simulate", tmp_path).returncode == 2


def test_a_full_disk_leaves_nothing_behind(path_file, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    try:
        done = run("simulate", path_file(PATH), "--duration", 60, "-o", disk / "t.parquet")
        assert done.returncode == 2
        assert "No space left" in done.stderr
        assert str(disk / "t.parquet") in done.stderr.replace("\n", "")
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.usefixtures("emulator")
def test_an_emulated_run_tells_where_messages_spent_their_time(path_file, tmp_path):
    path = path_file("rate = '10 Mbit/s'\ndelay = '10 ms'\nqueue = '1 BDP'\n")
    file = tmp_path / "messages.parquet"
    workload = "{ kind = 'constant-rate', rate = '1 Mbit/s', portion = '1250 B', count = 50 }"
    done = run(
        "emulate", path, "--workload", workload, "--duration", 5, "--messages", file, "--json"
    )
    assert done.returncode == 0, done.stderr
    messages = json.loads(done.stdout)["flows"][0]["messages"]
    split = messages["delay_split_ms"]
    parts = [split[part]["mean"] for part in ("sender_stack", "network", "receiver_stack")]
    assert sum(parts) == pytest.approx(messages["latency_ms"]["mean"], rel=1e-6)
    assert split["network"]["p50"] > 11  # 10 ms and a packet of 1302 bytes
    table = pyarrow.parquet.read_table(file)
    assert table.num_rows == messages["delivered"] == 50
    assert set(table["bytes"].to_pylist()) == {1250}
    # the same as text
    done = run("emulate", path, "--workload", workload, "--duration", 5)
    assert "in the sender's stack" in done.stdout
    # bulk flows have no messages, and then there is nothing to split
    done = run("simulate", path, "--workload", workload, "--duration", 5, "--json")
    assert "delay_split_ms" not in json.loads(done.stdout)["flows"][0]["messages"]
