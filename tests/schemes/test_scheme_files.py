"""Files of schemes, and what the commands say of them, without a build."""

import json
import os
import stat
import time
import tomllib

import pytest

from conftest import ROOT, run
from pathcast import _internal
from pathcast.exceptions import SchemeError
from pathcast.schemes import build, catalog, scheme
from pathcast.schemes.scheme import BUILT_IN, WRAPPERS, Scheme

#: The simulator's schemes over QUIC.
QUIC = ("quic-cubic", "quic-reno", "quic-bbr3")
GOOD = """
name = "mine"
implementation = "a script"
version = "1"
licence = "MIT"
controller = "aimd"
transport = "udp"
receiver = ["{folder}/mine", "receive", "{address}:{port}"]
sender = ["{folder}/mine", "send", "{address}:{port}", "{bytes}"]
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Folders of a user who has neither schemes nor a cache."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PATHCAST_SCHEMES", raising=False)
    return tmp_path


def test_every_file_of_ours_is_named_like_its_scheme_and_has_what_it_names(home):
    known = catalog()
    assert len(known) >= 17
    assert {file.stem for file in BUILT_IN.glob("*.toml")} == set(known)
    for one in known.values():
        folder = build.wrapper_folder(one)
        if folder is not None:
            recipe = build.Recipe.read(folder)
            assert all((folder / name).exists() for name in (*recipe.sources, *recipe.copies))
            assert recipe.digest() == build.Recipe.read(folder).digest()
        if one.simulator is not None:
            assert one.simulator in (*_internal.simulator_schemes(), *QUIC, "fixed:100")
            if one.transport == "quic" and f"quic-{one.controller}" in QUIC:
                assert one.simulator == f"quic-{one.controller}"
        assert one.ours == (one.implementation == "pathcast-udp")


def test_versions_are_those_of_the_lock_files():
    """A scheme's version is that of the implementation that its wrapper is built with."""
    packages = tomllib.loads((WRAPPERS / "rust" / "Cargo.lock").read_text())["package"]
    locked = {(one["name"], one["version"]) for one in packages}
    for one in catalog().values():
        if (one.build or "").startswith("rust/"):
            assert (one.implementation, one.version) in locked, one.name
    known = catalog()
    assert f"quic-go v{known['quic-go-reno'].version}" in (WRAPPERS / "quic-go/go.mod").read_text()
    node = json.loads((WRAPPERS / "utp-native/package-lock.json").read_text())
    version = node["packages"]["node_modules/utp-native"]["version"]
    assert version == known["libutp-ledbat"].version
    pinned = (WRAPPERS / "libtorrent/requirements.txt").read_text()
    assert f"libtorrent=={known['libtorrent-ledbat'].version} " in pinned


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("name", "namee"), "key 'namee' is unknown; did you mean 'name'?"),
        (('licence = "MIT"', ""), "key 'licence' is missing; expected text in quotes"),
        (('"udp"', '"upd"'), "transport is 'upd'; expected tcp or quic or utp or rtp or udp"),
        (('"mine"', '"Mine!"'), "name is 'Mine!'; expected 1 to 40"),
        (('"1"', "1"), "version is 1; expected text in quotes"),
        (("{bytes}", "{size}"), "sender has {size}; expected one of {address}"),
        (("{address}:{port}", "x"), "receiver has no {port}"),
        (('"{bytes}"]', "7]"), "sender has 7; expected words in quotes"),
        (("transport", 'build = "../x"\ntransport'), "build is '../x'; expected the folder"),
        (('name = "mine"', "name ="), "is not TOML"),
    ],
)
def test_wrong_files_are_refused_with_the_reason(home, change, said):
    file = home / "mine.toml"
    file.write_text(GOOD.replace(*change))
    with pytest.raises(SchemeError) as refused:
        Scheme.read(file)
    assert said in str(refused.value)
    assert str(refused.value).startswith(str(file))


