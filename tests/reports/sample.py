"""Makes ``reports/sample`` anew, the demo's report, and ``docs/first-screen.png``, the README's picture of its answer.

``make sample`` runs the demo and this: ``.venv/bin/python -m tests.reports.sample workspace/reports/RUN``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import FloatRect, sync_playwright

from tests.reports.conftest import CHROMIUM

ROOT = Path(__file__).resolve().parents[2]
SAMPLE, PICTURE = ROOT / "reports" / "sample", ROOT / "docs" / "first-screen.png"
WIDTH, HEIGHT, MARGIN = 1440, 1000, 24


def make_sample(report: Path) -> None:
    """Copies a report's folder and takes the picture of its answer."""
    if SAMPLE.exists():
        shutil.rmtree(SAMPLE)
    shutil.copytree(report, SAMPLE)
    take_picture(SAMPLE / "report.html", PICTURE)


def take_picture(page_file: Path, picture: Path) -> None:
    """Writes the page from its top to the end of the board, without the contents."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-made=summary]", state="attached")
        main, board = (page.locator(part).first.bounding_box() for part in ("main", "#answer-grid"))
        if main is None or board is None:
            raise ValueError(f"{page_file}: the board is not shown")
        height = board["y"] + board["height"] + 4
        clip: FloatRect = {"x": main["x"] - MARGIN, "y": 0, "width": main["width"] + 2 * MARGIN, "height": height}
        page.screenshot(path=picture, clip=clip, full_page=True)
        browser.close()


if __name__ == "__main__":
    make_sample(Path(sys.argv[1]))
