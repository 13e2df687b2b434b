"""Who is let in, and what a page may do."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from capim.store import EmbeddingStore
from tests.reports.app.conftest import TOKEN
from tests.reports.conftest import HOSTILE


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "example.com:8000"},  # a foreign name that leads to this machine
        {"Host": "127.0.0.1.example.com"},
        {"Origin": "http://example.com"},
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


def test_every_answer_forbids_scripts_and_styles_inside_the_page(client: TestClient) -> None:
    for address in ("/", "/nowhere", "/style.css", "/static/htmx.min.js"):
        policy = client.get(address).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    page = client.get("/").text
    assert "style=" not in page
    assert "<script>" not in page
    assert " on" not in {part[:3] for part in page.split("<")}


def test_a_body_that_is_too_long_is_refused(client: TestClient) -> None:
    assert client.post("/judge", content=b"x" * (21 * 2**20)).status_code == 413


def test_wrong_requests_are_pages_that_say_what_is_right(client: TestClient) -> None:
    for address, status, words in (
        ("/?corpora=cocoo-karpathy", 400, "did you mean"),
        ("/?metric=R@11", 400, "did you mean"),
        ("/?as=exe", 400, "expected csv, sql or html"),
        ("/nowhere", 404, "none of the pages"),
    ):
        answer = client.get(address)
        assert answer.status_code == status
        assert words in answer.text


def test_corpus_text_is_escaped(client: TestClient) -> None:
    wrong = client.get("/", params={"corpora": HOSTILE[0]})
    assert HOSTILE[0] not in wrong.text
    assert "&lt;script&gt;" in wrong.text


def test_looking_changes_nothing_in_the_store(client: TestClient, served_store: EmbeddingStore) -> None:
    from capim.store.sql import version_of

    before = version_of(served_store)
    for address in ("/", "/?as=csv", "/?as=html"):
        client.get(address)
    assert version_of(served_store) == before
