"""Images that search images: landmarks, images with a text, rated pairs.

The figures are compared with the published definitions, written out plainly here, or with scikit-learn and scipy.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from numpy.typing import NDArray
from PIL import Image

from capim.store.errors import RequestError
from capim.store.schema import texts
from capim.store.types import Corpus
from capim.tasks.corpora.readers.image_queries import read_image_queries
from capim.tasks.metrics import METRICS, metrics_of
from capim.tasks.metrics.retrieval import rank_correlation
from capim.tasks.metrics.table import headline_of
from capim.tasks.ranking.evaluate import evaluate, score_blocks
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import protocols_of, select_protocols
from capim.tasks.ranking.vectors import matrix_of
from tests.ranking.conftest import small_corpus, tasks_of, unit
from tests.ranking.test_any_to_any import composed

DIM = 12
N_SEARCHED, N_ASKED = 60, 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images ``d0`` … and ``q0`` …, each of one colour."""
    found = tmp_path_factory.mktemp("images")
    for at, name in enumerate([*(f"d{k}" for k in range(N_SEARCHED)), *(f"q{k}" for k in range(N_ASKED))]):
        Image.new("RGB", (12, 10), (at, 3 * at, 255 - at)).save(found / f"{name}.jpg")
    return found


def written(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_bytes(pickle.dumps(content) if name.endswith(".pkl") else json.dumps(content).encode())
    return path


def vectors_of(corpus: Corpus, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "images": unit(rng.standard_normal((len(corpus.images), DIM))),
        "captions": unit(rng.standard_normal((len(corpus.captions), DIM))),
    }


def checked(corpus: Corpus, sides: dict[str, Any], *ids: str) -> dict[str, Outcomes]:
    """Outcomes, whose ranks are as many items above the best relevant one, but for rounding."""
    found = evaluate(corpus, select_protocols(corpus, ids, vectors="single"), **sides)
    for outcomes in found.values():
        [task] = tasks_of(corpus, outcomes.protocol.id)
        queries, items = (matrix_of(space, **sides)[:] for space in (task.query_space, task.item_space))
        scores = queries[task.queries].astype(np.float64) @ items.T
        for row, of_query in enumerate(scores):
            relevant = task.relevant[task.offsets[row] : task.offsets[row + 1]]
            left_out = [] if task.excluded is None else task.excluded[task.excluded[:, 0] == row, 1]
            others = of_query[np.setdiff1d(task.galleries[task.gallery_of[row]], [*relevant, *left_out])]
            best = of_query[relevant].max()
            least, most = 1 + (others > best + 2e-6).sum(), 1 + (others >= best - 2e-6).sum()
            assert least <= outcomes.rank_best[row] <= outcomes.rank_worst[row] <= most
    return found


# --- landmarks


def landmarks(*, arrays: bool) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    judged = []
    for query in range(N_ASKED):
        easy, hard, junk = np.split(rng.permutation(N_SEARCHED)[:18], [5 * (query != 2), 12])
        lists = {"easy": easy, "hard": hard, "junk": junk, "bbx": np.array([1.2, 2.0, 9.0, 8.7])}
        judged.append(lists if arrays else {name: values.tolist() for name, values in lists.items()})
    return {"imlist": [f"d{k}" for k in range(N_SEARCHED)], "qimlist": [f"q{k}" for k in range(N_ASKED)], "gnd": judged}


def mean_area(scores: NDArray[np.float32], truth: dict[str, Any], right: tuple[str, ...]) -> float:
    """Mean over queries of the area under precision and recall, by trapezoids, without what is not judged so."""
    areas = []
    for row, judged in zip(scores, truth["gnd"], strict=True):
        relevant = {int(each) for name in right for each in judged[name]}
        ignored = {int(each) for name in ("easy", "hard", "junk") for each in judged[name]} - relevant
        order = [item for item in np.argsort(-row).tolist() if item not in ignored]
        hits = np.flatnonzero([item in relevant for item in order])
        if len(hits):
            found = np.arange(len(hits))
            before = np.where(hits == 0, 1.0, found / np.maximum(hits, 1))
            areas.append(((before + (found + 1) / (hits + 1)) / 2).mean())
    return float(np.mean(areas))


@pytest.mark.parametrize("name", ["gnd_roxford5k.pkl", "gnd.json"])
def test_landmarks_have_the_average_precision_of_revisited_oxford(folder: Path, name: str) -> None:
    truth = landmarks(arrays=name.endswith(".pkl"))
    corpus = read_image_queries(written(folder, name, truth))
    assert corpus.images["key"].to_pylist()[0] == "1,2,8,7@q0.jpg"  # its box
    sides = vectors_of(corpus)
    found = checked(corpus, sides)
    assert list(found) == ["i2i/easy", "i2i/medium", "i2i/hard"]
    ids = texts(corpus.images["id"])
    query, item = ([ids.index(name) for name in truth[names]] for names in ("qimlist", "imlist"))
    scores = sides["images"][query] @ sides["images"][item].T
    for level, right in (("easy", ("easy",)), ("medium", ("easy", "hard")), ("hard", ("hard",))):
        outcomes = found[f"i2i/{level}"]
        assert len(outcomes) == N_ASKED - (level == "easy")  # query 2 has no easy image
        assert METRICS["AP by trapezoids"].value(outcomes) == pytest.approx(mean_area(scores, truth, right), abs=1e-9)
        assert [metric.name for metric in metrics_of(outcomes)] == ["R@1", "R@5", "R@10", "AP by trapezoids"]
    [headline] = headline_of(protocols_of(corpus))
    assert headline == ("i2i/medium", "AP by trapezoids")


def test_a_file_that_is_cut_or_means_an_image_that_is_not_listed_is_refused(folder: Path) -> None:
    truth = landmarks(arrays=False)
    path = written(folder, "cut.pkl", truth)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RequestError, match=r"cut\.pkl cannot be read as"):
        read_image_queries(path)
    truth["gnd"][0]["easy"] = [N_SEARCHED, -1]  # the last image was taken for -1
    beyond = f"places that imlist, of {N_SEARCHED} images, does not have: {N_SEARCHED} of 'q0', -1 of 'q0'"
    with pytest.raises(RequestError, match=beyond):
        read_image_queries(written(folder, "other.json", truth))


