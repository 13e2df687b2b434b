"""Hubs: items that turn up in far more result lists than their share (Radovanović et al., JMLR 11, 2010).

``N_k`` of an item is the number of queries that have it among their first ``k``. Hubs make its distribution skewed:
some items are found for everything, many for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from tasks.diagnosis.subject import Slice, Subject
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.selection import build_task
from tasks.scoring.protocols.tasks import RetrievalTask
from tasks.statistics.bootstrap import NO_SPREAD, TOO_FEW_CLUSTERS, Interval

K = 10
WORST = 10  # hubs listed


def hubs(subject: Subject) -> Iterator[Slice]:
    """Skewness of ``N_10``, shares of hubs and of items that nobody finds, and the worst hubs by name.

    Intervals are by the jackknife over images: a bootstrap draws lists several times, and so makes hubs of its own.
    Protocols without result lists (hit lists from elsewhere, quadruples) have no such rows.
    """
    judgement = build_task(subject.corpus, subject.protocol)
    if not isinstance(judgement, RetrievalTask):
        return
    searched = np.unique(np.concatenate(judgement.galleries))
    items = subject.corpus.images if subject.protocol.direction == "t2i" else subject.corpus.captions
    for encoder, outcomes in subject.outcomes.items():
        if outcomes.top_ords is None:
            continue
        counts = k_occurrence(outcomes.top_ords, K, len(items))
        lists = _lists_by_cluster(subject, outcomes.top_ords, len(items))[:, searched].tocsr()
        worst = _worst(outcomes, outcomes.top_ords, counts, items["id"].to_pylist())
        for (feature, level_name), interval in _figures(subject, lists, counts[searched]).items():
            yield Slice(
                encoder=encoder,
                analysis="hubs",
                feature=feature,
                level_name=level_name,
                metric=feature,
                interval=interval,
                n_queries=len(outcomes),
                n_clusters=subject.clusters.n_occupied,
                detail={"worst": worst} if feature == "skewness" else None,
            )


def _figures(subject: Subject, lists: sparse.csr_matrix, counts: NDArray[np.int64]) -> dict[tuple[str, str], Interval]:
    """Feature and level name -> figure with its interval, of the counts of the searched items."""
    occupied, level = subject.clusters.sizes > 0, subject.resampling.level
    never = float((counts == 0).mean())
    return {
        ("skewness", f"N_{K}"): _jackknifed(skewness(counts), _skewness_without(lists, counts)[occupied], level),
        ("share never found", f"N_{K} = 0"): _jackknifed(
            never, _never_without(lists, counts)[occupied], level, share=True
        ),
        ("share of hubs", f"N_{K} over mean + 2 sd"): Interval(
            value=float(is_hub(counts).mean()), reason="a count of items over a cut that moves with them"
        ),
    }


def k_occurrence(top_ords: NDArray[np.int32], k: int, n_items: int) -> NDArray[np.int64]:
    """``N_k`` of every item: int64, shape ``(n_items,)``.

    Args:
        top_ords: Best items of every query, shape ``(n_queries, width)``, -1 beyond the gallery.
        k: Length of the lists looked at.
        n_items: Of the corpus, searched or not.

    Examples:
        >>> k_occurrence(np.int32([[0, 1], [0, 2], [1, 0]]), 2, 4).tolist()
        [3, 2, 1, 0]
    """
    found = top_ords[:, :k].ravel()
    return np.bincount(found[found >= 0], minlength=n_items)


def is_hub(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which items are hubs: ``N_k`` more than two standard deviations above the mean.

    Examples:
        >>> is_hub(np.array([1, 1, 1, 1, 1, 1, 1, 20])).tolist().index(True)
        7
    """
    hub: NDArray[np.bool_] = counts > counts.mean() + 2 * counts.std()
    return hub


def skewness(counts: NDArray[np.int64]) -> float:
    """Third standardised moment; NaN where all counts are equal.

    Examples:
        >>> round(skewness(np.array([0, 0, 0, 4])), 4)
        1.1547
    """
    values = counts.astype(np.float64)
    sums = (np.array([(values**power).sum()]) for power in (1, 2, 3))
    first, second, third = sums
    return float(_skewness_of(first, second, third, len(counts))[0])


def _skewness_of(
    first: NDArray[np.float64], second: NDArray[np.float64], third: NDArray[np.float64], n: int
) -> NDArray[np.float64]:
    """Skewness from sums of powers over ``n`` items, elementwise."""
    mean = first / n
    variance = second / n - mean**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(variance > 0, (third / n - 3 * mean * second / n + 2 * mean**3) / variance**1.5, np.nan)


def _skewness_without(lists: sparse.csr_matrix, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Skewness when each cluster's lists are left out in turn, shape ``(n_clusters,)``.

    Only the items of a cluster's lists change their count, so the sums of powers are corrected, not made again.
    """
    before = counts.astype(np.float64)[lists.indices]
    after = before - lists.data
    owner = np.repeat(np.arange(lists.shape[0]), np.diff(lists.indptr))
    sums = []
    for power in (1, 2, 3):
        change = np.bincount(owner, weights=after**power - before**power, minlength=lists.shape[0])
        sums.append((counts.astype(np.float64) ** power).sum() + change)
    return _skewness_of(sums[0], sums[1], sums[2], len(counts))


def _never_without(lists: sparse.csr_matrix, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of items in no list when each cluster's lists are left out in turn, shape ``(n_clusters,)``."""
    alone = counts[lists.indices] == lists.data
    owner = np.repeat(np.arange(lists.shape[0]), np.diff(lists.indptr))
    lost = np.bincount(owner, weights=alone, minlength=lists.shape[0])
    share: NDArray[np.float64] = ((counts == 0).sum() + lost) / len(counts)
    return share


def _jackknifed(estimate: float, left_out: NDArray[np.float64], level: float, *, share: bool = False) -> Interval:
    """The normal interval with the jackknife's standard error (Efron and Tibshirani 1993, equation 11.5).

    A share's interval ends at 0.
    """
    n = len(left_out)
    if n < 2:
        return Interval(value=estimate, reason=TOO_FEW_CLUSTERS)
    error = float(np.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum()))
    if not np.isfinite(error) or error == 0:
        return Interval(value=estimate, reason=NO_SPREAD)
    half = float(ndtri((1 + level) / 2)) * error
    return Interval(value=estimate, low=estimate - half, high=estimate + half, standard_error=error, method="jackknife")


def _lists_by_cluster(subject: Subject, top_ords: NDArray[np.int32], n_items: int) -> sparse.csc_matrix:
    """How often each cluster's queries have each item in their first ``K``: shape ``(n_clusters, n_items)``."""
    lists = top_ords[:, :K]
    owner = np.repeat(subject.clusters.labels, lists.shape[1])
    item = lists.ravel()
    real = item >= 0
    shape = (subject.clusters.n_clusters, n_items)
    return sparse.coo_matrix((np.ones(int(real.sum())), (owner[real], item[real])), shape=shape).tocsc()


def _worst(
    outcomes: Outcomes, top_ords: NDArray[np.int32], counts: NDArray[np.int64], ids: list[str]
) -> list[dict[str, object]]:
    """The items that are most often first without being right."""
    wrong = top_ords[outcomes.rank_best > 1, 0]
    first = np.bincount(wrong[wrong >= 0], minlength=len(counts))
    order = np.lexsort((-counts, -first))[:WORST]
    return [{"id": ids[i], "wrongly_first": int(first[i]), f"n_{K}": int(counts[i])} for i in order if first[i]]
