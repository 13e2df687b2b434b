"""Task builders: a corpus as queries, galleries and relevant items, or as small sets, for each protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.schema import JUDGED
from capim.store.types import Modality
from capim.store.vectors import offsets_of, positions_within
from capim.tasks.corpora.subset import first_linked
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.layout import FIVE, CorpusLayout, ords_of

# --- The task that a protocol sets on a corpus: queries, galleries and relevant items, or small sets to choose in.


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
        prompts: Where captions are prompts of classes: the first prompt of a class, which stands for it among queries
            or items, -> int32 ords of all its prompts, whose mean is its vector. Else None.
    """

    protocol: Protocol
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
    prompts: Mapping[int, NDArray[np.int32]] | None = None

    def __post_init__(self) -> None:
        name = f"protocol {self.protocol.id!r}"
        if not len(self.queries):
            raise ValueError(f"{name}: no query has a relevant item")
        if not all(map(len, self.galleries)):
            raise ValueError(f"{name}: a gallery is empty")
        if self.n_relevant.min() < 1:
            raise ValueError(f"{name}: query {int(np.argmin(self.n_relevant))} has no relevant item")

    @property
    def n_relevant(self) -> NDArray[np.int64]:
        """Relevant items per query, shape ``(n_queries,)``."""
        return np.diff(self.offsets)

    @property
    def n_gallery(self) -> NDArray[np.int32]:
        """Items in the gallery of every query, shape ``(n_queries,)``; a query is none of its own."""
        sizes = [len(gallery) - self.among_queries for gallery in self.galleries]
        return np.array(sizes, dtype=np.int32)[self.gallery_of]

    @property
    def among_queries(self) -> bool:
        """Whether the queries are items of the gallery themselves."""
        return self.protocol.direction == "i2i"

    @property
    def is_apart(self) -> bool:
        """Whether it is no search of captions and images by each other, as they are stored."""
        several = any(len(ords) > 1 for ords in (self.prompts or {}).values())
        return self.among_queries or several

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
        of_query, of_items = self.protocol.sides
        found = [*([self.queries] if modality == of_query else []), *(self.galleries if modality == of_items else [])]
        if modality == "caption" and self.prompts is not None:
            found += self.prompts.values()
        return max((int(ords.max()) for ords in found), default=-1)


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

    protocol: Protocol
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
    """What :class:`tasks.ranking.outcomes.Outcomes` take over from their task, without any score."""
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


Together: TypeAlias = Literal["id", "caption_id", "negative_id"]


def captions_to_images(
    layout: CorpusLayout,
    protocol: Protocol,
    *,
    part: tuple[str, str] | None = None,
    below: int | None = None,
    folds: int = 1,
) -> RetrievalTask:
    """Captions search images; the one that a caption describes is relevant.

    Args:
        part: Only captions of this language and translator; the corpus' main part by default.
        below: Only captions with a smaller ordinal.
        folds: Number of equal runs of images, in corpus order, that queries and galleries are split into.
    """
    queries = _captions(layout, part, below)
    image = layout.caption_images[queries]
    galleries = tuple(np.array_split(np.arange(layout.n_images, dtype=np.int32), folds))
    gallery_of = _fold_of(image, galleries)
    return RetrievalTask(
        protocol=protocol,
        query_ids=layout.caption_ids[queries],
        queries=queries,
        clusters=image,
        galleries=galleries,
        gallery_of=gallery_of,
        offsets=np.arange(len(queries) + 1, dtype=np.int64),
        relevant=image,
        weights=_equal_groups(gallery_of),
    )


def images_to_captions(
    layout: CorpusLayout,
    protocol: Protocol,
    *,
    part: tuple[str, str] | None = None,
    below: int | None = None,
    folds: int = 1,
) -> RetrievalTask:
    """Images search captions; an image's own captions are relevant. Arguments as for :func:`captions_to_images`."""
    captions = _captions(layout, part, below)
    image_of = layout.caption_images[captions]
    queries, counts = np.unique(image_of, return_counts=True)
    images = tuple(np.array_split(np.arange(layout.n_images, dtype=np.int32), folds))
    fold_of_caption = _fold_of(image_of, images)
    gallery_of = _fold_of(queries, images)
    return RetrievalTask(
        protocol=protocol,
        query_ids=layout.image_ids[queries],
        queries=queries,
        clusters=queries,
        galleries=tuple(captions[fold_of_caption == fold] for fold in range(folds)),
        gallery_of=gallery_of,
        offsets=offsets_of(counts),
        relevant=captions[np.argsort(image_of, kind="stable")],
        weights=_equal_groups(gallery_of),
    )