def test_wrong_files_break_no_others(home, monkeypatch):
    (home / "wrong.toml").write_text("name = 1")
    (home / "taken.toml").write_text(GOOD.replace('"mine"', '"tcp-cubic"'))
    (home / "mine.toml").write_text(GOOD)
    (home / "large.toml").write_text("#" * 100_000)
    monkeypatch.setenv("PATHCAST_SCHEMES", f"{home}:{home / 'none'}")
    assert {"mine", "tcp-cubic"} <= set(catalog())
    assert catalog()["tcp-cubic"].implementation == "Linux TCP"
    said = "\n".join(scheme.refused())
    for part in (
        "wrong.toml",
        "'tcp-cubic' is that of",
        "large.toml: is larger",
        "none is no folder",
    ):
        assert part in said
    done = run("schemes", "list")
    assert done.returncode == 0
    assert "wrong.toml" in done.stderr
    assert "mine" in done.stdout


def test_the_list_builds_nothing_and_is_fast(home):
    began = time.monotonic()
    done = run("schemes", "list", "--json")
    took_s = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    listed = {one["name"]: one for one in json.loads(done.stdout)}
    assert set(listed) == set(catalog())
    keys = {
        *("name", "implementation", "version", "licence", "works", "why_not"),
        *("goodput_bps", "delay_p95_ms"),
    }
    assert all(keys <= set(one) for one in listed.values())
    assert listed["tcp-cubic"]["why_not"] is None
    assert listed["tcp-cubic"]["version"] == os.uname().release
    # there is no cache here: what needs a build is not built, or lacks a program
    assert all(one["why_not"] for name, one in listed.items() if catalog()[name].build is not None)
    assert not (home / "cache").exists()
    assert took_s < 10


def test_missing_programs_are_named_with_their_packages(home, monkeypatch):
    monkeypatch.setenv("PATH", str(home))
    said = build.missing(catalog()["quic-go-reno"])
    assert said == "there is no go; on Debian: apt-get install golang-go"
    with pytest.raises(SchemeError, match="quic-go-reno cannot be built: there is no go"):
        build.prepare(catalog()["quic-go-reno"])


def test_a_scheme_of_ones_own_is_added_and_found_by_name(home):
    file = home / "here" / "mine.toml"
    file.parent.mkdir()
    file.write_text(GOOD)
    added = run("schemes", "add", file)
    assert added.returncode == 0, added.stderr
    assert "mine: added" in added.stdout
    assert catalog()["mine"].command("sender", {"folder": "F", "address": "A", "port": "1", "bytes": "0"}) == [
        *("F/mine", "send", "A:1", "0")
    ]  # fmt: skip
    assert catalog()["mine"].folder == file.parent
    assert run("schemes", "add", file).returncode == 0, "again"
    other = home / "other.toml"
    other.write_text(GOOD)
    refused = run("schemes", "add", other)
    assert refused.returncode == 2
    assert "name 'mine' is taken" in refused.stderr


def test_unknown_names_are_refused_with_the_nearest(home):
    for command in ("check", "build"):
        done = run("schemes", command, "tcp-cubbic")
        assert done.returncode == 2
        assert "scheme 'tcp-cubbic' is unknown; did you mean 'tcp-cubic'?" in done.stderr
    assert "--tier is 'all'" in run("schemes", "check", "--tier", "all").stderr


def test_a_change_of_a_source_is_another_build(home, monkeypatch):
    wrapper = home / "wrapper"
    wrapper.mkdir()
    (wrapper / "recipe.toml").write_text('commands = [["cp", "program", "{built}/program"]]\n')
    (wrapper / "program").write_text("#!/bin/sh\necho one\n")
    (home / "mine.toml").write_text(f'build = "wrapper"\n{GOOD}')
    monkeypatch.setenv("PATHCAST_SCHEMES", str(home))
    first = build.prepare(catalog()["mine"])
    assert build.prepare(catalog()["mine"]).built == first.built
    (wrapper / "program").write_text("#!/bin/sh\necho two\n")
    assert not build.is_built(catalog()["mine"])
    second = build.prepare(catalog()["mine"])
    assert second.built != first.built
    assert [(made.built / "program").read_text()[-4:] for made in (first, second)] == [
        "one\n",
        "two\n",
    ]
    assert stat.S_ISDIR(first.built.stat().st_mode)


def test_the_example_is_the_one_of_the_docs(home):
    page = (ROOT / "docs/how-to/schemes.md").read_text()
    for name in ("go-reno.toml", "recipe.toml"):
        shown = tomllib.loads((ROOT / "examples/scheme" / name).read_text())
        for key, value in shown.items():
            if key not in ("queue", "simulator"):
                assert f"{key} = " in page, (name, key)
                assert json.dumps(value) in page or isinstance(value, dict), (name, key)
