"""The pages of stored items: search by text, by picture and by a stored item, and maps with their selections."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from capim.flows.searching import find
from capim.store import EmbeddingStore
from capim.store.schema import texts
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.results.maps import project
from tests.reports.app.stores import MANY, A, B, asking, csv_of


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
    how: dict[str, Any] = {"image": None, "vector": None, "modality": None, "k": 3, "index": False, "device": "cpu"}
    expected = find(asked, text=text, encoder=A, corpus="shapes", **how).rows
    assert [row["id"] for row in csv_of(asker, address) if row["encoder"] == A] == [row["id"] for row in expected]
    assert f"capim search '{text}' --encoder {A} --corpus shapes -k 3" in asker.get(address).text.replace("&#39;", "'")
    saved = asker.get(f"{address}&as=html").text
    assert "data:image/" in saved
    assert "<form" not in saved


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


def test_more_like_this_needs_no_model(asker: TestClient, asked: EmbeddingStore) -> None:
    address = f"/search?corpus=shapes&like=image:3&encoders={A},{MANY.name}&k=2"
    found = csv_of(asker, address)
    own = texts(asked.items("shapes", "image")["id"])[3]
    assert [row["id"] for row in found if row["rank"] == "1"] == [own, own]
    more = re.findall(r'href="(/search\?[^"]*like=image:\d+)"', asker.get(address).text)
    assert len(more) == 4
    assert asker.get(more[1].replace("&amp;", "&")).status_code == 200
    by_text = asker.get(f"/search/column?corpus=shapes&text=x&encoders={MANY.name}").text
    assert 'class="fault"' in by_text  # its checkpoint is nowhere: the column says so


def test_without_a_model_that_reads_the_query_a_column_offers_stored_items_and_takes_a_vector(
    asker: TestClient, asked: EmbeddingStore
) -> None:
    column = asker.get(f"/search/column?corpus=shapes&text=x&encoders={MANY.name}").text
    offered = re.findall(r'href="(/search\?[^"]*like=image:\d+)" aria-label="more like', column)
    assert len(offered) == 8
    assert "<img" in column
    assert 'class="nearest"' in asker.get(offered[5].replace("&amp;", "&")).text
    key = asked.key(encoder=A, corpus="shapes", modality="image")
    (rows,) = asked.stored_blocks(key, ords=np.array([7], np.int32))
    file = io.BytesIO()
    np.save(file, np.asarray(rows.vectors.values, np.float32)[0])
    given = {"corpus": "shapes", "encoders": A, "text": "left over from an earlier search"}
    sent = asker.post("/search", data=given, files={"file": ("own.npy", file.getvalue())})
    assert "Items like this vector" in sent.text
    found = csv_of(asker, f"{sent.url.path}?{sent.url.query.decode()}")
    assert found[0]["id"] == texts(asked.items("shapes", "image")["id"])[7]
    assert float(found[0]["score"]) == pytest.approx(1.0, abs=1e-5)
    wrong = asker.post("/search", data=given, files={"file": ("own.npy", b"\x93NUMPY and no more")})
    assert wrong.status_code == 200, "the column says it"
    later = csv_of(asker, f"{wrong.url.path}?{wrong.url.query.decode()}")
    assert later == []


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("corpus=shapse", "did you mean 'shapes'"),
        ("encoders=tiny-clap", "did you mean"),
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


def test_points_and_colours_are_those_of_the_store(asker: TestClient, asked: EmbeddingStore) -> None:
    address = f"/map?corpus=shapes&encoders={A}"
    page = asker.get(address).text
    assert f"Computing the map of {A} …" in page  # the page does not wait for it
    place = re.findall(r'hx-get="(/map/figure[^"]*)"', page)[0].replace("&amp;", "&")
    figure = asker.get(place).text
    rows = csv_of(asker, address)
    plane = project(asked.vectors(encoder=A, corpus="shapes", modality="caption").matrix)
    np.testing.assert_allclose([float(row[f"{A} x"]) for row in rows], plane.points[:, 0], rtol=1e-5, atol=1e-6)
    codes = base64.b64decode(re.findall(r'data-codes="([^"]*)"', figure)[0])
    outcomes = asked.rows("outcomes", encoder=A, corpus="shapes", protocol="t2i/all")
    found = {row["query_ord"] for row in outcomes.to_pylist() if row["rank_worst"] == 1}
    assert {at for at, code in enumerate(codes) if code == 0} == found
    assert asked.sql(asker.get(f"{address}&as=sql").text)["colour"].to_pylist().count("found") == len(found)
    assert "Of the 10 nearest items of an item, the map keeps" in figure
    assert "trustworthiness" in figure
    assert "data:image/png" in asker.get(f"{address}&as=html").text


def test_two_models_show_what_only_one_finds(asker: TestClient, asked: EmbeddingStore) -> None:
    address = f"/map?corpus=shapes&encoders={A},{B}&colour=both"
    assert asker.get(address).text.count("Computing the map") == 2
    rows = csv_of(asker, address)
    assert [row[f"{A} colour"] for row in rows] == [row[f"{B} colour"] for row in rows]
    missed = asker.get(f"/queries?corpus=shapes&protocol=t2i/all&wrong={B}&right={A}&as=csv").text
    tied = asker.get(f"/queries?corpus=shapes&protocol=t2i/all&right={A}&as=csv").text
    only = sum(row[f"{A} colour"] == f"only {A}" for row in rows)
    assert len(missed.splitlines()) - 1 <= only <= len(tied.splitlines()) - 1
    for colour in ("language", "none", "shows:circle", "type:x"):
        assert asker.get(f"{address.replace('both', colour)}&as=sql").status_code == 200


def test_a_selection_is_a_filter_of_the_queries(asker: TestClient, asked: EmbeddingStore) -> None:
    queries = re.findall(r'data-queries="([^"]*)"', asker.get(f"/map?corpus=shapes&encoders={A}").text)[0]
    address = f"{queries}3-5.9".replace("&amp;", "&")
    rows = csv_of(asker, address)
    assert [row["query_ord"] for row in rows] == ["3", "4", "5", "9"]
    assert asked.sql(asker.get(f"{address}&as=sql").text).num_rows == 4
    of_image = csv_of(asker, "/queries?corpus=shapes&protocol=t2i/all&items=image:2")
    captions = asked.items("shapes", "caption").to_pylist()
    image = asked.items("shapes", "image")["id"][2].as_py()
    assert [int(row["query_ord"]) for row in of_image] == [
        at for at, row in enumerate(captions) if row["image_id"] == image
    ]
    for wrong in ("caption:x", "caption:", "caption:1-99999999", "images:1", f"caption:{'0-999999.' * 99}1"):
        assert asker.get(f"/queries?corpus=shapes&protocol=t2i/all&items={wrong}").status_code == 400
    assert asker.get("/map/item?corpus=shapes&item=3").status_code == 200
    assert asker.get("/map/item?corpus=shapes&item=3000").status_code == 400


def test_what_has_no_map_says_so(asker: TestClient) -> None:
    assert "at the mean of its vectors" in asker.get(f"/map/figure?encoders={MANY.name}").text
    for wrong in ("method=tsne", "colour=red", "encoders=tiny-clap", "colour=both", "modality=x", "corpus=y"):
        assert asker.get(f"/map?{wrong}").status_code == 400, wrong
    assert "pip install umap-learn" in asker.get("/map/figure?method=umap").text
