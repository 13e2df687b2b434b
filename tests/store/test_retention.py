"""What `capim store prune` keeps: the newest runs, what reports show, the baselines of watches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from store import EmbeddingStore
from store.errors import RequestError
from store.keys import table_of
from store.maintenance.retention import Pruning, plan_pruning, prune
from store.schema import RESULTS, RUNS, WATCHED, texts
from store.types import IndexedImage

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def write(store: EmbeddingStore, table: str, schema: pa.Schema, day: int, **columns: Any) -> None:
    """A row that the run of a day wrote."""
    row: dict[str, Any] = {field.name: "" for field in schema if field.type == pa.string()}
    row |= {field.name: 1 for field in schema if field.type in (pa.int32(), pa.int64(), pa.float64())}
    row |= {field.name: False for field in schema if field.type == pa.bool_()}
    row |= {"run": f"run{day:03d}", "created": BEGUN + timedelta(days=day), "started": BEGUN, **columns}
    rows = pa.Table.from_pylist([{name: row[name] for name in schema.names if name in row}], schema=schema)
    store.write_rows(table, rows)


def nights(store: EmbeddingStore, n: int) -> None:
    """Nights of which each evaluates another revision of the encoder."""
    for day in range(n):
        write(store, "runs", RUNS, day)
        subject = {"encoder": "enc", "encoder_fingerprint": f"e{day}", "corpus": "toy", "corpus_fingerprint": "c0"}
        names = {"protocol": "t2i/all", "metric": "R@1", "evaluation": f"v{day}", "result": f"r{day}"}
        write(store, "results", RESULTS, day, **subject, **names)


def pruned(store: EmbeddingStore, keep: int) -> Pruning:
    plan = plan_pruning(store, keep=keep)
    prune(store, plan)
    return plan


def test_the_newest_runs_stay_and_a_second_time_nothing_goes(store: EmbeddingStore) -> None:
    nights(store, 12)
    plan = pruned(store, 3)
    assert {table: n for table, (_, _, n) in plan.rows.items()} == {"results": 9, "runs": 9}
    assert sorted(texts(store.rows("results")["result"])) == ["r10", "r11", "r9"]
    assert store.rows("runs").num_rows == 3
    assert pruned(store, 3).rows == {}
    with pytest.raises(RequestError, match="keep at least the newest run"):
        plan_pruning(store, keep=0)


def test_what_a_report_shows_stays_however_old_its_run_is(store: EmbeddingStore) -> None:
    nights(store, 1)
    for day in range(1, 9):
        write(store, "runs", RUNS, day)  # nights that changed nothing
    pruned(store, 2)
    assert store.rows("results")["result"].to_pylist() == ["r0"]
    assert store.rows("runs")["run"].to_pylist() == ["run000", "run007", "run008"]  # the run that a kept row names


def test_the_baseline_of_a_watch_stays(store: EmbeddingStore) -> None:
    nights(store, 8)
    subject = {"encoder": "enc", "corpus": "toy", "protocol": "t2i/all"}
    write(store, "watched", WATCHED, 5, **subject, evaluation="v5", baseline="run001", baseline_evaluation="v1")
    pruned(store, 1)
    assert sorted(texts(store.rows("results")["result"])) == ["r1", "r5", "r7"]
    assert {"run001", "run005", "run007"} == {*store.rows("runs")["run"].to_pylist()}
    assert store.rows("watched").num_rows == 1


def test_embeddings_of_earlier_revisions_go_and_those_without_results_stay(
    store: EmbeddingStore, make_corpus: Any, make_spec: Any, fill: Any
) -> None:
    corpus, specs = make_corpus(4), [make_spec(revision=f"r{number}") for number in range(3)]
    keys = [fill(store, corpus, spec) for spec in specs]
    for day, spec in enumerate(specs[:2]):
        subject = {"encoder": spec.name, "encoder_fingerprint": spec.fingerprint, "protocol": "t2i/all"}
        place = {"corpus": corpus.name, "corpus_fingerprint": corpus.fingerprint}
        write(store, "runs", RUNS, day)
        write(store, "results", RESULTS, day, **subject, **place, metric="R@1", evaluation=f"v{day}", result=f"r{day}")
    plan = pruned(store, 1)
    assert plan.tables == (table_of(keys[0]),)
    assert [sealed.key for sealed in store.sealed_sets()] == keys[1:]
    assert {*store.encoders()["fingerprint"].to_pylist()} == {spec.fingerprint for spec in specs[1:]}
    assert store.corpus("toy", corpus.fingerprint).images.num_rows == 4


def test_thumbnails_of_images_that_no_corpus_has_any_more_go(store: EmbeddingStore, make_corpus: Any) -> None:
    corpus = make_corpus(4)
    shas = [*texts(corpus.images["sha"]), "vanished"]
    store.write_corpus(corpus)
    images = [IndexedImage(sha, 8, 6, b"picture", None) for sha in shas]
    store.write_image_index([*images, IndexedImage("undecodable", 0, 0, None, "not an image")])
    write(store, "runs", RUNS, 0)
    assert pruned(store, 1).rows == {"image_index": ("sha", ("vanished",), 1)}
    assert sorted(store.thumbnails(shas)) == sorted(shas[:-1])
    assert store.indexed_images([*shas, "undecodable"]).keys() == {*shas[:-1], "undecodable"}
