"""Subsets of the images of a corpus, with all rows that refer to the removed images removed too.

Samples, and corpora without the images that cannot be decoded (:func:`index_images`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.errors import RequestError, WorkError
from capim.store.schema import SKIPPED, StoredImage
from capim.store.types import Corpus, ImageSource
from capim.tasks.corpora.build import SkippedRow, keep_images
from capim.tasks.corpora.images.decode import UndecodableImage, decode_image, thumbnail, unchanged

_BATCH = 64  # images that are decoded before their thumbnails are stored


def sample_corpus(corpus: Corpus, n_images: int, *, seed: int) -> Corpus:
    """Return a seeded draw of ``n_images`` images with all their captions, in corpus order.

    The two images of a quadruple are drawn together, so the sample of a corpus of quadruples can be one image smaller
    than ``n_images``. The sample is a corpus with another name (``coco-karpathy-sample500``, with the seed unless it
    is 0), because results on a smaller gallery cannot be compared with those on the full corpus.

    Args:
        corpus: The full corpus.
        n_images: Largest number of images, at least 1; the full corpus is returned if it has no more.
        seed: Random seed; a larger sample with the same seed contains the smaller.

    Raises:
        RequestError: ``n_images`` is below 1, or so small that no quadruple fits.
    """
    if n_images < 1:
        raise RequestError(f"corpus {corpus.name!r}: a sample needs at least 1 image, got {n_images}")
    total = corpus.images.num_rows
    if n_images >= total:
        return corpus
    group = _groups(corpus)
    order = np.random.default_rng(seed).permutation(int(group.max()) + 1)
    sizes = np.bincount(group)[order]
    chosen = order[: int(np.searchsorted(np.cumsum(sizes), n_images, side="right"))]
    if not chosen.size:
        raise RequestError(
            f"corpus {corpus.name!r}: a sample of {n_images} cannot hold the {int(sizes[0])} images that one "
            f"quadruple needs; use --sample {int(sizes[0])} or more"
        )
    mask = pa.array(np.isin(group, chosen))
    drawn = corpus.images["id"].filter(mask).combine_chunks()
    return replace(keep_images(corpus, drawn), name=corpus.name + sample_suffix(n_images, seed))


def sample_suffix(n_images: int | None, seed: int) -> str:
    """Return what the name of a sample has after the name of its corpus; empty for a whole corpus.

    Examples:
        >>> sample_suffix(500, 0), sample_suffix(500, 7), sample_suffix(None, 7)
        ('-sample500', '-sample500-seed7', '')
    """
    return "" if n_images is None else f"-sample{n_images}" + (f"-seed{seed}" if seed else "")


def index_images(
    corpus: Corpus,
    *,
    known: Mapping[str, str | None],
    sink: Callable[[list[StoredImage]], None],
    advance: Callable[[float], None] = lambda _: None,
) -> Corpus:
    """Return the corpus without its undecodable images, after decoding every image that the index does not yet hold.

    Args:
        corpus: As a reader returns it. A corpus without a source (ids or texts only) is returned unchanged.
        known: The index so far: image hash -> None if the image decoded, else the reason why not. These images are
            not read again.
        sink: Called with each batch of newly decoded images and their thumbnails, to store them.
        advance: Called after every batch with its number of images.

    Returns:
        The images that decode; the others are listed in ``skipped`` with the reason, and their captions are removed.
        The result depends on the bytes of the images only, never on ``known``.

    Raises:
        RequestError: Not one image can be decoded.
        WorkError: An image was removed or changed after the corpus was opened.
    """
    if corpus.source is None:
        return corpus
    images = corpus.images.select(["id", "key", "sha"]).to_pylist()
    key_of = {row["sha"]: row["key"] for row in images if row["sha"] is not None and row["sha"] not in known}
    pending = list(key_of.items())
    reasons: dict[str, str | None] = dict(known)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="image_index") as pool:
        for start in range(0, len(pending), _BATCH):
            indexed = list(pool.map(partial(_index, corpus.source), pending[start : start + _BATCH]))
            sink(indexed)
            reasons.update({image.sha: image.reason for image in indexed})
            advance(len(indexed))
    skipped = [SkippedRow(row["id"], reason) for row in images if (reason := reasons.get(row["sha"])) is not None]
    return without_images(corpus, skipped)


def _index(source: ImageSource, item: tuple[str, str]) -> StoredImage:
    sha, key = item
    try:
        data = unchanged(source.read(key), sha, key)
    except OSError as error:
        raise WorkError(
            f"image {key!r} was there when the corpus was opened and cannot be read now: {error}; restore it, or run "
            "again without it"
        ) from error
    try:
        image = decode_image(data)
    except UndecodableImage as error:
        return StoredImage(item=sha, sha=sha, reason=str(error))
    small = thumbnail(image)
    return StoredImage(item=sha, sha=sha, width=image.width, height=image.height, thumbnail=small)


def without_images(corpus: Corpus, skipped: Iterable[SkippedRow]) -> Corpus:
    """Return the corpus without these images and the rows that refer to them; they are listed in ``skipped``.

    Raises:
        RequestError: Nothing would be left.
    """
    rows = list(skipped)
    if not rows:
        return corpus
    dropped = pa.array([row.item_id for row in rows], type=pa.string())
    kept = corpus.images["id"].filter(pc.invert(pc.is_in(corpus.images["id"], dropped))).combine_chunks()
    if not len(kept):
        raise RequestError(
            f"corpus {corpus.name!r}: none of its {len(rows)} images can be used; "
            f"the first, {rows[0].item_id!r}: {rows[0].reason}"
        )
    more = pa.table([pa.array(column) for column in zip(*rows, strict=True)], schema=SKIPPED)
    smaller = keep_images(corpus, kept)
    if not smaller.captions.num_rows:
        raise RequestError(f"corpus {corpus.name!r}: the {len(kept)} images that can be used have no captions")
    return replace(smaller, skipped=pa.concat_tables([corpus.skipped, more]).combine_chunks())


def _groups(corpus: Corpus) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the group number of every image; images of one quadruple, or of linked quadruples, are in one group."""
    n_images, ids = corpus.images.num_rows, corpus.images["id"].combine_chunks()
    ends = [pc.index_in(corpus.quadruples[side], ids).to_numpy() for side in ("image_0", "image_1")]
    rows = [*range(n_images), *ends[0], *ends[1]]
    first = first_linked(rows, [None] * n_images + [*range(len(ends[0]))] * 2)[:n_images]
    return np.unique(first, return_inverse=True)[1]


def first_linked(*columns: Sequence[Hashable]) -> NDArray[np.int32]:
    """Return the position of the first row that each is linked to by equal values in a column, directly or by others.

    None is equal to nothing.

    Examples:
        >>> first_linked(["a", "b", "c", "b", "d"], [None, 1, 1, None, None]).tolist()
        [0, 1, 1, 1, 4]
    """
    above = list(range(len(columns[0])))  # of every row one that it is linked to, none after it: a forest

    def lowest(row: int) -> int:
        while above[row] != row:
            above[row] = row = above[above[row]]
        return row

    for column in columns:
        first: dict[Hashable, int] = {}
        for at, value in enumerate(column):
            if value is not None and (other := first.setdefault(value, at)) != at:
                one, two = lowest(other), lowest(at)
                above[max(one, two)] = min(one, two)
    return np.array([lowest(row) for row in range(len(above))], dtype=np.int32)
