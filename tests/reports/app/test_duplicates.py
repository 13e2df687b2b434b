"""The page of near-duplicates: its pairs are those of the command, and their pictures follow the choices."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from capim.store import EmbeddingStore
from capim.tasks.duplicates import duplicates
from tests.random_store import SPECS
from tests.reports.app.stores import HOSTILE_FILE, NoServices, asking, csv_of

ONE, MANY = SPECS


@pytest.fixture(scope="module")
def browser_on(twins: EmbeddingStore) -> Iterator[TestClient]:
    with asking(twins) as made:
        yield made


def pictures(page: str) -> int:
    return page.count('<img src="/picture/')


@pytest.mark.parametrize("threshold", [-1, 0.1, 0.95])
def test_the_pairs_are_those_of_the_command_with_both_pictures(
    browser_on: TestClient, twins: EmbeddingStore, threshold: float
) -> None:
    corpora = [twins.corpus(name) for name in ("test", "train")]
    expected = [*duplicates(twins, corpora, encoder=ONE.name, threshold=threshold)]
    address = f"/duplicates?corpora=test,train&encoder={ONE.name}&threshold={threshold}"
    rows = csv_of(browser_on, address)
    assert [row["image"] for row in rows] == [row["image"] for row in expected]
    assert [row["by"] for row in rows] == [row["by"] for row in expected]
    page = browser_on.get(address).text
    assert pictures(page) == 2 * len(rows)
    assert f"{len(rows)} pairs: " in page
    assert f"capim duplicates --corpus test,train --encoder {ONE.name} --threshold {threshold:g}" in page
    last = csv_of(browser_on, f"{address}&order=reverse")
    assert last == rows[::-1]


def test_choices_leave_the_pairs_that_fit(browser_on: TestClient) -> None:
    every = csv_of(browser_on, "/duplicates?threshold=-1")
    assert {row["by"] for row in every} == {"bytes", "name", "vectors"}, "all corpora and the first encoder, unasked"
    within = [row for row in every if row["corpus"] == row["other_corpus"]]
    assert csv_of(browser_on, "/duplicates?threshold=-1&pairs=within") == within
    assert len(csv_of(browser_on, "/duplicates?threshold=-1&pairs=between")) == len(every) - len(within)
    assert [row["by"] for row in csv_of(browser_on, "/duplicates?by=name")] == ["name"]
    assert {row["by"] for row in csv_of(browser_on, "/duplicates?encoder=-")} == {"bytes", "name"}
    alike = csv_of(browser_on, "/duplicates?bits=8&encoder=-&by=picture")
    assert alike, "tiles of one colour have the same hash"


def test_of_many_pairs_a_part_is_shown_at_a_time(browser_on: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capim.reports.app.duplicates.PAGE", 5)
    page = browser_on.get("/duplicates?threshold=-1").text
    assert pictures(page) == 10
    [more] = re.findall(r'<p class="pages"> <a href="([^"]*)">Next</a></p>', page)
    assert pictures(browser_on.get(html.unescape(more)).text) == 10
    assert pictures(browser_on.get("/duplicates?threshold=-1&page=5").text) == 2  # of 21 pairs


def test_a_file_name_is_a_text_and_a_saved_page_holds_the_pictures(browser_on: TestClient) -> None:
    page = browser_on.get("/duplicates").text
    assert HOSTILE_FILE not in page
    assert html.escape(HOSTILE_FILE) in page
    like = re.findall(r'href="(/search\?[^"]*)"', page)
    assert browser_on.get(html.unescape(like[0])).status_code == 200
    saved = browser_on.get("/duplicates?as=html").text
    assert saved.count("data:image/") == pictures(page)
    assert "<form" not in saved


@pytest.mark.parametrize(
    ("parameters", "status", "message"),
    [
        ("corpora=tset", 400, "did you mean 'test'"),
        (f"encoder={MANY.name}", 400, f"known: -, {ONE.name}"),  # several vectors per image have no cosine
        ("threshold=2", 400, "threshold=2: expected a cosine between -1 and 1"),
        ("threshold=nan", 400, "expected a cosine"),
        ("bits=65", 400, "known: 0, 2, 4, 8"),
        ("pairs=x", 400, "known: within, between"),
        ("page=0", 400, "page=0: expected a whole number from 1"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(browser_on: TestClient, parameters: str, status: int, message: str) -> None:
    answer = browser_on.get(f"/duplicates?{parameters}")
    assert answer.status_code == status
    assert message in html.unescape(answer.text)


def test_a_store_without_images_says_what_to_do(tmp_path: Path) -> None:
    with asking(EmbeddingStore.open(tmp_path / "store", create=True), NoServices()) as client:
        answer = client.get("/duplicates")
    assert answer.status_code == 400
    assert "run `capim embed`" in answer.text


def test_every_page_leads_to_it(browser_on: TestClient) -> None:
    assert '<a href="/duplicates">Near-duplicates</a>' in browser_on.get("/").text
