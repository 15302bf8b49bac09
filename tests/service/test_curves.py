"""`pathcast curves`: exports of services, and their merge."""

import pytest
from serving import samples, serving

from conftest import run

parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("fsspec")


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """Two services that share a prefix, each exported."""
    folder = tmp_path_factory.mktemp("curves")
    files = []
    for number, clients in enumerate((["192.0.2.7", "198.51.100.1"], ["192.0.2.9"])):
        with serving() as service:
            for client in clients:
                assert service.post(samples(client, npc=1 + number % 2))[0] == 200
                assert service.post(samples(client, npc=6, cwnd_packets=11))[0] == 200
            file = folder / f"{number}.parquet"
            done = run("curves", "export", service.base, file)
            assert done.returncode == 0, done.stderr
        files.append(file)
    return files


def rows(file):
    return {
        (row["prefix"], row["npc"], round(row["cwnd_packets"], 6)): (row["packets"], row["losses"])
        for row in parquet.read_table(file).to_pylist()
    }


def test_an_export_has_all_that_was_sent(exports):
    found = rows(exports[0])
    assert {prefix for prefix, _, _ in found} == {"192.0.2.0/24", "198.51.100.0/24"}
    of_one = {key[1]: value for key, value in found.items() if key[0] == "192.0.2.0/24"}
    assert of_one == {1: (30_000, 5), 6: (30_000, 5)}


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_merge_is_the_sum(exports, tmp_path, partitions):
    target = tmp_path / "merged"
    words = ("curves", "merge", *exports, target, "--partitions", partitions)
    done = run(*words)
    assert done.returncode == 0, done.stderr
    files = [target] if partitions == 1 else sorted(target.iterdir())
    assert len(files) == partitions
    expected = {}
    for file in exports:
        for key, value in rows(file).items():
            before = expected.get(key, (0, 0))
            expected[key] = (before[0] + value[0], before[1] + value[1])
    merged = {}
    for file in files:
        mine = rows(file)
        assert not mine.keys() & merged.keys(), "a prefix is in one partition"
        merged |= mine
    assert merged == expected
    shared = [value for key, value in merged.items() if key[:2] == ("192.0.2.0/24", 6)]
    assert shared == [(60_000, 10)]


def test_a_merge_on_a_cluster_is_the_same(exports, tmp_path):
    pytest.importorskip("ray")
    here, there = tmp_path / "here", tmp_path / "there"
    assert run("curves", "merge", *exports, here, "--partitions", 2).returncode == 0
    done = run("curves", "merge", *exports, there, "--partitions", 2, "--cluster", "local")
    assert done.returncode == 0, done.stderr
    for one, other in zip(sorted(here.iterdir()), sorted(there.iterdir()), strict=True):
        assert rows(one) == rows(other)


def test_any_url_of_fsspec_is_taken(exports, tmp_path):
    target = f"file://{tmp_path}/deep/merged.parquet"
    assert run("curves", "merge", *exports, target).returncode == 0
    again = run("curves", "merge", target, tmp_path / "again.parquet")
    assert again.returncode == 0
    assert rows(tmp_path / "again.parquet") == rows(tmp_path / "deep" / "merged.parquet")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("export", "127.0.0.1:1", "x.parquet"), "expected an address"),
        (("export", "http://127.0.0.1:1", "x.parquet"), "expected a running"),
        (("merge", "nowhere.parquet", "x.parquet"), "nowhere.parquet"),
        (("merge", "x.parquet"), "at least one"),
    ],
)
def test_what_cannot_be_read_is_said_and_nothing_is_left(tmp_path, words, said):
    done = run("curves", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []
