"""Images that are the same or nearly so, within a corpus and between corpora: `capim duplicates`.

By their bytes, by the file names of photographs, and by the vectors of an encoder. What is in two corpora, or in the
training and the test part of one, makes their figures depend on each other, or too good.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.schema import texts
from capim.store.types import Corpus
from capim.tasks.results.suite import photographs_of

COLUMNS = ("corpus", "image", "other_corpus", "other_image", "by", "cosine")
MOST = 100_000  # pairs by vectors


def duplicates(
    store: EmbeddingStore, corpora: Sequence[Corpus], *, encoder: str | None = None, threshold: float = 0.95
) -> Iterator[dict[str, Any]]:
    """One row per pair of images, the surest first: equal bytes, then equal names between corpora, then vectors.

    Args:
        corpora: Stored ones; images are compared within each and between any two of them.
        encoder: Name or fingerprint of one with one vector per item; without one, bytes and names alone count.
        threshold: Least cosine, in -1..1.

    Raises:
        RequestError: The encoder has several vectors per item or none of these images, the threshold is none, or more
            than 100,000 pairs pass it.
    """
    if not -1 <= threshold <= 1:
        raise RequestError(f"--threshold must be a cosine between -1 and 1, got {threshold}")
    told: set[tuple[tuple[str, str], tuple[str, str]]] = set()
    for by, pairs in (("bytes", _equal(corpora, "sha")), ("name", _equal(corpora, "name"))):
        for first, second in pairs:
            if (first, second) not in told:
                told.add((first, second))
                yield _row(first, second, by, None)
    if encoder is not None:
        found = sorted(_near(store, corpora, encoder, threshold), key=lambda pair: (-pair[2], pair[:2]))
        for first, second, cosine in found:
            if (first, second) not in told:
                yield _row(first, second, "vectors", cosine)


def _row(first: tuple[str, str], second: tuple[str, str], by: str, cosine: float | None) -> dict[str, Any]:
    return dict(zip(COLUMNS, (*first, *second, by, cosine), strict=True))


def _equal(corpora: Sequence[Corpus], what: str) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Pairs of images, as corpus and id, of the same bytes; or of the same file name in two corpora."""
    same = defaultdict[str, list[tuple[str, str]]](list)
    for corpus in corpora:
        for id_, photograph in zip(texts(corpus.images["id"]), photographs_of(corpus), strict=True):
            if value := photograph.sha if what == "sha" else photograph.name:
                same[value].append((corpus.name, id_))
    for images in same.values():
        for at, first in enumerate(images):
            yield from ((first, second) for second in images[at + 1 :] if what == "sha" or first[0] != second[0])


def _near(
    store: EmbeddingStore, corpora: Sequence[Corpus], encoder: str, threshold: float
) -> Iterator[tuple[tuple[str, str], tuple[str, str], float]]:
    """Pairs of images whose cosine is at least the threshold."""
    from capim.tasks.ranking.cosine import score_blocks

    if store.encoder(encoder).vectors == "multi":
        raise RequestError(f"encoder {encoder!r} has many vectors per image, which have no cosine; name another one")
    sets = {each.name: store.vectors(encoder=encoder, corpus=each.fingerprint, modality="image") for each in corpora}
    n = 0
    for first, second in combinations_with_replacement(corpora, 2):
        ids = texts(first.images["id"]), texts(second.images["id"])
        for block in score_blocks(sets[first.name].matrix, sets[second.name].matrix):
            scores = block.scores.cpu().numpy()
            rows, columns = np.nonzero(scores >= threshold)
            if first is second:
                rows, columns = (side[rows + block.start < columns] for side in (rows, columns))
            n += len(rows)
            if n > MOST:
                raise RequestError(f"more than {MOST:,} pairs have a cosine of {threshold} or more; raise --threshold")
            for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
                pair = (first.name, ids[0][block.start + row]), (second.name, ids[1][column])
                yield *pair, float(scores[row, column])
