"""The ledger: a derivation from the store is computed once, and again only when something it depends on changes.

The one place that decides between stored and to do. A key is a digest of what a thing is, of its inputs, of the
settings and of the versions of the code that makes it; its rows carry the key, and are added, never replaced. The
record of a run has the keys of all that it requested, so that a run that made nothing can be pinned, compared and
reported like the one that made it all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeAlias

from capim.store import EmbeddingStore
from capim.store.schema import TABLES, LedgerEntry, Published, Run, Subject
from capim.store.types import canonical_json, digest16
from capim.tasks.statistics import VERSION
from capim.tasks.statistics.draws import Resampling

USUAL = Resampling()


@dataclass(frozen=True, kw_only=True, eq=False)
class Derivation:
    """One thing that is made from the store.

    Attributes:
        kind: Its kind: ``result``, ``comparison``, ``ranking``, ``analysis`` …
        subject: Its corpus, encoder, protocol and metric.
        inputs: Keys and ids of all that it is made from, in the order that it depends on.
        settings: Of the run, all that change it.
        version: Of the code that makes it, next to that of the statistics.
    """

    kind: str
    subject: Subject
    inputs: Sequence[str]
    settings: Mapping[str, Any]
    version: str

    @cached_property
    def identity(self) -> str:
        """Return everything that the key is a digest of, as JSON."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return canonical_json({**named, "subject": self.subject.named, "statistics": VERSION})

    @cached_property
    def key(self) -> str:
        """Return the key: equal for two derivations exactly if they give the same rows."""
        return digest16([self.identity])

    @property
    def usual(self) -> bool:
        """True if it is made with the settings that a run has unless it is given others."""
        usual = asdict(USUAL)
        return all(usual.get(name, value) == value for name, value in self.settings.items())

    def row_key(self, own: str) -> str:
        """Return the key of one of its rows, which ``own`` distinguishes from the others."""
        return digest16([self.key, own])


Made = Mapping[int, Sequence[Any]]
"""Position among the derivations to do -> its rows, objects of the row type of one table."""
Compute: TypeAlias = Callable[[Sequence[Derivation]], Iterable[Made]]


@dataclass(frozen=True, kw_only=True)
class Work:
    """Derivations of one table, and the function that makes their rows.

    Attributes:
        table: Has a column ``derived``.
        compute: Takes the derivations to make, and yields their rows, committed as they were made together, so that
            these survive a run that is interrupted. The first column of the table's key distinguishes the rows of one
            derivation; it is made unique in the table.
    """

    table: str
    wanted: Sequence[Derivation]
    compute: Compute


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A task's reference to the rows that it made or found.

    Attributes:
        uses: The keys of their derivations.
        n_rows: How many rows these have.
        n_made: How many of the derivations were made by this task.
        lines: Messages to the user.
    """

    uses: tuple[str, ...] = ()
    n_rows: int = 0
    n_made: int = 0
    lines: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, int | str]:
        """Return numbers for the log and the assets of a run."""
        digest = {"digest": digest16(sorted(self.uses))} if self.uses else {}
        return {"rows": self.n_rows, "derivations": len(self.uses), "made": self.n_made, **digest}


def derive(store: EmbeddingStore, *works: Work, run: str, advance: Callable[[float], None] = lambda _: None) -> Derived:
    """Make the derivations that the store lacks, and return a reference to all.

    A stored derivation counts only while its table has all of its rows. ``advance`` gets 1 for each derivation.
    """
    parts = [_derive(store, each, run, advance) for each in works]
    return Derived(
        uses=tuple(derivation.key for each in works for derivation in each.wanted),
        n_rows=sum(n_rows for n_rows, _ in parts),
        n_made=sum(n_made for _, n_made in parts),
    )


def _derive(store: EmbeddingStore, work: Work, run: str, advance: Callable[[float], None]) -> tuple[int, int]:
    """Make what the store lacks of one table; return the number of all rows, and of the derivations made."""
    if not work.wanted:
        return 0, 0
    known = store.stored_rows([each.key for each in work.wanted])
    todo = [each for each in work.wanted if each.key not in known]
    n_rows, n_made = sum(known.values()), 0
    advance(len(work.wanted) - len(todo))
    if todo:
        began = time.perf_counter()
        for made in work.compute(todo):
            if not made:
                continue
            seconds, began = (time.perf_counter() - began) / len(made), time.perf_counter()
            entries, keyed = [], []
            for at, rows in made.items():
                keyed += [_keyed(work.table, row, todo[at]) for row in rows]
                entries.append(_entry(todo[at], seconds=seconds, run=run))
            store.write_derived(work.table, keyed, entries)
            n_rows += len(keyed)
            n_made += len(made)
            advance(len(made))
    return n_rows, n_made


def page_key(
    store: EmbeddingStore, keys: Collection[str] | None, chosen: Mapping[str, Sequence[str]], version: str
) -> str:
    """Return the key of the report on the rows with these keys, or on all current rows; no row is read.

    Args:
        store: The store.
        keys: Keys of the rows shown. None: all current rows, as determined by the usual settings and the latest
            inputs.
        chosen: Names that the report is limited to.
        version: Of the code that makes pages.
    """
    if keys is not None:
        shown = sorted(keys)
    else:
        uses = store.uses()
        by_runs = {key for run in store.runs() for key in run.keys}
        shown = sorted(by_runs & uses.keys(), key=lambda key: (*uses[key], key))
    failed = [(row.run, row.message) for row in sorted(store.all(Run, state="incomplete"), key=lambda row: row.started)]
    published = sorted(row.published for row in store.all(Published))
    models = sorted(row.spec for row in store.encoders())
    parts = [keys is None, chosen, version, failed, published, shown, models]
    return digest16([canonical_json(part) for part in parts])


def one_by_one(
    compute: Callable[[Derivation], Sequence[Any]], by: Callable[[Derivation], object] = lambda _: None
) -> Compute:
    """Return a ``compute`` that makes derivations one by one; neighbours with the same ``by`` are one commit."""

    def make(todo: Sequence[Derivation]) -> Iterator[Made]:
        made: dict[int, Sequence[Any]] = {}
        for at, each in enumerate(todo):
            made[at] = compute(each)
            if at + 1 == len(todo) or by(todo[at + 1]) != by(each):
                yield made
                made = {}

    return make


def _keyed(table: str, row: Any, each: Derivation) -> Any:
    """Return a row with the key of its derivation, and a key of its own that no other derivation has."""
    name, *_ = TABLES[table].key
    own = {} if name == "derived" else {name: each.row_key(getattr(row, name))}
    return replace(row, derived=each.key, **own)


def _entry(each: Derivation, *, seconds: float, run: str) -> LedgerEntry:
    same: dict[str, Any] = {name: getattr(each, name) for name in ("key", "kind", "identity", "usual")}
    return LedgerEntry(**same, seconds=seconds, run=run, created=datetime.now(UTC))
