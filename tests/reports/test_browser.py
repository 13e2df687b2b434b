"""The page in Chromium: quiet, offline, usable by keyboard, accessible, fitting a phone.

``CAPIM_SCREENSHOTS=folder`` keeps pictures of every size for the eye; they never go into git.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl

import pytest

from capim.reports.elements.page import Section
from capim.reports.render import render_html
from capim.reports.rows import choice, standing
from capim.reports.rows.reading import read_report_data
from capim.reports.write import write_report
from tests.reports import big_workspace
from tests.reports.fixed import FIXED, HEAT
from tests.reports.stand_in import StandIn, demo, with_a_broken_encoder

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

    def made(self) -> None:
        """Waits until the summary is made; the tables of the other sections are made when they are seen."""
        self.page.wait_for_selector("html[data-made=summary]", state="attached")

    def everything(self) -> None:
        """Makes every block, as for a reader who scrolls through the whole page."""
        self.made()
        self.page.evaluate("Promise.all([...document.querySelectorAll('.later')].map(fill))")

    def live(self) -> None:
        """Points at every chart, and waits until all are interactive."""
        self.everything()
        self.page.evaluate(
            "document.querySelectorAll('.canvas').forEach((c) => c.dispatchEvent(new Event('pointerenter')))"
        )
        self.page.wait_for_function("!document.querySelector('.canvas:not([data-live])')")


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
    page.live()
    assert page.page.locator("figure.chart .stage svg").count() == page.page.locator("figure.chart").count() > 3
    assert page.page.locator("[id$=-map] .stage").get_by_text("R@1, percent").count() == 1, "its legend"
    said = "all => all.map((each) => `${each.title} ${each.alt} ${each.ariaLabel}`).join(' ')"
    said = page.page.locator("[title], [alt], [aria-label]").evaluate_all(said)
    assert "[U+202E]" in said and not re.search(r"[\x0b-\x1f\u202a-\u202e]", said), "in tooltips, too"
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
    assert sum(url.startswith("file:") for url in page.requests) == 1


def test_columns_sort_by_keyboard_and_say_so_and_numbers_largest_first(page: Watched) -> None:
    page.everything()
    table = page.page.locator("#leaderboard-coco-karpathy table")
    heading = table.locator("th[scope=col]").filter(has_text="Encoder")
    heading.get_by_role("button").focus()
    page.page.keyboard.press("Enter")
    names = table.locator("tbody th").all_inner_texts()
    assert (heading.get_attribute("aria-sort"), names) == ("ascending", sorted(names))
    page.page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    assert table.locator("tbody th").all_inner_texts() == sorted(names, reverse=True)
    table.get_by_role("button", name="R@1").last.click()
    place = table.locator("th[aria-sort=descending]").evaluate("th => th.cellIndex")
    values = table.locator("tbody tr").evaluate_all(
        "(rows, place) => rows.map((row) => parseFloat(row.cells[place].textContent))", place
    )
    assert values == sorted(values, reverse=True)


def tab_to(page: Page, selector: str) -> None:
    """Presses Tab until the element has the focus."""
    for _ in range(400):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} is not reached")


def test_by_keyboard_alone_through_the_decision_and_the_failures_by_addresses_that_can_be_sent(page: Watched) -> None:
    page.made()
    at, gallery = page.page, page.page.locator(".gallery")
    tab_to(at, "#choose > summary")
    at.keyboard.press("Enter")
    before = at.locator("#choose tbody tr").first.inner_text()
    tab_to(at, "#choose input")
    at.keyboard.press("ControlOrMeta+a")
    at.keyboard.type("0")
    tab_to(at, "#choose input")
    at.keyboard.press("ControlOrMeta+a")
    at.keyboard.type("90")
    assert at.locator("#choose tbody tr").first.inner_text() != before
    assert "weights=1%3A90" in at.url
    total = int(gallery.locator("output").inner_text().split(" of ")[0])
    select = gallery.locator("[name=missed]")
    tab_to(at, ".gallery [name=missed]")
    at.keyboard.press("ArrowDown")
    chosen, said = select.input_value(), gallery.locator("output").inner_text()
    assert chosen
    assert 0 < int(said.split(" of ")[0]) <= total
    assert f" of {total} cases fit. Of all " in said
    assert f"missed={chosen}" in at.url
    tab_to(at, ".wall a")
    at.keyboard.press("Enter")
    viewer = gallery.locator("dialog")
    viewer.wait_for()
    assert "case=" in at.url and f"missed={chosen}" in at.url
    assert viewer.locator(".answer").count() == 3
    first = viewer.locator("h4").inner_text()
    at.keyboard.press("ArrowRight")
    assert viewer.locator("h4").inner_text() != first
    at.keyboard.press("ArrowLeft")
    assert viewer.locator("h4").inner_text() == first
    tab_to(at, ".viewer .judge input")
    at.keyboard.press("Space")
    assert viewer.locator(".save").get_attribute("download") == "judgements.csv"
    at.keyboard.press("Escape")
    assert not viewer.is_visible()
    # the event of a closed dialog comes later
    at.wait_for_function("() => document.activeElement === document.querySelector('.gallery .wall a')")
    at.go_back()
    assert "case=" not in at.url
    assert select.input_value() == chosen


def test_one_click_from_a_figure_to_its_failures_and_back(page: Watched) -> None:
    page.made()
    link = page.page.locator("#answer-grid td a").first
    asked = dict(parse_qsl((link.get_attribute("href") or "").partition("?")[2]))
    link.click()
    gallery = page.page.locator(".gallery")
    assert gallery.locator("[name=missed]").input_value() == asked["missed"]
    assert gallery.bounding_box()["y"] < 900  # type: ignore[index]
    page.page.go_back()
    assert "missed" not in page.page.url


def test_the_board_compares_with_a_reference_by_an_address_that_can_be_sent(browser: Browser, page: Watched) -> None:
    page.made()
    board = page.page.locator("#answer-grid table.board")
    names = board.locator("tbody th").all_inner_texts()
    page.page.get_by_label("Compared with").select_option(names[-1])
    assert f"against={names[-1]}" in page.page.url
    said = board.locator("tbody tr").first.locator("td").first.locator(".unseen").inner_text()
    assert f"against {names[-1]}" in said
    board.locator("td a").first.focus()
    assert names[0] in page.page.locator("#tip").inner_text()
    page.page.keyboard.press("Escape")
    assert not page.page.locator("#tip").is_visible()
    again = browser.new_page()
    again.goto(page.page.url)
    again.wait_for_selector("html[data-made=summary]", state="attached")
    assert again.get_by_label("Compared with").input_value() == names[-1]
    again.close()


@pytest.fixture(scope="module")
def licensed(tmp_path_factory: pytest.TempPathFactory) -> tuple[StandIn, Path]:
    """Three encoders of which one is known to have a free licence, and the page about them."""
    store = demo()
    free = next(iter(store.specs))
    store.specs |= {free: replace(store.specs[free], licence="MIT")}
    return store, Path(write_report(store, tmp_path_factory.mktemp("licensed")))


def test_the_decision_of_the_page_is_that_of_the_command(browser: Browser, tmp_path: Path) -> None:
    store = with_a_broken_encoder()
    data = read_report_data(store)
    tasks = [task for found in standing.conclusions(data) for task in found.tasks]  # as the columns
    file = Path(write_report(store, tmp_path))
    with opened(browser, file) as watched:
        watched.made()
        assert watched.page.locator(".board td.best").count() == 2, "nobody is the highest where all guess"
        for weights in ((10.0, 10.0, 80.0), (0.0, 0.0, 1.0)):
            made = choice.choose(data, dict(zip(tasks, weights, strict=True)), {})
            given = ",".join(f"{at}:{weight:g}" for at, weight in enumerate(weights))
            watched.page.goto(f"{watched.page.url.partition('#')[0]}#choose?weights={given}")
            watched.page.reload()
            watched.made()
            cells = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
            rows = watched.page.locator("#choose tbody tr").evaluate_all(cells)
            assert [row[:2] for row in rows] == [[each.encoder, f"{each.value:.1f}"] for each in made.order]
            others = [(each.low, each.high) for each in made.order[1:]]
            signed = [f"{low:+.1f} to {high:+.1f}".replace("-", "−") for low, high in others if low is not None]
            assert [row[3] for row in rows[1:] if row[3]] == signed
            said = watched.page.locator("#choose .chosen").inner_text()
            assert all(f"{name}: {why}" in said for name, why in made.out.items())
            assert ("In no mean, because" in said) == bool(made.uncounted)
        assert watched.complaints == []


def test_a_limit_of_licence_is_chosen_from_words_and_stays_in_the_address(
    browser: Browser, licensed: tuple[StandIn, Path]
) -> None:
    store, file = licensed
    free, *_, not_known = store.specs
    with opened(browser, file) as watched:
        watched.made()
        watched.page.locator("#choose summary").click()
        watched.page.get_by_label("licence, at least").select_option("commercial use")
        assert watched.page.locator("#choose tbody th").all_inner_texts() == [free]
        assert f"{not_known}: licence not known" in watched.page.locator("#choose .chosen").inner_text()
        watched.page.reload()
        watched.made()
        assert watched.page.get_by_label("licence, at least").input_value() == "commercial-use"
        watched.page.get_by_label("size of an image").fill("0")
        assert "No encoder keeps these limits" in watched.page.locator("#choose .chosen").inner_text()
        assert watched.page.locator("#choose table").count() == 0
        assert watched.complaints == []


ONE_BLOCK_OF_EACH_KIND = """() => {
  const kinds = new Set()
  for (const block of document.querySelectorAll("main > section > :not(h2, .pack)")) {
    const marks = ["good", "state", "dot"].filter((name) => block.querySelector("." + name))
    const kind = [block.tagName, block.className, ...marks].join()
    kinds.has(kind) ? block.remove() : kinds.add(kind)
  }
  for (const extra of document.querySelectorAll(".wall ~ .wall ~ .wall, tbody tr ~ tr ~ tr ~ tr")) extra.remove()
}"""


def every_size(page: Page) -> Iterator[tuple[int, str]]:
    """The page at every width, light and dark, one after the other; then as it was opened."""
    for width, scheme in product(WIDTHS, SCHEMES):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        yield width, scheme
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")


def violations(page: Page, what: str) -> list[tuple[object, ...]]:
    """What axe finds, and what is wider than the window, at every width, light and dark."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    found: list[tuple[object, ...]] = []
    for width, scheme in every_size(page):
        wide = page.evaluate("document.documentElement.scrollWidth")
        faults = page.evaluate("axe.run(document).then((found) => found.violations)")
        found += [(what, width, scheme, v["id"], v["nodes"][0]["html"][:300]) for v in faults]
        found += [(what, width, scheme, "wider than the window", wide)] * (wide > width)
    return found


