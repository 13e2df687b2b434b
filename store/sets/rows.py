"""Rows of an embedding set: their items and columns, checksums, and decoding.

Lance has no checksums, and would return a bit that was flipped on disk as a vector. Every row of an embedding set has a
CRC-32 of its vector bytes, started from a value that depends on the position, norm, token count, truncation flag and
layout: a change of any of them, or a vector moved to another item, is detected when the row is read, which is less
work than the digests of all files. The digest of a set is the SHA-256 of these checksums in corpus
order.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.errors import WorkError
from capim.store.schema import FORMAT, FORMAT_KEY, keyed, texts
from capim.store.types import Corpus, EncoderSpec, Modality, SetKey, VectorKind, canonical_json
from capim.store.vectors import Ragged

if TYPE_CHECKING:
    import lance

_MIX = np.uint32(2654435761)  # Knuth's multiplicative constant: spreads small integers over 32 bits
ROWS_AT_ONCE = {"single": 8192, "multi": 64}  # in memory: 16 MB of 1,024 float16, or of 1,030 × 128 float16
_IO_BUFFER = 64 << 20  # bytes that Lance may read ahead


@dataclass(frozen=True, kw_only=True)
class ItemIndex:
    """The items of one modality of a corpus by position; rows of embedding sets are checked against it.

    Attributes:
        modality: Of the items.
        ids: Arrow strings, shape ``(n_items,)``, in corpus order.
        columns: Other columns that a set has, too: of captions their languages and translators.
    """

    modality: Modality
    ids: pa.Array
    columns: Mapping[str, pa.Array]

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, corpus: Corpus, modality: Modality) -> ItemIndex:
        """Return the images or captions of a corpus."""
        rows, names = corpus.items(modality), ("language", "translator") if modality == "caption" else ()
        columns = {name: rows.column(name).combine_chunks() for name in names}
        return cls(modality=modality, ids=rows.column("id").combine_chunks(), columns=columns)


def vector_column(vectors: VectorKind) -> str:
    """Return the name of the column that holds the embeddings of a single-vector or a multi-vector set."""
    return "vector" if vectors == "single" else "vectors"


def vector_type(schema: pa.Schema) -> pa.FixedSizeListType:
    """Return the Arrow type of one vector of an embedding set."""
    kind = schema.field("vector").type if "vector" in schema.names else schema.field("vectors").type.value_type
    return cast(pa.FixedSizeListType, kind)


def set_schema(key: SetKey, spec: EncoderSpec) -> pa.Schema:
    """Return the columns of an embedding set; the metadata hold the format, the key and the encoder spec."""
    multi = spec.vectors == "multi"
    vector = pa.list_(pa.float16() if spec.storage == "float16" else pa.float32(), spec.dim)
    columns: dict[str, pa.DataType] = {
        "item_id": pa.string(),
        "ord": pa.int32(),  # position in the corpus; rows are stored in any order
        vector_column(spec.vectors): pa.list_(vector) if multi else vector,
        **({"n_vectors": pa.int32(), "layout": pa.string()} if multi else {}),  # layout: see store.vectors
        "norm": pa.float32(),  # before normalisation
        "n_tokens": pa.int32(),
        "truncated": pa.bool_(),
        "input_sha": pa.string(),  # of the encoded bytes or text; empty where unknown (imports)
        "crc": pa.uint32(),  # of the row: see row_checksums
        "batch_id": pa.string(),
        "write_number": pa.int64(),  # of rows with the same item, the one with the lowest number stays
        **({"language": pa.string(), "translator": pa.string()} if key.modality == "caption" else {}),
    }
    fields = [pa.field(name, kind, nullable=False) for name, kind in columns.items()]
    metadata: dict[bytes | str, bytes | str] = {FORMAT_KEY: str(FORMAT), "capim.set": canonical_json(asdict(key))}
    metadata["capim.encoder"] = spec.to_json()
    return keyed(pa.schema(fields, metadata=metadata), ["item_id"])


def row_seeds(
    ords: NDArray[np.int32],
    norms: NDArray[np.float32],
    n_tokens: NDArray[np.int32],
    truncated: NDArray[np.bool_],
    layouts: pa.Array | None = None,
) -> NDArray[np.uint32]:
    """Return the start value of every row's CRC; arguments have shape ``(n,)``. Empty layouts change nothing.

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
    """Return the CRC-32 of every row's stored components.

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
    """Return the SHA-256, hexadecimal, of the checksums in corpus order (as little-endian uint32)."""
    return hashlib.sha256(checksums.astype("<u4").tobytes()).hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredRows:
    """Some rows of an embedding set as they are stored.

    Attributes:
        vectors: In the stored type, with the positions in the corpus; one vector per item in a single-vector set.
        norms: float32, shape ``(n,)``.
        n_tokens: int32, shape ``(n,)``.
        truncated: bool, shape ``(n,)``.
        crc: uint32, shape ``(n,)``: the stored checksums.
        layouts: Of multi-vectors: what the vectors of each item mean (``store.vectors``).
    """

    vectors: Ragged
    norms: NDArray[np.float32]
    n_tokens: NDArray[np.int32]
    truncated: NDArray[np.bool_]
    crc: NDArray[np.uint32]
    layouts: pa.Array | None = None

    @property
    def ords(self) -> NDArray[np.int32]:
        """Positions in the corpus, shape ``(n,)``."""
        return self.vectors.ords

    def damaged(self) -> NDArray[np.bool_]:
        """Return which rows have bytes that do not match their checksum, shape ``(n,)``."""
        seeds = row_seeds(self.ords, self.norms, self.n_tokens, self.truncated, self.layouts)
        wrong: NDArray[np.bool_] = row_checksums(self.vectors.values, self.vectors.offsets, seeds) != self.crc
        return wrong


def columns_of(key: SetKey) -> list[str]:
    """Return the columns that :func:`unpack` needs."""
    layout = ["layout"] if key.vectors == "multi" else []
    return ["ord", vector_column(key.vectors), "norm", "n_tokens", "truncated", "crc", *layout]


def unpack(batch: pa.RecordBatch | pa.Table) -> StoredRows:
    """Return Arrow rows as arrays; the vectors are not copied where Arrow holds them in one piece."""
    if isinstance(batch, pa.Table):
        batch = batch.combine_chunks().to_batches()[0]
    ords = batch.column("ord").to_numpy()
    if "vector" in batch.schema.names:
        vectors = batch.column("vector")
        counts = np.ones(len(ords), dtype=np.int64)
    else:
        lists = cast(pa.ListArray, batch.column("vectors"))
        vectors, counts = lists.flatten(), lists.value_lengths().to_numpy(zero_copy_only=False)
    flat = cast(pa.FixedSizeListArray, vectors).flatten()
    values = flat.to_numpy(zero_copy_only=True).reshape(-1, vector_type(batch.schema).list_size)
    return StoredRows(
        vectors=Ragged.from_counts(values, counts, ords),
        norms=batch.column("norm").to_numpy(),
        n_tokens=batch.column("n_tokens").to_numpy(),
        truncated=batch.column("truncated").to_numpy(zero_copy_only=False),
        crc=batch.column("crc").to_numpy(),
        layouts=batch.column("layout") if "layout" in batch.schema.names else None,
    )


def scan(table: lance.LanceDataset, key: SetKey, items: ItemIndex) -> Iterator[StoredRows]:
    """Yield all rows in the order of their commits, checked and in bounded memory."""
    scanner = table.scanner(
        columns=columns_of(key),
        batch_size=ROWS_AT_ONCE[key.vectors],
        batch_readahead=2,
        io_buffer_size=_IO_BUFFER,
        scan_in_order=True,
    )
    return (checked(batch, key, items) for batch in scanner.to_batches() if batch.num_rows)


def checked(batch: pa.RecordBatch | pa.Table, key: SetKey, items: ItemIndex) -> StoredRows:
    """Return the rows of :func:`unpack`; raise :class:`WorkError` if a checksum is wrong, with the first items."""
    rows = unpack(batch)
    damaged = rows.ords[rows.damaged()]
    if len(damaged):
        # a position is part of the checksum: one outside the corpus is found here, too
        first = [repr(items.ids[at].as_py()) if 0 <= at < len(items) else f"at {at}" for at in damaged[:5].tolist()]
        raise WorkError(
            f"set {key.table!r}: checksum mismatch in {len(damaged)} rows (changed on disk), first items "
            f"{', '.join(first)}; no row of the set is used",
            remedy="Run `capim store verify --drop`, then `capim embed`: only their batches are encoded again. Or "
            "restore the table from a backup",
        )
    return rows
