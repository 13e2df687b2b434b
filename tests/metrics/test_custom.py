"""Custom metrics, as the documentation shows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from store.errors import RequestError
from tasks.metrics import custom
from tasks.metrics.custom import load_metric
from tasks.metrics.examples import outcomes_of

MODULE = '''
import numpy as np


def top_three(outcomes):
    """Share of queries with a relevant item in the top three."""
    return outcomes.rank_best <= 3

def margin(block):
    """How far the best relevant item is ahead of the best other one."""
    own = np.where(block.relevant, block.scores, -np.inf).max(axis=1)
    other = np.where(block.relevant, -np.inf, block.scores).max(axis=1)
    return own - other

def too_many(outcomes):
    return np.zeros(len(outcomes) + 1)

def not_a_number(outcomes):
    return np.full(len(outcomes), np.nan)

def words(outcomes):
    return ["a"] * len(outcomes)

def two(outcomes, k):
    return outcomes
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "user_metrics_of_this_test.py").write_text(MODULE)
    return tmp_path


def name(function: str) -> str:
    return f"user_metrics_of_this_test:{function}"


def test_a_function_of_outcomes_is_a_metric(folder: Path) -> None:
    loaded = load_metric(name("top_three"), folder=folder)
    outcomes = outcomes_of([[1], [3], [4], [9]])
    assert loaded.title == "Share of queries with a relevant item in the top three."
    assert loaded.metric().value(outcomes) == 0.5
    assert loaded.metric().chance(outcomes) is None


def test_a_function_of_blocks_gets_scores_and_gives_a_value_per_query(folder: Path) -> None:
    loaded = load_metric(name("margin"), folder=folder)
    outcomes = outcomes_of([[1], [1], [2]])

    def blocks(_: object) -> Iterator[SimpleNamespace]:
        relevant = np.array([[True, False]])
        yield SimpleNamespace(rows=np.array([2]), scores=np.array([[0.25, 0.5]], np.float32), relevant=relevant)
        rows = np.array([0, 1])
        yield SimpleNamespace(
            rows=rows, scores=np.array([[1, 0.5], [1, 0]], np.float32), relevant=np.repeat(relevant, 2, axis=0)
        )

    assert loaded.metric(blocks).per_query(outcomes).tolist() == [0.5, 1.0, -0.25]
    with pytest.raises(ValueError, match="need the embeddings"):
        loaded.metric().per_query(outcomes)


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ("top_three", "module:function"),
        ("no_such_module_here:f", "cannot import 'no_such_module_here': ModuleNotFoundError"),
        (name("absent"), "no such function; it has top_three, margin"),
        (name("two"), r"takes \(outcomes, k\)"),
    ],
)
def test_a_request_that_cannot_be_met_says_why(folder: Path, requested: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        load_metric(requested, folder=folder)


@pytest.mark.parametrize(
    ("function", "message"),
    [("too_many", r"shape \(3,\)"), ("not_a_number", "query 0 is not finite"), ("words", "expected 2 numbers")],
)
def test_a_result_that_is_not_one_number_per_query_is_refused(folder: Path, function: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_metric(name(function), folder=folder).metric().per_query(outcomes_of([[1], [2]]))


def test_weights_apply_to_a_custom_metric(folder: Path) -> None:
    outcomes = replace(outcomes_of([[1], [9]]), weights=np.array([0.5, 1.5]))
    assert load_metric(name("top_three"), folder=folder).metric().value(outcomes) == 0.25


def test_the_documented_example_is_the_one_that_is_tested() -> None:
    example = [line.strip() for line in (custom.__doc__ or "").split("def margin(block):")[1].splitlines()[2:5]]
    tested = [line.strip() for line in MODULE.split("def margin(block):")[1].splitlines()[2:5]]
    assert example == tested
