"""R@1 with a user's judgements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capim.store.errors import RequestError
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.metrics.custom import with_judgements
from capim.tasks.ranking.outcomes import outcomes_of


def test_a_first_item_that_the_user_judged_right_counts_in_both_directions(tmp_path: Path) -> None:
    corpus = read_shapes(n_scenes=3)
    captions, images = (table["id"].to_pylist() for table in (corpus.captions, corpus.images))
    file = tmp_path / "own.csv"
    file.write_text(
        "corpus,direction,query_id,item_id\n"
        f"{corpus.name},t2i,{captions[0]},{images[2]}\n"
        f"{corpus.name},i2t,{images[1]},{captions[4]}\n"
        "another,t2i,x,y\n"
    )
    metric = with_judgements(file)
    assert metric.name == "own:R@1"
    missed = outcomes_of([[2], [2], [1]], n_gallery=3, direction="t2i", protocol="t2i/all")
    first = np.array([[2], [1], [2]], dtype=np.int32)  # of captions 0, 4 and 2
    asked = np.array([captions[0], captions[4], captions[2]], dtype=object)
    outcomes = replace(missed, top_ords=first, top_scores=np.ones((3, 1), dtype=np.float32), query_ids=asked)
    values = metric.metric(corpus=corpus)
    assert values.per_query(outcomes).tolist() == [1.0, 1.0, 1.0]
    assert values.per_query(replace(outcomes, top_ords=first[[1, 0, 2]])).tolist() == [0.0, 0.0, 1.0]
    backwards = outcomes_of([[2], [2]], n_gallery=15)
    of_images = np.array([images[1], images[2]], dtype=object)
    lists = np.array([[4], [0]], dtype=np.int32)
    found = replace(backwards, top_ords=lists, top_scores=np.ones((2, 1), dtype=np.float32), query_ids=of_images)
    assert values.per_query(found).tolist() == [1.0, 1.0]


def test_a_judgement_of_what_the_corpus_lacks_is_refused_and_another_corpus_is_left_out(tmp_path: Path) -> None:
    corpus = read_shapes(n_scenes=3)
    file = tmp_path / "own.csv"
    outcomes = replace(
        outcomes_of([[1]], n_gallery=3, direction="t2i", protocol="t2i/all"),
        top_ords=np.array([[0]], dtype=np.int32),
        top_scores=np.ones((1, 1), dtype=np.float32),
    )
    file.write_text("corpus,direction,query_id,item_id\nanother,t2i,x,y\n")
    assert np.isnan(with_judgements(file).metric(corpus=corpus).per_query(outcomes)).all()
    file.write_text(f"corpus,direction,query_id,item_id\n{corpus.name},t2i,nobody,{corpus.images['id'][0]}\n")
    with pytest.raises(RequestError, match="nobody"):
        with_judgements(file).metric(corpus=corpus).per_query(outcomes)
