""":class:`EmbeddingStore`: the object for all writing and reading.

Encoders, corpora and images are registered under their names and hashes, each change in one merge by key: a row is
stored once, however many processes write it. The parts of a corpus are separate tables, named by its fingerprint,
which never change; the corpus exists as soon as its row in ``corpora`` does, which is written last. An interrupted
write leaves complete tables, which the next one keeps.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.connection import Connection, compact, table_version
from capim.store.current import (
    FIGURE_OF_STATES,
    KeysOfRun,
    Registered,
    States,
    Use,
    Uses,
    current_results,
    current_rows,
    newest_rows,
)
from capim.store.errors import MissingStoreError, RequestError, WorkError, did_you_mean, unknown, without_credentials
from capim.store.files import resolved_address
from capim.store.ledger import DERIVED_ROWS, KEYED_BY, NOTHING, REMOVED, Made, about_evaluation, entry_of, made_rows
from capim.store.row_types import rows_in, table_of
from capim.store.rows import (
    check,
    check_columns,
    conformed,
    corpus_part,
    corpus_table,
    counts,
    in_order,
    merge,
    now,
    one_of,
    read,
    read_now,
    read_where,
    register,
)
from capim.store.schema import (
    BY_STATE,
    CORPUS_PARTS,
    FORMAT,
    FORMAT_KEY,
    TABLE_OF,
    TABLES,
    TASK,
    Encoder,
    LedgerEntry,
    Result,
    Run,
    StoredCorpus,
    StoredImage,
    texts,
)
from capim.store.sets.rows import ItemIndex, StoredRows
from capim.store.sets.sealed import SealedSet, SetReader, Vectors, read_matrix, seal
from capim.store.sets.writing import Block, SetWriter
from capim.store.types import (
    MODALITIES,
    Corpus,
    EncoderSpec,
    Modality,
    SetKey,
    canonical_json,
    is_fingerprint,
    name_fault,
)
from capim.store.vectors import Ragged

R = TypeVar("R")
log = logging.getLogger(__name__)

_AGED = (*FIGURE_OF_STATES, "result", "evaluation", "metric_version", "derived", "created", "run")  # of current
_FACTS = ("name", "licence", "origin", "main_metric")  # of a corpus, in its row under the same names
_IMAGES = 1024  # that are written or read at once: with thumbnails of 5 kB, about 5 MB
_MOST_FILES = 64  # replaced files stay on disk until `capim store prune`: fewer files leave more of them


class EmbeddingStore:
    """Embeddings of images and captions, and all rows that were computed from them.

    A store is a LanceDB database in a folder or at ``s3://…`` (credentials from the environment). Several processes may
    use one store, and threads may share the object, which holds no lock and no open file. It is pickled as its URI.

    ``encoder`` and ``corpus`` accept a name, for the state last written under that name, or a fingerprint, for one
    permanent state. To read embeddings: :meth:`vectors` (one vector per item), :meth:`multivectors` (several). To read
    computed results: :meth:`current`, :meth:`rows`, :meth:`counts`, or :meth:`sql`. Verifying, pruning, search and
    files are functions that take a store, in modules of those names.

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
        """Open the store in a folder or at an object storage URI.

        Args:
            uri: ``workspace/store``, ``s3://bucket/path``.
            create: Make an empty store if there is none.

        Raises:
            RequestError: If there is no store and ``create`` is false, if none is possible there, or if it has another
                format.
        """
        try:
            text = resolved_address(str(uri))
        except ValueError as fault:
            raise RequestError(f"store {uri}: expected {fault}") from None
        connection = Connection.to(text if "://" in text else str(Path(text).expanduser().absolute()))
        if not connection.is_checked:
            check_address(connection)
            _check_format(connection, create=create)
            connection.is_checked = True
        return cls(connection)

    @property
    def uri(self) -> str:
        """The absolute path or the URI of the store."""
        return self.connection.uri

    def __repr__(self) -> str:
        return f"EmbeddingStore({without_credentials(self.uri)!r})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (EmbeddingStore.open, (self.uri,))

    def keeping(self) -> EmbeddingStore:
        """Return the same store with the rows of small tables cached in memory until they change."""
        return EmbeddingStore(Connection(self.uri, keeps=True))

    # --- encoders ---------------------------------------------------------------------------------------------
    def encoders(self, **equals: str) -> list[Encoder]:
        """Return one row per name and fingerprint, filtered by column values."""
        rows = rows_in(Encoder, read_now(self.connection, "encoders", equals))
        for row in rows:
            if not is_spec_of(row):
                raise WorkError(
                    f"table 'encoders': the spec of {row.name!r} does not match its fingerprint {row.fingerprint!r}",
                    remedy="Run `capim store verify --drop`, then the same `capim run`, which registers the encoder "
                    "again",
                )
        return rows

    def fingerprint_of(self, what: str) -> str:
        """Return the fingerprint that ``NAME@REVISION`` means; another name or a fingerprint as it is.

        A revision may be shortened as long as it is the only one that begins so. Of several models of one revision, the
        last registered one is meant.

        Raises:
            RequestError: The encoder has no such revision, or several; names those that it has.
        """
        name, at, revision = what.partition("@")
        if not at:
            return what
        rows = sorted(self.encoders(name=name), key=lambda row: row.written)
        known = {EncoderSpec.from_json(row.spec).revision: row.fingerprint for row in rows}
        meant = [revision] if revision in known else [each for each in known if revision and each.startswith(revision)]
        if len(meant) != 1:
            has = f"it has {', '.join(known)}" if known else "the store has no encoder of this name"
            raise RequestError(f"encoder {what!r}: {len(meant) or 'no'} revisions begin with {revision!r}; {has}")
        return known[meant[0]]

    def encoder(self, name_or_fingerprint: str) -> EncoderSpec:
        """Return the spec with a fingerprint, the one last registered under a name, or that of ``NAME@REVISION``."""
        name_or_fingerprint = self.fingerprint_of(name_or_fingerprint)
        column = "fingerprint" if is_fingerprint(name_or_fingerprint) else "name"
        rows = self.encoders(**{column: name_or_fingerprint})
        if not rows:
            names = sorted({row.name for row in self.encoders()})
            raise RequestError(
                f"encoder {name_or_fingerprint!r} is not in the store {self.uri}; "
                f"{did_you_mean(name_or_fingerprint, names)}it holds {', '.join(names) or 'none'}. "
                "Run `capim embed` with this encoder first, or `capim import`"
            )
        return EncoderSpec.from_json(max(rows, key=lambda row: row.written).spec)

    def write_encoder(self, spec: EncoderSpec) -> None:
        """Register a resolved spec; from then on its name means this spec (a change of meaning is logged)."""
        namesakes = self.encoders(name=spec.name)
        newest = max(namesakes, key=lambda row: row.written, default=None)
        if newest is not None and newest.spec == spec.to_json():
            return
        others = {row.fingerprint for row in namesakes} - {spec.fingerprint}
        if others:
            log.warning(
                f"encoder name {spec.name!r} now means {spec.fingerprint} (revision {spec.revision}); embeddings that "
                f"were made under this name before are kept, and are read by fingerprint: {', '.join(sorted(others))}"
            )
        row = Encoder(name=spec.name, fingerprint=spec.fingerprint, spec=spec.to_json(), written=now())
        register(self.connection, [row])

    def describe_encoder(self, spec: EncoderSpec) -> None:
        """Change the licence and the facts of a registered spec; what its name means stays."""
        rows = self.encoders(name=spec.name, fingerprint=spec.fingerprint)
        register(self.connection, [replace(row, spec=spec.to_json()) for row in rows])

    # --- corpora and their images -----------------------------------------------------------------------------
    def corpora(self) -> list[StoredCorpus]:
        """Return one row per stored corpus."""
        return rows_in(StoredCorpus, read(self.connection, "corpora"))

    def dropped_corpora(self, fingerprints: Iterable[str]) -> set[str]:
        """Return the fingerprints that no stored corpus has."""
        unknown = {*fingerprints} - {row.fingerprint for row in self.corpora()}
        if unknown:
            unknown -= {*texts(read_now(self.connection, "corpora", {"fingerprint": sorted(unknown)})["fingerprint"])}
        return unknown

    def corpus_row(self, name: str, fingerprint: str | None = None) -> StoredCorpus:
        """Return the row of :meth:`corpora` for a name (the newest), a fingerprint given as the name, or both."""
        wanted = {"fingerprint" if fingerprint is None and is_fingerprint(name) else "name": name}
        wanted |= {"fingerprint": fingerprint} if fingerprint else {}
        rows = rows_in(StoredCorpus, read_now(self.connection, "corpora", wanted))
        if not rows:
            names = sorted({row.name for row in self.corpora()})
            state = f" with fingerprint {fingerprint}" if fingerprint else ""
            raise RequestError(
                f"corpus {name!r}{state} is not in the store {self.uri}; it holds {', '.join(names) or 'none'}. "
                "Run `capim embed` on this corpus first, or `capim import` for embeddings made elsewhere"
            )
        return max(rows, key=lambda row: row.written)

    def corpus(self, name: str, fingerprint: str | None = None) -> Corpus:
        """Return a stored corpus by name (the newest), fingerprint, or both; without image bytes (``source`` None)."""
        row = self.corpus_row(name, fingerprint)
        facts: dict[str, Any] = {fact: getattr(row, fact) for fact in _FACTS}
        facts |= {"languages_reference": row.reference_language}
        key = canonical_json([row.fingerprint, facts])  # facts change without the fingerprint
        kept: Corpus | None = self.connection.kept.corpora.get(key)
        if kept is not None:
            return kept
        parts: dict[str, Any] = {
            part: corpus_part(self.connection, part, row.name, row.fingerprint) for part in CORPUS_PARTS
        }
        corpus = Corpus(**facts, **parts)
        if corpus.fingerprint != row.fingerprint:
            raise WorkError(
                f"corpus {row.name!r} was changed on disk: its fingerprint is {corpus.fingerprint}, it was "
                f"{row.fingerprint}",
                remedy="Run `capim store verify --drop`, which keeps its embeddings, then the same `capim run`, which "
                "reads it again; or restore its tables from a backup",
            )
        self.connection.kept.add_corpus(key, corpus, sum(part.nbytes for part in parts.values()))
        return corpus

    def write_corpus(self, corpus: Corpus) -> None:
        """Store a corpus, without image bytes, once; from then on its name and its location mean this corpus."""
        if fault := name_fault(corpus.name):
            raise RequestError(f"corpus name {corpus.name!r}: {fault}")
        rows = sorted(self.corpora(), key=lambda row: row.written, reverse=True)
        location = [corpus.location] if corpus.location else []
        stored = next((row for row in rows if row.fingerprint == corpus.fingerprint), None)
        if stored is not None:
            by_name = next(row for row in rows if row.name == corpus.name)
            by_location = next((row for row in rows if corpus.location in row.locations), None)
            if by_name is not stored or (location and by_location is not stored):
                locations = [*(one for one in stored.locations if one != corpus.location), *location]
                register(self.connection, [replace(stored, locations=locations, written=now())])
            return
        for part in CORPUS_PARTS:
            contents = getattr(corpus, part)
            if contents.num_rows:
                self.connection.create(corpus_table(part, corpus.name, corpus.fingerprint), contents.schema, contents)
        sample, seed = corpus.draw or (None, None)
        parts = ("images", "captions", "pairs", "quadruples", "skipped")
        counts_of: dict[str, Any] = {f"n_{part}": len(getattr(corpus, part)) for part in parts}
        row = StoredCorpus(
            **{fact: getattr(corpus, fact) for fact in _FACTS},
            **counts_of,
            fingerprint=corpus.fingerprint,
            languages=sorted(texts(pc.unique(corpus.captions.column("language")))),
            reference_language=corpus.languages_reference,
            locations=location,
            sample=sample,
            seed=seed,
            written=now(),
        )
        register(self.connection, [row], update=False)

    def items(self, corpus: str, modality: Modality) -> pa.Table:
        """Return the images or captions of a corpus in corpus order (``schema.IMAGES``, ``schema.CAPTIONS``)."""
        return self.corpus(corpus).items(modality)

    def item_index(self, key: SetKey) -> ItemIndex:
        """Return the items of a set, by position."""
        corpus = (key.corpus, key.corpus_fingerprint, key.modality)
        if corpus not in self._items:
            self._items[corpus] = ItemIndex.of(self.corpus(key.corpus, key.corpus_fingerprint), key.modality)
        return self._items[corpus]

    def write_images(self, images: Iterable[StoredImage]) -> None:
        """Store sizes and thumbnails by the hash of the image bytes, or hashes of images by their location."""
        remaining = iter(images)
        while batch := list(islice(remaining, _IMAGES)):
            register(self.connection, {image.item: image for image in batch}.values())

    def image_hashes(self) -> dict[str, StoredImage]:
        """Return all known hashes of images, by their location."""
        columns = ("item", "state", "sha", "width", "height")
        rows = read_where(self.connection, "image_index", "state IS NOT NULL", columns)
        return {row.item: row for row in rows_in(StoredImage, rows)}

    def indexed_images(self, shas: Sequence[str]) -> dict[str, str | None]:
        """Return the image hashes in the index, with the reason why an image cannot be decoded, or None."""
        if not shas:
            return {}
        # One pass over two narrow columns: a corpus looks up all of its images at once.
        rows = read(self.connection, "image_index", columns=("item", "reason"))
        chosen = rows.filter(pc.is_in(rows.column("item"), value_set=pa.array(shas, pa.string())))
        return dict(zip(texts(chosen["item"]), chosen["reason"].to_pylist(), strict=True))

    def thumbnails(self, shas: Sequence[str]) -> dict[str, bytes]:
        """Return encoded thumbnails by image hash; hashes without one are left out."""
        pictures: dict[str, Any] = {}
        unique = sorted(set(shas))
        for start in range(0, len(unique), _IMAGES):
            condition = one_of("item", unique[start : start + _IMAGES]) + " AND thumbnail IS NOT NULL"
            rows = read_where(self.connection, "image_index", condition, ("sha", "thumbnail"))
            pictures |= zip(texts(rows["sha"]), rows["thumbnail"].to_pylist(), strict=True)
        return pictures

    # --- embedding sets ---------------------------------------------------------------------------------------
    def key(self, *, encoder: str, corpus: str, modality: Modality) -> SetKey:
        """Return the identity of the set of a stored encoder and a stored corpus."""
        if modality not in MODALITIES:
            raise RequestError(unknown("modality", modality, MODALITIES))
        row = self.corpus_row(corpus)
        return SetKey.of(self.encoder(encoder), row.name, row.fingerprint, modality)

    def missing(self, key: SetKey) -> NDArray[np.int32]:
        """Return positions of the items without a row in a set, ascending; a sealed set lacks none."""
        return np.empty(0, dtype=np.int32) if self.sealed(key) is not None else self.writer(key).missing()

    def put(self, key: SetKey, spec: EncoderSpec, block: Block) -> int:
        """Add a block of embeddings to a set in one commit, except stored rows; return how many were new.

        Raises:
            RequestError: If a value, an id or the spec is wrong; every error names row and id; nothing was written.
            WorkError: If the storage failed; nothing of this block was written.
        """
        return self.writer(key).put(spec, block)

    def writer(self, key: SetKey) -> SetWriter:
        """Return a writer that appends to a set; it caches which items are stored."""
        if key not in self._writers:
            self._writers[key] = SetWriter(self.connection, key, self.item_index(key))
        return self._writers[key]

    def seal(self, key: SetKey) -> SealedSet:
        """Check that a set is complete and unchanged, and fix it under a tag; only sealed sets are evaluated.

        Raises:
            WorkError: If items are missing or rows are damaged; the first are named.
        """
        return seal(self.connection, key, self.item_index(key), self.sealed(key))

    def sealed(self, key: SetKey) -> SealedSet | None:
        """Return the sealed state of a set, or None."""
        rows = rows_in(SealedSet, read_now(self.connection, "sets", {"set_name": key.table}))
        return rows[0] if rows else None

    def intact(self, key: SetKey) -> bool:
        """True if a set is sealed and the sealed version is still stored; reads no row."""
        state, table = self.sealed(key), self.connection.find(key.table)
        return state is not None and table is not None and state.is_version_of(table)

    def sealed_sets(self) -> list[SealedSet]:
        """Return every sealed set, oldest first."""
        return rows_in(SealedSet, read(self.connection, "sets").sort_by("sealed_at"))

    def vectors(self, *, encoder: str, corpus: str, modality: Modality) -> Vectors:
        """Return the embeddings of a single-vector encoder as one float32 matrix in corpus order.

        Args:
            encoder: Name or fingerprint.
            corpus: Name or fingerprint.
            modality: ``image`` or ``caption``.

        Raises:
            RequestError: If there is no such set, or if it is not sealed.
            WorkError: If a row was changed on disk.
        """
        key = self.key(encoder=encoder, corpus=corpus, modality=modality)
        if key.vectors == "multi":
            raise RequestError(f"encoder {encoder!r} has several vectors per item: read them with multivectors()")
        return read_matrix(self.connection, self._sealed(key), self.item_index(key))

    def multivectors(self, *, encoder: str, corpus: str, modality: Modality, window: int = 64) -> Iterator[Ragged]:
        """Yield the embeddings of a late-interaction encoder, as stored, in blocks of ``window`` items in corpus order.

        Only one block is in memory, whatever the size of the set. Arguments and errors as for :meth:`vectors`.
        """
        key = self.key(encoder=encoder, corpus=corpus, modality=modality)
        if key.vectors == "single":
            raise RequestError(f"encoder {encoder!r} has one vector per item: read them with vectors()")
        return (rows.vectors for rows in self.stored_blocks(key, window=window))

    def windows(self, *, encoder: str, corpus: str, modality: Modality) -> SetReader | Callable[..., Iterator[Ragged]]:
        """Return the vectors of a sealed set, read on demand: rows, or a function that yields blocks."""
        key = self.key(encoder=encoder, corpus=corpus, modality=modality)
        if key.vectors == "single":
            return SetReader(self.connection, self.item_index(key), self._sealed(key))
        return lambda ords=None: (rows.vectors for rows in self.stored_blocks(key, ords=ords))

    def stored_blocks(
        self, key: SetKey, *, ords: NDArray[np.int32] | None = None, window: int = 64
    ) -> Iterator[StoredRows]:
        """Yield stored rows of any set, at all positions or ``ords``, in blocks of ``window`` items: bounded memory."""
        if window < 1:
            raise RequestError(f"window must be at least 1 item, got {window}")
        items = self.item_index(key)
        reader = SetReader(self.connection, items, self._sealed(key))
        return reader.blocks(np.arange(len(items), dtype=np.int32) if ords is None else ords, window)

    def _sealed(self, key: SetKey) -> SealedSet:
        state = self.sealed(key)
        if state is None:
            raise RequestError(
                f"{key.modality}s of {key.corpus!r} by {key.encoder!r} (set {key.table}) are not sealed in "
                f"{self.uri}. Complete them with `capim embed` or `capim import`"
            )
        return state

    # --- rows of analyses -------------------------------------------------------------------------------------
    def write_rows(self, table: str, rows: pa.Table, *, replace: str | None = None) -> int:
        """Write rows of an analysis in one commit.

        Args:
            table: One of ``store.schema``: outcomes, results, comparisons, slices, batches, runs, watched …
            rows: The columns of the table (``store.schema``) in any order; nullable ones may be left out.
            replace: A column: stored rows with a value of these rows in it are deleted in the same commit. Without it,
                rows with a stored primary key do not change.

        Returns:
            Number of written rows.

        Raises:
            RequestError: If a column or a value does not fit; nothing was written.
        """
        check_columns(table, () if replace is None else (replace,))
        rows = conformed(table, rows)
        if not rows.num_rows:
            return 0
        written, version = self._merge(table, rows, replace)
        if table == "outcomes":
            created = now()
            entries = [about_evaluation(key, created) for key in texts(pc.unique(rows["evaluation"]))]
            self._list(table, rows, version, entries)
        return written

    def _merge(self, table: str, rows: pa.Table, replace: str | None) -> tuple[int, int]:
        """Merge rows as :meth:`write_rows` does.

        Returns:
            Number of written rows, and the version of the table that holds all of them; 0 if other rows were kept.
        """
        replaced = None
        if replace is not None and (replace,) != TABLES[table].key:
            replaced = one_of(replace, sorted(texts(pc.unique(rows.column(replace)))))
        written, merged = merge(self.connection, table, rows, update=replace is not None, replaced=replaced)
        if len(merged.get_fragments()) > _MOST_FILES:  # every write adds a file, and every read opens all of them
            compact(self.connection, table, free=False)
        return written, merged.version if written == rows.num_rows else 0

    def write(self, rows: Sequence[object], *, replace: str | None = None) -> int:
        """Write rows of one type into their table, as :meth:`write_rows` does; return how many were written."""
        if not rows:
            return 0
        row_type = type(rows[0])
        return self.write_rows(TABLE_OF[row_type], table_of(row_type, rows), replace=replace)

    def write_derived(self, table: str, rows: Sequence[object], entries: Iterable[LedgerEntry]) -> None:
        """Write the rows of some derivations, then their entries of the ledger, with number and digest of rows."""
        made = conformed(table, table_of(TABLES[table].row, rows))
        keys = texts(pc.unique(made["derived"]))
        replace = "derived" if check(self.connection, table).intersection(keys) else None
        _, version = self._merge(table, made, replace) if made.num_rows else (0, 0)
        self._list(table, made, version, entries)
        self.connection.listed.update(keys)

    def _list(self, table: str, rows: pa.Table, version: int, entries: Iterable[LedgerEntry]) -> None:
        """Write the entries of the ledger for rows that a version of their table holds.

        Another process may replace or remove the rows, and write its entries before these. If the table has another
        version once the entries are written, or if none holds the rows (0), they are those of the stored rows.
        """
        made: dict[str, Made | None] = {**made_rows(table, rows)}
        listed = [*entries]
        keys = [*made]
        while True:
            if keys and not version:
                version = table_version(self.connection.find(table))
                stored = made_rows(table, read_where(self.connection, table, one_of(KEYED_BY[table], keys)))
                made = {key: stored.get(key) for key in keys}
            self.write([entry_of(table, entry, made.get(entry.key, NOTHING)) for entry in listed], replace="key")
            if not keys or version == table_version(self.connection.find(table)):
                return
            version = 0

    def stored_rows(self, keys: Sequence[str]) -> dict[str, int]:
        """Return key -> number of its rows, for the derivations and evaluations with rows that the ledger lists."""
        entries = self.all(LedgerEntry, key=keys) if keys else []
        return {entry.key: entry.n_rows for entry in entries if entry.digest != REMOVED}

    def rows(self, table: str, **equals: str | Sequence[str]) -> pa.Table:
        """Return rows of an analysis, filtered by column values (any of several); outcomes in query order."""
        check_columns(table, equals)
        return in_order(table, read(self.connection, table, equals))

    def outcomes(self, evaluations: Sequence[str]) -> dict[str, pa.Table]:
        """Return the outcomes of each evaluation, in query order, in one pass over the table; empty if it has none."""
        rows = read(self.connection, "outcomes", {"evaluation": evaluations})
        return {
            each: in_order("outcomes", rows.filter(pc.equal(rows["evaluation"], pa.scalar(each))))
            for each in dict.fromkeys(evaluations)
        }

    def counts(self, table: str, column: str, **equals: str | Sequence[str]) -> dict[str, int]:
        """Return how many of :meth:`rows` have each value in one column; reads no other column."""
        check_columns(table, (column, *equals))
        return counts(self.connection, table, column, equals)

    def all(self, row_type: type[R], **equals: str | Sequence[str]) -> list[R]:
        """Return :meth:`rows` of the table of a row type, of every run, as objects."""
        return rows_in(row_type, self.rows(TABLE_OF[row_type], **equals))

    def current(self, row_type: type[R], dropped: bool = False, /, **equals: str | Sequence[str]) -> list[R]:
        """Return the current rows among :meth:`all` (``store.current``): one per key, of the states that names mean.

        A name means its newest state with results on a stored corpus, and a result is by the version of its metric
        in the newest result, whatever rows are requested; but if ``equals`` names states by their fingerprints, these
        are used. ``dropped``: a name without a stored corpus means the state that was dropped last.
        """
        table = TABLE_OF[row_type]
        if table == "watched":
            return newest_rows(self.all(row_type, **equals), table)
        results, states = self._results(equals, dropped=dropped)  # first: rows that are added meanwhile replace none
        shown, rows = current_results(results, states), self.all(row_type, **equals)
        if row_type is not Result:
            return current_rows(table, rows, shown, states)
        keys = {row.result for row in shown}
        return [row for row in rows if isinstance(row, Result) and row.result in keys]

    def evaluated(self, **equals: str | Sequence[str]) -> list[Result]:
        """Return for each encoder, corpus and protocol a result of the newest evaluation, by any version of a metric.

        The rows have only the columns that determine which of several is current. Names have the same meaning as in
        :meth:`current`.
        """
        states = self._results(equals)[1]
        rows = filter(states.has, rows_in(Result, read(self.connection, "results", equals, _AGED)))
        return newest_rows(rows, "results", (*TASK, *BY_STATE), states.uses)

    def current_outcomes(self, **equals: str | Sequence[str]) -> pa.Table:
        """Return the outcomes of these evaluations, see :meth:`evaluated`."""
        return self.rows("outcomes", evaluation=[row.evaluation for row in self.evaluated(**equals)])

    def figures(self, **equals: str | Sequence[str]) -> list[Result]:
        """Return the results of every evaluation, including superseded ones: the current row for each result."""
        by = (*FIGURE_OF_STATES, "evaluation")
        return newest_rows(self.all(Result, **equals), "results", by=by, uses=self.uses())

    def states(self) -> States:
        """Return the states that names refer to, by the stored results."""
        return self._results({})[1]

    def _results(
        self, equals: Mapping[str, str | Sequence[str]], *, dropped: bool = False
    ) -> tuple[list[Result], States]:
        """Return the results of the states that ``equals`` names by fingerprint (default: all), and these states."""
        named = {name: values for name, values in equals.items() if name.endswith("_fingerprint")}
        results = rows_in(Result, read(self.connection, "results", named, _AGED))
        gone = self.dropped_corpora(row.corpus_fingerprint for row in results)
        found = [row for row in results if row.corpus_fingerprint not in gone]
        stored = {row.corpus for row in found}
        found += [row for row in results if dropped and row.corpus not in stored]
        meant = {each for values in named.values() for each in ([values] if isinstance(values, str) else values)}
        return found, self.states_of(found, meant)

    def states_of(
        self, results: Iterable[Result], named: Collection[str] = (), *, until: datetime | None = None
    ) -> States:
        """Return the states that names refer to, by some results; ``until`` as for :meth:`uses`."""
        return States.of(results, self.uses(until), named, self.registered())

    def registered(self) -> Registered:
        """Return when each corpus and encoder was registered last under its name."""
        encoders = rows_in(Encoder, read(self.connection, "encoders", columns=("name", "fingerprint", "written")))
        found: list[Encoder | StoredCorpus] = [*encoders, *self.corpora()]
        return {(row.name, row.fingerprint): row.written for row in found}

    def uses(self, until: datetime | None = None) -> Uses:
        """Return key of each derivation -> whether its settings are the defaults, and when it was made or last used.

        ``until``: only count runs that had begun by then.
        """
        derived = rows_in(LedgerEntry, read(self.connection, "derived", columns=("key", "usual", "created")))
        last = {key: run.started for run in self.runs() if until is None or run.started <= until for key in run.keys}
        return {row.key: Use(row.usual, last.get(row.key) or row.created) for row in derived}

    def rows_of_run(self, row_type: type[R], run: str) -> list[R]:
        """Return the rows of results, comparisons, rankings or slices that a run made or found."""
        keys = self.keys_of(run)
        rows: list[Any] = self.all(row_type)
        return [row for row in rows if row.run == run or row.derived in keys]

    def keys_of(self, run: str) -> set[str]:
        """Return the keys of the derivations that a run used, whether it made them or not."""
        return {key for row in self.runs() if row.run == run for key in row.keys}

    def runs(self) -> list[KeysOfRun]:
        """Return when each run began, and the keys of everything that it used, oldest first.

        Of a run that used the same as an earlier one, the row of the earlier one has the keys.
        """
        rows = rows_in(Run, read(self.connection, "runs", columns=("run", "started", "uses", "same_as")))
        keys = {row.run: row.uses or () for row in rows}
        rows.sort(key=lambda row: row.started)
        return [KeysOfRun(row.run, row.started, keys.get(row.same_as or row.run, ())) for row in rows]

    def sql(
        self,
        statement: str,
        parameters: Sequence[object] = (),
        *,
        seconds: float | None = None,
        memory: int | None = None,
    ) -> pa.Table:
        """Return the result of a SELECT (DuckDB; ``?`` for parameters) over all tables, read-only. See ``store.sql``.

        If it names a damaged table of derived rows, the table is read as it is, and reported in the log.
        """
        from capim.store.sql import select

        for name in DERIVED_ROWS:
            if name in statement.lower():
                try:
                    check(self.connection, name)
                except WorkError as fault:
                    log.warning("%s", fault)
        return select(self, statement, parameters, seconds=seconds, memory=memory)


