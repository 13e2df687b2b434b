"""What is stored, computed again: `capim store verify --recompute`.

Figures from their outcomes, and the outcomes of a sample of queries from the vectors. Wrong bytes are found whatever
any digest says of them, and so is code that gives something else than it once gave.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import pyarrow as pa

from capim.store import EmbeddingStore
from capim.store.current import Row
from capim.store.errors import RequestError, WorkError
from capim.store.integrity import StoreCheck
from capim.store.removal import drop, drop_evaluations
from capim.store.rows import delete
from capim.store.schema import DERIVED, TABLES, texts
from capim.store.types import canonical_json, digest16
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.protocols import build_tasks
from capim.tasks.ranking.spot_check import wrong_outcomes
from capim.tasks.runtime.progress import track
from capim.tasks.runtime.references import EvaluationRef, SetsRef
from capim.tasks.runtime.results import derive_figures
from capim.tasks.runtime.scoring import open_sets, stored_evaluations
from capim.tasks.runtime.stored import WITHOUT_VECTORS, chosen, has_vectors
from capim.tasks.statistics.draws import Resampling

SAMPLE = 100  # queries of an evaluation whose outcomes are computed again
_SLACK = 1e-9  # of a figure that another machine adds up in another order
_OF_THE_RUN = ("run", "created")  # columns that say who made a row
_DERIVED = tuple(name for name, table in TABLES.items() if "derived" in table.columns.names)


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """Something stored that is not what is computed.

    Attributes:
        what: Its table.
        detail: Of which encoder, corpus, protocol and metric; what is stored and what is computed.
        keys: The derivations whose rows are wrong.
        outcomes_of: Whose outcomes do not follow from the embeddings: nothing says which of the two were changed.
    """

    what: str
    detail: str
    keys: tuple[str, ...] = ()
    outcomes_of: SetsRef | None = None

    @property
    def check(self) -> StoreCheck:
        """As `capim store verify` shows it."""
        remedy = (
            ". Restore the table from a backup, or run `capim store repair --recompute`, then the same command again"
        )
        return StoreCheck(what=self.what, state="damaged", detail=self.detail + remedy)


class _Anew(EmbeddingStore):
    """A store in which nothing has been derived; what is written is kept in memory.

    Attributes:
        made: Table -> the rows that were written.
    """

    def __init__(self, store: EmbeddingStore) -> None:
        super().__init__(store.connection)
        self.made: dict[str, list[Row]] = defaultdict(list)

    def rows(self, table: str, **equals: str | Sequence[str]) -> pa.Table:
        """The stored rows; of the ledger none."""
        return DERIVED.empty_table() if table == "derived" else super().rows(table, **equals)

    def write_rows(self, table: str, rows: pa.Table, *, replace: str | None = None) -> int:
        """Keeps them in :attr:`made`."""
        self.made[table] += rows.to_pylist()
        return len(rows)


def recompute(store: EmbeddingStore, *, sample: int = SAMPLE, seed: int = 0) -> Iterator[Wrong | StoreCheck]:
    """Computes every current figure again, and some outcomes: gives each difference, then how much was computed.

    Args:
        store: The store.
        sample: Queries of each evaluation whose outcomes are computed again.
        seed: Draws these queries.
    """
    ledger: dict[str, Row] = {row["key"]: row for row in store.rows("derived").to_pylist()}
    for key, row in ledger.items():
        if digest16([row["identity"]]) != key:
            yield Wrong(what="derived", detail=f"key {key} is not that of its identity", keys=(key,))
    stored = texts(store.corpora()["fingerprint"])
    columns = [field.name for field in fields(SetsRef)]
    found = store.rows("results", corpus_fingerprint=stored).select(columns).to_pylist()
    every = [SetsRef(**dict(pair)) for pair in sorted({tuple(row.items()) for row in found})]
    recomputing = _Recomputing(store=store, ledger=ledger, sample=sample, seed=seed)
    with track("computing again", total=len(every), unit="evaluations") as advance:
        for sets in every:
            try:
                yield from recomputing.differences(sets)
            except (RequestError, WorkError) as fault:
                yield Wrong(what="results", detail=f"{sets.encoder} on {sets.corpus} cannot be computed again: {fault}")
            advance(1)
    for table, n in recomputing.counts.items():
        yield StoreCheck(what=table, state="sound", detail=f"{n:,} computed again")
    if recomputing.left:
        reasons = "; ".join(f"{n:,} {why}" for why, n in sorted(recomputing.left.items()))
        yield StoreCheck(what="results", state="incomplete", detail=f"not computed again: {reasons}")


def remove_wrong(store: EmbeddingStore, wrong: Iterable[Wrong]) -> dict[str, int]:
    """Removes what is wrong, so that the next run makes it again; gives how many rows of which table.

    With outcomes go the embeddings that they should follow from, and all that was derived from them.
    """
    removed = Counter[str]()
    for each in wrong:
        keys = list(each.keys)
        for table, column in (*((name, "derived") for name in _DERIVED), ("derived", "key")):
            removed[table] += sum(store.counts(table, column, **{column: keys}).values()) if keys else 0
            delete(store.connection, table, column, keys)
        if each.outcomes_of is not None:
            encoder, corpus = each.outcomes_of.encoder_fingerprint, each.outcomes_of.corpus_fingerprint
            found = store.rows("results", encoder_fingerprint=encoder, corpus_fingerprint=corpus)["evaluation"]
            drop_evaluations(store, texts(found), encoder_fingerprints=[encoder], corpus_fingerprint=corpus)
            removed["results"] += len(found)
            removed["embeddings"] += drop(store, encoder=encoder, corpus=corpus, dry_run=False).n_rows
    return +removed


@dataclass(frozen=True, kw_only=True)
class _Recomputing:
    """Computes again, and compares.

    Attributes:
        ledger: The rows of ``derived`` by key.
        counts: Table -> how many rows were computed; ``left``: how many figures were not, by the reason.
    """

    store: EmbeddingStore
    ledger: Mapping[str, Row]
    sample: int
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)

    def differences(self, sets: SetsRef) -> Iterator[Wrong]:
        """Of the current figures of one encoder on one corpus, and of their outcomes."""
        states = {name: getattr(sets, name) for name in ("encoder_fingerprint", "corpus_fingerprint")}
        rows = self.store.current("results", **states)
        by_settings: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            entry = self.ledger.get(row["derived"])
            if entry is None:
                yield Wrong(what="results", detail=f"{_name(row)}: the ledger has no key {row['derived']}")
            else:
                by_settings[canonical_json(json.loads(entry["identity"])["settings"])].append(row)
        for settings, of_settings in by_settings.items():
            evaluations = {
                row["protocol"]: row["evaluation"]
                for row in of_settings
                if not Protocol.of(row["protocol"]).is_combined
            }
            reference = EvaluationRef(sets=sets, evaluations=evaluations, n_scored=0)
            yield from self._figures(reference, Resampling(**json.loads(settings)), of_settings)
        evaluations = {
            row["protocol"]: row["evaluation"] for row in rows if not Protocol.of(row["protocol"]).is_combined
        }
        if self.store.encoder(sets.encoder_fingerprint).adapter not in WITHOUT_VECTORS:
            yield from self._outcomes(sets, evaluations)

    def _figures(self, evaluation: EvaluationRef, resampling: Resampling, current: Sequence[Row]) -> Iterator[Wrong]:
        anew = _Anew(self.store)
        scored = stored_evaluations(anew, evaluation, ())
        keep = bool(self.store.counts("replicates", "derived", evaluation=list(evaluation.evaluations.values())))
        derive_figures(scored, resampling=resampling, run="", keep_replicates=keep)
        for table in ("results", "replicates"):
            key, made = TABLES[table].key[0], [row for row in anew.made[table] if row["derived"] in self.ledger]
            stored = {row["derived"] + row[key]: row for row in self._stored(table, anew.made["derived"])}
            for row in made:
                self.counts[table] += 1
                kept = stored.pop(row["derived"] + row[key], None)
                what = _difference(kept, row) if kept else "is not stored, though the ledger has its key"
                if what:
                    yield Wrong(what=table, detail=f"{_name(row)}: {what}", keys=(row["derived"],))
            for row in stored.values():
                yield Wrong(what=table, detail=f"{_name(row)}: is not computed any more", keys=(row["derived"],))
        made_keys = {row["key"] for row in anew.made["derived"]}
        if n_other := sum(row["derived"] not in made_keys for row in current):
            self.left["figures by other code than today's, or by a metric of the user"] += n_other

    def _stored(self, table: str, derived: Iterable[Row]) -> Sequence[Row]:
        rows: Sequence[Row] = self.store.rows(table, derived=[row["key"] for row in derived]).to_pylist()
        return rows

    def _outcomes(self, sets: SetsRef, evaluations: Mapping[str, str]) -> Iterator[Wrong]:
        if not has_vectors(self.store, sets.encoder_fingerprint, sets.corpus_fingerprint):
            self.left["evaluations whose embeddings were dropped"] += len(evaluations)
            return
        scored = open_sets(self.store, sets, list(evaluations))
        protocols = [each for each in scored.protocols if scored.evaluations[each.id] == evaluations[each.id]]
        if n_other := len(evaluations) - len(protocols):
            self.left["evaluations of other embeddings than those that are stored, or by an older scorer"] += n_other
        vectors = scored.vectors()
        for task in build_tasks(scored.corpus, protocols):
            some = chosen(len(task.query_ids), self.sample, self.seed).astype(np.intp)
            self.counts["outcomes"] += len(some)
            what = [*wrong_outcomes(task, scored.read(task.protocol), **vectors, chosen=some)]
            more = f"; and {len(what) - 3} more" if len(what) > 3 else ""
            if what:
                name = f"{sets.encoder} on {sets.corpus}, {task.protocol.id}: "
                detail = name + "; ".join(what[:3]) + f"{more}. Its outcomes or its embeddings were changed"
                yield Wrong(what="outcomes", detail=detail, outcomes_of=sets)


def _name(row: Row) -> str:
    return f"{row['encoder']} on {row['corpus']}, {row['protocol']}, {row['metric']}"


def _difference(stored: Row, computed: Row) -> str:
    """The columns that differ, with both values."""
    differing = [
        f"{name} is stored as {stored[name]}, computed as {value}"
        for name, value in computed.items()
        if name not in _OF_THE_RUN and not _equal(stored[name], value)
    ]
    return "; ".join(differing[:3])


def _equal(stored: object, computed: object) -> bool:
    if (
        isinstance(computed, float | list)
        and isinstance(stored, type(computed))
        and np.shape(stored) == np.shape(computed)
    ):
        return np.allclose(stored, computed, rtol=_SLACK, atol=_SLACK, equal_nan=True)
    return stored == computed
