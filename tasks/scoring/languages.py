"""Corpora in several languages, one part (language and translator) in memory at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from store.types import EvalProtocol
from tasks.scoring.consistency import Side, compared
from tasks.scoring.dense import score_dense
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.builders import captions_to_images, images_to_captions
from tasks.scoring.protocols.layout import CorpusLayout
from tasks.scoring.protocols.tasks import RetrievalTask

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
    judgements: Sequence[RetrievalTask],
    images: NDArray[np.float32],
    captions: CaptionParts,
    *,
    device: str,
    memory_bytes: int,
) -> dict[str, Outcomes]:
    """Outcomes of judgements that each stay within one part, with consistency against the reference language.

    The reference of a part is the reference language by the same translator, else by people. Where the corpus has
    neither, or a caption has no counterpart, the two measures stay empty and a warning says so.

    Args:
        layout: The corpus.
        judgements: Whose captions all belong to one part.
        images: float32 unit vectors, shape ``(n_images, dim)``.
        captions: Read part by part.
        device: Any torch device.
        memory_bytes: What scoring a part may allocate beyond the embeddings.
    """
    by_reference: dict[Part | None, dict[Part, list[RetrievalTask]]] = {}
    for judgement in judgements:
        part = part_of(layout, judgement)
        by_reference.setdefault(reference_of(layout, part), {}).setdefault(part, []).append(judgement)
    found: dict[str, Outcomes] = {}
    for wanted, parts in by_reference.items():
        reference = None
        if wanted is None:
            log.warning(
                "no consistency figures: there are no %s captions to compare with", layout.corpus.languages_reference
            )
        else:
            vectors = _read(layout, captions, wanted)
            reference = _Reference(
                vectors, _keys(layout, wanted), _both_ways(layout, wanted, images, vectors, device, memory_bytes)
            )
        for part, asked in parts.items():
            own = reference if part == wanted else None
            vectors = own.vectors if own else _read(layout, captions, part)
            local = [_localised(judgement, layout.parts[part]) for judgement in asked]
            known = {j.protocol.id: found_ for j in local if own and (found_ := _answered(own, j))}
            todo = [judgement for judgement in local if judgement.protocol.id not in known]
            scored = known | score_dense(images, vectors, todo, device=device, memory_bytes=memory_bytes)
            for judgement in local:
                outcomes = scored[judgement.protocol.id]
                if reference is not None:
                    outcomes = _against(reference, outcomes, judgement, images, _keys(layout, part))
                found[judgement.protocol.id] = _restored(outcomes, layout.parts[part])
    return found


def part_of(layout: CorpusLayout, judgement: RetrievalTask) -> Part:
    """The part that a judgement's captions belong to."""
    caption = (judgement.queries if judgement.protocol.direction == "t2i" else judgement.galleries[0])[0]
    return next(part for part, ords in layout.parts.items() if caption in ords)


def reference_of(layout: CorpusLayout, part: Part) -> Part | None:
    """The part of the reference language that another is compared with: same translator, else people, else none."""
    language = layout.corpus.languages_reference
    return next((p for p in ((language, part[1]), (language, "human")) if p in layout.parts), None)


def _both_ways(
    layout: CorpusLayout,
    part: Part,
    images: NDArray[np.float32],
    vectors: NDArray[np.float32],
    device: str,
    memory_bytes: int,
) -> dict[str, Outcomes]:
    """Outcomes of a whole part by direction."""
    to_images = EvalProtocol(id="t2i", direction="t2i", title="The reference language")
    to_captions = EvalProtocol(id="i2t", direction="i2t", title="The reference language")
    asked = captions_to_images(layout, to_images, part=part), images_to_captions(layout, to_captions, part=part)
    judgements = [_localised(judgement, layout.parts[part]) for judgement in asked]
    return score_dense(images, vectors, judgements, device=device, memory_bytes=memory_bytes)


def _answered(reference: _Reference, judgement: RetrievalTask) -> Outcomes | None:
    """The reference's own outcomes, where a judgement asks just what was asked of the reference."""
    outcomes = reference.outcomes[judgement.protocol.direction]
    whole = len(judgement.galleries) == 1 and len(judgement.galleries[0]) == outcomes.n_gallery[0]
    if not whole or not np.array_equal(judgement.query_ids, outcomes.query_ids):
        return None
    return replace(outcomes, protocol=judgement.protocol)


def _read(layout: CorpusLayout, captions: CaptionParts, part: Part) -> NDArray[np.float32]:
    vectors = captions.read(*part)
    if len(vectors) != len(layout.parts[part]):
        raise ValueError(
            f"{'/'.join(part)} has {len(layout.parts[part])} captions, but there are embeddings of {len(vectors)}; "
            "embed the rest first"
        )
    return vectors


def _keys(layout: CorpusLayout, part: Part) -> NDArray[np.int64]:
    """What every caption of a part translates: its image and ordinal as one number."""
    ords = layout.parts[part]
    return layout.caption_images[ords].astype(np.int64) * (int(layout.ordinals.max()) + 1) + layout.ordinals[ords]


def _against(
    reference: _Reference,
    outcomes: Outcomes,
    judgement: RetrievalTask,
    images: NDArray[np.float32],
    keys: NDArray[np.int64],
) -> Outcomes:
    """Consistency measures of one part's outcomes, if every caption of it has a counterpart."""
    order = np.argsort(reference.keys, kind="stable")
    place = np.searchsorted(reference.keys[order], keys).clip(max=len(order) - 1)
    counterpart = order[place]
    if len(keys) != len(order) or (reference.keys[counterpart] != keys).any():
        log.warning("no consistency figures for %s: its captions are not those of the reference", outcomes.protocol.id)
        return outcomes
    direction = judgement.protocol.direction
    of_reference = reference.outcomes[direction]
    if direction == "t2i":
        side = Side(of_reference, reference.vectors, images)
        return compared(outcomes, side, query_of=counterpart[judgement.queries], item_of=None)
    side = Side(of_reference, images[of_reference.query_ords], reference.vectors)
    query_of = np.searchsorted(of_reference.query_ords, judgement.queries)
    return compared(outcomes, side, query_of=query_of, item_of=counterpart.astype(np.int32))


def _localised(judgement: RetrievalTask, ords: NDArray[np.int32]) -> RetrievalTask:
    """The same judgement with captions named by their position among ``ords``."""

    def local(captions: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.searchsorted(ords, captions).astype(np.int32)

    if judgement.protocol.direction == "t2i":
        return replace(judgement, queries=local(judgement.queries))
    return replace(judgement, galleries=tuple(map(local, judgement.galleries)), relevant=local(judgement.relevant))


def _restored(outcomes: Outcomes, ords: NDArray[np.int32]) -> Outcomes:
    """Outcomes of a localised judgement with corpus ords again."""
    if outcomes.protocol.direction == "t2i":
        return replace(outcomes, query_ords=ords[outcomes.query_ords])
    if outcomes.top_ords is None:
        return outcomes
    return replace(outcomes, top_ords=np.where(outcomes.top_ords < 0, -1, ords[outcomes.top_ords]).astype(np.int32))
