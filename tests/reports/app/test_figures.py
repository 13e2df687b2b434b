"""The pages of figures: the grid of what one chooses, one encoder against another, and two runs."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from capim.store import EmbeddingStore
from capim.store.schema import texts
from capim.store.types import MODALITIES
from capim.store.upkeep.removal import drop_set, drop_superseded
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.metrics import METRICS
from capim.tasks.statistics.draws import Resampling
from tests.random_store import OTHER, SPECS, random_store, rows_of
from tests.reports.app.stores import NoServices, asking, csv_of, evaluate, two_runs

pytestmark = pytest.mark.slow  # whole suites of runs


@pytest.fixture(scope="module")
def runs_store(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingStore:
    return two_runs(tmp_path_factory.mktemp("runs") / "store", read_shapes(n_scenes=8))


@pytest.fixture(scope="module")
def runs(runs_store: EmbeddingStore) -> Iterator[TestClient]:
    with asking(runs_store, NoServices()) as made:
        yield made


def test_the_grid_has_every_encoder_and_its_rows_are_its_sql(client: TestClient, served_store: EmbeddingStore) -> None:
    names = sorted(served_store.counts("results", "encoder"))
    page = client.get("/").text
    assert {*re.findall(r'<tr data-name="([^"]+)">', page)} == {*names}
    rows = served_store.sql(client.get("/?as=sql").text).to_pylist()
    assert {row["encoder"] for row in rows} == {*names}
    assert [row["encoder"] for row in csv_of(client, "/")] == [row["encoder"] for row in rows]
    assert f"/queries?corpus=coco-karpathy&protocol=t2i/all&wrong={names[0]}" in html.unescape(page)


def test_two_encoders_are_compared_by_what_each_finds_as_the_lists_behind_it_count(client: TestClient) -> None:
    names = re.findall(r'name="wrong" value="([^"]*)"', client.get("/queries?protocol=t2i/all").text)
    page = client.get(f"/queries?protocol=t2i/all&encoders={names[1]},{names[0]}").text
    quarters = page.partition('class="quarters"')[2].partition("</table>")[0]
    assert f"found by {names[0]}</th>" in quarters.partition("</thead>")[0]
    cells = re.findall(r'<td class="num"><a href="([^"]+)">([\d,]+)</a></td>', quarters)
    assert len(cells) == 4
    tied = re.findall(r"(\d+) quer\w+ decided by a tie", page)
    assert sum(int(number) for _, number in cells) + sum(map(int, tied)) == 80
    for target, number in cells:
        listed = client.get(html.unescape(target)).text
        assert re.search(rf'id="count"[^>]*>{number} of', listed), target
    assert "The stored tests of the two" in page
    assert f"{names[1]} − {names[0]}" in page
    assert 'class="quarters"' not in client.get(f"/queries?protocol=t2i/all&encoders={names[0]}").text
    wrong = client.get("/queries?protocol=t2i/all&encoders=nobody")
    assert wrong.status_code == 400
    assert "nobody" in wrong.text


def test_changed_figures_and_then_changed_queries(runs: TestClient, runs_store: EmbeddingStore) -> None:
    page = runs.get("/runs").text  # the two newest runs, without being asked
    assert re.search(r'value="first" selected', page)
    assert re.search(r'value="second" selected', page)
    rows = csv_of(runs, "/runs")
    assert {row["encoder"] for row in rows} == {"one"}  # the other encoder is as it was
    assert runs_store.sql(runs.get("/runs?as=sql").text).num_rows == len(rows) > 0
    assert "revision" in page  # why
    assert page.count('name="old"') == 1

    changed, shared = map(int, re.findall(r"(\d+) of (\d+) shared figures", page)[0])
    assert shared > changed == len(rows)

    found = re.findall(r'href="(/runs\?[^"]*t2i/all[^"]*)#queries"', page)
    address = found[0].replace("&amp;", "&")
    queries = runs.get(address).text
    counted = runs_store.sql(runs.get(f"{address}&as=sql").text)
    assert queries.count('<td class="num good">') + queries.count('<td class="num bad">') == min(50, len(counted))
    first = counted.to_pylist()[0]
    place = html.unescape(re.findall(r'href="(/query/[^"]+)"', queries)[0])
    assert runs.get(place).status_code == 200
    assert first["query_id"] in place
    outcomes = runs_store.rows("outcomes", protocol="t2i/all", encoder="one", query_id=first["query_id"])
    assert {*outcomes["rank_worst"].to_pylist()} == {first["old_rank_worst"], first["new_rank_worst"]}

    assert "Both runs are the same one" in runs.get("/runs?old=second&new=second").text
    assert runs.get("/runs?old=thrid&new=second").status_code == 400
    assert runs.get("/runs?task=nothing").status_code == 400


def chosen_runs(page: str) -> dict[str, tuple[list[str], str]]:
    """Of both pickers of runs the labels, and the run that is chosen."""
    found = {}
    for name, options in re.findall(r'<select name="(old|new)"[^>]*>(.*?)</select>', page, re.DOTALL):
        labels = re.findall(r"<option[^>]*>(.*?)</option>", options)
        found[name] = labels, "".join(re.findall(r'value="([^"]+)" selected', options))
    return found


def recorded(store: EmbeddingStore, run: str, command: str, uses: list[str], *, days: int = 0) -> None:
    """The record of a run that used what has these keys and made nothing."""
    last = store.rows("runs").sort_by("started").to_pylist()[-1]
    now = datetime.now(UTC) - timedelta(days=days)
    row = {**last, "run": run, "command": command, "uses": uses, "started": now, "finished": now}
    store.write_rows("runs", rows_of("runs", row))


def test_runs_that_evaluated_nothing_are_not_compared_unless_they_are_asked_for(tmp_path: Path) -> None:
    store = two_runs(tmp_path / "store", read_shapes(n_scenes=4))
    recorded(store, "analysed", "capim analyse", ["a key of slices"])
    recorded(store, "third", "capim evaluate", texts(store.rows("derived")["key"]))
    recorded(store, "imported", "capim import", [])
    with asking(store, NoServices()) as client:
        old, new = (chosen_runs(client.get("/runs").text)[name] for name in ("old", "new"))
        assert (old[1], new[1]) == ("second", "third")
        assert len({*new[0]}) == 3
        assert re.fullmatch(
            r"[\d-]+ [\d:]+ evaluated \d+ protocols, all stored before \(completed\): capim evaluate", new[0][0]
        )
        assert re.fullmatch(r"[\d-]+ [\d:]+ evaluated \d+ protocols \(completed\): capim run", new[0][1])
        asked = chosen_runs(client.get("/runs?new=imported").text)
        assert (asked["old"][1], asked["new"][1]) == ("third", "imported")
        assert asked["new"][0][0].endswith("evaluated nothing (completed): capim import")
        recorded(store, "night", "capim run", texts(store.rows("derived")["key"]), days=1)
        chosen = chosen_runs(client.get("/runs").text)
        assert (chosen["old"][1], chosen["new"][1]) == ("night", "third"), "runs of one night count as one"


def test_results_that_were_removed_between_two_runs_are_named_and_nothing_is_called_equal(tmp_path: Path) -> None:
    corpus, same = read_shapes(n_scenes=4), replace(OTHER)  # of the same name and fingerprint, with other draws
    store = random_store(tmp_path / "store", corpus, [SPECS[1], same])
    evaluate(store, corpus, SPECS[1], same, run="first")
    for modality in MODALITIES:
        drop_set(store, store.key(encoder=OTHER.fingerprint, corpus=corpus.fingerprint, modality=modality))
    random_store(tmp_path / "store", corpus, [OTHER])
    drop_superseded(store, encoder_fingerprint=OTHER.fingerprint, corpus_fingerprint=corpus.fingerprint)
    evaluate(store, corpus, SPECS[1], OTHER, run="second")
    with asking(store, NoServices()) as client:
        page = client.get("/runs").text
        kept, removed = (len(store.rows("results", encoder=name)) for name in ("many", "other"))
        assert f"{removed} results of the earlier run, by " in page
        assert "nothing of other on shapes can be compared" in page
        assert f"None of {kept} shared results differs." in page
        assert "There are no ranks to compare" in page
        assert "equal" not in page
        assert "every query has" not in page
        assert csv_of(client, "/runs") == []


def test_rows_of_changed_figures_are_those_of_the_page_whatever_settings_a_later_run_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with settings of its own changes nothing that is current."""
    corpus = read_shapes(n_scenes=4)
    store = random_store(tmp_path / "store", corpus, SPECS[:1])
    evaluate(store, corpus, SPECS[0], run="first", resampling=Resampling())
    of = METRICS["R@5"]
    monkeypatch.setitem(METRICS, "R@5", replace(of, values=lambda *given: of.values(*given) / 2, version="later"))
    evaluate(store, corpus, SPECS[0], run="second", resampling=Resampling(level=0.9))
    with asking(store, NoServices()) as client:
        assert "equal to the last digit" in client.get("/runs").text
        assert csv_of(client, "/runs") == []


def test_what_changed_between_two_runs_is_read_once_from_one_version_of_the_store(
    runs: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = runs.get("/runs").text
    monkeypatch.delattr("capim.reports.app.figures.state_after")
    assert runs.get("/runs").text == page


def test_a_run_that_begins_while_the_page_is_made_is_no_error(
    runs_store: EmbeddingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddingStore, "runs", lambda _: [])  # as they were before the runs of the other table
    with asking(runs_store, NoServices()) as client:
        assert client.get("/runs").status_code == 200
