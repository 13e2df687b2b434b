"""Outcomes that ``capim export outcomes`` wrote, read back: every rank, tie, list and score."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capim.store.errors import RequestError
from capim.store.exchange.row_files import read_row_file
from capim.store.schema import OUTCOMES
from capim.store.types import Corpus
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, select_protocols
from capim.tasks.ranking.tasks import RetrievalTask

REQUIRED = tuple(field.name for field in OUTCOMES if not field.nullable)


def in_query_order(rows: pa.Table) -> pa.Table:
    """Rows of one evaluation in the order in which the store reads them: sums then have the same last digit."""
    return rows.sort_by([("query_ord", "ascending"), ("query_id", "ascending")])


def is_export(columns: Collection[str]) -> bool:
    """Whether these are the columns of exported outcomes."""
    return set(REQUIRED) <= set(columns)


def read_export(path: Path, rows: list[dict[str, Any]] | None = None) -> pa.Table:
    """The rows of an exported file as ``schema.OUTCOMES``; ``rows`` if they have been read already.

    Raises:
        RequestError: A value has the wrong type.
    """
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            table = pq.read_table(path)
            absent = [field for field in OUTCOMES if field.name not in table.column_names]
            for field in absent:
                table = table.append_column(field, pa.nulls(len(table), field.type))
            return table.select(OUTCOMES.names).cast(OUTCOMES)
        read = read_row_file(path) if rows is None else rows
        typed = [{field.name: _typed(row.get(field.name), field) for field in OUTCOMES} for row in read]
        return pa.Table.from_pylist(typed, schema=OUTCOMES)
    except (ValueError, TypeError, pa.ArrowException) as fault:
        if isinstance(fault, RequestError):
            raise
        raise RequestError(f"{path} is not a file of `capim export outcomes`: {fault}") from fault


def outcomes_of_export(table: pa.Table, corpus: Corpus, *, protocols: Collection[str] = ()) -> list[Outcomes]:
    """The outcomes of one encoder on a corpus, protocol by protocol.

    Args:
        corpus: Rows of other corpora are left out.
        protocols: Only these; all in the table if empty.

    Raises:
        RequestError: Rows of several encoders, of another state of the corpus, or not of all queries.
    """
    of_corpus = table.filter(pc.equal(table["corpus"], pa.scalar(corpus.name)))
    of_state = of_corpus.filter(pc.equal(of_corpus["corpus_fingerprint"], pa.scalar(corpus.fingerprint)))
    if not of_corpus.num_rows:
        others = ", ".join(sorted(map(str, pc.unique(table["corpus"]).to_pylist())))
        raise RequestError(f"no exported outcome is of corpus {corpus.name!r}, but of {others}")
    if not of_state.num_rows:
        raise RequestError(
            f"the exported outcomes are of another state of corpus {corpus.name!r} "
            f"({of_corpus['corpus_fingerprint'][0].as_py()}); the one given is {corpus.fingerprint}"
        )
    encoders = sorted(map(str, pc.unique(of_state["encoder"]).to_pylist()))
    if len(encoders) > 1:
        raise RequestError(
            f"the exported outcomes are of {len(encoders)} encoders ({', '.join(encoders)}); export one of them: "
            "`capim export outcomes --encoder NAME`"
        )
    stored = [str(name) for name in pc.unique(of_state["protocol"]).to_pylist()]
    names = [name for name in stored if not protocols or name in protocols]
    if not names:
        raise RequestError(f"the exported outcomes are of {', '.join(stored)}, none of {', '.join(protocols)}")
    wanted = select_protocols(corpus, names)
    found, faults = [], []
    for task in build_tasks(corpus, wanted):
        rows = in_query_order(of_state.filter(pc.equal(of_state["protocol"], pa.scalar(task.protocol.id))))
        order = np.lexsort((task.query_ids.astype(str), task.queries))
        n_relevant = task.n_relevant[order] if isinstance(task, RetrievalTask) else None
        same = rows["query_id"].to_pylist() == task.query_ids[order].tolist() and (
            n_relevant is None or np.array_equal(rows["n_relevant"].to_numpy(), n_relevant)
        )
        if same:
            found.append(Outcomes.from_arrow(rows, task.protocol))
        else:
            faults.append(
                f"{task.protocol.id}: the {rows.num_rows} exported queries are not the {len(order)} of the corpus"
            )
    if faults:
        raise RequestError(faults)
    return found


def _typed(cell: object, field: pa.Field) -> object:
    """A cell of a text file as a value of the column's type; null in place of a number is not-a-number."""
    kind = field.type
    if pa.types.is_list(kind):
        values: list[Any] | None = json.loads(cell) if isinstance(cell, str) else cell  # type: ignore[assignment]
        return values and [math.nan if value is None else value for value in values]
    if cell is None and pa.types.is_floating(kind) and not field.nullable:
        return math.nan
    if not isinstance(cell, str) or pa.types.is_string(kind):
        return cell
    return float(cell) if pa.types.is_floating(kind) else int(cell)
