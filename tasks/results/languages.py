"""Figures over all languages of a corpus -> rows of ``schema.RESULTS``: means and eta squared.

Their protocol is the pattern of the protocols that they summarise, with a variant behind an ``@``:

    t2i/*/*                 mean over languages, each the mean of its translators (the "all" of COCO-SM)
    t2i/*/google            mean over the languages of one translator
    ...@without-en          the same without the reference language
    t2i/*/*@speakers        languages weighted by their number of speakers

Eta squared of languages, of translators and the residual (``R@1_eta2_language`` …) are over all languages except the
reference, which no system translated; ``chance`` is what noise alone would give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.metrics import metrics_of
from tasks.metrics.crosslingual import eta_squared, language_part, language_weights, noise_eta_squared
from tasks.results.summary import Provenance, result_row, results_table
from tasks.scoring.outcomes import Outcomes
from tasks.statistics.bootstrap import Interval, bootstrap_statistic
from tasks.statistics.clusters import Clusters
from tasks.statistics.resampling import Resampling
from tasks.statistics.statistic import ClusteredValues, stacked_statistic

RowOf: TypeAlias = Callable[..., dict[str, Any]]
SUMMARISED = ("R@1", "R@5", "R@10", "consistency_nDCG@20", "consistency_RBO")
NO_INTERVAL = "no interval: resampling images would add variance to the residual"


class Part(NamedTuple):
    """The captions of one language by one translator; the dictionaries hold its summarised metrics by name."""

    direction: str
    language: str
    translator: str
    values: dict[str, NDArray[np.float64]]  # per query
    low: dict[str, float]  # with all ties lost
    high: dict[str, float]  # with all ties won
    chance: dict[str, float]  # NaN where there is none
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
    return Part(
        outcomes.protocol.direction,
        *language_and_translator,
        values={metric.name: metric.per_query(outcomes) for metric in metrics},
        low={metric.name: clusters.mean(metric.per_query(outcomes, "lost")) for metric in metrics},
        high={metric.name: clusters.mean(metric.per_query(outcomes, "won")) for metric in metrics},
        chance={m.name: np.nan if (chance := m.chance(outcomes)) is None else chance for m in metrics},
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

    All parts see the same draws of images, so an interval is that of the mean, not of a typical language. A direction
    with fewer than two languages has no rows; an undefined figure is null with a ``reason``. The parts are all of one
    encoder on one corpus; ``provenance.evaluation`` must identify them together.
    """
    row_of = partial(result_row, provenance, resampling)
    rows: list[dict[str, Any]] = []
    for direction in sorted({part.direction for part in parts}):
        of_direction = [part for part in parts if part.direction == direction]
        if len({part.language for part in of_direction}) >= 2:
            table = _Table(of_direction, [name for name in SUMMARISED if all(name in p.values for p in of_direction)])
            rows += _means(table, direction, reference, resampling, row_of)
            rows += _eta_squared(table, direction, reference, row_of)
    return results_table(rows)


class _Table(NamedTuple):
    """Parts of one direction and the metrics that all of them have."""

    parts: Sequence[Part]
    metrics: list[str]

    @property
    def languages(self) -> list[tuple[str, str]]:
        """Language and translator of each part."""
        return [(part.language, part.translator) for part in self.parts]

    def column(self, value: Callable[[Part, str], float]) -> NDArray[np.float64]:
        """A value of every part and metric, shape ``(n_parts, n_metrics)``."""
        return np.array([[value(part, metric) for metric in self.metrics] for part in self.parts])

    def means(self) -> NDArray[np.float64]:
        """The mean of every part and metric, shape ``(n_parts, n_metrics)``."""
        return self.column(lambda part, metric: part.clusters.mean(part.values[metric]))


def language_means(
    languages: Sequence[tuple[str, str]], direction: str, reference: str
) -> Iterator[tuple[str, NDArray[np.float64] | str]]:
    """The means over some languages and translators: protocol id and the weight of each, or why it is unknown."""
    translators = sorted({translator for _, translator in languages})
    left_out = [None, reference] if {language for language, _ in languages} > {reference} else [None]
    for translator in [None, *(translators if len(translators) > 1 else [])]:
        for without in left_out:
            suffix = f"@without-{without}" if without else ""
            yield (
                f"{direction}/*/{translator or '*'}{suffix}",
                language_weights(languages, translator=translator, without=without),
            )
    for without in left_out:
        protocol = f"{direction}/*/*@speakers" + (f"-without-{without}" if without else "")
        try:
            yield protocol, language_weights(languages, without=without, speakers=True)
        except ValueError as error:
            yield protocol, str(error)


def _means(
    table: _Table, direction: str, reference: str, resampling: Resampling, row_of: RowOf
) -> Iterator[dict[str, Any]]:
    weights_or_reasons = dict(language_means(table.languages, direction, reference))
    weights_of = {protocol: w for protocol, w in weights_or_reasons.items() if not isinstance(w, str)}
    matrix = np.stack(list(weights_of.values()))
    of_parts = stacked_statistic(
        [ClusteredValues([part.values[metric] for metric in table.metrics], part.clusters) for part in table.parts]
    )
    n_images = max(part.clusters.n_occupied for part in table.parts)

    def statistic(drawn: NDArray[np.uint8]) -> NDArray[np.float64]:
        return (matrix @ of_parts(drawn).reshape(len(table.parts), -1)).reshape(len(matrix) * len(table.metrics), -1)

    intervals = bootstrap_statistic(
        statistic,
        resampling,
        n_clusters=table.parts[0].clusters.n_clusters,
        occupied=[n_images] * len(matrix) * len(table.metrics),
    )
    columns = (
        table.means(),
        table.column(lambda part, metric: part.low[metric]),
        table.column(lambda part, metric: part.high[metric]),
        table.column(lambda part, metric: part.chance[metric]),
    )
    values, low, high, chance = ((matrix @ column).ravel() for column in columns)
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


def _eta_squared(table: _Table, direction: str, reference: str, row_of: RowOf) -> Iterator[dict[str, Any]]:
    """The three values of every metric; no rows for fewer than two translators."""
    chosen = [i for i, (language, _) in enumerate(table.languages) if language != reference]
    n_languages, n_translators = (len({table.languages[i][side] for i in chosen}) for side in (0, 1))
    if n_translators < 2:
        return
    noise = noise_eta_squared(n_languages, n_translators)._asdict()
    n_queries = sum(table.parts[i].clusters.n_queries for i in chosen)
    n_images = max(table.parts[i].clusters.n_occupied for i in chosen)
    means = table.means()
    for column, metric in enumerate(table.metrics):
        try:
            shares: Mapping[str, float | None] = eta_squared(
                {table.languages[i]: float(means[i, column]) for i in chosen}
            )._asdict()
            reason = NO_INTERVAL
        except ValueError as error:
            shares, reason = dict.fromkeys(("language", "translator", "residual")), str(error)
        for source, share in shares.items():
            row = row_of(
                Interval(value=float("nan"), reason=reason),
                protocol=f"{direction}/*/*@without-{reference}",
                metric=f"{metric}_eta2_{source}",
                value=share,
                n_queries=n_queries,
                n_clusters=n_images,
            )
            yield {**row, "chance": None if share is None else noise[source]}
