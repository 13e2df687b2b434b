"""The gallery resampled with the queries, as in V29."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from capim.tasks.analyses.analysis import AnalysisInput, Slice
from capim.tasks.metrics.retrieval import RECALLS, expected_hit
from capim.tasks.ranking.layout import layout_of
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import count_blocks
from capim.tasks.statistics.intervals import Interval, percentile_interval

MAX_REPLICATES = 1000  # of a resampled gallery, as in V29
CUTOFFS = (1, 5, 10)


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
