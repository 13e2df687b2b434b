"""Task builders: a corpus as queries, galleries and relevant items, or as small sets, for each protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.schema import COMPOSED, EXCLUDED, JUDGED, REVISITED, SIMILARITY, SUBSET
from capim.store.vectors import offsets_of, positions_within
from capim.tasks.corpora.subset import first_linked
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.layout import FIVE, CorpusLayout, IndexSpace, ords_of

FOLDS = 5

# --- The task of a protocol on a corpus: queries, galleries and relevant items, or small sets to choose in.


@dataclass(frozen=True, kw_only=True, eq=False)
class RetrievalTask:
    """Queries, galleries and the relevant items of every query.

    Queries are numbered by the rows of one matrix of vectors and items by the rows of another one, from 0.

    Attributes:
        protocol: Its direction determines whether queries and items are captions or images.
        query_space: Meaning of the rows of the queries.
        item_space: Meaning of the rows of the items; in the order of the corpus.
        query_ids: object (str), shape ``(n_queries,)``; unique.
        queries: int32 rows, shape ``(n_queries,)``; an item may be a query several times, in different galleries.
        clusters: int32, shape ``(n_queries,)``: ord of the query's image; for judged documents, of the first caption of
            the query's group.
        galleries: int32 rows, ascending, without repetition; most protocols have one, folds have one each.
        gallery_of: int32, shape ``(n_queries,)``: index of the gallery that a query searches.
        offsets: int64, shape ``(n_queries + 1,)``.
        relevant: int32 rows: query ``q`` has the relevant items ``relevant[offsets[q]:offsets[q + 1]]``, at least one,
            all of them in its gallery.
        weights: float64, shape ``(n_queries,)``, mean 1: weight of a query in a mean.
        grades: int32, at least 1, one per entry of ``relevant``, for judged documents; else None.
        dismissed: int64, shape ``(n, 2)``: pairs of a query (by its position in the task) and an item (by its row) that
            was judged not relevant to it, for judged documents; else None.
        excluded: int64, shape ``(n, 2)``, sorted: pairs of a query (by its position in the task) and an item of its
            gallery that is left out of its search: itself, or one that is neither right nor wrong. None: none is.
    """

    protocol: Protocol
    query_space: IndexSpace
    item_space: IndexSpace
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
    excluded: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        name = f"protocol {self.protocol.id!r}"
        if not len(self.queries):
            raise ValueError(f"{name}: no query has a relevant item")
        if not all(map(len, self.galleries)):
            raise ValueError(f"{name}: a gallery is empty")
        if self.n_relevant.min() < 1:
            raise ValueError(f"{name}: query {int(np.argmin(self.n_relevant))} has no relevant item")

    @property
    def query_ords(self) -> NDArray[np.int32]:
        """The ord of each query in the corpus, shape ``(n_queries,)``."""
        return self.query_space.ords_of(self.queries)

    @property
    def relevant_ords(self) -> NDArray[np.int32]:
        """The ord of each relevant item in the corpus, in the order of ``relevant``."""
        return self.item_space.ords_of(self.relevant)

    @property
    def n_relevant(self) -> NDArray[np.int64]:
        """Relevant items per query, shape ``(n_queries,)``."""
        return np.diff(self.offsets)

    @property
    def n_gallery(self) -> NDArray[np.int32]:
        """Number of items in the gallery of every query, without excluded ones; shape ``(n_queries,)``."""
        sizes = np.array([len(gallery) for gallery in self.galleries])[self.gallery_of]
        if self.excluded is not None:
            sizes = sizes - np.bincount(self.excluded[:, 0], minlength=len(sizes))
        return sizes.astype(np.int32)

    @property
    def searched(self) -> NDArray[np.int32]:
        """The rows of all items that are in a gallery, ascending."""
        return np.unique(np.concatenate(self.galleries))

    @property
    def query_of_relevant(self) -> NDArray[np.int64]:
        """Return the query of each entry of ``relevant``, same shape."""
        return np.repeat(np.arange(len(self.queries)), self.n_relevant)

    @property
    def spaces(self) -> tuple[IndexSpace, IndexSpace]:
        """Return the meaning of the rows and columns of its scores: image to text reads those of text to image."""
        both = self.query_space, self.item_space
        return both[::-1] if self.protocol.direction == "i2t" else both

    @property
    def n_needed(self) -> tuple[int, int]:
        """Return the least numbers of rows and columns of its scores."""
        both = int(self.queries.max()) + 1, max(int(gallery[-1]) for gallery in self.galleries) + 1
        return both[::-1] if self.protocol.direction == "i2t" else both

    @property
    def needs_one_vector(self) -> bool:
        """True if only encoders with one vector per item can score it."""
        return self.query_space.is_made or self.item_space.is_made or len({*self.protocol.sides}) == 1

    def of_queries(self, kept: NDArray[np.integer]) -> RetrievalTask:
        """Return the task of some of the queries, by their positions; galleries and weights stay."""
        counts = self.n_relevant[kept]
        entries = positions_within(counts) + np.repeat(self.offsets[:-1][kept], counts)
        place = np.full(len(self.queries), -1)
        place[kept] = np.arange(len(kept))

        def of_kept(pairs: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
            if pairs is None:
                return None
            found = np.stack([place[pairs[:, 0]], pairs[:, 1]], axis=1)
            return found[found[:, 0] >= 0]

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
            dismissed=of_kept(self.dismissed),
            excluded=of_kept(self.excluded),
        )

    def with_own_rows(self) -> RetrievalTask:
        """Return the task with index spaces that hold only its queries and the items of its galleries.

        The vectors of both spaces must be stored ones (not :attr:`IndexSpace.is_made`).
        """
        items, (asked, queries) = self.searched, np.unique(self.queries, return_inverse=True)

        def within(rows: NDArray[np.integer]) -> NDArray[np.int32]:
            return np.searchsorted(items, rows).astype(np.int32)

        def numbered(pairs: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
            return None if pairs is None else np.stack([pairs[:, 0], within(pairs[:, 1])], axis=1)

        return replace(
            self,
            query_space=replace(self.query_space, ords=self.query_space.ords_of(asked)),
            item_space=replace(self.item_space, ords=self.item_space.ords_of(items)),
            queries=queries.astype(np.int32),
            galleries=tuple(map(within, self.galleries)),
            relevant=within(self.relevant),
            dismissed=numbered(self.dismissed),
            excluded=numbered(self.excluded),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ChoiceTask:
    """Small fixed sets: every caption of a set is scored with every image of the set.

    Attributes:
        protocol: Direction ``quadruples`` (two captions, two images) or ``pairs`` (captions and negatives, one image).
        query_ids: object (str), shape ``(n_sets,)``.
        query_ords: int32, shape ``(n_sets,)``: position in the corpus' table of pairs or quadruples.
        clusters: int32, shape ``(n_sets,)``: ord of the first image that shows the same photograph (pairs), position of
            the first one that shares a photograph (quadruples).
        images: int32 ords, shape ``(n_sets, images per set)``.
        captions: int32 ords, shape ``(n_sets, captions per set)``. Quadruples: caption ``k`` describes image ``k``.
            Pairs: right captions, then negatives; -1 if a set has fewer negatives than the largest.
        weights: float64, shape ``(n_sets,)``, mean 1: weight of a set in a mean.
        n_right: Pairs: how many captions of a set describe its image; 1 except in SugarCrepe++.
    """

    protocol: Protocol
    query_ids: NDArray[np.object_]
    query_ords: NDArray[np.int32]
    clusters: NDArray[np.int32]
    images: NDArray[np.int32]
    captions: NDArray[np.int32]
    weights: NDArray[np.float64]
    n_right: int = 1

    @property
    def n_needed(self) -> tuple[int, int]:
        """Return the least numbers of captions and images that it needs, in corpus order."""
        return int(self.captions.max()) + 1, int(self.images.max()) + 1


ScoringTask: TypeAlias = RetrievalTask | ChoiceTask


def query_columns(task: ScoringTask) -> dict[str, Any]:
    """Return the arguments that :class:`tasks.ranking.outcomes.Outcomes` take from their task, without any score."""
    columns = {
        "protocol": task.protocol,
        "query_ids": task.query_ids,
        "query_ords": task.query_ords,
        "clusters": task.clusters,
        "weights": task.weights,
    }
    if isinstance(task, RetrievalTask):
        columns |= {"n_relevant": task.n_relevant.astype(np.int32), "n_gallery": task.n_gallery}
    return columns


def search(
    layout: CorpusLayout,
    protocol: Protocol,
    queries: NDArray[np.int32],
    items: NDArray[np.int32],
    *,
    gallery: NDArray[np.int32],
    clusters: NDArray[np.int32] | None = None,
    grades: NDArray[np.int32] | None = None,
    **more: Any,
) -> RetrievalTask:
    """Return the task of pairs of a query and a relevant item; every retrieval protocol is one.

    Args:
        protocol: Its ``sides`` determine whether queries and items are images or captions.
        queries: Ords, shape ``(n_pairs,)``, in any order; the queries of the task are in corpus order.
        items: Ords, same shape; none twice for a query.
        gallery: Ords of the searched items, ascending.
        clusters: Cluster of every query item of the corpus; by default the image that it is or describes.
        grades: Grades of the pairs, at least 1, for judged documents.
        more: Further attributes of the task.
    """
    order = np.lexsort((items, queries))
    query_ords, counts = np.unique(queries[order], return_counts=True)
    one, other = protocol.sides
    query_space, item_space = layout.space_of(one, query_ords), layout.space_of(other, gallery)
    if clusters is None:
        clusters = np.arange(layout.n_images, dtype=np.int32) if one == "image" else layout.caption_images
    return RetrievalTask(
        protocol=protocol,
        query_space=query_space,
        item_space=item_space,
        query_ids=(layout.image_ids if one == "image" else layout.caption_ids)[query_ords],
        queries=query_space.rows_of(query_ords),
        clusters=clusters[query_ords],
        galleries=(item_space.rows_of(gallery),),
        gallery_of=np.zeros(len(query_ords), dtype=np.int32),
        offsets=offsets_of(counts),
        relevant=item_space.rows_of(np.ascontiguousarray(items[order])),
        grades=None if grades is None else grades[order],
        **{"weights": np.ones(len(query_ords)), **more},
    )


def side_by_side(tasks: Sequence[RetrievalTask]) -> RetrievalTask:
    """Return the queries of several tasks, each in its own gallery; every gallery has the same weight."""
    counts = [len(task.queries) for task in tasks]
    gallery_of = np.repeat(np.arange(len(tasks), dtype=np.int32), counts)
    names = ("query_ids", "queries", "clusters", "relevant")
    joined: dict[str, Any] = {name: np.concatenate([getattr(task, name) for task in tasks]) for name in names}
    return replace(
        tasks[0],
        **joined,
        galleries=tuple(task.galleries[0] for task in tasks),
        gallery_of=gallery_of,
        offsets=offsets_of(np.concatenate([task.n_relevant for task in tasks])),
        weights=_equal_groups(gallery_of),
    )


def own_items(
    layout: CorpusLayout,
    protocol: Protocol,
    *,
    below: int | None = None,
    captions: NDArray[np.int32] | None = None,
    images: NDArray[np.int32] | None = None,
) -> RetrievalTask:
    """Return the task of captions that search images, or images captions; the image of a caption is relevant.

    Args:
        below: Only captions with a smaller ordinal.
        captions: Only these captions, instead.
        images: Gallery of captions; all images by default.
    """
    captions = _captions(layout, protocol, below) if captions is None else captions
    described = layout.caption_images[captions]
    if protocol.direction == "i2t":
        return search(layout, protocol, described, captions, gallery=captions)
    gallery = np.arange(layout.n_images, dtype=np.int32) if images is None else images
    return search(layout, protocol, captions, described, gallery=gallery)


def in_folds(layout: CorpusLayout, protocol: Protocol) -> RetrievalTask:
    """Return :func:`own_items` of captions 0 to 4 within five equal runs of the images, in corpus order."""
    captions = _captions(layout, protocol, FIVE)
    described = layout.caption_images[captions]
    runs = np.array_split(np.arange(layout.n_images, dtype=np.int32), FOLDS)
    inside = [captions[(described >= run[0]) & (described <= run[-1])] for run in runs]
    pairs = zip(inside, runs, strict=True)
    return side_by_side([own_items(layout, protocol, captions=some, images=run) for some, run in pairs])


def images_to_each_ordinal(layout: CorpusLayout, protocol: Protocol) -> RetrievalTask:
    """Return the task in which each image searches caption 0 of every image, then caption 1, … 4: five queries each."""
    ordinals = [layout.captions[layout.ordinals[layout.captions] == ordinal] for ordinal in range(FIVE)]
    task = side_by_side([own_items(layout, protocol, captions=captions) for captions in ordinals])
    return replace(task, query_ids=task.query_ids + np.array([f"#{k}" for k in range(FIVE)], object)[task.gallery_of])


def ground_truth(layout: CorpusLayout, protocol: Protocol, *, below: int | None = None) -> RetrievalTask:
    """Return a task with relevant items from the ground truth that the protocol names; only queries with at least one.

    Captions search every image. Images search every caption, or with ``below`` those with a smaller ordinal and those
    in the ground truth: an unjudged caption can then not be counted as wrong.
    """
    links, _ = judgements(layout, protocol.name, protocol)
    to_images = protocol.direction == "t2i"
    known = np.arange(layout.n_images, dtype=np.int32) if to_images else layout.captions
    stray = np.setdiff1d(links[:, 1], known)
    if stray.size:
        raise ValueError(
            f"protocol {protocol.id!r}: {stray.size} relevant items are outside the gallery, first ord {int(stray[0])}"
        )
    gallery = known if to_images else np.union1d(_captions(layout, protocol, below), links[:, 1])
    return search(layout, protocol, *links.T, gallery=gallery)


def judgements(layout: CorpusLayout, name: str, protocol: Protocol) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return a ground truth's distinct rows in a direction: ords of query and item, shape ``(n, 2)``, and grades."""
    corpus = layout.corpus
    own = (pc.field("ground_truth") == name) & (pc.field("direction") == protocol.direction)
    rows = corpus.relevance.filter(own)
    queried, searched = (corpus.images if side == "image" else corpus.captions for side in protocol.sides)
    links = np.stack([ords_of(rows["query_id"], queried), ords_of(rows["item_id"], searched)], axis=1)
    links, first = np.unique(links, axis=0, return_index=True)
    return links, np.ascontiguousarray(rows["grade"].to_numpy()[first], dtype=np.int32)


