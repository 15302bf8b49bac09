"""The documentation as a site: `make docs` builds it, with warnings as errors."""

import os
import re
import sys
from pathlib import Path

import pathcast

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_extensions"))

project = "Pathcast"
copyright = "the Pathcast authors; MIT or Apache-2.0"
version = release = pathcast.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "commands"]

myst_heading_anchors = 4
default_role = "code"
autodoc_member_order = "groupwise"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
# code is shown as it is, whatever it is
highlight_language = "text"

html_theme = "furo"
html_title = f"Pathcast {version}"
html_show_sourcelink = False
html_copy_source = False
# summaries of found pages would be fetched, which browsers refuse to pages from a folder
html_show_search_summary = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
# colors with a contrast of at least 4.5 to 1 on the theme's backgrounds, light and dark
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def _contents(index: str) -> str:
    """The tables of contents that the headings and links of the index make."""
    made = []
    for part in re.split(r"(?m)^## ", index)[1:]:
        heading = part.splitlines()[0]
        pages = dict.fromkeys(re.findall(r"\]\(([a-z-]+(?:/[a-z0-9-]+)?)\.md[#)]", part))
        entries = "\n".join(pages)
        made.append(f"```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{entries}\n```\n")
    return "\n".join(made)


def _read(app: object, page: str, source: list[str]) -> None:
    """Add contents to the index, and keep of links that leave the documentation their text."""
    if page == "index":
        source[0] += "\n" + _contents(source[0])
    folder = (DOCS / page).parent

    def kept(found: re.Match[str]) -> str:
        text, target = found[1], found[2].partition("#")[0]
        if "://" in target or not target:
            return found[0]
        file = Path(os.path.normpath(folder / target))
        inside = file.is_relative_to(DOCS)
        if inside and file.is_symlink():
            # links would be looked for where the file really is, outside of the documentation
            return f"{{doc}}`{text} </{file.relative_to(DOCS).with_suffix('')}>`"
        return found[0] if inside else text

    source[0] = re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", kept, source[0])


def _levels(app: object, page: str, template: str, context: dict, tree: object) -> None:
    """Give the headings of the contents a level, which screen readers need."""
    if contents := context.get("furo_navigation_tree"):
        leveled = contents.replace('role="heading"', 'role="heading" aria-level="2"')
        context["furo_navigation_tree"] = leveled


def setup(app) -> None:  # noqa: ANN001
    """Called by Sphinx."""
    app.connect("source-read", _read)
    # after the theme
    app.connect("html-page-context", _levels, priority=900)