def test_a_query_with_a_box_that_is_searched_whole_too_is_refused(folder: Path) -> None:
    truth = landmarks(arrays=False)
    truth["imlist"][3] = "q0"
    with pytest.raises(RequestError, match="queries with a box are also in imlist, whole: q0"):
        read_image_queries(written(folder, "both.json", truth))


class Harmful:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("false",)


def test_a_file_that_would_run_code_is_refused(folder: Path) -> None:
    with pytest.raises(RequestError, match=r"would run \w+\.system; save it as JSON"):
        read_image_queries(written(folder, "harmful.pkl", Harmful()))


# --- images with a text that changes them


def mixed(sides: dict[str, Any], reference: int, text: int, weight: float = 0.5) -> NDArray[np.float64]:
    """Scores of all images."""
    vector = weight * sides["captions"][text].astype(float) + (1 - weight) * sides["images"][reference]
    scores: NDArray[np.float64] = sides["images"] @ (vector / np.linalg.norm(vector))
    return scores


def test_cirr_leaves_the_reference_out_and_has_a_hard_subset(folder: Path) -> None:
    rng = np.random.default_rng(5)
    rows: list[dict[str, Any]] = []
    for at in range(30):
        members = [f"d{k}" for k in rng.choice(N_SEARCHED, 6, replace=False)]
        rows.append(
            {"pairid": at, "reference": members[0], "target_hard": members[1], "caption": f"darker {at}",
             "img_set": {"members": members}}
        )  # fmt: skip
    split = written(folder, "split.json", {f"d{k}": f"./d{k}.jpg" for k in range(N_SEARCHED)})
    corpus = read_image_queries(written(folder, "cirr.json", rows), gallery=split)
    assert len(corpus.images) == N_SEARCHED
    sides, ids = vectors_of(corpus), texts(corpus.images["id"])
    found = checked(corpus, sides)
    assert list(found) == ["t2i/composed", "t2i/composed-subset"]
    for at, row in enumerate(rows):
        reference, target = ids.index(row["reference"]), ids.index(row["target_hard"])
        scores = mixed(sides, reference, at)
        scores[reference] = -np.inf
        subset = scores[[ids.index(each) for each in row["img_set"]["members"]]]
        assert found["t2i/composed"].rank_best[at] == 1 + (scores > scores[target]).sum()
        assert found["t2i/composed-subset"].rank_best[at] == 1 + (subset > scores[target]).sum()
    assert found["t2i/composed-subset"].n_gallery.tolist() == [5] * 30
    [task] = tasks_of(corpus, "t2i/composed-subset")
    blocks = [*score_blocks(**sides, task=task)]
    for (row,), scores, items in ((block.rows, block.scores[0], block.items) for block in blocks):
        of_query = mixed(sides, ids.index(rows[row]["reference"]), row)
        assert sorted(ids[item] for item in items) == sorted(rows[row]["img_set"]["members"][1:])
        np.testing.assert_allclose(scores, of_query[items], atol=1e-6)
    assert [metric.name for metric in metrics_of(found["t2i/composed-subset"])] == ["R@1", "R@2", "R@3"]


