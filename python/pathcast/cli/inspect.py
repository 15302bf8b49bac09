"""`pathcast inspect FILE`, and `pathcast FILE`: what a file is, and which commands take it."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path as FilePath
from typing import Annotated, Any

import typer
from rich.table import Table

from pathcast.cli.console import mbps, out, print_json
from pathcast.cli.options import Json
from pathcast.exceptions import PathFileError
from pathcast.path import is_name

#: Flows of a trace that are listed; `--json` has all.
MOST_FLOWS = 20
#: Where a page file has its first resource.
_HEAD_BYTES = 1 << 16

#: By kind of file: tasks, each with its command; `{}` stands for the file.
_NEXT = {
    "path": (
        ("run a flow over it in the simulator", "simulate {} -o trace.parquet"),
        ("run the kernel's TCP over it", "emulate {} -o trace.parquet"),
        ("open a shell behind it", "shell {}"),
        ("compare congestion controls on it", "sweep {} --scheme cubic --scheme bbr"),
        ("say what schemes and workloads would get", "what-if {}"),
        ("forecast transfers over it", "predict transfer --path {}"),
        ("forecast how long a page takes over it", "predict page page.har --path {}"),
        ("print it with all defaults", "path show {}"),
    ),
    "page": (
        ("forecast how long it takes by each protocol", "predict page {} --rtt 0.05 --loss 0.01"),
        ("the same, as a report", "predict page {} --rtt 0.05 --loss 0.01 -o report.html"),
    ),
    "scenario": (
        ("run it in the simulator", "simulate {} -o trace.parquet"),
        ("run it on the kernel's TCP", "emulate {} -o trace.parquet"),
    ),
    "trace": (
        ("say what limits it", "diagnose {}"),
        ("forecast its throughput", "predict throughput {}"),
        ("forecast transfers over its path", "predict transfer {}"),
        ("infer its path", "calibrate {} -o path.toml"),
        ("say what other schemes would get", "what-if {}"),
        ("fit the loss curve p(cwnd)", "fit {}"),
        ("score the forecasts on it", "evaluate {}"),
        ("find changes of its path", "follow {}"),
        ("convert it", "convert {} -o converted.parquet"),
    ),
}


def inspect(
    file: Annotated[
        FilePath,
        typer.Argument(
            metavar="FILE",
            help="A path, a scenario, a page or HAR, or a trace of any known format.",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Describe a path, scenario, page or trace, and list the commands that take it."""
    if not file.exists() and not is_name(str(file)):
        raise PathFileError(
            f"{file}: there is no such file, and no such command; `pathcast --help` lists the commands"
        )
    kind, facts = _facts(file)
    name = shlex.quote(str(file))
    commands = {why: f"pathcast {command.format(name)}" for why, command in _NEXT[kind]}
    if as_json:
        print_json({"kind": kind, "file": str(file)} | facts | {"commands": commands})
        return
    out.print(f"{file}: a {kind}")
    flows = facts.pop("flows", None)
    for key, value in facts.items():
        if value is not None:
            out.print(f"  {key.replace('_', ' ')}: {value}")
    if flows is not None:
        _print_flows(flows)
    out.print("what you can do with it:")
    width = max(map(len, commands.values()))
    for why, command in commands.items():
        out.print(f"  {command:<{width}}  # {why}", soft_wrap=True)


def _facts(file: FilePath) -> tuple[str, dict[str, Any]]:
    """The kind of a file, and what is in it."""
    if file.is_file() and _is_page(file):
        return "page", _of_page(file)
    if file.suffix.lower() != ".toml" and (file.is_file() or not is_name(str(file))):
        return "trace", _of_trace(file)
    from pathcast.scenario import Scenario, load

    found = load(file)
    if isinstance(found, Scenario):
        scenario = found
        return "scenario", {
            "name": scenario.name or None,
            "duration_s": scenario.duration_s,
            "schemes": ", ".join(sorted(set(scenario.schemes))),
            "number_of_flows": len(scenario.schemes),
            "workloads": ", ".join(sorted(set(scenario.workloads))),
        }
    path = found
    bdp = path.bdp_bytes
    return "path", {
        "name": path.name or None,
        "rate": "unlimited" if path.rate_bps is None else mbps(path.rate_bps),
        "round_trip_time_ms": round(path.base_rtt_s * 1e3, 6),
        "loss": f"{path.loss:.3g}",
        "queue_bytes": path.queue_bytes,
        "queue_packets": path.queue_packets,
        "bandwidth_delay_product_bytes": None if bdp is None else round(bdp),
    }


def _is_page(file: FilePath) -> bool:
    """Whether a file is a HAR by its name, a page file by its tables, or another recording of a page in JSON."""
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if ".har" in suffixes[-2:]:
        return True
    if ".json" in suffixes[-2:]:
        from pathcast.page import Page

        # traces of flows in JSON are no pages
        with contextlib.suppress(PathFileError):
            return bool(Page.load_all(file))
        return False
    if suffixes[-1:] != [".toml"]:
        return False
    with file.open("rb") as content:
        return b"[[resources]]" in content.read(_HEAD_BYTES)


def _of_page(file: FilePath) -> dict[str, Any]:
    from pathcast.page import Page

    pages = Page.load_all(file)
    first = pages[0]
    return {
        "name": ", ".join(page.name for page in pages) or None,
        "resources": sum(len(page.resources) for page in pages),
        "kilobytes": round(sum(page.body_bytes for page in pages) / 1000),
        "origins": first.origins,
        "load_event_ms": None if first.on_load_ms is None else round(first.on_load_ms),
        "warnings": "; ".join(first.warnings) or None,
    }


def _of_trace(file: FilePath) -> dict[str, Any]:
    from pathcast.flows import flows_of, read_flows

    (trace,) = read_flows(file)
    metadata = trace.metadata
    flows = [
        {
            "flow": flow.flow,
            "name": flow.name or None,
            "scheme": trace.scheme(flow.flow) if flow.flow in trace.flows else None,
            "bytes": flow.bytes,
            "duration_s": flow.duration_s,
        }
        for flow in flows_of(trace)
    ]
    return {"source": metadata.get("source"), "records": len(trace), "flows": flows}


def _print_flows(flows: list[dict[str, Any]]) -> None:
    table = Table("flow", "who", "scheme", "seconds", "bytes", "mean rate")
    for flow in flows[:MOST_FLOWS]:
        count, duration_s = flow["bytes"], flow["duration_s"]
        rate = "-" if count is None or duration_s <= 0 else mbps(8 * count / duration_s)
        table.add_row(
            str(flow["flow"]),
            flow["name"] or "-",
            flow["scheme"] or "-",
            f"{duration_s:.3f}",
            "-" if count is None else str(count),
            rate,
        )
    out.print(table)
    if len(flows) > MOST_FLOWS:
        out.print(f"and {len(flows) - MOST_FLOWS} more; --json lists all")
