"""Can a score be read as a probability, and as a threshold?

Temperature: the softmax over the gallery of ``scale * score`` is taken for the probability that an item is right, as
CLIP-like models are trained to; a scale fits if the first item is right as often as it says (Guo et al., On
Calibration of Modern Neural Networks, ICML 2017). Threshold: answers are given only above a score; precision is the
share of given answers that are right, recall the share of all queries that get a right answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from tasks.diagnosis.ablations.embedded import Single
from tasks.diagnosis.contrasts import mean_slices
from tasks.diagnosis.subject import Slice, Subject
from tasks.metrics import METRICS
from tasks.scoring.protocols.selection import build_task
from tasks.scoring.protocols.tasks import RetrievalTask
from tasks.statistics.bootstrap import Interval
from tasks.statistics.slices import part_means

SCALES = (5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
KEPT = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1)  # shares of the queries that are answered
BINS = 15
_BLOCK_BYTES = 64 << 20  # of scores, for one product
_CACHED_BYTES = 1 << 19  # of scores, for one thread


def temperatures(subject: Subject) -> Iterator[Slice]:
    """Per scale the negative log likelihood of the relevant items, and the expected calibration error of the first.

    Single-vector encoders only: sums of many cosines have no such scale.
    """
    if subject.protocol.direction not in ("t2i", "i2t"):
        return
    judgement = build_task(subject.corpus, subject.protocol)
    if not isinstance(judgement, RetrievalTask) or len(judgement.galleries) > 1:
        return
    for encoder, outcomes in subject.outcomes.items():
        vectors = subject.embedded(encoder)
        if not isinstance(vectors, Single):
            continue
        confidence, likelihood = _probabilities(vectors.images.matrix, vectors.captions.matrix, judgement)
        hits = METRICS["R@1"].per_query(outcomes)
        rows = {(encoder, "scale", f"{scale:g}"): -likelihood[at] for at, scale in enumerate(SCALES)}
        details = {(encoder, "scale", f"{scale:g}"): {"x": scale} for scale in SCALES}
        yield from mean_slices(subject, "temperature", rows, metric="negative log likelihood", details=details)
        for at, scale in enumerate(SCALES):
            yield Slice(
                encoder=encoder,
                analysis="temperature",
                feature="scale",
                level_name=f"{scale:g}",
                metric="expected calibration error",
                interval=Interval(
                    value=calibration_error(confidence[at], hits),
                    reason="a sum of absolute values is biased upwards in every resample",
                ),
                n_queries=len(hits),
                n_clusters=subject.clusters.n_occupied,
                detail={"x": scale, "mean_confidence": float(confidence[at].mean()), "accuracy": float(hits.mean())},
            )


def thresholds(subject: Subject) -> Iterator[Slice]:
    """Precision when only the share of queries with the highest first scores is answered; recall in the detail."""
    if subject.protocol.direction not in ("t2i", "i2t"):
        return
    for encoder, outcomes in subject.outcomes.items():
        if outcomes.top_scores is None:
            continue
        hits = METRICS["R@1"].per_query(outcomes)
        first = outcomes.top_scores[:, 0]
        cuts = [float(np.quantile(first, 1 - share, method="lower")) for share in KEPT]
        answered = np.stack([first >= cut for cut in cuts])
        means = part_means(hits, answered, subject.clusters, subject.resampling)
        for at, (share, cut) in enumerate(zip(KEPT, cuts, strict=True)):
            yield Slice(
                encoder=encoder,
                analysis="threshold",
                feature="answered",
                level_name=f"{share:.0%} of queries",
                metric="precision",
                interval=means.interval(0, at),
                n_queries=int(means.n_queries[at]),
                n_clusters=int(means.n_clusters[at]),
                detail={"x": cut, "recall": float((hits * answered[at]).sum() / len(hits))},
            )


def calibration_error(confidence: NDArray[np.float64], hits: NDArray[np.float64], bins: int = BINS) -> float:
    """Expected calibration error over bins of equally many queries (Nguyen and O'Connor 2015: adaptive bins).

    Args:
        confidence: Probability given to the first item, shape ``(n_queries,)``.
        hits: Expected hit at 1, same shape.
        bins: At most this many.

    Examples:
        Two queries at 0.9 of which one is right, two at 0.5 of which one is right: errors 0.4 and 0.

        >>> round(calibration_error(np.array([0.9, 0.9, 0.5, 0.5]), np.array([1.0, 0, 1, 0]), bins=2), 6)
        0.2
    """
    order = np.argsort(confidence, kind="stable")
    parts = [part for part in np.array_split(order, min(bins, len(order))) if len(part)]
    return float(sum(len(p) * abs(confidence[p].mean() - hits[p].mean()) for p in parts) / len(order))


def _probabilities(
    images: NDArray[np.float32], captions: NDArray[np.float32], judgement: RetrievalTask
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per scale and query: the probability of the first item, and the log probability of the relevant ones.

    Returns:
        Two float64 arrays of shape ``(len(SCALES), n_queries)``.
    """
    queries, items = (captions, images) if judgement.protocol.direction == "t2i" else (images, captions)
    gallery = judgement.galleries[0]
    confidence = np.empty((len(SCALES), len(judgement.queries)))
    likelihood = np.empty_like(confidence)
    searched = items[gallery].T
    rows = max(1, _BLOCK_BYTES // (4 * len(gallery)))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(judgement.queries), rows):
            stop = min(start + rows, len(judgement.queries))
            scores = queries[judgement.queries[start:stop]] @ searched
            scores -= scores.max(axis=1, keepdims=True)
            own = judgement.relevant[judgement.offsets[start] : judgement.offsets[stop]]
            row = np.repeat(np.arange(stop - start), judgement.n_relevant[start:stop])
            relevant = scores[row, np.searchsorted(gallery, own)]
            pieces = np.array_split(scores, max(1, scores.nbytes // _CACHED_BYTES))
            totals = np.concatenate(list(pool.map(_totals, pieces)), axis=1)
            confidence[:, start:stop] = 1 / totals
            for at, scale in enumerate(SCALES):
                right = np.bincount(row, weights=np.exp(scale * relevant.astype(np.float64)), minlength=stop - start)
                likelihood[at, start:stop] = np.log(np.maximum(right, np.finfo(np.float64).tiny)) - np.log(totals[at])
    return confidence, likelihood


def _totals(below: NDArray[np.float32]) -> NDArray[np.float64]:
    """Per scale and row the sum of exponentials, shape ``(len(SCALES), n_rows)``."""
    scaled = np.empty_like(below)
    sums = []
    for scale in SCALES:
        np.exp(np.multiply(below, np.float32(scale), out=scaled), out=scaled)
        sums.append(scaled.sum(axis=1, dtype=np.float64))
    return np.stack(sums)
