"""Who may know whom, and how long things may be: docs/architecture.md, "Dependencies run one way".

What breaks a rule today stands here by name. A list may only get shorter: who mends an entry takes it off.
"""

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CRATES = ROOT / "crates"
PYTHON = ROOT / "python"

#: What each crate may use of ours.
MAY_USE = {
    "base": set(),
    "path": {"base"},
    "agent": {"control", "netns", "probe"},
    "netns": set(),
    "kernel-schemes": set(),
    "window-law": set(),
    "netcalc": set(),
    "congestion": {"base", "window-law"},
    "analysis": {"window-law"},
    "forecast": {"analysis", "window-law"},
    "transfer": {"analysis", "forecast", "window-law"},
    "rates": set(),
    "video": {"rates"},
    "trace": {"congestion", "video"},
    "tcp": {"base", "congestion"},
    "udp": {"base", "congestion", "tcp"},
    "page": {"path"},
    "page-model": {"path", "scenario", "window-law"},
    "control": set(),
    "decide": {
        "analysis",
        "page-model",
        "path",
        "rates",
        "scenario",
        "transfer",
        "window-law",
    },
    "web": set(),
    "manager": {"control", "web"},
    "service": {"analysis", "decide", "probe", "scenario", "trace", "web", "window-law"},
    "scenario": {"page", "path", "video"},
    "probe": {"base", "trace"},
    "quic": {"scenario", "trace"},
    "sim": {"congestion", "path", "quic", "scenario", "tcp", "trace"},
    "emulator": {
        "base",
        "kernel-schemes",
        "netns",
        "path",
        "probe",
        "quic",
        "scenario",
        "trace",
    },
    "live": {"base", "kernel-schemes", "netns", "path", "probe", "scenario", "trace"},
}
#: Crates that open no file, read no clock and start no thread.
PURE = (
    "base",
    "path",
    "page",
    "page-model",
    "rates",
    "video",
    "decide",
    "control",
    "congestion",
    "tcp",
    "window-law",
    "analysis",
    "forecast",
    "transfer",
    "netcalc",
)
#: All that reads the machine's clocks in them, by a feature for the others.
CLOCK = CRATES / "base" / "src" / "clock.rs"

MOST_LINES = 600
MOST_LINES_OF_A_FUNCTION = 100


def sources(folder, pattern):
    return sorted(file for file in folder.rglob(pattern) if "target" not in file.parts)


RUST = [
    file
    for crate in sorted(CRATES.iterdir())
    for file in sources(crate / "src", "*.rs")
    if "tests" not in file.parts and not file.stem.endswith("tests")
]
MODULES = sources(PYTHON / "pathcast", "*.py")


def named(file):
    return str(file.relative_to(ROOT))


def module_of(file):
    parts = file.relative_to(PYTHON).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {module_of(file): ast.parse(file.read_text()) for file in MODULES}


def imports_of(module):
    """The modules of ours that a module imports, wherever it does."""
    found = set()
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in TREES}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found |= {name for name in (inner, node.module) if name in TREES}
                if inner in TREES:
                    found.discard(node.module)
    return found - {module}


def is_under(module, package):
    return module == package or module.startswith(f"{package}.")


