"""What becomes of ranks when scores are kept in bfloat16 or float16: they tie (``protocols.md`` §2).

The vectors are rounded, multiplied, summed in float32 as hardware does, and the sum is rounded again: what a matrix
product in that type returns.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.diagnosis.ablations.variants import Matrix, rounded
from tasks.metrics.retrieval import expected_hit
from tasks.scoring.protocols.tasks import RetrievalTask

_BLOCK_BYTES = 64 << 20


class Scored(NamedTuple):
    """What some vectors got under one protocol.

    ``hits``: expected hit at 1 of every query, equal scores in random order. ``tied``: whether its best relevant item
    is tied with an irrelevant one. ``seconds``: what scoring took.
    """

    hits: NDArray[np.float64]
    tied: NDArray[np.bool_]
    seconds: float


def hits_scored_in(kind: str, images: Matrix, captions: Matrix, judgement: RetrievalTask) -> Scored:
    """What single vectors get when they and their scores are kept in a lower precision.

    Args:
        kind: ``float32``, ``bfloat16`` or ``float16``.
        images: Unit rows in corpus order.
        captions: Unit rows in corpus order.
        judgement: What is asked.
    """
    started = time.perf_counter()
    images, captions = rounded(images, kind), rounded(captions, kind)
    queries, items = (captions, images) if judgement.protocol.direction == "t2i" else (images, captions)
    n_queries = len(judgement.queries)
    above, level, tied_relevant = (np.empty(n_queries, dtype=np.int32) for _ in range(3))
    for number, gallery in enumerate(judgement.galleries):
        asked = np.flatnonzero(judgement.gallery_of == number)
        rows = max(1, _BLOCK_BYTES // (4 * len(gallery)))
        for start in range(0, len(asked), rows):
            places = asked[start : start + rows]
            scores = rounded(queries[judgement.queries[places]] @ items[gallery].T, kind)
            relevant = _relevant(judgement, places, gallery)
            best = np.where(relevant, scores, -np.inf).max(axis=1, keepdims=True)
            above[places] = (scores > best).sum(axis=1)
            level[places] = ((scores == best) & ~relevant).sum(axis=1)
            tied_relevant[places] = ((scores == best) & relevant).sum(axis=1)
    hits = expected_hit(above + 1, above + level + 1, tied_relevant, k=1)
    return Scored(hits, level > 0, time.perf_counter() - started)


def _relevant(judgement: RetrievalTask, places: NDArray[np.intp], gallery: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which gallery items are relevant to some queries: shape ``(n_places, n_gallery)``."""
    counts = judgement.n_relevant[places]
    flat = np.concatenate([judgement.relevant[judgement.offsets[p] : judgement.offsets[p + 1]] for p in places])
    mask = np.zeros((len(places), len(gallery)), dtype=bool)
    mask[np.repeat(np.arange(len(places)), counts), np.searchsorted(gallery, flat)] = True
    return mask
