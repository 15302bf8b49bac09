"""All that the suite found out, as `results.json` has it; docs/reference/suite.md has the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pathcast import __version__
from pathcast.experiments.suite import short_flows, tables, timeouts
from pathcast.experiments.suite.claims import claims
from pathcast.experiments.suite.judge import Judged
from pathcast.models import MODELS

#: Version of results.json.
SCHEMA = 1


def collect(judged: Judged, *, form: str, world: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Make all tables.

    Args:
        judged: the errors.
        form: `short` or `full`.
        world: the backend that ran the cells.
        seeds: of the cells.

    """
    throughput = tables.throughput(judged.scored)
    results: dict[str, Any] = {
        "schema": SCHEMA,
        "pathcast": __version__,
        "form": form,
        "world": world,
        "seeds": list(seeds),
        "models": list(MODELS),
        "cells": judged.cells,
        "traces": judged.traces,
        "left_out": judged.left_out,
        "throughput": throughput,
        "horizons": tables.horizons(throughput),
        "sensitivity": tables.sensitivity(judged.small_window, throughput),
        "changing": tables.changing(judged.scored),
        "scwnd": tables.by_window(judged.scored),
        "npc": tables.by_connections(judged.scored),
        "latency": tables.latency(judged.transfers),
        "downloads": judged.short_flows,
        "short_flows": short_flows.table(judged.downloads),
        "evolution": short_flows.evolution_rows(judged.downloads),
        "timeouts": timeouts.table(judged.cells),
    }
    return {**results, "claims": claims(results)}
