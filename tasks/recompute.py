"""What is derived, made again in memory and compared: `capim store verify --recompute`.

Figures, comparisons, rankings and analyses from the outcomes, and what published figures say of them. Code that gives
something else than it once gave is found, whatever the ledger says.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import pyarrow as pa

from capim.store import EmbeddingStore
from capim.store.current import Row
from capim.store.errors import RequestError, WorkError
from capim.store.integrity import StoreCheck
from capim.store.ledger import DERIVED_ROWS, OF_THE_RUN
from capim.store.rows import delete
from capim.store.schema import DERIVED, TABLES, texts
from capim.store.types import canonical_json
from capim.tasks.compare import derive_combined, derive_comparisons, derive_ranking
from capim.tasks.derive import derive
from capim.tasks.hub.progress import track
from capim.tasks.protocols import Protocol
from capim.tasks.report import analysing, gate_of, wanted_analyses
from capim.tasks.runtime.references import EvaluationRef, SetsRef
from capim.tasks.runtime.results import derive_figures
from capim.tasks.runtime.scoring import stored_evaluations
from capim.tasks.statistics.draws import Resampling

_SLACK = 1e-9  # of a figure that another machine adds up in another order


class _InMemory(EmbeddingStore):
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

    def write_derived(self, table: str, rows: pa.Table, entries: Iterable[Row]) -> None:
        """Keep the rows in :attr:`made`."""
        self.made[table] += rows.to_pylist()
        self.made["derived"] += [{**entry, "table_name": table} for entry in entries]

    def write_rows(self, table: str, rows: pa.Table, *, replace: str | None = None) -> int:
        """Write nothing."""
        del table, replace
        return len(rows)


def recompute(store: EmbeddingStore) -> Iterator[StoreCheck]:
    """Derive all that is current again; gives each difference, then how much was derived."""
    store = store.keeping()
    ledger: dict[str, Row] = {row["key"]: row for row in store.rows("derived").to_pylist()}
    stored = texts(store.corpora()["fingerprint"])
    columns = [field.name for field in fields(SetsRef)]
    found = store.rows("results", corpus_fingerprint=stored).select(columns).to_pylist()
    every = [SetsRef(**dict(pair)) for pair in sorted({tuple(row.items()) for row in found})]
    again = _Again(store=store, ledger=ledger)
    with track("computing again", total=len(every), unit="evaluations") as advance:
        for sets in every:
            try:
                yield from again.of_evaluation(sets)
            except (RequestError, WorkError) as fault:
                yield _wrong(store, "results", f"{sets.encoder} on {sets.corpus} cannot be computed again: {fault}", ())
            advance(1)
    for table in ("comparisons", "slices", "rankings"):
        yield from again.over_encoders(table)
    for name, n in (+again.counts).items():
        yield StoreCheck(what=name, state="sound", detail=f"{n:,} computed again")
    if left := +again.left:
        reasons = "; ".join(f"{n:,} {why}" for why, n in sorted(left.items()))
        yield StoreCheck(what="results", state="incomplete", detail=f"not computed again: {reasons}")


def _wrong(store: EmbeddingStore, table: str, detail: str, keys: Sequence[str]) -> StoreCheck:
    """The check of rows of a table that are not what is derived, of the derivations with these keys."""
    remove = partial(delete, store.connection, table, "derived", keys)
    return StoreCheck(what=table, state="damaged", detail=detail, remove=remove)


@dataclass(frozen=True, kw_only=True)
class _Again:
    """Computes again, and compares: figures and outcomes of an encoder on a corpus, then what is over encoders.

    Attributes:
        ledger: The rows of ``derived`` by key.
        counts: Table -> how many rows were computed; ``left``: how many figures were not, by the reason.
    """

    store: EmbeddingStore
    ledger: Mapping[str, Row]
    counts: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)

    def compared(self, table: str, anew: _InMemory) -> Iterator[StoreCheck]:
        """How the stored rows of a table differ from those that were made of the same derivations."""
        made = [row for row in anew.made[table] if row["derived"] in self.ledger]
        keys = [row["key"] for row in anew.made["derived"]]
        stored = {_place(table, row): row for row in self.store.rows(table, derived=keys).to_pylist()}
        for row in made:
            self.counts[table] += 1
            kept = stored.pop(_place(table, row), None)
            what = _difference(kept, row) if kept else "is not stored, though the ledger has its key"
            if what:
                yield _wrong(self.store, table, f"{_name(row)}: {what}", [row["derived"]])
        for row in stored.values():
            yield _wrong(self.store, table, f"{_name(row)}: is not computed any more", [row["derived"]])

    def of_evaluation(self, sets: SetsRef) -> Iterator[StoreCheck]:
        """Of the current figures of one encoder on one corpus, and of their outcomes."""
        states = {name: getattr(sets, name) for name in ("encoder_fingerprint", "corpus_fingerprint")}
        rows = self.store.current("results", **states)
        by_settings: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            entry = self.ledger.get(row["derived"])
            if entry is None:
                yield _wrong(self.store, "results", f"{_name(row)}: the ledger has no key {row['derived']}", ())
            else:
                by_settings[canonical_json(json.loads(entry["identity"])["settings"])].append(row)
        for settings, of_settings in by_settings.items():
            reference = EvaluationRef(sets=sets, evaluations=_by_protocol(of_settings), n_scored=0)
            yield from self._figures(reference, Resampling(**json.loads(settings)), of_settings)

    def _figures(
        self, evaluation: EvaluationRef, resampling: Resampling, current: Sequence[Row]
    ) -> Iterator[StoreCheck]:
        anew = _InMemory(self.store)
        scored = stored_evaluations(anew, evaluation, ())
        keep = bool(self.store.counts("replicates", "derived", evaluation=list(evaluation.evaluations.values())))
        derive_figures(scored, resampling=resampling, run="", keep_replicates=keep)
        for table in ("results", "replicates"):
            yield from self.compared(table, anew)
        made_keys = {row["key"] for row in anew.made["derived"]}
        if n_other := sum(row["derived"] not in made_keys for row in current):
            self.left["figures by other code than today's, or by a metric of the user"] += n_other

    def over_encoders(self, table: str) -> Iterator[StoreCheck]:
        """Of the current comparisons, rankings or analyses, with the encoders that each was made of."""
        keys = {row["derived"] for row in self.store.current(table)}
        found = {key: json.loads(self.ledger[key]["identity"]) for key in keys & self.ledger.keys()}
        todo = {key: identity for key, identity in found.items() if identity["kind"] in _MAKERS}
        others = sorted({identity["kind"] or "?" for key, identity in found.items() if key not in todo})
        self.left[f"of {table} ({', '.join(others)})"] += len(found) - len(todo)
        while todo:
            largest = max(
                todo, key=lambda key: (len(todo[key]["inputs"]), key)
            )  # others may be of some of its encoders
            identity = todo.pop(largest)
            try:
                anew = self._made(identity)
            except (RequestError, WorkError) as fault:
                yield _wrong(self.store, table, f"key {largest} cannot be computed again: {fault}", [largest])
                continue
            keys = {row["key"] for row in anew.made["derived"]}
            if largest not in keys:
                self.left[f"derivations of {table} by other code than today's, or of other outcomes"] += 1
            for each in keys & todo.keys():
                del todo[each]
            for made in {table, *anew.made} & {*DERIVED_ROWS}:
                yield from self.compared(made, anew)

    def _made(self, identity: Mapping[str, Any]) -> _InMemory:
        anew, settings = _InMemory(self.store), identity["settings"]
        ids = [each.rpartition(" ")[2] for each in identity["inputs"] if " " in each]
        if identity["kind"] == "gate":  # of all evaluations on a corpus; its inputs are digests
            current = self.store.current("results", corpus_fingerprint=identity["subject"]["corpus"])
            alone = [row for row in current if not Protocol.of(row["protocol"]).is_combined]
            ids = [row["evaluation"] for row in alone]
            made_by = [self.ledger[row["derived"]] for row in alone if row["derived"] in self.ledger]
            settings = json.loads(made_by[0]["identity"])["settings"] if made_by else {}
        names = {each.name for each in fields(Resampling)}
        resampling = Resampling(**{name: value for name, value in settings.items() if name in names})
        if evaluations := self._evaluations(ids):
            _MAKERS[identity["kind"]](anew, evaluations, identity["subject"], resampling)
        return anew

    def _evaluations(self, ids: Sequence[str]) -> tuple[EvaluationRef, ...]:
        """The evaluations with these ids, of those that are stored, by encoder and corpus."""
        columns = ["evaluation", "protocol", *(each.name for each in fields(SetsRef))]
        rows = {
            row["evaluation"]: row for row in self.store.rows("results", evaluation=ids).select(columns).to_pylist()
        }
        found: dict[SetsRef, dict[str, str]] = {}
        for row in (rows[each] for each in ids if each in rows):
            sets = SetsRef(**{each.name: row[each.name] for each in fields(SetsRef)})
            found.setdefault(sets, {})[row["protocol"]] = row["evaluation"]
        return tuple(EvaluationRef(sets=sets, evaluations=of, n_scored=0) for sets, of in found.items())


def _by_protocol(rows: Iterable[Row]) -> dict[str, str]:
    """Protocol -> evaluation of those rows that are of one evaluation, no sum or mean of several."""
    return {row["protocol"]: row["evaluation"] for row in rows if not Protocol.of(row["protocol"]).is_combined}


def _comparisons(
    store: EmbeddingStore, evaluations: tuple[EvaluationRef, ...], subject: Mapping[str, str], resampling: Resampling
) -> None:
    if subject["protocol"]:
        derive_comparisons(store, evaluations, protocols=[subject["protocol"]], resampling=resampling, run="")
    else:
        derive_combined(store, evaluations, resampling=resampling, run="")


def _analyses(
    store: EmbeddingStore, evaluations: tuple[EvaluationRef, ...], subject: Mapping[str, str], resampling: Resampling
) -> None:
    corpus = store.corpus(evaluations[0].sets.corpus, evaluations[0].sets.corpus_fingerprint)
    wanted = wanted_analyses(store, corpus, evaluations, [subject["analysis"]], resampling)
    wanted = [each for each in wanted if each.kind == "analysis"]  # a measurement is another one each time
    derive(store, "slices", wanted, analysing(store, corpus, evaluations, resampling, run=""), run="")


def _ranking(
    store: EmbeddingStore, evaluations: tuple[EvaluationRef, ...], _: Mapping[str, str], resampling: Resampling
) -> None:
    derive_ranking(store, evaluations, resampling=resampling, run="")


def _gate(
    store: EmbeddingStore, evaluations: tuple[EvaluationRef, ...], subject: Mapping[str, str], resampling: Resampling
) -> None:
    specs = [store.encoder(each.sets.encoder_fingerprint) for each in evaluations]
    corpus = store.corpus(evaluations[0].sets.corpus, subject["corpus"])
    derive(store, "slices", *gate_of(store, corpus, evaluations, specs, resampling, ""), run="")


_MAKERS = {
    "comparison": _comparisons,
    "analysis": _analyses,
    "ranking": _ranking,
    "gate": _gate,
}  # kind of a derivation -> makes it


def _place(table: str, row: Row) -> tuple[Any, ...]:
    return row["derived"], *(row[name] for name in TABLES[table].key)


def _name(row: Row) -> str:
    """What a row is of: its encoders, its corpus, and what its table tells rows apart by."""
    of = [row[name] for name in ("encoder", "encoder_a", "encoder_b") if row.get(name)]
    about = ("protocol", "metric", "analysis", "feature", "level_name", "estimand", "statistic")
    what = ", ".join(str(row[name]) for name in about if row.get(name))
    return " and ".join(of) + (f" on {row['corpus']}" if row.get("corpus") else "") + f", {what}"


def _difference(stored: Row, computed: Row) -> str:
    """The columns that differ, with both values."""
    differing = [
        f"{name} is stored as {stored[name]}, computed as {value}"
        for name, value in computed.items()
        if name not in OF_THE_RUN and not _equal(stored[name], value)
    ]
    return "; ".join(differing[:3])


def _equal(stored: object, computed: object) -> bool:
    if isinstance(computed, str) and isinstance(stored, str) and computed.startswith("{"):
        kept, made = json.loads(stored), json.loads(computed)
        return kept.keys() == made.keys() and all(_equal(kept[name], made[name]) for name in kept)
    if isinstance(computed, float) and isinstance(stored, float):
        close = math.isclose(stored, computed, rel_tol=_SLACK, abs_tol=_SLACK)
        return close or (math.isnan(stored) and math.isnan(computed))
    if isinstance(computed, list) and isinstance(stored, list):
        return len(stored) == len(computed) and all(map(_equal, stored, computed))
    return stored == computed
