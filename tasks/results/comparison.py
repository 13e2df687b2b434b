"""Comparisons of every pair of encoders under one protocol, by every metric: rows of ``schema.COMPARISONS``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.errors import RequestError
from store.schema import COMPARISONS
from store.types import digest16
from tasks.metrics import METRICS, Metric, metrics_of
from tasks.metrics.headline import Figure
from tasks.scoring.outcomes import Outcomes
from tasks.statistics.clusters import Clusters, known_queries
from tasks.statistics.pairwise import compare_encoders
from tasks.statistics.resampling import Resampling
from tasks.statistics.statistic import Reduce


def encoder_key(name: str, fingerprint: str) -> str:
    """What an encoder is called in a comparison; ids of comparisons are made from it."""
    return f"{name}@{fingerprint}"


@dataclass(frozen=True, kw_only=True)
class EncoderOutcomes:
    """The outcomes of one encoder under a protocol, for a comparison with other encoders."""

    encoder: str
    fingerprint: str
    outcomes: Outcomes

    @property
    def key(self) -> str:
        """Name and fingerprint: two revisions of one encoder have different keys."""
        return encoder_key(self.encoder, self.fingerprint)


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedFigure:
    """The values of several encoders from which one figure is computed.

    Attributes:
        values: Key of an encoder -> per-query values, shape ``(n_queries, ...)``.
        clusters: Of the queries.
        span: The largest difference that the figure can have; None where that is not known.
        share: The values are expected hits.
    """

    figure: Figure
    values: Mapping[str, NDArray[np.float64]]
    clusters: Clusters
    reduce: Reduce = "mean"
    lower_is_better: bool = False
    span: float | None = None
    share: bool = False


def comparison_rows(
    encoders: Sequence[EncoderOutcomes],
    metrics: Sequence[Metric],
    *,
    corpus: str,
    corpus_fingerprint: str,
    run: str,
    n_clusters: int,
    resampling: Resampling,
    headline: Collection[Figure] = (),
) -> pa.Table:
    """One row of ``schema.COMPARISONS`` per metric and pair of encoders; no rows for fewer than two encoders.

    p-values are adjusted over all pairs of one metric. A query counts where a metric has a value of both encoders; an
    encoder without any value of a metric, or of which imported outcomes leave it open, is not compared by it.
    ``n_clusters`` is the number of images of the corpus, so that the draws are those of the results. Comparisons by a
    figure of ``headline`` are marked as such, all others as exploratory.

    Raises:
        RequestError: Encoders under different protocols, or with different queries.
    """
    by_key = {encoder.key: encoder for encoder in encoders}
    if len(by_key) < 2:
        return COMPARISONS.empty_table()
    _check_same_queries(encoders)
    first = encoders[0].outcomes
    clusters = Clusters.of(first.clusters, n_clusters, first.weights)
    known = {key: metrics_of(encoder.outcomes) for key, encoder in by_key.items()}
    figures = []
    for metric in metrics:
        of_table = metric in METRICS.values()
        values = {
            key: metric.per_query(encoder.outcomes)
            for key, encoder in by_key.items()
            if metric in known[key] or not of_table
        }
        figures.append(
            ComparedFigure(
                figure=Figure(first.protocol.id, metric.name),
                values={key: of_encoder for key, of_encoder in values.items() if known_queries(of_encoder).any()},
                clusters=clusters,
                reduce=metric.reduce,
                lower_is_better=not metric.higher_is_better,
                span=1.0 if of_table and metric.higher_is_better else None,
                share=_is_share(metric, [by_key[key] for key in values]),
            )
        )
    return figure_rows(
        figures,
        {key: (encoder.encoder, encoder.fingerprint) for key, encoder in by_key.items()},
        corpus=corpus,
        corpus_fingerprint=corpus_fingerprint,
        run=run,
        resampling=resampling,
        headline=headline,
    )


def figure_rows(
    figures: Iterable[ComparedFigure],
    encoders: Mapping[str, tuple[str, str]],
    *,
    corpus: str,
    corpus_fingerprint: str,
    run: str,
    resampling: Resampling,
    headline: Collection[Figure] = (),
) -> pa.Table:
    """One row of ``schema.COMPARISONS`` per figure and pair of encoders; ``encoders``: key -> name and fingerprint."""
    created = datetime.now(UTC)
    rows = []
    for each in figures:
        compared = compare_encoders(
            each.values,
            each.clusters,
            resampling,
            reduce=each.reduce,
            lower_is_better=each.lower_is_better,
            share=each.share,
            span=each.span,
        )
        for pair in compared:
            (a, fingerprint_a), (b, fingerprint_b) = encoders[pair.a], encoders[pair.b]
            rows.append(
                {
                    "comparison": digest16([corpus_fingerprint, *each.figure, pair.a, pair.b]),
                    "corpus": corpus,
                    "corpus_fingerprint": corpus_fingerprint,
                    "protocol": each.figure.protocol,
                    "metric": each.figure.metric,
                    "encoder_a": a,
                    "fingerprint_a": fingerprint_a,
                    "encoder_b": b,
                    "fingerprint_b": fingerprint_b,
                    "difference": pair.difference.value if np.isfinite(pair.difference.value) else None,
                    "ci_low": pair.difference.low,
                    "ci_high": pair.difference.high,
                    "interval_method": pair.difference.method,
                    "p_sign_flip": pair.flip_test.p,
                    "p_exact": pair.flip_test.exact,
                    "p_mcnemar": pair.effect.p_mcnemar,
                    "p_adjusted": pair.p_adjusted,
                    "adjustment": resampling.adjustment,
                    "family": "headline" if each.figure in headline else "exploratory",
                    "p_equivalent": pair.p_equivalent,
                    "margin": None if each.span is None else resampling.margin / 100 * each.span,
                    **(pair.effect.tally._asdict() if pair.effect.tally else {}),
                    "cohen_dz": pair.effect.cohen_dz,
                    "cohen_h": pair.effect.cohen_h,
                    "odds_ratio": pair.effect.odds_ratio,
                    "detectable_effect": pair.detectable_effect,
                    "n_queries": pair.n_queries,
                    "n_clusters": pair.n_clusters,
                    "level": resampling.level,
                    "replicates": resampling.replicates,
                    "permutations": pair.flip_test.flips,
                    "seed": resampling.seed,
                    "reason": pair.reason,
                    "run": run,
                    "created": created,
                }
            )
    return pa.Table.from_pylist(rows, schema=COMPARISONS)


def compared_metrics(encoders: Sequence[EncoderOutcomes]) -> list[Metric]:
    """The metrics that the outcomes of at least two encoders determine."""
    counts = Counter(metric.name for encoder in encoders for metric in metrics_of(encoder.outcomes))
    return [metric for metric in METRICS.values() if counts[metric.name] > 1]


def _check_same_queries(encoders: Sequence[EncoderOutcomes]) -> None:
    first, *others = encoders
    faults = []
    for other in others:
        if other.outcomes.protocol.id != first.outcomes.protocol.id:
            what = f"protocols {first.outcomes.protocol.id!r} and {other.outcomes.protocol.id!r}"
        elif not np.array_equal(first.outcomes.query_ids, other.outcomes.query_ids):
            sizes = f"{len(first.outcomes)} and {len(other.outcomes)} queries"
            what = f"query sets under {first.outcomes.protocol.id!r} ({sizes})"
        else:
            continue
        faults.append(
            f"{first.encoder!r} and {other.encoder!r} have different {what}; only outcomes on the same queries "
            "can be compared: evaluate both on the same corpus"
        )
    if faults:
        raise RequestError(faults)


def _is_share(metric: Metric, encoders: Sequence[EncoderOutcomes]) -> bool:
    """Whether a metric of the table is a share of hits: with every tie lost, each query is 0 or 1."""
    return not metric.reference and all(
        bool(np.isin(metric.per_query(c.outcomes, "lost"), (0.0, 1.0)).all()) for c in encoders
    )
