"""The documentation as a site: it builds without warnings, opens from a folder, and its search works there."""

import subprocess
import sys

import pytest

from conftest import ROOT, VIEWS, serious_violations

#: Pages of each kind.
PAGES = ["index", "tutorial/first-forecast", "reference/commands", "results/simulator"]
#: The longest page, which axe reads for a minute.
LONGEST = "reference/python"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "-d",
        folder / "doctrees",
    ]
    done = subprocess.run(
        [sys.executable, *command, ROOT / "docs", folder / "html"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_page_is_reached_from_the_index(site):
    index = (site / "index.html").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert name.name == "index.html" or f'href="{name}"' in index, name


def test_commands_and_python_are_described(site):
    from pathcast.cli.commands import COMMANDS, HIDDEN

    text = (site / "reference/commands.html").read_text()
    for name, command in COMMANDS.items():
        shown = command.group != HIDDEN and command.example is not None
        assert (f">pathcast {name}<" in text) == shown, name
    for name in ("live run", "path show", "benchmark attainable-rate"):
        assert f">pathcast {name}<" in text, name
    assert "--duration" in text
    text = (site / "reference/python.html").read_text()
    for name in ("simulate", "evaluate", "Path", "Forecaster.observe"):
        assert f'id="pathcast.{name}"' in text


@VIEWS
@pytest.mark.parametrize("page", PAGES)
def test_axe_finds_nothing_serious(browser, site, page, width, theme):
    nothing_is_serious(browser, site, page, width, theme)


@pytest.mark.full
@pytest.mark.parametrize(("width", "theme"), [(360, "dark"), (1400, "light")])
def test_axe_finds_nothing_serious_on_the_longest_page(browser, site, width, theme):
    nothing_is_serious(browser, site, LONGEST, width, theme)


def nothing_is_serious(browser, site, page, width, theme):
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, offline=True
    )
    shown = context.new_page()
    asked = []
    shown.on("request", lambda request: asked.append(request.url))
    shown.goto((site / f"{page}.html").as_uri())
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert not serious_violations(shown)
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def test_search_works_from_a_folder(browser, site):
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((site / "search.html").as_uri() + "?q=hystart")
    page.wait_for_selector("#search-results li a", timeout=20_000)
    found = page.eval_on_selector_all("#search-results li a", "links => links.map(one => one.href)")
    assert any("congestion" in link or "tcp" in link for link in found), found
    context.close()
