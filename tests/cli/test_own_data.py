"""Traces of other tools that we recorded: what is read agrees with what is known from elsewhere.

`tests/data/README.md` says how each was made. These run on every machine; the same of other people's files is in
`tests/real_files` and needs PATHCAST_DATA.
"""

import json
import struct

import numpy as np
import pytest

import pathcast
from conftest import ROOT, run

DATA = ROOT / "tests" / "data"
ANSWERS = json.loads((DATA / "answers.json").read_text())
FLOW = ANSWERS["flow"]
#: How the same flow was seen: source of the trace, and whether it counts retransmissions.
SEEN = {
    "flow.pcap": ("pcap", True),
    "tcp_probe.txt.gz": ("tcp_probe", False),
    "ss.txt": ("ss", True),
}


def test_the_set_is_small_and_described():
    readme = (DATA / "README.md").read_text()
    files = [file for file in DATA.iterdir() if file.is_file()]
    for file in files:
        assert file.stat().st_size < 100_000, file
        assert (
            file.suffix in (".md", ".pyc") or f"`{file.name}`" in readme or file.name == "make.py"
        )
    assert sum(file.stat().st_size for file in files) < 500_000


@pytest.mark.parametrize("file", SEEN)
def test_a_flow_is_read_as_its_socket_counted_it(file, tmp_path):
    output = tmp_path / "trace.parquet"
    done = run("convert", DATA / file, "-o", output, "--json")
    assert done.returncode == 0, done.stderr
    kind, counts_retransmits = SEEN[file]
    trace = pathcast.read_trace(output)
    assert trace.metadata["source"] == kind
    assert trace.metadata["mss_bytes"] in (None, FLOW["mss_bytes"])
    columns = trace.columns
    # the kernel counts the SYN too, and tcp_probe sees the last acknowledgment before it counts
    acked = columns["snd_una_bytes"][-1]
    assert acked == pytest.approx(FLOW["bytes"], rel=0.01)
    if counts_retransmits:
        assert columns["retransmits"][-1] == FLOW["retransmits"]
    # 40 ms, and up to a queue of 13 packets
    assert 0.04 <= np.nanmin(columns["srtt_s"]) < np.nanmax(columns["srtt_s"]) < 0.09
    assert columns["srtt_s"][-1] == pytest.approx(FLOW["srtt_s"], rel=0.05)


def test_windows_of_the_capture_are_those_of_tcp_probe():
    inferred, known = (
        pathcast.read_trace(DATA / file).columns for file in ("flow.pcap", "tcp_probe.txt.gz")
    )
    names = ("snd_una_bytes", "snd_nxt_bytes", "cwnd_packets")
    at = {row[:2]: row[2] for row in zip(*(known[name] for name in names), strict=True)}
    rows = list(zip(*(inferred[name] for name in names), strict=True))
    errors = [row[2] / at[row[:2]] - 1 for row in rows if row[:2] in at]
    assert len(errors) > 100
    assert np.median(np.abs(errors)) < 0.01


def test_the_captures_packets_are_all_there(tmp_path):
    """Against a reader of the test's own: records of the pcap file, IP lengths, TCP's data offset."""
    content = (DATA / "flow.pcap").read_bytes()
    payloads, at = [], 24
    while at < len(content):
        _, _, kept, _ = struct.unpack_from("<IIII", content, at)
        packet = content[at + 16 : at + 16 + kept]
        header = 4 * (packet[0] & 15)
        (destination,) = struct.unpack_from(">H", packet, header + 2)
        data = struct.unpack_from(">H", packet, 2)[0] - header - 4 * (packet[header + 12] >> 4)
        if destination == 4711 and data:
            payloads.append(data)
        at += 16 + kept
    packets = tmp_path / "packets.parquet"
    done = run("convert", DATA / "flow.pcap", "--packets", packets, "--json")
    assert json.loads(done.stdout)["packets"] == len(payloads)
    again = sum(payloads) - FLOW["bytes"]
    assert again == pytest.approx(FLOW["retransmits"] * FLOW["mss_bytes"], rel=0.05)


def test_iperf3_gives_the_goodput_of_the_receiver(tmp_path):
    done = run("convert", DATA / "iperf3.json", "-o", tmp_path / "t.parquet", "--json")
    assert done.returncode == 0, done.stderr
    converted = json.loads(done.stdout)
    known = ANSWERS["iperf3.json"]
    assert converted["goodput_bps"]["0"] == pytest.approx(known["received_bps"], rel=0.01)
    trace = pathcast.read_trace(tmp_path / "t.parquet")
    assert trace.columns["snd_nxt_bytes"][-1] == pytest.approx(known["bytes"], rel=0.01)


def test_a_delivery_trace_of_ours_has_its_mean_rate(path_file):
    known = ANSWERS["triangle.trace"]
    file = DATA / "triangle.trace"
    path = path_file(
        f"rate = {{ kind = 'mahimahi', file = '{file}' }}\ndelay = '1 ms'\nqueue = 'unlimited'\n"
    )
    assert pathcast.Path.load(path).rate_bps == pytest.approx(known["rate_bps"], rel=1e-3)
    assert known["packets"] == len(file.read_text().split())


def test_windows_alone_are_fitted_and_forecast():
    file, known = DATA / "reno.cwnd.csv.gz", ANSWERS["reno.cwnd.csv.gz"]
    fitted = json.loads(run("fit", file, "--json").stdout)
    assert fitted["flows"][0]["cc"] == "reno"
    # 40 ms, and what waits in a queue of 13 packets at 3 ms each
    assert known["rtt_s"] < fitted["flows"][0]["rtt_s"] < known["rtt_s"] + 0.045
    done = run("evaluate", file, "--horizon", 1, "--horizon", 5, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["truth"] == "mean_cwnd_packets"
    for score in result["horizons"]:
        assert score["windows"] > 20
        assert score["median_error_pct"]["pathcast"] < 10