def images_to_each_ordinal(layout: CorpusLayout, protocol: Protocol) -> RetrievalTask:
    """Every image searches caption 0 of every image, then caption 1, … 4: five queries per image."""
    galleries = tuple(layout.captions[layout.ordinals[layout.captions] == ordinal] for ordinal in range(FIVE))
    relevant = [captions[np.argsort(layout.caption_images[captions], kind="stable")] for captions in galleries]
    queries = layout.caption_images[np.concatenate(relevant)]
    gallery_of = np.repeat(np.arange(FIVE, dtype=np.int32), [len(captions) for captions in galleries])
    return RetrievalTask(
        protocol=protocol,
        query_ids=layout.image_ids[queries] + np.array([f"#{ordinal}" for ordinal in range(FIVE)], object)[gallery_of],
        queries=queries,
        clusters=queries,
        galleries=galleries,
        gallery_of=gallery_of,
        offsets=np.arange(len(queries) + 1, dtype=np.int64),
        relevant=np.concatenate(relevant),
        weights=np.ones(len(queries)),
    )


def ground_truth(layout: CorpusLayout, protocol: Protocol, *, name: str, below: int | None = None) -> RetrievalTask:
    """Relevant items from an extra ground truth of the corpus; only queries with at least one.

    Captions search every image. Images search every caption, or with ``below`` those with a smaller ordinal and those
    that the ground truth names: a caption that nobody judged can then not be counted as wrong.
    """
    corpus = layout.corpus
    own = (pc.field("ground_truth") == name) & (pc.field("direction") == protocol.direction)
    judgements = corpus.relevance.filter(own)
    to_images = protocol.direction == "t2i"
    queried, searched = (corpus.captions, corpus.images) if to_images else (corpus.images, corpus.captions)
    sides = ords_of(judgements["query_id"], queried), ords_of(judgements["item_id"], searched)
    links = np.unique(np.stack(sides, axis=1), axis=0)
    queries, counts = np.unique(links[:, 0], return_counts=True)
    known = np.arange(layout.n_images, dtype=np.int32) if to_images else layout.captions
    stray = np.setdiff1d(links[:, 1], known)
    if stray.size:
        raise ValueError(
            f"protocol {protocol.id!r}: {stray.size} relevant items are outside the gallery, first ord {int(stray[0])}"
        )
    gallery = known if to_images else np.union1d(_captions(layout, None, below), links[:, 1])
    return RetrievalTask(
        protocol=protocol,
        query_ids=(layout.caption_ids if to_images else layout.image_ids)[queries],
        queries=queries,
        clusters=layout.caption_images[queries] if to_images else queries,
        galleries=(gallery,),
        gallery_of=np.zeros(len(queries), dtype=np.int32),
        offsets=offsets_of(counts),
        relevant=np.ascontiguousarray(links[:, 1]),
        weights=np.ones(len(queries)),
    )


def judged(layout: CorpusLayout, protocol: Protocol, *, language: str | None = None) -> RetrievalTask:
    """Queries search all documents, with graded judgements; only queries with a relevant document.

    A document with a grade above 0 is relevant, as trec_eval and mteb have it; a document that nobody judged is not.
    Queries of one group are one cluster, named by its first query; a query without a group is one of its own.

    Args:
        language: Only queries in this language; all by default.
    """
    corpus = layout.corpus
    rows = corpus.relevance.filter(pc.field("ground_truth") == JUDGED)
    captions, documents = ords_of(rows["query_id"], corpus.captions), ords_of(rows["item_id"], corpus.images)
    grades = np.ascontiguousarray(rows["grade"].to_numpy(), dtype=np.int32)
    if language is not None:
        chosen = pc.equal(corpus.captions["language"], pa.scalar(language)).to_numpy()[captions]
        captions, documents, grades = captions[chosen], documents[chosen], grades[chosen]
    order = np.lexsort((documents, captions))
    captions, documents, grades = captions[order], documents[order], grades[order]
    positive = grades > 0
    queries, counts = np.unique(captions[positive], return_counts=True)
    others = ~positive & np.isin(captions, queries)
    return RetrievalTask(
        protocol=protocol,
        query_ids=layout.caption_ids[queries],
        queries=queries,
        clusters=first_linked(corpus.captions["query_group"].to_pylist())[queries],
        galleries=(np.arange(layout.n_images, dtype=np.int32),),
        gallery_of=np.zeros(len(queries), dtype=np.int32),
        offsets=offsets_of(counts),
        relevant=documents[positive],
        weights=np.ones(len(queries)),
        grades=grades[positive],
        dismissed=np.stack([np.searchsorted(queries, captions[others]), documents[others].astype(np.int64)], axis=1),
    )


