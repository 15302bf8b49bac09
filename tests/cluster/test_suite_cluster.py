"""`pathcast evaluate suite --cluster`: the same cells, run by tasks of a Ray cluster."""

import json

from conftest import run
from ray_head import needs_ray


def test_a_cluster_runs_the_same_cells_as_this_machine(tmp_path):
    needs_ray()
    options = ["--world", "simulator", "--network", "last-mile-1", "--duration", 20, "--json"]
    traces = []
    for folder, more in (("here", []), ("there", ["--cluster", "local"])):
        done = run("evaluate", "suite", "-o", tmp_path / folder, *options, *more, timeout=300)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["valid"] == 2
        files = sorted((tmp_path / folder).rglob("trace.parquet"))
        assert len(files) == 2
        traces.append([file.read_bytes() for file in files])
    # the same seed gives the same bytes
    assert traces[0] == traces[1]
    here, there = (
        json.loads((tmp_path / f / "results.json").read_text()) for f in ("here", "there")
    )
    assert here == there
