"""What `capim store prune` keeps: the newest runs, what reports show, the baselines of watches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.rows import merge
from capim.store.schema import StoredImage, texts
from capim.store.upkeep.removal import Pruning, plan_pruning, prune
from tests.random_store import BEGUN, rows_of, write_row
from tests.store.toy import fill, make_corpus, make_spec


def evaluated(store: EmbeddingStore, day: int, *tables: str, **changes: Any) -> None:
    """Outcomes of the revision of a day, its result, or both."""
    row = {"encoder": "enc", "encoder_fingerprint": f"e{day}", "corpus": "toy", "corpus_fingerprint": "c0"}
    row |= {"protocol": "t2i/all", "evaluation": f"v{day}", "result": f"r{day}", "metric": "R@1", "query_id": "q"}
    for table in tables:
        write_row(store, table, day, **(row | changes))


def nights(store: EmbeddingStore, n: int) -> None:
    """Nights of which each evaluates another revision of the encoder."""
    for day in range(n):
        write_row(store, "runs", day)
        evaluated(store, day, "results")


def test_the_newest_runs_stay_and_a_second_time_nothing_goes(store: EmbeddingStore) -> None:
    nights(store, 12)
    plan = prune(store, keep=3)
    assert {table: gone.total() for table, (_, gone) in plan.rows.items()} == {"results": 9, "runs": 9}
    assert sorted(texts(store.rows("results")["result"])) == ["r10", "r11", "r9"]
    assert store.rows("runs").num_rows == 3
    assert prune(store, keep=3).rows == {}
    with pytest.raises(RequestError, match="keep at least the newest run"):
        plan_pruning(store, keep=0)


def test_what_a_report_shows_stays_however_old_its_run_is(store: EmbeddingStore) -> None:
    nights(store, 1)
    for day in range(1, 9):
        write_row(store, "runs", day)  # nights that changed nothing
    prune(store, keep=2)
    assert store.rows("results")["result"].to_pylist() == ["r0"]
    assert store.rows("runs")["run"].to_pylist() == ["run000", "run007", "run008"]  # the run that a kept row names


def test_the_baseline_of_a_watch_stays(store: EmbeddingStore) -> None:
    nights(store, 8)
    subject = {"encoder": "enc", "corpus": "toy", "protocol": "t2i/all"}
    write_row(store, "watched", 5, **subject, evaluation="v5", baseline="run001", baseline_evaluation="v1")
    prune(store, keep=1)
    assert sorted(texts(store.rows("results")["result"])) == ["r1", "r5", "r7"]
    assert {"run001", "run005", "run007"} == {*store.rows("runs")["run"].to_pylist()}
    assert store.rows("watched").num_rows == 1


def test_embeddings_of_earlier_revisions_go_and_those_without_results_stay(store: EmbeddingStore) -> None:
    corpus, specs = make_corpus(4), [make_spec(revision=f"r{number}") for number in range(3)]
    keys = [fill(store, corpus, spec) for spec in specs]
    for day, spec in enumerate(specs[:2]):
        write_row(store, "runs", day)
        state = {"encoder_fingerprint": spec.fingerprint, "corpus_fingerprint": corpus.fingerprint}
        evaluated(store, day, "results", **state)
    plan = prune(store, keep=1)
    assert plan.tables == (keys[0].table,)
    assert [sealed.key for sealed in store.sealed_sets()] == keys[1:]
    assert {row.fingerprint for row in store.encoders()} == {spec.fingerprint for spec in specs[1:]}
    assert store.corpus("toy", corpus.fingerprint).images.num_rows == 4


def test_thumbnails_of_images_that_no_corpus_has_any_more_go_and_so_do_hashes_of_files_that_are_gone(
    store: EmbeddingStore, tmp_path: Path
) -> None:
    """The files of a sampled corpus are not read again after each prune."""
    corpus = make_corpus(4)
    shas = [*texts(corpus.images["sha"]), "vanished"]
    store.write_corpus(corpus)
    images = [StoredImage(item=sha, sha=sha, width=8, height=6, thumbnail=b"picture") for sha in shas]
    store.write_images([*images, StoredImage(item="undecodable", sha="undecodable", reason="not an image")])
    there, gone, drawn = str(tmp_path / "there.png"), str(tmp_path / "gone.png"), "shapes:7"
    Path(there).touch()
    store.write_images(StoredImage(item=place, state="s", sha="outside the sample") for place in (there, gone, drawn))
    write_row(store, "runs", 0)
    assert prune(store, keep=1).rows == {"image_index": ("item", {"vanished": 1, gone: 1})}
    assert store.image_hashes().keys() == {there, drawn}
    assert sorted(store.thumbnails(shas)) == sorted(shas[:-1])
    assert store.indexed_images([*shas, "undecodable"]).keys() == {*shas[:-1], "undecodable"}


def registered(store: EmbeddingStore, *days: int, later: int = 0) -> None:
    """From that day on, or so many days later, the name of the encoder means the revision of that day."""
    written = (BEGUN + timedelta(days=day + later) for day in days)
    rows = ({"name": "enc", "fingerprint": f"e{day}", "written": at} for day, at in zip(days, written, strict=True))
    merge(store.connection, "encoders", rows_of("encoders", *rows), update=True)
    merge(store.connection, "corpora", rows_of("corpora", {"name": "toy", "fingerprint": "c0"}), update=True)


def outcomes(store: EmbeddingStore) -> list[str]:
    return sorted(store.counts("outcomes", "evaluation"))


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Specs are not compared with their fingerprints, which are short here."""
    monkeypatch.setattr("capim.store.embedding_store.is_spec_of", lambda _: True)


