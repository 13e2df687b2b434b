"""Checksums of stored rows: Lance has none, and would return a bit that was flipped on disk as a vector or a figure.

Every row of an embedding set has a CRC-32 of its vector bytes, started from a value that depends on the position, norm,
token count, truncation flag and layout: a change of any of them, or a vector moved to another item, is detected when
the row is read. The digest of a set is the SHA-256 of these checksums in corpus order. Every row that an analysis
writes has a checksum of all its columns.
"""

from __future__ import annotations

import hashlib
import itertools
import zlib
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.ragged import offsets_of
from store.schema import texts

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
    return seeds if layouts is None else seeds ^ _words(layouts).astype(np.uint32)


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


def column_checksums(rows: pa.Table) -> NDArray[np.uint64]:
    """A checksum of every row over all of its columns, whatever their order.

    A null adds nothing. A changed number is always detected, a changed text or list except with probability 2**-32.

    Args:
        rows: Columns of numbers, truth values, times, texts, and lists of numbers.

    Returns:
        uint64, shape ``(n,)``.

    Examples:
        >>> sums = column_checksums(pa.table({"a": ["x", "x", "y"], "b": [1, 2, None]}))
        >>> bool(sums[2] == column_checksums(pa.table({"a": ["y"]}))[0])
        True
        >>> len(set(sums.tolist()))
        3
    """
    total = np.zeros(rows.num_rows, dtype=np.uint64)
    for name in rows.column_names:
        column = rows.column(name).combine_chunks()
        if column.null_count == len(column):
            continue
        mixed = _mixed(_words(column) + np.uint64(zlib.crc32(name.encode()) << 32))
        total += np.where(column.is_valid().to_numpy(zero_copy_only=False), mixed, np.uint64(0))
    return total


def _words(column: pa.Array) -> NDArray[np.uint64]:
    """One number for every value: its bits, or the CRC-32 of a text or list; any number for a null."""
    if pa.types.is_string(column.type):
        encoded = column.dictionary_encode()
        sums = np.array([zlib.crc32(text.encode()) for text in texts(encoded.dictionary)] or [0], dtype=np.uint64)
        of_rows: NDArray[np.uint64] = sums[encoded.indices.fill_null(0).to_numpy()]
        return of_rows
    if pa.types.is_list(column.type):
        lists = cast(pa.ListArray, column)
        flat = _words(lists.flatten()).data.cast("B")
        bounds = (8 * offsets_of(lists.value_lengths().fill_null(0).to_numpy())).tolist()
        pieces = (zlib.crc32(flat[start:stop]) for start, stop in itertools.pairwise(bounds))
        return np.fromiter(pieces, dtype=np.uint64, count=len(column))
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int64())
    values = column.fill_null(False if pa.types.is_boolean(column.type) else 0).to_numpy(zero_copy_only=False)
    bits: NDArray[np.uint64] = values.view(f"u{values.itemsize}").astype(np.uint64)
    return bits


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection that spreads every bit over all 64 (the finaliser of SplitMix64, Steele et al. 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def digest(checksums: NDArray[np.uint32]) -> str:
    """SHA-256, hexadecimal, of the checksums in corpus order (as little-endian uint32)."""
    return hashlib.sha256(checksums.astype("<u4").tobytes()).hexdigest()
