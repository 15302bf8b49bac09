"""Pages in a real browser: nobody is left out, nothing is cut off, both themes, narrow and wide, and on paper."""

import pytest

import pathcast
from conftest import ROOT, VIEWS, run, serious_violations, violations

#: Commands that write a page, and its place.
PAGES = {
    "demo": (["demo", "--world", "simulator", "--duration", "60"], "report.html"),
    "suite": (
        ["evaluate", "suite", "--world", "simulator", "--network", "last-mile-1", "--network", "short-flows",
         "--scheme", "cubic", "-o", "suite"],
        "suite/report.html",
    ),
    "attainable rate": (
        ["benchmark", "attainable-rate", "--configuration", "buffer-21", "--samples", "25", "--epsilon", "0.2",
         "--rate", "2 Mbit/s", "-o", "rate"],
        "rate/report.html",
    ),
    "schemes": (
        ["benchmark", "schemes", "short", "--world", "simulator", "-o", "schemes"],
        "schemes/report.html",
    ),
    "what if": (["what-if", "trace.parquet", "--flows", "1", "--flows", "2", "-o", "what-if.html"], "what-if.html"),
    "diagnosis": (["diagnose", "trace.parquet", "--advise", "-o", "diagnosis.html"], "diagnosis.html"),
}  # fmt: skip


@pytest.fixture(scope="module", params=PAGES)
def file(request, tmp_path_factory):
    arguments, page = PAGES[request.param]
    folder = tmp_path_factory.mktemp("page")
    if "trace.parquet" in arguments:
        # two flows one after another: what they share would take long to find out
        path = pathcast.Path.parse(
            "rate = '9 Mbit/s'\ndelay = '20 ms'\nloss = 0.002\nqueue = '1 BDP'"
        )
        first = {"kind": "transfer", "size": "6 MB", "count": 1}
        flows = pathcast.Scenario.over(path, ["cubic"]).replace_flow(0, workload=first)
        trace = pathcast.simulate(flows.with_flow(scheme="cubic", start="15 s"), duration_s=25)[1]
        trace.write(folder / "trace.parquet")
    done = run(*arguments, cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    return folder / page


def shown(browser, file, width, theme):
    """The page at a width in a theme; it may load nothing."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, offline=True
    )
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    assert asked == [file.as_uri()]
    return page


@VIEWS
def test_axe_finds_nothing_serious_and_nothing_is_cut_off(browser, file, width, theme):
    page = shown(browser, file, width, theme)
    assert not serious_violations(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # a table or picture that is wider than its place can be scrolled to its end
    cut = page.evaluate(
        """() => [...document.querySelectorAll('table, svg')].filter(one => {
            const right = one.getBoundingClientRect().right, place = one.closest('.scroll');
            return right > innerWidth && !(place && place.scrollWidth >= one.scrollWidth);
        }).length"""
    )
    assert cut == 0
    sizes = page.evaluate(
        """() => [...document.querySelectorAll('p, td, th, li, dd')].map(one =>
            parseFloat(getComputedStyle(one).fontSize))"""
    )
    assert min(sizes) >= 12
    page.context.close()


def test_on_paper_no_table_is_cut_off(browser, file):
    # A4, landscape, less margins of 12 mm, at 96 dots an inch
    width = 1032
    page = shown(browser, file, width, "light")
    page.emulate_media(media="print")
    widest = page.evaluate(
        "Math.max(...[...document.querySelectorAll('table, svg')].map(one => one.getBoundingClientRect().right))"
    )
    assert widest <= width + 1
    page.context.close()


def test_a_page_that_leaves_somebody_out_is_found(browser, tmp_path):
    """The judge itself: a picture without a name and text that can hardly be read."""
    file = tmp_path / "bad.html"
    file.write_text(
        "<!doctype html><html lang=en><title>bad</title><main><h1>bad</h1><svg role=img></svg>"
        "<p style='color:#bbb;background:#fff'>hardly</p></main></html>"
    )
    page = shown(browser, file, 1400, "light")
    found = {one["id"] for one in violations(page)}
    assert {"svg-img-alt", "color-contrast"} <= found
    page.context.close()


def test_all_pages_have_one_style():
    folders = [ROOT / "python/pathcast" / name for name in ("report", "experiments")]
    templates = [
        file for folder in folders for file in folder.rglob("*.j2") if file.name != "base.html.j2"
    ]
    assert len(templates) >= 3
    for file in templates:
        text = file.read_text()
        # parts of pages have a name with an underscore
        assert text.startswith('{% extends "base.html.j2" %}') or file.name.startswith("_")
        assert "style=" not in text and "<style" not in text
