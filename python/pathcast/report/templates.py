"""Pages are made from templates beside the code that fills them."""

from __future__ import annotations

import jinja2

from pathcast.foreign import visible_lines


def _shown(value: object) -> object:
    """A value as the page has it: text of ours is marked as safe, of others it has no control characters."""
    return visible_lines(value) if type(value) is str else value


def templates(package: str) -> jinja2.Environment:
    """The templates in a package's own folder, such as `pathcast.report`; what is filled in is escaped."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package, ""),
        autoescape=True,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
