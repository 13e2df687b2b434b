"""One encoder on one corpus: embeddings in, outcomes per protocol out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from store.types import Corpus, EvalProtocol
from tasks.scoring.dense import DEFAULT_MEMORY_BYTES, score_dense
from tasks.scoring.maxsim import score_maxsim
from tasks.scoring.multivectors import Blocks
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols import judge_all, orientation_of

SCORER_VERSION = 1  # raised whenever a stored outcome would change


def evaluate(
    corpus: Corpus,
    protocols: Iterable[EvalProtocol],
    *,
    images: NDArray[np.float32] | Blocks,
    captions: NDArray[np.float32] | Blocks,
    device: str = "cpu",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> dict[str, Outcomes]:
    """Outcomes of every protocol.

    Args:
        corpus: Whose items were embedded.
        protocols: From :func:`tasks.scoring.protocols.select`.
        images: Single-vector encoders: float32 unit vectors in corpus order, shape ``(n_images, dim)``. Multi-vector
            encoders: a function that gives the blocks anew at each call.
        captions: Likewise.
        device: Any torch device.
        memory_bytes: What scoring may allocate beyond the embeddings.

    Returns:
        Protocol id -> outcomes, in the order of ``protocols``.

    Raises:
        RequestError: A protocol does not fit the corpus.
        ValueError: Embeddings that cannot be scored: their number, dimensions or values.
    """
    wanted = tuple(protocols)
    judgements = judge_all(corpus, wanted)
    if isinstance(images, np.ndarray) and isinstance(captions, np.ndarray):
        turned = [protocol.id for protocol in wanted if orientation_of(protocol) != "transposed"]
        if turned:
            raise ValueError(f"{', '.join(turned)}: only a multi-vector encoder has orientations")
        return score_dense(images, captions, judgements, device=device, memory_bytes=memory_bytes)
    if callable(images) and callable(captions):
        return score_maxsim(images, captions, judgements, device=device, memory_bytes=memory_bytes)
    raise TypeError("images and captions must both be matrices (single) or both functions giving blocks (multi)")
