"""Contributions of image and text to a query of both, and of near-duplicates to a result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from capim.store.types import Modality
from capim.store.vectors import offsets_of
from capim.tasks.analyses.analysis import (
    AnalysisInput,
    QueryValues,
    SingleVectors,
    Slice,
    against_first,
    as_change,
    mean_slices,
    paired_differences,
)
from capim.tasks.metrics import METRICS, Metric
from capim.tasks.ranking.drawn import drawn_clusters
from capim.tasks.ranking.layout import layout_of
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.slices import part_means

WEIGHTS = tuple(round(0.05 * step, 2) for step in range(21))  # candidate weights of the text
CHOSEN = "text weighted as is best on the other half"
THRESHOLDS = (0.99, 0.95, 0.9)  # cosines from which an image is a near-duplicate of an earlier one


def composed(data: AnalysisInput) -> Iterator[Slice]:
    """Yield the metric by the sum of image and text, by each of them, and by the best weight on other queries.

    Each half of the queries takes the weight of the text that is best on the other half; queries about one image are in
    one half.
    """
    space = data.task.query_space
    if space.references is None or space.text_weight == 1:
        return
    metric = METRICS[data.protocol.metrics[0]]
    second = data.second_half[data.queries.clusters]
    for encoder, _, vectors in data.with_single_vectors():
        weighted = [replace(data.task, query_space=replace(space, text_weight=weight)) for weight in WEIGHTS]
        values = np.stack([_values(task, vectors, metric) for task in weighted])
        best = [int(values[:, half].mean(axis=1).argmax()) for half in (~second, second)]
        chosen = np.where(second, values[best[0]], values[best[1]])
        levels = {
            "image and text": values[WEIGHTS.index(0.5)],
            CHOSEN: chosen,
            "image alone": values[0],
            "text alone": values[-1],
        }
        for each in against_first(data, encoder, "composed", levels, metric):
            own = {"weights": [WEIGHTS[at] for at in best]} if each.level_name == CHOSEN else {}
            yield replace(each, detail={**(each.detail or {}), **own})


def without_duplicates(data: AnalysisInput) -> Iterator[Slice]:
    """Yield the metric without images that repeat an earlier one: by their bytes, and by the cosine of the vectors.

    Such an image is removed from the gallery and from the queries, with its captions if these describe it. The change
    is that of the remaining queries, in the smaller gallery; ``left_out`` in the details counts images.
    """
    shas = data.corpus.images["sha"].to_pylist()
    first = {sha: at for at, sha in reversed([*enumerate(shas)]) if sha is not None}
    copies = np.array([first.get(sha, at) != at for at, sha in enumerate(shas)])
    for encoder, outcomes, vectors in data.with_single_vectors():
        nearest = nearest_earlier(vectors.images)
        whole = data.metric.per_query(outcomes)
        every = [QueryValues(encoder, "", whole, level_name="all images")]
        yield from mean_slices(data, "duplicates", every, metric=data.metric.name, share=data.is_share(data.metric))
        repeated = {"equal bytes": copies} | {f"cosine from {t:g}": copies | (nearest >= t) for t in THRESHOLDS}
        for name, gone in repeated.items():
            if gone.any() and not gone.all():
                yield from _without(data, encoder, vectors, whole, name, gone)


def _without(
    data: AnalysisInput,
    encoder: str,
    vectors: SingleVectors,
    whole: NDArray[np.float64],
    name: str,
    gone: NDArray[np.bool_],
) -> Iterator[Slice]:
    described = layout_of(data.corpus).caption_images
    kept: dict[Modality, NDArray[np.bool_]] = {"image": ~gone, "caption": (described < 0) | ~gone[described]}
    left = reduced(data.task, kept)
    if left is None:
        return
    task, rows = left
    share = data.is_share(data.metric)
    table = np.stack([_values(task, vectors, data.metric), whole[rows]])
    clusters = Clusters.of(task.clusters, drawn_clusters(data.corpus, data.protocol), task.weights)
    means = part_means(table, np.ones((1, len(rows)), dtype=bool), clusters, data.resampling, share=share)
    [change] = paired_differences(table, clusters, [(0, 1)], data.resampling)
    detail = {**as_change(change), "left_out": int(gone.sum())}
    counted = means.interval(0, 0), *means.counts(0, 0)
    yield Slice(encoder, "duplicates", "", data.metric.name, *counted, level_name=f"without {name}", detail=detail)


def nearest_earlier(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the highest cosine of each unit vector with one before it, shape ``(n,)``; -inf for the first.

    Examples:
        >>> nearest_earlier(np.float32([[1, 0], [0, 1], [1, 0]])).tolist()
        [-inf, 0.0, 1.0]
    """
    from capim.tasks.ranking.cosine import score_blocks
    from capim.tasks.ranking.ranker import ScoreRows

    def nearest(block: ScoreRows) -> NDArray[np.float32]:
        rows, scores = block.start + np.arange(len(block.scores)), block.scores.cpu().numpy()
        own = scores[:, block.start : block.start + len(rows)]
        own[np.triu_indices(len(rows))] = -np.inf  # within the block, keep only earlier ones
        return np.asarray(scores[:, : block.start + len(rows)].max(axis=1))

    return np.concatenate([*score_blocks(vectors, vectors, then=nearest)])


def reduced(
    task: RetrievalTask, kept: Mapping[Modality, NDArray[np.bool_]]
) -> tuple[RetrievalTask, NDArray[np.intp]] | None:
    """Return the task of some images and captions, and the positions of its queries; None if no answers are left.

    ``kept``: masks of the images and captions of the corpus that remain, by ord.
    """

    def stay(items: NDArray[np.integer]) -> NDArray[np.bool_]:
        return kept[task.item_space.modality][task.item_space.ords_of(items)]

    counts = np.bincount(task.query_of_relevant[stay(task.relevant)], minlength=len(task.queries))
    rows = np.flatnonzero(kept[task.query_space.modality][task.query_ords] & (counts > 0))
    if not len(rows):
        return None
    some = task.of_queries(rows)
    right = stay(some.relevant)

    def staying(pairs: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        return None if pairs is None else pairs[stay(pairs[:, 1])]

    return replace(
        some,
        galleries=tuple(gallery[stay(gallery)] for gallery in some.galleries),
        offsets=offsets_of(counts[rows]),
        relevant=some.relevant[right],
        grades=None if some.grades is None else some.grades[right],
        dismissed=staying(some.dismissed),
        excluded=staying(some.excluded),
    ), rows


def _values(task: RetrievalTask, vectors: SingleVectors, metric: Metric) -> NDArray[np.float64]:
    """Return the metric of every query of a task."""
    from capim.tasks.ranking.cosine import dense_outcomes

    return metric.per_query(dense_outcomes(vectors.images, vectors.captions, task))
