"""Dropping embedding sets, corpora and encoders: a plan first, which changes nothing; and superseded evaluations."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError, WorkError
from capim.store.keys import corpus_table, spec_from_json, table_of
from capim.store.maintenance.inventory import stored_sets
from capim.store.schema import CORPUS_PARTS, texts
from capim.store.tables.compaction import data_bytes
from capim.store.tables.corpora import corpus_row
from capim.store.tables.rows import delete
from capim.store.tables.table_files import RECORDS
from capim.store.types import Modality, SetKey


@dataclass(frozen=True, kw_only=True)
class Removal:
    """The tables that a drop removes.

    Attributes:
        tables: Names, in the order of their removal.
        n_rows: Sum over the tables.
        n_bytes: Of their current versions.
        done: False for a plan.
    """

    tables: tuple[str, ...]
    n_rows: int
    n_bytes: int
    done: bool


def drop(
    store: EmbeddingStore,
    *,
    encoder: str | None = None,
    corpus: str | None = None,
    modality: Modality | None = None,
    dry_run: bool = True,
) -> Removal:
    """Drops the embedding sets of an encoder, of a corpus, or of both; by default only plans it.

    With only a corpus given, the corpus is dropped too; with only an encoder, its registration, unless it has results.
    Results are kept: they name the sets that they were computed from. Encoder and corpus are names or fingerprints.

    Raises:
        RequestError: The encoder or corpus is not in the store, or neither was given.
    """
    if encoder is None and corpus is None:
        raise RequestError("give what to drop: an encoder, a corpus or both (--encoder, --corpus)")
    connection = store.connection
    encoder_fingerprint = store.encoder(encoder).fingerprint if encoder is not None else None
    row = corpus_row(connection, corpus) if corpus is not None else None
    corpus_fingerprint = str(row["fingerprint"]) if row is not None else None
    names = connection.names()
    sets = [
        name
        for name, key in sorted(stored_sets(store).items())
        if encoder_fingerprint in (None, key.encoder_fingerprint)
        and corpus_fingerprint in (None, key.corpus_fingerprint)
        and modality in (None, key.modality)
    ]
    tables = list(sets)
    drops_corpus = row is not None and encoder is None and modality is None
    if row is not None and drops_corpus:
        parts = [corpus_table(part, str(row["name"]), str(row["fingerprint"])) for part in CORPUS_PARTS]
        tables += [name for name in parts if name in names]
    sizes = []
    for name in tables:
        with suppress(WorkError):  # a damaged table has no size that is known
            table = connection.find(name)
            sizes += [] if table is None else [(table.count_rows(), data_bytes(table))]
    if not dry_run:
        # Metadata first: after a crash `capim store verify` lists a table without a row, never a row without a table.
        delete(connection, "sets", "set_name", sets)
        if corpus_fingerprint is not None and drops_corpus:
            delete(connection, "corpora", "fingerprint", [corpus_fingerprint])
        named = store.counts("results", "encoder_fingerprint")  # reports and comparisons need to know the encoder
        if encoder_fingerprint is not None and corpus is None and modality is None:
            delete(connection, "canaries", "encoder_fingerprint", [encoder_fingerprint])  # of vectors that are gone
            if encoder_fingerprint not in named:
                delete(connection, "encoders", "fingerprint", [encoder_fingerprint])
        for name in tables:
            connection.drop(name)
    return Removal(
        tables=tuple(tables),
        n_rows=sum(rows for rows, _ in sizes),
        n_bytes=sum(size for _, size in sizes),
        done=not dry_run,
    )


def drop_set(store: EmbeddingStore, key: SetKey) -> None:
    """Drops one embedding set, sealed or not; does nothing if it is not stored."""
    delete(store.connection, "sets", "set_name", [table_of(key)])
    if table_of(key) in store.connection.names():
        store.connection.drop(table_of(key))


def drop_superseded(store: EmbeddingStore, *, encoder_fingerprint: str, corpus_fingerprint: str) -> None:
    """Drops evaluations of embedding sets that are no longer stored, and what was computed from these evaluations.

    Nothing could compute their figures again, for example after damaged rows were encoded on another processor, or an
    import was replaced. Comparisons and slices go with them, and what the encoder contributed to: fused and re-ranked
    lists, which name it in their checkpoint.
    """
    tags = {"", *(sealed.tag for sealed in store.sealed_sets())}
    rows = store.rows("results", encoder_fingerprint=encoder_fingerprint, corpus_fingerprint=corpus_fingerprint)
    gone = {row["evaluation"] for row in rows.to_pylist() if not {row["image_tag"], row["caption_tag"]} <= tags}
    if not gone:
        return
    affected = [encoder_fingerprint, *_combined_from(store, {str(name) for name in rows["encoder"].to_pylist()})]
    combined = store.rows("results", encoder_fingerprint=affected[1:], corpus_fingerprint=corpus_fingerprint)
    gone |= {*combined["evaluation"].to_pylist()}
    drop_evaluations(store, gone, encoder_fingerprints=affected, corpus_fingerprint=corpus_fingerprint)


def drop_evaluations(
    store: EmbeddingStore, evaluations: Collection[str], *, encoder_fingerprints: Sequence[str], corpus_fingerprint: str
) -> None:
    """Drops evaluations of these encoders on a corpus, their comparisons and slices on it, and rankings."""
    for name in ("outcomes", "results", "replicates"):
        delete(store.connection, name, "evaluation", sorted(evaluations))
    for name, column, encoders in (
        ("slices", "slice", ("encoder_fingerprint",)),
        ("comparisons", "comparison", ("fingerprint_a", "fingerprint_b")),
    ):
        of_corpus = [
            store.rows(name, **{side: encoder_fingerprints}, corpus_fingerprint=corpus_fingerprint) for side in encoders
        ]
        stale = {key for part in of_corpus for key in texts(part[column])}
        delete(store.connection, name, column, sorted(stale))
    _drop_rankings(store, encoder_fingerprints)


def drop_derived(store: EmbeddingStore, results: Sequence[Mapping[str, str]]) -> None:
    """Drops what was made of rows of results: replicates, comparisons and slices by these figures, and rankings."""
    if not results:
        return
    delete(store.connection, "replicates", "result", sorted({row["result"] for row in results}))
    figures = {(row["corpus_fingerprint"], row["protocol"], row["metric"]) for row in results}
    for name, key in (("comparisons", "comparison"), ("slices", "slice")):
        of_corpus = store.rows(name, corpus_fingerprint=sorted({corpus for corpus, *_ in figures}))
        rows = of_corpus.select([key, "corpus_fingerprint", "protocol", "metric"]).to_pylist()
        stale = {r[key] for r in rows if (r["corpus_fingerprint"], r["protocol"], r["metric"]) in figures}
        delete(store.connection, name, key, sorted(stale))
    _drop_rankings(store, sorted({row["encoder_fingerprint"] for row in results}))


def _drop_rankings(store: EmbeddingStore, encoder_fingerprints: Sequence[str]) -> None:
    """Drops rankings of these encoders, whole: its ranks are those of all of its encoders."""
    rankings = store.rows("rankings", encoder_fingerprint=encoder_fingerprints)
    delete(store.connection, "rankings", "ranking", sorted({*texts(rankings["ranking"])}))


def drop_stale(
    store: EmbeddingStore, table: str, key: str, *, kept: Collection[str], **equals: str | Sequence[str]
) -> None:
    """Drops the rows of an analysis that hold these texts, except those whose key is among ``kept``."""
    stale = {*texts(store.rows(table, **equals)[key])} - {*kept}
    delete(store.connection, table, key, sorted(stale))


def _combined_from(store: EmbeddingStore, encoders: set[str]) -> list[str]:
    """Fingerprints of the encoders that were combined from one of these, by name."""
    specs = map(spec_from_json, texts(store.encoders()["spec"]))
    return [spec.fingerprint for spec in specs if "+" in spec.checkpoint and encoders & {*spec.checkpoint.split("+")}]


def discard_if_empty(store: EmbeddingStore) -> None:
    """Removes a store without corpora and encoders, and in a folder its folders if nothing else is in them.

    For a wrong request, which leaves no store behind that was not there before.
    """
    if store.corpora().num_rows or store.encoders().num_rows:
        return
    for name in store.connection.names():
        store.connection.drop(name)
    if store.connection.is_local:
        shutil.rmtree(Path(store.uri) / RECORDS, ignore_errors=True)
        for folder in (Path(store.uri), Path(store.uri).parent):
            with suppress(OSError):
                folder.rmdir()
