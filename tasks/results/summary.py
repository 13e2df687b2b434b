"""Outcomes of one encoder under one protocol -> rows of ``schema.RESULTS``: every metric with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.schema import RESULTS
from store.types import digest16
from tasks.metrics import Metric
from tasks.scoring.outcomes import Outcomes
from tasks.statistics.bootstrap import Interval, cluster_bootstrap
from tasks.statistics.clusters import Clusters
from tasks.statistics.proportion import cluster_robust_error, wilson_interval
from tasks.statistics.resampling import Resampling
from tasks.statistics.statistic import REDUCTIONS

AT_THE_EDGE = "every query has the same outcome, so the bootstrap shows no spread; Wilson over the {n} clusters instead"


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where the rows of one evaluation come from; the columns of the same names.

    Attributes:
        evaluation: Digest of the embedding sets, the protocol and the scorer version.
        encoder: Its name.
        encoder_fingerprint: Its fingerprint.
        corpus: Its name.
        corpus_fingerprint: Its fingerprint.
        image_tag: Sealed set of image embeddings; empty for outcomes from elsewhere.
        caption_tag: Sealed set of caption embeddings; empty for outcomes from elsewhere.
        run: The run that made the rows.
    """

    evaluation: str
    encoder: str
    encoder_fingerprint: str
    corpus: str
    corpus_fingerprint: str
    image_tag: str
    caption_tag: str
    run: str


def result_rows(
    outcomes: Outcomes,
    metrics: Sequence[Metric],
    provenance: Provenance,
    *,
    n_clusters: int,
    resampling: Resampling,
) -> pa.Table:
    """One row of ``schema.RESULTS`` per metric.

    Args:
        outcomes: Of one encoder under one protocol.
        metrics: To compute from them.
        provenance: Whose outcomes they are.
        n_clusters: Images of the corpus (for ``winoground``: quadruples), so that all protocols share draws.
        resampling: How the intervals are drawn.

    Returns:
        Rows in the order of ``metrics``. An interval that cannot be known is null with a ``reason``; where all
        queries of a share hit (or all miss), Wilson over the clusters takes the bootstrap's place.
    """
    clusters = Clusters.of(outcomes.clusters, n_clusters, outcomes.weights)
    scored = bool(np.isfinite(outcomes.best_score).all())  # hit lists hold ranks as brackets, which are no ties
    per_query = [np.asarray(metric.per_query(outcomes), dtype=np.float64) for metric in metrics]
    intervals = _intervals(metrics, per_query, clusters, resampling)
    created = datetime.now(UTC)
    rows = [
        {
            **asdict(provenance),
            "result": result_key(provenance, outcomes.protocol.id, metric.name),
            "protocol": outcomes.protocol.id,
            "metric": metric.name,
            "value": metric.value(outcomes),
            "ci_low": interval.low,
            "ci_high": interval.high,
            "standard_error": interval.standard_error,
            "robust_error": _robust_error(metric, values, clusters),
            **_wilson(values, clusters, resampling.level),
            "value_ties_lost": _reduced(metric.per_query_low(outcomes), metric, clusters),
            "value_ties_won": _reduced(metric.per_query_high(outcomes), metric, clusters),
            "tie_share": float(outcomes.tied.mean()) if scored else None,
            "n_queries": clusters.n_queries,
            "n_clusters": clusters.n_occupied,
            "chance": metric.chance(outcomes),
            "interval_method": interval.method,
            "level": resampling.level,
            "replicates": resampling.replicates,
            "seed": resampling.seed,
            "reason": interval.reason,
            "created": created,
        }
        for metric, values, interval in zip(metrics, per_query, intervals, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=RESULTS)


def result_key(provenance: Provenance, protocol: str, metric: str) -> str:
    """What identifies a row of ``schema.RESULTS``: whose outcomes, asked how, measured by what."""
    return digest16([provenance.evaluation, provenance.encoder_fingerprint, protocol, metric])


def _intervals(
    metrics: Sequence[Metric],
    per_query: Sequence[NDArray[np.float64]],
    clusters: Clusters,
    resampling: Resampling,
) -> list[Interval]:
    """The interval of every metric; metrics of one kind are bootstrapped together."""
    intervals: dict[int, Interval] = {}
    for reduce in REDUCTIONS:
        chosen = [i for i, metric in enumerate(metrics) if metric.reduce == reduce]
        if not chosen:
            continue
        found = cluster_bootstrap(
            np.stack([per_query[i] for i in chosen]),
            clusters.labels,
            seed=resampling.seed,
            n_clusters=clusters.n_clusters,
            weights=clusters.weights,
            replicates=resampling.replicates,
            level=resampling.level,
            method=resampling.method,
            reduce=reduce,
        )
        for i, interval in zip(chosen, found, strict=True):
            share = metrics[i].reduce == "mean" and metrics[i].higher_is_better
            intervals[i] = _at_the_edge(interval, per_query[i], clusters, resampling.level) if share else interval
    return [intervals[i] for i in range(len(metrics))]


def _robust_error(metric: Metric, values: NDArray[np.float64], clusters: Clusters) -> float | None:
    """Of a mean over at least two clusters."""
    if metric.reduce != "mean" or clusters.n_occupied < 2:
        return None
    return cluster_robust_error(values, clusters)


def _reduced(values: NDArray[np.float64], metric: Metric, clusters: Clusters) -> float:
    return float(np.median(values)) if metric.reduce == "median" else clusters.mean(values)


def _at_the_edge(interval: Interval, values: NDArray[np.float64], clusters: Clusters, level: float) -> Interval:
    """Wilson's interval where every query of a share hits, or every one misses; else the interval as it is.

    The clusters are counted, not the queries: at worst, all queries of an image say the same thing.
    """
    n = clusters.n_occupied
    if interval.low is not None or n < 2 or values[0] not in (0.0, 1.0) or np.ptp(values) != 0:
        return interval
    low, high = wilson_interval(float(values[0]) * n, n, level=level)
    return Interval(value=interval.value, low=low, high=high, method="wilson", reason=AT_THE_EDGE.format(n=n))


def _wilson(values: NDArray[np.float64], clusters: Clusters, level: float) -> dict[str, float | None]:
    """Wilson's interval beside the bootstrap's where queries are independent hits and misses; else nulls."""
    if not clusters.independent or not np.isin(values, (0.0, 1.0)).all():
        return {"wilson_low": None, "wilson_high": None}
    low, high = wilson_interval(float(values.sum()), len(values), level=level)
    return {"wilson_low": low, "wilson_high": high}
