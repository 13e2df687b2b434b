"""The pages in Chromium: counts, addresses, keys, accessibility, quiet and offline, whatever a caption says.

Of the second store: a model that loads, a picture that is uploaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from capim.reports.app.application import create_app
from capim.store import EmbeddingStore
from capim.store.schema import texts
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.reports.app.stores import TOKEN, A, B, NoServices, missed_and_found, services_of, serving
from tests.reports.test_browser import WIDTHS, Watched, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

A_FEW_ROWS = """() => {
  for (const extra of document.querySelectorAll("tbody tr ~ tr ~ tr ~ tr, .hits li ~ li ~ li")) extra.remove()
}"""


@contextmanager
def watching(browser: Browser, address: str, first: str = "/") -> Iterator[Watched]:
    """A window that has opened the address with the token."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(f"{address}{first}?token={TOKEN}")
    assert page.url == f"{address}{first}", "the token leaves the address"
    try:
        yield Watched(page)
    finally:
        context.close()


@pytest.fixture(scope="module")
def address(served_store: EmbeddingStore) -> Iterator[str]:
    """A server of the hostile store."""
    with serving(create_app(served_store, token=TOKEN, services=NoServices())) as started:
        yield started


@pytest.fixture(scope="module")
def watched(browser: Browser, address: str) -> Iterator[Watched]:
    with watching(browser, address) as window:
        yield window


@pytest.fixture(scope="module")
def window(browser: Browser, asked: EmbeddingStore) -> Iterator[tuple[Watched, str]]:
    """A window on the store with embeddings, and its address."""
    app = create_app(asked, token=TOKEN, services=services_of(asked))
    with serving(app) as started, watching(browser, started) as opened:
        yield opened, started


def elsewhere(window: Watched, address: str) -> set[str]:
    """What was asked of anybody but the server."""
    return {url for url in window.requests if not url.startswith((f"{address}/", "data:"))}


def _count(page: Page) -> int:
    return int(page.locator("#count").inner_text().split(" of ")[0].replace(",", ""))


def test_missed_by_one_and_found_by_another_by_keyboard_alone_then_back_reload_and_a_shared_address(
    watched: Watched, address: str, served_store: EmbeddingStore
) -> None:
    page = watched.page
    a, b, _ = sorted(served_store.counts("outcomes", "encoder"))
    page.goto(f"{address}/queries?protocol=t2i/all")
    every = _count(page)
    for box in (f"missed by {a}", f"found by {b}"):
        with page.expect_response(lambda answer: "/queries?" in answer.url):
            page.get_by_label(box, exact=True).focus()
            page.keyboard.press("Space")
        page.wait_for_function("text => document.querySelector('#count').textContent.includes(text)", arg=box)
    n = _count(page)
    assert n == len(missed_and_found(served_store, a, b, "protocol = 't2i/all'")) < every
    shared = page.url
    page.locator("body").press("j")
    first = page.locator(".queries tbody th a").first.inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url("**/query/**")
    page.keyboard.press("j")
    page.wait_for_url("**at=1&**")
    page.keyboard.press("k")
    page.wait_for_url("**at=0&**")
    assert " ".join(first.split())[:40] in " ".join(page.locator("h1").inner_text().split())
    page.go_back()
    page.go_back()
    page.go_back()
    assert (page.url, _count(page)) == (shared, n)
    page.reload()
    assert _count(page) == n
    page.goto(f"{address}/")
    page.goto(shared)
    assert _count(page) == n
    assert page.get_by_label(f"missed by {a}", exact=True).is_checked()
    page.go_back()
    page.wait_for_selector("#board tbody tr")


