"""`pathcast steer`: decisions of the service in a map of HAProxy."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path as FilePath
from typing import Annotated

import typer

from pathcast.cli.console import err, out, print_json
from pathcast.cli.feed import service_of
from pathcast.cli.watch import ended_by_sigterm
from pathcast.exceptions import ServiceError
from pathcast.service.haproxy import Haproxy
from pathcast.service.steer import Change, Policy, Steering, follow, pools_of


def steer(
    service: Annotated[str, typer.Argument(metavar="URL", help="Of `pathcast serve`.")],
    socket: Annotated[
        FilePath, typer.Option(metavar="PATH", help="HAProxy's `stats socket`, level admin.")
    ],
    map_file: Annotated[
        FilePath,
        typer.Option("--map", metavar="FILE", help="The map, as HAProxy's configuration names it."),
    ],
    page: Annotated[str, typer.Option(metavar="CLASS", help="Class of pages to decide by.")],
    pool: Annotated[
        list[str],
        typer.Option(
            metavar="PROTOCOL=BACKEND", help="HAProxy's backend for a protocol; two or three."
        ),
    ],
    confidence: Annotated[
        float, typer.Option(metavar="P", help="A prefix moves if the decision is at least so sure.")
    ] = 0.6,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Between two looks.")] = 5.0,
    keep: Annotated[
        float, typer.Option(metavar="SECONDS", help="An entry stays so long without new samples.")
    ] = 86_400.0,
    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long; default: until Ctrl-C.")
    ] = None,
    token_file: Annotated[
        FilePath | None, typer.Option(metavar="FILE", help="The token that the service asks for.")
    ] = None,
    authorities: Annotated[
        FilePath | None,
        typer.Option(metavar="FILE", help="Certificates to check the service's by."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print changes as lines of JSON.")
    ] = False,
) -> None:
    """Route clients of HAProxy to the servers of the HTTP version that is best for their prefix.

    The map is exchanged as a whole while HAProxy runs, and written to its file. If the service fails, the map stays.
    """
    if not 0.1 <= every <= 3600:
        raise ServiceError(f"got a look each {every} s; expected 0.1 to 3600")
    policy = Policy(page, pools_of(pool), confidence, keep)
    made = Steering(service_of(service, token_file, authorities), Haproxy(socket), map_file, policy)

    def changed(changes: list[Change]) -> None:
        for one in changes:
            if as_json:
                print_json({"time_s": time.time(), **vars(one)})
            else:
                before = one.before or "the default"
                out.print(
                    f"{one.prefix}: {one.after}, was {before}; confidence {one.confidence:.2f}"
                )
        out.file.flush()

    def failed(problem: str) -> None:
        err.print(
            f"the map stays as it is: {problem}" if problem else "the map is up to date again"
        )

    with contextlib.suppress(KeyboardInterrupt), ended_by_sigterm():
        made.begin()
        follow(made, every, duration_s=duration, changed=changed, failed=failed)
