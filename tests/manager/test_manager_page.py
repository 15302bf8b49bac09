"""The manager's page in Chromium: an operator approves, pins and reverts; on a phone, in the dark."""

import re

import pytest
from managing import MODEL, managing

PREFIXES = [f"10.0.{number}.0/24" for number in range(4)]
PHONE = {"width": 360, "height": 740}


@pytest.fixture
def manager(tmp_path):
    """A manager whose shadow never ends by itself: an operator must approve."""
    guardrails = (
        "[guardrails]\nshadow_s = 3600\nslot_s = 60\ncanary = 1.0\nhold_out = 0.0\n"
        "least_reports = 1\nleast_flows = 1\nagreeing_reports = 1\n"
    )
    with managing(tmp_path, guardrails) as one:
        assert one.ask("PUT", "/v1/model", MODEL)[0] == 200
        secret = one.agent("edge")
        for sequence in (1, 2):
            one.report("edge", secret, sequence, PREFIXES)
        yield one


def until(page, where, text):
    """Waits until the page has a text there. Its policy forbids the functions that Playwright else waits for."""
    from playwright.sync_api import expect

    expect(page.locator(where)).to_contain_text(text)


def opened(browser, manager, **options):
    """The page, once it shows the manager's answers; questions are answered with yes."""
    page = browser.new_page(**options)
    page.asked, page.errors = [], []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("dialog", lambda asked: (page.asked.append(asked.message), asked.accept()))
    page.goto(manager.base + "/")
    until(page, "#state", re.compile("^version"))
    return page


def in_force(manager):
    """Template by prefix, of those that have one."""
    found = manager.ask("GET", "/v1/prefixes?limit=50")[1]["prefixes"]
    return {one["prefix"]: one["template"] for one in found if one["template"] != "default"}


def test_an_operator_approves_pins_and_reverts(browser, manager):
    page = opened(browser, manager)
    trial = page.locator("#trials tbody tr").first
    assert "shadow" in trial.inner_text()
    assert in_force(manager) == {}

    trial.get_by_role("button", name="Approve").click()
    until(page, "#trials tbody", "canary")
    page.locator("#trials tbody tr").first.get_by_role("button", name="Approve").click()
    until(page, "#trials tbody", "promoted")
    assert in_force(manager) == dict.fromkeys(PREFIXES, "lossy")

    page.fill("#prefix", PREFIXES[1])
    page.select_option("#to", "default")
    page.locator("#pin button").click()
    until(page, "#prefixes tbody", "pinned")
    assert in_force(manager) == dict.fromkeys([PREFIXES[0], *PREFIXES[2:]], "lossy")
    page.fill("#prefix", "192.0.2.1/24")
    page.locator("#pin button").click()
    until(page, "#problem", "bits beyond")
    page.evaluate("refresh(true)")
    until(page, "#problem", "bits beyond")

    version = manager.ask("GET", "/v1/status")[1]["version"]
    page.get_by_role("button", name="Revert to").first.click()
    page.wait_for_selector("#resume", state="visible")
    assert manager.ask("GET", "/v1/status")[1]["version"] > version
    assert in_force(manager) == dict.fromkeys(PREFIXES, "lossy"), "the version before the pin"
    page.click("#resume")
    page.wait_for_selector("#resume", state="hidden")
    assert [question.split()[0] for question in page.asked] == ["Take", "Take", "Put"]
    assert page.errors == []


def test_what_is_refused_is_said_until_the_next_action(browser, manager):
    page = opened(browser, manager)
    page.keyboard.press("p")  # the page is not refreshed, and somebody else reverts the trial
    (trial,) = manager.ask("GET", "/v1/trials")[1]["trials"]
    assert manager.ask("POST", f"/v1/trials/{trial['id']}/revert")[0] == 200
    page.get_by_role("button", name="Approve").click()
    until(page, "#trials tbody", "rolled back")
    until(page, "#problem", re.compile("."))
    page.fill("#prefix", PREFIXES[1])
    page.locator("#pin button").click()
    until(page, "#prefixes tbody", "pinned")
    until(page, "#problem", re.compile("^$"))
    # a refused filter is refused to each refresh too, and said once
    page.fill("#client", "nonsense")
    page.press("#client", "Enter")
    until(page, "#problem", re.compile("."))
    said = page.locator("#problem").inner_text()
    page.evaluate("refresh(true)")
    assert page.locator("#problem").inner_text() == said


def test_no_changes_without_a_yes(browser, manager):
    page = browser.new_page()
    page.on("dialog", lambda asked: asked.dismiss())
    page.goto(manager.base + "/")
    page.get_by_role("button", name="Approve").click()
    page.wait_for_timeout(500)
    assert manager.ask("GET", "/v1/trials")[1]["trials"][0]["stage"] == "shadow"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_whole_page_and_text_is_readable(browser, manager, scheme):
    page = opened(browser, manager, viewport=PHONE, color_scheme=scheme)
    wide, high = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    )
    assert wide <= PHONE["width"], f"the page is {wide} wide: it scrolls sideways"
    assert high > PHONE["height"]
    for button in page.locator("button:visible").all():
        assert button.bounding_box()["height"] >= 36, button.inner_text()
    # WCAG 2: relative luminance, and contrast of at least 4.5
    contrasts = page.evaluate("""() => {
      const light = text => { const [r, g, b] = text.match(/[\\d.]+/g).map(x => { x /= 255;
        return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const back = node => { for (; node; node = node.parentElement) { const found = getComputedStyle(node).backgroundColor;
        if (!found.endsWith(', 0)')) return found; } return 'rgb(255, 255, 255)'; };
      return [...document.querySelectorAll('h1, h2, p, th, td, b, button, label, .soft')].filter(one => one.innerText)
        .map(one => { const [a, b] = [light(getComputedStyle(one).color), light(back(one))].sort((x, y) => x - y);
          return [(b + 0.05) / (a + 0.05), one.innerText.slice(0, 30)]; }); }""")
    assert len(contrasts) > 40
    assert min(contrasts)[0] >= 4.5, min(contrasts)
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light"), back
    assert page.errors == []
