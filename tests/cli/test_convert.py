"""`pathcast convert`, and the commands that take other tools' files as they are."""

import bz2
import gzip
import json
import lzma

import pyarrow.parquet
import pytest

import pathcast
from conftest import run
from pathcast.trace import TraceWarning


def probe_lines(rows=4000):
    """tcp_probe's old format: a window that grows and is halved, a packet each 2 ms."""
    cwnd, una, lines = 10.0, 1000, []
    for row in range(rows):
        time_s = row * 0.002
        cwnd = cwnd / 2 if cwnd > 40 else cwnd + 1 / cwnd
        una += 1448
        lines.append(
            f"{time_s:.9f} 10.0.0.1:5001 10.0.0.2:6001 32 {una + int(cwnd) * 1448:#x} {una:#x} "
            f"{int(cwnd)} 2147483647 65792 {int(cwnd) * 2000} 229376\n"
        )
    return "".join(lines)


@pytest.fixture
def probe_file(tmp_path):
    file = tmp_path / "no-name-that-tells"
    file.write_bytes(gzip.compress(probe_lines().encode()))
    return file


def test_a_file_of_another_tool_is_converted(probe_file, tmp_path):
    output = tmp_path / "trace.parquet"
    done = run("convert", probe_file, "-o", output, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["format"] == "tcp_probe text"
    assert result["rows"] == 4000
    trace = pathcast.read_trace(output)
    assert trace.metadata["source"] == "tcp_probe"
    assert trace.columns["srtt_s"][0] == 0.02

    windows = tmp_path / "windows.csv"
    assert run("convert", output, "-o", windows).returncode == 0
    again = pathcast.read_trace(windows)
    assert (again.columns["cwnd_packets"] == trace.columns["cwnd_packets"]).all()


def test_fit_and_evaluate_take_it_as_it_is(probe_file):
    for command in ("fit", "evaluate"):
        done = run(command, probe_file, "--json")
        assert done.returncode == 0, (command, done.stderr)
        json.loads(done.stdout)


def test_damage_is_an_error_or_a_warning(tmp_path):
    file, output = tmp_path / "probe.txt", tmp_path / "trace.parquet"
    file.write_text(probe_lines(100) + "0.2 10.0.0.1:5001")
    done = run("convert", file, "-o", output)
    assert done.returncode == 2
    assert "probe.txt:101: got 2 fields" in done.stderr
    assert not output.exists()
    done = run("convert", file, "-o", output, "--keep-prefix")
    assert done.returncode == 0, done.stderr
    assert "the 100 rows before it are kept" in done.stderr
    assert "probe.txt:101" in pathcast.read_trace(output).metadata["environment"]["damage"]
    with pytest.warns(TraceWarning, match="probe.txt:101"):
        assert len(pathcast.read_trace(file, keep_prefix=True)) == 100


def test_packets_go_through_the_formats_that_have_them(tmp_path, path_file):
    log = tmp_path / "link.log"
    lines = [f"{ms} + 1504\n{ms + 20} - 1504 20\n" for ms in range(0, 2000, 40)]
    log.write_text("# base timestamp: 0\n" + "".join(lines))
    done = run("convert", log, "-o", tmp_path / "trace.parquet")
    assert done.returncode == 2
    assert "read it as packets" in done.stderr
    again, link = tmp_path / "again.log", tmp_path / "link.trace"
    for output in (tmp_path / "packets.parquet", again, link):
        done = run("convert", log, "--packets", output)
        assert done.returncode == 0, done.stderr
        assert f"100 rows of log of mm-link written to {output}" in done.stdout.replace("\n", "")
    assert again.read_text() == log.read_text()
    assert link.read_text().split() == [str(ms + 1) for ms in range(0, 2000, 40)]
    path_file(
        "rate = { kind = 'mahimahi', file = 'link.trace' }\ndelay = '10 ms'\nqueue = '9 packets'\n"
    )
    assert pathcast.Path.load(tmp_path / "path.toml").queue_packets == 9


def test_the_logs_of_both_ends_of_a_tunnel_are_put_together(tmp_path):
    # a packet a millisecond, 20 ms on the way, each tenth lost; one clock is 7 s ahead of the other's log
    ingress = ["# mm-tunnelclient ingress: 7000.000\n"]
    egress = ["# mm-tunnelserver egress: 0.000\n"]
    for number in range(1000):
        ingress.append(f"{number:.3f} - {number} - 1500\n")
        if number % 10:
            egress.append(f"{7000 + number + 20:.3f} - {number} - 1500\n")
    one, other = tmp_path / "datalink.ingress", tmp_path / "datalink.egress"
    one.write_text("".join(ingress))
    other.write_text("".join(egress))
    done = run("convert", one, "-o", tmp_path / "t.parquet")
    assert done.returncode == 2
    assert "--egress" in done.stderr
    packets = tmp_path / "packets.parquet"
    trace = tmp_path / "t.parquet"
    done = run("convert", one, "--egress", other, "-o", trace, "--packets", packets)
    assert done.returncode == 0, done.stderr
    table = pyarrow.parquet.read_table(packets)
    delays = table["one_way_delay_s"].drop_null().to_numpy()
    assert len(delays) == 900
    assert abs(delays - 0.02).max() < 1e-6
    assert len(pathcast.read_trace(trace)) > 100
    done = run("convert", one, "--egress", tmp_path / "none", "--packets", packets)
    assert done.returncode == 2
    assert "none" in done.stderr


def test_pantheons_summary_becomes_a_table(tmp_path):
    file, output = tmp_path / "perf.json", tmp_path / "perf.parquet"
    file.write_text('{"bbr": {"1": {"all": {"tput": 10.5, "delay": 52.25, "loss": 0.01}}}}')
    done = run("convert", file, "-o", output)
    assert done.returncode == 0, done.stderr
    assert output.read_bytes()[:4] == b"PAR1"


def test_the_form_of_the_output_follows_its_name(tmp_path, probe_file):
    file, output = tmp_path / "perf.json", tmp_path / "perf.csv"
    file.write_text('{"bbr": {"1": {"all": {"tput": 10.5, "delay": 52.25, "loss": null}}}}')
    done = run("convert", file, "-o", output)
    assert done.returncode == 0, done.stderr
    assert output.read_text().splitlines() == [
        "scheme,run,flow,throughput_bps,one_way_delay_p95_s,loss_rate",
        "bbr,1,all,10500000,0.05225,",
    ]
    for option, name in (("-o", "x.xlsx"), ("-o", "x.json"), ("--packets", "x.csv")):
        done = run("convert", probe_file, option, tmp_path / name)
        assert done.returncode == 2
        assert "expected one of .parquet" in " ".join(done.stderr.split())
        assert not (tmp_path / name).exists()


@pytest.fixture
def several_flows(tmp_path):
    """Two flows by turns, the second with half as many rows and bytes."""
    file = tmp_path / "flows.txt"
    lines = []
    for number, line in enumerate(probe_lines().splitlines()):
        lines.append(line)
        if number % 2 == 0:
            lines.append(line.replace("10.0.0.2:6001", "10.0.0.3:7001"))
    file.write_text("\n".join(lines) + "\n")
    return file


def test_packed_files_are_known_by_their_content(tmp_path):
    text = probe_lines(rows=50).encode()
    for pack in (gzip, bz2, lzma):
        file = tmp_path / pack.__name__
        file.write_bytes(pack.compress(text))
        assert len(pathcast.read_trace(file)) == 50, pack


def test_convert_lists_the_flows_of_a_file(several_flows, tmp_path):
    output = tmp_path / "t.parquet"
    done = run("convert", several_flows, "-o", output, "--json")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["flows"]
    assert (first["flow"], second["flow"]) == (0, 1)
    assert first["name"] == "10.0.0.1:5001 -> 10.0.0.2:6001"
    assert first["bytes"] == 3999 * 1448
    assert abs(first["duration_s"] - 7.998) < 1e-6
    said = run("convert", several_flows, "-o", output).stdout
    assert "2 flows" in said
    assert "10.0.0.1:5001 -> 10.0.0.3:7001" in said
    # of what was converted, too
    again = json.loads(run("convert", output, "-o", tmp_path / "u.parquet", "--json").stdout)
    assert again["flows"] == [first, second]


def test_a_flow_is_chosen_by_its_number_or_an_end(several_flows, tmp_path):
    for wanted in ("1", "10.0.0.3:7001", "10.0.0.1:5001 -> 10.0.0.3:7001"):
        output = tmp_path / "t.csv"
        done = run("convert", several_flows, "-o", output, "--flow", wanted)
        assert done.returncode == 0, done.stderr
        assert len(output.read_text().splitlines()) == 2001
        for command in ("fit", "evaluate", "follow"):
            done = run(command, several_flows, "--flow", wanted, "--json")
            assert done.returncode == 0, (command, done.stderr)
    fitted = json.loads(run("fit", several_flows, "--flow", "10.0.0.3:7001", "--json").stdout)
    assert [flow["flow"] for flow in fitted["flows"]] == [1]
    both = run("fit", several_flows, "--flow", "1", "--flow", "0", "--json")
    assert [flow["flow"] for flow in json.loads(both.stdout)["flows"]] == [1, 0]
    for wanted, said in (
        ("10.0.0.1:5001", "fits several flows"),
        ("10.0.0.9:1", "none of its flows"),
        ("7", "no flow 7"),
    ):
        for command in (["fit"], ["convert", "-o", tmp_path / "n.csv"]):
            done = run(*command, several_flows, "--flow", wanted)
            assert done.returncode == 2
            assert said in " ".join(done.stderr.split())


def test_what_is_no_trace_is_told_with_the_formats_that_are_known(tmp_path):
    file = tmp_path / "x"
    file.write_text("hello, there")
    done = run("convert", file, "-o", tmp_path / "y")
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    for format in ("iperf3 -J", "tcp_probe", "ss -tin", "pcap", "qlog", "mm-link", "Pantheon"):
        assert format in said
    done = run("convert", file)
    assert done.returncode == 2
    assert "nothing to write" in done.stderr
