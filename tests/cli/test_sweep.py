"""`pathcast sweep` and batches of simulations."""

import json
import os
import signal
import subprocess

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import pathcast
from conftest import PATHCAST, cpu_s, run, wait_until

PATH = "rate = '20 Mbit/s'\ndelay = '10 ms'\nloss = 0.001\n"


def test_a_sweep_runs_every_path_with_every_scheme(path_file, tmp_path):
    a, b = path_file(PATH, "a.toml"), path_file("delay = '20 ms'\nloss = 0.01\n", "b.toml")
    output = tmp_path / "runs.parquet"
    done = run(
        "sweep", a, b, "--scheme", "cubic", "--scheme", "reno", "--seeds", 5, "--duration", 10,
        "-o", output, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["path"], row["scheme"]) for row in rows] == [
        (str(file), scheme) for file in (a, b) for scheme in ("cubic", "reno")
    ]
    table = pyarrow.parquet.read_table(output)
    assert table.num_rows == 20
    assert table["seed"].to_pylist() == [1, 2, 3, 4, 5] * 4
    goodput = np.array(table["goodput_bps"]).reshape(4, 5).mean(axis=1)
    assert goodput == pytest.approx([row["goodput_bps"] for row in rows])


def test_results_do_not_depend_on_the_number_of_threads():
    path = pathcast.Path.parse(PATH)
    specs = [pathcast.Simulation(path, ("cubic", "reno"), 5, seed) for seed in range(8)]
    tables = [pyarrow.table(pathcast.simulate_many(specs, threads=n)) for n in (1, 2, 5)]
    assert tables[0].num_rows == 16
    assert tables[0] == tables[1] == tables[2]


def test_a_batch_agrees_with_single_runs():
    path = pathcast.Path.parse(PATH)
    results = pathcast.simulate_many([pathcast.Simulation(path, ("cubic",), 10, 3)])
    single, _ = pathcast.simulate(path, ["cubic"], duration_s=10, seed=3)
    assert results.column("goodput_bps")[0] == single.flows[0].goodput_bps
    with pytest.raises(pathcast.TraceError, match="no column"):
        results.column("scheme")


def test_wrong_batches_are_refused():
    path = pathcast.Path.parse(PATH)
    with pytest.raises(pathcast.SchemeError, match="nosuch"):
        pathcast.simulate_many([pathcast.Simulation(path, ("nosuch",))])
    with pytest.raises(pathcast.PathcastError, match="duration"):
        pathcast.simulate_many([pathcast.Simulation(path, duration_s=-1)])
    assert len(pathcast.simulate_many([])) == 0


def test_ctrl_c_ends_a_sweep(path_file):
    process = subprocess.Popen(
        [str(PATHCAST), "sweep", str(path_file(PATH)), "--seeds", "200", "--duration", "20000"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: cpu_s(process) > 3, "three seconds of simulating")
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130, stderr
