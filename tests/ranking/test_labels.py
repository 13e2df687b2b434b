"""Zero-shot classification and images that share labels: equal to CLIP_benchmark, scikit-learn and brute force."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from capim.reports.rows.gallery import relevant_documents
from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.analyses.table import ANALYSES
from capim.tasks.corpora.readers.labels import PROMPTS, read_labels
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.evaluate import Scoring, evaluate, score_blocks
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task, protocols_of, select_protocols
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.results.summary import Evaluated, first_hits, result_rows
from capim.tasks.statistics.draws import Resampling
from tests.ranking.conftest import unit
from tests.repeated import SOURCE
from tests.results.thirty import analysed

N_CLASSES, DIM = 6, 16
KINDS = ("one label", "several labels")


@pytest.fixture(scope="module", params=KINDS)
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """60 images of 6 classes of unequal size, and three prompts; with one label each, or one to three."""
    folder, rng = tmp_path_factory.mktemp("labelled"), np.random.default_rng(1)
    rows = ["image,label"]
    for at in range(60):
        Image.new("RGB", (8, 8), (at, 2 * at, 255 - at)).save(folder / f"{at}.png")
        n = 1 if request.param == KINDS[0] else int(rng.integers(1, 4))
        weights = np.arange(1, N_CLASSES + 1) / np.arange(1, N_CLASSES + 1).sum()
        rows += [f"{at}.png,kind_{label}" for label in rng.choice(N_CLASSES, n, replace=False, p=weights)]
    (folder / "labels.csv").write_text("\n".join(rows))
    return read_labels(folder / "labels.csv", prompts=["a photo of a {}.", "{}", "art of {}"])


def drawn(rng: np.random.Generator, n: int) -> NDArray[np.float32]:
    return unit(rng.normal(size=(n, DIM)))


@pytest.fixture(scope="module")
def vectors(corpus: Corpus) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    found = {"images": drawn(rng, len(corpus.images)), "captions": drawn(rng, len(corpus.captions))}
    found["images"][7] = found["images"][3]  # two images that tie
    return found


@pytest.fixture(scope="module")
def outcomes(corpus: Corpus, vectors: dict[str, Any]) -> dict[str, Outcomes]:
    return evaluate(corpus, protocols_of(corpus), **vectors)


def targets(corpus: Corpus) -> NDArray[np.bool_]:
    """Which image has which class, shape ``(n_images, n_classes)``."""
    found = np.zeros((len(corpus.images), N_CLASSES), dtype=bool)
    images = corpus.images["id"].to_pylist()
    for row in corpus.relevance.to_pylist():
        found[images.index(row["query_id"]), int(row["item_id"].partition("#")[0][-1])] = True
    return found


def scores_of_clip_benchmark(corpus: Corpus, vectors: dict[str, Any]) -> NDArray[np.float32]:
    """Scores of images with classes, the classes as in its ``zero_shot_classifier``."""
    captions = torch.from_numpy(vectors["captions"]).reshape(N_CLASSES, -1, DIM)
    means = torch.nn.functional.normalize(captions, dim=-1).mean(dim=1)
    means /= means.norm(dim=1, keepdim=True)
    found: NDArray[np.float32] = (torch.from_numpy(vectors["images"]) @ means.T).numpy()
    return found


def test_a_corpus_has_the_protocols_of_its_labels(corpus: Corpus) -> None:
    several = targets(corpus).sum(axis=1).max() > 1
    ids = [protocol.id for protocol in protocols_of(corpus)]
    assert ids == (["i2t/class", "t2i/class"] if several else ["i2t/class", "i2t/class-balanced"]) + ["i2i/label"]
    assert select_protocols(corpus, vectors="multi") == ()  # three prompts, and images among images


def test_accuracy_and_mean_recall_per_class_are_those_of_clip_benchmark(
    corpus: Corpus, vectors: dict[str, Any], outcomes: dict[str, Outcomes]
) -> None:
    from sklearn.metrics import balanced_accuracy_score

    of, scores = targets(corpus), scores_of_clip_benchmark(corpus, vectors)
    best = scores.argsort(axis=1)[:, ::-1]
    for k in (1, 5):
        hits = of[np.arange(len(of))[:, None], best[:, :k]].any(axis=1)
        assert METRICS[f"R@{k}"].value(outcomes["i2t/class"]) == pytest.approx(hits.mean(), abs=1e-12)
    if "i2t/class-balanced" in outcomes:
        recall = balanced_accuracy_score(of.argmax(axis=1), best[:, 0])
        assert METRICS["R@1"].value(outcomes["i2t/class-balanced"]) == pytest.approx(recall, abs=1e-12)


def test_chance_is_what_exchanged_labels_give_and_unknown_without_stored_lists(
    corpus: Corpus, outcomes: dict[str, Outcomes]
) -> None:
    of, rng = targets(corpus), np.random.default_rng(4)
    for id_ in ("i2t/class", "i2t/class-balanced", "i2i/label"):
        if id_ not in outcomes:
            continue
        found = outcomes[id_]
        evaluated = Evaluated.of(found, corpus, SOURCE)
        rows = {row.metric: row for row in result_rows([evaluated], Resampling(replicates=20))}
        asked, first = found.query_ords, found.top_ords[:, 0]  # type: ignore[index]
        hits = []
        for to in [np.arange(len(asked)), *(rng.permutation(len(asked)) for _ in range(4000))]:
            held = of.copy()
            held[asked] = of[asked[to]]
            right = (held[asked] & held[first]).any(1) if id_ == "i2i/label" else held[asked, first // 3]
            hits.append(np.average(right, weights=found.weights[to]))
        beyond = np.array(hits) - hits[0]  # of the stored first hits: two images tie
        tails = (beyond >= -1e-9).mean(), (beyond <= 1e-9).mean()
        assert rows["R@1"].chance == pytest.approx(np.mean(hits), abs=0.005)
        assert rows["R@1"].p_chance == pytest.approx(min(1.0, 2 * min(tails)), abs=0.05)
        assert {row.p_chance for name, row in rows.items() if name != "R@1"} <= {None}
        bare = replace(evaluated, first_hits=first_hits(corpus, replace(found, top_ords=None, top_scores=None)))
        assert {row.p_chance for row in result_rows([bare], Resampling(replicates=20))} == {None}


def test_average_precision_of_classes_is_that_of_clip_benchmark_and_scikit_learn_where_nothing_ties(
    corpus: Corpus, vectors: dict[str, Any], outcomes: dict[str, Outcomes]
) -> None:
    from clip_benchmark.metrics.zeroshot_classification import average_precision_per_class
    from sklearn.metrics import average_precision_score

    if "t2i/class" not in outcomes:
        assert targets(corpus).sum(axis=1).max() == 1
        return
    vectors = vectors | {"images": drawn(np.random.default_rng(5), len(corpus.images))}  # no two alike
    untied = evaluate(corpus, protocols_of(corpus), **vectors)["t2i/class"]
    of, scores = targets(corpus), scores_of_clip_benchmark(corpus, vectors)
    expected = [average_precision_score(of[:, each], scores[:, each]) for each in range(N_CLASSES)]
    assert METRICS["AP"].per_query(untied) == pytest.approx(expected, abs=1e-6)
    of_peer = average_precision_per_class(torch.from_numpy(scores), torch.from_numpy(of).int())
    assert METRICS["AP"].per_query(untied) == pytest.approx(of_peer.numpy(), abs=1e-6)


def test_the_gallery_shows_the_images_of_a_class(corpus: Corpus) -> None:
    """A report of a corpus with several labels per image ended with an index that was out of bounds."""
    found, of = relevant_documents(corpus, "class"), targets(corpus)
    assert {query // 3: set(images) for query, images in found.items()} == {
        each: set(np.flatnonzero(of[:, each])) for each in range(N_CLASSES)
    }


def test_images_that_share_a_label_are_found_among_all_others(
    corpus: Corpus, vectors: dict[str, Any], outcomes: dict[str, Outcomes]
) -> None:
    of, found = targets(corpus), outcomes["i2i/label"]
    shared = of.astype(int) @ of.astype(int).T > 0
    scores = vectors["images"] @ vectors["images"].T
    values = METRICS["R@1"].per_query(found)
    for row, query in enumerate(found.query_ords):
        others = np.arange(len(of)) != query
        best = scores[query, others].max()
        first = np.isclose(scores[query, others], best, rtol=0, atol=0)
        assert values[row] == pytest.approx(shared[query, others][first].mean(), abs=1e-12)
        assert found.top_ords is not None
        assert query not in found.top_ords[row]
        assert set(found.top_ords[row]) == set(np.flatnonzero(others)) | {-1}
    assert (found.n_gallery == len(of) - 1).all()


def test_parts_and_blocks_agree_with_the_whole(
    corpus: Corpus, vectors: dict[str, Any], outcomes: dict[str, Outcomes]
) -> None:
    protocols = protocols_of(corpus)
    scoring = Scoring.of(corpus, protocols, **vectors)
    merged = scoring.merged([scoring.part(part) for part in (range(25), range(25, 60))])
    for protocol in protocols:
        whole, task = outcomes[protocol.id], build_task(corpus, protocol)
        assert isinstance(task, RetrievalTask)
        assert merged[protocol.id].rank_best.tolist() == whole.rank_best.tolist()
        for block in score_blocks(**vectors, task=task):
            above = (block.scores > np.where(block.relevant, block.scores, -np.inf).max(axis=1)[:, None]).sum(axis=1)
            assert (above + 1).tolist() == whole.rank_best[block.rows].tolist()
            assert block.queries.tolist() == whole.query_ords[block.rows].tolist()


@pytest.mark.parametrize(("name", "n"), [("photo", 1), ("imagenet-7", 7), ("imagenet-80", 80)])
def test_published_prompts_are_complete(name: str, n: int) -> None:
    prompts = PROMPTS[name]["prompts"]
    assert len(prompts) == len(set(prompts)) == n
    assert all(prompt.count("{}") == 1 for prompt in prompts)


def test_classes_have_the_share_of_hits_of_their_images(
    corpus: Corpus, vectors: dict[str, Any], outcomes: dict[str, Outcomes]
) -> None:
    of, data = targets(corpus), analysed(corpus, {"one": outcomes["i2t/class"]})
    if of.sum(axis=1).max() > 1:
        return
    target = of.argmax(axis=1)
    classes = {each.feature: each for each in ANALYSES["classes"].run(data) if each.analysis == "class"}
    best = scores_of_clip_benchmark(corpus, vectors).argmax(axis=1)
    for name, each in classes.items():
        own = target == int(name[-1])
        assert each.interval.value == pytest.approx((best[own] == target[own]).mean(), abs=1e-12)


def test_boxes_of_an_image_that_the_file_does_not_list_are_refused(tmp_path: Path) -> None:
    boxes = {"categories": [{"id": 1, "name": "cat"}], "images": [{"id": 1, "file_name": "a.png"}]}
    file = tmp_path / "instances.json"
    file.write_text(json.dumps({**boxes, "annotations": [{"image_id": 2, "category_id": 1}]}))
    with pytest.raises(RequestError, match="name 1 images that its list `images` does not have, first '2'; add them"):
        read_labels(file)
    twice = [*boxes["images"], {"id": 1, "file_name": "b.png"}]
    file.write_text(json.dumps({**boxes, "images": twice, "annotations": [{"image_id": 1, "category_id": 1}]}))
    with pytest.raises(RequestError, match=r"image id '1' is that of 'a.png' and of 'b.png'; give each image its own"):
        read_labels(file)
