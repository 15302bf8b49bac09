"""Pages are made from templates beside the code that fills them."""

from __future__ import annotations

import jinja2


def templates(package: str) -> jinja2.Environment:
    """The templates in a package's own folder, such as `pathcast.report`; what is filled in is escaped."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package, ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
