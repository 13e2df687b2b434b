"""One interval says everything of a pair, and what is seen at once shares one budget."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from capim.reports.elements import words
from capim.reports.rows.report_data import reversed_comparison
from capim.reports.rows.standing import decision_of, with_one_budget
from capim.store.types import MetricFacts
from capim.tasks.metrics.table import Figure
from capim.tasks.results.comparison import ComparedFigure, figure_rows
from capim.tasks.statistics.chance import FirstHits, chance_p, labels_p
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import (
    ALPHA,
    SHARERS,
    BesideChance,
    adjusted,
    against_chance,
    decide,
    over_families,
)
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.pairs import HEAVY, Scale, compare_encoders
from capim.tasks.statistics.ranking import RankSet, rank_encoders, rank_sets

OPPOSITE = {"better": "worse", "worse": "better", "equivalent": "equivalent", "undecided": "undecided"}
FIGURES = [Figure("t2i/all", "R@1"), Figure("i2t/any", "R@1"), Figure("winoground", "winoground_group")]
p_values = st.one_of(st.none(), st.sampled_from([0.0001, 0.004, 0.012, 0.02, 0.026, 0.04, 0.3, 1.0]), st.floats(0, 1))


def rows_of(values: Sequence[np.ndarray], clusters: Clusters, resampling: Resampling, **scale: Any) -> list[Any]:
    """Comparisons by several planned figures, of encoders with values of shape ``(n_encoders, n_queries)``."""
    figures = [
        ComparedFigure(
            figure=figure,
            version="1",
            values={f"e{i}@f{i}": row for i, row in enumerate(of_figure)},
            clusters=clusters,
            scale=Scale(**scale),
        )
        for figure, of_figure in zip(FIGURES, values, strict=False)
    ]
    return figure_rows(figures, corpus="c", corpus_fingerprint="f", run="r", resampling=resampling, headline=FIGURES)


@given(
    n_encoders=st.integers(2, 4),
    n_figures=st.integers(1, 3),
    sizes=st.lists(st.sampled_from([1, 1, 1, 2, 5, 40]), min_size=4, max_size=40),
    lower=st.booleans(),
    better_by=st.sampled_from([0.0, 0.3, 0.9]),
    margin=st.sampled_from([1.0, 40.0, 90.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_no_two_statements_of_a_pair_contradict_each_other(
    n_encoders: int, n_figures: int, sizes: list[int], lower: bool, better_by: float,
    margin: float, seed: int,
) -> None:  # fmt: skip
    rng, clusters = np.random.default_rng(seed), Clusters.of(np.repeat(np.arange(len(sizes)), sizes))
    values = rng.integers(0, 3, (n_figures, n_encoders, clusters.n_queries)) / 2
    values[:, 0] = np.where(rng.random(clusters.n_queries) < better_by, 1.0, values[:, 0])
    values[:, -1] = np.where(rng.random(clusters.n_queries) < 0.5, values[:, 0], values[:, -1])
    resampling = Resampling(replicates=50, permutations=400, seed=seed, margin=margin)
    percent = MetricFacts(name="R@1", title="", unit="percent")
    rows = with_one_budget(rows_of(list(values), clusters, resampling, span=1.0, lower_is_better=lower))
    for row in rows:
        found, turned = decision_of(row), decision_of(reversed_comparison(row))
        if found is None or turned is None:
            assert row.p_adjusted is None
            continue
        assert turned.state == OPPOSITE[found.state]
        low, high, p, difference = row.simultaneous_low, row.simultaneous_high, row.p_adjusted, row.difference
        assert difference is not None
        claimed = found.state in ("better", "worse")
        assert claimed == (p is not None and p < ALPHA)
        assert found.few_images == (found.state != "undecided" and clusters.n_effective <= 20)
        if low is None or high is None:
            assert p is None and found.worse_by == (0.0 if difference == 0 and row.p_sign_flip is None else None)
            continue
        assert low <= difference <= high
        assert claimed == (low > 0 or high < 0)
        if claimed:
            assert (found.state == "better") == ((difference > 0) != lower)
        worse = difference if lower else -difference
        assert found.worse_by is not None and found.worse_by >= max(0.0, worse)
        if found.state == "equivalent":
            assert max(found.worse_by, turned.worse_by or 0.0) < margin / 100
        if found.state == "better":
            assert found.worse_by == 0
        assert "up to 0.0" not in words.verdict(percent, row)
    for figure in FIGURES[:n_figures]:
        of_figure = [row for row in rows if row.protocol == figure.protocol]
        tests = [(r.encoder_a, r.encoder_b, r.difference or 0.0, r.p_adjusted) for r in of_figure]
        held = rank_encoders([f"e{i}" for i in range(n_encoders)], tests, lower_is_better=lower)
        for row in of_figure:
            if (found := decision_of(row)) is not None and found.state == "better":
                assert held[row.encoder_a].best < held[row.encoder_b].worst


@given(st.lists(st.lists(p_values, min_size=1, max_size=4), min_size=1, max_size=5), st.sampled_from([0.01, 0.05, 0.4]))
@settings(max_examples=300)
def test_families_are_adjusted_as_by_passing_on_the_share_of_those_that_are_decided(
    families: list[list[float | None]], alpha: float
) -> None:
    found = over_families(families)
    left = {at: [p for p in of if p is not None] for at, of in enumerate(families) if any(p is not None for p in of)}
    share = alpha / max(len(left), 1)
    while done := [at for at, of in left.items() if max(of) * len(left) <= alpha]:
        for at in done[:1]:
            del left[at]
        share = alpha / max(len(left), 1)
    rejected = [[p is not None and (at not in left or p <= share) for p in of] for at, of in enumerate(families)]
    near = any(p is not None and abs(p - alpha) < 1e-9 for of in found for p in of)
    assert near or [[p is not None and p <= alpha for p in of] for of in found] == rejected
    assert [[p is None for p in of] for of in found] == [[p is None for p in of] for of in families]


@given(st.lists(p_values, min_size=1, max_size=6))
def test_families_of_one_pair_are_adjusted_by_holm(p: list[float | None]) -> None:
    assert [one for [one] in over_families([[one] for one in p])] == pytest.approx(adjusted(p), nan_ok=True)


def test_a_further_corpus_takes_its_share_of_the_budget() -> None:
    """With three corpora of two planned figures and p .01 each, nothing may be called better on the strength of one."""
    assert over_families([[0.01], *[[0.4]] * 5])[0] == [pytest.approx(0.06)]
    assert over_families([[0.001], [0.009], *[[0.4]] * 4])[1] == [pytest.approx(0.045)]


def test_the_interval_of_a_planned_figure_grows_with_the_figures_that_share_its_budget() -> None:
    rng, clusters = np.random.default_rng(1), Clusters.of(np.arange(200))
    values = [(rng.random((3, 200)) < 0.5).astype(float) for _ in range(3)]
    alone = rows_of(values[:1], clusters, Resampling(replicates=50, permutations=4000))
    together = with_one_budget(rows_of(values, clusters, Resampling(replicates=50, permutations=4000)))
    widths = [[(r.simultaneous_high or 0.0) - (r.simultaneous_low or 0.0) for r in of[:3]] for of in (alone, together)]
    assert all(one < other for one, other in zip(*widths, strict=True))
    assert with_one_budget(alone) == alone
    assert len(alone[0].shared_low) == len(SHARERS)


def test_where_one_image_has_most_of_the_captions_nothing_is_claimed() -> None:
    """Ten images, one with 50 captions: the sign flips say p .002 whichever way the heavy image goes."""
    labels = np.repeat(np.arange(10), [50] + [1] * 9)
    values = {"a": np.ones(59), "b": np.zeros(59)}
    [pair] = compare_encoders(values, Clusters.of(labels), Resampling(replicates=50), Scale(span=1.0))
    assert pair.flip_test.p == pytest.approx(2 / 1024)
    assert pair.n_effective == pytest.approx(1.39, abs=0.01)
    assert (pair.simultaneous, pair.p_adjusted) == (None, None)
    values["b"][1:50] = 1
    [pair] = compare_encoders(values, Clusters.of(labels), Resampling(replicates=50), Scale(span=1.0))
    assert (pair.simultaneous, pair.p_adjusted) == (None, None)
    assert HEAVY in (pair.reason or "")
    [equal] = compare_encoders({n: v[:10] for n, v in values.items()}, Clusters.of(range(10)), Resampling())
    assert equal.p_adjusted == equal.flip_test.p


def test_chance_is_the_binomial_test_at_the_effective_number() -> None:
    for hits, n, chance in ((8, 10, 0.5), (30, 400, 0.1667), (0, 40, 0.02), (3, 1000, 0.0002)):
        tails = (scipy.stats.binomtest(hits, n, chance, alternative=side).pvalue for side in ("greater", "less"))
        assert chance_p(hits / n, chance, Clusters.of(range(n))) == pytest.approx(min(1.0, 2 * min(tails)))


@pytest.mark.parametrize("n_encoders", [1, 4, 10])
def test_of_guessers_nothing_is_said_beside_chance_in_most_tables(n_encoders: int) -> None:
    """7 categories and 10 encoders: one cell or another was "below chance" in 87 % of tables."""
    rng, n = np.random.default_rng(5), 250
    wrong, p_of = 0, {v / n: chance_p(v / n, 0.5, Clusters.of(range(n))) for v in range(n + 1)}
    for _ in range(400):
        values = rng.binomial(n, 0.5, n_encoders * 7) / n
        labels = against_chance([BesideChance(v, 0.5, p_of[v]) for v in values.tolist()])
        wrong += set(labels) != {"open"}
    assert wrong / 400 <= 0.075


def test_a_guesser_of_a_heavy_image_is_seldom_called_better_than_chance() -> None:
    """One image with 50 captions among 99 with one, chance .05: at Kish's number, 3 of 100 guessers were "better"."""
    rng, wrong = np.random.default_rng(6), 0
    clusters = Clusters.of(np.repeat(np.arange(130), [20] * 10 + [1] * 120))
    for _ in range(150):
        value = clusters.mean((rng.random(130) < 0.02)[clusters.labels].astype(float))
        wrong += (chance_p(value, 0.02, clusters) or 0) < ALPHA
    assert wrong <= 13
    assert chance_p(0.5, 0.02, Clusters.of(np.repeat(np.arange(10), [50] + [1] * 9))) is None  # as if 1.4 images


