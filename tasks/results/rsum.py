"""RSUM: R@1, R@5 and R@10 of both directions added up, with the interval of the sum (``protocols.md`` §5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.errors import RequestError
from store.schema import RESULTS
from tasks.metrics import Metric
from tasks.metrics.retrieval import hit_at
from tasks.results.summary import Provenance, result_key
from tasks.scoring.outcomes import Outcomes
from tasks.statistics.bootstrap import bootstrap_statistic
from tasks.statistics.clusters import Clusters
from tasks.statistics.resampling import Resampling
from tasks.statistics.statistic import Sample, stacked_means

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
        RequestError: Outcomes of another direction than asked for.

    Examples:
        >>> from tasks.metrics.examples import outcomes_of
        >>> t2i = outcomes_of([[1], [2], [3], [20]], direction="t2i", protocol="t2i/all")
        >>> i2t = outcomes_of([[1], [1], [7], [1]])
        >>> whose = Provenance(evaluation="", encoder="", encoder_fingerprint="", corpus="", corpus_fingerprint="",
        ...                    image_tag="", caption_tag="", run="")
        >>> row = rsum_row(t2i, i2t, whose, n_clusters=4, resampling=Resampling(replicates=100))
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
    means = stacked_means(
        [
            Sample([m.per_query(outcomes) for m in RECALLS], units)
            for outcomes, units in zip(both, clusters, strict=True)
        ]
    )

    def total(weights: NDArray[np.uint8]) -> NDArray[np.float64]:
        summed: NDArray[np.float64] = 100 * means(weights).sum(axis=0, keepdims=True)
        return summed

    n_occupied = len(np.union1d(t2i.clusters, i2t.clusters))
    [interval] = bootstrap_statistic(
        total,
        n_clusters=n_clusters,
        occupied=[n_occupied],
        seed=resampling.seed,
        replicates=resampling.replicates,
        level=resampling.level,
        method=resampling.method,
    )
    protocol = f"{t2i.protocol.id}+{i2t.protocol.id}"
    row = {
        **asdict(provenance),
        "result": result_key(provenance, protocol, "RSUM"),
        "protocol": protocol,
        "metric": "RSUM",
        "value": _points(both, clusters, lambda metric, o: metric.per_query(o)),
        "ci_low": interval.low,
        "ci_high": interval.high,
        "standard_error": interval.standard_error,
        "value_ties_lost": _points(both, clusters, lambda metric, o: metric.per_query_low(o)),
        "value_ties_won": _points(both, clusters, lambda metric, o: metric.per_query_high(o)),
        "tie_share": float(np.concatenate([t2i.tied, i2t.tied]).mean()),
        "n_queries": len(t2i) + len(i2t),
        "n_clusters": n_occupied,
        "chance": _chance(both),
        "interval_method": interval.method,
        "level": resampling.level,
        "replicates": resampling.replicates,
        "seed": resampling.seed,
        "reason": interval.reason,
        "created": datetime.now(UTC),
    }
    return pa.Table.from_pylist([row], schema=RESULTS)


def _points(
    both: Sequence[Outcomes], clusters: Sequence[Clusters], values: Callable[[Metric, Outcomes], NDArray[np.float64]]
) -> float:
    """The six means added up."""
    return 100 * math.fsum(
        units.mean(values(metric, outcomes))
        for outcomes, units in zip(both, clusters, strict=True)
        for metric in RECALLS
    )


def _chance(both: Sequence[Outcomes]) -> float | None:
    """What guessing gets; None where that is not known of one of the six."""
    guesses = [metric.chance(outcomes) for outcomes in both for metric in RECALLS]
    known = [guess for guess in guesses if guess is not None]
    return 100 * math.fsum(known) if len(known) == len(guesses) else None
