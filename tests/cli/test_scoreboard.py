"""`pathcast evaluate scoreboard`: cells, verdicts and what is left out."""

import gzip
import json
import math
import shutil

import numpy as np
import pytest

from conftest import run
from pathcast import PathcastError
from pathcast.experiments.suite.scoreboard import cells, judge
from pathcast.models import NO_OPPONENTS


def test_a_group_is_run_judged_and_kept(tmp_path):
    out = tmp_path / "board"
    done = run("evaluate", "scoreboard", "--group", "receive-window", "-o", out, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((out / "results.json").read_text())
    assert (found["held_out"], found["lacking"], found["left_out"]) == (False, [], [])
    assert {(row["cell"], row["horizon_s"]) for row in found["rows"]} == {
        (f"{path}-{scheme}", horizon_s)
        for path in ("64kB", "256kB-lossy")
        for scheme in ("cubic", "bbr")
        for horizon_s in (1, 5, 10, 30)
    }
    for row in found["rows"]:
        best = row["compared"]["best_by_hindsight"]
        errors = row["median_error_pct"]
        opponents = [m for m in errors if m not in NO_OPPONENTS]
        known = [errors[model] for model in opponents if errors[model] is not None]
        assert errors[best["opponent"]] == min(known)
        assert row["compared"]["best_overall"]["opponent"] == found["best_overall"]
        assert ("flat_curve" in row["compared"]) == row["cell"].endswith("cubic")
        assert row["windows"] >= 170
    (total,) = [one for one in found["summary"] if one["group"] is one["horizon_s"] is None]
    counts = total["verdicts"]["best_by_hindsight"]
    assert counts["better"] + counts["level"] + counts["worse"] == total["cells"] == 16
    # what was run is there: nothing changes, and nothing is written anew
    trace = next(out.rglob("trace.parquet"))
    before = trace.stat().st_mtime_ns
    again = run("evaluate", "scoreboard", "--group", "receive-window", "-o", out)
    assert again.returncode == 0, again.stderr
    assert trace.stat().st_mtime_ns == before
    assert "receive" in again.stdout
    # a cell that is not there is neither run nor judged
    (gone,) = out.rglob("receive-window-64kB-bbr-seed1")
    shutil.rmtree(gone)
    rest = run(
        *("evaluate", "scoreboard", "--group", "receive-window"),
        *("--no-run", "-o", out, "--json"),
    )
    assert rest.returncode == 0, rest.stderr
    found = json.loads(rest.stdout)
    assert [one["name"] for one in found["left_out"]] == ["receive-window 64kB-bbr"]
    assert {row["cell"] for row in found["rows"]} == {
        "64kB-cubic",
        "256kB-lossy-cubic",
        "256kB-lossy-bbr",
    }
    assert not gone.exists()


def test_held_out_cells_share_no_seed_and_no_file(tmp_path):
    chosen, held_out = (
        cells.scoreboard(held_out=held_out, data=tmp_path).cells for held_out in (False, True)
    )

    def files(found):
        rates = {case.rates for cell in found for case in cell.cases if hasattr(case, "rates")}
        return (rates | {cell.file for cell in found}) - {None}

    def seeds(found):
        return {case.seed for cell in found for case in cell.cases}

    assert files(chosen) and files(held_out)
    assert not files(chosen) & files(held_out)
    assert not seeds(chosen) & seeds(held_out)
    groups = [group["name"] for group in cells.definition()["groups"]]
    assert list(dict.fromkeys(cell.group for cell in chosen)) == groups
    suite = [cell for cell in chosen if cell.group == "suite"]
    assert len(suite) == 29
    long = [c for cell in chosen if cell.group != "one-minute" for c in cell.cases]
    assert min(case.duration_s for case in long) >= 300


def test_longer_flows_run_over_the_same_paths():
    usual, long = (cells.scoreboard(held_out=True, minutes=minutes) for minutes in (None, 30))
    assert (usual.minutes, long.minutes) == (None, 30)
    by_name = {(cell.group, cell.name): cell for cell in usual.cells}
    groups = ["suite", "rate-limited", "policed", "receive-window", "application"]
    assert list(dict.fromkeys(cell.group for cell in long.cells)) == groups
    for cell in long.cells:
        (case,), (short,) = cell.cases, by_name[cell.group, cell.name].cases
        assert (case.duration_s, short.duration_s) == (1800, 300)
        assert case.scenario().toml == short.scenario().toml
        assert case.seed == short.seed
        # neither takes the place of the other
        assert case.name != short.name
    assert len(long.cells) == 27 + 8 + 8 + 4 + 6
    with pytest.raises(PathcastError, match="expected one of suite, rate-limited, policed"):
        cells.scoreboard(groups=["one-minute"], minutes=30)


def test_without_data_its_groups_are_left_out_and_named(tmp_path, monkeypatch):
    monkeypatch.delenv("PATHCAST_DATA", raising=False)
    done = run("evaluate", "scoreboard", "--group", "econ", "-o", tmp_path / "board")
    assert done.returncode == 0, done.stderr
    assert "econ: left out, needs --data or PATHCAST_DATA" in " ".join(done.stderr.split())


def test_a_wrong_group_is_refused(tmp_path):
    done = run("evaluate", "scoreboard", "--group", "luck", "-o", tmp_path / "board")
    assert done.returncode == 2
    assert "group is 'luck', expected one of suite, econ" in " ".join(done.stderr.split())


def test_rates_come_from_opportunities_and_from_json(tmp_path):
    file = tmp_path / "rates.json"
    rows = [
        {"duration_ms": 1000, "bandwidth_kbps": 500.5, "latency_ms": 9},
        {"duration_ms": 500, "bandwidth_kbps": 0, "latency_ms": 9},
    ]
    file.write_text(json.dumps(rows))
    assert cells.rate_of(file) == {
        "kind": "steps",
        "steps": [["0 ms", "500.5 kbit/s"], ["1000 ms", "0 kbit/s"]],
        "period": "1500 ms",
    }
    packed = tmp_path / "trace.down.gz"
    packed.write_bytes(gzip.compress(b"0\n3\n3\n10\n"))
    assert cells.rate_of(packed)["opportunities_ms"] == [0, 3, 3, 10]
    for name, content in {
        "a.json": b"[{}]",
        "b.json": b"[1, 2",
        "c.json": b'{"a": 1}',
        "d.trace": b"0\nx\n",
        "e.trace.gz": b"no gzip",
    }.items():
        wrong = tmp_path / name
        wrong.write_bytes(content)
        with pytest.raises(PathcastError, match=name):
            cells.rate_of(wrong)
    with pytest.raises(PathcastError, match="cannot be read"):
        cells.rate_of(tmp_path / "nothing.json")


def test_a_cell_that_cannot_be_judged_says_why(tmp_path):
    file = tmp_path / "short.csv"
    file.write_text("time_s,cwnd_packets\n0,10\n0.5,11\n")
    found = judge.judge_cell("econ", "short", [file], [1.0])
    assert found.rows == []
    (left_out,) = found.left_out
    assert left_out["name"] == "econ short"
    assert "too short" in left_out["because"]


def test_a_coverage_is_judged_by_the_windows_that_fit_side_by_side():
    # of five windows all may be held; of 200 the exact limits are 171 and 188 (binomial, 2.5 % on each side)
    assert judge.is_compatible(1.0, 171, 30.0)
    assert not judge.is_compatible(0.4, 171, 30.0)
    held = [within for within in range(201) if judge.is_compatible(within / 200, 200, 1.0)]
    assert (held[0], held[-1]) == (171, 188)
    assert not judge.is_compatible(0.8, 3000, 1.0)
    assert not judge.is_compatible(None, 0, 1.0)


def test_few_truths_that_overlap_leave_exact_bands_little_chance():
    # 170 to 190 of 200 that do not overlap (binomial)
    binomial = sum(math.comb(200, n) * 0.9**n * 0.1 ** (200 - n) for n in range(170, 191))
    assert judge.chance_to_hold(200, 1.0) == pytest.approx(binomial, abs=0.005)
    chances = [judge.chance_to_hold(171, horizon_s) for horizon_s in (1.0, 5.0, 10.0, 30.0)]
    assert chances == sorted(chances, reverse=True)
    assert judge.chance_to_hold(20_000, 5.0) > 0.99


def test_the_summary_counts_verdicts_and_bands():
    def row(group, verdict, coverage, ours, other):
        skill = {"opponent": "ewma", "error_ratio": 2.0, "interval95": [1, 3], "verdict": verdict}
        return {
            "group": group,
            "horizon_s": 1.0,
            "compared": {"best_by_hindsight": skill},
            "coverage90": coverage,
            "compatible90": coverage < 0.95,
            "chance_to_hold": 0.75,
            "interval_score_pct": ours,
            "best_interval_score_pct": other,
            "overall_interval_score_pct": None,
        }

    rows = [
        row("a", "better", 0.9, 10.0, 5.0),
        row("a", "worse", 0.84, 10.0, 20.0),
        row("b", "worse", 0.96, 40.0, 10.0),
    ]
    counted = {one["group"]: one for one in judge.summary(rows) if one["horizon_s"] is None}
    assert counted["a"]["verdicts"]["best_by_hindsight"] == {
        "better": 1,
        "level": 0,
        "worse": 1,
        "mean_error_ratio": pytest.approx(2),
    }
    assert counted["a"]["bands_hold"] == 1
    assert counted["a"]["bands_hold_if_exact"] == 1.5
    assert (counted["a"]["bands_compatible"], counted["b"]["bands_compatible"]) == (2, 0)
    assert counted["a"]["interval_score_ratio"] == pytest.approx(1)
    assert counted["b"]["interval_score_ratio"] == pytest.approx(4)
    assert counted[None]["cells"] == 3
    assert np.isclose(counted[None]["coverage90"], 0.9)
    assert counted[None]["overall_interval_score_ratio"] is None
