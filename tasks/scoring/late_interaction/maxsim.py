"""Late interaction: exact float32 MaxSim of multi-vectors, and the outcomes from it.

``score(caption, image) = sum over caption tokens of max over image patches of their cosine`` (ColBERT, Khattab and
Zaharia 2020; ColPali, Faysse et al. 2024).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from store.ragged import Ragged
from store.schema import TOP
from tasks.encoders.device import full_float32
from tasks.scoring.choices import choice_outcomes
from tasks.scoring.dense import DEFAULT_MEMORY_BYTES, check_ords
from tasks.scoring.late_interaction.multivectors import Blocks, gather
from tasks.scoring.late_interaction.products import image_as_query_scores, maxsim_scores
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.orientations import orientation_of
from tasks.scoring.protocols.tasks import ChoiceTask, RetrievalTask, ScoringTask
from tasks.scoring.ranks.accumulator import ScoreRows, retrieval_outcomes, rows_of_table
from tasks.scoring.threads import Advance, ignore


def score_maxsim(
    images: Blocks,
    captions: Blocks,
    tasks: Sequence[ScoringTask],
    *,
    device: str = "cpu",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    top: int = TOP,
    advance: Advance = ignore,
) -> dict[str, Outcomes]:
    """Outcomes of every task, from multi-vectors in corpus order.

    Args:
        images: Called for each pass over the images: blocks in corpus order, every ord once.
        captions: The same for captions; these are held in memory.
        tasks: Of one corpus. The protocol of an ``i2t`` task names its orientation.
        device: Any torch device.
        memory_bytes: What may be allocated beyond the captions' vectors; a score matrix that takes more than half of
            it is kept in a temporary file.
        top: Length of the best lists.
        advance: Gets the shares of the scores as they are computed; together 1.

    Returns:
        Protocol id -> outcomes, in the order of ``tasks``.

    Raises:
        ValueError: A vector that is zero or not finite, different dimensions, or an item without vectors.
    """
    tokens = gather(captions(), "caption")
    check_ords(tasks, {"caption": len(tokens)})
    by_image = [task for task in tasks if orientation_of(task.protocol) == "image-as-query"]
    by_caption = [task for task in tasks if task not in by_image]
    outcomes: dict[str, Outcomes] = {}
    n_passes = bool(by_caption) + bool(by_image)
    for part, score in ((by_caption, maxsim_scores), (by_image, image_as_query_scores)):
        if part:
            n_images = 1 + max(task.highest_ord("image") for task in part)
            with full_float32():
                scores = score(
                    images,
                    tokens,
                    n_images=n_images,
                    device=device,
                    memory_bytes=memory_bytes,
                    advance=lambda share: advance(share / n_passes),
                )
            outcomes |= outcomes_of_scores(scores, tokens, part, memory_bytes=memory_bytes, top=top)
    return {task.protocol.id: outcomes[task.protocol.id] for task in tasks}


def maxsim_score_rows(
    images: Blocks,
    captions: Blocks,
    task: RetrievalTask,
    *,
    device: str = "cpu",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Iterator[ScoreRows]:
    """The scores that a task is ranked by, queries in rows; arguments and errors as for :func:`score_maxsim`."""
    tokens = gather(captions(), "caption")
    check_ords([task], {"caption": len(tokens)})
    orientation = orientation_of(task.protocol)
    score = image_as_query_scores if orientation == "image-as-query" else maxsim_scores
    n_images = 1 + task.highest_ord("image")
    with full_float32():
        scores = score(images, tokens, n_images=n_images, device=device, memory_bytes=memory_bytes)
    table = scores if task.protocol.direction == "t2i" else scores.T
    divisors = tokens.counts.astype(np.float32) if orientation == "transposed-per-token" else None
    return rows_of_table(table, memory_bytes, divisors)


def outcomes_of_scores(
    scores: NDArray[np.float32], captions: Ragged, tasks: Sequence[ScoringTask], *, memory_bytes: int, top: int
) -> dict[str, Outcomes]:
    """Outcomes of tasks that read the same scores: by row, by column, or by column and divided by caption tokens.

    ``scores`` are float32, shape ``(n_captions, n_images)``; ``memory_bytes`` bounds the rows that are ranked at once.
    """
    to_images: list[RetrievalTask] = []
    to_captions: list[RetrievalTask] = []
    per_token: list[RetrievalTask] = []
    outcomes: dict[str, Outcomes] = {}
    for task in tasks:
        if isinstance(task, ChoiceTask):
            sets = scores[task.captions[:, :, None], task.images[:, None, :]]
            outcomes[task.protocol.id] = choice_outcomes(task, sets.reshape(len(sets), -1))
        elif task.protocol.direction == "t2i":
            to_images.append(task)
        else:
            (per_token if orientation_of(task.protocol) == "transposed-per-token" else to_captions).append(task)
    for part, table, divisors in (
        (to_images, scores, None),
        (to_captions, scores.T, None),
        (per_token, scores.T, captions.counts.astype(np.float32)),
    ):
        if part:
            outcomes |= retrieval_outcomes(rows_of_table(table, memory_bytes, divisors), part, top=top)
    return outcomes
