"""The table of metrics. To add one: a :class:`Metric` in a file of its kind, and a row here.

A package of your own names a :class:`Metric` in an entry point ``capim.metrics`` (``docs/own_model.md``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import WorkError
from capim.store.plugins import Plugin, Table
from capim.tasks.metrics.compositional import PAIR_ACCURACY, WINOGROUND_GROUP, WINOGROUND_IMAGE, WINOGROUND_TEXT
from capim.tasks.metrics.crosslingual import CONSISTENCY_NDCG, CONSISTENCY_RBO
from capim.tasks.metrics.headline import RSUM
from capim.tasks.metrics.metric import Metric, Ties
from capim.tasks.metrics.retrieval import (
    AVERAGE_PRECISION,
    MAP_AT_R,
    MEAN_RANK,
    MEDIAN_RANK,
    MRR,
    R_PRECISION,
    RECALLS,
    UNJUDGED,
    hit_at,
    ndcg_at,
    recall_all_at,
)
from capim.tasks.scoring.outcomes import Outcomes

_OWN = {
    metric.name: metric
    for metric in (
        *RECALLS,
        MRR,
        MEDIAN_RANK,
        MEAN_RANK,
        MAP_AT_R,
        R_PRECISION,
        ndcg_at(5, judged=True),
        ndcg_at(10),
        recall_all_at(10),
        *(recall_all_at(k, judged=True) for k in (1, 5, 10)),
        AVERAGE_PRECISION,
        *(hit_at(k, judged=True) for k in (1, 5, 10)),
        UNJUDGED,
        WINOGROUND_TEXT,
        WINOGROUND_IMAGE,
        WINOGROUND_GROUP,
        PAIR_ACCURACY,
        CONSISTENCY_NDCG,
        CONSISTENCY_RBO,
    )
}


def _of_package(plugin: Plugin, found: object) -> Metric:
    """The metric, whose errors name the package."""
    if not isinstance(found, Metric):
        raise TypeError(f"expected a capim.tasks.metrics.Metric, got {type(found).__name__}")
    if found.name != plugin.point.name:
        raise ValueError(f"the metric has another name, {found.name!r}")

    def values(outcomes: Outcomes, ties: Ties) -> NDArray[np.float64]:
        try:
            return found.values(outcomes, ties)
        except Exception as error:
            raise WorkError(f"{plugin}: the metric failed ({type(error).__name__}: {error})") from error

    return replace(found, values=values, version=f"{found.version} of {plugin.package} {plugin.version}")


METRICS = Table("capim.metrics", _OWN, _of_package)
_MADE_OF = {RSUM.metric: [metric.name for metric in RECALLS]}


def metrics_of(outcomes: Outcomes) -> list[Metric]:
    """The metrics that apply to these outcomes and that they determine, in the order of the table."""
    return [metric for metric in METRICS.values() if metric.applies(outcomes) and is_known(metric, outcomes)]


def version_of(metric: str) -> str | None:
    """The version that a figure of this name is computed by now.

    Sums and means of several metrics have the versions of these. None where no metric of the table has the name: it is
    a user's, or one of a package that is not installed or cannot be used.
    """
    parts = _MADE_OF.get(metric, [metric.partition("_eta2_")[0]])
    return ", ".join(str(part.version) for part in METRICS.values() if part.name in parts) or None


def is_known(metric: Metric, outcomes: Outcomes) -> bool:
    """Whether outcomes determine a metric.

    They do unless some ranks are not known (``Outcomes.n_ranked``, imported outcomes) and a query has another value
    with these ranks at their best than at their worst.
    """
    if outcomes.n_ranked is None:
        return True
    best, worst = (metric.per_query(bound) for bound in outcomes.bounds())
    return np.array_equal(best, worst, equal_nan=True)
