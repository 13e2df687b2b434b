"""Late interaction: exact float32 MaxSim of ragged multi-vectors, streamed, and the outcomes from it.

``score(caption, image) = sum over caption tokens of max over image patches of their cosine`` (ColBERT, Khattab and
Zaharia 2020; ColPali, Faysse et al. 2024).

Where the device multiplies bfloat16 in hardware and images have many vectors, all pairs are screened in bfloat16 first,
and every pair that the rounding-error bound of ``screening`` leaves open is scored again in float32.
Ranks, ties and best lists are those of float32; scores that decide nothing stay screened and are stored nowhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from store.schema import TOP
from tasks.scoring.choices import choose
from tasks.scoring.dense import DEFAULT_MEMORY_BYTES, check_ords, full_float32
from tasks.scoring.late_interaction.certifying import certified_scores
from tasks.scoring.late_interaction.multivectors import Blocks, Ragged, gather
from tasks.scoring.late_interaction.products import float32_scores, image_as_query
from tasks.scoring.late_interaction.screening import half_is_fast
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.orientations import orientation_of
from tasks.scoring.protocols.tasks import ChoiceTask, RetrievalTask, ScoringTask
from tasks.scoring.ranks.accumulator import Strip, collect

Method: TypeAlias = Literal["certified", "float32"]

_STRIP_BYTES = 1 << 24
_WORTH_SCREENING = 128  # vectors per image: at 32 twice as slow as float32 alone, at 1,030 1.5 times as fast

log = logging.getLogger(__name__)


class MaxSim(NamedTuple):
    """Scores of every caption with every image.

    ``scores``: float32, shape ``(n_captions, n_images)``; by ``certified``, pairs that decide nothing are within
    rounding of bfloat16, all others float32. ``rescored``: share of the pairs that were scored in float32.
    """

    scores: NDArray[np.float32]
    method: Method
    rescored: float


def score_maxsim(
    images: Blocks,
    captions: Blocks,
    judgements: Sequence[ScoringTask],
    *,
    device: str = "cpu",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    top: int = TOP,
    method: Method | None = None,
) -> dict[str, Outcomes]:
    """Outcomes of every judgement, from multi-vectors in corpus order.

    Args:
        images: Called for each pass over the images: blocks in corpus order, every ord once.
        captions: The same for captions; these are held in memory.
        judgements: Of one corpus. The orientation of an ``i2t`` judgement is named by its protocol.
        device: Any torch device.
        memory_bytes: What may be allocated beyond the captions' vectors; a score matrix that takes more than half of
            it is kept in a temporary file.
        top: Length of the best lists.
        method: ``certified`` where the device has fast bfloat16 and images have many vectors, else ``float32``; both
            give the same outcomes.

    Returns:
        Protocol id -> outcomes, in the order of ``judgements``.

    Raises:
        ValueError: A vector that is zero or not finite, different dimensions, or an item without vectors.
    """
    tokens = gather(captions(), "caption")
    for judgement in judgements:
        check_ords(judgement, n_images=n_images_of(judgements), n_captions=tokens.n)
    other_way = [j for j in judgements if orientation_of(j.protocol) == "image-as-query"]
    usual = [j for j in judgements if orientation_of(j.protocol) != "image-as-query"]
    found: dict[str, Outcomes] = {}
    with full_float32():
        if usual:
            made = maxsim(images, tokens, usual, device=device, memory_bytes=memory_bytes, top=top, method=method)
            log.info("MaxSim (%s): %.1f %% of the pairs scored in float32", made.method, 100 * made.rescored)
            found |= outcomes_of_scores(made.scores, tokens, usual, memory_bytes, top)
        if other_way:
            n_images = n_images_of(other_way)
            scores = image_as_query(images, tokens, n_images=n_images, device=device, memory_bytes=memory_bytes)
            found |= outcomes_of_scores(scores, tokens, other_way, memory_bytes, top)
    return {judgement.protocol.id: found[judgement.protocol.id] for judgement in judgements}


def maxsim(
    images: Blocks,
    captions: Ragged,
    judgements: Sequence[ScoringTask],
    *,
    device: str = "cpu",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    top: int = TOP,
    method: Method | None = None,
) -> MaxSim:
    """Scores that rank like float32 under the judgements; arguments as for :func:`score_maxsim`."""
    n_images = n_images_of(judgements)
    method = method or _method_for(images, device)
    if method == "float32":
        scores = float32_scores(images, captions, n_images=n_images, device=device, memory_bytes=memory_bytes)
        return MaxSim(scores, method, 1.0)
    scores, rescored = certified_scores(
        images, captions, judgements, n_images=n_images, device=device, memory_bytes=memory_bytes, top=top
    )
    return MaxSim(scores, method, rescored)


def _method_for(images: Blocks, device: str) -> Method:
    """Screening pays where products are what takes the time, not the gathering of captions that are scored again."""
    if not half_is_fast(device):
        return "float32"
    first = next(iter(images()), None)
    return "float32" if first is not None and first.offsets[-1] < _WORTH_SCREENING * len(first.ords) else "certified"


def n_images_of(judgements: Sequence[ScoringTask]) -> int:
    """How many images the judgements speak of: one more than the highest ord."""
    highest = 0
    for judgement in judgements:
        if isinstance(judgement, ChoiceTask):
            ords = judgement.images
        elif judgement.protocol.direction == "i2t":
            ords = judgement.queries
        else:
            ords = np.concatenate(judgement.galleries)
        highest = max(highest, int(ords.max()))
    return highest + 1


def outcomes_of_scores(
    scores: NDArray[np.float32], captions: Ragged, judgements: Sequence[ScoringTask], memory_bytes: int, top: int
) -> dict[str, Outcomes]:
    """Outcomes of judgements that read the same scores: by row, by column, by column and per token.

    Args:
        scores: float32, shape ``(n_captions, n_images)``.
        captions: Whose tokens divide the scores of ``transposed-per-token``.
        judgements: Of one corpus.
        memory_bytes: Bounds the strips that are ranked at once.
        top: Length of the best lists.
    """
    found: dict[str, Outcomes] = {}
    retrieval = [j for j in judgements if isinstance(j, RetrievalTask)]
    to_images = [j for j in retrieval if j.protocol.direction == "t2i"]
    per_token = [j for j in retrieval if orientation_of(j.protocol) == "transposed-per-token"]
    to_captions = [j for j in retrieval if j not in to_images and j not in per_token]
    for asked, table, divisors in (
        (to_images, scores, None),
        (to_captions, scores.T, None),
        (per_token, scores.T, captions.counts.astype(np.float32)),
    ):
        if asked:
            found |= collect(strips_of(table, memory_bytes, divisors), asked, top=top)
    for judgement in judgements:
        if isinstance(judgement, ChoiceTask):
            sets = scores[judgement.captions[:, :, None], judgement.images[:, None, :]]
            found[judgement.protocol.id] = choose(judgement, sets.reshape(len(sets), -1))
    return found


def strips_of(
    table: NDArray[np.float32], memory_bytes: int, divisors: NDArray[np.float32] | None = None
) -> Iterator[Strip]:
    """The rows of a score table, a strip at a time; every column over its divisor, if there are any."""
    step = max(1, min(memory_bytes // 32, _STRIP_BYTES) // (4 * table.shape[1]))
    for start in range(0, len(table), step):
        part = np.ascontiguousarray(table[start : start + step])
        yield Strip(start, torch.from_numpy(part if divisors is None else part / divisors))
