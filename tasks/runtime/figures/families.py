"""Stores comparisons as families: the pairs of one request, over which p-values are adjusted, replace no other pair."""

from __future__ import annotations

import pyarrow as pa

from store import EmbeddingStore
from store.maintenance.removal import drop_stale
from store.schema import texts
from store.types import digest16

SIDES = ("fingerprint_a", "fingerprint_b")


def write_family(store: EmbeddingStore, rows: pa.Table) -> int:
    """Write the comparisons of one request on one corpus; returns their number.

    They replace comparisons of the same encoders, and of some of them. Those of a request with more encoders stay.
    """
    if not rows.num_rows:
        return 0
    encoders = sorted({fingerprint for side in SIDES for fingerprint in texts(rows[side])})
    keys = [digest16([key, *encoders]) for key in texts(rows["comparison"])]
    place = rows.schema.get_field_index("comparison")
    rows = rows.set_column(place, rows.schema.field(place), pa.array(keys, pa.string()))
    written = store.write_rows("comparisons", rows, replace="comparison")
    figures = {name: sorted({*texts(rows[name])}) for name in ("corpus_fingerprint", "protocol", "metric")}
    stored = store.rows("comparisons", **figures)
    if {fingerprint for side in SIDES for fingerprint in texts(stored[side])} <= {*encoders}:
        drop_stale(store, "comparisons", "comparison", kept=keys, **figures)
    return written
