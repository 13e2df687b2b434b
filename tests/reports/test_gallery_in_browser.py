"""The gallery in Chromium: filters in the address, counts as in SQL."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pytest

from capim.reports.write import write_report
from capim.store import EmbeddingStore
from capim.tasks.analyses.content import caption_features
from capim.tasks.corpora.readers.shapes import read_shapes, read_shapes_multilingual
from capim.tasks.corpora.subset import index_images
from capim.tasks.references import RunSettings
from capim.tasks.report import diagnose_corpus
from capim.tasks.statistics.draws import Resampling
from tests.random_store import SPECS, random_store
from tests.reports.app.stores import evaluate, missed_and_found
from tests.reports.pages import cases
from tests.reports.test_browser import Watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]
A, B = (spec.name for spec in SPECS)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingStore:
    """Two encoders that draw their vectors, on two corpora, evaluated and diagnosed."""
    folder = tmp_path_factory.mktemp("gallery") / "store"
    for corpus in (read_shapes(n_scenes=12), read_shapes_multilingual(n_scenes=4)):
        store = random_store(folder, corpus)
        index_images(corpus, known={}, sink=store.write_images)
        evaluations = evaluate(store, corpus, *SPECS, run="r")
        how: dict[str, Any] = {"resampling": Resampling(replicates=50), "run": "r"}
        diagnose_corpus.fn(evaluations, RunSettings(store_uri=store.uri, analyses=("errors", "ambiguous"), **how))
    return store


@pytest.fixture(scope="module")
def address(store: EmbeddingStore, tmp_path_factory: pytest.TempPathFactory) -> str:
    page = write_report(store, tmp_path_factory.mktemp("report"), describe=caption_features)
    return Path(page).as_uri()


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield Watched(context.new_page())
    context.close()


def fitting(watched: Watched) -> int:
    """How many cases match, as the page says."""
    return int(watched.page.locator(".gallery output").inner_text().split(" of ")[0])


def opened(watched: Watched, address: str) -> None:
    """The page at its failures, which are made when they are seen."""
    watched.page.goto(address)
    watched.page.locator("#failures").scroll_into_view_if_needed()
    watched.page.locator(".wall li").first.wait_for()


def test_counts_are_those_of_sql(watched: Watched, address: str, store: EmbeddingStore) -> None:
    """Over all stored queries of the gallery's protocols, and over the queries that the page holds."""
    opened(watched, f"{address}#cases?missed={A}&found={B}")
    shown_protocols = (
        "(protocol IN ('t2i/all', 'i2t/any') AND corpus = 'shapes' "
        "OR corpus = 'shapes-multilingual' AND protocol LIKE '%2%/%/%')"
    )
    stored = {" · ".join(query) for query in missed_and_found(store, A, B, shown_protocols)}
    shown = re.compile('<p class="about">(.*?)</p>')
    held = {
        html.unescape(shown.findall(case["view"])[0])
        for case in cases(Path(unquote(urlparse(address).path)).read_text("utf-8"))
    }
    text = watched.page.locator(".gallery output").inner_text()
    assert f"{len(held & stored)} of {len(held)} cases match." in text
    assert text.endswith(f" {len(stored)} are missed by {A} and found by {B}.")
    assert watched.page.locator("[name=missed]").input_value() == A, "of the address"
    watched.page.get_by_role("button", name="Show all").click()
    watched.page.wait_for_function("!location.hash.includes('missed')")
    assert fitting(watched) == len(held)
    assert watched.complaints == []


def test_every_corpus_and_direction_has_cases_and_words_of_the_text_filter(watched: Watched, address: str) -> None:
    page = watched.page
    opened(watched, address)
    for name, options in {
        "corpus": {"shapes", "shapes-multilingual"},
        "direction": {"text to image", "image to text"},
        "language": {"de", "en", "es", "fr", "it", "ru"},
    }.items():
        select = page.locator(f".gallery [name={name}]")
        assert {option for option in select.locator("option").all_text_contents() if option != "no filter"} == options
        for option in options:
            select.select_option(option)
            assert fitting(watched), option
        select.select_option("")
    page.locator(".gallery [name=text]").fill("no such words")
    assert fitting(watched) == 0
    assert "text=no+such+words" in page.url
    page.goto(f"{address}#cases?missed=nobody&text=%3Cimg%3E")
    assert page.locator("[name=missed]").input_value() == ""
    assert watched.complaints == []


def test_a_case_of_the_first_screen_opens_a_picture_is_enlarged_by_a_key_and_a_lost_one_is_words(
    watched: Watched, address: str
) -> None:
    page = watched.page
    page.goto(address)
    page.locator("#first-cases li a").first.click()
    viewer = page.locator("dialog[open]")
    viewer.locator(".thumb").first.focus()
    page.keyboard.press("Enter")
    assert viewer.locator(".zoom").count() == 1
    page.keyboard.press("Escape")
    assert (viewer.locator(".zoom").count(), viewer.count()) == (0, 1), "the first Escape leaves the picture"
    lost = viewer.locator(".thumb").first
    words = lost.get_attribute("alt")
    lost.evaluate("image => { image.src = 'data:image/jpeg;base64,AAAA'; }")
    assert words == viewer.locator(".words").first.inner_text()
    page.keyboard.press("Escape")
    assert viewer.count() == 0
    assert watched.complaints == []
