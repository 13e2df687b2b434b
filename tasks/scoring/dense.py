"""Single-vector encoders: exact float32 cosine products, streamed, both directions from one product.

Two things a matrix library does not promise are held here, because ranks depend on them. The score of a pair does
not depend on where the pair stands: blocks of queries are padded to a multiple of 16 rows and galleries to at least
16 items, below which MKL was measured to switch to kernels that round differently. And identical gallery vectors
get bit-identical scores on any device, so that an English caption written for two images ties exactly.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from store.schema import TOP
from tasks.scoring.choices import choose
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.tasks import ChoiceTask, RetrievalTask, ScoringTask
from tasks.scoring.ranks.accumulator import Collector, Strip
from tasks.scoring.threads import one_thread_each

_ALIGNED = 16  # rows of a block: see the module's first lines
_STRIP_SHARE = 32  # a strip and what ranking it allocates stay below the budget by this factor
_STRIP_BYTES = 1 << 24  # larger strips only leave the processor's caches
DEFAULT_MEMORY_BYTES = 1 << 30


def score_dense(
    images: NDArray[np.float32],
    captions: NDArray[np.float32],
    judgements: Sequence[ScoringTask],
    *,
    device: str = "cpu",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    top: int = TOP,
) -> dict[str, Outcomes]:
    """Outcomes of every judgement, from unit vectors in corpus order.

    Where the whole score matrix fits the budget it is computed once and read both ways; else each direction computes
    its own strips, so that memory does not grow with the gallery.

    Args:
        images: float32, shape ``(n_images, dim)``.
        captions: float32, shape ``(n_captions, dim)``.
        judgements: Of one corpus.
        device: Any torch device.
        memory_bytes: What may be allocated beyond the embeddings (and their copy on the device).
        top: Length of the best lists.

    Returns:
        Protocol id -> outcomes, in the order of ``judgements``.

    Raises:
        ValueError: Wrong shape or type, different dimensions, a vector that is zero or not finite, or an ord beyond
            the embeddings.
    """
    if not judgements:
        return {}
    _check(images, captions, judgements)
    to_images = [j for j in judgements if isinstance(j, RetrievalTask) and j.protocol.direction == "t2i"]
    to_captions = [j for j in judgements if isinstance(j, RetrievalTask) and j.protocol.direction == "i2t"]
    found: dict[str, Outcomes] = {}
    with full_float32():
        sides = _Sides(_side(images, device), _side(captions, device))
        matrix_bytes = 4 * len(images) * len(captions)
        strip_bytes = min(memory_bytes // _STRIP_SHARE, _STRIP_BYTES if device == "cpu" else memory_bytes)
        if to_images and to_captions and matrix_bytes <= memory_bytes - 8 * strip_bytes:
            by_image = torch.empty((len(images), len(captions)), device=device)
            strips = _products(sides.captions, sides.images, strip_bytes, keep=by_image)
            found |= _answered(strips, to_images, top=top, device=device)
            found |= _answered(_rows(by_image, sides.captions, strip_bytes), to_captions, top=top, device=device)
        else:
            if to_images:
                strips = _products(sides.captions, sides.images, strip_bytes)
                found |= _answered(strips, to_images, top=top, device=device)
            if to_captions:
                strips = _products(sides.images, sides.captions, strip_bytes)
                found |= _answered(strips, to_captions, top=top, device=device)
    for judgement in judgements:
        if isinstance(judgement, ChoiceTask):
            found[judgement.protocol.id] = choose(judgement, _choice_scores(images, captions, judgement))
    return {judgement.protocol.id: found[judgement.protocol.id] for judgement in judgements}


def dense_strips(
    images: NDArray[np.float32],
    captions: NDArray[np.float32],
    judgements: Sequence[RetrievalTask],
    *,
    device: str,
    memory_bytes: int,
) -> Iterator[Strip]:
    """The strips that judgements of one direction are answered from, each valid until the next.

    Arguments are those of :func:`score_dense`.
    """
    _check(images, captions, judgements)
    sides = _side(images, device), _side(captions, device)
    gallery, queries = sides if judgements[0].protocol.direction == "t2i" else sides[::-1]
    for strip in _products(queries, gallery, min(memory_bytes // _STRIP_SHARE, _STRIP_BYTES)):
        yield strip()


def _check(images: NDArray[np.float32], captions: NDArray[np.float32], judgements: Sequence[ScoringTask]) -> None:
    check_vectors(images, "image")
    check_vectors(captions, "caption")
    if images.shape[1] != captions.shape[1]:
        raise ValueError(f"images have {images.shape[1]} dimensions, captions {captions.shape[1]}: not one encoder's")
    for judgement in judgements:
        check_ords(judgement, n_images=len(images), n_captions=len(captions))


def check_vectors(vectors: NDArray[np.float32], what: str) -> None:
    """Raise ``ValueError`` unless these are float32 vectors, finite and none of them zero; ``what`` names them."""
    if vectors.ndim != 2 or vectors.dtype != np.float32:
        raise ValueError(f"{what} vectors must be float32 of shape (n, dim), got {vectors.dtype} {vectors.shape}")
    if not len(vectors):
        raise ValueError(f"there are no {what} vectors; embed the corpus first")
    squares = np.einsum("nd,nd->n", vectors, vectors)
    for fault, rows in (("not finite", ~np.isfinite(squares)), ("zero", squares == 0)):
        if rows.any():
            raise ValueError(f"{int(rows.sum())} {what} vectors are {fault}, first at ord {int(np.argmax(rows))}")


def check_ords(judgement: ScoringTask, *, n_images: int, n_captions: int) -> None:
    """Raise ``ValueError`` if a judgement asks for an item that has no embedding."""
    if isinstance(judgement, ChoiceTask):
        asked = {"image": judgement.images, "caption": judgement.captions}
    else:
        gallery = np.concatenate(judgement.galleries)
        names = ("caption", "image") if judgement.protocol.direction == "t2i" else ("image", "caption")
        asked = dict(zip(names, (judgement.queries, gallery), strict=True))
    for name, n in (("image", n_images), ("caption", n_captions)):
        if asked[name].max() >= n:
            raise ValueError(
                f"protocol {judgement.protocol.id!r} asks for {name} {int(asked[name].max())}, but there are "
                f"embeddings of {n}; finish embedding the corpus (missing ords) first"
            )


@contextmanager
def full_float32() -> Iterator[None]:
    """Products in true float32 on every device, whatever the process has set before."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


