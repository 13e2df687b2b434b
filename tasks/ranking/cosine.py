"""Single-vector encoders: exact float32 cosine products, streamed, both directions from one product.

Ranks depend on two properties that a matrix library does not guarantee. The score of a pair must not depend on its
position: a library chooses its order of summation by the shape of a product and by the threads that share it (MKL,
beyond 768 components: by fewer than 192 columns, and by a second thread). So all products of a search have one shape,
and one thread each, independent of windows, parts and memory. And identical gallery vectors get bit-identical scores on
any device, so that an English caption written for two images ties exactly. Between two windows or two tiles of a
gallery the first property ensures this.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capim.store.schema import TOP
from capim.tasks.encoders.device import full_float32
from capim.tasks.ranking.best_lists import TopK, top_k
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.ranker import BUDGET_SHARE, FORWARD, TRANSPOSED, Ranker, ScoreRows, choice_outcomes, reading_of
from capim.tasks.ranking.resources import ON_CPU, Advance, Resources, ignore, one_thread_each
from capim.tasks.ranking.tasks import ChoiceTask, RetrievalTask, ScoringTask
from capim.tasks.ranking.vectors import VectorRows, check_values, matrix_of

# --- Checking vectors, and moving them to the device that multiplies them.


ALIGNED = 16  # both sides of a product are a multiple of this many vectors
_HASHED = 1 << 15  # rows at a time, on a device other than a CPU


def check_vectors(images: VectorRows, captions: VectorRows, tasks: Sequence[ScoringTask]) -> None:
    """Raise ``ValueError`` unless shapes and types fit each other and the tasks; no vector is read."""
    for modality, vectors in (("image", images), ("caption", captions)):
        if len(vectors.shape) != 2 or vectors.dtype != np.float32:
            found = f"{vectors.dtype} {vectors.shape}"
            raise ValueError(f"{modality} vectors must be float32 of shape (n, dim), got {found}")
        if not len(vectors):
            raise ValueError(f"there are no {modality} vectors; run `capim embed` first")
    if images.shape[1] != captions.shape[1]:
        raise ValueError(
            f"image vectors have {images.shape[1]} dimensions, caption vectors {captions.shape[1]}: "
            "they cannot be of one encoder"
        )
    check_counts(tasks, len(captions), len(images))


def check_counts(tasks: Sequence[ScoringTask], n_captions: int, n_images: int | None = None) -> None:
    """Raise ``ValueError`` if a task needs a caption or an image beyond the available embeddings."""
    for task in tasks:
        for modality, needed, n in zip(("caption", "image"), task.n_needed, (n_captions, n_images), strict=True):
            if n is not None and needed > n:
                raise ValueError(
                    f"protocol {task.protocol.id!r} needs {modality} {needed - 1}, but there are embeddings of {n}; "
                    "run `capim embed` to complete the corpus"
                )


class DeviceVectors(NamedTuple):
    """Vectors of one modality on the device; if they are searched, also which of them repeat an earlier one."""

    vectors: Tensor  # padded with zero rows to at least the columns of a product
    first: int  # ord of the first
    n: int
    copies: Tensor  # int64, shape (n_copies,)
    originals: Tensor  # the row that each copy repeats

    def tiles(self, most: int, columns: int) -> list[DeviceVectors]:
        """Return views of ``most`` vectors each, the last of ``columns`` or more; itself if it is no larger."""
        if self.n <= most:
            return [self]
        found = []
        for start, stop in itertools.pairwise([*range(0, self.n - columns + 1, most), self.n]):
            own = (self.originals >= start) & (self.copies < stop)
            copies, originals = self.copies[own] - start, self.originals[own] - start
            found.append(DeviceVectors(self.vectors[start:stop], self.first + start, stop - start, copies, originals))
        return found


def loaded(
    vectors: VectorRows, window: range, modality: str, device: str, columns: int, *, searched: bool
) -> DeviceVectors:
    """Return a window of the vectors: read, checked, moved to the device and padded to ``columns``."""
    read = vectors[window.start : window.stop]
    check_values(read, modality, window)
    return on_device(read, window.start, device, columns, searched=searched)


def on_device(vectors: NDArray[np.float32], first: int, device: str, columns: int, *, searched: bool) -> DeviceVectors:
    """Return the vectors of the items ``first``, ``first + 1`` … on the device, padded to ``columns``.

    ``searched``: False if they are only queries; which of them are equal is then not looked up.
    """
    moved = torch.from_numpy(np.ascontiguousarray(vectors)).to(device)
    repeated = _repeated(vectors, _hashes(moved)) if searched else (np.empty(0, np.int64),) * 2
    copies, originals = (torch.from_numpy(rows).to(device) for rows in repeated)
    return DeviceVectors(_padded(moved, columns), first, len(vectors), copies, originals)


def _padded(vectors: Tensor, n: int) -> Tensor:
    """Add zero rows up to ``n``; return the tensor itself if it has as many."""
    return vectors if len(vectors) >= n else torch.nn.functional.pad(vectors, (0, 0, 0, n - len(vectors)))


def _hashes(vectors: Tensor) -> NDArray[np.int64]:
    """Return an integer per row, equal for rows that are equal bit for bit, computed on the device of the vectors."""
    factors = np.random.default_rng(0).integers(1, 1 << 63, size=vectors.shape[1], dtype=np.uint64) | np.uint64(1)
    if vectors.device.type == "cpu":
        words = vectors.numpy().view(np.uint32)
        products = [words[i : i + 1024].astype(np.uint64) @ factors for i in range(0, len(words), 1024)]
        return np.concatenate(products).view(np.int64)
    multipliers = torch.from_numpy(factors.view(np.int64)).to(vectors.device)
    parts = torch.split(vectors.view(torch.int32), _HASHED)
    sums = [(part.long() * multipliers).sum(dim=1) for part in parts]
    return torch.cat(sums).cpu().numpy()


def _repeated(vectors: NDArray[np.float32], hashes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that repeat an earlier row bit for bit, and those earlier rows."""
    words = np.ascontiguousarray(vectors).view(np.uint32)
    _, first, code = np.unique(hashes, return_index=True, return_inverse=True)
    copies = np.flatnonzero(first[code] != np.arange(len(words)))
    originals = first[code][copies]
    same = (words[copies] == words[originals]).all(axis=1)
    return copies[same], originals[same]


