"""Outcomes of compositional sets: which captions and images of a set are matched correctly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.tasks import ChoiceTask


def choice_outcomes(task: ChoiceTask, scores: NDArray[np.float32]) -> Outcomes:
    """Compare each caption's score with its own image to its rivals: other captions there, other images for it.

    Args:
        task: The sets.
        scores: float32, shape ``(n_sets, captions per set * images per set)``, caption after caption; any value where
            a set has no such caption. It becomes NaN in the outcomes, which no comparison counts.
    """
    n_captions, n_images = task.captions.shape[1], task.images.shape[1]
    absent = task.captions < 0
    table = np.where(absent[:, :, None], np.nan, scores.reshape(len(scores), n_captions, n_images)).astype(np.float32)
    lost = np.zeros(len(scores), dtype=np.int32)
    tied = np.zeros(len(scores), dtype=np.int32)
    comparisons = 0
    for own in range(min(n_captions, n_images)):
        right = table[:, own, own]
        rivals = [table[:, other, own] for other in range(n_captions) if other != own]
        rivals += [table[:, own, other] for other in range(n_images) if other != own]
        for rival in rivals:
            lost += rival > right
            tied += rival == right
            comparisons += 1
    ones = np.ones(len(scores), dtype=np.int32)
    return Outcomes(
        protocol=task.protocol,
        query_ids=task.query_ids,
        query_ords=task.queries,
        clusters=task.clusters,
        rank_best=1 + lost,
        rank_worst=1 + lost + tied,
        n_relevant=ones,
        n_tied_relevant=ones,
        n_gallery=(comparisons + 1 - absent.sum(axis=1)).astype(np.int32),
        weights=task.weights,
        best_score=table[:, 0, 0].copy(),
        relevant_rank_best=1 + lost,
        relevant_rank_worst=1 + lost + tied,
        scores=table.reshape(scores.shape),
    )
