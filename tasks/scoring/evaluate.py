"""One encoder on one corpus: embeddings in, outcomes per protocol out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.tasks.protocols import Protocol
from capim.tasks.scoring.consistency import CaptionParts, Part, score_parts, scorings
from capim.tasks.scoring.dense import VectorRows, dense_choices, dense_part, score_dense
from capim.tasks.scoring.late_interaction.maxsim import choices_of, maxsim_part, score_maxsim
from capim.tasks.scoring.late_interaction.multivectors import Blocks
from capim.tasks.scoring.outcomes import Outcomes
from capim.tasks.scoring.protocols.builders import ChoiceTask, RetrievalTask, ScoringTask
from capim.tasks.scoring.protocols.layout import layout_of
from capim.tasks.scoring.protocols.table import build_tasks
from capim.tasks.scoring.ranks.accumulator import PartOutcomes
from capim.tasks.scoring.ranks.both_ways import BothWays
from capim.tasks.scoring.resources import ON_CPU, Resources
from capim.tasks.scoring.threads import Advance, ignore

SCORER_VERSION = 4  # raised whenever a stored outcome would change


def evaluate(
    corpus: Corpus,
    protocols: Iterable[Protocol],
    *,
    images: VectorRows | Blocks,
    captions: VectorRows | CaptionParts | Blocks,
    resources: Resources = ON_CPU,
    advance: Advance = ignore,
) -> dict[str, Outcomes]:
    """Outcomes of every protocol.

    Args:
        protocols: From :func:`tasks.scoring.protocols.table.select_protocols`.
        images: Single-vector encoders: float32 unit vectors in corpus order, shape ``(n_images, dim)``, in memory or
            read window by window. Multi-vector encoders: a function that yields the blocks at each call.
        captions: Likewise; for a corpus in several languages also :class:`CaptionParts`, so that one part is in
            memory at a time.
        advance: Gets the shares of the work as they are done, in this thread; together at most 1.

    Returns:
        Protocol id -> outcomes, in the order of ``protocols``. Where the corpus is in several languages, those of
        single-vector encoders hold the consistency with the reference language.

    Raises:
        RequestError: A protocol does not fit the corpus.
        ValueError: Embeddings that cannot be scored: their number, dimensions or values; an orientation for a
            single-vector encoder.
    """
    tasks = build_tasks(corpus, protocols)
    if callable(images) and callable(captions):
        return score_maxsim(images, captions, tasks, resources=resources, advance=advance)
    if callable(images) or callable(captions):
        raise TypeError("images and captions must both be matrices (single), or both functions that yield blocks")
    oriented = [task.protocol.id for task in tasks if task.protocol.orientation]
    if oriented:
        raise ValueError(f"{', '.join(oriented)}: only a multi-vector encoder has orientations")
    layout = layout_of(corpus)
    if not isinstance(captions, CaptionParts) and len(layout.parts) < 2:
        return score_dense(images, captions, tasks, resources=resources, advance=advance)
    choices = [task for task in tasks if isinstance(task, ChoiceTask)]
    outcomes: dict[str, Outcomes] = {}
    images = images[:]  # the measures of consistency read it as a matrix
    if not isinstance(captions, CaptionParts):
        matrix = captions[:]
        outcomes = score_dense(images, matrix, choices, resources=resources)
        captions = CaptionParts(lambda *part: matrix[layout.parts[part]])
    elif choices:
        raise ValueError(f"{', '.join(t.protocol.id for t in choices)}: needs all caption vectors as one matrix")
    retrieval = _retrieval(tasks)
    n_parts = len(scorings(layout, retrieval))

    def score(_part: Part, vectors: NDArray[np.float32], of_part: Sequence[RetrievalTask]) -> dict[str, Outcomes]:
        return score_dense(
            images, vectors, of_part, resources=resources, advance=lambda share: advance(share / n_parts)
        )

    outcomes |= score_parts(layout, retrieval, images, captions, score)
    return {task.protocol.id: outcomes[task.protocol.id] for task in tasks}


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
    tasks = build_tasks(corpus, protocols)
    if callable(images) and callable(captions):
        return maxsim_part(images, captions, tasks, part, resources=resources).part()
    if callable(images) or callable(captions):
        raise TypeError("images and captions must both be matrices (single), or both functions that yield blocks")
    layout = layout_of(corpus)
    if len(layout.parts) < 2:
        return dense_part(images, captions, tasks, part, resources=resources).part()
    found: dict[str, PartOutcomes] = {}
    for language, of_language in scorings(layout, _retrieval(tasks)).items():
        found |= dense_part(images, captions[layout.parts[language]], of_language, part, resources=resources).part()
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
    several = len(layout.parts) > 1 and not callable(captions)
    todo = scorings(layout, _retrieval(tasks)) if several else {("", ""): _retrieval(tasks)}
    merged = {language: BothWays(some) for language, some in todo.items()}
    for part in parts:
        for each in merged.values():
            each.merge(part)
    if several and not callable(images) and not callable(captions):
        rows = captions

        def read(language: str, translator: str) -> NDArray[np.float32]:
            return rows[layout.parts[language, translator]]

        def score(part: Part, *_: object) -> dict[str, Outcomes]:
            return merged.pop(part).outcomes()

        outcomes = score_parts(layout, _retrieval(tasks), images[:], CaptionParts(read), score)
    else:
        outcomes = merged["", ""].outcomes()
    if callable(images) and callable(captions):
        outcomes |= choices_of(images, captions, tasks, device=device)
    elif not callable(images) and not callable(captions):
        outcomes |= dense_choices(images, captions, tasks)
    return {task.protocol.id: outcomes[task.protocol.id] for task in tasks}


def _retrieval(tasks: Iterable[ScoringTask]) -> list[RetrievalTask]:
    return [task for task in tasks if isinstance(task, RetrievalTask)]