def test_vectors_that_a_model_fused_are_ranked_as_they_are(tmp_path: Path) -> None:
    corpus, reference_of, judged = composed(tmp_path, "cirr")
    sides, ids = vectors_of(corpus, seed=4), texts(corpus.images["id"])
    assert "t2i/composed-alone" not in [protocol.id for protocol in protocols_of(corpus)], "on request"
    alone = checked(corpus, sides, "t2i/composed-alone")["t2i/composed-alone"]
    for at, query in enumerate(alone.query_ids):
        scores, [right] = mixed(sides, 0, at, weight=1), judged[query]
        target, scores[ids.index(reference_of[query])] = scores[ids.index(right)], -np.inf
        assert alone.rank_best[at] == 1 + (scores > target).sum()


def test_circo_has_its_mean_average_precision(tmp_path: Path) -> None:
    corpus, reference_of, judged = composed(tmp_path, "circo", most=8)
    sides, ids = vectors_of(corpus, seed=1), texts(corpus.images["id"])
    outcomes = checked(corpus, sides)["t2i/composed"]
    for k in (5, 10, 25, 50):
        expected = []
        for at, query in enumerate(outcomes.query_ids):
            order = np.argsort(-mixed(sides, ids.index(reference_of[query]), at))
            hits = np.isin(np.array(ids)[order], [*judged[query]])
            precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
            expected.append((precision * hits)[:k].sum() / min(k, hits.sum()))
        assert METRICS[f"AP@{k}"].value(outcomes) == pytest.approx(np.mean(expected), abs=1e-9)


def test_fashion_iq_joins_both_captions(folder: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"candidate": f"d{k}", "target": f"d{(k + 7) % 40}", "captions": [f"is {k}.", "and longer"]} for k in range(40)
    ]
    corpus = read_image_queries(written(folder, "fiq.json", rows))
    assert corpus.captions["text"].to_pylist()[3] == "is 3 and and longer"
    assert list(checked(corpus, vectors_of(corpus, seed=2))) == ["t2i/composed"]


# --- rated pairs


def test_rated_pairs_have_the_rank_correlation_of_scipy(folder: Path) -> None:
    rng = np.random.default_rng(9)
    rows: list[dict[str, Any]] = [
        {"image1": f"d{k}", "image2": f"d{(k * 7 + 3) % N_SEARCHED}", "score": round(float(s), 1)}
        for k, s in enumerate(rng.uniform(0, 5, N_SEARCHED - 1))
    ]
    corpus = read_image_queries(written(folder, "rated.json", rows))
    sides, ids = vectors_of(corpus, seed=3), texts(corpus.images["id"])
    outcomes = checked(corpus, sides)["i2i/similarity"]
    place = {id_: at for at, id_ in enumerate(outcomes.query_ids)}
    assert len(place) == len(rows)
    first, second = (sides["images"][[ids.index(row[name]) for row in rows]] for name in ("image1", "image2"))
    expected = scipy.stats.spearmanr([row["score"] for row in rows], (first * second).sum(axis=1))[0]
    assert METRICS["Spearman"].value(outcomes) == pytest.approx(expected, abs=1e-6)
    assert [metric.name for metric in metrics_of(outcomes)] == ["Spearman"]


def test_the_spread_of_a_rank_correlation_is_that_of_leaving_pairs_out() -> None:
    rng, n = np.random.default_rng(2), 400
    scores = np.round(rng.standard_normal(n))
    ratings = np.round(scores + rng.standard_normal(n))
    values = rank_correlation(scores, ratings)
    assert values.mean() == pytest.approx(scipy.stats.spearmanr(scores, ratings)[0], abs=1e-12)
    without = np.array([scipy.stats.spearmanr(np.delete(scores, k), np.delete(ratings, k))[0] for k in range(n)])
    jackknife = np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    assert values.std() / np.sqrt(n) == pytest.approx(jackknife, rel=0.05)
    assert np.isnan(rank_correlation(scores, np.ones(n))).all()


def test_a_file_of_another_form_is_refused_with_what_is_expected(folder: Path) -> None:
    with pytest.raises(RequestError, match=r"reference, caption and target.* it has a, b"):
        read_image_queries(written(folder, "other.json", [{"a": 1, "b": 2}]))


# --- captions of one image


def test_captions_of_one_image_find_each_other() -> None:
    corpus = small_corpus([3, 1, 2, 5])
    sides = vectors_of(corpus, seed=5)
    outcomes = checked(corpus, sides, "t2t/own")["t2t/own"]
    image = np.repeat(range(4), [3, 1, 2, 5])
    scores = sides["captions"] @ sides["captions"].T
    np.fill_diagonal(scores, -np.inf)
    best = np.where(image[:, None] == image, scores, -np.inf).max(axis=1)
    ranks = 1 + (scores > best[:, None]).sum(axis=1)
    assert outcomes.rank_best.tolist() == np.delete(ranks, 3).tolist()  # image 1 has one caption
