"""What is imported when, since people wait for it; `benches/startup.py` measures how long."""

import ast
import json
import os
import re
import subprocess
import sys

import pytest

import pathcast
from conftest import PATHCAST, ROOT, run

#: Packages that take long to import, and that most commands do not need.
HEAVY = {
    "matplotlib",
    "pandas",
    "sklearn",
    "pyarrow",
    "ray",
    "scipy",
    "arch",
    "statsmodels",
    "jinja2",
}


def imported_by(statements, *arguments):
    """The packages in a new Python after these statements."""
    program = f"import json, sys\n{statements}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    *printed, modules = done.stdout.splitlines()
    return set(json.loads(modules)), printed


def imported_by_command(*arguments):
    """The same of the command line, run in that Python."""
    return imported_by(
        f"sys.argv = {['pathcast', *arguments]}\n"
        "from pathcast.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code",
    )


def test_the_package_alone_imports_nothing_of_others():
    modules, _ = imported_by("import pathcast")
    assert not modules & (HEAVY | {"numpy", "typer", "rich", "pathcast._internal"})


def test_the_version_is_printed_without_the_command_line_library():
    modules, printed = imported_by_command("--version")
    assert printed == [pathcast.__version__]
    assert not modules & (HEAVY | {"numpy", "typer", "rich", "pathcast.runs"})


def test_the_version_is_the_installed_one():
    from importlib.metadata import version

    assert pathcast.__version__ == version("pathcast")
    assert run("--version").stdout == f"{version('pathcast')}\n"


def test_the_version_is_also_an_option_among_others():
    done = run("--version", "simulate")
    assert (done.returncode, done.stdout) == (0, f"{pathcast.__version__}\n")


def test_simulate_imports_neither_numpy_nor_what_draws(path_file):
    file = path_file("rate = '12 Mbit/s'\ndelay = '30 ms'\n")
    modules, printed = imported_by_command("simulate", str(file), "--duration", "1")
    assert any("packets delivered" in line for line in printed)
    assert not modules & (HEAVY | {"numpy", "multiprocessing", "rich.progress"})


def test_the_list_of_commands_imports_none_of_them():
    modules, printed = imported_by_command("--help")
    assert any("attainable-rate" in line for line in printed)
    assert not modules & (HEAVY | {"numpy", "pathcast.runs", "pathcast.models"})


def test_no_command_imports_what_draws_before_it_draws():
    modules, _ = imported_by(
        "from pathcast.cli.commands import COMMANDS, load\nfor name in COMMANDS:\n    load(name)"
    )
    assert "pathcast.report.plots" in modules
    assert "matplotlib" not in modules


def test_a_commands_own_help_imports_it():
    modules, printed = imported_by_command("bound", "--help")
    assert "pathcast.cli.bound" in modules
    assert any("--" in line for line in printed)


def test_the_table_of_commands_says_what_the_commands_say():
    from typer.main import get_command

    from pathcast.cli.commands import COMMANDS, HIDDEN, app, load

    whole = get_command(app)
    for name, listed in COMMANDS.items():
        real = load(name)
        assert real.name == name
        assert real.hidden == (listed.group == HIDDEN)
        assert not real.deprecated
        if real.callback is not None and real.callback.__doc__ and listed.attribute != "app":
            said = " ".join(real.callback.__doc__.split("\n\n")[0].split())
            assert listed.help == said, name
    assert list(whole.commands) == list(COMMANDS)
    assert list(load("predict").commands) == [
        *("throughput", "transfer", "download", "bound", "page", "bitrate")
    ]


def test_the_help_of_each_command_has_an_example_and_is_short_before_its_options():
    from typer.testing import CliRunner

    from pathcast.cli.commands import COMMANDS, app, load

    names = dict.fromkeys(name for name, listed in COMMANDS.items() if listed.example is not None)
    groups = [name for name in COMMANDS if name not in names]
    names |= {f"{name} {sub}": None for name in groups for sub in load(name).commands}
    assert {"live run", "path list", "benchmark attainable-rate", "predict throughput"} <= set(
        names
    )
    for name in (*names, *groups):
        done = CliRunner().invoke(app, [*name.split(), "--help"], prog_name="pathcast")
        assert done.exit_code == 0, name
        before = done.stdout.partition("─ Options")[0]
        assert len(before.splitlines()) <= 24, name
        if name in names:
            assert f"Example: pathcast {name}" in before, name
        assert "docs/" not in done.stdout, name


