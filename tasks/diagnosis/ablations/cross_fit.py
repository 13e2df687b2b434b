"""Forms with parameters that come from vectors are fitted on one half of the images and tested on the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.tasks.scoring.protocols.tasks import RetrievalTask

FITTED_ON = "the half of the images, and their captions, that the query does not belong to"


class Scored(NamedTuple):
    """The outcome of some vectors under one protocol.

    ``hits``: expected hit at 1 of every query, equal scores in random order. ``tied``: whether its best relevant item
    is tied with an irrelevant one. ``seconds``: duration of scoring.
    """

    hits: NDArray[np.float64]
    tied: NDArray[np.bool_]
    seconds: float


class Halves(NamedTuple):
    """Which images, shape ``(n_images,)``, and whose captions, shape ``(n_captions,)``, are in the second half."""

    images: NDArray[np.bool_]
    captions: NDArray[np.bool_]


def cross_fitted(
    task: RetrievalTask, second_half: NDArray[np.bool_], score: Callable[[bool, RetrievalTask], Scored]
) -> Scored:
    """The outcome of all queries of a task, each half of them with parameters from the other half of the images.

    Both halves search the whole gallery, so that the outcome can be compared with that of the vectors as stored.

    Args:
        task: The task; its clusters are images of the corpus.
        second_half: Which images of the corpus are in the second half (``AnalysisInput.second_half``).
        score: ``score(half, task)`` scores the queries of one half (``True``: the second).
    """
    of_query = second_half[task.clusters]
    hits, tied, seconds = np.empty(len(of_query)), np.empty(len(of_query), dtype=np.bool_), 0.0
    for half in (False, True):
        kept = np.flatnonzero(of_query == half)
        if len(kept):
            scored = score(half, task.of_queries(kept))
            hits[kept], tied[kept] = scored.hits, scored.tied
            seconds += scored.seconds
    return Scored(hits, tied, seconds)
