"""`capim export`: every format is read back by the program that it is for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capim.store import EmbeddingStore
from capim.store.schema import Result
from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.results.exports import task_of
from tests.command import Printed, command
from tests.results.thirty import thirty_images, tied_scores, unit_vectors

pytestmark = pytest.mark.slow  # whole suites of commands

QUICK = "--replicates 100"


def _store(folder: Path, corpus: Corpus, **scores: np.ndarray) -> EmbeddingStore:
    """A workspace with a corpus, and the outcomes of encoders that are given by their scores."""
    EmbeddingStore.open(folder / "store", create=True).write_corpus(corpus)
    for encoder, matrix in scores.items():
        np.save(folder / "scores.npy", matrix.astype(np.float32))
        command(f"import --scores {folder}/scores.npy --encoder {encoder} --corpus {corpus.name} {QUICK}", folder)
    return EmbeddingStore.open(folder / "store")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty images; one encoder whose scores differ and one whose scores tie."""
    folder = tmp_path_factory.mktemp("exports")
    vectors = unit_vectors()
    distinct = vectors[1] @ vectors[0].T + np.arange(70)[:, None] * 1e-5 + np.arange(30) * 1e-6
    _store(folder, thirty_images(), distinct=distinct, ties=tied_scores())
    return folder


def _export(workspace: Path, words: str, to: Path, *, code: int = 0) -> Printed:
    return command(f"export {words} --to {to}", workspace, code=code)


def test_pytrec_eval_gives_our_figures_of_exported_runs_and_bounds_them_where_scores_tie(
    workspace: Path, tmp_path: Path
) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="the peers extra is not installed")
    printed = _export(workspace, "trec", tmp_path)
    assert "queries of ties, " in printed.err and "trec_eval orders ties by id" in printed.err
    assert "without lists of items and their scores: pairs/add on thirty, " in printed.err
    assert str(tmp_path / "thirty" / "t2i-all" / "ties.run") in printed.out
    store = EmbeddingStore.open(workspace / "store")
    ours: dict[Any, Any] = {(r.encoder, r.protocol, r.metric): r for r in store.all(Result)}
    theirs = {"R@1": "success_1", "R@5": "success_5", "R@10": "success_10", "nDCG@10": "ndcg_cut_10"}
    compared = 0
    for protocol in ("t2i/all", "i2t/any"):
        place = tmp_path / "thirty" / protocol.replace("/", "-")
        qrels = pytrec_eval.parse_qrel((place / "qrels.txt").open())
        evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"success", "ndcg_cut"})
        for encoder in ("distinct", "ties"):
            scores = evaluator.evaluate(pytrec_eval.parse_run((place / f"{encoder}.run").open()))
            for metric, measure in theirs.items():
                row = ours.get((encoder, protocol, metric))
                if row is None:
                    assert (protocol, metric) == ("t2i/all", "nDCG@10")  # one relevant item: not stored
                    continue
                figure = np.mean([of_query[measure] for of_query in scores.values()])
                compared += 1
                if encoder == "distinct":
                    assert row.value == pytest.approx(figure, abs=1e-12), (protocol, metric)
                else:
                    assert row.value_ties_lost - 1e-9 <= figure <= row.value_ties_won + 1e-9
    assert compared == 14


def test_ids_with_blanks_are_escaped_and_come_back_by_import(tmp_path: Path) -> None:
    names = ["a b", "a%20b", "c\u2003d"]
    corpus = build_corpus(
        "odd", [ImageRow(name) for name in names], [CaptionRow(f"of {name}", name, "x") for name in names], source=None
    )
    store = _store(tmp_path, corpus, ours=np.array([[0.9, 0.1, 0.2], [0.5, 0.4, 0.3], [0.2, 0.7, 0.6]]))
    _export(tmp_path, "trec --protocol t2i/all", tmp_path / "trec")
    run = tmp_path / "trec" / "odd" / "t2i-all" / "ours.run"
    lines = [line.split() for line in run.read_text("utf-8").splitlines()]
    assert {len(line) for line in lines} == {6}
    assert lines[0] == ["of%20a%20b", "Q0", "a%20b", "1", "0.9", "ours"]
    assert {line[2] for line in lines} == {"a%20b", "a%2520b", "c%E2%80%83d"}
    command(f"import --run {run} --encoder again --corpus odd {QUICK}", tmp_path)
    rows = store.all(Result, protocol="t2i/all")
    values = {name: {r.metric: r.value for r in rows if r.encoder == name} for name in ("ours", "again")}
    assert values["ours"] == values["again"]


def test_an_orientation_of_late_interaction_has_the_queries_of_its_protocol() -> None:
    plain, oriented = (task_of(thirty_images(), f"i2t/any{ending}") for ending in ("", "@image-as-query"))
    assert plain is not None and oriented is not None
    np.testing.assert_array_equal(plain.relevant, oriented.relevant)


