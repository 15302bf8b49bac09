"""Pages are made from templates in the folder of the code that fills them; all extend `base.html.j2`, with
one style."""

from __future__ import annotations

import jinja2
from markupsafe import Markup

from pathcast.foreign import visible_lines


def _shown(value: object) -> object:
    """A value as the page has it: text of ours is marked as safe, of others it has no control characters."""
    return visible_lines(value) if type(value) is str else value


#: Colors of pictures that follow the page's theme, by the name of the style's variable.
_THEMED = {
    "#1d2129": "ink",
    "#2b303b": "ink",
    "#5b6270": "muted",
    "#e6e8ec": "grid",
    "#0072b2": "blue",
}


def picture(svg: str, label: str) -> Markup:
    """A picture of `plots.svg` in a page: its colors follow the theme, and `label` names it for those who hear it."""
    for color, name in _THEMED.items():
        svg = svg.replace(color, f"var(--{name})")
    named = Markup('<svg role="img" aria-label="{}" ').format(_shown(label))
    region = Markup(
        '<div class="scroll picture" tabindex="0" role="region" aria-label="{}">'
    ).format(_shown(label))
    return region + named + Markup(svg.removeprefix("<svg ")) + Markup("</div>")  # noqa: S704 - our own


def templates(package: str) -> jinja2.Environment:
    """The templates in a package's own folder, such as `pathcast.report`; what is filled in is escaped."""
    packages = dict.fromkeys((package, "pathcast.report"))
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(one, "") for one in packages]),
        autoescape=True,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["picture"] = picture
    return environment
