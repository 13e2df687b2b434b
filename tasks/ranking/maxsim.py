"""Late interaction: exact float32 MaxSim of multi-vectors, and its outcomes.

``score(caption, image) = sum over caption tokens of max over image patches of their cosine`` (ColBERT, Khattab and
Zaharia 2020; ColPali, Faysse et al. 2024).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from capim.store.schema import TOP
from capim.store.vectors import Ragged
from capim.tasks.encoders.device import full_float32
from capim.tasks.protocols import IMAGE_AS_QUERY, PER_TOKEN
from capim.tasks.ranking.cosine import check_counts
from capim.tasks.ranking.maxsim_products import (
    checked,
    gather,
    image_as_query_scores,
    maxsim_scores,
    pays,
    scores_by_image,
    screened_scores,
)
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.ranker import FORWARD, Ranker, ScoreRows, choice_outcomes, reading_of, rows_of_table
from capim.tasks.ranking.resources import ON_CPU, Advance, Resources, ignore
from capim.tasks.ranking.tasks import ChoiceTask, RetrievalTask, ScoringTask
from capim.tasks.ranking.vectors import Blocks


def maxsim_part(
    images: Blocks,
    captions: Blocks,
    tasks: Sequence[ScoringTask],
    part: range | None = None,
    *,
    resources: Resources = ON_CPU,
    top: int = TOP,
    advance: Advance = ignore,
) -> Ranker:
    """Return the contribution of a part of the images: they are searched by all captions, and search all captions.

    Args:
        images: Called for each pass over images; yields blocks in the order of the rows, each once, or of the rows in
            its argument.
        captions: Called for all captions, which are held in memory.
        tasks: Tasks of the same two index spaces. The protocol of an ``i2t`` task names its orientation.
        part: Ords of the images; by default of all.
        resources: Half of the memory holds the scores of as many images as fit.
        advance: Called with the fraction of the scores just computed; the fractions add up to 1.

    Raises:
        ValueError: If a vector is zero or not finite, if dimensions differ, or if an item has no vectors.
    """

    def part_done(share: float) -> Advance:
        return lambda done: advance(done * share)

    tokens = gather(captions())
    check_counts(tasks, len(tokens))
    ranking = Ranker(tasks, top=top)
    at_once = max(1, resources.budget // 2 // (4 * len(tokens)))
    every = range(max(task.n_needed[1] for task in tasks))
    part = every if part is None else part
    whole = len(part) <= at_once and part == every
    screened = pays(ranking, images, min(len(part), at_once), resources.device)
    with full_float32():
        if screened or not whole:  # captions are all in memory: only caption queries have items outside of a window
            pairs = ranking.pairs(part if screened else range(0))
            ranking.set_positive_scores(pairs, scores_of_pairs(images, tokens, pairs, resources.device))
        by_token = partial(screened_scores, ranking=ranking) if screened else maxsim_scores
        of_tokens = [reading for reading in ranking.readings if reading != IMAGE_AS_QUERY]
        scorers = [(by_token, of_tokens)] if of_tokens else []
        scorers += [(image_as_query_scores, [IMAGE_AS_QUERY])] if IMAGE_AS_QUERY in ranking.readings else []
        for start in range(part.start, part.stop, at_once):
            window = range(start, min(part.stop, start + at_once))
            for score, readings in scorers:
                scores = score(
                    images if whole else partial(images, np.arange(window.start, window.stop, dtype=np.int32)),
                    tokens,
                    window,
                    resources=resources,
                    advance=part_done(len(window) / len(part) / len(scorers)),
                )
                for reading in readings:
                    for rows in _read(scores, reading, tokens, resources, first=start):
                        ranking.add(rows, reading)
    return ranking


def _read(
    scores: NDArray[np.float32], reading: str, captions: Ragged, resources: Resources, *, first: int = 0
) -> Iterator[ScoreRows]:
    """Yield scores of captions (rows) with the images from ``first`` on, as a task reads them (``reading_of``)."""
    if reading == FORWARD:
        return rows_of_table(scores, memory_bytes=resources.budget, items_from=first)
    divisors = captions.counts.astype(np.float32) if reading == PER_TOKEN else None
    return rows_of_table(scores.T, divisors, memory_bytes=resources.budget, queries_from=first)


def choices_of(
    images: Blocks, captions: Blocks, tasks: Sequence[ScoringTask], *, device: str = "cpu"
) -> dict[str, Outcomes]:
    """Return outcomes of the tasks that choose within small sets; only the pairs of the sets are scored."""
    chosen = [task for task in tasks if isinstance(task, ChoiceTask)]
    if not chosen:
        return {}
    tokens = gather(captions())
    check_counts(chosen, len(tokens))
    outcomes = {}
    for task in chosen:
        shape = (len(task.query_ords), task.captions.shape[1], task.images.shape[1])
        of_sets = (np.maximum(task.captions, 0)[:, :, None], task.images[:, None, :])
        caption_ords, image_ords = (np.broadcast_to(ords, shape).ravel().astype(np.int64) for ords in of_sets)
        pairs, back = np.unique((caption_ords << 32) | image_ords, return_inverse=True)
        with full_float32():
            found = scores_of_pairs(images, tokens, np.stack([pairs >> 32, pairs & 0xFFFFFFFF], axis=1), device)
        outcomes[task.protocol.id] = choice_outcomes(task, found[back].reshape(len(task.query_ords), -1))
    return outcomes


def scores_of_pairs(images: Blocks, captions: Ragged, pairs: NDArray[np.integer], device: str) -> NDArray[np.float32]:
    """Return scores of pairs of caption and image, shape ``(n, 2)``, bit for bit those of :func:`maxsim_scores`."""
    scores = np.empty(len(pairs), np.float32)
    order = np.argsort(pairs[:, 1], kind="stable")
    wanted, starts = np.unique(pairs[order, 1], return_index=True)
    ends = [*starts[1:], len(order)]
    if len(wanted):
        blocks = checked(images(wanted.astype(np.int32)), "image", captions.values.shape[1], ords=wanted)
        vectors = (image for block in blocks for image in block)
        of_images = np.split(pairs[order, 0], starts[1:])
        for start, end, found in zip(starts, ends, scores_by_image(vectors, captions, of_images, device), strict=True):
            scores[order[start:end]] = found
    return scores


def maxsim_score_rows(
    images: Blocks, captions: Blocks, task: RetrievalTask, *, resources: Resources = ON_CPU
) -> Iterator[ScoreRows]:
    """Yield the scores that a task is ranked by, queries in rows; arguments and errors as for :func:`maxsim_part`."""
    tokens, reading = gather(captions()), reading_of(task)
    check_counts([task], len(tokens))
    score = image_as_query_scores if reading == IMAGE_AS_QUERY else maxsim_scores
    with full_float32():
        scores = score(images, tokens, range(task.n_needed[1]), resources=resources)
    return _read(scores, reading, tokens, resources)
