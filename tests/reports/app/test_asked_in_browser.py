"""Search and maps in Chromium: a model that loads, a picture that is uploaded, a selection by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capim.flows.searching import StoreServices
from capim.reports.app.application import create_app
from capim.store import EmbeddingStore
from capim.store.schema import texts
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.reports.app.asked import A, B
from tests.reports.app.conftest import TOKEN
from tests.reports.app.test_in_browser import serving
from tests.reports.test_browser import SCHEMES, WIDTHS, Watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def watched(browser: Browser, asked: EmbeddingStore) -> Iterator[tuple[Watched, str]]:
    services = StoreServices(asked, maps=Path(asked.uri).parent / "maps", device="cpu")
    with serving(create_app(asked, token=TOKEN, services=services)) as address:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto(f"{address}/?token={TOKEN}")
        yield Watched(page), address
        context.close()


def _accessible(watched: Watched, what: str) -> None:
    """Axe finds nothing and nothing is wider than the window, at every width, light and dark."""
    page = watched.page
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    for width, scheme in product(WIDTHS, SCHEMES):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate("axe.run()")
        assert [(rule["id"], rule["nodes"][0]["target"]) for rule in found["violations"]] == [], (what, width, scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (what, width)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")


def test_search_by_text_and_by_a_picture_that_is_uploaded(watched: tuple[Watched, str], asked: EmbeddingStore) -> None:
    seen, address = watched
    page = seen.page
    page.goto(f"{address}/search?corpus=shapes&encoders={A},{B}&k=3")
    page.get_by_label("Text").fill(texts(asked.items("shapes", "caption")["text"])[0])
    page.keyboard.press("Enter")
    page.wait_for_selector(".nearest >> nth=1", timeout=60_000)  # the models load meanwhile
    assert page.locator(".nearest li").count() == 6
    _accessible(seen, "search")
    corpus = read_shapes(n_scenes=12)
    assert corpus.source is not None
    data = corpus.source.read(texts(corpus.images["key"])[3])
    page.get_by_label("Picture").set_input_files({"name": "own.png", "mimeType": "image/png", "buffer": data})
    page.get_by_role("button", name="Search for the picture").click()
    page.wait_for_selector(".sought img")
    assert page.locator(".nearest li").count() == 6
    page.locator(".nearest a").first.click()
    page.wait_for_url("**like=**")
    assert page.locator(".nearest li").count() == 20
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith((address, "data:"))] == []


def test_a_selection_on_the_map_by_mouse_and_by_keyboard_leads_to_its_queries(watched: tuple[Watched, str]) -> None:
    seen, address = watched
    page = seen.page
    page.goto(f"{address}/map?corpus=shapes&encoders={A},{B}&colour=both")
    page.wait_for_selector("canvas >> nth=1")
    assert page.locator("canvas").first.evaluate("canvas => canvas.width") > 100  # drawn
    _accessible(seen, "map")
    box = page.locator("canvas").first.bounding_box()
    assert box is not None
    corners = [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]
    for number, (across, down) in enumerate(corners):
        page.mouse.move(box["x"] + 1 + across * (box["width"] - 2), box["y"] + 1 + down * (box["height"] - 2))
        if not number:
            page.mouse.down()
    page.mouse.up()
    every = int(page.locator("#selected").inner_text().split()[0])
    page.keyboard.press("Escape")
    page.locator("canvas").first.focus()
    page.keyboard.press("Escape")
    for key in ("ArrowLeft", "ArrowRight", "ArrowUp", "Space"):
        page.keyboard.press(key)
    page.wait_for_selector("#item figcaption")
    n = int(page.locator("#selected").inner_text().split()[0])
    assert n == 21 <= every
    page.keyboard.press("Enter")
    page.wait_for_url("**/queries?**items=**")
    assert page.locator("#count").inner_text().startswith("21 of ")
    page.go_back()
    page.wait_for_selector("canvas >> nth=1")
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith((address, "data:"))] == []
