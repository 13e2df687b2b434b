"""Figures over all languages of a corpus -> rows of ``schema.RESULTS``: means, by speakers, and where the variance is.

Their protocol is the pattern of the protocols that went in, with what is special behind an ``@``:

    t2i/*/*                 mean over languages, each the mean of its translators (the "all" of COCO-SM)
    t2i/*/google            mean over what one translator translated
    ...@without-en          the same without the reference language
    t2i/*/*@speakers        languages by their number of speakers

The shares of the variance between languages, between translators and of neither (``R@1_variance_language`` …) are
over all but the reference language, which no system translated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.schema import RESULTS
from tasks.metrics import metrics_of
from tasks.metrics.crosslingual import language_part, language_weights, variance_split
from tasks.results.summary import Provenance, result_key
from tasks.scoring.outcomes import Outcomes
from tasks.statistics.bootstrap import Interval, bootstrap_statistic
from tasks.statistics.clusters import Clusters
from tasks.statistics.resampling import Resampling
from tasks.statistics.statistic import Sample, stacked_means

SUMMARISED = ("R@1", "R@5", "R@10", "consistency_nDCG@20", "consistency_RBO")
NO_INTERVAL = "a share of the variance: resampled images would add a variance of their own"


class Part(NamedTuple):
    """What one language by one translator adds: of the summarised metrics that it has, in their order."""

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
    """The part that outcomes are of.

    Raises:
        ValueError: Their protocol is not of one language by one translator.
    """
    named = language_part(outcomes.protocol)
    if named is None:
        raise ValueError(f"protocol {outcomes.protocol.id!r} is not of one language by one translator")
    clusters = Clusters.of(outcomes.clusters, n_clusters, outcomes.weights)
    metrics = [metric for metric in metrics_of(outcomes) if metric.name in SUMMARISED]
    chances = [metric.chance(outcomes) for metric in metrics]
    return Part(
        outcomes.protocol.direction,
        *named,
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
        No rows for a direction in fewer than two languages; null with a ``reason`` where a figure cannot be known.
    """
    created = datetime.now(UTC)
    rows: list[dict[str, Any]] = []
    for direction in sorted({part.direction for part in parts}):
        own = [part for part in parts if part.direction == direction]
        if len({part.language for part in own}) < 2:
            continue
        table = _Table.of(own)
        found = [
            *_means(table, direction, reference, resampling),
            *_variance(table, direction, reference),
        ]
        settings = {"level": resampling.level, "replicates": resampling.replicates, "seed": resampling.seed}
        for row in found:
            key = result_key(provenance, row["protocol"], row["metric"])
            rows.append({**asdict(provenance), **settings, "created": created, "result": key, **row})
    return pa.Table.from_pylist(rows, schema=RESULTS)


class _Table(NamedTuple):
    """Parts of one direction side by side; arrays of shape ``(n_parts, n_metrics)``."""

    parts: Sequence[Part]
    named: list[tuple[str, str]]
    metrics: list[str]
    at: list[list[int]]  # per part, where its metrics are
    means: NDArray[np.float64]

    @classmethod
    def of(cls, parts: Sequence[Part]) -> _Table:
        metrics = [name for name in SUMMARISED if all(name in part.metrics for part in parts)]
        at = [[part.metrics.index(name) for name in metrics] for part in parts]
        means = np.array([[p.clusters.mean(p.values[i]) for i in own] for p, own in zip(parts, at, strict=True)])
        return cls(parts, [(part.language, part.translator) for part in parts], metrics, at, means)

    def column(self, name: str) -> NDArray[np.float64]:
        """``low``, ``high`` or ``chance`` of all parts."""
        return np.array([getattr(part, name)[own] for part, own in zip(self.parts, self.at, strict=True)])


