"""Outcomes of encoders under protocols -> rows of ``schema.RESULTS``: every metric with its interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.schema import RESULTS
from store.types import digest16
from tasks.metrics import Metric
from tasks.scoring.outcomes import Outcomes
from tasks.statistics.bootstrap import Interval, bootstrap_samples
from tasks.statistics.clusters import Clusters
from tasks.statistics.proportion import cluster_robust_error, wilson_interval
from tasks.statistics.resampling import Resampling
from tasks.statistics.statistic import REDUCTIONS, ClusteredValues

AT_THE_EDGE = "all queries have the same outcome: Wilson interval over the {n} clusters instead of the bootstrap"


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where the rows of one evaluation come from; the columns of the same names.

    ``evaluation`` is a digest of the embedding sets, the protocol and the scorer version. ``image_tag`` and
    ``caption_tag`` name the sealed embedding sets; they are empty for outcomes from elsewhere.
    """

    evaluation: str
    encoder: str
    encoder_fingerprint: str
    corpus: str
    corpus_fingerprint: str
    image_tag: str
    caption_tag: str
    run: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluated:
    """The outcomes of one encoder under one protocol, and the metrics to compute from them.

    Attributes:
        outcomes: One per query.
        metrics: To compute from them.
        provenance: Where the outcomes come from.
        n_clusters: Images of the corpus (for ``winoground``: quadruples), so that all protocols share draws.
    """

    outcomes: Outcomes
    metrics: Sequence[Metric]
    provenance: Provenance
    n_clusters: int

    @cached_property
    def clusters(self) -> Clusters:
        """The clusters of the queries."""
        return Clusters.of(self.outcomes.clusters, self.n_clusters, self.outcomes.weights)

    @cached_property
    def per_query(self) -> NDArray[np.float64]:
        """The values of each metric, shape ``(n_metrics, n_queries)``."""
        return np.array([metric.per_query(self.outcomes) for metric in self.metrics], dtype=np.float64)


def result_rows(evaluated: Sequence[Evaluated], resampling: Resampling) -> pa.Table:
    """One row of ``schema.RESULTS`` per metric of each evaluation, in their order.

    All intervals are computed in one pass over the draws, much faster than one evaluation after the other. An interval
    that cannot be computed is null with a ``reason``; where all queries of a share hit (or all miss), Wilson over the
    clusters replaces the bootstrap.
    """
    intervals = _intervals(evaluated, resampling)
    return results_table(
        row for i, of_protocol in enumerate(evaluated) for row in _metric_rows(of_protocol, intervals[i], resampling)
    )


def results_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """The rows as a table of ``schema.RESULTS``, created now."""
    created = datetime.now(UTC)
    return pa.Table.from_pylist([{**row, "created": created} for row in rows], schema=RESULTS)


def result_row(
    provenance: Provenance,
    resampling: Resampling,
    interval: Interval,
    *,
    protocol: str,
    metric: str,
    value: float | None,
    n_queries: int,
    n_clusters: int,
) -> dict[str, Any]:
    """The columns of ``schema.RESULTS`` that every figure has."""
    return {
        **asdict(provenance),
        "result": result_key(provenance, protocol, metric),
        "protocol": protocol,
        "metric": metric,
        "value": value,
        "ci_low": interval.low,
        "ci_high": interval.high,
        "standard_error": interval.standard_error,
        "interval_method": interval.method,
        "reason": interval.reason,
        "n_queries": n_queries,
        "n_clusters": n_clusters,
        "level": resampling.level,
        "replicates": resampling.replicates,
        "seed": resampling.seed,
    }


def result_key(provenance: Provenance, protocol: str, metric: str) -> str:
    """The id of a row of ``schema.RESULTS``: a digest of evaluation, encoder, protocol and metric."""
    return digest16([provenance.evaluation, provenance.encoder_fingerprint, protocol, metric])


def _metric_rows(evaluated: Evaluated, intervals: Sequence[Interval], resampling: Resampling) -> list[dict[str, Any]]:
    outcomes, clusters = evaluated.outcomes, evaluated.clusters
    scored = bool(np.isfinite(outcomes.best_score).all())  # imported hit lists give rank ranges, which are not ties
    return [
        {
            **result_row(
                evaluated.provenance,
                resampling,
                interval,
                protocol=outcomes.protocol.id,
                metric=metric.name,
                value=metric.value(outcomes),
                n_queries=clusters.n_queries,
                n_clusters=clusters.n_occupied,
            ),
            "robust_error": cluster_robust_error(values, clusters)
            if metric.reduce == "mean" and clusters.n_occupied > 1
            else None,
            **_wilson(values, clusters, resampling.level),
            "value_ties_lost": _reduced(metric.per_query(outcomes, "lost"), metric, clusters),
            "value_ties_won": _reduced(metric.per_query(outcomes, "won"), metric, clusters),
            "tie_share": float(outcomes.tied.mean()) if scored else None,
            "chance": metric.chance(outcomes),
        }
        for metric, values, interval in zip(evaluated.metrics, evaluated.per_query, intervals, strict=True)
    ]


def _intervals(evaluated: Sequence[Evaluated], resampling: Resampling) -> list[list[Interval]]:
    """For each evaluation the interval of every metric; all with the same draws and the same reduction together."""
    intervals: list[dict[int, Interval]] = [{} for _ in evaluated]
    for n_clusters in dict.fromkeys(each.n_clusters for each in evaluated):
        for reduce in REDUCTIONS:
            chosen = {
                i: [row for row, metric in enumerate(each.metrics) if metric.reduce == reduce]
                for i, each in enumerate(evaluated)
                if each.n_clusters == n_clusters
            }
            chosen = {i: rows for i, rows in chosen.items() if rows}
            samples = [
                ClusteredValues(evaluated[i].per_query[rows], evaluated[i].clusters) for i, rows in chosen.items()
            ]
            for (i, rows), of_rows in zip(chosen.items(), bootstrap_samples(samples, resampling, reduce), strict=True):
                intervals[i] |= dict(zip(rows, of_rows, strict=True))
    return [
        [
            _at_the_edge(of_protocol[row], each.per_query[row], each.clusters, resampling.level)
            if metric.reduce == "mean" and metric.higher_is_better
            else of_protocol[row]
            for row, metric in enumerate(each.metrics)
        ]
        for each, of_protocol in zip(evaluated, intervals, strict=True)
    ]


def _reduced(values: NDArray[np.float64], metric: Metric, clusters: Clusters) -> float:
    return float(np.median(values)) if metric.reduce == "median" else clusters.mean(values)


def _at_the_edge(interval: Interval, values: NDArray[np.float64], clusters: Clusters, level: float) -> Interval:
    """The Wilson interval where every query of a share hits, or every one misses; else the interval as it is.

    The clusters are counted, not the queries: at worst, all queries of an image have the same outcome.
    """
    n = clusters.n_occupied
    if interval.low is not None or n < 2 or values[0] not in (0.0, 1.0) or np.ptp(values) != 0:
        return interval
    low, high = wilson_interval(float(values[0]) * n, n, level=level)
    return Interval(value=interval.value, low=low, high=high, method="wilson", reason=AT_THE_EDGE.format(n=n))


def _wilson(values: NDArray[np.float64], clusters: Clusters, level: float) -> dict[str, float | None]:
    """The Wilson interval beside the bootstrap where queries are independent hits and misses; else nulls."""
    if not clusters.independent or not np.isin(values, (0.0, 1.0)).all():
        return {"wilson_low": None, "wilson_high": None}
    low, high = wilson_interval(float(values.sum()), len(values), level=level)
    return {"wilson_low": low, "wilson_high": high}
