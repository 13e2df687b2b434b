"""SQL over everything in a store, read-only: DuckDB in memory over the stored tables.

Tables: metadata and analyses by their names (``encoders``, ``corpora``, ``sets``, ``outcomes``, ``results``,
``comparisons``, ``rankings``, ``watched`` …); the parts of corpora as ``images``, ``captions``, ``pairs``,
``quadruples``, ``relevance``, ``skipped``, with columns ``corpus``, ``corpus_fingerprint`` and ``ord``; and
``embeddings``, one row per embedding of every sealed set.

``results``, ``outcomes``, ``comparisons``, ``rankings``, ``slices``, ``watched`` and the parts of corpora have the rows
that reports show, see ``store.current``; ``all_results``, ``all_captions`` and so on have those of all runs, revisions
and states.

Views: ``items`` (images and captions), ``embedded_items`` (embeddings with their items), ``outcome_states``
(``missed``, ``found`` or ``tied`` for each query), ``query_outcomes`` (outcomes with the text or image of the query),
``ambiguous_misses`` (one row per encoder, query and cause).

Only columns with a name in the statement are read, so that a query about ranks reads no vector. ``SELECT *`` returns
every column except vectors and thumbnails, which must be named. Vectors are returned as 32-bit floats: DuckDB has no
16-bit ones.
"""

from __future__ import annotations

import re
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from threading import RLock, current_thread, main_thread
from time import monotonic
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pyarrow as pa

from capim.store.connection import retrying, storage_faults, table_version
from capim.store.current import newest_rows
from capim.store.errors import RequestError, WorkError, unknown
from capim.store.row_types import columns_of, table_of
from capim.store.rows import corpus_part, one_of, outcomes_table, read
from capim.store.schema import AMBIGUOUS, ANALYSES, CORPUS_PARTS, EITHER, SHARE_OF_MISSES, TABLES, Float32, Int32
from capim.store.sets.sealed import open_set
from capim.store.types import SIDES, digest16

if TYPE_CHECKING:
    import duckdb

    from capim.store.embedding_store import EmbeddingStore

_HEAVY = frozenset({"vector", "vectors", "thumbnail"})  # except `vectors` of `sets`, which is a word


@dataclass(frozen=True, kw_only=True)
class OfCorpus:
    """The additional columns, in SQL, of the parts of all corpora, before their own."""

    corpus: str
    corpus_fingerprint: str
    ord: Int32


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """One embedding of a sealed set, in SQL."""

    set_name: str
    corpus: str
    corpus_fingerprint: str
    encoder: str
    encoder_fingerprint: str
    modality: str
    item_id: str
    ord: Int32
    vector: list[Float32]
    vectors: list[list[Float32]]
    n_vectors: Int32
    norm: Float32
    n_tokens: Int32
    truncated: bool
    input_sha: str
    batch_id: str
    language: str
    translator: str


_BY_IMAGE = tuple(direction for direction, (queries, _) in SIDES.items() if queries == "image")
VIEWS: dict[str, str] = {
    "items": """SELECT corpus, corpus_fingerprint, 'image' AS modality, ord, id, id AS image_id, NULL AS text,
                  NULL AS ordinal, NULL AS language, NULL AS translator, sha, width, height FROM images
           UNION ALL BY NAME
           SELECT corpus, corpus_fingerprint, 'caption' AS modality, ord, id, image_id, text,
                  ordinal, language, translator, NULL AS sha, NULL AS width, NULL AS height FROM captions""",
    "embedded_items": """SELECT e.*, i.image_id, i.text FROM embeddings e JOIN all_items i
           ON e.corpus_fingerprint = i.corpus_fingerprint AND e.modality = i.modality AND e.ord = i.ord""",
    "outcome_states": """SELECT evaluation, encoder, corpus, protocol, query_id, query_ord, cluster,
                  rank_best, rank_worst, rank_best > 1 AS missed, rank_worst = 1 AS found,
                  rank_worst > rank_best AND coalesce(n_ranked, 1) > 0 AS tied FROM outcomes""",
    "query_outcomes": f"""SELECT o.*, i.modality AS query_modality, i.image_id AS query_image, i.text AS query_text
           FROM outcomes o LEFT JOIN all_items i ON o.corpus_fingerprint = i.corpus_fingerprint AND o.query_id = i.id
           AND i.modality = CASE WHEN split_part(o.protocol, '/', 1) IN {_BY_IMAGE}
           THEN 'image' ELSE 'caption' END""",  # noqa: S608 - our own text
    "ambiguous_misses": f"""SELECT encoder, encoder_fingerprint, corpus, corpus_fingerprint, protocol, feature AS cause,
                  unnest(from_json(json_extract(detail, '$.queries'), '["VARCHAR"]')) AS query_id,
                  unnest(from_json(json_extract(detail, '$.sources'), '["VARCHAR"]')) AS sources
           FROM slices WHERE analysis = '{AMBIGUOUS}' AND metric = '{SHARE_OF_MISSES}'
                  AND feature <> '{EITHER}'""",  # noqa: S608 - our own text
}
"""View -> its definition, which names the tables and views that it reads."""

