"""The task that a protocol sets on a corpus: queries, galleries and relevant items, or small sets to choose in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.store.ragged import offsets_of, positions_within
from capim.store.types import EvalProtocol, Modality


@dataclass(frozen=True, kw_only=True, eq=False)
class RetrievalTask:
    """Queries, galleries and the relevant items of every query. All ords are positions in the corpus.

    Attributes:
        protocol: Its direction says what the ords mean: ``t2i`` queries are captions and the galleries hold images,
            ``i2t`` the other way round.
        query_ids: object (str), shape ``(n_queries,)``; unique.
        queries: int32, shape ``(n_queries,)``; an item may be a query several times, in different galleries.
        clusters: int32, shape ``(n_queries,)``: ord of the image that the query belongs to; of judged documents, of the
            first caption of the query's group.
        galleries: int32 ords, ascending, without repetition; most protocols have one, folds have one each.
        gallery_of: int32, shape ``(n_queries,)``: which gallery a query searches.
        offsets: int64, shape ``(n_queries + 1,)``.
        relevant: int32: query ``q`` has the relevant items ``relevant[offsets[q]:offsets[q + 1]]``, at least one, all
            of them in its gallery.
        weights: float64, shape ``(n_queries,)``, mean 1: weight of a query in a mean.
        grades: int32, at least 1, one per entry of ``relevant``, where documents were judged; else None.
        dismissed: int64, shape ``(n, 2)``: pairs of a query (by its position in the task) and an item that was judged
            not relevant to it, where documents were judged; else None.
    """

    protocol: EvalProtocol
    query_ids: NDArray[np.object_]
    queries: NDArray[np.int32]
    clusters: NDArray[np.int32]
    galleries: tuple[NDArray[np.int32], ...]
    gallery_of: NDArray[np.int32]
    offsets: NDArray[np.int64]
    relevant: NDArray[np.int32]
    weights: NDArray[np.float64]
    grades: NDArray[np.int32] | None = None
    dismissed: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        name = f"protocol {self.protocol.id!r}"
        if not len(self.queries):
            raise ValueError(f"{name}: no query has a relevant item")
        if any(not len(gallery) for gallery in self.galleries):
            raise ValueError(f"{name}: a gallery is empty")
        if self.n_relevant.min() < 1:
            raise ValueError(f"{name}: query {int(np.argmin(self.n_relevant))} has no relevant item")

    @property
    def n_relevant(self) -> NDArray[np.int64]:
        """Relevant items per query, shape ``(n_queries,)``."""
        return np.diff(self.offsets)

    @property
    def n_gallery(self) -> NDArray[np.int32]:
        """Items in the gallery of every query, shape ``(n_queries,)``."""
        return np.array([len(gallery) for gallery in self.galleries], dtype=np.int32)[self.gallery_of]

    @property
    def query_of_relevant(self) -> NDArray[np.int64]:
        """Which query each entry of ``relevant`` belongs to, same shape."""
        return np.repeat(np.arange(len(self.queries)), self.n_relevant)

    def of_queries(self, kept: NDArray[np.intp]) -> RetrievalTask:
        """The task of some of the queries, by their positions; galleries and weights stay."""
        counts = self.n_relevant[kept]
        entries = positions_within(counts) + np.repeat(self.offsets[:-1][kept], counts)
        dismissed = self.dismissed
        if dismissed is not None:
            place = np.full(len(self.queries), -1)
            place[kept] = np.arange(len(kept))
            dismissed = np.stack([place[dismissed[:, 0]], dismissed[:, 1]], axis=1)
            dismissed = dismissed[dismissed[:, 0] >= 0]
        return replace(
            self,
            query_ids=self.query_ids[kept],
            queries=self.queries[kept],
            clusters=self.clusters[kept],
            gallery_of=self.gallery_of[kept],
            offsets=offsets_of(self.n_relevant[kept]),
            relevant=self.relevant[entries],
            weights=self.weights[kept],
            grades=None if self.grades is None else self.grades[entries],
            dismissed=dismissed,
        )

    def highest_ord(self, modality: Modality) -> int:
        """The highest ord among the task's images or captions."""
        is_query = (modality == "caption") == (self.protocol.direction == "t2i")
        return int((self.queries if is_query else np.concatenate(self.galleries)).max())


@dataclass(frozen=True, kw_only=True, eq=False)
class ChoiceTask:
    """Small fixed sets: every caption of a set is scored with every image of the set.

    Attributes:
        protocol: Direction ``quadruples`` (two captions, two images) or ``pairs`` (captions and negatives, one image).
        query_ids: object (str), shape ``(n_sets,)``.
        queries: int32, shape ``(n_sets,)``: position in the corpus' table of pairs or quadruples.
        clusters: int32, shape ``(n_sets,)``: ord of the first image that shows the same photograph (pairs), position of
            the first one that shares a photograph (quadruples).
        images: int32 ords, shape ``(n_sets, images per set)``.
        captions: int32 ords, shape ``(n_sets, captions per set)``. Quadruples: caption ``k`` belongs to image ``k``.
            Pairs: right captions, then negatives; -1 where a set has fewer negatives than the largest.
        weights: float64, shape ``(n_sets,)``, mean 1: weight of a set in a mean.
        n_right: Pairs: how many captions of a set describe its image; 1 except in SugarCrepe++.
    """

    protocol: EvalProtocol
    query_ids: NDArray[np.object_]
    queries: NDArray[np.int32]
    clusters: NDArray[np.int32]
    images: NDArray[np.int32]
    captions: NDArray[np.int32]
    weights: NDArray[np.float64]
    n_right: int = 1

    def highest_ord(self, modality: Modality) -> int:
        """The highest ord among the task's images or captions."""
        return int((self.images if modality == "image" else self.captions).max())


ScoringTask: TypeAlias = RetrievalTask | ChoiceTask


def query_columns(task: ScoringTask) -> dict[str, Any]:
    """What :class:`tasks.scoring.outcomes.Outcomes` take over from their task, without any score."""
    columns = {
        "protocol": task.protocol,
        "query_ids": task.query_ids,
        "query_ords": task.queries,
        "clusters": task.clusters,
        "weights": task.weights,
    }
    if isinstance(task, RetrievalTask):
        columns |= {"n_relevant": task.n_relevant.astype(np.int32), "n_gallery": task.n_gallery}
    return columns
