"""Derived rows, made again in memory and compared: `capim store verify --recompute`.

Results, comparisons, rankings and analyses from the outcomes, and what published results say of them. Code that gives
something else than it once gave is found, whatever the ledger says.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any

import pyarrow as pa

from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError
from capim.store.ledger import DERIVED_ROWS, OF_THE_RUN
from capim.store.row_types import table_of
from capim.store.rows import delete
from capim.store.schema import ENCODERS, FIGURE, TABLES, LedgerEntry, Result, Subject
from capim.store.types import canonical_json
from capim.store.upkeep.integrity import StoreCheck
from capim.tasks.analyses.table import ANALYSES
from capim.tasks.compare import combined, comparisons, ranking
from capim.tasks.derive import Derivation, derive
from capim.tasks.hub.progress import track
from capim.tasks.protocols import Protocol
from capim.tasks.references import EvaluationRef, SetsRef, corpus_of
from capim.tasks.report import analyses_of, gate_of
from capim.tasks.results.figures import Figures
from capim.tasks.results.scoring import stored_evaluations
from capim.tasks.statistics.draws import Resampling

_SLACK = 1e-9  # of a result that another machine adds up in another order


class _InMemory(EmbeddingStore):
    """A store without derived rows; rows written to it are kept in memory.

    Attributes:
        made: Table -> the rows that were written.
    """

    def __init__(self, store: EmbeddingStore) -> None:
        super().__init__(store.connection)
        self.made: dict[str, list[Any]] = defaultdict(list)

    def rows(self, table: str, **equals: str | Sequence[str]) -> pa.Table:
        """Return the stored rows; of the ledger none."""
        return table_of(LedgerEntry, []) if table == "derived" else super().rows(table, **equals)

    def write_derived(self, table: str, rows: Sequence[object], entries: Iterable[LedgerEntry]) -> None:
        """Keep the rows in :attr:`made`."""
        self.made[table] += rows
        self.made["derived"] += [replace(entry, table_name=table) for entry in entries]

    def write_rows(self, table: str, rows: pa.Table, *, replace: str | None = None) -> int:
        """Write nothing."""
        del table, replace
        return len(rows)


def recompute(store: EmbeddingStore) -> Iterator[StoreCheck]:
    """Derive all that is current again; gives each difference, then how much was derived."""
    store = store.keeping()
    identities = {row.key: row.identity for row in store.all(LedgerEntry)}
    counts, left = Counter[str](), Counter[str]()
    groups = defaultdict[tuple[str, ...], dict[str, Derivation]](dict)  # derivations that are made together
    for table in ("results", "comparisons", "slices", "rankings"):
        rows: list[Any] = store.current(TABLES[table].row)
        for row in rows:
            identity = identities.get(row.derived)
            if identity is not None:  # else it was measured by another command, or a run has just derived it
                derivation = _derivation(identity)
                groups[table, *_together(derivation, row)][row.derived] = derivation
    with track("computing again", total=len(groups), unit="derivations") as advance:
        for (table, kind, *_), group in groups.items():
            memory = _InMemory(store)
            try:
                if kind in _MAKERS:
                    _MAKERS[kind](memory, [*group.values()])
            except (RequestError, WorkError) as fault:
                yield _wrong(store, table, f"{len(group)} derivations cannot be computed again: {fault}", ())
            else:
                if n_other := len(group.keys() - {row.key for row in memory.made["derived"]}):
                    left[f"{table} ({kind}) by other code than today's, of other outcomes, or measured"] += n_other
                for made in memory.made.keys() & {*DERIVED_ROWS}:
                    yield from _compared(store, made, memory, identities, counts)
            advance(1)
    for name, n in counts.items():
        yield StoreCheck(what=name, state="sound", detail=f"{n:,} computed again")
    if left:
        reasons = "; ".join(f"{n:,} {why}" for why, n in sorted(left.items()))
        yield StoreCheck(what="results", state="incomplete", detail=f"not computed again: {reasons}")


def _derivation(identity: str) -> Derivation:
    """Return the derivation that the ledger has this identity of."""
    stored = json.loads(identity)
    named = {each.name: stored[each.name] for each in fields(Derivation)}
    return Derivation(**named | {"subject": Subject.of(stored)})


def _together(derivation: Derivation, row: Any) -> tuple[str, ...]:
    """Return a key of derivations that are made together: the results of one encoder on a corpus, and the like."""
    kind, settings = derivation.kind, canonical_json(asdict(_resampling(derivation)))
    if kind == "result":
        return kind, settings, row.encoder_fingerprint, row.corpus_fingerprint
    return kind, settings, derivation.subject.protocol or "", canonical_json(derivation.inputs)


def _compared(
    store: EmbeddingStore, table: str, memory: _InMemory, known: Container[str], counts: Counter[str]
) -> Iterator[StoreCheck]:
    """Yield the differences between the stored rows of a table and those made from the same derivations."""
    keys = [row.key for row in memory.made["derived"] if row.key in known]
    stored: dict[tuple[Any, ...], Any] = {_place(table, row): row for row in store.all(TABLES[table].row, derived=keys)}
    for row in memory.made[table]:
        if row.derived in known:
            counts[table] += 1
            kept = stored.pop(_place(table, row), None)
            what = _difference(kept, row) if kept else "is not stored, though the ledger has its key"
            if what:
                yield _wrong(store, table, f"{_name(row)}: {what}", [row.derived])
    for row in stored.values():
        yield _wrong(store, table, f"{_name(row)}: is not computed any more", [row.derived])


def _wrong(store: EmbeddingStore, table: str, detail: str, keys: Sequence[str]) -> StoreCheck:
    """Return a check that finds rows of these derivations damaged."""
    remove = partial(delete, store.connection, table, "derived", keys)
    return StoreCheck(what=table, state="damaged", detail=detail, remove=remove)


# --- what makes derivations of one kind again, from their identities


def _resampling(derivation: Derivation) -> Resampling:
    names = {each.name for each in fields(Resampling)}
    return Resampling(**{name: value for name, value in derivation.settings.items() if name in names})


def _evaluations(store: EmbeddingStore, ids: Sequence[str]) -> tuple[EvaluationRef, ...]:
    """Return the evaluations with these ids, of those that are stored, by encoder and corpus in this order."""
    rows = {row.evaluation: row for row in store.all(Result, evaluation=ids)}
    found: dict[SetsRef, dict[str, str]] = {}
    for row in (rows[each] for each in ids if each in rows):
        found.setdefault(SetsRef.of(row), {})[row.protocol] = row.evaluation
    return tuple(EvaluationRef(sets=sets, evaluations=of, n_scored=0) for sets, of in found.items())


def _figures(memory: _InMemory, group: Sequence[Derivation]) -> None:
    ids = list(dict.fromkeys(id_ for each in group for id_ in each.inputs))
    keep = bool(memory.counts("replicates", "derived", evaluation=ids))
    for evaluation in _evaluations(memory, ids):
        scored = stored_evaluations(memory, evaluation, ())
        Figures(scored=scored, resampling=_resampling(group[0]), keep_replicates=keep).derive()


def _over_encoders(memory: _InMemory, group: Sequence[Derivation]) -> None:
    """Make comparisons, analyses or a ranking again, from the evaluations that all of these were made of."""
    first, resampling = group[0], _resampling(group[0])
    evaluations = _evaluations(memory, [id_ for each in first.inputs if (id_ := each.partition(" ")[2])])
    if not evaluations:  # of a user's metric
        return
    if first.kind == "ranking":
        work = ranking(memory, evaluations, resampling)
    elif first.kind == "analysis":
        names = [name for each in group if (name := each.subject.analysis or "") in ANALYSES]  # some are of older code
        if not names:
            return
        work = analyses_of(memory, corpus_of(memory, evaluations), evaluations, names, resampling)
        again = [each for each in work.wanted if each.kind == "analysis"]  # a measurement is another one each time
        work = replace(work, wanted=again)
    elif protocol := first.subject.protocol:
        work = comparisons(memory, corpus_of(memory, evaluations), evaluations, [protocol], resampling)
    else:
        work = combined(memory, corpus_of(memory, evaluations), evaluations, resampling)
    derive(memory, work, run="")


def _gate(memory: _InMemory, group: Sequence[Derivation]) -> None:
    """Compare all current results on a corpus with published results again; its inputs are digests."""
    corpus = memory.corpus(group[0].subject.corpus or "")
    rows = memory.current(Result, corpus_fingerprint=corpus.fingerprint)
    alone = [row for row in rows if not Protocol.of(row.protocol).is_combined]
    evaluations = _evaluations(memory, [row.evaluation for row in alone])
    specs = [memory.encoder(each.sets.encoder_fingerprint) for each in evaluations]
    resampling = Resampling()
    for row in alone[:1]:
        resampling = replace(resampling, level=row.level)
    for row in alone:
        if row.replicates is not None and row.seed is not None:
            resampling = replace(resampling, replicates=row.replicates, seed=row.seed)
    derive(memory, gate_of(memory, corpus, evaluations, specs, resampling), run="")


_MAKERS: Mapping[str, Callable[[_InMemory, Sequence[Derivation]], None]] = {
    "result": _figures,
    **dict.fromkeys(("comparison", "analysis", "ranking"), _over_encoders),
    "gate": _gate,
}
"""Kind of a derivation -> what makes some of it again."""


# --- rows that are compared


def _place(table: str, row: Any) -> tuple[Any, ...]:
    return row.derived, *(getattr(row, name) for name in TABLES[table].key)


def _name(row: object) -> str:
    """Return a name for a row: its encoders, its corpus, and the columns that identify it in its table."""

    def of(*names: str) -> list[str]:
        return [str(value) for name in names if (value := getattr(row, name, None))]

    corpus, *figure = FIGURE
    what = ", ".join(of(*figure, "analysis", "feature", "level_name", "estimand"))
    return " and ".join(of(*ENCODERS)) + "".join(f" on {name}" for name in of(corpus)) + f", {what}"


def _difference(stored: object, computed: object) -> str:
    """Return the columns that differ, with both values."""
    differing = [
        f"{name} is stored as {getattr(stored, name)}, computed as {value}"
        for name, value in vars(computed).items()
        if name not in OF_THE_RUN and not _equal(getattr(stored, name), value)
    ]
    return "; ".join(differing[:3])


def _equal(stored: object, computed: object) -> bool:
    if isinstance(computed, str) and isinstance(stored, str) and computed.startswith("{"):
        return _equal(sorted(json.loads(stored).items()), sorted(json.loads(computed).items()))
    if isinstance(computed, float) and isinstance(stored, float):
        close = math.isclose(stored, computed, rel_tol=_SLACK, abs_tol=_SLACK)
        return close or (math.isnan(stored) and math.isnan(computed))
    if isinstance(computed, list | tuple) and isinstance(stored, list | tuple):
        return len(stored) == len(computed) and all(map(_equal, stored, computed))
    return stored == computed
