"""Figures over several protocols as values per image, so that encoders can be compared by them like by any other.

RSUM and means over languages are weighted sums of means. Every image has its part in such a sum, and the figure is the
mean of these parts over the images: bootstrap, sign flips and tests of equivalence apply as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.tasks.metrics import metrics_of, version_of
from capim.tasks.metrics.metric import Ties
from capim.tasks.metrics.retrieval import RECALLS
from capim.tasks.metrics.table import RSUM, Figure
from capim.tasks.protocols import MAIN
from capim.tasks.results.comparison import ComparedFigure
from capim.tasks.results.languages import SUMMARISED, Part, language_means
from capim.tasks.results.summary import Evaluated, Provenance, result_row, results_table, tie_share
from capim.tasks.scoring.outcomes import Outcomes
from capim.tasks.statistics.clusters import Clusters, Drawn
from capim.tasks.statistics.intervals import bootstrap_statistic, stacked_statistic
from capim.tasks.statistics.pairs import Scale
from capim.tasks.statistics.resampling import Resampling

Values = Mapping[Figure, NDArray[np.float64]]
"""Figure -> the part of every image, whose mean is the figure, and its weight: shape ``(2, n_images)``."""

RANGES = {RSUM: 600.0}  # of figures in another unit than fractions


def image_parts(values: NDArray[np.float64], clusters: Clusters) -> NDArray[np.float64]:
    """Each image's part of a mean over queries, with that mean, and its weight in it, with a mean of 1.

    Examples:
        >>> image_parts(np.array([1.0, 0.0, 1.0, 1.0]), Clusters.of([0, 0, 1, 1])).tolist()
        [[0.5, 1.0], [1.0, 1.0]]
    """
    sums = np.stack([clusters.sums(values[None])[:, 0], clusters.totals])
    parts: NDArray[np.float64] = sums * (clusters.n_clusters / clusters.totals.sum())
    return parts


def rsum_values(protocols: Iterable[Outcomes], *, drawn: Drawn) -> Values:
    """RSUM of the protocols ``t2i/all`` and ``i2t/any``; nothing without them, or where a recall is left open."""
    total, found = np.zeros((2, drawn if isinstance(drawn, int) else len(drawn))), []
    for outcomes in protocols:
        if not {metric.name for metric in RECALLS} <= {metric.name for metric in metrics_of(outcomes)}:
            return {}
        clusters = Clusters.of(outcomes.clusters, drawn, outcomes.weights)
        total += sum(image_parts(metric.per_query(outcomes), clusters) for metric in RECALLS)
        found.append(outcomes.protocol.id)
    scale = np.array([[100.0], [1 / (len(MAIN) * len(RECALLS))]])
    return {RSUM: total * scale} if sorted(found) == sorted(MAIN) else {}


def language_values(parts: Sequence[Part], *, reference: str) -> Values:
    """The means over languages of ``tasks.results.languages``, of each direction and metric that every part has."""
    found: dict[Figure, NDArray[np.float64]] = {}
    for direction in sorted({part.direction for part in parts}):
        chosen = [part for part in parts if part.direction == direction]
        metrics = [name for name in SUMMARISED if all(name in part.values for part in chosen)]
        languages = [part.language_and_translator for part in chosen]
        if len({language for language, _ in languages}) < 2:
            continue
        of_parts = {
            metric: np.stack([image_parts(part.values[metric], part.clusters) for part in chosen]) for metric in metrics
        }
        for protocol, weights in language_means(languages, direction, reference):
            if not isinstance(weights, str):
                found |= {Figure(protocol, metric): np.tensordot(weights, of_parts[metric], 1) for metric in metrics}
    return found


def combined_figures(encoders: Mapping[str, Values]) -> Iterator[ComparedFigure]:
    """Each figure that at least two encoders have, as what is compared; the queries are images with their weights."""
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


# --- RSUM: the sum of R@1, R@5 and R@10 of both directions, with the interval of the sum (``docs/protocols.md`` §5).


def rsum_row(t2i: Outcomes, i2t: Outcomes, provenance: Provenance, *, drawn: Drawn, resampling: Resampling) -> pa.Table:
    """The row of ``schema.RESULTS`` of two protocols together, in points, 0..600; its protocol is ``<t2i>+<i2t>``.

    Both directions share the draws, so the interval is that of the sum: narrower than the sum of six intervals. They
    must be of the same encoder and corpus, and ``provenance.evaluation`` must identify the two together.

    Raises:
        RequestError: ``t2i`` or ``i2t`` is of another direction.

    Examples:
        >>> from capim.tasks.metrics.examples import outcomes_of
        >>> t2i = outcomes_of([[1], [2], [3], [20]], direction="t2i", protocol="t2i/all")
        >>> i2t = outcomes_of([[1], [1], [7], [1]])
        >>> names = ("evaluation", "encoder", "encoder_fingerprint", "corpus", "corpus_fingerprint", "run")
        >>> source = Provenance(**dict.fromkeys(names, ""))
        >>> row = rsum_row(t2i, i2t, source, drawn=4, resampling=Resampling(replicates=100))
        >>> row["protocol"][0].as_py(), row["value"][0].as_py()  # 25 + 75 + 75 and 75 + 75 + 100
        ('t2i/all+i2t/any', 425.0)
    """
    if (t2i.protocol.direction, i2t.protocol.direction) != ("t2i", "i2t"):
        raise RequestError(
            f"RSUM adds one t2i and one i2t protocol, got {t2i.protocol.id!r} ({t2i.protocol.direction}) "
            f"and {i2t.protocol.id!r} ({i2t.protocol.direction})"
        )
    both = [
        Evaluated(outcomes=outcomes, metrics=RECALLS, provenance=provenance, drawn=drawn) for outcomes in (t2i, i2t)
    ]
    means = stacked_statistic([sample for each in both for _, sample in each.samples])

    def total(weights: NDArray[np.uint8]) -> NDArray[np.float64]:
        summed: NDArray[np.float64] = 100 * means(weights).sum(axis=0, keepdims=True)
        return summed

    def points(ties: Ties) -> float:
        """The sum of the six means."""
        return 100 * math.fsum(m.value(each.outcomes, ties) for each in both for m in RECALLS)

    n_occupied = len(np.union1d(t2i.clusters, i2t.clusters))
    [interval] = bootstrap_statistic(total, resampling, n_clusters=both[0].clusters.n_clusters, occupied=[n_occupied])
    chances = [chance for each in both for m in RECALLS if (chance := m.chance(each.outcomes)) is not None]
    row = {
        **result_row(
            provenance,
            resampling,
            interval,
            protocol=f"{t2i.protocol.id}+{i2t.protocol.id}",
            metric="RSUM",
            value=points("expected"),
            n_queries=len(t2i) + len(i2t),
            n_clusters=n_occupied,
            chance=100 * math.fsum(chances) if len(chances) == 2 * len(RECALLS) else None,
        ),
        "value_ties_lost": points("lost"),
        "value_ties_won": points("won"),
        "tie_share": tie_share(t2i, i2t),
    }
    return results_table([row])