def test_an_answer_that_many_images_get_is_not_better_than_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten classes of 5 to 80 images and vectors of mean cosine .9: one in six of such encoders was told from chance."""
    monkeypatch.setattr("capim.tasks.statistics.chance._CELLS", 10**6)  # 3,448 draws: for speed
    sizes = [80, 60, 44, 32, 24, 18, 12, 9, 6, 5]
    label, agrees = np.repeat(np.arange(10), sizes), np.diag([True] * 10 + [False])
    for weights in (np.ones(290), (1 / np.array(sizes))[label]):
        rng, clusters, wrong = np.random.default_rng(7), Clusters.of(np.arange(290), 290, weights), 0
        for _ in range(60):
            first = rng.choice(10, 290, p=rng.dirichlet(np.full(10, 0.2)))
            expected, p = labels_p(FirstHits(label, first, agrees, of_images=False), clusters)
            wrong += p is not None and p < ALPHA
        assert wrong <= 7
        answers = np.bincount(first, minlength=10) / 290
        assert expected == pytest.approx(answers @ (np.array(sizes) / 290 if weights[0] == 1 else np.full(10, 0.1)))
        right = FirstHits(label, np.where(rng.random(290) < 0.5, label, first), agrees, of_images=False)
        assert (labels_p(right, clusters)[1] or 1) < 1e-9


def test_labels_are_exchanged_among_photographs_with_as_many_images() -> None:
    """Of two images of one photograph either finds the other, whatever their labels: that is no merit."""
    label, first = np.repeat(np.arange(20) % 2, 2), np.arange(40) ^ 1
    hits = FirstHits(label, first, np.diag([True, True, False]), of_images=True)
    assert labels_p(hits, Clusters.of(np.repeat(np.arange(20), 2)))[1] == 1
    expected, p = labels_p(hits, Clusters.of(np.arange(40)))
    assert (expected, p or 1) == pytest.approx((19 / 39, 0), abs=1e-4)


def test_the_simultaneous_interval_holds_where_one_encoder_only_loses() -> None:
    """B loses 3 of 100 and wins none: intervals by the sign flips themselves held in 80 %."""
    rng, clusters, scale = np.random.default_rng(8), Clusters.of(range(100)), Scale(share=True, span=1.0)
    ends = []
    for lost in (rng.random((80, 100)) < 0.03).astype(float):
        [pair] = compare_encoders({"a": lost * 0 + 1, "b": 1 - lost}, clusters, Resampling(permutations=500), scale)
        ends += [pair.simultaneous] if pair.simultaneous else []
        own = pair.difference
        assert not (pair.simultaneous and own.low and own.high) or pair.simultaneous[1] >= own.high
    assert len(ends) > 70
    assert sum(low <= 0.03 <= high for low, high in ends) >= 0.95 * len(ends)


@pytest.mark.parametrize("n", [25, 100])
@pytest.mark.parametrize("each", [1.0, 2 / 3])
def test_a_difference_that_all_images_share_has_an_interval_of_some_width_around_it(n: int, each: float) -> None:
    """All hit against all missed had the ends 1.0 and 1.0; thirds lay outside their own ends by rounding."""
    values = {"a": np.full(n, each), "b": np.zeros(n)}
    [pair] = compare_encoders(values, Clusters.of(range(n)), Resampling(), Scale(span=1.0))
    low, high = pair.simultaneous or (1.0, 0.0)
    assert 0 < low <= pair.difference.value <= high <= 1
    assert high - low > 0.03
    assert decide(pair.simultaneous, p_equivalent=None, margin=None).state == "better"


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 0.99), st.integers(2, 500)), min_size=2, max_size=4))
def test_a_figure_is_below_chance_only_where_its_own_test_says_so(figures: list[tuple[float, float, int]]) -> None:
    tested = [
        BesideChance(value, chance, chance_p(value, chance, Clusters.of(range(n)))) for value, chance, n in figures
    ]
    for label, (value, chance, p), q in zip(
        against_chance(tested), tested, adjusted([t.p for t in tested]), strict=True
    ):
        assert (label == "below") == (q is not None and q < ALPHA and (value or 0) < (chance or 0))
        assert label == "open" or p is None or p < ALPHA


# --- Ranks that encoders can hold, and which are tied with the best.
V29 = [  # the seed's example: Apple beats both, LAION and MetaCLIP cannot be told apart
    ("Apple", "LAION", 0.038, 0.0003),
    ("Apple", "MetaCLIP", 0.043, 0.0002),
    ("LAION", "MetaCLIP", 0.005, 0.31),
]


def held(found: dict[str, RankSet]) -> dict[str, tuple[int, int]]:
    return {name: (ranks.best, ranks.worst) for name, ranks in found.items()}


def test_the_seeds_example_leaves_the_second_place_open() -> None:
    found = rank_encoders(["MetaCLIP", "Apple", "LAION"], V29)
    assert held(found) == {"Apple": (1, 1), "LAION": (2, 3), "MetaCLIP": (2, 3)}
    assert [name for name, ranks in found.items() if ranks.tied_with_best] == ["Apple"]


def test_lower_values_rank_better_when_lower_is_better_and_encoders_that_agree_everywhere_are_tied() -> None:
    pair = [("x", "y", 4.0, 0.001)]  # x has the higher, worse median rank
    assert held(rank_encoders(["x", "y"], pair, lower_is_better=True)) == {"y": (1, 1), "x": (2, 2)}
    assert held(rank_encoders(["x", "y"], [("x", "y", 0.0, None)])) == {"x": (1, 2), "y": (1, 2)}


@given(st.lists(st.integers(0, 20), min_size=1, max_size=7), st.integers(0, 8))
def test_the_place_by_value_lies_among_the_places_that_tests_leave_open(values: list[int], gap: int) -> None:
    named = {f"e{i}": v / 20 for i, v in enumerate(values)}
    pairs = combinations(named.items(), 2)
    tests = [(a, b, x - y, 0.01 if abs(x - y) > gap / 20 else 0.5) for (a, x), (b, y) in pairs]
    for name, (best, worst) in held(rank_encoders([*named], tests)).items():
        assert best <= 1 + sum(other > named[name] for other in named.values()) <= worst


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=5, max_size=5))
def test_an_encoder_that_any_other_beats_cannot_be_the_best(wins: list[list[bool]]) -> None:
    better = np.triu(np.array(wins), 1)
    for encoder, ranks in enumerate(rank_sets(better)):
        assert 1 <= ranks.best <= ranks.worst <= 5
        assert ranks.tied_with_best == (not better[:, encoder].any())