def judged(layout: CorpusLayout, protocol: Protocol) -> RetrievalTask:
    """Return the task of queries, all or those of the protocol's language, that search all documents.

    A document with a grade above 0 is relevant, as in trec_eval and mteb; an unjudged document is not. Queries without
    a relevant document are left out. Queries of one group are one cluster, named by its first query; a query without a
    group is a cluster of its own.
    """
    captions = layout.corpus.captions
    links, grades = judgements(layout, JUDGED, protocol)
    if protocol.language:
        chosen = pc.equal(captions["language"], pa.scalar(protocol.language)).to_numpy()[links[:, 0]]
        links, grades = links[chosen], grades[chosen]
    right, queries = grades > 0, np.unique(links[grades > 0, 0])
    others = links[~right & np.isin(links[:, 0], queries)].astype(np.int64)
    return search(
        layout,
        protocol,
        *links[right].T,
        gallery=np.arange(layout.n_images, dtype=np.int32),
        clusters=first_linked(captions["query_group"].to_pylist()),
        grades=grades[right],
        dismissed=np.stack([np.searchsorted(queries, others[:, 0]), others[:, 1]], axis=1),
    )


def classes(layout: CorpusLayout, protocol: Protocol, *, balanced: bool = False) -> RetrievalTask:
    """Return a task of images that search classes, or classes images; a class has the ord of its first prompt.

    Both are in corpus order. ``balanced``: every class has the same weight, by the label of the images.
    """
    images, firsts = _labels(layout)
    prompts = _prompts(layout)
    if protocol.direction == "t2i":
        everything = np.arange(layout.n_images, dtype=np.int32)
        own = np.arange(len(layout.caption_images), dtype=np.int32)  # prompts describe no image: a class is a cluster
        more: dict[str, Any] = {"gallery": everything, "clusters": own, "grades": np.ones(len(images), dtype=np.int32)}
        task = search(layout, protocol, firsts, images, **more)
    else:
        task = search(layout, protocol, images, firsts, gallery=np.array(sorted(prompts), dtype=np.int32))
        task = replace(task, weights=_equal_groups(task.relevant)) if balanced else task
    if all(len(ords) == 1 for ords in prompts.values()):
        return task
    task = task.with_own_rows()
    if protocol.direction == "t2i":
        of_rows = [prompts[first] for first in task.query_ords.tolist()]
        return replace(task, query_space=replace(task.query_space, prompts=of_rows))
    of_rows = [prompts[first] for first in task.item_space.ords_of(task.searched).tolist()]
    return replace(task, item_space=replace(task.item_space, prompts=of_rows))