def classes(layout: CorpusLayout, protocol: Protocol, *, balanced: bool = False) -> RetrievalTask:
    """Images search the classes of a labelled corpus, or classes the images; a class has the ord of its first prompt.

    The order of both is that of the corpus. ``balanced``: every class weighs the same, by the label of the images.

    Raises:
        ValueError: ``balanced``, and an image has several labels.
    """
    images, firsts = _labels(layout)
    to_images = protocol.direction == "t2i"
    prompts = _prompts(layout)
    sides = (firsts, images) if to_images else (images, firsts)
    order = np.lexsort(sides[::-1])
    asked, relevant = sides[0][order], sides[1][order]
    queries, counts = np.unique(asked, return_counts=True)
    if balanced and counts.max() > 1:
        raise ValueError(f"protocol {protocol.id!r}: an image has several labels")
    gallery = np.arange(layout.n_images, dtype=np.int32) if to_images else np.array(sorted(prompts), dtype=np.int32)
    return RetrievalTask(
        protocol=protocol,
        query_ids=(layout.caption_ids if to_images else layout.image_ids)[queries],
        queries=queries,
        clusters=queries,
        galleries=(gallery,),
        gallery_of=np.zeros(len(queries), dtype=np.int32),
        offsets=offsets_of(counts),
        relevant=relevant,
        weights=_equal_groups(relevant) if balanced else np.ones(len(queries)),
        grades=np.ones(len(relevant), dtype=np.int32) if to_images else None,
        prompts=prompts,
    )


def sharing_labels(layout: CorpusLayout, protocol: Protocol) -> RetrievalTask:
    """Images search all others; those are relevant that share a label with them. Only images that share one."""
    images, firsts = _labels(layout)
    members: dict[int, list[int]] = {}
    labels: dict[int, list[int]] = {}
    for image, first in zip(images.tolist(), firsts.tolist(), strict=True):
        members.setdefault(first, []).append(image)
        labels.setdefault(image, []).append(first)
    relevant = {image: sorted({o for of in labels[image] for o in members[of]} - {image}) for image in sorted(labels)}
    queries = np.array([image for image, others in relevant.items() if others], dtype=np.int32)
    counts = [len(relevant[image]) for image in queries.tolist()]
    return RetrievalTask(
        protocol=protocol,
        query_ids=layout.image_ids[queries],
        queries=queries,
        clusters=queries,
        galleries=(np.arange(layout.n_images, dtype=np.int32),),
        gallery_of=np.zeros(len(queries), dtype=np.int32),
        offsets=offsets_of(np.array(counts, dtype=np.int64)),
        relevant=np.array([other for image in queries.tolist() for other in relevant[image]], dtype=np.int32),
        weights=np.ones(len(queries)),
    )


