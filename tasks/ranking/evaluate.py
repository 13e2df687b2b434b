"""One encoder on one corpus: embeddings in, outcomes per protocol out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.store.vectors import Ragged
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.apart import apart_rows, score_apart, sides_of
from capim.tasks.ranking.cosine import VectorRows, dense_choices, dense_part, dense_score_rows, score_dense
from capim.tasks.ranking.languages import Part, Score, score_parts, scorings
from capim.tasks.ranking.layout import CorpusLayout, layout_of
from capim.tasks.ranking.maxsim import choices_of, maxsim_part, maxsim_score_rows, score_maxsim
from capim.tasks.ranking.maxsim_products import Blocks
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks
from capim.tasks.ranking.ranker import BidirectionalRanker, PartOutcomes
from capim.tasks.ranking.resources import ON_CPU, Advance, Resources, ignore
from capim.tasks.ranking.tasks import RetrievalTask, ScoringTask

MIXED = "images and captions must both be matrices (single), or both functions that yield blocks"


def evaluate(
    corpus: Corpus,
    protocols: Iterable[Protocol],
    *,
    images: VectorRows | Blocks,
    captions: VectorRows | Blocks,
    resources: Resources = ON_CPU,
    advance: Advance = ignore,
) -> dict[str, Outcomes]:
    """Outcomes of every protocol.

    Args:
        protocols: From :func:`tasks.ranking.protocols.select_protocols`.
        images: Single-vector encoders: float32 unit vectors in corpus order, shape ``(n_images, dim)``, in memory or
            read window by window. Multi-vector encoders: a function that yields the blocks at each call.
        captions: Likewise; of a corpus in several languages, one part is read at a time.
        advance: Gets the shares of the work as they are done, in this thread; together at most 1.

    Returns:
        Protocol id -> outcomes, in the order of ``protocols``. Where the corpus is in several languages, those of
        single-vector encoders hold the consistency with the reference language.

    Raises:
        RequestError: A protocol does not fit the corpus.
        ValueError: Embeddings that cannot be scored: their number, dimensions or values; an orientation for a
            single-vector encoder.
    """
    tasks, layout = build_tasks(corpus, protocols), layout_of(corpus)
    if callable(images) and callable(captions):
        return score_maxsim(images, captions, _for_multi_vectors(tasks), resources=resources, advance=advance)
    if callable(images) or callable(captions):
        raise TypeError(MIXED)
    if oriented := [task.protocol.id for task in tasks if task.protocol.orientation]:
        raise ValueError(f"{', '.join(oriented)}: only a multi-vector encoder has orientations")
    n_parts = len(_by_language(layout, _searches(tasks)))

    def score(_part: Part, vectors: VectorRows, of_part: Sequence[RetrievalTask]) -> dict[str, Outcomes]:
        return score_dense(
            images, vectors, of_part, resources=resources, advance=lambda share: advance(share / n_parts)
        )

    return _all_outcomes(layout, tasks, images, captions, score, resources)


def evaluate_part(
    corpus: Corpus,
    protocols: Iterable[Protocol],
    part: range,
    *,
    images: VectorRows | Blocks,
    captions: VectorRows | Blocks,
    resources: Resources = ON_CPU,
) -> dict[str, PartOutcomes]:
    """What a part of the images (ords) contributes to the retrieval protocols; other arguments as for `evaluate`."""
    tasks, layout = build_tasks(corpus, protocols), layout_of(corpus)
    if callable(images) and callable(captions):
        return maxsim_part(images, captions, tasks, part, resources=resources).part()
    if callable(images) or callable(captions):
        raise TypeError(MIXED)
    found: dict[str, PartOutcomes] = {}
    for language, of_language in _by_language(layout, _searches(tasks)).items():
        vectors = captions[layout.parts[language]] if any(language) else captions
        found |= dense_part(images, vectors, of_language, part, resources=resources).part()
    return found


def evaluate_merged(
    corpus: Corpus,
    protocols: Iterable[Protocol],
    parts: Iterable[Mapping[str, PartOutcomes]],
    *,
    images: VectorRows | Blocks,
    captions: VectorRows | Blocks,
    device: str = "cpu",
) -> dict[str, Outcomes]:
    """The outcomes that :func:`evaluate` gives, from :func:`evaluate_part` of all images, in any order."""
    tasks, layout = build_tasks(corpus, protocols), layout_of(corpus)
    whole = {("", ""): _searches(tasks)}
    merged = {
        part: BidirectionalRanker(some)
        for part, some in (whole if callable(captions) else _by_language(layout, _searches(tasks))).items()
    }
    for part in parts:
        for each in merged.values():
            each.merge(part)
    if callable(images) and callable(captions):
        choices = choices_of(images, captions, _for_multi_vectors(tasks), device=device)
        outcomes = merged["", ""].outcomes() | choices
        return {task.protocol.id: outcomes[task.protocol.id] for task in tasks}
    if callable(images) or callable(captions):
        raise TypeError(MIXED)
    return _all_outcomes(
        layout, tasks, images, captions, lambda part, *_: merged[part].outcomes(), Resources(device=device)
    )


def _all_outcomes(
    layout: CorpusLayout,
    tasks: Sequence[ScoringTask],
    images: VectorRows,
    captions: VectorRows,
    score: Score,
    resources: Resources,
) -> dict[str, Outcomes]:
    """Outcomes of every task of single vectors, in their order; ``score`` is for those of :func:`_searches`."""
    searches = _searches(tasks)
    if len(layout.parts) > 1:
        outcomes = score_parts(layout, searches, images[:], captions, score)
    else:
        outcomes = score(("", ""), captions, searches)
    outcomes |= dense_choices(images, captions, tasks)
    apart = [task for task in tasks if isinstance(task, RetrievalTask) and task.is_apart]
    outcomes |= score_apart(apart, images, captions, resources=resources)
    return {task.protocol.id: outcomes[task.protocol.id] for task in tasks}


def _by_language(layout: CorpusLayout, tasks: Sequence[RetrievalTask]) -> Mapping[Part, Sequence[RetrievalTask]]:
    """The tasks that are scored together: those of each language and translator, or all where there is one."""
    return scorings(layout, tasks) if len(layout.parts) > 1 else {("", ""): tasks}


def _searches(tasks: Iterable[ScoringTask]) -> list[RetrievalTask]:
    """The searches of captions and images by each other, as they are stored."""
    return [task for task in tasks if isinstance(task, RetrievalTask) and not task.is_apart]


def _for_multi_vectors(tasks: Sequence[ScoringTask]) -> Sequence[ScoringTask]:
    apart = [task.protocol.id for task in tasks if isinstance(task, RetrievalTask) and task.is_apart]
    if apart:
        raise ValueError(f"{', '.join(apart)}: only an encoder with one vector per item has classes of several prompts")
    return tasks


class ScoreBlock(NamedTuple):
    """Some queries of one protocol against one gallery.

    Attributes:
        rows: int64, shape ``(n_queries,)``: positions among the protocol's queries.
        scores: float32, shape ``(n_queries, n_items)``; higher is closer.
        relevant: bool, same shape.
        queries: int32 corpus ords of the queries.
        items: int32 corpus ords of the gallery.
    """

    protocol: Protocol
    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    relevant: NDArray[np.bool_]
    queries: NDArray[np.int32]
    items: NDArray[np.int32]


def score_blocks(
    images: VectorRows | Blocks, captions: VectorRows | Blocks, task: RetrievalTask, *, resources: Resources = ON_CPU
) -> Iterator[ScoreBlock]:
    """All queries of one protocol, block by block; every query comes once, with the scores that it was ranked by.

    Arguments as for :func:`tasks.ranking.evaluate.evaluate`: matrices of a single-vector encoder, or functions that
    yield the multi-vectors of a late-interaction encoder.
    """
    corpus_queries, ords_of_items = task.queries, None
    if callable(images) and callable(captions):
        _for_multi_vectors([task])
        task, of_captions = task.with_own_captions()
        if task.protocol.sides[1] == "caption":
            ords_of_items = of_captions
        rows_of_scores = maxsim_score_rows(images, captions, task, of_captions, resources=resources)
    elif callable(images) or callable(captions):
        raise TypeError(MIXED)
    elif task.is_apart:
        sides = sides_of(task, images, captions)
        task, ords_of_items = sides.task, sides.ords
        rows_of_scores = apart_rows(sides, resources)
    else:
        rows_of_scores = dense_score_rows(images[:], captions[:], task, resources=resources)
    for start, scores, _ in rows_of_scores:
        table = scores.cpu().numpy()
        inside = np.flatnonzero((task.queries >= start) & (task.queries < start + len(table)))
        for number in np.unique(task.gallery_of[inside]):
            rows = inside[task.gallery_of[inside] == number]
            gallery, queries = task.galleries[number], task.queries[rows]
            relevant = np.zeros((len(rows), len(gallery)), dtype=np.bool_)
            for marks, row in zip(relevant, rows, strict=True):
                marks[np.searchsorted(gallery, task.relevant[task.offsets[row] : task.offsets[row + 1]])] = True
            block_scores = table[queries - start][:, gallery]
            items = gallery if ords_of_items is None else ords_of_items[gallery]
            yield ScoreBlock(task.protocol, rows, block_scores, relevant, corpus_queries[rows], items)


TIMES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Side(NamedTuple):
    """The vectors of one set of images, and how many there are."""

    vectors: VectorRows | Blocks
    n: int


def by_gallery_size(
    own: Side,
    distractors: Sequence[Side],
    captions: VectorRows | Blocks,
    task: RetrievalTask,
    *,
    seed: int,
    resources: Resources = ON_CPU,
) -> Iterator[tuple[int, Outcomes]]:
    """The outcomes of a task whose captions search ``own``, then 2, 5, 10 … times as many images, then all.

    Each image is scored once: its scores add to the counts of the galleries that hold it. The distractors come in an
    order drawn with ``seed``, so that each gallery holds the smaller ones, and no rank improves from one to the next.

    Yields:
        The number of images added to the task's gallery, from 0, and the outcomes.
    """
    total = own.n + sum(side.n for side in distractors)
    rows = _VectorsOfSides([own, *distractors], np.random.default_rng(seed).permutation(total - own.n))
    added = np.arange(own.n, total, dtype=np.int32)
    whole = replace(task, galleries=tuple(np.concatenate([items, added]) for items in task.galleries))
    merged = BidirectionalRanker([whole])
    ends = [own.n * times for times in TIMES if own.n * times < total]
    for start, end in zip([0, *ends], [*ends, total], strict=True):
        if callable(captions):
            part = maxsim_part(rows.blocks, captions, [whole], range(start, end), resources=resources)
        else:
            part = dense_part(rows, captions, [whole], range(start, end), resources=resources)
        merged.merge(part.part())
        [outcomes] = deepcopy(merged.outcomes()).values()  # its lists are those that the next images are merged into
        yield end - own.n, replace(outcomes, n_gallery=(outcomes.n_gallery - (total - end)).astype(np.int32))


class _VectorsOfSides:
    """The vectors of several sides as one, the first in its order and the others in a drawn one."""

    dtype = np.dtype(np.float32)

    def __init__(self, sides: Sequence[Side], order: NDArray[np.int64]) -> None:
        self._sides = sides
        self._starts = np.cumsum([0, *(side.n for side in sides)])
        self._place = np.concatenate([np.arange(sides[0].n), sides[0].n + order])

    @property
    def shape(self) -> tuple[int, int]:
        first: Any = self._sides[0].vectors
        return len(self._place), int(first.shape[1])

    def __len__(self) -> int:
        return len(self._place)

    def __getitem__(self, rows: Any, /) -> NDArray[np.float32]:
        places = self._place[rows]
        found = np.empty((len(places), self.shape[1]), np.float32)
        for number, (side, start) in enumerate(zip(self._sides, self._starts[:-1], strict=True)):
            inside = np.flatnonzero((places >= start) & (places < self._starts[number + 1]))
            if len(inside) and not callable(side.vectors):
                found[inside] = side.vectors[places[inside] - start]
        return found

    def blocks(self, ords: NDArray[np.int32] | None = None) -> Iterator[Ragged]:
        """The multi-vectors of some items, in blocks of one side each."""
        wanted = np.arange(len(self), dtype=np.int32) if ords is None else ords
        side_of = np.searchsorted(self._starts, self._place[wanted], side="right") - 1
        for run in np.split(np.arange(len(wanted)), np.flatnonzero(np.diff(side_of)) + 1):
            vectors, start = self._sides[side_of[run[0]]].vectors, self._starts[side_of[run[0]]]
            if callable(vectors):
                done = 0
                for block in vectors((self._place[wanted[run]] - start).astype(np.int32)):
                    yield replace(block, ords=wanted[run][done : done + len(block)])
                    done += len(block)