_CURRENT_TABLES = [name for name, table in ANALYSES.items() if table.shown_for is not None]
ALL = {f"all_{name}": name for name in (*_CURRENT_TABLES, "outcomes", *CORPUS_PARTS)}
"""Name of the rows of all runs, revisions and states -> name of the current rows, see ``store.current``."""
VIEWS |= {f"all_{name}": VIEWS[name].replace("FROM ", "FROM all_") for name in ("items", "outcome_states")}


MEMORY = 4 * 2**30  # bytes
_ROWS = 32_768  # of the result at a time
_LISTS = {"information_schema", "duckdb_tables", "duckdb_views", "duckdb_columns"}  # sources of table lists


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A table for DuckDB; its batches are read again for every scan."""

    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a new stream (Arrow PyCapsule interface)."""
        reader: Any = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)


def select(
    store: EmbeddingStore,
    statement: str,
    parameters: Sequence[object] = (),
    *,
    cached: Callable[[str, pa.Schema], pa.Table | None] | None = None,
    seconds: float | None = None,
    memory: int | None = None,
) -> pa.Table:
    """Return the result of one SELECT (or SHOW, DESCRIBE, SUMMARIZE, PIVOT, EXPLAIN) over the store's tables.

    If columns share a name, as after a join, the second is called ``name_2``.
    ``parameters`` are the values of the ``?`` in the statement. ``cached`` returns the chosen columns of a table from
    memory; None: the table is read. ``seconds``: time limit. ``memory``: bytes for the work, which continues in the
    folder for temporary files if it needs more, and for the result (None: ``MEMORY``).

    Raises:
        RequestError: If the statement is not a SELECT, if DuckDB refuses it, with the message of DuckDB, or if it takes
            longer or needs more memory.
        WorkError: If a table could not be read.
    """
    import duckdb

    words = _words(statement.lower())
    lists = _LISTS & words or words >= {"show", "tables"}
    words |= {*known_tables()} if lists else set()
    wanted = words.union(*(_words(VIEWS[name]) for name in _needed(words) if name in VIEWS))
    faults: list[WorkError] = []
    most = MEMORY if memory is None else memory
    settings = {
        "enable_external_access": "false",
        "memory_limit": f"{most}B",
        "temp_directory": f"{tempfile.gettempdir()}/capim-{uuid4().hex}",  # created on demand, and removed
    }

    def answer(database: duckdb.DuckDBPyConnection) -> pa.Table:
        faults.clear()
        try:
            relation = database.sql(statement, params=list(parameters))
            return _gathered(relation.to_arrow_reader(_ROWS), most)
        except (duckdb.Error, OSError) as fault:
            if faults:
                raise faults[0] from faults[0].__cause__  # which says whether another process compacted the table
            raise duckdb.Error(str(fault)) from fault

    with duckdb.connect(":memory:", config=settings) as database:
        try:
            statements = database.extract_statements(statement)
            allowed = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
            allowed |= {duckdb.StatementType.MULTI}  # PIVOT, which looks for the columns first
            if len(statements) != 1 or statements[0].type not in allowed:
                raise RequestError("the query failed: expected one SELECT; the store is read-only here")
            for name in _needed(words):
                if name in VIEWS:
                    database.execute(f"CREATE VIEW {name} AS {VIEWS[name]}")
                    continue
                chosen = _chosen(name, wanted, everything=bool(lists) or _selects_all(statement))
                rows = None if cached is None else cached(name, chosen)
                batches = partial(_read, store, name, chosen, faults)
                database.register(name, Stream(schema=chosen, batches=batches) if rows is None else rows)
            work = partial(retrying, "reading the store", partial(answer, database))
            return _interruptible(work, database.interrupt, seconds)
        except duckdb.Error as fault:
            if "Out of Memory" in str(fault):
                raise _too_large(most) from None
            raise RequestError(f"the query failed: {_explained(str(fault), words)}") from None


