"""MaxSim scores of pairs of multi-vectors, in float32.

The score of a pair does not depend on the other pairs in its product: token rows are padded to a multiple of 16, images
repeat vectors up to 16, or as many as make a product wide, and each product has one thread (see
``tasks.ranking.cosine``). Repeating does not change a maximum; a padded 0 would, since it beats every negative
similarity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from tempfile import TemporaryFile
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capim.store.vectors import Ragged
from capim.tasks.ranking.best_lists import kth_score_bound
from capim.tasks.ranking.ranker import FORWARD, TRANSPOSED, Ranker, reading_of
from capim.tasks.ranking.resources import DEFAULT_MEMORY_BYTES, ON_CPU, Advance, Resources, ignore, one_thread_each
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.ranking.vectors import Blocks

_ALIGNED = 16
_WIDE = 768, 256  # with more components, MKL sums products of fewer than 192 columns (in some layouts, rows) otherwise
_PATCHES_AT_ONCE = 512  # of several images with few: every token is then read from memory once for all of them
_CAPTIONS_AT_ONCE = 64  # of one length: their products with as many patches stay in the caches of one processor core
_CORE_BYTES = 1 << 20  # of a product: stays in the caches of one processor core, and is worth a call
_TILED = 64  # rows of a product are a multiple of this
# On a device, measured on an H100: several images a product, as its rows, are a third faster than one as its columns
_DEVICE_PATCHES = 1 << 13  # rows of a product
_DEVICE_BYTES = (1 << 28, 1 << 30)  # of a product: on any device, and at most; larger ones are no faster
_DEVICE_SHARE = 64  # a product takes this part of a CUDA device's free memory, between the two


def maxsim_scores(
    images: Blocks, captions: Ragged, part: range, *, resources: Resources = ON_CPU, advance: Advance = ignore
) -> NDArray[np.float32]:
    """Return the sum over a caption's tokens of the image's best patch, shape ``(n_captions, len(part))``.

    The captions are float32; ``part`` has the ords of the images. Scores that take more than half of the memory are
    kept in a temporary file. ``advance`` is called with the fraction of every few images; the fractions add up to 1.
    """
    score = _TokenSums(captions, resources.device).of_images
    return _score_images(score, images, captions, part, resources, advance)


def rough_scores(
    images: Blocks, captions: Ragged, part: range, *, resources: Resources, advance: Advance
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return :func:`maxsim_scores` from products in bfloat16, and bounds of their error (``screening.RoughScores``)."""
    sums = _TokenSums(captions, resources.device, torch.bfloat16)

    def score(patches: Tensor) -> NDArray[np.float32]:
        rounded = patches.bfloat16()
        scores, negative = sums.of_images_and_negatives(rounded)
        sides = torch.stack([patches, rounded.float()])
        norm, lost = (each.norm(dim=-1).amax(dim=-1) for each in (sides, sides[0] - sides[1]))
        return np.column_stack([scores, norm.amax(dim=0).numpy(), lost.numpy(), negative])

    table = _score_images(score, images, captions, part, resources, advance, n_bounds=3)
    return table[:-3], table[-3:].T.copy()


def pair_scores(captions: Ragged, image: NDArray[np.floating], device: str) -> NDArray[np.float32]:
    """Return the scores of some captions with one image, bit for bit those of :func:`maxsim_scores`."""
    if not len(captions):
        return np.empty(0, dtype=np.float32)
    scores: NDArray[np.float32] = _TokenSums(captions, device).of_images(_stacked([image], device))[0]
    return scores


def scores_by_image(
    images: Iterable[NDArray[np.floating]], captions: Ragged, of_images: Iterable[NDArray[np.integer]], device: str
) -> Iterator[NDArray[np.float32]]:
    """Yield :func:`pair_scores` of every image, in order, with its captions in ``of_images``."""
    with one_thread_each(device) as each:
        yield from each(
            lambda one: pair_scores(captions.take(one[1]), one[0], device), zip(images, of_images, strict=True)
        )


