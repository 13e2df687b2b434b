"""Two runs: changed figures, then changed queries."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from capim.reports.app.application import create_app
from capim.store import EmbeddingStore
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.reports.app.conftest import TOKEN, NoServices
from tests.reports.app.evaluated import evaluated_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingStore:
    folder: Path = tmp_path_factory.mktemp("runs")
    return evaluated_store(folder / "store", read_shapes(n_scenes=8))


@pytest.fixture
def client(store: EmbeddingStore) -> TestClient:
    made = TestClient(create_app(store, token=TOKEN, services=NoServices()), base_url="http://127.0.0.1:8000")
    made.get(f"/?token={TOKEN}")
    return made


def test_changed_figures_and_then_changed_queries(client: TestClient, store: EmbeddingStore) -> None:
    page = client.get("/runs").text  # the two newest runs, without being asked
    assert re.search(r'value="first" selected', page)
    assert re.search(r'value="second" selected', page)
    rows = list(csv.DictReader(io.StringIO(client.get("/runs?as=csv").text)))
    assert {row["encoder"] for row in rows} == {"one"}  # the other encoder is as it was
    statement = client.get("/runs?as=sql").text
    assert store.sql(statement).num_rows == len(rows) > 0
    assert "revision" in page  # why
    assert page.count('name="old"') == 1

    found = re.findall(r'href="(/runs\?[^"]*t2i/all[^"]*)#queries"', page)
    address = found[0].replace("&amp;", "&")
    queries = client.get(address).text
    counted = store.sql(client.get(f"{address}&as=sql").text)
    assert queries.count('<td class="num good">') + queries.count('<td class="num bad">') == min(50, len(counted))
    first = counted.to_pylist()[0]
    outcomes = store.rows("outcomes", protocol="t2i/all", encoder="one", query_id=first["query_id"])
    assert {*outcomes["rank_worst"].to_pylist()} == {first["old_rank_worst"], first["new_rank_worst"]}

    same = client.get("/runs?old=second&new=second").text
    assert "Both runs are the same one" in same
    assert client.get("/runs?old=thrid&new=second").status_code == 400
    assert client.get("/runs?task=nothing").status_code == 400
