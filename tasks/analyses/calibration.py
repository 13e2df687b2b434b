"""Calibration: scores as probabilities, and as thresholds.

Temperature: the softmax over the gallery of ``scale * score`` is read as the probability that an item is relevant, as
in the training of CLIP-like models; a scale fits if the first item is correct as often as its probability says (Guo et
al., On Calibration of Modern Neural Networks, ICML 2017). Threshold: a query is answered only if its first score
reaches the threshold; precision is the share of answers that are correct, recall the share of all queries with a
correct answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from capim.tasks.analyses.ablations import FITTED_ON
from capim.tasks.analyses.analysis import R1, AnalysisInput, Matrix, QueryValues, Slice, mean_slices, part_slices
from capim.tasks.ranking.evaluate import score_blocks
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.statistics.intervals import Interval

SCALES = (5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
ANSWERED = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1)  # shares of the queries
BINS = 15
PRECISION = replace(R1, name="precision")
BIASED = "no interval: a sum of absolute values is biased upwards in every resample"
_CACHED_BYTES = 1 << 19  # of scores, for one thread


def temperatures(data: AnalysisInput) -> Iterator[Slice]:
    """Yield the negative log likelihood of the relevant items and the expected calibration error, per scale.

    Also with a fitted scale: for each half of the images, the scale with the highest likelihood on the other half.
    Single-vector encoders and one gallery only: sums of many cosines have no such scale.
    """
    second = data.second_half[data.queries.clusters]
    if len(data.task.galleries) > 1 or np.unique(second).size < 2:
        return
    for encoder, outcomes, vectors in data.with_single_vectors():
        confidence, likelihood = _probabilities(vectors.images, vectors.captions, data.task)
        hits = R1.per_query(outcomes)
        best = [int(likelihood[:, second != half].mean(axis=1).argmax()) for half in (False, True)]
        chosen = np.where(second, best[1], best[0])
        settings: list[tuple[str, NDArray[np.intp], dict[str, object]]]
        settings = [(f"{scale:g}", np.full(len(hits), at), {"x": scale}) for at, scale in enumerate(SCALES)]
        settings.append(("fitted", chosen, {"scales": [SCALES[at] for at in best], "fitted_on": FITTED_ON}))
        queries = np.arange(len(hits))
        rows = [QueryValues(encoder, "scale", -likelihood[at, queries], about, name) for name, at, about in settings]
        yield from mean_slices(data, "temperature", rows, metric="negative log likelihood")
        for name, at, about in settings:
            of_first = confidence[at, queries]
            error = Interval(value=calibration_error(of_first, hits), reason=BIASED)
            detail = {**about, "mean_confidence": float(of_first.mean()), "accuracy": float(hits.mean())}
            figure = encoder, "temperature", "scale", "expected calibration error"
            yield Slice(*figure, error, *data.counts, level_name=name, detail=detail)


def thresholds(data: AnalysisInput) -> Iterator[Slice]:
    """Yield the precision if only the queries with the highest first scores are answered; the detail has the recall.

    The threshold of a query comes from the scores of the other half of the images; the detail has the mean of both.
    """
    second = data.second_half[data.queries.clusters]
    if np.unique(second).size < 2:
        return
    for encoder, outcomes in data.outcomes.items():
        if outcomes.top_scores is None:
            continue
        hits = R1.per_query(outcomes)
        first = outcomes.top_scores[:, 0]
        parts, details = {}, {}
        for share in ANSWERED:
            name = ("answered", f"{share:.0%} of queries")
            least = [float(np.quantile(first[second != half], 1 - share, method="lower")) for half in (False, True)]
            parts[name] = (first >= np.where(second, *reversed(least))) | (share == 1)
            recall = float((hits * parts[name]).sum() / len(hits))
            details[name] = {"x": float(np.mean(least)), "recall": recall, "fitted_on": FITTED_ON}
        alone = replace(data, outcomes={encoder: outcomes})
        yield from part_slices(alone, "threshold", parts, metric=PRECISION, details=details)


def calibration_error(confidence: NDArray[np.float64], hits: NDArray[np.float64], bins: int = BINS) -> float:
    """Return the expected calibration error over at most ``bins`` bins of equal size (Nguyen and O'Connor 2015).

    ``confidence`` is the probability of the first item, ``hits`` the expected hit at 1; shape ``(n_queries,)``.

    Examples:
        Two queries at 0.9 and two at 0.5, one of each correct: errors 0.4 and 0.

        >>> round(calibration_error(np.array([0.9, 0.9, 0.5, 0.5]), np.array([1.0, 0, 1, 0]), bins=2), 6)
        0.2
    """
    order = np.argsort(confidence, kind="stable")
    parts = [part for part in np.array_split(order, min(bins, len(order))) if len(part)]
    return float(sum(len(p) * abs(confidence[p].mean() - hits[p].mean()) for p in parts) / len(order))


def _probabilities(
    images: Matrix, captions: Matrix, task: RetrievalTask
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the probability of the first item and the log probability of the relevant items, per scale and query.

    The scores are those of the ranks: numpy's products round differently with another number of threads.

    Returns:
        Two float64 arrays of shape ``(len(SCALES), n_queries)``.
    """
    confidence = np.empty((len(SCALES), len(task.queries)))
    likelihood = np.empty_like(confidence)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for block in score_blocks(images, captions, task):
            scores = block.scores - block.scores.max(axis=1, keepdims=True)
            row, item = np.nonzero(block.relevant)
            relevant = scores[row, item].astype(np.float64)
            pieces = np.array_split(scores, max(1, scores.nbytes // _CACHED_BYTES))
            totals = np.concatenate(list(pool.map(_totals, pieces)), axis=1)
            confidence[:, block.rows] = 1 / totals
            for at, scale in enumerate(SCALES):
                right = np.bincount(row, weights=np.exp(scale * relevant), minlength=len(scores))
                likelihood[at, block.rows] = np.log(np.maximum(right, np.finfo(np.float64).tiny)) - np.log(totals[at])
    return confidence, likelihood


def _totals(scores: Matrix) -> NDArray[np.float64]:
    """Return sums of the exponentials of each row, shape ``(len(SCALES), n_rows)``."""
    scaled = np.empty_like(scores)
    sums = []
    for scale in SCALES:
        np.exp(np.multiply(scores, np.float32(scale), out=scaled), out=scaled)
        sums.append(scaled.sum(axis=1, dtype=np.float64))
    return np.stack(sums)
