"""Corpora in several languages: one part (language and translator) is in memory at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from store.types import EvalProtocol
from tasks.scoring.consistency import ScoredDirection, identical, with_consistency
from tasks.scoring.dense import score_dense
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.builders import captions_to_images, images_to_captions
from tasks.scoring.protocols.layout import CorpusLayout
from tasks.scoring.protocols.tasks import RetrievalTask
from tasks.scoring.threads import Advance, ignore

Part: TypeAlias = tuple[str, str]

log = logging.getLogger(__name__)


class CaptionParts(NamedTuple):
    """Caption vectors that are read when they are needed.

    ``read(language, translator)`` gives float32 unit vectors of all captions of a part, in corpus order.
    """

    read: Callable[[str, str], NDArray[np.float32]]


class _Reference(NamedTuple):
    """The reference part, scored in both directions; captions by their position in the part."""

    vectors: NDArray[np.float32]
    keys: NDArray[np.int64]
    outcomes: Mapping[str, Outcomes]


def score_parts(
    layout: CorpusLayout,
    tasks: Sequence[RetrievalTask],
    images: NDArray[np.float32],
    captions: CaptionParts,
    *,
    device: str,
    memory_bytes: int | None,
    advance: Advance = ignore,
) -> dict[str, Outcomes]:
    """Outcomes of tasks that each stay within one part, with consistency with the reference language.

    The reference of a part is the reference language by the same translator, else by people. Where the corpus has
    neither, or a caption has no counterpart, the two measures stay empty and a warning says so. The captions of a task
    belong to one part; the other arguments are those of :func:`tasks.scoring.dense.score_dense`, for one part.
    """

    def score(vectors: NDArray[np.float32], of_part: Sequence[RetrievalTask]) -> dict[str, Outcomes]:
        return score_dense(images, vectors, of_part, device=device, memory_bytes=memory_bytes, advance=advance_part)

    def advance_part(share: float) -> None:
        advance(share / sum(1 + len(parts) for parts in by_reference.values()))

    by_reference: dict[Part | None, dict[Part, list[RetrievalTask]]] = {}
    for task in tasks:
        part = _part_of(layout, task)
        by_reference.setdefault(_reference_part(layout, part), {}).setdefault(part, []).append(task)
    outcomes: dict[str, Outcomes] = {}
    for reference_part, parts in by_reference.items():
        reference = None
        if reference_part is None:
            log.warning("no consistency figures: the corpus has no %s captions", layout.corpus.languages_reference)
        else:
            vectors = _read(layout, captions, reference_part)
            both = score(vectors, _both_directions(layout, reference_part))
            reference = _Reference(vectors, _keys(layout, reference_part), both)
        for part, of_part in parts.items():
            local = [_localised(task, layout.parts[part]) for task in of_part]
            scored: dict[str, Outcomes] = {}
            if reference is not None and part == reference_part:
                vectors = reference.vectors
                scored = {t.protocol.id: same for t in local if (same := _reference_outcomes(reference, t))}
            else:
                vectors = _read(layout, captions, part)
            scored |= score(vectors, [task for task in local if task.protocol.id not in scored])
            for task in local:
                found = scored[task.protocol.id]
                if reference is not None and part == reference_part:
                    found = identical(found)
                elif reference is not None:
                    found = _compared(found, reference, task, images, vectors, _keys(layout, part))
                outcomes[task.protocol.id] = _restored(found, layout.parts[part])
    return outcomes


def _part_of(layout: CorpusLayout, task: RetrievalTask) -> Part:
    """The part of a task's captions."""
    caption = (task.queries if task.protocol.direction == "t2i" else task.galleries[0])[0]
    return next(part for part, ords in layout.parts.items() if caption in ords)


def _reference_part(layout: CorpusLayout, part: Part) -> Part | None:
    """The part of the reference language to compare with: by the same translator, else by people, else none."""
    language = layout.corpus.languages_reference
    return next((p for p in ((language, part[1]), (language, "human")) if p in layout.parts), None)


