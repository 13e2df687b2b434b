"""Outcomes of compositional sets: which captions and images of a set are matched correctly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.ranker import retrieval_outcomes, rows_of_table
from capim.tasks.ranking.tasks import ChoiceTask, RetrievalTask, ScoringTask, query_columns


def choice_outcomes(task: ChoiceTask, scores: NDArray[np.float32]) -> Outcomes:
    """Compare each right caption's score with its rivals: wrong captions for its image, other images for it.

    Args:
        scores: float32, shape ``(n_sets, captions per set * images per set)``, caption after caption; any value where
            a set has no such caption. It becomes NaN in the outcomes, which no comparison counts.
    """
    n_captions, n_images = task.captions.shape[1], task.images.shape[1]
    absent = task.captions < 0
    table = np.where(absent[:, :, None], np.nan, scores.reshape(len(scores), n_captions, n_images)).astype(np.float32)
    flat = table.reshape(scores.shape)
    right, rival = np.array(list(_comparisons(task))).T
    lost = (flat[:, rival] > flat[:, right]).sum(axis=1, dtype=np.int32)
    tied = (flat[:, rival] == flat[:, right]).sum(axis=1, dtype=np.int32)
    n_choices = n_captions if n_images == 1 else len(right) + 1
    return Outcomes(
        **query_columns(task),
        rank_best=1 + lost,
        rank_worst=1 + lost + tied,
        n_relevant=np.full(len(scores), task.n_right, dtype=np.int32),
        n_tied_relevant=np.ones(len(scores), dtype=np.int32),
        n_gallery=(n_choices - absent.sum(axis=1)).astype(np.int32),
        best_score=flat[:, : task.n_right].max(axis=1),
        relevant_rank_best=np.repeat(1 + lost, task.n_right),
        relevant_rank_worst=np.repeat(1 + lost + tied, task.n_right),
        scores=flat,
    )


def _comparisons(task: ChoiceTask) -> Iterator[tuple[int, int]]:
    """Columns of the scores: a right match, and one that it is compared with."""
    n_captions, n_images = task.captions.shape[1], task.images.shape[1]
    if n_images == 1:
        yield from ((right, wrong) for right in range(task.n_right) for wrong in range(task.n_right, n_captions))
        return
    for own in range(n_images):
        yield from ((own * n_images + own, other * n_images + own) for other in range(n_captions) if other != own)
        yield from ((own * n_images + own, own * n_images + other) for other in range(n_images) if other != own)


# --- Scores of every caption with every image that another program computed, for example with a cross-encoder.
#
# Ranks and ties are counted by the code that ranks products of embeddings.


def score_given(scores: NDArray[np.float32], tasks: Sequence[ScoringTask]) -> dict[str, Outcomes]:
    """Outcomes of every task.

    Args:
        scores: float32, finite, shape ``(n_captions, n_images)``, in corpus order; may be memory-mapped.
        tasks: Of one corpus.

    Returns:
        Protocol id -> outcomes, in the order of ``tasks``.
    """
    outcomes: dict[str, Outcomes] = {}
    for direction, table in (("t2i", scores), ("i2t", scores.T)):
        of_direction = [t for t in tasks if isinstance(t, RetrievalTask) and t.protocol.direction == direction]
        if of_direction:
            outcomes |= retrieval_outcomes(rows_of_table(table), of_direction)
    for task in tasks:
        if isinstance(task, ChoiceTask):
            of_sets = scores[np.maximum(task.captions, 0)[:, :, None], task.images[:, None, :]]
            outcomes[task.protocol.id] = choice_outcomes(task, of_sets.reshape(len(of_sets), -1))
    return {task.protocol.id: outcomes[task.protocol.id] for task in tasks}
