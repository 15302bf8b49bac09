"""`pathcast benchmark schemes`: plans, runs that survive a kill, what is significant, and rankings compared."""

import json
import signal
import subprocess

import pytest

from conftest import PATHCAST, run, wait_until
from pathcast import PathcastError, schemes
from pathcast.experiments.engine.world import World
from pathcast.experiments.schemes import cases, compare, measures, plan, summary, workloads

PLAN = """
name = "a short one"
schemes = ["cubic", "bbr", "copa"]
runs = 3
duration = "5 s"
seed = 7

[[paths]]
file = "12mbps-60ms-1bdp"

[[paths]]
name = "lossy"
rate = "20 Mbit/s"
delay = "10 ms"
queue = "1 BDP"
loss = 0.002

[[workloads]]
kind = "single"

[[workloads]]
kind = "staggered"
flows = 3
every = "1 s"

[[workloads]]
name = "beside cubic"
kind = "mixed"
beside = ["cubic"]

[[workloads]]
kind = "transfer"
size = "500 kB"

[[workloads]]
kind = "page"
"""


def written(folder, text=PLAN):
    file = folder / "plan.toml"
    file.write_text(text)
    return file


def benchmark(file, out, *more):
    done = run("benchmark", "schemes", file, "-o", out, "--world", "simulator", "--json", *more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_plan_is_run_and_judged(tmp_path):
    out = tmp_path / "out"
    found, said = benchmark(written(tmp_path), out)
    assert "90 runs, 0 kept, 90 to run: about" in said
    assert found == json.loads((out / "results.json").read_text())
    assert [(one["path"], one["workload"]) for one in found["blocks"]] == [
        (path, workload)
        for path in ("12mbps-60ms-1bdp", "lossy")
        for workload in ("single", "staggered", "beside cubic", "transfer", "page")
    ]
    blocks = {(one["path"], one["workload"]): one for one in found["blocks"]}
    for block in found["blocks"]:
        assert [row["scheme"] for row in block["schemes"]] == ["cubic", "bbr", "copa"]
        for row in block["schemes"]:
            rate = row["metrics"]["throughput_bps"]
            assert row["runs"] == rate["runs"] == 3
            assert rate["low"] <= rate["mean"] <= rate["high"]
            assert 0 < rate["mean"] <= 20e6
            assert ("jain" in row["metrics"]) == (block["kind"] in ("staggered", "mixed"))
            assert ("completion_s" in row["metrics"]) == (block["kind"] in ("transfer", "page"))
    # CUBIC fills the queue, and Copa does not; on a lossy path CUBIC gets least
    single = blocks["12mbps-60ms-1bdp", "single"]
    assert single["best"]["delay_p95_ms"] == ["copa"]
    lossy = blocks["lossy", "single"]
    assert {"metric": "throughput_bps", "better": "bbr", "worse": "cubic"}.items() <= next(
        one for one in lossy["differences"] if (one["better"], one["worse"]) == ("bbr", "cubic")
    ).items()
    html = (out / "report.html").read_text()
    assert "http" not in html.replace("http://www.w3.org", "").replace(
        "http://purl.org", ""
    ).replace("http://creativecommons.org", "").replace("https://matplotlib.org", "")
    assert {file.stem for file in (out / "tables").iterdir()} == {"summary", "significance"}
    # all of it is kept: nothing runs again, and the results are the same
    again, said = benchmark(tmp_path / "plan.toml", out)
    assert "90 kept, 0 to run" in said
    assert again == {**found, "command": again["command"]}


def test_a_killed_benchmark_continues_with_nothing_lost_or_doubled(tmp_path):
    text = PLAN.partition("[[workloads]]")[0].replace('"5 s"', '"60 s"')
    text = text.replace("12mbps-60ms-1bdp", "100mbps-40ms-1bdp")
    file, out = written(tmp_path, text), tmp_path / "killed"
    command = [PATHCAST, "benchmark", "schemes", file, "-o", out, "--world", "simulator"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(list(out.rglob("cell.json"))) >= 3, "three runs")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = {one: one.stat().st_mtime_ns for one in out.rglob("cell.json")}
    assert 3 <= len(kept) < 18
    assert not (out / "results.json").exists()
    found, said = benchmark(file, out)
    assert f"18 runs, {len(kept)} kept, {18 - len(kept)} to run" in said
    assert {one: one.stat().st_mtime_ns for one in kept} == kept
    assert len(list(out.rglob("cell.json"))) == found["runs"] == 18
    whole, _ = benchmark(file, tmp_path / "whole")
    assert found["blocks"] == whole["blocks"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"copa"', '"kopa"', "did you mean 'copa'"),
        ('beside = ["cubic"]', 'beside = ["cubik"]', "did you mean 'cubic'"),
        ("12mbps-60ms-1bdp", "12mbps-60ms-1bpd", "did you mean 12mbps-60ms-1bdp"),
        ('kind = "single"', 'kind = "sing"', "did you mean 'single'"),
        ("runs = 3", "rums = 3", "did you mean 'runs'"),
        ("runs = 3", "runs = 0", "1 to 1000"),
        ('duration = "5 s"', "duration = 5", "a time from"),
        ('size = "500 kB"', 'size = "500"', "such as '1 MB'"),
        ('every = "1 s"', 'every = "2 s"', "half the run"),
        ('name = "lossy"', 'name = "a/b"', "without '/'"),
        ('kind = "page"', 'kind = "single"', "unique names"),
        ('schemes = ["cubic", "bbr", "copa"]', "schemes = []", "a list of different names"),
        ("runs = 3", "runs = ", "expected TOML"),
    ],
)
def test_a_wrong_plan_is_refused_before_anything_runs(tmp_path, old, new, said):
    assert old in PLAN
    file, out = written(tmp_path, PLAN.replace(old, new)), tmp_path / "out"
    done = run("benchmark", "schemes", file, "-o", out, "--world", "simulator")
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
    assert not out.exists()


