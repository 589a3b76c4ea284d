"""The page in headless Chromium: by pointer, by keyboard, dark and narrow."""

import re

import numpy as np
import pytest

from tests.browser import BROWSER, needs_browser

sync_api = pytest.importorskip("playwright.sync_api", reason="drives the browser of page tests")
pytestmark = needs_browser
PATIENCE = 60_000
SETTLED = "body[data-settled=true]"
REST = 140
"""Milliseconds without a change after which the page asks for an exact picture."""
COLOURS = """() => {
  const canvas = document.getElementById("figure");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"], timeout=PATIENCE
        )
        yield found
        found.close()


@pytest.fixture
def open_page(browser, server):
    """Open the page; anything it complains of fails the test."""
    contexts, complaints = [], []

    def opened(**options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda m: m.type == "error" and complaints.append(m.text))
        page.on(
            "request",
            lambda r: r.url.startswith(server.address) or complaints.append(f"went to {r.url}"),
        )
        page.goto(server.address)
        page.wait_for_selector(SETTLED)
        return page

    opened.complaints = complaints
    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def settle(page, action):
    """Do something and wait for the exact picture that follows.

    A slow machine may ask for exact pictures on the way: the last one counts.
    """
    answers = []

    def note(response):
        answers.append(response)

    page.on("response", note)
    with page.expect_response(_exact):
        action()
    for pause in (3 * REST, 0):
        page.wait_for_selector(SETTLED)
        page.wait_for_timeout(pause)
    page.remove_listener("response", note)
    answer = [response for response in answers if _exact(response)][-1]
    return answer.request.post_data_json, answer.json()


def _exact(response):
    if response.request.method != "POST" or not response.ok:
        return False
    if response.request.post_data_json["draft"]:
        return False
    try:
        return "superseded" not in response.json()
    except sync_api.Error:  # the page has dropped it for a newer one
        return False


def drag(page, start, end):
    at = page.locator("#figure").bounding_box()
    places = [(at["x"] + x * at["width"], at["y"] + y * at["height"]) for x, y in (start, end)]
    page.mouse.move(*places[0])
    page.mouse.down()
    page.mouse.move(*places[1], steps=3)
    page.mouse.up()


def test_a_box_has_its_exact_probability_where_a_column_is_given(open_page, named_model):
    page = open_page()
    assert page.title() == "people.qaffde – explorer"
    assert page.evaluate(COLOURS) > 100
    slider = page.get_by_label("age, slide to condition on it")
    asked, _ = settle(page, lambda: slider.fill("0.5"))
    assert asked["given"] == {"2": 0.5}
    assert "where age = 0.50" in page.inner_text("#headline")
    asked, answer = settle(page, lambda: drag(page, (0.3, 0.4), (0.55, 0.7)))
    lower, upper = np.array(asked["box"]).T
    density = named_model.condition({"age": 0.5}).marginal(["height", "weight"])
    assert answer["probability"] == pytest.approx(density.probability(lower, upper), abs=1e-5)
    shown = float(page.inner_text("#probability").split(" ")[0]) / 100
    assert shown == pytest.approx(answer["probability"], abs=1e-4)
    assert re.search(r"height = .*\nweight = .*\ndensity = [\d.]", page.inner_text("#pointer"))


def test_everything_can_be_done_by_keyboard(open_page):
    page = open_page()
    names, outlines = [], set()
    for _ in range(9):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            """() => {
              const at = document.activeElement;
              const style = getComputedStyle(at);
              const name = at.id || at.getAttribute("aria-label");
              return [name, style.outlineStyle + style.outlineWidth];
            }"""
        )
        names.append(name)
        outlines.add(outline)
    expected = [
        "figure",
        "across",
        "up",
        "swap",
        "fix-2",
        "age, slide to condition on it",
        "fix-3",
    ]
    assert names[1:8] == expected
    assert outlines == {"solid3px"}
    page.focus("#figure")
    for key in ("Shift+ArrowLeft", "Space", "Shift+ArrowRight", "Shift+ArrowUp"):
        page.keyboard.press(key)
    asked, answer = settle(page, lambda: page.keyboard.press("ArrowRight"))
    assert all(low < high for low, high in asked["box"])
    assert 0 < answer["probability"] < 0.5
    settle(page, lambda: page.keyboard.press("Escape"))
    assert page.inner_text("#probability") == "–"
    page.get_by_label("age, slide to condition on it").focus()
    before = float(page.get_by_label("age, slide to condition on it").input_value())
    asked, _ = settle(page, lambda: page.keyboard.press("ArrowRight"))
    assert asked["given"]["2"] > before


def test_one_column_with_typed_ends(open_page, named_model):
    page = open_page()
    settle(page, lambda: page.select_option("#up", ""))
    assert page.locator("#ends input").count() == 2
    settle(page, lambda: page.fill("#ends input >> nth=0", "-0.5"))
    _, answer = settle(page, lambda: page.fill("#ends input >> nth=1", "1.5"))
    expected = named_model.marginal(["height"]).probability(-0.5, 1.5)
    assert answer["probability"] == pytest.approx(expected, abs=1e-5)
    assert page.inner_text("#probability") == f"{100 * expected:.2f} %"
    settle(page, lambda: page.click("#clear"))
    assert page.input_value("#ends input >> nth=0") == ""


def test_columns_change_places(open_page):
    page = open_page()
    asked, _ = settle(page, lambda: page.select_option("#across", "3"))
    assert asked["shown"] == [3, 1]
    asked, _ = settle(page, lambda: page.click("#swap"))
    assert asked["shown"] == [1, 3]
    assert page.inner_text("#headline").startswith("weight and <b>odd</b> name")
    assert page.locator("main b").count() == 0
    asked, _ = settle(page, lambda: page.click("#fix-all"))
    assert sorted(asked["given"]) == ["0", "2"]
    asked, _ = settle(page, lambda: page.click("#free-all"))
    assert asked["given"] == {}


def test_a_box_that_is_cleared_takes_its_probability_along(open_page):
    page = open_page()
    for clear in (
        lambda: page.click("#swap"),
        lambda: page.select_option("#across", "3"),
        lambda: page.select_option("#up", ""),
        lambda: page.click("#clear"),
    ):
        settle(page, lambda: drag(page, (0.3, 0.4), (0.55, 0.7)))
        assert page.inner_text("#probability").endswith(" %")
        asked, answer = settle(page, clear)
        assert (asked["box"], answer["probability"]) == (None, None)
        assert page.inner_text("#probability") == "–"


def test_the_mass_in_view_is_said(open_page):
    page = open_page()
    _, answer = settle(page, lambda: page.click("#swap"))
    shown = f"{100 * answer['covered']:.2f} % of the mass in view"
    assert shown in page.inner_text("#status")


def test_layers_can_be_taken_away(open_page):
    page = open_page()
    picture = page.evaluate("document.getElementById('figure').toDataURL()")
    asked, _ = settle(page, lambda: page.uncheck("#samples"))
    assert asked["samples"] == 0
    without = page.evaluate("document.getElementById('figure').toDataURL()")
    page.uncheck("#contours")
    bare = page.evaluate("document.getElementById('figure').toDataURL()")
    assert len({picture, without, bare}) == 3


def test_every_control_has_a_name(open_page):
    page = open_page()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button, canvas")].filter((e) =>
          ![e.ariaLabel, e.textContent, e.labels?.[0]?.textContent].some((text) => text?.trim())
        ).map((e) => e.outerHTML)"""
    )
    assert nameless == []


@pytest.mark.parametrize("width", [320, 768])
def test_narrow_screens_need_no_sideways_scrolling(open_page, width):
    page = open_page(viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_is_dark(open_page):
    shades = [
        open_page(color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    light, dark = (sum(map(int, re.findall(r"\d+", shade))) for shade in shades)
    assert light > 600
    assert dark < 150


def test_trouble_is_told_and_passes(open_page):
    page = open_page()
    settle(page, lambda: page.check("#fix-2"))
    page.get_by_label("Value of age").fill("1e200")
    page.wait_for_selector("#trouble:visible")
    assert "nearer to the data" in page.inner_text("#trouble")
    settle(page, lambda: page.get_by_label("Value of age").fill("0.1"))
    assert page.is_hidden("#trouble")
    assert all("400" in text for text in open_page.complaints)
    open_page.complaints.clear()