def is_spec_of(row: Encoder) -> bool:
    """True if the spec of a row, as JSON, has the row's name and fingerprint: models are loaded by this spec."""
    try:
        stored = EncoderSpec.from_json(row.spec)
        return (stored.name, stored.fingerprint) == (row.name, row.fingerprint)
    except (TypeError, ValueError):  # not JSON, or not the fields of a spec
        return False


def check_address(connection: Connection) -> None:
    """Raise :class:`RequestError` unless a store is possible at this path."""
    if not connection.is_local:
        return
    if control := sorted({c for c in connection.uri if unicodedata.category(c) == "Cc"}):
        raise RequestError(f"store {connection.uri}: the path has a control character ({control[0]!r})")
    place = Path(connection.uri)
    with suppress(PermissionError):  # an inaccessible path fails when it is opened
        if links := [one for one in (place, *place.parents) if one.is_symlink() and not one.exists()]:
            raise RequestError(f"store {place}: {links[0]} is a link to {links[0].readlink()}, which is not there")
        if files := [one for one in (place, *place.parents) if one.exists() and not one.is_dir()]:
            raise RequestError(f"store {place}: {files[0]} is a file, not a folder; give another --workspace")


UPGRADED = 7
"""The format that `capim store upgrade` converts to this one: of 0.3.0."""