def test_a_dry_run_says_how_long_it_takes(tmp_path):
    done = run(
        *("benchmark", "schemes", written(tmp_path), "-o", tmp_path / "out"),
        *("--world", "simulator", "--dry-run"),
    )
    assert done.returncode == 0, done.stderr
    assert "90 to run: about" in done.stderr
    assert not list(tmp_path.rglob("cell.json"))


@pytest.mark.parametrize("kind", ["kind = 'single'", "kind = 'transfer'\nsize = '500 kB'"])
def test_the_table_of_a_narrow_terminal_has_whole_names(tmp_path, kind):
    text = PLAN.partition("[[workloads]]")[0].replace('"bbr", "copa"', '"cubic-hystart++"')
    file = written(tmp_path, f"{text}[[workloads]]\n{kind}\n")
    done = run("benchmark", "schemes", file, "-o", tmp_path / "out", "--world", "simulator")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("cubic-hystart++ ") == 2
    assert "…" not in done.stdout
    assert ("finishes" in done.stdout) == ("transfer" in kind)


def test_the_order_is_random_round_robin(tmp_path):
    resolved = plan.resolve(plan.Plan.load(written(tmp_path)), World.SIMULATOR)
    made = cases.cases(resolved)
    assert made == cases.cases(resolved)
    assert len({case.name for case in made}) == len(made) == 90
    rounds = [made[start : start + 30] for start in range(0, 90, 30)]
    for number, one in enumerate(rounds):
        assert {case.number for case in one} == {number}
        # the schemes of a place follow each other, in an order drawn anew
        places = [one[start : start + 3] for start in range(0, 30, 3)]
        assert all(len({case.block for case in place}) == 1 for place in places)
        assert len({tuple(case.scheme for case in place) for place in places}) > 2
    assert [case.block for case in rounds[0]] != [case.block for case in rounds[1]]


def flow(rate, *, start=0.0, end=10.0, under_test=True, **keys):
    series = tuple((at / 2, rate, 10.0) for at in range(int(2 * start), int(2 * end)))
    delay = {"mean": 10.0, "p50": 10.0, "p95": 20.0}
    return measures.FlowMeasure(
        "x", under_test, start, end, rate, delay, 0.01, series=series, **keys
    )


