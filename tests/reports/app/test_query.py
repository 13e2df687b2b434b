"""One query, its judgements, and one encoder against another."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from capim.reports.app.application import create_app
from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.exchange.row_files import Judgement, read_judgements
from capim.tasks.protocols import Protocol
from tests.reports.app.conftest import TOKEN, NoServices


@pytest.fixture(scope="module")
def judgements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace") / "judgements.csv"


@pytest.fixture(scope="module")
def judging(served_store: EmbeddingStore, judgements: Path) -> Iterator[TestClient]:
    app = create_app(served_store, token=TOKEN, services=NoServices(), judgements=judgements)
    with TestClient(app, base_url="http://127.0.0.1:8000", headers={"Origin": "http://127.0.0.1:8000"}) as made:
        made.get(f"/?token={TOKEN}")
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
    file.write_text("corpus,direction,query_id\n")
    with pytest.raises(RequestError, match="no column item_id"):
        read_judgements(file)
    file.write_text("corpus,direction,query_id,item_id\nshapes,t2i,a,b\nshapes,sideways,a,b\n")
    with pytest.raises(RequestError, match="line 3"):
        read_judgements(file)


def test_one_against_another_counts_what_the_lists_behind_it_count(client: TestClient) -> None:
    page = client.get("/compare?protocol=t2i/all").text
    cells = re.findall(r'<td class="num"><a href="([^"]+)">([\d,]+)</a></td>', page)
    assert len(cells) == 4
    for target, number in cells:
        listed = client.get(html.unescape(target)).text
        assert re.search(rf'id="count"[^>]*>{number} of', listed), target
    [address] = re.findall(r'data-points="([^"]+)"', page)
    points = client.get(html.unescape(address)).json()
    assert sum(n for _, _, n in points) == 80
    first, second, n = points[-1]
    a, b = re.findall(r'data-[ab]="([^"]+)"', page)
    inside = client.get(f"/queries?protocol=t2i/all&ranks={a}:{first}-{first},{b}:{second}-{second}").text
    assert re.search(rf'id="count"[^>]*>{n} of', inside)
    wrong = client.get(f"/queries?protocol=t2i/all&ranks={a}:9-2,nobody:1-2")
    assert wrong.status_code == 400
    assert "9-2" in wrong.text
    assert "nobody" in wrong.text


def test_only_tasks_of_two_encoders_are_offered_and_an_encoder_without_the_new_task_is_replaced(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form keeps both encoders when another task is chosen."""
    assert isinstance(client.app, Starlette)
    snapshot = client.app.state.capim.snapshot()
    corpus = snapshot.chosen("", "i2t/any").corpus
    whole = snapshot.evaluated[corpus, "i2t/any"]
    first, second, absent = whole.evaluations
    of_two = replace(whole, evaluations={name: whole.evaluations[name] for name in (first, second)})
    of_one = replace(whole, protocol=Protocol.of("i2t/one"), evaluations={first: whole.evaluations[first]})
    evaluated = {**snapshot.evaluated, (corpus, "i2t/any"): of_two, (corpus, "i2t/one"): of_one}
    monkeypatch.setitem(vars(snapshot), "evaluated", evaluated)
    answer = client.get(f"/compare?corpus={corpus}&protocol=i2t/any&a={absent}&b={second}")
    assert answer.status_code == 200
    assert f"{absent} was not evaluated on this task" in html.unescape(answer.text)
    assert {"a": first, "b": second} == dict(re.findall(r'data-([ab])="([^"]+)"', html.unescape(answer.text)))
    assert 'value="i2t/any"' in answer.text
    assert 'value="i2t/one"' not in answer.text
    assert client.get(f"/compare?corpus={corpus}&protocol=i2t/any&a=nobody").status_code == 400
