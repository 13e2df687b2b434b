"""One encoder on one corpus: embeddings in, outcomes per protocol out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from store.types import Corpus, EvalProtocol
from tasks.scoring.dense import DEFAULT_MEMORY_BYTES, score_dense
from tasks.scoring.languages import CaptionParts, score_parts
from tasks.scoring.late_interaction.maxsim import score_maxsim
from tasks.scoring.late_interaction.multivectors import Blocks
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.layout import layout_of
from tasks.scoring.protocols.orientations import orientation_of
from tasks.scoring.protocols.selection import build_tasks
from tasks.scoring.protocols.tasks import ChoiceTask, RetrievalTask, ScoringTask

SCORER_VERSION = 2  # raised whenever a stored outcome would change


def evaluate(
    corpus: Corpus,
    protocols: Iterable[EvalProtocol],
    *,
    images: NDArray[np.float32] | Blocks,
    captions: NDArray[np.float32] | CaptionParts | Blocks,
    device: str = "cpu",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> dict[str, Outcomes]:
    """Outcomes of every protocol.

    Args:
        corpus: Whose items were embedded.
        protocols: From :func:`tasks.scoring.protocols.table.select`.
        images: Single-vector encoders: float32 unit vectors in corpus order, shape ``(n_images, dim)``. Multi-vector
            encoders: a function that gives the blocks anew at each call.
        captions: Likewise; for a corpus in several languages also :class:`CaptionParts`, so that one part is in
            memory at a time.
        device: Any torch device.
        memory_bytes: What scoring may allocate beyond the embeddings.

    Returns:
        Protocol id -> outcomes, in the order of ``protocols``. Where the corpus is in several languages, those of
        single-vector encoders carry the consistency with the reference language.

    Raises:
        RequestError: A protocol does not fit the corpus.
        ValueError: Embeddings that cannot be scored: their number, dimensions or values; an orientation asked of a
            single-vector encoder.
    """
    judgements = build_tasks(corpus, protocols)
    if isinstance(images, np.ndarray) and isinstance(captions, np.ndarray | CaptionParts):
        turned = [j.protocol.id for j in judgements if orientation_of(j.protocol) != "transposed"]
        if turned:
            raise ValueError(f"{', '.join(turned)}: only a multi-vector encoder has orientations")
        return _dense(corpus, judgements, images, captions, device, memory_bytes)
    if callable(images) and callable(captions):
        return score_maxsim(images, captions, judgements, device=device, memory_bytes=memory_bytes)
    raise TypeError("images and captions must both be matrices (single) or both functions giving blocks (multi)")


def _dense(
    corpus: Corpus,
    judgements: list[ScoringTask],
    images: NDArray[np.float32],
    captions: NDArray[np.float32] | CaptionParts,
    device: str,
    memory_bytes: int,
) -> dict[str, Outcomes]:
    layout = layout_of(corpus)
    retrieval = [j for j in judgements if isinstance(j, RetrievalTask)]
    sets = [j for j in judgements if isinstance(j, ChoiceTask)]
    found: dict[str, Outcomes] = {}
    if isinstance(captions, np.ndarray):
        if len(layout.parts) < 2:
            return score_dense(images, captions, judgements, device=device, memory_bytes=memory_bytes)
        matrix = captions
        captions = CaptionParts(lambda *part: matrix[layout.parts[part]])
        if sets:
            found |= score_dense(images, matrix, sets, device=device, memory_bytes=memory_bytes)
    elif sets:
        raise ValueError(f"{', '.join(j.protocol.id for j in sets)}: needs all caption vectors as one matrix")
    found |= score_parts(layout, retrieval, images, captions, device=device, memory_bytes=memory_bytes)
    return {judgement.protocol.id: found[judgement.protocol.id] for judgement in judgements}