def test_axe_finds_nothing(browser: Browser, hostile_report: Path) -> None:
    """Of the blocks, cases and rows that look alike, a few are enough: axe takes minutes for all."""
    with opened(browser, hostile_report / "report.html", bypass_csp=True) as watched:
        watched.everything()
        watched.page.evaluate(ONE_BLOCK_OF_EACH_KIND)
        watched.page.locator("#choose summary").click()
        for kind in ("table", "figure.chart", ".gallery", "details[open]"):
            assert watched.page.locator(f"main section {kind}").count() > 0
        assert violations(watched.page, "report") == []


def test_nothing_runs_over_the_edge(page: Watched) -> None:
    page.everything()
    for width, scheme in every_size(page.page):
        assert page.page.evaluate("document.documentElement.scrollWidth") == width
        if folder := os.environ.get("CAPIM_SCREENSHOTS"):
            page.page.screenshot(path=f"{folder}/report-{width}-{scheme}.png", full_page=True)
    assert page.complaints == []


@pytest.mark.timeout(600)  # it is made first, which takes most of the time
def test_the_big_workspace_fits_a_screen_and_loads_at_once(browser: Browser, tmp_path: Path) -> None:
    """Ten encoders on five corpora: 4 MB, 15,000 elements, 1.5 s to the first screen, of which this page is far off."""
    store = big_workspace.make(tmp_path, n_images=200, replicates=100, narrower=8)
    file = Path(write_report(store, tmp_path / "report"))
    assert file.stat().st_size < 4_000_000
    with opened(browser, file, viewport={"width": 1440, "height": 900}) as watched:
        watched.made()
        page = watched.page
        assert page.locator("*").count() < 15_000
        assert page.evaluate("performance.getEntriesByName('first-screen')[0].startTime") < 1500
        board = page.locator("#answer-grid table.board")
        assert board.locator("tbody tr").count() == 10
        assert board.locator("tbody tr").first.locator("td").count() == 9
        box = board.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900 and box["x"] + box["width"] <= 1440
        heights = {round(row["height"]) for row in (r.bounding_box() for r in board.locator("tbody tr").all()) if row}
        assert max(heights) < 36, "one line for every encoder"
        tall = "li => li.getBoundingClientRect().height / parseFloat(getComputedStyle(li).lineHeight)"
        assert max(page.locator(".sentence li").evaluate_all(f"all => all.map({tall})")) < 2.5, "two lines"
        said = " ".join(page.locator(".sentence li").all_inner_texts())
        assert all(corpus in said for corpus in store.counts("results", "corpus"))
        tile = page.locator("#failures .wall img").first.bounding_box()
        title = page.locator("#failures h2").bounding_box()
        assert tile is not None and title is not None and tile["y"] - title["y"] < 600, "pictures first"
        assert watched.complaints == []
        printed = watched.page.pdf(format="A4")
        assert 0 < len(re.findall(rb"/Type ?/Page\b", printed)) <= 12


