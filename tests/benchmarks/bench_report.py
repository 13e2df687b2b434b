"""How large a report gets and how long it takes: nine synthetic models on a COCO-sized corpus.

Then the workspace of ``tests.reports.big_workspace``, ten encoders on five corpora, in a browser. No peer makes such a
report.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from capim.reports.write import write_report
from tests.benchmarks.own_process import peak_gib
from tests.benchmarks.rows import Row, clocked
from tests.reports.big_workspace import make
from tests.reports.conftest import CHROMIUM
from tests.reports.large import coco

MEGABYTE = 1e6


def run(quick: bool = False) -> list[Row]:
    """Size, time and memory of both reports, and what a browser makes of the larger one."""
    store = coco(n_images=500 if quick else 5000)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        written, seconds = clocked(lambda: write_report(store, target / "report"))
        page = Path(written)
        size = page.stat().st_size / MEGABYTE
        results = (target / "report" / "results.json").stat().st_size / MEGABYTE
        peak = peak_gib()
        whole = "one self-contained file with thumbnails"
        corpus = f"{store.contents['coco-karpathy'].captions.num_rows:,} captions"
        return [
            Row("report, nine models: time", seconds, "s", "<= 30", note=f"{corpus}; HTML, markdown, figures, JSON"),
            Row("report, nine models: size of the HTML", size, "MB", "<= 20", note=whole),
            Row("report, nine models: size of results.json", results, "MB"),
            Row("report, nine models: peak memory", peak, "GiB", note="synthetic rows included"),
            *_big(target, quick=quick),
        ]


def _big(target: Path, *, quick: bool) -> list[Row]:
    """The page of ten encoders on five corpora: bytes, elements, the time to its first screen, pages on paper."""
    few = {"n_images": 200, "replicates": 100} if quick else {}
    store, seconds = clocked(lambda: make(target / "big", **few))
    page = Path(write_report(store, target / "big-report"))
    note = "ten encoders, five corpora; before: 23.3 MB, 450,215 elements, 9.6 s until it was loaded"
    rows = [
        Row("big workspace: time to make it", seconds, "s", note="vectors drawn at random; evaluate, compare, analyse"),
        Row("big workspace: size of the HTML", page.stat().st_size / MEGABYTE, "MB", "<= 3", note=note),
    ]
    if (path := shutil.which("chromium")) is None:
        return rows
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        tab = playwright.chromium.launch(executable_path=path, args=CHROMIUM).new_page(
            viewport={"width": 1440, "height": 900}
        )
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-made=summary]", state="attached")
        elements = tab.locator("*").count()
        first = tab.evaluate("performance.timing.domInteractive - performance.timing.navigationStart") / 1000
        high = tab.evaluate("document.documentElement.scrollHeight") / 900
        board = tab.locator("#board").bounding_box()
        assert board is not None
        beyond = max(board["y"] + board["height"] - 900, board["x"] + board["width"] - 1440, 0)
        beyond += tab.locator(".scroll").first.evaluate("(box) => box.scrollWidth - box.clientWidth")
        printed = tab.pdf(prefer_css_page_size=True).count(b"/Type /Page\n")
    return [
        *rows,
        Row("big workspace: elements at load", elements, "", "<= 12000"),
        Row("big workspace: pixels of the board beyond a first screen of 1,440 × 900", beyond, "", "<= 0"),
        Row("big workspace: screens of 900 pixels", high, "", "<= 10"),
        Row("big workspace: time to the first screen", first, "s", "<= 1", note="headless Chromium"),
        Row("big workspace: printed pages", printed, "", "<= 2", note="A4"),
    ]
