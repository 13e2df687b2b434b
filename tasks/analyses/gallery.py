"""Effects of the gallery on results: hubs among its items, and resampling it with the queries.

Hubs are items in far more result lists than others (Radovanović et al., JMLR 11, 2010). ``N_k`` of an item is the
number of queries that have it among their first ``k``. Hubs skew its distribution: a few items are found for most
queries, many for none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from capim.store.schema import texts
from capim.tasks.analyses.analysis import AnalysisInput, Slice
from capim.tasks.metrics.retrieval import RECALLS, expected_hit
from capim.tasks.ranking.layout import layout_of
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import count_blocks
from capim.tasks.statistics.intervals import NO_SPREAD, TOO_FEW_CLUSTERS, Interval, percentile_interval

K = 10
N_LISTED = 10  # hubs in the detail
MAX_REPLICATES = 1000  # of a resampled gallery, as in V29
CUTOFFS = (1, 5, 10)
_POWERS = np.array([[1], [2], [3]])


def hubs(data: AnalysisInput) -> Iterator[Slice]:
    """Yield skewness of ``N_10``, share of hubs, share of items that are never found, and the worst hubs by id.

    Intervals are by the jackknife over images: a bootstrap draws lists repeatedly and so creates hubs itself.
    """
    searched = data.task.item_space.ords_of(data.task.searched)
    items = data.corpus.items(data.protocol.sides[1])
    ids = texts(items["id"])
    occupied, level = data.clusters.sizes > 0, data.resampling.level
    for encoder, outcomes, top_ords in data.with_lists():
        counts = k_occurrence(top_ords, K, len(items))
        worst = _worst(outcomes, top_ords, counts, ids)
        lists = _lists_by_cluster(data, top_ords, len(items))[:, searched].tocsr()
        counts = counts[searched]
        skewed = _jackknifed(skewness(counts), _skewness_without(lists, counts)[occupied], level)
        never = _jackknifed(float((counts == 0).mean()), _never_without(lists, counts)[occupied], level, ends=(0, 1))
        share = Interval(
            value=float(is_hub(counts).mean()), reason="no interval: the threshold depends on the same counts"
        )
        for feature, level_name, interval, detail in (
            ("skewness", f"N_{K}", skewed, {"worst": worst}),
            ("share never found", f"N_{K} = 0", never, None),
            ("share of hubs", f"N_{K} over mean + 2 sd", share, None),
        ):
            yield Slice(encoder, "hubs", feature, feature, interval, *data.counts, level_name=level_name, detail=detail)


def k_occurrence(top_ords: NDArray[np.int32], k: int, n_items: int) -> NDArray[np.int64]:
    """Return ``N_k`` of every item of the corpus, searched or not: int64, shape ``(n_items,)``.

    ``top_ords`` are the best items of every query, shape ``(n_queries, width)``, -1 beyond the gallery.

    Examples:
        >>> k_occurrence(np.int32([[0, 1, 3], [0, 2, 3], [1, 0, -1], [2, -1, -1]]), 2, 4).tolist()
        [3, 2, 2, 0]
    """
    listed = top_ords[:, :k].ravel()
    return np.bincount(listed[listed >= 0], minlength=n_items)


def is_hub(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the hubs among items: ``N_k`` more than two standard deviations above the mean.

    Examples:
        >>> is_hub(np.array([1, 1, 1, 1, 1, 1, 1, 20])).tolist().index(True)
        7
    """
    hub: NDArray[np.bool_] = counts > counts.mean() + 2 * counts.std()
    return hub


def skewness(counts: NDArray[np.int64]) -> float:
    """Return the third standardised moment; NaN if all counts are equal.

    Examples:
        >>> round(skewness(np.array([0, 0, 0, 4])), 4)
        1.1547
    """
    return float(_skewness_of((counts.astype(np.float64) ** _POWERS).sum(axis=1), len(counts)))


