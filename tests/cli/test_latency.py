"""`pathcast predict transfer`, and what stands behind it."""

import json

import pytest

import pathcast
from conftest import run
from pathcast._latency import parse_size

RENO = "reno-wireless_reno-data_1_1_10000.cwnd.csv.gz"


@pytest.fixture(scope="module")
def sawtooth(tmp_path_factory):
    """A Reno-like trace: from 100 up to 200 packets, a packet each 0.1 s, again and again."""
    file = tmp_path_factory.mktemp("latency") / "sawtooth.csv"
    rows = (f"{i * 0.1:.1f},{100 + i % 101}" for i in range(4000))
    file.write_text("time_s,cwnd_packets\n" + "\n".join(rows) + "\n")
    return file


def forecast(*arguments):
    done = run("latency", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(*arguments):
    done = run("latency", *arguments)
    assert done.returncode == 2
    return done.stderr


def test_a_new_connection_takes_its_handshake_and_the_rounds_of_slow_start():
    result = forecast("--rtt", 0.1, "--size", "14480 B", "--size", "101360 B")
    ten, seventy = result["transfers"]
    assert result["quantile_levels"] == [0.05, 0.25, 0.5, 0.75, 0.95]
    assert ten["median_s"] == pytest.approx(0.2)
    assert seventy["median_s"] == pytest.approx(0.4)
    assert seventy["no_loss_probability"] == 1
    assert seventy["literature"]["cardwell_s"] == pytest.approx(0.3)
    tls = forecast("--rtt", 0.1, "--size", "14480 B", "--tls", "1.2", "--think", 0.05)
    assert tls["transfers"][0]["median_s"] == pytest.approx(0.45)
    opened = forecast("--rtt", 0.1, "--size", "14480 B", "--open", "--until", "arrived")
    assert opened["transfers"][0]["median_s"] == pytest.approx(0.05)


def test_the_table_has_a_row_for_each_default_size():
    done = run("latency", "--rtt", 0.05, "--rate", "50 Mbit/s", "--loss", 1e-3)
    assert done.returncode == 0, done.stderr
    for size in ("1 kB", "10 kB", "100 kB", "1 MB", "10 MB", "100 MB"):
        assert f"│ {size} " in done.stdout
    assert "50 ms round trip, 50 Mbit/s, loss 0.001; cubic" in done.stdout


def test_a_path_file_says_as_much_as_options(tmp_path):
    file = tmp_path / "path.toml"
    file.write_text('rate = "20 Mbit/s"\ndelay = "40 ms"\nloss = 0.001\nqueue = "50 packets"\n')
    by_file = forecast("--path", file, "--size", "1 MB", "--scheme", "reno")
    options = ("--rtt", 0.08, "--rate", "20 Mbit/s", "--loss", 0.001, "--buffer", "50 packets")
    by_options = forecast(*options, "--size", "1 MB", "--scheme", "reno")
    assert by_file["transfers"] == by_options["transfers"]


def test_connections_share_a_transfer():
    one, four = (
        forecast("--rtt", 0.1, "--size", "1 MB", "--connections", n)["transfers"][0]["mean_s"]
        for n in (1, 4)
    )
    assert four < one


def test_a_trace_gives_its_path_and_its_state(sawtooth):
    options = (sawtooth, "--rtt", 0.1, "--scheme", "reno", "--size", "14480 kB", "--at", 300.05)
    learned = forecast(*options, "--until", "sent")
    at = 100 + 3000 % 101
    assert learned["cwnd_packets"] == pytest.approx(at)
    # some 10,000 packets at 150 a round trip of 0.1 s
    assert learned["transfers"][0]["median_s"] == pytest.approx(6.7, rel=0.25)
    new = forecast(*options, "--new")
    # slow start is soon over, and no window is believed that the path was never seen to bear
    assert new["transfers"][0]["median_s"] == pytest.approx(7, rel=0.3)


def test_nothing_after_the_moment_is_looked_at(sawtooth, tmp_path):
    cut = tmp_path / "cut.csv"
    lines = sawtooth.read_text().splitlines()
    cut.write_text("\n".join(lines[:3002]) + "\n")  # up to 300.0 s
    options = ("--rtt", 0.1, "--scheme", "reno", "--size", "10 MB", "--at", 300)
    assert forecast(sawtooth, *options) == forecast(cut, *options)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "expected a trace, --path PATH.toml, or --rtt SECONDS"),
        (("--rtt", 0.1, "--size", "ten"), 'size is "ten", expected one greater than zero'),
        (("--rtt", 0.1, "--size", "0 kB"), 'size is "0 kB", expected one greater than zero'),
        (("--rtt", -1), "rtt is -1.0 s, expected more than 0"),
        (("--rtt", 0.1, "--loss", 1.5), "loss is 1.5, expected 0 to less than 1"),
        (("--rtt", 0.1, "--rate", "5"), '--rate: got "5", expected a rate'),
        (
            ("--rtt", 0.1, "--rate", "5 Mbit/s", "--buffer", "5"),
            '--buffer: got "5", expected a queue',
        ),
        (("--rtt", 0.1, "--size", "5"), 'size is "5": got no unit, expected B, kB, MB or GB'),
        (("--rtt", 0.1, "--size", "5 MiB"), "got the unit 'MiB', expected B, kB, MB or GB"),
        (("--rtt", 0.1, "--size", "0 MB"), "expected one greater than zero"),
        (("--rtt", "50 furlongs"), "expected seconds such as 0.05"),
        (("--rtt", 0.1, "--rate", '5 Mbit/s"\nloss = 0.5 #'), "--rate: got"),
        (("--rtt", 0.1, "--open", "--tls", "1.3"), "got --open and --tls"),
        (("--rtt", 0.1, "--new"), "got --new without a trace"),
        (("--rtt", 0.1, "--path", "paths/demo.toml"), "got --path and --rtt"),
    ],
)
def test_what_is_wrong_is_said(arguments, said):
    assert said in refused(*arguments)


