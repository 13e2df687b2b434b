"""Checksums of stored rows: Lance has none, and would return a bit that was flipped on disk as a vector or a figure.

Every row of an embedding set has a CRC-32 of its vector bytes, started from a value that depends on the position, norm,
token count, truncation flag and layout: a change of any of them, or a vector moved to another item, is detected when
the row is read, which is less work than the digests of all files (``store.tables.digests``). The digest of a set is the
SHA-256 of these checksums in corpus order.
"""

from __future__ import annotations

import hashlib
import zlib

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.schema import texts

_MIX = np.uint32(2654435761)  # Knuth's multiplicative constant: spreads small integers over 32 bits


def row_seeds(
    ords: NDArray[np.int32],
    norms: NDArray[np.float32],
    n_tokens: NDArray[np.int32],
    truncated: NDArray[np.bool_],
    layouts: pa.Array | None = None,
) -> NDArray[np.uint32]:
    """The start value of the CRC of every row; all arguments have shape ``(n,)``. Empty layouts change nothing.

    Every step is invertible in its field, so a change of any one field changes the seed.

    Examples:
        >>> ords, norms = np.array([0, 1], np.int32), np.array([1, 1], np.float32)
        >>> seeds = row_seeds(ords, norms, np.zeros(2, np.int32), np.zeros(2, bool))
        >>> bool(seeds[0] != seeds[1])
        True
    """
    seeds = ords.astype(np.uint32) * _MIX
    seeds = (seeds ^ norms.astype(np.float32).view(np.uint32)) * _MIX
    seeds = (seeds ^ n_tokens.astype(np.uint32)) * _MIX
    seeds = (seeds ^ truncated.astype(np.uint32)) * _MIX
    if layouts is None:
        return seeds
    encoded = layouts.dictionary_encode()
    sums = np.array([zlib.crc32(text.encode()) for text in texts(encoded.dictionary)] or [0], dtype=np.uint32)
    with_layouts: NDArray[np.uint32] = seeds ^ sums[encoded.indices.to_numpy()]
    return with_layouts


def row_checksums(
    values: NDArray[np.floating], offsets: NDArray[np.int64], seeds: NDArray[np.uint32]
) -> NDArray[np.uint32]:
    """CRC-32 of every row's stored components.

    Args:
        values: All vectors as stored, C-contiguous, shape ``(sum of counts, dim)``.
        offsets: Row ``i`` owns vectors ``offsets[i]:offsets[i + 1]``; shape ``(n + 1,)``.
        seeds: From :func:`row_seeds`, shape ``(n,)``.

    Returns:
        uint32, shape ``(n,)``.

    Examples:
        >>> row_checksums(np.zeros((1, 4), np.float16), np.array([0, 1]), np.array([0], np.uint32)).tolist()
        [1696784233]
        >>> zlib.crc32(bytes(8))
        1696784233
    """
    data = np.ascontiguousarray(values).data.cast("B")
    width = values.shape[1] * values.itemsize
    bounds = (offsets * width).tolist()
    crc32 = zlib.crc32
    return np.fromiter(
        (crc32(data[start:stop], seed) for start, stop, seed in zip(bounds, bounds[1:], seeds.tolist(), strict=False)),
        dtype=np.uint32,
        count=len(seeds),
    )


def digest(checksums: NDArray[np.uint32]) -> str:
    """SHA-256, hexadecimal, of the checksums in corpus order (as little-endian uint32)."""
    return hashlib.sha256(checksums.astype("<u4").tobytes()).hexdigest()
