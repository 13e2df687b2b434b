"""Effect sizes, equivalence, adjusted p-values and images needed: against SciPy and statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import adjusted, decide, images_needed
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.pairs import Scale, cohen_dz, compare_encoders, detectable_effect, equivalence_p, tally


def test_nothing_discordant_has_no_effect_and_lower_ranks_win_where_lower_is_better() -> None:
    same = np.array([1.0, 0.0, 1.0])
    assert cohen_dz(same, same) is None
    assert tally(np.array([1.0, 5.0, 2.0]), np.array([2.0, 2.0, 2.0]), lower_is_better=True) == (1, 1, 1)


def test_cohen_dz_equals_the_one_sample_t_statistic_over_the_root_of_n() -> None:
    a, b = np.random.default_rng(1).random((2, 40))
    assert cohen_dz(a, b) == pytest.approx(scipy.stats.ttest_rel(a, b).statistic / np.sqrt(40), abs=1e-12)


@pytest.mark.parametrize("n", [40, 100, 250, 2000])
def test_the_detectable_effect_of_a_mean_has_the_power_that_it_promises(n: int) -> None:
    from statsmodels.stats.power import TTestPower  # type: ignore[import-untyped]

    # statsmodels: power of a t test with one sample at that effect
    difference = np.tile([1.0, -1.0], n // 2)
    effect = detectable_effect(difference, Clusters.of(range(n)), critical=scipy.stats.norm.ppf(0.975))
    power = TTestPower().power(effect / np.std(difference, ddof=1), n, 0.05)
    assert 0.8 <= power < 0.812


@pytest.mark.parametrize(("lost", "n"), [(0.0, 200), (0.005, 400), (0.05, 300), (0.2, 1000)])
@pytest.mark.parametrize("critical", [1.96, 3.2])
def test_a_share_with_the_detectable_effect_is_significant_in_four_studies_of_five(
    lost: float, n: int, critical: float
) -> None:
    """With sparse differences, 2.8 clustered errors had a power of .06 where they promised .8."""
    seen = np.zeros(n)
    seen[: round(lost * n)], seen[round(lost * n) : 2 * round(lost * n)] = 1, -1
    effect = detectable_effect(seen, Clusters.of(range(n)), critical=critical, share=True)
    assert effect is not None
    rng = np.random.default_rng(0)
    won, below, _ = rng.multinomial(n, [lost + effect, lost, 1 - 2 * lost - effect], size=4_000).T
    p = 2 * scipy.stats.binom.sf(np.maximum(won, below) - 1, won + below, 0.5)
    assert 0.75 < (p < 2 * scipy.stats.norm.sf(critical)).mean() < 0.93


def captions_of(structure: str, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Captions per image: a few images have most of them."""
    sizes = {
        "one each": np.ones(n),
        "five each": np.full(n, 5),
        "2 % with 50": np.where(np.arange(n) % 50 == 0, 50, 1),
        "10 % with 10 to 50": np.where(rng.random(n) < 0.1, rng.integers(10, 51, n), 1),
    }
    return sizes[structure].astype(np.int64)


@pytest.mark.parametrize("n", [300, 1000, 3000])
@pytest.mark.parametrize("structure", ["one each", "five each", "2 % with 50", "10 % with 10 to 50"])
def test_images_of_unequal_weight_and_wins_alone_are_not_called_equivalent_at_the_margin(
    structure: str, n: int
) -> None:
    """Whole images are won, the heaviest among them; a t test called .08 to 1.00 of these equivalent."""
    rng, called = np.random.default_rng(n), 0
    for _ in range(200):
        sizes = captions_of(structure, n, rng)
        heavy = sizes == sizes.max() if structure == "2 % with 50" else sizes >= sizes.mean()
        won = heavy & (rng.random(n) < 0.0101 * sizes.sum() / sizes[heavy].sum())
        labels = np.repeat(np.arange(n), sizes)
        p = equivalence_p(won[labels].astype(np.float64), Clusters.of(labels, n), margin=0.01)
        called += p is not None and p < 0.05
    assert called <= 0.05 * 200 + 3 * np.sqrt(0.05 * 0.95 * 200)


def test_encoders_that_are_equivalent_are_found_with_enough_images() -> None:
    """5 % of 25,000 queries differ in either direction, five on each of 5,000 images: more than .9 of such studies."""
    rng, called = np.random.default_rng(2), 0
    clusters = Clusters.of(np.repeat(np.arange(5000), 5))
    for _ in range(50):
        difference = rng.choice([1.0, -1.0, 0.0], size=25_000, p=[0.05, 0.05, 0.9])
        p = equivalence_p(difference, clusters, margin=0.01)
        called += p is not None and p < 0.05
    assert called >= 45


