"""Stored comparisons as rows for a shell or a notebook: in one direction, with what their tests allow to say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from reports.rows.report_data import SMALLER_IS_BETTER, Row, reversed_comparison
from reports.rows.standing import tested
from store import EmbeddingStore

PAIR_COLUMNS = (
    "corpus", "protocol", "metric", "encoder_a", "encoder_b", "difference", "ci_low", "ci_high", "p_adjusted", "state",
    "n_queries", "family",
)  # fmt: skip
AGAINST_BEST = ("against", "difference", "p_adjusted", "state")


def smaller_is_better(store: EmbeddingStore) -> frozenset[str]:
    """The metrics whose lowest figure is the best, users' own among them."""
    own = store.rows("metrics").to_pylist()
    return SMALLER_IS_BETTER | {row["metric"] for row in own if row["lower_is_better"]}


def pair_rows(comparisons: Iterable[Row], smaller: Collection[str], first: str | None = None) -> list[dict[str, Any]]:
    """Comparisons with a column ``state``, those by headline figures first.

    Args:
        comparisons: Rows of ``schema.COMPARISONS``.
        smaller: The metrics whose lowest figure is the best.
        first: Name or fingerprint of the encoder that is ``encoder_a`` of its pairs.

    Returns:
        ``state`` is what is known of ``encoder_a`` against ``encoder_b``: better, worse, equivalent, undecided, or
        None where there is no test.
    """
    turned = [
        reversed_comparison(row) if first in (row["encoder_b"], row["fingerprint_b"]) else row for row in comparisons
    ]
    rows = [{**row, "state": _state(row, smaller)} for row in turned]
    return sorted(
        rows,
        key=lambda row: (
            row["family"] != "headline",
            *(row[n] for n in PAIR_COLUMNS[:3]),
            row["encoder_a"],
            row["encoder_b"],
        ),
    )


def against_best(results: Sequence[Row], comparisons: Iterable[Row], smaller: Collection[str]) -> list[dict[str, Any]]:
    """Results with the test of each against the best other encoder under its protocol, in ``AGAINST_BEST``."""
    pairs: dict[tuple[str, ...], Row] = {}
    for row in comparisons:
        for each in (row, reversed_comparison(row)):
            pairs[
                each["corpus_fingerprint"],
                each["protocol"],
                each["metric"],
                each["fingerprint_a"],
                each["fingerprint_b"],
            ] = each
    rows = []
    for row in results:
        same = [r for r in results if _task(r) == _task(row) and r["value"] is not None and r is not row]
        sign = -1 if row["metric"] in smaller else 1
        best = max(same, key=lambda r: sign * r["value"], default=None)
        pair = best and pairs.get((*_task(row), row["encoder_fingerprint"], best["encoder_fingerprint"]))
        found = {"against": best["encoder"], **pair, "state": _state(pair, smaller)} if best and pair else {}
        rows.append({**row, **{name: found.get(name) for name in AGAINST_BEST}})
    return rows


def _task(row: Row) -> tuple[str, str, str]:
    return row["corpus_fingerprint"], row["protocol"], row["metric"]


def _state(row: Row, smaller: Collection[str]) -> str | None:
    decision = tested(row, smaller)
    return None if decision is None else decision.state
