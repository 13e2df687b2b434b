"""Results over several protocols -> results: means over languages, RSUM.

The protocol of a result over languages is the pattern of those that it summarises, with a variant behind an ``@``:

    t2i/*/*                 mean over languages, each the mean of its translators (the "all" of COCO-SM)
    t2i/*/google            mean over the languages of one translator
    ...@without-en          the same without the reference language
    t2i/*/*@speakers        languages weighted by their number of speakers

RSUM and means over languages are weighted sums of means. Every image has its part in such a sum, and the result is the
mean of these parts over the images: bootstrap, sign flips and tests of equivalence apply to them as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.store.schema import Result
from capim.tasks.metrics import metrics_of, version_of
from capim.tasks.metrics.crosslingual import CONSISTENCY_NDCG, CONSISTENCY_RBO, language_weights
from capim.tasks.metrics.metric import Ties
from capim.tasks.metrics.retrieval import RECALLS
from capim.tasks.metrics.table import RSUM, Figure
from capim.tasks.protocols import EVERY, MAIN, Protocol, language_id, mean_weights
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.results.comparison import ComparedFigure
from capim.tasks.results.summary import Evaluated, Source, result_row, tie_share
from capim.tasks.statistics.clusters import Clusters, SamplingFrame
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import Interval, mean_interval, mean_spread
from capim.tasks.statistics.pairs import Scale

RowOf: TypeAlias = Callable[..., Result]
SUMMARISED = tuple(metric.name for metric in (*RECALLS, CONSISTENCY_NDCG, CONSISTENCY_RBO))


class LanguagePart(NamedTuple):
    """The captions of one language by one translator; the dictionaries hold its summarised metrics by name.

    ``figures``: the mean, the means with all ties lost and with all ties won, and chance (NaN where there is none).
    """

    protocol: Protocol
    values: dict[str, NDArray[np.float64]]  # per query
    figures: dict[str, tuple[float, ...]]
    tied: float
    clusters: Clusters


def part_of(outcomes: Outcomes, *, drawn: SamplingFrame) -> LanguagePart:
    """Return the part for these outcomes, of one language by one translator."""
    clusters = Clusters.of(outcomes.clusters, drawn, outcomes.weights)
    metrics = [metric for metric in metrics_of(outcomes) if metric.name in SUMMARISED]
    return LanguagePart(
        outcomes.protocol,
        values={metric.name: metric.per_query(outcomes) for metric in metrics},
        figures={
            metric.name: (
                *(clusters.mean(metric.per_query(outcomes, ties)) for ties in ("expected", "lost", "won")),
                np.nan if (chance := metric.chance(outcomes)) is None else chance,
            )
            for metric in metrics
        },
        tied=float(outcomes.tied.mean()),
        clusters=clusters,
    )


def _directions(parts: Sequence[LanguagePart]) -> Iterator[tuple[list[LanguagePart], list[str]]]:
    """Yield the parts of each direction that has two languages or more, with the metrics that all of them have."""
    for direction in sorted({part.protocol.direction for part in parts}):
        chosen = [part for part in parts if part.protocol.direction == direction]
        if len({part.protocol.language for part in chosen}) >= 2:
            yield chosen, [name for name in SUMMARISED if all(name in part.values for part in chosen)]


def language_rows(
    parts: Sequence[LanguagePart], source: Source, *, reference: str, resampling: Resampling
) -> list[Result]:
    """Return rows over all languages, for each direction and each metric that every part has.

    All parts see the same draws of images, so an interval is that of the mean, not of a typical language. A direction
    with fewer than two languages has no rows; an undefined result is null with a ``reason``. The parts are all of one
    encoder on one corpus; the ``evaluation`` of ``source`` must identify them together.
    """
    row_of = partial(result_row, source, resampling)
    rows: list[Result] = []
    for of_direction, metrics in _directions(parts):
        rows += _means(of_direction, metrics, reference, resampling, row_of)
    return rows


def language_means(parts: Sequence[LanguagePart], reference: str) -> Iterator[tuple[str, NDArray[np.float64] | str]]:
    """Yield the means over the parts of a direction: protocol id and the weight of each part, or why it is unknown."""
    languages, direction = [part.protocol.part for part in parts], parts[0].protocol.direction
    translators = sorted({translator for _, translator in languages})
    left_out = [None, reference] if {language for language, _ in languages} > {reference} else [None]
    for translator in [None, *(translators if len(translators) > 1 else [])]:
        spoken = {language for language, by in languages if translator in (None, by)}
        for without in left_out if spoken - {reference} else [None]:
            weights = language_weights(languages, translator=translator, without=without)
            yield language_id(direction, EVERY, translator or EVERY, mean_weights(without=without)), weights
    for without in left_out:
        protocol = language_id(direction, weights=mean_weights(speakers=True, without=without))
        try:
            yield protocol, language_weights(languages, without=without, speakers=True)
        except ValueError as error:
            yield protocol, str(error)


def _means(
    parts: Sequence[LanguagePart], metrics: Sequence[str], reference: str, resampling: Resampling, row_of: RowOf
) -> Iterator[Result]:
    weights_or_reasons = dict(language_means(parts, reference))
    weights_of = {protocol: w for protocol, w in weights_or_reasons.items() if not isinstance(w, str)}
    matrix = np.stack(list(weights_of.values()))
    spreads = np.stack(
        [[mean_spread(part.values[metric], part.clusters, resampling) for metric in metrics] for part in parts]
    )
    images = {protocol: _mixed([part.clusters for part in parts], weights) for protocol, weights in weights_of.items()}
    values, low, high, chance = (
        (matrix @ np.array([[part.figures[metric][at] for metric in metrics] for part in parts])).ravel()
        for at in range(4)
    )
    ties = matrix @ np.array([part.tied for part in parts])
    names = [(protocol, metric) for protocol in weights_of for metric in metrics]
    for i, (protocol, metric) in enumerate(names):
        spread = np.tensordot(weights_of[protocol], spreads[:, metrics.index(metric)], 1)
        interval = mean_interval(float(values[i]), spread, images[protocol], resampling, bounds=(0.0, 1.0))
        n_queries = sum(part.clusters.n_queries for part, w in zip(parts, weights_of[protocol], strict=True) if w > 0)
        row = row_of(
            interval,
            protocol=protocol,
            metric=metric,
            value=float(values[i]),
            n_queries=n_queries,
            clusters=images[protocol],
            chance=None if np.isnan(chance[i]) else float(chance[i]),
            span=1.0,
        )
        tied = float(ties[i // len(metrics)])
        yield replace(row, value_ties_lost=float(low[i]), value_ties_won=float(high[i]), tie_share=tied)
    for protocol, reason in weights_or_reasons.items():
        if isinstance(reason, str):
            no_interval = Interval(value=float("nan"), reason=reason)
            for metric in metrics:
                yield row_of(no_interval, protocol=protocol, metric=metric, value=None, n_queries=0, clusters=None)


def _mixed(parts: Sequence[Clusters], weights: NDArray[np.float64]) -> Clusters:
    """Return the images of a weighted mean over results of one corpus, each with its weight in that mean."""
    shares = np.tensordot(weights, np.stack([part.totals / part.totals.sum() for part in parts]), 1)
    asked = np.flatnonzero(shares)
    return Clusters.of(asked, len(shares), shares[asked])


def rsum_row(t2i: Outcomes, i2t: Outcomes, source: Source, *, drawn: SamplingFrame, resampling: Resampling) -> Result:
    """Return the result of two protocols together, in points, 0..600; its protocol is ``<t2i>+<i2t>``.

    Both directions share the draws, so the interval is that of the sum: narrower than the sum of six intervals. They
    must be of the same encoder and corpus, and the ``evaluation`` of ``source`` must identify the two together.

    Examples:
        >>> from dataclasses import fields
        >>> from capim.tasks.ranking.outcomes import outcomes_of
        >>> t2i = outcomes_of([[1], [2], [3], [20]], protocol="t2i/all")
        >>> i2t = outcomes_of([[1], [1], [7], [1]])
        >>> source = Source(**{field.name: "" for field in fields(Source)})
        >>> row = rsum_row(t2i, i2t, source, drawn=4, resampling=Resampling(replicates=100))
        >>> row.protocol, row.value  # 25 + 75 + 75 and 75 + 75 + 100
        ('t2i/all+i2t/any', 425.0)
    """
    both = [Evaluated(outcomes=outcomes, metrics=RECALLS, source=source, drawn=drawn) for outcomes in (t2i, i2t)]
    samples = [sample for each in both for _, sample in each.samples]
    spread = 100 * np.sum([mean_spread(np.asarray(of), clusters, resampling) for of, clusters in samples], axis=0)

    def points(ties: Ties) -> float:
        """Return the sum of the six means."""
        return 100 * math.fsum(m.value(each.outcomes, ties) for each in both for m in RECALLS)

    images = _mixed([each.clusters for each in both], np.ones(len(both)))
    interval = mean_interval(points("expected"), spread, images, resampling, bounds=(0.0, RANGES[RSUM]))
    chances = [chance for each in both for m in RECALLS if (chance := m.chance(each.outcomes)) is not None]
    row = result_row(
        source,
        resampling,
        interval,
        protocol=RSUM.protocol,
        metric=RSUM.metric,
        value=points("expected"),
        n_queries=len(t2i) + len(i2t),
        clusters=images,
        chance=100 * math.fsum(chances) if len(chances) == 2 * len(RECALLS) else None,
        span=RANGES[RSUM],
    )
    lost, won, tied = points("lost"), points("won"), tie_share(t2i, i2t)
    return replace(row, value_ties_lost=lost, value_ties_won=won, tie_share=tied)


Values = Mapping[Figure, NDArray[np.float64]]
"""Result -> the parts of the clusters (their mean is the result) and their weights: shape ``(2, n_clusters)``."""

RANGES = {RSUM: 600.0}  # of results in another unit than fractions


def image_parts(values: NDArray[np.float64], clusters: Clusters) -> NDArray[np.float64]:
    """Return each image's part of a mean over queries, with that mean, and its weight in it, with a mean of 1.

    Examples:
        >>> image_parts(np.array([1.0, 0.0, 1.0, 1.0]), Clusters.of([0, 0, 1, 1])).tolist()
        [[0.5, 1.0], [1.0, 1.0]]
    """
    sums = np.stack([clusters.sums(values[None])[:, 0], clusters.totals])
    parts: NDArray[np.float64] = sums * (clusters.n_clusters / clusters.totals.sum())
    return parts


def rsum_values(protocols: Iterable[Outcomes], *, drawn: SamplingFrame) -> Values:
    """Return RSUM of ``t2i/all`` and ``i2t/any``; nothing without them, or where a recall is left open."""
    found: dict[str, NDArray[np.float64]] = {}
    for outcomes in protocols:
        if not {metric.name for metric in RECALLS} <= {metric.name for metric in metrics_of(outcomes)}:
            return {}
        clusters = Clusters.of(outcomes.clusters, drawn, outcomes.weights)
        parts = [image_parts(metric.per_query(outcomes), clusters) for metric in RECALLS]
        found[outcomes.protocol.id] = np.sum(parts, axis=0)
    scale = np.array([[100.0], [1 / (len(MAIN) * len(RECALLS))]])
    return {RSUM: np.sum([*found.values()], axis=0) * scale} if sorted(found) == sorted(MAIN) else {}


def language_values(parts: Sequence[LanguagePart], *, reference: str) -> Values:
    """Return the means over languages, of each direction and metric that every part has."""
    found: dict[Figure, NDArray[np.float64]] = {}
    for chosen, metrics in _directions(parts):
        of_parts = {
            metric: np.stack([image_parts(part.values[metric], part.clusters) for part in chosen]) for metric in metrics
        }
        for protocol, weights in language_means(chosen, reference):
            if not isinstance(weights, str):
                found |= {Figure(protocol, metric): np.tensordot(weights, of_parts[metric], 1) for metric in metrics}
    return found


def combined_figures(encoders: Mapping[str, Values]) -> Iterator[ComparedFigure]:
    """Yield each result that at least two encoders have, for comparison; the queries are images with their weights."""
    for figure in dict.fromkeys(figure for values in encoders.values() for figure in values):
        values = {key: of_encoder[figure] for key, of_encoder in encoders.items() if figure in of_encoder}
        if len(values) > 1:
            weights = next(iter(values.values()))[1]
            asked = np.flatnonzero(weights)
            yield ComparedFigure(
                figure=figure,
                version=version_of(figure.metric) or "",
                values={key: parts[asked] / weights[asked] for key, (parts, _) in values.items()},
                clusters=Clusters.of(asked, len(weights), weights[asked]),
                scale=Scale(span=RANGES.get(figure, 1.0)),
            )
