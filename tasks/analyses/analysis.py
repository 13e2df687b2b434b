"""Input and output of an analysis: the outcomes of several encoders on the same queries, and slices of them.

Most slices are means over queries: with and without a feature, over parts of the queries, or over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.schema import Slice as SliceRow
from capim.store.types import Corpus, EncoderSpec, Modality, canonical_json, digest16
from capim.store.vectors import Ragged
from capim.tasks.metrics import Metric, version_of
from capim.tasks.metrics.retrieval import RECALLS
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task, drawn_clusters
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import adjusted
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import Interval, agreeing_with_test, paired_intervals
from capim.tasks.statistics.slices import label_tests, part_means

Matrix: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class SingleVectors:
    """One unit vector per item.

    Attributes:
        images: float32, shape ``(n_images, dim)``, in corpus order.
        captions: float32, shape ``(n_captions, dim)``, in corpus order.
        image_norms: Norms before normalisation, shape ``(n_images,)``.
        caption_norms: The same for captions.
    """

    images: Matrix
    captions: Matrix
    image_norms: NDArray[np.float32]
    caption_norms: NDArray[np.float32]


@dataclass(frozen=True)
class Slice:
    """One result of an analysis.

    Attributes:
        analysis: ``complexity``, ``errors`` …: reports group by it.
        feature: The property or part: ``spatial``, ``person``, ``near miss`` …
        level_name: ``with``, ``without``, ``difference``, a bin or a variant; may be empty.
        n_clusters: Number of images of the queries.
        p_adjusted: p-value of a difference, adjusted over the features of one encoder.
        detail: Further values of the analysis, of JSON types.
        version: Version of the analysis (``tasks.analyses.table.Analysis``).
    """

    encoder: str
    analysis: str
    feature: str
    metric: str
    interval: Interval
    n_queries: int
    n_clusters: int
    _: KW_ONLY
    level_name: str = ""
    p_adjusted: float | None = None
    detail: Mapping[str, object] | None = None
    version: str = "1"


R1 = RECALLS[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class AnalysisInput:
    """The outcomes of some encoders under one protocol on one corpus.

    Attributes:
        corpus: The corpus; analyses read its captions, objects, tags and extra ground truths.
        outcomes: Encoder name -> outcomes; the same queries in the same order for all.
        specs: Encoder name -> specification; encoders may be absent (outcomes computed elsewhere).
        resampling: Settings of intervals, the same as for the results of the corpus, so that slices and results agree.
        vectors: Encoder name -> its stored vectors, read on each call; None for an encoder without one vector per item.
        items: Encoder name, modality and positions in the corpus -> the vectors of these items as stored, in their
            order, numbered from 0; None for an encoder without vectors.
        metric: The metric with means over parts of the queries as slices.
        left_out: Encoder name -> True for queries that do not count for it; only encoders with any.
    """

    corpus: Corpus
    protocol: Protocol
    outcomes: Mapping[str, Outcomes]
    specs: Mapping[str, EncoderSpec] = field(default_factory=dict)
    resampling: Resampling = field(default_factory=Resampling)
    vectors: Callable[[str], SingleVectors | None] = lambda _: None
    items: Callable[[str, Modality, NDArray[np.int32]], Ragged | None] = lambda *_: None
    metric: Metric = R1
    left_out: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.outcomes:
            raise RequestError(f"no outcomes of protocol {self.protocol.id!r} on corpus {self.corpus.name!r}")
        first, *others = self.outcomes
        for name in others:
            if not np.array_equal(self.outcomes[name].query_ords, self.outcomes[first].query_ords):
                raise RequestError(
                    f"encoders {first!r} and {name!r} were evaluated on different queries under {self.protocol.id!r}; "
                    f"run `capim evaluate --corpora {self.corpus.name} --encoders {first},{name}`"
                )

    @property
    def encoders(self) -> list[str]:
        """Encoder names, in the order of ``outcomes``."""
        return list(self.outcomes)

    @property
    def queries(self) -> Outcomes:
        """The outcomes of the first encoder, for the shared attributes: query ids and ords, clusters and weights."""
        return next(iter(self.outcomes.values()))

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of queries and of their images."""
        return len(self.queries), self.clusters.n_occupied

    @cached_property
    def clusters(self) -> Clusters:
        """The image of each query; for quadruples, those that share an image."""
        return Clusters.of(self.queries.clusters, drawn_clusters(self.corpus, self.protocol), self.queries.weights)

    @cached_property
    def second_half(self) -> NDArray[np.bool_]:
        """Mask of the images (or quadruples) in the second of two halves drawn at random, by ord.

        Parameters are fitted on one half and tested on the other. Images with a query, and those without, are split
        evenly. Images that cannot have a query, which are only searched, are in the first half.
        """
        order = np.random.default_rng([self.resampling.seed, 1]).permutation(self.clusters.n_clusters)
        occupied = self.clusters.sizes[order] > 0
        second = np.zeros(len(order), dtype=np.bool_)
        for part in (order[occupied], order[~occupied]):
            second[part[: len(part) // 2]] = True
        drawn, every = drawn_clusters(self.corpus, self.protocol), np.zeros(len(self.corpus.images), dtype=np.bool_)
        if isinstance(drawn, int):
            return second
        every[: len(drawn)] = second[drawn] & (drawn >= 0)
        return every

    @cached_property
    def task(self) -> RetrievalTask:
        """The queries, galleries and relevant items; only for retrieval protocols."""
        return cast("RetrievalTask", build_task(self.corpus, self.protocol))

    def values(self, metric: Metric) -> NDArray[np.float64]:
        """Return the metric of every query that counts, else NaN; shape ``(n_encoders, n_queries)``."""
        table = np.stack([metric.per_query(outcomes) for outcomes in self.outcomes.values()])
        for row, encoder in enumerate(self.outcomes):
            if encoder in self.left_out:
                table[row, self.left_out[encoder]] = np.nan
        return table

    def is_share(self, metric: Metric) -> bool:
        """True for a share of hits that depends on the scores; in a small gallery any scores may reach it."""
        return metric.share and metric.chance(self.queries) != 1

    def with_lists(self) -> Iterator[tuple[str, Outcomes, NDArray[np.int32]]]:
        """Yield name, outcomes and ``top_ords`` of the encoders with stored result lists; imported ranks have none."""
        for encoder, outcomes in self.outcomes.items():
            if outcomes.top_ords is not None:
                yield encoder, outcomes, outcomes.top_ords

    def with_single_vectors(self) -> Iterator[tuple[str, Outcomes, SingleVectors]]:
        """Yield name, outcomes and vectors of the encoders with one stored vector per item, one after the other."""
        for encoder, outcomes in self.outcomes.items():
            if (vectors := self.vectors(encoder)) is not None:
                yield encoder, outcomes, vectors


class QueryValues(NamedTuple):
    """One value per query, shape ``(n_queries,)``; their mean is a slice, and the mean of bools is a share.

    A query with NaN is excluded from the mean and its counts.
    """

    encoder: str
    feature: str
    values: NDArray[np.float64] | NDArray[np.bool_]
    detail: Mapping[str, object] | None = None
    level_name: str = ""


def contrast_slices(
    data: AnalysisInput, analysis: str, features: Mapping[str, NDArray[np.bool_]], *, among: NDArray[np.bool_]
) -> Iterator[Slice]:
    """Yield ``data.metric`` with and without each feature, and the difference, over the queries ``among``.

    The p-values of the differences are adjusted (Holm) over the features of an encoder. A feature that all or none of
    the queries have gives no slice. ``features``: name -> mask of the queries that have it, shape ``(n_queries,)``;
    ``among``: mask of the queries with known features.
    """
    features = {name: has & among for name, has in features.items()}
    features = {name: has for name, has in features.items() if has.any() and (among & ~has).any()}
    if not features:
        return
    has_it, n = np.stack(list(features.values())), len(features)
    parts = np.concatenate([has_it, among & ~has_it])
    values = data.values(data.metric)
    share = data.is_share(data.metric)
    means = part_means(values, parts, data.clusters, data.resampling, share=share, bounds=data.metric.bounds)
    for row, encoder in enumerate(data.encoders):
        compared = among & ~np.isnan(values[row])
        counts = int(compared.sum()), data.clusters.only(compared).n_occupied
        [tests] = label_tests(values[row : row + 1], has_it, compared, data.clusters)
        alone = [
            None if means.too_small(row, at, n + at) is not None or np.isnan(p) else float(p)
            for at, p in enumerate(tests)
        ]
        for at, (feature, p, p_adjusted) in enumerate(zip(features, alone, adjusted(alone), strict=True)):
            make = partial(Slice, encoder, analysis, feature, data.metric.name)
            yield make(means.interval(row, at), *means.counts(row, at), level_name="with")
            yield make(means.interval(row, n + at), *means.counts(row, n + at), level_name="without")
            difference = agreeing_with_test(means.difference(row, at, n + at), p, level=data.resampling.level)
            yield make(difference, *counts, level_name="difference", p_adjusted=p_adjusted)


def part_slices(
    data: AnalysisInput,
    analysis: str,
    parts: Mapping[tuple[str, str], NDArray[np.bool_]],
    *,
    metric: Metric,
    details: Mapping[tuple[str, str], Mapping[str, object]] | None = None,
) -> Iterator[Slice]:
    """Yield the mean of a metric over each part of the queries, for every encoder.

    The keys of ``parts`` and ``details`` are feature and level name; a part without a query gives no slice.
    """
    parts = {name: inside for name, inside in parts.items() if inside.any()}
    if not parts:
        return
    table, inside, share = data.values(metric), np.stack(list(parts.values())), data.is_share(metric)
    means = part_means(table, inside, data.clusters, data.resampling, share=share, bounds=metric.bounds)
    for row, encoder in enumerate(data.encoders):
        for part, (feature, level_name) in enumerate(parts):
            of_part = means.interval(row, part), *means.counts(row, part)
            detail = (details or {}).get((feature, level_name))
            yield Slice(encoder, analysis, feature, metric.name, *of_part, level_name=level_name, detail=detail)


def mean_slices(
    data: AnalysisInput, analysis: str, rows: Sequence[QueryValues], *, metric: str, share: bool = False
) -> Iterator[Slice]:
    """Yield the mean of the given values over all queries, one slice per row; ``share``: True for hits and misses."""
    if not rows:
        return
    table = np.stack([np.asarray(row.values, dtype=np.float64) for row in rows])
    means = part_means(table, np.ones((1, len(data.queries)), dtype=bool), data.clusters, data.resampling, share=share)
    for at, (encoder, feature, _, detail, level_name) in enumerate(rows):
        of_row = means.interval(at, 0), *means.counts(at, 0)
        yield Slice(encoder, analysis, feature, metric, *of_row, level_name=level_name, detail=detail)


def paired_differences(
    values: NDArray[np.float64], clusters: Clusters, pairs: Sequence[tuple[int, int]], resampling: Resampling
) -> list[Interval]:
    """Return, for each pair, the mean of the first row minus that of the second, with its usual paired interval."""
    return paired_intervals(values, clusters, pairs, replace(resampling, method=Resampling.method))


def as_change(change: Interval) -> dict[str, object]:
    """Return a paired difference as the detail of a slice."""
    return {"change": change.value, "change_low": change.low, "change_high": change.high}


def slice_rows(
    slices: Iterable[Slice], *, corpus: Corpus, protocol: str, fingerprints: Mapping[str, str], run: str
) -> list[SliceRow]:
    """Return rows of table ``slices``, of one corpus and protocol; ``fingerprints`` is encoder name -> fingerprint."""
    rows = []
    for each in slices:
        interval: Interval = each.interval
        detail: dict[str, Any] = dict(each.detail or {})
        seconds = detail.pop("seconds_per_query", None)
        of_sets = fingerprints[each.encoder], corpus.fingerprint
        row = SliceRow(
            encoder=each.encoder,
            encoder_fingerprint=fingerprints[each.encoder],
            corpus=corpus.name,
            corpus_fingerprint=corpus.fingerprint,
            protocol=protocol,
            slice=digest16([protocol, *of_sets, each.metric, each.analysis, each.feature, each.level_name]),
            metric=each.metric,
            analysis=each.analysis,
            analysis_version=each.version,
            metric_version=version_of(each.metric),
            feature=each.feature,
            level_name=each.level_name,
            value=interval.value if np.isfinite(interval.value) else None,
            ci_low=interval.low,
            ci_high=interval.high,
            p_adjusted=each.p_adjusted,
            n_queries=each.n_queries,
            n_clusters=each.n_clusters,
            reason=interval.reason,
            seconds_per_query=seconds,
            detail=None if each.detail is None else canonical_json(detail),
            run=run,
            created=datetime.now(UTC),
        )
        rows.append(row)
    return rows
