"""Scenario files: which flows run over which links."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pathcast import _internal
from pathcast.exceptions import translated
from pathcast.foreign import utf8
from pathcast.path import Path, read_text


@dataclass(frozen=True)
class Scenario:
    """Links, and the flows that run over them, described in TOML (`docs/reference/scenario-file.md`).

    Attributes:
        toml: the description, every default and every file that it named written out.
        file: what to call it in errors.
        name: for people; may be empty.
        duration_s: the intended duration, in seconds; None: not given.
        schemes: congestion control of each flow, `udp` for those without.
        workloads: what each flow sends: `bulk`, `transfer` and so on.

    Example:
        >>> scenario = Scenario.parse('''
        ... [links.core]
        ... rate = "12 Mbit/s"
        ... delay = "30 ms"
        ...
        ... [[flows]]
        ... scheme = "cubic"
        ... workload = { kind = "transfer", size = "1 MB" }
        ... ''')
        >>> scenario.schemes, scenario.workloads
        (('cubic',), ('transfer',))

    """

    toml: str
    file: str
    name: str
    duration_s: float | None
    schemes: tuple[str, ...]
    workloads: tuple[str, ...]
    _spec: _internal.ScenarioSpec = field(repr=False, compare=False)

    @classmethod
    def parse(cls, toml: str, file: str = "scenario.toml") -> Scenario:
        """Read a description that names no other files; `file` names it in errors.

        Raises:
            PathFileError: it is not TOML, a key is missing, unknown or of the wrong type, or a
                quantity lacks its unit or is out of range; with line and column.

        """
        return cls._of(toml, file, load_files=False)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Scenario:
        """Read a scenario file, and the paths and recordings that it names, from its folder.

        Args:
            file: the file, or the name of a scenario that comes with Pathcast: `Scenario.load("dumbbell")`.

        Raises:
            PathFileError: the file cannot be read, or for the reasons of `parse`.

        """
        return cls._of(read_text(file), utf8(file), load_files=True)

    @classmethod
    def over(cls, path: Path, schemes: Sequence[str], workload: str = "'bulk'") -> Scenario:
        """One flow for each scheme over a path, all with one workload.

        Args:
            path: what lies between the hosts.
            schemes: one flow for each.
            workload: a TOML value, such as `{ kind = "transfer", size = "5 MB" }`.

        Raises:
            PathFileError: no such workload.

        """
        with translated():
            spec = _internal.ScenarioSpec.over(path._spec, list(schemes), workload)
            return cls._wrap(spec, path.file)

    @classmethod
    def _of(cls, toml: str, file: str, *, load_files: bool) -> Scenario:
        with translated():
            return cls._wrap(_internal.ScenarioSpec.parse(toml, file, load_files), file)

    @classmethod
    def _wrap(cls, spec: _internal.ScenarioSpec, file: str) -> Scenario:
        name, duration_s, flows = spec.summary()
        schemes, workloads = zip(*flows, strict=True)
        return cls(spec.to_toml(), file, name, duration_s, schemes, workloads, spec)

    def __reduce__(self) -> tuple[Any, ...]:
        """As text, for other processes."""
        return type(self).parse, (self.toml, self.file)

    def flow(self, number: int) -> dict[str, Any]:
        """The keys of a flow, as `docs/reference/scenario-file.md` has them; `count` says how many are alike.

        Args:
            number: of the flow, from 0.

        Raises:
            IndexError: there is no such flow.

        """
        keys: dict[str, Any] = self._spec.flow(number)
        return keys

    def first_link(self) -> Path:
        """The link that the first flow crosses first."""
        with translated():
            return Path._wrap(self._spec.first_route()[0], self.file)

    def replace(self, **keys: object) -> Scenario:
        """Copy with other values of `name`, `duration` and so on; None takes a key away.

        Raises:
            PathFileError: there is no such key, or its value is out of range.

        """
        with translated():
            return self._wrap(self._spec.replaced(keys), self.file)

    def replace_flow(self, number: int, **keys: object) -> Scenario:
        """Copy with other values of some keys of a flow, and of those that are like it.

        Args:
            number: of the flow, from 0.
            keys: of `docs/reference/scenario-file.md`; None takes one away.

        Raises:
            IndexError: there is no such flow.
            PathFileError: there is no such key, or its value is out of range.

        """
        with translated():
            return self._wrap(self._spec.flow_replaced(number, keys), self.file)

    def replace_link(self, name: str, **keys: object) -> Scenario:
        """Copy with other values of some keys of a link, those of a path file.

        Raises:
            PathFileError: there is no such link or key, or a value is out of range.

        """
        with translated():
            return self._wrap(self._spec.link_replaced(name, keys), self.file)

    def with_flow(self, **keys: object) -> Scenario:
        """Copy with one more flow.

        Args:
            keys: of `docs/reference/scenario-file.md`.

        Raises:
            PathFileError: there is no such key, or its value is out of range.

        Example:
            >>> path = Path.parse("rate = '12 Mbit/s'\\ndelay = '30 ms'\\n")
            >>> beside = Scenario.over(path, ["cubic"]).with_flow(scheme="bbr", start="5 s")
            >>> beside.schemes
            ('cubic', 'bbr')

        """
        with translated():
            return self._wrap(self._spec.with_flow(keys), self.file)

    def to_toml(self) -> str:
        """The description, every default written out."""
        return self.toml


def with_receive_window(scenario: Scenario, window: str | None, begin: int = 0) -> Scenario:
    """Give flows over TCP a window of their receiver.

    Args:
        scenario: with the flows.
        window: as a scenario file has it; None: they stay as they are.
        begin: the first of the flows.

    """
    if window is None:
        return scenario
    # the connections of a page have a scheme each and are one flow
    with suppress(IndexError):
        for number in range(begin, len(scenario.schemes)):
            scheme = str(scenario.flow(number)["scheme"])
            if scheme != "udp" and not scheme.startswith("quic-"):
                scenario = scenario.replace_flow(number, receive_window=window)
    return scenario


def load(file: str | os.PathLike[str]) -> Path | Scenario:
    """Read a path file or a scenario file, whichever it is.

    Raises:
        PathFileError: it is neither.

    """
    is_scenario = _internal.is_scenario(read_text(file))
    return Scenario.load(file) if is_scenario else Path.load(file)


def parse(toml: str, file: str) -> Path | Scenario:
    """Read the description of a path or a scenario, whichever it is; `file` names it in errors.

    Raises:
        PathFileError: it is neither.

    """
    return (Scenario if _internal.is_scenario(toml) else Path).parse(toml, file)