def _gathered(batches: pa.RecordBatchReader, most: int) -> pa.Table:
    """Return the rows of batches; columns with the same name are numbered.

    Raises:
        RequestError: If they take more than so many bytes.
    """
    found: list[pa.RecordBatch] = []
    n_bytes = 0
    for batch in batches:
        found.append(batch)
        n_bytes += batch.nbytes
        if n_bytes > most:
            raise _too_large(most)
    table = pa.Table.from_batches(found, schema=batches.schema)
    return table.rename_columns(_apart(table.column_names))


def _too_large(most: int) -> RequestError:
    return RequestError(
        f"the query or its result needs more memory than {most / 2**20:,.0f} MiB; select fewer rows or columns, or "
        "raise the limit (`capim query --memory 16GiB`)"
    )


def _interruptible(work: Callable[[], pa.Table], interrupt: Callable[[], None], seconds: float | None) -> pa.Table:
    """Return the result of some work of DuckDB, done in another thread.

    While DuckDB waits for its own threads, it cannot be interrupted or timed out. Threads get no signals, so those of a
    server start none without a limit. No wait is long: a signal that another thread receives wakes none.

    Raises:
        RequestError: If it took longer than so many seconds.
    """
    if seconds is None and current_thread() is not main_thread():
        return work()
    last = monotonic() + (inf if seconds is None else seconds)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(copy_context().run, work)
        try:
            while not future.done() and (left := last - monotonic()) > 0:
                wait([future], min(left, 0.1))
            late = not future.done()
        finally:
            while not future.done():
                interrupt()  # repeatedly: while nothing runs, it has no effect
                wait([future], 0.05)
    if late:
        raise RequestError(f"the query took longer than {seconds:g} seconds")
    return future.result()


def _apart(names: Sequence[str]) -> list[str]:
    """Return names of columns with numbers after repeated ones: a row holds each name once.

    Examples:
        >>> _apart(["rank", "rank", "rank_2", "rank"])
        ['rank', 'rank_3', 'rank_2', 'rank_4']
    """
    apart: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in count(2))
        apart.append(name if name not in apart else next(n for n in numbered if n not in {*names, *apart}))
    return apart


def known_tables() -> list[str]:
    """Return the names that a statement may select from."""
    names = [*TABLES, *CORPUS_PARTS, "embeddings", *VIEWS, *ALL]
    return sorted(names, key=lambda name: (name.startswith("all_"), name))


def _explained(message: str, words: set[str]) -> str:
    """Return DuckDB's message; for unknown tables and columns, with the store's nearest (DuckDB sees only a part)."""
    if table := re.search(r"Table with name (\w+) does not exist", message):
        return unknown("table", table[1], known_tables())
    if column := re.search(r'(?:Referenced column|have a column named) "(\w+)"', message):
        known = list(
            dict.fromkeys(name for table in _needed(words) if table not in VIEWS for name in _schema_of(table).names)
        )
        return unknown("column", column[1], known)
    return "\n".join(line for line in message.splitlines() if line.strip())[:600]


def _needed(words: set[str]) -> list[str]:
    """Return the tables and views that a statement mentions, each after those that it reads."""
    order: dict[str, None] = {}
    for name in known_tables():
        if name in words:
            order |= dict.fromkeys([*_needed(_words(VIEWS.get(name, ""))), name])
    return [*order]


def _words(statement: str) -> set[str]:
    return {*re.findall(r"\w+", statement)}


