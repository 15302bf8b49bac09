"""`scripts/prose`: long sentences and house words, in pages, docstrings and comments."""

import subprocess
import sys

import pytest

from conftest import ROOT


def checked(file):
    command = [sys.executable, str(ROOT / "scripts" / "prose"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.md", "One sentence of this page has " + "very " * 40 + "many words.\n", "48 words"),
        ("a.md", "The error is mended.\n", "'mended', say fixed"),
        ("a.rs", "fn f() {\n    g(); // nobody is told\n}\n", "a.rs:2: 'told'"),
        ("a.rs", "/// Packets under\n/// way, and under way.\nfn f() {}\n", "a.rs:2: 'under way'"),
        ("a.py", '"""A module.\n\nIt bears more.\n"""\n', "a.py:3: 'bears'"),
        ("a.py", "x = 1  #: what came of it\n", "a.py:1: 'what came of it'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, name, text, said):
    file = tmp_path / name
    file.write_text(text)
    code, output = checked(file)
    assert code == 1
    assert said in output


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "A page. `told` is code.\n"),
        ("a.rs", '/// Calls `tell`.\nfn f() {\n    g("https://way.back // told");\n}\n'),
        ("a.py", '"""Raise it.\n\nArgs:\n    told: how many.\n\n"""\nx = "told"  # a text\n'),
    ],
)
def test_names_and_texts_may_be_anything(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text)
    assert checked(file) == (0, "")
