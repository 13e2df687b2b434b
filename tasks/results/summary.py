"""Outcomes of encoders under protocols -> rows of ``schema.RESULTS``: every metric with its interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.schema import REPLICATES, RESULTS
from capim.store.types import digest16
from capim.tasks.metrics import Metric, version_of
from capim.tasks.metrics.crosslingual import CONSISTENCY_NDCG, CONSISTENCY_RBO
from capim.tasks.metrics.metric import Ties
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.statistics import VERSION
from capim.tasks.statistics.clusters import Clusters, Drawn, known_queries
from capim.tasks.statistics.decision import against_chance
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import (
    ClusteredValues,
    Interval,
    Reduce,
    bootstrap_replicates,
    bootstrap_samples,
    cluster_robust_error,
    interval_at_the_edge,
    share_interval,
    statistic_of,
)

ANY_SCORES = "no interval: any scores have this value, because the gallery is so small"
NOT_DEFINED = "no value: the aggregate of these queries is not a number"


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
    run: str
    image_tag: str = ""
    caption_tag: str = ""

    @property
    def identity(self) -> dict[str, str]:
        """The columns that the rows of outcomes have too."""
        names = ("evaluation", "encoder", "encoder_fingerprint", "corpus", "corpus_fingerprint")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluated:
    """The outcomes of one encoder under one protocol, and the metrics to compute from them.

    Attributes:
        drawn: Clusters of the corpus (``scoring.protocols.layout.drawn_clusters``), so that all protocols share draws.
    """

    outcomes: Outcomes
    metrics: Sequence[Metric]
    provenance: Provenance
    drawn: Drawn

    @cached_property
    def clusters(self) -> Clusters:
        """The clusters of the queries."""
        return Clusters.of(self.outcomes.clusters, self.drawn, self.outcomes.weights)

    @cached_property
    def samples(self) -> list[tuple[Metric, ClusteredValues]]:
        """Each metric that applies to a query, with its values of these queries (one row) and their clusters."""
        found = []
        for metric in self.metrics:
            values = np.asarray(metric.per_query(self.outcomes), dtype=np.float64)
            known = known_queries(values)
            if known.any():
                clusters = self.clusters if known.all() else self.clusters.only(known)
                found.append((metric, ClusteredValues(values[known][None], clusters)))
        return found


def result_rows(evaluated: Sequence[Evaluated], resampling: Resampling) -> pa.Table:
    """One row of ``schema.RESULTS`` per metric of each evaluation, in their order; none where it applies to no query.

    Shares of hits have Wilson's interval by default (``Resampling.method``). All other intervals are computed in one
    pass over the draws, much faster than one evaluation after the other. An interval that cannot be computed is null
    with a ``reason``; where all queries of a share hit (or all miss), Wilson over the clusters replaces the bootstrap.
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
    chance: float | None = None,
    lower_is_better: bool = False,
) -> dict[str, Any]:
    """The columns of ``schema.RESULTS`` that every figure has."""
    return {
        **asdict(provenance),
        "result": result_key(provenance, protocol, metric),
        "protocol": protocol,
        "metric": metric,
        "metric_version": version_of(metric),
        "lower_is_better": lower_is_better,
        "statistics_version": VERSION,
        "value": value,
        "ci_low": interval.low,
        "ci_high": interval.high,
        "standard_error": interval.standard_error,
        "interval_method": interval.method,
        "reason": interval.reason,
        "chance": chance,
        "against_chance": against_chance(interval.claim, chance, lower_is_better=lower_is_better),
        "n_queries": n_queries,
        "n_clusters": n_clusters,
        "level": resampling.level,
        "replicates": resampling.replicates,
        "seed": resampling.seed,
    }


def result_key(provenance: Provenance, protocol: str, metric: str) -> str:
    """The id of a row of ``schema.RESULTS``: a digest of evaluation, encoder, protocol and metric."""
    return digest16([provenance.evaluation, provenance.encoder_fingerprint, protocol, metric])


def tie_share(*outcomes: Outcomes) -> float | None:
    """Share of queries whose best relevant item is tied; None where scores are missing: then a range is not a tie."""
    if not all(np.isfinite(each.best_score).all() for each in outcomes):
        return None
    return float(np.concatenate([each.tied for each in outcomes]).mean())


