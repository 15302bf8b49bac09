"""Wrappers that are built on demand, once, into a cache.

A wrapper's folder has `recipe.toml`:

    programs = ["go"]                # that must be here, with the Debian package of each
    packages = ["golang-go"]
    commands = [["go", "build", "-o", "{built}/quic-go", "."]]
    sources = ["."]                  # what the digest counts, from the folder; default: all in it
    copies = []                      # files that are copied to {built} first
    readable = []                    # further folders that the program reads when it runs
    environment = {}
    most_s = 1800                    # how long it may take

Command lines may name `{built}`, `{cache}`, `{folder}` and `{python}`. The result is kept under the digest of recipe and
sources, so that a new version is built anew and an old one stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath

from pathcast.exceptions import SchemeError
from pathcast.schemes.scheme import WRAPPERS, Scheme

#: How long a build may take unless its recipe says, in seconds.
MOST_S = 1800.0
_COMPLETE = "complete"
#: What is no source: the results of builds beside them.
_NO_SOURCE = {"target", "node_modules", "__pycache__", ".venv"}
#: How much of a failed build's log an error has.
_TAIL_LINES = 4


@dataclass(frozen=True)
class Recipe:
    """How a wrapper is built."""

    folder: FilePath
    programs: tuple[str, ...]
    packages: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...] = (".",)
    copies: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    most_s: float = MOST_S

    @classmethod
    def read(cls, folder: FilePath) -> Recipe:
        """Read the recipe of a wrapper's folder.

        Raises:
            SchemeError: there is none, or it is wrong.

        """
        file = folder / "recipe.toml"
        try:
            keys = tomllib.loads(file.read_text())
            commands = tuple(tuple(map(str, line)) for line in keys.pop("commands"))
            environment = tuple(sorted(dict(keys.pop("environment", {})).items()))
            most_s = float(keys.pop("most_s", MOST_S))
            lists = {name: tuple(map(str, value)) for name, value in keys.items()}
            lists = {"programs": (), "packages": ()} | lists
            return cls(folder, **lists, commands=commands, environment=environment, most_s=most_s)
        except OSError as error:
            raise SchemeError(f"{file}: cannot be read: {error.strerror}") from None
        except (KeyError, TypeError, ValueError) as error:
            raise SchemeError(f"{file}: is no recipe: {error}") from None

    def files(self) -> Iterator[FilePath]:
        """What the digest counts, in order."""
        yield self.folder / "recipe.toml"
        for name in sorted(self.sources):
            source = (self.folder / name).resolve()
            if source.is_file():
                yield source
            for file in sorted(source.rglob("*")) if source.is_dir() else ():
                if file.is_file() and not _NO_SOURCE & set(file.relative_to(source).parts):
                    yield file

    def digest(self) -> str:
        """Of recipe and sources, and of the Python that runs scripts."""
        found = hashlib.sha256(f"{sys.version_info[:2]} {os.uname().machine}".encode())
        for file in self.files():
            content = file.read_bytes()
            found.update(f"\0{file.name}\0{len(content)}\0".encode())
            found.update(content)
        return found.hexdigest()[:16]


@dataclass(frozen=True)
class Prepared:
    """A scheme that can be run.

    Attributes:
        scheme: which.
        built: the folder of its built wrapper, if it has one.
        readable: what its programs may read.

    """

    scheme: Scheme
    built: FilePath | None
    readable: tuple[str, ...]

    def command(self, role: str, values: dict[str, str]) -> list[str]:
        """Return the command line of a role with `address`, `port` and `bytes` filled in."""
        return self.scheme.command(role, _places(self.scheme, self.built) | values)


def python() -> str:
    """The Python that runs scripts, whose standard library is beside it."""
    return str(FilePath(sys.executable).resolve())


def _places(scheme: Scheme, built: FilePath | None) -> dict[str, str]:
    return {
        "built": str(built or ""),
        "folder": str(scheme.folder),
        "wrappers": str(WRAPPERS),
        "python": python(),
    }


def cache_folder() -> FilePath:
    """The folder of what was built; `XDG_CACHE_HOME` has another place for it."""
    base = os.environ.get("XDG_CACHE_HOME") or FilePath.home() / ".cache"
    return FilePath(base).absolute() / "pathcast" / "schemes"


def wrapper_folder(scheme: Scheme) -> FilePath | None:
    """The folder of a scheme's wrapper: beside its file, or among Pathcast's own."""
    if scheme.build is None:
        return None
    beside = scheme.folder / scheme.build
    return beside if (beside / "recipe.toml").is_file() else WRAPPERS / scheme.build


def is_built(scheme: Scheme) -> bool:
    """Whether nothing needs to be built for a scheme."""
    folder = wrapper_folder(scheme)
    if folder is None:
        return True
    with contextlib.suppress(SchemeError, OSError):
        return (_place(Recipe.read(folder)) / _COMPLETE).exists()
    return False


def _place(recipe: Recipe) -> FilePath:
    name = re.sub(r"[^a-z0-9]+", "-", "-".join(recipe.folder.parts[-2:]).lower())
    return cache_folder() / f"{name.removeprefix('wrappers-')}-{recipe.digest()}"


def missing(scheme: Scheme) -> str | None:
    """What a build of the scheme would lack here; None if nothing is known to be missing."""
    folder = wrapper_folder(scheme)
    if folder is None:
        return None
    recipe = Recipe.read(folder)
    lacking = [program for program in recipe.programs if shutil.which(program) is None]
    if not lacking:
        return None
    packages = " ".join(recipe.packages)
    return f"there is no {', '.join(lacking)}; on Debian: apt-get install {packages}"


def prepare(scheme: Scheme, progress: Callable[[str], None] | None = None) -> Prepared:
    """Build what a scheme needs, unless it is in the cache.

    Args:
        scheme: which.
        progress: called with each line of the build's log.

    Raises:
        SchemeError: a program is missing, or the build fails or takes too long.

    """
    folder = wrapper_folder(scheme)
    base = (sys.base_prefix, str(WRAPPERS), str(scheme.folder))
    if folder is None:
        return Prepared(scheme, None, base)
    recipe = Recipe.read(folder)
    built = _place(recipe)
    if not (built / _COMPLETE).exists():
        lacking = missing(scheme)
        if lacking is not None:
            raise SchemeError(f"{scheme.name} cannot be built: {lacking}")
        built.mkdir(parents=True, exist_ok=True)
        with open(f"{built}.lock", "w") as lock:  # noqa: PTH123 - a descriptor to lock
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (built / _COMPLETE).exists():
                _build(scheme, recipe, built, progress)
    values = _values(recipe, built)
    readable = tuple(_filled(place, values) for place in recipe.readable)
    return Prepared(scheme, built, (*base, str(built), *readable))


def _values(recipe: Recipe, built: FilePath) -> dict[str, str]:
    return {
        "built": str(built),
        "cache": str(cache_folder()),
        "folder": str(recipe.folder),
        "python": python(),
    }


def _filled(word: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _build(
    scheme: Scheme, recipe: Recipe, built: FilePath, progress: Callable[[str], None] | None
) -> None:
    shutil.rmtree(built)
    built.mkdir()
    for name in recipe.copies:
        shutil.copyfile(recipe.folder / name, built / FilePath(name).name)
    values = _values(recipe, built)
    environment = os.environ | {name: _filled(value, values) for name, value in recipe.environment}
    log = FilePath(f"{built}.log")
    with log.open("w") as written:
        for line in recipe.commands:
            words = ["nice", "-n", "19", *(_filled(word, values) for word in line)]
            kept = _run(
                words,
                recipe,
                environment,
                lambda text: (written.write(text), progress and progress(text)),
            )
            if kept is not None:
                raise SchemeError(f"{scheme.name} cannot be built: {kept}; {log} has it all")
    (built / _COMPLETE).touch()


def _run(
    words: list[str],
    recipe: Recipe,
    environment: dict[str, str],
    note: Callable[[str], object],
) -> str | None:
    """Run one command of a build; returns why it failed, if it did."""
    last: list[str] = []
    try:
        process = subprocess.Popen(  # noqa: S603 - the words of a recipe
            words,
            cwd=recipe.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
        )
    except OSError as error:
        return f"{words[3]}: {error.strerror}"
    end = functools.partial(os.killpg, process.pid, signal.SIGKILL)
    late = []

    def too_late() -> None:
        late.append(True)
        with contextlib.suppress(ProcessLookupError):
            end()

    import threading

    timer = threading.Timer(recipe.most_s, too_late)
    timer.start()
    try:
        assert process.stdout is not None, "it is a pipe"  # noqa: S101
        for text in process.stdout:
            note(text)
            last = [*last, text.strip()][-_TAIL_LINES:]
        code = process.wait()
    except BaseException:
        end()
        process.wait()
        raise
    finally:
        timer.cancel()
    if late:
        return f"{words[3]} did not end within {recipe.most_s:g} s"
    return None if code == 0 else f"{words[3]} ended with code {code}: {' / '.join(last)}"
