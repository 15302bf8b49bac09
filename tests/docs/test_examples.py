"""Every example in the docs runs: Python blocks, path files, commands."""

import re
import shlex
import subprocess
import sys

import pytest

import pathcast
from conftest import ROOT, run
from pathcast.experiments.schemes.plan import Plan

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language):
    """All fenced blocks of a language, with the page that they stand on."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```", re.M | re.S)
    return [
        pytest.param(block, id=f"{page.name}-{number}")
        for page in PAGES
        for number, block in enumerate(pattern.findall(page.read_text()))
    ]


@pytest.mark.parametrize("block", blocks("python"))
def test_python_examples_run(block, monkeypatch):
    monkeypatch.chdir(ROOT)
    exec(compile(block, "example", "exec"), {})


@pytest.mark.parametrize("block", blocks("toml"))
def test_files_in_the_docs_are_what_they_say(block, tmp_path):
    file = tmp_path / "example.toml"
    file.write_text(block)
    if "[[resources]]" in block:
        pathcast.Page.load(file)
    elif "schemes = [" in block:
        Plan.load(file)
    else:
        pathcast.scenario.load(file)


@pytest.mark.parametrize("file", sorted((ROOT / "paths").glob("*.toml")), ids=lambda f: f.name)
def test_paths_that_ship_can_be_run(file):
    report, _ = pathcast.simulate(pathcast.Path.load(file), duration_s=2, record=False)
    assert report.packets_delivered > 0


@pytest.mark.parametrize("file", sorted((ROOT / "scenarios").glob("*.toml")), ids=lambda f: f.name)
def test_scenarios_that_ship_can_be_run(file):
    scenario = pathcast.Scenario.load(file)
    report, _ = pathcast.simulate(scenario, record=False)
    assert len(report.flows) == len(scenario.schemes)
    assert all(flow.delivered_bytes > 0 for flow in report.flows)


def test_commands_of_the_readme_run(tmp_path):
    text = (ROOT / "README.md").read_text()
    commands = [
        line for block in re.findall(r"```sh\n(.*?)```", text, re.S) for line in block.splitlines()
    ]
    commands = [shlex.split(line)[1:] for line in commands if line.startswith("pathcast ")]
    assert {words[0] for words in commands} >= {"simulate", "predict", "watch", "sweep", "shell"}
    for folder in ("paths", "scenarios"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for words in commands:
        if words[0] in ("watch", "shell"):
            continue  # in tests/cli: these want the kernel
        done = run(*words, cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert len(text.split()) <= 900


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_pages_that_sources_name_are_there():
    sources = [
        file
        for folder in ("crates", "python", "benches", "examples", "scripts")
        for kind in ("*.py", "*.rs", "*.html")
        for file in (ROOT / folder).rglob(kind)
    ]
    named = {
        (page, source.name)
        for source in sources
        for page in re.findall(r"\bdocs/[\w/-]+\.md", source.read_text())
    }
    assert len(named) > 50
    assert [one for one in sorted(named) if not (ROOT / one[0]).exists()] == []


def test_the_map_names_every_crate():
    text = (ROOT / "docs" / "architecture.md").read_text()
    for crate in sorted(path.name for path in (ROOT / "crates").iterdir()):
        assert re.search(rf"^  {crate} ", text, re.M), crate


def test_a_path_file_may_name_a_trace_in_its_folder(tmp_path):
    # 12 Mbit/s: an opportunity of 1504 bytes each millisecond
    (tmp_path / "link.trace").write_text("".join(f"{ms}\n" for ms in range(1, 101)))
    file = tmp_path / "cell.toml"
    file.write_text("rate = { kind = 'mahimahi', file = 'link.trace' }\ndelay = '20 ms'\n")
    path = pathcast.Path.load(file)
    report, _ = pathcast.simulate(path, duration_s=10, record=False)
    assert 10.5e6 < report.flows[0].goodput_bps < 12e6
    assert pathcast.Path.parse(path.toml) == pathcast.Path.parse(
        pathcast.Path.parse(path.toml).toml
    )
    (tmp_path / "link.trace").write_text("5\n3\n")
    with pytest.raises(pathcast.PathFileError, match=r"link\.trace"):
        pathcast.Path.load(file)
    with pytest.raises(pathcast.PathFileError, match="file"):
        pathcast.Path.parse(file.read_text())


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda f: f.stem)
def test_scripts_to_begin_with_run(script):
    done = subprocess.run(
        [sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda f: f.stem)
def test_notebooks_run_and_show_what_they_did(file):
    import nbformat
    from nbclient import NotebookClient

    def printed(notebook):
        # a busy machine hands one cell's text over in several pieces
        return [
            "".join(o["text"] for o in cell.get("outputs", ()) if o["output_type"] == "stream")
            for cell in notebook.cells
        ]

    notebook = nbformat.read(file, 4)
    kept = printed(notebook)
    place = {"metadata": {"path": str(file.parent)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=place).execute()
    assert any(kept)
    assert printed(notebook) == kept


def commands_in(page):
    """The commands of a page's shell blocks, without what a shell makes of them."""
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.M | re.S):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            words = shlex.split(line.strip(), comments=True)
            if "pathcast" in words:
                rest = words[words.index("pathcast") + 1 :]
                ends = [
                    i for i, word in enumerate(rest) if word in ("|", ">", "2>", "&", "&&", ";")
                ]
                yield rest[: ends[0]] if ends else rest


def test_commands_in_the_docs_have_their_options():
    """Each command and option is there; whether it works is the business of the command's own tests."""
    from pathcast.cli import _wrong_arguments
    from pathcast.cli.commands import COMMANDS, load

    seen, wrong = 0, []
    for page in PAGES:
        for words in commands_in(page):
            name = next((n for n in (" ".join(words[:2]), words[0]) if n in COMMANDS), None)
            if name is None and (words[0].endswith((".toml", ".parquet")) or words[0] == "FILE"):
                continue
            seen += 1
            try:
                if name is None:
                    raise KeyError("no such command")
                command = load(name)
                rest = words[len(name.split()) :]
                commands = getattr(command, "commands", None)
                if commands and rest and not rest[0].startswith("-"):
                    command, rest = commands[rest[0]], rest[1:]
                command.make_parser(command.context_class(command)).parse_args(args=list(rest))
            except (_wrong_arguments(), KeyError) as error:
                wrong.append(f"{page.name}: pathcast {' '.join(words)}: {error}")
    assert not wrong
    assert seen > 60


@pytest.mark.parametrize("name", ["first-forecast", "compare-two-controllers"])
def test_commands_of_a_tutorial_run(name, tmp_path):
    page = ROOT / "docs" / "tutorial" / f"{name}.md"
    files = re.findall(r"Save this as `(\S+)`.*?^```toml\n(.*?)^```", page.read_text(), re.M | re.S)
    assert files
    for file, toml in files:
        (tmp_path / file).write_text(toml)
    ran = 0
    for words in commands_in(page):
        if words[0] == "emulate":
            words[0] = (
                "simulate"  # the kernel is for tests/cli; later commands read what this writes
            )
        done = run(*words, cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)
        ran += 1
    assert ran >= 4
