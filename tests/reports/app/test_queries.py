"""The pages of single queries: a list is its SQL, a query shows what every encoder finds, and judgements are kept."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.testclient import TestClient

from capim.reports.app.filters import QueryFilter, count_of, in_slice, read_filter, select
from capim.reports.app.queries import languages_of
from capim.reports.app.state import EvaluatedTask, State
from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.schema import texts
from capim.tasks.metrics.judgements import Judgement, read_judgements
from capim.tasks.protocols import Protocol
from tests.random_store import SPECS
from tests.reports.app.stores import NoServices, asking, csv_of, evaluate, labelled_store, missed_and_found


@pytest.fixture(scope="module")
def state(served_store: EmbeddingStore) -> State:
    return State(served_store, NoServices())


@pytest.fixture(scope="module")
def names(served_store: EmbeddingStore) -> list[str]:
    return sorted(served_store.counts("outcomes", "encoder"))


def n_shown(page: str) -> int:
    return int(re.findall(r'id="count"[^>]*>([\d,]+) of', page)[0].replace(",", ""))


def test_the_count_of_missed_by_one_and_found_by_another_is_that_of_a_self_join(
    client: TestClient, served_store: EmbeddingStore, names: list[str]
) -> None:
    a, b, _ = names
    expected = len(missed_and_found(served_store, a, b, "protocol = 't2i/all'"))
    address = f"/queries?wrong={a}&right={b}&protocol=t2i/all"
    assert n_shown(client.get(address).text) == expected > 0
    assert served_store.sql(client.get(f"{address}&as=sql").text).num_rows == expected
    rows = csv_of(client, address)
    assert len(rows) == expected
    assert all(int(row[a]) > 1 and int(row[f"{b} (worst)"]) == 1 for row in rows)


def test_a_caption_that_is_a_formula_is_copied_as_a_text(client: TestClient) -> None:
    rows = csv_of(client, "/queries?protocol=t2i/all")
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


def test_the_number_of_queries_within_ranks_is_that_of_the_encoder_that_ranks_them(
    client: TestClient, names: list[str]
) -> None:
    for name in names:
        address = f"/queries?protocol=t2i/all&low=2&encoders={name}"
        assert n_shown(client.get(address).text) == len(csv_of(client, address))


def test_an_address_holds_the_filter_and_names_what_is_wrong_in_it(client: TestClient) -> None:
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
    judged = EvaluatedTask(corpus="c", corpus_fingerprint="f", protocol=Protocol.of("t2i/judged/de"), evaluations={})
    assert not judged.has_images
    assert replace(judged, protocol=Protocol.of("t2i/all")).has_images
    assert languages_of(state.snapshot(), judged) == ["de"]
    with pytest.raises(RequestError, match="slice shows:dog"):
        in_slice("shows", "dog", judged)


def test_a_list_of_queries_on_images_that_are_ids_has_no_column_of_pictures(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(client.app, Starlette)
    corpora = client.app.state.capim.snapshot().data.corpora
    assert 'class="small"' in client.get("/queries?corpus=coco-karpathy").text
    images = corpora["coco-karpathy"].images
    ids = images.set_column(images.schema.get_field_index("sha"), "sha", pa.nulls(len(images), pa.string()))
    monkeypatch.setitem(corpora, "coco-karpathy", replace(corpora["coco-karpathy"], images=ids))
    assert 'class="small"' not in client.get("/queries?corpus=coco-karpathy").text


@pytest.fixture(scope="module")
def judgements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace") / "judgements.csv"


@pytest.fixture(scope="module")
def judging(served_store: EmbeddingStore, judgements: Path) -> Iterator[TestClient]:
    with asking(served_store, NoServices(), judgements=judgements) as made:
        made.headers["Origin"] = "http://127.0.0.1:8000"
        yield made


def _links(page: str, rel: str = "") -> list[str]:
    found = re.findall(r'<a href="(/query/[^"]+)"' + (f' rel="{rel}"' if rel else ""), page)
    return [html.unescape(each) for each in found]


def test_a_list_is_walked_through_to_its_end_and_back(client: TestClient) -> None:
    listed = _links(client.get("/queries?protocol=t2i/all&text=fox").text)
    assert len(listed) > 2
    at, seen = listed[0], [listed[0]]
    assert not _links(client.get(at).text, "prev")
    while following := _links(client.get(at).text, "next"):
        at = following[0]
        seen.append(at)
    assert seen == listed
    assert _links(client.get(at).text, "prev") == [listed[-2]]


def test_a_query_shows_ten_of_every_list_with_the_relevant_one_marked(
    client: TestClient, served_store: EmbeddingStore
) -> None:
    statement = "SELECT * FROM outcomes WHERE protocol = 't2i/all' AND rank_best = 3 LIMIT 1"
    [row] = served_store.sql(statement).to_pylist()
    address, name = f"/query/{quote(row['query_id'])}", re.escape(row["encoder"])
    page = client.get(f"{address}?protocol=t2i/all&encoders={row['encoder']}").text
    [section] = re.findall(rf'<section class="one"[^>]*>\s*<h2[^>]*>{name} .*?</section>', page, re.DOTALL)
    items = re.findall(r'<li class="(\w+)">', section)
    assert items == ["right" if ord_ == row["cluster"] else "other" for ord_ in row["top_ords"][:10]]
    assert "right" in items
    assert "rank 3" in section
    assert served_store.sql(client.get(f"{address}?as=sql").text).num_rows == 3
    saved = client.get(f"{address}?as=html").text
    assert 'src="data:image/' in saved
    assert 'src="/' not in saved
    assert client.get("/query/nobody").status_code == 400


def test_what_is_also_right_goes_to_the_file_of_the_user_and_not_into_the_store(
    judging: TestClient, judgements: Path, served_store: EmbeddingStore
) -> None:
    contents = served_store.corpus("coco-karpathy")
    query, item = contents.captions["id"][0].as_py(), contents.images["id"][5].as_py()
    assert not judgements.exists()
    sent = {"corpus": "coco-karpathy", "direction": "t2i", "query": query, "item": item}
    for _ in range(2):  # the second adds nothing
        assert "also right" in judging.post("/judge", data=sent, headers={"HX-Request": "true"}).text
    back = judging.post("/judge", data={**sent, "back": "http://example.com"}, follow_redirects=False)
    assert (back.status_code, back.headers["location"]) == (303, "/queries")
    assert read_judgements(judgements) == [Judgement("coco-karpathy", "t2i", query, item)]
    for wrong in ({"item": "nothing"}, {"corpus": "other"}, {"direction": "pairs"}):
        assert judging.post("/judge", data={**sent, **wrong}).status_code == 400
    assert judging.post("/judge", data=sent, headers={"Origin": "http://example.com"}).status_code == 403
    assert len(read_judgements(judgements)) == 1


def test_a_file_of_judgements_with_faults_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    with pytest.raises(RequestError, match=r"own\.csv"):
        read_judgements(file)
    file.write_text("corpus,direction,query_id\nshapes,t2i,a\n")
    with pytest.raises(RequestError, match="no column item_id"):
        read_judgements(file)
    file.write_text("corpus,direction,query_id,item_id\nshapes,t2i,a,b\nshapes,sideways,a,b\n")
    with pytest.raises(RequestError, match="row 2"):
        read_judgements(file)
    file.write_text("corpus,direction,query_id,item_id\n")  # the last judgement was deleted by hand
    assert read_judgements(file) == []


def test_the_five_queries_of_an_image_are_listed_each_with_a_page_of_its_own(asked: EmbeddingStore) -> None:
    protocol = "i2t/symmetric-mean"
    stored = texts(asked.sql(f"SELECT DISTINCT query_id FROM outcomes WHERE protocol = '{protocol}'")["query_id"])
    with asking(asked, NoServices()) as client:
        address = f"/queries?corpus=shapes&protocol={protocol}"
        rows = csv_of(client, address)
        assert sorted(row["query_id"] for row in rows) == sorted(stored) != []
        pages = [client.get(link) for link in _links(client.get(address).text)[:5]]
        assert [page.status_code for page in pages] == [200] * 5
        assert all(rows[at]["query_id"] in page.text for at, page in enumerate(pages))


def test_a_slice_by_what_images_show_has_the_queries_of_these_images(asked: EmbeddingStore) -> None:
    shown = [set(each or ()) for each in asked.corpus("shapes").images["objects"].to_pylist()]
    name, address = min(shown[0]), "/queries?corpus=shapes&protocol=t2i/all"
    with asking(asked, NoServices()) as client:
        every, inside = (csv_of(client, address + more) for more in ("", f"&slice=shows:{name}"))
    assert inside == [row for row in every if name in shown[int(row["cluster"])]] != []


def test_pages_of_labelled_images_say_which_answers_share_the_label(tmp_path: Path) -> None:
    """Images search images and classes; right is what the stored ranks say, and no image finds itself."""
    store = labelled_store(tmp_path)
    corpus = store.corpus("train")
    evaluate(store, corpus, SPECS[0], run="first")
    label = {row["query_id"]: row["item_id"] for row in corpus.relevance.to_pylist() if row["direction"] == "i2t"}
    words = dict(zip(texts(corpus.captions["id"]), texts(corpus.captions["text"]), strict=True))
    right = re.compile(r'<li class="right">\s*(?:<img [^>]*alt="([^"]*)"|<span[^>]*>([^<]*)<)')
    with asking(store, NoServices()) as client:
        for protocol, expected in (
            ("i2i/label", {one: {two for two in label if label[two] == label[one]} - {one} for one in label}),
            ("i2t/class", {one: {words[label[one]]} for one in label}),
        ):
            address = f"/queries?corpus=train&protocol={protocol}"
            rows = csv_of(client, address)
            assert {row["query_id"] for row in rows} == {one for one in label if expected[one]}
            for row, link in zip(rows, _links(client.get(address).text), strict=True):
                found = right.findall(client.get(link).text)
                assert {html.unescape("".join(one)) for one in found} == expected[row["query_id"]], link
