"""The page of stored items: search by text, by picture and by a stored item."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image
from starlette.testclient import TestClient

from capim.flows.searching import find
from capim.reports.app.state import PICTURES, State
from capim.reports.rows.choice import best_first
from capim.reports.rows.reading import read_report_data
from capim.store import EmbeddingStore
from capim.store.schema import texts
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.reports.app.stores import MANY, A, B, NoServices, asking, csv_of


@pytest.fixture(scope="module")
def asker(asked: EmbeddingStore) -> Iterator[TestClient]:
    with asking(asked) as made:
        yield made


def test_a_model_is_loaded_when_it_searches_first_and_finds_what_the_command_finds(
    asker: TestClient, asked: EmbeddingStore
) -> None:
    assert "Type a text" in asker.get("/search").text
    text = texts(asked.items("shapes", "caption")["text"])[0]
    address = f"/search?corpus=shapes&text={text}&encoders={A},{B}&k=3"
    page = asker.get(address).text
    assert f"Loading the model of {A} …" in page
    later = re.findall(r'hx-get="(/search/column[^"]*)"', page)
    assert len(later) == 2  # one column for each encoder
    column = asker.get(later[0].replace("&amp;", "&")).text
    assert column.count("<li>") == 3
    assert "Loading" not in column
    page = asker.get(address).text  # the model is in memory now
    assert f"Loading the model of {A} …" not in page
    assert f"Loading the model of {B} …" in page
    how: dict[str, Any] = {"image": None, "vector": None, "modality": None, "k": 3, "device": "cpu"}
    expected = find(asked, text=text, encoder=A, corpus="shapes", **how).rows
    assert [row["id"] for row in csv_of(asker, address) if row["encoder"] == A] == [row["id"] for row in expected]
    assert f"capim search '{text}' --encoder {A} --corpus shapes -k 3" in asker.get(address).text.replace("&#39;", "'")
    saved = asker.get(f"{address}&as=html").text
    assert "data:image/" in saved
    assert "<form" not in saved


def test_a_search_begins_with_the_first_encoders_of_the_first_page(asker: TestClient, asked: EmbeddingStore) -> None:
    checked = re.findall(r'name="encoders" value="([^"]+)" checked', asker.get("/search").text)
    assert checked == best_first(read_report_data(asked))[:2]


def test_a_search_keeps_the_task_that_one_came_from(asker: TestClient) -> None:
    page = asker.get("/queries?protocol=i2t/any&corpus=shapes").text
    assert 'href="/search?corpus=shapes&amp;protocol=i2t/any"' in page
    page = asker.get("/search?corpus=shapes&protocol=i2t/any").text
    assert page.count('<input type="hidden" name="protocol" value="i2t/any">') == 2, "by a text, and by a picture"
    assert 'href="/queries?corpus=shapes&amp;protocol=i2t/any"' in page


def test_a_picture_stays_in_memory_and_finds_captions(asker: TestClient) -> None:
    corpus = read_shapes(n_scenes=12)
    assert corpus.source is not None
    data = corpus.source.read(texts(corpus.images["key"])[3])
    sent = asker.post("/search", data={"corpus": "shapes", "encoders": [A, B]}, files={"file": ("own.png", data)})
    assert sent.url.params["encoders"] == f"{A},{B}"
    assert re.fullmatch(r"[0-9a-f]{16}", sent.url.params["picture"])
    assert "own.png" not in sent.text  # the name of the file is nobody's business
    assert "Items like this picture" in sent.text
    found = csv_of(asker, f"{sent.url.path}?{sent.url.query.decode()}&modality=image&k=1")
    assert {row["id"] for row in found} == {texts(corpus.images["id"])[3]}  # by both encoders
    assert asker.get("/search?picture=0123456789abcdef").status_code == 400
    for wrong in (b"no picture", b""):
        answer = asker.post("/search", data={"corpus": "shapes"}, files={"file": ("x.png", wrong)})
        assert answer.status_code == 400
    assert "formats: JPEG, PNG" in asker.post("/search", files={"file": ("x.png", b"no picture")}).text
    bomb = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(bomb, "PNG")
    assert "more than the" in asker.post("/search", files={"file": ("x.png", bomb.getvalue())}).text
    assert asker.post("/search", files={"file": ("x.png", bytes(21 * 2**20))}).status_code == 413


def test_a_picture_that_is_chosen_again_is_the_newest(asked: EmbeddingStore) -> None:
    state = State(asked, NoServices())
    first = state.keep_picture(b"first", b"")
    for number in range(1, PICTURES):
        state.keep_picture(str(number).encode(), b"")
    assert state.keep_picture(b"first", b"") == first
    state.keep_picture(b"another", b"")
    assert state.picture(first) == (b"first", b"")


def test_more_like_this_needs_no_model(asker: TestClient, asked: EmbeddingStore) -> None:
    address = f"/search?corpus=shapes&like=image:3&encoders={A},{MANY.name}&k=2"
    found = csv_of(asker, address)
    own = texts(asked.items("shapes", "image")["id"])[3]
    assert [row["id"] for row in found if row["rank"] == "1"] == [own, own]
    more = re.findall(r'href="(/search\?[^"]*like=image:\d+)"', asker.get(address).text)
    assert len(more) == 4
    assert asker.get(more[1].replace("&amp;", "&")).status_code == 200


def test_without_a_model_that_reads_the_query_a_column_offers_stored_items(asker: TestClient) -> None:
    column = asker.get(f"/search/column?corpus=shapes&text=x&encoders={MANY.name}").text
    assert 'class="fault"' in column  # its checkpoint is nowhere: the column says so
    offered = re.findall(r'href="(/search\?[^"]*like=image:\d+)" aria-label="more like', column)
    assert len(offered) == 8
    assert "<img" in column
    assert 'class="nearest"' in asker.get(offered[5].replace("&amp;", "&")).text


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("corpus=shapse", "did you mean 'shapes'"),
        ("k=0", "from 1 to 100"),
        ("like=image", "image:POSITION"),
        ("like=image:99999", "has 12 images"),
        ("like=image:1&text=x", "a query on its own"),
        ("modality=pixels", "known: image, caption"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(asker: TestClient, parameters: str, message: str) -> None:
    answer = asker.get(f"/search?{parameters}")
    assert answer.status_code == 400
    assert message in answer.text.replace("&#39;", "'")
