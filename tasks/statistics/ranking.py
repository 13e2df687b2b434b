"""Ranks of encoders from pairwise tests: the range of ranks that each can hold, and which are tied with the best.

The best possible rank of an encoder is one more than the number of encoders that are significantly better; at its worst
possible rank, only the encoders that are significantly worse are below it. With p-values adjusted over all pairs, all
these statements hold simultaneously at the level of the test (Mohamad, van Zwet, Solari and Goeman 2021, Simultaneous
confidence intervals for ranks using the partitioning principle, section 2; Mogstad, Romano, Shaikh and Wilhelm 2024,
Inference for ranks with applications to mobility across neighbourhoods and academic achievement across countries).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from capim.tasks.statistics.clusters import Clusters, kish
from capim.tasks.statistics.decision import ALPHA, adjusted, least_p
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.flips import sign_flip_tests
from capim.tasks.statistics.intervals import NO_SPREAD, ClusteredValues, Interval, student_interval


class RankSet(NamedTuple):
    """The ranks that one encoder can hold, from ``best`` to ``worst``; 1 is the first."""

    best: int
    worst: int

    @property
    def tied_with_best(self) -> bool:
        """True if the encoder can be the best: none is significantly better."""
        return self.best == 1


def rank_sets(better: NDArray[np.bool_]) -> list[RankSet]:
    """Return the ranks that every encoder can hold.

    They hold together at the level of the tests if these are simultaneous over all pairs: by p-values adjusted for the
    family-wise error rate, or by simultaneous intervals of all differences.

    Args:
        better: ``better[i, j]`` is True if encoder ``i`` is significantly better than ``j``; shape
            ``(n_encoders, n_encoders)``.

    Examples:
        The first beats the third; nothing else is certain:

        >>> [tuple(held) for held in rank_sets(np.array([[0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=bool))]
        [(1, 2), (1, 3), (2, 3)]
    """
    won, lost = better.sum(axis=1).tolist(), better.sum(axis=0).tolist()
    return [RankSet(1 + above, len(better) - below) for above, below in zip(lost, won, strict=True)]


def rank_encoders(
    encoders: Sequence[str], tests: Iterable[tuple[str, str, float, float | None]], *, lower_is_better: bool = False
) -> dict[str, RankSet]:
    """Return the ranks that every encoder can hold.

    Args:
        tests: All pairs, each once, in either order: two encoders, the first minus the second, and its adjusted
            p-value. A pair differs if the p-value is below ``ALPHA``; one without a p-value (equal on every query, or
            too few clusters for a test) counts as not different.

    Examples:
        The first beats the third; nothing else is certain:

        >>> tests = [("x", "y", 0.1, 0.3), ("x", "z", 0.3, 0.01), ("y", "z", 0.2, 0.06)]
        >>> for name, held in rank_encoders(["x", "y", "z"], tests).items():
        ...     print(name, f"{held.best}-{held.worst}", held.tied_with_best)
        x 1-2 True
        y 1-3 True
        z 2-3 False
    """
    at = {name: position for position, name in enumerate(encoders)}
    sign = -1 if lower_is_better else 1
    signed = ((at[a], at[b], sign * difference, p) for a, b, difference, p in tests)
    return dict(zip(encoders, rank_sets(winners(len(at), signed, alpha=ALPHA)), strict=True))


def winners(n: int, tests: Iterable[tuple[int, int, float, float | None]], *, alpha: float) -> NDArray[np.bool_]:
    """Return a mask of which of ``n`` encoders are significantly better than which, shape ``(n, n)``.

    ``tests``: indices of two encoders, the first minus the second, and the adjusted p-value.
    """
    better = np.zeros((n, n), dtype=bool)
    for a, b, difference, p in tests:
        if p is not None and p < alpha and difference != 0:
            better[(a, b) if difference > 0 else (b, a)] = True
    return better


# --- One ranking of encoders over several corpora by their macro means, with the ranks that the data allow.
#
# Two questions have different answers (``docs/statistical_methods.md``):
#
# * Which encoder is better on **these corpora**? Images are the units; a photograph in several corpora is one unit in
#   all of them. Means have Student's interval, on the scale of a share, and are tested by sign flips of all images of
#   all corpora.
# * Which encoder is better on **corpora like these**? The corpora are a sample, and their number is the number of
#   observations, if none shares photographs with another. The spread between corpora already includes that of their
#   images, so whole corpora are the units (Davison and Hinkley 1997, Bootstrap Methods and their Application, section
#   3.8), by Student's t. Resampling corpora and images by the bootstrap finds a difference that does not exist in a
#   third of suites of 5 corpora and 8 encoders (``tests/benchmarks/suite_ranks.py``).


Estimand: TypeAlias = Literal["these corpora", "corpora like these"]
LEAST_CORPORA = 3  # of a ranking over corpora
LEAST_SAMPLE = 5  # corpora from which a result holds for similar corpora
_ROUNDING = 1e-12


class Standing(NamedTuple):
    """One encoder in a ranking: its result with an interval, and the ranks that it can hold (None if not tested).

    ``n_effective``: Kish's effective number of the units behind the ranks: photographs, or corpora.
    """

    figure: Interval
    held: RankSet | None
    n_effective: float


def rank_over_corpora(
    corpora: Sequence[Sequence[ClusteredValues]],
    resampling: Resampling,
    units: Sequence[NDArray[np.int64]] | None = None,
) -> dict[Estimand, list[Standing]]:
    """Return the macro mean of every encoder, the mean of its headline metric over corpora, under both estimands.

    Args:
        corpora: For each corpus, the parts of its headline metric, which is their mean: per-query values of the same
            encoders, shape ``(n_encoders, n_queries)``, and the clusters of these queries.
        resampling: ``1 - level`` bounds the probability of any false statement about ranks, for each estimand.
        units: For each corpus the unit of every cluster, shape ``(n_clusters,)``, numbered from 0 over all corpora:
            clusters with equal numbers are of the same photographs. Default: no two are.

    Returns:
        For each estimand, the encoders in the given order. With fewer than ``LEAST_SAMPLE`` corpora, or if some share
        units, results for "corpora like these" have a reason instead of interval and ranks.

    Raises:
        ValueError: If there are fewer than ``LEAST_CORPORA`` corpora or fewer than two encoders.

    Examples:
        On three corpora of 40 images the first encoder finds all of them, the second every other one.

        >>> images = Clusters.of(range(40))
        >>> corpus = [ClusteredValues([[1.0] * 40, [0.0, 1.0] * 20], images)]
        >>> found = rank_over_corpora([corpus] * 3, Resampling(replicates=200, permutations=500))
        >>> for standing in found["these corpora"]:
        ...     print(standing.figure.value, standing.held)
        1.0 RankSet(best=1, worst=1)
        0.5 RankSet(best=2, worst=2)
    """
    shares, errors, weights = zip(*map(_contributions, corpora), strict=True)
    means = [[[of.mean(row) for row in np.asarray(values)] for values, of in parts] for parts in corpora]
    headlines = np.stack([np.mean(of_corpus, axis=0) for of_corpus in means])
    n_corpora, n_encoders = headlines.shape
    if n_corpora < LEAST_CORPORA or n_encoders < 2:
        raise ValueError(
            f"a ranking needs {LEAST_CORPORA} corpora and 2 encoders, got {n_corpora} corpora and {n_encoders} encoders"
        )
    if units is None:
        ends = np.cumsum([0, *map(len, shares)])
        units = [np.arange(start, end) for start, end in pairwise(ends)]
    shared = np.array([[np.intersect1d(one, other).size > 0 for other in units] for one in units])
    n_groups, _ = scipy.sparse.csgraph.connected_components(shared, directed=False)
    n_effective = kish(_over_units(units, weights))
    everywhere = _better(_over_units(units, shares) / n_corpora, n_effective, resampling)
    of_encoders = _over_units(units, errors).T / n_corpora
    macro = [
        student_interval(mean, of_encoder, level=resampling.level, n_effective=n_effective, bounds=(0.0, 1.0))
        for mean, of_encoder in zip(headlines.mean(axis=0).tolist(), of_encoders, strict=True)
    ]
    return {
        "these corpora": _standings(macro, everywhere, n_effective),
        "corpora like these": _sampled(headlines, resampling, n_groups),
    }


def _contributions(parts: Sequence[ClusteredValues]) -> tuple[NDArray[np.float64], ...]:
    """Return each cluster's part of headlines and errors, shape ``(n_clusters, n_encoders)``, and its weight."""
    shares = np.stack([clusters.sums(np.asarray(values)) / clusters.totals.sum() for values, clusters in parts])
    weights = np.stack([clusters.shares for _, clusters in parts])
    errors = shares - weights[:, :, None] * shares.sum(axis=1, keepdims=True)
    return shares.mean(axis=0), errors.mean(axis=0), weights.mean(axis=0)


def _over_units(units: Sequence[NDArray[np.int64]], of_corpora: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return values of each corpus' clusters, of shape ``(n_clusters, …)``, summed by unit: ``(n_units, …)``."""
    total = np.zeros((1 + max(int(unit.max()) for unit in units), *of_corpora[0].shape[1:]))
    for unit, of_corpus in zip(units, of_corpora, strict=True):
        np.add.at(total, unit, of_corpus)
    return total


def _better(contributions: NDArray[np.float64], n_effective: float, resampling: Resampling) -> NDArray[np.bool_]:
    """Return which encoders are better than which, over all pairs together, by sign flips of the contributions."""
    n_units, n_encoders = contributions.shape
    pairs = list(combinations(range(n_encoders), 2))
    tests = sign_flip_tests(contributions.T, Clusters.of(range(n_units)), pairs, resampling)
    least = least_p(n_effective)
    p_adjusted = [None if test.p_adjusted is None else max(test.p_adjusted, least) for test in tests]
    return _winners(contributions.sum(axis=0), pairs, p_adjusted, resampling)


def _winners(
    figures: NDArray[np.float64],
    pairs: Sequence[tuple[int, int]],
    p_adjusted: Sequence[float | None],
    resampling: Resampling,
) -> NDArray[np.bool_]:
    tests = ((a, b, figures[a] - figures[b], p) for (a, b), p in zip(pairs, p_adjusted, strict=True))
    return winners(len(figures), tests, alpha=1 - resampling.level)


def _standings(figures: Sequence[Interval], better: NDArray[np.bool_], n_effective: float) -> list[Standing]:
    return [Standing(figure, held, n_effective) for figure, held in zip(figures, rank_sets(better), strict=True)]


def _sampled(table: NDArray[np.float64], resampling: Resampling, n_groups: int) -> list[Standing]:
    """Return means over sampled corpora, shape ``(n_corpora, n_encoders)``: Student's t, adjusted by Holm."""
    n_corpora, n_encoders = table.shape
    means = table.mean(axis=0)
    reason = ""
    if n_corpora < LEAST_SAMPLE:
        reason = f"at least {LEAST_SAMPLE} corpora say something about others like them, there are {n_corpora}"
    elif n_groups < n_corpora:
        reason = "corpora that share photographs say nothing about others like them: they are not independent"
    if reason:
        return [Standing(Interval(value=value, reason=reason), None, n_corpora) for value in means.tolist()]
    errors = table.std(axis=0, ddof=1) / np.sqrt(n_corpora)
    reach = scipy.special.stdtrit(n_corpora - 1, (1 + resampling.level) / 2) * errors
    figures = [
        Interval(value=m, low=max(0.0, m - r), high=min(1.0, m + r), standard_error=e, method="t")
        if e > _ROUNDING
        else Interval(value=m, reason=NO_SPREAD.replace("images", "corpora"))
        for m, r, e in zip(means.tolist(), reach.tolist(), errors.tolist(), strict=True)
    ]
    pairs = list(combinations(range(n_encoders), 2))
    differences = np.stack([table[:, a] - table[:, b] for a, b in pairs])
    error = differences.std(axis=1, ddof=1) / np.sqrt(n_corpora)
    p = [
        float(2 * scipy.special.stdtr(n_corpora - 1, -abs(m) / e)) if e > _ROUNDING else None
        for m, e in zip(differences.mean(axis=1).tolist(), error.tolist(), strict=True)
    ]
    return _standings(figures, _winners(means, pairs, adjusted(p), resampling), n_corpora)
