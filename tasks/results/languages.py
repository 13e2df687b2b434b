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

from capim.tasks.metrics import metrics_of
from capim.tasks.metrics.crosslingual import eta_squared, language_weights, noise_eta_squared
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.results.summary import Provenance, result_row, results_table
from capim.tasks.statistics.clusters import Clusters, Drawn
from capim.tasks.statistics.intervals import ClusteredValues, Interval, bootstrap_statistic, stacked_statistic
from capim.tasks.statistics.resampling import Resampling

RowOf: TypeAlias = Callable[..., dict[str, Any]]
SUMMARISED = ("R@1", "R@5", "R@10", "consistency_nDCG@20", "consistency_RBO")
NO_INTERVAL = "no interval: resampling images would add variance to the residual"


class Part(NamedTuple):
    """The captions of one language by one translator; the dictionaries hold its summarised metrics by name.

    ``figures``: the mean, the means with all ties lost and with all ties won, and chance (NaN where there is none).
    """

    direction: str
    language: str
    translator: str
    values: dict[str, NDArray[np.float64]]  # per query
    figures: dict[str, tuple[float, ...]]
    tied: float
    clusters: Clusters

    @property
    def language_and_translator(self) -> tuple[str, str]:
        """Whose captions these are."""
        return self.language, self.translator


def part_of(outcomes: Outcomes, *, drawn: Drawn) -> Part:
    """The part that these outcomes belong to.

    Raises:
        ValueError: Their protocol is not of one language by one translator.
    """
    if not outcomes.protocol.is_of_language:
        raise ValueError(f"protocol {outcomes.protocol.id!r} is not of one language by one translator")
    clusters = Clusters.of(outcomes.clusters, drawn, outcomes.weights)
    metrics = [metric for metric in metrics_of(outcomes) if metric.name in SUMMARISED]
    return Part(
        outcomes.protocol.direction,
        *outcomes.protocol.part,
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
            metrics = [name for name in SUMMARISED if all(name in part.values for part in of_direction)]
            rows += _means(of_direction, metrics, direction, reference, resampling, row_of)
            rows += _eta_squared(of_direction, metrics, direction, reference, row_of)
    return results_table(rows)


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
    parts: Sequence[Part],
    metrics: Sequence[str],
    direction: str,
    reference: str,
    resampling: Resampling,
    row_of: RowOf,
) -> Iterator[dict[str, Any]]:
    languages = [part.language_and_translator for part in parts]
    weights_or_reasons = dict(language_means(languages, direction, reference))
    weights_of = {protocol: w for protocol, w in weights_or_reasons.items() if not isinstance(w, str)}
    matrix = np.stack(list(weights_of.values()))
    of_parts = stacked_statistic(
        [ClusteredValues([part.values[metric] for metric in metrics], part.clusters) for part in parts]
    )
    n_images = max(part.clusters.n_occupied for part in parts)

    def statistic(drawn: NDArray[np.uint8]) -> NDArray[np.float64]:
        return (matrix @ of_parts(drawn).reshape(len(parts), -1)).reshape(len(matrix) * len(metrics), -1)

    intervals = bootstrap_statistic(
        statistic,
        resampling,
        n_clusters=parts[0].clusters.n_clusters,
        occupied=[n_images] * len(matrix) * len(metrics),
    )
    values, low, high, chance = (
        (matrix @ np.array([[part.figures[metric][at] for metric in metrics] for part in parts])).ravel()
        for at in range(4)
    )
    ties = matrix @ np.array([part.tied for part in parts])
    names = [(protocol, metric) for protocol in weights_of for metric in metrics]
    for i, ((protocol, metric), interval) in enumerate(zip(names, intervals, strict=True)):
        n_queries = sum(part.clusters.n_queries for part, w in zip(parts, weights_of[protocol], strict=True) if w > 0)
        yield {
            **row_of(
                interval,
                protocol=protocol,
                metric=metric,
                value=float(values[i]),
                n_queries=n_queries,
                n_clusters=n_images,
                chance=None if np.isnan(chance[i]) else float(chance[i]),
            ),
            "value_ties_lost": float(low[i]),
            "value_ties_won": float(high[i]),
            "tie_share": float(ties[i // len(metrics)]),
        }
    for protocol, reason in weights_or_reasons.items():
        if isinstance(reason, str):
            no_interval = Interval(value=float("nan"), reason=reason)
            for metric in metrics:
                yield row_of(no_interval, protocol=protocol, metric=metric, value=None, n_queries=0, n_clusters=0)


def _eta_squared(
    parts: Sequence[Part], metrics: Sequence[str], direction: str, reference: str, row_of: RowOf
) -> Iterator[dict[str, Any]]:
    """The three values of every metric; no rows for fewer than two translators."""
    chosen = [part for part in parts if part.language != reference]
    n_languages, n_translators = (len({part.language_and_translator[side] for part in chosen}) for side in (0, 1))
    if n_translators < 2:
        return
    noise = noise_eta_squared(n_languages, n_translators)._asdict()
    n_queries = sum(part.clusters.n_queries for part in chosen)
    n_images = max(part.clusters.n_occupied for part in chosen)
    for metric in metrics:
        try:
            shares: Mapping[str, float | None] = eta_squared(
                {part.language_and_translator: part.figures[metric][0] for part in chosen}
            )._asdict()
            reason = NO_INTERVAL
        except ValueError as error:
            shares, reason = dict.fromkeys(("language", "translator", "residual")), str(error)
        for source, share in shares.items():
            yield row_of(
                Interval(value=float("nan"), reason=reason),
                protocol=f"{direction}/*/*@without-{reference}",
                metric=f"{metric}_eta2_{source}",
                value=share,
                n_queries=n_queries,
                n_clusters=n_images,
                chance=None if share is None else noise[source],
            )
