"""Sealing an embedding set: repeated rows removed, files compacted, rows checked, then a tag and a row in ``sets``.

Only a sealed set is evaluated. Its tag contains the digest of its contents, so the embeddings that a result was
computed from can be read again, bit for bit, as long as the store exists.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.connection import Connection, compact, data_bytes, drop_old_versions, retrying, storage_faults
from capim.store.errors import RequestError, WorkError
from capim.store.rows import now, register
from capim.store.schema import StoredSet
from capim.store.sets.rows import ItemIndex, digest, scan, vector_type
from capim.store.types import SetKey

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
    """Checks a set, fixes its contents and registers it; ``existing`` is returned as it is unless its tag was lost."""
    name = key.table
    if existing is None and connection.find(name) is None:
        raise RequestError(f"set {name!r} is not in the store {connection.uri}. Run `capim embed` first")
    if existing is not None and existing.is_version_of(table_of(connection, key)):
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
    drop_old_versions(table, timedelta(0))
    return sealed


def storage_of(vector: pa.FixedSizeListType) -> str:
    """The name of the type of a stored component."""
    return "float16" if vector.value_type == pa.float16() else "float32"


def _settle(connection: Connection, key: SetKey, items: ItemIndex) -> tuple[lance.LanceDataset, Contents]:
    """Return a tagged version of the set with all rows checked, without repeated rows and small files.

    Other processes may write to the set or seal it meanwhile; then everything is repeated from the latest version.
    """
    name = key.table
    while True:
        before = table_of(connection, key).version
        retrying(f"removing repeated rows of {name!r}", lambda: drop_repeats(table_of(connection, key)))
        compact(connection, name, free=True)
        table = table_of(connection, key)
        try:
            contents = examine(table, key, items)
            _refuse_wrong_counts(name, items, contents)
            with storage_faults(f"tagging {name!r}"):
                try:
                    table.tags.create(_tag_of(contents), table.version)
                except ValueError as fault:
                    if "already exists" not in str(fault):
                        raise
                    table = table_of(connection, key, _tag_of(contents))  # by a process that sealed the same contents
            return table, contents
        except WorkError:
            if table_of(connection, key).version == before:
                raise


def _tag_of(contents: Contents) -> str:
    return f"sealed-{contents.digest[:16]}"


def examine(table: lance.LanceDataset, key: SetKey, items: ItemIndex) -> Contents:
    """Reads every row; raises :class:`WorkError` if one was changed."""
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


def _refuse_wrong_counts(name: str, items: ItemIndex, contents: Contents) -> None:
    """Raises :class:`WorkError` unless each item of the corpus has one row; the first are named."""
    missing, repeated = np.flatnonzero(contents.rows_of == 0), np.flatnonzero(contents.rows_of > 1)
    if len(missing):
        raise WorkError(
            f"set {name!r} is incomplete: {len(missing)} of {len(items)} items have no row, first "
            f"{items.ids[int(missing[0])].as_py()!r}",
            remedy="Run the same `capim embed` again: only these items are encoded",
        )
    if len(repeated):
        raise WorkError(
            f"set {name!r}: {len(repeated)} items have more than one row, first "
            f"{items.ids[int(repeated[0])].as_py()!r}: another process is writing to it",
            remedy="Wait until that process has ended, then run `capim embed` again",
        )


def table_of(connection: Connection, key: SetKey, tag: str | None = None) -> lance.LanceDataset:
    """The table of a set at its latest version or at a tag; raises :class:`WorkError` if there is none."""
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
    delete_rows(table, rows.column("_rowid").to_numpy()[repeats].tolist())


def delete_rows(table: lance.LanceDataset, row_ids: list[int]) -> None:
    """Deletes rows by their row ids."""
    if row_ids:
        # Row ids change when another process compacts the table: on a conflict the caller must look them up again.
        table.delete(f"_rowid IN ({', '.join(map(str, row_ids))})", conflict_retries=0)
