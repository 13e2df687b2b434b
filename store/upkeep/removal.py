"""Dropping embedding sets, corpora and encoders, with a plan that changes nothing; and superseded evaluations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from capim.store.connection import compact, data_bytes, drop_old_versions, retrying, storage_faults, temporary_files
from capim.store.current import newest_rows
from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError, WorkError
from capim.store.row_types import rows_in
from capim.store.rows import corpus_table, delete, now, read, read_where
from capim.store.schema import (
    CORPUS_PARTS,
    TABLE_OF,
    TABLES,
    Batch,
    Comparison,
    Encoder,
    LedgerEntry,
    OfStates,
    Outcome,
    Ranking,
    Replicates,
    Result,
    Run,
    Slice,
    StoredCorpus,
    StoredImage,
    Watched,
    texts,
)
from capim.store.sets.sealed import drop_repeats
from capim.store.types import SET_PREFIXES, EncoderSpec, Modality, SetKey, is_fingerprint
from capim.store.upkeep.inventory import disk_bytes, stored_sets

R = TypeVar("R")
Chosen: TypeAlias = tuple[str, Counter[str]]
"""The column that rows of a table are chosen by, and its chosen values with their numbers of rows."""


@dataclass(frozen=True, kw_only=True)
class Removal:
    """Rows that a drop removes, and rows that it leaves.

    Attributes:
        tables: Names of embedding sets and parts of corpora, in the order of their removal.
        n_rows: Number of rows in these tables.
        n_bytes: Size of their current versions.
        rows: Table -> number of dropped rows, and of rows that were derived from them.
        combined: Fused and re-ranked encoders in these rows.
    """

    tables: tuple[str, ...]
    n_rows: int
    n_bytes: int
    rows: Mapping[str, int]
    combined: tuple[str, ...]


def drop(
    store: EmbeddingStore,
    *,
    encoder: str | None = None,
    corpus: str | None = None,
    modality: Modality | None = None,
    results: bool = False,
    dry_run: bool = True,
) -> Removal:
    """Drop the embedding sets of an encoder, of a corpus, or of both; by default only plan it.

    If only a corpus is given, the corpus is dropped too; if only an encoder, its registration, unless it has results.
    Results are kept unless ``results``: then outcomes, results and everything derived from them go, too. A name means
    all of its revisions or states, a fingerprint one of them.

    Raises:
        RequestError: If the encoder or corpus is not in the store, or if neither was given.
    """
    if encoder is None and corpus is None:
        raise RequestError("give what to drop: an encoder, a corpus or both (--encoder, --corpus)")
    if results and modality is not None:
        raise RequestError("results are of images and captions together: give --results without --modality")
    connection = store.connection
    encoders = None if encoder is None else _encoders_named(store, encoder)
    states = None if corpus is None else _states_named(store, corpus)
    sets = [
        name
        for name, key in sorted(stored_sets(store).items())
        if (encoders is None or key.encoder_fingerprint in encoders)
        and (states is None or key.corpus_fingerprint in states)
        and modality in (None, key.modality)
    ]
    tables, n_rows, n_bytes = [*sets], 0, 0
    corpora = [row for row in store.corpora() if states and row.fingerprint in states and not (encoders or modality)]
    parts = {corpus_table(part, row.name, row.fingerprint) for row in corpora for part in CORPUS_PARTS}
    tables += sorted(parts.intersection(connection.names()))
    for name in tables:
        with suppress(WorkError):  # the size of a damaged table is unknown
            if (table := connection.find(name)) is not None:
                n_rows, n_bytes = n_rows + table.count_rows(), n_bytes + data_bytes(table)
    plan, combined = ({}, {}) if modality else _about(store, encoders, states)
    if not dry_run:
        if results:
            _delete(store, plan)
            delete(connection, "batches", "set_name", sets)
        # Metadata first: after a crash `capim store verify` lists a table without a row, never a row without a table.
        delete(connection, "sets", "set_name", sets)
        delete(connection, "corpora", "fingerprint", [row.fingerprint for row in corpora])
        if encoders is not None and corpus is None and modality is None:
            named = store.counts("results", "encoder_fingerprint")  # reports and comparisons need to know the encoder
            unused = [each for each in (*encoders, *combined) if each not in named]
            delete(connection, "encoders", "fingerprint", unused)
            for name in ("probes", "weights"):  # of vectors that are gone
                delete(connection, name, "encoder_fingerprint", sorted(encoders))
        for name in tables:
            connection.drop(name)
    return Removal(
        tables=tuple(tables),
        n_rows=n_rows,
        n_bytes=n_bytes,
        rows={name: counted.total() for name, (_, counted) in plan.items() if name != "derived" and counted},
        combined=tuple(sorted(combined.values())),
    )


def _encoders_named(store: EmbeddingStore, encoder: str) -> set[str]:
    """Return the fingerprints of all revisions of a name; or the fingerprint that is given."""
    spec = store.encoder(encoder)
    one = is_fingerprint(encoder) or "@" in encoder
    return {spec.fingerprint} if one else {row.fingerprint for row in store.encoders(name=encoder)}


def _states_named(store: EmbeddingStore, corpus: str) -> set[str]:
    """Return the fingerprints of all states of a name, dropped ones with results too; or the one that is given."""
    column = "corpus_fingerprint" if is_fingerprint(corpus) else "corpus"
    having = {*store.counts("results", "corpus_fingerprint", **{column: corpus})}
    if not having:
        store.corpus_row(corpus)  # raises if there is none
    return having | {row.fingerprint for row in store.corpora() if corpus in (row.name, row.fingerprint)}


_HEXADECIMAL = re.compile(r"[0-9a-f]{16}")


def _about(
    store: EmbeddingStore, encoders: Collection[str] | None, states: Collection[str] | None
) -> tuple[dict[str, Chosen], dict[str, str]]:
    """Return the rows about some encoders and states of corpora (None: all), and those derived from their outcomes.

    Comparisons and rankings of others go as well where these took part in them: p-values and ranks are those of all.

    Returns:
        Table -> its chosen rows, what depends on other rows first; and fingerprint -> name of the encoders that were
        combined from these.
    """
    of: dict[str, Sequence[str]] = {} if states is None else {"corpus_fingerprint": sorted(states)}
    combined: dict[str, str] = {}
    if encoders is not None:
        registered = store.encoders()
        known = {row.fingerprint: row.name for row in registered}
        names = {name for fingerprint, name in known.items() if fingerprint in encoders}
        combined = {each: known[each] for each in _combined_from(registered, names)}
        of["encoder_fingerprint"] = sorted({*encoders, *combined})
    evaluations = {*store.counts("outcomes", "evaluation", **of), *store.counts("results", "evaluation", **of)}
    kept = {"imports": "imported", "watched": "evaluation"}  # where an evaluation is replaced
    plan = {table: (column, Counter(store.counts(table, column, **of))) for table, column in kept.items()}
    return plan | _made_from(store, evaluations, of), combined


def _made_from(
    store: EmbeddingStore, evaluations: Collection[str], of: Mapping[str, Sequence[str]]
) -> dict[str, Chosen]:
    """Return the rows of some evaluations, the rows derived from them, and the slices of these encoders and corpora.

    Table -> its chosen rows; what depends on other rows comes first, and results last of all, which name the
    evaluations.
    """
    ids = sorted(evaluations)
    entries = [row for row in store.all(LedgerEntry) if not {*ids}.isdisjoint(_HEXADECIMAL.findall(row.identity))]
    keys = sorted(row.key for row in entries)
    encoders = of.get("encoder_fingerprint", ())
    on = {name: states for name, states in of.items() if name.startswith("corpus")}
    conditions: dict[type[Any], list[Mapping[str, Sequence[str]]]] = {
        Ranking: [{"derived": keys}, {"encoder_fingerprint": encoders}],
        Comparison: [{"derived": keys}, {"fingerprint_a": encoders, **on}, {"fingerprint_b": encoders, **on}],
        Slice: [{"derived": keys}, of],
    }
    plan = {}
    for kind, of_kind in conditions.items():
        key = TABLES[TABLE_OF[kind]].key
        rows = {tuple(getattr(row, name) for name in key) for each in of_kind for row in store.all(kind, **each)}
        plan[TABLE_OF[kind]] = (key[0], Counter(first for first, *_ in rows))
    for table in ("replicates", "outcomes", "results"):
        plan[table] = ("evaluation", Counter(store.counts(table, "evaluation", evaluation=ids)))
    return plan | {"derived": ("key", Counter([*keys, *ids]))}


def drop_set(store: EmbeddingStore, key: SetKey) -> None:
    """Drop one embedding set, sealed or not; do nothing if it is not stored."""
    delete(store.connection, "sets", "set_name", [key.table])
    store.connection.drop(key.table)


def drop_superseded(store: EmbeddingStore, *, encoder_fingerprint: str, corpus_fingerprint: str) -> None:
    """Drop evaluations of embedding sets that are no longer stored, and everything computed from these evaluations.

    Their results could not be recomputed, for example after damaged rows were encoded on another processor, or an
    import was replaced. Comparisons and slices are dropped too, and results that the encoder contributed to: fused and
    re-ranked lists, which name it in their checkpoint.
    """
    tags = {"", *(sealed.tag for sealed in store.sealed_sets())}
    rows = store.all(Result, encoder_fingerprint=encoder_fingerprint, corpus_fingerprint=corpus_fingerprint)
    gone = {row.evaluation for row in rows if not {row.image_tag, row.caption_tag} <= tags}
    if not gone:
        return
    affected = [encoder_fingerprint, *_combined_from(store.encoders(), {row.encoder for row in rows})]
    combined = store.all(Result, encoder_fingerprint=affected[1:], corpus_fingerprint=corpus_fingerprint)
    gone |= {row.evaluation for row in combined}
    drop_evaluations(store, gone, encoder_fingerprints=affected, corpus_fingerprint=corpus_fingerprint)


def drop_evaluations(
    store: EmbeddingStore, evaluations: Collection[str], *, encoder_fingerprints: Sequence[str], corpus_fingerprint: str
) -> None:
    """Drop evaluations of these encoders on a corpus, the rows derived from them, and their slices on it."""
    of = {"encoder_fingerprint": encoder_fingerprints, "corpus_fingerprint": [corpus_fingerprint]}
    plan = _made_from(store, evaluations, of)
    del plan["derived"]  # its entries say that something was removed, which pages about two runs name
    _delete(store, plan)


def _delete(store: EmbeddingStore, plan: Mapping[str, Chosen]) -> None:
    for table, (column, counted) in plan.items():
        delete(store.connection, table, column, sorted(counted))


def _combined_from(rows: Iterable[Encoder], encoders: set[str]) -> list[str]:
    """Return fingerprints of the encoders that were combined from one of these, by name."""
    specs = [EncoderSpec.from_json(row.spec) for row in rows]
    return [spec.fingerprint for spec in specs if "+" in spec.checkpoint and encoders & {*spec.checkpoint.split("+")}]


def discard_if_empty(store: EmbeddingStore) -> None:
    """Remove a store without corpora and encoders, and its folders if nothing else is in them.

    For a wrong request, which must not leave a new store.
    """
    if store.corpora() or store.encoders():
        return
    for name in store.connection.names():
        store.connection.drop(name)
    if store.connection.is_local:
        for folder in (Path(store.uri), Path(store.uri).parent):
            with suppress(OSError):
                folder.rmdir()


# --- The history that a store keeps, for `capim store prune`: the newest runs, and everything that reports show.
#
# Kept are the results that a report shows (for every encoder, corpus, protocol and metric the newest, of the newest
# state of the encoder and the corpus), all rows of the newest runs, and the baselines of watches. Removed are, of the
# rest: results, outcomes, replicates, comparisons, slices and rankings; embedding sets of earlier states of an encoder
# or a corpus without remaining results; states of a corpus or an encoder without sets; thumbnails of images that no
# corpus has any more; records of older runs that no kept row names.
#
# Runs continue meanwhile. Kept is everything about states that the names of encoders and corpora have had since the
# oldest running run began, and outcomes without results even if no run is known to run: the next one uses them. Data
# are removed only if two plans, made one after the other, name them: one of the two sees no part of a concurrent write.


_LONGEST_RUN = timedelta(days=14)  # an older unfinished run has died, on a host without later runs


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """The data that a store does not keep.

    Attributes:
        rows: Table -> its removed rows.
        tables: Tables of embedding sets and corpora that are removed whole.
        runs: Ids of all kept runs, oldest first; reports of other runs are removed too.
        running: Ids of unfinished runs; their rows and everything that they may read are kept.
    """

    rows: Mapping[str, Chosen]
    tables: tuple[str, ...]
    runs: tuple[str, ...]
    running: tuple[str, ...]


def plan_pruning(store: EmbeddingStore, *, keep: int) -> Pruning:
    """Return the data that :func:`prune` removes if the newest ``keep`` runs (at least 1) are kept; change nothing."""
    if keep < 1:
        raise RequestError(f"--keep {keep}: keep at least the newest run (--keep 1)")
    runs = store.all(Run)
    running = [row for row in runs if row.state == "running" and row.started > now() - _LONGEST_RUN]
    since = min((row.started for row in running), default=now())
    newest = sorted({*sorted(row.run for row in runs)[-keep:], *(row.run for row in running)})
    keys = set[str]().union(*map(store.keys_of, newest))
    described, described_corpora = store.encoders(), store.corpora()
    meant, current = _states_since(described, since), _states_since(described_corpora, since)

    def of_kept_run(row: Any) -> bool:
        return row.run in newest or row.derived in keys

    def in_use(row: OfStates) -> bool:
        """True if a run may be working on it."""
        return row.encoder_fingerprint in meant and row.corpus_fingerprint in current

    watched = store.current(Watched)
    pinned = {evaluation for row in watched for evaluation in (row.evaluation, row.baseline_evaluation)}
    every = store.all(Result)
    shown = _shown(store, every)
    stays = {
        row.result
        for row in every
        if row.result in shown or of_kept_run(row) or row.evaluation in pinned or (running and in_use(row))
    }
    results, of_results = _together(every, "result", stays)
    evaluations = {row.evaluation for row in results} | pinned
    evaluations |= {*_evaluations(store, in_use)} - {row.evaluation for row in every}  # without results yet
    rows = {}
    for table in ("outcomes", "replicates"):  # before the results: the next prune removes the rest if this is killed
        counted = store.counts(table, "evaluation")
        rows[table] = ("evaluation", Counter({each: n for each, n in counted.items() if each not in evaluations}))
    rows["results"] = of_results
    kept: list[Any] = [*results]
    for row_type in (Comparison, Slice, Ranking):
        staying, rows[TABLE_OF[row_type]] = _derived(store, row_type, of_kept_run)
        kept += staying
    replicates = rows_in(Replicates, read(store.connection, "replicates", columns=("derived", "evaluation")))
    drawn = [row for row in replicates if row.evaluation in evaluations]
    made = keys.union(row.derived for row in (*kept, *drawn))
    # an entry of outcomes is removed with them
    entries = [row for row in store.all(LedgerEntry) if row.table_name != "outcomes"]
    rows["derived"] = _left_out(entries, "key", made | {row.key for row in entries if row.run in newest})
    pairs, with_results = set(map(_pair, results)), set(map(_pair, every))
    of_sets = {name: _pair(key) for name, key in stored_sets(store).items()}
    sets = sorted(name for name, pair in of_sets.items() if pair in with_results and pair not in pairs)
    pairs |= {pair for name, pair in of_sets.items() if name not in sets}
    batches = store.all(Batch)
    rows["batches"] = _left_out(batches, "set_name", {row.set_name for row in batches} - {*sets})
    rows["corpora"] = _left_out(described_corpora, "fingerprint", current | {corpus for _, corpus in pairs})
    old = [row for row in described_corpora if row.fingerprint in rows["corpora"][1]]
    if not running:  # a run writes the thumbnails of a corpus before the corpus
        rows |= _vanished_images(store, [row for row in described_corpora if row not in old])
    rows["encoders"] = _left_out(described, "fingerprint", meant | {encoder for encoder, _ in pairs})
    kept += [row for row in batches if row.set_name not in sets]
    named = {*newest, *(row.run for row in kept), *(row.baseline for row in watched)}
    named |= {row.same_as for row in runs if row.same_as and row.run in named}
    rows["runs"] = _left_out(runs, "run", named)
    rows["watched"] = _left_out(store.all(Watched), "run", named | {row.run for row in watched})
    parts = {corpus_table(part, row.name, row.fingerprint) for row in old for part in CORPUS_PARTS}
    return Pruning(
        rows={table: found for table, found in rows.items() if found[1]},
        tables=(*sets, *sorted(parts.intersection(store.connection.names()))),
        runs=tuple(newest),
        running=tuple(row.run for row in running),
    )


def _shown(store: EmbeddingStore, results: Sequence[Result]) -> set[str]:
    """Return the keys of the current results; `capim results` also shows those on dropped corpora."""
    states = store.states_of(results), store.states()
    return {row.result for each in states for row in newest_rows(filter(each.has, results), "results", uses=each.uses)}


def _together(rows: Sequence[R], key: str, staying: Collection[str]) -> tuple[list[R], Chosen]:
    """Return the rows with these keys and the others of the same derivations; and the keys of the removed rest.

    The ledger has one digest of all rows of a derivation.
    """
    every: Sequence[Any] = rows
    made = {row.derived for row in every if getattr(row, key) in staying} - {None}
    kept = [row for row in every if getattr(row, key) in staying or row.derived in made]
    return kept, _left_out(rows, key, {getattr(row, key) for row in kept})


def _derived(store: EmbeddingStore, row_type: type[R], of_kept_run: Callable[[Any], bool]) -> tuple[list[R], Chosen]:
    """Divide the rows of a table as in :func:`_together`: current rows are kept, and rows that kept runs used."""
    rows, key = store.all(row_type), TABLES[TABLE_OF[row_type]].key[0]
    stays = {getattr(row, key) for row in (*store.current(row_type), *filter(of_kept_run, rows))}
    return _together(rows, key, stays)


def _pair(row: OfStates | SetKey) -> tuple[str, str]:
    return row.encoder_fingerprint, row.corpus_fingerprint


def prune(store: EmbeddingStore, *, keep: int) -> Pruning:
    """Remove the data that :func:`plan_pruning` names twice, and return them. Compacting then frees the space."""
    connection, plan = store.connection, _of_both(plan_pruning(store, keep=keep), plan_pruning(store, keep=keep))
    delete(connection, "sets", "set_name", [name for name in plan.tables if name.startswith(SET_PREFIXES)])
    _delete(store, plan.rows)
    for name in plan.tables:
        connection.drop(name)
    return plan


def _of_both(earlier: Pruning, later: Pruning) -> Pruning:
    """Return the data that both plans remove."""
    shared = {
        table: (column, gone & later.rows[table][1])
        for table, (column, gone) in earlier.rows.items()
        if table in later.rows
    }
    tables = tuple(name for name in earlier.tables if name in later.tables)
    return replace(later, rows={table: both for table, both in shared.items() if both[1]}, tables=tables)


def _states_since(rows: Sequence[Encoder] | Sequence[StoredCorpus], since: datetime) -> set[str]:
    """Return the fingerprints of all states that names have had since then."""
    before = newest_rows((row for row in rows if row.written <= since), "encoders")
    return {row.fingerprint for row in (*before, *(row for row in rows if row.written > since))}


def _evaluations(store: EmbeddingStore, in_use: Callable[[OfStates], bool]) -> Iterator[str]:
    """Yield the evaluations with outcomes that are in use."""
    columns = ["evaluation", "encoder_fingerprint", "corpus_fingerprint"]
    found = read(store.connection, "outcomes", columns=columns).group_by(columns, use_threads=False).aggregate([])
    return (row.evaluation for row in rows_in(Outcome, found) if in_use(row))


def _left_out(rows: Iterable[object], key: str, kept: Collection[str]) -> Chosen:
    return key, Counter(value for row in rows if (value := getattr(row, key)) not in kept)


def _vanished_images(store: EmbeddingStore, corpora: Sequence[StoredCorpus]) -> dict[str, Chosen]:
    """Return thumbnails of images that no corpus has, and hashes of files that are gone.

    Undecodable images stay known, and so do the hashes of existing images: a sample of a corpus hashes all of them.
    """
    condition = "thumbnail IS NOT NULL OR state IS NOT NULL"
    rows = read_where(store.connection, "image_index", condition, ("item", "state", "sha"))
    if not rows:
        return {}
    columns = [store.items(row.fingerprint, "image")["sha"] for row in corpora]
    in_use = {sha for column in columns for sha in texts(column.drop_null())}
    gone = (
        row.item for row in rows_in(StoredImage, rows)
        if row.sha not in in_use and (row.state is None or (row.item.startswith("/") and not Path(row.item).exists()))
    )  # fmt: skip
    return {"image_index": ("item", Counter(gone))}


# --- Compacting a store: small files together, old versions and leftovers removed.


def compact_store(store: EmbeddingStore) -> int:
    """Compact the tables and remove data that are no longer needed; sealed versions are never removed.

    Old versions are removed first, so that this also helps on a full disk.

    Returns:
        Number of freed bytes; 0 in object storage, where they are not counted.
    """
    connection, place = store.connection, Path(store.uri)
    before = disk_bytes(place) if connection.is_local else 0
    with storage_faults("compacting"):
        sealed = set(read(connection, "sets").column("set_name").to_pylist())
        for name in connection.names():
            table = connection.find(name)
            if table is None:
                continue
            if name in sealed:
                # A process that did not know of the seal may have appended rows again, next to the sealed version.
                retrying(f"removing repeated rows of {name!r}", partial(drop_repeats, table))
            drop_old_versions(table)
            if name in TABLES or (name.startswith(SET_PREFIXES) and name not in sealed):
                compact(connection, name, free=True)
        for path in temporary_files(connection):
            path.unlink(missing_ok=True)
    return max(0, before - disk_bytes(place)) if connection.is_local else 0
