"""Checks that every metric, analysis and corpus must pass; a package calls them on its own rows, in any test.

    from capim.tasks.contract import check_analysis, check_corpus, check_metric

    def test_my_rows(tmp_path):
        check_metric(MY_METRIC)
        check_corpus(lambda: read_mine(copy_in(tmp_path)))
        check_analysis(MY_ANALYSIS, read_mine(copy_in(tmp_path)))

An adapter is checked by ``capim check ENCODER`` (``tasks.encoders.conformance``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from capim.store.types import Corpus
from capim.store.vectors import unit_vectors
from capim.tasks.analyses.analysis import AnalysisInput, Slice
from capim.tasks.analyses.table import Analysis
from capim.tasks.corpora.images.decode import decode_image, image_sha
from capim.tasks.metrics import Metric
from capim.tasks.protocols import PROTOCOLS, Direction
from capim.tasks.ranking.outcomes import Outcomes, outcomes_of

RANKS = [[1, 4], [2, 9], [7, 8], [30, 31], [1, 2], [400, 990]]
SHUFFLED = [3, 5, 0, 2, 1, 4]
_SCORES = [[2, 1, 1, 2], [1, 1, 0, 1], [0, 2, 2, 0], [1, 1, 1, 1], [2, 2, 0, 1], [1, 0, 1, 0]]
_ROUNDING = 1e-9


def example(direction: Direction, order: Sequence[int] = range(6)) -> Outcomes:
    """Return six queries with ties, in an order."""
    if direction in ("pairs", "quadruples"):
        protocol = "winoground" if direction == "quadruples" else direction
        lost = outcomes_of([[1 + query % 2] for query in order], n_gallery=3, protocol=protocol)
        scores = np.array(_SCORES, dtype=np.float32)[list(order)]
        return replace(lost, rank_worst=lost.rank_best + 1, scores=scores)
    best = outcomes_of([RANKS[query] for query in order], protocol=f"{direction}/all")
    compared = np.array([RANKS[query][0] / 1000 for query in order])
    return replace(
        best,
        rank_worst=best.rank_best + 1,
        relevant_rank_worst=best.relevant_rank_worst + 1,
        reference_ndcg=compared,
        reference_rbo=compared,
    )


def examples(metric: Metric, order: Sequence[int] = range(6)) -> list[Outcomes]:
    """Return examples that a metric applies to: of its directions, with grades, in trec_eval's order, or neither."""
    plain = [example(direction, order) for direction in sorted(metric.directions)]
    graded = [_judged(each) for each in plain if each.protocol.is_retrieval]
    every = [*plain, *graded, *map(_as_trec_eval, graded)]
    special = [rule.protocol for rule in PROTOCOLS.values() if metric.name in rule.protocol.metrics]
    every += [replace(each, protocol=protocol) for protocol in special for each in every]
    return [each for each in every if metric.applies(each)]


def _judged(outcomes: Outcomes) -> Outcomes:
    """Return the same queries with a grade for each relevant item."""
    return replace(
        outcomes,
        protocol=replace(outcomes.protocol, kind="judged"),
        relevant_grades=np.array([2, 1] * len(outcomes), np.int32),
        relevant_scores=-outcomes.relevant_rank_best.astype(np.float32),
        unjudged=1 / outcomes.relevant_rank_best[::2].astype(np.float64),
    )


def _as_trec_eval(outcomes: Outcomes) -> Outcomes:
    """Return the same queries in trec_eval's order, which has no ties."""
    low, every = outcomes.rank_best, outcomes.relevant_rank_best
    return replace(outcomes, rank_worst=low, relevant_rank_worst=every, bpref=1 / low.astype(np.float64))


