"""The page in Chromium: quiet, offline, usable by keyboard, accessible, fitting a phone.

``CAPIM_SCREENSHOTS=folder`` keeps pictures of every size for the eye; they never go into git.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from capim.reports.gallery_pages import Search, write_search
from capim.reports.render import TEMPLATES
from tests.reports.conftest import HOSTILE
from tests.reports.stand_in import StandIn

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FORMULAS = {"=1+1": "\n'=1+1,", "@a": "\n'@a,", "'-a": "\n''-a,", "-0.5": "\n-0.5,", "a=b": "\na=b,"}
"""Cell -> the beginning of its line of CSV, as ``store.safe_text.csv_text`` has it."""
WIDTHS = (390, 1024, 1440)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

pytestmark = [pytest.mark.browser, pytest.mark.slow]


class Watched:
    """A page, with everything it complained of and asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda fault: self.complaints.append(str(fault)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self.requests.append(request.url))

    def drawn(self) -> None:
        """Waits until every chart is interactive."""
        self.page.wait_for_selector("html[data-charts=drawn]", state="attached")


@contextmanager
def opened(browser: Browser, file: Path, **options: Any) -> Iterator[Watched]:
    """A file in a context of its own."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    watched = Watched(context.new_page())
    watched.page.goto(file.as_uri(), wait_until="commit" if file.parent.name == "sample" else None)
    yield watched
    context.close()


@pytest.fixture
def page(browser: Browser, hostile_report: Path) -> Iterator[Watched]:
    with opened(browser, hostile_report / "report.html") as watched:
        yield watched


def test_no_complaint_and_no_request_to_anywhere(page: Watched) -> None:
    page.drawn()
    assert page.page.locator("figure.chart .stage svg").count() == page.page.locator("figure.chart").count() > 5
    assert page.page.locator("figure.chart[id$=-map] .stage").get_by_text("R@1, percent").count() == 1, "its legend"
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
    assert sum(url.startswith("file:") for url in page.requests) == 1


def test_columns_sort_by_keyboard_and_say_so(page: Watched) -> None:
    table = page.page.locator("#leaderboard-coco-karpathy")
    heading = table.locator("th[scope=col]").filter(has_text="Encoder")
    heading.get_by_role("button").focus()
    page.page.keyboard.press("Enter")
    names = table.locator("tbody th").all_inner_texts()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert names == sorted(names)
    page.page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    assert table.locator("tbody th").all_inner_texts() == sorted(names, reverse=True)


def test_numbers_sort_as_numbers_largest_first(page: Watched) -> None:
    table = page.page.locator("#leaderboard-coco-karpathy")
    table.get_by_role("button", name="R@1").last.click()
    place = table.locator("th[aria-sort=descending]").evaluate("th => th.cellIndex")
    values = table.locator("tbody tr").evaluate_all(
        "(rows, place) => rows.map((row) => parseFloat(row.cells[place].dataset.sort))", place
    )
    assert values == sorted(values, reverse=True)


def test_the_gallery_filters_by_keyboard(page: Watched) -> None:
    gallery = page.page.locator(".gallery").first
    total = gallery.locator(".case").count()
    select = gallery.locator("[name=missed]")
    select.focus()
    page.page.keyboard.press("ArrowDown")
    chosen = select.input_value()
    shown = gallery.locator(".case:not([hidden])").count()
    assert chosen
    assert 0 < shown <= total
    assert gallery.locator("output").inner_text().startswith(f"{shown} of {total} cases fit. Of all ")


ONE_BLOCK_OF_EACH_KIND = """() => {
  const kinds = new Set()
  for (const block of document.querySelectorAll("main > section > :not(h2)")) {
    const marks = ["good", "state", "bar"].filter((name) => block.querySelector("." + name))
    const kind = [block.tagName, block.className, ...marks].join()
    kinds.has(kind) ? block.remove() : kinds.add(kind)
  }
  for (const extra of document.querySelectorAll(".case ~ .case ~ .case, tbody tr ~ tr ~ tr ~ tr")) extra.remove()
}"""


def test_axe_finds_nothing(browser: Browser, hostile_report: Path) -> None:
    """Of the blocks, cases and rows that look alike, a few are enough: axe takes minutes for all."""
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
    serious = []
    with opened(browser, hostile_report / "report.html", bypass_csp=True) as watched:
        watched.drawn()
        watched.page.evaluate(ONE_BLOCK_OF_EACH_KIND)
        for kind in ("table", "figure.chart", ".gallery", "details"):
            assert watched.page.locator(f"main section {kind}").count() > 0
        watched.page.evaluate(axe)
        for width, scheme in product(WIDTHS, SCHEMES):
            watched.page.set_viewport_size({"width": width, "height": 900})
            watched.page.emulate_media(color_scheme=scheme)
            for v in watched.page.evaluate("axe.run().then((found) => found.violations)"):
                first = v["nodes"][0]
                serious.append((width, scheme, v["id"], first["html"][:300], first.get("failureSummary")))
    assert serious == []


def test_nothing_runs_over_the_edge_and_where_it_breaks_stands_beside_the_grid(page: Watched) -> None:
    page.drawn()
    for width in WIDTHS:
        page.page.set_viewport_size({"width": width, "height": 900})
        for scheme in SCHEMES:
            page.page.emulate_media(color_scheme=scheme)
            assert page.page.evaluate("document.documentElement.scrollWidth") == width
            if folder := os.environ.get("CAPIM_SCREENSHOTS"):
                page.page.screenshot(path=f"{folder}/report-{width}-{scheme}.png", full_page=True)
        grid, breaks = (page.page.locator(name).bounding_box() for name in ("#answer", "#breaks"))
        assert grid is not None and breaks is not None
        if width == 1440:
            assert breaks["y"] == grid["y"] and breaks["x"] >= grid["x"] + grid["width"]
        else:
            assert breaks["y"] >= grid["y"] + grid["height"], "below it, before everything else"
    assert page.complaints == []


@pytest.mark.parametrize("width", [1366, 1440, 1920])
def test_the_nine_columns_of_the_demo_fit_beside_where_it_breaks(browser: Browser, width: int) -> None:
    size = {"width": width, "height": 900}
    with opened(browser, TEMPLATES.parent / "sample" / "report.html", viewport=size) as watched:
        page = watched.page
        page.wait_for_selector("#ranking", state="attached")
        page.locator("style").first.evaluate(
            "(style, css) => { style.textContent = css }", (TEMPLATES / "page.css").read_text("utf-8")
        )
        assert page.locator("#answer .scroll tbody tr:first-child > *").count() == 9
        tables = page.locator("#answer .scroll, #breaks .scroll")
        assert tables.count() == 2
        assert tables.evaluate_all("(all) => all.filter((one) => one.scrollWidth > one.clientWidth).length") == 0
        tops = [box["y"] for name in ("#answer", "#breaks") if (box := page.locator(name).bounding_box())]
        assert tops[0] == tops[1]


def test_a_hidden_encoder_leaves_tables_and_charts_and_a_legend_fades_the_others(page: Watched) -> None:
    page.drawn()
    name = page.page.locator("#answer-grid tbody th .value").last.inner_text()
    drawn = page.page.locator("figure.chart .stage svg text").filter(has_text=name)
    assert drawn.count() > 0
    page.page.locator("#page-tools summary").click()
    page.page.locator("#page-tools").get_by_label(name, exact=True).uncheck()
    page.drawn()
    assert drawn.count() == 0
    assert page.page.locator("#answer-grid tbody tr:visible").filter(has_text=name).count() == 0
    page.page.locator("#page-tools").get_by_label(name, exact=True).check()
    page.drawn()
    assert drawn.count() > 0
    of_encoders = page.page.locator(".role-legend-symbol")  # not the scale of colours of the language map
    chart = page.page.locator("figure.chart").filter(has=of_encoders).first
    faded = "path => path.getAttribute('opacity') === '0.08' || path.getAttribute('stroke-opacity') === '0.08'"
    marks = chart.locator(".mark-symbol.role-mark path, .mark-rule.role-mark line")
    assert not any(marks.evaluate_all(f"paths => paths.map({faded})"))
    chart.locator(".role-legend-label text").first.click(force=True)
    page.page.wait_for_function(
        "id => document.getElementById(id).querySelector('[opacity=\"0.08\"]')", arg=chart.get_attribute("id")
    )
    assert page.complaints == []


def test_a_table_is_searched_its_columns_and_encoders_hidden_and_copied(page: Watched) -> None:
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    box = page.page.locator(".table").filter(has=page.page.locator("#answer-grid"))
    table = box.locator("table")
    names = table.locator("tbody th .value").all_inner_texts()
    page.page.locator("#page-tools summary").click()
    page.page.locator("#page-tools").get_by_label(names[0], exact=True).uncheck()
    assert table.locator("tbody tr:visible").count() == len(names) - 1
    heading = table.locator("thead tr").last.locator("th").nth(1).inner_text()
    box.locator(".tools summary").click()
    box.locator(".tools input[type=checkbox]").first.uncheck()
    box.get_by_role("button", name="Copy as CSV").click()
    page.page.wait_for_function("document.querySelector('.tools button').textContent !== ''")
    copied = page.page.evaluate("navigator.clipboard.readText()").splitlines()
    assert [line.partition(",")[0] for line in copied[1:]] == names[1:]
    assert heading not in copied[0]
    for text, shown in FORMULAS.items():
        table.locator("tbody tr:visible th .value").first.evaluate("(cell, text) => { cell.textContent = text; }", text)
        copy = box.locator(".tools button")
        copy.evaluate("button => { button.textContent = ''; button.click(); }")
        copy.filter(has_text="Copied").wait_for()
        assert shown in page.page.evaluate("navigator.clipboard.readText()")


def test_light_and_dark_are_a_click_and_the_current_section_is_marked(page: Watched) -> None:
    def ground() -> str:
        return str(page.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    page.page.wait_for_selector(".contents a[href='#answer'][aria-current]")
    before = ground()
    page.page.get_by_role("button", name="Light or dark").click()
    assert ground() != before
    page.page.locator("#leaderboard").scroll_into_view_if_needed()
    page.page.locator(".contents a[href='#leaderboard']").click()
    page.page.wait_for_selector(".contents a[href='#leaderboard'][aria-current]")


def test_the_page_reads_without_scripts(browser: Browser, hostile_report: Path) -> None:
    with opened(browser, hostile_report / "report.html", java_script_enabled=False) as plain:
        assert plain.page.locator("figure.chart .canvas > svg").count() == plain.page.locator("figure.chart").count()
        assert plain.page.get_by_role("heading", name="Leaderboard").is_visible()


def test_first_paint_comes_within_two_seconds(page: Watched) -> None:
    paint = page.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert paint < 2000


def test_a_search_shows_its_pictures_and_hostile_query(
    browser: Browser, hostile_store: StandIn, tmp_path: Path
) -> None:
    shas = list(hostile_store.pictures)[:6]
    hits = [{"id": f"im{i}", "score": 0.4 - i / 100, "sha": sha} for i, sha in enumerate(shas)]
    search = {"encoder": "tiny-clip", "corpus": "shapes", "modality": "image", "picture": None, "indexed": False}
    found = Search(query=HOSTILE[0], rows=hits, **search)  # type: ignore[arg-type]
    with opened(browser, write_search(tmp_path / "s.html", found, hostile_store.pictures)) as watched:
        assert watched.complaints == []
        assert watched.page.get_by_role("heading", name=HOSTILE[0]).is_visible()
        assert watched.page.locator(".grid svg.thumb").count() == 6
