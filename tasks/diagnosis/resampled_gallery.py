"""Recall with a gallery that is drawn along with the queries, as V29 computes it: biased, for comparison only.

5,000 images drawn with replacement are about 3,160 different ones, and a smaller gallery is easier: the mean over the
draws lies well above the metric. The headline keeps the gallery fixed (``tasks.statistics.bootstrap``).

Computed from stored result lists. An image that is drawn several times counts once. Every relevant item belongs to the
query's own image, so it is in the gallery whenever the query is, and the query's rank is one more than the number of
drawn items above its best relevant item. These items are the first ``rank_best - 1`` of the stored list (100 items).
Only where fewer than ``k`` items of a list that ends too early were drawn is the rank undecided: about one in 10^27
draws for ``k = 10``. Then the value is null, with the reason; else it is exact, ties included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.diagnosis.analysis_input import AnalysisInput
from tasks.diagnosis.slice_means import overall_slice
from tasks.diagnosis.slices import Slice
from tasks.metrics.retrieval import expected_hit
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.layout import layout_of
from tasks.statistics.bootstrap import Interval, interval_of
from tasks.statistics.draws import count_blocks

MAX_REPLICATES = 1000  # as in V29
CUTOFFS = (1, 5, 10)


def resampled_gallery(data: AnalysisInput) -> Iterator[Slice]:
    """R@1, R@5 and R@10 with a resampled gallery for every encoder with result lists; every slice is labelled biased.

    The value is the mean over the draws, the interval their percentiles; the detail holds the metric with the gallery
    fixed, the mean share of the images in a draw, and how many pairs of query and draw are undecided. For protocols
    whose relevant items belong to the query's own image.
    """
    how, clusters = data.resampling, data.clusters
    replicates = min(MAX_REPLICATES, how.replicates)
    layout = layout_of(data.corpus)
    to_images = data.protocol.direction == "t2i"
    image_of_item = np.arange(layout.n_images, dtype=np.int32) if to_images else layout.caption_images
    for encoder, outcomes, top_ords in data.with_lists():
        lists = _lists(outcomes, top_ords, image_of_item)
        recalls: dict[int, list[NDArray[np.float64]]] = {k: [] for k in CUTOFFS}
        undecided = dict.fromkeys(CUTOFFS, 0)
        n_present = 0
        for counts in count_blocks(clusters.n_clusters, replicates=replicates, seed=how.seed):
            present = np.ascontiguousarray(counts.T > 0)  # shape (n_clusters, n_draws)
            drawn = present[clusters.labels]
            weights = drawn * clusters.weights[:, None]
            above = _drawn_above(lists, present)
            for k in CUTOFFS:
                hits = _expected_hits(lists, above, present, k)
                with np.errstate(invalid="ignore"):
                    recalls[k].append((hits * weights).sum(axis=0) / weights.sum(axis=0))
                undecided[k] += int((drawn & (above < k) & lists.incomplete[:, None]).sum())
            n_present += int(present.sum())
        for k in CUTOFFS:
            fixed = expected_hit(outcomes.rank_best, outcomes.rank_worst, outcomes.n_tied_relevant, k=k)
            yield overall_slice(
                data,
                encoder,
                "resampled-gallery",
                "gallery",
                f"R@{k}",
                _interval(np.concatenate(recalls[k]), undecided[k], top_ords.shape[1], how.level),
                level_name="resampled (biased)",
                detail={
                    "fixed_gallery": clusters.mean(fixed),
                    "gallery_share": n_present / clusters.n_clusters / replicates,
                    "replicates": replicates,
                    "undecided": undecided[k],
                },
            )


class _Lists(NamedTuple):
    """The result lists as images.

    ``images``: image of each listed item, shape ``(n_queries, width)``. ``n_above``: listed items above the best
    relevant one. ``incomplete``: whether items above or tied with it lie beyond the list. ``tied``: query -> images of
    the irrelevant items tied with it. ``n_tied_relevant``: per query.
    """

    images: NDArray[np.int32]
    n_above: NDArray[np.int64]
    incomplete: NDArray[np.bool_]
    tied: dict[int, NDArray[np.int32]]
    n_tied_relevant: NDArray[np.int32]


def _lists(outcomes: Outcomes, top_ords: NDArray[np.int32], image_of_item: NDArray[np.int32]) -> _Lists:
    width = top_ords.shape[1]
    images = np.where(top_ords >= 0, image_of_item[np.maximum(top_ords, 0)], 0)
    n_above = outcomes.rank_best - 1
    end_of_tie = outcomes.rank_worst - 1 + outcomes.n_tied_relevant
    incomplete = (n_above > width) | (outcomes.tied & (end_of_tie > (top_ords >= 0).sum(axis=1)))
    tied = {}
    for query in np.flatnonzero(outcomes.tied & ~incomplete).tolist():
        level = images[query, n_above[query] : end_of_tie[query]]
        tied[query] = level[level != outcomes.clusters[query]]
    return _Lists(images, np.minimum(n_above, width).astype(np.int64), incomplete, tied, outcomes.n_tied_relevant)


def _drawn_above(lists: _Lists, present: NDArray[np.bool_]) -> NDArray[np.uint16]:
    """Drawn items above the best relevant one, shape ``(n_queries, n_draws)``; counting ends at the largest cutoff."""
    counted = np.zeros((len(lists.images), present.shape[1]), dtype=np.uint16)
    queries = np.arange(len(lists.images))
    for place in range(lists.images.shape[1]):
        queries = queries[lists.n_above[queries] > place]
        if place >= max(CUTOFFS):
            queries = queries[counted[queries].min(axis=1) < max(CUTOFFS)]
        if not len(queries):
            break
        counted[queries] += present[lists.images[queries, place]]
    return counted


def _expected_hits(lists: _Lists, above: NDArray[np.uint16], present: NDArray[np.bool_], k: int) -> NDArray[np.float64]:
    """Expected hits at ``k``, shape ``(n_queries, n_draws)``; of incomplete lists only the misses are certain."""
    hits = (above < k).astype(np.float64)
    for query, images in lists.tied.items():
        low = above[query].astype(np.int32) + 1
        high = low + present[images].sum(axis=0, dtype=np.int32)
        hits[query] = expected_hit(low, high, np.full_like(low, lists.n_tied_relevant[query]), k=k)
    return hits


def _interval(recalls: NDArray[np.float64], undecided: int, width: int, level: float) -> Interval:
    if undecided:
        reason = f"no value: lists of {width} items leave {undecided} pairs of query and draw undecided"
        return Interval(value=float("nan"), reason=reason)
    recalls = recalls[np.isfinite(recalls)]
    return interval_of(float(recalls.mean()), recalls, level=level)