def _skewness_of(sums: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return the skewness of ``n`` values from the sums of their first three powers, shape ``(3, ...)``."""
    first, second, third = sums
    mean = first / n
    variance = second / n - mean**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(variance > 0, (third / n - 3 * mean * second / n + 2 * mean**3) / variance**1.5, np.nan)


def _skewness_without(lists: sparse.csr_matrix, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the skewness with each cluster's lists left out in turn, shape ``(n_clusters,)``.

    Only the items of a cluster's lists change their count, so the sums of powers are corrected by these.
    """
    before = counts.astype(np.float64)[lists.indices]
    changes = (before - lists.data) ** _POWERS - before**_POWERS
    sums = (counts.astype(np.float64) ** _POWERS).sum(axis=1)
    return _skewness_of(sums[:, None] + [_by_cluster(lists, change) for change in changes], len(counts))


def _never_without(lists: sparse.csr_matrix, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share of items in no list with each cluster's lists left out in turn, shape ``(n_clusters,)``."""
    return np.asarray(((counts == 0).sum() + _by_cluster(lists, counts[lists.indices] == lists.data)) / len(counts))


def _by_cluster(lists: sparse.csr_matrix, values: NDArray[np.float64] | NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return sums over the stored entries of each row, shape ``(n_clusters,)``."""
    owner = np.repeat(np.arange(lists.shape[0]), np.diff(lists.indptr))
    return np.bincount(owner, weights=values, minlength=lists.shape[0]).astype(np.float64)


def _jackknifed(
    estimate: float, left_out: NDArray[np.float64], level: float, *, ends: tuple[float, float] = (-np.inf, np.inf)
) -> Interval:
    """Return the normal interval with the jackknife's standard error (Efron and Tibshirani 1993, equation 11.5).

    It is cut off at ``ends``, the lowest and the highest possible value.
    """
    n = len(left_out)
    if n < 2:
        return Interval(value=estimate, reason=TOO_FEW_CLUSTERS)
    error = float(np.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum()))
    if not np.isfinite(error) or error == 0:
        return Interval(value=estimate, reason=NO_SPREAD)
    half = float(ndtri((1 + level) / 2)) * error
    low, high = max(ends[0], estimate - half), min(ends[1], estimate + half)
    return Interval(value=estimate, low=low, high=high, standard_error=error, method="jackknife")


def _lists_by_cluster(data: AnalysisInput, top_ords: NDArray[np.int32], n_items: int) -> sparse.csc_matrix:
    """Return how often each cluster's queries have each item in their first ``K``: shape ``(n_clusters, n_items)``."""
    lists = top_ords[:, :K]
    owner = np.repeat(data.clusters.labels, lists.shape[1])
    item = lists.ravel()
    real = item >= 0
    shape = (data.clusters.n_clusters, n_items)
    return sparse.coo_matrix((np.ones(int(real.sum())), (owner[real], item[real])), shape=shape).tocsc()


def _worst(
    outcomes: Outcomes, top_ords: NDArray[np.int32], counts: NDArray[np.int64], ids: list[str]
) -> list[dict[str, object]]:
    """Return the items that are most often wrongly in first place."""
    wrong = top_ords[outcomes.missed, 0]
    first = np.bincount(wrong[wrong >= 0], minlength=len(counts))
    order = np.lexsort((-counts, -first))[:N_LISTED]
    return [{"id": ids[i], "wrongly_first": int(first[i]), f"n_{K}": int(counts[i])} for i in order if first[i]]


def resampled_gallery(data: AnalysisInput) -> Iterator[Slice]:
    """Yield recall with a gallery that is resampled with the queries, as in V29: biased, for comparison only.

    5,000 images drawn with replacement are about 3,160 different ones, and a smaller gallery is easier: the mean over
    the draws is well above the metric. The headline keeps the gallery fixed (``tasks.statistics.intervals``).

    Computed from stored result lists. An image that is drawn several times counts once. Every relevant item is of the
    query's own image, so it is in the gallery whenever the query is, and the query's rank is one more than the number
    of drawn items above its best relevant item. These items are the first ``rank_best - 1`` of the stored list (100
    items). The rank is undecided only if a list that ends too early has fewer than ``k`` drawn items: about one in
    10^27 draws for ``k = 10``. Then the value is null, with the reason; otherwise it is exact, including ties.

    The value is the mean over the draws, the interval their percentiles; the detail holds the metric with the gallery
    fixed, the mean share of the images in a draw, and the number of undecided pairs of query and draw. For protocols
    with relevant items of the query's own image.
    """
    how, layout = data.resampling, layout_of(data.corpus)
    replicates = min(MAX_REPLICATES, how.replicates)
    clusters = Clusters.of(data.queries.clusters, layout.n_images, data.queries.weights)  # all images are drawn here
    to_images = data.protocol.direction == "t2i"
    image_of_item = np.arange(layout.n_images, dtype=np.int32) if to_images else layout.caption_images
    for encoder, outcomes, top_ords in data.with_lists():
        width, listed = top_ords.shape[1], top_ords >= 0
        place, images = np.arange(width), image_of_item[np.maximum(top_ords, 0)]
        n_above, n_above_and_tied = outcomes.rank_best - 1, outcomes.rank_worst - 1 + outcomes.n_tied_relevant
        spread = outcomes.rank_worst > outcomes.rank_best  # ties, and ranks beyond an imported list
        incomplete = (n_above > width) | (spread & (n_above_and_tied > listed.sum(axis=1)))
        is_above = listed & (place < n_above[:, None])
        is_tied = listed & ~is_above & (place < n_above_and_tied[:, None]) & (images != outcomes.clusters[:, None])
        tied = np.flatnonzero(spread & ~incomplete)
        above = _per_image(images, is_above, clusters.n_clusters)
        level = _per_image(images[tied], is_tied[tied], clusters.n_clusters)
        recalls: dict[int, list[NDArray[np.float64]]] = {k: [] for k in CUTOFFS}
        undecided = dict.fromkeys(CUTOFFS, 0)
        n_present = 0
        for counts in count_blocks(clusters.n_clusters, replicates=replicates, seed=how.seed):
            present = np.ascontiguousarray(counts.T > 0, dtype=np.int16)  # shape (n_clusters, n_draws)
            drawn, drawn_above = present[clusters.labels], above @ present  # shape (n_queries, n_draws)
            weights, low = drawn * clusters.weights[:, None], drawn_above[tied] + 1
            high, n_relevant = low + level @ present, np.repeat(outcomes.n_tied_relevant[tied], low.shape[1])
            for k in CUTOFFS:
                hits = (drawn_above < k).astype(np.float64)
                hits[tied] = expected_hit(low.ravel(), high.ravel(), n_relevant, k=k).reshape(low.shape)
                with np.errstate(invalid="ignore"):
                    recalls[k].append((hits * weights).sum(axis=0) / weights.sum(axis=0))
                undecided[k] += int(drawn[incomplete][drawn_above[incomplete] < k].sum())
            n_present += int(present.sum())
        for k, metric in zip(CUTOFFS, RECALLS, strict=True):
            fixed = expected_hit(outcomes.rank_best, outcomes.rank_worst, outcomes.n_tied_relevant, k=k)
            if undecided[k]:
                reason = f"no value: lists of {width} items leave {undecided[k]} pairs of query and draw undecided"
                interval = Interval(value=float("nan"), reason=reason)
            else:
                finite = (drawn := np.concatenate(recalls[k]))[np.isfinite(drawn)]
                interval = percentile_interval(float(finite.mean()), finite, level=how.level)
            detail = {
                "fixed_gallery": clusters.mean(fixed),
                "gallery_share": n_present / clusters.n_clusters / replicates,
                "replicates": replicates,
                "undecided": undecided[k],
            }
            figure, level_name = (encoder, "resampled-gallery", "gallery", metric.name), "resampled (biased)"
            yield Slice(*figure, interval, *data.counts, level_name=level_name, detail=detail)


def _per_image(images: NDArray[np.int32], chosen: NDArray[np.bool_], n_images: int) -> sparse.csr_matrix:
    """Return how many chosen items of each query's list are of each image, shape ``(n_queries, n_images)``."""
    query, place = np.nonzero(chosen)
    ones = np.ones(len(query), dtype=np.int16)
    return sparse.csr_matrix((ones, (query, images[query, place])), shape=(len(images), n_images))
