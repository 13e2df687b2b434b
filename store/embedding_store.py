"""The one object through which everything reads and writes: :class:`EmbeddingStore`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from store.errors import RequestError
from store.keys import table_of
from store.maintenance.maintenance import Maintenance
from store.sets import reading as vectors
from store.sets import seal
from store.sets.checks import Block, check_block, check_key
from store.sets.decoding import StoredRows
from store.sets.reading import MultiVectors, Vectors
from store.sets.seal import SealedSet
from store.sets.writing import SetWriter
from store.tables import corpora
from store.tables import metadata as registers
from store.tables.catalogue import Catalogue
from store.tables.connection import Connection
from store.tables.corpora import ItemIndex
from store.tables.formats import open_format
from store.types import EncoderSpec, Modality, SetKey


class _Selection(NamedTuple):
    """Some positions of a set: whose, the items of its corpus, which positions, and the sealed state if it has one."""

    key: SetKey
    items: ItemIndex
    ords: NDArray[np.int32]
    state: SealedSet | None


class EmbeddingStore(Catalogue, Maintenance):
    """Embeddings with their full identity, and every row that was ever computed from them.

    Opens a LanceDB database in a folder or at ``s3://…`` (credentials from the environment). Holds no locks and no
    files: any number of processes may have the same store open. May be shared by threads; pickles as its URI.

    Wherever an encoder or a corpus is asked for, its name stands for what was last written under that name; a
    fingerprint names one state for good.

    Examples:
        >>> import tempfile
        >>> store = EmbeddingStore.open(tempfile.mkdtemp() + "/store", create=True)
        >>> store.sealed_sets()
        []
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._writers: dict[SetKey, SetWriter] = {}
        self._items: dict[tuple[str, Modality], ItemIndex] = {}

    @classmethod
    def open(cls, uri: str | Path, *, create: bool = False) -> EmbeddingStore:
        """The store at a folder or object storage address.

        Args:
            uri: ``workspace/store``, ``s3://bucket/path``.
            create: Make an empty store where there is none.

        Raises:
            RequestError: There is no store and ``create`` is false, or it was written by another format.
        """
        text = str(uri)
        connection = Connection(text if "://" in text else str(Path(text).expanduser().absolute()))
        open_format(connection, create=create)
        return cls(connection)

    def __repr__(self) -> str:
        return f"EmbeddingStore({self.uri!r})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (EmbeddingStore.open, (self.uri,))

    # --- writing embedding sets -------------------------------------------------------------------------------
    def missing(self, key: SetKey, n_items: int) -> NDArray[np.int32]:
        """Positions of the corpus that have no row in a set yet, ascending.

        Args:
            key: Whose vectors of what.
            n_items: Images or captions of the corpus.
        """
        existing = seal.sealed(self.connection, key)
        if existing is not None and existing.n_rows == n_items:
            return np.empty(0, dtype=np.int32)
        ords = self._writer(key).missing()
        return ords[ords < n_items]

    def put(self, key: SetKey, spec: EncoderSpec, block: Block) -> int:
        """Adds a block of embeddings to a set; rows that are there already are left as they are.

        All of a block's new rows are kept, or none: when this returns, a crash cannot take them away.

        Returns:
            Rows that were new.

        Raises:
            RequestError: A value, an id or the spec is wrong; faults are named with row and id, nothing was written.
            WorkError: Storage failed; nothing of this block was written.
        """
        return self._writer(key).put(spec, block)

    def check(self, key: SetKey, spec: EncoderSpec, block: Block) -> None:
        """Raises what :meth:`put` would raise for this block, and writes nothing."""
        check_key(key, spec)
        check_block(key, spec, block, self._index(key))

    def seal(self, key: SetKey, *, n_items: int) -> SealedSet:
        """Checks that a set is complete and unchanged, fixes it under a tag and registers it.

        Raises:
            WorkError: Items are missing or rows are damaged; the first are named.
        """
        return seal.seal(self.connection, key, self._index(key), n_items)

    def sealed(self, key: SetKey) -> SealedSet | None:
        """The sealed state of a set, or None."""
        return seal.sealed(self.connection, key)

    def sealed_sets(self) -> list[SealedSet]:
        """Every sealed set, oldest first."""
        return seal.sealed_sets(self.connection)

    # --- reading embedding sets -------------------------------------------------------------------------------
    def vectors(
        self,
        *,
        encoder: str,
        corpus: str,
        modality: Modality,
        language: str | None = None,
        translator: str | None = None,
        partial: bool = False,
    ) -> Vectors:
        """The vectors of a single-vector encoder as one float32 matrix in corpus order.

        Args:
            encoder: Name or fingerprint.
            corpus: Name or fingerprint.
            modality: ``image`` or ``caption``.
            language: Only captions in this language (BCP-47).
            translator: Only captions by this translator.
            partial: Read a set that is not sealed; items without a row are left out.

        Raises:
            RequestError: There is no such set, or it is not sealed.
            WorkError: A row was changed on disk.
        """
        chosen = self._selection(encoder, corpus, modality, language, translator, partial)
        _refuse_many(chosen)
        conditions = [
            f"{column} = {registers.quoted(text)}"
            for column, text in (("language", language), ("translator", translator))
            if text is not None
        ]
        return vectors.read_matrix(
            vectors.open_set(self.connection, chosen.key, chosen.state),
            chosen.key,
            chosen.items,
            chosen.ords,
            sealed=chosen.state,
            condition=" AND ".join(conditions) or None,
        )

    def multivectors(
        self,
        *,
        encoder: str,
        corpus: str,
        modality: Modality,
        language: str | None = None,
        translator: str | None = None,
        window: int = 64,
        partial: bool = False,
    ) -> Iterator[MultiVectors]:
        """The vectors of a late-interaction encoder in blocks of ``window`` items, in corpus order.

        Memory stays at one block, whatever the size of the set. Arguments and errors as for :meth:`vectors`.
        """
        chosen = self._selection(encoder, corpus, modality, language, translator, partial)
        if chosen.key.vectors == "single":
            raise RequestError(f"encoder {encoder!r} gives one vector per item: read them with vectors()")
        return (vectors.ragged(rows, chosen.items) for rows in self._blocks(chosen, window))

    def iter_vectors(
        self,
        *,
        encoder: str,
        corpus: str,
        modality: Modality,
        language: str | None = None,
        translator: str | None = None,
        window: int = 4096,
        partial: bool = False,
    ) -> Iterator[Vectors]:
        """The vectors of a single-vector encoder in blocks of ``window`` items, for sets larger than memory."""
        chosen = self._selection(encoder, corpus, modality, language, translator, partial)
        _refuse_many(chosen)
        tag = chosen.state.tag if chosen.state else ""
        return (vectors.dense(rows, chosen.items, tag) for rows in self._blocks(chosen, window))

    def stored_blocks(
        self,
        *,
        encoder: str,
        corpus: str,
        modality: Modality,
        language: str | None = None,
        translator: str | None = None,
        window: int = 64,
        partial: bool = False,
    ) -> Iterator[StoredRows]:
        """Rows of any set as they are stored (type and bits), in blocks of ``window`` items, in corpus order."""
        return self._blocks(self._selection(encoder, corpus, modality, language, translator, partial), window)

    def read_positions(self, key: SetKey, ords: NDArray[np.int32]) -> StoredRows:
        """Some positions of a sealed set as they are stored, in the order given; at least one."""
        state = self._sealed_or_refuse(key)
        table = vectors.open_set(self.connection, key, state)
        return next(vectors.read_blocks(table, key, self._index(key), ords, sealed=state, window=len(ords)))

    def key(self, *, encoder: str, corpus: str, modality: Modality) -> SetKey:
        """The identity of a set from names or fingerprints of a stored encoder and a stored corpus."""
        spec = self.encoder(encoder)
        row = corpora.corpus_row(self.connection, corpus)
        return SetKey(
            corpus=str(row["name"]),
            corpus_fingerprint=str(row["fingerprint"]),
            modality=modality,
            encoder=spec.name,
            encoder_fingerprint=spec.fingerprint,
            vectors=spec.vectors,
        )

    # --- within -----------------------------------------------------------------------------------------------
    def _index(self, key: SetKey) -> ItemIndex:
        place = (key.corpus_fingerprint, key.modality)
        if place not in self._items:
            self._items[place] = corpora.item_index(self.connection, key.corpus, key.corpus_fingerprint, key.modality)
        return self._items[place]

    def _writer(self, key: SetKey) -> SetWriter:
        if key not in self._writers:
            self._writers[key] = SetWriter(self.connection, key, self._index(key))
        return self._writers[key]

    def _selection(
        self,
        encoder: str,
        corpus: str,
        modality: Modality,
        language: str | None,
        translator: str | None,
        partial: bool,
    ) -> _Selection:
        """What was asked for, checked; nothing of the set is read yet."""
        key = self.key(encoder=encoder, corpus=corpus, modality=modality)
        items = self._index(key)
        ords = items.subset(language, translator)
        state = seal.sealed(self.connection, key) if partial else self._sealed_or_refuse(key)
        return _Selection(key, items, ords, state)

    def _blocks(self, chosen: _Selection, window: int) -> Iterator[StoredRows]:
        table = vectors.open_set(self.connection, chosen.key, chosen.state)
        return vectors.read_blocks(table, chosen.key, chosen.items, chosen.ords, sealed=chosen.state, window=window)

    def _sealed_or_refuse(self, key: SetKey) -> SealedSet:
        state = seal.sealed(self.connection, key)
        if state is None:
            raise RequestError(
                f"{key.modality}s of {key.corpus!r} by {key.encoder!r} (set {table_of(key)}) are not sealed in "
                f"{self.uri}. Run `capim embed` to the end, or ask for what is there with partial=True"
            )
        return state


def _refuse_many(chosen: _Selection) -> None:
    if chosen.key.vectors == "multi":
        raise RequestError(f"encoder {chosen.key.encoder!r} gives many vectors per item: read them with multivectors()")
