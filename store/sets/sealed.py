"""Sealed embedding sets: how one is made of the rows that were written, and how it is read.

Sealing removes repeated rows, compacts files, checks every row, and adds a tag and a row in ``sets``. Only a sealed set
is evaluated. Its tag contains the digest of its contents, so the embeddings that a result was computed from can be read
again, bit for bit, as long as the store exists: as one matrix, or in blocks of bounded memory; every checksum is
compared.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.connection import (
    Connection,
    compact,
    data_bytes,
    drop_old_versions,
    retrying,
    row_bytes,
    storage_faults,
)
from capim.store.errors import RequestError, WorkError
from capim.store.rows import now, one_of, register
from capim.store.schema import StoredSet, texts
from capim.store.sets.rows import ItemIndex, StoredRows, checked, columns_of, digest, scan, vector_type
from capim.store.types import SetKey
from capim.store.vectors import unit_vectors

if TYPE_CHECKING:
    import lance

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SealedSet(StoredSet):
    """An embedding set that is complete, checked and fixed: a row of ``sets``.

    Its tag is ``sealed-`` and the first 16 digits of its digest; equal digests mean equal sets.
    """

    @property
    def key(self) -> SetKey:
        """The identity of the set."""
        return SetKey.of_row(self)

    def is_version_of(self, table: lance.LanceDataset) -> bool:
        """True if its tag still refers to the version of the table that was sealed; reads no row."""
        entry = table.tags.list().get(self.tag)
        return entry is not None and entry["version"] == self.version


class Contents(NamedTuple):
    """The contents of a set, from reading every row.

    Attributes:
        digest: SHA-256 of the checksums in corpus order.
        n_vectors: Of all rows.
        rows_of: How many rows each item has, shape ``(n_items,)``.
    """

    digest: str
    n_vectors: int
    rows_of: NDArray[np.int32]


def seal(connection: Connection, key: SetKey, items: ItemIndex, existing: SealedSet | None) -> SealedSet:
    """Check a set, fix its contents and register it; return ``existing`` unchanged unless its tag was lost."""
    name = key.table
    if existing is None and connection.find(name) is None:
        raise RequestError(f"set {name!r} is not in the store {connection.uri}. Run `capim embed` first")
    if existing is not None and existing.is_version_of(set_table(connection, key)):
        return existing
    table, contents = _settle(connection, key, items)
    vector = vector_type(table.schema)
    sealed = SealedSet(
        **key.columns,
        tag=_tag_of(contents),
        version=table.version,
        n_rows=len(items),
        n_vectors=contents.n_vectors,
        digest=contents.digest,
        sealed_at=now(),
        n_bytes=data_bytes(table),
        dim=vector.list_size,
        storage=storage_of(vector),
    )
    if existing is not None and existing.digest != contents.digest:
        log.warning(
            f"set {name!r} now holds other vectors than {existing.tag}, which lost its tag; results computed from "
            f"{existing.tag} cannot be reproduced"
        )
    connection.sync(name)
    register(connection, [StoredSet(**vars(sealed))])
    connection.sync("sets")
    drop_old_versions(table)
    return sealed


def storage_of(vector: pa.FixedSizeListType) -> str:
    """Return the name of the type of a stored component."""
    return "float16" if vector.value_type == pa.float16() else "float32"


def _settle(connection: Connection, key: SetKey, items: ItemIndex) -> tuple[lance.LanceDataset, Contents]:
    """Return a tagged version of the set with all rows checked, without repeated rows and small files.

    Other processes may write to the set or seal it meanwhile; then everything is repeated from the latest version.
    """
    name = key.table
    while True:
        before = set_table(connection, key).version
        retrying(f"removing repeated rows of {name!r}", lambda: drop_repeats(set_table(connection, key)))
        compact(connection, name, free=True)
        table = set_table(connection, key)
        try:
            contents = examine(table, key, items)
            again = "Run the same `capim embed` again: only these items are encoded"
            _refuse_wrong_counts(name, items, contents.rows_of, again)
            with storage_faults(f"tagging {name!r}"):
                try:
                    table.tags.create(_tag_of(contents), table.version)
                except ValueError as fault:
                    if "already exists" not in str(fault):
                        raise
                    table = set_table(connection, key, _tag_of(contents))  # by a process that sealed the same contents
            return table, contents
        except WorkError:
            if set_table(connection, key).version == before:
                raise


def _tag_of(contents: Contents) -> str:
    return f"sealed-{contents.digest[:16]}"


def examine(table: lance.LanceDataset, key: SetKey, items: ItemIndex) -> Contents:
    """Read every row; raise :class:`WorkError` if one was changed."""
    name, n_vectors = key.table, 0
    rows_of, crc = np.zeros(len(items), dtype=np.int32), np.zeros(len(items), dtype=np.uint32)
    with storage_faults(f"reading set {name!r}"):
        for rows in scan(table, key, items):
            np.add.at(rows_of, rows.ords, 1)
            crc[rows.ords] = rows.crc
            n_vectors += len(rows.vectors.values)
        ids = table.to_table(columns=["ord", "item_id"])
        if pc.any(pc.not_equal(items.ids.take(ids.column("ord").combine_chunks()), ids.column("item_id"))).as_py():
            raise WorkError(
                f"set {name!r}: item ids were changed on disk",
                remedy="Run `capim store verify --drop`, then `capim embed`, or restore the table from a backup",
            )
    return Contents(digest(crc), n_vectors, rows_of)


def _refuse_wrong_counts(name: str, items: ItemIndex, rows_of: NDArray[Any], missing: str) -> None:
    """Raise :class:`WorkError` unless each item has one row; ``missing`` is the remedy if some have none."""
    repeated = "Wait until that process has ended, then run `capim embed` again"
    for wrong, words, remedy in (
        (rows_of == 0, "have no row", missing),
        (rows_of > 1, "have more than one row, as another process is writing to it", repeated),
    ):
        if n := np.count_nonzero(wrong):
            first = items.ids[int(wrong.argmax())].as_py()
            raise WorkError(f"set {name!r}: {n} of {len(items)} items {words}, first {first!r}", remedy=remedy)


def set_table(connection: Connection, key: SetKey, tag: str | None = None) -> lance.LanceDataset:
    """Return the table of a set at its latest version or a tag; raise :class:`WorkError` if there is none."""
    table = connection.find(key.table, version=tag)
    if table is None:
        chosen = f"--encoder {key.encoder_fingerprint} --corpus {key.corpus_fingerprint} --modality {key.modality}"
        raise WorkError(
            f"the table of set {key.table!r} is missing from {connection.uri}",
            remedy=f"Restore its table from a backup, or run `capim store drop {chosen} --yes`, then the same "
            "`capim embed`",
        )
    return table


def drop_repeats(table: lance.LanceDataset) -> None:
    """Deletes all rows of a position except the one with the lowest write number, of the latest version."""
    table.checkout_latest()
    rows = table.scanner(columns=["ord", "write_number"], with_row_id=True).to_table()
    ords = rows.column("ord").to_numpy()
    order = np.lexsort((rows.column("write_number").to_numpy(), ords))
    repeats = np.zeros(len(ords), dtype=bool)
    repeats[order[1:]] = ords[order[1:]] == ords[order[:-1]]
    if repeats.any():
        # Row ids change when another process compacts the table: on a conflict the caller must look them up again.
        table.delete(one_of("_rowid", rows.column("_rowid").to_numpy()[repeats].tolist()), conflict_retries=0)


# --- Reading.


_TAKE_BYTES = 4 << 20  # of rows that are taken in one step: Lance needs several times their memory
_VERIFY = "Run `capim store verify`"


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """The embeddings of items with one vector each.

    Attributes:
        ids: Item ids, length ``n``, in corpus order.
        ords: Positions in the corpus, int32, shape ``(n,)``, ascending.
        matrix: float32, C-contiguous, writable, shape ``(n, dim)``; row ``i`` is the vector of ``ids[i]``. Unit norm:
            a row that has another norm as stored, because float16 rounds, is divided by it; others are as stored.
        norms: float32, shape ``(n,)``: the norm before normalisation.
        n_tokens: int32, shape ``(n,)``: tokens of the input.
        truncated: bool, shape ``(n,)``: whether the input was longer than the model accepts.
        tag: Tag of the sealed version that was read.
    """

    ids: list[str]
    ords: NDArray[np.int32]
    matrix: NDArray[np.float32]
    norms: NDArray[np.float32]
    n_tokens: NDArray[np.int32]
    truncated: NDArray[np.bool_]
    tag: str

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        n, dim = self.matrix.shape
        ends = ", ".join(map(repr, self.ids[:2])) + (f" … {self.ids[-1]!r}" if n > 2 else "")
        return f"Vectors(matrix: {n} × {dim} float32, ids: {ends}, tag: {self.tag!r})"


def open_set(connection: Connection, key: SetKey, sealed: SealedSet | None) -> lance.LanceDataset:
    """Return the table of a set at its sealed version, or at its latest if it is not sealed."""
    name = key.table
    table = set_table(connection, key, sealed.tag if sealed else None)
    if sealed is not None:
        with storage_faults(f"reading set {name!r}"):
            n_rows = table.count_rows()
        if n_rows != sealed.n_rows or table.version != sealed.version:
            raise WorkError(
                f"set {name!r}: tag {sealed.tag} has {n_rows} rows at version {table.version}, it was sealed with "
                f"{sealed.n_rows} rows at version {sealed.version}",
                remedy=_VERIFY,
            )
    return table


def read_matrix(connection: Connection, sealed: SealedSet, items: ItemIndex) -> Vectors:
    """Return the items of a single-vector set as one matrix, in one scan, which is faster than to look rows up."""
    n, table = len(items), open_set(connection, sealed.key, sealed)
    matrix = np.empty((n, vector_type(table.schema).list_size), dtype=np.float32)
    kinds = {"norms": np.float32, "n_tokens": np.int32, "truncated": np.bool_}
    columns: dict[str, NDArray[Any]] = {column: np.empty(n, dtype=kind) for column, kind in kinds.items()}
    present, crc = np.zeros(n, dtype=bool), np.zeros(n, dtype=np.uint32)
    with storage_faults(f"reading set {sealed.key.table!r}"):
        for rows in scan(table, sealed.key, items):
            present[rows.ords], crc[rows.ords] = True, rows.crc
            matrix[rows.ords] = unit_vectors(rows.vectors.values)
            for column, values in columns.items():
                values[rows.ords] = getattr(rows, column)
    _refuse_other(sealed, items, present, crc)
    ords = np.arange(n, dtype=np.int32)
    return Vectors(ids=texts(items.ids), ords=ords, matrix=matrix, tag=sealed.tag, **columns)


class SetReader:
    """The rows of a sealed set by their positions in the corpus; memory is that of the rows that are requested.

    All are compared with the digest of the seal here, and the checksum of a row when it is read. A set of one vector
    per item is indexed like a matrix of float32 unit vectors, by a slice or by an array of positions.

    Attributes:
        shape: Number of items, and components of one vector.
        n_at_once: Rows that are taken in one step.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, connection: Connection, items: ItemIndex, sealed: SealedSet) -> None:
        self._table = open_set(connection, sealed.key, sealed)
        self._key, self._items = sealed.key, items
        self._whole = partial(read_matrix, connection, sealed, items)
        with storage_faults(f"reading set {self._key.table!r}"):
            rows = self._table.scanner(columns=["ord", "crc"], scan_in_order=True).to_table()
            self.n_at_once = max(1, _TAKE_BYTES // row_bytes(self._table))
        ords = rows.column("ord").to_numpy()
        self._offsets, crc = np.full(len(items), -1, dtype=np.int32), np.zeros(len(items), dtype=np.uint32)
        self._offsets[ords] = np.arange(len(ords), dtype=np.int32)
        crc[ords] = rows.column("crc").to_numpy()
        self.shape = (len(items), int(vector_type(self._table.schema).list_size))
        _refuse_other(sealed, items, self._offsets >= 0, crc)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> NDArray[np.float32]:
        wanted = np.arange(len(self), dtype=np.int32)[rows]
        if isinstance(rows, slice) and len(wanted) == len(self):
            return self._whole().matrix
        ords, back = np.unique(wanted, return_inverse=True)
        found = np.empty((len(ords), self.shape[1]), np.float32)
        for part in self.blocks(ords, self.n_at_once):
            found[np.searchsorted(ords, part.ords)] = unit_vectors(part.vectors.values)
        return found if isinstance(rows, slice) else found[back]

    def blocks(self, ords: NDArray[np.int32], window: int) -> Iterator[StoredRows]:
        """Yield the rows of these items in the given order, in blocks of at most ``window`` rows."""
        for start in range(0, len(ords), window):
            block = ords[start : start + window]
            with storage_faults(f"reading set {self._key.table!r}"):
                taken = [
                    self._table.take(self._offsets[part].tolist(), columns=columns_of(self._key))
                    for part in np.split(block, range(self.n_at_once, len(block), self.n_at_once))
                ]
            rows = checked(pa.concat_tables(taken), self._key, self._items)
            if not np.array_equal(rows.ords, block):
                raise WorkError(
                    f"set {self._key.table!r}: rows from {start} on have unexpected positions", remedy=_VERIFY
                )
            yield rows


def _refuse_other(sealed: SealedSet, items: ItemIndex, present: NDArray[np.bool_], crc: NDArray[np.uint32]) -> None:
    """Raise :class:`WorkError` unless all items have a row and the rows have the digest of the seal."""
    _refuse_wrong_counts(sealed.key.table, items, present.astype(int), _VERIFY)
    if digest(crc) != sealed.digest:
        raise WorkError(f"set {sealed.key.table!r}: its digest differs from the one it was sealed with", remedy=_VERIFY)
