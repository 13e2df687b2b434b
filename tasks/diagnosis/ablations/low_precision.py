"""Scores kept in bfloat16 or float16, where many of them tie (``docs/protocols.md`` §2).

The vectors are rounded, multiplied, summed in float32 as hardware does, and the sum is rounded again: the result of a
matrix product in that type.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.diagnosis.ablations.transforms import rounded
from tasks.diagnosis.vectors import Matrix
from tasks.metrics.retrieval import expected_hit
from tasks.scoring.protocols.tasks import RetrievalTask

_BLOCK_BYTES = 64 << 20


class Scored(NamedTuple):
    """The outcome of some vectors under one protocol.

    ``hits``: expected hit at 1 of every query, equal scores in random order. ``tied``: whether its best relevant item
    is tied with an irrelevant one. ``seconds``: duration of scoring.
    """

    hits: NDArray[np.float64]
    tied: NDArray[np.bool_]
    seconds: float


def hits_scored_in(kind: str, images: Matrix, captions: Matrix, task: RetrievalTask) -> Scored:
    """The outcome of single vectors when they and their scores are kept in a lower precision.

    ``kind`` is ``float32``, ``bfloat16`` or ``float16``. Vectors are unit rows, numbered as in the task, which has one
    gallery.
    """
    started = time.perf_counter()
    images, captions = rounded(images, kind), rounded(captions, kind)
    queries, items = (captions, images) if task.protocol.direction == "t2i" else (images, captions)
    [gallery] = task.galleries
    n_queries = len(task.queries)
    above, level, tied_relevant = (np.empty(n_queries, dtype=np.int32) for _ in range(3))
    rows = max(1, _BLOCK_BYTES // (4 * len(gallery)))
    for start in range(0, n_queries, rows):
        block = slice(start, min(start + rows, n_queries))
        scores = rounded(queries[task.queries[block]] @ items[gallery].T, kind)
        relevant = np.zeros(scores.shape, dtype=bool)
        query = np.repeat(np.arange(len(scores)), task.n_relevant[block])
        relevant[query, np.searchsorted(gallery, task.relevant[task.offsets[start] : task.offsets[block.stop]])] = True
        best = np.where(relevant, scores, -np.inf).max(axis=1, keepdims=True)
        above[block] = (scores > best).sum(axis=1)
        level[block] = ((scores == best) & ~relevant).sum(axis=1)
        tied_relevant[block] = ((scores == best) & relevant).sum(axis=1)
    hits = expected_hit(above + 1, above + level + 1, tied_relevant, k=1)
    return Scored(hits, level > 0, time.perf_counter() - started)
