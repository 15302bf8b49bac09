"""`pathcast evaluate suite`: runs, goes on where it stopped, scores, writes."""

import csv
import fcntl
import gzip
import hashlib
import json
import signal
import subprocess
import threading
from itertools import chain, takewhile

import pytest

import pathcast
from conftest import PATHCAST, run, until_valid, wait_until
from pathcast import threads
from pathcast.experiments.engine.runner import plan
from pathcast.experiments.engine.runner import run as run_missing
from pathcast.experiments.engine.store import Store
from pathcast.experiments.engine.world import World
from pathcast.experiments.suite import Form, cells

#: Two cells of a network that is quick to simulate.
TINY = ("--world", "simulator", "--network", "last-mile-0.5", "--duration", 40)
CELLS = ["last-mile-0.5-cubic-npc1-seed1-40s", "last-mile-0.5-reno-npc1-seed1-40s"]


def suite(folder, *options, **how):
    return run("evaluate", "suite", "-o", folder, *options, **how)


def of_suite(folder, *options):
    """What it prints as JSON, and results.json."""
    done = suite(folder, *options, "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    return printed, json.loads((folder / "results.json").read_text())


def kept(folder, world="simulated"):
    """When each cell's files were last written."""
    return {
        file.relative_to(folder / world): file.stat().st_mtime_ns
        for file in (folder / world).rglob("*")
        if file.is_file()
    }


def test_it_runs_scores_and_writes_everything(tmp_path):
    folder = tmp_path / "out"
    printed, results = of_suite(folder, *TINY)
    assert set(printed) == {
        "report", "results", "form", "world", "cells", "valid", "claims", "left_out",
    }  # fmt: skip
    assert (printed["cells"], printed["valid"], printed["left_out"]) == (2, 2, [])
    assert [cell["name"] for cell in results["cells"]] == CELLS
    assert (results["world"], results["form"], results["seeds"]) == ("simulator", "short", [1])
    rows = results["throughput"]
    # two congestion controls, two protocols, three horizons
    assert len(rows) == 12
    for row in rows:
        assert row["network"] == "last-mile-0.5"
        assert row["windows"] > 10
        assert set(row["median_error_pct"]) <= set(pathcast.MODELS)
        others = [row["median_error_pct"][m] for m in ("last_sample", "ewma", "harmonic_mean")]
        assert row["best_other_median_pct"] <= min(others)
    told = [row["paper"] for row in rows if row["paper"]]
    assert {one["where"] for one in told} == {"table 3"}
    assert {one["econ_median_pct"] for one in told} == {15.3}
    assert len(results["claims"]) >= 8
    assert {row["holds"] for row in results["claims"]} <= {True, False, None}

    page = (folder / "report.html").read_text()
    assert "Table 3" in page
    assert "<svg" in page
    assert "simulator" in page
    for name in ("table-3", "models", "cells"):
        with (folder / "tables" / f"{name}.csv").open() as stream:
            header, *cells = csv.reader(stream)
        assert cells
        assert all(len(row) == len(header) for row in cells), name
        assert (folder / "tables" / f"{name}.md").read_text().startswith("## ")
    assert (folder / "figures" / "mobile-cubic.svg").read_text().startswith("<?xml")


def test_a_score_is_that_of_evaluate(tmp_path):
    folder = tmp_path / "out"
    _, results = of_suite(folder, *TINY, "--scheme", "reno")
    trace = folder / "simulated" / CELLS[1] / "trace.parquet"
    done = run("evaluate", trace, "--horizon", 1, "--horizon", 5, "--json")
    by_horizon = {score["horizon_s"]: score for score in json.loads(done.stdout)["horizons"]}
    for row in results["throughput"]:
        if row["protocol"] == "fair" and row["horizon_s"] in by_horizon:
            score = by_horizon[row["horizon_s"]]
            assert row["windows"] == score["windows"]
            assert row["coverage90"] == pytest.approx(score["coverage90"])
            for model, error in row["median_error_pct"].items():
                assert error == pytest.approx(score["median_error_pct"][model], rel=1e-4), model


def test_what_was_run_is_not_run_again(tmp_path):
    folder = tmp_path / "out"
    _, first = of_suite(folder, *TINY)
    before = kept(folder)
    assert len(before) == 4
    done = suite(folder, *TINY)
    assert "2 of 2 cells are in" in " ".join(done.stdout.split())
    _, again = of_suite(folder, *TINY)
    assert kept(folder) == before
    assert again == first
    # other seeds and durations are other cells, and those that were there stay
    printed, _ = of_suite(folder, *TINY[:-1], 30, "--seed", 7, "--scheme", "reno")
    assert printed["valid"] == 1
    assert before.items() < kept(folder).items()


def test_a_damaged_state_is_no_run_and_is_run_again(tmp_path):
    folder = tmp_path / "out"
    options = (*TINY[:-1], 12, "--scheme", "reno")
    before = of_suite(folder, *options)[1]
    (cell,) = cells(Form.SHORT, networks=["last-mile-0.5"], schemes=["reno"], duration_s=12)
    file = folder / "simulated" / cell.name / "cell.json"
    trace_file = file.with_name("trace.parquet")
    found = Store(folder).find
    assert found(cell, "simulator")[0] is not None
    assert found(cell, "emulator") == (None, "not run yet")

    whole, trace = file.read_bytes(), trace_file.read_bytes()
    values = json.loads(whole)
    damaged = [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[]",
        b"null",
        b"3",
        b"{}",
        b'{"schema": 1}',
        b"[" * 200_000,
    ]
    changes = [
        {"schema": 99},
        {"report": 7},
        {"invalid_because": [3]},
        {"valid": "yes"},
        {"fingerprint": 1},
    ]
    for content in damaged + [json.dumps(values | change).encode() for change in changes]:
        file.write_bytes(content)
        record, why = found(cell, "simulator")
        assert record is None, content[:40]
        assert why
    file.write_bytes(whole)
    for content in (b"", trace[:-1], trace[:100] + b"x" + trace[101:]):
        trace_file.write_bytes(content)
        assert found(cell, "simulator")[0] is None
    trace_file.unlink()
    assert found(cell, "simulator")[0] is None

    printed, results = of_suite(folder, *options, "--no-run")
    assert (printed["cells"], printed["valid"], results["throughput"]) == (1, 0, [])
    file.write_bytes(b"{")
    done = suite(folder, *options)
    assert done.returncode == 0, done.stderr
    assert "it is run again" in " ".join(done.stdout.split())
    assert trace_file.read_bytes() == trace
    assert json.loads((folder / "results.json").read_text()) == before


def test_short_flows_are_cells_too(tmp_path):
    folder = tmp_path / "out"
    options = ("--world", "simulator", "--network", "short-flows")
    printed, results = of_suite(folder, *options)
    assert (printed["cells"], printed["valid"]) == (21, 21)
    assert results["cells"] == []
    assert len(results["downloads"]) == 21
    for row in results["downloads"]:
        assert row["valid"]
        assert 0 < row["truth_s"][0] < row["truth_s"][1] < row["truth_s"][2]
        assert set(row["error_pct"]) == {"pathcast", "blind", "published", "alone"}
    rows = {(row["group"], row["size_bytes"]): row for row in results["short_flows"]}
    of_all = rows["all", 20e6]
    assert of_all["downloads"] == 21
    assert of_all["paper"]["mean_error_pct"] == {"published": 11.39, "alone": 79.95}
    means = [row["error_pct"]["pathcast"][2] for row in results["downloads"]]
    assert of_all["mean_error_pct"]["pathcast"] == pytest.approx(sum(means) / len(means))
    # what the estimator is for
    without = rows["no loss", 20e6]["mean_error_pct"]
    assert without["pathcast"] < without["alone"]
    assert "Short flows" in (folder / "report.html").read_text()
    assert (folder / "figures" / "short-flows.svg").exists()
    assert (folder / "tables" / "short-flows.csv").exists()
    assert of_all["largest_bps"]["measured"] > of_all["largest_bps"]["alone"]

    # the window was logged: figure 9 has all that it can have
    for row in results["evolution"]:
        assert row["without_window"] == 0
    assert results["evolution"][0]["path"] is not None
    for name in ("short-flows-windows", "short-flows-scatter"):
        assert (folder / "figures" / f"{name}.svg").read_text().count("<path") > 20
    shown = results["evolution"][0]
    (name,) = (row["name"] for row in results["downloads"] if row["seed"] == shown["seed"])
    file = folder / "simulated" / name / "download.json"
    row = json.loads(file.read_text())
    assert 100 < len(row["cwnd_packets"]) == len(row["cwnd_time_s"]) <= 400
    assert row["cwnd_time_s"] == sorted(row["cwnd_time_s"])
    assert row["cwnd_time_s"][-1] == pytest.approx(row["truth_s"][-1], rel=0.2)
    assert 8 <= row["cwnd_packets"][0] <= 12

    before = kept(folder)
    _, again = of_suite(folder, *options)
    assert (again, kept(folder)) == (results, before)
    # a run of before windows were kept counts as well as it did, and the figure says what it lacks
    old = file.read_text()
    cell = file.with_name("cell.json")
    values = json.loads(cell.read_text())
    file.write_text(json.dumps({k: v for k, v in row.items() if not k.startswith("cwnd")}))
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    cell.write_text(json.dumps(values | {"trace_sha256": sha256}))
    printed, without = of_suite(folder, *options, "--no-run")
    assert printed["valid"] == 21
    assert without["short_flows"] == results["short_flows"]
    assert without["evolution"][0]["without_window"] == 1
    assert without["evolution"][0]["seed"] != shown["seed"]
    file.write_text(old)
    cell.write_text(json.dumps(values))
    damaged = folder / "simulated" / results["downloads"][0]["name"] / "download.json"
    damaged.write_text("{}")
    printed, _ = of_suite(folder, *options, "--no-run")
    assert printed["valid"] == 20
    _, again = of_suite(folder, *options)
    assert again == results
    # they are CUBIC's
    printed, _ = of_suite(folder, *options, "--scheme", "reno")
    assert printed["cells"] == 0


def test_ctrl_c_keeps_what_ended_and_the_same_command_goes_on(tmp_path):
    folder = tmp_path / "out"
    # seconds each, one after another
    options = ["--world", "simulator", "--network", "last-mile-1"]
    options += ["--duration", "3000", "--seed", "1", "--seed", "2", "--at-once", "1"]
    process = subprocess.Popen(
        [str(PATHCAST), "evaluate", "suite", "-o", str(folder), *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: list(folder.glob("simulated/*/cell.json")), "the end of a cell")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130, stderr
    assert "goes on from there" in " ".join(stderr.split())
    before = kept(folder)
    ended = [file for file in before if file.name == "cell.json"]
    assert 1 <= len(ended) < 4
    # a run that was stopped leaves no trace
    assert sorted(before) == sorted(
        name for cell in ended for name in (cell, cell.with_name("trace.parquet"))
    )
    chosen = cells(Form.SHORT, networks=["last-mile-1"], seeds=[1, 2], duration_s=3000)
    planned = plan(chosen, Store(folder), World.SIMULATOR)
    assert len(planned.kept) == len(ended)
    outcomes = run_missing(planned, Store(folder))
    assert sorted(cell.name for cell, _ in outcomes) == sorted(cell.name for cell in chosen)
    assert before.items() < kept(folder).items()


def test_a_cell_runs_on_the_kernel(emulator, tmp_path):
    folder = tmp_path / "out"
    options = ("--network", "last-mile-1", "--scheme", "cubic", "--duration", 20)

    def attempt():
        printed, results = of_suite(folder, *options, "--attempts", 3)
        (cell,) = results["cells"]
        if cell["valid"]:
            return (printed, results, cell), ""
        if len(cell["invalid_because"]) != 3 or results["throughput"]:
            pytest.fail(f"a cell that is not valid: {results}")
        return None, "; ".join(chain.from_iterable(cell["invalid_because"]))

    printed, results, cell = until_valid(attempt, 2)
    assert results["world"] == "emulator"
    assert printed["valid"] == 1
    assert cell["slip_p99_us"] > 0
    assert cell["losses"][0] > 10
    trace = pathcast.read_trace(
        folder / "cells" / "last-mile-1-cubic-npc1-seed1-20s" / "trace.parquet"
    )
    assert trace.metadata["source"] == "emulator"
    assert trace.metadata["valid"]
    assert {row["network"] for row in results["throughput"]} == {"last-mile-1"}
    again = kept(folder, "cells")
    of_suite(folder, *options)
    assert kept(folder, "cells") == again


def test_ctrl_c_ends_what_runs_also_before_all_is_begun():
    stop = threading.Event()
    ended_by_itself = []
    with pytest.raises(KeyboardInterrupt), threads.pool(1, stop.set) as pool:
        running = pool.submit(lambda: ended_by_itself.append(not stop.wait(20)))
        never = pool.submit(lambda: None)
        raise KeyboardInterrupt
    assert running.done()
    assert ended_by_itself == [False]
    assert never.cancelled()


def test_ctrl_c_ends_emulations(emulator, tmp_path):
    folder = tmp_path / "out"
    process = subprocess.Popen(
        [str(PATHCAST), "evaluate", "suite", "-o", str(folder), "--network", "last-mile-1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: list(folder.glob("cells/*")), "the beginning of a cell")
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 130, stderr
    # before it began, it said how long it would take
    assert "2 cells in real time, 2 together: about 2 min" in " ".join(stdout.split())
    assert list(folder.rglob("cell.json")) == []
    assert list(folder.rglob("*.parquet")) == []


def test_traces_of_others_are_judged_beside(econ_traces, tmp_path):
    traces = tmp_path / "traces"
    traces.mkdir()
    reno = "reno-wireless_reno-data_1_1_10000.cwnd.csv.gz"
    with gzip.open(econ_traces / reno, "rt") as whole, gzip.open(traces / reno, "wt") as part:
        # 20 minutes of an hour
        part.write(next(whole))
        part.writelines(takewhile(lambda line: float(line.split(",")[0]) < 1200, whole))
    (traces / "notes.txt").write_text("no trace")
    (traces / "unknown.csv").write_text("time_s,cwnd_packets\n0,1\n9,2\n")
    options = ("--traces", traces, "--no-run", "--network", "last-mile-1")
    printed, results = of_suite(tmp_path / "out", *options)
    assert printed["valid"] == 0
    assert [row["file"] for row in results["traces"]] == [reno]
    (name,) = {row["network"] for row in results["throughput"]}
    assert name == "trace reno-wireless_reno-data_1_1_10000"
    assert results["throughput"][0]["windows"] > 1000
    assert [one["name"] for one in results["left_out"]] == ["notes.txt", "unknown.csv"]
    assert "expected cubic or reno" in results["left_out"][1]["because"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--network", "nosuch"], "expected one of azure, southeast"),
        (["--scheme", "bbr"], "expected one of cubic, reno"),
        (["--npc", "0"], "npc is 0"),
        (["--duration", "nan"], "duration is nan"),
        (["--duration", "1"], "expected 3 to 86400 s"),
        (["--seed", "-1"], "seed"),
        (["--at-once", "0"], "at-once"),
        (["--attempts", "0"], "attempts"),
        (["--world", "moon"], "moon"),
        (["--cluster", "nowhere"], "is no address"),
        (["--cluster", "local", "--at-once", "2"], "expected one of them"),
        (["--traces", "nosuch"], "no such file or folder"),
        (["--wrong"], "--wrong"),
        (["extra"], "extra"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, said):
    done = suite(tmp_path / "out", "--world", "simulator", *options)
    assert done.returncode == 2, done.stdout
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_folder_that_cannot_be_used_is_refused(tmp_path):
    file = tmp_path / "file"
    file.touch()
    done = suite(file, *TINY)
    assert done.returncode == 2
    assert "cannot be used" in done.stderr
    folder = tmp_path / "busy"
    folder.mkdir()
    with (folder / ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        done = suite(folder, *TINY)
        assert done.returncode == 2
        assert "at work there" in " ".join(done.stderr.split())


def test_a_trace_that_is_called_suite_is_still_evaluated(tmp_path, monkeypatch):
    rows = "".join(f"{i * 0.1:.1f},{10 + i % 11}\n" for i in range(600))
    (tmp_path / "suite").write_text("time_s,cwnd_packets\n" + rows)
    monkeypatch.chdir(tmp_path)
    options = ("--cc", "reno", "--rtt", 0.1, "--horizon", 1, "--json")
    for words in (("./suite", *options), (*options, "suite")):
        done = run("evaluate", *words)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["traces"][0]["trace"].endswith("suite")