def test_what_is_wrong_with_a_trace_is_said(sawtooth):
    assert "at is 1000 s, expected a time within the trace" in refused(sawtooth, "--at", 1000)
    assert "a running flow is one connection" in refused(sawtooth, "--connections", 2)
    assert "got a trace and --rate" in refused(sawtooth, "--rate", "5 Mbit/s")


def test_times_have_units_too():
    asked = ("--rate", "5 Mbit/s", "--json")
    plain = run("predict", "transfer", "--rtt", "0.05", "--think", "0.1", *asked)
    named = run("predict", "transfer", "--rtt", "50 ms", "--think", "100ms", *asked)
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout == named.stdout
    # of several values, and with a least one
    assert run("predict", "throughput", "--horizon", "x", "t").stderr.count("such as 0.05") == 1
    assert (
        run("what-if", "x.toml", "--duration", "1 ms").stderr.count("0.001 is not in the range")
        == 1
    )


def test_sizes_are_read():
    assert parse_size("1KB") == parse_size("1 kB") == 1000
    assert parse_size("2.5 MB") == 2_500_000
    with pytest.raises(pathcast.ModelError, match="size is"):
        parse_size("1 KiB")


def test_the_simulator_agrees_without_losses():
    path = pathcast.Path.parse("rate = '50 Mbit/s'\ndelay = '40 ms'\n")
    for size in (10_000, 100_000, 1_000_000, 10_000_000):
        workload = f"{{ kind = 'transfer', size = '{size} B' }}"
        scenario = pathcast.Scenario.over(path, ["cubic"], workload)
        report, _ = pathcast.simulate(scenario, duration_s=30, record=False)
        took_s = report.flows[0].messages.latency_ms["p50"] / 1e3
        (time,) = pathcast.latency(path, [size], handshake_round_trips=0, until="arrived")
        assert time.median_s == pytest.approx(took_s, rel=0.03), size


def test_the_simulator_s_spread_is_that_of_the_band():
    path = pathcast.Path.parse("rate = '50 Mbit/s'\ndelay = '40 ms'\nloss = 0.002\n")
    workload = "{ kind = 'transfer', size = '1 MB' }"
    scenario = pathcast.Scenario.over(path, ["cubic"], workload)
    runs = pathcast.simulate_many(
        [pathcast.Simulation(scenario, duration_s=120, seed=seed) for seed in range(200)]
    )
    took_s = sorted(ms / 1e3 for ms in runs.column("latency_p50_ms"))
    (time,) = pathcast.latency(path, [1_000_000], handshake_round_trips=0, until="arrived")
    low, high = 0.98 * time.quantiles_s[0], 1.02 * time.quantiles_s[-1]
    assert 0.85 <= sum(low <= s <= high for s in took_s) / 200 <= 0.98
    assert time.mean_s == pytest.approx(sum(took_s) / 200, rel=0.1)


def test_latency_is_evaluated_on_a_real_trace(econ_traces):
    result = pathcast.evaluate_latency(
        pathcast.read_trace(econ_traces / RENO), [5_000_000, 20_000_000], cc="reno"
    )
    by_model = {score.model: score for score in result.ranges[-9:]}
    assert by_model["pathcast"].transfers > 600
    assert by_model["pathcast"].median_error_pct < 2
    assert by_model["econ"].median_error_pct > 5 * by_model["pathcast"].median_error_pct
    assert by_model["last_sample"].coverage90 is None
    assert json.dumps(result.to_dict())
