"""Who is let in, what a page may do, views without a server, and pages that are open while others write."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.testclient import TestClient

from capim.store import EmbeddingStore
from capim.store.embedding_store import MARKED
from capim.store.schema import FORMAT, FORMAT_KEY
from capim.store.upkeep.removal import compact_store, drop
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.faults.clicking import click, digest
from tests.random_store import OTHER, random_store
from tests.reports.app.stores import TOKEN, B, asking, evaluate
from tests.reports.conftest import HOSTILE
from tests.reports.pages import elements

WRITER = """
import sys, time
from capim.store import EmbeddingStore
from capim.store.upkeep.removal import compact_store, drop
ends = time.monotonic() + float(sys.argv[2])
store = EmbeddingStore.open(sys.argv[1])
rows = store.rows("outcomes", encoder=sys.argv[3], corpus="shapes")
print("ready", flush=True)
while time.monotonic() < ends:
    store.write_rows("outcomes", rows, replace="evaluation")
    compact_store(store)
drop(store, encoder=sys.argv[3], dry_run=False)
"""


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "["},
        {"Host": "127.0.0.1:abc"},
        {"Host": "127.0.0.1.example.com"},  # a foreign name that leads to this machine
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Cookie": "capim-8000=another"},
    ],
)
def test_a_request_from_elsewhere_is_refused(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.get("/", headers=headers)
    assert answer.status_code == 403
    assert answer.text.startswith("capim: ")


def test_without_the_token_nothing_is_shown_and_with_it_the_address_becomes_clean(client: TestClient) -> None:
    stranger = TestClient(client.app, base_url="http://127.0.0.1:8000", follow_redirects=False)
    for address in ("/", "/queries", "/static/app.js", "/style.css", "/picture/x", "/?token=wrong", "/?token="):
        assert stranger.get(address).status_code == 403
    moved = stranger.get(f"/queries?wrong=a&token={TOKEN}&right=b")
    assert (moved.status_code, moved.headers["location"]) == (303, "/queries?wrong=a&right=b")
    assert "HttpOnly" in moved.headers["set-cookie"]
    elsewhere = stranger.get(f"http://127.0.0.1:8000//example.com/?token={TOKEN}")
    assert elsewhere.headers["location"] == "/example.com/"
    neighbour = TestClient(client.app, base_url="http://127.0.0.1:9000", cookies={"capim-8000": TOKEN})
    assert neighbour.get("/").status_code == 403, "the cookie of another port"


def test_an_image_without_a_thumbnail_is_an_empty_picture_and_no_broken_one(client: TestClient) -> None:
    answer = client.get("/picture/0123")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")


def test_who_was_refused_comes_back_to_the_page_after_the_token(client: TestClient) -> None:
    stranger = TestClient(client.app, base_url="http://127.0.0.1:8000", follow_redirects=False)
    assert stranger.get("/queries?wrong=a&text=%E2%82%AC").status_code == 403
    moved = stranger.get(f"/?token={TOKEN}")
    assert (moved.status_code, moved.headers["location"]) == (303, "/queries?wrong=a&text=%E2%82%AC")
    assert "Max-Age=31536000" in moved.headers["set-cookie"]
    assert stranger.get(f"/?token={TOKEN}").headers["location"] == "/", "once"
    stranger.cookies.clear()
    stranger.cookies.set("capim-8000-back", "%2F%5C%2Fexample.com/")
    assert stranger.get(f"/?token={TOKEN}").headers["location"] == "/example.com/", "never to another host"


def test_every_answer_forbids_scripts_and_styles_inside_the_page(client: TestClient) -> None:
    for address in ("/", "/nowhere", "/style.css", "/static/htmx.min.js"):
        policy = client.get(address).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    page = client.get("/").text
    assert "style=" not in page
    assert "<script>" not in page
    assert [name for name in elements(page)[1] if name.startswith("on")] == []


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/queries?corpus=cocoo-karpathy", 400, "did you mean"),
        ("/?as=exe", 400, "expected csv, sql or html"),
        ("/nowhere", 404, "not one of the pages"),
        (f"/queries?page={'9' * 5000}", 400, "expected a whole number from 1"),
        (f"/queries?corpus={HOSTILE[0]}", 400, "&lt;script&gt;"),
    ],
)
def test_wrong_requests_are_pages_that_say_what_is_right_and_escape_what_was_asked(
    client: TestClient, address: str, status: int, words: str
) -> None:
    answer = client.get(address)
    assert answer.status_code == status
    assert words in answer.text
    assert HOSTILE[0] not in answer.text


def test_a_saved_page_needs_nothing_else(client: TestClient) -> None:
    saved = client.get("/?as=html")
    assert saved.headers["content-disposition"].startswith("attachment")
    assert "<style>" in saved.text
    for outside in ("<script src", "<link", 'src="/', 'href="/'):
        assert outside not in saved.text


@pytest.fixture
def own(asked: EmbeddingStore, tmp_path: Path) -> EmbeddingStore:
    """A copy that a test may change."""
    shutil.copytree(asked.uri, tmp_path / "store")
    return EmbeddingStore.open(tmp_path / "store")


def test_clicking_at_random_changes_nothing_and_meets_no_fault(own: EmbeddingStore) -> None:
    before = digest(Path(own.uri))
    with asking(own) as client:
        clicked = click(client, seconds=4, seed=0, at_least=10)
    assert clicked.faults == []
    assert digest(Path(own.uri)) == before


def test_a_view_is_right_after_a_run_a_compaction_and_a_drop(own: EmbeddingStore) -> None:
    corpus = read_shapes(n_scenes=12)
    other = EmbeddingStore.open(own.uri)  # as another process has it
    missed = f"/queries?corpus=shapes&protocol=t2i/all&wrong={B}"
    with asking(own) as client:
        first = client.get(missed).text
        assert "other" not in client.get("/").text
        random_store(Path(own.uri), corpus, [OTHER])
        evaluate(other, corpus, OTHER, run="second")
        assert "other" in client.get("/").text
        assert client.get(f"{missed}&right=other").status_code == 200
        compact_store(other)
        assert client.get(missed).text.count("<tr>") == first.count("<tr>")
        drop(other, encoder=B, dry_run=False)  # its embeddings; its outcomes are kept
        assert client.get(missed).text.count("<tr>") == first.count("<tr>")
        gone = client.get(f"/search?corpus=shapes&text=x&encoders={B}")
        assert gone.status_code == 400
        assert f"{B}&#39; is unknown" in gone.text
        assert f'value="{B}"' not in client.get("/search").text
        drop(other, corpus="shapes", dry_run=False)
        for page in ("/", missed, "/search"):
            gone = client.get(page)
            assert gone.status_code == 400, page
            assert "dropped" in gone.text or "no embeddings" in gone.text
        assert client.get("/runs").status_code == 200


def test_a_store_that_a_later_release_wrote_or_that_is_gone_is_said_on_every_page(own: EmbeddingStore) -> None:
    pages = ("/", "/queries", "/search", "/runs")
    with asking(own) as client:
        assert {client.get(page).status_code for page in pages} == {200}
        marked = EmbeddingStore.open(own.uri).connection.find(MARKED)
        assert marked is not None
        marked.update_schema_metadata({FORMAT_KEY: str(FORMAT + 1)})
        for page in pages:
            assert "a later release wrote it. Upgrade capim" in client.get(page).text, page
        shutil.rmtree(own.uri)
        for page in pages:
            assert "there is no store at" in client.get(page).text, page
        health = client.get("/health")
        assert (health.status_code, health.text) == (503, "the store cannot be read\n")


def test_pages_are_right_while_another_process_writes_and_compacts(own: EmbeddingStore) -> None:
    seconds = 3.0
    command = [sys.executable, "-c", WRITER, own.uri, str(seconds), B]
    with asking(own) as client, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        clicked = click(client, seconds=seconds, seed=1)
        assert writer.wait(60) == 0
    assert [fault for fault in clicked.faults if f"'{B}' is unknown" not in fault] == []  # the drop at the end


def test_corpus_task_and_encoders_stay_on_every_page_and_no_page_of_the_bar_is_a_fault(client: TestClient) -> None:
    first = client.get("/queries?protocol=i2t/any").text
    a, b, *_ = re.findall(r'name="wrong" value="([^"]*)"', first)
    corpus = re.findall(r'name="corpus" value="([^"]*)"', first)[0]
    page = client.get("/queries", params={"corpus": corpus, "protocol": "i2t/any", "encoders": f"{a},{b}"}).text
    for at in range(4):
        bar = re.findall(r'<li><a href="([^"]*)"', page.partition('id="pages"')[2].partition("</nav>")[0])
        addresses = [html.unescape(each) for each in bar]
        asked = [parse_qs(urlsplit(each).query) for each in addresses]
        assert {(one["corpus"][0], one["protocol"][0]) for one in asked} == {(corpus, "i2t/any")}
        assert {one["encoders"][0] for one in asked if "encoders" in one} == {f"{a},{b}"}
        answer = client.get(addresses[min(at, len(addresses) - 1)])
        assert answer.status_code == 200
        page = answer.text