def sharing_labels(layout: CorpusLayout, protocol: Protocol) -> RetrievalTask:
    """Return a task of images that search all others; those that share a label are relevant, one or more."""
    return among_others(layout, protocol, *_labels(layout))


def sharing_images(layout: CorpusLayout, protocol: Protocol) -> RetrievalTask:
    """Return a task of captions that search all others; those of the same image are relevant, one or more."""
    captions = layout.captions
    return among_others(layout, protocol, captions, layout.caption_images[captions], gallery=captions)


def among_others(
    layout: CorpusLayout,
    protocol: Protocol,
    items: NDArray[np.int32],
    groups: NDArray[np.int32],
    *,
    gallery: NDArray[np.int32] | None = None,
) -> RetrievalTask:
    """Return a task of items that search all others of their kind; those that share a group are relevant.

    Args:
        items: Ords of images or captions, one for each group of an item.
        groups: The groups, same shape.
        gallery: Ords of all searched items; all images by default.
    """
    by_group = np.split(items[np.argsort(groups, kind="stable")], np.cumsum(np.unique(groups, return_counts=True)[1]))
    pairs = np.unique(np.concatenate([((of[:, None].astype(np.int64) << 32) | of).ravel() for of in by_group]))
    queries, others = (pairs >> 32).astype(np.int32), (pairs & 0xFFFFFFFF).astype(np.int32)
    asks = queries != others
    gallery = np.arange(layout.n_images, dtype=np.int32) if gallery is None else gallery
    task = search(layout, protocol, queries[asks], others[asks], gallery=gallery)
    itself = np.stack([np.arange(len(task.queries)), task.item_space.rows_of(task.query_ords)], axis=1)
    return replace(task, excluded=itself).with_own_rows()


