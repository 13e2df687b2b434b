"""Reads stored outcomes in query order."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from store import EmbeddingStore
from store.errors import WorkError
from store.types import EvalProtocol
from tasks.scoring.outcomes import Outcomes

_QUERY: list[tuple[str, Literal["ascending", "descending"]]] = [("query_ord", "ascending"), ("query_id", "ascending")]


def in_query_order(rows: pa.Table) -> pa.Table:
    """Rows of one evaluation, sorted by query.

    A store gives rows in any order. Encoders are compared query by query, and sums are the same to the last digit
    only if they are added up in the same order.
    """
    return rows.sort_by(_QUERY)


def read_outcomes(store: EmbeddingStore, evaluation: str, protocol: EvalProtocol) -> Outcomes:
    """The outcomes of one evaluation.

    Raises:
        WorkError: They are not in the store, though results of them are.
    """
    rows = store.rows("outcomes", evaluation=evaluation)
    if not rows.num_rows:
        raise WorkError(
            f"no outcomes of evaluation {evaluation} ({protocol.id}) in {store.uri}; run `capim evaluate` again"
        )
    return Outcomes.from_arrow(in_query_order(rows), protocol)
