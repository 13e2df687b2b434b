"""Single-vector encoders: exact float32 cosine products, streamed, both directions from one product.

Ranks depend on two properties that a matrix library does not promise. The score of a pair does not depend on where the
pair stands: blocks of queries are padded to a multiple of 16 rows and galleries to at least 16 items, below which MKL
was measured to switch to kernels that round differently. And identical gallery vectors get bit-identical scores on any
device, so that an English caption written for two images ties exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from store.schema import TOP
from store.types import Modality
from tasks.encoders.device import full_float32
from tasks.scoring.choices import choice_outcomes
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.tasks import ChoiceTask, RetrievalTask, ScoringTask
from tasks.scoring.ranks.accumulator import BUDGET_SHARE, OutcomeAccumulator, ScoreRows
from tasks.scoring.threads import Advance, ignore, one_thread_each

_ALIGNED = 16  # rows of a block are a multiple of this: see the module's docstring
_BLOCK_BYTES = 1 << 24  # larger blocks of scores only leave the processor's caches
_HASHED = 1 << 15  # rows at a time, on a device other than a CPU
DEFAULT_MEMORY_BYTES = 1 << 30


def score_dense(
    images: NDArray[np.float32],
    captions: NDArray[np.float32],
    tasks: Sequence[ScoringTask],
    *,
    device: str = "cpu",
    memory_bytes: int | None = None,
    top: int = TOP,
    advance: Advance = ignore,
) -> dict[str, Outcomes]:
    """Outcomes of every task, from unit vectors in corpus order.

    Where the whole score matrix fits the budget it is computed once and read both ways; else each direction computes
    its own blocks, so that memory does not grow with the gallery.

    Args:
        images: float32, shape ``(n_images, dim)``.
        captions: float32, shape ``(n_captions, dim)``.
        tasks: Of one corpus.
        device: Any torch device.
        memory_bytes: What may be allocated beyond the embeddings (and their copy on the device); None: 1 GiB, on a
            CUDA device a quarter of its free memory.
        top: Length of the best lists.
        advance: Gets the shares of the work as they are done; together 1.

    Returns:
        Protocol id -> outcomes, in the order of ``tasks``.

    Raises:
        ValueError: Wrong shape or type, different dimensions, a vector that is zero or not finite, or an ord beyond
            the embeddings.
    """
    if not tasks:
        return {}
    _check(images, captions, tasks)
    to_images = [t for t in tasks if isinstance(t, RetrievalTask) and t.protocol.direction == "t2i"]
    to_captions = [t for t in tasks if isinstance(t, RetrievalTask) and t.protocol.direction == "i2t"]
    outcomes: dict[str, Outcomes] = {}
    n_rows = len(captions) * bool(to_images) + len(images) * bool(to_captions)

    def ranked(rows: int) -> None:
        advance(rows / n_rows)

    with full_float32():
        image_vectors, caption_vectors = _on_device(images, device), _on_device(captions, device)
        memory_bytes = memory_bytes or _budget(device)
        matrix_bytes = 4 * len(images) * len(captions)
        block_bytes = min(memory_bytes // BUDGET_SHARE, _BLOCK_BYTES if device == "cpu" else memory_bytes)
        by_image = None
        if to_images and to_captions and matrix_bytes <= memory_bytes - 8 * block_bytes:
            by_image = torch.empty((len(images), len(captions)), device=device)
        if to_images:
            blocks = _products(caption_vectors, image_vectors, block_bytes, keep=by_image)
            outcomes |= _outcomes(blocks, to_images, top=top, device=device, ranked=ranked)
        if to_captions:
            if by_image is None:
                blocks = _products(image_vectors, caption_vectors, block_bytes)
            else:
                blocks = _blocks_of(by_image, caption_vectors, block_bytes)
            outcomes |= _outcomes(blocks, to_captions, top=top, device=device, ranked=ranked)
    for task in tasks:
        if isinstance(task, ChoiceTask):
            outcomes[task.protocol.id] = choice_outcomes(task, _choice_scores(images, captions, task))
    return {task.protocol.id: outcomes[task.protocol.id] for task in tasks}


def dense_score_rows(
    images: NDArray[np.float32],
    captions: NDArray[np.float32],
    task: RetrievalTask,
    *,
    device: str = "cpu",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Iterator[ScoreRows]:
    """The scores of a task, queries in rows; each block is valid until the next.

    Arguments are those of :func:`score_dense`.
    """
    _check(images, captions, [task])
    gallery, queries = (images, captions) if task.protocol.direction == "t2i" else (captions, images)
    yield from score_blocks(queries, gallery, device=device, memory_bytes=memory_bytes)


def score_blocks(
    queries: NDArray[np.float32],
    gallery: NDArray[np.float32],
    *,
    device: str = "cpu",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Iterator[ScoreRows]:
    """The scores of all queries with all items, from unit vectors; each block is valid until the next."""
    with full_float32():
        on_device = _on_device(queries, device), _on_device(gallery, device)
        for block in _products(*on_device, min(memory_bytes // BUDGET_SHARE, _BLOCK_BYTES)):
            yield block()


def _budget(device: str) -> int:
    if device.startswith("cuda"):
        return max(DEFAULT_MEMORY_BYTES, torch.cuda.mem_get_info(device)[0] // 4)
    return DEFAULT_MEMORY_BYTES


def _check(images: NDArray[np.float32], captions: NDArray[np.float32], tasks: Sequence[ScoringTask]) -> None:
    for modality, vectors in (("image", images), ("caption", captions)):
        if vectors.ndim != 2 or vectors.dtype != np.float32:
            raise ValueError(
                f"{modality} vectors must be float32 of shape (n, dim), got {vectors.dtype} {vectors.shape}"
            )
        if not len(vectors):
            raise ValueError(f"there are no {modality} vectors; run `capim embed` first")
        norms = torch.linalg.vector_norm(torch.from_numpy(np.ascontiguousarray(vectors)), dim=1).numpy()
        for fault, rows in (("not finite", ~np.isfinite(norms)), ("zero", norms == 0)):
            if rows.any():
                raise ValueError(
                    f"{int(rows.sum())} {modality} vectors are {fault}, first at ord {int(np.argmax(rows))}"
                )
    if images.shape[1] != captions.shape[1]:
        raise ValueError(
            f"image vectors have {images.shape[1]} dimensions, caption vectors {captions.shape[1]}: "
            "they cannot be of one encoder"
        )
    check_ords(tasks, {"image": len(images), "caption": len(captions)})


def check_ords(tasks: Sequence[ScoringTask], counts: Mapping[Modality, int]) -> None:
    """Raise ``ValueError`` if a task names an image or a caption beyond the embeddings, given how many there are."""
    for modality, n in counts.items():
        for task in tasks:
            if (highest := task.highest_ord(modality)) >= n:
                raise ValueError(
                    f"protocol {task.protocol.id!r} needs {modality} {highest}, but there are embeddings of {n}; "
                    "run `capim embed` to complete the corpus"
                )


class _DeviceVectors(NamedTuple):
    """Vectors of one modality on the device, and which of them repeat an earlier one."""

    vectors: Tensor  # padded with zero rows to at least 16
    n: int
    copies: Tensor  # int64, shape (n_copies,)
    originals: Tensor  # the row that each copy repeats


def _on_device(vectors: NDArray[np.float32], device: str) -> _DeviceVectors:
    padded = np.ascontiguousarray(vectors)
    if len(vectors) < _ALIGNED:
        padded = np.concatenate([vectors, np.zeros((_ALIGNED - len(vectors), vectors.shape[1]), np.float32)])
    moved = torch.from_numpy(padded).to(device)
    repeated = _repeated(vectors, _hashes(moved[: len(vectors)]))
    copies, originals = (torch.from_numpy(rows).to(device) for rows in repeated)
    return _DeviceVectors(moved, len(vectors), copies, originals)


def _hashes(vectors: Tensor) -> NDArray[np.int64]:
    """An integer per row that is equal for rows that are equal bit for bit, computed where the vectors are."""
    factors = np.random.default_rng(0).integers(1, 1 << 63, size=vectors.shape[1], dtype=np.uint64) | np.uint64(1)
    if vectors.device.type == "cpu":
        words = vectors.numpy().view(np.uint32)
        products = [words[i : i + 1024].astype(np.uint64) @ factors for i in range(0, len(words), 1024)]
        return np.concatenate(products).view(np.int64)
    multipliers = torch.from_numpy(factors.view(np.int64)).to(vectors.device)
    parts = torch.split(vectors.view(torch.int32), _HASHED)
    sums = [(part.long() * multipliers).sum(dim=1) for part in parts]
    hashes: NDArray[np.int64] = torch.cat(sums).cpu().numpy()
    return hashes


def _repeated(vectors: NDArray[np.float32], hashes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that repeat an earlier row bit for bit, and those rows."""
    words = np.ascontiguousarray(vectors).view(np.uint32)
    _, first, code = np.unique(hashes, return_index=True, return_inverse=True)
    copies = np.flatnonzero(first[code] != np.arange(len(words)))
    originals = first[code][copies]
    same = (words[copies] == words[originals]).all(axis=1)
    return copies[same], originals[same]