class _Side(NamedTuple):
    """Vectors of one modality on the device, and which repeat an earlier one."""

    vectors: Tensor  # padded with zero rows to at least 16
    n: int
    copies: Tensor  # int64, shape (n_copies,)
    originals: Tensor


class _Sides(NamedTuple):
    images: _Side
    captions: _Side


def _side(vectors: NDArray[np.float32], device: str) -> _Side:
    copies, originals = _repeated(vectors)
    padded = np.ascontiguousarray(vectors)
    if len(vectors) < _ALIGNED:
        padded = np.concatenate([vectors, np.zeros((_ALIGNED - len(vectors), vectors.shape[1]), np.float32)])
    return _Side(
        torch.from_numpy(padded).to(device),
        len(vectors),
        torch.from_numpy(copies).to(device),
        torch.from_numpy(originals).to(device),
    )


def _repeated(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that are bit for bit an earlier row, and which; found by an integer hash, so position plays no part."""
    factors = np.random.default_rng(0).integers(1, 1 << 63, size=vectors.shape[1], dtype=np.uint64) | np.uint64(1)
    words = np.ascontiguousarray(vectors).view(np.uint32)
    hashes = np.concatenate([words[i : i + 1024].astype(np.uint64) @ factors for i in range(0, len(words), 1024)])
    _, first, code = np.unique(hashes, return_index=True, return_inverse=True)
    copies = np.flatnonzero(first[code] != np.arange(len(words)))
    originals = first[code][copies]
    same = (words[copies] == words[originals]).all(axis=1)
    return copies[same], originals[same]


def _answered(
    strips: Iterable[Callable[[], Strip]], judgements: Sequence[RetrievalTask], *, top: int, device: str
) -> dict[str, Outcomes]:
    """Outcomes of one direction; on a CPU, every thread computes a strip and ranks it while it is in its caches."""
    collector = Collector(judgements, top=top)

    def answer(strip: Callable[[], Strip]) -> None:
        with torch.inference_mode():  # a mode of the thread, not of the process
            collector.answer(strip())

    with one_thread_each(device) as each:
        deque(each(answer, strips), maxlen=0)
    return collector.outcomes()


def _products(
    queries: _Side, gallery: _Side, strip_bytes: int, keep: Tensor | None = None
) -> Iterator[Callable[[], Strip]]:
    """What makes the strips of ``queries @ gallery.T``, each valid until its thread makes the next one.

    ``keep`` gets them transposed.

    A strip is transposed while it is still in the processor's caches, which was measured at six times the speed of
    reading columns out of the finished matrix.
    """
    step = max(_ALIGNED, strip_bytes // (4 * gallery.n) // _ALIGNED * _ALIGNED)
    of_thread = threading.local()

    def strip(start: int) -> Strip:
        if not hasattr(of_thread, "buffer"):
            of_thread.buffer = torch.empty((step, len(gallery.vectors)), device=gallery.vectors.device)
        block = queries.vectors[start : start + step]
        rows = min(step, queries.n - start)
        if len(block) % _ALIGNED:
            block = torch.nn.functional.pad(block, (0, 0, 0, _ALIGNED - len(block) % _ALIGNED))
        scores = torch.mm(block, gallery.vectors.T, out=of_thread.buffer[: len(block)])[:rows, : gallery.n]
        if keep is not None:
            keep[:, start : start + rows] = scores.T
        return Strip(start, _level_copies(scores, gallery))

    return (partial(strip, start) for start in range(0, queries.n, step))


def _rows(matrix: Tensor, gallery: _Side, strip_bytes: int) -> Iterator[Callable[[], Strip]]:
    step = max(1, strip_bytes // (4 * matrix.shape[1]))

    def strip(start: int) -> Strip:
        return Strip(start, _level_copies(matrix[start : start + step], gallery))

    return (partial(strip, start) for start in range(0, len(matrix), step))


def _level_copies(scores: Tensor, gallery: _Side) -> Tensor:
    if len(gallery.copies):
        scores[:, gallery.copies] = scores[:, gallery.originals]
    return scores


def _choice_scores(
    images: NDArray[np.float32], captions: NDArray[np.float32], judgement: ChoiceTask
) -> NDArray[np.float32]:
    """Scores of small sets, shape ``(n_sets, captions * images)``; summed in float64, rounded once to float32."""
    columns = []
    for caption in judgement.captions.T:
        for image in judgement.images.T:
            pairs = captions[caption].astype(np.float64), images[image].astype(np.float64)
            columns.append(np.einsum("nd,nd->n", *pairs))
    return np.stack(columns, axis=1).astype(np.float32)