def _weights(table: _Table, direction: str, reference: str) -> Iterator[tuple[str, NDArray[np.float64] | str]]:
    """Protocol id -> what each part counts, or why that cannot be known."""
    translators = sorted({translator for _, translator in table.named})
    less = [None, reference] if {language for language, _ in table.named} > {reference} else [None]
    for translator in [None, *(translators if len(translators) > 1 else [])]:
        for without in less:
            suffix = f"@without-{without}" if without else ""
            yield (
                f"{direction}/*/{translator or '*'}{suffix}",
                language_weights(table.named, translator=translator, without=without),
            )
    for without in less:
        protocol = f"{direction}/*/*@speakers" + (f"-without-{without}" if without else "")
        try:
            yield protocol, language_weights(table.named, without=without, speakers=True)
        except ValueError as error:
            yield protocol, str(error)


def _means(table: _Table, direction: str, reference: str, resampling: Resampling) -> Iterator[dict[str, Any]]:
    asked = dict(_weights(table, direction, reference))
    known = {protocol: weights for protocol, weights in asked.items() if not isinstance(weights, str)}
    matrix = np.stack(list(known.values()))
    samples = [Sample(part.values[own], part.clusters) for part, own in zip(table.parts, table.at, strict=True)]
    of_parts = stacked_means(samples)
    n_images = max(part.clusters.n_occupied for part in table.parts)

    def statistic(drawn: NDArray[np.uint8]) -> NDArray[np.float64]:
        return (matrix @ of_parts(drawn).reshape(len(table.parts), -1)).reshape(len(matrix) * len(table.metrics), -1)

    intervals = bootstrap_statistic(
        statistic,
        n_clusters=table.parts[0].clusters.n_clusters,
        occupied=[n_images] * len(matrix) * len(table.metrics),
        seed=resampling.seed,
        replicates=resampling.replicates,
        level=resampling.level,
        method=resampling.method,
    )
    values, low, high, chance = (
        (matrix @ column).ravel() for column in (table.means, *map(table.column, ("low", "high", "chance")))
    )
    ties = matrix @ np.array([part.tied for part in table.parts])
    names = [(protocol, metric) for protocol in known for metric in table.metrics]
    for place, ((protocol, metric), interval) in enumerate(zip(names, intervals, strict=True)):
        counted = [part.clusters.n_queries for part, w in zip(table.parts, known[protocol], strict=True) if w > 0]
        yield {
            **_figure(protocol, metric, float(values[place]), interval, sum(counted), n_images),
            "value_ties_lost": float(low[place]),
            "value_ties_won": float(high[place]),
            "chance": None if np.isnan(chance[place]) else float(chance[place]),
            "tie_share": float(ties[place // len(table.metrics)]),
        }
    for protocol, reason in asked.items():
        if isinstance(reason, str):
            nothing = Interval(value=float("nan"), reason=reason)
            yield from (_figure(protocol, metric, None, nothing, 0, 0) for metric in table.metrics)


def _variance(table: _Table, direction: str, reference: str) -> Iterator[dict[str, Any]]:
    """The shares of every metric; nothing where there is one translator, so nothing to compare."""
    chosen = [place for place, (language, _) in enumerate(table.named) if language != reference]
    if len({table.named[place][1] for place in chosen}) < 2:
        return
    protocol = f"{direction}/*/*@without-{reference}"
    n_queries = sum(table.parts[place].clusters.n_queries for place in chosen)
    n_images = max(table.parts[place].clusters.n_occupied for place in chosen)
    for column, metric in enumerate(table.metrics):
        try:
            shares: Mapping[str, float | None] = variance_split(
                {table.named[place]: float(table.means[place, column]) for place in chosen}
            )._asdict()
            reason = NO_INTERVAL
        except ValueError as error:
            shares, reason = dict.fromkeys(("language", "translator", "residual")), str(error)
        for source, share in shares.items():
            interval = Interval(value=float("nan"), reason=reason)
            yield _figure(protocol, f"{metric}_variance_{source}", share, interval, n_queries, n_images)


def _figure(
    protocol: str, metric: str, value: float | None, interval: Interval, n_queries: int, n_clusters: int
) -> dict[str, Any]:
    return {
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
    }