_Block: TypeAlias = Callable[[], Iterator[ScoreRows]]  # some queries with all items of a window, tile by tile

_BLOCK_BYTES = 1 << 24  # larger blocks of scores only leave the processor's caches
_TILE = 1 << 15  # items of a block on a CPU: with more, the scores of relevant items are computed first
_PRODUCT = 512, 2048  # maximal rows and columns of a product on a CPU: larger ones were measured to be no faster
_DEVICE_PRODUCT = 4096, 4096
_LEAST = 256  # vectors at once, even with little memory


def dense_part(
    images: VectorRows,
    captions: VectorRows,
    tasks: Sequence[ScoringTask],
    part: range | None = None,
    *,
    resources: Resources = ON_CPU,
    top: int = TOP,
    advance: Advance = ignore,
) -> Ranker:
    """Return the contribution of a part of the images: they are searched by all captions, and search all captions.

    The scores of a window of captions with a window of images are computed once and read in both directions. One window
    holds everything if the budget allows it; the outcomes do not depend on the windows.

    Args:
        images: float32 unit vectors, shape ``(n_images, dim)``, in memory or read on demand: the columns of scores
            (:attr:`RetrievalTask.spaces`). If a modality searches itself, its items.
        captions: The rows of scores, in the same form. If a modality searches itself, its queries.
        tasks: Tasks of the same two index spaces.
        part: Ords of the images; by default of all.
        advance: Called with the fraction of the work just done; the fractions add up to 1.

    Raises:
        ValueError: If shapes, types or dimensions are wrong, if a vector is zero or not finite, or if an ord is beyond
            the embeddings.
    """
    part = range(len(images)) if part is None else part
    check_vectors(images, captions, tasks)
    n_captions, dim = captions.shape
    device = resources.device
    with full_float32():
        memory_bytes = _budget(resources)
        block_bytes = memory_bytes // BUDGET_SHARE
        ranking = Ranker(tasks, top=top)
        forward, transposed = FORWARD in ranking.readings, TRANSPOSED in ranking.readings
        room = memory_bytes - memory_bytes // 4
        at_once = _windows(len(part), n_captions, dim, forward and transposed, room)
        turn = 1 if forward else -1  # 1: captions are the rows of products; -1: images
        queries, items = (captions, images)[::turn]
        shape = ProductShape.of(len(queries), len(items), device)
        tile = shape.tile(block_bytes) if device == "cpu" else max(at_once)
        if at_once != (len(images), n_captions) or len(items) > tile:
            pairs = ranking.pairs(part)
            scores = pair_scores(queries, items, pairs[:, ::turn], shape, device=device, memory_bytes=room // 2)
            ranking.set_positive_scores(pairs, scores)
        n_rows = n_captions * forward + len(part) * transposed
        held = keep = None
        for start in range(part.start, part.stop, at_once[0]):
            window = range(start, min(part.stop, start + at_once[0]))
            of_images = loaded(images, window, "image", device, shape.columns, searched=forward)
            turned = ranking.has_queries(TRANSPOSED, window.start, window.stop)
            for first in range(0, n_captions, at_once[1]):
                if held is None:
                    of_captions = range(first, min(n_captions, first + at_once[1]))
                    held = loaded(captions, of_captions, "caption", device, shape.columns, searched=transposed)
                if forward:
                    if turned:
                        keep = torch.empty((of_images.n, held.n), device=device)
                    blocks = _products(held, of_images.tiles(tile, shape.columns), shape, block_bytes, keep=keep)
                    for n in _ranked(blocks, ranking, FORWARD, device):
                        advance(n * len(window) / len(part) / n_rows)
                if turned:
                    if keep is None:
                        blocks = _products(of_images, held.tiles(tile, shape.columns), shape, block_bytes)
                    else:
                        blocks = _blocks_of(keep, of_images, held, block_bytes)
                    for n in _ranked(blocks, ranking, TRANSPOSED, device):
                        advance(n * held.n / n_captions / n_rows)
                keep = None
                held = held if at_once[1] == n_captions else None
            del of_images  # before the next window is read, so that memory holds one
    return ranking


def dense_score_rows(
    images: VectorRows, captions: VectorRows, task: RetrievalTask, *, resources: Resources = ON_CPU
) -> Iterator[ScoreRows]:
    """Yield the scores of a task, queries in rows, from the vectors of all images and captions in corpus order."""
    queries, items = (matrix_of(space, images, captions)[:] for space in (task.query_space, task.item_space))
    sides = (queries, items) if reading_of(task) == TRANSPOSED else (items, queries)
    check_vectors(*sides, [task])
    for space, vectors in ((task.query_space, queries), (task.item_space, items)):
        if space.ords is None:
            check_values(vectors, space.modality, range(len(vectors)))
    yield from score_blocks(queries, items, resources=resources)


def score_blocks(queries: VectorRows, gallery: VectorRows, *, resources: Resources = ON_CPU) -> Iterator[ScoreRows]:
    """Yield the scores of all queries with all items, from unit vectors, in order."""
    device = resources.device
    shape = ProductShape.of(len(queries), len(gallery), device)

    def computed(block: _Block) -> ScoreRows:
        [rows] = block()
        return rows._replace(scores=rows.scores.clone())  # the thread that computed them overwrites them afterwards

    with full_float32(), one_thread_each(device) as each:
        of_queries = on_device(queries[:], 0, device, shape.columns, searched=False)
        of_items = on_device(gallery[:], 0, device, shape.columns, searched=True)
        yield from each(computed, _products(of_queries, [of_items], shape, resources.budget // BUDGET_SHARE))


def _budget(resources: Resources) -> int:
    if resources.memory_bytes is None and resources.device.startswith("cuda"):
        return max(resources.budget, torch.cuda.mem_get_info(resources.device)[0] // 4)
    return resources.budget


def _windows(n_images: int, n_captions: int, dim: int, both: bool, room: int) -> tuple[int, int]:
    """Return how many images and captions are scored at once: their vectors and, if kept, their scores must fit.

    Examples:
        >>> _windows(5_000, 25_010, 1024, True, 1 << 30), _windows(1_000_000, 25_010, 768, False, 1 << 30)
        ((5000, 25010), (324512, 25010))
    """
    numbers = room // 4
    if dim * (n_images + n_captions) + both * n_images * n_captions <= numbers:
        return n_images, n_captions
    captions = max(_LEAST, math.isqrt(numbers // 2) if both else numbers // 4 // dim)
    captions = n_captions if n_captions <= captions else captions // ALIGNED * ALIGNED
    images = max(_LEAST, (numbers - dim * captions) // (dim + both * captions)) // ALIGNED * ALIGNED
    return min(n_images, images), captions


def _ranked(blocks: Iterable[_Block], ranker: Ranker, reading: str, device: str) -> Iterator[int]:
    """Rank all blocks and yield the number of finished rows of each, in this thread.

    On a CPU, every thread computes a block and ranks it while it is in its caches.
    """

    def rank(block: _Block) -> int:
        with torch.inference_mode():  # a mode of the thread, not of the process
            for rows in block():
                ranker.add(rows, reading)
        return len(rows.scores)

    with one_thread_each(device) as each:
        yield from each(rank, blocks)


class ProductShape(NamedTuple):
    """Rows (queries) and columns (items) of every product of a search."""

    rows: int
    columns: int

    @classmethod
    def of(cls, n_queries: int, n_items: int, device: str) -> ProductShape:
        """Return the shape of a search, independent of its windows and parts.

        Examples:
            >>> ProductShape.of(25_010, 5_000, "cpu"), ProductShape.of(3, 17, "cpu")
            (ProductShape(rows=512, columns=1680), ProductShape(rows=16, columns=32))
        """
        most = _PRODUCT if device == "cpu" else _DEVICE_PRODUCT
        even = (math.ceil(n / math.ceil(n / limit)) for n, limit in zip((n_queries, n_items), most, strict=True))
        rows, columns = (math.ceil(n / ALIGNED) * ALIGNED for n in even)
        return cls(rows, columns)

    def tile(self, block_bytes: int) -> int:
        """Return the items of a block on a CPU: as many whole products as fit."""
        return max(1, min(_TILE, block_bytes // (4 * self.rows)) // self.columns) * self.columns

    def fill(self, out: Tensor, queries: Tensor, items: Tensor) -> Tensor:
        """Return ``queries @ items.T``, for whole rows of products and items for at least one.

        The last product of a row ends with the last item, and may overlap the one before.
        """
        last = len(items) - self.columns
        for row in range(0, len(queries), self.rows):
            below = slice(row, row + self.rows)
            for column in (min(start, last) for start in range(0, len(items), self.columns)):
                beside = slice(column, column + self.columns)
                torch.mm(queries[below], items[beside].T, out=out[below, beside])
        return out


def _products(
    queries: DeviceVectors,
    tiles: Sequence[DeviceVectors],
    shape: ProductShape,
    block_bytes: int,
    keep: Tensor | None = None,
) -> Iterator[_Block]:
    """Yield functions that compute some rows of ``queries @ gallery.T``, tile by tile of the gallery.

    The scores of a tile are valid until the thread computes the next ones. ``keep`` receives them transposed, while
    they are still in the processor's caches, which was measured at six times the speed of reading columns out of the
    finished matrix.
    """
    widest = max(len(tile.vectors) for tile in tiles)
    if queries.vectors.device.type == "cpu":
        block_bytes = min(block_bytes, _BLOCK_BYTES)
    step = max(1, block_bytes // (4 * widest) // shape.rows) * shape.rows
    of_thread = threading.local()

    def block(start: int) -> Iterator[ScoreRows]:
        if not hasattr(of_thread, "buffer"):
            of_thread.buffer = torch.empty(step * widest, device=queries.vectors.device)
        n_rows = min(step, queries.n - start)
        vectors = _padded(queries.vectors[start : start + n_rows], math.ceil(n_rows / shape.rows) * shape.rows)
        for tile in tiles:
            out = of_thread.buffer[: len(vectors) * len(tile.vectors)].view(len(vectors), len(tile.vectors))
            scores = shape.fill(out, vectors, tile.vectors)[:n_rows, : tile.n]
            if keep is not None:
                at = tile.first - tiles[0].first
                keep[at : at + tile.n, start : start + n_rows] = scores.T
            yield ScoreRows(queries.first + start, _tie_copies(scores, tile), tile.first)

    return (partial(block, start) for start in range(0, queries.n, step))


def _blocks_of(matrix: Tensor, queries: DeviceVectors, gallery: DeviceVectors, block_bytes: int) -> Iterator[_Block]:
    if matrix.device.type == "cpu":
        block_bytes = min(block_bytes, _BLOCK_BYTES)
    step = max(1, block_bytes // (4 * matrix.shape[1]))

    def block(start: int) -> Iterator[ScoreRows]:
        scores = _tie_copies(matrix[start : start + step], gallery)
        yield ScoreRows(queries.first + start, scores, gallery.first)

    return (partial(block, start) for start in range(0, len(matrix), step))


def _tie_copies(scores: Tensor, gallery: DeviceVectors) -> Tensor:
    """Give repeated gallery vectors the scores of their originals."""
    if len(gallery.copies):
        scores[:, gallery.copies] = scores[:, gallery.originals]
    return scores


def pair_scores(
    queries: VectorRows,
    items: VectorRows,
    pairs: NDArray[np.int64],
    shape: ProductShape,
    *,
    device: str,
    memory_bytes: int,
) -> NDArray[np.float32]:
    """Return the scores of some pairs, bit for bit those of the search, from products of its shape.

    Args:
        pairs: Ords of a query and an item, shape ``(n, 2)``.
        memory_bytes: Memory for the vectors that are read at once.
    """
    scores = np.empty(len(pairs), np.float32)
    order = np.argsort(pairs[:, 0], kind="stable")
    step = max(_LEAST, memory_bytes // (8 * items.shape[1]))

    def read() -> Iterator[tuple[Tensor, Tensor, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """Yield the queries of one row of products, vectors of items, and each pair's number, query and item."""
        for start in range(0, len(pairs), step):
            some = order[start : start + step]
            (query_ords, row), (item_ords, column) = (np.unique(ords, return_inverse=True) for ords in pairs[some].T)
            of_queries, of_items = (torch.from_numpy(v).to(device) for v in (queries[query_ords], items[item_ords]))
            for low in range(0, len(of_queries), shape.rows):
                within = slice(*np.searchsorted(row, (low, low + shape.rows)))
                yield of_queries[low : low + shape.rows], of_items, some[within], row[within] - low, column[within]

    def score(found: tuple[Tensor, Tensor, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]) -> None:
        of_queries, of_items, numbers, row, column = found
        wanted, at = np.unique(column, return_inverse=True)
        for first in range(0, len(wanted), shape.columns):
            chosen = torch.from_numpy(wanted[first : first + shape.columns]).to(device)
            sides = _padded(of_queries, shape.rows), _padded(of_items[chosen], shape.columns)
            products = shape.fill(torch.empty(shape, device=device), *sides).cpu().numpy()
            here = (at >= first) & (at < first + shape.columns)
            scores[numbers[here]] = products[row[here], at[here] - first]

    with one_thread_each(device) as each:
        for _ in each(score, read()):
            pass
    return scores


def dense_choices(images: VectorRows, captions: VectorRows, tasks: Sequence[ScoringTask]) -> dict[str, Outcomes]:
    """Return outcomes of the tasks that choose within small sets; scores are summed in float64, rounded to float32."""
    outcomes = {}
    for task in tasks:
        if isinstance(task, ChoiceTask):
            columns = []
            for caption in np.maximum(task.captions, 0).T:
                for image in task.images.T:
                    pairs = captions[caption].astype(np.float64), images[image].astype(np.float64)
                    columns.append(np.einsum("nd,nd->n", *pairs))
            outcomes[task.protocol.id] = choice_outcomes(task, np.stack(columns, axis=1).astype(np.float32))
    return outcomes


def nearest_neighbours(vectors: NDArray[np.float32], k: int) -> TopK:
    """Return the ``k`` items with the highest cosine to each item, without itself; equal scores by position.

    Args:
        vectors: Unit vectors, shape ``(n, dim)``.
        k: Neighbours of an item; ``n - 1`` if there are fewer.

    Returns:
        Scores and positions, each of shape ``(n, k)``.

    Examples:
        >>> found = nearest_neighbours(np.float32([[1, 0], [0.6, 0.8], [0, 1], [1, 0]]), 2)
        >>> found.positions.tolist()
        [[3, 1], [2, 0], [1, 0], [0, 1]]
    """
    k = min(k, len(vectors) - 1)
    found = TopK(np.empty((len(vectors), k), np.float32), np.empty((len(vectors), k), np.int64))
    for block in score_blocks(vectors, vectors):
        best = top_k(block.scores, k + 1)
        rows = np.arange(block.start, block.start + len(best.positions))
        own = best.positions == rows[:, None]
        own[:, -1] |= ~own.any(axis=1)  # so many equal items that the item itself is not among the first
        found.scores[rows] = best.scores[~own].reshape(-1, k)
        found.positions[rows] = best.positions[~own].reshape(-1, k)
    return found
