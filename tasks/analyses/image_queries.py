"""Contributions of image and text to a query of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from capim.tasks.analyses.analysis import AnalysisInput, SingleVectors, Slice, against_first
from capim.tasks.metrics import METRICS, Metric
from capim.tasks.ranking.tasks import RetrievalTask

WEIGHTS = tuple(round(0.05 * step, 2) for step in range(21))  # candidate weights of the text
CHOSEN = "text weighted as is best on the other half"


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


def _values(task: RetrievalTask, vectors: SingleVectors, metric: Metric) -> NDArray[np.float64]:
    """Return the metric of every query of a task."""
    from capim.tasks.ranking.cosine import dense_outcomes

    return metric.per_query(dense_outcomes(vectors.images, vectors.captions, task))
