"""Comparisons of every pair of encoders under one protocol, by every metric: rows of table ``comparisons``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.schema import Comparison
from capim.store.types import digest16
from capim.tasks.metrics import METRICS, Metric, metrics_of
from capim.tasks.metrics.table import Figure
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.statistics import VERSION
from capim.tasks.statistics.clusters import Clusters, SamplingFrame, known_queries
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.pairs import Scale, compare_encoders

PAIR = ("fingerprint_a", "fingerprint_b")  # the columns of a comparison with the two encoders


def encoder_key(name: str, fingerprint: str) -> str:
    """Return the name of an encoder at one revision in a comparison; ids of comparisons are made from it."""
    return f"{name}@{fingerprint}"


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedFigure:
    """The values of several encoders from which one result is computed.

    Attributes:
        version: Of the metric.
        values: :func:`encoder_key` -> per-query values, shape ``(n_queries, ...)``.
    """

    figure: Figure
    version: str
    values: Mapping[str, NDArray[np.float64]]
    clusters: Clusters
    scale: Scale


def compared_figures(
    encoders: Mapping[str, Outcomes], metrics: Sequence[Metric], drawn: SamplingFrame
) -> list[ComparedFigure]:
    """Return the values of encoders by each metric; no results for fewer than two encoders.

    A query counts where a metric has a value of both encoders; an encoder without any value of a metric, or with
    imported outcomes that do not determine it, is not compared by it.

    Args:
        encoders: :func:`encoder_key` -> outcomes under one protocol.
        drawn: Clusters of the corpus, so that the draws are those of the results.

    Raises:
        RequestError: Encoders under different protocols, or with different queries.
    """
    if len(encoders) < 2:
        return []
    _check_same_queries(encoders)
    first = next(iter(encoders.values()))
    clusters = Clusters.of(first.clusters, drawn, first.weights)
    known = {key: metrics_of(outcomes, metrics) for key, outcomes in encoders.items()}
    figures = []
    for metric in metrics:
        having = {key: each for key, each in encoders.items() if metric in known[key]}
        values = {key: metric.per_query(outcomes) for key, outcomes in having.items()}
        figures.append(
            ComparedFigure(
                figure=Figure(first.protocol.id, metric.name),
                version=str(metric.version),
                values={key: of_encoder for key, of_encoder in values.items() if known_queries(of_encoder).any()},
                clusters=clusters,
                scale=Scale(
                    reduce=metric.reduce,
                    lower_is_better=not metric.higher_is_better,
                    share=_is_share(metric, having.values()),
                    span=None if metric.bounds is None else metric.bounds[1] - metric.bounds[0],
                ),
            )
        )
    return figures


def figure_rows(
    figures: Iterable[ComparedFigure],
    *,
    corpus: str,
    corpus_fingerprint: str,
    run: str,
    resampling: Resampling,
    headline: Collection[Figure] = (),
) -> list[Comparison]:
    """Return one comparison per result and pair of encoders.

    p-values are adjusted over all pairs of one result. Comparisons by a planned result, of ``headline``, are marked as
    such, all others as exploratory.
    """
    planned = {figure.metric for figure in headline}
    rows = []
    for each in figures:
        for pair in compare_encoders(each.values, each.clusters, resampling, each.scale):
            (a, fingerprint_a), (b, fingerprint_b) = (key.rpartition("@")[::2] for key in (pair.a, pair.b))
            low, high = pair.simultaneous or (None, None)
            shared = pair.shared if each.figure.metric in planned else None
            row = Comparison(
                comparison=digest16([corpus_fingerprint, *each.figure, pair.a, pair.b]),
                corpus=corpus,
                corpus_fingerprint=corpus_fingerprint,
                protocol=each.figure.protocol,
                metric=each.figure.metric,
                metric_version=each.version,
                lower_is_better=each.scale.lower_is_better,
                statistics_version=VERSION,
                encoder_a=a,
                fingerprint_a=fingerprint_a,
                encoder_b=b,
                fingerprint_b=fingerprint_b,
                difference=pair.difference.value if np.isfinite(pair.difference.value) else None,
                ci_low=pair.difference.low,
                ci_high=pair.difference.high,
                interval_method=pair.difference.method,
                simultaneous_low=low,
                simultaneous_high=high,
                shared_low=None if shared is None else [ends[0] for ends in shared],
                shared_high=None if shared is None else [ends[1] for ends in shared],
                p_sign_flip=pair.flip_test.p,
                p_exact=pair.flip_test.exact,
                p_adjusted=pair.p_adjusted,
                family="headline" if each.figure in headline else "exploratory",
                p_equivalent=pair.p_equivalent,
                margin=each.scale.margin(resampling),
                wins=pair.wins,
                ties=pair.ties,
                losses=pair.losses,
                cohen_dz=pair.cohen_dz,
                detectable_effect=pair.detectable_effect,
                n_queries=pair.n_queries,
                n_clusters=pair.n_clusters,
                n_effective=pair.n_effective,
                level=resampling.level,
                replicates=resampling.replicates if pair.difference.is_drawn else None,
                permutations=pair.flip_test.flips,
                seed=resampling.seed,
                reason=pair.reason,
                run=run,
                created=datetime.now(UTC),
            )
            rows.append(row)
    return rows


def compared_metrics(encoders: Iterable[Outcomes], metrics: Iterable[Metric] | None = None) -> list[Metric]:
    """Return those of some metrics, or of the table, that the outcomes of at least two encoders determine."""
    metrics = [*(metrics or METRICS.values())]
    counts = Counter(metric.name for outcomes in encoders for metric in metrics_of(outcomes, metrics))
    return [metric for metric in metrics if counts[metric.name] > 1]


def _check_same_queries(encoders: Mapping[str, Outcomes]) -> None:
    (name, first), *others = ((key.rpartition("@")[0], outcomes) for key, outcomes in encoders.items())
    faults = [
        f"{name!r} and {other_name!r} have different query sets under {first.protocol.id!r} ({len(first)} and "
        f"{len(other)} queries); only outcomes on the same queries can be compared: evaluate both on the same corpus"
        for other_name, other in others
        if not np.array_equal(first.query_ids, other.query_ids)
    ]
    if faults:
        raise RequestError(faults)


def _is_share(metric: Metric, encoders: Iterable[Outcomes]) -> bool:
    """True if a metric of the table is a share of hits: with every tie lost, each query is 0 or 1."""
    return not metric.of_user and all(
        bool(np.isin(metric.per_query(outcomes, "lost"), (0.0, 1.0)).all()) for outcomes in encoders
    )
