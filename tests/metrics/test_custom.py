"""A user's metric: how it is found, what it sees, what it may return, and what its mistakes look like."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, QuadrupleRow, build_corpus
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.metrics import Metric, custom
from capim.tasks.metrics.custom import OwnValues, QueryOutcomes, bound, load_metric, with_judgements
from capim.tasks.ranking.outcomes import outcomes_of
from tests.ranking.conftest import score_dense, small_corpus, tasks_of, unit


def loaded(folder: Path, text: str, request: str = "own.py:metric") -> Metric:
    """The metric of a file with this text."""
    file = folder / request.partition(":")[0]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return load_metric(request, folder=folder)


BODY = "def metric(outcomes):\n"
RIGHT = f'{BODY}    """The right ones."""\n    return outcomes.rank_worst == 1\n'
MARGIN = '''
import numpy as np


def margin(block):
    """How far the best relevant item is ahead of the best other one."""
    own = np.where(block.relevant, block.scores, -np.inf).max(axis=1)
    other = np.where(block.relevant, -np.inf, block.scores).max(axis=1)
    return own - other
'''


def test_a_function_of_blocks_gets_scores_and_gives_a_value_per_query(tmp_path: Path) -> None:
    metric = loaded(tmp_path, MARGIN, "own.py:margin")
    example = [line.strip() for line in (custom.__doc__ or "").split("def margin(block):")[1].splitlines()[2:5]]
    assert example == [line.strip() for line in MARGIN.splitlines()[-3:]], "the documented one"
    outcomes = outcomes_of([[1], [1], [2]])

    def blocks(_: object) -> Iterator[SimpleNamespace]:
        for rows, scores in (([2], [[0.25, 0.5]]), ([0, 1], [[1, 0.5], [1, 0]])):
            relevant = np.repeat([[True, False]], len(rows), axis=0)
            yield SimpleNamespace(rows=np.array(rows), scores=np.array(scores, np.float32), relevant=relevant)

    assert bound(metric, blocks=blocks).per_query(outcomes).tolist() == [0.5, 1.0, -0.25]
    with pytest.raises(ValueError, match="need the embeddings"):
        metric.per_query(outcomes)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("[0.0] * (len(outcomes) + 1)", r"shape \(3,\)"),
        ("[0.0, float('inf')]", "query 'q1' is infinite; return NaN where the metric does not apply"),
        ("['a'] * len(outcomes)", "expected 2 numbers"),
        ("dict.fromkeys(outcomes.query_id, 1.0)", "returned dict, expected 2 numbers"),
        ("pandas.Series([1.0, 2.0, 3.0])", r"shape \(3,\), expected one number per query"),
        ("pandas.DataFrame({'value': [1.0, 2.0]})", r"shape \(2, 1\), expected one number per query"),
        ("pandas.Series([1.0, 2.0], index=[1, 0])", r"Series of length 2 with an index \(1, …\) that does not"),
        (
            "pandas.Series([1.0], index=outcomes.query_id[:1])",
            r"of length 1 with an index \('q0', …\) that does not name",
        ),
        ("pandas.Series([1.0, 2.0], index=['q1', 'q1'])", "each of the 2 queries once; use outcomes.query_id"),
    ],
)
def test_a_result_that_is_not_one_number_per_query_is_refused(tmp_path: Path, returned: str, message: str) -> None:
    metric = loaded(tmp_path, f"import pandas\n{BODY}    return {returned}\n")
    with pytest.raises(ValueError, match=message):
        metric.per_query(outcomes_of([[1], [2]]))


@pytest.mark.parametrize("order", ["[::-1]", ".sort_values(ascending=False)", ".reset_index(drop=True)"])
def test_a_series_is_read_by_the_queries_that_its_index_names(tmp_path: Path, order: str) -> None:
    series = f"pandas.Series(outcomes.rank_best, index=outcomes.query_id){order}"
    frame = f"pandas.DataFrame({{'of': {series}, 'by': {series} + 1}})\nmetric.aggregate = max"
    for returned, values in ((series, [4, 9, 2]), (frame, [[4, 5], [9, 10], [2, 3]])):
        metric = loaded(tmp_path, f"import pandas\n{BODY}    return {returned}\n")
        assert metric.per_query(outcomes_of([[4], [9], [2]])).tolist() == values


def test_weights_and_ties_apply_to_a_custom_metric(tmp_path: Path) -> None:
    metric = loaded(tmp_path, RIGHT)
    outcomes = replace(outcomes_of([[1], [9]]), weights=np.array([0.5, 1.5]))
    assert (metric.value(outcomes), metric.chance(outcomes)) == (0.25, None)
    tied = replace(outcomes_of([[1], [3]]), rank_worst=np.array([9, 9], dtype=np.int32))
    assert [metric.value(tied, ties) for ties in ("lost", "expected", "won")] == [0.0, 0.0, 0.5]  # type: ignore[arg-type]


# --- how it is found -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("file", ["metrics.py", "tasks.py", "store.py", "numpy.py", "deep/er/metrics.py"])
def test_a_file_is_never_taken_for_a_module_of_the_same_name(tmp_path: Path, file: str) -> None:
    before = {name: sys.modules.get(name) for name in ("metrics", "tasks", "store", "numpy")}
    metric = loaded(tmp_path, RIGHT, f"{file}:metric")
    assert (metric.name, metric.title) == (f"{Path(file).stem}:metric", "The right ones.")
    assert metric.value(outcomes_of([[1], [2]])) == 0.5
    assert {name: sys.modules.get(name) for name in before} == before
    if "/" not in file:
        values = load_metric(f"{Path(file).stem}:metric", folder=tmp_path).values
        assert isinstance(values, OwnValues)
        assert values.file == str(tmp_path / file)


def test_a_file_imports_what_lies_beside_it_and_is_read_again_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_metric_of_this_test.py").write_text("LIMIT = 3\n")
    text = "from beside_the_metric_of_this_test import LIMIT\n"
    text += "def metric(outcomes):\n    return outcomes.rank_best <= LIMIT\n"
    outcomes = outcomes_of([[1], [2], [3], [4]])
    assert loaded(tmp_path, text).value(outcomes) == 0.75
    assert loaded(tmp_path, text.replace("<= LIMIT", "<  LIMIT")).value(outcomes) == 0.5
    assert str(tmp_path) not in sys.path
    monkeypatch.syspath_prepend(tmp_path)  # as of a script in this folder
    assert loaded(tmp_path, text).value(outcomes) == 0.75
    assert sys.path.index(str(tmp_path)) == 0


def test_any_callable_is_a_metric_and_options_are_part_of_its_name(tmp_path: Path) -> None:
    text = '''
import functools

def at(outcomes, k, *, strict=False):
    """Found among the first k."""
    return outcomes.rank_worst < k if strict else outcomes.rank_worst <= k

at_2 = functools.partial(at, k=2)

class At:
    """Found among the first k, as a class."""
    def __init__(self, k=1):
        self.k = k
    def __call__(self, outcomes):
        return outcomes.rank_worst <= self.k

at_4 = At(4)
'''
    outcomes = outcomes_of([[1], [2], [3], [4]])
    found = {
        request: (metric.name, metric.value(outcomes), metric.title)
        for request in ("at(k=3)", "at( strict=True,k=3 )", "at_2", "at_2(k=3)", "At", "At(k=2)", "at_4")
        if (metric := loaded(tmp_path, text, f"own.py:{request}"))
    }
    first, second = "Found among the first k.", "Found among the first k, as a class."
    assert found == {
        "at(k=3)": ("own:at(k=3)", 0.75, first),
        "at( strict=True,k=3 )": ("own:at(k=3, strict=True)", 0.5, first),
        "at_2": ("own:at_2", 0.5, first),
        "at_2(k=3)": ("own:at_2(k=3)", 0.75, first),
        "At": ("own:At", 0.25, second),
        "At(k=2)": ("own:At(k=2)", 0.5, second),
        "at_4": ("own:at_4", 1.0, second),
    }


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("own.py:at", r"takes \(outcomes, k\); .* need a default or a value: own.py:at\(option=value\)"),
        ("own.py:at(k=open)", "option k must be a literal .* got open"),
        ("own.py:at(3)", "must be module:function or path.py:function"),
        ("own.py:at(k=3, j=1)", "has no option j; its options: k"),
        ("own.py:corpus_only", "must take outcomes or block"),
        ("own.py:absent", "has no such function; it has at, corpus_only"),
        ("other.py:at", "there is no file .*other.py"),
        ("own.py", "must be module:function"),
        ("no_such_module_here:f", "cannot import 'no_such_module_here': ModuleNotFoundError"),
        ("os.path:join(a=1)", r"has no option a|takes"),
    ],
)
def test_a_request_that_does_not_fit_names_what_does(tmp_path: Path, request_: str, message: str) -> None:
    (tmp_path / "own.py").write_text("def at(outcomes, k): ...\ndef corpus_only(corpus): ...\n")
    with pytest.raises(RequestError, match=message):
        load_metric(request_, folder=tmp_path)


# --- what its mistakes look like -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{BODY}    shift = 0\n    return 1 / shift", r"ZeroDivisionError: .*own\.py line 3: return 1 / shift"),
        (f"{BODY}    return outcomes['rank_high']", r"KeyError: .* no column 'rank_high'; .* line 2: return"),
        (f"{BODY}    return outcomes.ranks", r"AttributeError: .* no 'ranks'; .* query_texts.* line 2"),
        (f"import not_here_at_all\n{BODY}    ...", r"ModuleNotFoundError: .*, at .*own\.py line 1: import"),
        (f"{BODY}    return (", r"SyntaxError: .*, at .*own\.py line 2"),
        (f"{BODY}    return outcomes.items", r"have no corpus.* line 2"),
    ],
)
def test_a_mistake_shows_the_users_own_line_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as raised:
        loaded(tmp_path, text).value(outcomes_of([[1], [2]]))
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is not None


# --- what it sees ----------------------------------------------------------------------------------------------------
def test_columns_are_items_and_attributes_alike() -> None:
    outcomes = QueryOutcomes(outcomes_of([[1, 3], [7]]))
    for values in (outcomes["rank_worst"], outcomes.rank_worst):
        assert (values <= 3).tolist() == [True, False]
    assert outcomes["query_id"].tolist() == outcomes.query_id.tolist() == ["q0", "q1"]
    assert outcomes.cluster.tolist() == outcomes["query_ord"].tolist() == [0, 1]
    assert outcomes.top_ords is None
    second = outcomes.at(np.array([1]))
    assert (len(second), second.relevant_rank_best.tolist(), second.query_id.tolist()) == (1, [7], ["q1"])


def scored(corpus: Corpus, protocol: str) -> QueryOutcomes:
    """Random embeddings of a corpus under one protocol."""
    rng = np.random.default_rng(3)
    images, captions = (unit(rng.standard_normal((len(part), 6))) for part in (corpus.images, corpus.captions))
    return QueryOutcomes(score_dense(images, captions, tasks_of(corpus, protocol))[protocol], corpus)


def test_texts_languages_and_items_are_those_of_the_queries_and_the_gallery() -> None:
    corpus = small_corpus([2, 1])
    to_images, to_captions = scored(corpus, "t2i/all"), scored(corpus, "i2t/any")
    assert to_images.query_texts.tolist() == ["caption 0 of 0", "caption 1 of 0", "caption 0 of 1"]
    assert to_images.languages.tolist() == ["en"] * 3
    assert set(to_images.items[to_images.top_ords[:, 0]]) <= {"i0", "i1"}
    assert (to_captions.query_texts.tolist(), to_captions.languages.tolist()) == ([None, None], [None, None])
    assert to_captions.items.tolist() == ["c0.0", "c0.1", "c1.0"]
    assert to_images.corpus is corpus
    images = [ImageRow(id=name) for name in "ab"]
    captions = [CaptionRow(id=f"c{name}", image_id=name, text=f"about {name}") for name in "ba"]
    both = build_corpus("both", images, captions, source=None, quadruples=[QuadrupleRow("q", "a", "b", "ca", "cb")])
    quadruples = scored(both, "winoground")
    assert (quadruples.query_texts.tolist(), quadruples.languages.tolist()) == (["about a"], ["en"])
    with pytest.raises(RequestError, match="'winoground' searches no items"):
        _ = quadruples.items


def test_a_block_comes_with_the_outcomes_of_its_queries_and_the_corpus(tmp_path: Path) -> None:
    text = "def metric(block, outcomes, corpus): return 10 * block.rows + outcomes.query_ord + len(corpus.images)\n"
    blocks = [SimpleNamespace(rows=np.array([2, 0])), SimpleNamespace(rows=np.array([1]))]
    metric = bound(loaded(tmp_path, text), small_corpus([1, 1, 1]), lambda _: blocks)
    assert metric.per_query(outcomes_of([[1], [1], [1]])).tolist() == [3, 14, 25]


# --- what it may return ----------------------------------------------------------------------------------------------
def test_nan_is_does_not_apply(tmp_path: Path) -> None:
    text = f"import numpy as np\n{BODY}    return np.where(outcomes.rank_best < 9, outcomes.rank_best, np.nan)\n"
    metric = loaded(tmp_path, text)
    assert metric.value(outcomes_of([[1], [4], [9]])) == 2.5
    assert np.isnan(metric.value(outcomes_of([[9], [10]])))


def test_an_aggregate_replaces_the_mean_and_may_take_several_numbers_per_query(tmp_path: Path) -> None:
    text = '''
import numpy as np
from scipy.stats import kendalltau

def metric(outcomes):
    """Do larger galleries mean worse ranks?"""
    return np.column_stack([outcomes.rank_best, outcomes.query_ord])

metric.aggregate = lambda values: kendalltau(values[:, 0], values[:, 1]).statistic
metric.lower_is_better = True

class Median:
    def __call__(self, outcomes):
        return outcomes.rank_best
    def aggregate(self, values):
        return np.median(values)
'''
    tau = loaded(tmp_path, text)
    assert tau.value(outcomes_of([[1], [2], [5]])) == 1.0
    assert np.isnan(tau.value(outcomes_of([[5], [5], [5]])))
    assert not tau.higher_is_better
    assert loaded(tmp_path, text, "own.py:Median").value(outcomes_of([[1], [2], [9]])) == 2.0
    with pytest.raises(RequestError, match=r"shape \(2, 2\), expected one number per query"):
        loaded(tmp_path, text.replace(".aggregate", ".other")).value(outcomes_of([[1], [2]]))
    broken = loaded(tmp_path, text.replace("values[:, 1]", "values[:, 7]"))
    with pytest.raises(RequestError, match=r"aggregate: IndexError: .* line 9"):
        broken.value(outcomes_of([[1], [2]]))


# --- R@1 with a user's judgements -------------------------------------------------------------------------------------
def test_a_first_item_that_the_user_judged_right_counts_in_both_directions(tmp_path: Path) -> None:
    corpus = read_shapes(n_scenes=3)
    captions, images = (table["id"].to_pylist() for table in (corpus.captions, corpus.images))
    file = tmp_path / "own.csv"
    file.write_text(
        "corpus,direction,query_id,item_id\n"
        f"{corpus.name},t2i,{captions[0]},{images[2]}\n"
        f"{corpus.name},i2t,{images[1]},{captions[4]}\n"
        "another,t2i,x,y\n"
    )
    metric = with_judgements(file)
    assert metric.name == "own:R@1"

    def right(ranks: list[int], asked: list[str | None], first: list[int], **how: Any) -> list[float]:
        of_ranks = outcomes_of([[rank] for rank in ranks], **how)
        lists: Any = {"top_ords": np.array([first], np.int32).T, "top_scores": np.ones((len(first), 1), np.float32)}
        outcomes = replace(of_ranks, query_ids=np.array(asked, dtype=object), **lists)
        return bound(metric, corpus).per_query(outcomes).tolist()

    asked = [captions[0], captions[4], captions[2]]
    to_images = {"n_gallery": 3, "protocol": "t2i/all"}
    assert right([2, 2, 1], asked, [2, 1, 2], **to_images) == [1.0, 1.0, 1.0]
    assert right([2, 2, 1], asked, [1, 2, 2], **to_images) == [0.0, 0.0, 1.0]
    assert right([2, 2], [images[1], images[2]], [4, 0], n_gallery=15) == [1.0, 1.0]


def test_a_judgement_of_what_the_corpus_lacks_is_refused_and_another_corpus_is_left_out(tmp_path: Path) -> None:
    corpus = read_shapes(n_scenes=3)
    file = tmp_path / "own.csv"
    outcomes = replace(
        outcomes_of([[1]], n_gallery=3, protocol="t2i/all"),
        top_ords=np.array([[0]], dtype=np.int32),
        top_scores=np.ones((1, 1), dtype=np.float32),
    )
    file.write_text("corpus,direction,query_id,item_id\nanother,t2i,x,y\n")
    assert np.isnan(bound(with_judgements(file), corpus).per_query(outcomes)).all()
    file.write_text(f"corpus,direction,query_id,item_id\n{corpus.name},t2i,nobody,{corpus.images['id'][0]}\n")
    with pytest.raises(RequestError, match="nobody"):
        bound(with_judgements(file), corpus).per_query(outcomes)
