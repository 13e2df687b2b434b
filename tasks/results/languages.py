"""Figures over all languages of a corpus -> rows of ``schema.RESULTS``: means and shares of the variance.

Their protocol is the pattern of the protocols that they summarise, with a variant behind an ``@``:

    t2i/*/*                 mean over languages, each the mean of its translators (the "all" of COCO-SM)
    t2i/*/google            mean over the languages of one translator
    ...@without-en          the same without the reference language
    t2i/*/*@speakers        languages weighted by their number of speakers

The shares of the variance between languages, between translators and of neither (``R@1_variance_language`` …) are
over all languages except the reference, which no system translated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.metrics import metrics_of
from tasks.metrics.crosslingual import language_part, language_weights, variance_split
from tasks.results.summary import Provenance, result_row, results_table
from tasks.scoring.outcomes import Outcomes
from tasks.statistics.bootstrap import Interval, bootstrap_statistic
from tasks.statistics.clusters import Clusters
from tasks.statistics.resampling import Resampling
from tasks.statistics.statistic import ClusteredValues, stacked_means

RowOf: TypeAlias = Callable[..., dict[str, Any]]
SUMMARISED = ("R@1", "R@5", "R@10", "consistency_nDCG@20", "consistency_RBO")
NO_INTERVAL = "no interval: resampling images would add variance to a share of the variance"


class Part(NamedTuple):
    """The captions of one language by one translator: their values of the summarised metrics that they have."""

    direction: str
    language: str
    translator: str
    metrics: tuple[str, ...]
    values: NDArray[np.float64]  # shape (n_metrics, n_queries)
    low: NDArray[np.float64]  # shape (n_metrics,): all ties lost
    high: NDArray[np.float64]  # all ties won
    chance: NDArray[np.float64]  # NaN where there is none
    tied: float
    clusters: Clusters


def part_of(outcomes: Outcomes, *, n_clusters: int) -> Part:
    """The part that these outcomes belong to.

    Raises:
        ValueError: Their protocol is not of one language by one translator.
    """
    language_and_translator = language_part(outcomes.protocol)
    if language_and_translator is None:
        raise ValueError(f"protocol {outcomes.protocol.id!r} is not of one language by one translator")
    clusters = Clusters.of(outcomes.clusters, n_clusters, outcomes.weights)
    metrics = [metric for metric in metrics_of(outcomes) if metric.name in SUMMARISED]
    chances = [metric.chance(outcomes) for metric in metrics]
    return Part(
        outcomes.protocol.direction,
        *language_and_translator,
        metrics=tuple(metric.name for metric in metrics),
        values=np.stack([metric.per_query(outcomes) for metric in metrics]),
        low=np.array([clusters.mean(metric.per_query_low(outcomes)) for metric in metrics]),
        high=np.array([clusters.mean(metric.per_query_high(outcomes)) for metric in metrics]),
        chance=np.array([np.nan if chance is None else chance for chance in chances]),
        tied=float(outcomes.tied.mean()),
        clusters=clusters,
    )


def language_rows(
    parts: Sequence[Part],
    provenance: Provenance,
    *,
    reference: str,
    resampling: Resampling,
) -> pa.Table:
    """Rows over all languages, for each direction and each metric that every part has.

    All parts see the same draws of images, so an interval is that of the mean, not of a typical language.

    Args:
        parts: All parts of one encoder on one corpus, of one or both directions.
        provenance: Of all of them; ``evaluation`` must identify them together.
        reference: The corpus' reference language.
        resampling: How the intervals are drawn.

    Returns:
        No rows for a direction with fewer than two languages; null with a ``reason`` where a figure is undefined.
    """
    row_of = partial(result_row, provenance, resampling)
    rows: list[dict[str, Any]] = []
    for direction in sorted({part.direction for part in parts}):
        of_direction = [part for part in parts if part.direction == direction]
        if len({part.language for part in of_direction}) >= 2:
            table = _Table.of(of_direction)
            rows += _means(table, direction, reference, resampling, row_of)
            rows += _variance(table, direction, reference, row_of)
    return results_table(rows)


class _Table(NamedTuple):
    """Parts of one direction side by side; arrays of shape ``(n_parts, n_metrics)``."""

    parts: Sequence[Part]
    languages: list[tuple[str, str]]  # language and translator of each part
    metrics: list[str]
    positions: list[list[int]]  # for each part, the positions of the shared metrics among its own
    means: NDArray[np.float64]

    @classmethod
    def of(cls, parts: Sequence[Part]) -> _Table:
        metrics = [name for name in SUMMARISED if all(name in part.metrics for part in parts)]
        positions = [[part.metrics.index(name) for name in metrics] for part in parts]
        means = np.array(
            [[part.clusters.mean(part.values[i]) for i in rows] for part, rows in zip(parts, positions, strict=True)]
        )
        return cls(parts, [(part.language, part.translator) for part in parts], metrics, positions, means)

    def column(self, name: str) -> NDArray[np.float64]:
        """``low``, ``high`` or ``chance`` of all parts."""
        return np.array([getattr(part, name)[rows] for part, rows in zip(self.parts, self.positions, strict=True)])


def _weights(table: _Table, direction: str, reference: str) -> Iterator[tuple[str, NDArray[np.float64] | str]]:
    """Protocol id -> the weight of each part, or why it is unknown."""
    translators = sorted({translator for _, translator in table.languages})
    left_out = [None, reference] if {language for language, _ in table.languages} > {reference} else [None]
    for translator in [None, *(translators if len(translators) > 1 else [])]:
        for without in left_out:
            suffix = f"@without-{without}" if without else ""
            yield (
                f"{direction}/*/{translator or '*'}{suffix}",
                language_weights(table.languages, translator=translator, without=without),
            )
    for without in left_out:
        protocol = f"{direction}/*/*@speakers" + (f"-without-{without}" if without else "")
        try:
            yield protocol, language_weights(table.languages, without=without, speakers=True)
        except ValueError as error:
            yield protocol, str(error)


def _means(
    table: _Table, direction: str, reference: str, resampling: Resampling, row_of: RowOf
) -> Iterator[dict[str, Any]]:
    weights_or_reasons = dict(_weights(table, direction, reference))
    weights_of = {protocol: w for protocol, w in weights_or_reasons.items() if not isinstance(w, str)}
    matrix = np.stack(list(weights_of.values()))
    samples = [
        ClusteredValues(part.values[rows], part.clusters)
        for part, rows in zip(table.parts, table.positions, strict=True)
    ]
    of_parts = stacked_means(samples)
    n_images = max(part.clusters.n_occupied for part in table.parts)

    def statistic(drawn: NDArray[np.uint8]) -> NDArray[np.float64]:
        return (matrix @ of_parts(drawn).reshape(len(table.parts), -1)).reshape(len(matrix) * len(table.metrics), -1)

    intervals = bootstrap_statistic(
        statistic,
        resampling,
        n_clusters=table.parts[0].clusters.n_clusters,
        occupied=[n_images] * len(matrix) * len(table.metrics),
    )
    values, low, high, chance = (
        (matrix @ column).ravel() for column in (table.means, *map(table.column, ("low", "high", "chance")))
    )
    ties = matrix @ np.array([part.tied for part in table.parts])
    names = [(protocol, metric) for protocol in weights_of for metric in table.metrics]
    for i, ((protocol, metric), interval) in enumerate(zip(names, intervals, strict=True)):
        n_queries = sum(
            part.clusters.n_queries for part, w in zip(table.parts, weights_of[protocol], strict=True) if w > 0
        )
        yield {
            **row_of(
                interval,
                protocol=protocol,
                metric=metric,
                value=float(values[i]),
                n_queries=n_queries,
                n_clusters=n_images,
            ),
            "value_ties_lost": float(low[i]),
            "value_ties_won": float(high[i]),
            "chance": None if np.isnan(chance[i]) else float(chance[i]),
            "tie_share": float(ties[i // len(table.metrics)]),
        }
    for protocol, reason in weights_or_reasons.items():
        if isinstance(reason, str):
            no_interval = Interval(value=float("nan"), reason=reason)
            for metric in table.metrics:
                yield row_of(no_interval, protocol=protocol, metric=metric, value=None, n_queries=0, n_clusters=0)


def _variance(table: _Table, direction: str, reference: str, row_of: RowOf) -> Iterator[dict[str, Any]]:
    """The shares of every metric; no rows for fewer than two translators."""
    chosen = [i for i, (language, _) in enumerate(table.languages) if language != reference]
    if len({table.languages[i][1] for i in chosen}) < 2:
        return
    n_queries = sum(table.parts[i].clusters.n_queries for i in chosen)
    n_images = max(table.parts[i].clusters.n_occupied for i in chosen)
    for column, metric in enumerate(table.metrics):
        try:
            shares: Mapping[str, float | None] = variance_split(
                {table.languages[i]: float(table.means[i, column]) for i in chosen}
            )._asdict()
            reason = NO_INTERVAL
        except ValueError as error:
            shares, reason = dict.fromkeys(("language", "translator", "residual")), str(error)
        for source, share in shares.items():
            yield row_of(
                Interval(value=float("nan"), reason=reason),
                protocol=f"{direction}/*/*@without-{reference}",
                metric=f"{metric}_variance_{source}",
                value=share,
                n_queries=n_queries,
                n_clusters=n_images,
            )
