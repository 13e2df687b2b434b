"""The gallery in Chromium: filters in the address, counts as in SQL, pictures that enlarge, print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capim.reports.write import write_report
from capim.store import EmbeddingStore
from capim.tasks.analyses.content import caption_features
from capim.tasks.corpora.readers.shapes import read_shapes, read_shapes_multilingual
from capim.tasks.corpora.subset import index_images
from capim.tasks.report import diagnose_corpus
from capim.tasks.statistics.draws import Resampling
from tests.random_store import SPECS, random_store
from tests.reports.app.stores import evaluate, missed_and_found
from tests.reports.app.test_in_browser import violations
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
        index_images(corpus, known={}, sink=store.write_image_index)
        evaluations = evaluate(store, corpus, *SPECS, run="r")
        how: dict[str, Any] = {"resampling": Resampling(replicates=50), "run": "r"}
        diagnose_corpus.fn(evaluations, store_uri=store.uri, analyses=("errors", "ambiguous"), **how)
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


def shown(watched: Watched) -> list[str]:
    """Corpus, protocol and id of the queries that are shown."""
    return watched.page.locator(".case:not([hidden]) .about").all_text_contents()


def test_missed_by_a_and_found_by_b_is_in_the_address_and_the_same_after_loading_it(
    watched: Watched, address: str
) -> None:
    page = watched.page
    page.goto(address)
    everything = shown(watched)
    page.locator("[name=missed]").select_option(A)
    page.locator("[name=found]").select_option(B)
    chosen = shown(watched)
    assert 0 < len(chosen) < len(everything)
    assert page.url.endswith(f"#cases?missed={A}&found={B}")
    sent = page.url
    page.goto("about:blank")
    page.goto(sent)
    assert shown(watched) == chosen
    assert page.locator("[name=missed]").input_value() == A
    page.reload()
    assert shown(watched) == chosen
    page.get_by_role("button", name="Show all").click()
    page.wait_for_function("location.hash === '#cases'")
    assert shown(watched) == everything
    assert watched.complaints == []


def test_counts_are_those_of_sql(watched: Watched, address: str, store: EmbeddingStore) -> None:
    """Over all stored queries of the gallery's protocols, and over the queries that the page holds."""
    watched.page.goto(f"{address}#cases?missed={A}&found={B}")
    shown_protocols = (
        "(protocol IN ('t2i/all', 'i2t/any') AND corpus = 'shapes' "
        "OR corpus = 'shapes-multilingual' AND protocol LIKE '%2%/%/%')"
    )
    fitting = {" · ".join(query) for query in missed_and_found(store, A, B, shown_protocols)}
    on_the_page = set(watched.page.locator(".case .about").all_text_contents())
    assert set(shown(watched)) == on_the_page & fitting
    text = watched.page.locator("output.shown").inner_text()
    assert f"{len(on_the_page & fitting)} of {len(on_the_page)} cases fit." in text
    assert text.endswith(f" {len(fitting)} are missed by {A} and found by {B}.")


def test_every_corpus_and_direction_has_cases_and_words_of_the_text_filter(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(address)
    for name, options in {
        "corpus": {"shapes", "shapes-multilingual"},
        "direction": {"text to image", "image to text"},
        "language": {"de", "en", "es", "fr", "it", "ru"},
    }.items():
        select = page.locator(f"[name={name}]")
        assert {option for option in select.locator("option").all_text_contents() if option != "all"} == options
        for option in options:
            select.select_option(option)
            assert shown(watched), option
        select.select_option("")
    page.locator("[name=text]").fill("Roter Kreis")
    words = page.locator(".case:not([hidden]) h4").all_text_contents()
    assert words == [] or all("roter" in text.lower() or "scene" in text for text in words)
    page.locator("[name=text]").fill("no such words")
    assert shown(watched) == []
    assert page.url.endswith("#cases?text=no+such+words")
    page.goto(f"{address}#cases?missed=nobody&text=%3Cimg%3E")
    assert page.locator("[name=missed]").input_value() == ""
    assert watched.complaints == []


def test_pictures_enlarge_by_keyboard_uncropped_and_the_focus_returns(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(address)
    button = page.locator(".case .enlarge").first
    button.focus()
    page.keyboard.press("Enter")
    viewer = page.locator("dialog.viewer")
    assert viewer.is_visible()
    caption = viewer.locator("figcaption")
    first = caption.inner_text()
    page.keyboard.press("ArrowRight")
    assert caption.inner_text() != first
    page.keyboard.press("ArrowLeft")
    assert caption.inner_text() == first
    page.keyboard.press("Escape")
    assert not viewer.is_visible()
    assert button.evaluate("button => button === document.activeElement")
    page.locator(".case .answer svg.thumb").nth(1).click()
    assert viewer.locator("svg").bounding_box()["width"] > 300  # type: ignore[index]
    viewer.get_by_role("button", name="Close").click()
    assert not viewer.is_visible()
    fits = "images => images.every((i) => i.getAttribute('preserveAspectRatio') === 'xMidYMid meet')"
    assert page.locator("symbol image").evaluate_all(fits)


def test_answers_of_all_encoders_stand_open_and_are_printed(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(address)
    assert page.locator(".gallery details").count() == 0
    assert page.locator(".case").first.locator(".answer:visible").count() == len(SPECS)
    page.emulate_media(media="print")
    assert page.locator(".case").first.locator(".answer svg.thumb").first.is_visible()
    assert not page.locator(".filters").is_visible()
    assert not page.locator(".enlarge").first.is_visible()
    assert page.locator("output.shown").is_visible()


def test_axe_finds_nothing_in_the_failures(browser: Browser, address: str) -> None:
    """A few of the cases, which look alike, are enough: axe takes minutes for all."""
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    page.goto(f"{address}#cases?missed={A}")
    page.evaluate("document.querySelectorAll('.case:not([hidden]) ~ .case ~ .case').forEach((each) => each.remove())")
    assert violations(page, "failures", inside="#failures") == []
    context.close()
