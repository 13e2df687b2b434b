"""What holds of every row of METRICS that is capim's; a new row is found here by itself, a package checks its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capim.store.errors import RequestError
from capim.store.plugins import OWN
from capim.tasks.contract import check_metric, examples
from capim.tasks.metrics import METRICS, Metric
from capim.tasks.metrics.metric import FRACTION, RETRIEVAL
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.results.summary import Evaluated, result_rows
from tests.repeated import QUICK, SOURCE

ROWS = [name for name in METRICS if METRICS.package(name) == OWN]


@pytest.mark.parametrize("name", ROWS)
def test_a_metric_of_the_table_keeps_the_contract(name: str) -> None:
    assert METRICS[name].name == name
    check_metric(METRICS[name])


# --- what the contract says of a row that is wrong
def depth(outcomes: Outcomes, ties: object) -> Any:
    return np.log2(outcomes.rank_worst.astype(np.float64))


DEPTH = Metric(name="depth", title="Mean log2 rank", directions=RETRIEVAL, values=depth, higher_is_better=False)


def test_a_number_of_no_known_bounds_is_in_its_own_unit_and_has_students_interval_and_no_false_reason() -> None:
    check_metric(DEPTH)
    assert (DEPTH.unit, DEPTH.bounds, DEPTH.place) == ("own", None, "table")
    for outcomes in examples(DEPTH):
        evaluated = Evaluated(outcomes=outcomes, metrics=[DEPTH], source=SOURCE, drawn=1000)
        [row] = result_rows([evaluated], QUICK)
        assert (row.interval_method, row.reason) == ("t", None)


def test_an_aggregate_without_a_guess_has_no_chance_value() -> None:
    spread = replace(DEPTH, reduce=lambda values: float(np.ptp(values)))
    check_metric(spread)
    assert (spread.aggregate, DEPTH.aggregate) == (True, False)
    assert {spread.chance(outcomes) for outcomes in examples(spread)} == {None}
    assert replace(spread, guess=lambda _: 2.0).chance(examples(spread)[0]) == 2.0


def test_a_metric_that_ignores_ties_has_no_chance_value_for_all_scores_tied_would_be_all_lost() -> None:
    assert {DEPTH.chance(outcomes) for outcomes in examples(DEPTH)} == {None}
    assert {METRICS["R@1"].chance(outcomes) for outcomes in examples(METRICS["R@1"])} != {None}


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"unit": "percent"}, "unit is 'percent' and the value 3.*; set unit='own'"),
        (FRACTION, r"the value of query 'q1' is 1.58496, outside its bounds \(0, 1\); change `bounds`"),
    ],
)
def test_percent_and_bounds_that_the_values_do_not_keep_are_refused(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        check_metric(replace(DEPTH, **facts))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"bounds": (1, 0)}, "bounds are"),
        ({"share": True}, r"is a share: its bounds are None, expected \(0, 1\)"),
        ({"unit": "percent", "bounds": (1, np.inf)}, "unit is 'percent' with bounds"),
        ({"unit": "percent", "reduce": np.ptp}, "unit is 'percent' with bounds None"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused_where_it_is_made(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(DEPTH, **facts)