def test_a_difference_of_nine_points_is_not_within_one() -> None:
    """1,200 images, 30 of them with 50 captions; the first is better on five of these: the report chose by cost."""
    sizes = np.where(np.arange(1200) < 30, 50, 1)
    labels = np.repeat(np.arange(1200), sizes)
    first = np.where(labels < 15, 1.0, 0.0)
    second = np.where((labels < 15) & (labels >= 5), 1.0, 0.0)
    clusters = Clusters.of(labels, 1200)
    scale = Scale(share=True, span=1.0)
    [pair] = compare_encoders({"a": first, "b": second}, clusters, Resampling(replicates=200), scale)
    assert pair.difference.value == pytest.approx(0.0937, abs=1e-4)
    assert pair.p_equivalent is not None and pair.p_equivalent > 0.5  # .020 by the number of images that differ
    assert decide(pair.simultaneous, p_equivalent=1e-9, margin=0.01).state == "undecided"


def test_a_difference_without_spread_is_not_equivalent() -> None:
    """One encoder right on every query and the other wrong: the error is 0, and `capim compare` divided by it."""
    assert equivalence_p(np.ones(60), Clusters.of(range(60)), margin=0.01) == 1
    assert equivalence_p(np.full(50, 1 / 3), Clusters.of(np.repeat(range(20), 5)[:50], 20), margin=0.01) == 1


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_adjusted_p_values_equal_statsmodels(p_values: list[float]) -> None:
    from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

    np.testing.assert_allclose(adjusted(p_values), multipletests(p_values, method="holm")[1], atol=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [[1.2], [-0.1], [float("nan")]])
def test_impossible_p_values_are_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match=r"p-values must lie in 0\.\.1"):
        adjusted(wrong)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_no_end_of_a_difference_lies_beyond_what_the_figure_can_reach(n: int) -> None:
    """Two images had simultaneous intervals of 3,355,443,200 points: what rounding left of a quadratic without end."""
    values = np.random.default_rng(0).integers(0, 2, (3, 2 * n)).astype(float)
    clusters = Clusters.of(np.repeat(np.arange(n), 2))
    for span in (1.0, None):
        for pair in compare_encoders(dict(zip("abc", values, strict=True)), clusters, Resampling(), Scale(span=span)):
            ends = [*(pair.simultaneous or ()), pair.difference.low, pair.difference.high]
            assert all(end is None or abs(end) <= (span or 10) for end in ends)


def test_so_many_images_detect_what_was_wanted() -> None:
    """A pilot of 200 images, and a study of as many as it says are needed for 2 points."""
    rng = np.random.default_rng(3)

    def differences(n: int) -> NDArray[np.float64]:
        return rng.choice([1.0, -1.0, 0.0], size=n, p=[0.05, 0.05, 0.9])

    pilots = [
        detectable_effect(differences(200), Clusters.of(range(200)), critical=1.96, share=True) for _ in range(40)
    ]
    needed = [images_needed(200, pilot, 0.02) for pilot in pilots if pilot is not None]
    assert len(needed) == 40 and all(
        n == int(f"{n:.1e}".replace(".", "")[:2] + "0" * (len(str(n)) - 2)) for n in needed
    )
    n = int(np.median(needed))
    won = rng.choice([1.0, -1.0, 0.0], size=(2_000, n), p=[0.06, 0.04, 0.9])
    z = won.sum(axis=1) / np.sqrt(np.square(won).sum(axis=1))
    assert 0.8 < (z > 1.96).mean() < 0.98


def test_a_mean_rank_and_a_median_have_a_difference_and_no_claim() -> None:
    rng, clusters = np.random.default_rng(1), Clusters.of(range(60))
    ranks = dict(zip("ab", np.add(rng.integers(1, 30, (2, 60)), [[0.0], [20.0]]), strict=True))
    for scale in (Scale(lower_is_better=True, span=np.inf), Scale(lower_is_better=True, reduce="median")):
        [pair] = compare_encoders(ranks, clusters, Resampling(), scale)
        assert pair.difference.value < -10
        assert (pair.difference.low, pair.simultaneous, pair.p_adjusted, pair.p_equivalent) == (None,) * 4
        assert pair.detectable_effect is None
        assert pair.wins is not None and pair.wins > 40
        assert "no interval and no test" in (pair.reason or "")
        assert decide(pair.simultaneous, p_equivalent=None, margin=scale.margin(Resampling())).state == "undecided"
