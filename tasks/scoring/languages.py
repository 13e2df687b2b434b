"""Corpora in several languages: one part (language and translator) is in memory at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.store.types import EvalProtocol
from capim.tasks.scoring.consistency import ScoredDirection, identical, with_consistency
from capim.tasks.scoring.outcomes import Outcomes
from capim.tasks.scoring.protocols.builders import captions_to_images, images_to_captions
from capim.tasks.scoring.protocols.layout import CorpusLayout
from capim.tasks.scoring.protocols.tasks import RetrievalTask

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


Score: TypeAlias = Callable[[Part, NDArray[np.float32], Sequence[RetrievalTask]], dict[str, Outcomes]]


def scorings(layout: CorpusLayout, tasks: Sequence[RetrievalTask]) -> dict[Part, list[RetrievalTask]]:
    """What is scored of each part: its tasks, and of a part that others are compared with both directions.

    Captions are named by their position in the part. A task with the queries and the gallery of one of both directions
    is left out: its outcomes are the same.
    """
    found: dict[Part, list[RetrievalTask]] = {}
    for part, of_part in _by_part(layout, tasks).items():
        reference = _reference_part(layout, part)
        if reference is not None and reference not in found:
            found[reference] = _both_directions(layout, reference)
        both = found.get(part, [])
        found[part] = both + [task for task in of_part if not any(_is_same(task, one) for one in both)]
    return found


def score_parts(
    layout: CorpusLayout,
    tasks: Sequence[RetrievalTask],
    images: NDArray[np.float32],
    captions: CaptionParts,
    score: Score,
) -> dict[str, Outcomes]:
    """Outcomes of tasks that each stay within one part, with consistency with the reference language.

    The reference of a part is the reference language by the same translator, else by people. Where the corpus has
    neither, or a caption has no counterpart, the two measures stay empty and a warning says so. The captions of a task
    belong to one part. ``score`` gives the outcomes of a part's :func:`scorings` from the vectors of its captions.
    """
    todo, by_part = scorings(layout, tasks), _by_part(layout, tasks)
    by_reference: dict[Part | None, list[Part]] = {}
    for part in by_part:
        by_reference.setdefault(_reference_part(layout, part), []).append(part)
    outcomes: dict[str, Outcomes] = {}
    for reference_part, parts in by_reference.items():
        reference = None
        scored: Mapping[str, Outcomes] = {}
        if reference_part is None:
            log.warning("no consistency figures: the corpus has no %s captions", layout.corpus.languages_reference)
        else:
            vectors = _read(layout, captions, reference_part)
            scored = score(reference_part, vectors, todo[reference_part])
            reference = _Reference(vectors, _keys(layout, reference_part), scored)
        for part in parts:
            if reference is None or part != reference_part:
                vectors = _read(layout, captions, part)
                scored = score(part, vectors, todo[part])
            elif reference is not None:
                vectors, scored = reference.vectors, reference.outcomes
            for task in by_part[part]:
                found = scored.get(task.protocol.id)
                if found is None:
                    found = replace(scored[_id_of_all(task, part)], protocol=task.protocol)
                if reference is not None and part == reference_part:
                    found = identical(found)
                elif reference is not None and reference_part is not None:
                    of_reference = reference.outcomes[_id_of_all(task, reference_part)]
                    found = _compared(found, reference, of_reference, task, images, vectors, _keys(layout, part))
                outcomes[task.protocol.id] = _restored(found, layout.parts[part])
    return outcomes


def _by_part(layout: CorpusLayout, tasks: Sequence[RetrievalTask]) -> dict[Part, list[RetrievalTask]]:
    """The tasks of each part, with captions named by their position in it."""
    found: dict[Part, list[RetrievalTask]] = {}
    for task in tasks:
        part = _part_of(layout, task)
        found.setdefault(part, []).append(_localised(task, layout.parts[part]))
    return found


def _part_of(layout: CorpusLayout, task: RetrievalTask) -> Part:
    """The part of a task's captions."""
    caption = (task.queries if task.protocol.direction == "t2i" else task.galleries[0])[0]
    return next(part for part, ords in layout.parts.items() if caption in ords)


def _reference_part(layout: CorpusLayout, part: Part) -> Part | None:
    """The part of the reference language to compare with: by the same translator, else by people, else none."""
    language = layout.corpus.languages_reference
    return next((p for p in ((language, part[1]), (language, "human")) if p in layout.parts), None)


def _both_directions(layout: CorpusLayout, part: Part) -> list[RetrievalTask]:
    """All captions of a part search all images, and the other way round."""
    name = "/".join(part)
    to_images = EvalProtocol(id=f"all t2i/{name}", direction="t2i", title="The whole part")
    to_captions = EvalProtocol(id=f"all i2t/{name}", direction="i2t", title="The whole part")
    tasks = captions_to_images(layout, to_images, part=part), images_to_captions(layout, to_captions, part=part)
    return [_localised(task, layout.parts[part]) for task in tasks]


def _id_of_all(task: RetrievalTask, part: Part) -> str:
    """The protocol of :func:`_both_directions` that has the direction of a task."""
    return f"all {task.protocol.direction}/{'/'.join(part)}"


def _is_same(task: RetrievalTask, other: RetrievalTask) -> bool:
    """Whether two tasks of a part have the same direction, queries and gallery, which is one."""
    same_gallery = len(task.galleries) == 1 and np.array_equal(task.galleries[0], other.galleries[0])
    return (
        same_gallery
        and task.protocol.direction == other.protocol.direction
        and np.array_equal(task.query_ids, other.query_ids)
    )


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
    of_reference: Outcomes,
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
    if task.protocol.direction == "t2i":
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