def _labels(layout: CorpusLayout) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The image of every label that an image has, and the first prompt of the class, as ords."""
    rows, corpus = layout.labels, layout.corpus
    return ords_of(rows["query_id"], corpus.images), ords_of(rows["item_id"], corpus.captions)


def _prompts(layout: CorpusLayout) -> dict[int, NDArray[np.int32]]:
    """First prompt -> all prompts of the class: captions of one group that describe no image."""
    groups: list[str | None] = layout.corpus.captions["query_group"].to_pylist()
    found: dict[str, list[int]] = {}
    for ord_ in np.flatnonzero(layout.caption_images < 0).tolist():
        if (group := groups[ord_]) is not None:
            found.setdefault(group, []).append(ord_)
    return {ords[0]: np.array(ords, dtype=np.int32) for ords in found.values()}


def quadruples(layout: CorpusLayout, protocol: Protocol, *, tag: str | None = None) -> ChoiceTask:
    """Winoground's form: captions 0 and 1, images 0 and 1, all four scores; only examples with the tag, if given.

    Quadruples that share a photograph (BiVLC) are one cluster, named by the first of them.
    """
    table = layout.corpus.quadruples
    own = np.arange(table.num_rows, dtype=np.int32)
    shown = (layout.photographs[ords_of(table[side], layout.corpus.images)] for side in ("image_0", "image_1"))
    both_sides = np.concatenate(list(shown)).tolist()
    clusters = first_linked(both_sides, [*own.tolist(), *own.tolist()])  # rows linked by a photograph on either side
    if tag is not None:
        tags_of: list[Any] = table["tags"].to_pylist()
        own = np.array([row for row, tags in enumerate(tags_of) if tag in tags], dtype=np.int32)
        table = table.take(own)
    images = [ords_of(table[column], layout.corpus.images) for column in ("image_0", "image_1")]
    captions = [ords_of(table[column], layout.corpus.captions) for column in ("caption_0", "caption_1")]
    return ChoiceTask(
        protocol=protocol,
        query_ids=np.asarray(table["id"].to_pylist(), dtype=object),
        queries=own,
        clusters=clusters[own],
        images=np.stack(images, axis=1),
        captions=np.stack(captions, axis=1),
        weights=np.ones(len(own)),
    )


def pairs(
    layout: CorpusLayout,
    protocol: Protocol,
    *,
    categories: Sequence[str],
    together: Together = "id",
    macro: bool = True,
) -> ChoiceTask:
    """Right captions against hard negatives, for one image: the pairs of some categories, alone or joined to sets.

    All sets of one photograph, or of boxes of it (ARO, CREPE), are one cluster.

    Args:
        categories: Only pairs of these categories; a set has the category of its first pair.
        together: The column in which the pairs of a set agree, beside the image: ``id`` makes a set of every pair
            (SugarCrepe), ``caption_id`` compares a caption with all its negatives at once (ARO's orders, CREPE,
            NegBench), ``negative_id`` a negative with all right captions (SugarCrepe++). The first pair names a set.
        macro: Every category weighs the same; else every set does.

    Raises:
        ValueError: Sets have different numbers of right captions.
    """
    table = layout.corpus.pairs
    category_of = np.asarray(table["category"].to_pylist(), dtype=str)
    rows = np.flatnonzero(np.isin(category_of, list(categories))).astype(np.int32)
    table = table.take(rows)
    images = ords_of(table["image_id"], layout.corpus.images)
    captions, negatives = (ords_of(table[side], layout.corpus.captions) for side in ("caption_id", "negative_id"))
    first, set_of = _sets(images, {"id": rows, "caption_id": captions, "negative_id": negatives}[together])
    if together == "negative_id":
        right, wrong = _side_by_side(captions, set_of), negatives[first][:, None]
    else:
        right, wrong = captions[first][:, None], _side_by_side(negatives, set_of)
    if (right < 0).any():
        raise ValueError(f"protocol {protocol.id!r}: its sets have different numbers of right captions")
    return ChoiceTask(
        protocol=protocol,
        query_ids=np.asarray(table["id"].to_pylist(), dtype=object)[first],
        queries=rows[first],
        clusters=layout.photographs[images[first]],
        images=images[first][:, None],
        captions=np.concatenate([right, wrong], axis=1),
        n_right=right.shape[1],
        weights=_equal_groups(category_of[rows][first]) if macro else np.ones(len(first)),
    )


def _sets(images: NDArray[np.int32], others: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each set of rows that agree in both columns, ascending; and the set of every row."""
    _, first, set_of = np.unique(np.stack([images, others], axis=1), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[set_of]


def _side_by_side(ords: NDArray[np.int32], set_of: NDArray[np.int64]) -> NDArray[np.int32]:
    """The ords of each set in one row, in their order; -1 where a set has fewer than the largest."""
    order, counts = np.argsort(set_of, kind="stable"), np.bincount(set_of)
    rows = np.full((len(counts), int(counts.max())), -1, dtype=np.int32)
    rows[set_of[order], positions_within(counts)] = ords[order]
    return rows


def _captions(layout: CorpusLayout, part: tuple[str, str] | None, below: int | None) -> NDArray[np.int32]:
    captions = layout.captions if part is None else layout.parts[part]
    return captions if below is None else captions[layout.ordinals[captions] < below]


def _fold_of(images: NDArray[np.int32], folds: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    ends = np.cumsum([len(fold) for fold in folds])
    return np.searchsorted(ends, images, side="right").astype(np.int32)


def _equal_groups(group_of: NDArray[np.int32] | NDArray[np.str_]) -> NDArray[np.float64]:
    """Weights, mean 1, that give every group the same total weight, whatever its size."""
    _, code, counts = np.unique(group_of, return_inverse=True, return_counts=True)
    return len(group_of) / (len(counts) * counts[code])
