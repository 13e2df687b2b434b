"""Late interaction: MaxSim scores of ragged multi-vectors, streamed.

``score(caption, image) = sum over caption tokens of max over image patches of their cosine`` (ColBERT, Khattab and
Zaharia 2020; ColPali, Faysse et al. 2024). Ragged blocks carry no padding, so none can win a maximum: a padded 0
beats every negative similarity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from store.schema import TOP
from tasks.scoring.choices import choose
from tasks.scoring.collecting import Strip, collect
from tasks.scoring.dense import DEFAULT_MEMORY_BYTES, check_ords, full_float32
from tasks.scoring.judgements import ChoiceJudgement, Judgement, RetrievalJudgement
from tasks.scoring.outcomes import Outcomes


class MultiVectorBlock(Protocol):
    """Some items' vectors, as the store hands them out."""

    @property
    def ords(self) -> NDArray[np.int32]:
        """Positions in the corpus, ascending."""
        ...

    @property
    def values(self) -> NDArray[np.float16] | NDArray[np.float32]:
        """All vectors of all items one after the other, unit norm, shape ``(sum of counts, dim)``."""
        ...

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Item ``i`` owns rows ``offsets[i]:offsets[i + 1]``; shape ``(n + 1,)``."""
        ...


Blocks: TypeAlias = Callable[[], Iterable[MultiVectorBlock]]


def score_maxsim(
    images: Blocks,
    captions: Blocks,
    judgements: Sequence[Judgement],
    *,
    device: str = "cpu",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    top: int = TOP,
) -> dict[str, Outcomes]:
    """Outcomes of every judgement, from multi-vectors in corpus order.

    Args:
        images: Called for each pass over the images: blocks in corpus order, every ord once.
        captions: The same for captions.
        judgements: Of one corpus. Image to caption is ``transposed`` here: the same scores read by column.
        device: Any torch device.
        memory_bytes: What may be allocated beyond the captions' vectors, the score matrix included.
        top: Length of the best lists.

    Returns:
        Protocol id -> outcomes, in the order of ``judgements``.

    Raises:
        ValueError: A vector that is zero or not finite, different dimensions, or an item without vectors.
    """
    tokens = gather(captions(), "caption")
    with full_float32():
        matrix = maxsim_matrix(images(), tokens, device=device)
        for judgement in judgements:
            check_ords(judgement, n_images=matrix.shape[1], n_captions=len(matrix))
        found: dict[str, Outcomes] = {}
        for direction, scores in (("t2i", matrix), ("i2t", matrix.T)):
            asked = [j for j in judgements if isinstance(j, RetrievalJudgement) and j.protocol.direction == direction]
            if asked:
                found |= collect(_strips(scores, memory_bytes), asked, top=top)
    for judgement in judgements:
        if isinstance(judgement, ChoiceJudgement):
            pairs = matrix[judgement.captions[:, :, None], judgement.images[:, None, :]]
            found[judgement.protocol.id] = choose(judgement, pairs.reshape(len(pairs), -1).numpy())
    return {judgement.protocol.id: found[judgement.protocol.id] for judgement in judgements}


class Ragged(NamedTuple):
    """Multi-vectors of consecutive items: float32 ``(sum of counts, dim)`` and int64 ``(n + 1,)``."""

    values: NDArray[np.float32]
    offsets: NDArray[np.int64]


def gather(blocks: Iterable[MultiVectorBlock], what: str) -> Ragged:
    """All blocks as one; raises ``ValueError`` where an item is missing or a vector is zero or not finite."""
    values, counts, expected = [], [], 0
    for block in blocks:
        check_block(block, what, expected)
        expected += len(block.ords)
        values.append(block.values.astype(np.float32))
        counts.append(np.diff(block.offsets))
    if not values:
        raise ValueError(f"there are no {what} vectors; embed the corpus first")
    return Ragged(np.concatenate(values), np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64))


def check_block(block: MultiVectorBlock, what: str, expected: int) -> None:
    """Raise ``ValueError`` unless a block starts at the expected ord, has no gap and no unusable vector."""
    gap = np.flatnonzero(block.ords != np.arange(expected, expected + len(block.ords)))
    if gap.size:
        raise ValueError(f"{what} {expected + int(gap[0])} has no vectors; finish embedding the corpus first")
    if (np.diff(block.offsets) < 1).any():
        raise ValueError(f"{what} {expected + int(np.argmin(np.diff(block.offsets)))} has no vectors")
    squares = np.einsum("nd,nd->n", block.values, block.values, dtype=np.float32)
    for fault, rows in (("not finite", ~np.isfinite(squares)), ("zero", squares == 0)):
        if rows.any():
            item = int(np.searchsorted(block.offsets, np.argmax(rows), side="right")) - 1
            raise ValueError(f"{int(rows.sum())} {what} vectors are {fault}, first in {what} {expected + item}")


def maxsim_matrix(images: Iterable[MultiVectorBlock], captions: Ragged, *, device: str = "cpu") -> Tensor:
    """Exact float32 scores of every caption with every image, shape ``(n_captions, n_images)``, on the CPU."""
    tokens = _padded_rows(torch.from_numpy(captions.values).to(device))
    n_tokens = len(captions.values)
    columns, n_images = [], 0
    for block in images:
        check_block(block, "image", n_images)
        n_images += len(block.ords)
        values = torch.from_numpy(block.values.astype(np.float32)).to(device)
        if values.shape[1] != tokens.shape[1]:
            raise ValueError(f"images have {values.shape[1]} dimensions, captions {tokens.shape[1]}: not one encoder's")
        best = torch.empty((len(block.ords), len(tokens)), device=device)
        for row, (start, stop) in enumerate(zip(block.offsets[:-1], block.offsets[1:], strict=True)):
            patches = _at_least(values[start:stop]).T
            for first in range(0, len(tokens), _TOKENS):
                torch.amax(tokens[first : first + _TOKENS] @ patches, dim=1, out=best[row, first : first + _TOKENS])
        sums = np.add.reduceat(best[:, :n_tokens].T.cpu().numpy(), captions.offsets[:-1], axis=0)
        columns.append(torch.from_numpy(sums))
    if not columns:
        raise ValueError("there are no image vectors; embed the corpus first")
    return torch.cat(columns, dim=1)


_TOKENS = 512  # tokens per product: its result stays in the processor's caches
_ALIGNED = 16  # rows, below which products round differently; see tasks.scoring.dense


def _padded_rows(vectors: Tensor) -> Tensor:
    """Zero rows up to a multiple of 16; whoever adds them leaves their scores out."""
    return torch.nn.functional.pad(vectors, (0, 0, 0, -len(vectors) % _ALIGNED))


def _at_least(patches: Tensor) -> Tensor:
    """At least 16 rows, by repeating vectors, which changes no maximum."""
    if len(patches) >= _ALIGNED:
        return patches
    return patches.repeat(-(-_ALIGNED // len(patches)), 1)


def _strips(scores: Tensor, memory_bytes: int) -> Iterator[Strip]:
    step = max(1, min(memory_bytes // 32, 1 << 24) // (4 * scores.shape[1]))
    for start in range(0, len(scores), step):
        yield Strip(start, scores[start : start + step].contiguous())
