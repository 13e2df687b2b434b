"""Hubs: items that appear in far more result lists than others (Radovanović et al., JMLR 11, 2010).

``N_k`` of an item is the number of queries that have it among their first ``k``. Hubs skew its distribution: a few
items are found for most queries, many for none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from capim.tasks.analyses.analysis_input import AnalysisInput, SingleVectors
from capim.tasks.analyses.slices import Slice
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.statistics.intervals import NO_SPREAD, TOO_FEW_CLUSTERS, Interval

K = 10
N_LISTED = 10  # hubs in the detail
_POWERS = np.array([[1], [2], [3]])


def hubs(data: AnalysisInput) -> Iterator[Slice]:
    """Skewness of ``N_10``, share of hubs, share of items that are never found, and the worst hubs by id.

    Intervals are by the jackknife over images: a bootstrap draws lists repeatedly and so creates hubs itself.
    """
    searched = np.unique(np.concatenate(data.task.galleries))
    items = data.corpus.images if data.protocol.direction == "t2i" else data.corpus.captions
    ids: list[Any] = items["id"].to_pylist()
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
            yield data.slice(encoder, "hubs", feature, feature, interval, level_name=level_name, detail=detail)


def k_occurrence(top_ords: NDArray[np.int32], k: int, n_items: int) -> NDArray[np.int64]:
    """``N_k`` of every item of the corpus, searched or not: int64, shape ``(n_items,)``.

    ``top_ords`` are the best items of every query, shape ``(n_queries, width)``, -1 beyond the gallery.

    Examples:
        >>> k_occurrence(np.int32([[0, 1], [0, 2], [1, 0]]), 2, 4).tolist()
        [3, 2, 1, 0]
    """
    listed = top_ords[:, :k].ravel()
    return np.bincount(listed[listed >= 0], minlength=n_items)


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
    return float(_skewness_of((counts.astype(np.float64) ** _POWERS).sum(axis=1), len(counts)))


def _skewness_of(sums: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Skewness of ``n`` values from the sums of their first three powers, shape ``(3, ...)``."""
    first, second, third = sums
    mean = first / n
    variance = second / n - mean**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(variance > 0, (third / n - 3 * mean * second / n + 2 * mean**3) / variance**1.5, np.nan)


def _skewness_without(lists: sparse.csr_matrix, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Skewness when each cluster's lists are left out in turn, shape ``(n_clusters,)``.

    Only the items of a cluster's lists change their count, so the sums of powers are corrected by these.
    """
    before = counts.astype(np.float64)[lists.indices]
    changes = (before - lists.data) ** _POWERS - before**_POWERS
    sums = (counts.astype(np.float64) ** _POWERS).sum(axis=1)
    return _skewness_of(sums[:, None] + [_by_cluster(lists, change) for change in changes], len(counts))


def _never_without(lists: sparse.csr_matrix, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of items in no list when each cluster's lists are left out in turn, shape ``(n_clusters,)``."""
    return np.asarray(((counts == 0).sum() + _by_cluster(lists, counts[lists.indices] == lists.data)) / len(counts))


def _by_cluster(lists: sparse.csr_matrix, values: NDArray[np.float64] | NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sums over the stored entries of each row, shape ``(n_clusters,)``."""
    owner = np.repeat(np.arange(lists.shape[0]), np.diff(lists.indptr))
    return np.bincount(owner, weights=values, minlength=lists.shape[0]).astype(np.float64)


def _jackknifed(
    estimate: float, left_out: NDArray[np.float64], level: float, *, ends: tuple[float, float] = (-np.inf, np.inf)
) -> Interval:
    """The normal interval with the jackknife's standard error (Efron and Tibshirani 1993, equation 11.5).

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
    """How often each cluster's queries have each item in their first ``K``: shape ``(n_clusters, n_items)``."""
    lists = top_ords[:, :K]
    owner = np.repeat(data.clusters.labels, lists.shape[1])
    item = lists.ravel()
    real = item >= 0
    shape = (data.clusters.n_clusters, n_items)
    return sparse.coo_matrix((np.ones(int(real.sum())), (owner[real], item[real])), shape=shape).tocsc()


def _worst(
    outcomes: Outcomes, top_ords: NDArray[np.int32], counts: NDArray[np.int64], ids: list[str]
) -> list[dict[str, object]]:
    """The items that are most often wrongly in first place."""
    wrong = top_ords[outcomes.rank_best > 1, 0]
    first = np.bincount(wrong[wrong >= 0], minlength=len(counts))
    order = np.lexsort((-counts, -first))[:N_LISTED]
    return [{"id": ids[i], "wrongly_first": int(first[i]), f"n_{K}": int(counts[i])} for i in order if first[i]]


# --- The modality gap: image and caption vectors occupy different regions (Liang et al., Mind the Gap, NeurIPS 2022).


NOT_SAMPLED = "no interval: computed from all stored vectors, nothing was sampled"


def modality_gap(data: AnalysisInput) -> Iterator[Slice]:
    """Distance between the mean image and the mean caption, and mean cosines; single-vector encoders only."""
    for encoder in data.encoders:
        vectors = data.vectors(encoder)
        if not isinstance(vectors, SingleVectors):
            continue
        images, captions = vectors.images, vectors.captions
        figures = {
            "distance of the centres": centre_distance(images, captions),
            "mean cosine of two images": mean_cosine(images),
            "mean cosine of two captions": mean_cosine(captions),
            "mean cosine of an image and a caption": float(_centre(images) @ _centre(captions)),
        }
        for name, value in figures.items():
            interval = Interval(value=value, reason=NOT_SAMPLED)
            yield data.slice(encoder, "gap", name, name, interval, counts=(len(captions), len(images)))


def centre_distance(images: NDArray[np.float32], captions: NDArray[np.float32]) -> float:
    """Euclidean distance between the mean image and the mean caption, 0..2 for unit vectors.

    Examples:
        >>> centre_distance(np.float32([[1, 0], [1, 0]]), np.float32([[0, 1]]))
        1.4142135623730951
    """
    return float(np.linalg.norm(_centre(images) - _centre(captions)))


def mean_cosine(vectors: NDArray[np.float32]) -> float:
    """Mean cosine of two different items; NaN for fewer than two.

    Examples:
        >>> mean_cosine(np.float32([[1, 0], [0, 1], [1, 0]]))
        0.3333333333333333
    """
    n = len(vectors)
    if n < 2:
        return float("nan")
    total = vectors.sum(axis=0, dtype=np.float64)
    own = float(np.einsum("nd,nd->", vectors, vectors, dtype=np.float64))
    return (float(total @ total) - own) / (n * (n - 1))


def _centre(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    centre: NDArray[np.float64] = vectors.mean(axis=0, dtype=np.float64)
    return centre
