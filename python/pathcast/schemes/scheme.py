"""Schemes: real implementations of congestion control, each described by one file."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path as FilePath
from typing import Any

from pathcast.exceptions import SchemeError
from pathcast.foreign import utf8

#: The files of the schemes that come with Pathcast, and the folders of the programs around them.
BUILT_IN = FilePath(__file__).with_name("catalog")
WRAPPERS = FilePath(__file__).with_name("wrappers")
TRANSPORTS = ("tcp", "quic", "utp", "rtp", "udp")
TIERS = ("default", "optional")
QUEUES = ("full", "short")
SIMULATED = ("algorithm", "implementation")
#: What command lines may name in braces.
PLACEHOLDERS = ("address", "port", "bytes", "built", "folder", "wrappers", "python")
#: The largest scheme file that is read.
MOST_BYTES = 64 << 10

_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]{0,39}")


@dataclass(frozen=True)
class Scheme:
    """One scheme, as its file describes it.

    Attributes:
        name: how to call it.
        implementation: the code base.
        version: of the implementation; `kernel`: that of the kernel that runs.
        licence: of the implementation.
        controller: the congestion control that it runs, in the implementation's own word.
        transport: `tcp`, `quic`, `utp`, `rtp` or `udp`.
        receiver: the command line of the receiver, with placeholders in braces.
        sender: the command line of the sender, likewise.
        ours: whether the algorithm's code is Pathcast's own.
        tier: `default` or `optional`.
        simulator: the simulator's scheme of the same algorithm, if any.
        simulator_has: `implementation` where the simulator runs this implementation's code or was written after it
            and compared with it; `algorithm` where it has another implementation of the algorithm.
        build: the folder of the wrapper with its recipe, if it is built on demand.
        queue: what it does to a bottleneck's queue: `full`, `short`, or empty where that is not known.
        kernel: the congestion control of the kernel's TCP that the sender's socket has, if it is the kernel's.
        note: what else to know, such as settings.
        file: where this is from; not a key of the file.

    """

    name: str
    implementation: str
    version: str
    licence: str
    controller: str
    transport: str
    receiver: tuple[str, ...]
    sender: tuple[str, ...]
    ours: bool = False
    tier: str = "default"
    simulator: str | None = None
    simulator_has: str = "algorithm"
    build: str | None = None
    kernel: str | None = None
    queue: str = ""
    note: str = ""
    file: FilePath = field(default=BUILT_IN, compare=False)

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Scheme:
        """Read the file of a scheme.

        Raises:
            SchemeError: it cannot be read, or a key is missing, unknown or of the wrong type.

        """
        path, name = FilePath(file), utf8(file)
        try:
            if path.stat().st_size > MOST_BYTES:
                raise SchemeError(
                    f"{name}: is larger than {MOST_BYTES} bytes; expected a scheme's file"
                )
            keys = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SchemeError(f"{name}: cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SchemeError(f"{name}: is not TOML: {error}") from None
        return cls(**_checked(keys, name), file=path.resolve())

    @property
    def folder(self) -> FilePath:
        """The folder of its file, which `{folder}` stands for."""
        return self.file.parent

    @property
    def running_version(self) -> str:
        """Its version, with the kernel's in place of `kernel`."""
        return os.uname().release if self.version == "kernel" else self.version

    def command(self, role: str, values: dict[str, str]) -> list[str]:
        """Return the command line of a role, `receiver` or `sender`, with the placeholders' values."""
        line: tuple[str, ...] = getattr(self, role)
        return [_filled(word, values) for word in line]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, without the command lines."""
        left_out = ("receiver", "sender", "file")
        listed = {one.name: getattr(self, one.name) for one in fields(self)}
        return {key: value for key, value in listed.items() if key not in left_out}


def _filled(word: str, values: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], word)


def _checked(keys: dict[str, Any], file: str) -> dict[str, Any]:
    """The fields of a scheme, from the keys of its file."""
    known = {one.name: one for one in fields(Scheme) if one.name != "file"}
    for key in keys:
        if key not in known:
            raise SchemeError(f"{file}: key {key!r} is unknown{nearest(key, known)}")
    found: dict[str, Any] = {}
    for name, one in known.items():
        if name not in keys:
            if known[name].default is not MISSING:
                continue
            raise SchemeError(f"{file}: key {name!r} is missing; expected {_expected(name)}")
        value = keys[name]
        right = {"ours": bool, "receiver": list, "sender": list}.get(one.name, str)
        if not isinstance(value, right) or (value in ("", []) and name != "note"):
            raise SchemeError(f"{file}: {name} is {value!r}; expected {_expected(name)}")
        found[name] = tuple(value) if isinstance(value, list) else value
    for name, words in (
        ("transport", TRANSPORTS),
        ("tier", TIERS),
        ("queue", QUEUES),
        ("simulator_has", SIMULATED),
    ):
        if found.get(name, words[0]) not in words:
            raise SchemeError(f"{file}: {name} is {found[name]!r}; expected {' or '.join(words)}")
    if not _NAME.fullmatch(found["name"]):
        raise SchemeError(f"{file}: name is {found['name']!r}; expected {_expected('name')}")
    if not re.fullmatch(r"\.|[\w+-]+(/[\w+-]+)*", found.get("build", ".")):
        raise SchemeError(f"{file}: build is {found['build']!r}; expected {_expected('build')}")
    for role in ("receiver", "sender"):
        _check_line(found[role], role, file)
    return found


def _check_line(line: tuple[Any, ...], role: str, file: str) -> None:
    for word in line:
        if not isinstance(word, str):
            raise SchemeError(f"{file}: {role} has {word!r}; expected words in quotes")
        for name in re.findall(r"\{(\w+)\}", word):
            if name not in PLACEHOLDERS:
                listed = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
                raise SchemeError(f"{file}: {role} has {{{name}}}; expected one of {listed}")
    if not any("{port}" in word for word in line):
        raise SchemeError(f"{file}: {role} has no {{port}}; expected the port that it is to use")


def _expected(key: str) -> str:
    return {
        "name": "1 to 40 of a-z, 0-9, '.', '+' and '-'",
        "transport": " or ".join(TRANSPORTS),
        "tier": " or ".join(TIERS),
        "queue": " or ".join(QUEUES),
        "ours": "true or false",
        "build": "the folder of a wrapper, such as quic-go, or . for that of the file",
        "receiver": 'a command line as a list, such as ["./receive", "{address}:{port}"]',
        "sender": 'a command line as a list, such as ["./send", "{address}:{port}", "{bytes}"]',
    }.get(key, "text in quotes")


def nearest(name: str, known: Any) -> str:  # noqa: ANN401 - any collection of names
    """What to say after an unknown name: the nearest that is known, if one is near."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else f"; expected one of {', '.join(known)}"


