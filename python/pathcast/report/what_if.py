"""The page of `pathcast what-if`: alternatives with their intervals, and the path that they ran over."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pathcast import __version__
from pathcast._what_if import METRICS, QUANTITIES, Interval, Outcome, WhatIf
from pathcast.calibration import Calibration
from pathcast.calibration.words import (
    PARAMETER_COLUMNS,
    competing_text,
    link_text,
    parameter_rows,
)
from pathcast.path import Path
from pathcast.report import plots
from pathcast.report.templates import templates
from pathcast.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_templates = templates("pathcast.report")
#: Names of alternatives are cut after so many characters in pictures; tables have all.
_LONGEST_NAME = 34


def render_what_if(
    found: WhatIf, path: Path | Scenario | Calibration, source: str, *, draws: int, seed: int
) -> str:
    """What alternatives would get, as one HTML page that needs no other file.

    Args:
        found: the alternatives.
        path: what they ran over.
        source: what the path was read from, for people.
        draws: runs of each alternative.
        seed: of the draws.

    """
    names = [name for name in METRICS if any(getattr(one, name) for one in found.outcomes)]
    return _templates.get_template("what_if.html.j2").render(
        found=found,
        best=found.outcomes[found.best],
        source=source,
        quantities={name: QUANTITIES[name] for name in names},
        picture=intervals_plot([found.outcomes[i] for i in found.ranking], names),
        calibration=path if isinstance(path, Calibration) else None,
        columns=PARAMETER_COLUMNS,
        rows=parameter_rows(path) if isinstance(path, Calibration) else [],
        link=link_text(path) if isinstance(path, Calibration) else "",
        shared=competing_text(path) if isinstance(path, Calibration) else "",
        toml=path.path().to_toml() if isinstance(path, Calibration) else path.to_toml(),
        draws=draws,
        seed=seed,
        version=__version__,
    )


def intervals_plot(outcomes: list[Outcome], names: list[str]) -> str:
    """Median and 5 to 95 % of each alternative: a panel a quantity, the best alternative on top."""
    labels = [_cut(str(one.alternative)) for one in outcomes]

    def panel(axes: Axes, name: str) -> None:
        what, unit, scale = QUANTITIES[name]
        for place, one in enumerate(outcomes):
            found: Interval | None = getattr(one, name)
            if found is None or not math.isfinite(found.median):
                continue
            color = plots.BLUE if place == 0 else plots.GRAY
            axes.plot(
                [scale * found.p5, scale * found.p95], [place, place], color=color, lw=4, alpha=0.5,
                solid_capstyle="butt",
            )  # fmt: skip
            axes.plot(scale * found.median, place, "o", color=color, ms=6)
        axes.set(xlabel=f"{what} ({unit})", xlim=(0, None))
        axes.set_ylim(len(outcomes) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, names, strict=True):
            panel(axes, name)
        panels[0].set_yticks(np.arange(len(outcomes)), labels)

    return plots.svg(10, 1.0 + 0.32 * len(outcomes), draw)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


__all__ = ["intervals_plot", "render_what_if"]