def _metric_rows(evaluated: Evaluated, intervals: Sequence[Interval], resampling: Resampling) -> list[dict[str, Any]]:
    outcomes = evaluated.outcomes
    rows = []
    for (metric, (values, clusters)), interval in zip(evaluated.samples, intervals, strict=True):
        value = _figure(metric, outcomes, "expected")
        row = result_row(
            evaluated.provenance,
            resampling,
            interval if value is not None else replace(interval, reason=NOT_DEFINED),
            protocol=outcomes.protocol.id,
            metric=metric.name,
            value=value,
            n_queries=clusters.n_queries,
            n_clusters=clusters.n_occupied,
            chance=metric.chance(outcomes),
            lower_is_better=not metric.higher_is_better,
        )
        row["metric_version"] = str(metric.version)
        if metric.reduce == "mean" and clusters.n_occupied > 1:
            row["robust_error"] = cluster_robust_error(values, clusters)
        row["value_ties_lost"] = _figure(metric, outcomes, "lost")
        row["value_ties_won"] = _figure(metric, outcomes, "won")
        row["tie_share"] = tie_share(outcomes)
        rows.append(row)
    return rows


def _figure(metric: Metric, outcomes: Outcomes, ties: Ties) -> float | None:
    value = metric.value(outcomes, ties)
    return value if np.isfinite(value) else None


def _intervals(evaluated: Sequence[Evaluated], resampling: Resampling) -> list[list[Interval]]:
    """For each evaluation the interval of every metric; all with the same draws and the same reduction together."""
    together: dict[tuple[int, Reduce], list[tuple[int, int]]] = {}
    intervals: dict[tuple[int, int], Interval] = {}
    for i, each in enumerate(evaluated):
        for row, (metric, (values, clusters)) in enumerate(each.samples):
            if metric.share and resampling.method == "wilson":
                intervals[i, row] = share_interval(values, clusters, level=resampling.level)
            else:
                together.setdefault((each.clusters.n_clusters, metric.reduce), []).append((i, row))
    for (_, reduce), members in together.items():
        samples = [evaluated[i].samples[row][1] for i, row in members]
        drawn = bootstrap_samples(samples, resampling, reduce)
        intervals |= {member: interval for member, [interval] in zip(members, drawn, strict=True)}
    return [
        [
            _at_the_edge(intervals[i, row], each.outcomes, metric, sample, resampling.level)
            for row, (metric, sample) in enumerate(each.samples)
        ]
        for i, each in enumerate(evaluated)
    ]


def _at_the_edge(
    interval: Interval, outcomes: Outcomes, metric: Metric, sample: ClusteredValues, level: float
) -> Interval:
    """Wilson's interval where all queries hit, or all miss, and other scores might not; else the interval as it is.

    Ranks are no shares, and the reference language agrees with itself by definition.
    """
    share = _common(np.asarray(sample.values)[0])
    if share not in (0.0, 1.0) or metric.reduce != "mean" or not metric.higher_is_better:
        return interval
    if share == metric.chance(outcomes):
        return Interval(value=interval.value, reason=ANY_SCORES)
    if metric in (CONSISTENCY_NDCG, CONSISTENCY_RBO):
        return interval
    return interval_at_the_edge(interval, share, sample.clusters.n_occupied, level=level)


def _common(values: NDArray[np.float64]) -> float:
    """The value that all queries have; NaN if they differ."""
    return float(values[0]) if np.ptp(values) == 0 else np.nan


# --- Stored bootstrap replicates: rows of ``schema.REPLICATES``, which ``capim run --keep-replicates`` writes.
#
# Two rows with the same ``corpus_fingerprint``, ``n_clusters``, ``seed`` and number of replicates come from the same
# draws, whenever and wherever they were made: their difference is the paired bootstrap of the difference.


def replicate_rows(evaluated: Evaluated, resampling: Resampling) -> pa.Table:
    """One row of ``schema.REPLICATES`` per metric: its value in every draw; ``result`` is the id of its results row."""
    created = datetime.now(UTC)
    provenance, protocol = evaluated.provenance, evaluated.outcomes.protocol.id
    identity = {name: value for name, value in asdict(provenance).items() if name in REPLICATES.names}
    rows = []
    for metric, sample in evaluated.samples:
        statistic = statistic_of(*sample, metric.reduce)
        [replicates] = bootstrap_replicates(statistic, evaluated.clusters.n_clusters, resampling)
        rows.append(
            {
                **identity,
                "result": result_key(provenance, protocol, metric.name),
                "protocol": protocol,
                "metric": metric.name,
                "value": metric.value(evaluated.outcomes),
                "replicate_values": replicates,
                "n_clusters": evaluated.clusters.n_clusters,
                "seed": resampling.seed,
                "created": created,
            }
        )
    return pa.Table.from_pylist(rows, schema=REPLICATES)
