"""Scores of every caption with every image that another program computed, for example with a cross-encoder.

Ranks and ties are counted by the code that ranks products of embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from capim.tasks.scoring.choices import choice_outcomes
from capim.tasks.scoring.outcomes import Outcomes
from capim.tasks.scoring.protocols.tasks import ChoiceTask, RetrievalTask, ScoringTask
from capim.tasks.scoring.ranks.accumulator import retrieval_outcomes, rows_of_table


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
