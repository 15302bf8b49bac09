"""Plans: which schemes run over which paths, in which workloads."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from pathcast import _internal, schemes
from pathcast.exceptions import PathcastError, PathFileError, SchemeError
from pathcast.experiments.engine.world import World
from pathcast.experiments.schemes import workloads
from pathcast.experiments.schemes.workloads import UNDER_TEST, Workload
from pathcast.path import Path, read_text
from pathcast.schemes.build import is_built, prepare
from pathcast.schemes.scheme import refused

#: Directions of a plan: whether data goes from near to far or back.
DIRECTIONS = ("forward", "reverse")
_KEYS = ("name", "schemes", "runs", "duration", "seed", "directions", "paths", "workloads")
#: Keys of a workload, by its kind.
_WORKLOAD_KEYS: dict[str, tuple[str, ...]] = {
    "single": (),
    "staggered": ("flows", "every"),
    "mixed": ("beside",),
    "transfer": ("size", "flows"),
    "page": ("sizes",),
}
#: The plans that come with Pathcast.
_PLANS = FilePath(__file__).with_name("plans")
#: QUIC's schemes in the simulator.
_QUIC = ("quic-cubic", "quic-reno", "quic-bbr3")
#: Bounds of what a plan may ask for.
_MOST_RUNS, _MOST_FLOWS, _LONGEST_S = 1000, 100, 3600.0


@dataclass(frozen=True)
class Plan:
    """What a benchmark runs.

    Attributes:
        name: for people.
        schemes: names, as the catalog of schemes or the simulator has them.
        paths: by name.
        workloads: what the flows do.
        directions: `forward`, `reverse` or both.
        runs: of each scheme in each of these.
        duration_s: of a run, at most, in seconds.
        seed: of all that is random, the order of runs too.

    """

    name: str
    schemes: tuple[str, ...]
    paths: Mapping[str, Path]
    workloads: tuple[Workload, ...]
    directions: tuple[str, ...] = ("forward",)
    runs: int = 3
    duration_s: float = 30.0
    seed: int = 1

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Plan:
        """Read a plan.

        Args:
            file: the file, or the name of a plan that comes with Pathcast: `short`, `five` or `twelve`.

        Raises:
            PathcastError: it is not TOML, a key is missing, unknown or out of range, or a path is not there.

        """
        path = FilePath(file)
        if not path.exists():
            names = sorted(one.stem for one in _PLANS.glob("*.toml"))
            if os.fspath(file) not in names:
                raise PathcastError(
                    f"got no plan {os.fspath(file)!r}{_nearest(os.fspath(file), names)}; expected a file, or one of "
                    f"{', '.join(names)}, which come with Pathcast"
                )
            path = _PLANS / f"{os.fspath(file)}.toml"
        return cls.parse(read_text(path), path)

    @classmethod
    def parse(cls, toml: str, file: FilePath) -> Plan:
        """Read the text of a plan; files that it names are relative to `file`.

        Raises:
            PathcastError: as for `load`.

        """
        try:
            values = tomllib.loads(toml)
        except tomllib.TOMLDecodeError as error:
            raise PathcastError(f"{file}: {error}; expected TOML") from None
        at = _At(str(file))
        at.known(values, _KEYS)
        duration_s = at.time(values, "duration", 30.0, 0.1, _LONGEST_S)
        found = at.tables(values, "workloads", [{"kind": "single"}])
        plan = cls(
            name=at.text(values, "name", file.stem),
            schemes=at.names(values, "schemes"),
            paths=_paths(at, at.tables(values, "paths", []), file.parent),
            workloads=tuple(
                _workload(at.inside(f"workloads[{number}]"), one, duration_s)
                for number, one in enumerate(found)
            ),
            directions=at.directions(values),
            runs=at.integer(values, "runs", 3, 1, _MOST_RUNS),
            duration_s=duration_s,
            seed=at.integer(values, "seed", 1, 0, 2**63),
        )
        names = [one.name for one in plan.workloads]
        if len(set(names)) < len(names):
            raise PathcastError(f"{file}: got workloads {', '.join(names)}; expected unique names")
        return plan

    def all_schemes(self) -> tuple[str, ...]:
        """The schemes under test and those beside them."""
        beside = (flow.scheme for one in self.workloads for flow in one.flows)
        return tuple(dict.fromkeys([*self.schemes, *filter(None, beside)]))

    def with_schemes(self, schemes: Iterable[str]) -> Plan:
        """Copy with other schemes under test."""
        return replace(self, schemes=tuple(schemes))

    def renamed(self, after: str) -> Plan:
        """Copy with `after` behind the name of each path."""
        return replace(self, paths={f"{name}{after}": path for name, path in self.paths.items()})


@dataclass(frozen=True)
class _At:
    """Reads keys; errors say where they stand."""

    where: str

    def inside(self, part: str) -> _At:
        return _At(f"{self.where}: {part}")

    def wrong(self, key: str, got: object, expected: str) -> PathcastError:
        return PathcastError(f"{self.where}: {key} is {got!r}; expected {expected}")

    def known(self, values: Mapping[str, Any], keys: Collection[str]) -> None:
        for key in values:
            if key not in keys:
                raise PathcastError(
                    f"{self.where}: got the unknown key {key!r}{_nearest(key, keys)}; expected some of "
                    f"{', '.join(keys)}"
                )

    def text(self, values: Mapping[str, Any], key: str, default: str) -> str:
        got = values.get(key, default)
        if not isinstance(got, str) or not got.isprintable():
            raise self.wrong(key, got, "text without control characters")
        return got

    def integer(
        self, values: Mapping[str, Any], key: str, default: int, least: int, most: int
    ) -> int:
        got = values.get(key, default)
        if not isinstance(got, int) or isinstance(got, bool) or not least <= got <= most:
            raise self.wrong(key, got, f"an integer from {least} to {most}")
        return got

    def time(
        self, values: Mapping[str, Any], key: str, default: float, least: float, most: float
    ) -> float:
        if key not in values:
            return default
        got = workloads.seconds(values[key])
        if got is None or not least <= got <= most:
            raise self.wrong(key, values[key], f"a time from {least:g} s to {most:g} s, as '30 s'")
        return got

    def names(self, values: Mapping[str, Any], key: str) -> tuple[str, ...]:
        got = values.get(key)
        if (
            not isinstance(got, list)
            or not got
            or not all(isinstance(one, str) and one for one in got)
            or len(set(got)) < len(got)
        ):
            raise self.wrong(key, got, "a list of different names, such as ['cubic', 'bbr']")
        return tuple(got)

    def directions(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        if "directions" not in values:
            return DIRECTIONS[:1]
        got = self.names(values, "directions")
        if not set(got) <= set(DIRECTIONS):
            raise self.wrong("directions", list(got), "'forward', 'reverse' or both, in a list")
        return got

    def tables(
        self, values: Mapping[str, Any], key: str, default: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        got = values.get(key, default)
        if not isinstance(got, list) or not got or not all(isinstance(one, dict) for one in got):
            raise self.wrong(key, got, f"tables under [[{key}]], at least one")
        return got


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _paths(at: _At, tables: Iterable[Mapping[str, Any]], folder: FilePath) -> dict[str, Path]:
    """The paths of a plan: files or names of paths that come with Pathcast, or the keys of a path file."""
    paths: dict[str, Path] = {}
    for number, table in enumerate(tables):
        here = at.inside(f"paths[{number}]")
        keys = dict(table)
        file = keys.pop("file", None)
        name = here.text(keys, "name", FilePath(file).stem if isinstance(file, str) else "")
        try:
            if isinstance(file, str):
                beside = folder / file
                path = Path.load(beside if beside.exists() else file)
                keys.pop("name", None)
            else:
                path = Path.parse("delay = '0 ms'\n", at.where)
            path = path.replace(**keys) if keys else path
        except PathFileError as error:
            raise PathcastError(f"{here.where}: {error}") from None
        if not name or name in paths or "/" in name:
            raise here.wrong("name", name, "a name without '/' that no other path has")
        paths[name] = path
    return paths


def _workload(at: _At, table: Mapping[str, Any], duration_s: float) -> Workload:
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in _WORKLOAD_KEYS:
        near = _nearest(kind, _WORKLOAD_KEYS) if isinstance(kind, str) else ""
        raise at.wrong("kind", kind, f"one of {', '.join(_WORKLOAD_KEYS)}{near}")
    at.known(table, ("name", "kind", *_WORKLOAD_KEYS[kind]))
    name = at.text(table, "name", kind)
    if not name or "/" in name:
        raise at.wrong("name", name, "a name without '/'")
    if kind == "staggered":
        flows = at.integer(table, "flows", 3, 2, _MOST_FLOWS)
        every_s = at.time(table, "every", duration_s / (2 * flows), 0.0, duration_s)
        if 2 * every_s * (flows - 1) >= duration_s:
            raise at.wrong(
                "every", f"{every_s:g} s", f"less than half the run over the {flows - 1} gaps"
            )
        return workloads.staggered(name, flows, every_s, duration_s)
    if kind == "mixed":
        return workloads.mixed(name, at.names(table, "beside"))
    if kind == "transfer":
        size = _size(at, "size", table.get("size"))
        return workloads.transfer(name, size, at.integer(table, "flows", 1, 1, _MOST_FLOWS))
    if kind == "page":
        sizes = table.get("sizes", [f"{size} B" for size in workloads.PAGE_BYTES])
        if not isinstance(sizes, list) or not 1 <= len(sizes) <= _MOST_FLOWS:
            raise at.wrong("sizes", sizes, f"a list of 1 to {_MOST_FLOWS} sizes")
        return workloads.page(name, tuple(_size(at, "sizes", one) for one in sizes))
    return workloads.single(name)


def _size(at: _At, key: str, text: object) -> int:
    size = workloads.size_bytes(text)
    if size is None:
        raise at.wrong(key, text, "a size of at least 1 B, such as '1 MB'")
    return size


@dataclass(frozen=True)
class Resolved:
    """A plan in a backend.

    Attributes:
        plan: with the schemes that the backend has.
        runs_as: the backend's own name of each scheme.
        left_out: schemes that the backend lacks, and why.

    """

    plan: Plan
    runs_as: Mapping[str, str]
    left_out: Mapping[str, str]


def resolve(plan: Plan, world: World) -> Resolved:
    """Find what each scheme of a plan is in a backend.

    Raises:
        PathcastError: a name is unknown, no scheme is left, or what others run beside is missing.

    """
    of_catalog = schemes.catalog()
    simulated = [*_internal.simulator_schemes(), *_QUIC]
    runs_as: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in plan.all_schemes():
        listed = of_catalog.get(name)
        if listed is None and not _simulates(name, simulated):
            known = [*of_catalog, *simulated]
            damaged = "".join(f"; cannot be used: {why}" for why in refused())
            raise PathcastError(
                f"got the unknown scheme {name!r}{_nearest(name, known)}; expected some of "
                f"{', '.join(dict.fromkeys(known))}{damaged}"
            )
        if world is World.SIMULATOR:
            algorithm = name if listed is None else listed.simulator
            if algorithm and _simulates(algorithm, simulated):
                runs_as[name] = algorithm
            else:
                left_out[name] = "the simulator has no scheme of this algorithm"
        elif listed is not None:
            runs_as[name] = name
        else:
            left_out[name] = "the simulator alone has it: `pathcast schemes list` has the others"
    return _without(plan, runs_as, left_out)


def built(resolved: Resolved, say: Callable[[str], None]) -> Resolved:
    """Build what the schemes of a plan need, before anything runs; those that cannot be built are left out.

    Args:
        resolved: for real implementations.
        say: called with what is built.

    Raises:
        PathcastError: no scheme is left, or what others run beside is missing.

    """
    of_catalog = schemes.catalog()
    left_out = dict(resolved.left_out)
    for name in resolved.plan.all_schemes():
        if not is_built(of_catalog[name]):
            say(f"building {name}")
        try:
            prepare(of_catalog[name])
        except SchemeError as error:
            left_out[name] = str(error)
    return _without(resolved.plan, resolved.runs_as, left_out)


def _without(plan: Plan, runs_as: Mapping[str, str], left_out: Mapping[str, str]) -> Resolved:
    """The plan without what is left out.

    Raises:
        PathcastError: no scheme is left, or what others run beside is missing.

    """
    kept = [name for name in plan.schemes if name not in left_out]
    beside = [name for name in plan.all_schemes() if name not in plan.schemes]
    lacking = [f"{name}: {left_out[name]}" for name in beside if name in left_out]
    if not kept or lacking:
        reasons = lacking or [f"{name}: {why}" for name, why in left_out.items()]
        raise PathcastError(f"{plan.name}: nothing can run; {'; '.join(reasons)}")
    return Resolved(plan.with_schemes(kept), runs_as, left_out)


def over_real_path(plan: Plan, server: str) -> Plan:
    """The plan over the path to a server, in place of its own paths."""
    return replace(plan, paths={server: Path.parse("delay = '0 ms'\n", server)})


def implementations() -> frozenset[str]:
    """The schemes of which the simulator has the implementation, and not only the algorithm."""
    return frozenset(
        name
        for name, one in schemes.catalog().items()
        if one.simulator and one.simulator_has == "implementation"
    )


def algorithms(plan: Plan) -> dict[str, str]:
    """The simulator's name of each scheme of a plan, of those that it has."""
    of_catalog = schemes.catalog()
    simulated = [*_internal.simulator_schemes(), *_QUIC]
    names = {
        name: of_catalog[name].simulator if name in of_catalog else name
        for name in plan.all_schemes()
    }
    return {name: one for name, one in names.items() if one and _simulates(one, simulated)}


def _simulates(name: str, simulated: Collection[str]) -> bool:
    """Whether the simulator has a scheme; those with an argument, as `fixed:100`, are not listed."""
    kind, _, argument = name.partition(":")
    return name in simulated or (kind == "fixed" and argument.isdecimal() and int(argument) > 0)


__all__ = ["DIRECTIONS", "UNDER_TEST", "Plan", "Resolved", "built", "over_real_path", "resolve"]
