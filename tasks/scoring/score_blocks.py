"""Raw scores with their relevance, for a user's metric that needs more than outcomes keep, such as a margin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.tasks.protocols import Protocol
from capim.tasks.scoring.dense import VectorRows, dense_score_rows
from capim.tasks.scoring.late_interaction.maxsim import maxsim_score_rows
from capim.tasks.scoring.late_interaction.multivectors import Blocks
from capim.tasks.scoring.protocols.builders import RetrievalTask
from capim.tasks.scoring.resources import ON_CPU, Resources


class ScoreBlock(NamedTuple):
    """Some queries of one protocol against one gallery.

    Attributes:
        rows: int64, shape ``(n_queries,)``: positions among the protocol's queries.
        scores: float32, shape ``(n_queries, n_items)``; higher is closer.
        relevant: bool, same shape.
        queries: int32 corpus ords of the queries.
        items: int32 corpus ords of the gallery.
    """

    protocol: Protocol
    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    relevant: NDArray[np.bool_]
    queries: NDArray[np.int32]
    items: NDArray[np.int32]


def score_blocks(
    images: VectorRows | Blocks,
    captions: VectorRows | Blocks,
    task: RetrievalTask,
    *,
    resources: Resources = ON_CPU,
) -> Iterator[ScoreBlock]:
    """All queries of one protocol, block by block; every query comes once, with the scores that it was ranked by.

    Arguments as for :func:`tasks.scoring.evaluate.evaluate`: matrices of a single-vector encoder, or functions that
    yield the multi-vectors of a late-interaction encoder.
    """
    if callable(images) and callable(captions):
        rows_of_scores = maxsim_score_rows(images, captions, task, resources=resources)
    elif not callable(images) and not callable(captions):
        rows_of_scores = dense_score_rows(images[:], captions[:], task, resources=resources)
    else:
        raise TypeError("images and captions must both be matrices (single), or both functions that yield blocks")
    for start, scores, _ in rows_of_scores:
        table = scores.cpu().numpy()
        inside = np.flatnonzero((task.queries >= start) & (task.queries < start + len(table)))
        for number in np.unique(task.gallery_of[inside]):
            rows = inside[task.gallery_of[inside] == number]
            gallery, queries = task.galleries[number], task.queries[rows]
            relevant = np.zeros((len(rows), len(gallery)), dtype=np.bool_)
            for marks, row in zip(relevant, rows, strict=True):
                marks[np.searchsorted(gallery, task.relevant[task.offsets[row] : task.offsets[row + 1]])] = True
            block_scores = table[queries - start][:, gallery]
            yield ScoreBlock(task.protocol, rows, block_scores, relevant, queries, gallery)
