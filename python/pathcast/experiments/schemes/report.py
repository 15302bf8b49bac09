"""Writes what the benchmark found: results.json, tables, figures and one page."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from pathcast import __version__
from pathcast.experiments.engine import page
from pathcast.experiments.engine.claim import Claim, verdict_of
from pathcast.experiments.engine.store import Record
from pathcast.experiments.engine.world import World
from pathcast.experiments.schemes import figures, tables
from pathcast.experiments.schemes.cases import Case, read
from pathcast.experiments.schemes.compare import Agreement
from pathcast.experiments.schemes.measures import FlowMeasure
from pathcast.experiments.schemes.plan import Resolved
from pathcast.experiments.schemes.summary import Block, blocks, to_dict
from pathcast.report.templates import templates

_templates = templates("pathcast.experiments.schemes")
#: Version of results.json.
SCHEMA = 1
_WORLDS = {
    World.SIMULATOR: "in the simulator",
    World.EMULATOR: "real implementations behind emulated paths",
    World.LIVE: "real implementations between two hosts",
}
#: More panels than this are not drawn of one workload.
_MOST_PANELS = 20


def flows_of(
    outcomes: Sequence[tuple[Case, Record]],
) -> list[tuple[Case, list[FlowMeasure] | None]]:
    """The flows of each case; None where no attempt was valid.

    Raises:
        PathcastError: a file of the folder is not what was written.

    """
    return [(case, read(record.file) if record.valid else None) for case, record in outcomes]


def collect(
    resolved: Resolved,
    world: World,
    outcomes: Sequence[tuple[Case, Record]],
    agreements: Sequence[Agreement] = (),
    claims: Sequence[Claim] = (),
) -> tuple[dict[str, Any], list[Block]]:
    """All of it as JSON, and as blocks."""
    plan = resolved.plan
    found = blocks(plan, flows_of(outcomes))
    again = sum(len(record.invalid_because) for _, record in outcomes)
    return {
        "schema": SCHEMA,
        "experiment": "schemes",
        "pathcast": __version__,
        "world": str(world),
        "command": " ".join(["pathcast", *sys.argv[1:]]),
        "plan": {
            "name": plan.name,
            "schemes": list(plan.schemes),
            "runs_as": dict(resolved.runs_as),
            "paths": {name: path.toml for name, path in plan.paths.items()},
            "workloads": [
                {"name": one.name, "kind": one.kind, "flows": [vars(flow) for flow in one.flows]}
                for one in plan.workloads
            ],
            "directions": list(plan.directions),
            "runs": plan.runs,
            "duration_s": plan.duration_s,
            "seed": plan.seed,
        },
        "left_out": dict(resolved.left_out),
        "runs": len(outcomes),
        "invalid_attempts": again,
        "never_valid": sum(not record.valid for _, record in outcomes),
        "blocks": [to_dict(block) for block in found],
        "agreements": [vars(one) for one in agreements],
        "claims": list(claims),
    }, found


def write(
    folder: FilePath,
    collected: Mapping[str, Any],
    found: Sequence[Block],
    more: Sequence[tables.Table] = (),
) -> FilePath:
    """Write results.json, tables/, figures/ and report.html.

    Args:
        folder: of the benchmark.
        collected: `results.json`.
        found: what is drawn.
        more: further tables, which the page has too.

    Returns:
        The page.

    Raises:
        PathcastError: a file cannot be written.

    """
    pictures = _pictures(collected, found)
    made = [tables.summary(found), tables.significance(found)]
    if collected["agreements"]:
        made.append(tables.kendall(collected["agreements"]))
    text = _templates.get_template("page.html.j2").render(
        plan=collected["plan"],
        world=_WORLDS[World(collected["world"])],
        collected=collected,
        failures=[
            (block.path, block.workload, row.scheme, why)
            for block in found
            for row in block.rows
            for why in dict.fromkeys(row.failed)
        ],
        summary=made[0],
        significance=made[1],
        kendall=made[2] if len(made) > 2 else None,
        claims=[(one, verdict_of(one)[0]) for one in collected["claims"]],
        classes={"yes": "holds", "no": "fails", "-": "undecided"},
        more=more,
        pictures=pictures,
        version=__version__,
    )
    drawn = {name: picture for _, items in pictures for name, _, picture in items}
    return page.write(folder, collected, text, pictures=drawn, tables=[*made, *more])


def _pictures(
    collected: Mapping[str, Any], found: Sequence[Block]
) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """By workload: name, title and SVG of each picture."""
    schemes = collected["plan"]["schemes"]
    groups = []
    for workload, direction in dict.fromkeys((one.workload, one.direction) for one in found):
        mine = [one for one in found if (one.workload, one.direction) == (workload, direction)]
        mine = [one for one in mine if any(row.metrics for row in one.rows)][:_MOST_PANELS]
        if not mine:
            continue
        of = f"{workload}-{direction}".replace(" ", "-")
        drawn = [
            (
                f"delay-throughput-{of}",
                "Throughput against delay: mean of the runs, ellipse of one standard deviation; up and right is better",
                figures.throughput_against_delay(mine, schemes),
            )
        ]
        if mine[0].kind in ("transfer", "page"):
            drawn.append(
                (
                    f"completion-{of}",
                    "Completion time: mean and 95 % interval",
                    figures.completion_times(mine, schemes),
                )
            )
        else:
            for what, name in (("rate", "Rate"), ("delay", "One-way delay")):
                title = f"{name} over time, first run of each scheme"
                drawn.append((f"{what}-time-{of}", title, figures.over_time(mine, schemes, what)))
            for what, name in (("rate", "Rate"), ("delay", "One-way delay")):
                title = f"{name}: cumulative distribution over half seconds, first run"
                drawn.append(
                    (f"{what}-cdf-{of}", title, figures.distributions(mine, schemes, what))
                )
        groups.append((f"{workload}, {direction}", drawn))
    return groups
