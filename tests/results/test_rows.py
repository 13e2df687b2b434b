"""Rows of results and comparisons: what stands in them, and what stands there when something cannot be known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.reports.rows.standing import with_chance
from capim.store.errors import RequestError
from capim.store.schema import Replicates, Result
from capim.tasks.metrics import METRICS
from capim.tasks.metrics.metric import RETRIEVAL, Metric
from capim.tasks.metrics.table import Figure
from capim.tasks.ranking.outcomes import Outcomes, outcomes_of
from capim.tasks.results.combined import rsum_row
from capim.tasks.results.comparison import compared_figures, encoder_key, figure_rows
from capim.tasks.results.summary import ANY_SCORES, NOT_DEFINED, Evaluated, Source, replicate_rows, result_rows
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import FEW_HITS, NO_SPREAD, UNBOUNDED, cluster_robust_error, percentile_interval
from capim.tasks.statistics.pairs import IDENTICAL, compare_encoders
from tests.random_store import BEGUN
from tests.repeated import KINDS, assert_figures, repeated

Row = TypeVar("Row", Result, Replicates)

SOURCE = Source(
    evaluation="e", encoder="toy", encoder_fingerprint="f", corpus="shapes", corpus_fingerprint="c",
    image_tag="i@1", caption_tag="c@1", run="r",
)  # fmt: skip
RECALLS = [METRICS[name] for name in ("R@1", "R@5", "R@10")]
METRICS_OF_RANKS = [*RECALLS, METRICS["MRR"], METRICS["mean_rank"], METRICS["median_rank"]]


def draws(replicates: int) -> Resampling:
    """The seed of all tests here."""
    return Resampling(seed=7, replicates=replicates)


def evaluated(outcomes: Outcomes, metrics=RECALLS, *, drawn: int = 40) -> Evaluated:  # type: ignore[no-untyped-def]
    return Evaluated(outcomes=outcomes, metrics=metrics, source=SOURCE, drawn=drawn)


def rows_of(outcomes: Outcomes, metrics, replicates: int, *, drawn: int = 40) -> list[Any]:  # type: ignore[no-untyped-def]
    return result_rows([evaluated(outcomes, metrics, drawn=drawn)], draws(replicates))


def undated(rows: Sequence[Row]) -> list[Row]:
    return [replace(row, created=BEGUN) for row in rows]


def captions(n_images: int = 40, per_image: int = 5, *, seed: int = 1, skill: float = 3.0) -> Outcomes:
    """Text-to-image outcomes whose ranks spread around ``skill``, some of them tied."""
    rng = np.random.default_rng(seed)
    ranks = rng.geometric(1 / skill, n_images * per_image)
    outcomes = outcomes_of([[r] for r in ranks], n_gallery=500, protocol="t2i/all")
    ties = (rng.random(len(ranks)) < 0.2).astype(np.int32)
    clusters = np.repeat(np.arange(n_images, dtype=np.int32), per_image)
    return replace(outcomes, clusters=clusters, rank_worst=outcomes.rank_worst + ties)


def test_ties_lost_and_won_are_weighted_as_the_value_is() -> None:
    """Folds and categories of unequal size count alike: all three figures of a row are means of one kind."""
    outcomes = captions()
    weights = np.where(np.arange(len(outcomes)) < 40, 3.0, 0.5)
    [row] = rows_of(replace(outcomes, weights=weights), RECALLS[:1], 50)
    for column, hits in (("value_ties_lost", outcomes.rank_worst <= 1), ("value_ties_won", outcomes.rank_best <= 1)):
        assert getattr(row, column) == pytest.approx(np.average(hits, weights=weights))
    assert row.value_ties_lost < row.value < row.value_ties_won


def test_every_result_row_holds_its_value_between_its_ends_but_a_mean_rank_has_none() -> None:
    rows = rows_of(captions(), METRICS_OF_RANKS, 500)
    for metric, row in zip(METRICS_OF_RANKS, rows, strict=True):
        assert row.value == metric.value(captions())
        method = {"mean_rank": "none", "median_rank": "woodruff", "R@10": "none"}.get(row.metric, "wilson")
        assert method == "none" or row.ci_low <= row.value <= row.ci_high, row
        worst, best = sorted((row.value_ties_lost, row.value_ties_won))
        assert worst <= row.value <= best
        assert (row.seed, row.interval_method, row.replicates, row.level) == (None, method, None, 0.95), (
            "nothing is drawn"
        )
        reason = {"mean_rank": UNBOUNDED, "R@10": FEW_HITS.format(n=3.5)}.get(row.metric)
        assert (row.n_queries, row.n_clusters, row.reason) == (200, 40, reason)
        assert row.tie_share == pytest.approx(0.2, abs=0.1)


@pytest.mark.parametrize(
    ("method", "of_others"), [("wilson", ["wilson", "none", "woodruff"]), ("percentile", ["percentile"] * 3)]
)
def test_shares_have_wilsons_interval_unless_another_is_requested(method: Any, of_others: list[str]) -> None:
    outcomes = captions(skill=5.0)
    rows = result_rows([evaluated(outcomes, METRICS_OF_RANKS)], replace(draws(300), method=method))
    methods = {row.metric: row.interval_method for row in rows}
    assert {(row.seed, row.replicates) for row in rows} == {(None, None) if method == "wilson" else (7, 300)}
    assert [methods.pop(metric.name) for metric in RECALLS] == [method] * 3
    assert [methods[name] for name in ("MRR", "mean_rank", "median_rank")] == of_others
    if method == "wilson":
        clusters = Clusters.of(outcomes.clusters, 40)
        robust = [cluster_robust_error(metric.per_query(outcomes), clusters) for metric in RECALLS]
        assert [row.standard_error for row in rows[:3]] == pytest.approx(robust)


@pytest.mark.parametrize("method", ["wilson", "percentile"])
def test_what_is_said_of_chance_does_not_depend_on_the_level_of_the_intervals(method: Any) -> None:
    guesser = outcomes_of([[1 + k % 50] for k in range(100)], n_gallery=50)
    for outcomes, expected in ((captions(), "better"), (guesser, "open")):
        for level in (0.5, 0.95, 0.999):
            how = replace(draws(2000), method=method, level=level)
            rows = with_chance(result_rows([evaluated(outcomes, METRICS_OF_RANKS, drawn=100)], how))
            labels = {row.metric: row.against_chance for row in rows}
            assert labels["R@1"] == expected
            assert {label for metric, label in labels.items() if metric != "R@1"} <= {expected, None}


@pytest.mark.parametrize(("rank", "value"), [(1, 1.0), (7, 0.0)])
def test_one_query_says_nothing_of_chance(rank: int, value: float) -> None:
    """A hit was better than chance, a miss below chance: without an interval the point decided."""
    [row] = rows_of(outcomes_of([[rank]], n_gallery=50), RECALLS[:1], 50, drawn=1)
    assert (row.value, row.ci_low, row.chance, row.p_chance) == (value, None, 1 / 50, None)


def test_a_value_that_any_scores_have_gets_no_interval() -> None:
    """R@10 among ten items is 1 by definition; of eleven it says something, but not with 40 hits and no miss."""
    ten = outcomes_of([[1 + k % 10] for k in range(40)], n_gallery=10, protocol="t2i/all")
    [row] = rows_of(ten, [METRICS["R@10"]], 50)
    assert (row.value, row.chance) == (1.0, 1.0)
    assert (row.ci_low, row.ci_high) == (None, None)
    assert row.reason == ANY_SCORES
    [row] = rows_of(replace(ten, n_gallery=ten.n_gallery + 1), [METRICS["R@10"]], 50)
    assert (row.ci_low, row.reason) == (None, FEW_HITS.format(n=0.0))


def test_ranks_and_agreement_with_the_reference_language_are_no_shares() -> None:
    """The reference language agrees with itself by definition, and a mean rank of 1 is not 40 hits of 40."""
    first = outcomes_of([[1]] * 40, n_gallery=500, protocol="t2i/en/google")
    same = replace(first, reference_ndcg=np.ones(40), reference_rbo=np.ones(40))
    names = ("consistency_nDCG@20", "consistency_RBO", "mean_rank", "median_rank")
    *rows, median = rows_of(same, [METRICS[name] for name in names], 50)
    for row in rows:
        found = [row.value, row.ci_low, row.ci_high, row.interval_method, row.reason]
        reason = UNBOUNDED if row.metric == "mean_rank" else FEW_HITS.format(n=0.0)
        assert found == [1.0, None, None, "none", reason], row.metric
    assert (median.ci_low, median.interval_method, median.reason) == (None, "none", NO_SPREAD)


def outcomes_by(encoder: str, outcomes: Outcomes, fingerprint: str = "") -> dict[str, Outcomes]:
    return {encoder_key(encoder, fingerprint or encoder): outcomes}


def compared(*encoders: dict[str, Outcomes], metrics=RECALLS, **change):  # type: ignore[no-untyped-def]
    figures = compared_figures({key: of for each in encoders for key, of in each.items()}, metrics, 40)
    request = {"corpus": "shapes", "corpus_fingerprint": "c", "run": "r"}
    return figure_rows(figures, **{**request, "resampling": replace(draws(300), permutations=300), **change})


X, Y, Z = (outcomes_by(name, captions(seed=seed), name.upper()) for name, seed in (("x", 1), ("y", 2), ("z", 3)))


def test_every_pair_and_metric_has_a_comparison() -> None:
    rows = compared(X, Y, Z)
    assert len(rows) == 9
    assert [(r.encoder_a, r.encoder_b) for r in rows[:3]] == [("x", "y"), ("x", "z"), ("y", "z")]
    for row in rows:
        assert row.ci_low <= row.difference <= row.ci_high
        assert row.p_adjusted >= row.p_sign_flip
        assert (row.fingerprint_a, row.fingerprint_b) == (row.encoder_a.upper(), row.encoder_b.upper())
        assert row.wins + row.ties + row.losses == row.n_queries == 200
        assert (row.seed, row.interval_method) == (7, "t")
        assert row.permutations == 300 or row.p_exact
    assert len({row.comparison for row in rows}) == 9
    assert compared(X) == []


def test_exchanging_two_encoders_changes_signs_and_nothing_else() -> None:
    for metric in (METRICS["R@1"], METRICS["median_rank"]):
        [ab], [ba] = (compared(*pair, metrics=[metric]) for pair in ((X, Y), (Y, X)))
        opposite = -ba.difference, ba.ci_high and -ba.ci_high, ba.ci_low and -ba.ci_low
        assert (ab.difference, ab.ci_low, ab.ci_high) == pytest.approx(opposite)
        assert (ab.wins, ab.losses, ab.p_sign_flip) == (ba.losses, ba.wins, ba.p_sign_flip)


def test_a_lower_median_rank_wins() -> None:
    good, bad = (outcomes_by(n, captions(skill=s)) for n, s in (("g", 2.0), ("b", 30.0)))
    [row] = compared(good, bad, metrics=[METRICS["median_rank"]])
    assert row.difference < 0 and row.wins > row.losses
    assert (row.ci_low, row.p_sign_flip, row.p_adjusted) == (None, None, None)


def test_comparisons_by_the_headline_are_marked_and_equivalence_is_tested_within_the_margin() -> None:
    metrics = [METRICS[name] for name in ("R@1", "MRR", "median_rank")]
    recall, reciprocal, rank = compared(X, Y, metrics=metrics, headline=[Figure("t2i/all", "R@1")])
    assert [row.family for row in (recall, reciprocal, rank)] == ["headline", "exploratory", "exploratory"]
    assert (recall.margin, reciprocal.margin, rank.margin, rank.p_equivalent) == (0.01, 0.01, None, None)
    [wide] = compared(X, Y, metrics=metrics[:1], resampling=replace(draws(300), margin=50.0))
    assert wide.margin == 0.5
    assert wide.p_equivalent < 0.001 < recall.p_equivalent


def test_identical_encoders_have_a_reason_instead_of_a_test() -> None:
    nothing = ("ci_low", "ci_high", "p_sign_flip", "p_adjusted", "cohen_dz", "detectable_effect")
    metrics = [METRICS["R@1"], METRICS["median_rank"]]
    for row in compared(X, outcomes_by("y", captions()), metrics=metrics):
        assert (row.difference, [getattr(row, n) for n in nothing]) == (0.0, [None] * 6)
        assert row.reason == IDENTICAL


def test_different_query_sets_are_an_error_that_names_both() -> None:
    with pytest.raises(RequestError, match=r"'x' and 'y' have different query sets under 't2i/all' \(200 and 195"):
        compared(X, outcomes_by("y", captions(39)))
    with pytest.raises(ValueError, match=r"encoder 'y': values have shape \(2,\)"):
        compare_encoders({"x": [1, 0, 1], "y": [1, 0]}, Clusters.of([0, 1, 2]), draws(50))


def test_kept_replicates_are_those_behind_the_results_row_and_subtract_to_the_paired_interval() -> None:
    metrics = [METRICS["R@1"], METRICS["median_rank"]]
    first, second = (captions(seed=s) for s in (1, 2))
    resampling = replace(draws(300), method="percentile")
    kept = [replicate_rows(evaluated(outcomes, metrics), resampling) for outcomes in (first, second)]
    results = result_rows([evaluated(first, metrics)], resampling)
    assert [row.result for row in kept[0]] == [row.result for row in results]
    for row, result in zip(kept[0], results, strict=True):
        assert len(row.replicate_values) == 300
        assert np.quantile(row.replicate_values, [0.025, 0.975]).tolist() == [result.ci_low, result.ci_high]
    hits = {"x": metrics[0].per_query(first), "y": metrics[0].per_query(second)}
    [pair] = compare_encoders(hits, Clusters.of(first.clusters, 40), resampling)
    x, y = (np.array(rows[0].replicate_values) for rows in kept)
    subtracted = percentile_interval(pair.difference.value, x - y, level=0.95)
    assert (subtracted.low, subtracted.high) == (pair.difference.low, pair.difference.high)


def test_rsum_adds_both_directions_with_the_interval_of_the_sum() -> None:
    t2i = captions(60)
    i2t = outcomes_of([[r] for r in np.random.default_rng(3).geometric(0.4, 60)], n_gallery=300)
    how: dict[str, Any] = {"drawn": 60, "resampling": replace(draws(400), method="percentile")}
    row: Any = rsum_row(t2i, i2t, SOURCE, **how)
    assert row.value_ties_lost < row.value < row.value_ties_won
    kept = [replicate_rows(evaluated(outcomes, drawn=60), draws(400)) for outcomes in (t2i, i2t)]
    values: list[Any] = [row.replicate_values for rows in kept for row in rows]
    drawn = 100 * np.sum(values, axis=0)
    assert (row.ci_low, row.ci_high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=1e-9)
    usual = rsum_row(t2i, i2t, SOURCE, drawn=60, resampling=draws(400))
    assert usual.interval_method == "wilson"
    assert (usual.ci_low, usual.ci_high) == pytest.approx((row.ci_low, row.ci_high), abs=3)


# A metric that does not apply to some queries: its rows are those of the other queries alone, in every table.


def hit_where_known(outcomes: Outcomes, _: object) -> NDArray[np.float64]:
    """R@1, but of queries of the first 25 images only, without every seventh."""
    hits = (outcomes.rank_best == 1).astype(np.float64)
    hits[(outcomes.clusters >= 25) | (outcomes.query_ords % 7 == 0)] = np.nan
    return hits


SOME = Metric(name="m:some", title="", directions=RETRIEVAL, values=hit_where_known, guess=None, of_user=True)
NONE = replace(SOME, name="m:none", values=lambda o, _: np.full(len(o), np.nan))
WHOLE = replace(SOME, name="m:some", values=lambda o, _: (o.rank_best == 1).astype(np.float64))
SPREAD = replace(SOME, name="m:spread", reduce=lambda values: float(np.ptp(values)))


def known(outcomes: Outcomes) -> Outcomes:
    """The outcomes of the queries that ``SOME`` applies to (of queries with one relevant item)."""
    rows = ~np.isnan(hit_where_known(outcomes, None))
    arrays: dict[str, Any] = {n: v[rows] for n, v in vars(outcomes).items() if isinstance(v, np.ndarray)}
    return replace(outcomes, **arrays)


def plain_rows(outcomes: Outcomes, metric: Metric) -> list[Result]:
    return [replace(row, tie_share=None) for row in undated(rows_of(outcomes, [metric], 400))]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [{}, {"reduce": "median"}, {"share": True, "bounds": (0.0, 1.0)}])
def test_a_result_is_that_of_the_known_queries_alone(weighted: bool, kind: Any) -> None:
    outcomes = captions()
    if weighted:
        outcomes = replace(outcomes, weights=np.where(outcomes.query_ords < 60, 2.0, 0.25))
    [row] = plain_rows(outcomes, replace(SOME, **kind))
    assert [row] == plain_rows(known(outcomes), replace(WHOLE, **kind))
    assert (row.n_queries, row.n_clusters) == (len(known(outcomes)), 25)


def test_a_metric_that_applies_to_no_query_has_no_row_and_stops_nothing() -> None:
    assert [row.metric for row in rows_of(captions(), [NONE, *RECALLS], 100)] == ["R@1", "R@5", "R@10"]
    assert np.isnan(NONE.value(captions()))


def test_kept_replicates_are_of_the_known_queries_and_none_where_there_are_none() -> None:
    outcomes = captions()
    tables = [
        replicate_rows(evaluated(of, [metric, NONE]), draws(200))
        for of, metric in ((outcomes, SOME), (known(outcomes), WHOLE))
    ]
    assert undated(tables[0]) == undated(tables[1])


def compared_by(metric: Metric, *outcomes: Outcomes) -> list[Any]:
    encoders = [outcomes_by(name, each) for name, each in zip("xyz", outcomes, strict=False)]
    return compared(*encoders, metrics=[metric])


def test_an_encoder_without_any_value_is_not_compared_by() -> None:
    def of_the_skilled(outcomes: Outcomes, _: object) -> NDArray[np.float64]:
        return np.where(outcomes.rank_best.mean() < 10, outcomes.rank_best, np.nan).astype(np.float64)

    metric = replace(SOME, name="m:skilled", values=of_the_skilled)
    rows = compared_by(metric, captions(seed=1), captions(seed=2, skill=90.0), captions(seed=3))
    assert [(row.encoder_a, row.encoder_b) for row in rows] == [("x", "z")]


def test_an_aggregate_that_is_not_defined_is_null_with_a_reason() -> None:
    [row] = plain_rows(captions(), replace(SPREAD, reduce=lambda _: float("nan")))
    assert (row.value, row.ci_low, row.reason) == (None, None, NOT_DEFINED)


@pytest.mark.parametrize("kind", KINDS)
def test_figures_of_a_corpus_where_an_image_repeats_another_and_some_are_named_by_nothing_are_numpys(kind: str) -> None:
    assert_figures(repeated(KINDS[kind]()))
