"""Our controllers over UDP on an emulated path, and the same in the simulator: goodput, delay at the start and later.

How a start's queue drains depends on the noise of a machine: a stall of a millisecond can make Copa overshoot twice. The
start takes about a twentieth of a run, so a 95th percentile over all of it falls on this edge. The start is therefore
judged by its largest delay, and the percentile is of what comes after it.
"""

import json
import os
import subprocess
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import pathcast
from conftest import ROOT, ended_well, run, until_valid

PATH = "rate = '50 Mbit/s'\ndelay = '10 ms'\nqueue = '2 BDP'\n"
DURATION_S = 8.0
#: By then each of the controllers has left its start.
STARTED_S = 2.0
#: Relative difference allowed in goodput.
RATE_TOLERANCE = 0.05
#: Of the start's largest and of later 95th percentiles of one-way delays: relative, and in milliseconds beside that.
DELAY_TOLERANCE, DELAY_BESIDE_MS = 0.10, 2.0
#: A data packet is larger; acknowledgments and handshakes are smaller.
DATA_BYTES = 200


def program():
    """`pathcast-udp`: PATHCAST_UDP, or the newest that Cargo has built."""
    if given := os.environ.get("PATHCAST_UDP"):
        return given
    built = [ROOT / "target" / kind / "pathcast-udp" for kind in ("debug", "release")]
    built = [one for one in built if one.exists()]
    if not built:
        pytest.skip("needs the program pathcast-udp: cargo build --release -p pathcast-udp")
    return str(max(built, key=lambda one: one.stat().st_mtime))


def measured(packets: Path):
    """The rate of data at the far end in bit/s, its delay (largest of the start, 95th percentile later) in ms, the share
    that was dropped."""
    table = pq.read_table(packets)
    data = table.filter((pc.field("direction") == 0) & (pc.field("size_bytes") > DATA_BYTES))
    begin_s = pc.min(data["time_s"]).as_py()
    arrived = data.filter((pc.field("event") == 1) & (pc.field("time_s") < begin_s + DURATION_S))
    at_start = pc.field("time_s") < begin_s + STARTED_S
    start_s = arrived.filter(at_start)["one_way_delay_s"]
    later_s = arrived.filter(~at_start)["one_way_delay_s"]
    sent = data.filter(pc.field("event") == 0)
    dropped = data.filter(pc.field("event") == 2)
    return (
        pc.sum(arrived["size_bytes"]).as_py() * 8 / DURATION_S,
        (1e3 * pc.max(start_s).as_py(), 1e3 * pc.quantile(later_s, 0.95)[0].as_py()),
        dropped.num_rows / sent.num_rows,
    )


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("scheme", ["copa", "ledbat", "fixed:200"])
def test_goodput_and_delay_are_the_same_in_both(scheme, tmp_path):
    udp = program()
    path = tmp_path / "path.toml"
    path.write_text(PATH)
    # at normal priority, on a busy machine, both ends wake milliseconds late, which a controller that steers by delay
    # takes for a queue
    udp = f"chrt --fifo 1 {udp}"
    inside = f"exec timeout -s TERM {DURATION_S} {udp} send $PATHCAST_BASE:9000 --scheme {scheme}"

    def attempt():
        packets, report = tmp_path / "real.parquet", tmp_path / "report.json"
        done = run(
            *("shell", path, "--packets", packets, "--report", report),
            *("--outside", f"{udp} receive 0.0.0.0:9000", "--", "sh", "-c", inside),
        )
        ended_well(done, (0, 124))
        why = [line for line in done.stderr.splitlines() if "cannot be trusted" in line]
        return (None if why else measured(packets)), "; ".join(why)

    simulated = tmp_path / "simulated.parquet"
    pathcast.simulate(
        pathcast.Path.parse(PATH), [scheme], duration_s=DURATION_S, packets_file=simulated
    )
    rate, delays_ms, dropped = measured(simulated)
    real_rate, real_delays_ms, real_dropped = until_valid(attempt)
    print(
        f"{scheme}: {real_rate / 1e6:.2f} Mbit/s, {real_delays_ms} ms, {real_dropped:.4f} dropped; "
        f"simulated {rate / 1e6:.2f} Mbit/s, {delays_ms} ms, {dropped:.4f} dropped"
    )
    assert real_rate == pytest.approx(rate, rel=RATE_TOLERANCE)
    for real_ms, ms in zip(real_delays_ms, delays_ms, strict=True):
        assert real_ms == pytest.approx(ms, abs=DELAY_TOLERANCE * ms + DELAY_BESIDE_MS)
    assert real_dropped == pytest.approx(dropped, rel=0.5, abs=0.002)


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace with another MTU needs root")
def test_datagrams_fit_into_the_interface():
    words = f"""
        ip link set lo mtu 1300 up
        {program()} receive 127.0.0.1:9000 > /dev/null & receiver=$!
        {program()} send 127.0.0.1:9000 --scheme reno --bytes 200000
        kill $receiver
        cat /proc/net/snmp"""
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    sent, *counts = done.stdout.splitlines()
    assert json.loads(sent)["acknowledged_bytes"] == 200_000
    names, numbers = (line.split() for line in counts if line.startswith("Ip:"))
    assert dict(zip(names, numbers, strict=True))["FragCreates"] == "0"
