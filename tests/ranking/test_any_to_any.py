"""Images that search images, texts that search images and queries of both: equal to mteb's any-to-any evaluator.

On the same vectors, per query, to 1e-6, where nothing ties: of equal scores mteb takes the item whose id sorts last,
capim the mean of all orders. mteb's CIRR leaves nothing out of its gallery; CIRR's own evaluation, and capim, leave out
the image that the text changes, so that capim's figure is never lower, and equal on a gallery without that image. Some
of mteb's tasks leave out the first result and not the image itself (``skip_first_result``): the same, unless another
image has an equal vector.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from capim.store.schema import texts
from capim.store.types import Corpus
from capim.tasks.corpora.readers.image_queries import read_image_queries
from capim.tasks.corpora.readers.shapes import read_shapes_labels
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import select_protocols
from tests.ranking.conftest import small_corpus, unit

pytestmark = pytest.mark.peers

SAME = {f"R@{k}": f"success_{k}" for k in (1, 5, 10)} | {"nDCG@10": "ndcg_cut_10", "recall_all@10": "recall_10"}


def vectors_of(corpus: Corpus, side: str, seed: int) -> dict[str, Any]:
    """Vectors by id, of images or captions."""
    ids = texts(getattr(corpus, side)["id"])
    return dict(zip(ids, unit(np.random.default_rng(seed).standard_normal((len(ids), 12))), strict=True))


def outcomes_of(corpus: Corpus, id_: str, images: dict[str, Any], captions: dict[str, Any]) -> Outcomes:
    sides: dict[str, Any] = {"images": np.stack(list(images.values())), "captions": np.stack(list(captions.values()))}
    return evaluate(corpus, select_protocols(corpus, [id_]), **sides)[id_]


def assert_equal(outcomes: Outcomes, theirs: dict[str, dict[str, float]], same: dict[str, str]) -> None:
    assert {*outcomes.query_ids} == {*theirs}
    for ours, name in same.items():
        expected = [theirs[query][name] for query in outcomes.query_ids]
        assert METRICS[ours].per_query(outcomes) == pytest.approx(expected, abs=1e-6), ours


def test_images_that_search_all_other_images() -> None:
    from tests.benchmarks.by_mteb import scores_by_mteb

    corpus = read_shapes_labels(n_scenes=60)
    images, captions = vectors_of(corpus, "images", 1), vectors_of(corpus, "captions", 2)
    label = {row["query_id"]: row["item_id"] for row in corpus.relevance.to_pylist()}
    judged = {one: {other: 1 for other in label if label[other] == label[one] and other != one} for one in label}
    judged = {query: found for query, found in judged.items() if found}
    queries = {query: images[query] for query in judged}
    outcomes = outcomes_of(corpus, "i2i/label", images, captions)
    assert_equal(outcomes, scores_by_mteb(judged, queries, images, among_others=True), SAME)


@pytest.mark.parametrize("id_", ["t2i/all", "i2t/any"])
def test_texts_that_search_images_and_images_that_search_texts(id_: str) -> None:
    from tests.benchmarks.by_mteb import scores_by_mteb

    corpus = small_corpus([5] * 20 + [3] * 10)
    images, captions = vectors_of(corpus, "images", 1), vectors_of(corpus, "captions", 2)
    judged: dict[str, dict[str, int]] = {}
    for row in corpus.captions.to_pylist():
        query, item = (row["id"], row["image_id"]) if id_ == "t2i/all" else (row["image_id"], row["id"])
        judged.setdefault(query, {})[item] = 1
    sides = (captions, images) if id_ == "t2i/all" else (images, captions)
    theirs = scores_by_mteb(judged, *sides)
    assert_equal(outcomes_of(corpus, id_, images, captions), theirs, SAME)


def composed(folder: Path, form: str, most: int = 6) -> tuple[Corpus, dict[str, str], dict[str, dict[str, int]]]:
    """30 queries of CIRCO or CIRR on 40 images: the corpus, query -> the image that it changes, and what is right.

    ``most``: images of a query, the one that it changes among them.
    """
    rng = np.random.default_rng(6)
    names = [f"{k:012d}.jpg" for k in range(40)]
    for k, name in enumerate(names):
        Image.new("RGB", (8, 8), (k, 5 * k, 9)).save(folder / name)
    rows, references, right = [], [], []
    for at in range(30):
        chosen = [int(k) for k in rng.choice(40, rng.integers(2, most + 1), replace=False)]
        found = chosen[1:] if form == "circo" else chosen[1:2]
        if form == "circo":
            rows.append({"id": at, "reference_img_id": chosen[0], "target_img_id": found[0], "gt_img_ids": found,
                         "relative_caption": f"x {at}"})  # fmt: skip
        else:
            rows.append({"pairid": at, "reference": names[chosen[0]][:-4], "target_hard": names[found[0]][:-4],
                         "caption": f"x {at}", "img_set": {"members": [names[k][:-4] for k in chosen]}})  # fmt: skip
        references.append(chosen[0])
        right.append(found)
    listed = names if form == "circo" else {name[:-4]: f"./{name}" for name in names}
    (folder / "gallery.json").write_text(json.dumps(listed))
    (folder / f"{form}.json").write_text(json.dumps(rows))
    corpus = read_image_queries(folder / f"{form}.json", gallery=folder / "gallery.json")
    image = {id_.removesuffix(".jpg"): id_ for id_ in texts(corpus.images["id"])}
    place = [image[name[:-4]] for name in names]
    queries = texts(corpus.captions["id"])
    judged = {query: {place[k]: 1 for k in found} for query, found in zip(queries, right, strict=True)}
    return corpus, {query: place[k] for query, k in zip(queries, references, strict=True)}, judged


@pytest.mark.parametrize("form", ["circo", "cirr"])
def test_queries_of_an_image_and_a_text(tmp_path: Path, form: str) -> None:
    """Of five targets at most the mAP@k of CIRCO and that of trec_eval are the same from k = 5 on."""
    from tests.benchmarks.by_mteb import scores_by_mteb

    corpus, reference_of, judged = composed(tmp_path, form)
    images, captions = vectors_of(corpus, "images", 3), vectors_of(corpus, "captions", 4)
    queries = {id_: unit((captions[id_] + images[image])[None])[0] for id_, image in reference_of.items()}
    outcomes = outcomes_of(corpus, "t2i/composed", images, captions)
    theirs = scores_by_mteb(judged, queries, images)
    if form == "circo":
        assert_equal(outcomes, theirs, SAME | {"AP@5": "map_cut_5", "AP@10": "map_cut_10"})
        return
    first = np.array([theirs[query]["success_1"] for query in outcomes.query_ids])
    assert (METRICS["R@1"].per_query(outcomes) >= first).all()
    assert METRICS["R@1"].value(outcomes) > first.mean()
    without = {
        query: scores_by_mteb(
            {query: judged[query]}, {query: queries[query]}, {id_: images[id_] for id_ in images if id_ != reference}
        )[query]
        for query, reference in list(reference_of.items())[:5]
    }
    for at, query in enumerate(outcomes.query_ids):
        if query in without:
            assert METRICS["R@5"].per_query(outcomes)[at] == without[query]["success_5"]
