"""The image index: every image of a corpus is decoded once, for its thumbnail or for the reason why it has none."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from capim.store.errors import WorkError
from capim.store.types import Corpus, ImageSource, IndexedImage
from capim.tasks.corpora.build import SkippedRow
from capim.tasks.corpora.images.decode import UndecodableImage, decode_image, image_sha, thumbnail
from capim.tasks.corpora.subset import without_images

_BATCH = 64


def index_images(
    corpus: Corpus,
    *,
    known: Mapping[str, str | None],
    sink: Callable[[list[IndexedImage]], None],
    progress: Callable[[int, int], None] | None = None,
) -> Corpus:
    """The corpus without its undecodable images, after decoding every image that the index does not yet hold.

    Args:
        corpus: As a reader returns it. A corpus without a source (ids or texts only) is returned unchanged.
        known: The index so far: image hash -> None if the image decoded, else the reason why not. These images are
            not read again.
        sink: Called with each batch of newly decoded images and their thumbnails, to store them.
        progress: Called after every batch with the number of images done and the total.

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
            if progress is not None:
                progress(start + len(indexed), len(pending))
    skipped = [SkippedRow(row["id"], reason) for row in images if (reason := reasons.get(row["sha"])) is not None]
    return without_images(corpus, skipped)


def _index(source: ImageSource, item: tuple[str, str]) -> IndexedImage:
    sha, key = item
    try:
        data = source.read(key)
    except OSError as error:
        raise WorkError(
            f"image {key!r} was there when the corpus was opened and cannot be read now: {error}; restore it, or run "
            "again without it"
        ) from error
    if image_sha(data) != sha:
        raise WorkError(f"image {key!r} was changed after the corpus was opened; run again to use its new contents")
    try:
        image = decode_image(data)
    except UndecodableImage as error:
        return IndexedImage(sha, None, None, None, str(error))
    return IndexedImage(sha, image.width, image.height, thumbnail(image), None)
