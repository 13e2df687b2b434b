"""Raw score blocks for whoever wants more than outcomes keep: a metric of one's own, a histogram, a margin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from store.types import EvalProtocol
from tasks.scoring.dense import DEFAULT_MEMORY_BYTES, dense_strips, full_float32
from tasks.scoring.protocols.tasks import RetrievalTask


class ScoreBlock(NamedTuple):
    """Some queries of one protocol against one gallery.

    Attributes:
        protocol: Whose queries they are.
        rows: int64, shape ``(n_queries,)``: positions among the protocol's queries.
        scores: float32, shape ``(n_queries, n_items)``; higher is closer.
        relevant: bool, same shape.
        queries: int32 corpus ords of the queries.
        items: int32 corpus ords of the gallery.
    """

    protocol: EvalProtocol
    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    relevant: NDArray[np.bool_]
    queries: NDArray[np.int32]
    items: NDArray[np.int32]


def score_blocks(
    images: NDArray[np.float32],
    captions: NDArray[np.float32],
    judgement: RetrievalTask,
    *,
    device: str = "cpu",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Iterator[ScoreBlock]:
    """All queries of one protocol, block by block, each query once per gallery that it searches.

    Arguments as for :func:`tasks.scoring.dense.score_dense`.
    """
    links = _links(judgement)
    with full_float32():
        for strip in dense_strips(images, captions, [judgement], device=device, memory_bytes=memory_bytes):
            table = strip.scores.cpu().numpy()
            rows = judgement.queries - strip.start
            inside = np.flatnonzero((rows >= 0) & (rows < len(table)))
            for number in np.unique(judgement.gallery_of[inside]):
                mine = inside[judgement.gallery_of[inside] == number]
                gallery = judgement.galleries[number]
                relevant = np.zeros((len(mine), len(gallery)), dtype=np.bool_)
                for at, query in enumerate(mine):
                    relevant[at, np.searchsorted(gallery, links[query])] = True
                scores = table[rows[mine]][:, gallery]
                yield ScoreBlock(judgement.protocol, mine, scores, relevant, judgement.queries[mine], gallery)


def _links(judgement: RetrievalTask) -> Sequence[NDArray[np.int32]]:
    return np.split(judgement.relevant, judgement.offsets[1:-1])
