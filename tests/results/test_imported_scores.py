"""Matrices of scores, TREC runs and exported outcomes: ranked like an encoder's scores, to the last tie and bit."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from capim.store.errors import RequestError
from capim.store.files import write_row_file
from capim.store.schema import OfStates
from capim.store.types import Corpus
from capim.tasks.corpora.readers.shapes import read_shapes_labels
from capim.tasks.metrics import METRICS, metrics_of
from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import protocols_of
from capim.tasks.results.comparison import compared_figures, compared_metrics, encoder_key, figure_rows
from capim.tasks.results.imported import sources
from capim.tasks.results.imported.runs import outcomes_of_run, read_run
from capim.tasks.results.imported.tables import FoundRows, named_rows, outcomes_of_rows
from capim.tasks.statistics.draws import Resampling
from tests.ranking.conftest import corpus_in, unit
from tests.results.thirty import N_IMAGES, assert_equal, thirty_images, tied_scores, unit_vectors

CORPUS = thirty_images()
CAPTIONS: list[Any] = CORPUS.captions["id"].to_pylist()
IMAGES: list[Any] = CORPUS.images["id"].to_pylist()
DESCRIBING = CAPTIONS[: 2 * N_IMAGES]  # the others are hard negatives
SCORES = tied_scores()


def of_matrix(scores: np.ndarray, *protocols: str, rows: Any = None, columns: Any = None) -> FoundRows:
    return sources.outcomes_of_matrix(sources.ScoreMatrix(scores, rows, columns), CORPUS, protocols=protocols)


def lists(scores: np.ndarray, queries: list[str], items: list[str], depth: int) -> dict[str, dict[str, float]]:
    """A run: the best items of every query."""
    best = [np.argsort(-row, kind="stable")[:depth] for row in scores]
    return {q: {items[at]: float(row[at]) for at in of} for q, row, of in zip(queries, scores, best, strict=True)}


def brute_force_ranks(scores: np.ndarray, relevant: list[list[int]]) -> list[tuple[int, int]]:
    """The best and the worst rank of the first relevant item, counted item by item."""
    found = []
    for row, own in zip(scores, relevant, strict=True):
        best, others = max(row[own]), np.delete(row, own)
        found.append((1 + int((others > best).sum()), 1 + int((others >= best).sum())))
    return found


def test_a_matrix_is_ranked_under_every_protocol_ties_included() -> None:
    found: dict[str, Any] = {o.protocol.id: o for o in of_matrix(SCORES).outcomes}
    assert set(found) == {protocol.id for protocol in protocols_of(CORPUS)}
    described, t2i = SCORES[: 2 * N_IMAGES], found["t2i/all"]
    for outcomes, table, relevant in (
        (t2i, described, [[i // 2] for i in range(2 * N_IMAGES)]),
        (found["i2t/any"], described.T, [[2 * i, 2 * i + 1] for i in range(N_IMAGES)]),
    ):
        by_hand = brute_force_ranks(table, relevant)
        assert list(zip(outcomes.rank_best.tolist(), outcomes.rank_worst.tolist(), strict=True)) == by_hand
    assert (t2i.rank_worst > t2i.rank_best).any()
    won = [SCORES[2 * i, i] > SCORES[2 * N_IMAGES + i, i] for i in range(10)]
    assert METRICS["pair_accuracy"].value(found["pairs/micro"]) == np.mean(won)
    quadruple = SCORES[np.ix_([0, 20], [0, 10])]
    np.testing.assert_array_equal(found["winoground/even"].scores[0], quadruple.ravel())


def test_the_products_of_embeddings_give_the_encoder_s_own_outcomes() -> None:
    images, captions = unit_vectors()
    own = evaluate(CORPUS, protocols_of(CORPUS), images=images, captions=captions)
    for outcomes in of_matrix(np.stack([images @ caption for caption in captions])).outcomes:
        theirs = own[outcomes.protocol.id]
        np.testing.assert_array_equal(outcomes.rank_best, theirs.rank_best)
        np.testing.assert_allclose(outcomes.best_score, theirs.best_score, atol=1e-6)


def test_a_matrix_of_a_corpus_in_two_languages_gives_the_encoder_s_own_outcomes() -> None:
    """The protocols of the second language read the scores of the first."""
    corpus = corpus_in([("en", "human"), ("de", "google")], range(10))
    rng = np.random.default_rng(0)
    images, captions = (unit(rng.standard_normal((len(of), 8))) for of in (corpus.images, corpus.captions))
    own = evaluate(corpus, protocols_of(corpus), images=images, captions=captions)
    found = sources.outcomes_of_matrix(sources.ScoreMatrix(captions @ images.T, None, None), corpus).outcomes
    assert [outcomes.protocol.id for outcomes in found] == [*own]
    for outcomes in found:
        np.testing.assert_array_equal(outcomes.rank_best, own[outcomes.protocol.id].rank_best)


def test_protocols_that_a_matrix_of_captions_and_images_cannot_have_are_refused_by_name() -> None:
    """Classes of several prompts read the scores of single ones; of images that search images there are none."""
    corpus = read_shapes_labels(n_scenes=20)
    with pytest.raises(RequestError, match="only encoders with one vector per item have it") as caught:
        sources.outcomes_of_matrix(
            sources.ScoreMatrix(np.ones((len(corpus.captions), len(corpus.images))), None, None), corpus
        )
    assert len(caught.value.faults) == len(protocols_of(corpus)) == 3


def test_a_matrix_with_ids_may_be_in_any_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(len(SCORES)), rng.permutation(N_IMAGES)
    captions, images, scores = np.array(CAPTIONS)[rows], np.array(IMAGES)[columns], SCORES[rows][:, columns]
    path, zipped, other = (tmp_path / name for name in ("matrix.npy", "matrix.npz", "other.npz"))
    np.save(path, scores)
    (tmp_path / "matrix.rows.txt").write_text("\n".join(captions) + "\n")
    (tmp_path / "matrix.columns.txt").write_text("\n".join(images) + "\n")
    np.savez(zipped, scores=scores, queries=captions, items=images)
    np.savez(other, scores=scores, caption_ids=captions, image_ids=images)
    assert isinstance(sources.read_matrix(path).scores, np.memmap)
    for file in (path, zipped, other):
        found = sources.outcomes_of_matrix(sources.read_matrix(file), CORPUS)
        for ours, theirs in zip(found.outcomes, of_matrix(SCORES).outcomes, strict=True):
            assert_equal(ours, theirs)
        assert found.how == ["captions: 70 of 70 rows matched by `ids`", "images: 30 of 30 rows matched by `ids`"]
    labelled = pd.DataFrame(scores, index=captions, columns=images)
    for name, table in (("as.csv", labelled), ("as.tsv", labelled.T), ("as.parquet", labelled.T.reset_index())):
        write = table.to_parquet if name == "as.parquet" else partial(table.to_csv, sep="," if "csv" in name else "\t")
        write(tmp_path / name)
        found = sources.outcomes_of_matrix(sources.read_matrix(tmp_path / name), CORPUS)
        for ours, theirs in zip(found.outcomes, of_matrix(SCORES).outcomes, strict=True):
            assert_equal(ours, theirs)
        assert ("taken as images by captions, transposed" in found.how) == (table is not labelled)
    pd.DataFrame(SCORES).to_csv(tmp_path / "plain.csv", header=False, index=False)
    plain = sources.read_matrix(tmp_path / "plain.csv")
    assert plain.rows is None and np.array_equal(plain.scores.astype(np.float32), SCORES)
    np.savez(other, scores=SCORES, caption_names=captions)
    message = "array caption_names is unknown; expected scores, and ids of captions in 'queries'"
    with pytest.raises(RequestError, match=message):
        sources.read_matrix(other)


def test_scores_that_float32_rounds_are_told() -> None:
    assert of_matrix(SCORES.astype(np.float64)).left_out == []
    assert of_matrix(SCORES + 1e-12).left_out == []  # float32 already
    [line] = of_matrix(SCORES.astype(np.float64) + 1e-12).left_out
    assert line.endswith("scores were rounded from float64 to float32")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_a_score_that_is_no_number_is_refused_by_its_ids(value: float) -> None:
    broken = SCORES.astype(np.float64)
    broken[3, 4] = value
    with pytest.raises(RequestError, match=r"the score of caption 'c1-1' with image 'i4' is (nan|inf|-inf|1e\+39)"):
        of_matrix(broken)


def test_a_matrix_of_another_corpus_is_refused_with_all_its_faults() -> None:
    with pytest.raises(RequestError) as caught:
        of_matrix(SCORES[:-1, :-1])
    assert caught.value.faults == tuple(
        f"{n - 1} rows without ids for {n} {kind}s: give their ids in a column or array `{kind}_id`, or one row for "
        "each in the order of the corpus"
        for kind, n in (("caption", 70), ("image", 30))
    )
    with pytest.raises(RequestError) as caught:
        of_matrix(SCORES, rows=["zz", *CAPTIONS[1:]], columns=["i1", *IMAGES[1:]])
    assert caught.value.faults == (
        (
            "`ids`: 1 of 70 ids are not among the 70 captions, first 'zz' in row 1; ids look like 'c0-0'. Leave the "
            "column out if it does not hold ids; --skip-bad-rows leaves these rows out"
        ),
        "1 images have more than one row, first 'i1' in rows 1 and 2",
    )


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("m.npy", np.zeros(3), "expected numbers of shape"),
        ("m.npy", np.array([["a"]]), "expected numbers of shape"),
        ("m.npy", None, "cannot be read as .npy"),
        ("m.txt", None, r"suffix '.txt' is unknown; .*known: .npy, .npz, .safetensors, .pt, .pth, .csv, .tsv"),
        (
            "m.csv",
            b"caption,image\na,b\n",
            "expected ids of images in the first row, .*; got the columns caption, image",
        ),
        ("m.csv", b"", "expected ids of images in the first row"),
        ("m.csv", b"id,i0,i1\nc0,0.5,x\n", "row 1: expected 2 numbers, with ids of images .*; got 0.5, x"),
    ],
)
def test_a_file_without_a_matrix_is_named(
    tmp_path: Path, name: str, array: np.ndarray | bytes | None, message: str
) -> None:
    path = tmp_path / name
    if array is None or isinstance(array, bytes):
        path.write_bytes(b"nothing" if array is None else array)
    else:
        np.save(path, array)
    with pytest.raises(RequestError, match=message):
        sources.read_matrix(path)


# --- runs ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("protocol", ["t2i/all", "i2t/any", "i2t/any@image-as-query"])
def test_a_run_of_whole_lists_is_the_matrix(tmp_path: Path, protocol: str) -> None:
    table = SCORES[: 2 * N_IMAGES]
    sides = (table, DESCRIBING, IMAGES) if protocol == "t2i/all" else (table.T, IMAGES, DESCRIBING)
    path = tmp_path / "whole.trec"
    with path.open("w") as file:
        for query, items in lists(*sides, depth=len(sides[2])).items():
            for rank, (item, score) in enumerate(items.items(), start=1):
                file.write(f"{query} Q0 {item} {rank} {score!r} theirs\n")
    named = [protocol] if "@" in protocol else []
    [ours], [whole] = (
        outcomes_of_run(read_run(path), CORPUS, protocols=named).outcomes,
        of_matrix(SCORES, protocol).outcomes,
    )
    assert ours.protocol.id == protocol
    assert_equal(ours, whole)


def test_queries_and_items_of_a_run_may_have_other_names_than_their_ids() -> None:
    captions = [f"{text} {id_}" for text, id_ in zip(CORPUS.captions["text"].to_pylist(), CAPTIONS, strict=True)]
    corpus = replace(CORPUS, captions=CORPUS.captions.set_column(
        CORPUS.captions.schema.get_field_index("text"), "text", pa.array(captions)
    ))  # fmt: skip
    table, files = SCORES[: 2 * N_IMAGES], [f"/data/{key}" for key in CORPUS.images["key"].to_pylist()]
    by_ids = outcomes_of_run(lists(table, DESCRIBING, IMAGES, 7), CORPUS)
    named = outcomes_of_run(lists(table, captions[: 2 * N_IMAGES], files, 7), corpus)
    assert_equal(named.outcomes[0], by_ids.outcomes[0])
    assert by_ids.how == ["t2i/all: 60 queries matched by their ids"]
    assert named.how == ["t2i/all: 60 queries matched by their texts, their items by file names"]
    with pytest.raises(RequestError, match="items are not in the gallery, first '/data/"):
        outcomes_of_run(lists(table, DESCRIBING, [*files[:-1], "/data/other"], N_IMAGES), CORPUS)


def test_ranks_within_the_lists_are_exact_and_those_beyond_are_a_range() -> None:
    """i2t, ten of sixty captions listed: two are relevant, one, both or none of which is listed."""
    depth = 10
    run = lists(SCORES[: 2 * N_IMAGES].T, IMAGES, DESCRIBING, depth)
    [ours] = outcomes_of_run(run, CORPUS).outcomes
    assert ours.n_ranked is not None
    listed = [sum(f"c{i}-{k}" in run[f"i{i}"] for k in range(2)) for i in range(N_IMAGES)]
    assert ours.n_ranked.tolist() == listed
    assert {0, 1, 2} == set(listed)
    for query, n_listed in enumerate(listed):
        unlisted = slice(2 * query + n_listed, 2 * query + 2)
        assert ours.relevant_rank_best[unlisted].tolist() == list(range(depth + 1, depth + 1 + 2 - n_listed))
        assert ours.relevant_rank_worst[unlisted].tolist() == list(range(60 - (1 - n_listed), 61))
    best, worst = ours.bounds()
    open_ranks = ours.relevant_rank_best > depth
    for bound, of_open in ((best, ours.relevant_rank_best), (worst, ours.relevant_rank_worst)):
        for ranks, before in (
            (bound.relevant_rank_best, ours.relevant_rank_best),
            (bound.relevant_rank_worst, ours.relevant_rank_worst),
        ):
            np.testing.assert_array_equal(ranks, np.where(open_ranks, of_open, before))
    known = {metric.name for metric in metrics_of(ours)}
    assert known >= {"R@1", "R@5", "R@10", "recall_all@10"}
    assert not {"MRR", "mean_rank", "median_rank"} & known
    assert np.isnan(ours.best_score[ours.n_ranked == 0]).all()
    [whole] = of_matrix(SCORES, "i2t/any").outcomes
    for name in ("R@1", "R@5"):  # a tie at the end of a list is cut, which these do not see
        np.testing.assert_array_equal(METRICS[name].per_query(ours), METRICS[name].per_query(whole))


def test_a_tie_in_a_list_does_not_hide_a_metric_that_is_known() -> None:
    """i2t lists of two of sixty captions: an own and a foreign caption tie; the second own caption is not listed."""
    run = {f"i{i}": {f"c{i}-0": 1.0, f"c{(i + 1) % N_IMAGES}-0": 1.0} for i in range(N_IMAGES)}
    [ours] = outcomes_of_run(run, CORPUS).outcomes
    assert {METRICS["R@1"], METRICS["MRR"]} <= {*metrics_of(ours)}
    assert METRICS["R@1"].value(ours) == 0.5
    assert METRICS["recall_all@10"] not in metrics_of(ours)


def test_a_model_that_leaves_a_metric_open_does_not_keep_others_from_it() -> None:
    """Two models by scores, one by lists of three: all by R@1, the two by MRR."""
    noise = 0.2 * np.random.default_rng(1).standard_normal(SCORES.shape)
    whole = [of_matrix(table, "t2i/all").outcomes[0] for table in (SCORES, (SCORES + noise).astype(np.float32))]
    models = [*whole, *outcomes_of_run(lists(SCORES[: 2 * N_IMAGES], DESCRIBING, IMAGES, 3), CORPUS).outcomes]
    encoders = {encoder_key(n, n): o for n, o in zip("abc", models, strict=True)}
    figures = compared_figures(encoders, compared_metrics(encoders.values()), N_IMAGES)
    how = Resampling(replicates=200, permutations=99)
    rows = figure_rows(figures, corpus="thirty", corpus_fingerprint="f", run="r", resampling=how)
    differences = {(row.metric, row.encoder_a + row.encoder_b): row.difference for row in rows}
    assert [pair for metric, pair in differences if metric == "R@1"] == ["ab", "ac", "bc"]
    assert [pair for metric, pair in differences if metric == "MRR"] == ["ab"]
    assert differences["R@1", "ac"] == 0


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "no list in it"),
        ("c0-0 i0 1 0.5 x", r"line 1: expected `query Q0 item rank score tag`, got 'c0-0 i0 1 0.5 x'"),
        ("c0-0 Q0 i0 1 nan x", r"line 1: expected `query Q0 item rank score tag`"),
        ("c0-0 Q0 i0 1 0.5 x\nc0-0 Q0 i0 2 0.4 x", "line 2: item 'i0' comes twice in the list of 'c0-0'"),
        ("c0-0 Q0 i0 1 0.5 x", "t2i/all: 59 of 60 queries have no list, first 'c0-1'"),
        ("c0-0 Q0 zz 1 0.5 x", "t2i/all: 1 items are not in the gallery, first 'zz' in the list of 'c0-0'"),
        ("zz Q0 i0 1 0.5 x", "the queries are ids of neither captions nor images, first 'zz'"),
    ],
)
def test_a_run_that_cannot_be_meant_is_explained(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "run.trec"
    path.write_text(lines)
    with pytest.raises(RequestError, match=message):
        outcomes_of_run(read_run(path), CORPUS)


# --- exported outcomes ---------------------------------------------------------------------------------------------
STATES = OfStates(encoder="a", encoder_fingerprint="f", corpus=CORPUS.name, corpus_fingerprint=CORPUS.fingerprint)


def imported_again(path: Path, *tables: pa.Table, corpus: Corpus = CORPUS) -> list[Outcomes]:
    """What comes back of rows that are written to a file."""
    write_row_file(path, pa.concat_tables(tables))
    return sources.outcomes_of_source(sources.Source("outcomes", str(path), "b"), corpus)["b"].outcomes


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_exported_outcomes_come_back_to_the_last_bit(tmp_path: Path, suffix: str) -> None:
    """Also those of ranks alone: their best score is not a number, which JSON has no word for."""
    path = tmp_path / f"outcomes{suffix}"
    [of_ranks] = outcomes_of_rows(named_rows([{"query": i, "rank": 1 + k} for k, i in enumerate(IMAGES)]), CORPUS)[0]
    [found] = imported_again(path, of_ranks.to_arrow("e", STATES))
    assert_equal(found, Outcomes.from_arrow(of_ranks.to_arrow("e", STATES), found.protocol))
    if suffix == ".json":
        json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    originals = of_matrix(SCORES).outcomes
    tables = [outcomes.to_arrow("e", STATES) for outcomes in originals]
    for ours, original, table in zip(imported_again(path, *tables), originals, tables, strict=True):
        in_query_order = table.sort_by([("query_ord", "ascending"), ("query_id", "ascending")])
        assert_equal(ours, Outcomes.from_arrow(in_query_order, original.protocol))
        assert metrics_of(ours) == metrics_of(original)
    for others, message in (
        (
            [tables[0], originals[1].to_arrow("e", replace(STATES, encoder="c"))],
            r"one encoder on thirty .* got a on thirty .*, c on thirty",
        ),
        (
            [originals[0].to_arrow("e", replace(STATES, corpus_fingerprint="other"))],
            r"got . on thirty \(other\); export them",
        ),
        ([tables[0].slice(1)], r"t2i/all: the 59 exported queries are not the 60 of the corpus"),
    ):
        with pytest.raises(RequestError, match=message):
            imported_again(path, *others)
