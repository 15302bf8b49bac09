"""`pathcast benchmark pantheon`: the findings, judged by what was measured, and the timer."""

import json
import shutil
import subprocess

import pytest

from conftest import run
from pathcast.experiments.engine.world import World
from pathcast.experiments.schemes import pantheon, summary, timer


def block(path, *, workload=pantheon.SINGLE, direction="forward", **schemes):
    """A block of schemes, each with the values of its runs: throughput in Mbit/s and delay in ms."""
    rows = []
    for scheme, (rate, delay_ms) in schemes.items():
        values = {
            "throughput_bps": tuple(1e6 * rate * (1 + 1e-3 * at) for at in range(3)),
            "delay_p95_ms": tuple(delay_ms * (1 + 1e-3 * at) for at in range(3)),
            "power": tuple(rate / delay_ms * (1 + 1e-3 * at) for at in range(3)),
        }
        metrics = {metric: summary.Estimate.of(of) for metric, of in values.items()}
        rows.append(summary.Row(scheme, metrics, values, 3))
    rows = tuple(rows)
    return summary.Block(path, workload, "single", direction, rows, summary.differences(rows))


def judged(claims, start):
    (found,) = [one for one in claims if one["claim"].startswith(start)]
    return found


def test_findings_hold_where_winners_differ_and_fail_where_they_do_not():
    china, colombia = pantheon.CHINA, pantheon.COLOMBIA
    one = [block(china, a=(10, 10), b=(5, 10)), block(colombia, a=(5, 10), b=(10, 10))]
    same = [block(china, a=(10, 10), b=(5, 10)), block(colombia, a=(10, 10), b=(5, 10))]
    three = [block(china, workload=pantheon.THREE, a=(5, 10), b=(10, 10))]
    back = [block(china, direction="reverse", a=(10, 10), b=(5, 10))]
    varied = pantheon.claims([*one, *three], back, [], [], [])
    assert judged(varied, "no scheme wins everywhere, by throughput")["holds"] is True
    assert judged(varied, "the number of flows")["holds"] is True
    assert judged(varied, "the direction")["holds"] is False
    alike = pantheon.claims(same, back, [], [], [])
    assert judged(alike, "no scheme wins everywhere, by power")["holds"] is False
    assert judged(alike, "the number of flows")["holds"] is None
    assert judged(alike, "a path calibrated")["holds"] is None
    assert judged(alike, "the tunnel")["holds"] is None


def test_two_measurements_of_the_same_differ_only_if_they_do():
    truth = [block(pantheon.CHINA, a=(10, 10))]
    for rate, holds in ((10.001, True), (7.7, False)):
        later = [block(f"{pantheon.CHINA}, later", a=(rate, 10))]
        found = judged(pantheon.claims(truth, [], later, [], []), "what a real path does")
        assert found["holds"] is holds


def test_the_replication_error_is_the_mean_difference_of_rates_and_delays():
    truth = block("p", a=(10, 10), b=(20, 40))
    other = block("p", a=(11, 10), b=(20, 20))
    assert pantheon.replication_error(truth, other) == pytest.approx((10 + 0 + 0 + 50) / 4)
    assert pantheon.replication_error(truth, block("p", c=(1, 1))) is None


def test_the_ablation_holds_only_if_each_parameter_makes_the_error_smaller():
    truth = [block(pantheon.CHINA, a=(10, 10))]
    names = [f"China, {name}" for name, _, _ in pantheon.CHINA_STEPS]
    for rates, holds in (((20, 15, 12, 10), True), ((20, 25, 12, 10), False)):
        steps = [block(name, a=(rate, 10)) for name, rate in zip(names, rates, strict=True)]
        found = pantheon.claims(truth, [], [], steps, [])
        assert judged(found, "each parameter makes the replication of the China")["holds"] is holds


def test_the_steps_of_the_ablation_end_at_the_path_itself():
    steps = pantheon.china()
    assert len(steps) == 4
    first, *_, last = steps.values()
    assert "94 packets" not in first.toml
    assert "77.72 Mbit/s" in first.toml
    whole = pantheon.parts(World.SIMULATOR, 2, 3.0, 1).main.paths[pantheon.CHINA]
    assert last.toml.partition("\nrate")[2] == whole.toml.partition("\nrate")[2]
    assert len(pantheon.parts(World.SIMULATOR, 2, 3.0, 1).main.paths) == 18


def test_what_would_run_is_said_and_nothing_runs(tmp_path):
    done = run("benchmark", "pantheon", "--dry-run", "--runs", "2", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "804 runs, 0 kept, 804 to run: about" in done.stderr
    assert not list(tmp_path.rglob("cell.json"))


@pytest.mark.full
def test_all_findings_are_run(tmp_path):
    options = ("--runs", "2", "--duration", "3", "--no-calibrate", "--json")
    done = run("benchmark", "pantheon", *options, "-o", tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["runs"] == 804
    assert judged(found["claims"], "no scheme wins everywhere, by throughput")["holds"] is True
    assert judged(found["claims"], "what a real path does")["holds"] is True
    assert (tmp_path / "tables/ablation.md").exists()


def test_the_timer_is_one_that_systemd_takes(tmp_path):
    out = tmp_path / "a b%c"
    done = run("benchmark", "pantheon", "--print-timer", "weekly", "-o", out)
    assert done.returncode == 0, done.stderr
    service, _, rest = done.stdout.partition("# pathcast-pantheon.timer\n")
    unit, _, cron = rest.partition("# or a line for cron\n")
    assert not out.exists()
    assert cron.startswith("0 3 * * 0 ")
    assert "a b\\%c" in cron
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze: the units were not verified")
    (tmp_path / "pathcast-pantheon.service").write_text(service)
    (tmp_path / "pathcast-pantheon.timer").write_text(unit)
    for name in ("pathcast-pantheon.service", "pathcast-pantheon.timer"):
        checked = subprocess.run(
            ["systemd-analyze", "verify", tmp_path / name],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "pathcast-pantheon" not in checked.stderr, checked.stderr


def test_the_line_of_the_timer_runs_in_a_shell(tmp_path):
    text = timer.units("n", ["echo", "it's"], str(tmp_path / "a b%"), "daily")
    (line,) = [one for one in text.splitlines() if one.startswith("ExecStart=")]
    shell = line.removeprefix('ExecStart=/bin/sh -c "').removesuffix('"')
    # what systemd makes of it
    shell = shell.replace("%%", "%").replace("$$", "$").replace('\\"', '"').replace("\\\\", "\\")
    done = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, timeout=10)
    assert done.stdout.startswith(f"it's -o {tmp_path}/a b%/20")