def test_a_hidden_encoder_leaves_tables_and_charts(page: Watched) -> None:
    page.live()
    name = page.page.locator("#answer-grid tbody th .value").last.inner_text()
    drawn = page.page.locator("figure.chart .stage svg text").filter(has_text=name)
    assert drawn.count() > 0
    page.page.locator("#shown-encoders summary").click()
    page.page.locator("#shown-encoders").get_by_label(name, exact=True).uncheck()
    page.page.wait_for_function(
        f"![...document.querySelectorAll('.stage text')].some((t) => t.textContent === '{name}')"
    )
    assert page.page.locator("#answer-grid .board tbody tr").filter(has_text=name).count() == 0
    page.page.locator("#shown-encoders").get_by_label(name, exact=True).check()
    page.page.wait_for_function(
        f"[...document.querySelectorAll('.stage text')].some((t) => t.textContent === '{name}')"
    )
    assert page.complaints == []


def test_a_table_is_searched_its_columns_hidden_and_copied(page: Watched) -> None:
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.everything()
    table = page.page.locator("#leaderboard-coco-karpathy table")
    box = page.page.locator("#leaderboard-coco-karpathy .table")
    names = table.locator("tbody th .value, tbody th").all_inner_texts()
    heading = table.locator("thead tr").last.locator("th").nth(1).inner_text()
    box.locator(".tools summary").click()
    box.locator(".tools input[type=checkbox]").first.uncheck()
    assert heading not in table.locator("thead tr").last.locator("th").nth(1).inner_text()
    box.get_by_role("button", name="Copy as CSV").click()
    box.get_by_text("Copied").wait_for()
    copied = page.page.evaluate("navigator.clipboard.readText()").splitlines()
    assert [line.partition(",")[0] for line in copied[1:]] == names
    for text, shown in FORMULAS.items():
        made = page.page.evaluate("(text) => csv([{ heading: 'a' }, { heading: 'b' }], [[text, '1']])", text)
        assert shown in made


