"""`pathcast schemes`: real implementations of congestion control, and whether they work here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Annotated

import typer

from pathcast.cli.console import err, out, print_json
from pathcast.cli.options import Json
from pathcast.exceptions import SchemeError
from pathcast.schemes import build, checks, scheme
from pathcast.schemes.checks import Checked

app = typer.Typer(
    help="Run real implementations of congestion control: list them, check that they work, add your own.",
    no_args_is_help=True,
)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Default: all of the tier.")
]
Tier = Annotated[
    str, typer.Option(help="Without names: the schemes of this tier, default or optional.")
]


@app.command(name="list")
def list_schemes(as_json: Json = False) -> None:
    """List the schemes at hand: implementation, version, licence, and whether they are built here.

    Nothing is built or run. Beside Pathcast's own files, those in the folders of the variable
    PATHCAST_SCHEMES and those of `pathcast schemes add` are listed.

    Example: pathcast schemes list
    """
    found = checks.listed(list(scheme.catalog().values()))
    if as_json:
        print_json([one.to_dict() for one in found])
    else:
        _print_listed(found)
    for why in scheme.refused():
        err.print(why, markup=False, soft_wrap=True)


def _print_listed(found: Sequence[Checked]) -> None:
    rows = [("name", "implementation", "version", "licence", "controller", "tier", "here")]
    for one in found:
        what = one.scheme
        controller = f"{what.controller} (ours)" if one.ours else what.controller
        rows.append(
            (
                what.name,
                what.implementation,
                what.running_version,
                what.licence,
                controller,
                what.tier,
                one.why_not or "ready",
            )
        )
    _print(rows)


@app.command(name="check")
def check_schemes(
    names: Names = None,
    tier: Tier = "default",
    duration: Annotated[
        float, typer.Option(min=2, max=600, help="How long the flow without end runs, in seconds.")
    ] = checks.DURATION_S,
    as_json: Json = False,
) -> None:
    """Check that schemes work here: each moves data over an emulated path, by its own controller.

    Each is built if need be, and runs a flow without end and a transfer of 1 MB over 50 Mbit/s, 20 ms and a
    queue of 2 BDP. Exit code 1: one does not work; the others are checked all the same.

    Example: pathcast schemes check tcp-cubic quic-go-reno
    """
    found = checks.check(
        names or (),
        duration_s=duration,
        tier=_tier(tier),
        progress=_say if err.is_terminal else None,
    )
    if as_json:
        print_json([one.to_dict() for one in found])
    else:
        _print_checked(found)
    raise typer.Exit(0 if all(one.works for one in found) else 1)


@app.command(name="build")
def build_schemes(names: Names = None, tier: Tier = "default") -> None:
    """Build the wrappers of schemes into the cache, so that no run waits for it.

    Needs the compilers that `pathcast schemes list` names, and access to their package registries.

    Example: pathcast schemes build quic-go-reno
    """
    known = scheme.catalog()
    tier = _tier(tier)
    chosen = (
        scheme.chosen(names, known)
        if names
        else [one for one in known.values() if one.tier == tier]
    )
    failed = 0
    for one in chosen:
        try:
            ready = build.is_built(one)
            prepared = build.prepare(one, None if ready else _log)
        except SchemeError as error:
            failed += 1
            err.print(str(error), markup=False, soft_wrap=True)
            continue
        where = prepared.built or "needs no build"
        out.print(f"{one.name}: {where}", markup=False, soft_wrap=True)
    raise typer.Exit(1 if failed else 0)


@app.command(name="add")
def add_scheme(
    file: Annotated[FilePath, typer.Argument(metavar="FILE.toml", help="The file of a scheme.")],
) -> None:
    """Add a scheme of your own: its file is checked, and found by its name from then on.

    The file names the command lines of a receiver and a sender in any language. It stays where it is, as do its
    programs.

    Example: pathcast schemes add my-scheme.toml
    """
    added = scheme.add(file)
    out.print(f"{added.name}: added; try it: pathcast schemes check {added.name}", markup=False)


def _tier(tier: str) -> str:
    if tier not in scheme.TIERS:
        raise SchemeError(f"--tier is {tier!r}; expected {' or '.join(scheme.TIERS)}")
    return tier


def _say(name: str, what: str) -> None:
    err.print(f"{name} {what}", markup=False, soft_wrap=True)


def _log(line: str) -> None:
    err.print(line.rstrip(), markup=False, soft_wrap=True)


def _print_checked(found: Sequence[Checked]) -> None:
    rows = [("name", "works", "goodput", "delay p50", "p95", "loss", "1 MB", "controller", "queue")]
    for one in found:
        controller = one.controller or ""
        rows.append(
            (
                one.scheme.name,
                "yes" if one.works else "no",
                "" if one.goodput_bps is None else f"{one.goodput_bps / 1e6:.1f} Mbit/s",
                _ms(one.delay_p50_ms),
                _ms(one.delay_p95_ms),
                "" if one.loss is None else f"{100 * one.loss:.2f} %",
                "" if one.completion_s is None else f"{one.completion_s:.2f} s",
                f"{controller} (ours)" if one.ours else controller,
                one.queue_in_words,
            )
        )
    _print(rows)
    for one in found:
        if one.why_not is not None:
            err.print(f"{one.scheme.name}: {one.why_not}", markup=False, soft_wrap=True)
        for why in one.invalid_because:
            err.print(f"{one.scheme.name}: its figures cannot be trusted: {why}", markup=False)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} ms"


def _print(rows: Sequence[Sequence[str]]) -> None:
    """Print a line for each row; nothing is cut."""
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        out.print("  ".join([*cells, row[-1]]).rstrip(), markup=False, soft_wrap=True)