def user_folder() -> FilePath:
    """The folder into which `pathcast schemes add` puts files; `XDG_DATA_HOME` has another place for it."""
    base = os.environ.get("XDG_DATA_HOME") or FilePath.home() / ".local/share"
    return FilePath(base) / "pathcast" / "schemes"


def folders() -> Iterator[FilePath]:
    """Where schemes are looked for: Pathcast's own, those of PATHCAST_SCHEMES, the user's."""
    yield BUILT_IN
    for folder in os.environ.get("PATHCAST_SCHEMES", "").split(":"):
        if folder:
            yield FilePath(folder)
    yield user_folder()


def catalog() -> dict[str, Scheme]:
    """Return the schemes at hand by name: those that come with Pathcast, and the user's.

    Files of the user that cannot be used are left out; `refused` says why.

    Example:
        >>> catalog()["tcp-cubic"].transport
        'tcp'

    """
    return _found()[0]


def refused() -> list[str]:
    """Return why files of the user's schemes cannot be used."""
    return _found()[1]


def _found() -> tuple[dict[str, Scheme], list[str]]:
    found, why = dict(_built_in()), []
    for folder in list(folders())[1:]:
        if not folder.is_dir() and folder != user_folder():
            why.append(f"PATHCAST_SCHEMES: {utf8(folder)} is no folder; expected one")
        for file in sorted(folder.glob("*.toml")):
            if file.name == "recipe.toml":
                continue
            try:
                scheme = Scheme.read(file)
            except SchemeError as error:
                why.append(str(error))
                continue
            before = found.setdefault(scheme.name, scheme)
            if before.file != scheme.file:
                why.append(
                    f"{utf8(file)}: name {scheme.name!r} is that of {utf8(before.file)}; expected another name"
                )
    return found, why


@cache
def _built_in() -> dict[str, Scheme]:
    listed = (Scheme.read(file) for file in sorted(BUILT_IN.glob("*.toml")))
    return {scheme.name: scheme for scheme in listed}


def add(file: str | os.PathLike[str]) -> Scheme:
    """Make a scheme of the user's own be found by its name: a link to its file, which stays where it is.

    Raises:
        SchemeError: it is no scheme's file, its name is taken, or it cannot be written.

    """
    scheme = Scheme.read(file)
    known = catalog()
    target = FilePath(file).resolve()
    place = user_folder() / f"{scheme.name}.toml"
    if scheme.name in known and known[scheme.name].file != target:
        raise SchemeError(f"{utf8(file)}: name {scheme.name!r} is taken; expected another name")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.with_name(f".{place.name}.{os.getpid()}")
        new.symlink_to(target)
        new.replace(place)
    except OSError as error:
        raise SchemeError(f"{utf8(place)}: cannot be written: {error.strerror}") from None
    return scheme


def chosen(
    names: list[str] | tuple[str, ...], among: dict[str, Scheme] | None = None
) -> list[Scheme]:
    """Return the schemes of these names.

    Raises:
        SchemeError: a name is unknown; says the nearest that is known.

    """
    known = catalog() if among is None else among
    for name in names:
        if name not in known:
            left_out = "".join(f"\n{why}" for why in refused())
            raise SchemeError(f"scheme {name!r} is unknown{nearest(name, known)}{left_out}")
    return [known[name] for name in names]