def test_measures_of_a_run_follow_from_its_flows():
    found = measures.of_run([flow(4e6), flow(2e6, start=5.0)], "staggered")
    assert found["throughput_bps"] == pytest.approx(5e6)
    assert found["jain"] == pytest.approx(36 / (2 * 20))
    assert found["power"] == pytest.approx(0.5)
    mixed = measures.of_run([flow(1e6), flow(3e6, under_test=False)], "mixed")
    assert (mixed["throughput_bps"], mixed["share"]) == (pytest.approx(1e6), pytest.approx(0.25))
    times = [flow(1e6, completion_s=2.0), flow(1e6, start=1.0, completion_s=4.0)]
    assert measures.of_run(times, "transfer")["completion_s"] == pytest.approx(3.0)
    assert measures.of_run(times, "page")["completion_s"] == pytest.approx(5.0)
    assert "completion_s" not in measures.of_run([*times, flow(1e6)], "page")


def test_intervals_and_tests_are_students():
    one = summary.Estimate.of([1.0, 2.0, 3.0])
    assert one.high == pytest.approx(2 + 4.30265 / 3**0.5, rel=1e-5)  # t of 2 degrees of freedom
    assert summary.Estimate.of([5.0]).low is None
    assert summary.welch_p([1.0, 1.0], [2.0, 2.0]) == 0.0
    assert summary.welch_p([1.0, 1.0], [1.0, 1.0]) == 1.0
    assert summary.welch_p([1.0, 2.0, 3.0], [1.1, 2.1, 2.9]) > 0.5


def test_holm_corrects_over_the_pairs_and_the_worse_scheme_is_named():
    def row(scheme, delays):
        return summary.Row(
            scheme, {"delay_p95_ms": summary.Estimate.of(delays)}, {"delay_p95_ms": delays}, 3
        )

    rows = [row("a", (10.0, 10.1, 9.9)), row("b", (20.0, 20.1, 19.9)), row("c", (9.9, 10.2, 10.0))]
    found = summary.differences(rows)
    assert {(one.better, one.worse) for one in found} == {("a", "b"), ("c", "b")}
    block = summary.Block("p", "w", "single", "forward", tuple(rows), found)
    assert set(block.best("delay_p95_ms")) == {"a", "c"}


def test_kendalls_tau_counts_pairs_that_both_tell_apart():
    def block(means, half):
        rows = [
            {
                "scheme": name,
                "metrics": {
                    "throughput_bps": vars(summary.Estimate(mean, 1.0, mean - half, mean + half, 3))
                },
            }
            for name, mean in means.items()
        ]
        return {"path": "p", "workload": "w", "direction": "forward", "schemes": rows}

    mine = block({"a": 1.0, "b": 2.0, "c": 3.0, "only here": 9.0}, 0.1)
    (found,) = compare.agreements([mine], [block({"a": 10.0, "b": 30.0, "c": 20.0}, 1.0)])
    assert (found.tau, found.concordant, found.discordant, found.pairs) == (1 / 3, 2, 1, 3)
    assert found.disagree == (("c", "b"),)
    assert found.tau_implementations is None
    other = block({"a": 10.0, "b": 30.0, "c": 20.0}, 1.0)
    (found,) = compare.agreements([mine], [other], {"a", "b", "only here"})
    assert (found.tau_implementations, found.told_implementations) == (1.0, 1)
    (found,) = compare.agreements([mine], [other], {"b", "c"})
    assert (found.tau, found.tau_implementations) == (1 / 3, -1.0)
    assert "in 0 of 1" in compare.lines([found])[1]
    (unknown,) = compare.agreements([mine], [block({"a": 1.0, "b": 2.0, "c": 3.0}, 5.0)])
    assert unknown.tau is None