def circles(graph):
    """Strongly connected parts of three members or more, each as a sorted tuple (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], set()

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            at = stack.index(node)
            members = stack[at:]
            del stack[at:]
            if len(members) > 2:
                found.add(tuple(sorted(members)))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def manifest(crate):
    return tomllib.loads((CRATES / crate / "Cargo.toml").read_text())


def test_crates_use_what_they_may_and_nothing_else():
    found = {folder.name for folder in CRATES.iterdir() if (folder / "Cargo.toml").exists()}
    assert found == MAY_USE.keys() | {"python"}
    for crate, allowed in MAY_USE.items():
        used = {
            name.removeprefix("pathcast-")
            for name in manifest(crate).get("dependencies", {})
            if name.startswith("pathcast-")
        }
        assert used <= allowed, crate


def test_the_rules_of_crates_have_no_circle():
    reached = {}

    def below(crate):
        if crate not in reached:
            reached[crate] = set()
            reached[crate] |= MAY_USE[crate].union(*(below(other) for other in MAY_USE[crate]))
        return reached[crate]

    assert all(crate not in below(crate) for crate in MAY_USE)


@pytest.mark.parametrize("crate", PURE)
def test_pure_crates_have_no_files_clocks_or_threads(crate):
    outside = re.compile(
        r"\bstd::(fs|process|thread|os)\b|\b(Tcp|Udp|Unix)(Stream|Socket|Listener)\b"
        r"|\b(SystemTime|Instant)::now\b|\bclock_gettime\b|\bclock::"
    )
    for file in RUST:
        if not file.is_relative_to(CRATES / crate) or file == CLOCK:
            continue
        code = re.sub(r"//.*", "", file.read_text().partition("#[cfg(test)]")[0])
        assert not outside.search(code), named(file)


def test_only_the_command_line_knows_the_command_line():
    for module in TREES:
        if not is_under(module, "pathcast.cli"):
            assert not {one for one in imports_of(module) if is_under(one, "pathcast.cli")}, module


def test_the_engine_knows_no_experiment_and_the_library_no_more_than_worlds():
    experiments, engine = "pathcast.experiments", "pathcast.experiments.engine"
    for module in TREES:
        known = {one for one in imports_of(module) if is_under(one, experiments)}
        if is_under(module, engine):
            assert all(is_under(one, engine) for one in known), module
        elif is_under(module, experiments):
            own = ".".join(module.split(".")[:3])
            assert all(is_under(one, own) or is_under(one, engine) for one in known), module
        elif not is_under(module, "pathcast.cli"):
            assert known <= {f"{engine}.world"}, module


def test_modules_of_python_import_each_other_in_pairs_at_most():
    found = circles({module: imports_of(module) for module in TREES if module != "pathcast"})
    assert found == set()


def calls(module):
    """Name of what is called last, as in `.mkdir(...)`, and the call."""
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Call):
            function = node.func
            name = (
                function.attr
                if isinstance(function, ast.Attribute)
                else getattr(function, "id", "")
            )
            yield name, node


def test_nothing_but_the_engine_owns_a_folder_of_runs():
    owners = {
        module
        for module in TREES
        for name, _ in calls(module)
        if name in ("mkdir", "flock", "makedirs")
        # caches of builds, and folders that end with their run
        and not is_under(module, "pathcast.schemes")
    }
    assert owners == {"pathcast.experiments.engine.store"}


def test_no_module_edits_the_text_of_paths_and_scenarios():
    def is_text(node):
        return (isinstance(node, ast.Attribute) and node.attr == "toml") or (
            isinstance(node, ast.Name) and node.id == "toml"
        )

    editors = set()
    for module, tree in TREES.items():
        for name, call in calls(module):
            of = call.func.value if isinstance(call.func, ast.Attribute) else None
            if (name == "replace" and is_text(of)) or (
                name in ("sub", "search", "finditer", "match") and any(map(is_text, call.args))
            ):
                editors.add(module)
        for node in ast.walk(tree):
            if isinstance(node, ast.Subscript) and is_text(node.value):
                editors.add(module)
    assert not editors


def test_files_are_no_longer_than_one_reads():
    long = {
        named(file) for file in (*RUST, *MODULES) if len(file.read_text().splitlines()) > MOST_LINES
    }
    assert not long


def functions_of_rust(file):
    """Name and number of lines, by the indentation that rustfmt gives."""
    lines = file.read_text().splitlines()
    for begin, line in enumerate(lines):
        head = re.match(r"( *)(?:pub(?:\([a-z]+\))? )?(?:const |unsafe |async )*fn (\w+)", line)
        if head is None:
            continue
        for end in range(begin, len(lines)):
            if lines[end].startswith(f"{head[1]}}}") or (lines[end].endswith(";") and end == begin):
                yield head[2], end - begin + 1
                break


def test_functions_have_no_more_lines_than_one_sees():
    long = {
        f"{named(file)} {name}"
        for file in RUST
        for name, lines in functions_of_rust(file)
        if lines > MOST_LINES_OF_A_FUNCTION
    }
    for module, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.body:
                # declared parameters of a command are its help, and not counted
                lines = node.end_lineno - node.body[0].lineno + 1
                if lines > MOST_LINES_OF_A_FUNCTION:
                    long.add(f"{module} {node.name}")
    assert not long


def files_of_rust_that_use_each_other(crate):
    """For each file of a crate those whose names it imports by `crate::`."""
    graph = defaultdict(set)
    folder = CRATES / crate / "src"
    by_path = {}
    for file in RUST:
        if file.is_relative_to(folder):
            parts = file.relative_to(folder).with_suffix("").parts
            parts = parts[:-1] if parts[-1] in ("mod", "lib") else parts
            by_path[parts] = named(file)
    for file in by_path.values():
        code = re.sub(r"//.*", "", (ROOT / file).read_text().partition("#[cfg(test)]")[0])
        for used in re.findall(r"\bcrate::((?:[a-z_0-9]+::)*)", code):
            path = tuple(filter(None, used.split("::")))
            while path and path not in by_path:
                path = path[:-1]
            if path and by_path[path] != file:
                graph[file].add(by_path[path])
    return graph


@pytest.mark.parametrize("crate", sorted(MAY_USE))
def test_files_of_a_crate_use_each_other_in_pairs_at_most(crate):
    assert circles(files_of_rust_that_use_each_other(crate)) == set()
