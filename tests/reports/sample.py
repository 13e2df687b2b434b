"""Makes ``reports/sample`` anew: the demo's report, and the picture of it that the README shows.

Run after ``make demo``: ``.venv/bin/python -m tests.reports.sample workspace/reports/RUN``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.reports.conftest import CHROMIUM

SAMPLE = Path(__file__).resolve().parents[2] / "reports" / "sample"
WIDTH, HEIGHT = 1280, 1460


def make_sample(report: Path) -> None:
    """Copies a report's folder and takes the picture of its upper part."""
    if SAMPLE.exists():
        shutil.rmtree(SAMPLE)
    shutil.copytree(report, SAMPLE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto((SAMPLE / "report.html").as_uri())
        page.wait_for_selector("html[data-charts=drawn]", state="attached")
        page.screenshot(path=SAMPLE / "report.png")
        browser.close()


if __name__ == "__main__":
    make_sample(Path(sys.argv[1]))
