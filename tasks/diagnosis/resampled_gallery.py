"""V29's bootstrap, which draws the gallery along with the queries: a diagnostic to compare with, labelled as biased.

Drawing 5,000 images with replacement leaves about 3,160 different ones to search among, and a smaller gallery is
easier: the mean over the draws lies well above the metric, and the interval is one of another task. The headline
keeps the gallery fixed (``tasks.statistics.bootstrap``).

Computed from stored outcomes, without a model and without a score that was not stored. What is exact, and why:

* An image drawn several times is one image: it counts once as a query and once in the gallery.
* Every relevant item belongs to the query's own image, so it is in the gallery whenever the query is. The query's
  rank among the drawn images is therefore one more than the *drawn* items above its best relevant item.
* Those items are the first ``rank_best - 1`` of its stored result list. The list has an end (100 items); a rank
  beyond it matters only where fewer than ``k`` of the listed items were drawn, about one in 10^27 draws for
  ``k = 10``. Such a draw is counted, and any at all makes the figure null with a reason.

So R@k is exact, ties included, or null. Metrics that need the rank itself (MRR, median rank) cannot be had from
lists and are not offered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from store.errors import RequestError
from tasks.diagnosis.subject import Slice, Subject
from tasks.metrics.retrieval import expected_hit
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.layout import layout_of
from tasks.statistics.bootstrap import Interval, interval_of
from tasks.statistics.clusters import Clusters
from tasks.statistics.draws import count_blocks

REPLICATES = 1000  # as V29


@dataclass(frozen=True, kw_only=True)
class ResampledGallery:
    """R@k with a resampled gallery.

    Attributes:
        k: Of R@k.
        interval: ``value`` is the mean over the draws (not the metric of the sample), the ends its percentiles.
        headline: R@k with the gallery fixed.
        gallery_share: Mean share of the corpus' images that a draw holds, about 0.632.
        undecided: Pairs of query and draw that the stored lists could not decide; above 0, the interval is null.
    """

    k: int
    interval: Interval
    headline: float
    gallery_share: float
    undecided: int

    @property
    def bias(self) -> float:
        """What resampling the gallery adds to the metric."""
        return self.interval.value - self.headline


def resampled_gallery(
    outcomes: Outcomes,
    item_clusters: ArrayLike,
    *,
    n_clusters: int,
    seed: int,
    replicates: int = REPLICATES,
    level: float = 0.95,
    cutoffs: Sequence[int] = (1, 5, 10),
) -> list[ResampledGallery]:
    """R@k in galleries drawn with replacement, one result per cutoff.

    Args:
        outcomes: Retrieval outcomes with result lists, every relevant item of the query's own image.
        item_clusters: The image of every item that can be found, integers: for ``t2i`` simply
            ``0 .. n_images - 1``, for ``i2t`` the image ord of each caption of the corpus.
        n_clusters: Images of the corpus.
        seed: Of the draws; the same draws as the headline's intervals.
        replicates: V29 used 1,000.
        level: Of the interval.
        cutoffs: Each ``k`` of R@k.

    Raises:
        RequestError: No result lists, or relevant items of other images (``cxc``, ``eccv``).
    """
    lists = _Lists.of(outcomes, np.asarray(item_clusters))
    clusters = Clusters.of(outcomes.clusters, n_clusters, outcomes.weights)
    recalls = np.empty((len(cutoffs), replicates))
    undecided = np.zeros(len(cutoffs), dtype=np.int64)
    present_share = 0.0
    start = 0
    for counts in count_blocks(n_clusters, replicates=replicates, seed=seed):
        present = np.ascontiguousarray(counts.T > 0)  # one row per cluster, one column per draw
        asked = present[clusters.labels]
        weights = asked * clusters.weights[:, None]
        drawn_above = lists.drawn_above(present, max(cutoffs))
        for row, k in enumerate(cutoffs):
            hits = lists.hits(drawn_above, present, k)
            with np.errstate(invalid="ignore"):
                recalls[row, start : start + len(counts)] = (hits * weights).sum(axis=0) / weights.sum(axis=0)
            undecided[row] += int((asked & (drawn_above < k) & lists.cut[:, None]).sum())
        present_share += float(present.sum()) / n_clusters
        start += len(counts)
    return [
        ResampledGallery(
            k=k,
            interval=_interval(row, int(unknown), outcomes, level),
            headline=clusters.mean(
                expected_hit(outcomes.rank_best, outcomes.rank_worst, outcomes.n_tied_relevant, k=k)
            ),
            gallery_share=present_share / replicates,
            undecided=int(unknown),
        )
        for k, row, unknown in zip(cutoffs, recalls, undecided, strict=True)
    ]


def resampled_galleries(subject: Subject) -> Iterator[Slice]:
    """R@1, R@5 and R@10 with a resampled gallery, for every encoder; each row is labelled as biased.

    Nothing for outcomes without result lists (hit lists) and for extra ground truths.
    """
    layout = layout_of(subject.corpus)
    to_images = subject.protocol.direction == "t2i"
    item_clusters = np.arange(layout.n_images) if to_images else layout.caption_images
    how = subject.resampling
    for encoder, outcomes in subject.outcomes.items():
        if outcomes.top_ords is None or subject.protocol.id.split("/")[1] in _ground_truths(subject):
            continue
        for found in resampled_gallery(
            outcomes,
            item_clusters,
            n_clusters=subject.clusters.n_clusters,
            seed=how.seed,
            replicates=min(REPLICATES, how.replicates),
            level=how.level,
        ):
            yield Slice(
                encoder=encoder,
                analysis="resampled-gallery",
                feature="gallery",
                level_name="resampled (biased)",
                metric=f"R@{found.k}",
                interval=found.interval,
                n_queries=len(outcomes),
                n_clusters=subject.clusters.n_occupied,
                detail={
                    "fixed_gallery": found.headline,
                    "gallery_share": found.gallery_share,
                    "replicates": min(REPLICATES, how.replicates),
                    "undecided": found.undecided,
                },
            )


def _ground_truths(subject: Subject) -> set[str]:
    return set(subject.corpus.relevance["ground_truth"].to_pylist())


def _interval(recalls: NDArray[np.float64], undecided: int, outcomes: Outcomes, level: float) -> Interval:
    drawn = recalls[np.isfinite(recalls)]
    if undecided:
        width = 0 if outcomes.top_ords is None else outcomes.top_ords.shape[1]
        reason = f"{undecided} pairs of query and draw cannot be decided by lists of {width} items; store longer lists"
        return Interval(value=float("nan"), reason=reason)
    return interval_of(float(drawn.mean()), drawn, level=level)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Lists:
    """The stored lists as images: who stands above and beside the best relevant item of each query.

    Attributes:
        images: int64, shape ``(n_queries, width)``: the image of each listed item, best first; 0 beyond the list.
        above: Listed items above the best relevant one.
        cut: Whether items above or beside the best relevant one lie beyond the list.
        tied: Of the tied queries only: query -> images of the irrelevant items tied with its best relevant one.
        n_tied_relevant: Per query.
    """

    images: NDArray[np.int64]
    above: NDArray[np.int64]
    cut: NDArray[np.bool_]
    tied: dict[int, NDArray[np.int64]]
    n_tied_relevant: NDArray[np.int32]

    @classmethod
    def of(cls, outcomes: Outcomes, item_clusters: NDArray[np.int64]) -> _Lists:
        if outcomes.top_ords is None:
            raise RequestError(
                f"{outcomes.protocol.id!r} has no stored result lists, which resampled-gallery reads; "
                "it needs the outcomes of a retrieval protocol scored by capim"
            )
        width = outcomes.top_ords.shape[1]
        listed = outcomes.top_ords >= 0
        images = np.where(listed, item_clusters[np.maximum(outcomes.top_ords, 0)], 0)
        own = listed & (images == outcomes.clusters[:, None])
        place = np.arange(width)
        first_above = (outcomes.rank_best - 1)[:, None]
        above = place < first_above
        level = (
            (place >= first_above) & (place < (outcomes.rank_worst - 1 + outcomes.n_tied_relevant)[:, None]) & listed
        )
        whole = outcomes.rank_worst - 1 + outcomes.n_tied_relevant <= listed.sum(axis=1)
        elsewhere = (own & above).any(axis=1) | (whole & ((own & level).sum(axis=1) != outcomes.n_tied_relevant))
        if elsewhere.any():
            raise RequestError(
                f"{outcomes.protocol.id!r}: {int(elsewhere.sum())} queries have relevant items of other images, first "
                f"{outcomes.query_ids[int(np.argmax(elsewhere))]!r}; whether these were drawn cannot be told from its "
                "best rank: resampled-gallery is for protocols whose ground truth is the query's own image"
            )
        cut = (outcomes.rank_best - 1 > width) | (outcomes.tied & ~whole)
        return cls(
            images=images,
            above=np.minimum(outcomes.rank_best - 1, width).astype(np.int64),
            cut=cut,
            tied={int(q): images[q][level[q] & ~own[q]] for q in np.flatnonzero(outcomes.tied & ~cut)},
            n_tied_relevant=outcomes.n_tied_relevant,
        )

    def hits(self, drawn_above: NDArray[np.uint16], present: NDArray[np.bool_], k: int) -> NDArray[np.float64]:
        """Expected hits at ``k``, shape ``(n_queries, n_draws)``; of ``cut`` queries only the misses are sure."""
        hits = (drawn_above < k).astype(np.float64)
        for query, images in self.tied.items():
            low = drawn_above[query].astype(np.int32) + 1
            high = low + present[images].sum(axis=0, dtype=np.int32)
            hits[query] = expected_hit(low, high, np.full_like(low, self.n_tied_relevant[query]), k=k)
        return hits

    def drawn_above(self, present: NDArray[np.bool_], enough: int) -> NDArray[np.uint16]:
        """Drawn items above the best relevant one, shape ``(n_queries, n_draws)``; ``enough`` stands for more."""
        counted = np.zeros((len(self.images), present.shape[1]), dtype=np.uint16)
        queries = np.arange(len(self.images))
        for place in range(self.images.shape[1]):
            queries = queries[self.above[queries] > place]
            if place >= enough:
                queries = queries[counted[queries].min(axis=1) < enough]
            if not len(queries):
                break
            counted[queries] += present[self.images[queries, place]]
        return counted
