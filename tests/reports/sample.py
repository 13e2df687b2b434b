"""Makes anew from the demo ``reports/sample``, its report, and the pictures of ``docs``: its answer, and `capim serve`.

``make sample`` runs the demo and this: ``.venv/bin/python -m tests.reports.sample workspace/reports/RUN``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, FloatRect, sync_playwright

from capim.reports.app.application import create_app
from capim.store import EmbeddingStore
from tests.reports.app.stores import TOKEN, A, B, services_of, serving
from tests.reports.conftest import CHROMIUM

ROOT = Path(__file__).resolve().parents[2]
SAMPLE, DOCS = ROOT / "reports" / "sample", ROOT / "docs"
WIDTH, HEIGHT, MARGIN = 1440, 1000, 24
SERVED = 1280  # pixels: the width of a picture of a page of `capim serve`
QUERIES = f"/queries?corpus=shapes&protocol=t2i/all&wrong={B}&right={A}"


def make_sample(report: Path) -> None:
    """Copies a report's folder, and takes the pictures of its answer and of the pages over its store."""
    if SAMPLE.exists():
        shutil.rmtree(SAMPLE)
    shutil.copytree(report, SAMPLE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM)
        take_answer(browser, SAMPLE / "report.html", DOCS / "first-screen.png")
        take_pages(browser, EmbeddingStore.open(report.absolute().parents[1] / "store"), DOCS)
        browser.close()


def take_answer(browser: Browser, page_file: Path, picture: Path) -> None:
    """Writes the page from its top to the end of the board, without the contents."""
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    page.goto(page_file.as_uri())
    page.wait_for_selector("html[data-made=summary]", state="attached")
    main, board = (page.locator(part).first.bounding_box() for part in ("main", "#board"))
    if main is None or board is None:
        raise ValueError(f"{page_file}: the board is not shown")
    height = board["y"] + board["height"] + 4
    clip: FloatRect = {"x": main["x"] - MARGIN, "y": 0, "width": main["width"] + 2 * MARGIN, "height": height}
    page.screenshot(path=picture, clip=clip, full_page=True)


def take_pages(browser: Browser, store: EmbeddingStore, folder: Path) -> None:
    """Writes the grid, the queries that one model misses and another finds, and the first of them as a page."""
    app = create_app(store, token=TOKEN, services=services_of(store), judgements=folder / "judgements.csv")
    with serving(app) as address:
        page = browser.new_page(viewport={"width": SERVED, "height": 900}, color_scheme="light")
        page.goto(f"{address}/?token={TOKEN}")
        page.wait_for_selector("html[data-made=summary]", state="attached")
        page.screenshot(path=folder / "serve-grid.png")
        page.goto(f"{address}{QUERIES}", wait_until="networkidle")
        page.screenshot(path=folder / "serve-queries.png")
        page.locator(".queries tbody th a").first.click()
        page.wait_for_load_state("networkidle")
        end = page.locator(".view-tools").bounding_box()
        if end is None:
            raise ValueError(f"{page.url}: the page has no end")
        page.set_viewport_size({"width": SERVED, "height": int(end["y"] + end["height"] + MARGIN)})
        page.screenshot(path=folder / "serve-query.png")
    for picture in folder.glob("serve-*.png"):
        Image.open(picture).quantize(256).save(picture, optimize=True)


if __name__ == "__main__":
    make_sample(Path(sys.argv[1]))
