"""`scripts/test` goes through to its end and sums up, in a toy repository that has one test of each kind."""

import importlib.machinery
import importlib.util
import sys
import textwrap

import pytest

from conftest import ROOT

RUST = """
#[test] fn passes() { println!("failures:\\ntest result: ok. 5 passed; 0 failed; 0 ignored"); }
#[test] fn fails() { panic!("wrong") }
#[test] fn skips() { eprintln!("skipped: no such device"); }
#[test] #[ignore] fn is_called_by_another() {}
"""
PYTHON = """
import pytest
def test_passes(): pass
def test_fails(): assert 1 == 2
def test_skips(): pytest.skip("no such kernel")
@pytest.mark.full
def test_repeats(): assert 1 == 2
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The script as a module, that works in a toy repository."""
    loader = importlib.machinery.SourceFileLoader("scripts_test", str(ROOT / "scripts/test"))
    spec = importlib.util.spec_from_loader("scripts_test", loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "scripts_test", module)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    for file, text in {
        "Makefile": "build:\n\t@echo built\n",
        "Cargo.toml": "[package]\nname = 'toy'\nversion = '0.0.0'\nedition = '2024'\n[lib]\npath = 'toy.rs'\n",
        "Cargo.lock": "version = 4\n[[package]]\nname = 'toy'\nversion = '0.0.0'\n",
        "toy.rs": RUST,
        "test_toy.py": PYTHON,
        "pytest.ini": "[pytest]\naddopts = -ra -m 'not full'\nmarkers = full: long\n",
    }.items():
        (tmp_path / file).write_text(textwrap.dedent(text))
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(module, "CARGO", ["--workspace", "--locked", "--offline"])
    monkeypatch.setattr(module, "LINTS", {"form": ["true"], "types": ["false"]})
    monkeypatch.setattr(sys, "argv", ["scripts/test"])
    for name in ("PYTEST_ADDOPTS", "CARGO_TARGET_DIR", "MAKEFLAGS"):
        monkeypatch.delenv(name, raising=False)
    return module


def test_every_part_runs_and_is_summed_up_whatever_fails(script, capfd):
    assert script.main() == 1
    said = capfd.readouterr().out
    before, summary = said.split("== summary\n")
    assert "test result: FAILED. 2 passed; 1 failed; 1 ignored" in before
    assert "1 failed, 1 passed, 1 skipped" in before
    assert summary.splitlines()[:9] == [
        "lint     1 passed, 1 failed",
        "rust     1 passed, 1 failed, 1 skipped, 1 ignored",
        "python   1 passed, 1 failed, 1 skipped, 1 only in test-full",
        "skipped  rust: toy skips: no such device",
        "skipped  python: test_toy::test_skips: no such kernel",
        "FAILED   lint: types",
        "FAILED   rust: toy fails",
        "FAILED   python: test_toy::test_fails",
        "what the runners printed is in logs/",
    ]


def test_what_cannot_be_built_is_a_failure_and_the_rest_still_runs(script, tmp_path, capfd):
    (tmp_path / "Makefile").write_text("build:\n\tfalse\n")
    (tmp_path / "toy.rs").write_text("this is no Rust")
    assert script.main() == 1
    summary = capfd.readouterr().out.split("== summary\n")[1]
    assert "FAILED   build: make build\n" in summary
    assert "FAILED   rust: error: " in summary
    assert "FAILED   python: not run: there is no build\n" in summary


def test_without_failures_it_ends_well(script, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(script, "LINTS", {"form": ["true"]})
    (tmp_path / "toy.rs").write_text("#[test] fn passes() {}\n")
    (tmp_path / "test_toy.py").write_text("def test_passes(): pass\n")
    assert script.main() == 0
    assert "FAILED" not in capfd.readouterr().out


def test_the_whole_of_it_has_no_other_option(script, monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", ["scripts/test", "--quick"])
    assert script.main() == 2
    assert "usage: scripts/test [--full]" in capfd.readouterr().out