def _selects_all(statement: str) -> bool:
    """True if the statement needs columns that it does not name: ``SELECT *``, ``COLUMNS('ci_.*')``, ``NATURAL JOIN``.

    Examples:
        >>> _selects_all("SELECT encoder, * FROM results"), _selects_all("DESCRIBE results")
        (True, True)
        >>> _selects_all("SELECT DISTINCT ON (encoder) * FROM results")
        True
        >>> _selects_all("SELECT COLUMNS('value.*') FROM results"), _selects_all("FROM results")
        (True, True)
        >>> _selects_all("SELECT count(*), sum(a) * 2, 2 * rank_best FROM outcomes")
        False
    """
    lower = statement.lower()
    star = r"(\bselect|\bdistinct|,|\.)\s*\*|\)\s*\*\s*(,|from\b|exclude\b|replace\b)"
    return "select" not in lower or re.search(rf"{star}|\bcolumns\s*\(|\b(natural|pivot)\s", lower) is not None


def _chosen(name: str, words: set[str], *, everything: bool) -> pa.Schema:
    """Return the columns of a table that a statement of these words needs; at least one."""
    schema = _schema_of(name)
    # A view with e.* needs all light columns of the table below it.
    everything = everything or any(
        "*" in VIEWS[view] and name in _words(VIEWS[view]) for view in VIEWS if view in words
    )
    heavy = {name for name in _HEAVY.intersection(schema.names) if schema.field(name).type != pa.string()}
    columns = [column for column in schema.names if column in words or (everything and column not in heavy)]
    fields = [schema.field(column) for column in columns or schema.names[:1]]
    return pa.schema([field.remove_metadata().with_nullable(True) for field in fields])


def _read(store: EmbeddingStore, name: str, chosen: pa.Schema, faults: list[WorkError]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table; keep an error, since DuckDB wraps it in an error of its own."""
    try:
        with storage_faults(f"reading {name!r}"):
            yield from batches_of(store, name, chosen)
    except WorkError as fault:
        faults.append(fault)
        raise


def _schema_of(name: str) -> pa.Schema:
    name = ALL.get(name, name)
    if name == "embeddings":
        return columns_of(Embedding)
    if name in CORPUS_PARTS:
        return pa.schema([*columns_of(OfCorpus), *CORPUS_PARTS[name]])
    return TABLES[name].columns


def batches_of(
    store: EmbeddingStore, name: str, chosen: pa.Schema, only: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table with the chosen columns; ``only``: for parts of corpora, those of one state."""
    connection, is_current, name = store.connection, name in ALL.values(), ALL.get(name, name)
    if name == "embeddings":
        yield from _embedding_batches(store, chosen)
    elif is_current and name in _CURRENT_TABLES:
        rows = table_of(TABLES[name].row, store.current(TABLES[name].row))
        yield from rows.select(chosen.names).cast(chosen).to_batches()
    elif name in CORPUS_PARTS:
        corpora = [corpus for corpus in store.corpora() if only in (None, corpus.fingerprint)]
        for corpus in newest_rows(corpora, "corpora") if is_current else corpora:
            part = corpus_part(connection, name, corpus.name, corpus.fingerprint)
            constants = {"corpus": corpus.name, "corpus_fingerprint": corpus.fingerprint}
            ords = pa.array(range(part.num_rows), pa.int32())
            for batch in part.append_column("ord", ords).combine_chunks().to_batches(max_chunksize=65_536):
                yield _completed(batch, chosen, constants)
    else:
        # the evaluations first: their outcomes were written before them
        wanted = one_of("evaluation", [row.evaluation for row in store.evaluated()]) if is_current else None
        table = outcomes_table(connection) if name == "outcomes" else connection.find(name)
        if table is not None:
            for batch in table.scanner(columns=chosen.names, filter=wanted, scan_in_order=True).to_batches():
                yield _completed(batch, chosen, {})


def _embedding_batches(store: EmbeddingStore, chosen: pa.Schema) -> Iterator[pa.RecordBatch]:
    for sealed in store.sealed_sets():
        table = open_set(store.connection, sealed.key, sealed)
        stored = [column for column in chosen.names if column in table.schema.names] or ["ord"]
        size = 256 if _HEAVY & set(stored) else 65_536
        constants = sealed.key.columns
        del constants["vectors"]  # the kind of set; here a column of vectors
        for batch in table.scanner(columns=stored, batch_size=size, batch_readahead=2).to_batches():
            yield _completed(batch, chosen, constants)


def _completed(batch: pa.RecordBatch, chosen: pa.Schema, constants: Mapping[str, str]) -> pa.RecordBatch:
    """Return a batch with exactly the chosen columns: constants filled in, missing ones null, float16 as float32."""

    def column(field: pa.Field) -> pa.Array:
        if field.name in batch.schema.names:
            return cast(pa.Array, batch.column(field.name).cast(field.type))
        if field.name in constants:
            return cast(pa.Array, pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows))
        return cast(pa.Array, pa.nulls(batch.num_rows, field.type))

    return pa.RecordBatch.from_arrays([column(field) for field in chosen], schema=chosen)