def test_two_folders_are_compared(tmp_path):
    short = PLAN.partition('[[workloads]]\nkind = "staggered"')[0]
    file = written(tmp_path, short)
    benchmark(file, tmp_path / "one")
    found, _ = benchmark(file, tmp_path / "two", "--compare", tmp_path / "one")
    known = [one for one in found["agreements"] if one["tau"] is not None]
    assert len(known) > 4
    assert all(one["tau"] == 1.0 for one in known)
    assert (tmp_path / "two/tables/kendall.md").exists()
    wrong = ("-o", tmp_path / "three", "--world", "simulator", "--compare", tmp_path)
    done = run("benchmark", "schemes", file, *wrong)
    assert done.returncode == 2
    assert "results.json" in done.stderr
    assert not (tmp_path / "three").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--world", "live"), "got no --server; expected the host"),
        (("--key", "key"), "got no --server; expected the host"),
        (("--server", "host"), "got no --key; expected the file"),
        (("--server", "host:0", "--key", "key"), "got 'host:0', expected HOST"),
        (
            ("--world", "simulator", "--server", "host", "--key", "key"),
            "--world simulator and --server",
        ),
        (("--server", "127.0.0.1:9", "--key", "no-key"), "no-key"),
        (("--server", "host", "--key", "key", "--at-once", "2"), "--at-once 2 with --server"),
    ],
)
def test_a_live_benchmark_needs_a_host_and_its_key(options, said, tmp_path):
    text = 'schemes = ["tcp-cubic"]\n[[paths]]\nfile = "12mbps-60ms-1bdp"\n'
    folder = tmp_path / "runs"
    done = run("benchmark", "schemes", written(tmp_path, text), *options, "-o", folder)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_what_cannot_be_built_is_left_out_before_anything_runs(tmp_path, monkeypatch):
    own = tmp_path / "own"
    (own / "broken").mkdir(parents=True)
    (own / "broken/recipe.toml").write_text('commands = [["false"]]\n')
    (own / "mine.toml").write_text(
        'name = "mine"\nimplementation = "none"\nversion = "1"\nlicence = "MIT"\ncontroller = "none"\n'
        'transport = "tcp"\nbuild = "broken"\nreceiver = ["x", "{port}"]\nsender = ["x", "{port}"]\n'
    )
    monkeypatch.setenv("PATHCAST_SCHEMES", str(own))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = 'schemes = [SCHEMES]\n[[paths]]\nfile = "12mbps-60ms-1bdp"\n'
    both = plan.Plan.parse(text.replace("SCHEMES", '"mine", "tcp-cubic"'), tmp_path / "plan")
    said = []
    found = plan.built(plan.resolve(both, World.EMULATOR), said.append)
    assert (said, found.plan.schemes) == (["building mine"], ("tcp-cubic",))
    assert "mine cannot be built: false ended with code 1" in found.left_out["mine"]
    alone = plan.Plan.parse(text.replace("SCHEMES", '"mine"'), tmp_path / "plan")
    with pytest.raises(PathcastError, match="nothing can run; mine: mine cannot be built"):
        plan.built(plan.resolve(alone, World.EMULATOR), said.append)


def test_sizes_and_times_have_units():
    assert workloads.size_bytes("1.5 MB") == 1_500_000
    assert [workloads.size_bytes(text) for text in (5, "", "1", "0 B", "-1 B", "1 TB")] == [
        None
    ] * 6
    assert workloads.seconds("250 ms") == 0.25
    assert [workloads.seconds(text) for text in (5, "", "5", "1 h", "nan s")] == [None] * 5


def test_a_file_that_is_not_a_runs_flows_is_refused(tmp_path):
    file = tmp_path / "flows.json"
    for content in ("", "[{}]", "{", "[1]"):
        file.write_text(content)
        with pytest.raises(PathcastError, match="delete its folder"):
            cases.read(file)


def test_the_plan_of_twelve_is_of_schemes_at_hand():
    twelve = plan.Plan.load("twelve")
    of = schemes.catalog()
    assert (len(twelve.schemes), len(twelve.paths), twelve.runs, twelve.duration_s) == (
        12,
        6,
        3,
        30,
    )
    assert set(twelve.schemes) <= set(of)
    assert len({of[name].implementation for name in twelve.schemes}) == 8
    made = cases.cases(plan.resolve(twelve, World.EMULATOR))
    assert len(made) == 216
    assert cases.estimate_s(made, World.EMULATOR, 4.0, 1) == pytest.approx(216 * 34)
    with pytest.raises(PathcastError, match="did you mean 'twelve'"):
        plan.Plan.load("twelv")