def test_two_revisions_of_an_encoder_are_not_written_to_one_run(tmp_path: Path) -> None:
    _store(tmp_path, thirty_images(), other=tied_scores())
    for revision in ("v1", "v2"):
        words = f"import --scores {tmp_path}/scores.npy --encoder ours --revision {revision} --corpus thirty {QUICK}"
        command(words, tmp_path)
    said = _export(tmp_path, "trec --encoder ours@v1,ours@v2", tmp_path / "both", code=2).err
    assert "one revision of an encoder, at a time" in said
    assert not (tmp_path / "both").exists()
    _export(tmp_path, "trec --encoder ours@v1", tmp_path / "one")


def test_without_a_list_there_is_no_trec_export(workspace: Path, tmp_path: Path) -> None:
    said = _export(workspace, "trec --protocol winoground", tmp_path / "out", code=2).err
    assert "no lists of items for these names" in said
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def with_vectors(workspace: Path) -> Path:
    """The same workspace with vectors of all items by one encoder more."""
    images, captions = unit_vectors()
    np.save(workspace / "images.npy", images)
    np.save(workspace / "captions.npy", captions)
    files = f"--images {workspace}/images.npy --captions {workspace}/captions.npy"
    command(f"import --encoder vectors --corpus thirty {files}", workspace)
    return workspace


def test_the_atlas_has_points_exact_neighbours_and_what_each_encoder_found(with_vectors: Path, tmp_path: Path) -> None:
    atlas = "embedding-atlas --corpus thirty --modality"
    _export(with_vectors, f"{atlas} caption --encoder vectors,ties", tmp_path / "atlas.parquet")
    table = pq.read_table(tmp_path / "atlas.parquet")
    assert table.column_names == [
        "id", "text", "language", "x", "y", "neighbors", "t2i/all ties rank", "t2i/all ties hit",
    ]  # fmt: skip
    vectors = unit_vectors()[1].astype(np.float64)
    centred = vectors - vectors.mean(axis=0)
    for axis, column in zip(np.linalg.svd(centred, full_matrices=False)[2], ("x", "y"), strict=False):
        np.testing.assert_allclose(np.abs(centred @ axis), np.abs(table[column].to_numpy()), atol=1e-5)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    neighbours: list[Any] = table["neighbors"].to_pylist()
    for row, (own, neighbour) in enumerate(zip(cosines, neighbours, strict=True)):
        assert row not in neighbour["ids"]
        assert len(neighbour["ids"]) == 15
        np.testing.assert_allclose(neighbour["distances"], np.sort(1 - own)[:15], atol=1e-6)
        np.testing.assert_allclose(1 - own[neighbour["ids"]], neighbour["distances"], atol=1e-6)
    store = EmbeddingStore.open(with_vectors / "store")
    outcomes = store.rows("outcomes", encoder="ties", corpus="thirty", protocol="t2i/all")
    assert table["t2i/all ties rank"].to_pylist() == [*outcomes["rank_best"].to_pylist(), *[None] * 10]  # negatives
    hits = [rank == 1 for rank in outcomes["rank_worst"].to_pylist()]
    assert table["t2i/all ties hit"].to_pylist() == [*hits, *[None] * 10]

    _export(with_vectors, f"{atlas} image --encoder vectors", tmp_path / "images.parquet")
    table = pq.read_table(tmp_path / "images.parquet")
    assert table["text"][0].as_py() == "x\nx"
    assert table["image"].type == pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    for words, suffix, fault in (
        (f"{atlas} image --encoder vectors", "csv", "end it with .parquet"),
        ("embedding-atlas --encoder vectors", "parquet", "export embedding-atlas needs --corpus, --modality"),
        (f"{atlas} image --encoder ties", "parquet", "ties"),
    ):
        assert fault in _export(with_vectors, words, tmp_path / f"a.{suffix}", code=2).err


def test_a_figure_that_mteb_wants_is_computed_from_stored_outcomes(workspace: Path, tmp_path: Path) -> None:
    _export(workspace, "results --format mteb --encoder distinct", tmp_path)
    [file] = tmp_path.glob("results/*/*/capim-thirty-t2i-all.json")
    [scores] = json.loads(file.read_text("utf-8"))["scores"]["test"]
    outcomes = EmbeddingStore.open(workspace / "store").rows("outcomes", encoder="distinct", protocol="t2i/all")
    gains = [1 / np.log2(rank + 1) if rank <= 10 else 0.0 for rank in outcomes["rank_best"].to_numpy().tolist()]
    assert scores["ndcg_at_10"] == pytest.approx(np.mean(gains))
