"""The stand-in stores, and a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capim.reports.write import write_report
from tests.reports.large import coco
from tests.reports.stand_in import StandIn, demo

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

HOSTILE = (
    "<script>alert(1)</script>",
    "\u0643\u0644\u0628 \u0623\u062d\u0645\u0631 \u200f\u064a\u062c\u0631\u064a beside a bus",
    "a 🦊 fox 👩‍👩‍👧 and a 🏳️‍🌈",
    "very long " * 200,
    "a | b *c* [d](https://example.com) `e` <img src=x onerror=alert(2)> &amp; {{ 7 * 7 }} $x$",
    "</script><script>alert(3)</script>",
    '=HYPERLINK("https://example.com?"&A1,"a bus")',
    "line one\nline two\r\n# not a heading\n- not a list",
    "\"quoted\" 'single' \\ backslash \x1b[31mred \u202egnp",
)
ODD_ID = "im\"0'><b>&\u202e.jpg"


@pytest.fixture
def demo_store() -> StandIn:
    """Three encoders, two corpora, like the demo's store."""
    return demo()


@pytest.fixture(scope="session")
def large_store() -> StandIn:
    """Nine models on a corpus of COCO's form, with languages and compositional corpora."""
    return coco(n_images=40)


@pytest.fixture(scope="session")
def hostile_store() -> StandIn:
    """Three models on a small corpus whose captions and one file name try to break a page."""
    texts = [HOSTILE[i % len(HOSTILE)] for i in range(16) for _ in range(5)]
    return coco(n_images=16, n_models=3, n_languages=3, texts=texts, ids=[ODD_ID])


@pytest.fixture(scope="session")
def hostile_report(hostile_store: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its report."""
    return Path(write_report(hostile_store, tmp_path_factory.mktemp("hostile"))).parent


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium with an empty profile, and no way to the network that a page could use unseen."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM)
        yield chromium
        chromium.close()