def landmarks(layout: CorpusLayout, protocol: Protocol, *, right: Sequence[int]) -> RetrievalTask:
    """Return the task of landmark images that search all images that are not queries; unclear images are left out.

    Easy, medium and hard as in Revisited Oxford and Paris (Radenović et al. 2018, section 3): ``right`` has the grades.
    An image that is neither right nor wrong is unclear.
    """
    links, grades = judgements(layout, REVISITED, protocol)
    is_right = np.isin(grades, right)
    gallery = np.setdiff1d(np.arange(layout.n_images, dtype=np.int32), links[:, 0])
    task = search(layout, protocol, *links[is_right].T, gallery=gallery)
    return replace(task, excluded=_within(task, links[~is_right])).with_own_rows()


def composed(
    layout: CorpusLayout, protocol: Protocol, *, text_weight: float = 0.5, in_subset: bool = False
) -> RetrievalTask:
    """Return the task of texts that change an image and search all images (CIRR, FashionIQ, CIRCO), or a hard subset.

    The image is named by the group of the text. Texts about one image are one cluster. With a weight of 1 no image is
    added to the vectors of the texts: vectors that a model fused are ranked unchanged.
    """
    groups = layout.corpus.captions["query_group"]
    references = pc.index_in(groups, value_set=layout.corpus.images["id"].combine_chunks()).fill_null(-1).to_numpy()
    links, _ = judgements(layout, COMPOSED, protocol)
    gallery = np.arange(layout.n_images, dtype=np.int32)
    task = search(layout, protocol, *links.T, gallery=gallery, clusters=references)
    if in_subset:
        members, _ = judgements(layout, SUBSET, protocol)
        task = task.of_queries(np.flatnonzero(np.isin(task.query_ords, members[:, 0])))
        own = [np.unique(members[members[:, 0] == query, 1]) for query in task.query_ords]
        task = replace(task, galleries=tuple(own), gallery_of=np.arange(len(own), dtype=np.int32))
    elif len(left_out := _within(task, judgements(layout, EXCLUDED, protocol)[0])):
        task = replace(task, excluded=left_out)
    task = task.with_own_rows()
    of_queries = references[task.query_ords].astype(np.int32)
    return replace(task, query_space=replace(task.query_space, references=of_queries, text_weight=text_weight))


