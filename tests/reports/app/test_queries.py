"""The list of queries: its filters are SQL, and the list is that SQL."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest
from starlette.datastructures import QueryParams
from starlette.testclient import TestClient

from capim.reports.app.filters import QueryFilter, count_of, in_slice, read_filter, select
from capim.reports.app.queries import languages_of
from capim.reports.app.state import Evaluated, State
from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.tasks.protocols import Protocol
from tests.reports.app.conftest import NoServices


@pytest.fixture(scope="module")
def state(served_store: EmbeddingStore) -> State:
    return State(served_store, NoServices())


@pytest.fixture(scope="module")
def names(served_store: EmbeddingStore) -> list[str]:
    return sorted(served_store.counts("outcomes", "encoder"))


def _shown(page: str) -> int:
    found = re.search(r'id="count"[^>]*>([\d,]+) of', page)
    assert found is not None
    return int(found[1].replace(",", ""))


def test_the_count_of_missed_by_one_and_found_by_another_is_that_of_a_self_join(
    client: TestClient, served_store: EmbeddingStore, names: list[str]
) -> None:
    a, b, _ = names
    joined = f"""SELECT count(*) AS n
        FROM outcomes a JOIN outcomes b USING (corpus_fingerprint, protocol, query_id)
        WHERE a.encoder = '{a}' AND b.encoder = '{b}' AND protocol = 't2i/all'
        AND a.rank_best > 1 AND b.rank_worst = 1"""
    expected = served_store.sql(joined)["n"][0].as_py()
    address = f"/queries?wrong={a}&right={b}&protocol=t2i/all"
    assert _shown(client.get(address).text) == expected > 0
    assert served_store.sql(client.get(f"{address}&as=sql").text).num_rows == expected
    rows = list(csv.DictReader(io.StringIO(client.get(f"{address}&as=csv").text)))
    assert len(rows) == expected
    assert all(int(row[a]) > 1 and int(row[f"{b} (worst)"]) == 1 for row in rows)


def test_a_caption_that_is_a_formula_is_copied_as_a_text(client: TestClient) -> None:
    rows = list(csv.DictReader(io.StringIO(client.get("/queries?protocol=t2i/all&as=csv").text)))
    formulas = {row["text"] for row in rows if "HYPERLINK" in row["text"]}
    assert formulas
    assert all(text.startswith("'=HYPERLINK(") for text in formulas)


def test_every_filter_leaves_the_rows_that_fit(state: State, names: list[str]) -> None:
    snapshot = state.snapshot()

    def rows(address: str) -> list[dict[str, object]]:
        wanted, evaluated = read_filter(QueryParams(address), snapshot)
        found = state.rows(select(wanted, evaluated)).to_pylist()
        assert state.rows(count_of(wanted, evaluated))["n"][0].as_py() == len(found)
        assert state.store.sql(select(wanted, evaluated).text).to_pylist() == found, "what is held is what is stored"
        return found

    every = rows("protocol=t2i/all")
    a, b, _ = names
    assert rows("text=FOX") == [row for row in every if "fox" in str(row["text"]).lower()] != []
    assert rows(f"of={b}&low=3&high=9&encoders={a}")[0].keys() >= {a, b}
    assert {row[b] for row in rows(f"of={b}&low=3&high=9")} <= set(range(3, 10))
    gaps = [int(str(row[a])) - int(str(row[b])) for row in rows(f"sort=gap&wrong={a}&right={b}")]
    assert gaps == sorted(gaps, reverse=True)
    ranks = [int(str(row[b])) for row in rows(f"sort=rank&of={b}")]
    assert ranks == sorted(ranks, reverse=True)
    assert len(rows(f"sort=margin&of={a}")) == len(every)
    objects = [set(each or ()) for each in snapshot.data.corpora["coco-karpathy"].images["objects"].to_pylist()]
    if shown := next((name for each in objects for name in each), ""):
        inside = rows(f"slice=shows:{shown}")
        assert inside == [row for row in every if shown in objects[int(str(row["cluster"]))]]


def test_an_address_holds_the_filter_and_names_what_is_wrong_in_it(client: TestClient, names: list[str]) -> None:
    wanted = QueryFilter(corpus="c", protocol="t2i/*/*", wrong=("a", "b"), text="a&b=c", low=2, sort="gap", page=3)
    parameters = QueryParams(wanted.parameters)
    assert {key: parameters[key] for key in parameters} == {
        "corpus": "c", "protocol": "t2i/*/*", "wrong": "a,b", "text": "a&b=c", "low": "2", "sort": "gap", "page": "3"
    }  # fmt: skip
    answer = client.get("/queries?wrong=nobody&low=x&sort=size&slice=colour")
    assert answer.status_code == 400
    for word in ("nobody", "low=x", "size", "slice=colour"):
        assert word in answer.text


def test_a_list_goes_on_at_its_end_and_says_when_the_store_has_changed(client: TestClient) -> None:
    first = client.get("/queries?protocol=t2i/all").text
    more = re.search(r'hx-get="([^"]+page=2[^"]+)"', first)
    assert more is not None
    second = client.get(more[1].replace("&amp;", "&")).text
    texts = [re.findall(r"/query/([^?\"]+)", page) for page in (first, second)]
    assert len(texts[0]) == 50
    assert len(texts[1]) == 30
    assert not set(texts[0]) & set(texts[1])
    assert 'hx-get="/queries?corpus' not in second
    changed = client.get("/queries?protocol=t2i/all&page=2&version=older").text
    assert "The store has changed" in changed
    assert "/query/" not in changed


def test_the_cluster_of_a_judged_query_is_no_image_so_that_no_picture_is_shown_for_it(state: State) -> None:
    judged = Evaluated(corpus="c", corpus_fingerprint="f", protocol=Protocol.of("t2i/judged/de"), evaluations={})
    assert not judged.has_images
    assert replace(judged, protocol=Protocol.of("t2i/all")).has_images
    assert languages_of(state.snapshot(), judged) == ["de"]
    with pytest.raises(RequestError, match="slice shows:dog"):
        in_slice("shows", "dog", judged)