def _both_directions(layout: CorpusLayout, part: Part) -> list[RetrievalTask]:
    """All captions of a part search all images, and the other way round; protocol ids ``t2i`` and ``i2t``."""
    to_images = EvalProtocol(id="t2i", direction="t2i", title="The reference language")
    to_captions = EvalProtocol(id="i2t", direction="i2t", title="The reference language")
    tasks = captions_to_images(layout, to_images, part=part), images_to_captions(layout, to_captions, part=part)
    return [_localised(task, layout.parts[part]) for task in tasks]


def _reference_outcomes(reference: _Reference, task: RetrievalTask) -> Outcomes | None:
    """The reference's outcomes, where a task has the same queries and the same gallery; else None."""
    outcomes = reference.outcomes[task.protocol.direction]
    same_gallery = len(task.galleries) == 1 and len(task.galleries[0]) == outcomes.n_gallery[0]
    if not same_gallery or not np.array_equal(task.query_ids, outcomes.query_ids):
        return None
    return replace(outcomes, protocol=task.protocol)


def _read(layout: CorpusLayout, captions: CaptionParts, part: Part) -> NDArray[np.float32]:
    vectors = captions.read(*part)
    if len(vectors) != len(layout.parts[part]):
        raise ValueError(
            f"{'/'.join(part)} has {len(layout.parts[part])} captions, but there are embeddings of {len(vectors)}; "
            "run `capim embed` to complete the corpus"
        )
    return vectors


def _keys(layout: CorpusLayout, part: Part) -> NDArray[np.int64]:
    """The image and ordinal of every caption of a part as one number: equal for translations of one caption."""
    ords = layout.parts[part]
    return layout.caption_images[ords].astype(np.int64) * (int(layout.ordinals.max()) + 1) + layout.ordinals[ords]


def _compared(
    outcomes: Outcomes,
    reference: _Reference,
    task: RetrievalTask,
    images: NDArray[np.float32],
    captions: NDArray[np.float32],
    keys: NDArray[np.int64],
) -> Outcomes:
    """Outcomes with consistency measures, if every caption of the part has a counterpart in the reference."""
    order = np.argsort(reference.keys, kind="stable")
    place = np.searchsorted(reference.keys[order], keys).clip(max=len(order) - 1)
    counterpart = order[place]
    if len(keys) != len(order) or (reference.keys[counterpart] != keys).any():
        log.warning("no consistency figures for %s: its captions are not those of the reference", outcomes.protocol.id)
        return outcomes
    direction = task.protocol.direction
    of_reference = reference.outcomes[direction]
    if direction == "t2i":
        own = ScoredDirection(outcomes, captions[task.queries], images)
        side = ScoredDirection(of_reference, reference.vectors, images)
        return with_consistency(task, own, side, query_of=counterpart[task.queries], item_of=None)
    own = ScoredDirection(outcomes, images[task.queries], captions)
    side = ScoredDirection(of_reference, images[of_reference.query_ords], reference.vectors)
    query_of = np.searchsorted(of_reference.query_ords, task.queries)
    return with_consistency(task, own, side, query_of=query_of, item_of=counterpart.astype(np.int32))


def _localised(task: RetrievalTask, ords: NDArray[np.int32]) -> RetrievalTask:
    """The same task with captions named by their position among ``ords``."""

    def local(captions: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.searchsorted(ords, captions).astype(np.int32)

    if task.protocol.direction == "t2i":
        return replace(task, queries=local(task.queries))
    return replace(task, galleries=tuple(map(local, task.galleries)), relevant=local(task.relevant))


def _restored(outcomes: Outcomes, ords: NDArray[np.int32]) -> Outcomes:
    """Outcomes of a localised task with corpus ords again."""
    if outcomes.protocol.direction == "t2i":
        return replace(outcomes, query_ords=ords[outcomes.query_ords])
    if outcomes.top_ords is None:
        return outcomes
    return replace(outcomes, top_ords=np.where(outcomes.top_ords < 0, -1, ords[outcomes.top_ords]).astype(np.int32))
