"""Exact and near-duplicate images, within a corpus and between corpora: `capim duplicates`.

Images are compared by their bytes, by the file names of photographs, by a perceptual hash of their thumbnails, and by
the vectors of an encoder. Images in two corpora, or in the training and the test part of one, make results dependent on
each other, or too good.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement

import numpy as np
from PIL import Image

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.schema import Duplicate, texts
from capim.store.types import Corpus
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.results.suite import Photograph, photographs_of

MOST = 100_000  # pairs by vectors, or by pictures
_ROWS = 256  # hashes that are compared with all at once


def duplicates(
    store: EmbeddingStore,
    corpora: Sequence[Corpus],
    *,
    encoder: str | None = None,
    threshold: float = 0.95,
    bits: int | None = None,
) -> Iterator[Duplicate]:
    """Yield one row per pair of images, the surest first: equal bytes, equal names between corpora, pictures, vectors.

    Args:
        corpora: Stored corpora; images are compared within each and between any two of them.
        encoder: Name or fingerprint of an encoder with one vector per item; without it, only bytes and names count.
        threshold: Least cosine, in -1..1.
        bits: Largest number of different bits, of 64, between two thumbnails' hashes (:func:`perceptual_hash`); None:
            they are not compared. Another size or compression changes 4 or fewer.

    Raises:
        RequestError: If the encoder has several vectors per item or none of these images, if the threshold is not a
            cosine, or if more than 100,000 pairs pass it.
    """
    if not -1 <= threshold <= 1:
        raise RequestError(f"--threshold must be a cosine between -1 and 1, got {threshold}")
    seen: set[tuple[tuple[str, str], tuple[str, str]]] = set()
    if bits is not None and not 0 <= bits <= 64:
        raise RequestError(f"--bits must be from 0 to 64, got {bits}")
    of_pictures = () if bits is None else _alike(store, corpora, bits)
    for by, pairs in (("bytes", _equal(corpora, "sha")), ("name", _equal(corpora, "name")), ("picture", of_pictures)):
        for first, second in pairs:
            if (first, second) not in seen:
                seen.add((first, second))
                yield _row(first, second, by, None)
    if encoder is not None:
        found = sorted(_near(store, corpora, encoder, threshold), key=lambda pair: (-pair[2], pair[:2]))
        for first, second, cosine in found:
            if (first, second) not in seen:
                yield _row(first, second, "vectors", cosine)


def _row(first: tuple[str, str], second: tuple[str, str], by: str, cosine: float | None) -> Duplicate:
    (corpus, image), (other_corpus, other_image) = first, second
    return Duplicate(
        corpus=corpus, image=image, other_corpus=other_corpus, other_image=other_image, by=by, cosine=cosine
    )


def _photographs(corpora: Sequence[Corpus]) -> Iterator[tuple[tuple[str, str], Photograph]]:
    """Yield every image, as corpus and id, with its identifying facts."""
    for corpus in corpora:
        for id_, photograph in zip(texts(corpus.images["id"]), photographs_of(corpus), strict=True):
            yield (corpus.name, id_), photograph


def _equal(corpora: Sequence[Corpus], what: str) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield pairs of images, as corpus and id, of the same bytes; or of the same file name in two corpora."""
    same = defaultdict[str, list[tuple[str, str]]](list)
    for image, photograph in _photographs(corpora):
        if value := photograph.sha if what == "sha" else photograph.name:
            same[value].append(image)
    for images in same.values():
        for at, first in enumerate(images):
            yield from ((first, second) for second in images[at + 1 :] if what == "sha" or first[0] != second[0])


def _alike(
    store: EmbeddingStore, corpora: Sequence[Corpus], bits: int
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield pairs of images with thumbnail hashes that differ in few bits; images without a thumbnail are left out."""
    images = [(image, photograph.sha) for image, photograph in _photographs(corpora)]
    thumbnails = store.thumbnails([sha for _, sha in images if sha is not None])
    hash_of = {sha: perceptual_hash(decode_image(thumbnail)) for sha, thumbnail in thumbnails.items()}
    names = [name for name, sha in images if sha in hash_of]
    hashes = np.array([hash_of[sha] for _, sha in images if sha in hash_of], dtype=np.uint64)
    n = 0
    for start in range(0, len(hashes), _ROWS):
        differing = np.bitwise_count(hashes[start : start + _ROWS, None] ^ hashes[None, start + 1 :])
        rows, columns = np.nonzero(differing <= bits)
        later = columns >= rows
        n += int(later.sum())
        if n > MOST:
            raise RequestError(f"more than {MOST:,} pairs of pictures are this similar; lower --bits")
        for row, column in zip(rows[later].tolist(), columns[later].tolist(), strict=True):
            yield names[start + row], names[start + 1 + column]


def perceptual_hash(image: Image.Image) -> int:
    """Return 64 bits that hardly change with the size and the compression of a picture: pHash, as in ImageHash.

    The picture in grey at 32 x 32, its cosine transform, the 8 x 8 lowest frequencies: a bit is 1 above their median.

    Examples:
        >>> picture = Image.linear_gradient("L").rotate(20)
        >>> (perceptual_hash(picture) ^ perceptual_hash(picture.resize((90, 90)))).bit_count() <= 4
        True
    """
    from scipy.fft import dct

    grey = np.asarray(image.convert("L").resize((32, 32), Image.Resampling.LANCZOS), dtype=np.float64)
    low = dct(dct(grey, axis=0), axis=1)[:8, :8]
    return int("".join("01"[int(bit)] for bit in (low > np.median(low)).ravel()), 2)


def _near(
    store: EmbeddingStore, corpora: Sequence[Corpus], encoder: str, threshold: float
) -> Iterator[tuple[tuple[str, str], tuple[str, str], float]]:
    """Yield pairs of images with a cosine of at least the threshold."""
    from capim.tasks.ranking.cosine import score_blocks

    if store.encoder(encoder).vectors == "multi":
        raise RequestError(f"encoder {encoder!r} has several vectors per image and so no cosine; name another encoder")
    sets = {each.name: store.vectors(encoder=encoder, corpus=each.fingerprint, modality="image") for each in corpora}
    n = 0
    for first, second in combinations_with_replacement(corpora, 2):
        ids = texts(first.images["id"]), texts(second.images["id"])
        for block in score_blocks(sets[first.name].matrix, sets[second.name].matrix):
            scores = block.scores.cpu().numpy()
            rows, columns = np.nonzero(scores >= threshold)
            if first is second:
                rows, columns = (side[rows + block.start < columns] for side in (rows, columns))
            n += len(rows)
            if n > MOST:
                raise RequestError(f"more than {MOST:,} pairs have a cosine of {threshold} or more; raise --threshold")
            for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
                pair = (first.name, ids[0][block.start + row]), (second.name, ids[1][column])
                yield *pair, float(scores[row, column])