def test_a_copied_table_has_value_ends_and_verdict_in_columns_that_name_their_unit(page: Watched) -> None:
    page.everything()
    script = "blocksOf(find('#answer-grid').closest('section')).then((of) => of.get('answer-grid').table)"
    board = page.page.evaluate(script)
    rows = list(csv.DictReader(page.page.evaluate("(of) => csv(of.columns, of.rows)", board).splitlines()))
    task = "coco-karpathy text to image"
    for row, (first, cell, *_) in zip(rows, board["rows"], strict=True):
        text, note, state = cell[:3]
        assert (row["Encoder"], row[f"{task} (percent)"], row[f"{task} verdict"]) == (first, text, state)
        assert "–".join(row[f"{task} {end} (percent)"] for end in ("low", "high")) == note
        for name, value in row.items():
            assert not name.endswith(")") or not value or math.isfinite(float(value)), (name, value)
    assert {name for name in rows[0] if name.startswith("cost")} >= {"cost size/image (bytes)"}
    columns = [{"heading": "a", "unit": "bytes", "numeric": True}, {"heading": "b", "numeric": True}]
    cells = [["5.9 KiB", 0, 0, 0, "5990.44"], ["−1,234.5", "−2,000 to 3.0", "worse"]]
    made = page.page.evaluate("(of) => csv(of[0], [of[1], ['–', '1–2']])", [columns, cells])
    assert made == "a (bytes),b,b low,b high,b verdict\n5990.44,-1234.5,-2000,3.0,worse\n,,1,2,\n"


