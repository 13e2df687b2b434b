"""Stores comparisons as families: the pairs of one request, over which p-values are adjusted, replace no other pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from capim.store import EmbeddingStore
from capim.store.maintenance.removal import drop_stale
from capim.store.schema import texts
from capim.store.types import digest16
from capim.tasks.runtime.references import CompareRef

SIDES = ("fingerprint_a", "fingerprint_b")


def write_family(store: EmbeddingStore, rows: pa.Table) -> list[str]:
    """Write the comparisons of one request on one corpus; returns the runs whose rows they are.

    They replace comparisons of the same encoders, and of some of them. Those of a request with more encoders stay, and
    so do comparisons that an earlier run found as well; not so those by another version of the metric or the tests.
    """
    if not rows.num_rows:
        return []
    encoders = sorted({fingerprint for side in SIDES for fingerprint in texts(rows[side])})
    keys = [digest16([key, *encoders]) for key in texts(rows["comparison"])]
    place = rows.schema.get_field_index("comparison")
    rows = rows.set_column(place, rows.schema.field(place), pa.array(keys, pa.string()))
    store.write_rows("comparisons", rows, replace="comparison")
    figures = {name: sorted({*texts(rows[name])}) for name in ("corpus_fingerprint", "protocol", "metric")}
    stored = store.rows("comparisons", **figures)
    versions = ("metric_version", "statistics_version")
    written = {(row["protocol"], row["metric"]): [row[name] for name in versions] for row in rows.to_pylist()}
    found = {row["comparison"]: row for row in stored.to_pylist()}
    if outdated := [
        key
        for key, row in found.items()
        if written.get((row["protocol"], row["metric"])) not in (None, [row[name] for name in versions])
    ]:
        drop_stale(store, "comparisons", "comparison", kept=(), comparison=outdated)
    if {fingerprint for side in SIDES for fingerprint in texts(stored[side])} <= {*encoders}:
        drop_stale(store, "comparisons", "comparison", kept=keys, **figures)
    return sorted({found[key]["run"] for key in keys})


def family_of(corpus: str, corpus_fingerprint: str, rows: Sequence[pa.Table], runs: Iterable[str]) -> CompareRef:
    """The reference to these comparisons of a corpus, which these runs wrote."""
    return CompareRef(
        corpus=corpus,
        corpus_fingerprint=corpus_fingerprint,
        n_comparisons=sum(len(part) for part in rows),
        protocols=tuple(sorted({protocol for part in rows for protocol in texts(part["protocol"])})),
        runs=tuple(sorted({*runs})),
    )


def compared_rows(store: EmbeddingStore, references: Iterable[CompareRef]) -> list[dict[str, Any]]:
    """The comparisons that the references name: those of a corpus under a protocol by one run are one family."""
    return [
        row
        for each in references
        for row in store.rows(
            "comparisons", corpus_fingerprint=each.corpus_fingerprint, protocol=each.protocols, run=each.runs
        ).to_pylist()
    ]
