"""One ranking over several corpora: its ranks hold on simulated suites, and special suites give what is certain."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import ClusteredValues, paired_intervals
from capim.tasks.statistics.ranking import LEAST_SAMPLE, rank_over_corpora
from tests.benchmarks.suite_ranks import Suite, crossed, equal, holds_in, spread

QUICK = Resampling(replicates=200, permutations=500)


def hits(*shares: float, n: int = 200) -> list[ClusteredValues]:
    """One corpus: encoders that find the first so many images."""
    rows = [(np.arange(n) < round(share * n)).astype(float) for share in shares]
    return [ClusteredValues(rows, Clusters.of(range(n)))]


@pytest.mark.parametrize(
    "suite",
    [
        Suite(name="equal", truth=equal(3, 8), n_images=40),
        Suite(name="rare hits", truth=equal(3, 5, 0.02), n_images=60),
        Suite(name="crossed", truth=crossed(3, 6), n_images=40),
        Suite(name="apart", truth=spread(5, 5), n_images=60),
        Suite(name="a sample of corpora", truth=equal(5, 8), n_images=40, between=0.05),
    ],
    ids=lambda suite: suite.name,
)
def test_the_ranks_of_all_encoders_hold_together_in_95_percent_of_suites(suite: Suite) -> None:
    """At most 9 of 80 suites with a false statement: of a true share of 5 % that has a probability above 99 %."""
    found = holds_in(suite, suites=80, resampling=Resampling(replicates=2, permutations=400))
    assert all(held >= 71 for held in found.values()), found


def test_one_corpus_under_three_names_has_the_ranks_of_one() -> None:
    """Taken as independent, a difference with p = .12 became ranks 1 and 2 with 95 % confidence."""
    image = np.arange(60)
    only_first, only_second = image < 22, (image >= 22) & (image < 34)
    hits_of = [(only | (image >= 40)).astype(float) for only in (only_first, only_second)]
    corpora = [[ClusteredValues(hits_of, Clusters.of(image))]] * 3
    apart, joint = (rank_over_corpora(corpora, QUICK, units) for units in (None, [np.arange(60)] * 3))
    assert [s.held and tuple(s.held) for s in apart["these corpora"]] == [(1, 1), (2, 2)]
    assert [s.held and tuple(s.held) for s in joint["these corpora"]] == [(1, 2), (1, 2)]
    [alone, _] = paired_intervals(np.asarray(corpora[0][0].values), corpora[0][0].clusters, [(0, 1), (1, 0)], QUICK)
    width = [s.figure.high - s.figure.low for s in (apart["these corpora"][0], joint["these corpora"][0])]  # type: ignore[operator]
    assert width[1] > 1.5 * width[0], "of one corpus, not of three"
    assert alone.low is not None and alone.low < 0


def test_corpora_that_share_half_of_their_photographs_seldom_have_false_ranks() -> None:
    """Equal encoders on three corpora of 40 images, 20 of them the same and answered alike: .10 false, bound .05."""
    rng, false = np.random.default_rng(6), 0
    units = [np.r_[np.arange(20), np.arange(20) + 20 * (at + 1)] for at in range(3)]
    for _ in range(150):
        pool = rng.random((2, 80)) < 0.5
        corpora = [[ClusteredValues(pool[:, unit].astype(float), Clusters.of(range(40)))] for unit in units]
        found = rank_over_corpora(corpora, Resampling(replicates=2, permutations=300), units)["these corpora"]
        false += any(standing.held and standing.held.best == 2 for standing in found)
    assert false <= 0.05 * 150 + 3 * np.sqrt(0.05 * 0.95 * 150)


def test_a_tie_on_one_corpus_and_a_difference_on_another_is_a_difference_of_the_mean() -> None:
    tied, apart = hits(0.5, 0.5), hits(0.8, 0.5)
    found = rank_over_corpora([tied, tied, apart], QUICK)
    assert [s.held and s.held.tied_with_best for s in found["these corpora"]] == [True, False]


def test_equal_encoders_share_all_ranks() -> None:
    for key, standings in rank_over_corpora([hits(0.5, 0.5, 0.5)] * 6, QUICK).items():
        assert [tuple(s.held or ()) for s in standings] == [(1, 3)] * 3, key
        assert {s.figure.value for s in standings} == {0.5}, key


@pytest.mark.parametrize("n_corpora", [3, 4, 5, 7])
def test_few_corpora_say_nothing_about_others_like_them(n_corpora: int) -> None:
    rng = np.random.default_rng(0)
    found = rank_over_corpora([hits(*rng.uniform(0.3, 0.7, 3)) for _ in range(n_corpora)], QUICK)
    for standing in found["corpora like these"]:
        if n_corpora < LEAST_SAMPLE:
            reason = f"at least 5 corpora say something about others like them, there are {n_corpora}"
            assert (standing.held, standing.figure.low, standing.figure.reason) == (None, None, reason)
        else:
            assert standing.held is not None and standing.figure.method == "t"


def test_corpora_that_are_a_sample_are_tested_by_students_t() -> None:
    shares = np.random.default_rng(3).integers(60, 141, (7, 2)) / 200
    held = []
    for apart in np.linspace(0, 0.2, 41):
        moved = shares + np.array([apart, -apart])
        found = rank_over_corpora([hits(*pair) for pair in moved], QUICK)["corpora like these"]
        for standing, of_encoder in zip(found, moved.T, strict=True):
            expected = scipy.stats.ttest_1samp(of_encoder, 0).confidence_interval(0.95)
            assert (standing.figure.low, standing.figure.high) == pytest.approx((max(0, expected.low), expected.high))
        p = scipy.stats.ttest_rel(*moved.T).pvalue
        assert [s.held and s.held.worst for s in found] == ([1, 2] if p < 0.05 else [2, 2]), p
        held.append(p < 0.05)
    assert {*held} == {True, False}


def test_two_directions_count_alike_however_many_captions_there_are() -> None:
    images, captions = Clusters.of(range(50)), Clusters.of(np.repeat(range(50), 5))
    corpus = [ClusteredValues([[1.0] * 50, [0.0] * 50], images), ClusteredValues([[0.0] * 250, [0.5] * 250], captions)]
    assert [s.figure.value for s in rank_over_corpora([corpus] * 3, QUICK)["these corpora"]] == [0.5, 0.25]


@pytest.mark.parametrize(("n_corpora", "n_encoders"), [(2, 3), (3, 1)])
def test_too_small_a_suite_is_refused(n_corpora: int, n_encoders: int) -> None:
    with pytest.raises(ValueError, match=f"got {n_corpora} corpora and {n_encoders} encoders"):
        rank_over_corpora([hits(*[0.5] * n_encoders)] * n_corpora, QUICK)