def test_a_list_goes_on_while_one_scrolls_and_ends(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(f"{address}/queries?protocol=t2i/all")
    assert page.locator(".queries tbody th a").count() == 50
    page.locator(".more").scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelectorAll('.queries tbody th a').length === 80")
    assert page.locator(".more").count() == 0
    assert "page=" not in page.url


def test_the_text_filter_keeps_what_is_typed_and_two_encoders_are_compared_within_it(
    watched: Watched, address: str, served_store: EmbeddingStore
) -> None:
    page = watched.page
    page.goto(f"{address}/queries?protocol=t2i/all")
    page.locator("#text").press_sequentially("fox")
    page.wait_for_url("**text=fox**")
    page.wait_for_function("() => document.querySelector('#count').textContent.startsWith('10 ')")
    assert page.locator("#text").input_value() == "fox"
    a, b, _ = sorted(served_store.counts("outcomes", "encoder"))
    for at, name in enumerate((a, b)):
        with page.expect_response(lambda answer: "/queries?" in answer.url):
            page.locator("select[name=encoders]").nth(at).select_option(name)
        page.wait_for_function("n => location.href.split('encoders=').length === n + 2", arg=at)
    page.locator(".quarters").wait_for()
    assert page.url.count("encoders=") == 2 and "text=fox" in page.url
    found = page.locator(".quarters td a").all_inner_texts()
    assert sum(map(int, found)) <= 10, "of the filter"
    page.locator(".quarters td a").first.click()
    page.wait_for_url("**right=**")
    page.locator("select[name=corpus]").evaluate("select => { select.options[0].value = 'nobody' }")
    page.locator("select[name=corpus]").dispatch_event("change")
    page.get_by_text("This cannot be shown").wait_for()  # an error is shown in the page, too
    assert "400 (Bad Request)" in watched.complaints.pop()


def test_what_is_copied_is_the_sql_of_the_view(watched: Watched, address: str, served_store: EmbeddingStore) -> None:
    page = watched.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{address}/queries?protocol=t2i/all&text=fox")
    page.get_by_role("button", name="Copy as SQL").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert served_store.sql(page.evaluate("navigator.clipboard.readText()")).num_rows == _count(page) == 10


def test_axe_finds_nothing_and_nothing_runs_over_the_edge(
    watched: Watched, browser: Browser, address: str, served_store: EmbeddingStore
) -> None:
    context = browser.new_context(bypass_csp=True, storage_state=watched.page.context.storage_state())
    page = context.new_page()
    found = []
    page.goto(f"{address}/queries?protocol=t2i/all&text=fox")
    one = str(page.locator(".queries tbody th a").first.get_attribute("href"))
    for path in (
        "/",
        "/queries?protocol=t2i/all",
        one,
        f"/queries?protocol=t2i/all&encoders={','.join(sorted(served_store.counts('outcomes', 'encoder'))[:2])}",
    ):
        page.set_viewport_size({"width": WIDTHS[-1], "height": 900})
        page.goto(f"{address}{path}")
        if path == "/":
            page.wait_for_selector("html[data-made=summary]", state="attached")
        page.evaluate(A_FEW_ROWS)
        found += violations(page, path)
    context.close()
    assert found == []


def test_hostile_captions_did_nothing_and_nothing_was_asked_of_anybody_else(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(f"{address}/queries?protocol=t2i/all&text=script")
    page.locator(".queries tbody th a").first.click()
    page.wait_for_url("**/query/**")
    assert page.locator("h1").inner_text().startswith("<")
    page.wait_for_load_state("networkidle")
    assert watched.complaints == []
    assert elsewhere(watched, address) == set()


def test_search_by_text_and_by_a_picture_that_is_uploaded(window: tuple[Watched, str], asked: EmbeddingStore) -> None:
    seen, address = window
    page = seen.page
    page.goto(f"{address}/search?corpus=shapes&encoders={A},{B}&k=3")
    page.get_by_label("Text").fill(texts(asked.items("shapes", "caption")["text"])[0])
    page.keyboard.press("Enter")
    page.wait_for_selector(".nearest >> nth=1", timeout=60_000)  # the models load meanwhile
    assert page.locator(".nearest li").count() == 6
    assert violations(page, "search") == []
    corpus = read_shapes(n_scenes=12)
    assert corpus.source is not None
    data = corpus.source.read(texts(corpus.images["key"])[3])
    page.get_by_label("Picture").set_input_files({"name": "own.png", "mimeType": "image/png", "buffer": data})
    page.get_by_role("button", name="Search by file").click()
    page.wait_for_selector(".sought img")
    assert page.locator(".nearest li").count() == 6
    page.locator(".nearest a").first.click()
    page.wait_for_url("**like=**")
    assert page.locator(".nearest li").count() == 20
    assert seen.complaints == []
    assert elsewhere(seen, address) == set()
