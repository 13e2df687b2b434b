"""Maps: points and colours of every item, and selections that lead to their queries."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Iterator

import numpy as np
import pytest
from starlette.testclient import TestClient

from capim.store import EmbeddingStore
from capim.tasks.results.maps import project
from tests.reports.app.asked import MANY, A, B, asking


@pytest.fixture(scope="module")
def client(asked: EmbeddingStore) -> Iterator[TestClient]:
    with asking(asked) as made:
        yield made


def test_points_and_colours_are_those_of_the_store(client: TestClient, asked: EmbeddingStore) -> None:
    address = f"/map?corpus=shapes&encoders={A}"
    page = client.get(address).text
    assert f"Computing the map of {A} …" in page  # the page does not wait for it
    place = re.findall(r'hx-get="(/map/figure[^"]*)"', page)[0].replace("&amp;", "&")
    figure = client.get(place).text
    rows = list(csv.DictReader(io.StringIO(client.get(f"{address}&as=csv").text)))
    plane = project(asked.vectors(encoder=A, corpus="shapes", modality="caption").matrix)
    np.testing.assert_allclose([float(row[f"{A} x"]) for row in rows], plane.points[:, 0], rtol=1e-5, atol=1e-6)
    codes = base64.b64decode(re.findall(r'data-codes="([^"]*)"', figure)[0])
    outcomes = asked.rows("outcomes", encoder=A, corpus="shapes", protocol="t2i/all")
    found = {row["query_ord"] for row in outcomes.to_pylist() if row["rank_worst"] == 1}
    assert {at for at, code in enumerate(codes) if code == 0} == found
    assert asked.sql(client.get(f"{address}&as=sql").text)["colour"].to_pylist().count("found") == len(found)
    assert "Of the 10 nearest items of an item, the map keeps" in figure
    assert "trustworthiness" in figure
    assert "data:image/png" in client.get(f"{address}&as=html").text


def test_two_models_show_what_only_one_finds(client: TestClient, asked: EmbeddingStore) -> None:
    address = f"/map?corpus=shapes&encoders={A},{B}&colour=both"
    assert client.get(address).text.count("Computing the map") == 2
    rows = list(csv.DictReader(io.StringIO(client.get(f"{address}&as=csv").text)))
    assert [row[f"{A} colour"] for row in rows] == [row[f"{B} colour"] for row in rows]
    missed = client.get(f"/queries?corpus=shapes&protocol=t2i/all&wrong={B}&right={A}&as=csv").text
    tied = client.get(f"/queries?corpus=shapes&protocol=t2i/all&right={A}&as=csv").text
    only = sum(row[f"{A} colour"] == f"only {A}" for row in rows)
    assert len(missed.splitlines()) - 1 <= only <= len(tied.splitlines()) - 1
    for colour in ("language", "none", "shows:circle", "type:x"):
        assert client.get(f"{address.replace('both', colour)}&as=sql").status_code == 200


def test_a_selection_is_a_filter_of_the_queries(client: TestClient, asked: EmbeddingStore) -> None:
    queries = re.findall(r'data-queries="([^"]*)"', client.get(f"/map?corpus=shapes&encoders={A}").text)[0]
    address = f"{queries}3-5.9".replace("&amp;", "&")
    rows = csv.DictReader(io.StringIO(client.get(f"{address}&as=csv").text))
    assert [row["query_ord"] for row in rows] == ["3", "4", "5", "9"]
    assert asked.sql(client.get(f"{address}&as=sql").text).num_rows == 4
    of_image = list(
        csv.DictReader(io.StringIO(client.get("/queries?corpus=shapes&protocol=t2i/all&items=image:2&as=csv").text))
    )
    captions = asked.items("shapes", "caption").to_pylist()
    image = asked.items("shapes", "image")["id"][2].as_py()
    assert [int(row["query_ord"]) for row in of_image] == [
        at for at, row in enumerate(captions) if row["image_id"] == image
    ]
    for wrong in ("caption:x", "caption:", "caption:1-99999999", "images:1", f"caption:{'0-999999.' * 99}1"):
        assert client.get(f"/queries?corpus=shapes&protocol=t2i/all&items={wrong}").status_code == 400
    assert client.get("/map/item?corpus=shapes&item=3").status_code == 200
    assert client.get("/map/item?corpus=shapes&item=3000").status_code == 400


def test_what_has_no_map_says_so(client: TestClient) -> None:
    assert "at the mean of its vectors" in client.get(f"/map/figure?encoders={MANY.name}").text
    for wrong in ("method=tsne", "colour=red", "encoders=tiny-clap", "colour=both", "modality=x", "corpus=y"):
        assert client.get(f"/map?{wrong}").status_code == 400, wrong
    assert "pip install umap-learn" in client.get("/map/figure?method=umap").text