# --- SELECTs with tables cached for the next statement, for pages that read the same tables repeatedly.


_TABLES = ("corpora", "encoders", "sets", "derived", "outcomes", "results", "comparisons", "rankings", "slices", "runs")
MOST_BYTES = 400 * 2**20  # of columns in memory


def version_of(store: EmbeddingStore) -> str:
    """Return a string that changes with every commit to the tables of results, corpora and sets; reads no row.

    Examples:
        >>> import tempfile
        >>> from capim.store import EmbeddingStore
        >>> store = EmbeddingStore.open(tempfile.mkdtemp() + "/store", create=True)
        >>> version_of(store) == version_of(store)
        True
    """

    def newest(name: str) -> tuple[int, str] | None:
        table = store.connection.find(name)
        versions = [] if table is None else table.versions()
        # the time too: a table that was dropped and made again counts its versions from the start
        return (versions[-1]["version"], str(versions[-1]["timestamp"])) if versions else None

    # repeated if another process has just compacted a table and removed the listed versions
    return digest16([retrying(f"listing versions of table {name!r}", partial(newest, name)) for name in _TABLES])


class TableCache:
    """A cache that reads the same columns once per version of their table; threads may share it.

    Outcomes are cached by evaluation, the parts of a corpus by its fingerprint; those unused for the longest time are
    removed first.
    """

    def __init__(self, store: EmbeddingStore) -> None:
        self._store = store
        self._parts: OrderedDict[tuple[object, ...], pa.Table] = OrderedDict()  # by table, key, version, columns
        self._lock = RLock()

    def select(
        self, statement: str, parameters: Sequence[object] = (), *, only: Mapping[str, Sequence[str]]
    ) -> pa.Table:
        """Return the store's result for a statement that needs no other rows than those of ``only``.

        Args:
            statement: A SELECT, see ``store.sql``.
            parameters: The values of the ``?`` in it.
            only: Table -> the evaluations (of outcomes) or the fingerprints (of parts of a corpus) with the required
                rows; other tables are read whole, and not cached.
        """

        def cached(name: str, chosen: pa.Schema) -> pa.Table | None:
            if name not in only:
                return None
            # parts of a corpus never change
            table = None if name in CORPUS_PARTS else self._store.connection.find(name)
            version = table_version(table)
            parts = [self._rows(name, key, chosen, version) for key in only[name]]
            return pa.concat_tables(parts) if parts else chosen.empty_table()

        return select(self._store, statement, parameters, cached=cached)

    def _rows(self, name: str, key: str, chosen: pa.Schema, version: int) -> pa.Table:
        """Return the chosen columns of one part; read them if they are not cached at this version of the table."""
        place = (name, key, version, *chosen.names)
        with self._lock:
            if place in self._parts:
                self._parts.move_to_end(place)
                return self._parts[place]
            if name in CORPUS_PARTS:
                part = pa.Table.from_batches(batches_of(self._store, name, chosen, key), schema=chosen)
            else:
                part = read(self._store.connection, name, {"evaluation": key}, chosen.names).cast(chosen)
            self._parts[place] = part
            while len(self._parts) > 1 and sum(each.nbytes for each in self._parts.values()) > MOST_BYTES:
                self._parts.popitem(last=False)
        return part