def _check_format(connection: Connection, *, create: bool) -> None:
    """Check the format of a store; write it for a new one.

    Raises:
        RequestError: If there is no store and ``create`` is false, or if it has another format.
    """
    try:
        written = written_format(connection)
        if written is None and (names := connection.names()):
            written = written_format(connection)  # which another process may have made in between
            if written is None and not (create and names == [MARKED]):  # or may be making now
                raise WorkError(f"table {MARKED!r} is missing")
    except WorkError as fault:
        folder = connection.folder(MARKED)
        if folder is None or not folder.parent.is_dir():
            raise
        # all but this table may still be read
        uri = without_credentials(connection.uri)
        log.warning("the format of store %s is unknown: %s. Run `capim store verify --drop`", uri, fault.problem)
        return
    if written is None and not create:
        raise MissingStoreError(
            f"there is no store at {connection.uri}. Give another workspace (--workspace, $CAPIM_WORKSPACE), "
            "or make a store with `capim demo` or `capim run`"
        )
    if written is None:
        connection.create(MARKED, TABLES[MARKED].keyed_columns)
    elif written != FORMAT:
        raise RequestError(
            f"store {connection.uri} has format {written}, this release of capim reads format {FORMAT}: "
            f"{_reader_of(written)}, or give another workspace (--workspace)"
        )


MARKED = "encoders"  # the first table of every store, with the format of the store in its metadata


def written_format(connection: Connection) -> int | None:
    """Return the format of the store; None if no table has it.

    Stores of earlier releases have it in a separate table, ``formats``.
    """
    table = connection.find(MARKED)
    found = None if table is None else (table.schema.metadata or {}).get(FORMAT_KEY.encode())
    if found is not None:
        return int(found)
    earlier = connection.find("formats")
    return None if earlier is None else min(earlier.to_table(columns=["format"])["format"].to_pylist(), default=None)


def _reader_of(other: int) -> str:
    """Return what to do with a store of another format."""
    if other > FORMAT:
        return "a later release wrote it. Upgrade capim"
    if other == UPGRADED:
        return "run `capim store upgrade` (nothing is encoded again)"
    return "an earlier release wrote it. Export its vectors with that release and import them here (docs/store.md)"
