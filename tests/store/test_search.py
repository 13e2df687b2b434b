"""Nearest items equal a full sort by a score computed here, ties in corpus order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from capim.store.sets.search import search
from tests.store.toy import begin, fill, make_block, make_corpus, make_embeddings, make_spec


def maxsim(tokens, patches):
    return (tokens @ patches.T).max(axis=1).sum()


def items_of(embeddings, stored=np.float16):
    values = embeddings.values.astype(stored).astype(np.float32)
    offsets = embeddings.offsets if embeddings.offsets is not None else np.arange(len(values) + 1)
    return [values[start:stop] for start, stop in pairwise(offsets)]


def test_dense_hits_equal_a_full_sort(store):
    spec = make_spec()
    fill(store, make_corpus(50), spec)
    queries = make_embeddings([1000, 1001, 1002], spec)
    matrix = np.concatenate(items_of(make_embeddings(range(50), spec), np.float32))
    for query in items_of(queries, np.float32):
        ords, found = search(store, query, encoder="enc", corpus="toy", modality="image", k=7)
        scores = matrix @ query[0]
        expected = np.lexsort((np.arange(50), -scores))[:7]
        assert ords.tolist() == expected.tolist()
        np.testing.assert_allclose(found, scores[expected], atol=1e-6)


@pytest.mark.parametrize("modality", ["image", "caption"])
def test_late_interaction_sums_over_the_captions_tokens_in_both_directions(store, modality):
    spec = make_spec(vectors="multi")
    fill(store, make_corpus(30), spec, modality)
    n = 30 if modality == "image" else 60
    queries = make_embeddings([1001, 1004], spec)
    items = items_of(make_embeddings(range(n), spec))
    for query in items_of(queries, np.float32):
        ords, _ = search(store, query, encoder="enc", corpus="toy", modality=modality, k=5)
        scores = np.array([maxsim(query, item) if modality == "image" else maxsim(item, query) for item in items])
        expected = np.lexsort((np.arange(n), -scores))[:5]
        assert ords.tolist() == expected.tolist()


def test_equal_scores_come_in_corpus_order_and_k_may_exceed_the_corpus(store):
    spec, key = begin(store, 5)
    block = make_block(spec, range(5))
    block.embeddings.values[:] = np.eye(16, dtype=np.float32)[0]
    store.put(key, spec, block)
    store.seal(key)
    query = np.eye(16, dtype=np.float32)[:1]
    ords, scores = search(store, query, encoder="enc", corpus="toy", modality="image", k=9)
    assert (ords.tolist(), scores.tolist()) == ([0, 1, 2, 3, 4], [1.0] * 5)
