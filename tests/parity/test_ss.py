"""What ss prints of a socket, in each of its forms, against the socket's own TCP_INFO."""

import shutil
import socket
import struct
import subprocess
import threading
import time

import pytest

import pathcast

#: The options that change what a line of a socket looks like.
OPTIONS = ("-tin", "-ti", "-tinO", "-tinem", "-tinemO", "-tanemoiO", "-tineHO", "-tianempo")
#: `struct tcp_info` of Linux: offsets of 32 and 64 bits.
RTT_US, CWND, TOTAL_RETRANS, BYTES_ACKED = 68, 80, 100, 120


@pytest.fixture
def quiet_sender():
    """A socket of loopback that has sent 3 MB, and waits until all of it is acknowledged."""
    server = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(server.getsockname())
    receiver, _ = server.accept()
    server.close()

    def sink():
        while receiver.recv(1 << 16):
            pass

    reading = threading.Thread(target=sink, daemon=True)
    reading.start()
    sender.sendall(bytes(3_000_000))
    end = time.monotonic() + 30
    while info(sender)["bytes_acked"] < 3_000_000:
        assert time.monotonic() < end, "loopback did not carry 3 MB in 30 s"
        time.sleep(0.01)
    yield sender
    sender.close()
    reading.join()
    receiver.close()


def info(sender):
    """What the kernel says of a socket."""
    raw = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
    if len(raw) < BYTES_ACKED + 8:
        pytest.skip("this kernel's TCP_INFO has no bytes_acked")
    rtt_us, cwnd, retransmits = (
        struct.unpack_from("=I", raw, at)[0] for at in (RTT_US, CWND, TOTAL_RETRANS)
    )
    return {
        "srtt_s": rtt_us / 1e6,
        "cwnd_packets": cwnd,
        "retransmits": retransmits,
        "bytes_acked": struct.unpack_from("=Q", raw, BYTES_ACKED)[0],
    }


@pytest.mark.filterwarnings("ignore::pathcast.trace.TraceWarning")
@pytest.mark.parametrize("option", OPTIONS)
def test_a_line_of_ss_is_the_sockets_tcp_info(quiet_sender, tmp_path, option):
    if shutil.which("ss") is None:
        pytest.skip("ss is not installed (iproute2)")
    address, port = quiet_sender.getsockname()
    printed = subprocess.run(["ss", option], capture_output=True, text=True, check=False)
    if printed.returncode != 0:
        pytest.skip(f"ss {option}: {printed.stderr.strip()}")
    file = tmp_path / "ss.txt"
    file.write_text(f"1700000000.5\n{printed.stdout}")
    known = info(quiet_sender)
    trace = pathcast.read_trace(file)
    names = trace.metadata["environment"]
    ours = [
        flow for flow in trace.flows if names[f"flow {flow}"].startswith(f"{address}:{port} -> ")
    ]
    assert len(ours) == 1
    row = int((trace.columns["flow"] == ours[0]).nonzero()[0][0])
    got = {name: trace.columns[name][row] for name in ("srtt_s", "cwnd_packets", "retransmits")}
    # ss prints three digits of milliseconds, or fewer
    assert got["srtt_s"] == pytest.approx(known.pop("srtt_s"), abs=2e-6)
    assert trace.columns["snd_una_bytes"][row] == known.pop("bytes_acked")
    assert got["cwnd_packets"] == known["cwnd_packets"]
    assert got["retransmits"] == known["retransmits"]
    assert (
        trace.scheme(ours[0])
        == quiet_sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        .rstrip(b"\0")
        .decode()
    )