def test_examples_of_the_help_have_options_that_exist():
    from pathcast.cli.commands import COMMANDS, load

    for name, listed in COMMANDS.items():
        known = {option for one in load(name).params for option in (*one.opts, *one.secondary_opts)}
        asked = re.findall(r"(?<!\S)(--?[a-z-]+)", (listed.example or "").partition(" -- ")[0])
        assert set(asked) <= known, name


def test_former_names_work_and_are_not_listed():
    listed = run("--help").stdout
    for former, name in (("latency", "predict transfer"), ("bound", "predict bound")):
        assert f"│ {name} " in listed
        assert f"│ {former} " not in listed
        assert run(former, "--help").returncode == 0
    asked = ("--rtt", 0.05, "--rate", "20 Mbit/s", "--json")
    assert run("latency", *asked).stdout == run("predict", "transfer", *asked).stdout


@pytest.mark.parametrize(
    ("words", "completed"),
    [("pathcast pre", ["predict"]), ("pathcast predict tr", ["transfer"]), ("pathcast simulate --du", ["--duration"])],
)  # fmt: skip
def test_shells_can_complete_commands_and_options(words, completed):
    asked = {
        "_PATHCAST_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run(
        [str(PATHCAST)], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == completed


def test_options_are_written_small():
    """Some versions of the library take an option's placeholder for its name."""
    from pathcast.cli.commands import COMMANDS, load

    commands = [load(name) for name in COMMANDS]
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert all(name == name.lower() for name in parameter.opts), parameter.opts


def test_every_command_of_the_modules_is_in_the_table():
    """A function that looks like a command and is in no table could not be run."""
    from pathcast.cli.commands import COMMANDS

    modules = {file.stem for file in (ROOT / "python/pathcast/cli").glob("*.py")}
    modules -= {"__init__", "benchmark_schemes", "commands", "console", "kept_runs", "options"}
    assert {command.module for command in COMMANDS.values()} == modules


def test_an_unknown_command_is_refused_with_the_nearest():
    done = run("simulat")
    assert done.returncode == 2
    assert "No such command 'simulat'" in done.stderr
    assert "simulate" in done.stderr
    # a former name, which works and is not listed, is near as well
    said = " ".join(run("simulte").stderr.split())
    assert "'simulate'" in said and "'estimate'" not in said
    assert "'predict'" in run("predct").stderr


def test_no_function_of_the_package_has_the_name_of_a_module():
    modules = {file.stem for file in (ROOT / "python/pathcast").iterdir()}
    functions = {name for name in pathcast.__all__ if callable(getattr(pathcast, name))}
    assert not modules & functions


def test_modules_are_attributes_without_an_import():
    imported_by(
        "import pathcast\n"
        "assert pathcast.runs.simulate is pathcast.simulate\n"
        "assert pathcast.models.fit is pathcast.fit\n"
        "assert pathcast.exceptions.PathcastError is pathcast.PathcastError"
    )


def test_all_public_names_are_there_and_no_others():
    for name in pathcast.__all__:
        assert getattr(pathcast, name) is not None
        assert name in dir(pathcast)
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = pathcast.simulat
    with pytest.raises(ImportError, match="cannot import name 'simulat'"):
        from pathcast import simulat  # noqa: F401


def test_type_checkers_see_the_same_names_from_the_same_modules():
    tree = ast.parse((ROOT / "python/pathcast/__init__.py").read_text())
    (checked,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If)
        and "TYPE" in ast.dump(node.test)
        and not isinstance(node.test, ast.UnaryOp)
    )
    seen = {
        name.name: statement.module.removeprefix("pathcast.")
        for statement in checked.body
        for name in statement.names
    }
    assert seen == pathcast._MODULE_OF
    assert set(seen) == {*pathcast.__all__, "__version__"}


def test_the_command_is_the_one_under_test():
    assert PATHCAST.exists()


def test_what_ray_leaves_behind_does_not_change_how_a_command_ends():
    # frees what threads of Ray may still use: a crash, with the C library's own list of what to do at the end
    program = (
        "import ctypes, sys\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)\n"
        "import ray\n"
        "from pathcast.cli import main\n"
        "main()"
    )
    ends = {"help": 0, "no-such-command": 2}
    for argument, code in ends.items():
        command = [sys.executable, "-c", program, argument]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert (done.stdout or done.stderr).strip()
