"""A metric that does not apply to some queries: its rows are those of the other queries alone, in every table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from capim.tasks.metrics.metric import RETRIEVAL, Metric
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.results.comparison import comparison_rows, encoder_key
from capim.tasks.results.summary import NOT_DEFINED, Evaluated, replicate_rows, result_rows
from tests.results.test_rows import PROVENANCE, RECALLS, captions, draws


def hit_where_known(outcomes: Outcomes, _: object) -> NDArray[np.float64]:
    """R@1, but of queries of the first 25 images only, without every seventh."""
    hits = (outcomes.rank_best == 1).astype(np.float64)
    hits[(outcomes.clusters >= 25) | (outcomes.query_ords % 7 == 0)] = np.nan
    return hits


SOME = Metric(name="m:some", title="", directions=RETRIEVAL, values=hit_where_known, reference=True)
NONE = replace(SOME, name="m:none", values=lambda o, _: np.full(len(o), np.nan))
WHOLE = replace(SOME, name="m:some", values=lambda o, _: (o.rank_best == 1).astype(np.float64))
SPREAD = replace(SOME, name="m:spread", reduce=lambda values: float(np.ptp(values)))


def known(outcomes: Outcomes) -> Outcomes:
    """The outcomes of the queries that ``SOME`` applies to (of queries with one relevant item)."""
    rows = ~np.isnan(hit_where_known(outcomes, None))
    arrays: dict[str, Any] = {n: v[rows] for n, v in vars(outcomes).items() if isinstance(v, np.ndarray)}
    return replace(outcomes, **arrays)


def rows_of(outcomes: Outcomes, metric: Metric, drawn: int = 40) -> list[dict[str, Any]]:
    evaluated = Evaluated(outcomes=outcomes, metrics=[metric], source=PROVENANCE, drawn=drawn)
    return result_rows([evaluated], draws(400)).drop_columns(["created", "tie_share"]).to_pylist()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduce", ["mean", "median"])
def test_a_result_is_that_of_the_known_queries_alone(weighted: bool, reduce: Any) -> None:
    outcomes = captions()
    if weighted:
        outcomes = replace(outcomes, weights=np.where(outcomes.query_ords < 60, 2.0, 0.25))
    [row] = rows_of(outcomes, replace(SOME, reduce=reduce))
    assert [row] == rows_of(known(outcomes), replace(WHOLE, reduce=reduce))
    assert (row["n_queries"], row["n_clusters"]) == (len(known(outcomes)), 25)


def test_wilsons_interval_counts_the_known_queries() -> None:
    outcomes = captions(40, 1)
    [row] = rows_of(outcomes, replace(SOME, share=True))
    assert row["interval_method"] == "wilson"
    assert [row] == rows_of(known(outcomes), replace(WHOLE, share=True))


def test_a_metric_that_applies_to_no_query_has_no_row_and_stops_nothing() -> None:
    evaluated = Evaluated(outcomes=captions(), metrics=[NONE, *RECALLS], source=PROVENANCE, drawn=40)
    assert result_rows([evaluated], draws(100))["metric"].to_pylist() == ["R@1", "R@5", "R@10"]
    assert np.isnan(NONE.value(captions()))


def test_other_metrics_of_the_evaluation_are_unchanged_to_the_last_digit() -> None:
    evaluated = Evaluated(outcomes=captions(), metrics=RECALLS, source=PROVENANCE, drawn=40)
    beside = replace(evaluated, metrics=[SOME, *RECALLS, SPREAD])
    alone, together = (result_rows([each], draws(300)).drop_columns(["created"]) for each in (evaluated, beside))
    assert together.slice(1, 3).equals(alone)


def test_kept_replicates_are_of_the_known_queries_and_none_where_there_are_none() -> None:
    outcomes = captions()
    tables = [
        replicate_rows(Evaluated(outcomes=of, metrics=[metric, NONE], source=PROVENANCE, drawn=40), draws(200))
        for of, metric in ((outcomes, SOME), (known(outcomes), WHOLE))
    ]
    assert tables[0].drop_columns(["created"]).equals(tables[1].drop_columns(["created"]))


def compared(metric: Metric, *outcomes: Outcomes) -> pa.Table:
    encoders = {encoder_key(n, n): o for n, o in zip("xyz", outcomes, strict=False)}
    return comparison_rows(
        encoders, [metric], corpus="c", corpus_fingerprint="c", run="r", drawn=40,
        resampling=replace(draws(200), permutations=200),
    ).drop_columns(["created"])  # fmt: skip


def test_a_comparison_is_that_of_the_known_queries_alone() -> None:
    first, second = captions(seed=1), captions(seed=2)
    of_known = compared(WHOLE, known(first), known(second))
    assert compared(SOME, first, second).equals(of_known)
    assert of_known["n_queries"].to_pylist() == [len(known(first))]


def test_an_encoder_without_any_value_is_not_compared() -> None:
    def of_the_skilled(outcomes: Outcomes, _: object) -> NDArray[np.float64]:
        return np.where(outcomes.rank_best.mean() < 10, outcomes.rank_best, np.nan).astype(np.float64)

    metric = replace(SOME, name="m:skilled", values=of_the_skilled)
    rows = compared(metric, captions(seed=1), captions(seed=2, skill=90.0), captions(seed=3))
    assert [(row["encoder_a"], row["encoder_b"]) for row in rows.to_pylist()] == [("x", "z")]


def test_an_aggregate_has_nulls_where_queries_would_win_and_says_why() -> None:
    [row] = compared(SPREAD, captions(seed=1), captions(seed=2)).to_pylist()
    assert [row[name] for name in ("wins", "ties", "losses", "p_sign_flip", "p_adjusted", "cohen_h")] == [None] * 6
    assert "aggregate" in row["reason"]


def test_an_aggregate_that_is_not_defined_is_null_with_a_reason() -> None:
    [row] = rows_of(captions(), replace(SPREAD, reduce=lambda _: float("nan")))
    assert (row["value"], row["ci_low"], row["reason"]) == (None, None, NOT_DEFINED)