@pytest.mark.usefixtures("unchecked")
def test_outcomes_that_have_no_results_yet_stay_for_the_newest_revision(store: EmbeddingStore) -> None:
    """A run that began and is not over, or a step without a run, has written them; the next run goes on from them."""
    registered(store, 0, 1, 2)
    evaluated(store, 0, "outcomes")
    evaluated(store, 1, "outcomes", "results")
    evaluated(store, 2, "outcomes")
    write_row(store, "runs", 9)
    assert prune(store, keep=1).rows["outcomes"] == ("evaluation", {"v0": 1})
    assert outcomes(store) == ["v1", "v2"]


@pytest.mark.usefixtures("unchecked")
def test_what_a_run_began_with_stays_until_it_ends(store: EmbeddingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its revision was superseded by another run meanwhile; what was superseded before goes."""
    registered(store, 0, 1, 2)
    for day in range(3):
        evaluated(store, day, "outcomes", "results")
    begun = BEGUN + timedelta(days=1, hours=1)
    write_row(store, "runs", 1, state="running", started=begun)
    write_row(store, "runs", 9)
    with monkeypatch.context() as then:
        then.setattr("capim.store.upkeep.removal.now", lambda: begun + timedelta(days=2))
        plan = prune(store, keep=1)
    assert plan.running == ("run001",)
    assert outcomes(store) == ["v1", "v2"]
    assert sorted(texts(store.rows("results")["result"])) == ["r1", "r2"]
    assert {*texts(store.rows("runs")["run"])} >= {"run001", "run009"}
    prune(store, keep=1)  # now: a run of that age has died somewhere
    assert outcomes(store) == ["v2"]


@pytest.mark.usefixtures("unchecked")
def test_what_a_run_wrote_after_a_plan_stays(store: EmbeddingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It evaluates a revision again that the first plan names, and something that this plan does not know."""
    registered(store, 0, 1)
    for day in range(2):
        evaluated(store, day, "outcomes", "results")
    write_row(store, "runs", 1)
    plans = []

    def plan(store: EmbeddingStore, *, keep: int) -> Pruning:
        plans.append(plan_pruning(store, keep=keep))
        if len(plans) == 1:
            registered(store, 0, later=2)
            write_row(store, "runs", 2, state="running", started=datetime.now(UTC))
            evaluated(store, 2, "results", encoder_fingerprint="e0", evaluation="v0", result="r0-again")
            evaluated(store, 3, "outcomes", encoder_fingerprint="e0")
        return plans[-1]

    monkeypatch.setattr("capim.store.upkeep.removal.plan_pruning", plan)
    prune(store, keep=1)
    assert plans[0].rows["outcomes"] == ("evaluation", {"v0": 1})
    assert outcomes(store) == ["v0", "v1", "v3"]
    assert sorted(texts(store.rows("results")["result"])) == ["r0", "r0-again", "r1"]
