"""The ledger: what is derived from the store is made once, and again only when something that it depends on changes.

The one place that decides between stored and to do. A key is a digest of what a thing is, of its inputs, of the
settings and of the version of the code that makes it; its rows carry the key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from capim.store import EmbeddingStore
from capim.store.schema import DERIVED, TABLES
from capim.store.types import canonical_json, digest16
from capim.tasks.runtime.references import EvaluationRef
from capim.tasks.statistics import VERSION


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """One thing that is made from the store.

    Attributes:
        kind: What it is: ``analysis`` …
        subject: What it is of, by column: corpus, protocol, name …
        inputs: Keys and ids of all that it is made from, in the order that it depends on.
        settings: Of the run, all that change it.
        version: Of the code that makes it, beside that of the statistics.
    """

    kind: str
    subject: Mapping[str, str]
    inputs: Sequence[str]
    settings: Mapping[str, Any]
    version: str

    @cached_property
    def identity(self) -> str:
        """All that the key is a digest of, as JSON."""
        return canonical_json({**asdict(self), "statistics": VERSION})

    @cached_property
    def key(self) -> str:
        """Equal for two derivations exactly if they give the same rows."""
        return digest16([self.identity])


def inputs_of(evaluations: Iterable[EvaluationRef], protocols: Sequence[str]) -> list[str]:
    """What names the outcomes of encoders under some protocols, in this order; empty ids where there are none."""
    return [
        f"{each.sets.encoder}@{each.sets.encoder_fingerprint} {each.evaluations.get(protocol, '')}"
        for each in evaluations
        for protocol in protocols
    ]


def derive(
    store: EmbeddingStore,
    table: str,
    wanted: Iterable[Derivation],
    compute: Callable[[Derivation], pa.Table],
    *,
    run: str,
    advance: Callable[[float], None] = lambda _: None,
    write: Callable[[pa.Table], object] | None = None,
) -> int:
    """Make what the store lacks of some derivations, whose rows are of one table; returns the rows of all of them.

    The ledger is asked once. What is stored counts only while the table has all of its rows; it is shown again where a
    newer row was shown instead. Rows are written for each subject's corpus and protocol in turn, so that what is made
    survives a run that is interrupted.

    Args:
        table: Has a column ``derived``.
        compute: Gives the rows of one derivation; that column may be null.
        advance: Gets 1 for each derivation.
        write: Stores the rows of some derivations; by default by their key.
    """
    wanted = list(wanted)
    [replaced, *_] = TABLES[table].key
    write = write or partial(store.write_rows, table, replace=replaced)
    kept, n_rows = stored_rows(store, table, wanted), 0
    for _, together in groupby(wanted, key=lambda each: (each.subject.get("corpus"), each.subject.get("protocol"))):
        stored, made, entries = [], [], []
        for each in together:
            if each.key in kept:
                stored.append(_filled(_filled(kept[each.key], "run", run), "created", datetime.now(UTC)))
            else:
                began = time.perf_counter()
                made.append(_filled(compute(each), "derived", each.key))
                entries.append(_entry(each, len(made[-1]), seconds=time.perf_counter() - began, run=run))
            advance(1)
        for parts in (stored, made):
            if parts:
                write(rows := pa.concat_tables(parts))
                n_rows += len(rows)
        if entries:
            store.write_rows("derived", pa.Table.from_pylist(entries, schema=DERIVED), replace="key")
    return n_rows


def stored_rows(store: EmbeddingStore, table: str, wanted: Sequence[Derivation]) -> dict[str, pa.Table]:
    """Key -> rows, of those derivations that the store has whole."""
    made = store.rows("derived", key=[each.key for each in wanted]).to_pylist()
    rows = store.rows(table, derived=[row["key"] for row in made])
    parts = {row["key"]: rows.filter(pc.equal(rows["derived"], pa.scalar(row["key"]))) for row in made}
    return {row["key"]: parts[row["key"]] for row in made if len(parts[row["key"]]) == row["n_rows"]}


def _filled(rows: pa.Table, name: str, value: str | datetime) -> pa.Table:
    """The rows with one value in a column."""
    place = rows.schema.get_field_index(name)
    field = rows.schema.field(place)
    return rows.set_column(place, field, pa.array([value] * len(rows), field.type))


def _entry(each: Derivation, n_rows: int, *, seconds: float, run: str) -> dict[str, object]:
    about = {"key": each.key, "kind": each.kind, "identity": each.identity, "run": run, "created": datetime.now(UTC)}
    return {**about, "n_rows": n_rows, "seconds": seconds}