def check_metric(metric: Metric, outcomes: Sequence[tuple[Outcomes, Outcomes]] = ()) -> None:
    """Check a metric, by default on :func:`examples`.

    Args:
        metric: The row.
        outcomes: Other examples, of a metric that reads more: queries, and the same in the order ``SHUFFLED``.

    Raises:
        AssertionError: A rule is broken; the message names it.
        RequestError: Its values lie outside its bounds, or its value is no fraction though its unit is percent.
    """
    assert metric.title, "it has no title"
    assert metric.directions, "it has no directions"
    pairs = [*(outcomes or zip(examples(metric), examples(metric, SHUFFLED), strict=True))]
    assert pairs, "it applies to no example: give outcomes with the data it reads"
    for queries, shuffled in pairs:
        before = copy.deepcopy(queries)
        lost, expected, won = (metric.per_query(queries, ties) for ties in ("lost", "expected", "won"))
        assert metric.aggregate or expected.shape == (len(queries),), f"values have the shape {expected.shape}"
        np.testing.assert_array_equal(expected, metric.per_query(queries), "the same outcomes give other values")
        for name, values in vars(before).items():
            np.testing.assert_array_equal(getattr(queries, name), values, f"it changes {name} of the outcomes")
        if not metric.aggregate:
            low, high = (lost, won) if metric.higher_is_better else (won, lost)
            known = ~np.isnan(expected)
            assert (low[known] - _ROUNDING <= expected[known]).all(), "the expectation is below all ties lost"
            assert (expected[known] <= high[known] + _ROUNDING).all(), "the expectation is above all ties won"
        np.testing.assert_allclose(metric.per_query(shuffled), expected[SHUFFLED], 1e-12, err_msg="the order matters")
        value, chance = metric.value(queries), metric.chance(queries)
        lowest, highest = metric.bounds or (-np.inf, np.inf)
        for name, number in (("value", value), ("chance", value if chance is None else chance)):
            inside = lowest - _ROUNDING <= number <= highest + _ROUNDING
            assert inside or np.isnan(number), f"{name} is {number}, outside the bounds {metric.bounds}"
        assert chance is None or np.isfinite(chance), f"chance is {chance}; expected a number, or guess=None"


def check_analysis(analysis: Analysis, corpus: Corpus, *, dim: int = 16) -> list[Slice]:
    """Check the slices of an analysis on a corpus with random vectors of one encoder; return them.

    Raises:
        AssertionError: It has no slices, or some that its row does not name, that repeat, or with inconsistent numbers.
    """
    slices = [each for data in _inputs(analysis, corpus, dim) for each in analysis.run(data)]
    again = [each for data in _inputs(analysis, corpus, dim) for each in analysis.run(data)]
    assert slices, f"it has no slices of {corpus.name}: no protocol applies, or the corpus lacks the data it reads"
    assert analysis.measures or [*map(repr, slices)] == [*map(repr, again)], "the same input gives other slices"
    for each in slices:
        low, value, high = each.interval.low, each.interval.value, each.interval.high
        assert each.encoder == "random", f"{each} is of an encoder that it was not given"
        assert low is None or high is None or low <= value <= high, f"{each}: the value is outside its interval"
        assert low is not None or each.interval.reason, f"{each} has neither an interval nor a reason"
    return slices


def _inputs(analysis: Analysis, corpus: Corpus, dim: int) -> Iterator[AnalysisInput]:
    """Yield random vectors of a corpus under every protocol that the analysis applies to."""
    from capim.tasks.ranking.evaluate import evaluate  # torch
    from capim.tasks.ranking.protocols import protocols_of

    rng = np.random.default_rng(0)
    images, captions = (unit_vectors(rng.standard_normal((len(of), dim))) for of in (corpus.images, corpus.captions))
    chosen = [protocol for protocol in protocols_of(corpus) if analysis.applies(protocol)]
    for protocol, outcomes in evaluate(corpus, chosen, images=images, captions=captions).items():
        [of] = [each for each in chosen if each.id == protocol]
        yield AnalysisInput(corpus=corpus, protocol=of, outcomes={"random": outcomes})


def check_corpus(read: Callable[[], Corpus]) -> Corpus:
    """Check a corpus that a function reads, on a small copy of its files; return it.

    Raises:
        AssertionError: A rule is broken; the message names it.
    """
    corpus = read()
    assert read().fingerprint == corpus.fingerprint, "reading twice gives two fingerprints"
    assert corpus.licence, "it has no licence"
    assert corpus.origin, "it has no origin"
    source = corpus.source
    if source is None:
        return corpus
    for row in corpus.images.slice(0, 20).to_pylist():
        data, outside = source.read(row["key"]), f"../{row['key']}"
        assert image_sha(data) == row["sha"], f"image {row['id']!r} has another digest"
        assert decode_image(data).size == (row["width"], row["height"]), f"image {row['id']!r} has another size"
        try:
            source.read(outside)
        except OSError:
            continue
        raise AssertionError(f"the source reads {outside!r}, outside of its files: expected an OSError")
    return corpus
