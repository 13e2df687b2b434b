"""Every image of a corpus decoded once: what cannot be decoded is listed and left out, the rest gets a thumbnail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

from store.errors import WorkError
from store.types import Corpus, ImageSource, IndexedImage
from tasks.corpora.images.decode import UndecodableImage, decode_image, image_sha, thumbnail
from tasks.corpora.rows import SkippedRow
from tasks.corpora.subset import without_images

_BATCH = 64


def image_index(
    corpus: Corpus,
    *,
    known: Mapping[str, str | None],
    sink: Callable[[list[IndexedImage]], None],
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Corpus:
    """The corpus without its undecodable images; each image content not yet known is decoded once.

    Args:
        corpus: As a reader gives it. Without a source (ids or texts alone) it comes back as it is.
        known: Image hash -> None where it decoded, else the reason; from earlier surveys. These are not read again.
        sink: Takes the newly indexed_images images in batches, to be kept with their thumbnails.
        workers: Decoding threads; as many as there are cores, at most 8, unless given.
        progress: Called after every batch with the number of images done and to do.

    Returns:
        The images that decode; the others are in ``skipped`` with the reason, their captions are gone. It depends
        on the bytes of the corpus alone, never on what was known before.

    Raises:
        RequestError: Not one image can be decoded.
        WorkError: An image that could be read when the corpus was opened cannot be read any more, or is another one.
    """
    if corpus.source is None:
        return corpus
    shas, keys = corpus.images["sha"].to_pylist(), corpus.images["key"].to_pylist()
    key_of = {sha: key for sha, key in zip(shas, keys, strict=True) if sha is not None and sha not in known}
    reasons: dict[str, str | None] = dict(known)
    done = 0
    with ThreadPoolExecutor(workers or min(8, os.cpu_count() or 1), thread_name_prefix="image_index") as pool:
        for batch in _batches(list(key_of.items())):
            indexed_images = list(pool.map(partial(_look, corpus.source), batch))
            sink(indexed_images)
            reasons.update({image.sha: image.reason for image in indexed_images})
            done += len(indexed_images)
            if progress is not None:
                progress(done, len(key_of))
    skipped = [
        SkippedRow(image, reason)
        for image, sha in zip(corpus.images["id"].to_pylist(), shas, strict=True)
        if sha is not None and (reason := reasons[sha]) is not None
    ]
    return without_images(corpus, skipped)


def _batches(pending: Sequence[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    iterator = iter(pending)
    while batch := list(islice(iterator, _BATCH)):
        yield batch


def _look(source: ImageSource, item: tuple[str, str]) -> IndexedImage:
    sha, key = item
    try:
        data = source.read(key)
    except OSError as error:
        raise WorkError(
            f"image {key!r} was there when the corpus was opened and cannot be read now: {error}"
        ) from error
    if image_sha(data) != sha:
        raise WorkError(f"image {key!r} was changed after the corpus was opened; run again to take it as it is now")
    try:
        image = decode_image(data)
    except UndecodableImage as error:
        return IndexedImage(sha, None, None, None, str(error))
    return IndexedImage(sha, image.width, image.height, thumbnail(image), None)