def test_where_images_are_ids_the_wall_has_words_and_no_broken_picture(page: Watched) -> None:
    page.made()
    script = """async () => {
      const place = make("div", { id: "ids" }), block = (await blocksOf(find("#failures"))).get("cases");
      for (const one of block.cases) one.expected.forEach((each) => { delete each.thumbnail; });
      document.body.append(place);
      gallery(place, block);
    }"""
    page.page.evaluate(script)
    tiles = page.page.locator("#ids .pair .right")
    assert tiles.count() > 0
    assert tiles.locator("img").count() == 0
    assert tiles.first.inner_text().strip()


def test_of_tables_by_language_those_of_the_chosen_one_are_shown(browser: Browser, tmp_path: Path) -> None:
    tables = tuple(
        replace(HEAT, id=name, folded=name, choice=name.partition(" ")[0]) for name in ("German a", "French b")
    )
    section = Section(id="slices", title="Slices", blocks=(replace(HEAT, folded="always"), *tables))
    file = tmp_path / "report.html"
    file.write_text(render_html(replace(FIXED, sections=(section,))))
    with opened(browser, file) as page:
        page.everything()
        shown = [each.inner_text() for each in page.page.locator("summary:visible").all()]
        assert shown == ["always", "French b"]
        page.page.get_by_label("Captions in").select_option("German")
        shown = [each.inner_text() for each in page.page.locator("summary:visible").all()]
        assert shown == ["always", "German a"]


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


def test_without_scripts_the_answer_and_the_headings_read_and_say_where_the_rest_is(
    browser: Browser, hostile_report: Path
) -> None:
    with opened(browser, hostile_report / "report.html", java_script_enabled=False) as plain:
        assert plain.page.locator(".sentence li").count() > 0
        assert plain.page.get_by_text("report.md says the same").is_visible()
        assert plain.page.get_by_role("heading", name="Leaderboard").is_visible()
