"""Matrices of scores and TREC runs: ranked like an encoder's scores, to the last tie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.metrics import METRICS, metrics_of
from capim.tasks.ranking.cosine import score_dense
from capim.tasks.ranking.protocols import build_tasks, protocols_of
from capim.tasks.results.comparison import compared_metrics, comparison_rows, encoder_key
from capim.tasks.results.imported.sources import ScoreMatrix, outcomes_of_matrix, outcomes_of_run, read_matrix, read_run
from capim.tasks.statistics.draws import Resampling
from tests.results.thirty import N_IMAGES, assert_equal, thirty_images, tied_scores, unit_vectors


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return thirty_images()


@pytest.fixture(scope="module")
def vectors() -> tuple[np.ndarray, np.ndarray]:
    return unit_vectors()


@pytest.fixture(scope="module")
def scores() -> np.ndarray:
    return tied_scores()


def brute_force_ranks(scores: np.ndarray, relevant: list[list[int]]) -> list[tuple[int, int]]:
    """The best and the worst rank of the first relevant item, counted item by item."""
    found = []
    for row, own in zip(scores, relevant, strict=True):
        best = max(row[own])
        others = np.delete(row, own)
        found.append((1 + int((others > best).sum()), 1 + int((others >= best).sum())))
    return found


def test_a_matrix_is_ranked_under_every_protocol_ties_included(corpus: Corpus, scores: np.ndarray) -> None:
    found = {o.protocol.id: o for o in outcomes_of_matrix(ScoreMatrix(scores, None, None), corpus).outcomes}
    assert set(found) == {protocol.id for protocol in protocols_of(corpus)}
    t2i, i2t = found["t2i/all"], found["i2t/any"]
    described = scores[: 2 * N_IMAGES]
    by_hand = brute_force_ranks(described, [[i // 2] for i in range(2 * N_IMAGES)])
    assert list(zip(t2i.rank_best.tolist(), t2i.rank_worst.tolist(), strict=True)) == by_hand
    by_hand = brute_force_ranks(described.T, [[2 * i, 2 * i + 1] for i in range(N_IMAGES)])
    assert list(zip(i2t.rank_best.tolist(), i2t.rank_worst.tolist(), strict=True)) == by_hand
    assert (t2i.rank_worst > t2i.rank_best).any()
    won = [scores[2 * i, i] > scores[2 * N_IMAGES + i, i] for i in range(10)]
    assert METRICS["pair_accuracy"].value(found["pairs/micro"]) == np.mean(won)
    quadruple = scores[np.ix_([0, 20], [0, 10])]
    np.testing.assert_array_equal(found["winoground/even"].scores[0], quadruple.ravel())  # type: ignore[index]


def test_the_products_of_embeddings_give_the_encoder_s_own_outcomes(
    corpus: Corpus, vectors: tuple[np.ndarray, np.ndarray]
) -> None:
    images, captions = vectors
    own = score_dense(images, captions, build_tasks(corpus, protocols_of(corpus)))
    products = np.stack([images @ caption for caption in captions])
    for outcomes in outcomes_of_matrix(ScoreMatrix(products, None, None), corpus).outcomes:
        theirs = own[outcomes.protocol.id]
        np.testing.assert_array_equal(outcomes.rank_best, theirs.rank_best)
        np.testing.assert_allclose(outcomes.best_score, theirs.best_score, atol=1e-6)


def test_a_matrix_with_ids_may_be_in_any_order(corpus: Corpus, scores: np.ndarray, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(len(scores)), rng.permutation(N_IMAGES)
    captions, images = (np.array(table["id"].to_pylist()) for table in (corpus.captions, corpus.images))
    path = tmp_path / "matrix.npy"
    np.save(path, scores[rows][:, columns])
    (tmp_path / "matrix.rows.txt").write_text("\n".join(captions[rows]) + "\n")
    (tmp_path / "matrix.columns.txt").write_text("\n".join(images[columns]) + "\n")
    zipped = tmp_path / "matrix.npz"
    np.savez(zipped, scores=scores[rows][:, columns], queries=captions[rows], items=images[columns])
    other = tmp_path / "other.npz"
    np.savez(other, scores=scores[rows][:, columns], caption_ids=captions[rows], image_ids=images[columns])
    in_order = outcomes_of_matrix(ScoreMatrix(scores, None, None), corpus).outcomes
    assert isinstance(read_matrix(path).scores, np.memmap)
    for file in (path, zipped, other):
        found = outcomes_of_matrix(read_matrix(file), corpus)
        for ours, theirs in zip(found.outcomes, in_order, strict=True):
            assert_equal(ours, theirs)
        assert found.how == ["70 rows matched by their ids", "30 columns matched by their ids"]
    np.savez(other, scores=scores, caption_names=captions)
    with pytest.raises(
        RequestError, match="array caption_names is unknown; expected scores, and ids of captions in 'qu"
    ):
        read_matrix(other)


def test_scores_that_float32_rounds_are_told(corpus: Corpus, scores: np.ndarray) -> None:
    exact = outcomes_of_matrix(ScoreMatrix(scores.astype(np.float64), None, None), corpus)
    assert exact.left_out == []
    rounded = outcomes_of_matrix(ScoreMatrix(scores + 1e-12, None, None), corpus)
    assert rounded.left_out == []  # float32 already
    [line] = outcomes_of_matrix(ScoreMatrix(scores.astype(np.float64) + 1e-12, None, None), corpus).left_out
    assert line.endswith("scores were rounded from float64 to float32")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_no_number_is_refused_by_its_ids(corpus: Corpus, scores: np.ndarray, value: float) -> None:
    broken = scores.copy()
    broken[3, 4] = value
    with pytest.raises(RequestError, match=r"the score of caption 'c1-1' with image 'i4' is (nan|inf|-inf)"):
        outcomes_of_matrix(ScoreMatrix(broken, None, None), corpus)


def test_a_matrix_of_another_corpus_is_refused_with_all_its_faults(corpus: Corpus, scores: np.ndarray) -> None:
    with pytest.raises(RequestError) as caught:
        outcomes_of_matrix(ScoreMatrix(scores[:-1, :-1], None, None), corpus)
    assert caught.value.faults == (
        "expected 70 rows, one for each of the captions of the corpus, got 69 without ids",
        "expected 30 columns, one for each of the images of the corpus, got 29 without ids",
    )
    rows = ["zz", *corpus.captions["id"].to_pylist()[1:]]
    columns = ["i1", *corpus.images["id"].to_pylist()[1:]]
    with pytest.raises(RequestError) as caught:
        outcomes_of_matrix(ScoreMatrix(scores, rows, columns), corpus)  # type: ignore[arg-type]
    assert caught.value.faults == (
        "1 of 70 captions have none of the rows, first 'c0-0'",
        "1 ids of rows are not captions of the corpus, first 'zz'",
        "1 ids of columns come more than once, first 'i1'",
        "1 of 30 images have none of the columns, first 'i0'",
    )


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("m.npy", np.zeros(3), "expected numbers of shape"),
        ("m.npy", np.array([["a"]]), "expected numbers of shape"),
        ("m.npy", None, "cannot be read as .npy"),
        ("m.csv", None, "a matrix of scores is .npy or .npz"),
    ],
)
def test_a_file_without_a_matrix_is_named(tmp_path: Path, name: str, array: np.ndarray | None, message: str) -> None:
    path = tmp_path / name
    if array is None:
        path.write_bytes(b"nothing")
    else:
        np.save(path, array)
    with pytest.raises(RequestError, match=message):
        read_matrix(path)


# --- runs ---------------------------------------------------------------------------------------------------------
def run_lines(scores: np.ndarray, queries: list[str], items: list[str], depth: int) -> str:
    lines = []
    for query, row in zip(queries, scores, strict=True):
        for rank, at in enumerate(np.argsort(-row, kind="stable")[:depth], start=1):
            lines.append(f"{query} Q0 {items[at]} {rank} {float(row[at])!r} theirs\n")
    return "".join(lines)


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_a_run_of_whole_lists_is_the_matrix(corpus: Corpus, scores: np.ndarray, tmp_path: Path, direction: str) -> None:
    captions = corpus.captions["id"].to_pylist()[: 2 * N_IMAGES]
    images = corpus.images["id"].to_pylist()
    table, queries, items = scores[: 2 * N_IMAGES], captions, images
    if direction == "i2t":
        table, queries, items = table.T, images, captions
    path = tmp_path / "whole.trec"
    path.write_text(run_lines(table, queries, items, len(items)))  # type: ignore[arg-type]
    [ours] = outcomes_of_run(read_run(path), corpus)
    whole = {o.protocol.id: o for o in outcomes_of_matrix(ScoreMatrix(scores, None, None), corpus).outcomes}
    assert ours.protocol.id == ("t2i/all" if direction == "t2i" else "i2t/any")
    assert_equal(ours, whole[ours.protocol.id])


def test_ranks_within_the_lists_are_exact_and_those_beyond_are_a_range(corpus: Corpus, scores: np.ndarray) -> None:
    """i2t, ten of sixty captions listed: two are relevant, one, both or none of which is listed."""
    depth, table = 10, scores[: 2 * N_IMAGES].T
    captions, images = corpus.captions["id"].to_pylist()[: 2 * N_IMAGES], corpus.images["id"].to_pylist()
    run = {
        str(image): {str(captions[at]): float(row[at]) for at in np.argsort(-row, kind="stable")[:depth]}
        for image, row in zip(images, table, strict=True)
    }
    [ours] = outcomes_of_run(run, corpus)
    assert ours.n_ranked is not None
    listed = [sum(f"c{i}-{k}" in run[f"i{i}"] for k in range(2)) for i in range(N_IMAGES)]
    assert ours.n_ranked.tolist() == listed
    assert {0, 1, 2} == set(listed)
    for query, n_listed in enumerate(listed):
        unlisted = ours.relevant_rank_best[2 * query + n_listed : 2 * query + 2]
        assert unlisted.tolist() == list(range(depth + 1, depth + 1 + 2 - n_listed))
        last = ours.relevant_rank_worst[2 * query + n_listed : 2 * query + 2]
        assert last.tolist() == list(range(60 - (1 - n_listed), 61))
    known = [metric.name for metric in metrics_of(ours)]
    assert set(known) >= {"R@1", "R@5", "R@10", "recall_all@10"}
    assert not {"MRR", "mean_rank", "median_rank"} & set(known)
    assert np.isnan(ours.best_score[ours.n_ranked == 0]).all()
    [whole] = outcomes_of_matrix(ScoreMatrix(scores, None, None), corpus, protocols=["i2t/any"]).outcomes
    for name in ("R@1", "R@5"):  # a tie at the end of a list is cut, which these do not see
        np.testing.assert_array_equal(METRICS[name].per_query(ours), METRICS[name].per_query(whole))


def test_a_tie_in_a_list_does_not_hide_a_metric_that_is_known(corpus: Corpus) -> None:
    """i2t lists of two of sixty captions: an own and a foreign caption tie; the second own caption is not listed."""
    run = {f"i{i}": {f"c{i}-0": 1.0, f"c{(i + 1) % N_IMAGES}-0": 1.0} for i in range(N_IMAGES)}
    [ours] = outcomes_of_run(run, corpus)
    assert METRICS["R@1"] in metrics_of(ours)
    assert METRICS["MRR"] in metrics_of(ours)
    assert METRICS["R@1"].value(ours) == 0.5
    assert METRICS["recall_all@10"] not in metrics_of(ours)


def test_a_model_that_leaves_a_metric_open_does_not_keep_others_from_it(corpus: Corpus, scores: np.ndarray) -> None:
    """Two models by scores, one by lists of three: all by R@1, the two by MRR."""
    noise = 0.2 * np.random.default_rng(1).standard_normal(scores.shape)
    whole = [
        outcomes_of_matrix(ScoreMatrix(table, None, None), corpus, protocols=["t2i/all"]).outcomes[0]
        for table in (scores, (scores + noise).astype(np.float32))
    ]
    captions, images = corpus.captions["id"].to_pylist()[: 2 * N_IMAGES], corpus.images["id"].to_pylist()
    lists = {
        str(caption): {str(images[at]): float(row[at]) for at in np.argsort(-row, kind="stable")[:3]}
        for caption, row in zip(captions, scores, strict=False)
    }
    models = [*whole, *outcomes_of_run(lists, corpus)]
    encoders = {encoder_key(n, n): o for n, o in zip("abc", models, strict=True)}
    rows = comparison_rows(
        encoders, compared_metrics(encoders.values()), corpus="thirty", corpus_fingerprint="f", run="r",
        drawn=N_IMAGES, resampling=Resampling(replicates=200, permutations=99),
    ).to_pylist()  # fmt: skip
    pairs = [(row["metric"], row["encoder_a"] + row["encoder_b"]) for row in rows]
    assert [pair for metric, pair in pairs if metric == "R@1"] == ["ab", "ac", "bc"]
    assert [pair for metric, pair in pairs if metric == "MRR"] == ["ab"]
    of_lists = next(row for row in rows if (row["metric"], row["encoder_a"] + row["encoder_b"]) == ("R@1", "ac"))
    assert of_lists["difference"] == 0


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
def test_a_run_that_cannot_be_meant_is_explained(corpus: Corpus, tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "run.trec"
    path.write_text(lines)
    with pytest.raises(RequestError, match=message):
        outcomes_of_run(read_run(path), corpus)
