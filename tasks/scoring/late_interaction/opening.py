"""Which screened pairs must be scored again in float32, so that no rank and no list can change.

A pair is left as it is only if its whole interval ``screened ± bound`` lies on one side of every score that decides
something for its query: the score of each relevant item, and the least score that can be in the best list.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.scoring.protocols.tasks import RetrievalTask


def mark_open(
    marks: NDArray[np.bool_],
    start: int,
    scores: NDArray[np.float32],
    bounds: NDArray[np.float32],
    judgements: Sequence[RetrievalTask],
    *,
    top: int,
) -> None:
    """Mark the pairs of a strip that are open; marks are only ever added.

    Args:
        marks: bool, shape ``(n_block, n_items)``; written to.
        start: Ord of the first query of the strip.
        scores: Screened or exact scores, same shape; those of relevant items must be exact already.
        bounds: How far each score can be from the exact one, broadcast to that shape; 0 where it is exact.
        judgements: All of one direction.
        top: Length of the best lists.
    """
    lower, upper = scores - bounds, scores + bounds
    decisive: list[NDArray[np.int64]] = []
    searching: dict[bytes, tuple[NDArray[np.int32], list[NDArray[np.int64]]]] = {}
    for judgement in judgements:
        rows = judgement.queries.astype(np.int64) - start
        inside = np.flatnonzero((rows >= 0) & (rows < len(scores)))
        for number in np.unique(judgement.gallery_of[inside]):
            mine = inside[judgement.gallery_of[inside] == number]
            gallery = judgement.galleries[number]
            searching.setdefault(gallery.tobytes(), (gallery, []))[1].append(rows[mine])
        pairs = np.concatenate([np.arange(judgement.offsets[q], judgement.offsets[q + 1]) for q in inside] or [inside])
        of = np.repeat(rows[inside], judgement.n_relevant[inside])
        decisive.append(of * scores.shape[1] + judgement.relevant[pairs])
    for gallery, asked in searching.values():
        _mark_lists(marks, np.unique(np.concatenate(asked)), gallery, lower, upper, top)
    for pair in np.unique(np.concatenate(decisive)):
        row, item = divmod(int(pair), scores.shape[1])
        marks[row] |= (lower[row] <= scores[row, item]) & (upper[row] >= scores[row, item])


def _mark_lists(
    marks: NDArray[np.bool_],
    queries: NDArray[np.int64],
    gallery: NDArray[np.int32],
    lower: NDArray[np.float32],
    upper: NDArray[np.float32],
    top: int,
) -> None:
    """Whatever can reach the ``top``-th best of a gallery."""
    at = len(gallery) - min(top, len(gallery))
    first = int(gallery[0])
    run = slice(first, first + len(gallery)) if gallery[-1] - first + 1 == len(gallery) else gallery
    least = np.partition(lower[queries][:, run], at, axis=1)[:, at : at + 1]
    rows, places = np.nonzero(upper[queries][:, run] >= least)
    marks[queries[rows], gallery[places]] = True