def token_similarities(
    caption: NDArray[np.floating], image: NDArray[np.floating]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the cosine of every token with every patch, and that with its best patch as in the score of the pair.

    Args:
        caption: Unit vectors, shape ``(n_tokens, dim)``.
        image: Unit vectors, shape ``(n_patches, dim)``.

    Returns:
        float32, shapes ``(n_tokens, n_patches)`` and ``(n_tokens,)``. The second, added up in order, is bit for bit the
        score of :func:`pair_scores`.
    """
    tokens = torch.from_numpy(np.ascontiguousarray(caption, dtype=np.float32))
    patches = _stacked([image], "cpu")
    with one_thread_each("cpu") as each:
        [best] = each(
            lambda product_bytes: _best_patch(_padded(tokens), patches, product_bytes), [_product_bytes("cpu")]
        )
    return (tokens @ patches[0, : len(image)].T).numpy(), best[0, : len(tokens)].numpy()


def image_as_query_scores(
    images: Blocks, captions: Ragged, part: range, *, resources: Resources = ON_CPU, advance: Advance = ignore
) -> NDArray[np.float32]:
    """Return the sum over an image's patches of the caption's best token; arguments as for :func:`maxsim_scores`."""
    device = resources.device
    patches_at_once = _PATCHES_AT_ONCE if device == "cpu" else _DEVICE_PATCHES
    at_device = _product_bytes(device) // (4 * patches_at_once)
    groups = []
    for length in np.unique(captions.counts):
        # captions of one length together, their first tokens before their second ones: the best token of many
        # captions is then one elementwise maximum
        of_length = np.flatnonzero(captions.counts == length)
        at_once = _CAPTIONS_AT_ONCE if device == "cpu" else max(1, at_device // int(length))
        for begin in range(0, len(of_length), at_once):
            group = of_length[begin : begin + at_once]
            vectors = captions.take(group).values.reshape(len(group), length, -1).swapaxes(0, 1)
            tokens = _padded(torch.from_numpy(vectors.reshape(len(group) * length, -1)).to(device), wide=True)
            groups.append((torch.from_numpy(group).to(device), int(length), tokens.T.contiguous()))

    def score(patches: Tensor) -> NDArray[np.float32]:
        sums = torch.zeros((len(patches), len(captions)), device=device)
        for begin in range(0, patches.shape[1], patches_at_once):
            part = patches[:, begin : begin + patches_at_once]
            rows, n_rows = _padded(part.flatten(0, 1), wide=True), part.shape[0] * part.shape[1]
            for group, length, tokens in groups:
                products = (rows @ tokens)[:n_rows, : length * len(group)]
                by_token = products.reshape(*part.shape[:2], length, len(group))
                sums[:, group] += by_token.amax(dim=2).sum(dim=1)
        return sums.cpu().numpy()

    return _score_images(score, images, captions, part, resources, advance, repeat=False)


def score_table(shape: tuple[int, int], *, memory_bytes: int = DEFAULT_MEMORY_BYTES // 2) -> NDArray[np.float32]:
    """Return an empty float32 table, in a temporary file if it takes more than ``memory_bytes``."""
    if 4 * shape[0] * shape[1] <= memory_bytes:
        return np.empty(shape, dtype=np.float32)
    with TemporaryFile() as file:
        return np.memmap(file, dtype=np.float32, mode="w+", shape=shape)


def _score_images(
    score: Callable[[Tensor], NDArray[np.float32]],
    images: Blocks,
    captions: Ragged,
    part: range,
    resources: Resources,
    advance: Advance,
    *,
    repeat: bool = True,
    n_bounds: int = 0,
) -> NDArray[np.float32]:
    """Return a column per image of a part (ords) from ``score``, called with images of equal patch counts.

    ``score`` maps shape ``(k, n_patches, dim)`` to scores with all captions and ``n_bounds`` further numbers, shape
    ``(k, n_captions + n_bounds)``. ``repeat``: True if patches may be repeated up to 16.
    """
    device = resources.device
    bound_bytes = 4 * n_bounds * len(part)
    table = score_table((len(captions) + n_bounds, len(part)), memory_bytes=resources.budget // 2 + bound_bytes)
    most_vectors = _PATCHES_AT_ONCE if device == "cpu" else _DEVICE_PATCHES

    def groups() -> Iterator[tuple[Ragged, list[int]]]:
        for block in checked(images(), "image", captions.values.shape[1], ords=part):
            for items in groups_of_equal_count(block, most_vectors=most_vectors):
                yield block, items

    def score_group(group: tuple[Ragged, list[int]]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        block, items = group
        return block.ords[items], score(_stacked([block[item] for item in items], device, repeat=repeat))

    with one_thread_each(device) as each:
        for ords, columns in each(score_group, groups()):
            table[:, ords - part.start] = columns.T
            advance(len(ords) / len(part))
    return table


def _stacked(items: list[NDArray[np.floating]], device: str, *, repeat: bool = True) -> Tensor:
    """Return float32 vectors of items with equal counts, ``(k, n, dim)``; with ``repeat``, enough for a product."""
    vectors = torch.from_numpy(np.stack(items)).to(device).float()
    n, least = vectors.shape[1], _least(vectors)
    return vectors.repeat(1, math.ceil(least / n), 1) if repeat and n < least else vectors


def _padded(vectors: Tensor, *, wide: bool = False) -> Tensor:
    """Add zero rows up to a multiple of 16, or to a wide product (``wide``). The caller leaves out their scores."""
    n = max(len(vectors), _least(vectors)) if wide else len(vectors)
    return torch.nn.functional.pad(vectors, (0, 0, 0, math.ceil(n / _ALIGNED) * _ALIGNED - len(vectors)))


def _least(vectors: Tensor) -> int:
    """Return the least number of vectors on a side of a product for which larger ones are summed in the same order."""
    components, least = _WIDE
    return least if vectors.device.type == "cpu" and vectors.shape[-1] > components else _ALIGNED


def _product_bytes(device: str) -> int:
    """Return the bytes of one product: on a CPU as many as fit a core's caches, else as many as occupy the device."""
    if device == "cpu":
        return _CORE_BYTES
    least, most = _DEVICE_BYTES
    return min(most, max(least, torch.cuda.mem_get_info(device)[0] // _DEVICE_SHARE)) if "cuda" in device else least


def _pieces(n: int, *, row_bytes: int, product_bytes: int) -> Iterator[slice]:
    """Yield runs of rows such that a product is neither too large for the caches nor too small to be worth a call.

    Examples:
        >>> [(part.start, part.stop) for part in _pieces(600, row_bytes=4 * 1030, product_bytes=1 << 20)]
        [(0, 256), (256, 512), (512, 768)]
    """
    step = max(_ALIGNED, round(product_bytes / row_bytes / _TILED) * _TILED)
    return (slice(first, first + step) for first in range(0, n, step))


class _TokenSums:
    """MaxSim of all captions with some images; the captions' vectors stay on the device."""

    def __init__(self, captions: Ragged, device: str, dtype: torch.dtype = torch.float32) -> None:
        self._captions = captions
        self._on_cpu = device == "cpu"
        tokens = _padded(torch.from_numpy(captions.values).to(device, dtype))
        self._tokens = tokens if self._on_cpu else tokens.T.contiguous()
        self._counts = torch.from_numpy(captions.counts).to(device)
        self._product_bytes = _product_bytes(device)

    def of_images(self, patches: Tensor) -> NDArray[np.float32]:
        """Return scores ``(k, n_captions)``, from float32 patches ``(k, n_patches, dim)``, at least 16 per image."""
        if self._on_cpu:
            return np.add.reduceat(self._best(patches), self._captions.offsets[:-1], axis=-1)
        best = _best_patch_on_device(self._tokens, patches, self._product_bytes)[:, : len(self._captions.values)]
        return sums_over_tokens(best, self._counts).cpu().numpy()

    def of_images_and_negatives(self, patches: Tensor) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return :meth:`of_images`, and each image's largest sum of a caption's negative cosines, made positive."""
        best, starts = self._best(patches), self._captions.offsets[:-1]
        negative = np.zeros(len(best), np.float32)
        if (best < 0).any():
            negative = np.add.reduceat(np.maximum(-best, 0), starts, axis=-1).max(axis=1)
        return np.add.reduceat(best, starts, axis=-1), negative

    def _best(self, patches: Tensor) -> NDArray[np.float32]:
        best: NDArray[np.float32] = _best_patch(self._tokens, patches, self._product_bytes).numpy()
        return best[:, : len(self._captions.values)]


def _best_patch(tokens: Tensor, patches: Tensor, product_bytes: int) -> Tensor:
    """Return the similarity of every token with the best patch of every image, shape ``(k, n_tokens)``.

    Args:
        tokens: float32, shape ``(n_tokens, dim)``, ``n_tokens`` a multiple of 16.
        patches: float32, shape ``(k, n_patches, dim)``, at least 16 of each image.
    """
    best = torch.empty((len(patches), len(tokens)))
    across = patches.flatten(0, 1).T
    for part in _pieces(len(tokens), row_bytes=tokens.element_size() * across.shape[1], product_bytes=product_bytes):
        products = tokens[part] @ across
        best[:, part] = products.view(-1, *patches.shape[:2]).amax(dim=2).T
    return best


def _best_patch_on_device(tokens: Tensor, patches: Tensor, product_bytes: int) -> Tensor:
    """Compute :func:`_best_patch` with patches as the rows of products; ``tokens`` have shape ``(dim, n_tokens)``."""
    best = torch.empty((len(patches), tokens.shape[1]), device=tokens.device)
    rows = patches.flatten(0, 1)
    for part in _pieces(tokens.shape[1], row_bytes=4 * len(rows), product_bytes=product_bytes):
        best[:, part] = (rows @ tokens[:, part]).view(*patches.shape[:2], -1).amax(dim=1)
    return best


def sums_over_tokens(best: Tensor, counts: Tensor) -> Tensor:
    """Return sums over the tokens of each caption, in token order, shape ``(k, n_captions)``.

    A torch operation, for a device that numpy cannot read; the sum of a caption does not depend on the others.

    Args:
        best: float32, shape ``(k, n_tokens)``, the tokens of one caption after the other.
        counts: int64, shape ``(n_captions,)``: tokens of each caption, at least 1.

    Examples:
        >>> sums_over_tokens(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2, 1])).tolist()
        [[3.0, 3.0]]
    """
    sums: Tensor = torch.segment_reduce(best.T.contiguous(), "sum", lengths=counts, axis=0, unsafe=True)
    return sums.T


# --- Late interaction at full size with fewer float32 products, for the same outcomes to the last digit.
#
# Products in bfloat16 take a third of the time of float32, or less, if the processor has instructions for them. Their
# scores, with a bound of their error, decide how most pairs compare with a relevant item and with the end of a list.
# The undecided pairs are computed in float32; the others keep an approximate score that appears in no rank and no list.


_LEAST_IMAGES, _LEAST_PATCHES = 1000, 128  # with fewer, lists hold much of the gallery, or products are too small
_BFLOAT16, _FLOAT32 = 2.0**-9, 2.0**-24  # largest relative errors of one rounding
_CELLS = 1 << 22  # of the table that are inspected together


def pays(ranking: Ranker, images: Blocks, n_images: int, device: str) -> bool:
    """True if screening ``n_images`` at a time is faster than float32 products only; the outcomes are the same."""
    if device != "cpu" or n_images < _LEAST_IMAGES or not {FORWARD, TRANSPOSED}.issuperset(ranking.readings):
        return False
    capabilities, block = torch.cpu.get_capabilities(), next(iter(images()))
    fast = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")
    return bool(fast) and len(block.values) >= _LEAST_PATCHES * len(block)


class RoughScores(NamedTuple):
    """Scores from products in bfloat16, and bounds of their errors.

    Attributes:
        table: float32, shape ``(n_captions, n_images)``.
        exact: True for scores that were computed in float32 since.
        of_captions: Sums over the tokens of each caption, shape ``(n_captions, 3)``: norms, norms of the rounding
            differences, and a float32 rounding error for every addition.
        of_images: The largest of each image, shape ``(n_images, 3)``: norm of a patch, rounded or not, norm of a
            rounding difference, and sum of the negative cosines of any caption, as a positive number.
    """

    table: NDArray[np.float32]
    exact: NDArray[np.bool_]
    of_captions: NDArray[np.float32]
    of_images: NDArray[np.float32]

    def errors(self, captions: NDArray[np.integer], images: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the largest error of a score against :func:`maxsim_scores`, shape ``(len(captions), len(images))``.

        For a token ``t`` and a patch ``p``, rounded to ``t'`` and ``p'``: ``|tp - t'p'| <= |t - t'||p'| + |t||p - p'|``
        (Cauchy and Schwarz), and the largest of several moves by no more than the largest error.
        """
        norms, lost, additions = self.of_captions[captions].T[:, :, None]
        norm, lost_of_patch, negative = self.of_images[images].T[:, None, :]
        pairs = np.ix_(captions, images)
        rounded = 1.01 * _BFLOAT16 * (np.abs(self.table[pairs]) + 2 * negative)
        errors: NDArray[np.float32] = lost * norm + norms * lost_of_patch + additions * norm + rounded
        errors[self.exact[pairs]] = 0
        return errors


def screened_scores(
    images: Blocks, captions: Ragged, part: range, *, ranking: Ranker, resources: Resources, advance: Advance
) -> NDArray[np.float32]:
    """Return a table like :func:`maxsim_scores`, exact wherever the ranks and lists of ``ranking`` depend on it.

    ``ranking`` has the scores of all relevant pairs (:meth:`Ranker.set_positive_scores`).
    """
    table, of_images = rough_scores(images, captions, part, resources=resources, advance=lambda done: advance(done / 2))
    rough = RoughScores(table, np.zeros(table.shape, dtype=np.bool_), _of_captions(captions), of_images)
    for leaders in (True, False):  # exact leaders exceed their bounds, which leaves half as many pairs undecided
        chosen = np.zeros(table.shape, dtype=np.bool_)
        for task in ranking.tasks:
            _choose(rough, task, part, ranking, chosen, leaders=leaders)
        chosen &= ~rough.exact
        _compute(rough, chosen, images, captions, resources.device)
        advance(1 / 4)
    return table


def _compute(rough: RoughScores, chosen: NDArray[np.bool_], images: Blocks, captions: Ragged, device: str) -> None:
    """Put the float32 scores of the chosen pairs into the table."""
    vectors = (image for block in images() for image in block)
    of_images = (np.flatnonzero(of_image) for of_image in chosen.T)
    for position, scores in enumerate(scores_by_image(vectors, captions, of_images, device)):
        rough.table[chosen[:, position], position] = scores
    rough.exact[chosen] = True


def _of_captions(captions: Ragged) -> NDArray[np.float32]:
    """See :class:`RoughScores`."""
    values = captions.values
    lost = np.linalg.norm(values - torch.from_numpy(values).bfloat16().float().numpy(), axis=1)
    norms = np.linalg.norm(values, axis=1)
    additions = _FLOAT32 * (2 * values.shape[1] + 4 * np.repeat(captions.counts, captions.counts)) * norms
    return np.add.reduceat(np.stack([norms, lost, additions], axis=1), captions.offsets[:-1]).astype(np.float32)


def _choose(
    rough: RoughScores, task: RetrievalTask, part: range, ranking: Ranker, chosen: NDArray[np.bool_], *, leaders: bool
) -> None:
    """Mark the best pairs of every query, or all that may be level with a relevant item or in a list."""
    to_images, known = reading_of(task) == FORWARD, ranking.positive_scores[task.protocol.id]
    for number, gallery in enumerate(task.galleries):
        items, rows = gallery, np.flatnonzero(task.gallery_of == number)
        if to_images:
            items = items[(items >= part.start) & (items < part.stop)] - part.start
        else:
            rows = rows[(task.queries[rows] >= part.start) & (task.queries[rows] < part.stop)]
        n_best = min(ranking.top, len(items))
        for some in _runs(rows, len(items)):
            queries = task.queries[some] - (0 if to_images else part.start)
            pairs = (queries, items) if to_images else (items, queries)
            scores = rough.table[np.ix_(*pairs)]
            if leaders:
                of_rows = scores if to_images else scores.T
                found = of_rows >= kth_score_bound(of_rows, n_best)
            else:
                errors = rough.errors(*pairs)
                if not to_images:
                    scores, errors = scores.T, errors.T
                found = scores + errors >= kth_score_bound(scores - errors, n_best)
                counts = task.n_relevant[some]
                for place in range(counts.max()):
                    of_query = known[task.offsets[some] + np.minimum(place, counts - 1)]
                    found |= np.abs(scores - of_query[:, None]) <= errors
            chosen[np.ix_(*pairs)] |= found if to_images else found.T


def _runs(rows: NDArray[np.integer], width: int) -> Iterator[NDArray[np.integer]]:
    step = max(1, _CELLS // max(1, width))
    return (rows[start : start + step] for start in range(0, len(rows) if width else 0, step))


_CHECKED = 1 << 12  # vectors at a time, which stay in a core's caches


def gather(blocks: Iterable[Ragged], ords: NDArray[np.integer] | None = None) -> Ragged:
    """Return all blocks of captions as one, float32; ``ords`` as for :func:`checked`.

    Raises:
        ValueError: If there is none, if an item is missing, or if a vector is zero or not finite.
    """
    return Ragged.concatenate(
        block.with_values(block.values.astype(np.float32)) for block in checked(blocks, "caption", ords=ords)
    )


def checked(
    blocks: Iterable[Ragged],
    modality: str,
    dim: int | None = None,
    *,
    ords: Sequence[int] | range | NDArray[np.integer] | None = None,
) -> Iterator[Ragged]:
    """Yield the blocks, in corpus order, after a check that they can be scored.

    ``ords`` are the required ones, ascending: later items are left out; by default 0, 1, 2 … to the end.

    Raises:
        ValueError: If there are fewer, if an item is missing, or if a vector is zero, not finite or not of ``dim``
            components.
    """
    start, expected = 0, None if ords is None else len(ords)
    for block in blocks:
        if expected is not None and start >= expected:
            break
        _check(block, modality, range(start, start + len(block)) if ords is None else ords[start : start + len(block)])
        if dim is not None and block.values.shape[1] != dim:
            raise ValueError(
                f"{modality} vectors have {block.values.shape[1]} dimensions, caption vectors {dim}: "
                "they cannot be of one encoder"
            )
        yield block if expected is None else block.slice(0, expected - start)
        start += len(block)
    if not start:
        raise ValueError(f"there are no {modality} vectors; run `capim embed` first")
    if ords is not None and start < len(ords):
        raise ValueError(
            f"the corpus has {modality} {ords[-1]}, but there are embeddings of {start}; run `capim embed` first"
        )


def _check(block: Ragged, modality: str, ords: Sequence[int] | range | NDArray[np.integer]) -> None:
    gap = np.flatnonzero(block.ords[: len(ords)] != np.asarray(ords))
    empty = np.flatnonzero(block.counts < 1)
    if gap.size or empty.size:
        item = int(ords[int((gap if gap.size else empty)[0])])
        raise ValueError(f"{modality} {item} has no vectors; run `capim embed` to complete the corpus")
    squares = np.concatenate([_squares(block.values[i : i + _CHECKED]) for i in range(0, len(block.values), _CHECKED)])
    for fault, rows in (("not finite", ~np.isfinite(squares)), ("zero", squares == 0)):
        if rows.any():
            item = int(block.ords[int(np.searchsorted(block.offsets, np.argmax(rows), side="right")) - 1])
            raise ValueError(f"{int(rows.sum())} {modality} vectors are {fault}, first in {modality} {item}")


def _squares(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    wide = torch.tensor(vectors).float().numpy()  # torch widens half precision ten times as fast as numpy
    squares: NDArray[np.float32] = np.einsum("nd,nd->n", wide, wide)
    return squares


def groups_of_equal_count(block: Ragged, *, most_vectors: int) -> list[list[int]]:
    """Return the items of a block in groups of equally many vectors, if possible at most ``most_vectors`` per group.

    Examples:
        >>> block = Ragged.from_counts(np.zeros((9, 1)), [2, 3, 2, 2])
        >>> groups_of_equal_count(block, most_vectors=4)
        [[0, 2], [3], [1]]
    """
    groups = []
    for count in np.unique(block.counts):
        items, size = np.flatnonzero(block.counts == count).tolist(), max(1, most_vectors // int(count))
        groups += [items[start : start + size] for start in range(0, len(items), size)]
    return groups
