"""nDCG@10 of protocols where a query has one relevant item: MTEB's main score, which is not among stored results."""

from __future__ import annotations

from collections.abc import Iterator

from capim.reports.rows.report_data import ReportData, Row
from capim.store import EmbeddingStore
from capim.store.types import EvalProtocol
from capim.tasks.metrics.table import METRICS, is_known
from capim.tasks.runtime.stored import read_outcomes

_NAME = "nDCG@10"


def ndcg_rows(store: EmbeddingStore, data: ReportData) -> Iterator[Row]:
    """Rows like those of R@1, without an interval, for all that have no row of nDCG@10.

    Raises:
        WorkError: Results have no outcomes.
    """
    for row in data.results:
        direction = row["protocol"].partition("/")[0]
        if row["metric"] != "R@1" or set("*+") & set(row["protocol"]) or direction not in ("t2i", "i2t"):
            continue
        if data.row(row["corpus"], row["protocol"], _NAME, row["encoder"]) is None:
            protocol = EvalProtocol(id=row["protocol"], direction=direction, title="")
            outcomes = read_outcomes(store, row["evaluation"], protocol)
            if is_known(METRICS[_NAME], outcomes):
                value = METRICS[_NAME].value(outcomes)
                yield {**row, "metric": _NAME, "value": value, "ci_low": None, "ci_high": None}