def _outcomes(
    blocks: Iterable[Callable[[], ScoreRows]],
    tasks: Sequence[RetrievalTask],
    *,
    top: int,
    device: str,
    ranked: Callable[[int], None],
) -> dict[str, Outcomes]:
    """Outcomes of one direction; on a CPU, every thread computes a block and ranks it while it is in its caches.

    ``ranked`` gets the number of rows of each block that is done, in this thread.
    """
    accumulator = OutcomeAccumulator(tasks, top=top)

    def rank(block: Callable[[], ScoreRows]) -> int:
        with torch.inference_mode():  # a mode of the thread, not of the process
            rows = block()
            accumulator.add(rows)
            return len(rows.scores)

    with one_thread_each(device) as each:
        for n_rows in each(rank, blocks):
            ranked(n_rows)
    return accumulator.outcomes()


def _products(
    queries: _DeviceVectors, gallery: _DeviceVectors, block_bytes: int, keep: Tensor | None = None
) -> Iterator[Callable[[], ScoreRows]]:
    """Functions that compute the blocks of ``queries @ gallery.T``, each valid until its thread computes the next one.

    ``keep`` gets the blocks transposed. A block is transposed while it is still in the processor's caches, which was
    measured at six times the speed of reading columns out of the finished matrix.
    """
    step = max(_ALIGNED, block_bytes // (4 * gallery.n) // _ALIGNED * _ALIGNED)
    of_thread = threading.local()

    def block(start: int) -> ScoreRows:
        if not hasattr(of_thread, "buffer"):
            of_thread.buffer = torch.empty((step, len(gallery.vectors)), device=gallery.vectors.device)
        vectors = queries.vectors[start : start + step]
        n_rows = min(step, queries.n - start)
        if len(vectors) % _ALIGNED:
            vectors = torch.nn.functional.pad(vectors, (0, 0, 0, _ALIGNED - len(vectors) % _ALIGNED))
        scores = torch.mm(vectors, gallery.vectors.T, out=of_thread.buffer[: len(vectors)])[:n_rows, : gallery.n]
        if keep is not None:
            keep[:, start : start + n_rows] = scores.T
        return ScoreRows(start, _tie_copies(scores, gallery))

    return (partial(block, start) for start in range(0, queries.n, step))


def _blocks_of(matrix: Tensor, gallery: _DeviceVectors, block_bytes: int) -> Iterator[Callable[[], ScoreRows]]:
    step = max(1, block_bytes // (4 * matrix.shape[1]))

    def block(start: int) -> ScoreRows:
        return ScoreRows(start, _tie_copies(matrix[start : start + step], gallery))

    return (partial(block, start) for start in range(0, len(matrix), step))


def _tie_copies(scores: Tensor, gallery: _DeviceVectors) -> Tensor:
    """Give repeated gallery vectors the scores of their originals."""
    if len(gallery.copies):
        scores[:, gallery.copies] = scores[:, gallery.originals]
    return scores


def _choice_scores(images: NDArray[np.float32], captions: NDArray[np.float32], task: ChoiceTask) -> NDArray[np.float32]:
    """Scores of small sets, shape ``(n_sets, captions * images)``; summed in float64, rounded once to float32."""
    columns = []
    for caption in task.captions.T:
        for image in task.images.T:
            pairs = captions[caption].astype(np.float64), images[image].astype(np.float64)
            columns.append(np.einsum("nd,nd->n", *pairs))
    return np.stack(columns, axis=1).astype(np.float32)
