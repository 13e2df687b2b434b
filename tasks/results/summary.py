"""Outcomes of encoders under protocols -> results: every metric with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

import numpy as np

from capim.store.schema import OfStates, Replicates, Result
from capim.store.types import Corpus, digest16
from capim.tasks.metrics import Metric, metrics_of, version_of
from capim.tasks.metrics.retrieval import RECALLS
from capim.tasks.ranking.layout import layout_of, ords_of
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import drawn_clusters
from capim.tasks.statistics import VERSION
from capim.tasks.statistics.chance import FirstHits, chance_p, labels_p
from capim.tasks.statistics.clusters import Clusters, SamplingFrame, known_queries
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import ClusteredValues, Interval, interval_of, replicates_of

ANY_SCORES = "no interval: any scores have this value, because the gallery is so small"
NOT_DEFINED = "no value: the aggregate of these queries is not a number"


@dataclass(frozen=True, kw_only=True)
class Source(OfStates):
    """Where results come from.

    Attributes:
        evaluation: A digest of the embedding sets, the protocol and the version of the scorer.
        run: The run that makes them.
        image_tag: The sealed set of images, and ``caption_tag`` that of captions; empty without embeddings.
    """

    evaluation: str
    run: str
    image_tag: str = ""
    caption_tag: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluated:
    """The outcomes of one encoder under one protocol, and the metrics to compute from them.

    Attributes:
        drawn: Clusters of the corpus (``tasks.ranking.protocols.drawn_clusters``), so that all protocols share draws.
        first_hits: Of images with labels.
    """

    outcomes: Outcomes
    metrics: Sequence[Metric]
    source: Source
    drawn: SamplingFrame
    first_hits: FirstHits | None = None

    @classmethod
    def of(
        cls, outcomes: Outcomes, corpus: Corpus, source: Source, metrics: Sequence[Metric] | None = None
    ) -> Evaluated:
        """Return the outcomes on a stored corpus with these metrics, by default with those that they determine."""
        drawn = drawn_clusters(corpus, outcomes.protocol)
        metrics, hits = metrics_of(outcomes) if metrics is None else metrics, first_hits(corpus, outcomes)
        return cls(outcomes=outcomes, metrics=metrics, source=source, drawn=drawn, first_hits=hits)

    @cached_property
    def clusters(self) -> Clusters:
        """Return the clusters of the queries."""
        return Clusters.of(self.outcomes.clusters, self.drawn, self.outcomes.weights)

    @cached_property
    def samples(self) -> list[tuple[Metric, ClusteredValues]]:
        """Each metric that applies to a query, with its values of these queries and their clusters."""
        found = []
        for metric in self.metrics:
            values = np.asarray(metric.per_query(self.outcomes), dtype=np.float64)
            known = known_queries(values)
            if known.any():
                clusters = self.clusters if known.all() else self.clusters.only(known)
                found.append((metric, ClusteredValues(values[known], clusters)))
        return found


def result_rows(evaluated: Sequence[Evaluated], resampling: Resampling) -> list[Result]:
    """Return one result per metric of each evaluation, in their order; none where it applies to no query.

    By default (``Resampling.method``) means and medians need no draws. An interval that cannot be computed is null with
    a ``reason``.
    """
    rows = []
    for each, (metric, (values, clusters)) in ((one, sample) for one in evaluated for sample in one.samples):
        interval = interval_of(values, clusters, resampling, metric.reduce, bounds=metric.bounds, share=metric.share)
        if np.ptp(values) == 0 and interval.value == metric.chance(each.outcomes):
            interval = Interval(value=interval.value, reason=ANY_SCORES)
        lost, value, won = (metric.value(each.outcomes, ties) for ties in ("lost", "expected", "won"))
        row = result_row(
            each.source,
            resampling,
            interval if np.isfinite(value) else replace(interval, reason=NOT_DEFINED),
            protocol=each.outcomes.protocol.id,
            metric=metric.name,
            value=value,
            n_queries=clusters.n_queries,
            clusters=clusters,
            lower_is_better=not metric.higher_is_better,
        )
        chance, p_chance = _chance(each, metric, value, clusters)
        row = replace(
            row,
            metric_version=str(metric.version),
            value_ties_lost=_defined(lost),
            value_ties_won=_defined(won),
            tie_share=tie_share(each.outcomes, several=metric.several),
            chance=chance,
            p_chance=p_chance,
        )
        rows.append(row)
    return rows


def _chance(each: Evaluated, metric: Metric, value: float, clusters: Clusters) -> tuple[float | None, float | None]:
    """Return the chance value of a metric and the p-value of a mean against it; of labels, by their first hits."""
    chance, chances = metric.chance(each.outcomes), metric.chances(each.outcomes)
    if each.outcomes.protocol.kind == "labels":
        if metric.name != RECALLS[0].name or each.first_hits is None:
            return chance, None
        return labels_p(each.first_hits, clusters)
    if chances is None or metric.reduce != "mean" or not metric.higher_is_better or not np.isfinite(value):
        return chance, None
    known = chances if isinstance(chances, float) else chances[known_queries(chances)]
    return chance, chance_p(value, known, clusters)


def first_hits(corpus: Corpus, outcomes: Outcomes) -> FirstHits | None:
    """Return the labels of the images that search, and their first hits; None without labels or stored lists."""
    if outcomes.protocol.kind != "labels" or outcomes.top_ords is None:
        return None
    rows, asked, labels = layout_of(corpus).labels, outcomes.query_ords.tolist(), dict[int, set[int]]()
    for image, name in zip(
        ords_of(rows["query_id"], corpus.images), ords_of(rows["item_id"], corpus.captions), strict=True
    ):
        labels.setdefault(int(image), set()).add(int(name))
    sets = {of: at for at, of in enumerate({frozenset(labels[image]) for image in asked})}
    classes, of_images = sorted(frozenset[int]().union(*sets)), outcomes.protocol.direction == "i2i"
    agrees = np.array([[name in of for name in classes] for of in sets])
    if of_images:
        from scipy import sparse  # not for runs that make nothing

        agrees = (sparse.csr_array(agrees, dtype=np.int32) @ sparse.csr_array(agrees.T, dtype=np.int32)).toarray() > 0
    column = {ord_: at for at, ord_ in enumerate(asked if of_images else classes)}
    first = [column.get(ord_, len(column)) for ord_ in outcomes.top_ords[:, 0].tolist()]
    label = [sets[frozenset(labels[image])] for image in asked]
    return FirstHits(np.array(label), np.array(first), np.pad(agrees, (0, 1)), of_images)


def result_row(
    source: Source,
    resampling: Resampling,
    interval: Interval,
    *,
    protocol: str,
    metric: str,
    value: float | None,
    n_queries: int,
    clusters: Clusters | None,
    chance: float | None = None,
    span: float | None = None,
    lower_is_better: bool = False,
) -> Result:
    """Return a result with what every result has, created now.

    ``clusters``: of the queries; None for a result without any. ``span``: the largest value of a mean of values from 0
    on, which is then tested against a chance that all images have in common.
    """
    value, p_chance = _defined(value), None
    if clusters is not None and value is not None and chance is not None and span is not None:
        p_chance = chance_p(value / span, chance / span, clusters)
    return Result(
        **vars(source),
        result=result_key(source, protocol, metric),
        protocol=protocol,
        metric=metric,
        metric_version=version_of(metric) or "",
        lower_is_better=lower_is_better,
        statistics_version=VERSION,
        value=value,
        ci_low=interval.low,
        ci_high=interval.high,
        standard_error=interval.standard_error,
        interval_method=interval.method,
        reason=interval.reason,
        chance=chance,
        p_chance=p_chance,
        n_queries=n_queries,
        n_clusters=clusters.n_occupied if clusters else 0,
        n_effective=clusters.n_effective if clusters else None,
        largest_share=clusters.largest_share if clusters else None,
        level=resampling.level,
        replicates=resampling.replicates if interval.is_drawn else None,
        seed=resampling.seed if interval.is_drawn else None,
        created=datetime.now(UTC),
    )


def result_key(source: Source, protocol: str, metric: str) -> str:
    """Return the id of a result: a digest of evaluation, encoder, protocol and metric."""
    return digest16([source.evaluation, source.encoder_fingerprint, protocol, metric])


def tie_share(*outcomes: Outcomes, several: bool = False) -> float | None:
    """Return the share of queries with their best relevant item, or with ``several`` any, tied with an irrelevant one.

    Items that an imported list leaves out are below it, not tied. 0 in trec_eval's order, where equal scores are
    ordered by id. None where no scores were seen: imported ranks.
    """
    if not all(o.top_scores is not None or o.bpref is not None or np.isfinite(o.best_score).all() for o in outcomes):
        return None
    return float(np.concatenate([each.any_tied if several else each.tied for each in outcomes]).mean())


def _defined(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None


def replicate_rows(evaluated: Evaluated, resampling: Resampling) -> list[Replicates]:
    """Return one row per metric: its value in every draw; ``result`` is the id of its results row.

    Two rows with the same ``corpus_fingerprint``, ``n_clusters``, ``seed`` and number of replicates come from the same
    draws, whenever and wherever they were made: their difference is the paired bootstrap of the difference.
    """
    source, protocol = evaluated.source, evaluated.outcomes.protocol.id
    return [
        Replicates(
            encoder=source.encoder,
            encoder_fingerprint=source.encoder_fingerprint,
            corpus=source.corpus,
            corpus_fingerprint=source.corpus_fingerprint,
            evaluation=source.evaluation,
            result=result_key(source, protocol, metric.name),
            protocol=protocol,
            metric=metric.name,
            value=metric.value(evaluated.outcomes),
            replicate_values=list(replicates_of(values, clusters, resampling, metric.reduce)),
            n_clusters=evaluated.clusters.n_clusters,
            seed=resampling.seed,
            derived="",
            run=source.run,
            created=datetime.now(UTC),
        )
        for metric, (values, clusters) in evaluated.samples
    ]
