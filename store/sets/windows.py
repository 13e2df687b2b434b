"""Single-vector sets as rows that are read when they are indexed, so that a set need not fit into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capim.store.checksums import digest
from capim.store.errors import RequestError, WorkError
from capim.store.keys import table_of
from capim.store.rounding import unit_vectors
from capim.store.sets.reading import open_set, row_offsets, rows_at_once, taken
from capim.store.tables.faults import storage_faults
from capim.store.tables.schemas import vector_type
from capim.store.types import Modality

if TYPE_CHECKING:
    from capim.store.embedding_store import EmbeddingStore


class VectorWindows:
    """The float32 unit vectors of a sealed set in corpus order; memory is that of the rows that are asked for.

    Indexed like a matrix of shape ``(n, dim)``, by a slice or by an array of positions. The checksum of every row is
    compared when it is read, and those of all rows with the digest of the set when it is opened.

    Raises:
        RequestError: There is no such set, it is not sealed, or it has several vectors per item.
        WorkError: A row was changed on disk.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, store: EmbeddingStore, *, encoder: str, corpus: str, modality: Modality) -> None:
        self._store, self._subject = store, (encoder, corpus, modality)
        self._key = store.key(encoder=encoder, corpus=corpus, modality=modality)
        self._items, sealed = store.item_index(self._key), store.sealed(self._key)
        name = table_of(self._key)
        if sealed is None or self._key.vectors == "multi":
            raise RequestError(f"set {name!r} is not a sealed set of one vector per item")
        self._table = open_set(store.connection, self._key, sealed)
        with storage_faults(f"reading set {name!r}"):
            self._offsets, crc = row_offsets(self._table, len(self._items))
        if (self._offsets < 0).any() or digest(crc) != sealed.digest:
            raise WorkError(f"set {name!r}: its digest differs from its seal", remedy="Run `capim store verify`")
        self.shape = (len(self._items), int(vector_type(self._table.schema).list_size))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> NDArray[np.float32]:
        wanted = np.arange(len(self))[rows]
        if isinstance(rows, slice) and len(wanted) == len(self):
            encoder, corpus, modality = self._subject  # one scan, which is faster
            return self._store.vectors(encoder=encoder, corpus=corpus, modality=modality).matrix
        ords, back = np.unique(wanted, return_inverse=True)
        found = np.empty((len(ords), self.shape[1]), np.float32)
        for part in taken(self._table, self._key, self._items, self._offsets[ords], rows_at_once(self._table)):
            found[np.searchsorted(ords, part.ords)] = unit_vectors(part.vectors.values)
        return found if isinstance(rows, slice) else found[back]
