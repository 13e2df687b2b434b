""":class:`EmbeddingStore`: the object through which everything is written and read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.errors import RequestError, without_credentials
from capim.store.keys import set_key, table_of
from capim.store.sets import reading, seal
from capim.store.sets.decoding import StoredRows
from capim.store.sets.reading import Vectors
from capim.store.sets.seal import SealedSet
from capim.store.sets.writing import Block, SetWriter
from capim.store.tables import corpora, metadata
from capim.store.tables import rows as stored_rows
from capim.store.tables.connection import Connection
from capim.store.tables.corpora import ItemIndex
from capim.store.tables.metadata import open_format
from capim.store.types import Corpus, EncoderSpec, IndexedImage, Modality, SetKey
from capim.store.values import Ragged


class EmbeddingStore:
    """Embeddings of images and captions, and all rows that were computed from them.

    A store is a LanceDB database in a folder or at ``s3://…`` (credentials from the environment). Several processes may
    use one store, and threads may share the object, which holds no lock and no open file. It pickles as its address.

    ``encoder`` and ``corpus`` take a name, which means what was last written under that name, or a fingerprint, which
    means one state for ever. To read embeddings: :meth:`vectors` (one vector per item), :meth:`multivectors` (several).
    To read what was computed: :meth:`results`, :meth:`outcomes`, :meth:`rows`, or :meth:`sql`. Maintenance, search and
    files are functions in ``store.maintenance``, ``store.query`` and ``store.exchange`` that take a store.

    Examples:
        >>> import tempfile
        >>> store = EmbeddingStore.open(tempfile.mkdtemp() + "/store", create=True)
        >>> store.sealed_sets()
        []
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection  # for this package only
        self._writers: dict[SetKey, SetWriter] = {}
        self._items: dict[tuple[str, str, Modality], ItemIndex] = {}

    @classmethod
    def open(cls, uri: str | Path, *, create: bool = False) -> EmbeddingStore:
        """The store at a folder or an object storage address.

        Args:
            uri: ``workspace/store``, ``s3://bucket/path``.
            create: Make an empty store if there is none.

        Raises:
            RequestError: There is no store and ``create`` is false, or the store has another format.
        """
        text = str(uri)
        connection = Connection(text if "://" in text else str(Path(text).expanduser().absolute()))
        open_format(connection, create=create)
        return cls(connection)

    @property
    def uri(self) -> str:
        """The absolute path or the address of the store."""
        return self.connection.uri

    def __repr__(self) -> str:
        return f"EmbeddingStore({without_credentials(self.uri)!r})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (EmbeddingStore.open, (self.uri,))

    # --- corpora and encoders ---------------------------------------------------------------------------------
    def write_corpus(self, corpus: Corpus) -> None:
        """Stores a corpus, without image bytes, once; from then on its name and its location mean this corpus."""
        corpora.write_corpus(self.connection, corpus)

    def corpus(self, name: str, fingerprint: str | None = None) -> Corpus:
        """A stored corpus by name (the newest), by fingerprint, or both; ``source`` is None."""
        return corpora.read_corpus(self.connection, name, fingerprint)

    def corpora(self) -> pa.Table:
        """One row per stored corpus: name, fingerprint, counts, languages, licence, origin, locations, written."""
        return metadata.read(self.connection, "corpora")

    def items(self, corpus: str, modality: Modality) -> pa.Table:
        """The images or captions of a corpus in corpus order (``schema.IMAGES``, ``schema.CAPTIONS``)."""
        row = corpora.corpus_row(self.connection, corpus)
        return corpora.corpus_part(self.connection, f"{modality}s", str(row["name"]), str(row["fingerprint"]))

    def write_image_index(self, images: Iterable[IndexedImage]) -> None:
        """Keeps sizes and thumbnails by the hash of the image bytes; hashes that are stored stay as they are."""
        metadata.write_image_index(self.connection, images)

    def indexed_images(self, shas: Sequence[str]) -> dict[str, str | None]:
        """The image hashes that are in the index, with the reason why an image cannot be decoded, or None."""
        return metadata.indexed_images(self.connection, shas)

    def thumbnails(self, shas: Sequence[str]) -> dict[str, bytes]:
        """Encoded thumbnails by image hash; hashes without one are left out."""
        return metadata.thumbnails(self.connection, shas)

    def write_encoder(self, spec: EncoderSpec) -> None:
        """Registers a resolved spec; from then on its name means this spec (a change of meaning is logged)."""
        metadata.write_encoder(self.connection, spec)

    def encoder(self, name_or_fingerprint: str) -> EncoderSpec:
        """The spec with a fingerprint, or the one last registered under a name."""
        return metadata.encoder(self.connection, name_or_fingerprint)

    def encoders(self) -> pa.Table:
        """One row per name and fingerprint: name, fingerprint, spec (JSON), written."""
        return metadata.read(self.connection, "encoders")

    # --- writing embedding sets -------------------------------------------------------------------------------
    def key(self, *, encoder: str, corpus: str, modality: Modality) -> SetKey:
        """The identity of the set of a stored encoder and a stored corpus."""
        row = corpora.corpus_row(self.connection, corpus)
        return set_key(self.encoder(encoder), str(row["name"]), str(row["fingerprint"]), modality)

    def missing(self, key: SetKey, n_items: int) -> NDArray[np.int32]:
        """Positions of the corpus, of ``n_items`` items, that have no row in a set yet, ascending."""
        if (state := self.sealed(key)) is not None and state.n_rows == n_items:
            return np.empty(0, dtype=np.int32)
        ords = self._writer(key).missing()
        return ords[ords < n_items]

    def put(self, key: SetKey, spec: EncoderSpec, block: Block) -> int:
        """Adds a block of embeddings to a set in one commit, but for rows that are stored; returns how many were new.

        Raises:
            RequestError: A value, an id or the spec is wrong; every fault names row and id; nothing was written.
            WorkError: The storage failed; nothing of this block was written.
        """
        return self._writer(key).put(spec, block)

    def put_all(self, key: SetKey, spec: EncoderSpec, blocks: Iterable[Block]) -> None:
        """Fills an empty set with blocks as they come, in one commit and bounded memory; errors as for `put`."""
        self._writer(key).put_all(spec, blocks)

    def seal(self, key: SetKey, *, n_items: int) -> SealedSet:
        """Checks that a set is complete and unchanged, and fixes it under a tag; only sealed sets are evaluated.

        Raises:
            WorkError: Items are missing or rows are damaged; the first are named.
        """
        return seal.seal(self.connection, key, self.item_index(key), n_items)

    def sealed(self, key: SetKey) -> SealedSet | None:
        """The sealed state of a set, or None."""
        return seal.sealed(self.connection, key)

    def intact(self, key: SetKey) -> bool:
        """Whether a set is sealed and the sealed version is still stored; reads no row."""
        return seal.is_intact(self.connection, key)

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
        """The embeddings of a single-vector encoder as one float32 matrix in corpus order.

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
        key = self.key(encoder=encoder, corpus=corpus, modality=modality)
        if key.vectors == "multi":
            raise RequestError(f"encoder {encoder!r} has several vectors per item: read them with multivectors()")
        items, sealed = self.item_index(key), self._state(key, partial)
        return reading.read_matrix(self.connection, key, items, sealed=sealed, language=language, translator=translator)

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
    ) -> Iterator[Ragged]:
        """The embeddings of a late-interaction encoder, as stored, in blocks of ``window`` items in corpus order.

        Memory is that of one block, whatever the size of the set. Arguments and errors as for :meth:`vectors`.
        """
        key = self.key(encoder=encoder, corpus=corpus, modality=modality)
        if key.vectors == "single":
            raise RequestError(f"encoder {encoder!r} has one vector per item: read them with vectors()")
        blocks = self.stored_blocks(key, language=language, translator=translator, window=window, partial=partial)
        return (rows.vectors for rows in blocks)

    def stored_blocks(
        self,
        key: SetKey,
        *,
        language: str | None = None,
        translator: str | None = None,
        ords: NDArray[np.int32] | None = None,
        window: int = 64,
        partial: bool = False,
    ) -> Iterator[StoredRows]:
        """Rows of any set as stored, at all positions or at ``ords``, in blocks of ``window`` items: bounded memory."""
        items, sealed = self.item_index(key), self._state(key, partial)
        wanted = items.subset(language, translator) if ords is None else ords
        return reading.read_blocks(self.connection, key, items, wanted, sealed=sealed, window=window)

    def item_index(self, key: SetKey) -> ItemIndex:
        """The items that a set has rows for, by position."""
        corpus = (key.corpus, key.corpus_fingerprint, key.modality)
        if corpus not in self._items:
            self._items[corpus] = corpora.item_index(self.connection, *corpus)
        return self._items[corpus]

    def _writer(self, key: SetKey) -> SetWriter:
        if key not in self._writers:
            self._writers[key] = SetWriter(self.connection, key, self.item_index(key))
        return self._writers[key]

    def _state(self, key: SetKey, partial: bool) -> SealedSet | None:
        state = self.sealed(key)
        if state is None and not partial:
            raise RequestError(
                f"{key.modality}s of {key.corpus!r} by {key.encoder!r} (set {table_of(key)}) are not sealed in "
                f"{self.uri}. Complete them with `capim embed` or `capim import`, or read some with partial=True"
            )
        return state

    # --- rows of analyses -------------------------------------------------------------------------------------
    def write_rows(self, table: str, rows: pa.Table, *, replace: str | None = None) -> int:
        """Writes rows of an analysis in one commit.

        Args:
            table: One of ``store.schema``: outcomes, results, comparisons, slices, batches, metrics, runs, watched …
            rows: The columns of the table (``store.schema``) in any order; nullable ones may be left out.
            replace: A column: stored rows with a value of these rows in it are deleted in the same commit. Without it,
                rows whose primary key is stored already are left as they are. Rows stored with equal values are kept.

        Returns:
            Rows written.

        Raises:
            RequestError: A column or a value does not fit; nothing was written.
        """
        return stored_rows.write_rows(self.connection, table, rows, replace)

    def rows(self, table: str, **equals: str | Sequence[str]) -> pa.Table:
        """Rows of an analysis whose columns hold the given texts (of several: any); outcomes in query order."""
        return stored_rows.read_rows(self.connection, table, equals)

    def counts(self, table: str, column: str, **equals: str | Sequence[str]) -> dict[str, int]:
        """How many of :meth:`rows` have each text in one column; reads no other column."""
        return stored_rows.count_rows(self.connection, table, column, equals)

    def outcomes(self, *, encoder: str | None = None, corpus: str | None = None, **equals: str) -> pa.Table:
        """Ranks (``schema.OUTCOMES``) in query order, by encoder, corpus, and columns such as ``protocol``."""
        return self.rows("outcomes", **self._subject(encoder, corpus), **equals)

    def results(self, *, encoder: str | None = None, corpus: str | None = None, **equals: str) -> pa.Table:
        """Metrics with intervals (``schema.RESULTS``), by encoder, corpus, and columns such as ``metric``."""
        return self.rows("results", **self._subject(encoder, corpus), **equals)

    def sql(self, statement: str, parameters: Sequence[object] = ()) -> pa.Table:
        """The answer to a SELECT (DuckDB; ``?`` for parameters) over all tables; cannot write. See ``store.query``."""
        from capim.store.query.sql import select

        return select(self.connection, statement, parameters)

    def _subject(self, encoder: str | None, corpus: str | None) -> dict[str, str]:
        columns = {} if encoder is None else {"encoder_fingerprint": self.encoder(encoder).fingerprint}
        if corpus is not None:
            columns["corpus_fingerprint"] = str(corpora.corpus_row(self.connection, corpus)["fingerprint"])
        return columns
