"""Searches whose vectors are not those of captions and images as they are stored, or that leave items out.

A class is the mean of the vectors of its prompts, as in zero-shot classification (Radford and others 2021). An image
that searches images is no item of its own gallery; an image with a text that changes it is a weighted sum of both.
Vectors of one modality fit into memory here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from capim.store.schema import TOP
from capim.store.types import Modality
from capim.tasks.ranking.cosine import VectorRows, check_values, score_blocks
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.ranker import Ranker, ScoreRows
from capim.tasks.ranking.resources import ON_CPU, Resources
from capim.tasks.ranking.tasks import RetrievalTask


class Sides(NamedTuple):
    """A task as queries and items that are numbered from 0, with a vector each.

    Attributes:
        task: Its ords are rows of the matrices.
        queries: float32 unit vectors, shape ``(n_queries, dim)``.
        items: Of the gallery, likewise.
        ords: Of every item in the corpus.
    """

    task: RetrievalTask
    queries: NDArray[np.float32]
    items: NDArray[np.float32]
    ords: NDArray[np.int32]


def sides_of(task: RetrievalTask, images: VectorRows, captions: VectorRows) -> Sides:
    """The vectors of a task's queries and of its items.

    Args:
        task: Any; its classes, and its images with a text, become vectors here.
        images: Unit vectors in corpus order, shape ``(n_images, dim)``.
        captions: Likewise.

    Raises:
        ValueError: A vector is zero or not finite, or those of a class or a query cancel each other out.
    """
    gallery = np.unique(np.concatenate(task.galleries))

    def vectors(modality: Modality, ords: NDArray[np.int32]) -> NDArray[np.float32]:
        if modality == "caption" and task.prompts is not None:
            return _means(captions, [task.prompts[ord_] for ord_ in ords.tolist()])
        found = (images if modality == "image" else captions)[ords]
        check_values(found, modality, int(ords[0]))
        return found

    def within(ords: NDArray[np.integer]) -> NDArray[np.int32]:
        return np.searchsorted(gallery, ords).astype(np.int32)

    of_query, of_items = task.protocol.sides
    excluded = task.excluded
    numbered = replace(
        task,
        queries=np.arange(len(task.queries), dtype=np.int32),
        galleries=tuple(map(within, task.galleries)),
        relevant=within(task.relevant),
        excluded=None if excluded is None else np.stack([excluded[:, 0], within(excluded[:, 1])], axis=1),
    )
    queries = vectors(of_query, task.queries)
    if task.references is not None:
        weight = task.text_weight
        queries = _unit(weight * queries.astype(np.float64) + (1 - weight) * vectors("image", task.references))
    return Sides(numbered, queries, vectors(of_items, gallery), gallery)


def score_apart(
    tasks: Sequence[RetrievalTask], images: VectorRows, captions: VectorRows, *, resources: Resources = ON_CPU
) -> dict[str, Outcomes]:
    """Protocol id -> outcomes of tasks of which :attr:`RetrievalTask.is_apart` holds."""
    outcomes = {}
    for task in tasks:
        sides = sides_of(task, images, captions)
        ranker = Ranker([sides.task], top=TOP)
        for _ in score_blocks(sides.queries, sides.items, resources=resources, then=partial(_rank, ranker, sides)):
            pass
        [found] = ranker.outcomes().values()
        lists, scores = np.asarray(found.top_ords), np.asarray(found.top_scores)
        listed = (lists >= 0) & (scores > -np.inf)
        outcomes[task.protocol.id] = replace(
            found,
            query_ords=task.queries,
            top_ords=np.where(listed, sides.ords[lists], -1).astype(np.int32),
            top_scores=np.where(listed, scores, np.float32(np.nan)),
        )
    return outcomes


def _rank(ranker: Ranker, sides: Sides, rows: ScoreRows) -> None:
    with torch.inference_mode():  # a mode of the thread, not of the process
        ranker.add(_without_excluded(sides, rows))


def apart_rows(sides: Sides, resources: Resources = ON_CPU) -> Iterator[ScoreRows]:
    """The scores of all queries with all items; those that are left out of a search have less than any."""
    for rows in score_blocks(sides.queries, sides.items, resources=resources):
        yield _without_excluded(sides, rows)


def _without_excluded(sides: Sides, rows: ScoreRows) -> ScoreRows:
    if (excluded := sides.task.excluded) is not None:
        query, item = excluded[(excluded[:, 0] >= rows.start) & (excluded[:, 0] < rows.start + len(rows.scores))].T
        rows.scores[query - rows.start, item] = -np.inf
    return rows


def _means(vectors: VectorRows, groups: Sequence[NDArray[np.int32]]) -> NDArray[np.float32]:
    """The normalised mean of the vectors of each group, float32, shape ``(n_groups, dim)``."""
    ords, ends = np.concatenate(groups), np.cumsum([0, *map(len, groups)])
    first, last = int(ords[0]), int(ords[-1])
    read = vectors[first : last + 1] if np.array_equal(ords, np.arange(first, last + 1)) else vectors[ords]
    check_values(read, "caption", first)
    return _unit(np.stack([read[start:end].sum(axis=0, dtype=np.float64) for start, end in pairwise(ends)]))


def _unit(sums: NDArray[np.float64]) -> NDArray[np.float32]:
    """Sums of vectors at length 1."""
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    if not (norms > 0).all():
        raise ValueError(f"the vectors of {int((norms == 0).sum())} classes or queries cancel each other out")
    return np.asarray(sums / norms, dtype=np.float32)
