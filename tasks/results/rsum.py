"""RSUM: the sum of R@1, R@5 and R@10 of both directions, with the interval of the sum (``docs/protocols.md`` §5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.errors import RequestError
from tasks.metrics import Metric
from tasks.metrics.retrieval import hit_at
from tasks.results.summary import Provenance, result_row, results_table
from tasks.scoring.outcomes import Outcomes
from tasks.statistics.bootstrap import bootstrap_statistic
from tasks.statistics.clusters import Clusters
from tasks.statistics.resampling import Resampling
from tasks.statistics.statistic import ClusteredValues, stacked_means

RECALLS = (hit_at(1), hit_at(5), hit_at(10))


def rsum_row(
    t2i: Outcomes,
    i2t: Outcomes,
    provenance: Provenance,
    *,
    n_clusters: int,
    resampling: Resampling,
) -> pa.Table:
    """The one row of ``schema.RESULTS`` that belongs to two protocols; its protocol is ``<t2i>+<i2t>``.

    Both directions see the same draws, so the interval is that of the sum: narrower than six intervals added up.

    Args:
        t2i: Outcomes of the text-to-image direction.
        i2t: Outcomes of the image-to-text direction, of the same encoder and corpus.
        provenance: Of both; ``evaluation`` must identify the two together.
        n_clusters: Images of the corpus.
        resampling: How the interval is drawn.

    Returns:
        One row; ``value`` in points, 0..600.

    Raises:
        RequestError: ``t2i`` or ``i2t`` is of another direction.

    Examples:
        >>> from tasks.metrics.examples import outcomes_of
        >>> t2i = outcomes_of([[1], [2], [3], [20]], direction="t2i", protocol="t2i/all")
        >>> i2t = outcomes_of([[1], [1], [7], [1]])
        >>> source = Provenance(evaluation="", encoder="", encoder_fingerprint="", corpus="", corpus_fingerprint="",
        ...                     image_tag="", caption_tag="", run="")
        >>> row = rsum_row(t2i, i2t, source, n_clusters=4, resampling=Resampling(replicates=100))
        >>> row["protocol"][0].as_py(), row["value"][0].as_py()  # 25 + 75 + 75 and 75 + 75 + 100
        ('t2i/all+i2t/any', 425.0)
    """
    if (t2i.protocol.direction, i2t.protocol.direction) != ("t2i", "i2t"):
        raise RequestError(
            f"RSUM adds one t2i and one i2t protocol, got {t2i.protocol.id!r} ({t2i.protocol.direction}) "
            f"and {i2t.protocol.id!r} ({i2t.protocol.direction})"
        )
    both = (t2i, i2t)
    clusters = [Clusters.of(outcomes.clusters, n_clusters, outcomes.weights) for outcomes in both]
    recalls = [[metric.per_query(outcomes) for metric in RECALLS] for outcomes in both]
    means = stacked_means([ClusteredValues(*sample) for sample in zip(recalls, clusters, strict=True)])

    def total(weights: NDArray[np.uint8]) -> NDArray[np.float64]:
        summed: NDArray[np.float64] = 100 * means(weights).sum(axis=0, keepdims=True)
        return summed

    n_occupied = len(np.union1d(t2i.clusters, i2t.clusters))
    [interval] = bootstrap_statistic(total, resampling, n_clusters=n_clusters, occupied=[n_occupied])
    row = {
        **result_row(
            provenance,
            resampling,
            interval,
            protocol=f"{t2i.protocol.id}+{i2t.protocol.id}",
            metric="RSUM",
            value=_points(both, clusters, lambda metric, o: metric.per_query(o)),
            n_queries=len(t2i) + len(i2t),
            n_clusters=n_occupied,
        ),
        "value_ties_lost": _points(both, clusters, lambda metric, o: metric.per_query_low(o)),
        "value_ties_won": _points(both, clusters, lambda metric, o: metric.per_query_high(o)),
        "tie_share": float(np.concatenate([t2i.tied, i2t.tied]).mean()),
        "chance": _chance(both),
    }
    return results_table([row])


def _points(
    both: Sequence[Outcomes], clusters: Sequence[Clusters], values: Callable[[Metric, Outcomes], NDArray[np.float64]]
) -> float:
    """The sum of the six means, in points."""
    return 100 * math.fsum(
        units.mean(values(metric, outcomes))
        for outcomes, units in zip(both, clusters, strict=True)
        for metric in RECALLS
    )


def _chance(both: Sequence[Outcomes]) -> float | None:
    """The value of random scores; None where one of the six has none."""
    chances = [metric.chance(outcomes) for outcomes in both for metric in RECALLS]
    defined = [chance for chance in chances if chance is not None]
    return 100 * math.fsum(defined) if len(defined) == len(chances) else None