def rated_pairs(layout: CorpusLayout, protocol: Protocol) -> RetrievalTask:
    """Return the task of image pairs with a rating: a query with one item each; its grade is the rating in thousandths.

    Pairs that share an image are one cluster.
    """
    links, grades = judgements(layout, SIMILARITY, protocol)
    one, other = np.ascontiguousarray(links.T)
    n, (items, relevant) = len(links), np.unique(other, return_inverse=True)
    return RetrievalTask(
        protocol=protocol,
        query_space=IndexSpace("image", one),
        item_space=IndexSpace("image", items),
        query_ids=layout.image_ids[one] + "|" + layout.image_ids[other],
        queries=np.arange(n, dtype=np.int32),
        clusters=one[first_linked(one.tolist() + other.tolist(), [*range(n), *range(n)])[:n]],
        galleries=tuple(relevant.astype(np.int32)[:, None]),
        gallery_of=np.arange(n, dtype=np.int32),
        offsets=np.arange(n + 1, dtype=np.int64),
        relevant=relevant.astype(np.int32),
        weights=np.ones(n),
        grades=grades - min(0, int(grades.min())) + 1,
    )


def _within(task: RetrievalTask, links: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return pairs of a query (its position in the task) and an item (its ord), for queries of the task only."""
    links = links[np.isin(links[:, 0], task.query_ords)]
    return np.stack([np.searchsorted(task.query_ords, links[:, 0]), links[:, 1].astype(np.int64)], axis=1)


def _labels(layout: CorpusLayout) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the image of every label of an image, and the first prompt of the class, as ords."""
    rows, corpus = layout.labels, layout.corpus
    return ords_of(rows["query_id"], corpus.images), ords_of(rows["item_id"], corpus.captions)


def _prompts(layout: CorpusLayout) -> dict[int, NDArray[np.int32]]:
    """Return first prompt -> all prompts of the class: captions of one group that describe no image."""
    groups = layout.corpus.captions["query_group"].combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy()
    prompts = np.flatnonzero((layout.caption_images < 0) & (groups >= 0)).astype(np.int32)
    in_groups = prompts[np.argsort(groups[prompts], kind="stable")]
    classes = np.split(in_groups, np.flatnonzero(np.diff(groups[in_groups])) + 1)
    return {int(ords[0]): ords for ords in classes if len(ords)}


Together: TypeAlias = Literal["id", "caption_id", "negative_id"]


def quadruples(layout: CorpusLayout, protocol: Protocol, *, tag: str | None = None) -> ChoiceTask:
    """Return Winoground's task: captions 0 and 1, images 0 and 1, all four scores; with ``tag``, only its examples.

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
        query_ords=own,
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
    """Return the task of right captions against hard negatives for one image: pairs of some categories, or sets.

    All sets of one photograph, or of boxes of it (ARO, CREPE), are one cluster.

    Args:
        categories: Only pairs of these categories; a set has the category of its first pair.
        together: The column in which the pairs of a set agree, next to the image: ``id`` makes a set of every pair
            (SugarCrepe), ``caption_id`` compares a caption with all its negatives at once (ARO's orders, CREPE,
            NegBench), ``negative_id`` a negative with all right captions (SugarCrepe++). The first pair names a set.
        macro: Every category weighs the same; else every set does.

    Raises:
        ValueError: If sets have different numbers of right captions.
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
        query_ords=rows[first],
        clusters=layout.photographs[images[first]],
        images=images[first][:, None],
        captions=np.concatenate([right, wrong], axis=1),
        n_right=right.shape[1],
        weights=_equal_groups(category_of[rows][first]) if macro else np.ones(len(first)),
    )


def _sets(images: NDArray[np.int32], others: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row of each set of rows that agree in both columns, ascending; and the set of every row."""
    _, first, set_of = np.unique(np.stack([images, others], axis=1), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[set_of]


def _side_by_side(ords: NDArray[np.int32], set_of: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the ords of each set in one row, in their order; -1 if a set has fewer than the largest."""
    order, counts = np.argsort(set_of, kind="stable"), np.bincount(set_of)
    rows = np.full((len(counts), int(counts.max())), -1, dtype=np.int32)
    rows[set_of[order], positions_within(counts)] = ords[order]
    return rows


def _captions(layout: CorpusLayout, protocol: Protocol, below: int | None) -> NDArray[np.int32]:
    captions = layout.parts[protocol.part] if protocol.translator else layout.captions
    return captions if below is None else captions[layout.ordinals[captions] < below]


def _equal_groups(group_of: NDArray[np.int32] | NDArray[np.str_]) -> NDArray[np.float64]:
    """Return weights, mean 1, that give every group the same total weight, whatever its size."""
    _, code, counts = np.unique(group_of, return_inverse=True, return_counts=True)
    return len(group_of) / (len(counts) * counts[code])
