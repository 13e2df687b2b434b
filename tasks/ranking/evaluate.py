"""One encoder on one corpus: from embeddings to outcomes per protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.cosine import dense_choices, dense_part, dense_score_rows
from capim.tasks.ranking.languages import Part, ScoredPart, compared, part_of, reference_part, with_references
from capim.tasks.ranking.layout import CorpusLayout, IndexSpace, layout_of
from capim.tasks.ranking.maxsim import choices_of, maxsim_part, maxsim_score_rows
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks
from capim.tasks.ranking.ranker import PartOutcomes, Ranker
from capim.tasks.ranking.resources import ON_CPU, Advance, Resources, ignore
from capim.tasks.ranking.tasks import RetrievalTask, ScoringTask
from capim.tasks.ranking.vectors import Blocks, VectorRows, blocks_of, matrix_of

Spaces: TypeAlias = tuple[IndexSpace, IndexSpace]  # of the rows and of the columns of scores
Matrices: TypeAlias = tuple[Any, Any]  # the vectors of the columns and of the rows


@dataclass(frozen=True)
class Scoring:
    """The tasks of some protocols, and the vectors that they are scored by.

    Attributes:
        tasks: Tasks of the protocols, in their order.
        groups: The searches, and those of the reference language that they are compared with, by their index spaces.
        images: Matrices, or functions that yield blocks of multi-vectors; the same kind for both modalities.
    """

    layout: CorpusLayout
    tasks: Sequence[ScoringTask]
    groups: Mapping[Spaces, Sequence[RetrievalTask]]
    images: Any
    captions: Any
    resources: Resources

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        protocols: Iterable[Protocol],
        *,
        images: VectorRows | Blocks,
        captions: VectorRows | Blocks,
        resources: Resources = ON_CPU,
    ) -> Scoring:
        """Return the scoring of a corpus by one encoder.

        Args:
            protocols: From :func:`tasks.ranking.protocols.select_protocols`.
            images: Single-vector encoders: float32 unit vectors in corpus order, shape ``(n_images, dim)``, in memory
                or read window by window. Multi-vector encoders: a function that yields the blocks at each call.
            captions: The same for captions; in a corpus in several languages, one part is read at a time.

        Raises:
            RequestError: If a protocol does not fit the corpus.
            ValueError: If a single-vector encoder is given an orientation, or a multi-vector one a made vector.
        """
        tasks, layout = build_tasks(corpus, protocols), layout_of(corpus)
        if not _is_late(images, captions, tasks) and layout.part_spaces:
            images = cast("VectorRows", images)[:]
        groups: dict[Spaces, list[RetrievalTask]] = {}
        for task in with_references(layout, [task for task in tasks if isinstance(task, RetrievalTask)]):
            groups.setdefault(task.spaces, []).append(task)
        return cls(layout, tasks, groups, images, captions, resources)

    def outcomes(self, advance: Advance = ignore) -> dict[str, Outcomes]:
        """Return the outcomes of every protocol by its id, in their order.

        If the corpus is in several languages, they include the consistency with the reference language. ``advance`` is
        called with the fraction of the work just done, in this thread; the fractions add up to at most 1.

        Raises:
            ValueError: If embeddings cannot be scored because of their number, dimensions or values.
        """
        share = 1 / max(1, len(self.groups))
        how: Any = {"resources": self.resources, "advance": lambda done: advance(done * share)}
        return self._compared(lambda matrices, tasks: self._rank(*matrices, tasks, **how).outcomes())

    def part(self, part: range) -> dict[str, PartOutcomes]:
        """Return the contribution of a part of the images, by their ords, to the retrieval protocols.

        For tasks in which not all images are searched or are queries, it is an equal share of the columns of scores.
        """
        found: dict[str, PartOutcomes] = {}
        for spaces, tasks in self.groups.items():
            n_images, ords = self.layout.n_images, spaces[1].ords
            n = n_images if ords is None else len(ords)
            columns = range(part.start * n // n_images, part.stop * n // n_images)
            resources = self.resources
            matrices = self._matrices(spaces)
            ranker = self._rank(*matrices, tasks, columns, resources=resources) if columns else Ranker(tasks)
            found |= ranker.parts
        return found

    def merged(self, parts: Iterable[Mapping[str, PartOutcomes]]) -> dict[str, Outcomes]:
        """Return :meth:`outcomes` from :meth:`part` of all images, in any order."""
        merged = Ranker([task for tasks in self.groups.values() for task in tasks])
        for part in parts:
            merged.merge(part)
        found = merged.outcomes()
        return self._compared(lambda _, tasks: {task.protocol.id: found[task.protocol.id] for task in tasks})

    @property
    def _is_late(self) -> bool:
        return callable(self.images)

    @property
    def _rank(self) -> Callable[..., Ranker]:
        return maxsim_part if self._is_late else dense_part

    def _matrices(self, spaces: Spaces) -> Matrices:
        """Return the vectors of the columns and of the rows."""
        vectors_of: Any = blocks_of if self._is_late else matrix_of
        rows, columns = (vectors_of(space, self.images, self.captions) for space in spaces)
        return columns, rows

    def _compared(
        self, score: Callable[[Matrices, Sequence[RetrievalTask]], dict[str, Outcomes]]
    ) -> dict[str, Outcomes]:
        """Return the outcomes of every task, in their order; ``score`` computes those of the searches of one group."""
        found: dict[str, Outcomes] = {}
        references: dict[Part, ScoredPart] = {}
        device = self.resources.device
        for spaces, tasks in self.groups.items():
            columns, rows = self._matrices(spaces)
            scored = ScoredPart(rows, score((columns, rows), tasks))
            part = part_of(self.layout, tasks[0])
            if part is not None and part == reference_part(self.layout, part):
                references[part] = scored
            for task in tasks:
                found[task.protocol.id] = compared(self.layout, task, scored, references, columns, device)
        if self._is_late:
            found |= choices_of(self.images, self.captions, self.tasks, device=device)
        else:
            found |= dense_choices(self.images, self.captions, self.tasks)
        return {task.protocol.id: found[task.protocol.id] for task in self.tasks}


def evaluate(corpus: Corpus, protocols: Iterable[Protocol], **sides: Any) -> dict[str, Outcomes]:
    """Return :meth:`Scoring.outcomes`; arguments as for :meth:`Scoring.of`."""
    return Scoring.of(corpus, protocols, **sides).outcomes()


def _is_late(images: Any, captions: Any, tasks: Sequence[ScoringTask]) -> bool:
    """True for multi-vectors, False for one vector per item; raise if the tasks cannot be scored by these."""
    if callable(images) != callable(captions):
        raise TypeError("images and captions must both be matrices (single), or both functions that yield blocks")
    if callable(images):
        searches = [task for task in tasks if isinstance(task, RetrievalTask)]
        wrong = [task.protocol.id for task in searches if task.needs_one_vector]
        needed = "an encoder with one vector per item has classes of several prompts"
    else:
        wrong = [task.protocol.id for task in tasks if task.protocol.orientation]
        needed = "a multi-vector encoder has orientations"
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: only {needed}")
    return callable(images)


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
    images: Any, captions: Any, task: RetrievalTask, *, resources: Resources = ON_CPU
) -> Iterator[ScoreBlock]:
    """Yield all queries of one protocol, block by block; every query comes once, with the scores that it was ranked by.

    Arguments as for :meth:`Scoring.of`: matrices of a single-vector encoder, or functions that
    yield the multi-vectors of a late-interaction encoder.
    """
    if _is_late(images, captions, [task]):
        task = task.with_own_rows()
        rows, columns = (blocks_of(space, images, captions) for space in task.spaces)
        rows_of_scores = maxsim_score_rows(columns, rows, task, resources=resources)
    else:
        rows_of_scores = dense_score_rows(images, captions, task, resources=resources)
    for start, scores, _ in rows_of_scores:
        table = scores.cpu().numpy()
        inside = np.flatnonzero((task.queries >= start) & (task.queries < start + len(table)))
        for number in np.unique(task.gallery_of[inside]):
            positions, gallery = inside[task.gallery_of[inside] == number], task.galleries[number]
            of_gallery = table[task.queries[positions] - start][:, gallery]
            if task.excluded is not None:
                query, item = task.excluded[np.isin(task.excluded[:, 0], positions)].T
                of_gallery[np.searchsorted(positions, query), np.searchsorted(gallery, item)] = -np.inf
            relevant = np.zeros(of_gallery.shape, dtype=np.bool_)
            for marks, query in zip(relevant, positions, strict=True):
                marks[np.searchsorted(gallery, task.relevant[task.offsets[query] : task.offsets[query + 1]])] = True
            ords = task.query_ords[positions], task.item_space.ords_of(gallery)
            yield ScoreBlock(task.protocol, positions, of_gallery, relevant, *ords)
